"""What a search takes besides its filters."""

from __future__ import annotations

import dataclasses
import json
from typing import TypedDict

import pytest
from msgspec import Struct

from paymentsdk import (
    Incomplete,
    Operation,
    Pager,
    PageShape,
    PaginationStalled,
    RequestInvalid,
    Response,
    RetryClass,
)
from paymentsdk.resources import OPERATIONS


class Position(TypedDict, total=False):
    """The filters of a search of one's own: where a page begins, and how many rows it has."""

    offset: int
    limit: int


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
    ],
)
async def test_options_that_make_no_sense(client, option: str, value: object) -> None:
    """An option is rejected where it is given, with its name, before anything is sent."""
    with pytest.raises(RequestInvalid) as rejected:
        client.invoices.search(**{"page_size": 30, option: value})

    assert option == rejected.value.path


@pytest.mark.parametrize(
    ("place", "reason"), [("limit", "is not a filter: use page_size"), ("offset", "is not a filter: use start")]
)
async def test_the_position_is_no_filter(client, place: str, reason: str) -> None:
    """The walk itself says where each page begins: taken as filters, the platform's names for that would be lost."""
    with pytest.raises(RequestInvalid) as rejected:
        client.invoices.search(**{place: 20})

    assert (place, reason) == (rejected.value.path, rejected.value.reason)


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


class Shelf(Struct):
    """A row whose id is not a string and no number."""

    id: list[int]


class Shelves(Struct):
    """A page of them."""

    rows: list[Shelf]
    total: int


SHELVES = Operation(
    name="shelves.search",
    method="GET",
    path="/shelves",
    section="",
    summary="Search shelves",
    retry=RetryClass.READ,
    result=Shelves,
    query=Position,
    page=PageShape(items="rows", total="total"),
)


@pytest.mark.control("paymentsdk._paging.pager._id_of", lambda row: row.id, raises=TypeError)
async def test_rows_that_cannot_be_recognised_are_all_new(client, transport) -> None:
    """An id that no set can hold, in an operation of one's own, ends no walk: its rows count as those without an id."""
    transport.replies(
        Response(200, {}, b'{"rows":[{"id":[1]},{"id":[2]}],"total":3}'),
        Response(200, {}, b'{"rows":[{"id":[3]}],"total":3}'),
    )

    assert [[1], [2], [3]] == [row.id for row in await Pager(client, SHELVES).collect()]


@pytest.mark.control("paymentsdk.Operation._check_page", lambda operation: None, raises=pytest.fail.Exception)
@pytest.mark.parametrize(
    ("result", "shape", "wrong"),
    [
        (Shelves, PageShape(items="elemnts", total="total"), "elemnts"),
        (Shelves, PageShape(items="rows", total="total", offset="ofset"), "ofset"),
        (Shelves, PageShape(items="rows", total="total", next_offset="next"), "next"),
    ],
    ids=str,
)
def test_a_shape_with_a_name_that_the_result_does_not_have(result: type, shape: PageShape, wrong: str) -> None:
    """A typing mistake shows when the module is imported, or the result exchanged, and not in a walk."""
    with pytest.raises(RequestInvalid) as rejected:
        dataclasses.replace(SHELVES, result=result, page=shape)

    assert "shelves.search.page" == rejected.value.path
    assert f"{wrong!r} is not a field of the result" == rejected.value.reason


class Line(Struct):
    """A row that has no id at all."""

    amount: int


class Ledger(Struct):
    """A page of them."""

    rows: tuple[Line, ...]
    total: int | None = None


LEDGER = dataclasses.replace(SHELVES, result=Ledger)


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

    with pytest.raises(RequestInvalid, match=r"shelves\.search\.page: names an offset, but"):
        dataclasses.replace(SHELVES, query=query, page=shape)
