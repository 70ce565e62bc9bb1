"""Walks over searches: every row once and in order, whatever happens to the rows, the pages and the walker."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import pickle
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import (
    NoAnswer,
    PaginationStalled,
    PaymentsClient,
    PaymentsError,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
)
from paymentsdk._core import paging
from paymentsdk._core.paging import Pager, Pages
from paymentsdk.resources import OPERATIONS
from paymentsdk.testing import FakeClock, MemoryTransport

SHAPES = pytest.mark.parametrize("elements", [False, True], ids=["results", "elements"])
ONCE = RetryPolicy(attempts=1)


def over(table: object) -> PaymentsClient:
    """A client that finds *table*."""
    return PaymentsClient("token", base_url="http://x", transport=MemoryTransport(table), clock=FakeClock(), retry=ONCE)


async def ids(pager: Pager) -> list[int]:
    """Walk *pager* to its end."""
    return [row.id async for row in pager]


def naive_step(self, offset, received, total, result) -> int | None:
    """Go on by what was asked for, until the total is reached."""
    self._size, asked = received, 50
    return offset + asked if received and offset + asked < (total or 0) else None


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


@pytest.mark.control("paymentsdk._core.paging.Pages._following", naive_step)
@SHAPES
async def test_a_cap_loses_no_rows(tables, elements: bool) -> None:
    """The platform may give fewer rows than were asked for: the walk goes on by what came."""
    table = tables(100, cap=30, elements=elements)

    assert table.ids == await ids(table.search(over(table), page_size=50))
    assert [0, 30, 60, 90] == table.offsets


@pytest.mark.control(
    "paymentsdk._core.paging._dropped", lambda anomalies: 0, raises=(AssertionError, PaginationStalled)
)
@SHAPES
@pytest.mark.parametrize("nothing", [None, "", [], 5])
@pytest.mark.parametrize("cap", [1, 2, 3, 30])
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_an_entry_that_is_no_row_takes_its_place(
    tables, *, nothing: object, cap: int, prefetch: int, elements: bool
) -> None:
    """An entry that is null or no object is left out, and counts as a row that came: none of the others is lost."""
    bad = {3, 5, 6, 7}

    def spoil(answer: dict[str, object], request) -> None:
        name = "elements" if elements else "results"
        answer[name] = [nothing if row["id"] in bad else row for row in answer[name]]

    table = tables(9, cap=cap, elements=elements, changes=spoil)

    assert [row for row in table.ids if row not in bad] == await ids(table.search(over(table), prefetch=prefetch))


@pytest.mark.control("paymentsdk._core.paging._dropped", len)
@SHAPES
async def test_a_row_that_is_mended_is_counted_once(tables, elements: bool) -> None:
    """A row that came in a list of its own is a row like the others, not one more: the walk goes on right behind it."""

    def wrap(answer: dict[str, object], request) -> None:
        name = "elements" if elements else "results"
        answer[name] = [[row] for row in answer[name]]

    table = tables(9, cap=4, elements=elements, changes=wrap)

    assert table.ids == await ids(table.search(over(table)))


async def test_a_page_knows_where_it_stands(tables) -> None:
    """A page has its rows, the total, its offset, and where to go on; the last one says that it is the last."""
    table = tables(70)

    pages = [page async for page in table.search(over(table)).pages()]

    assert [(30, 70, 0, 30), (30, 70, 30, 60), (10, 70, 60, None)] == [
        (len(page.items), page.total, page.offset, page.resume_point) for page in pages
    ]


def last(value: object):
    """Say *value* as the next offset of the last page."""

    def change(answer: dict[str, object], request) -> None:
        if answer.get("next_offset") == 0:
            answer["next_offset"] = answer["total"] if value == "total" else value

    return change


def last_stands(answer: dict[str, object], request) -> None:
    """Say where the last page stands as its next offset."""
    if answer["elements"] and answer["next_offset"] == 0:
        answer["next_offset"] = answer["elements"][0]["id"] - 1


def without(*names: str):
    """Leave members out of every answer."""
    return lambda answer, request: {name: value for name, value in answer.items() if name not in names}


def null(name: str):
    """Send a member as null."""
    return lambda answer, request: {**answer, name: None}


def no_rows_is_null(answer: dict[str, object], request) -> None:
    """Send null for an empty list."""
    answer["elements"] = answer["elements"] or None


def as_text(answer: dict[str, object], request) -> None:
    """Send the numbers of the position as texts."""
    answer["paging"] = {name: str(value) for name, value in answer["paging"].items()}


ENDINGS = {
    "next_offset is 0": (True, last(0)),
    "next_offset is the total": (True, last("total")),
    "next_offset is null": (True, last(None)),
    "next_offset is where it stands": (True, last_stands),
    "next_offset stands still, and no total": (
        True,
        lambda answer, request: {**answer, "next_offset": 30, "total": None},
    ),
    "next_offset is never there": (True, without("next_offset")),
    "the total is never there": (True, without("total")),
    "neither of them": (True, without("total", "next_offset")),
    "elements is null": (True, no_rows_is_null),
    "numbers are texts": (False, as_text),
    "paging is null": (False, null("paging")),
    "paging is never there": (False, without("paging")),
}


@pytest.mark.parametrize("rows", [0, 1, 30, 60, 75])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_way_to_say_where_the_end_is(tables, ending: str, rows: int) -> None:
    """However a platform tells its position, or does not, the walk ends with the last row and not before."""
    elements, changes = ENDINGS[ending]
    table = tables(rows, elements=elements, changes=changes)

    assert table.ids == await ids(table.search(over(table)))
    assert len(table.offsets) <= rows // 30 + 2


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_total_that_is_told_once(tables, prefetch: int) -> None:
    """A platform may count only for the first page: the walk goes on to the last row all the same."""

    def only_at_first(answer: dict[str, object], request) -> None:
        if answer["paging"]["offset"]:
            del answer["paging"]["total"]

    table = tables(100, changes=only_at_first)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))


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


def blind(self, offset, received, total, result) -> int | None:
    """Go on by what came, and notice nothing."""
    self._size = received
    return offset + received if received and offset + received < total else None


def creeping(self, offset, received, total, result) -> int | None:
    """Go back by what has vanished, each time, and forget what was seen."""
    self._size, vanished = received, (self._total or 0) - total
    if vanished > 0 < offset:
        return max(0, offset - vanished)
    return offset + received if received and offset + received < total else None


@pytest.mark.control("paymentsdk._core.paging.Pages._following", blind)
@pytest.mark.control("paymentsdk._core.paging.Pages._following", creeping)
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


# --- platforms that cannot count --------------------------------------------------------------------------------------


async def stalls(table, **options: int) -> PaginationStalled:
    """Walk *table*, which goes in a circle."""
    with pytest.raises(PaginationStalled) as stalled:
        await ids(table.search(over(table), **options))
    return stalled.value


@pytest.mark.control("paymentsdk._core.paging.Pages._guard", lambda *_: None)
@pytest.mark.parametrize("totals", [(1_000, 1_000), (None, None), (1_000, None)])
async def test_the_same_page_again_and_again(tables, totals: tuple[int | None, ...]) -> None:
    """A platform that ignores the offset is found out at the second page, whatever total it gives."""
    rows = [{"id": row} for row in range(30)]

    def same(answer: dict[str, object], request) -> dict[str, object]:
        return circle(table, {"elements": rows, "total": totals[len(table.offsets) > 1]})

    table = tables(0, changes=same, elements=True)

    stalled = await stalls(table)

    assert "same page twice" in str(stalled)
    assert (30, "merchant_orders.search") == (stalled.resume_point, stalled.operation or "merchant_orders.search")


def circle(table, answer: dict[str, object]) -> dict[str, object]:
    """Give up after some turns, so that a walk without its guards ends as well."""
    if len(table.offsets) > 10:
        pytest.fail("the walk goes on for ever")
    return answer


async def test_a_next_offset_that_does_not_grow(tables) -> None:
    """A platform that sends the walk back to where it is, or to where it was, is found out."""
    table = tables(90, elements=True, changes=lambda answer, request: {**answer, "next_offset": 30})

    stalled = await stalls(table)

    assert "next_offset is 30" in str(stalled)
    assert 30 == stalled.resume_point


async def test_a_next_offset_that_overlaps_is_followed(tables) -> None:
    """A platform may begin its next page before the end of this one: it knows best."""
    table = tables(
        60, elements=True, changes=lambda answer, request: {**answer, "next_offset": len(table.offsets) * 20}
    )

    assert table.ids == await ids(table.search(over(table)))
    assert [0, 20, 40] == table.offsets


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_next_offset_behind_a_gap_is_not_followed(tables, prefetch: int) -> None:
    """A platform that goes on by what was asked for, though it gave fewer rows, must not cost the rows in between."""
    table = tables(
        100, elements=True, changes=lambda answer, request: {**answer, "next_offset": table.offsets[-1] + 50}
    )

    assert table.ids == await ids(table.search(over(table), page_size=50, prefetch=prefetch))


async def test_pages_with_nothing_new(tables, monkeypatch) -> None:
    """Page after page of rows that were seen before comes to an end, and so does a search without one."""
    monkeypatch.setattr(paging, "MOST_STALE_PAGES", 5)
    wheel = tables(0, elements=True, changes=lambda answer, request: {"elements": turned(wheel), "total": 10**6})
    stalled = await stalls(wheel)
    assert "6 pages, and no end" in str(stalled) or "7 pages" in str(stalled)

    monkeypatch.setattr(paging, "MOST_PAGES", 5)
    endless = tables(0, elements=True, changes=lambda answer, request: {"elements": new(endless), "total": 10**6})
    assert "6 pages, and no end" in str(await stalls(endless))


def turned(table) -> list[dict[str, object]]:
    """The same ten rows, in another order each time."""
    turn = len(table.offsets) % 10
    return [{"id": (row + turn) % 10 + 1} for row in range(10)]


def new(table) -> list[dict[str, object]]:
    """Rows that were never there before."""
    return [{"id": 10 * len(table.offsets) + row} for row in range(10)]


@SHAPES
async def test_an_empty_page_too_early_is_flagged(tables, caplog, elements: bool) -> None:
    """An empty page ends a walk; if the total says that there is more, the page and the log say so."""

    def stop(answer: dict[str, object], request) -> None:
        if "offset=60" in request.url:
            answer["elements" if elements else "results"] = []
            answer["next_offset"] = 60

    table = tables(90, changes=stop, elements=elements)

    pages = [page async for page in table.search(over(table)).pages()]

    assert [30, 30, 0] == [len(page.items) for page in pages]
    assert ["an empty page at offset 60, though the total is 90"] == [anomaly.reason for anomaly in pages[-1].anomalies]
    assert [logging.WARNING] == [record.levelno for record in caplog.records]


async def test_a_page_that_nobody_asked_for(tables, make_client) -> None:
    """An answer with another offset belongs to another request: it is asked for again, and then is no answer."""

    def shift(answer: dict[str, object], request) -> None:
        if answer["paging"]["offset"] == 30:
            answer["paging"]["offset"] = 0

    table = tables(90, changes=shift)
    client = make_client(transport=MemoryTransport(table))

    with pytest.raises(NoAnswer, match="the page at offset 0") as lost:
        await ids(table.search(client))

    assert [0, 30, 30, 30, 30] == table.offsets
    assert 30 == lost.value.resume_point


async def test_rows_without_an_id_are_never_left_out(tables) -> None:
    """A row that cannot be told from another is new: losing it would be worse than giving it twice."""

    def nameless(answer: dict[str, object], request) -> None:
        answer["results"] = [{"id": ""} for _ in answer["results"]]

    table = tables(60, changes=nameless)

    assert [""] * 60 == await ids(table.search(over(table)))


# --- failing, and going on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("failing", [0, 30, 60, 90])
@SHAPES
async def test_a_walk_that_fails_can_be_resumed(tables, elements: bool, failing: int, prefetch: int) -> None:
    """A walk that fails raises, with the point from which another gives exactly the rest."""

    def fail(answer: dict[str, object], request) -> Response | None:
        if f"offset={failing}" in request.url and not table.offsets.count(failing) > 1:
            return Response(503)
        return None

    table = tables(100, elements=elements, changes=fail)
    seen, error = await ids_until_it_fails(table.search(over(table), prefetch=prefetch))
    rest = await ids(table.search(over(table), start=error.resume_point, prefetch=prefetch))

    assert failing == error.resume_point
    assert table.ids == seen + rest


async def ids_until_it_fails(pager: Pager) -> tuple[list[int], PaymentsError]:
    """Walk *pager* to the error that ends it."""
    seen: list[int] = []
    try:
        async for row in pager:
            seen.append(row.id)  # noqa: PERF401 - the rows before the error are what it is about
    except PaymentsError as error:
        return seen, error
    pytest.fail("it did not fail")


async def test_a_walk_that_failed_is_over(tables) -> None:
    """After its error an iterator neither goes on with a gap nor ends as if that had been all: it fails again."""
    table = tables(90, changes=lambda answer, request: Response(400) if table.offsets == [0, 30] else None)
    walk = table.search(over(table)).pages()

    await anext(walk)
    with pytest.raises(PaymentsError):
        await anext(walk)

    with pytest.raises(PaymentsError) as again:
        await anext(walk)
    assert (30, [0, 30]) == (again.value.resume_point, table.offsets)


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

    table = tables(200, changes=lambda answer, request: Response(400) if len(table.offsets) > 3 else None)
    rows = aiter(table.search(over(table), prefetch=prefetch))
    failures = await asyncio.gather(*(work() for _ in range(5)), return_exceptions=True)
    assert [True] * 5 == [isinstance(failure, PaymentsError) for failure in failures]


def forgetful(cls, offset: int, total: int | None = None) -> paging.ResumePoint:
    """A resume point that knows its offset alone."""
    point = int.__new__(cls, offset)
    point.total = None
    return point


@pytest.mark.control("paymentsdk._core.paging.ResumePoint.__new__", forgetful)
@pytest.mark.parametrize("vanished", [[1], [2, 3], [1, 2, 3, 4]])
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_rows_that_move_up_between_two_walks(tables, prefetch: int, vanished: list[int]) -> None:
    """Whoever goes on from a page's resume point gets the rows that have slid before it, whole walks apart."""
    table = tables(40)
    walk = table.search(over(table), page_size=10, prefetch=prefetch).pages()
    point = (await anext(walk)).resume_point
    await walk.aclose()
    table.ids = [row for row in table.ids if row not in vanished]

    stored = paging.ResumePoint(*json.loads(json.dumps([point, point.total])))
    rest = await ids(table.search(over(table), page_size=10, prefetch=prefetch, start=stored))

    assert list(range(11, 41)) == sorted(set(rest) - set(range(11)))
    assert len(rest) == len(set(rest))


