"""The rules of a walk from the first row of a search to its last.

A walk goes on by the number of rows that came, never by the number that was asked for, since a platform may give
fewer. It ends when it has reached the total, or where the platform says that nothing comes next. An empty page is the
end, too, and `Incomplete` if it comes before the total. When the total falls between two pages, the rows behind have
moved up by at most the difference. So the walk goes back that far. For example, with pages of 100:

    offset  total   what is known then
    0       250     the rows 0 to 99 have been seen: the frontier is 100
    100     248     two rows have vanished, perhaps before 100: only 98 are certain, and this page may begin with the
                    former row 102; the walk goes back to 96, since as many may vanish meanwhile
    96      248     the rows up to 196 have been seen
    196     248     the frontier is 248, which is the end

With `overlap=`, each page begins that many rows earlier, so that rows are found that slide while the total stays.
"""

# Without `from __future__ import annotations`: since Python 3.14, the names in the text of an inherited annotation are
# looked up where the heir stands, and those of `Position` stand in the module of the resource.
from collections.abc import Sequence
from typing import Annotated, Self, TypedDict

from msgspec import Meta, Struct
from msgspec.structs import replace

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._resume_point import ResumePoint
from paymentsdk.errors import PaginationStalled

#: The last row that can be asked for: up to here every JSON reader counts exactly.
LARGEST_OFFSET = 2**53
#: Pages in a row with nothing new after which a walk gives up.
MOST_STALE_PAGES = 100
#: Pages after which a walk gives up in any case.
MOST_PAGES = 1_000_000


class Position(TypedDict, total=False):
    """Where a page begins, and how many rows it may have, as the query says it."""

    offset: Annotated[int, Meta(ge=0)]
    limit: Annotated[int, Meta(ge=1)]


class PageSummary(Struct, frozen=True, kw_only=True):
    """The facts of a page that decide where a walk goes on."""

    ids: tuple[object, ...] = ()
    """The ids of its rows; ``None`` for a row without one."""
    dropped: int = 0
    """How many of its entries were no rows."""
    total: int | None = None
    """How many rows the search has, if the platform says so."""
    proposed: int | None = None
    """Where the next page begins, if the platform says so."""
    next_cursor: object = None
    """The cursor of the next page, in a search by cursor."""
    has_new_rows: bool = True
    """Whether one of the rows was on no page before."""
    new_rows: int = 0
    """How many rows were on no page before; rows without an id count each time."""

    @property
    def received(self) -> int:
        """How far it reaches: the platform counts entries that are no rows in its offsets too."""
        return len(self.ids) + self.dropped

    def missing(self, offset: int, known: int | None) -> int | None:
        """Return the total before which a page at *offset* is empty; `None` if it has rows, or is the end.

        An earlier page's total, *known*, counts only where this one gives none: a search that changes while it is
        walked has another at every page.
        """
        total = known if self.total is None else self.total
        return None if self.received or total is None or offset >= total else total


def dropped_entries(anomalies: Sequence[Anomaly], place: str) -> int:
    """Return how many entries of the list at *place*, such as ``$.results``, were dropped as no rows.

    The platform counts them in its offsets. Entries of other lists, such as filters beside the rows, are no rows:
    counted, they would have the walk pass rows by.
    """
    paths = (anomaly.path for anomaly in anomalies if anomaly.dropped)
    return sum(path.endswith("]") and path.rpartition("[")[0] == place for path in paths)


class Cursor(Struct, frozen=True, kw_only=True):
    """Where a walk stands before a page."""

    offset: int
    """Where the page begins."""
    frontier: int
    """All rows before it have been seen, wherever they have shifted."""
    total: int | None = None
    """How many rows the search had when it was last said."""
    overlap: int = 0
    """Rows to read again at every page."""
    size: int = 0
    """Rows of a page; 0 as long as nobody knows."""
    count: int = 0
    """Pages so far."""
    stale: int = 0
    """How many of them, the last ones in a row, had nothing new."""
    last: PageSummary = PageSummary()
    """The page before."""

    @classmethod
    def begin(cls, start: ResumePoint, overlap: int) -> Self:
        """Return where a walk from *start* stands that reads *overlap* rows again at every page, and before *start*."""
        return cls(offset=max(0, start - overlap), frontier=int(start), total=start.total, overlap=overlap)

    @property
    def resume_point(self) -> ResumePoint:
        """Where another walk can go on."""
        return ResumePoint(self.offset, self.total)

    def advance(self, page: PageSummary, *, looks_ahead: bool = False) -> Self | None:
        """Return where the walk stands after *page*; ``None`` if that was the last.

        With *looks_ahead*, pages behind it are under way that begin where those of one size end: the size is that of
        *page* then, and not that of the first.

        Raises:
            PaginationStalled: The platform repeats itself.
        """
        self._guard(page)
        vanished = max(0, self.total - page.total) if page.total is not None and self.total is not None else 0
        walk = replace(
            self,
            total=self.total if page.total is None else page.total,
            count=self.count + 1,
            stale=0 if page.has_new_rows or not page.received else self.stale + 1,
            last=page,
        )
        certain = max(0, self.frontier - vanished - self.overlap)
        if vanished and self.offset > certain:
            # Rows have shifted from behind this page to before it, or may have: fetch again from where everything has
            # been seen. The same page can come there, if rows go on shifting.
            margin = self.overlap + min(vanished, self.size // 4)
            return replace(walk, offset=max(0, certain - margin), frontier=certain, last=PageSummary())
        frontier = max(self.frontier - vanished, self.offset + page.received)
        # Where there is no total, or the walk is beyond it, only an explicit 0 or an empty page is the end: a total
        # that is too low must not cut a list short in silence.
        total_holds = page.total is not None and frontier <= page.total
        is_last = frontier == page.total if total_holds else page.proposed == 0
        if is_last or not page.received:
            return None
        size = page.received if looks_ahead or not self.size else self.size
        reached = page.proposed if page.proposed and self.offset < page.proposed < frontier else frontier
        return replace(walk, offset=max(reached - self.overlap, self.offset + 1), frontier=frontier, size=size)

    def _guard(self, page: PageSummary) -> None:
        """Raise rather than go in a circle."""
        # Rows that appear or vanish in front can bring the same ones again, but then the total is another. What is left
        # of two pages that overlap can be the same where entries were dropped.
        is_same = page.ids == self.last.ids and not page.dropped
        if is_same and any(page.ids) and page.total in (None, self.total):
            raise PaginationStalled("the platform sent the same page twice")
        is_midway = page.received and self.offset + page.received < (page.total or 0)
        if is_midway and page.proposed and page.proposed <= self.offset:
            raise PaginationStalled(f"next_offset is {page.proposed}, which does not grow")
        if self.stale >= MOST_STALE_PAGES or self.count >= MOST_PAGES:
            raise PaginationStalled(f"{self.count + 1} pages, and no end")
