"""The proof that a walk has seen every row of a window of time.

`search(certify=True)` and a reconciliation use the same proof. Windows are half-open and partition time, so each row is
in exactly one window. Platforms treat the ends of a range differently. So a reconciliation requests one grain more on
both sides, and leaves out the rows outside of the window.

Let U be the distinct ids that were seen since a walk began, and T the total of its first page. The rows of a settled
window can only become fewer, so U is a subset of the T rows at the beginning of the walk. If U has T ids, no row is
missing. The order of the rows does not matter, and rows may move or vanish during the walk. Several walks over a window
add up: U is counted from the first page of each. A single page that has as many rows as its total is whole, settled or
not.

A page with a row that contradicts the query is the response to another query, and proves nothing. A total of
`Rules.max_window` or more proves nothing either, because some platforms stop counting.

The proof assumes that the date filter finds rows by the date that they show. If a platform drops the milliseconds of a
bound, or reads it in another zone, some rows are in no window although every total agrees. So a reconciliation first
proves the filter, with `prove`. It takes rows of each account that were found without the filter. For each, it requests
the row's own millisecond, widened by one grain, as later for every window. The earliest and the latest row are always
among them, because a filter that reads bounds in its own zone may differ between summer and winter.
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
#: A row may appear in a window until this long after its end.
SETTLING_TIME = timedelta(minutes=15)
#: An earlier date means that the row has no date: platforms write the year 1, in any zone.
NO_DATE = datetime(1, 1, 3, tzinfo=UTC)
#: A date without a zone is read as UTC, and may be wrong by this much.
FARTHEST_ZONE = timedelta(hours=14)
#: A window is split at most this often because it could not be certified. Without this bound, a platform whose totals
#: are always wrong would get a query for every millisecond.
MOST_DOUBTS = 10
#: The minimum of pages that are requested at the same time.
_PAGES_AT_ONCE = 4
ANOTHER_DATE = (
    "a page has a row of another date than was asked for: it is the response to another query, or the date filter is "
    "not exact"
)
#: Milliseconds that a walk may take before the oldest rows of its window become too old for the search.
AGEING = 60_000


class Rules(Struct, frozen=True, kw_only=True):
    """The assumptions of a walk about the platform, and its limits."""

    grain: int = 1
    """The date filter is known to be exact to this number of milliseconds."""
    lag: int = SETTLING_TIME // MILLISECOND
    """Milliseconds after the end of a window until no further row appears in it."""
    max_window: int = 1_000
    """Only lower totals are trusted."""
    tries: int = 20
    """Walks over a window before it is given up. A window that was split in doubt gets half as many, after two such
    splits a third, and so on."""
    horizon: int = 90 * 86_400_000
    """Milliseconds; the search does not show older rows."""
    splits: bool = True
    """Whether a window may be split into smaller windows."""


class Window(Struct, frozen=True, order=True):
    """A window of time, in milliseconds since 1970."""

    begin: int
    """The first millisecond of the window."""
    end: int
    """The first millisecond after the window."""
    doubts: int = 0
    """How often the window was split because it could not be certified."""

    def asked(self, grain: int) -> tuple[int, int]:
        """Return the range to request; the platform may include or exclude either end."""
        return self.begin - grain, self.end + grain

    def is_settled(self, rules: Rules, now: int) -> bool:
        """Return whether no further row can appear in the requested range."""
        return self.end <= settled_until(rules, now)

    def pieces(self, rules: Rules, now: int, total: int, received: int) -> list[Window]:
        """Return smaller windows that replace this one; an empty list if it cannot be split, or was split too often.

        A settled part is cut off from the rest. Otherwise the number of pieces follows from the *total*, and from the
        rows *received* if each piece has to fit on one page. Splitting in one step saves the calls for windows that are
        certainly too large.
        """
        settled = settled_until(rules, now)
        width, count, is_small = self.end - self.begin, 2, total < rules.max_window
        room = received if is_small else rules.max_window
        # Cut only if the settled part is at least half. A window that ends now would have another sliver at every call.
        if self.begin + width // 2 < settled < self.end:
            return self._cut([settled], self.doubts)
        if not room:
            return []  # The window shows no rows, so smaller windows would show no rows either.
        while count * room * 3 < total * 4 and width >= 4 * count * rules.grain:
            count *= 2
        return self._parted(rules, count, doubts=self.doubts + (is_small or not received))

    def halves(self, rules: Rules) -> list[Window]:
        """Return two halves that replace a window that could not be certified; an empty list after too many splits."""
        return self._parted(rules, 2, doubts=self.doubts + 1)

    def _parted(self, rules: Rules, count: int, doubts: int) -> list[Window]:
        if doubts > MOST_DOUBTS or self.end - self.begin < 2 * rules.grain:
            return []
        return self.slices(count, doubts)

    def slices(self, count: int, doubts: int = 0) -> list[Window]:
        """Return *count* windows of equal width that replace this one."""
        width = self.end - self.begin
        return self._cut([self.begin + width * i // count for i in range(1, count)], doubts)

    def _cut(self, places: list[int], doubts: int) -> list[Window]:
        return [Window(begin, end, doubts) for begin, end in pairwise([self.begin, *places, self.end])]


def settled_until(rules: Rules, now: int) -> int:
    """Return the latest end of a window in which no further row can appear.

    One grain is subtracted because the query is wider by a grain. Another is subtracted because a filter that rounds
    dates down to a grain shows one grain more.
    """
    return now - rules.lag - 2 * rules.grain


def remaining(whole: Window, finished: Iterable[Window]) -> list[Window]:
    """Return the windows of *whole* that no *finished* window covers; the finished windows do not overlap."""
    windows, begin = [], whole.begin
    for window in sorted(finished):
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
    """Return by how much a date *member* may be wrong in the rows of a page with *anomalies*.

    Beyond `MOST_REPORTS` anomalies not all are named, so every date may be wrong.
    """
    is_repaired = any(anomaly.path.endswith(f"].{member}") and anomaly.path.count("[") == 1 for anomaly in anomalies)
    return FARTHEST_ZONE if is_repaired or len(anomalies) > MOST_REPORTS else timedelta(0)


def span_of(ages: Sequence[timedelta], slack: timedelta) -> tuple[int, int] | None:
    """Return the earliest and the latest of some times since 1970, in milliseconds, if each may be wrong by *slack*."""
    return ((min(ages) + slack) // MILLISECOND, (max(ages) - slack) // MILLISECOND) if ages else None


# --- the certificate of a window --------------------------------------------------------------------------------------


class Snapshot(Struct, frozen=True, kw_only=True):
    """One page of a window, as the platform showed it at one moment."""

    ids: tuple[str | None, ...]
    """The ids of the rows, as text; ``None`` for a row without an id."""
    places: Sequence[int]
    """The indexes of the rows in the caller's storage, in the same order."""
    total: int | None
    """The number of rows in the window, as this page says."""
    now: int
    """The platform's time, in milliseconds since 1970."""
    received: int
    """The number of entries; those that could not be read as rows count, because offsets count them."""
    span: tuple[int, int] | None = None
    """The earliest and the latest date of the rows, in milliseconds since 1970; ``None`` if no row has a date."""
    objection: str | None = None
    """Why the reader rejects this as a page of the query; ``None`` if it does not."""

    def objection_to(self, window: Window, grain: int) -> str | None:
        """Return why this cannot be a page of *window*; ``None`` if it can.

        A filter that rounds dates down to a *grain* shows up to one grain more on both sides than requested.
        """
        begin, end = window.asked(2 * grain)
        if self.span is None or (begin <= self.span[0] and self.span[1] < end):
            return self.objection
        return ANOTHER_DATE

    def is_atomic(self, rules: Rules) -> bool:
        """Return whether this first page has all rows of the window at its moment."""
        is_believed = self.total is not None and self.total < rules.max_window
        return is_believed and len(self.ids) == self.received == self.total == len(set(self.ids) - {None})