async def test_rows_that_move_up_before_a_failed_walk_goes_on(tables) -> None:
    """The resume point on an error knows as much as that on a page."""
    table = tables(40, changes=lambda answer, request: Response(400) if table.offsets == [0, 10] else None)
    with pytest.raises(PaymentsError) as failed:
        await ids(table.search(over(table), page_size=10))
    table.ids = table.ids[3:]

    rest = await ids(table.search(over(table), page_size=10, start=failed.value.resume_point))

    assert set(range(11, 41)) <= set(rest)


def test_a_resume_point_is_an_integer_that_knows_more() -> None:
    """It can be printed, stored, compared, copied and pickled like an offset, and keeps its total in the last two."""
    point = paging.ResumePoint(1200, 5000)

    assert (1200, "1200", "ResumePoint(1200, total=5000)") == (point, f"{point}", repr(point))
    assert [5000, 5000] == [twin.total for twin in (copy.copy(point), pickle.loads(pickle.dumps(point)))]


async def test_an_overlap_reaches_before_the_start(tables) -> None:
    """Rows that have moved up between two walks are found by whoever goes on with an overlap."""
    table = tables(12)
    table.ids.remove(1)

    assert list(range(4, 13)) == await ids(table.search(over(table), page_size=4, start=4, overlap=2))


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_total_of_nothing_beside_rows(tables, prefetch: int) -> None:
    """A platform that counts no rows and sends some is walked until an empty page, and each page says so."""

    def uncounted(answer: dict[str, object], request) -> None:
        answer["paging"]["total"] = 0

    table = tables(70, changes=uncounted)

    pages = [page async for page in table.search(over(table), prefetch=prefetch).pages()]

    assert table.ids == [row.id for page in pages for row in page.items]
    assert "30 rows at offset 0, though the total is 0" == pages[0].anomalies[0].reason


