"""The proof that every row of a window was seen, from what its pages say.

Let U be the distinct ids that were seen since a walk began, and T the total of its first page. The rows of a window
that has settled can only become fewer, so U is a part of the T rows that there were when it began. If U has T ids,
nothing is missing, whatever the order of the rows, and however they moved or vanished meanwhile. Walks add up: U is
counted from the first page of each.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from paymentsdk.reconcile._windows import Rules, Window

R = TypeVar("R")
S = TypeVar("S")

#: Milliseconds that a walk may take before the oldest rows of its window age out of the search.
AGEING = 60_000


class Sight(Struct, Generic[R], frozen=True, kw_only=True):
    """One page of a window, as the platform showed it at one moment."""

    ids: tuple[str | None, ...]
    """The ids of its rows, as text; ``None`` for a row without one."""

    rows: Sequence[R]
    """The rows, in the same order."""

    total: int | None
    """How many rows the window has, as this page says."""

    now: int
    """The platform's time, in milliseconds since 1970."""

    received: int
    """How far it reaches: entries that were no rows count in offsets, too."""

    def with_rows(self, rows: Sequence[S]) -> Sight[S]:
        """Return the page with *rows* for its own."""
        return Sight(ids=self.ids, rows=rows, total=self.total, now=self.now, received=self.received)


class Whole(Struct, Generic[R], frozen=True, kw_only=True):
    """A window whose rows were all seen."""

    rows: Sequence[R]
    """Its rows, and some from just outside of it."""

    at: int
    """The moment that the certificate speaks of, in milliseconds since 1970."""


class Split(Struct, frozen=True):
    """A window to be walked in pieces."""

    pieces: list[Window]


class Doubtful(Struct, Generic[R], frozen=True, kw_only=True):
    """A window that could not be certified."""

    rows: Sequence[R]
    """The rows that were seen. There may be others."""

    seen: int
    """How many they are."""

    total: int | None
    """How many there should be, as its last first page says."""

    at: int
    """When it was walked last, in milliseconds since 1970."""

    reason: str
    """Why it was given up."""


Verdict: TypeAlias = "Whole[R] | Split | Doubtful[R]"
T = TypeVar("T")
#: What asks for pages by their offsets, and returns something.
Steps: TypeAlias = Generator[Sequence[int], Sequence[Sight[R] | None], T]


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
        self._void(total)

    def certified(self) -> int | None:
        """Return the last walk since whose first page every row has been seen; ``None`` if there is none."""
        seen = 0
        for walk in reversed(range(len(self._seen))):
            seen += len(self._seen[walk])
            if seen == self._totals[walk]:
                return walk
        return None

    def since(self, walk: int) -> set[str | None]:
        """Return the ids that were seen since *walk* began."""
        return set().union(*self._seen[walk:])

    def _void(self, total: int | None) -> None:
        """Have no walk certify that began with fewer rows than *total*: a row has joined, or a total was wrong."""
        for walk, first in enumerate(self._totals):
            if total is None or (first is not None and first < total):
                self._totals[walk] = None


def examine(window: Window, rules: Rules) -> Steps[R, Verdict[R]]:
    """Walk *window* until it is certified, is to be split, or is given up.

    Yields the offsets of pages to fetch, and takes these pages, with ``None`` for an offset that the platform rejects.
    """
    count, rows = Count(), dict[str | None, R]()
    total, now, reason = None, 0, "the platform rejects the query"
    for _ in range(rules.tries):
        (first,) = yield [0]
        if first is None:
            break
        total, now = first.total, first.now
        verdict = _at_once(window, rules, first)
        if verdict is not None:
            return verdict
        if not window.is_settled(rules, now):
            reason = "it has not settled, and does not fit on a page"
            continue
        reason = "as many rows as the total says were never seen"
        known = len(rows)
        walk = yield from _walk(first, count, rows)
        if walk is not None:
            found = count.since(walk)
            return Whole(rows=[row for one, row in rows.items() if one in found], at=now)
        # Nothing new: there may be a largest offset, which smaller windows do not reach.
        if len(rows) == known and (pieces := window.halves(rules)):
            return Split(pieces)
    return Doubtful(rows=list(rows.values()), seen=len(rows), total=total, at=now, reason=reason)


def _at_once(window: Window, rules: Rules, first: Sight[R]) -> Verdict[R] | None:
    """Judge *window* by its first page alone; ``None`` if it has to be walked."""
    total, shown_since = first.total, first.now - rules.horizon
    if window.begin < shown_since:
        since = shown_since + AGEING
        if since < window.end:
            return Split([Window(window.begin, since), Window(since, window.end)])
        return _given_up(first, "the search shows no rows of that age")
    if total is None:
        return _given_up(first, "the platform gives no total")
    is_small = total < rules.max_window
    if is_atomic(first, rules):
        return Whole(rows=first.rows, at=first.now)
    if is_small and window.is_settled(rules, first.now):
        return None
    if pieces := window.pieces(rules, first.now, total):
        return Split(pieces)
    return None if is_small else _given_up(first, "it has too many rows, and cannot be split")


def is_atomic(first: Sight[R], rules: Rules) -> bool:
    """Whether the page *first* has all rows that there were at its moment."""
    total = first.total
    is_believed = total is not None and total < rules.max_window
    return is_believed and len(first.ids) == first.received == total == len(set(first.ids) - {None})


def _given_up(first: Sight[R], reason: str) -> Doubtful[R]:
    return Doubtful(rows=first.rows, seen=len(first.ids), total=first.total, at=first.now, reason=reason)


def _walk(first: Sight[R], count: Count, rows: dict[str | None, R]) -> Steps[R, int | None]:
    """Walk from the page *first* on; return the walk since which every row was seen.

    All other pages are asked for at once. Where one is shorter than the first, that leaves a gap, to be asked for next.
    """
    count.begin(first.total)
    total = first.total or 0
    asked: Sequence[int] = [0]
    pages: Sequence[Sight[R] | None] = [first]
    shown: list[tuple[int, int]] = []
    while True:
        for offset, page in zip(asked, pages, strict=True):
            if page is None:
                return None
            count.see(page.ids, page.total)
            rows.update(zip(page.ids, page.rows, strict=True))
            if (walk := count.certified()) is not None:
                return walk
            shown.append((offset, offset + page.received))
            if page.total is None or page.total > total:
                # No walk that has begun before this page can be certified any more.
                return None
        before, asked = asked, [*_gaps(shown, total, first.received or total)]
        if not asked or asked == before:
            return None
        pages = yield asked


def _gaps(shown: list[tuple[int, int]], total: int, step: int) -> Iterator[int]:
    """Yield the offsets of pages of *step* rows that would show what is not *shown*."""
    reached = 0
    for begin, end in (*sorted(shown), (total, total)):
        yield from range(reached, begin, step)
        reached = max(reached, end)
