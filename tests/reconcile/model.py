"""A walk over the platform in memory, by the rules of the package; each rule can be switched off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec import structs

from paymentsdk._paging.proof import Examination, Rules, Sample, Snapshot, Verdict, Window, prove, remaining
from tests.reconcile.platform import CAP, CAPS, DAY, DRIFTS, ENDS, NOW, ORDERS, Platform, Row

T = TypeVar("T")
RULES = Rules(max_window=CAP)
#: A week, most of which has settled.
CREATED = Window(NOW - 7 * DAY, NOW)


def keeps(window: Window, moment: int | None) -> bool:
    """Whether a row of *moment* belongs to *window*. One without a date belongs to every window that shows it."""
    return moment is None or window.begin <= moment < window.end


@dataclass
class Walked:
    """What a walk has, and what a resumed one goes on with."""

    whole: dict[Window, Verdict] = field(default_factory=dict)
    doubtful: dict[Window, Verdict] = field(default_factory=dict)
    grain: int | None = 1
    rows: list[Row] = field(default_factory=list)
    """All that were shown."""

    def ids(self, keeps: Callable[[Window, int | None], bool] = keeps) -> list[int]:
        """The rows of all windows."""
        return [
            self.rows[place].id
            for window, window_rows in self.whole.items()
            for place in window_rows.places
            if keeps(window, self.rows[place].created)
        ]


class KilledError(Exception):
    """The walk was killed."""


def at_once(work: Coroutine[None, None, T]) -> T:
    """What *work* returns, which waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def walk(
    platform: Platform,
    rules: Rules = RULES,
    *,
    done: Walked | None = None,
    created: Window = CREATED,
    asked: Callable[[Window, int], tuple[int, int]] = Window.asked,
    proves: bool = True,
    keeps_young: bool = False,
    accepts: bool = False,
    most_calls: int = 100_000,
) -> Walked:
    """Walk all of *created*, or what *done* leaves of it. It stops after *most_calls*, as if it were killed."""
    walked = done or Walked(grain=prove_on(platform) if proves else rules.grain)
    assert walked.grain is not None, "the date filter could not be proved"
    rules = structs.replace(rules, grain=walked.grain)
    if not keeps_young:
        walked.whole = {w: proved for w, proved in walked.whole.items() if w.is_settled(rules, proved.at)}
    walked.doubtful = {}
    stack = remaining(created, walked.whole)
    while stack:
        window = stack.pop()
        begin, end = asked(window, rules.grain)

        async def ask(offsets: Sequence[int], begin: int = begin, end: int = end) -> list[Snapshot | None]:
            if platform.calls >= most_calls:
                raise KilledError
            return [fetch(platform, begin, end, offset, walked.rows) for offset in offsets]

        try:
            verdict = at_once(Examination(window, rules, ask).verdict())
        except KilledError:
            return walked
        if verdict.pieces:
            stack.extend(verdict.pieces)
        elif verdict.reason is None or accepts:
            walked.whole[window] = verdict
        else:
            walked.doubtful[window] = verdict
    return walked


def fetch(platform: Platform, begin: int, end: int, offset: int, collected: list[Row]) -> Snapshot | None:
    """One page, whose rows are added to those that were *collected*."""
    answer = platform.show(begin, end, offset, None)
    if answer is None:
        return None
    rows, total = answer
    collected += rows
    ids, places = tuple(str(row.id) for row in rows), range(len(collected) - len(rows), len(collected))
    dates = [row.created for row in rows if row.created is not None]
    span = (min(dates), max(dates)) if dates else None
    return Snapshot(ids=ids, places=places, total=total, now=platform.now, received=len(rows), span=span)


def prove_on(platform: Platform) -> int | None:
    """Prove the date filter on rows of *platform*."""

    async def find(chosen: Sequence[Sample], grain: int) -> list[bool]:
        return [finds(platform, sample, grain) for sample in chosen]

    rows, _ = platform.show(None, None, 0, None) or ([], 0)
    samples = [Sample(str(row.id), row.created, row.updated != row.created) for row in rows if row.created]
    return at_once(prove(samples, find)) if rows else DAY


def finds(platform: Platform, sample: Sample, grain: int) -> bool:
    """Whether a row comes among those of its own millisecond, widened."""
    begin, end = Window(sample.at, sample.at + 1).asked(grain)
    offset = 0
    while (page := fetch(platform, begin, end, offset, [])) and page.received:
        if sample.id in page.ids:
            return True
        offset += page.received
    return False


def naive(platform: Platform) -> list[int]:
    """What today's batch jobs do: one walk over all, taken as it is."""
    ids: list[int] = []
    offset = 0
    while answer := platform.show(CREATED.begin, CREATED.end, offset, None):
        rows, total = answer
        ids += [row.id for row in rows]
        offset += len(rows)
        if not rows or offset >= total:
            break
    return ids


def drawn(seed: int, **settings: object) -> Platform:
    """A platform with settings by chance, and 20 to 200 rows, some of them just outside of `CREATED`."""
    chance = random.Random(seed)
    order, drift, ends, cap = (chance.choice(values) for values in (ORDERS, DRIFTS, ENDS, CAPS))
    platform = Platform(seed, **{"order": order, "drift": drift, "ends": ends, "cap": cap, **settings})
    platform.fill(chance.randrange(20, 200), CREATED.begin - DAY // 4, NOW, bursts=2)
    return platform


def survivors(before: dict[int, Row], platform: Platform, created: Window = CREATED) -> set[int]:
    """The rows that were there from the beginning to the end of a walk."""
    ids = before.keys() & platform.rows.keys()
    return {row_id for row_id in ids if before[row_id].created is not None and keeps(created, before[row_id].created)}


def snapshot(platform: Platform) -> dict[int, Row]:
    """The rows as they are."""
    return {row_id: replace(row) for row_id, row in platform.rows.items() if row.visible <= platform.now}


def judged(seed: int, *, naively: bool = False, settings: dict | None = None, **options: object) -> Counter:
    """Walk a platform, and count what is lost, comes twice, or is named as not whole."""
    platform = drawn(seed, **(settings or {}))
    before = snapshot(platform)
    walked = Walked() if naively else walk(platform, **options)
    ids = naive(platform) if naively else walked.ids()
    counts = Counter(lost=len(survivors(before, platform) - set(ids)), loud=len(walked.doubtful))
    counts["twice"] = len(ids) - len(set(ids))
    counts["runs"] = 1
    return counts