async def test_collect_is_all_or_nothing(tables) -> None:
    """`collect` returns all rows or raises: a short list would look like a whole one."""
    table = tables(90, changes=lambda answer, request: Response(400) if 60 in table.offsets else None)

    with pytest.raises(PaymentsError):
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


# --- ahead of the reader ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", range(1, 9))
@SHAPES
async def test_pages_ahead_come_in_order_and_in_bounds(tables, elements: bool, prefetch: int) -> None:
    """So many pages are under way as were asked for, never more, none behind the end; the rows stay in order."""
    table = tables(600, elements=elements)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))
    assert prefetch == table.most_in_flight
    assert 20 == len(table.offsets)


@pytest.mark.parametrize("cap", [1, 30])
async def test_a_page_is_asked_for_once(tables, cap: int) -> None:
    """Over a slow connection, too, every page is asked for once, and as many are under way as were asked for."""
    table = tables(20 * cap, cap=cap)

    async def slow(request) -> Response:
        answer = await table(request)
        table.waiting += 1
        table.most_waiting = max(table.most_waiting, table.waiting)
        for _ in range(table.waiting * 5):
            await asyncio.sleep(0)
        table.waiting -= 1
        return answer

    table.waiting = table.most_waiting = 0
    pager = table.search(over(slow), prefetch=4)

    assert table.ids == await ids(pager)
    assert list(range(0, 20 * cap, cap)) == table.offsets
    assert 4 == table.most_waiting