class Verdict(Struct, frozen=True, kw_only=True):
    """The result for a window. It is whole unless it has a `reason`, or `pieces` to walk instead."""

    at: int
    """The moment for which the verdict holds, in milliseconds since 1970."""
    places: Sequence[int] = ()
    """The indexes of the seen rows in the caller's storage. Some rows are from just outside of the window."""
    total: int | None = None
    """The expected number of rows, as the first page of the last walk says."""
    reason: str | None = None
    """Why the window was given up, so that rows may be missing."""
    pieces: Sequence[Window] = ()
    """The windows to walk instead of this one."""


#: Fetches the pages at some offsets, with ``None`` for an offset that the platform rejects.
Ask: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[Snapshot | None]]]


class Count:
    """The distinct ids of a window, counted from the first page of each walk."""

    def __init__(self) -> None:
        #: The total of the first page of each walk; ``None`` if the walk cannot certify the window.
        self._totals: list[int | None] = []
        #: For each walk, the ids that no later walk has seen.
        self._seen: list[set[str | None]] = []

    def begin(self, total: int | None) -> None:
        """Begin a walk whose first page has this *total*."""
        self._totals.append(total)
        self._seen.append(set())

    def see(self, ids: Collection[str | None], total: int | None) -> None:
        """Count the *ids* of a page with this *total*."""
        *earlier, latest = self._seen
        latest.update(ids)
        for walk_ids in earlier:
            walk_ids.difference_update(ids)
        if None in latest:
            # A row without an id may be a row that was counted, or another.
            latest.discard(None)
            total = None
        # A walk with a lower first total can no longer certify: a row has joined, or a total was wrong.
        for walk, first in enumerate(self._totals):
            if total is None or (first is not None and first < total):
                self._totals[walk] = None

    def void(self) -> None:
        """Make all walks so far unable to certify."""
        self._totals = [None] * len(self._totals)

    def certified(self) -> set[str | None] | None:
        """Return the ids seen since the first page of a walk, if they are as many as its total; ``None`` otherwise."""
        number = 0
        for walk in reversed(range(len(self._seen))):
            number += len(self._seen[walk])
            if number == self._totals[walk]:
                return set().union(*self._seen[walk:])
        return None


