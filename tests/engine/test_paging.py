"""Walks over searches: every row once and in order, whatever happens to the rows, the pages and the walker."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from paymentsdk import (
    BadRequest,
    Incomplete,
    NoAnswer,
    Operation,
    Pager,
    PageShape,
    PaginationStalled,
    PaymentsError,
    RequestInvalid,
    Response,
    ResumePoint,
    RetryClass,
    SendFailed,
)
from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.common import ResponseStruct
from paymentsdk.testing import MemoryTransport
from tests.engine.walks import SHAPES, ids, ids_until_it_fails, over

#: How a walk ends that lost its way.
LOST = (AssertionError, Incomplete, PaginationStalled)


def naive_step(self, page, *, looks_ahead=False):
    """Go on by what was asked for, until the total is reached."""
    reached = self.offset + 50
    return replace(self, offset=reached, total=page.total) if page.received and reached < page.total else None


# --- every row once ---------------------------------------------------------------------------------------------------


@given(
    rows=st.integers(0, 120),
    cap=st.integers(1, 40),
    page_size=st.none() | st.integers(1, 60),
    prefetch=st.integers(1, 8),
    overlap=st.integers(0, 5),
    elements=st.booleans(),
)
async def test_every_row_once_and_in_order(
    tables, *, rows: int, cap: int, page_size: int | None, prefetch: int, overlap: int, elements: bool
) -> None:
    """For any table, cap, page size, prefetch and overlap a walk gives all rows, each once, in their order."""
    table = tables(rows, cap=cap, elements=elements)
    overlap = min(overlap, (page_size or cap) - 1)

    walk = table.search(over(table), page_size=page_size, prefetch=prefetch, overlap=overlap)

    assert list(range(1, rows + 1)) == await ids(walk)


@pytest.mark.control("paymentsdk._paging.cursor.Cursor.advance", naive_step)
@SHAPES
async def test_a_cap_loses_no_rows(tables, elements: bool) -> None:
    """The platform may give fewer rows than were asked for: the walk goes on by what came."""
    table = tables(100, cap=30, elements=elements)

    assert table.ids == await ids(table.search(over(table), page_size=50))
    assert [0, 30, 60, 90] == table.offsets


@pytest.mark.control("paymentsdk._paging.pager._dropped", lambda *_: (), raises=LOST)
@SHAPES
@pytest.mark.parametrize("nothing", [None, "", [], 5])
@pytest.mark.parametrize("cap", [1, 2, 3, 30])
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_an_entry_that_is_no_row_takes_its_place(
    tables, *, nothing: object, cap: int, prefetch: int, elements: bool
) -> None:
    """An entry that is null or no object is left out, and counts as a row that came: none of the others is lost."""
    bad = {3, 5, 6, 7}

    def spoil(response: dict[str, object], request) -> None:
        name = "elements" if elements else "results"
        response[name] = [nothing if row["id"] in bad else row for row in response[name]]

    table = tables(9, cap=cap, elements=elements, changes=spoil)

    assert [row for row in table.ids if row not in bad] == await ids(table.search(over(table), prefetch=prefetch))


@SHAPES
async def test_what_is_left_of_two_pages_may_be_the_same(tables, elements: bool) -> None:
    """Pages that overlap, with entries between them that are no rows, are not taken for one page that comes twice."""
    bad = {1, 3}

    def spoil(response: dict[str, object], request) -> None:
        name = "elements" if elements else "results"
        response[name] = [None if row["id"] in bad else row for row in response[name]]

    table = tables(6, cap=2, elements=elements, changes=spoil)

    assert [2, 4, 5, 6] == await ids(table.search(over(table), overlap=1))
    assert [0, 1] == table.offsets[:2]


@pytest.mark.control(
    "paymentsdk._paging.pager._dropped", lambda anomalies, _: tuple(anomaly.path for anomaly in anomalies)
)
@SHAPES
async def test_a_row_that_is_repaired_is_counted_once(tables, caplog, elements: bool) -> None:
    """A row that came in a list of its own is a row like the others, not one more: the walk goes on right behind it."""

    def wrap(response: dict[str, object], request) -> None:
        name = "elements" if elements else "results"
        response[name] = [[row] for row in response[name]]

    table = tables(9, cap=4, elements=elements, changes=wrap)

    assert table.ids == await ids(table.search(over(table)))
    assert "of 9" not in caplog.text


def entries_of_any_list(anomalies, lists: set[str]) -> tuple[str, ...]:
    """Count whatever was dropped out of a list, and lists themselves."""
    return tuple(anomaly.path for anomaly in anomalies if anomaly.dropped)


@pytest.mark.control("paymentsdk._paging.pager._dropped", entries_of_any_list)
@pytest.mark.parametrize("member", [{"external_reference": [5]}, {"shipments": [None]}])
async def test_a_row_that_loses_a_member_is_counted_once(tables, member: dict[str, object]) -> None:
    """What is dropped within a row, a member or an entry of its lists, is no row: none behind it is skipped."""

    def spoil(response: dict[str, object], request) -> dict[str, object]:
        return {"elements": [row | member for row in response["elements"]], "total": response["total"]}

    table = tables(9, cap=4, elements=True, changes=spoil)

    assert table.ids == await ids(table.search(over(table)))


class Sale(ResponseStruct):
    """A row of a search that somebody else declares."""

    id: int


class Sales(ResponseStruct, rename={"rows": "the-rows"}):
    """What holds its rows."""

    rows: tuple[Sale, ...] | None = None
    total: int | None = None


class Position(TypedDict, total=False):
    """The filters of a search of one's own: where a page begins, and how many rows it has."""

    offset: int
    limit: int


