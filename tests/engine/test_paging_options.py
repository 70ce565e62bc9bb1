"""What a search takes besides its filters, and what platforms say of their rows."""

from __future__ import annotations

import dataclasses
import json
from typing import TypedDict

import pytest
from msgspec import Struct

from paymentsdk import (
    Incomplete,
    NoAnswer,
    Operation,
    Pager,
    PageShape,
    PaginationStalled,
    RequestInvalid,
    Response,
    RetryClass,
)
from paymentsdk.resources import OPERATIONS
from paymentsdk.testing import MemoryTransport
from tests.engine.walks import Position, ids, over

# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("page_size", 0),
        ("page_size", "10"),
        ("page_size", 1_000_001),
        ("start", 2**53 + 1),
        ("prefetch", 0),
        ("prefetch", 65),
        ("overlap", 30),
        ("certify", "no"),
        # The walk itself says where each page begins.
        ("limit", 20),
        ("offset", 20),
    ],
)
async def test_options_that_make_no_sense(client, option: str, value: object) -> None:
    """An option is rejected where it is given, with its name, before anything is sent."""
    with pytest.raises(RequestInvalid) as rejected:
        client.invoices.search(**{"page_size": 30, option: value})

    assert option == rejected.value.path


@pytest.mark.parametrize(
    "operation",
    [
        "invoices.search",
        None,
        OPERATIONS["orders.get"],
        dataclasses.replace(OPERATIONS["invoices.search"], path="/shops/{shop}/invoices"),
    ],
)
async def test_what_is_no_search_is_rejected_where_it_is_given(client, operation: object) -> None:
    """An operation without pages, or with a path that no filter fills, is found out before the first row is wanted."""
    with pytest.raises(RequestInvalid, match="a search without placeholders") as rejected:
        Pager(client, operation)

    assert "operation" == rejected.value.path


class Line(Struct):
    """A row that has no id at all."""

    amount: int


class Ledger(Struct):
    """A page of them."""

    rows: tuple[Line, ...]
    total: int | None = None


LEDGER = Operation(
    name="lines.search",
    method="GET",
    path="/lines",
    retry=RetryClass.READ,
    result=Ledger,
    query=Position,
    page=PageShape(items="rows", total="total"),
)


@pytest.mark.control("paymentsdk.Operation._check_page", lambda operation: None, raises=pytest.fail.Exception)
@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        (PageShape(items="elemnts", total="total"), "elemnts"),
        (PageShape(items="rows", total="total", offset="ofset"), "ofset"),
        (PageShape(items="rows", total="total", next_offset="next"), "next"),
    ],
    ids=str,
)
def test_a_shape_with_a_name_that_the_result_does_not_have(shape: PageShape, wrong: str) -> None:
    """A typing mistake shows when the module is imported, and not in a walk."""
    with pytest.raises(RequestInvalid) as rejected:
        dataclasses.replace(LEDGER, page=shape)

    assert "lines.search.page" == rejected.value.path
    assert f"{wrong!r} is not a field of the result" == rejected.value.reason


@pytest.mark.parametrize(("amounts", "total"), [(range(10), 35), ([5], None)], ids=str)
async def test_rows_without_an_id_that_go_in_a_circle(client, transport, amounts, total: int | None) -> None:
    """A platform that ignores the offset is found out without ids as well, if not at once: rows may be equal."""
    page = json.dumps({"rows": [{"amount": amount} for amount in amounts], "total": total}).encode()
    transport.replies(*[Response(200, {}, page)] * 200)

    with pytest.raises(PaginationStalled, match="pages, and no end"):
        await Pager(client, LEDGER).collect()

    assert 140 > len(transport.requests)


class Kind(TypedDict, total=False):
    """The filters of a search that shows one page."""

    kind: str


async def test_a_search_without_an_offset_is_of_one_page(client, transport) -> None:
    """It is asked for once, without a position; if the total says that there is more, the walk says so."""
    search = dataclasses.replace(LEDGER, query=Kind)
    transport.replies(
        Response(200, {}, b'{"rows":[{"amount":1},{"amount":2}],"total":2}'),
        Response(200, {}, b'{"rows":[{"amount":1}]}'),
        Response(200, {}, b'{"rows":[{"amount":1}],"total":2}'),
    )

    assert [1, 2] == [row.amount for row in await Pager(client, search, kind="x").collect()]
    assert [1] == [row.amount for row in await Pager(client, search, kind="x", prefetch=4).collect()]
    with pytest.raises(Incomplete, match="0 of 2 rows were seen: the search has no filter offset"):
        await Pager(client, search, kind="x").collect()
    assert {"kind=x"} == {request.url.partition("?")[2] for request in transport.requests}
    with pytest.raises(RequestInvalid, match="start"):
        Pager(client, search, start=1)


@pytest.mark.parametrize("position", ["offset", "next_offset"])
@pytest.mark.parametrize("query", [None, Kind])
def test_a_shape_with_an_offset_for_a_search_without_one(position: str, query: type | None) -> None:
    """Its second page could not be asked for: the declaration is rejected, and not each walk."""
    shape = PageShape(items="rows", total="total", **{position: "total"})

    with pytest.raises(RequestInvalid, match=r"lines\.search\.page: names an offset, but"):
        dataclasses.replace(LEDGER, query=query, page=shape)