class Examination:
    """Walks one window until it is certified, split or given up."""

    def __init__(self, window: Window, rules: Rules, ask: Ask) -> None:
        self._window = window
        self._rules = rules
        self._ask = ask
        self._count = Count()
        #: The index of the row of each id.
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
            count_before = len(self._places)
            ids = await self._walk(first)
            if ids is not None:
                return Verdict(places=[place for row_id, place in self._places.items() if row_id in ids], at=now)
            # No new rows came after the first page: the platform may have a largest offset. Smaller windows stay below.
            is_stuck = first.received < len(self._places) == count_before
            if rules.splits and is_stuck and (pieces := window.halves(rules)):
                return Verdict(pieces=pieces, at=now)
        return Verdict(places=list(self._places.values()), total=total, at=now, reason=self._reason)

    def _is_answer(self, page: Snapshot) -> bool:
        """Return whether *page* can be a page of this window. If not, all walks so far can no longer certify."""
        objection = page.objection_to(self._window, self._rules.grain)
        if objection is not None:
            self._count.void()
            self._reason = objection
        return objection is None

    def _verdict_of(self, first: Snapshot) -> Verdict | None:
        """Return the verdict of the first page alone; ``None`` if the window has to be walked."""
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
        """Walk from the page *first* on, and return the ids of all rows; ``None`` if some were not seen.

        The other pages are requested at the same time. A page that is shorter than the first leaves a gap, which is
        requested next.
        """
        self._count.begin(first.total)
        total = first.total or 0
        offsets: Sequence[int] = [0]
        pages: Sequence[Snapshot | None] = [first]
        ranges: list[tuple[int, int]] = []
        while True:
            for offset, page in zip(offsets, pages, strict=True):
                if page is None or not self._is_answer(page):
                    return None
                self._count.see(page.ids, page.total)
                self._places.update(zip(page.ids, page.places, strict=True))
                if (ids := self._count.certified()) is not None:
                    return ids
                ranges.append((offset, offset + page.received))
                if page.total is None or page.total > total:
                    # No walk so far can certify the window any more.
                    return None
            if not any(page.received for page in pages if page):
                return None
            # The number of pages at most doubles per step, because a total may be far too high.
            offsets = [*islice(_gaps(ranges, total, first.received or total), max(_PAGES_AT_ONCE, len(ranges)))]
            if not offsets:
                return None
            pages = await self._ask(offsets)


