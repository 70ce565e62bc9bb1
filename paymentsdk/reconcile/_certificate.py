"""Windows of time, and the proof that every row of one was seen, from what its pages say.

Windows are half-open and partition time, so a row is in exactly one, whatever the platform does at the ends of a range:
the query asks one grain more on both sides, and the rows outside the window are left out here.

Let U be the distinct ids that were seen since a walk began, and T the total of its first page. The rows of a window
that has settled can only become fewer, so U is a part of the T rows that there were when it began. If U has T ids,
nothing is missing, whatever the order of the rows, and however they moved or vanished meanwhile. Walks add up: U is
counted from the first page of each.

That the date filter shows the rows of a window at all is proved before, in `_date_filter.py`. A page with a row of a
date that the filter, as exact as it was proved, cannot show answers another query: it proves nothing.

`Count` holds the proof, and `examine` walks one window by it. The walk of `search(certify=True)` proves the same of a
single search, in `_paging/cursor.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from typing import TypeAlias

from msgspec import Struct

from paymentsdk._paging.cursor import MOST_CERTIFIED, SETTLING_TIME

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
#: Below it, a moment is the platform's word for no date at all: the year 1, in any zone.
NO_DATE = datetime(1, 1, 3, tzinfo=UTC)
#: How often a window is split because it could not be certified, and not because it shows too many rows: a platform
#: whose totals are always wrong would otherwise be asked about every millisecond.
MOST_DOUBTS = 10
#: Pages that are asked for at once in any case.
_PAGES_AT_ONCE = 4
#: Milliseconds that a walk may take before the oldest rows of its window age out of the search.
AGEING = 60_000


class Rules(Struct, frozen=True, kw_only=True):
    """What a walk assumes about the platform, and how hard it tries."""

    grain: int = 1
    """Milliseconds: the date filter is known to be exact to this."""

    lag: int = SETTLING_TIME // MILLISECOND
    """Milliseconds after which no further row appears in a window that has ended."""

    max_window: int = MOST_CERTIFIED
    """Only a total below this is believed."""

    tries: int = 20
    """Walks over a window before it is given up; a half of it where it was split in doubt, a third the next time."""

    horizon: int = 90 * 86_400_000
    """Milliseconds: the search does not show older rows."""


class Window(Struct, frozen=True, order=True):
    """A window of ``date_created``."""

    begin: int
    """Its first millisecond."""

    end: int
    """The first millisecond behind it."""

    doubts: int = 0
    """How often it was split because it could not be certified."""

    def asked(self, grain: int) -> tuple[int, int]:
        """Return the range to ask for, of which either end may be included or not."""
        return self.begin - grain, self.end + grain

    def is_settled(self, rules: Rules, now: int) -> bool:
        """Whether no further row can appear in the range that is asked for."""
        return self.end <= settled_until(rules, now)

    def pieces(self, rules: Rules, now: int, total: int, received: int) -> list[Window]:
        """Return the windows to walk in place of this one; none if it cannot be split, or that was tried enough.

        What has settled is parted from what has not. Otherwise, the halves are halved at once as often as the *total*
        says, and the rows *received* where it has to come as one page: a call for each level of the tree would bring
        nothing.
        """
        settled = settled_until(rules, now)
        width, count, is_small = self.end - self.begin, 2, total < rules.max_window
        room = received if is_small else rules.max_window
        # Not a sliver: a window that ends now has another at every call.
        if self.begin + width // 2 < settled < self.end:
            return self._cut([settled], self.doubts)
        if not room:
            return []  # It shows none of them: smaller windows would show no more.
        while count * room * 3 < total * 4 and width >= 4 * count * rules.grain:
            count *= 2
        return self._parted(rules, count, doubts=self.doubts + (is_small or not received))

    def halves(self, rules: Rules) -> list[Window]:
        """Return two windows to walk in place of one that could not be certified; none if that was tried enough."""
        return self._parted(rules, 2, doubts=self.doubts + 1)

    def _parted(self, rules: Rules, count: int, doubts: int) -> list[Window]:
        width = self.end - self.begin
        if doubts > MOST_DOUBTS or width < 2 * rules.grain:
            return []
        return self._cut([self.begin + width * i // count for i in range(1, count)], doubts)

    def _cut(self, places: list[int], doubts: int) -> list[Window]:
        return [Window(begin, end, doubts) for begin, end in pairwise([self.begin, *places, self.end])]


def settled_until(rules: Rules, now: int) -> int:
    """Return where windows have to end in which no further row can appear.

    A grain more is asked for, and a filter that cuts dates down to a grain shows another.
    """
    return now - rules.lag - 2 * rules.grain


def remaining(whole: Window, done: Iterable[Window]) -> list[Window]:
    """Return the windows of *whole* that are not in *done*, which do not overlap."""
    left, begin = [], whole.begin
    for window in sorted(done):
        if begin < window.begin:
            left.append(Window(begin, window.begin))
        begin = max(begin, window.end)
    return [*left, Window(begin, whole.end)] if begin < whole.end else left


def milliseconds(moment: datetime) -> int:
    """Return *moment* in milliseconds since 1970, rounded down."""
    return (moment - EPOCH) // MILLISECOND


def moment_of(number: int) -> datetime:
    """Return the moment that is *number* milliseconds after 1970."""
    return EPOCH + number * MILLISECOND


# --- the certificate --------------------------------------------------------------------------------------------------


class Page(Struct, frozen=True, kw_only=True):
    """One page of a window, as the platform showed it at one moment."""

    ids: tuple[str | None, ...]
    """The ids of its rows, as text; ``None`` for a row without one."""

    places: Sequence[int]
    """Where the rows are kept, in the same order."""

    total: int | None
    """How many rows the window has, as this page says."""

    now: int
    """The platform's time, in milliseconds since 1970."""

    received: int
    """How far it reaches: entries that were no rows count in offsets, too."""

    span: tuple[int, int] | None = None
    """The earliest and the latest date of its rows, in milliseconds since 1970; ``None`` if they have none."""

    def answers(self, window: Window, grain: int) -> bool:
        """Whether its rows can be those of *window*, by their dates.

        A filter that cuts dates down to a *grain* shows up to one more on both sides than it is asked for.
        """
        begin, end = window.asked(2 * grain)
        return self.span is None or (begin <= self.span[0] and self.span[1] < end)

    def is_atomic(self, rules: Rules) -> bool:
        """Whether it is a first page with all rows that there were at its moment."""
        is_believed = self.total is not None and self.total < rules.max_window
        return is_believed and len(self.ids) == self.received == self.total == len(set(self.ids) - {None})


