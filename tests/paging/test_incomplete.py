"""A walk that ends before the last total, or as another seller, is no whole walk, and says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import pytest

from paymentsdk import (
    AuthenticationFailed,
    Incomplete,
    Pager,
    PaymentsClient,
    PaymentsError,
    Request,
    RequestInvalid,
    Response,
    ResumePoint,
    RetryPolicy,
)
from paymentsdk.testing import MemoryTransport
from tests.engine.walks import ids, ids_until_it_fails

SHAPES = pytest.mark.parametrize("next_offset", [False, True], ids=["paging", "next_offset"])
AHEAD = pytest.mark.parametrize("prefetch", [1, 4], ids=["one page at a time", "pages ahead"])


class Platform:
    """Rows that are searched by offset and limit.

    Args:
        rows: How many there are to begin with; their ids count from 1.
        cap: The offset from which on every page is empty, whatever the total is.
        next_offset: Respond with `elements` and `next_offset` in place of `paging` and `results`.
        counts: Give no total on empty pages if it is `False`.
        before: Called with the platform and the offset before each page.
    """

    def __init__(
        self,
        rows: int,
        *,
        cap: int | None = None,
        next_offset: bool = False,
        counts: bool = True,
        before: Callable[[Platform, int], None] | None = None,
    ) -> None:
        self.rows = list(range(1, rows + 1))
        self.cap = cap
        self.next_offset = next_offset
        self.counts = counts
        self.before = before
        self.offsets: list[int] = []

    async def __call__(self, request: Request) -> Response:
        query = dict(parse_qsl(urlsplit(request.url).query))
        offset = int(query.get("offset", 0))
        self.offsets.append(offset)
        await asyncio.sleep(0)
        if self.before is not None:
            self.before(self, offset)
        rows = self.rows[offset : offset + min(int(query.get("limit", 10)), 10)]
        elements = [{"id": row} for row in rows if self.cap is None or offset < self.cap]
        total = len(self.rows) if elements or self.counts else None
        if self.next_offset:
            body: dict[str, object] = {"elements": elements, "next_offset": offset + len(elements), "total": total}
        else:
            body = {"results": elements, "paging": {"offset": offset, "limit": 10, "total": total}}
        return Response(200, {}, json.dumps(body).encode())

    def search(self, *, prefetch: int = 1, start: int | None = None, overlap: int = 0) -> Pager:
        """Search it."""
        client = PaymentsClient("token", base_url="http://127.0.0.1", transport=MemoryTransport(self))
        noun = client.merchant_orders if self.next_offset else client.invoices
        return noun.search(prefetch=prefetch, start=start, overlap=overlap)


async def walked(pager: Pager) -> tuple[list[int], PaymentsError | None]:
    """Walk to the end, and return the ids of the rows and the error, if one ended the walk."""
    ids: list[int] = []
    try:
        async for page in pager.pages():
            ids += [int(row.id) for row in page.items]
    except PaymentsError as error:
        return ids, error
    return ids, None


def never(self: object, offset: int, total: int | None) -> None:
    """Take every empty page for the end."""


#: Without it, each test of what raises has to fail.
CONTROL = pytest.mark.control("paymentsdk._paging.cursor.PageSummary.missing", never)


# --- what raises ------------------------------------------------------------------------------------------------------


@CONTROL
@SHAPES
@AHEAD
async def test_an_empty_page_before_its_total_ends_no_walk(next_offset: bool, prefetch: int) -> None:
    """All rows before the empty page come; then the error says how many, of how many, and where to go on."""
    ids, error = await walked(Platform(95, cap=40, next_offset=next_offset).search(prefetch=prefetch))

    assert list(range(1, 41)) == ids
    assert isinstance(error, Incomplete)
    assert (40, 95, 40, 95) == (error.seen, error.total, error.resume_point, error.resume_point.total)
    assert ("merchant_orders.search" if next_offset else "invoices.search") == error.operation


@CONTROL
@pytest.mark.control(
    "paymentsdk._paging.cursor.PageSummary.missing",
    around=lambda missing: lambda self, offset, total: missing(self, offset, None),
)
@pytest.mark.parametrize("noun", ["merchant_orders", "invoices", "plans"])
async def test_an_empty_page_without_a_total_is_measured_by_the_last_one(noun: str) -> None:
    """An empty page that names no total does not take back what the pages before it have said."""
    platform = Platform(95, cap=40, counts=False, next_offset=noun == "merchant_orders")
    client = PaymentsClient("token", base_url="http://127.0.0.1", transport=MemoryTransport(platform))

    ids, error = await walked(getattr(client, noun).search())

    assert list(range(1, 41)) == ids
    assert isinstance(error, Incomplete)
    assert (40, 95, 40, 95) == (error.seen, error.total, error.resume_point, error.resume_point.total)


@CONTROL
async def test_a_search_whose_first_page_is_empty_is_not_an_empty_search() -> None:
    """The platform counts rows and gives none: there is no first row to return, but not because there are none."""
    platform = Platform(3, cap=0)

    with pytest.raises(Incomplete) as ended:
        await platform.search().first()

    assert (0, 3, 0) == (ended.value.seen, ended.value.total, ended.value.resume_point)


@CONTROL
@AHEAD
async def test_a_walk_goes_on_from_where_it_ended(prefetch: int) -> None:
    """Once the platform gives the rows, a walk from the resume point has all of them, and none is lost between."""
    platform = Platform(95, cap=40)
    ids, error = await walked(platform.search(prefetch=prefetch))
    assert isinstance(error, Incomplete)
    platform.cap = None

    remaining, error = await walked(platform.search(prefetch=prefetch, start=error.resume_point))

    assert (list(range(1, 96)), None) == (ids + remaining, error)


# --- what does not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefetch", "more"), [(1, 7), (4, 10)])
async def test_a_search_that_grows_while_it_is_walked_is_whole(prefetch: int, more: int) -> None:
    """Each page is measured by its own total: rows that appear behind the walk's end are no loss."""

    def grow(platform: Platform, _: int) -> None:
        if len(platform.rows) < 90:
            platform.rows += range(len(platform.rows) + 1, len(platform.rows) + 1 + more)

    platform = Platform(30, before=grow)

    ids, error = await walked(platform.search(prefetch=prefetch))

    assert (list(range(1, len(ids) + 1)), None) == (ids, error)


@SHAPES
@pytest.mark.parametrize(
    ("counts", "rows", "start"),
    [(True, 0, None), (False, 40, 40), (True, 40, 60), (False, 40, 30), (True, 40, ResumePoint(40, 40))],
)
async def test_an_empty_page_at_the_end_is_the_end(
    next_offset: bool, counts: bool, rows: int, start: int | None
) -> None:
    """A search that finds nothing, or nothing more, is whole."""
    ids, error = await walked(Platform(rows, next_offset=next_offset, counts=counts).search(start=start))

    assert (max(0, rows - (start or 0)), None) == (len(ids), error)


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


@pytest.mark.control("paymentsdk._call.credential._is_of_another_seller", lambda token, before: False)
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
