"""An observer of attempts only."""

from __future__ import annotations

from collections.abc import Callable

from paymentsdk.events import AttemptEnded, Event, Observer


def of_attempts(observe: Callable[[AttemptEnded], object]) -> list[Observer]:
    """Return observers that call *observe* with the end of each attempt."""

    def filtered(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            observe(event)

    return [filtered]