class SalesPage(ResponseStruct):
    """Its response: the rows stand in a part of it, and there is another list beside them."""

    data: Sales | None = None
    filters: tuple[Sale, ...] | None = None


SALES: Operation[None, SalesPage] = Operation(
    name="sales.search",
    method="GET",
    path="/sales",
    section="",
    summary="Search sales",
    retry=RetryClass.READ,
    query=Position,
    result=SalesPage,
    page=PageShape(items="data.rows", total="data.total"),
)


def sales(rows: list[object], size: int, *filters: object):
    """Respond with *size* of *rows*, beside *filters*."""

    def response(request) -> Response:
        offset = int(request.url.rpartition("=")[2])
        page = {"the-rows": rows[offset : offset + size], "total": len(rows)}
        return Response(200, {}, json.dumps({"data": page, "filters": filters}).encode())

    return response


@pytest.mark.control(
    "paymentsdk._operation.operation.PageShape.places",
    lambda self, response: ("$.filters", "$.total"),
    raises=LOST,
)
@pytest.mark.parametrize("size", [1, 3])
async def test_rows_are_counted_where_they_stand(size: int) -> None:
    """An entry that is no row takes its place wherever an operation has its rows; one of another list takes none."""
    rows = [{"id": 1}, {"id": 2}, None, None, {"id": 3}, 5, {"id": 4}, {"id": 5}]

    for filters in ((), (None,), (None, None, 5)):
        assert [1, 2, 3, 4, 5] == await ids(Pager(over(sales(rows, size, *filters)), SALES))


async def test_a_page_without_one_row_is_no_end() -> None:
    """A page whose entries all are no rows is passed by, and no row with it, whatever else has no entry that is one."""
    rows = [{"id": 1}, None, {"id": 2}, {"id": 3}, None, None, {"id": 4}]

    for filters in ((), (None,), (None, None, 5)):
        assert [1, 2, 3, 4] == await ids(Pager(over(sales(rows, 1, *filters)), SALES))
        assert [] == await ids(Pager(over(sales([], 1, *filters)), SALES))


@pytest.mark.parametrize("data", [{"the-rows": "none", "total": 5}, "none"])
async def test_rows_that_cannot_be_read_are_no_end(data: object) -> None:
    """What stands where the rows belong ends a walk as an error, wherever that is: never with a short list."""
    body = json.dumps({"data": data}).encode()

    with pytest.raises(NoAnswer):
        await ids(Pager(over(lambda _: Response(200, {}, body)), SALES))


