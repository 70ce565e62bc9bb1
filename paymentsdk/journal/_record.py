"""A record, and every rule about it: one write that a caller named, its request, and its state. Pure functions.

The journals, `_run.py`, recovery and the documentation use these rules. No other file decides which state may follow.
Start with `on_begin` (what a call does with an existing record) and `may_replace` (who may replace a state).

There are two clocks. *Platform time* comes from the ``Date`` of the platform's responses: the platform counts the 24
hours of a key by it. *Store time* is the clock of the database. Leases use store time alone. A record has an age by
each clock, as far as it is known, and the larger age counts: one clock may be wrong.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct, structs

#: A limit above the number of records in any journal.
NO_LIMIT = 2**31 - 1
#: Seconds by which the machines of a platform, or of a database, may disagree. A larger step back means that the clock
#: has gone back.
TOLERANCE = 60.0


class RecordState(StrEnum):
    """The state of a record."""

    #: Its owner is about to send it, or has sent it: only the living owner knows which.
    PENDING = "pending"
    #: An owner works on it, and an earlier attempt may have taken effect.
    SENT = "sent"
    #: No owner works on it, and it may have taken effect.
    UNKNOWN = "unknown"
    #: No owner works on it, nothing was sent, and recovery will send it.
    DEFERRED = "deferred"
    #: Nothing was sent, or the platform turned it away. Nothing will be sent unless the caller calls again.
    NOT_SENT = "not_sent"
    #: The platform rejected it.
    REFUSED = "refused"
    #: It took effect.
    DONE = "done"
    #: Its time ended before anything was sent.
    EXPIRED = "expired"
    #: A person closed it with its outcome unknown.
    ABANDONED = "abandoned"


_S = RecordState

#: An owner holds these by a lease.
HELD = frozenset({_S.PENDING, _S.SENT})
#: Recovery works on these once they have no living owner.
OPEN = frozenset({_S.PENDING, _S.SENT, _S.UNKNOWN, _S.DEFERRED})
#: The outcome of these is final, except for a late ``DONE``. Their bytes are not needed for another attempt.
CLOSED = frozenset(_S) - OPEN


class Action(StrEnum):
    """What a call does with an existing record."""

    SEND = "send"
    IN_PROGRESS = "raise InProgress"
    RESUME = "send the kept bytes with the kept key"
    RETURN = "return the kept value"
    REFUSE = "raise the kept rejection"
    SEND_AGAIN = "send, as nothing was sent before"
    EXPIRED = "raise NotSent"
    UNKNOWN = "raise OutcomeUnknown"
    CONFLICT = "raise RecordConflict"


#: Nothing was sent.
WITHOUT_TRACE = frozenset({_S.NOT_SENT, _S.EXPIRED, _S.DEFERRED})


class StoredResponse(Struct, frozen=True):
    """The platform's response, or an equivalent response that a look-up made from what it has read."""

    status: int
    """The HTTP status code."""
    headers: Mapping[str, str] = {}
    """The header fields that are kept."""
    body: bytes = b""
    """The bytes of the body as received; credentials are masked."""

    def __repr__(self) -> str:
        return f"StoredResponse({self.status}, body=<{len(self.body)} bytes>)"


class Record(Struct, frozen=True, kw_only=True):
    """One business fact, the request that states it, and its state.

    Its ``repr`` leaves out the body and the headers, which may hold credentials of a payer. A ``sensitive`` record
    cannot be pickled.
    """

    key: str
    """The idempotency key, which is also the identity of the record; see ``derive_key``."""
    name: str
    """The caller's name of the record: ``once=``."""
    operation: str
    """The name of the operation, such as ``"orders.create"``. ``"unreadable"`` if the row cannot be read: then its key
    stands for its name, and only its seller, its state and its times are known."""
    base_url: str
    """The platform that the record is sent to."""
    seller: str
    """The seller's user id on the platform; with a `Signer`, the name of the account. Only this seller's token sends
    this record."""
    account: str | None = None
    """The local name of the seller: ``client.account(name)``."""
    path: str
    """The path with its values and its query, below the base URL."""
    headers: Mapping[str, str] = {}
    """The header fields of the call itself. Header fields of the client may be credentials, so they are not kept."""
    body: bytes | None
    """The exact bytes; ``None`` if they were wiped or must not be kept: see ``recoverable``."""
    digest: bytes
    """SHA-256 of method, path and body: shows whether another call has the same bytes."""
    sensitive: bool = False
    """Whether the body holds credentials of a payer. The journal keeps such a body only if it can seal it."""
    keyed: bool = True
    """Whether the operation takes the key. If not, the record is never sent a second time."""
    begun: float
    """When the caller began it: in platform time, or by the machine's clock; see ``is_dated``."""
    not_after: float
    """No attempt begins at or after this moment, on the clock of ``begun``, or at the same age by store time."""
    is_dated: bool = True
    """Whether ``begun`` is platform time. ``False`` if no response had given the platform's time by then."""
    state: RecordState = RecordState.PENDING
    """The state of the record."""
    owner: str = ""
    """The owner that works on it: a call or a claim of a process; empty for no owner."""
    lease_until: float = 0.0
    """The end of the owner's lease, in store time."""
    in_flight_until: float = 0.0
    """Until when an aborted attempt may still take effect, in store time; 0 if there is no such attempt."""
    updated: float = 0.0
    """When the row was last written, in store time."""
    first_kept: float = 0.0
    """When the row was first written, in store time; 0 while that equals ``updated``."""
    reason: str = ""
    """Why it is in this state, in words."""
    response: StoredResponse | None = None
    """The platform's response, for ``DONE`` and ``REFUSED``."""

    @property
    def is_open(self) -> bool:
        """Whether the record is open: recovery still has to work on it. Otherwise only a late ``DONE`` changes it."""
        return self.state in OPEN

    @property
    def recoverable(self) -> bool:
        """Whether recovery can send it by itself. Without a key, that needs a record that was not sent before."""
        return self.body is not None and (self.keyed or self.state is RecordState.DEFERRED)

    def __repr__(self) -> str:
        return f"<Record {self.name!r}: {self.operation}, {self.state.value}, key {self.key}>"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in ("name", "operation", "state", "key")]

    def __deepcopy__(self, memo: dict[int, object]) -> "Record":
        return structs.replace(self, headers=dict(self.headers))

    def __reduce__(self) -> str | tuple[object, ...]:
        if self.sensitive:
            raise TypeError("a Record with a payer's credentials cannot be pickled")
        return super().__reduce__()