class Verdict(Struct, frozen=True, kw_only=True):
    """What became of a window: it is whole, but for a `reason` against it, or `pieces` to be walked in its place."""

    at: int
    """The moment that it speaks of, in milliseconds since 1970."""

    places: Sequence[int] = ()
    """Where its rows are that were seen, and some from just outside of it."""

    total: int | None = None
    """How many rows there should be, as its last first page says."""

    reason: str | None = None
    """Why it was given up: there may be other rows."""

    pieces: Sequence[Window] = ()


#: Fetches the pages at some offsets; ``None`` for an offset that the platform rejects.
Ask: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[Page | None]]]


class Count:
    """The distinct ids of a window, counted from the first page of each walk."""

    def __init__(self) -> None:
        #: The total of the first page of each walk; ``None`` if the walk cannot certify.
        self._totals: list[int | None] = []
        #: The ids that were seen last in each walk.
        self._seen: list[set[str | None]] = []

    def begin(self, total: int | None) -> None:
        """Begin a walk whose first page says *total*."""
        self._totals.append(total)
        self._seen.append(set())

    def see(self, ids: Collection[str | None], total: int | None) -> None:
        """Count the *ids* of a page that says *total*."""
        *earlier, latest = self._seen
        latest.update(ids)
        for seen in earlier:
            seen.difference_update(ids)
        if None in latest:
            # It may be one of those counted, or another.
            latest.discard(None)
            total = None
        # A walk that began with fewer rows certifies nothing any more: a row has joined, or a total was wrong.
        for walk, first in enumerate(self._totals):
            if total is None or (first is not None and first < total):
                self._totals[walk] = None

    def void(self) -> None:
        """Let no walk certify that has begun before."""
        self._totals = [None] * len(self._totals)

    def certified(self) -> set[str | None] | None:
        """Return the ids seen since the last walk since whose first page every row was; ``None`` if there is none."""
        seen = 0
        for walk in reversed(range(len(self._seen))):
            seen += len(self._seen[walk])
            if seen == self._totals[walk]:
                return set().union(*self._seen[walk:])
        return None