async def test_a_page_knows_where_it_stands(tables) -> None:
    """A page has its rows, the total, its offset, and where to go on; the last one says that it is the last."""
    table = tables(70)

    pages = [page async for page in table.search(over(table)).pages()]

    assert [(30, 70, 0, 30), (30, 70, 30, 60), (10, 70, 60, None)] == [
        (len(page.items), page.total, page.offset, page.resume_point) for page in pages
    ]


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_rows_that_appear_at_the_end_are_found(tables, prefetch: int) -> None:
    """The total may grow while the walk goes on."""

    def grow(table) -> None:
        if len(table.ids) < 200:
            table.ids += range(len(table.ids) + 1, len(table.ids) + 51)

    table = tables(50, drift=grow)

    assert list(range(1, 201)) == await ids(table.search(over(table), prefetch=prefetch))


async def test_rows_that_appear_in_front_are_not_repeated(tables) -> None:
    """New rows push others over the edge of a page: each is given once."""

    def newer(table) -> None:
        table.ids.insert(0, -len(table.offsets))

    table = tables(100, drift=newer)
    seen = await ids(table.search(over(table)))

    assert len(seen) == len(set(seen))
    assert set(range(1, 101)) <= set(seen)


# --- rows that vanish -------------------------------------------------------------------------------------------------


def vanishing(plan: list[list[float]]):
    """Delete rows before each page: for each number of *plan*, the row at that share of the table."""
    steps = iter(plan)

    def drift(table) -> None:
        for share in next(steps, ()):
            if table.ids:
                table.gone.add(table.ids.pop(int(share * (len(table.ids) - 1))))

    return drift


@given(
    rows=st.integers(0, 100),
    cap=st.integers(1, 30),
    prefetch=st.integers(1, 4),
    elements=st.booleans(),
    plan=st.lists(st.lists(st.floats(0, 1), max_size=12), max_size=12),
)
async def test_no_surviving_row_is_lost(
    tables, *, rows: int, cap: int, prefetch: int, elements: bool, plan: list[list[float]]
) -> None:
    """Whatever vanishes between the pages, all that is there from the beginning to the end is given, once."""
    table = tables(rows, cap=cap, elements=elements, drift=vanishing(plan))
    table.gone = set()

    seen = await ids(table.search(over(table), prefetch=prefetch))

    assert len(seen) == len(set(seen))
    assert set(range(1, rows + 1)) - table.gone <= set(seen)


def blind(self, page, *, looks_ahead=False):
    """Go on by what came, and notice nothing."""
    reached = self.offset + page.received
    following = replace(self, offset=reached, total=page.total, size=page.received)
    return following if page.received and reached < page.total else None


def creeping(self, page, *, looks_ahead=False):
    """Go back by what has vanished, each time, and forget what was seen."""
    vanished = (self.total or 0) - page.total
    if vanished > 0 < self.offset:
        return replace(self, offset=max(0, self.offset - vanished), total=page.total)
    return blind(self, page)


@pytest.mark.control("paymentsdk._paging.cursor.Cursor.advance", blind)
@pytest.mark.control("paymentsdk._paging.cursor.Cursor.advance", creeping)
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_table_that_shrinks_all_the_time_is_walked_forwards(tables, prefetch: int) -> None:
    """Rows that leave the search while it is walked, as paid orders do, cost some calls more, not all of them again."""

    def shrink(table) -> None:
        table.gone.update(table.ids[:3])
        del table.ids[:3]

    table = tables(1000, drift=shrink)
    table.gone = set()

    seen = await ids(table.search(over(table), prefetch=prefetch))

    assert set(range(1, 1001)) - table.gone <= set(seen)
    assert len(table.offsets) <= 1.25 * 1000 / 30 + 3 * prefetch


async def test_all_that_was_seen_vanishes(tables) -> None:
    """When so much vanishes that the next page lies behind the end, the walk goes back to where the rest has slid."""

    def clear(table) -> None:
        if len(table.offsets) == 1:
            del table.ids[:30]

    table = tables(60, drift=clear)

    assert list(range(1, 61)) == await ids(table.search(over(table)))


