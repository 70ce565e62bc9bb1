"""Attacks on journaled calls: cancelled at each step, called by many at once, late, and recovered by a dead process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paymentsdk import (
    Deferred,
    InProgress,
    JournalUnavailable,
    MemoryTokenStore,
    NotSent,
    OutcomeUnknown,
    RefreshingToken,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
    TokenPair,
)
from paymentsdk.events import AttemptEnded, AttemptStarted, Event
from paymentsdk.journal import Action, Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.testing import FakeClock
from tests.journal.platform import ONCE, TOKEN, URL, World, order

#: Longer than a lease, and shorter than the life of an order.
LATER = 100.0


class Steps:
    """Counts the steps between two waits, and cancels the task at one of them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    async def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            asyncio.current_task().cancel()
        await asyncio.sleep(0)


class SteppingJournal(SQLiteJournal):
    """A journal with a step before and after each of its writes."""

    steps = Steps(0)

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        await self.steps.step()
        begun = await super().begin(record, lease=lease)
        await self.steps.step()
        return begun

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        await self.steps.step()
        row = await super().resolve(key, resolution, owner=owner)
        await self.steps.step()
        return row


async def recovered(world: World) -> None:
    """Let the leases of the dead end, and have another process recover."""
    world.clock.advance(LATER)
    async with world.connect() as client:
        await client.recover()


def effects(world: World) -> list[int]:
    """Return how often each body took effect."""
    return [*Counter(world.platform.made.values()).values()]


async def cancelled_at(world: World, step: int, *, fail: bool) -> bool:
    """Make a call and cancel it at a step; return whether it came that far."""
    steps = SteppingJournal.steps = Steps(0)

    async def answer(request: Request) -> Response:
        await steps.step()
        response = world.platform(request)
        await steps.step()
        return Response(503, dict(response.headers)) if fail and request.method == "POST" else response

    journal, retry = world.journal(SteppingJournal), RetryPolicy(attempts=2)
    async with world.connect(answer, journal=journal, retry=retry) as client:
        await client.plans.search().collect()  # The platform's time is known before.
        steps.last, steps.count = step, 0
        call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
        await asyncio.wait([call])
        came = call.cancelled()
        if not came:
            call.exception()
        steps.last = 0
    return came


@pytest.mark.parametrize("fail", [False, True], ids=["answered", "failed"])
async def test_a_call_may_be_cancelled_at_each_step(tmp_path: Path, fail: bool) -> None:
    """Whatever it was waiting for, there is one order in the end, and no record says that there is none."""
    for step in range(1, 40):
        world = World(tmp_path / f"{step}.db")
        came = await cancelled_at(world, step, fail=fail)
        [row] = await world.rows() or [None]
        if row is not None and row.state in (RecordState.NOT_SENT, RecordState.REFUSED, RecordState.EXPIRED):
            assert {} == world.platform.made, (step, row.state)
        await recovered(world)
        async with world.connect() as client:
            await client.orders.create(order(), once="table-7/1")
        assert [1] == effects(world), step
        if not came:
            break

    assert 5 <= step < 39


async def test_many_calls_of_one_name_are_one_order(world: World) -> None:
    """20 calls in two processes: one request, one order, and nobody is told anything else than it or to wait."""
    async with world.connect() as first, world.connect() as two:
        outcomes = await asyncio.gather(
            *(client.orders.create(order(), once="table-7/1") for client in (first, two) for _ in range(10)),
            return_exceptions=True,
        )

    assert 1 == len(world.platform.posts)
    assert {"ORD0"} == {outcome.id for outcome in outcomes if not isinstance(outcome, BaseException)}
    assert {InProgress} >= {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)}


async def turns_in(world: World, seconds: float, until: Callable[..., Awaitable[None]]) -> int:
    """Recover in the background for so long; return how often the platform was asked."""
    before, end = len(world.platform.posts) + world.platform.reads, world.clock.monotonic() + seconds
    async with world.connect() as client, client.with_options(retry=ONCE).recovery(every=30):
        await until(lambda: world.clock.monotonic() >= end)
    return len(world.platform.posts) + world.platform.reads - before


async def test_what_stays_open_is_tried_less_and_less_often(world: World, until) -> None:
    """At most once a minute while it may be sent, and once an hour when it can only be looked up."""
    world.platform.fail = lambda _: Response(503)
    async with world.connect() as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.cancel("ORD1", once="table-7/1", not_after=timedelta(hours=1))

    assert 50 <= await turns_in(world, 3000.0, until) <= 60
    world.clock.advance(3600.0)
    assert 1 <= await turns_in(world, 18_000.0, until) <= 20  # Half of them read the time.


