"""What a recovery has come to."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from paymentsdk.journal._states import OPEN, Record, RecordState


class RecoverySummary(Struct, frozen=True, kw_only=True):
    """What `client.recover()` has come to so far."""

    resolved: Mapping[RecordState, int] = {}
    """How many records it has taken over, by the state that they are in now."""
    left: tuple[Record, ...] = ()
    """Open records that it could not carry out, such as those of sellers without credentials: for a person."""
    problems: tuple[str, ...] = ()
    """Why accounts and records were left out, in words."""

    @property
    def is_complete(self) -> bool:
        """Whether no record is open any more."""
        return not self.left and not any(self.resolved.get(state) for state in OPEN)
