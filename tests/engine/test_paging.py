"""Walks over searches: every row once and in order, whatever happens to the rows, the pages and the walker."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paymentsdk import (
    BadRequest,
    Incomplete,
    Operation,
    Pager,
    PageShape,
    PaginationStalled,
    Response,
    ResumePoint,
    RetryClass,
)
from paymentsdk.resources.common import ResponseStruct
from tests.engine.walks import SHAPES, Position, ids, ids_until_it_fails, over

#: How a walk ends that lost its way.
LOST = (AssertionError, Incomplete, PaginationStalled)


def naive_step(self, page, *, looks_ahead=False):
    """Go on by what was asked for, until the total is reached."""
    reached = self.offset + 50
    return replace(self, offset=reached, total=page.total) if page.received and reached < page.total else None


# --- every row once ---------------------------------------------------------------------------------------------------


@settings(max_examples=20)
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


@pytest.mark.control("paymentsdk._paging.pager.dropped_entries", lambda *_: 0, raises=LOST)
@pytest.mark.parametrize(
    ("nothing", "cap", "prefetch", "elements"),
    [(None, 1, 1, False), ("", 2, 4, True), ([], 3, 1, True), (5, 30, 4, False)],
)
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


class Sale(ResponseStruct):
    """A row of a search that somebody else declares."""

    id: int


class Sales(ResponseStruct, rename={"rows": "the-rows"}):
    """What holds its rows."""

    rows: tuple[Sale, ...] | None = None
    total: int | None = None


class SalesPage(ResponseStruct):
    """Its response: the rows stand in a part of it, and there is another list beside them."""

    data: Sales | None = None
    filters: tuple[Sale, ...] | None = None


SALES: Operation[None, SalesPage] = Operation(
    name="sales.search",
    method="GET",
    path="/sales",
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
    "paymentsdk._contract.operation.PageShape.places", lambda self, response: ("$.filters", "$.total"), raises=LOST
)
@pytest.mark.parametrize("size", [1, 3])
async def test_rows_are_counted_where_they_stand(size: int) -> None:
    """An entry that is no row takes its place wherever an operation has its rows; one of another list takes none."""
    rows = [{"id": 1}, {"id": 2}, None, None, {"id": 3}, 5, {"id": 4}, {"id": 5}]

    for filters in ((), (None,), (None, None, 5)):
        assert [1, 2, 3, 4, 5] == await ids(Pager(over(sales(rows, size, *filters)), SALES))


async def test_a_page_knows_where_it_stands(tables) -> None:
    """A page has its rows, the total, its offset, and where to go on; the last one says that it is the last."""
    table = tables(70)

    pages = [page async for page in table.search(over(table)).pages()]

    assert [(30, 70, 0, 30), (30, 70, 30, 60), (10, 70, 60, None)] == [
        (len(page.items), page.total, page.offset, page.resume_point) for page in pages
    ]


# --- failing, and going on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failing", "prefetch"), [(0, 1), (60, 1), (60, 3)])
async def test_a_walk_that_fails_can_be_resumed(tables, failing: int, prefetch: int) -> None:
    """A walk that fails raises, with the point from which another gives exactly the rest."""

    def fail(response: dict[str, object], request) -> Response | None:
        if f"offset={failing}" in request.url and not table.offsets.count(failing) > 1:
            return Response(503)
        return None

    table = tables(100, changes=fail)
    walked, error = await ids_until_it_fails(table.search(over(table), prefetch=prefetch))
    remaining = await ids(table.search(over(table), start=error.resume_point, prefetch=prefetch))

    assert failing == error.resume_point
    assert table.ids == walked + remaining


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


def forgetful(cls, offset: int, total: int | None = None) -> ResumePoint:
    """A resume point that knows its offset alone."""
    point = int.__new__(cls, offset)
    point.total = None
    return point


@pytest.mark.control("paymentsdk._paging.pager.ResumePoint.__new__", forgetful)
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_rows_that_move_up_between_two_walks(tables, prefetch: int) -> None:
    """Whoever goes on from a page's resume point gets the rows that have slid before it, whole walks apart."""
    table = tables(40)
    walk = table.search(over(table), page_size=10, prefetch=prefetch).pages()
    point = (await anext(walk)).resume_point
    await walk.aclose()
    table.ids = [row for row in table.ids if row not in (2, 3)]

    stored = ResumePoint(*json.loads(json.dumps([point, point.total])))
    remaining = await ids(table.search(over(table), page_size=10, prefetch=prefetch, start=stored))

    assert list(range(11, 41)) == sorted(set(remaining) - set(range(11)))
    assert len(remaining) == len(set(remaining))


