"""The rules of a walk, each by itself: where the next page begins, whatever the one before has brought."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paymentsdk import PaginationStalled, ResumePoint
from paymentsdk._paging.cursor import MOST_PAGES, MOST_STALE_PAGES, Cursor, PageSummary

#: Half way through a hundred rows, twelve at a time.
MIDWAY = Cursor(offset=50, frontier=50, total=100, size=12)


def page(count: int = 12, first: int = 50, **members: object) -> PageSummary:
    """A page of *count* rows whose ids count from *first*."""
    return PageSummary(ids=tuple(range(first, first + count)), **{"total": 100, **members})


# --- forwards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "overlap", "offset"), [(0, 0, 0), (40, 0, 40), (40, 5, 35), (3, 5, 0)])
def test_where_a_walk_begins(start: int, overlap: int, offset: int) -> None:
    """It begins by the overlap before its start, behind which nothing has been seen, and knows what the total was."""
    walk = Cursor.begin(ResumePoint(start, 100), overlap)

    assert (offset, 100) == (walk.resume_point, walk.resume_point.total)
    assert start == walk.frontier


@pytest.mark.parametrize(
    ("arrival", "offset"),
    [
        (page(), 62),
        (page(3), 53),
        (page(3, dropped=("$.results[1]",)), 54),
        (page(proposed=54), 54),
        (page(proposed=70), 62),
        (page(proposed=0), 62),
        (page(proposed=50, total=None), 62),
    ],
    ids=[
        "as many",
        "fewer",
        "entries that are no rows",
        "a proposal",
        "one with a gap",
        "none",
        "one that stands still",
    ],
)
def test_a_walk_goes_on_by_what_came(arrival: PageSummary, offset: int) -> None:
    """The next page begins where this one ends, or before, if the platform proposes it, but never behind a gap."""
    assert offset == MIDWAY.advance(arrival).offset


@pytest.mark.parametrize(
    ("arrival", "is_last"),
    [
        (page(total=62), True),
        (page(total=63), False),
        (page(total=55), False),
        (page(total=55, proposed=0), True),
        (page(total=None), False),
        (page(total=None, proposed=0), True),
        (page(0, total=None), True),
        (page(0), True),
        (page(0, proposed=50), True),
        (page(0, dropped=("$.results[0]",)), False),
    ],
)
def test_where_a_walk_ends(arrival: PageSummary, *, is_last: bool) -> None:
    """At the total, if it can be true, and else where the platform says so; in any case on a page without entries."""
    following = replace(MIDWAY, total=None).advance(arrival)

    assert is_last == (following is None)


@pytest.mark.parametrize(("looks_ahead", "size"), [(False, 12), (True, 7)])
def test_the_size_of_a_page(looks_ahead: bool, size: int) -> None:
    """It is that of the first page, or of the latest, if others are asked for by it."""
    first = Cursor(offset=0, frontier=0).advance(page(first=0))

    assert [12, size] == [first.size, first.advance(page(7, 12), looks_ahead=looks_ahead).size]


@pytest.mark.parametrize(("told", "total"), [(100, 100), (120, 120), (99, 99), (None, 100)])
def test_the_total_is_the_one_that_was_said_last(told: int | None, total: int) -> None:
    """A page that says none leaves it as it was."""
    assert total == MIDWAY.advance(page(total=told)).resume_point.total


# --- back -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vanished", "frontier", "overlap"),
    [(1, 49, 1), (2, 48, 2), (3, 47, 3), (4, 46, 3), (20, 30, 3), (60, 0, 3), (0, 62, 0), (-5, 62, 0)],
)
def test_a_total_that_falls_moves_a_walk_back(vanished: int, frontier: int, overlap: int) -> None:
    """It goes back by as many rows as have vanished, and from then on reads some again, a quarter of a page at most."""
    following = MIDWAY.advance(page(total=100 - vanished))

    assert (frontier, overlap) == (following.frontier, following.overlap)
    assert max(0, frontier - overlap) == following.offset


def test_a_margin_saves_going_back() -> None:
    """Rows that slide by no more than what is read again anyway do not move a walk back, however often."""
    walk = replace(MIDWAY, offset=48, overlap=2)

    assert [58, 58] == [walk.advance(page(first=48, total=total)).offset for total in (98, 100)]


def shifted_past(self: Cursor, arrival: PageSummary) -> Cursor:
    """Note a page, and not what has vanished."""
    return replace(self, total=self.total if arrival.total is None else arrival.total)


@pytest.mark.control("paymentsdk._paging.cursor.Cursor._noted", shifted_past)
@given(
    start=st.integers(0, 40),
    overlap=st.integers(0, 9),
    arrivals=st.lists(
        st.builds(
            page,
            st.integers(0, 12),
            st.integers(1, 5),
            total=st.none() | st.integers(0, 80),
            proposed=st.none() | st.integers(0, 80),
            has_new_rows=st.booleans(),
        ),
        max_size=12,
    ),
    looks_ahead=st.booleans(),
)
def test_no_row_is_passed_by(start: int, overlap: int, arrivals: list[PageSummary], *, looks_ahead: bool) -> None:
    """Whatever pages say, the next begins where all before it has been seen; further on, unless rows have vanished."""
    walk = Cursor.begin(ResumePoint(start), overlap)
    for arrival in arrivals:
        seen = max(walk.frontier, walk.offset + arrival.received)
        vanished = max(0, (walk.total or 0) - (walk.total or 0 if arrival.total is None else arrival.total))
        try:
            following = walk.advance(arrival, looks_ahead=looks_ahead)
        except PaginationStalled:
            return
        if following is None:
            return
        assert 0 <= following.offset <= following.frontier <= max(seen - vanished, walk.offset + arrival.received)
        assert following.offset > walk.offset or vanished
        walk = following


# --- in a circle ------------------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._paging.cursor.Cursor._guard", lambda self, page: None)
@pytest.mark.parametrize(
    ("members", "arrival", "reason"),
    [
        ({"last": page()}, page(), "the platform sent the same page twice"),
        ({"last": page()}, page(total=None), "the platform sent the same page twice"),
        ({}, page(proposed=50), "next_offset is 50, which does not grow"),
        ({}, page(proposed=30), "next_offset is 30, which does not grow"),
        ({"stale": MOST_STALE_PAGES, "count": 200}, page(), "201 pages, and no end"),
        ({"count": MOST_PAGES}, page(), "1000001 pages, and no end"),
    ],
)
def test_what_goes_in_a_circle_is_rejected(members: dict[str, object], arrival: PageSummary, reason: str) -> None:
    """The page before again, an offset that does not grow, and too many pages: nobody has to wait for their end."""
    with pytest.raises(PaginationStalled) as stalled:
        replace(MIDWAY, **members).advance(arrival)

    assert reason == stalled.value.reason


@pytest.mark.control("paymentsdk._paging.cursor.Cursor._guard", lambda self, page: None)
def test_a_page_is_compared_with_the_one_before() -> None:
    """What has just come must not come again, at whatever offset."""
    with pytest.raises(PaginationStalled):
        MIDWAY.advance(page()).advance(page())


@pytest.mark.parametrize(
    ("members", "arrival", "offset"),
    [
        ({"last": page()}, page(total=99), 48),
        ({"last": page()}, page(first=51), 62),
        ({"last": page(dropped=("$.results[0]",))}, page(dropped=("$.results[10]",)), 63),
        ({"last": PageSummary(ids=(None, None))}, PageSummary(ids=(None, None)), 52),
        ({"total": 62}, page(total=62, proposed=50), None),
        ({"total": None}, page(total=None, proposed=50), 62),
        ({"stale": MOST_STALE_PAGES - 1, "count": MOST_PAGES - 1}, page(), 62),
    ],
    ids=["rows moved", "other rows", "other gaps", "no ids", "the last page", "no total", "just in bounds"],
)
def test_what_only_looks_like_a_circle(members: dict[str, object], arrival: PageSummary, offset: int | None) -> None:
    """A page that can come on the way from the first row to the last stops no walk: it goes on, or is at its end."""
    following = replace(MIDWAY, **members).advance(arrival)

    assert offset == (None if following is None else following.offset)


@pytest.mark.parametrize(
    ("arrival", "stale"),
    [
        (page(), 0),
        (page(has_new_rows=False), 8),
        (page(0, dropped=("$.results[0]",), has_new_rows=False), 8),
        (page(0, total=40, has_new_rows=False), 0),
    ],
    ids=["rows", "rows seen before", "entries that are no rows", "behind the end"],
)
def test_pages_with_nothing_new_are_counted(arrival: PageSummary, stale: int) -> None:
    """Only those in a row count, and none that lies behind the end of a search that has shrunk; all pages count too."""
    following = replace(MIDWAY, stale=7, count=20).advance(arrival)

    assert (stale, 21) == (following.stale, following.count)


@pytest.mark.parametrize(
    ("arrival", "known", "total"),
    [
        (page(0, total=51), None, 51),
        (page(0, total=51), 100, 51),
        (page(0, total=50), None, None),
        (page(0, total=49), 100, None),
        (page(0, total=None), None, None),
        (page(0, total=None), 50, None),
        (page(0, total=None), 51, 51),
        (page(0, total=None, proposed=0), 51, 51),
        (page(1, total=100), 100, None),
        (page(0, dropped=("$.results[0]",)), 100, None),
    ],
)
def test_an_empty_page_before_a_total_misses_rows(arrival: PageSummary, known: int | None, total: int | None) -> None:
    """A total, its own or else the last known, has a row where it has none; an entry that is no row is something."""
    assert total == arrival.missing(50, known)
