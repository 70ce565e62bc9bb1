"""The proof that the date filter of a search finds rows by the date that they show, and how exactly.

Every certificate of a window rests on it: of a platform that drops the milliseconds of a bound, or reads it in another
zone, there are rows that no window shows, and every total agrees. So a run begins with rows of each account that were
found without the filter, and asks for the millisecond of each, widened by one grain, as it asks for every window later.
The earliest and the latest are always among them: a filter that reads bounds in its own zone has a summer and a winter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

#: How exact a date filter may be, in milliseconds: to a millisecond, a second, a minute, an hour, a day.
GRAINS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
#: Rows to prove it on, beside the earliest and the latest.
SAMPLES = 3


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
    ends = (min(samples, key=_at), max(samples, key=_at)) if samples else ()
    sought = list({one.id: one for one in (*_most_telling(samples, finest, most), *ends)}.values())
    for grain in GRAINS[finest:]:
        found = await find(sought, grain)
        if any(found):
            proved = grain
        # One that is found by no grain has vanished, unless all others have as well.
        sought = [one for one, is_found in zip(sought, found, strict=True) if not is_found]
        if not sought:
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


def _at(sample: Sample) -> int:
    return sample.at


def _most_telling(samples: Sequence[Sample], finest: int, most: int) -> list[Sample]:
    """Return up to *most* that say the most, from all parts of *samples*."""
    grain, coarser = GRAINS[finest], GRAINS[min(finest + 1, len(GRAINS) - 1)]
    ranked = sorted(samples, key=lambda one: (not _distinguishes(one, grain, coarser), not one.is_changed))
    same = [one for one in ranked if one.is_changed == ranked[0].is_changed and _distinguishes(one, grain, coarser)]
    ranked = same if len(same) >= most else ranked[:most]
    return ranked[:: max(1, len(ranked) // most)][:most]