async def test_a_slow_reader_is_waited_for(tables) -> None:
    """Back-pressure: while nobody takes a row, no more pages are fetched than were asked for."""
    table = tables(6_000)
    walk = aiter(table.search(over(table), prefetch=4))

    for _ in range(31):
        await anext(walk)
    for _ in range(50):
        await asyncio.sleep(0)

    assert 1 + 4 == len(table.offsets)
    await walk.aclose()


async def walks(table, way: str) -> None:
    """Begin to walk, with pages under way, and leave in one way or another."""
    walk = table.search(over(table), prefetch=4)
    if way == "break":
        async for row in walk:
            if row.id == 40:
                break
    if way == "error":
        with suppress(LookupError):
            async for row in walk:
                if row.id == 40:
                    raise LookupError
    if way == "cancel":
        task = asyncio.create_task(ids(walk))
        for _ in range(4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    if way == "aclose":
        rows = aiter(walk)
        for _ in range(40):
            await anext(rows)
        await rows.aclose()
        await rows.aclose()
        assert [] == [row async for row in rows]
    if way == "collect":
        await walk.collect(40)


@pytest.mark.control("paymentsdk._core.paging.Pages._drop_ahead", lambda self: [])
@pytest.mark.parametrize("way", ["break", "error", "cancel", "aclose", "collect"])
async def test_leaving_a_walk_leaves_no_task(tables, way: str) -> None:
    """However a walk is left, the pages that were under way are given up, with or without `aclose`."""
    before = asyncio.all_tasks()
    hold = asyncio.Event()
    table = tables(6_000)

    async def slow(request) -> Response:
        if "offset=0" not in request.url and "offset=30&" not in f"{request.url}&":
            await hold.wait()
        return await table(request)

    try:
        await walks(Slow(table, slow), way)
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)
        assert set() == asyncio.all_tasks() - before
    finally:
        for task in asyncio.all_tasks() - before:
            task.cancel()


