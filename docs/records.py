"""Makes the tables about the states of a record, from the rules that the journal runs on."""

from __future__ import annotations

from msgspec import structs

from docs.describe import code, table
from paymentsdk.journal import Record, RecordState, begin_record
from paymentsdk.journal._record import HELD, OPEN, WITHOUT_TRACE

#: States in which the platform has forgotten the write, so that recovery could repeat a write that the caller gave up.
HEARD = WITHOUT_TRACE | {RecordState.REFUSED}
#: Store time, and when the lease of a living owner ends.
NOW, LEASED = 100.0, 160.0


def found(state: RecordState, *, lease_until: float = 0.0, digest: bytes = b"same", keyed: bool = True) -> Record:
    """Return a record in *state*."""
    return Record(
        key="key", name="", operation="", base_url="", seller="", path="", body=b"", begun=0.0, not_after=600.0,
        digest=digest, keyed=keyed, state=state, owner="owner", lease_until=lease_until, updated=NOW,
    )  # fmt: skip


def actions(row: Record | None) -> list[str]:
    """Return the actions of a call that finds *row*: same bytes, other bytes, and same bytes without a key."""
    calls = ((b"same", True), (b"other", True), (b"same", False))
    news = (found(RecordState.PENDING, digest=digest, keyed=keyed) for digest, keyed in calls)
    called = (structs.replace(new, owner="caller") for new in news)
    return [begin_record(row, new, now=NOW, lease=60.0)[0].value for new in called]


def record_states() -> str:
    """List the states."""
    rows = ([code(state.value), yes(state in OPEN), yes(state in HEARD)] for state in RecordState)
    return table(["State", "Open", "Durable before the caller learns it"], rows)


def record_actions() -> str:
    """List what a call does, by the state of the record that it finds."""
    rows = [
        ["no record", *actions(None)],
        ["pending or sent, held by another call or process", *actions(found(RecordState.SENT, lease_until=LEASED))],
        *([f"{state}{', its lease has ended' * (state in HELD)}", *actions(found(state))] for state in RecordState),
    ]
    return table(["State of the record", "Same bytes", "Other bytes", "Same bytes, no key"], rows)


def yes(value: object) -> str:
    """Return the cell for a condition."""
    return "yes" if value else ""


BLOCKS = {"record-states": record_states, "record-actions": record_actions}