async def test_a_walk_goes_back_no_further_than_rows_have_slid(tables) -> None:
    """When many rows vanish at once, it is not begun anew."""

    def clear(table) -> None:
        if len(table.offsets) == 5:
            del table.ids[:45]

    table = tables(300, drift=clear)

    assert list(range(1, 301)) == sorted(await ids(table.search(over(table))))
    assert 150 - 45 - 30 <= min(table.offsets[5:]) <= 150 - 45


async def test_rows_that_vanish_while_as_many_appear(tables) -> None:
    """A total that stays the same hides that rows slid: reading some rows of every page again finds them."""

    def swap(table) -> None:
        table.ids.append(1000 + len(table.ids) + len(table.offsets))
        table.ids.pop(0)

    table, lossy = tables(100, drift=swap), tables(100, drift=swap)

    assert set(range(5, 101)) <= set(await ids(table.search(over(table), overlap=5, page_size=20)))
    assert not set(range(5, 101)) <= set(await ids(lossy.search(over(lossy), page_size=20)))


# --- failing, and going on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("failing", [0, 30, 60, 90])
@SHAPES
async def test_a_walk_that_fails_can_be_resumed(tables, elements: bool, failing: int, prefetch: int) -> None:
    """A walk that fails raises, with the point from which another gives exactly the rest."""

    def fail(response: dict[str, object], request) -> Response | None:
        if f"offset={failing}" in request.url and not table.offsets.count(failing) > 1:
            return Response(503)
        return None

    table = tables(100, elements=elements, changes=fail)
    seen, error = await ids_until_it_fails(table.search(over(table), prefetch=prefetch))
    rest = await ids(table.search(over(table), start=error.resume_point, prefetch=prefetch))

    assert failing == error.resume_point
    assert table.ids == seen + rest


async def test_a_walk_that_failed_is_over(tables) -> None:
    """After its error an iterator neither goes on with a gap nor ends as if that had been all: it fails again."""
    table = tables(90, changes=lambda response, request: Response(400) if table.offsets == [0, 30] else None)
    walk = table.search(over(table)).pages()

    await anext(walk)
    with pytest.raises(BadRequest):
        await anext(walk)

    with pytest.raises(BadRequest) as again:
        await anext(walk)
    assert (30, [0, 30]) == (again.value.resume_point, table.offsets)


async def test_a_failure_is_an_error_of_its_own_for_each_who_asks(tables) -> None:
    """One error raised again and again would grow by a traceback each time."""
    table = tables(30, changes=lambda response, request: Response(400))
    walk = table.search(over(table)).pages()

    failures = await asyncio.gather(*(anext(walk) for _ in range(3)), return_exceptions=True)

    assert [0] * 3 == [failure.resume_point for failure in failures]
    assert 3 == len({id(failure) for failure in failures})


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_several_tasks_share_a_walk(tables, prefetch: int) -> None:
    """Each row goes to one of those who take from one iterator, and when it fails, all of them learn of it."""
    table = tables(200)
    rows, seen = aiter(table.search(over(table), prefetch=prefetch)), []

    async def work() -> None:
        async for row in rows:
            seen.append(row.id)
            await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(5)))
    assert table.ids == sorted(seen)

    table = tables(200, changes=lambda response, request: Response(400) if len(table.offsets) > 3 else None)
    rows = aiter(table.search(over(table), prefetch=prefetch))
    failures = await asyncio.gather(*(work() for _ in range(5)), return_exceptions=True)
    assert [True] * 5 == [isinstance(failure, PaymentsError) for failure in failures]


def forgetful(cls, offset: int, total: int | None = None) -> ResumePoint:
    """A resume point that knows its offset alone."""
    point = int.__new__(cls, offset)
    point.total = None
    return point


