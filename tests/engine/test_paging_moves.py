"""Rows that vanish, appear or move during a walk: none is lost, and none is repeated."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.walks import ids, over


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


@settings(max_examples=50)
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

    walked = await ids(table.search(over(table), prefetch=prefetch))

    assert len(walked) == len(set(walked))
    assert set(range(1, rows + 1)) - table.gone <= set(walked)


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


async def test_a_walk_goes_back_no_further_than_rows_have_slid(tables) -> None:
    """When many rows vanish at once, it is not begun anew."""

    def clear(table) -> None:
        if len(table.offsets) == 5:
            del table.ids[:45]

    table = tables(300, drift=clear)

    assert list(range(1, 301)) == sorted(await ids(table.search(over(table))))
    assert 150 - 45 - 30 <= min(table.offsets[5:]) <= 150 - 45


def unreserved(begin):
    """Use up the rows that are read again for a total that falls."""
    return lambda start, overlap: replace(begin(start, overlap), overlap=0)


@pytest.mark.control("paymentsdk._paging.cursor.Cursor.begin", around=unreserved)
@settings(max_examples=50)
@given(
    rows=st.integers(5, 80),
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
