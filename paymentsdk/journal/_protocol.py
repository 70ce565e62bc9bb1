"""What a journal has to do, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Protocol

from paymentsdk.journal._states import Action, Record, RecordState, Resolution


class Journal(Protocol):
    """Keeps records of writes beyond the life of a process. ``paymentsdk.testing.journal_conformance`` checks one.

    Every method but ``get`` reads a row, decides, writes the row in one transaction, and returns once that is durable.
    That a row is done may become durable a moment later: to lose it costs one replay.
    Several processes may use one journal. What it decides is not the journal's: ``begin_record``, ``renew_lease``,
    ``resolve_record``, ``is_claimable``, ``take_over`` and ``tombstone`` return each row as it has to be kept.

    Each raises ``JournalUnavailable`` where it cannot do so, and then nothing may be sent that depends on it. Whatever
    else one raises counts as that, and is its cause.
    """

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """Keep *record* as pending for ``record.owner``, unless its key is known; return what to do, and the row now.

        With ``Action.SEND``, ``SEND_AGAIN`` or ``RESUME``, the row belongs to ``record.owner`` for *lease* seconds.
        """
        ...

    async def get(self, key: str) -> Record | None:
        """Return the row of *key*, or what retention has left of it."""
        ...

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """Extend the lease of *owner* to *lease* seconds from now, unless another owner has the row; return the row.

        Raises:
            LookupError: There is no such row.
        """
        ...

    def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        """Replace the state of a row, if *owner* still may, and return the row as it is now.

        Raises:
            LookupError: There is no such row.
        """
        ...

    async def claim(
        self,
        sellers: Collection[str],
        *,
        owner: str,
        lease: float,
        limit: int = 100,
        keys: Collection[str] | None = None,
    ) -> list[Record]:
        """Take over up to *limit* open rows of *sellers* that have no living owner, the oldest first.

        With *keys*, no others than these. Rows that recovery cannot send (``Record.recoverable``) are left alone. What
        *owner* holds already is among them: it may have taken them over in a claim whose response was lost.
        """
        ...

    async def records(self, among: Collection[RecordState], *, limit: int = 1000) -> list[Record]:
        """Return up to *limit* records whose state is *among* these, the oldest first."""
        ...

    async def purge(self, before: float) -> int:
        """Reduce closed rows that were begun *before* a moment of platform time to tombstones, and return how many.

        A tombstone keeps name, key, digest, state and reason, so that a second use of the name is still seen; body,
        headers and response are gone. Open rows stay.
        """
        ...

    async def aclose(self) -> None:
        """Finish what is being written, and let go of the store. Closing twice is allowed."""
        ...
