"""The states of a record, and every decision that depends on them: pure, as data and functions.

A record is one business fact that the caller named: ``create(..., once="table-7/1")``. Stores, the driver of a call and
the documentation read this module; nothing else decides what may follow a state. Three tables:

- ``TRANSITIONS``: which state may replace which, and who may do that;
- ``ON_BEGIN``: what a call does with the record that it finds;
- ``HEARD``: what has to be durable before the caller hears it.

Two clocks, never mixed. *Platform time* comes from the ``Date`` of the platform's responses: the platform counts the 24
hours of a key by it. *Store time* is the clock of the database. Leases run by store time alone. A record has an age by
each clock, as far as it is known, and the larger one counts: one clock may be wrong.
"""

from collections.abc import Collection, Mapping
from enum import Enum, StrEnum
from hashlib import sha256

from msgspec import Struct, structs

from paymentsdk._contract.rules import KEY_LIFETIME

#: As a limit: more records than a journal has.
NO_LIMIT = 2**31 - 1
#: Seconds by which the machines of a platform, or of a database, may disagree before its time counts as having gone
#: back.
TOLERANCE = 60.0


class RecordState(StrEnum):
    """What is known of a record."""

    #: Its owner is about to send it, or has sent it: only the living owner can tell.
    PENDING = "pending"
    #: An owner works on it, and an earlier attempt may have taken effect.
    SENT = "sent"
    #: Nobody works on it, and it may have taken effect.
    UNKNOWN = "unknown"
    #: Nobody works on it, nothing was sent, and recovery is to send it.
    DEFERRED = "deferred"
    #: Nothing was sent, or the platform turned it away. Nothing will be sent unless the caller asks once more.
    NOT_SENT = "not_sent"
    #: The platform rejected it.
    REFUSED = "refused"
    #: It took effect.
    DONE = "done"
    #: Its time ended before anything was sent.
    EXPIRED = "expired"
    #: A person closed it with its outcome unknown.
    ABANDONED = "abandoned"


class Right(Enum):
    """Who may replace a state by another."""

    #: The owner that the row names, and nobody after another one took the row over.
    OWNER = "its owner"
    #: Whoever finds it with no living owner, and becomes its owner.
    TAKER = "whoever finds it without a living owner"
    #: A caller that names the record once more, with the same bytes.
    CALLER = "a caller with the same bytes"
    #: A person, of a record without a living owner.
    PERSON = "a person, if it has no living owner"
    ANYONE = "anyone"


_S, _R = RecordState, Right

#: What may replace each state, and who may do it. ``DONE`` replaces every other state, nothing replaces ``DONE``.
#: ``NOT_SENT`` and ``EXPIRED`` follow ``PENDING`` alone: whoever takes a row over cannot know that nothing was sent.
TRANSITIONS: Mapping[RecordState, Mapping[RecordState, Right]] = {
    _S.PENDING: {
        _S.PENDING: _R.OWNER,  # a lease renewed
        _S.SENT: _R.TAKER,
        _S.UNKNOWN: _R.OWNER,
        _S.DEFERRED: _R.OWNER,
        _S.NOT_SENT: _R.OWNER,
        _S.REFUSED: _R.OWNER,
        _S.DONE: _R.ANYONE,
        _S.EXPIRED: _R.OWNER,
        _S.ABANDONED: _R.PERSON,
    },
    _S.SENT: {
        _S.SENT: _R.TAKER,
        _S.UNKNOWN: _R.OWNER,
        _S.REFUSED: _R.OWNER,
        _S.DONE: _R.ANYONE,
        _S.ABANDONED: _R.PERSON,
    },
    _S.UNKNOWN: {_S.SENT: _R.TAKER, _S.DONE: _R.ANYONE, _S.ABANDONED: _R.PERSON},
    _S.DEFERRED: {_S.PENDING: _R.TAKER, _S.DONE: _R.ANYONE, _S.ABANDONED: _R.PERSON},
    _S.NOT_SENT: {_S.PENDING: _R.CALLER, _S.DONE: _R.ANYONE},
    _S.REFUSED: {_S.DONE: _R.ANYONE},
    _S.EXPIRED: {_S.DONE: _R.ANYONE},
    _S.ABANDONED: {_S.DONE: _R.ANYONE},
    _S.DONE: {},
}

#: Who may replace a state whoever has the lease.
_WITHOUT_LEASE = (_R.CALLER, _R.ANYONE)
#: An owner holds these by a lease.
HELD = frozenset({_S.PENDING, _S.SENT})
#: Recovery works on these once they have no living owner.
OPEN = frozenset({_S.PENDING, _S.SENT, _S.UNKNOWN, _S.DEFERRED})
#: What became of these is final, but for a late ``DONE``: their bytes are not needed to send them once more.
CLOSED = frozenset(_S) - OPEN


