"""The interface of a journal, the derivation of its keys, and its events."""

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Collection, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from paymentsdk.errors import RequestInvalid
from paymentsdk.events import Event
from paymentsdk.journal._record import OPEN, Action, Record, RecordState, Resolution

#: The start of every key: the version of the derivation. With another derivation, the platform would repeat all writes.
VERSION = "once1-"
_LONGEST_NAME = 200


def derive_key(base_url: str, seller: str, operation: str, name: str) -> str:
    """Return the idempotency key of a record: 49 visible ASCII characters.

    The key depends on these four values alone, not on a local alias of the seller. The derivation is part of the
    format: two processes without a common journal send the same key, and so does a journal restored from a backup. The
    platform then does the write once.

    Args:
        base_url: Scheme, host and path of the platform, without a slash at its end.
        seller: The seller's user id on the platform; with a `Signer`, the name of the account.
        operation: ``"orders.create"``.
        name: The caller's name of the record: 1 to 200 printable characters.

    Raises:
        RequestInvalid: A value is empty or not a string, or *name* is too long or not printable.
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
    # The length first: otherwise "ab" + "c" and "a" + "bc" would be one record.
    return len(encoded).to_bytes(4, "big") + encoded


class Journal(Protocol):
    """Keeps records of writes beyond the life of a process. ``paymentsdk.testing.journal_conformance`` checks it.

    Each method that writes reads a row, decides, and writes the row in one transaction. It returns once that is
    durable. ``DONE`` may become durable a moment later: its loss costs one replay.
    Several processes may use one journal. A journal makes no decisions itself: ``begin_record``, ``renew_lease``,
    ``resolve_record``, ``claim_record`` and ``tombstone`` return each row as it must be kept.

    A journal that does not keep the body of a ``sensitive`` record has the optional attribute ``seals = False``.

    Each method raises ``JournalUnavailable`` if it fails. Nothing that depends on the method may then be sent.
    """

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """Keep *record* as pending for ``record.owner``, unless its key is known; return the next step and the row.

        After ``Action.SEND``, ``SEND_AGAIN`` or ``RESUME``, the row belongs to ``record.owner`` for *lease* seconds.
        """
        ...

    async def get(self, key: str) -> Record | None:
        """Return the row of *key*, or its tombstone."""
        ...

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """Extend the lease of *owner* to *lease* seconds from now, unless another owner has the row; return the row.

        Raises:
            LookupError: The journal has no row of *key*.
        """
        ...

    def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        """Replace the state of a row, if *owner* still may, and return the row as it is now.

        Raises:
            LookupError: The journal has no row of *key*.
        """
        ...

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """Take over the open rows of *keys* and *sellers* that have no living owner; return them, oldest first.

        Rows that recovery cannot send (``Record.recoverable``) stay unchanged. The rows that *owner* already holds are
        returned, too: an earlier claim may have taken them over although its response was lost.
        """
        ...

    async def records(
        self, among: Collection[RecordState], *, limit: int = 1000, path: str = "", containing: bytes = b""
    ) -> list[Record]:
        """Return up to *limit* records whose state is *among* these, the oldest first.

        To read fewer rows, you may leave out records of another *path*, and records whose body does not contain
        *containing*. A record whose body is wiped or sealed may have had these bytes, so return it.
        """
        ...

    async def purge(self, before: float) -> int:
        """Reduce closed rows that were begun *before* a moment of platform time to tombstones, and return how many.

        A tombstone keeps name, key, digest, state and reason, so that the journal still sees a second use of the name.
        It has no body, headers or response. Open rows stay.
        """
        ...

    async def aclose(self) -> None:
        """Finish the writes that wait, and release the store. Closing twice is allowed."""
        ...


class RecoverySummary(Struct, frozen=True, kw_only=True):
    """The results of `client.recover()` so far."""

    resolved: Mapping[RecordState, int] = {}
    """How many records recovery has taken over, by their state now."""
    left: tuple[Record, ...] = ()
    """Open records that recovery could not carry out, such as records of sellers without credentials: for a person."""
    problems: tuple[str, ...] = ()
    """Why accounts and records were left out, in words."""

    @property
    def is_complete(self) -> bool:
        """Whether no record is open any more."""
        return not self.left and not any(self.resolved.get(state) for state in OPEN)


class RecordResolved(Event, frozen=True, kw_only=True):
    """A record of the journal has reached its final state, or the state that a recovery leaves it in."""

    operation: str
    """The name of the operation."""
    name: str
    """The caller's name of the record: `once=`."""
    idempotency_key: str
    """Its key."""
    state: RecordState
    """Its new state."""
    age: float
    """Seconds since the caller began the record, by the platform's clock."""
    recovered: bool
    """Whether a recovery resolved the record, not the call itself."""


class RecordsOpen(Event, frozen=True, kw_only=True):
    """The open records of all accounts at the end of a recovery; sent also if no record is open."""

    count: Mapping[RecordState, int]
    """How many records are open, by state; states without records are left out."""
    oldest: float | None
    """Seconds since the oldest of them was begun, by the platform's clock; `None` if no record is open or the time is
    unknown."""