@pytest.mark.parametrize("error", [KeyError("disk full"), JournalUnavailable("disk full")], ids=repr)
async def test_a_failed_turn_does_not_end_the_recovery(world: World, until, monkeypatch, caplog, error) -> None:
    """Whatever one turn raises is logged, and the next one comes."""
    turns = []

    async def broken(self: SQLiteJournal, among: object, **which: object) -> list[Record]:
        turns.append(which)
        raise error

    monkeypatch.setattr(SQLiteJournal, "records", broken)
    async with world.connect() as client, client.recovery(every=5):
        await until(lambda: len(turns) >= 3)

    assert "disk full" in caplog.text


@pytest.mark.control("paymentsdk._call.call.connect_timeout", lambda timeout, remaining: timeout.connect)
async def test_a_connection_that_comes_too_late_is_not_waited_for(world: World) -> None:
    """An attempt that begins just before `not_after` waits no longer for its connection: it would be sent after it."""
    waits, ends = [], []

    def answer(request: Request) -> Response:
        if request.method == "POST":
            waits.append(request.connect_timeout)
            ends.append(world.clock.now() + request.connect_timeout)
        return world.platform(request)

    async with world.connect(answer) as client:
        await client.orders.create(order(), once="table-7/1", not_after=timedelta(seconds=3))
        await client.orders.create(order(), once="table-7/2")
    [row, _] = await world.rows()

    assert ends[0] < row.not_after
    assert 5.0 == waits[1]