class Action(StrEnum):
    """What a call does with the record that it found."""

    SEND = "send"
    IN_PROGRESS = "raise InProgress"
    RESUME = "send the kept bytes with the kept key"
    RETURN = "return the kept value"
    REFUSE = "raise the kept rejection"
    SEND_AGAIN = "send, as nothing was sent before"
    EXPIRED = "raise NotSent"
    UNKNOWN = "raise OutcomeUnknown"
    CONFLICT = "raise RecordConflict"


class Row(Struct, frozen=True):
    """One line of ``ON_BEGIN``."""

    same: Action
    """With the bytes that are kept."""
    unkeyed: Action | None = None
    """The same, of an operation that takes no idempotency key, where that differs: it is never sent twice."""
    other: Action = Action.CONFLICT
    """With other bytes."""


_A = Action

#: How a call may find a record, besides in a state without a living owner. Calls of one client wait for each other
#: before they begin a record; whoever finds one that its own client holds comes after a call that was cancelled.
NONE, LEASED = "none", "pending or sent, held by another call or process"

#: What a call does: by the record that it finds, and by whether its bytes are those of the record.
ON_BEGIN: Mapping[str, Row] = {
    NONE: Row(_A.SEND, other=_A.SEND),
    LEASED: Row(_A.IN_PROGRESS),
    _S.PENDING: Row(_A.RESUME, unkeyed=_A.UNKNOWN),
    _S.SENT: Row(_A.RESUME, unkeyed=_A.UNKNOWN),
    _S.UNKNOWN: Row(_A.RESUME, unkeyed=_A.UNKNOWN),
    _S.DEFERRED: Row(_A.RESUME),
    _S.NOT_SENT: Row(_A.SEND_AGAIN),
    _S.REFUSED: Row(_A.REFUSE),
    _S.DONE: Row(_A.RETURN),
    _S.EXPIRED: Row(_A.EXPIRED),
    _S.ABANDONED: Row(_A.UNKNOWN),
}

#: Nothing was sent.
WITHOUT_TRACE = (_S.NOT_SENT, _S.EXPIRED, _S.DEFERRED)
#: States that must be durable before the caller hears of them: the platform forgets what it rejected, so that recovery
#: could send, with success, what the caller believes to be over. To lose ``DONE`` or ``UNKNOWN`` costs one replay.
HEARD = frozenset({*WITHOUT_TRACE, _S.REFUSED})


class StoredResponse(Struct, frozen=True):
    """The platform's response; or, where a look-up has found what became of the write, one that says the same."""

    status: int
    """The HTTP status code."""
    headers: Mapping[str, str] = {}
    """The header fields that are kept."""
    body: bytes = b""
    """Its bytes, as they came, but for credentials, which are masked."""

    def __repr__(self) -> str:
        return f"StoredResponse({self.status}, body=<{len(self.body)} bytes>)"


class Record(Struct, frozen=True, kw_only=True):
    """One business fact, the request that states it, and what is known of it.

    Its ``repr`` leaves out the body and the headers, which may hold credentials of a payer. One that is ``sensitive``
    cannot be pickled.
    """

    key: str
    """The idempotency key, which is also the identity of the record; see ``derive_key``."""
    name: str
    """What the caller named it by: ``once=``."""
    operation: str
    """``"orders.create"``; ``"unreadable"`` where the row cannot be read: then its key stands for its name, and nothing
    else is known but its seller, its state and its times."""
    base_url: str
    """The platform that it was, or is to be, sent to."""
    seller: str
    """The seller's user id on the platform, or the name of the account where a `Signer` signs. No other seller's token
    ever sends this record."""
    account: str | None = None
    """The local name of the seller: ``client.account(name)``."""
    path: str
    """The path with its values and its query, below the base URL."""
    headers: Mapping[str, str] = {}
    """The header fields that the call was given; those of the client are not kept, as they may be credentials."""
    body: bytes | None
    """The exact bytes; ``None`` once they were wiped, or if they must not be kept: see ``recoverable``."""
    digest: bytes
    """SHA-256 of method, path and body: says whether another call has the same bytes."""
    sensitive: bool = False
    """Whether the body holds credentials of a payer: it is kept only if the journal can seal it."""
    keyed: bool = True
    """Whether the operation takes the key. If not, the record is never sent a second time."""
    begun: float
    """When the caller asked for it: in platform time, or by the machine's clock; see ``is_dated``."""
    not_after: float
    """No attempt begins at or after this moment, which is on the clock of ``begun``, nor at that age by store time."""
    is_dated: bool = True
    """Whether ``begun`` is platform time. It is not if no response had told the platform's time yet."""
    state: RecordState = RecordState.PENDING
    """What is known of it."""
    owner: str = ""
    """Who works on it: a call, or a claim, of a process; empty for nobody."""
    lease_until: float = 0.0
    """Until when nobody else may work on it, in store time."""
    in_flight_until: float = 0.0
    """Until when an attempt that was cut may still take effect, in store time; 0 for none."""
    updated: float = 0.0
    """When the row was last written, in store time."""
    first_kept: float = 0.0
    """When it was first written, in store time; 0 as long as that is ``updated``."""
    reason: str = ""
    """Why it is in this state, in words."""
    response: StoredResponse | None = None
    """What the platform responded; of ``DONE`` and ``REFUSED``."""

    @property
    def is_open(self) -> bool:
        """Whether recovery still has to work on it; else it is closed, but for a late ``DONE``."""
        return self.state in OPEN

    @property
    def recoverable(self) -> bool:
        """Whether recovery can send it by itself: of what takes no key, only what was not sent before."""
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
    """What became of a record, as its owner found out."""

    state: RecordState
    """The state that it leads to."""
    reason: str = ""
    """Why, in a word or two; empty for a response that says it all."""
    response: StoredResponse | None = None
    """The platform's response; `None` if none came."""
    in_flight: float = 0.0
    """Seconds for which an attempt that was cut may still take effect, from now on; 0 for none."""