class Resolution(Struct, frozen=True, kw_only=True):
    """The outcome of a record, as its owner reports it."""

    state: RecordState
    """The new state."""
    reason: str = ""
    """Why, in a word or two; empty if the response says it."""
    response: StoredResponse | None = None
    """The platform's response; `None` without a response."""
    in_flight: float = 0.0
    """Seconds from now for which an aborted attempt may still take effect; 0 if there is no such attempt."""


def is_readable(row: Record) -> bool:
    """Return whether the request in *row* can be read: only unreadable rows have no base URL."""
    return bool(row.base_url)


def digest(method: str, path: str, body: bytes) -> bytes:
    """Return the digest of a request: it differs if method, path or body differ."""
    return sha256(f"{method}\0{path}\0".encode() + body).digest()


def may_replace(row: Record, state: RecordState, *, owner: str, now: float) -> bool:
    """Return whether *owner* may replace the state of *row* by *state* at *now*, in store time.

    ``DONE`` replaces every other state, and nothing replaces ``DONE``. A caller may begin a record again if nothing was
    sent. Any process may take over an open row without a living owner, and a person may then abandon it. Only the owner
    settles a row. An owner that took a row over cannot know that nothing was sent, so it cannot settle the row as such.
    """
    before = row.state
    if state is _S.DONE or (before, state) == (_S.NOT_SENT, _S.PENDING):
        return before is not _S.DONE
    if before in CLOSED:
        return False
    if state in (_S.ABANDONED, _S.PENDING if before is _S.DEFERRED else _S.SENT):
        return row.owner == owner or row.lease_until <= now
    settled = (_S.UNKNOWN, _S.REFUSED) if before is _S.SENT else (_S.PENDING, _S.UNKNOWN, _S.REFUSED, *WITHOUT_TRACE)
    return before in HELD and row.owner == owner and state in settled


def on_begin(row: Record, new: Record, now: float) -> Action:
    """Return what the call of *new* does with the *row* of its name at *now*, in store time."""
    if row.digest != new.digest:
        return Action.CONFLICT
    if row.state in HELD and row.lease_until > now:
        return Action.IN_PROGRESS
    if row.state in _ON_BEGIN:
        return _ON_BEGIN[row.state]
    # A new declaration of the operation may no longer take the key: a record that may have been sent is not resent.
    return Action.RESUME if row.keyed and new.keyed else Action.UNKNOWN


_ON_BEGIN = {
    _S.DEFERRED: Action.RESUME,
    _S.NOT_SENT: Action.SEND_AGAIN,
    _S.REFUSED: Action.REFUSE,
    _S.DONE: Action.RETURN,
    _S.EXPIRED: Action.EXPIRED,
    _S.ABANDONED: Action.UNKNOWN,
}


def begin_record(row: Record | None, new: Record, *, now: float, lease: float) -> tuple[Action, Record]:
    """Decide what the call of *new* does with the existing *row*, and return the row as it must be kept.

    A journal calls this in the transaction that has read *row*, and writes the row unless it is the same object.

    Args:
        row: The row with the key of *new*; ``None`` if there is no such row.
        new: The record to begin, with its owner.
        now: Seconds on the clock of the leases.
        lease: Seconds for which the owner holds the row.
    """
    if row is None:
        return Action.SEND, structs.replace(new, lease_until=now + lease, updated=now)
    row = restart_lease(row, now)
    if row.digest == new.digest and row.owner == new.owner and row.state in HELD:
        # This owner has written the row before, but the confirmation of the commit was lost or late.
        is_new = row.state is RecordState.PENDING
        held = structs.replace(new if is_new else row, lease_until=now + lease, updated=now)
        return Action.SEND if is_new else Action.RESUME, held
    action = on_begin(row, new, now)
    if action is Action.RESUME:
        return action, take_over(row, owner=new.owner, now=now, lease=lease, body=new.body)
    if action is Action.SEND_AGAIN:
        return action, structs.replace(new, lease_until=now + lease, updated=now)
    return action, row


