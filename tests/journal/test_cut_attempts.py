"""A call that is cut in flight leaves its record free, and no rejection is final while its request may arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import structs

from paymentsdk import (
    Conflict,
    InProgress,
    JournalUnavailable,
    OutcomeUnknown,
    PaymentsClient,
    Request,
    Response,
    RetryPolicy,
    Timeout,
)
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.testing import FakeClock
from tests.journal.platform import ONCE, Platform, World, order

#: Seconds of an attempt.
ATTEMPT = 30.0
NOT_PAID = Response(409, {}, b'{"errors":[{"code":"cannot_refund_order","message":"the order is created"}]}')
ORDER = "ORD1"


class Proxy(Platform):
    """A platform behind a proxy that holds the first write. Orders are refunded once they are paid."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.holds = True
        self.held: list[Request] = []
        self.paid = True
        self.fail = self.fail_unpaid

    async def receive(self, request: Request) -> Response:
        """Take a request of a client."""
        if request.method != "GET" and self.holds:
            self.holds = False
            self.held.append(request)
            await asyncio.Event().wait()
        return self(request)

    def __call__(self, request: Request) -> Response:
        response = super().__call__(request)
        if request.url.endswith("/refund") and response.status == 201:
            body = {"id": ORDER, "status": "refunded", "transactions": {"refunds": [{"id": "REF1"}]}}
            return Response(201, response.headers, msgspec.json.encode(body))
        return response

    def fail_unpaid(self, request: Request) -> Response | None:
        """Reject what has no effect yet while the order is not paid."""
        return None if self.paid or request.headers["X-Idempotency-Key"] in self.made else NOT_PAID

    def release(self) -> Response:
        """Let the held request arrive."""
        return self(self.held.pop())


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A proxy, a journal file, and the processes that share them."""
    world = World(tmp_path / "payments.db", Proxy)
    world.handler = world.platform.receive
    return world


def connect(world: World, **settings: object) -> PaymentsClient:
    """Start one more process."""
    return world.connect(**{"timeout": Timeout(attempt=ATTEMPT), "retry": ONCE, **settings})


async def settled(world: World) -> Record:
    """Return the one record, as it is kept once nobody works on it."""
    while True:
        [row] = await world.rows()
        if not row.owner:
            return row


Work = Callable[[], Awaitable[object]]


async def by_cancel(world: World, work: Work, until) -> None:
    """Cancel the task, as a web framework does when the browser leaves."""
    call = asyncio.ensure_future(work())
    await until(lambda: world.platform.held)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def by_anyio(world: World, work: Work, until) -> None:
    """Cancel a scope of anyio, which cancels again at every wait."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await until(lambda: world.platform.held)
            scope.cancel()
    assert scope.cancelled_caught


async def by_attempt(world: World, work: Work, until) -> None:
    """Let the time of the attempt run out."""
    call = asyncio.ensure_future(work())
    await until(lambda: world.platform.held)
    world.clock.advance(ATTEMPT)
    with pytest.raises(OutcomeUnknown):
        await call


CUTS = {"cancel": by_cancel, "anyio": by_anyio, "timeout.attempt": by_attempt}


@pytest.fixture(params=CUTS)
def cut(request: pytest.FixtureRequest, world: World, until) -> Callable[[Work], Awaitable[None]]:
    """Begin a call, and cut it when its request is held."""

    async def cut(work: Work) -> None:
        await CUTS[request.param](world, work, until)
        await settled(world)  # Another process sees the record free once that is written.

    return cut


async def by_name(client: PaymentsClient) -> RecordState:
    """Call once more by the same name."""
    await client.orders.create(order(), once="table-7/1")
    return RecordState.DONE


async def by_recovery(client: PaymentsClient) -> RecordState:
    """Recover."""
    [state] = (await client.recover()).resolved
    return state


@pytest.mark.parametrize(("resume", "place"), [(by_name, "other client"), (by_recovery, "same client")])
async def test_a_cut_call_leaves_its_record_free(world: World, cut, place: str, resume) -> None:
    """Nobody waits for a lease: a call by the same name, or a recovery, resumes at once with the same key."""
    async with connect(world) as client, connect(world) as second:
        await cut(lambda: client.orders.create(order(), once="table-7/1"))
        state = await resume(client if place == "same client" else second)

    assert RecordState.DONE is state
    assert 1 == len({request.headers["X-Idempotency-Key"] for request in (*world.platform.held, *world.platform.posts)})
    assert (RecordState.DONE, 0.0) == ((row := await settled(world)).state, row.in_flight_until)


def forgets(resolve: Callable[..., Awaitable[Record]]) -> Callable[..., Awaitable[Record]]:
    """Return `SQLiteJournal.resolve` as it would be if it forgot what is in flight."""

    def resolve_and_forget(self: SQLiteJournal, key: str, resolution: Resolution, *, owner: str) -> Awaitable[Record]:
        return resolve(self, key, structs.replace(resolution, in_flight=0.0), owner=owner)

    return resolve_and_forget


