"""What observers learn of a journal; see `paymentsdk.events`."""

from __future__ import annotations

from collections.abc import Mapping

from paymentsdk.events import Event
from paymentsdk.journal._states import RecordState


class RecordResolved(Event, frozen=True, kw_only=True):
    """A record of the journal has got the state that it keeps, or that a recovery leaves it in."""

    operation: str
    """The name of the operation."""
    name: str
    """What the caller named it by: `once=`."""
    idempotency_key: str
    """Its key."""
    state: RecordState
    """Its new state."""
    age: float
    """Seconds since the caller asked for it, by the platform's clock."""
    recovered: bool
    """Whether a recovery did it, not the call itself."""


class RecordsOpen(Event, frozen=True, kw_only=True):
    """What a recovery leaves open in the journal; told at the end of each, also if nothing is open. Of all accounts."""

    count: Mapping[RecordState, int]
    """How many records are open, by state; a state without any is left out."""
    oldest: float | None
    """Seconds since the oldest of them was begun, by the platform's clock; `None` if there is none."""
