"""The rules of a walk from the first row of a search to its last, and the proof that it has seen every row.

A walk goes on by the number of rows that came, never by the number that was asked for, since a platform may give
fewer. It ends when it has reached the total, or where the platform says that nothing comes next; an empty page is the
end, too, and `Incomplete` if it comes before the total. When the total falls between two pages, the rows behind have
moved up by at most the difference. So the walk goes back that far, and from then on reads a few rows again at every
page, to avoid going back each time. For example, with pages of 100:

    offset  total   what is known then
    0       250     the rows 0 to 99 have been seen: the frontier is 100
    100     248     two rows have vanished, perhaps before 100: only 98 are certain, and this page may begin with the
                    former row 102; the overlap is 2 from now on
    96      248     98 less the overlap; the rows up to 196 have been seen
    194     248     196 less the overlap; the frontier is 248, which is the end

With `search(certify=True)` the walk has to prove that it is whole. Rows of a window of creation that has ended can only
become fewer, if nothing else that is searched for can change. So the distinct rows that were seen are among those that
there were at the first page, and if they are as many as its total, none is missing. Where rows can join, only a single
page that has all of them proves anything. No total of 1,000 or more does: some platforms stop counting there. Nor does
a page with a row that contradicts the query: it answers another.
"""

# Without `from __future__ import annotations`: since Python 3.14, the names in the text of an inherited annotation are
# looked up where the heir stands, and those of `Position` stand in the module of the resource.
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Self, TypedDict

from msgspec import Meta, Struct, inspect, structs
from msgspec.structs import replace

from paymentsdk._codec.anomaly import MOST_REPORTS, Anomaly
from paymentsdk._codec.encode import query_text
from paymentsdk._codec.timestamps import in_utc
from paymentsdk._codec.type_walk import alternatives
from paymentsdk._contract.identity import struct_at
from paymentsdk._contract.operation import PageShape
from paymentsdk._headers import http_date
from paymentsdk._resume_point import ResumePoint
from paymentsdk._validate import plain_moment
from paymentsdk.errors import PaginationStalled, RequestInvalid
from paymentsdk.transports.base import header

#: The last row that can be asked for: up to here every JSON reader counts exactly.
LARGEST_OFFSET = 2**53
#: Pages in a row with nothing new after which a walk gives up.
MOST_STALE_PAGES = 100
#: Pages after which a walk gives up in any case.
MOST_PAGES = 1_000_000
#: How late a row may appear in a window that has ended.
SETTLING_TIME = timedelta(minutes=15)
#: Only a total below this is believed: some platforms stop counting.
MOST_CERTIFIED = 1_000
#: How far a date may be off that came without a zone, and was read as UTC.
FARTHEST_ZONE = timedelta(hours=14)
#: What a query says of a moment is exact to this.
_MILLISECOND = timedelta(milliseconds=1)


class Position(TypedDict, total=False):
    """Where a page begins, and how many rows it may have, as the query says it."""

    offset: Annotated[int, Meta(ge=0)]
    limit: Annotated[int, Meta(ge=1)]