async def examine(window: Window, rules: Rules, ask: Ask) -> Verdict:
    """Walk *window* until it is certified, is to be split, or is given up."""
    count, places = Count(), dict[str | None, int]()
    total, now, reason = None, 0, "the platform rejects the query"
    answers = partial(Page.answers, window=window, grain=rules.grain)
    for _ in range(-(-rules.tries // (1 + window.doubts))):
        (first,) = await ask([0])
        if first is None:
            break
        total, now = first.total, first.now
        if not answers(first):
            count.void()
            reason = "a page has a row of another date than was asked for"
            continue
        verdict = _at_once(window, rules, first)
        if verdict is not None:
            return verdict
        if not window.is_settled(rules, now):
            reason = "it has not settled, and does not fit on a page"
            continue
        reason = "as many rows as the total says were never seen"
        known = len(places)
        found = await _walk(first, answers, count, places, ask)
        if found is not None:
            return Verdict(places=[place for one, place in places.items() if one in found], at=now)
        # Nothing new behind the first page: there may be a largest offset, which smaller windows do not reach.
        if first.received < len(places) == known and (pieces := window.halves(rules)):
            return Verdict(pieces=pieces, at=now)
    return Verdict(places=list(places.values()), total=total, at=now, reason=reason)


def _at_once(window: Window, rules: Rules, first: Page) -> Verdict | None:
    """Judge *window* by its first page alone; ``None`` if it has to be walked."""
    total, now = first.total, first.now
    given_up = partial(Verdict, places=first.places, total=total, at=now)
    shown_since = now - rules.horizon
    if window.begin < shown_since:
        since = shown_since + AGEING
        if since < window.end:
            return Verdict(pieces=[Window(window.begin, since), Window(since, window.end)], at=now)
        return given_up(reason="the search shows no rows of that age")
    if total is None:
        return given_up(reason="the platform gives no total")
    if first.is_atomic(rules):
        return Verdict(places=first.places, at=now)
    is_small = total < rules.max_window
    if is_small and window.is_settled(rules, now):
        return None
    if pieces := window.pieces(rules, now, total, first.received):
        return Verdict(pieces=pieces, at=now)
    return None if is_small else given_up(reason="it has too many rows, and cannot be split")


async def _walk(
    first: Page, answers: Callable[[Page], bool], count: Count, places: dict[str | None, int], ask: Ask
) -> set[str | None] | None:
    """Walk from the page *first* on; return the ids of all rows, if every row was seen and every page *answers*.

    Other pages are asked for at once. Where one is shorter than the first, that leaves a gap, to be asked for next.
    Pages without a row end the walk.
    """
    count.begin(first.total)
    total = first.total or 0
    asked: Sequence[int] = [0]
    pages: Sequence[Page | None] = [first]
    shown: list[tuple[int, int]] = []
    while True:
        for offset, page in zip(asked, pages, strict=True):
            if page is None:
                return None
            if not answers(page):
                # Or the filter shows more than the window: rows can join, in place of others that vanish.
                count.void()
                return None
            count.see(page.ids, page.total)
            places.update(zip(page.ids, page.places, strict=True))
            if (found := count.certified()) is not None:
                return found
            shown.append((offset, offset + page.received))
            if page.total is None or page.total > total:
                # No walk that has begun before this page can be certified any more.
                return None
        if not any(page.received for page in pages if page):
            return None
        # No more of them than have come: a total may be far too high.
        asked = [*islice(_gaps(shown, total, first.received or total), max(_PAGES_AT_ONCE, len(shown)))]
        if not asked:
            return None
        pages = await ask(asked)


def _gaps(shown: list[tuple[int, int]], total: int, step: int) -> Iterator[int]:
    """Yield the offsets of pages of *step* rows that would show what is not *shown*."""
    reached = 0
    for begin, end in (*sorted(shown), (total, total)):
        yield from range(reached, begin, step)
        reached = max(reached, end)
