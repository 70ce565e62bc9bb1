"""A walk that ends before the last total, or as another seller, is no whole walk, and says so."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlsplit

import pytest

from paymentsdk import (
    AuthenticationFailed,
    Incomplete,
    Pager,
    PaymentsClient,
    Request,
    RequestInvalid,
    Response,
    ResumePoint,
    RetryPolicy,
)
from paymentsdk.testing import MemoryTransport
from tests.engine.conftest import Table
from tests.engine.walks import SHAPES, ids, ids_until_it_fails, over

AHEAD = pytest.mark.parametrize("prefetch", [1, 4], ids=["one page at a time", "pages ahead"])


def never(self: object, offset: int, total: int | None) -> None:
    """Take every empty page for the end."""


#: Without it, each test of what raises has to fail.
CONTROL = pytest.mark.control("paymentsdk._paging.cursor.PageSummary.missing", never)


def empty_from(begin: int, *, counts: bool = True):
    """Send no rows from offset *begin* on, and without *counts* no total either."""

    def change(response: dict[str, object], request: Request) -> None:
        if int(dict(parse_qsl(urlsplit(request.url).query))["offset"]) >= begin:
            response["elements" if "elements" in response else "results"] = []
            if not counts:
                response.get("paging", response)["total"] = None

    return change


@CONTROL
@pytest.mark.control(
    "paymentsdk._paging.cursor.PageSummary.missing",
    around=lambda missing: lambda self, offset, total: missing(self, offset, None),
)
@SHAPES
@AHEAD
async def test_an_empty_page_before_its_total_ends_no_walk(elements: bool, prefetch: int) -> None:
    """All rows before the empty page come; then the error says how many, of how many, and where to go on.

    So it does where the empty page takes back the total that the pages before it have said.
    """
    table = Table(95, cap=10, elements=elements, changes=empty_from(40, counts=False))
    walked, error = await ids_until_it_fails(table.search(over(table), prefetch=prefetch))

    assert list(range(1, 41)) == walked
    assert isinstance(error, Incomplete)
    assert (40, 95, 40, 95) == (error.seen, error.total, error.resume_point, error.resume_point.total)


@CONTROL
async def test_a_search_whose_first_page_is_empty_is_not_an_empty_search() -> None:
    """The platform counts rows and gives none: there is no first row to return, but not because there are none."""
    table = Table(3, changes=empty_from(0))
    with pytest.raises(Incomplete) as ended:
        await table.search(over(table)).first()

    assert (0, 3, 0) == (ended.value.seen, ended.value.total, ended.value.resume_point)


@CONTROL
@AHEAD
async def test_a_walk_goes_on_from_where_it_ended(prefetch: int) -> None:
    """Once the platform gives the rows, a walk from the resume point has all of them, and none is lost between."""
    table = Table(95, cap=10, changes=empty_from(40))
    walked, error = await ids_until_it_fails(table.search(over(table), prefetch=prefetch))
    table.changes = None

    assert table.ids == walked + await ids(table.search(over(table), prefetch=prefetch, start=error.resume_point))


@SHAPES
@pytest.mark.parametrize(("rows", "start"), [(0, None), (40, 40), (40, 60), (40, 30), (40, ResumePoint(40, 40))])
async def test_an_empty_page_at_the_end_is_the_end(elements: bool, rows: int, start: int | None) -> None:
    """A search that finds nothing, or nothing more, is whole."""
    table = Table(rows, elements=elements, cap=10)
    assert table.ids[start or 0 :] == await ids(table.search(over(table), start=start))


# --- sellers ----------------------------------------------------------------------------------------------------------


def token(seller: int, number: int = 1) -> str:
    """A token of a seller, as the contract has it (4.1)."""
    return f"APP_USR-9001-112304-0123456789abcdef{number}-{seller}"


ANN, BOB = token(77), token(88)


class Store:
    """A source that reads its tokens from a store; `None` where one has to be waited for."""

    def __init__(self, held: str | None) -> None:
        self.held = held
        self.renewed: str | None = None

    def token(self, now: float) -> str | None:
        return self.held

    async def renew(self, rejected, exchange, now) -> str | None:
        return self.renewed


class SellersPlatform:
    """100 rows, 10 on a page; and others who write into the store of a token.

    Args:
        held: What the store has to begin with, after the first page, the second, and so on.
        renewed: What it has after that for whoever waits.
    """

    def __init__(self, *held: str | None, renewed: str | None = None) -> None:
        self.held = list(held)
        self.store = Store(self.held.pop(0))
        self.renewed = renewed
        self.asked_with: list[str] = []

    async def __call__(self, request: Request) -> Response:
        self.asked_with.append(request.headers["Authorization"].removeprefix("Bearer "))
        if self.asked_with[-1] == "ended":
            return Response(401)
        if self.held:
            self.store.held = self.held.pop(0)
        if not self.held:
            self.store.renewed = self.renewed
        offset = int(dict(parse_qsl(urlsplit(request.url).query))["offset"])
        rows = [{"id": row} for row in range(offset, offset + 10)]
        return Response(200, {}, json.dumps({"results": rows, "paging": {"offset": offset, "total": 100}}).encode())

    def search(self, prefetch: int = 1) -> Pager:
        """Search it."""
        transport, retry = MemoryTransport(self), RetryPolicy(attempts=1)
        client = PaymentsClient(auth=self.store, base_url="http://127.0.0.1", transport=transport, retry=retry)
        return client.invoices.search(prefetch=prefetch)


@pytest.mark.control("paymentsdk._call.credential.certain_user_id", lambda token: None)
@AHEAD
@pytest.mark.parametrize(("tokens", "end"), [([ANN], BOB), ([ANN, "opaque"], None), (["opaque", ANN, "opaque"], BOB)])
async def test_a_walk_goes_on_as_the_seller_of_the_pages_before(
    tokens: list[str], end: str | None, prefetch: int
) -> None:
    """The rows of another would stand among those of the first: the walk ends, and says where another can go on."""
    platform = SellersPlatform(*tokens, end, renewed=BOB)

    walked, error = await ids_until_it_fails(platform.search(prefetch))

    assert isinstance(error, RequestInvalid)
    assert list(range(error.resume_point)) == walked
    assert "access_token: belongs to another seller than the token before" == str(error)
    assert {*tokens} == {*platform.asked_with}


async def test_a_page_with_a_rejected_token_is_not_requested_again() -> None:
    """The rejection stands, with what came of the refresh, and with where another walk can go on."""
    platform = SellersPlatform(ANN, ANN, "ended", renewed=BOB)

    with pytest.raises(AuthenticationFailed) as caught:
        await platform.search().collect()

    assert (20, [ANN, ANN, "ended"]) == (caught.value.resume_point, platform.asked_with)
    assert "another seller" in caught.value.__notes__[0]


@pytest.mark.parametrize("end", [token(77, 2), None, "opaque"], ids=["at hand", "waited for", "without a name"])
async def test_a_walk_goes_on_with_a_newer_token_of_its_seller(end: str | None) -> None:
    """Also with one that does not tell whose it is."""
    platform = SellersPlatform(ANN, ANN, end, renewed=token(77, 2))

    assert list(range(100)) == await ids(platform.search())
