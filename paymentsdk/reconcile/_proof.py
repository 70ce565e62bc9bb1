"""The proof that the date filter selects by the date that rows show, and how exactly it does.

Everything else rests on this: a platform that drops the milliseconds of a bound, or reads it in another zone, has rows
that no window shows, and every total agrees. So a run begins with rows that were found without the filter, and asks for
the millisecond of each, widened by one grain, as it asks for every window later.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

from paymentsdk.reconcile._windows import Window

#: A millisecond, a second, a minute, an hour, a day.
GRAINS = (1, 1_000, 60_000, 3_600_000, 86_400_000)
#: Rows to ask for.
SAMPLES = 3


class Sample(NamedTuple):
    """A row that was found without the date filter."""

    id: str
    created: int
    """Its ``date_created``, in milliseconds since 1970."""

    is_changed: bool
    """Whether it was changed since: a filter that goes by another date finds the others as well."""


class Question(NamedTuple):
    """Does the row *id* come among those from *begin* to *end*?"""

    id: str
    begin: int
    end: int


def prove(samples: Sequence[Sample]) -> Generator[list[Question], list[bool], int | None]:
    """Return the grain of the date filter, in milliseconds; ``None`` if no sample is found by its date."""
    proved: int | None = None
    sought = _most_telling(samples)
    for grain in GRAINS[finest(samples) :]:
        found = yield [Question(one.id, *Window(one.created, one.created + 1).asked(grain)) for one in sought]
        if any(found):
            proved = grain
        # One that is found by no grain has vanished, unless all others have as well.
        sought = [one for one, is_found in zip(sought, found, strict=True) if not is_found]
        if not sought:
            break
    return proved


def finest(samples: Sequence[Sample]) -> int:
    """Return which grain is the finest that *samples* can tell from the next.

    Whole seconds say nothing about milliseconds: they are found all the same when the milliseconds of a bound are lost.
    """
    for i, (grain, coarser) in enumerate(pairwise(GRAINS)):
        if any(_tells(sample, grain, coarser) for sample in samples):
            return i
    return len(GRAINS) - 1


def _tells(sample: Sample, grain: int, coarser: int) -> bool:
    return 2 * grain <= sample.created % coarser < coarser - 2 * grain


def _most_telling(samples: Sequence[Sample]) -> list[Sample]:
    """Return those that say the most, from all parts of *samples*."""
    i = finest(samples)
    coarser = GRAINS[min(i + 1, len(GRAINS) - 1)]
    ranked = sorted(samples, key=lambda one: (not _tells(one, GRAINS[i], coarser), not one.is_changed))
    same = [one for one in ranked if one.is_changed == ranked[0].is_changed and _tells(one, GRAINS[i], coarser)]
    ranked = same if len(same) >= SAMPLES else ranked[:SAMPLES]
    return ranked[:: max(1, len(ranked) // SAMPLES)][:SAMPLES]