@pytest.mark.parametrize("way", ["aclose", "collect", "fails", "ends", "is cancelled"])
async def test_a_walk_that_is_over_has_nothing_under_way(tables, caplog, way: str) -> None:
    """A walk that somebody still holds has no page under way once it is closed, has ended, failed or was cancelled."""
    before = asyncio.all_tasks()
    hold = asyncio.Event()

    def end(answer: dict[str, object], request) -> Response | None:
        if answer["paging"]["offset"] == 60:
            if way == "fails":
                return Response(400)
            answer["results"] = []
        return None

    table = tables(6_000, changes=end if way in ("fails", "ends") else None)

    async def slow(request) -> Response:
        if not request.url.endswith(("offset=0", "offset=30", "offset=60")):
            await hold.wait()
        return await table(request)

    pager = table.search(over(slow), prefetch=4)
    walk = pager.pages()
    if way == "collect":
        assert 40 == len(await pager.collect(40))
    else:
        await anext(walk)
        await anext(walk)
    if way == "aclose":
        await walk.aclose()
    if way == "fails":
        with pytest.raises(PaymentsError):
            await anext(walk)
    if way == "ends":
        assert [0] == [len(page.items) async for page in walk]
    if way == "is cancelled":
        await anext(walk)
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await anext(walk)
        for _ in range(3):
            await asyncio.sleep(0)

    assert set() == asyncio.all_tasks() - before
    assert "asyncio" not in {record.name for record in caplog.records}