@pytest.mark.control("paymentsdk.journal.SQLiteJournal.resolve", around=forgets, raises=Conflict)
async def test_a_rejection_is_not_final_while_a_cut_attempt_may_arrive(world: World, until) -> None:
    """A refund is cut in flight; the same refund is rejected, as the order is not paid; then the order is paid.

    The first request arrives last, and takes effect. Nobody was told that the refund is settled.
    """
    world.platform.paid = False
    async with connect(world) as client, connect(world) as second:
        await by_cancel(world, lambda: client.orders.refund(ORDER, once="refund"), until)
        await settled(world)
        for process in (client, second):
            with pytest.raises(OutcomeUnknown, match=r"cannot_refund_order.* an earlier attempt may still take effect"):
                await process.orders.refund(ORDER, once="refund")
        world.platform.paid = True
        assert 201 == world.platform.release().status
        refunded = await second.orders.refund(ORDER, once="refund")

    assert ["REF1"] == [refund.id for refund in refunded.refunds]
    assert 1 == len(world.platform.made)


@pytest.mark.control("paymentsdk.journal.SQLiteJournal.resolve", around=forgets)
async def test_recovery_asks_again_once_no_cut_attempt_can_arrive(world: World, until) -> None:
    """The record stays unknown until then; the rejection that comes after it is final."""
    world.platform.paid = False
    async with connect(world) as client, connect(world) as another:
        await by_cancel(world, lambda: client.orders.refund(ORDER, once="refund"), until)
        await settled(world)
        first = await another.recover()
        world.clock.advance(max(0.0, (await settled(world)).in_flight_until - world.clock.now()))
        second = await another.recover()
        with pytest.raises(Conflict) as rejected:
            await client.orders.refund(ORDER, once="refund")

    assert ({RecordState.UNKNOWN: 1}, {RecordState.REFUSED: 1}) == (dict(first.resolved), dict(second.resolved))
    assert rejected.value.settled


@pytest.mark.control("paymentsdk.journal.SQLiteJournal.resolve", around=forgets, raises=Conflict)
async def test_a_rejection_is_not_final_while_an_attempt_of_its_own_call_may_arrive(world: World, until) -> None:
    """The first attempt times out, the second is rejected: the first may arrive after it."""
    world.platform.paid = False
    async with connect(world, retry=RetryPolicy(attempts=2)) as client:
        call = asyncio.ensure_future(client.orders.refund(ORDER, once="refund"))
        await until(lambda: world.platform.held)
        world.clock.advance(ATTEMPT)
        with pytest.raises(OutcomeUnknown, match="an earlier attempt may still take effect"):
            await call
        world.platform.paid = True
        world.platform.release()
        await client.orders.refund(ORDER, once="refund")

    assert 1 == len(world.platform.made)


async def test_the_latest_of_several_cut_attempts_counts(world: World, until) -> None:
    """Whoever resumes may be cut too: a shorter attempt of another process does not end the time of a longer one."""
    async with connect(world, timeout=Timeout(attempt=300, total=600)) as client, connect(world) as second:
        await by_cancel(world, lambda: client.orders.create(order(), once="table-7/1"), until)
        end = (await settled(world)).in_flight_until
        world.platform.holds, world.platform.held = True, []
        await by_cancel(world, lambda: second.orders.create(order(), once="table-7/1"), until)
        row = await settled(world)

    assert (RecordState.UNKNOWN, end) == (row.state, row.in_flight_until)


async def test_a_waiting_call_takes_the_place_of_a_cancelled_call(world: World, until) -> None:
    """A double click: the second caller waits for the first; the first leaves, and the second gets the order."""
    async with connect(world) as client:
        first = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
        await until(lambda: world.platform.held)
        later = [asyncio.ensure_future(client.orders.create(order(), once="table-7/1")) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        orders = await asyncio.gather(*later)

    assert 1 == len({order.id for order in orders})
    assert (1, 1) == (len(world.platform.posts), len(world.platform.made))


async def test_a_write_without_a_key_that_was_cut_is_never_sent_again(world: World, until) -> None:
    """Its outcome is unknown, at once and for good: the platform could not recognise it."""
    ann = CustomerRequest(email="ann@example.com")
    async with connect(world) as client:
        await by_cancel(world, lambda: client.customers.create(ann, once="ann"), until)
        with pytest.raises(OutcomeUnknown):
            await client.customers.create(ann, once="ann")
        world.clock.advance(3600)
        summary = await client.recover()
        with pytest.raises(OutcomeUnknown):
            await client.customers.create(ann, once="ann")

    assert ["ann"] == [row.name for row in summary.left]
    assert [] == world.platform.posts


class Full(SQLiteJournal):
    """A journal whose disk is full when an outcome is to be written."""

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """Fail."""
        raise JournalUnavailable("disk full")


async def test_the_lease_holds_if_a_cut_attempt_could_not_be_kept(world: World, until) -> None:
    """Nobody knows how long the request may arrive: as after a crash, others wait until the lease ends."""
    async with connect(world, journal=world.journal(Full)) as client, connect(world) as second:
        await by_cancel(world, lambda: client.orders.create(order(), once="table-7/1"), until)
        with pytest.raises(InProgress):
            await second.orders.create(order(), once="table-7/1")
        world.clock.advance(2 * ATTEMPT)
        await second.orders.create(order(), once="table-7/1")