# --- where the end is -------------------------------------------------------------------------------------------------


def last(value: object):
    """Say *value* as the next offset of the last page."""

    def change(response: dict[str, object], request) -> None:
        if response.get("next_offset") == 0:
            response["next_offset"] = response["total"] if value == "total" else value

    return change


def last_stands(response: dict[str, object], request) -> None:
    """Say where the last page stands as its next offset."""
    if response["elements"] and response["next_offset"] == 0:
        response["next_offset"] = response["elements"][0]["id"] - 1


def without(*names: str):
    """Leave members out of every response."""
    return lambda response, request: {name: value for name, value in response.items() if name not in names}


def no_rows_is_null(response: dict[str, object], request) -> None:
    """Send null for an empty list."""
    response["elements"] = response["elements"] or None


def as_text(response: dict[str, object], request) -> None:
    """Send the numbers of the position as texts."""
    response["paging"] = {name: str(value) for name, value in response["paging"].items()}


ENDINGS = {
    "next_offset is 0": (True, last(0)),
    "next_offset is the total": (True, last("total")),
    "next_offset is where it stands": (True, last_stands),
    "next_offset stands still, and no total": (
        True,
        lambda response, request: {**response, "next_offset": 30, "total": None},
    ),
    "neither of them": (True, without("total", "next_offset")),
    "elements is null": (True, no_rows_is_null),
    "numbers are texts": (False, as_text),
    "paging is never there": (False, without("paging")),
}


@pytest.mark.parametrize("rows", [0, 60, 75])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_way_to_say_where_the_end_is(tables, ending: str, rows: int) -> None:
    """However a platform tells its position, or does not, the walk ends with the last row and not before."""
    elements, changes = ENDINGS[ending]
    table = tables(rows, elements=elements, changes=changes)

    assert table.ids == await ids(table.search(over(table), prefetch=1 + rows % 2))
    assert len(table.offsets) <= rows // 30 + 2


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_more_rows_than_the_total(tables, prefetch: int) -> None:
    """A page that goes beyond the total shows that nobody has counted: what comes behind it is asked for as well."""

    def too_few(response: dict[str, object], request) -> None:
        response.get("paging", response)["total"] = 45

    table = tables(100, changes=too_few)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))


async def stalls(table, **options: int) -> PaginationStalled:
    """Walk *table*, which goes in a circle."""
    with pytest.raises(PaginationStalled) as stalled:
        await ids(table.search(over(table), **options))
    return stalled.value


@pytest.mark.control("paymentsdk._paging.cursor.Walk.behind", lambda walk, page, **changes: walk)
@pytest.mark.parametrize("totals", [(1_000, 1_000), (1_000, None)])
async def test_the_same_page_again_and_again(tables, totals: tuple[int | None, ...]) -> None:
    """A platform that ignores the offset is found out at the second page, whatever total it gives."""
    rows = [{"id": row} for row in range(30)]

    def same(response: dict[str, object], request) -> dict[str, object]:
        return circle(table, {"elements": rows, "total": totals[len(table.offsets) > 1]})

    table = tables(0, changes=same, elements=True)

    stalled = await stalls(table)

    assert "same page twice" in str(stalled)
    assert (30, "merchant_orders.search") == (stalled.resume_point, stalled.operation)


def circle(table, response: dict[str, object]) -> dict[str, object]:
    """Give up after some turns, so that a walk without its guards ends as well."""
    if len(table.offsets) > 10:
        pytest.fail("the walk goes on for ever")
    return response


async def test_a_next_offset_that_does_not_grow(tables) -> None:
    """A platform that sends the walk back to where it is, or to where it was, is found out."""
    table = tables(90, elements=True, changes=lambda response, request: {**response, "next_offset": 30})

    stalled = await stalls(table)

    assert "next_offset is 30" in str(stalled)
    assert 30 == stalled.resume_point


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_next_offset_behind_a_gap_is_not_followed(tables, prefetch: int) -> None:
    """A platform that goes on by what was asked for, though it gave fewer rows, must not cost the rows in between."""
    table = tables(
        100, elements=True, changes=lambda response, request: {**response, "next_offset": table.offsets[-1] + 50}
    )

    assert table.ids == await ids(table.search(over(table), page_size=50, prefetch=prefetch))


async def test_an_unrequested_page_is_rejected(tables, make_client) -> None:
    """A response with another offset belongs to another request: it is asked for again, and then is no response."""

    def shift(response: dict[str, object], request) -> None:
        if response["paging"]["offset"] == 30:
            response["paging"]["offset"] = 0

    table = tables(90, changes=shift)
    client = make_client(transport=MemoryTransport(table))

    with pytest.raises(NoAnswer, match="the page at offset 0") as lost:
        await ids(table.search(client))

    assert [0, 30, 30, 30, 30] == table.offsets
    assert 30 == lost.value.resume_point