def restart_lease(row: Record, now: float) -> Record:
    """Return *row* with its times counted from *now* if it was written later than that: the clock has gone back.

    Otherwise no process could work on the records of a dead process until the clock had caught up, perhaps for days.
    The owner, if it lives, does not exceed its lease: it counts the lease on a clock that never goes back.
    """
    if row.state not in {*HELD, RecordState.UNKNOWN} or row.updated <= now + TOLERANCE:
        return row
    lease, flight = (max(0.0, now + end - row.updated) for end in (row.lease_until, row.in_flight_until))
    return _rewritten(row, now, lease_until=lease, in_flight_until=flight)


def _rewritten(row: Record, now: float, **changes: object) -> Record:
    """Return *row* with *changes*, written *now*, in store time."""
    return structs.replace(row, first_kept=row.first_kept or row.updated, updated=now, **changes)


def claim_record(row: Record, *, sellers: Collection[str], owner: str, now: float, lease: float) -> Record:
    """Return *row* as a claim of *owner* leaves it: taken over if it is free.

    A row is free if it is open, belongs to one of *sellers*, has no living owner and can be sent
    (``Record.recoverable``). A row that *owner* already holds stays unchanged.
    """
    if row.owner == owner or row.seller not in sellers:
        return row
    row = restart_lease(row, now)
    if row.state in OPEN and row.lease_until <= now and row.recoverable:
        return take_over(row, owner=owner, now=now, lease=lease)
    return row


def take_over(row: Record, *, owner: str, now: float, lease: float, body: bytes | None = None) -> Record:
    """Return an open *row* without a living owner, taken over by *owner*.

    The row may have been sent, unless its owner wrote that nothing was sent. *body* replaces a body that was not kept.
    """
    state = RecordState.PENDING if row.state is RecordState.DEFERRED else RecordState.SENT
    content = body if row.body is None else row.body
    return _rewritten(row, now, state=state, owner=owner, lease_until=now + lease, body=content)


def renew_lease(row: Record, *, owner: str, now: float, lease: float) -> Record:
    """Return *row* with its lease renewed; unchanged if *owner* has lost it."""
    if row.owner != owner or row.state not in HELD:
        return row
    return _rewritten(row, now, lease_until=now + lease)


def resolve_record(row: Record, resolution: Resolution, *, owner: str, now: float) -> Record:
    """Return *row* as *resolution* leaves it; unchanged if *owner* may not replace its state.

    A rejection counts only if its attempt began when no aborted attempt could still take effect. Otherwise the row is
    ``UNKNOWN``. Each attempt begins after its owner has written the row, so it begins at ``updated`` or later.
    """
    in_flight_until = max(row.in_flight_until, now + resolution.in_flight if resolution.in_flight else 0.0)
    if resolution.state is RecordState.REFUSED and in_flight_until > row.updated:
        reason = f"{resolution.reason}; but an earlier attempt may still take effect"
        resolution = Resolution(state=RecordState.UNKNOWN, reason=reason)
    if not may_replace(row, resolution.state, owner=owner, now=now):
        return row
    is_closed = resolution.state in CLOSED
    wiped = row.sensitive and is_closed
    # The column `response` keeps the values of an age while the row is open; a closed row needs them no more.
    return structs.replace(
        row,
        headers={} if wiped else row.headers,
        body=None if wiped else row.body,
        state=resolution.state,
        owner="",
        lease_until=0.0,
        updated=now,
        first_kept=0.0 if is_closed else row.first_kept or row.updated,
        is_dated=is_closed or row.is_dated,
        in_flight_until=in_flight_until if resolution.state is RecordState.UNKNOWN else 0.0,
        reason=resolution.reason,
        response=resolution.response,
    )


def tombstone(row: Record) -> Record:
    """Return the tombstone of a closed *row*: enough to see a second use of its name."""
    return structs.replace(row, headers={}, body=None, response=None)


#: Why a record is not sent any more.
TOO_LATE = "the time in which it may be sent (not_after) is over"
AGE_UNKNOWN = "it was written in the future: a clock is wrong, so its age is unknown"


def barred(record: Record, *ages: float) -> str:
    """Return why no attempt at *record* may begin, given its *ages* by several clocks; empty if one may begin."""
    if min(ages) < -TOLERANCE:
        return AGE_UNKNOWN
    return "" if max(ages) < record.not_after - record.begun else TOO_LATE
