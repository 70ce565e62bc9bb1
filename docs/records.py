"""Writes the page about the states of a record, from the rules that the journal runs on."""

from __future__ import annotations

from msgspec import structs

from docs.describe import code, table
from paymentsdk.journal import Record, RecordState, begin_record
from paymentsdk.journal._record import HELD, OPEN, WITHOUT_TRACE, may_replace

ABOUT = """\
A record is a write that was given a name: `create(..., once="table-7/1")`.
[Exactly once](../explanation/exactly-once.md) says what it promises, and
[Survive kill -9](../how-to/survive-kill-9.md) how it is used."""

ABOUT_BEGIN = """\
What a call does with the record that it finds under its name, with the same bytes or others. Of an operation without an
idempotency key (a preference, a customer), nothing is sent a second time."""

ABOUT_TRANSITIONS = """\
Which state may be replaced by which, and by whom. `done` replaces every other state, and nothing replaces `done`. Only
the owner knows that nothing was sent, so whoever takes a record over can make it neither `not_sent` nor `expired`."""

ABOUT_STATES = """\
Recovery works on open records once they have no living owner. The states of the last column have to be durable before
the caller hears of them: if they cannot be written, it hears `OutcomeUnknown`. To lose another costs one replay."""

#: What the platform forgets, so that recovery could do what the caller believes to be over.
HEARD = WITHOUT_TRACE | {RecordState.REFUSED}
#: Store time, and when the lease of a living owner ends.
NOW, LEASED = 100.0, 160.0


def found(state: RecordState, *, lease_until: float = 0.0, digest: bytes = b"same", keyed: bool = True) -> Record:
    """Return a record in that state."""
    return Record(
        key="key", name="", operation="", base_url="", seller="", path="", body=b"", begun=0.0, not_after=600.0,
        digest=digest, keyed=keyed, state=state, owner="owner", lease_until=lease_until, updated=NOW,
    )  # fmt: skip


def actions(row: Record | None) -> list[str]:
    """Return what a call does that finds *row*: with its bytes, with others, and with its bytes but without a key."""
    calls = ((b"same", True), (b"other", True), (b"same", False))
    news = (found(RecordState.PENDING, digest=digest, keyed=keyed) for digest, keyed in calls)
    called = (structs.replace(new, owner="caller") for new in news)
    return [begin_record(row, new, now=NOW, lease=60.0)[0].value for new in called]


def who(before: RecordState, after: RecordState) -> str:
    """Return who may replace a state; empty for nobody, and for what anyone may."""
    held, free = (found(before, lease_until=lease) for lease in (LEASED, 0.0))
    if may_replace(held, after, owner="other", now=NOW):
        return "" if after is RecordState.DONE else "a caller with the same bytes"
    if may_replace(free, after, owner="other", now=NOW):
        is_closed = after is RecordState.ABANDONED
        return "a person, if it has no living owner" if is_closed else "whoever finds it without a living owner"
    return "its owner" if may_replace(held, after, owner="owner", now=NOW) else ""


def records() -> str:
    """Write the tables of states."""
    rows = [
        ["none", *actions(None)],
        ["pending or sent, held by another call or process", *actions(found(RecordState.SENT, lease_until=LEASED))],
        *(
            [f"{state}, its lease has ended" if state in HELD else state, *actions(found(state))]
            for state in RecordState
        ),
    ]
    changes = (
        [code(before.value), code(after.value), who(before, after)]
        for before in RecordState
        for after in RecordState
        if who(before, after)
    )
    states = ([code(state.value), yes(state in OPEN), yes(state in HEARD)] for state in RecordState)
    return "\n\n".join([
        "# States of a record",
        ABOUT,
        "## States",
        ABOUT_STATES,
        table(["State", "Open", "Durable before it is heard"], states),
        "## What a call does",
        ABOUT_BEGIN,
        table(["It finds", "Same bytes", "Other bytes", "Same bytes, no key"], rows),
        "## What may follow",
        ABOUT_TRANSITIONS,
        table(["State", "Replaced by", "By whom"], changes),
    ])  # fmt: skip


def yes(value: object) -> str:
    """Mark what holds."""
    return "yes" if value else ""
