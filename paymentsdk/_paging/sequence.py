"""The rules of a walk by page number, or by the cursor that each page gives for the next.

Such a walk cannot ask for a row, only for a page. So it counts the rows that it has seen, each id once.

By page number, a page that is shorter than others is not the end: the next number follows. The end is an empty page, or
the page with which as many rows were seen as the total says, and not more. If the total falls, the rows behind have
moved up, so the walk goes back by as many pages as these rows can fill, and ends at an empty page alone.

By cursor, the end is a page that gives none for the next, and an empty page is not. A cursor that comes twice would
lead in a circle.

At the end, fewer rows than every total has said are missing: `Incomplete`. A row that appeared meanwhile is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._paging.cursor import LARGEST_OFFSET, MOST_PAGES, MOST_STALE_PAGES, Cursor, PageSummary
from paymentsdk._resume_point import ResumePoint
from paymentsdk._validate import check_within
from paymentsdk.errors import PaginationStalled, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._contract.operation import PageShape

#: The most rows that a page can be asked for.
MOST_ROWS = 1_000_000


class PageSequence(Struct, frozen=True, kw_only=True):
    """Where a walk over whole pages stands before a page."""

    total: int | None = None
    """How many rows the search had when it was last said."""
    least_total: int | None = None
    """The fewest rows that the search has had."""
    skipped: int = 0
    """The most rows that the pages before the first one can have."""
    seen: int = 0
    """Rows so far, each id once, and entries that were no rows."""
    count: int = 0
    """Pages so far."""
    stale: int = 0
    """How many of them, the last ones in a row, had nothing new."""
    last: PageSummary = PageSummary()
    """The page before."""

    def missing(self, page: PageSummary) -> int | None:
        """Return the total that was not reached, if the walk ends with *page*; ``None`` if no row is missing."""
        walk = self._behind(page)
        rows, total = walk.skipped + walk.seen, walk.least_total
        return total if total is not None and rows < total else None

    def _behind(self, page: PageSummary, **changes: object) -> Self:
        """Return where the walk stands after *page*, with *changes*; raise rather than go in a circle."""
        if any(page.ids) and page.ids == self.last.ids and not page.dropped and page.total in (None, self.total):
            raise PaginationStalled("the platform sent the same page twice")
        if self.stale >= MOST_STALE_PAGES or self.count >= MOST_PAGES:
            raise PaginationStalled(f"{self.count + 1} pages, and no end")
        totals = [total for total in (self.least_total, page.total) if total is not None]
        known = {} if page.total is None else {"total": page.total}
        seen, stale = self.seen + page.new_rows + page.dropped, 0 if page.has_new_rows else self.stale + 1
        counted = {"least_total": min(totals, default=None), "seen": seen, "count": self.count + 1, "stale": stale}
        return replace(self, **{**counted, **known, "last": page, **changes})


class NumberedPage(PageSequence, frozen=True, kw_only=True):
    """Where a walk by page number stands before a page."""

    offset: int
    """The number of the page, from 1."""
    size: int = 0
    """Rows of the first page; 0 before it."""
    shortest: int = MOST_PAGES
    """Rows of the shortest page so far that has any."""
    went_back: bool = False
    """Whether the total has fallen: rows that were seen may be gone, so that their number proves nothing."""

    @property
    def resume_point(self) -> ResumePoint:
        """Where another walk can go on."""
        return ResumePoint(self.offset, self.total)

    def advance(self, page: PageSummary) -> Self | None:
        """Return where the walk stands after *page*; ``None`` if that was the last.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        vanished = max(0, self.total - page.total) if page.total is not None and self.total is not None else 0
        shortest = min(self.shortest, page.received or self.shortest)
        walk = self._behind(page, size=self.size or page.received, shortest=shortest, offset=self.offset + 1)
        if vanished and self.offset > 1:
            back = max(1, self.offset - -(-vanished // shortest))
            return replace(walk, offset=back, went_back=True, last=PageSummary())
        # A total that is too low, such as 0 or -1 for an unknown one, must not cut a list short in silence.
        is_all = walk.seen == page.total and not (self.skipped or walk.went_back)
        return None if is_all or not page.received else walk


class CursorPage(PageSequence, frozen=True, kw_only=True):
    """Where a walk by cursor stands before a page."""

    used: set[object]
    """The cursors that earlier pages have given."""
    offset: object = None
    """The cursor of the page; ``None`` for the first."""

    size: ClassVar[int] = 0
    resume_point: ClassVar[None] = None

    def advance(self, page: PageSummary) -> Self | None:
        """Return where the walk stands after *page*; ``None`` if that was the last.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        if page.next_cursor in (None, ""):
            return None
        if page.next_cursor in self.used:
            raise PaginationStalled("the platform gives a cursor twice, which leads in a circle")
        self.used.add(page.next_cursor)
        return self._behind(page, offset=page.next_cursor)


#: Where a walk stands before a page.
Place: TypeAlias = Cursor | NumberedPage | CursorPage


def check_names(shape: PageShape, position: str | None, filters: Mapping[str, object]) -> None:
    """Reject filters that an option of the walk stands for."""
    for name, option in ((shape.size, "page_size"), (position or "offset", "start")):
        if name in filters:
            raise RequestInvalid(name, f"is not a filter: use {option}")


def begin(shape: PageShape, position: str | None, start: int, page_size: int | None, overlap: int) -> Place:
    """Return where a walk stands before its first page, which is asked for by the filter *position*: see `WalkOptions`.

    Raises:
        RequestInvalid: An option is out of the bounds of such a walk.
    """
    first, is_by_row = 1 if shape.page else 0, not (shape.page or shape.cursor)
    check_within("page_size", 1 if page_size is None else page_size, 1, MOST_ROWS)
    check_within("start", start, first, LARGEST_OFFSET if position and not shape.cursor else first)
    check_within("overlap", overlap, 0, (page_size or MOST_ROWS) - 1 if is_by_row else 0)
    if shape.page and start > first and page_size is None:
        raise RequestInvalid("page_size", "is needed with start: pages of another size have other numbers")
    point = start if isinstance(start, ResumePoint) else ResumePoint(start)
    if is_by_row:
        return Cursor.begin(point, overlap)
    skipped = (start - 1) * (page_size or 0)
    return (
        CursorPage(used=set()) if shape.cursor else NumberedPage(offset=int(start), total=point.total, skipped=skipped)
    )
