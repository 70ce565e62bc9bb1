"""The rules of a walk by page number, or by the cursor that each page gives for the next.

Such a walk can request a page, but not a row. So it counts the rows that it has seen, each id once.

By page number, a short page is not the end of the walk. The end is an empty page, or the page after which the number of
rows equals the total. If the total falls, the rows behind have moved up. Then the walk goes back by as many pages as
these rows can fill, and only an empty page ends it.

By cursor, the end is a page without a cursor for the next page; an empty page is not the end. A cursor that comes twice
is an error, because the walk would go in a circle.

At the end, the walk raises `Incomplete` if it has seen fewer rows than the lowest total. Rows that appeared during the
walk do not count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from msgspec.structs import replace

from paymentsdk._paging.cursor import LARGEST_OFFSET, MOST_PAGES, Cursor, PageSummary, Walk
from paymentsdk._resume_point import ResumePoint
from paymentsdk._validate import check_within
from paymentsdk.errors import PaginationStalled, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._contract.operation import PageShape

#: The largest `page_size`.
MOST_ROWS = 1_000_000


class PageSequence(Walk, frozen=True, kw_only=True):
    """The position of a walk over whole pages before its next page."""

    least_total: int | None = None
    """The lowest total so far."""
    skipped: int = 0
    """The maximum rows of the pages before the start of the walk."""
    seen: int = 0
    """Rows so far, each id once, and entries that could not be read as rows."""

    def missing(self, page: PageSummary) -> int | None:
        """Return the total that a walk ending with *page* has not reached; ``None`` if no row is missing."""
        walk = self.behind(page)
        rows, total = walk.skipped + walk.seen, walk.least_total
        return total if total is not None and rows < total else None

    def behind(self, page: PageSummary, **changes: object) -> Self:
        """See `Walk.behind`; also count the rows of *page*."""
        totals = [total for total in (self.least_total, page.total) if total is not None]
        seen = self.seen + page.new_rows + page.dropped
        return super().behind(page, least_total=min(totals, default=None), seen=seen, **changes)


class NumberedPage(PageSequence, frozen=True, kw_only=True):
    """The position of a walk by page number before its next page."""

    offset: int
    """The number of the next page, from 1."""
    size: int = 0
    """Rows of the first page; 0 before it."""
    shortest: int = MOST_PAGES
    """Rows of the shortest page so far, without empty pages."""
    went_back: bool = False
    """Whether the total has fallen: some of the seen rows may be gone, so their number proves nothing."""

    @property
    def resume_point(self) -> ResumePoint:
        """The point from which another walk can continue."""
        return ResumePoint(self.offset, self.total)

    def advance(self, page: PageSummary) -> Self | None:
        """Return the position after *page*; ``None`` if it was the last.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        vanished = max(0, self.total - page.total) if page.total is not None and self.total is not None else 0
        shortest = min(self.shortest, page.received or self.shortest)
        walk = self.behind(page, size=self.size or page.received, shortest=shortest, offset=self.offset + 1)
        if vanished and self.offset > 1:
            back = max(1, self.offset - -(-vanished // shortest))
            return replace(walk, offset=back, went_back=True, last=PageSummary())
        # Some platforms send 0 or -1 for an unknown total. A total that is too low must not silently cut a list short.
        is_all = walk.seen == page.total and not (self.skipped or walk.went_back)
        return None if is_all or not page.received else walk


class CursorPage(PageSequence, frozen=True, kw_only=True):
    """The position of a walk by cursor before its next page."""

    used: set[object]
    """The cursors of all earlier pages."""
    offset: object = None
    """The cursor of the next page; ``None`` for the first."""

    size: ClassVar[int] = 0
    resume_point: ClassVar[None] = None

    def advance(self, page: PageSummary) -> Self | None:
        """Return the position after *page*; ``None`` if it was the last.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        if page.next_cursor in (None, ""):
            return None
        if page.next_cursor in self.used:
            raise PaginationStalled("the platform sent the same cursor twice, so the walk would go in a circle")
        self.used.add(page.next_cursor)
        return self.behind(page, offset=page.next_cursor)


#: The position of any walk before its next page.
Place: TypeAlias = Cursor | NumberedPage | CursorPage


def check_names(shape: PageShape, position: str | None, filters: Mapping[str, object]) -> None:
    """Reject filters that have an option of the walk instead."""
    for name, option in ((shape.size, "page_size"), (position or "offset", "start")):
        if name in filters:
            raise RequestInvalid(name, f"is not a filter: use {option}")


def begin(shape: PageShape, position: str | None, start: int, page_size: int | None, overlap: int) -> Place:
    """Return the position before the first page, which the filter *position* requests: see `WalkOptions`.

    Raises:
        RequestInvalid: An option is out of bounds for this kind of search.
    """
    first, is_by_row = 1 if shape.page else 0, not (shape.page or shape.cursor)
    check_within("page_size", 1 if page_size is None else page_size, 1, MOST_ROWS)
    check_within("start", start, first, LARGEST_OFFSET if position and not shape.cursor else first)
    check_within("overlap", overlap, 0, (page_size or MOST_ROWS) - 1 if is_by_row else 0)
    if shape.page and start > first and page_size is None:
        raise RequestInvalid("page_size", "is needed with start: page numbers depend on the size of the pages")
    point = start if isinstance(start, ResumePoint) else ResumePoint(start)
    if is_by_row:
        return Cursor.begin(point, overlap)
    skipped = (start - 1) * (page_size or 0)
    return (
        CursorPage(used=set()) if shape.cursor else NumberedPage(offset=int(start), total=point.total, skipped=skipped)
    )