def test_a_resume_point_is_an_integer_that_knows_more() -> None:
    """It can be printed, stored, compared, copied and pickled like an offset, and keeps its total in the last two."""
    point = ResumePoint(1200, 5000)

    assert (1200, "1200", "ResumePoint(1200, total=5000)") == (point, f"{point}", repr(point))
    assert [5000, 5000] == [twin.total for twin in (copy.copy(point), pickle.loads(pickle.dumps(point)))]


@pytest.mark.parametrize(("limit", "calls"), [(0, 0), (30, 1), (31, 2), (None, 3)])
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


# --- rows that vanish, appear or move ---------------------------------------------------------------------------------


async def test_rows_that_appear_at_the_end_are_found(tables) -> None:
    """The total may grow while the walk goes on."""

    def grow(table) -> None:
        if len(table.ids) < 200:
            table.ids += range(len(table.ids) + 1, len(table.ids) + 51)

    table = tables(50, drift=grow)

    assert list(range(1, 201)) == await ids(table.search(over(table), prefetch=4))


def vanishing(plan: list[list[float]]):
    """Delete rows before each page: for each number of *plan*, the row at that share of the table."""
    steps = iter(plan)

    def drift(table) -> None:
        for share in next(steps, ()):
            if table.ids:
                table.gone.add(table.ids.pop(int(share * (len(table.ids) - 1))))

    return drift


@settings(max_examples=25)
@given(
    rows=st.integers(0, 60),
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

    walked = await ids(table.search(over(table), prefetch=prefetch))

    assert len(walked) == len(set(walked))
    assert set(range(1, rows + 1)) - table.gone <= set(walked)


def blind(self, page, *, looks_ahead=False):
    """Go on by what came, and notice nothing."""
    reached = self.offset + page.received
    following = replace(self, offset=reached, total=page.total, size=page.received)
    return following if page.received and reached < page.total else None


@pytest.mark.control("paymentsdk._paging.cursor.Cursor.advance", blind)
async def test_a_table_that_shrinks_all_the_time_is_walked_forwards(tables) -> None:
    """Rows that leave the search before every page cost each page twice, not all of them again and again."""

    def shrink(table) -> None:
        table.gone.update(table.ids[:3])
        del table.ids[:3]

    table = tables(300, drift=shrink)
    table.gone = set()

    walked = await ids(table.search(over(table)))

    assert set(range(1, 301)) - table.gone <= set(walked)
    assert len(table.offsets) <= 24


def unreserved(begin):
    """Use up the rows that are read again for a total that falls."""
    return lambda start, overlap: replace(begin(start, overlap), overlap=0)


@pytest.mark.control("paymentsdk._paging.cursor.Cursor.begin", around=unreserved)
@settings(max_examples=20)
@given(
    rows=st.integers(5, 60),
    cap=st.integers(4, 15),
    overlap=st.integers(0, 3),
    prefetch=st.sampled_from([1, 4]),
    plan=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([0, 5, 100])), max_size=30),
)
# Rows slide while pages that were fetched ahead wait, and these are thrown away when the total falls.
@example(rows=29, cap=14, overlap=2, prefetch=4, plan=[(0, 0, 0), (2, 1, 0), (2, 0, 5), (1, 1, 5), (2, 0, 100)])
async def test_no_surviving_row_is_lost_if_no_more_are_swapped_than_are_read_again(
    tables, *, rows: int, cap: int, overlap: int, prefetch: int, plan: list[tuple[int, int, int]]
) -> None:
    """Up to *overlap* rows are exchanged between two pages, others vanish, and what stays is given, once."""
    steps, gone = iter(plan), set()

    def drift(table) -> None:
        swapped, vanished, depth = next(steps, (0, 0, 0))
        swapped = min(swapped, overlap)
        for _ in range(min(swapped + vanished, len(table.ids))):
            gone.add(table.ids.pop(min(depth, len(table.ids) - 1)))
        table.ids += [1_000 + 10 * len(table.offsets) + number for number in range(swapped)]

    table = tables(rows, cap=cap, drift=drift)

    walked = await ids(table.search(over(table), overlap=overlap, prefetch=prefetch))

    assert len(walked) == len(set(walked))
    assert set(range(1, rows + 1)) - gone <= set(walked)