class SlowSigner:
    """Signs with a service that takes its time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    async def sign(self, request: Request, now: float) -> dict[str, str]:
        """See `Signer`."""
        self.clock.advance(8.0 * (request.method == "POST"))
        return {"X-Signature": "0123456789abcdef"}


async def test_what_is_signed_too_late_is_not_sent(world: World) -> None:
    """The time is looked at once more after signing; observers see the attempt end."""
    events: list[Event] = []
    accounts = {"shop-1": SlowSigner(world.clock)}
    async with world.connect(token=None, accounts=accounts, observers=[events.append]) as client:
        shop = client.account("shop-1")
        with pytest.raises(NotSent, match="not_after"):
            await shop.orders.create(order(), once="table-7/1", not_after=timedelta(seconds=5))
        await shop.orders.create(order(), once="table-7/2")
    attempts = [(type(event), event.number) for event in events if isinstance(event, AttemptStarted | AttemptEnded)]

    assert [RecordState.EXPIRED, RecordState.DONE] == [row.state for row in await world.rows()]
    assert 1 == len(world.platform.posts)
    assert [(kind, 1) for kind in (AttemptStarted, AttemptEnded)] * 2 == attempts


async def test_no_attempt_of_a_recovery_outlasts_its_lease(world: World) -> None:
    """Also if its attempts may take longer than the lease that it has claimed: else another one takes it over."""
    margins = []

    async def look(request: Request) -> Response:
        if request.method == "POST":
            [row] = await world.rows()
            margins.append(row.lease_until - world.clock.now() - request.timeout)
        return world.platform(request)

    world.platform.lose = True
    async with world.connect() as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")
    world.platform.lose = False
    async with world.connect(look, timeout=Timeout(total=300, attempt=120)) as client:
        await client.recover()

    assert [True] == [seconds >= 0 for seconds in margins]


class ReluctantJournal(SQLiteJournal):
    """It does something before it ends when it is cancelled, such as to close a connection."""

    async def records(self, among: Collection[RecordState], **which: object) -> list[Record]:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)


async def test_who_is_cancelled_as_the_recovery_ends_stays_cancelled(world: World) -> None:
    """The program does not go on behind the context as if nobody had cancelled it."""
    went_on = asyncio.Event()
    async with world.connect(journal=world.journal(ReluctantJournal)) as client:

        async def program() -> None:
            async with client.recovery():
                for _ in range(3):
                    await asyncio.sleep(0)
            went_on.set()

        task = asyncio.ensure_future(program())
        for _ in range(6):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    assert (True, False) == (task.cancelled(), went_on.is_set())


@pytest.mark.parametrize("lost", [False, True], ids=["done", "unknown"])
async def test_a_known_name_is_never_reported_as_not_sent(world: World, lost: bool) -> None:
    """Not even while a new process cannot reach the platform, for its time: the record says what became of it."""
    world.platform.lose = lost
    async with world.connect() as client:
        with pytest.raises(OutcomeUnknown) if lost else nullcontext():
            await client.orders.create(order(), once="table-7/1")

    def unreachable(request: Request) -> Response:
        raise SendFailed("connection refused", sent=False)

    async with world.connect(unreachable) as client:
        with pytest.raises(OutcomeUnknown) if lost else nullcontext():
            await client.orders.create(order(), once="table-7/1")
        with pytest.raises(NotSent):
            await client.orders.create(order(), once="table-7/2")

    assert [False, True] == [row.state is RecordState.NOT_SENT for row in await world.rows()]


async def defer(world: World, names: list[str]) -> None:
    """Make writes that take no key, and cannot be sent."""
    world.platform.is_away = True
    async with world.connect(retry=ONCE) as client:
        for name in names:
            customer = CustomerRequest(email="ann@example.com", first_name=name)
            with pytest.raises(Deferred):
                await client.customers.create(customer, once=name, defer=True, not_after=timedelta(hours=1))
    world.platform.is_away = False


@pytest.mark.parametrize("end", ["cancelled", "killed"])
async def test_a_recovery_that_ends_early_leaves_what_it_has_not_begun(world: World, until, end: str) -> None:
    """Nothing was sent of it: another process sends it at once, or after the lease of one that was killed.

    So it is also for what takes no key and is sent only once: what was under way alone stays in doubt.
    """
    names = [f"c-{number}" for number in range(18)]

    async def never(request: Request) -> Response:
        response = world.platform(request)
        return response if request.method == "GET" else await asyncio.Event().wait()

    await defer(world, names)
    # A process that is killed does not see the time go on.
    async with world.connect(never, clock=FakeClock()) as client:
        recovery = asyncio.ensure_future(client.recover())
        await until(lambda: len(world.platform.posts) == 16)
        if end == "cancelled":
            recovery.cancel()
            await asyncio.wait([recovery])
        else:
            world.clock.advance(LATER)
        async with world.connect() as another:
            summary = await another.recover()
        recovery.cancel()
        await asyncio.wait([recovery])

    assert {RecordState.DONE: 2} == {state: count for state, count in summary.resolved.items() if count}
    assert (16, len(names)) == (len(summary.left), len(world.platform.posts))


class SlowJournal(SQLiteJournal):
    """What it has taken over is told late."""

    async def claim(self, sellers: Collection[str], **options: Any) -> list[Record]:
        rows = await super().claim(sellers, **options)
        self.claimed.set()
        await self.told.wait()
        return rows


class PatientClock(FakeClock):
    """The grace of a client that closes is never over."""

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await asyncio.Event().wait()


@pytest.mark.control("paymentsdk.journal._recovery.Recovery._let_go", lambda self, claim: asyncio.sleep(0))
async def test_a_recovery_that_is_cancelled_leaves_what_it_has_not_begun(world: World) -> None:
    """What it takes over as it is cancelled is not sent, and is given back before the journal is closed."""
    await defer(world, ["ann", "bob"])
    async with world.connect(journal=world.journal(SlowJournal), clock=PatientClock(world.clock.now())) as client:
        client.journal.claimed, client.journal.told = asyncio.Event(), asyncio.Event()
        recovery = asyncio.ensure_future(client.recover())
        await client.journal.claimed.wait()
        recovery.cancel()
        await asyncio.wait([recovery])
        client.journal.told.set()

    async with world.connect() as client:
        summary = await client.recover()

    assert {RecordState.DONE: 2} == dict(summary.resolved)


async def test_recovery_sends_a_record_by_its_own_account(world: World) -> None:
    """Of two accounts of one seller: where the token of the other is revoked, this record is finished all the same.

    The tokens come from stores, so recovery has to wait for them.
    """
    tokens = {"shop": TOKEN, "stand": TOKEN.replace("112304", "112305")}
    revoked = []

    def answer(request: Request) -> Response:
        if request.method == "POST" and request.headers["Authorization"].removeprefix("Bearer ") in revoked:
            return Response(403, dict(world.platform(Request("GET", URL, {}, b"", 1.0, 1.0)).headers))
        return world.platform(request)

    world.platform.lose = True
    async with world.connect(answer, token=None, accounts=tokens) as client:
        for name in tokens:
            with pytest.raises(OutcomeUnknown):
                await client.account(name).orders.create(order(), once=name)
    world.platform.lose = False
    for name in tokens:
        revoked[:] = [tokens[account] for account in tokens if account != name]
        stores = {account: MemoryTokenStore(TokenPair(access_token=tokens[account])) for account in tokens}
        stored = {account: RefreshingToken(store=store) for account, store in stores.items()}
        async with world.connect(answer, token=None, accounts=stored) as client:
            assert () == (await client.recover()).problems
        assert name in {row.name for row in await world.rows() if row.state is RecordState.DONE}
