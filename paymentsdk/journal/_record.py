"""A record: one write that a caller named, its request, and what is known of it; and every rule about it. Pure.

The journals, `_run.py`, recovery and the documentation use these rules; no other file decides what may follow a state.
Start with `on_begin` (what a call does with the record that it finds) and `may_replace` (who may replace a state).

There are two clocks. *Platform time* comes from the ``Date`` of the platform's responses: the platform counts the 24
hours of a key by it. *Store time* is the clock of the database. Leases run by store time alone. A record has an age by
each clock, as far as it is known, and the larger age counts: one clock may be wrong.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct, structs

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


_S = RecordState

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


#: Nothing was sent.
WITHOUT_TRACE = frozenset({_S.NOT_SENT, _S.EXPIRED, _S.DEFERRED})


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
    """Whether *owner* may replace the state of *row* by *state* at *now*, in store time.

    ``DONE`` replaces every other state, and nothing replaces ``DONE``. A caller may begin again what was not sent.
    Whoever finds an open row without a living owner may take it over, and a person may then abandon it. The owner alone
    settles a row. Whoever took a row over cannot know that nothing was sent, so it cannot settle that.
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
    """Return what the call of *new* does with the *row* that it finds under its name at *now*, in store time."""
    if row.digest != new.digest:
        return Action.CONFLICT
    if row.state in HELD and row.lease_until > now:
        return Action.IN_PROGRESS
    if row.state in _ON_BEGIN:
        return _ON_BEGIN[row.state]
    # Declared anew, an operation may not take the key any more: what may have been sent is not sent again.
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
    if row.digest == new.digest and row.owner == new.owner and row.state in HELD:
        # It has written this before, and did not hear of it: the commit was lost, or took too long.
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
    # What an age needs is kept as long as it counts: in the place of the response.
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
    """Return what retention leaves of a closed *row*: enough to see a second use of its name."""
    return structs.replace(row, headers={}, body=None, response=None)


#: Why a record is not sent any more.
TOO_LATE = "the time in which it may be sent (not_after) is over"
AGE_UNKNOWN = "it was written later than it is now: a clock is wrong, so that its age is not known"


def barred(record: Record, *ages: float) -> str:
    """Return why no attempt at *record* may begin, which is so old by several clocks; empty if one may."""
    if min(ages) < -TOLERANCE:
        return AGE_UNKNOWN
    return "" if max(ages) < record.not_after - record.begun else TOO_LATE
