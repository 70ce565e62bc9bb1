"""The proof that every row of a window of time was seen. `search(certify=True)` and a reconciliation both use it.

Windows are half-open and partition time, so a row is in exactly one, whatever the platform does at the ends of a range:
a reconciliation asks for one grain more on both sides, and leaves out the rows outside of the window.

Let U be the distinct ids that were seen since a walk began, and T the total of its first page. The rows of a window
that has settled can only become fewer, so U is a part of the T rows that there were when the walk began. If U has T
ids, no row is missing, whatever the order of the rows, and however they moved or vanished meanwhile. Walks add up: U is
counted from the first page of each. A single page that has as many rows as its total is whole, settled or not.

A page with a row that contradicts the query is the response to another query, and proves nothing. Neither does a total
of `Rules.max_window` or more: some platforms stop counting.

All of this takes for granted that the date filter finds rows by the date that they show. A platform that drops the
milliseconds of a bound, or reads it in another zone, has rows that no window shows, and every total agrees. So a
reconciliation proves the filter first, with `prove`: it takes rows of each account that were found without the filter,
and asks for the millisecond of each, widened by one grain, as it asks for every window later. The earliest and the
latest row are always among them: a filter that reads bounds in its own zone has a summer and a winter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from paymentsdk._codec.anomaly import MOST_REPORTS, Anomaly

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
#: How late a row may appear in a window that has ended.
SETTLING_TIME = timedelta(minutes=15)
#: Below it, a moment is the platform's word for no date at all: the year 1, in any zone.
NO_DATE = datetime(1, 1, 3, tzinfo=UTC)
#: How far off a date may be that came without a zone, and was read as UTC.
FARTHEST_ZONE = timedelta(hours=14)
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

    max_window: int = 1_000
    """Only a total below this is believed."""

    tries: int = 20
    """Walks over a window before it is given up; a half of it where it was split in doubt, a third the next time."""

    horizon: int = 90 * 86_400_000
    """Milliseconds: the search does not show older rows."""

    splits: bool = True
    """Whether smaller windows may be walked in place of a window."""


class Window(Struct, frozen=True, order=True):
    """A window of time, in milliseconds since 1970."""

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

        A settled part is cut off from the rest. Otherwise, the halves are halved at once as often as the *total*
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
            return []  # It shows none of its rows: smaller windows would show no more.
        while count * room * 3 < total * 4 and width >= 4 * count * rules.grain:
            count *= 2
        return self._parted(rules, count, doubts=self.doubts + (is_small or not received))

    def halves(self, rules: Rules) -> list[Window]:
        """Return two windows to walk in place of one that could not be certified; none if that was tried enough."""
        return self._parted(rules, 2, doubts=self.doubts + 1)

    def _parted(self, rules: Rules, count: int, doubts: int) -> list[Window]:
        if doubts > MOST_DOUBTS or self.end - self.begin < 2 * rules.grain:
            return []
        return self.slices(count, doubts)

    def slices(self, count: int, doubts: int = 0) -> list[Window]:
        """Return *count* windows of equal width in place of this one."""
        width = self.end - self.begin
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
    windows, begin = [], whole.begin
    for window in sorted(done):
        if begin < window.begin:
            windows.append(Window(begin, window.begin))
        begin = max(begin, window.end)
    return [*windows, Window(begin, whole.end)] if begin < whole.end else windows


def milliseconds(moment: datetime) -> int:
    """Return *moment* in milliseconds since 1970, rounded down."""
    return (moment - EPOCH) // MILLISECOND


def moment_of(number: int) -> datetime:
    """Return the moment that is *number* milliseconds after 1970."""
    return EPOCH + number * MILLISECOND


def uncertainty(anomalies: Sequence[Anomaly], member: str) -> timedelta:
    """Return how far a date *member* may be off in the rows of a page with *anomalies*, of which many are not named."""
    is_repaired = any(anomaly.path.endswith(f"].{member}") and anomaly.path.count("[") == 1 for anomaly in anomalies)
    return FARTHEST_ZONE if is_repaired or len(anomalies) > MOST_REPORTS else timedelta(0)


# --- the certificate of a window --------------------------------------------------------------------------------------


class Snapshot(Struct, frozen=True, kw_only=True):
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

    objection: str | None = None
    """Why its reader does not take it for a page of this query."""

    def objection_to(self, window: Window, grain: int) -> str | None:
        """Return why this is no page of *window*; ``None`` if its rows can be those.

        A filter that cuts dates down to a *grain* shows up to one more on both sides than it is asked for.
        """
        begin, end = window.asked(2 * grain)
        if self.span is None or (begin <= self.span[0] and self.span[1] < end):
            return self.objection
        return "a page has a row of another date than was asked for"

    def is_atomic(self, rules: Rules) -> bool:
        """Whether it is a first page with all rows that there were at its moment."""
        is_believed = self.total is not None and self.total < rules.max_window
        return is_believed and len(self.ids) == self.received == self.total == len(set(self.ids) - {None})


class Verdict(Struct, frozen=True, kw_only=True):
    """The result for a window: it is whole, but for a `reason` against it, or `pieces` are to be walked instead."""

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
Ask: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[Snapshot | None]]]


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
        number = 0
        for walk in reversed(range(len(self._seen))):
            number += len(self._seen[walk])
            if number == self._totals[walk]:
                return set().union(*self._seen[walk:])
        return None


class Examination:
    """Walks one window until it is certified, is to be split, or is given up."""

    def __init__(self, window: Window, rules: Rules, ask: Ask) -> None:
        self._window = window
        self._rules = rules
        self._ask = ask
        self._count = Count()
        #: Where the row of each id is.
        self._places: dict[str | None, int] = {}
        self._reason = "the platform rejects the query"

    async def verdict(self) -> Verdict:
        """Walk the window, and return its verdict."""
        window, rules = self._window, self._rules
        total, now = None, 0
        for _ in range(-(-rules.tries // (1 + window.doubts))):
            (first,) = await self._ask([0])
            if first is None:
                break
            total, now = first.total, first.now
            if not self._is_answer(first):
                continue
            verdict = self._verdict_of(first)
            if verdict is not None:
                return verdict
            if not window.is_settled(rules, now):
                self._reason = "it does not fit on one page, and rows can still join it"
                continue
            self._reason = "as many rows as the total says were never seen"
            known = len(self._places)
            ids = await self._walk(first)
            if ids is not None:
                return Verdict(places=[place for row_id, place in self._places.items() if row_id in ids], at=now)
            # Nothing new behind the first page: there may be a largest offset, which smaller windows do not reach.
            is_stuck = first.received < len(self._places) == known
            if rules.splits and is_stuck and (pieces := window.halves(rules)):
                return Verdict(pieces=pieces, at=now)
        return Verdict(places=list(self._places.values()), total=total, at=now, reason=self._reason)

    def _is_answer(self, page: Snapshot) -> bool:
        """Return whether *page* can be of this window. Otherwise, no walk that has begun certifies anything."""
        objection = page.objection_to(self._window, self._rules.grain)
        if objection is not None:
            self._count.void()
            self._reason = objection
        return objection is None

    def _verdict_of(self, first: Snapshot) -> Verdict | None:
        """Judge the window by its first page alone; ``None`` if it has to be walked."""
        window, rules, total, now = self._window, self._rules, first.total, first.now
        shown_since = now - rules.horizon
        if window.begin < shown_since:
            since = shown_since + AGEING
            if since < window.end:
                return Verdict(pieces=[Window(window.begin, since), Window(since, window.end)], at=now)
            return self._given_up(first, "the search shows no rows of that age")
        if total is None:
            return self._given_up(first, "the platform gives no total")
        if first.is_atomic(rules):
            return Verdict(places=first.places, at=now)
        is_small = total < rules.max_window
        if is_small and window.is_settled(rules, now):
            return None
        if rules.splits and (pieces := window.pieces(rules, now, total, first.received)):
            return Verdict(pieces=pieces, at=now)
        advice = ", and the window cannot be split" if rules.splits else ": search a smaller window"
        return None if is_small else self._given_up(first, f"no total from {rules.max_window} on is believed{advice}")

    def _given_up(self, first: Snapshot, reason: str) -> Verdict:
        return Verdict(places=first.places, total=first.total, at=first.now, reason=reason)

    async def _walk(self, first: Snapshot) -> set[str | None] | None:
        """Walk from the page *first* on; return the ids of all rows, if every row was seen.

        Other pages are asked for at once. A page that is shorter than the first leaves a gap, which is asked for next.
        """
        self._count.begin(first.total)
        total = first.total or 0
        offsets: Sequence[int] = [0]
        pages: Sequence[Snapshot | None] = [first]
        shown: list[tuple[int, int]] = []
        while True:
            for offset, page in zip(offsets, pages, strict=True):
                if page is None or not self._is_answer(page):
                    return None
                self._count.see(page.ids, page.total)
                self._places.update(zip(page.ids, page.places, strict=True))
                if (ids := self._count.certified()) is not None:
                    return ids
                shown.append((offset, offset + page.received))
                if page.total is None or page.total > total:
                    # No walk that has begun before this page can be certified any more.
                    return None
            if not any(page.received for page in pages if page):
                return None
            # No more pages than have come: a total may be far too high.
            offsets = [*islice(_gaps(shown, total, first.received or total), max(_PAGES_AT_ONCE, len(shown)))]
            if not offsets:
                return None
            pages = await self._ask(offsets)


def _gaps(shown: list[tuple[int, int]], total: int, step: int) -> Iterator[int]:
    """Yield the offsets of pages of *step* rows that would show what is not *shown*."""
    reached = 0
    for begin, end in (*sorted(shown), (total, total)):
        yield from range(reached, begin, step)
        reached = max(reached, end)


# --- the date filter --------------------------------------------------------------------------------------------------

#: How exact a date filter may be, in milliseconds: to a millisecond, a second, a minute, an hour, a day.
GRAINS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
#: Rows to prove it on, beside the earliest and the latest.
SAMPLES = 3
_AT = attrgetter("at")


class Sample(NamedTuple):
    """A row that was found without the date filter."""

    id: str
    at: int
    """The date that the filter is about, in milliseconds since 1970."""

    is_changed: bool
    """Whether it was changed since: a filter that goes by another date finds the others as well."""


async def prove(
    samples: Sequence[Sample],
    find: Callable[[Sequence[Sample], int], Awaitable[Sequence[bool]]],
    most: int = SAMPLES,
) -> int | None:
    """Return the grain of the date filter, in milliseconds; ``None`` if no sample is found by its date.

    *find* says which samples come among the rows of their own millisecond, widened by a grain. It is asked about the
    earliest of them, the latest, and up to *most* others.
    """
    proved: int | None = None
    finest = _finest(samples)
    ends = (min(samples, key=_AT), max(samples, key=_AT)) if samples else ()
    missing = list({sample.id: sample for sample in (*_most_telling(samples, finest, most), *ends)}.values())
    for grain in GRAINS[finest:]:
        hits = await find(missing, grain)
        if any(hits):
            proved = grain
        # A sample that no grain finds has vanished, unless all others have as well.
        missing = [sample for sample, is_hit in zip(missing, hits, strict=True) if not is_hit]
        if not missing:
            break
    return proved


def _finest(samples: Sequence[Sample]) -> int:
    """Return which grain is the finest that *samples* can distinguish from the next.

    Whole seconds say nothing about milliseconds: they are found all the same when the milliseconds of a bound are lost.
    """
    for i, (grain, coarser) in enumerate(pairwise(GRAINS)):
        if any(_distinguishes(sample, grain, coarser) for sample in samples):
            return i
    return len(GRAINS) - 1


def _distinguishes(sample: Sample, grain: int, coarser: int) -> bool:
    return 2 * grain <= sample.at % coarser < coarser - 2 * grain


def _most_telling(samples: Sequence[Sample], finest: int, most: int) -> list[Sample]:
    """Return up to *most* that say the most, from all parts of *samples*."""
    grain, coarser = GRAINS[finest], GRAINS[min(finest + 1, len(GRAINS) - 1)]
    ranked = sorted(samples, key=lambda sample: (not _distinguishes(sample, grain, coarser), not sample.is_changed))
    telling = [sample for sample in ranked if _distinguishes(sample, grain, coarser)]
    alike = [sample for sample in telling if sample.is_changed == ranked[0].is_changed]
    ranked = alike if len(alike) >= most else ranked[:most]
    return ranked[:: max(1, len(ranked) // most)][:most]
