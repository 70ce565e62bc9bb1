"""What a journal has to do, whatever it is kept in; the keys of its records, and what is told of them."""

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Collection, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from paymentsdk.errors import RequestInvalid
from paymentsdk.events import Event
from paymentsdk.journal._record import OPEN, Action, Record, RecordState, Resolution

#: Begins every key: which derivation made it. Another derivation would have the platform do everything once more.
VERSION = "once1-"
_LONGEST_NAME = 200


def derive_key(base_url: str, seller: str, operation: str, name: str) -> str:
    """Return the idempotency key of a record: 49 visible ASCII characters.

    It depends on these four alone, not on a local alias of the seller, and is part of the format: two processes without
    a common journal, or a journal restored from a backup, send the same key, and the platform does the thing once.

    Args:
        base_url: Scheme, host and path of the platform, without a slash at its end.
        seller: The seller's user id on the platform; with a `Signer`, the name of the account.
        operation: ``"orders.create"``.
        name: What the caller named the record: 1 to 200 printable characters.

    Raises:
        RequestInvalid: One of them is empty or no text, or *name* is too long or not printable.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise RequestInvalid("once", f"must be 1 to {_LONGEST_NAME} printable characters")
    hashed = sha256(_scope(base_url, seller, operation) + _field(name))
    return VERSION + urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode()


@lru_cache(maxsize=1024)
def _scope(base_url: str, seller: str, operation: str) -> bytes:
    for field, part in (("base_url", base_url), ("seller", seller), ("operation", operation)):
        if not isinstance(part, str) or not part:
            raise RequestInvalid(field, "must be a string that is not empty")
    return _field(base_url) + _field(seller) + _field(operation)


def _field(part: str) -> bytes:
    encoded = part.encode()
    # The length first: else "ab" + "c" and "a" + "bc" would be one record.
    return len(encoded).to_bytes(4, "big") + encoded


class Journal(Protocol):
    """Keeps records of writes beyond the life of a process. ``paymentsdk.testing.journal_conformance`` checks one.

    Every method but ``get`` reads a row, decides, writes the row in one transaction, and returns once that is durable.
    That a row is done may become durable a moment later: to lose it costs one replay.
    Several processes may use one journal. What it decides is not the journal's: ``begin_record``, ``renew_lease``,
    ``resolve_record``, ``claim_record`` and ``tombstone`` return each row as it has to be kept.

    One that does not keep the body of a ``sensitive`` record has the attribute ``seals = False``, which is optional.

    Each raises ``JournalUnavailable`` where it cannot do so, and then nothing may be sent that depends on it.
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

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """Take over those of *keys* that are open, of *sellers*, and without a living owner; return them, oldest first.

        Rows that recovery cannot send (``Record.recoverable``) are left alone. What *owner* holds already is among
        them: it may have taken them over in a claim whose response was lost.
        """
        ...

    async def records(
        self, among: Collection[RecordState], *, limit: int = 1000, path: str = "", containing: bytes = b""
    ) -> list[Record]:
        """Return up to *limit* records whose state is *among* these, the oldest first.

        To spare reading them, you may leave out records of another *path*, and records whose body has not the bytes
        *containing*. A record whose body is gone or sealed may have had these bytes, and is returned.
        """
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
