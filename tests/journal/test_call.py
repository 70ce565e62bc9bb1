"""One journaled call: what is sent, what is kept, and what its caller is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from paymentsdk import InProgress, JournalUnavailable, RecordConflict
from paymentsdk.journal import Record, RecordState, Resolution, StoredResponse
from paymentsdk.journal._call import JournaledCall, MaySend, PlatformClock, RecordOutcome
from paymentsdk.testing import FakeClock
from tests.journal.conftest import make_record
from tests.journal.test_conformance import MemoryJournal

DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, b'{"id":"ORD1"}'))
REFUSED = Resolution(state=RecordState.REFUSED, reason="no funds", response=StoredResponse(402, {}, b"{}"))
NOT_SENT = Resolution(state=RecordState.NOT_SENT, reason="connection refused")
UNKNOWN = Resolution(state=RecordState.UNKNOWN, reason="reset")


class Process:
    """A process with a journal, and a platform that responds as it is told."""

    def __init__(self) -> None:
        self.local = FakeClock()
        self.clock = PlatformClock(self.local)
        self.clock.set(200.0)
        self.rows: dict[str, Record] = {}
        self.journal = MemoryJournal(self.rows, self.local.monotonic)
        self.sent: list[Record] = []
        self.permits: list[str | None] = []
        self.later: list[Callable[[], Awaitable[object]]] = []

    def driver(self, **options: object) -> JournaledCall:
        """A driver of one call."""
        known = {"seller": lambda: "77", "lease": 60.0, "later": self.later.append}
        return JournaledCall(self.journal, self.clock, **{**known, **options})

    def answering(self, resolution: Resolution, before: Callable[[], object] = lambda: None):
        """Make one attempt, which ends so."""

        async def send(row: Record, may_send: MaySend) -> Resolution:
            before()
            self.permits.append(await may_send(30.0))
            if self.permits[-1] is not None:
                return NOT_SENT
            self.sent.append(row)
            return resolution

        return send

    async def call(self, resolution: Resolution, record: Record | None = None, **options: object) -> RecordOutcome:
        """Make a call, and let its late writes end."""
        told = await self.driver(**options).run(record or make_record(), self.answering(resolution))
        await self.finish()
        return told

    async def finish(self) -> None:
        """Let late writes end."""
        while self.later:
            await self.later.pop()()

    @property
    def row(self) -> Record:
        """The one row."""
        (row,) = self.rows.values()
        return row


@pytest.fixture
def process() -> Process:
    """A process."""
    return Process()


@pytest.mark.parametrize("heard", [DONE, REFUSED, NOT_SENT, UNKNOWN], ids=lambda heard: heard.state.value)
async def test_what_was_heard_is_kept_and_told(process: Process, heard: Resolution) -> None:
    """The outcome of a call is that of its row."""
    told = await process.call(heard)

    assert (heard.state, True) == (told.state, told.own)
    assert (heard.state, heard.reason, heard.response) == (process.row.state, process.row.reason, process.row.response)


@pytest.mark.parametrize("heard", [DONE, REFUSED], ids=lambda heard: heard.state.value)
async def test_the_same_name_again_sends_nothing(process: Process, heard: Resolution) -> None:
    """A finished record tells the second caller what it told the first."""
    await process.call(heard)

    told = await process.call(DONE, make_record(owner="q/1"))

    assert (heard.state, False, heard.response) == (told.state, told.own, told.record.response)
    assert 1 == len(process.sent)


async def test_other_bytes_send_nothing(process: Process) -> None:
    """Another request under the same name is an error that names it, its operation and its key."""
    await process.call(DONE)

    with pytest.raises(RecordConflict, match="the record 'table-7/1' holds another request") as caught:
        await process.call(DONE, make_record(body=b"{}"))

    assert ("orders.create", process.row.key) == (caught.value.operation, caught.value.idempotency_key)
    assert 1 == len(process.sent)


async def test_a_record_that_is_held_elsewhere_sends_nothing(process: Process) -> None:
    """While another process works on a record, its second caller is told so."""
    await process.journal.begin(make_record(owner="q/1"), lease=60.0)

    with pytest.raises(InProgress, match="the record 'table-7/1' is in progress elsewhere"):
        await process.call(DONE)

    assert [] == process.sent


class Full(MemoryJournal):
    """A journal that is full once a record has begun."""

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """Fail."""
        raise JournalUnavailable("disk full")


@pytest.mark.parametrize("heard", [REFUSED, NOT_SENT, UNKNOWN], ids=lambda heard: heard.state.value)
async def test_what_is_not_durable_is_unknown(process: Process, heard: Resolution) -> None:
    """Whoever were told "not sent" or "refused" must not find that recovery did it."""
    process.journal = Full(process.rows, process.local.monotonic)

    told = await process.call(heard)

    assert RecordState.UNKNOWN is told.state
    assert RecordState.PENDING is process.row.state


async def test_recovery_can_be_asked_to_finish(process: Process) -> None:
    """With `defer`, what was not sent is left to recovery, and was not given up."""
    told = await process.call(NOT_SENT, defer=True)

    assert RecordState.DEFERRED is told.state
    key = process.row.key
    assert [key] == [row.key for row in await process.journal.claim(["77"], owner="q/1", lease=60.0, keys=[key])]


async def test_after_its_time_nothing_is_sent(process: Process) -> None:
    """At `not_after` a record that was not sent has expired."""
    send = process.answering(DONE, before=lambda: process.clock.set(700.0))

    told = await process.driver().run(make_record(), send)

    assert ([], RecordState.EXPIRED) == (process.sent, told.state)
    assert ["the time in which it may be sent (not_after) is over"] == process.permits


@pytest.mark.parametrize("seen", [DONE, None])
async def test_after_its_time_what_is_in_doubt_is_looked_up(process: Process, seen: Resolution | None) -> None:
    """What may have been sent is read back; where that does not show it, it stays unknown."""
    await process.journal.begin(make_record(), lease=60.0)
    process.local.advance(60.0)
    process.clock.set(700.0)

    async def look(row: Record) -> Resolution | None:
        return seen

    told = await process.call(DONE, make_record(owner="q/1"), look=look)

    assert [] == process.sent
    assert (RecordState.DONE if seen else RecordState.UNKNOWN) is told.state is process.row.state


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda process: process.clock.set(0.0), None),
        (lambda process: process.local.advance(31.0), None),
    ],
)
async def test_an_attempt_needs_its_time_and_its_lease(process: Process, change, why: str | None) -> None:
    """A clock that went back stops no call that has begun its record; a lease that is too short is renewed first."""
    send = process.answering(DONE, before=lambda: change(process))

    await process.driver().run(make_record(), send)

    assert [why] == process.permits
    await process.finish()


async def test_a_token_of_another_seller_sends_nothing(process: Process) -> None:
    """The same key under another seller's token would be another order."""
    told = await process.call(DONE, seller=lambda: "88")

    assert ([], RecordState.NOT_SENT) == (process.sent, told.state)


async def test_a_lost_record_is_told_as_it_is(process: Process) -> None:
    """Whoever loses its lease to another owner sends nothing more, and tells the row's state, not its own."""

    async def send(row: Record, may_send: MaySend) -> Resolution:
        process.local.advance(60.0)
        await process.journal.claim(["77"], owner="q/1", lease=60.0, keys=[row.key])
        assert "another process has taken it over" == await may_send(30.0)
        return NOT_SENT

    with pytest.raises(InProgress):
        await process.driver().run(make_record(), send)

    assert (RecordState.SENT, "q/1") == (process.row.state, process.row.owner)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancelled_call_releases_its_record(process: Process, begun: bool) -> None:
    """What is on its way may still take effect, for the time of an attempt: its row is unknown until then."""

    async def send(row: Record, may_send: MaySend) -> Resolution:
        if begun:
            await may_send(30.0)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await process.driver().run(make_record(), send)
    await process.finish()

    expected = (RecordState.UNKNOWN, process.local.monotonic() + 30.0) if begun else (RecordState.NOT_SENT, 0.0)
    assert expected == (process.row.state, process.row.in_flight_until)
