"""The rules of a walk by offset from the first row of a search to its last.

A walk moves on by the number of rows that were received, because a platform may return fewer rows than requested. The
walk ends when it has reached the total, or when the platform says that there is no next page. An empty page is the end,
too; if it comes before the total, the walk raises `Incomplete`. When the total falls between two pages, the rows behind
have moved up by at most the difference, so the walk goes back by as many rows. An example with pages of 100:

    offset  total   what the walk knows afterwards
    0       250     rows 0 to 99 have been seen: the frontier is 100
    100     248     two rows have vanished, perhaps before 100: only 98 are certain, and this page may begin with the
                    former row 102; the walk goes back to 96, because two more may vanish before the next page
    96      248     the rows up to 196 have been seen
    196     248     the frontier is 248, which is the end

With `overlap=`, each page begins that many rows earlier. This finds rows that slide while the total stays the same.
"""

# This file has no `from __future__ import annotations`: since Python 3.14, inherited annotations that are texts are
# resolved in the module of the subclass. The names in `Position` are not defined in the modules of the resources.
from collections.abc import Sequence
from typing import Annotated, Self, TypedDict

from msgspec import Meta, Struct
from msgspec.structs import replace

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._resume_point import ResumePoint
from paymentsdk.errors import PaginationStalled

#: The largest offset of a query: every JSON reader is exact up to this number.
LARGEST_OFFSET = 2**53
#: A walk gives up after this many consecutive pages without a new row.
MOST_STALE_PAGES = 100
#: A walk gives up after this many pages.
MOST_PAGES = 1_000_000


class Position(TypedDict, total=False):
    """The members of a query that say where a page begins and how many rows it may have."""

    offset: Annotated[int, Meta(ge=0)]
    limit: Annotated[int, Meta(ge=1)]


class PageSummary(Struct, frozen=True, kw_only=True):
    """The facts of a page that decide where a walk continues."""

    ids: tuple[object, ...] = ()
    """The ids of the rows; ``None`` for a row without an id."""
    dropped: int = 0
    """The number of entries that could not be read as rows."""
    total: int | None = None
    """The number of rows that the search has, if the platform says so."""
    proposed: int | None = None
    """The offset of the next page, if the platform says so."""
    next_cursor: object = None
    """The cursor of the next page, in a search by cursor."""
    new_rows: int = 0
    """The number of rows that were on no earlier page; rows without an id always count."""

    @property
    def received(self) -> int:
        """The number of entries, with those that could not be read: the platform counts them in its offsets."""
        return len(self.ids) + self.dropped

    def missing(self, offset: int, previous_total: int | None) -> int | None:
        """Return the total that an empty page at *offset* does not reach; `None` if it has rows, or is the end.

        The *previous_total* of an earlier page counts only if this page has no total: a search that changes during the
        walk may have a different total on every page.
        """
        total = previous_total if self.total is None else self.total
        return None if self.received or total is None or offset >= total else total


def dropped_entries(anomalies: Sequence[Anomaly], place: str) -> int:
    """Return how many entries of the list at *place*, such as ``$.results``, could not be read as rows.

    The platform counts them in its offsets. Dropped entries of other lists do not count: otherwise the walk would skip
    rows.
    """
    paths = (anomaly.path for anomaly in anomalies if anomaly.dropped)
    return sum(path.endswith("]") and path.rpartition("[")[0] == place for path in paths)


class Walk(Struct, frozen=True, kw_only=True):
    """The position of a walk before its next page."""

    total: int | None = None
    """The number of rows of the search, as the platform last said it."""
    count: int = 0
    """Pages so far."""
    stale: int = 0
    """How many of the latest pages had no new row."""
    last: PageSummary = PageSummary()
    """The previous page."""

    def behind(self, page: PageSummary, **changes: object) -> Self:
        """Return the position after *page*, with *changes*.

        Raises:
            PaginationStalled: The walk is going in a circle.
        """
        # The same rows may come again if rows appear or vanish before them, but then the total changes. Two pages that
        # overlap may also show the same ids after entries were dropped.
        is_same = page.ids == self.last.ids and not page.dropped
        if is_same and any(page.ids) and page.total in (None, self.total):
            raise PaginationStalled("the platform sent the same page twice")
        if self.stale >= MOST_STALE_PAGES or self.count >= MOST_PAGES:
            raise PaginationStalled(f"{self.count + 1} pages, and no end")
        total, stale = self.total if page.total is None else page.total, 0 if page.new_rows else self.stale + 1
        return replace(self, **{"total": total, "count": self.count + 1, "stale": stale, "last": page, **changes})


class Cursor(Walk, frozen=True, kw_only=True):
    """The position of a walk by offset before its next page."""

    offset: int
    """The offset of the next page."""
    frontier: int
    """The walk has seen all rows before this offset, even if rows have shifted."""
    overlap: int = 0
    """Rows to read again at every page."""
    size: int = 0
    """Rows of a page; 0 before the first page."""

    @classmethod
    def begin(cls, start: ResumePoint, overlap: int) -> Self:
        """Return the position of a new walk that reads *overlap* rows again at every page and before *start*."""
        return cls(offset=max(0, start - overlap), frontier=int(start), total=start.total, overlap=overlap)

    @property
    def resume_point(self) -> ResumePoint:
        """The point from which another walk can continue."""
        return ResumePoint(self.offset, self.total)

    def advance(self, page: PageSummary, *, looks_ahead: bool = False) -> Self | None:
        """Return the position after *page*; ``None`` if it was the last.

        With *looks_ahead*, later pages are already being fetched, at offsets that assume pages of one size. Then the
        size of *page* counts, instead of that of the first page.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        walk = self.behind(page)
        is_midway = page.received and self.offset + page.received < (page.total or 0)
        if is_midway and page.proposed and page.proposed <= self.offset:
            raise PaginationStalled(f"next_offset is {page.proposed}, which does not grow")
        vanished = max(0, self.total - page.total) if page.total is not None and self.total is not None else 0
        certain = max(0, self.frontier - vanished - self.overlap)
        if vanished and self.offset > certain:
            # Rows may have shifted from behind this page to before it, so the walk goes back to the last certain row.
            # `last` is reset because the same page is allowed there, if more rows shift.
            margin = self.overlap + min(vanished, self.size // 4)
            return replace(walk, offset=max(0, certain - margin), frontier=certain, last=PageSummary())
        frontier = max(self.frontier - vanished, self.offset + page.received)
        # Without a total, or beyond it, only an explicit 0 or an empty page is the end: a total that is too low must
        # not silently cut a list short.
        total_holds = page.total is not None and frontier <= page.total
        is_last = frontier == page.total if total_holds else page.proposed == 0
        if is_last or not page.received:
            return None
        size = page.received if looks_ahead or not self.size else self.size
        reached = page.proposed if page.proposed and self.offset < page.proposed < frontier else frontier
        return replace(walk, offset=max(reached - self.overlap, self.offset + 1), frontier=frontier, size=size)
