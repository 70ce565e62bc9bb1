"""Writes the page about the states of a record, from the tables that the journal runs on."""

from __future__ import annotations

from docs.describe import code, table
from paymentsdk.journal._states import HEARD, HELD, ON_BEGIN, OPEN, TRANSITIONS, RecordState, Right

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


def records() -> str:
    """Write the tables of states."""
    found = (
        [
            f"{one}, its lease has ended" if one in HELD else str(one),
            row.same.value,
            row.other.value,
            (row.unkeyed or row.same).value,
        ]
        for one, row in ON_BEGIN.items()
    )
    changes = (
        [code(state.value), code(after.value), right.value]
        for state, allowed in TRANSITIONS.items()
        for after, right in allowed.items()
        if right is not Right.ANYONE
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
        table(["It finds", "Same bytes", "Other bytes", "Same bytes, no key"], found),
        "## What may follow",
        ABOUT_TRANSITIONS,
        table(["State", "Replaced by", "By whom"], changes),
    ])  # fmt: skip


def yes(value: object) -> str:
    """Mark what holds."""
    return "yes" if value else ""