@pytest.mark.control("paymentsdk._paging.pager.ResumePoint.__new__", forgetful)
@pytest.mark.parametrize("vanished", [[1], [2, 3], [1, 2, 3, 4]])
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_rows_that_move_up_between_two_walks(tables, prefetch: int, vanished: list[int]) -> None:
    """Whoever goes on from a page's resume point gets the rows that have slid before it, whole walks apart."""
    table = tables(40)
    walk = table.search(over(table), page_size=10, prefetch=prefetch).pages()
    point = (await anext(walk)).resume_point
    await walk.aclose()
    table.ids = [row for row in table.ids if row not in vanished]

    stored = ResumePoint(*json.loads(json.dumps([point, point.total])))
    rest = await ids(table.search(over(table), page_size=10, prefetch=prefetch, start=stored))

    assert list(range(11, 41)) == sorted(set(rest) - set(range(11)))
    assert len(rest) == len(set(rest))


async def test_rows_that_move_up_before_a_failed_walk_goes_on(tables) -> None:
    """The resume point on an error knows as much as that on a page."""
    table = tables(40, changes=lambda response, request: Response(400) if table.offsets == [0, 10] else None)
    with pytest.raises(BadRequest) as failed:
        await ids(table.search(over(table), page_size=10))
    table.ids = table.ids[3:]

    rest = await ids(table.search(over(table), page_size=10, start=failed.value.resume_point))

    assert set(range(11, 41)) <= set(rest)


def test_a_resume_point_is_an_integer_that_knows_more() -> None:
    """It can be printed, stored, compared, copied and pickled like an offset, and keeps its total in the last two."""
    point = ResumePoint(1200, 5000)

    assert (1200, "1200", "ResumePoint(1200, total=5000)") == (point, f"{point}", repr(point))
    assert [5000, 5000] == [twin.total for twin in (copy.copy(point), pickle.loads(pickle.dumps(point)))]


async def test_an_overlap_reaches_before_the_start(tables) -> None:
    """Rows that have moved up between two walks are found by whoever goes on with an overlap."""
    table = tables(12)
    table.ids.remove(1)

    assert list(range(4, 13)) == await ids(table.search(over(table), page_size=4, start=4, overlap=2))


async def test_collect_is_all_or_nothing(tables) -> None:
    """`collect` returns all rows or raises: a short list would look like a whole one."""
    table = tables(90, changes=lambda response, request: Response(400) if 60 in table.offsets else None)

    with pytest.raises(BadRequest):
        await table.search(over(table)).collect()


@pytest.mark.parametrize(("limit", "calls"), [(0, 0), (1, 1), (30, 1), (31, 2), (90, 3), (1_000, 3), (None, 3)])
async def test_collect_takes_a_limit(tables, limit: int | None, calls: int) -> None:
    """A limit is kept exactly, and no page is fetched that it does not need."""
    table = tables(90)

    rows = await table.search(over(table)).collect(limit)

    assert table.ids[:limit] == [row.id for row in rows]
    assert calls == len(table.offsets)


async def test_first_is_one_call(tables) -> None:
    """The first row costs one call, however many are fetched ahead; an empty search has none."""
    table = tables(90)

    assert 1 == (await table.search(over(table), prefetch=8).first()).id
    assert [0] == table.offsets
    assert await tables(0).search(over(tables(0))).first() is None


async def test_walks_of_one_pager_are_apart(tables) -> None:
    """A pager can be walked again, and by two at the same time: each walk sees all rows."""
    table = tables(70)
    pager = table.search(over(table), prefetch=2)

    assert [table.ids] * 2 == await asyncio.gather(ids(pager), ids(pager))
    assert table.ids == await ids(pager)


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("page_size", 0),
        ("page_size", -1),
        ("page_size", "10"),
        ("page_size", True),
        ("page_size", 1_000_001),
        ("start", -1),
        ("start", 2**53 + 1),
        ("start", 1.5),
        ("prefetch", 0),
        ("prefetch", 65),
        ("overlap", -1),
        ("overlap", None),
        ("prefetch", None),
        ("overlap", 30),
    ],
)
async def test_options_that_make_no_sense(client, option: str, value: object) -> None:
    """An option is rejected where it is given, with its name, before anything is sent."""
    with pytest.raises(RequestInvalid) as rejected:
        client.invoices.search(**{"page_size": 30, option: value})

    assert option == rejected.value.path


