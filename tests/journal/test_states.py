"""The rules of records say something about every state, and the key of a record never changes."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec import structs

from paymentsdk import RequestInvalid
from paymentsdk.journal import (
    Action,
    Record,
    RecordState,
    Resolution,
    begin_record,
    claim_record,
    derive_key,
    renew_lease,
    resolve_record,
)
from tests.journal.conftest import make_record

OPEN = {RecordState.PENDING, RecordState.SENT, RecordState.UNKNOWN, RecordState.DEFERRED}
PARTS = ("http://127.0.0.1:8787", "77", "orders.create", "table-7/1")


def record(owner: str = "p/1", body: bytes = b"{}", **more: object) -> Record:
    """A new record."""
    return make_record(PARTS[3], owner, body, **{"digest": body, "begun": 0.0, "not_after": 600.0, **more})


def test_the_key_is_part_of_the_format() -> None:
    """Another derivation would have the platform do everything once more: these keys never change."""
    assert "once1-xyWSw6smw9Q3ybzqHEjwSSUvrR3Dw1UmKOCiB5gXlZw" == derive_key(*PARTS)


def test_the_key_depends_on_every_part() -> None:
    """Another platform, seller, operation or name is another record, wherever one part ends and the next begins."""
    changed = [derive_key(*PARTS[:i], PARTS[i] + "x", *PARTS[i + 1 :]) for i in range(4)]
    moved = derive_key(PARTS[0], "7", "7orders.create", PARTS[3])

    assert 6 == len({*changed, moved, derive_key(*PARTS)})
    assert all(1 <= len(key) <= 64 and key.isascii() and key.isprintable() and " " not in key for key in changed)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", None, 7])
def test_a_name_is_printable_text(name: str) -> None:
    """What cannot stand in a list of records cannot name one."""
    with pytest.raises(RequestInvalid, match="once: must be 1 to 200 printable characters"):
        derive_key(*PARTS[:3], name)


def test_other_bytes_are_a_conflict_in_every_state() -> None:
    """Whatever became of a record: a request with other bytes under its name sends nothing."""
    for state in RecordState:
        for lease_until in (0.0, 100.0):
            row = record(state=state, lease_until=lease_until)
            assert (Action.CONFLICT, row) == begin_record(row, record("q/1", body=b"[]"), now=50.0, lease=60.0)


def test_nothing_is_sent_again_but_what_was_not_sent() -> None:
    """A call sends for the first time, or resumes with the kept key, or not at all without a key: nothing else."""
    actions = {
        (keyed, state): begin_record(record(state=state, keyed=keyed), record("q/1"), now=50.0, lease=60.0)[0]
        for state in RecordState
        for keyed in (True, False)
    }
    unkeyed = {state for (keyed, state), action in actions.items() if action is Action.RESUME and not keyed}

    assert {(keyed, RecordState.NOT_SENT) for keyed in (True, False)} == {
        key for key, action in actions.items() if action in {Action.SEND, Action.SEND_AGAIN}
    }
    assert {RecordState.DEFERRED} == unkeyed
    assert OPEN == {state for (keyed, state), action in actions.items() if action is Action.RESUME and keyed}


def test_only_the_owner_settles_and_done_wins() -> None:
    """A stranger may write `DONE` over everything, and nothing else over what a living owner holds."""
    for state, after in product(RecordState, RecordState):
        row = record(state=state, lease_until=100.0)

        by_stranger = resolve_record(row, Resolution(state=after), owner="q/1", now=50.0)

        if after is RecordState.DONE and state is not RecordState.DONE:
            assert RecordState.DONE is by_stranger.state
        elif state in {RecordState.PENDING, RecordState.SENT}:
            assert row == by_stranger


def test_a_lost_lease_is_not_refreshed() -> None:
    """Whoever took a row over keeps it: the owner before finds its name gone."""
    row = record(lease_until=100.0)
    options = {"sellers": ["77"], "owner": "q/1", "lease": 60.0}

    claimed = claim_record(row, now=100.0, **options)

    assert (RecordState.SENT, "q/1", 160.0) == (claimed.state, claimed.owner, claimed.lease_until)
    assert claimed == renew_lease(claimed, owner="p/1", now=110.0, lease=60.0)
    assert 170.0 == renew_lease(claimed, owner="q/1", now=110.0, lease=60.0).lease_until
    assert row == claim_record(row, now=99.0, **options)


@pytest.mark.parametrize("state", RecordState, ids=lambda state: state.value)
def test_recovery_takes_what_is_open_and_can_be_sent(state: RecordState) -> None:
    """Closed rows, held ones, those that may have been sent without a key and those without bytes are left alone."""
    row = record(state=state)

    def is_claimed(row: Record, seller: str = "77") -> bool:
        return claim_record(row, sellers=[seller], owner="q/1", now=0.0, lease=60.0).owner == "q/1"

    assert (state in OPEN) == is_claimed(row)
    assert not is_claimed(record(state=state, lease_until=1.0))
    assert (state is RecordState.DEFERRED) == is_claimed(record(state=state, keyed=False))
    assert not is_claimed(structs.replace(row, body=None))
    assert not is_claimed(row, seller="88")


@pytest.mark.parametrize("state", [RecordState.PENDING, RecordState.SENT], ids=lambda state: state.value)
def test_a_lease_restarts_after_the_clock_went_back(state: RecordState) -> None:
    """Its owner has it for the time that was left to it at most, and nobody waits until the clock has caught up."""
    row = record(state=state, updated=9_000.0, lease_until=9_060.0)

    action, begun = begin_record(row, record("q/1"), now=1_000.0, lease=90.0)
    claimed = claim_record(row, sellers=["77"], owner="q/1", now=1_000.0, lease=90.0)

    assert (Action.IN_PROGRESS, "p/1", 1_060.0, 1_000.0) == (action, begun.owner, begun.lease_until, begun.updated)
    assert begun == claimed
    later = claim_record(claimed, sellers=["77"], owner="q/1", now=1_060.0, lease=90.0)
    assert ("q/1", 1_150.0) == (later.owner, later.lease_until)


def test_an_operation_without_a_key_is_not_resumed() -> None:
    """What the platform cannot recognise is sent once: its unknown outcome is reported, never sent again."""
    row = record(keyed=False, lease_until=10.0)

    action, now = begin_record(row, record("q/1", keyed=False), now=20.0, lease=60.0)

    assert (Action.UNKNOWN, row) == (action, now)


def test_a_record_does_not_show_its_body() -> None:
    """Bodies hold payer tokens: neither the record nor its response prints one."""
    row = record(body=b"payer-token-0123456789", headers={"X-Session": "session-0123456789"})

    assert "0123456789" not in f"{row!r}{row.__rich_repr__()}"