class Slow:
    """A table whose later pages do not come."""

    def __init__(self, table: object, answer: object) -> None:
        self.search = table.search
        self.answer = answer

    def __call__(self, request) -> object:
        return self.answer(request)


async def test_a_walk_can_go_on_after_a_cancelled_page(tables) -> None:
    """Whoever gave up waiting for a page can ask for it again: the walk has not moved."""
    hold = asyncio.Event()
    table = tables(90)

    async def slow(request) -> Response:
        if "offset=30" in request.url and not hold.is_set():
            await hold.wait()
        return await table(request)

    walk = table.search(over(slow), prefetch=2).pages()
    seen = [row.id for row in (await anext(walk)).items]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(walk)
    hold.set()

    assert table.ids == seen + [row.id async for page in walk for row in page.items]


def test_a_walk_that_outlives_its_loop(tables, caplog) -> None:
    """A walk that is dropped when its loop is long gone does so in silence, whatever came of the pages ahead."""
    table = tables(6_000, changes=lambda answer, request: Response(400) if len(table.offsets) > 2 else None)
    walks = []

    async def begin() -> None:
        walk = table.search(over(table), prefetch=3).pages()
        await anext(walk)
        await anext(walk)
        walks.append(walk)

    asyncio.run(begin())
    walks.clear()
    gc.collect()
    assert [] == caplog.records