@pytest.mark.parametrize(
    ("filters", "place", "reason"),
    [
        ({"limit": 20}, "limit", "is not a filter: use page_size"),
        ({"offset": 30}, "offset", "is not a filter: use start"),
    ],
)
async def test_the_position_is_no_filter(client, filters: dict[str, int], place: str, reason: str) -> None:
    """The walk itself says where each page begins: taken as filters, the platform's names for that would be lost."""
    with pytest.raises(RequestInvalid) as rejected:
        client.invoices.search(**{place: 20})

    assert (place, reason) == (rejected.value.path, rejected.value.reason)


async def test_options_at_their_bounds(client, transport) -> None:
    """A walk may be resumed far out, and read as much again as a page has but one row."""
    transport.replies(Response(200, {}, b'{"results":[],"paging":{"offset":9007199253740993,"total":0}}'))
    walk = client.invoices.search(page_size=1_000_000, start=2**53, prefetch=64, overlap=999_999)

    assert [] == await walk.collect(limit=2**53)
    assert transport.requests[0].url.endswith("?offset=9007199253740993&limit=1000000")


async def test_filters_are_checked_at_once(client, transport) -> None:
    """A bad filter is rejected where it is given, not at the first row."""
    with pytest.raises(RequestInvalid, match=r"\$query\.date_created_from"):
        client.merchant_orders.search(date_created_from="yesterday")
    with pytest.raises(RequestInvalid, match="limit"):
        await client.invoices.search().collect(limit=-1)
    assert [] == transport.requests


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


@pytest.mark.control(
    "paymentsdk._paging.pager._Seen.fresh",
    lambda self, rows, ids: [(row, row.id) for row in rows if row.id not in self._ids],
    raises=TypeError,
)
async def test_rows_that_cannot_be_recognised_are_all_new(client, transport) -> None:
    """An id that no set can hold, in an operation of one's own, ends no walk: its rows count as those without an id."""
    transport.replies(
        Response(200, {}, b'{"rows":[{"id":[1]},{"id":[2]}],"total":3}'),
        Response(200, {}, b'{"rows":[{"id":[3]}],"total":3}'),
    )

    assert [[1], [2], [3]] == [row.id for row in await Pager(client, SHELVES).collect()]


class Loose(Struct):
    """A row that may have no id, told apart from one of null."""

    name: str
    id: str | UnsetType = UNSET


class Loosely(Struct):
    """A page of them."""

    rows: tuple[Loose, ...]
    total: int


@pytest.mark.control("paymentsdk._paging.pager._NO_ID", frozenset({None, ""}))
async def test_rows_whose_id_is_not_set_are_all_new(client, transport) -> None:
    """To have no id is no id that rows share, whichever way an operation of one's own says it."""
    transport.replies(*(Response(200, {}, b'{"rows":[{"name":"%d"}],"total":3}' % row) for row in range(3)))
    search = dataclasses.replace(SHELVES, result=Loosely)

    assert ["0", "1", "2"] == [row.name for row in await Pager(client, search).collect()]


async def test_the_position_goes_out_with_the_filters(client, transport) -> None:
    """Filters, offset and page size are sent together; without a page size the platform takes its own."""
    transport.replies(*[Response(200, {}, b'{"results":[]}')] * 2)

    await client.invoices.search(payer_id=5, start=60, page_size=20).collect()
    await client.invoices.search().collect()

    assert [
        "https://platform.test/authorized_payments/search?payer_id=5&offset=60&limit=20",
        "https://platform.test/authorized_payments/search?offset=0",
    ] == [request.url for request in transport.requests]


async def test_a_reset_in_the_middle_is_not_noticed(tables, make_client) -> None:
    """Pages are retried like any other read: a walk over a shaky connection gives every row once."""

    def shake(response: dict[str, object], request) -> None:
        if len(table.offsets) % 2:
            raise SendFailed("reset")

    table = tables(100, changes=shake)

    assert table.ids == await ids(table.search(make_client(transport=MemoryTransport(table)), prefetch=3))