def is_readable(row: Record) -> bool:
    """Whether *row* says what was to be sent: all but those that nobody can read have an address."""
    return bool(row.base_url)


def digest(method: str, path: str, body: bytes) -> bytes:
    """Return what tells the bytes of one request from those of another."""
    return sha256(f"{method}\0{path}\0".encode() + body).digest()


def may_replace(row: Record, state: RecordState, *, owner: str, now: float) -> bool:
    """Whether *owner* may replace the state of *row* by *state* at *now*, in store time."""
    right = TRANSITIONS[row.state].get(state)
    if right is None or right in _WITHOUT_LEASE:
        return right is not None
    return row.owner == owner or (right is not Right.OWNER and row.lease_until <= now)


def begin_record(row: Record | None, new: Record, *, now: float, lease: float) -> tuple[Action, Record]:
    """Decide what the call of *new* does with the *row* that it finds, and return the row as it has to be kept.

    A journal calls this in the transaction that has read *row*, and writes the row unless it is the same object.

    Args:
        row: What is kept under the key of *new*; ``None`` if nothing is.
        new: The record that is begun, with its owner.
        now: Seconds on the clock of the leases.
        lease: Seconds for which the owner holds the row.
    """
    if row is None:
        return Action.SEND, structs.replace(new, lease_until=now + lease, updated=now)
    row = restart_lease(row, now)
    line = ON_BEGIN[LEASED if row.state in HELD and row.lease_until > now else row.state]
    if row.digest != new.digest:
        return line.other, row
    if row.owner == new.owner and row.state in HELD:
        # It has written this before, and did not hear of it: the commit was lost, or took too long.
        is_new = row.state is RecordState.PENDING
        held = structs.replace(new if is_new else row, lease_until=now + lease, updated=now)
        return Action.SEND if is_new else Action.RESUME, held
    # Declared anew, an operation may not take the key any more.
    action = (not (row.keyed and new.keyed) and line.unkeyed) or line.same
    if action is Action.RESUME:
        return action, take_over(row, owner=new.owner, now=now, lease=lease, body=new.body)
    if action is Action.SEND_AGAIN:
        return action, structs.replace(new, lease_until=now + lease, updated=now)
    return action, row


def restart_lease(row: Record, now: float) -> Record:
    """Return *row* with its times counted from *now* if it was written later than that: the clock has gone back.

    Until the clock had caught up, which may be days, nobody could work on what a dead process has left. Its owner, if
    it lives, has no more than that: it counts the lease on a clock that never goes back.
    """
    if row.state not in {*HELD, RecordState.UNKNOWN} or row.updated <= now + TOLERANCE:
        return row
    lease, flight = (max(0.0, now + end - row.updated) for end in (row.lease_until, row.in_flight_until))
    return _rewritten(row, now, lease_until=lease, in_flight_until=flight)


def _rewritten(row: Record, now: float, **changes: object) -> Record:
    """Return *row* with *changes*, as it is written *now*, in store time."""
    return structs.replace(row, first_kept=row.first_kept or row.updated, updated=now, **changes)


def claim_record(row: Record, *, sellers: Collection[str], owner: str, now: float, lease: float) -> Record:
    """Return *row* as a recovery leaves it that claims it for *owner*: in the hands of *owner*, if it is free.

    That is of one of *sellers*, open, without a living owner, and can be sent (``Record.recoverable``). What *owner*
    holds already, it keeps.
    """
    if row.owner == owner or row.seller not in sellers:
        return row
    row = restart_lease(row, now)
    if row.state in OPEN and row.lease_until <= now and row.recoverable:
        return take_over(row, owner=owner, now=now, lease=lease)
    return row