class PageSummary(Struct, frozen=True, kw_only=True):
    """What a page brings."""

    ids: tuple[object, ...] = ()
    """The ids of its rows."""
    dropped: tuple[str, ...] = ()
    """The places of its entries that were no rows."""
    total: int | None = None
    """How many rows the search has, if the platform says so."""
    proposed: int | None = None
    """Where the next page begins, if the platform says so."""
    has_new_rows: bool = True
    """Whether one of the rows was on no page before."""
    nameless: tuple[object, ...] = ()
    """Its rows, if none has an id."""

    @property
    def received(self) -> int:
        """How far it reaches: the platform counts entries that are no rows in its offsets too."""
        return len(self.ids) + len(self.dropped)

    def missing(self, offset: int, known: int | None) -> int | None:
        """Return the total before which a page at *offset* is empty; `None` if it has rows, or is the end.

        An earlier page's total, *known*, counts only where this one gives none: a search that changes while it is
        walked has another at every page.
        """
        total = known if self.total is None else self.total
        return None if self.received or total is None or offset >= total else total


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
    reserve: int = 0
    """How many of them are for rows that slide while the total stays, since as many vanish as appear."""
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
        offset = max(0, start - overlap)
        return cls(offset=offset, frontier=int(start), total=start.total, overlap=overlap, reserve=overlap)

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
        walk = self._noted(page)
        certain = max(0, walk.frontier - walk.reserve)
        if walk.frontier < self.frontier and walk.offset > certain:
            # Rows have shifted from behind this page to before it, or may have, where others appeared meanwhile: fetch
            # again from where everything has been seen. The same page can come there, if rows go on shifting.
            return replace(walk, offset=max(0, certain - walk.overlap), frontier=certain, last=PageSummary())
        frontier = max(walk.frontier, walk.offset + page.received)
        # Where there is no total, or the walk is beyond it, only an explicit 0 or an empty page is the end: a total
        # that is too low must not cut a list short in silence.
        total_holds = page.total is not None and frontier <= page.total
        is_last = frontier == page.total if total_holds else page.proposed == 0
        if is_last or not page.received:
            return None
        size = page.received if looks_ahead or not walk.size else walk.size
        reached = page.proposed if page.proposed and walk.offset < page.proposed < frontier else frontier
        return replace(walk, offset=max(reached - walk.overlap, walk.offset + 1), frontier=frontier, size=size)

    def _guard(self, page: PageSummary) -> None:
        """Raise rather than go in a circle."""
        # Rows that appear or vanish in front can bring the same ones again, but then the total is another. Two pages
        # that overlap can have the same rows left where entries were dropped, but not in the same places.
        is_same = (page.ids, page.dropped) == (self.last.ids, self.last.dropped)
        if is_same and any(page.ids) and page.total in (None, self.total):
            raise PaginationStalled("the platform sent the same page twice")
        is_midway = page.received and self.offset + page.received < (page.total or 0)
        if is_midway and page.proposed and page.proposed <= self.offset:
            raise PaginationStalled(f"next_offset is {page.proposed}, which does not grow")
        if self.stale >= MOST_STALE_PAGES or self.count >= MOST_PAGES:
            raise PaginationStalled(f"{self.count + 1} pages, and no end")

    def _repeats(self, page: PageSummary) -> bool:
        """Whether *page*, whose rows have no ids, is the page before again.

        Rows can be equal without being the same, and so can pages; it counts where no total vouches for them, or where
        the rows of a page differ from each other.
        """
        rows = page.nameless
        if not rows or rows != self.last.nameless:
            return False
        total = self.total if page.total is None else page.total
        return total is None or self.offset + page.received > total or any(row != rows[0] for row in rows)

    def _noted(self, page: PageSummary) -> Self:
        """Return the walk with *page* in it: of the rows that have vanished, all may have been before the frontier."""
        vanished = max(0, self.total - page.total) if page.total is not None and self.total is not None else 0
        return replace(
            self,
            frontier=max(0, self.frontier - vanished),
            total=self.total if page.total is None else page.total,
            overlap=max(self.overlap, self.reserve + min(vanished, self.size // 4)),
            count=self.count + 1,
            stale=0 if (page.has_new_rows and not self._repeats(page)) or not page.received else self.stale + 1,
            last=page,
        )


# --- the proof that a walk is whole -----------------------------------------------------------------------------------


def check_filters(shape: PageShape, filters: Mapping[str, object], result: type) -> None:
    """Reject filters under which rows can join the search, or leave it and come back.

    Raises:
        RequestInvalid: One can change, the window of creation has no end, or the rows of *result* do not say when they
            were made.
    """
    if shape.created_until is None:
        return  # Only a single page is certified, whatever was searched for.
    for name, value in filters.items():
        if value is not None and name not in shape.immutable and name != shape.created_until:
            known = ", ".join(sorted({*shape.immutable, shape.created_until}))
            raise RequestInvalid(f"$query.{name}", f"can change, so nothing is certain; what cannot: {known}")
    if filters.get(shape.created_until) is None:
        raise RequestInvalid(f"$query.{shape.created_until}", "is needed: without it, rows join while they are read")
    date = shape.created_until.removesuffix("_to")
    if not _shows_moment(struct_at(shape.items, result), date):
        raise RequestInvalid("certify", f"needs rows with {date}, a datetime: one could be younger than its window")


def _shows_moment(row: type | None, name: str) -> bool:
    """Whether rows of the type *row* have a datetime *name*, and read it from the field of that name."""
    fields = [field for field in structs.fields(row) if field.name == field.encode_name == name] if row else []
    kinds = [inspect.type_info(field.type) for field in fields]
    return any(isinstance(one.type, inspect.DateTimeType) for kind in kinds for one in alternatives(kind))


def uncertainty(anomalies: Sequence[Anomaly], member: str) -> timedelta:
    """Return how far a date *member* may be off in the rows of a page with *anomalies*, of which many are not named."""
    is_repaired = any(one.path.endswith(f"].{member}") and one.path.count("[") == 1 for one in anomalies)
    return FARTHEST_ZONE if is_repaired or len(anomalies) > MOST_REPORTS else timedelta(0)


class Certificate:
    """What the pages of one walk prove.

    Args:
        shape: Names the filter that ends a window of creation, and those by what never changes about a row.
        filters: What is searched for.
    """

    __slots__ = ("_date", "_fixed", "_ids", "_settled", "_since", "_total", "_until", "rejection")

    def __init__(self, shape: PageShape, filters: Mapping[str, object]) -> None:
        #: The member of a row that says when it was made.
        self._date = (shape.created_until or "").removesuffix("_to")
        self._since = plain_moment(filters.get(f"{self._date}_from"))
        self._until = plain_moment(filters.get(shape.created_until or ""))
        #: What every row has to show, if it shows it.
        self._fixed = {name: filters[name] for name in shape.immutable & filters.keys()}
        self._ids: set[str] = set()
        self._total: int | None = None
        #: No row that was made before joins any more; ``None`` if the first page proves all.
        self._settled: datetime | None = None
        #: Why nothing is proved any more.
        self.rejection: str | None = None

    @property
    def seen(self) -> int:
        """How many distinct rows were seen."""
        return len(self._ids)

    def add(
        self,
        offset: int,
        page: PageSummary,
        rows: Sequence[object],
        headers: Mapping[str, str],
        anomalies: Sequence[Anomaly] = (),
    ) -> None:
        """Take *page*, which begins at *offset* and has *rows*, into account."""
        is_first = self._total is None
        texts = [str(one) for one in page.ids if isinstance(one, int | str) and one != ""]
        self._ids.update(texts)
        if page.total is None:
            self.rejection = "the platform gives no total"
        elif is_first:
            self._total = page.total
            is_whole = offset == 0 and page.total == page.received == len(self._ids)
            is_atomic = is_whole and page.total < MOST_CERTIFIED
            self.rejection = None if is_atomic else self._limits(page.total, headers)
        elif page.total > (self._total or 0):
            self.rejection = "the total has risen"
        slack = uncertainty(anomalies, self._date)
        self.rejection = next(filter(None, (self._contradiction(row, slack) for row in rows)), self.rejection)
        if len(texts) < page.received:
            self.rejection = "a row has no id"

    def _contradiction(self, row: object, slack: timedelta) -> str | None:
        """Return what *row* shows that was not asked for, or lacks; `None` if nothing speaks against it."""
        for name, value in self._fixed.items():
            shown = getattr(row, name, None)
            # Capitals are told apart by some platforms, and numbers have no zeros in front.
            if shown and _comparable(shown) != _comparable(value):
                return f"a row has {name} {shown!r}, which was not asked for: the response is to another query"
        date = getattr(row, self._date, None) if self._date else None
        if not isinstance(date, datetime) or date.year == 1:  # The year 1 is the platform's word for no date.
            is_needed = self._settled is not None
            return "a row has no date, so it may be younger than its window, and others can join" if is_needed else None
        slack, moment = _MILLISECOND + (slack if date.tzinfo else FARTHEST_ZONE), in_utc(date)
        is_early = self._since is not None and moment < self._since - slack
        if is_early or (self._until is not None and moment > self._until + slack):
            return (
                f"a row has {self._date} {date.isoformat()}, which was not asked for: the response is to another "
                "query, or the date filter is not exact, which paymentsdk.reconcile.walk finds out"
            )
        return None

    def check(self) -> None:
        """Take the page before for the last."""
        if self.rejection is None and len(self._ids) != self._total:
            self.rejection = "rows have moved, or the platform does not show all that it counts"

    def _limits(self, total: int, headers: Mapping[str, str]) -> str | None:
        """Return why a first page of *total* rows, or those behind it, prove nothing."""
        if total >= MOST_CERTIFIED:
            return f"a total of {MOST_CERTIFIED} or more is not believed: search with a smaller window"
        if self._until is None:
            return "it does not fit on one page, and rows can join between two"
        now = http_date(header(headers, "Date"))
        self._settled = now and now - SETTLING_TIME
        if self._settled is None or self._until > self._settled:
            return "it does not fit on one page, and its window has not ended 15 minutes ago"
        return None


def _comparable(value: object) -> str:
    return query_text(value).casefold().lstrip("0")