def _gaps(ranges: list[tuple[int, int]], total: int, step: int) -> Iterator[int]:
    """Yield the offsets of pages of *step* rows that cover the rows between *ranges*, up to *total*."""
    reached = 0
    for begin, end in (*sorted(ranges), (total, total)):
        yield from range(reached, begin, step)
        reached = max(reached, end)


# --- the date filter --------------------------------------------------------------------------------------------------

#: The grains that a date filter may have, in milliseconds: a millisecond, a second, a minute, an hour, a day.
GRAINS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
#: Rows to prove it with, besides the earliest and the latest.
SAMPLES = 3
_AT = attrgetter("at")


class Sample(NamedTuple):
    """A row that was found without the date filter."""

    id: str
    at: int
    """The row's date that the filter should use, in milliseconds since 1970."""
    is_changed: bool
    """Whether the row was changed after it was created. Only a changed row shows that a filter uses the other date."""


async def prove(
    samples: Sequence[Sample], find: Callable[[Sequence[Sample], int], Awaitable[Sequence[bool]]], most: int = SAMPLES
) -> int | None:
    """Return the grain of the date filter, in milliseconds; ``None`` if no sample is found by its date.

    *find* returns which samples are found by their own millisecond, widened by a grain. It gets the earliest sample,
    the latest, and up to *most* others.
    """
    proved: int | None = None
    finest = _finest(samples)
    ends = (min(samples, key=_AT), max(samples, key=_AT)) if samples else ()
    missing = list({sample.id: sample for sample in (*_most_telling(samples, finest, most), *ends)}.values())
    for grain in GRAINS[finest:]:
        hits = await find(missing, grain)
        if any(hits):
            proved = grain
        # A sample that no grain finds has vanished. If no sample is found, the filter does not work.
        missing = [sample for sample, is_hit in zip(missing, hits, strict=True) if not is_hit]
        if not missing:
            break
    return proved


def _finest(samples: Sequence[Sample]) -> int:
    """Return the index of the finest grain that *samples* can distinguish from the next coarser one.

    Rows with whole seconds prove nothing about milliseconds: they are found even if the platform drops the milliseconds
    of a bound.
    """
    for i, (grain, coarser) in enumerate(pairwise(GRAINS)):
        if any(_distinguishes(sample, grain, coarser) for sample in samples):
            return i
    return len(GRAINS) - 1


def _distinguishes(sample: Sample, grain: int, coarser: int) -> bool:
    return 2 * grain <= sample.at % coarser < coarser - 2 * grain


def _most_telling(samples: Sequence[Sample], finest: int, most: int) -> list[Sample]:
    """Return up to *most* of the *samples* that prove the most, spread over all of them."""
    grain, coarser = GRAINS[finest], GRAINS[min(finest + 1, len(GRAINS) - 1)]
    ranked = sorted(samples, key=lambda sample: (not _distinguishes(sample, grain, coarser), not sample.is_changed))
    telling = [sample for sample in ranked if _distinguishes(sample, grain, coarser)]
    alike = [sample for sample in telling if sample.is_changed == ranked[0].is_changed]
    ranked = alike if len(alike) >= most else ranked[:most]
    return ranked[:: max(1, len(ranked) // most)][:most]