def take_over(row: Record, *, owner: str, now: float, lease: float, body: bytes | None = None) -> Record:
    """Return an open *row* without a living owner as *owner* takes it over.

    It may have been sent, unless its owner wrote that nothing was. Not recoverable without its *body*.
    """
    state = RecordState.PENDING if row.state is RecordState.DEFERRED else RecordState.SENT
    if not may_replace(row, state, owner=owner, now=now):
        return row
    kept = body if row.body is None else row.body
    return _rewritten(row, now, state=state, owner=owner, lease_until=now + lease, body=kept)


def renew_lease(row: Record, *, owner: str, now: float, lease: float) -> Record:
    """Return *row* with its lease renewed; unchanged if *owner* has lost it."""
    if row.owner != owner or row.state not in HELD:
        return row
    return _rewritten(row, now, lease_until=now + lease)


def resolve_record(row: Record, resolution: Resolution, *, owner: str, now: float) -> Record:
    """Return *row* as *resolution* leaves it; unchanged where *owner* may not replace its state.

    A rejection is believed only if its attempt began when no attempt that was cut could take effect any more; else the
    row is ``UNKNOWN``. No attempt begins before its owner has written the row: ``updated`` is not after its beginning.
    """
    in_flight_until = max(row.in_flight_until, now + resolution.in_flight if resolution.in_flight else 0.0)
    if resolution.state is RecordState.REFUSED and in_flight_until > row.updated:
        reason = f"{resolution.reason}; but an earlier attempt may still take effect"
        resolution = Resolution(state=RecordState.UNKNOWN, reason=reason)
    if not may_replace(row, resolution.state, owner=owner, now=now):
        return row
    is_closed = resolution.state in CLOSED
    wiped = row.sensitive and is_closed
    changed = _rewritten(
        row,
        now,
        headers={} if wiped else row.headers,
        body=None if wiped else row.body,
        state=resolution.state,
        owner="",
        lease_until=0.0,
        in_flight_until=in_flight_until if resolution.state is RecordState.UNKNOWN else 0.0,
        reason=resolution.reason,
        response=resolution.response,
    )
    # What an age needs is kept as long as it counts: in the place of the response.
    return structs.replace(changed, first_kept=0.0, is_dated=True) if is_closed else changed


def tombstone(row: Record) -> Record:
    """Return what retention leaves of a closed *row*: enough to see a second use of its name."""
    return structs.replace(row, headers={}, body=None, response=None)


class Timing(Enum):
    """Whether an attempt may begin now."""

    IN_TIME = "in time"
    TOO_LATE = "the time in which it may be sent (not_after) is over"
    CLOCK_BEHIND = "it was written later than it is now: a clock is wrong, so that its age is not known"
    NO_CLOCK = "no response has told the platform's time in the last 5 minutes"


def timing(record: Record, *ages: float) -> Timing:
    """Return whether an attempt at *record* may begin, which is so old by several clocks."""
    if min(ages) < -TOLERANCE:
        return Timing.CLOCK_BEHIND
    return Timing.IN_TIME if max(ages) < record.not_after - record.begun else Timing.TOO_LATE


def age_when_written(row: Record) -> float:
    """Return the age of *row*, by store time, when it was last written."""
    return row.updated - (row.first_kept or row.updated)


def lease_covers(left: float, timeout: float) -> bool:
    """Whether an attempt of *timeout* seconds ends within a lease of which *left* seconds are left.

    Otherwise another owner could hear a rejection while this attempt still succeeds.
    """
    return left >= timeout


def is_of_seller(record: Record, seller: str) -> bool:
    """Whether a token of *seller* may send *record*: the platform keeps the keys of each seller apart."""
    return record.seller == seller


def told(heard: RecordState, *, durable: bool) -> RecordState:
    """Return what a caller may be told of what its call *heard*, by whether that is *durable*."""
    return heard if durable or heard not in HEARD else RecordState.UNKNOWN


def recordable(state: RecordState, *, in_doubt: bool) -> RecordState:
    """Return what an owner may record once its attempts ended in *state*, by whether an earlier one is *in_doubt*.

    Every record that was taken over is: one write before the send cannot tell "about to send" from "sent".
    """
    return RecordState.UNKNOWN if in_doubt and state in WITHOUT_TRACE else state


def not_after(begun: float, seconds: float) -> float:
    """Return the moment from which a record that was *begun* is not sent any more: in *seconds*, at most 23 hours."""
    return begun + min(seconds, KEY_LIFETIME)