async def test_a_page_that_fails_ahead_is_raised_in_its_place(tables) -> None:
    """An error of a page ahead waits for its turn: all rows before it are given first."""
    table = tables(300, changes=lambda answer, request: Response(400) if "offset=120" in request.url else None)
    seen, error = await ids_until_it_fails(table.search(over(table), prefetch=8))

    assert table.ids[:120] == seen
    assert 120 == error.resume_point


async def test_pages_of_another_size_than_the_first(tables) -> None:
    """Pages ahead are asked for in the first page's size; when the platform changes it, the walk asks anew."""

    def shrink(table) -> None:
        table.cap = 30 if len(table.offsets) < 3 else 7

    table = tables(200, drift=shrink)

    assert table.ids == await ids(table.search(over(table), prefetch=4))


@pytest.mark.control("paymentsdk._core.paging.REMEMBERED", 10**9)
async def test_the_memory_of_a_long_walk_is_flat(tables) -> None:
    """A walk over many pages holds no more at its end than in its middle."""
    table = tables(60_000, cap=500)
    walk = table.search(over(table)).pages()
    held = []

    tracemalloc.start()
    try:
        async for page in walk:
            if page.offset in (30_000, 59_500):
                del page
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert held[1] - held[0] < 200_000


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
        ("overlap", 30),
    ],
)
async def test_options_that_make_no_sense(client, option: str, value: object) -> None:
    """An option is refused where it is given, with its name, before anything is sent."""
    with pytest.raises(RequestInvalid) as refused:
        client.invoices.search(**{"page_size": 30, option: value})

    assert option == refused.value.path


async def test_options_at_their_bounds(client, transport) -> None:
    """A walk may be resumed far out, and read as much again as a page has but one row."""
    transport.replies(Response(200, {}, b'{"results":[],"paging":{"offset":9007199253740993,"total":0}}'))
    walk = client.invoices.search(page_size=1_000_000, start=2**53, prefetch=64, overlap=999_999)

    assert [] == await walk.collect(limit=2**53)
    assert transport.requests[0].url.endswith("?offset=9007199253740993&limit=1000000")


async def test_filters_are_checked_at_once(client, transport) -> None:
    """A bad filter is refused where it is given, not at the first row."""
    with pytest.raises(RequestInvalid, match=r"\$query\.date_created_from"):
        client.merchant_orders.search(date_created_from="yesterday")
    with pytest.raises(RequestInvalid, match="limit"):
        await client.invoices.search().collect(limit=-1)
    assert [] == transport.requests


async def test_only_a_search_can_be_walked(client) -> None:
    """An operation without pages is a mistake of the program."""
    with pytest.raises(TypeError, match="not a search"):
        Pages(None, OPERATIONS["orders.get"], 0, 1, 0)


async def test_the_position_goes_out_with_the_filters(client, transport) -> None:
    """Filters, offset and page size are sent together; without a page size the platform takes its own."""
    transport.replies(*[Response(200, {}, b'{"results":[]}')] * 3)

    await client.invoices.search(payer_id=5, start=60, page_size=20).collect()
    await client.invoices.search(payer_id=5, offset=60, limit=20).collect()
    await client.invoices.search().collect()

    assert [
        "http://platform.test/authorized_payments/search?payer_id=5&offset=60&limit=20",
        "http://platform.test/authorized_payments/search?payer_id=5&offset=60&limit=20",
        "http://platform.test/authorized_payments/search?offset=0",
    ] == [request.url for request in transport.requests]


async def test_a_reset_in_the_middle_is_not_noticed(tables, make_client) -> None:
    """Pages are retried like any other read: a walk over a shaky connection gives every row once."""

    def shake(answer: dict[str, object], request) -> None:
        if len(table.offsets) % 2:
            raise SendFailed("reset")

    table = tables(100, changes=shake)

    assert table.ids == await ids(table.search(make_client(transport=MemoryTransport(table)), prefetch=3))
