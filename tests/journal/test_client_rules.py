"""What a journaled call promises when something else fails: it is cancelled, the disk is full, the name is purged."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from datetime import UTC, datetime

import msgspec
import pytest

from paymentsdk import (
    OPERATIONS,
    InProgress,
    JournalUnavailable,
    OutcomeUnknown,
    PaymentsClient,
    RecordConflict,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.journal import Action, Record, RecordState, Resolution, SQLiteJournal, derive_key
from paymentsdk.testing import FakeClock
from tests.journal.conftest import make_record
from tests.journal.platform import ONCE, PAYMENT, URL, Platform, World, order

KEY = derive_key(URL, "77", "orders.create", "table-7/1")
REFUSED = Response(400, {}, b'{"errors":[{"code":"property_value","message":"no"}]}')


class Journal(SQLiteJournal):
    """A journal that counts how often a lease is renewed, and may not be able to write."""

    error: Exception | None = None
    is_unheard = False
    renewed = 0

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """Fail once the record is kept."""
        begun = await super().begin(record, lease=lease)
        if self.is_unheard:
            raise JournalUnavailable("it took too long")
        return begun

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """Count it."""
        self.renewed += 1
        if self.error:
            raise self.error
        return await super().renew(key, owner=owner, lease=lease)

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """Fail where it cannot write."""
        if self.error:
            raise self.error
        return await super().resolve(key, resolution, owner=owner)


#: What a journal of one's own raises may be anything.
FULL = pytest.mark.parametrize("error", [JournalUnavailable("disk full"), OSError(28, "disk full")], ids=repr)


class SlowJournal(Journal):
    """A journal that keeps a record, and does not come to say so."""

    begun: asyncio.Event | None = None

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """Hang once, with the record on the disk."""
        begun_record = await super().begin(record, lease=lease)
        if self.begun is not None:
            waiting, self.begun = self.begun, None
            waiting.set()
            await asyncio.Event().wait()
        return begun_record


async def cancelled_as_it_begins(client: PaymentsClient, store: SlowJournal) -> None:
    """Cancel a call whose record was kept, before it knows."""
    store.begun = begun = asyncio.Event()
    call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
    await begun.wait()
    call.cancel()
    await asyncio.wait((call,))
    assert call.cancelled()


@pytest.mark.control("paymentsdk.journal._run.JournaledCall._give_up", lambda self, new: asyncio.sleep(0))
async def test_a_call_that_is_cancelled_as_it_begins_is_not_sent(
    world: World, platform: Platform, clock: FakeClock
) -> None:
    """Its record is closed, or recovery would send what nobody asks for; the name can be used again."""
    store = world.journal(SlowJournal)
    async with world.connect(journal=store) as client:
        await client.plans.search().collect()
        await cancelled_as_it_begins(client, store)
        clock.advance(61)
        await client.recover()
        assert [] == platform.posts
        await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.made)


async def test_a_record_in_doubt_stays_so_if_its_call_is_cancelled(
    world: World, platform: Platform, clock: FakeClock
) -> None:
    """An earlier call may have sent it: that nothing is sent this time says nothing of its outcome."""

    def refused(request: Request) -> Response:
        raise SendFailed("connection refused", sent=False)

    store = world.journal(SlowJournal)
    async with world.connect(journal=store, retry=ONCE) as client:
        platform.lose = True
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")
        platform.fail = refused
        await cancelled_as_it_begins(client, store)
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")


@FULL
async def test_a_rejection_that_is_not_durable_is_not_told(
    world: World, platform: Platform, clock: FakeClock, error: Exception
) -> None:
    """The platform forgets it: recovery may send, with success, what the caller would believe to be rejected."""
    platform.fail = lambda request: REFUSED
    store = world.journal(Journal)
    store.error = error
    async with world.connect(journal=store) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")
    platform.fail = None
    clock.advance(61)
    async with world.connect() as client:
        assert {RecordState.DONE: 1} == dict((await client.recover()).resolved)


async def test_a_begin_that_was_not_heard_of_holds_nobody_up(world: World, platform: Platform) -> None:
    """The record is kept, though nothing was sent: the next call of the same process knows its own lease."""
    store = world.journal(Journal)
    async with world.connect(journal=store) as client:
        store.is_unheard = True
        with pytest.raises(JournalUnavailable):
            await client.orders.create(order(), once="table-7/1")
        store.is_unheard = False
        await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.posts)


def written(body: bytes, begun: float) -> Record:
    """Return an order that another version of this package has written into the journal before it died."""
    times = {"begun": begun, "not_after": begun + 600}
    return make_record(owner="dead/1", body=body, key=KEY, base_url=URL, headers={"X-Of-Then": "1"}, **times)


async def test_recovery_sends_the_bytes_of_another_version(world: World, platform: Platform, clock) -> None:
    """The kept bytes go out as they are, whatever this version would make of the request."""
    payments = b'"transactions": {"payments": [{"amount": "10.50"}]}'
    body = b'{"total_amount": "10.50", "external_reference": "A-1", "type": "qr", ' + payments + b"}"
    assert body != msgspec.json.encode(msgspec.json.decode(body))
    store = world.journal(Journal)
    await store.begin(written(body, clock.now()), lease=0)
    async with world.connect(journal=store) as client:
        summary = await client.recover()

    assert ({RecordState.DONE: 1}, ()) == (dict(summary.resolved), summary.problems)
    assert [(body, KEY, "1")] == [
        (post.body, post.headers["X-Idempotency-Key"], post.headers["X-Of-Then"]) for post in platform.posts
    ]


@pytest.mark.parametrize("body", [b'{"member_of_tomorrow":1}', None])
async def test_recovery_holds_nothing_that_it_cannot_send(world: World, platform: Platform, clock, body) -> None:
    """A record of another platform or version stays free: the client that can send it does not wait for a lease."""
    store = world.journal(Journal)
    record = written(body or msgspec.json.encode(order()), clock.now())
    await store.begin(record, lease=0)
    async with world.connect(base_url=URL if body else "http://127.0.0.1:2") as client:
        second = await client.recover()

    assert ([record.key], 1, {}) == ([row.key for row in second.left], len(second.problems), second.resolved)
    assert [record.key] == [row.key for row in await store.claim(["77"], owner="q/1", lease=60, keys=[record.key])]
    await store.aclose()


@pytest.mark.control(
    "paymentsdk.journal._table.Codec._unsealed", lambda self, body, name: self._unseal(body), raises=ValueError
)
async def test_a_seal_whose_key_was_discarded_costs_its_records_alone(world: World, platform: Platform, caplog) -> None:
    """Recovery leaves them to a person, says which, once, and carries out the others; who brings one again resumes."""

    def discarded(body: bytes) -> bytes:
        raise ValueError("InvalidTag")

    def lost(request: Request) -> Response:
        raise SendFailed("connection reset", sent=True)

    platform.fail = lost
    async with world.connect(journal=world.journal(seal=bytes, unseal=bytes), retry=ONCE) as client:
        for call in (client.wallet_payments.create(PAYMENT, once="ride-7"), client.orders.create(order(), once="A-1")):
            with pytest.raises(OutcomeUnknown):
                await call
    platform.fail = None
    async with world.connect(journal=world.journal(seal=bytes, unseal=discarded)) as client:
        summary = await client.recover()
        await client.recover()
        assert [["ride-7"], {RecordState.DONE: 1}] == [[row.name for row in summary.left], dict(summary.resolved)]
        assert 1 == caplog.text.count("the body of the record ride-7 cannot be unsealed: ValueError")
        platform.fail = lambda request: Response(201, {}, b'{"id":1,"wallet_payment":{"transaction_amount":5}}')
        assert 1 == (await client.wallet_payments.create(PAYMENT, once="ride-7")).id
    assert 1 == len({post.headers["X-Idempotency-Key"] for post in platform.posts if b"token" in post.body})


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_payers_token_is_recovered_with_a_seal_alone(world: World, platform: Platform, sealed) -> None:
    """Sealed, the payment is sent again with its token; without a seal it was not kept, and is left to a person."""
    paid = Response(201, {}, b'{"id":1,"wallet_payment":{"transaction_amount":5}}')

    def lost(request: Request) -> Response:
        raise SendFailed("connection reset", sent=True)

    platform.fail = lost
    seal = {"seal": lambda body: body[::-1], "unseal": lambda body: body[::-1]} if sealed else {}
    async with world.connect(journal=world.journal(**seal), retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.wallet_payments.create(PAYMENT, once="ride-7")
    platform.fail = lambda request: paid
    async with world.connect(journal=world.journal(**seal)) as client:
        summary = await client.recover()

    assert ({RecordState.DONE: 1} if sealed else {}) == dict(summary.resolved)
    assert ([] if sealed else ["ride-7"]) == [row.name for row in summary.left]
    assert (2 if sealed else 1) == len(platform.posts)
    assert 1 == len({post.body for post in platform.posts})


async def test_a_second_use_of_a_purged_name_is_seen(world: World, platform: Platform) -> None:
    """The tombstone says that it is done, and sends nothing; other bytes are still a conflict."""
    async with world.connect() as client:
        await client.orders.create(order(), once="table-7/1")
    store = world.journal(Journal)
    assert 1 == await store.purge(math.inf)
    async with world.connect(journal=store) as client:
        with pytest.raises(OutcomeUnknown, match="its response was not kept"):
            await client.orders.create(order(), once="table-7/1")
        with pytest.raises(RecordConflict):
            await client.orders.create(order(price="11.00"), once="table-7/1")

    assert 1 == len(platform.posts)


@pytest.mark.control("paymentsdk.journal._run.JournaledCall.covers", lambda self, seconds, moment: True)
async def test_a_lease_is_refreshed_for_a_long_call(world: World, platform: Platform, clock: FakeClock) -> None:
    """A call that outlasts its lease keeps the record: no other process takes it over while attempts are made."""
    second, names = world.connect(), []

    async def slow(request: Request) -> Response:
        if request.method == "GET":
            return platform(request)
        clock.advance(25)
        platform.fail = (lambda _: Response(503, {}, b"")) if len(platform.posts) < 2 else None
        if len(platform.posts) == 2:
            try:
                await second.orders.create(order(), once="table-7/1")
            except InProgress as error:
                names.append(error.once)
        return platform(request)

    patient = {"timeout": Timeout(total=300.0, attempt=30.0), "retry": RetryPolicy(attempts=3, base_delay=0.001)}
    store = world.journal(Journal)
    async with second, world.connect(slow, journal=store, **patient) as client:
        await drive(clock, client.orders.create(order(), once="table-7/1"))

    assert (1, ["table-7/1"]) == (store.renewed, names)
    assert 1 == len(platform.made)


async def test_an_attempt_in_doubt_is_not_hidden(world: World, platform: Platform, clock: FakeClock) -> None:
    """A lease that cannot be renewed for a second attempt leaves the first one in doubt."""

    def lost(request: Request) -> Response:
        clock.advance(60.0)  # The lease is over.
        raise SendFailed("reset")

    platform.fail = lost
    store = world.journal(Journal)
    store.error = OSError(28, "disk full")
    async with world.connect(journal=store, timeout=Timeout(total=600)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.posts)


async def drive(clock: FakeClock, call: Awaitable[object]) -> None:
    """Let pauses end until *call* has ended."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await asyncio.wait((task,), timeout=0.01)
        clock.advance(0.01)
    await task


@FULL
async def test_a_late_write_that_fails_is_logged(
    world: World, platform: Platform, caplog, clock: FakeClock, error: Exception
) -> None:
    """The caller has its order; what is lost is one replay, which closing says and does not raise."""
    store = world.journal(Journal)
    store.error = error
    with caplog.at_level(logging.WARNING, "paymentsdk"):
        async with world.connect(journal=store) as client:
            created = await client.orders.create(order(), once="table-7/1")
    clock.advance(61)
    async with world.connect() as client:
        summary = await client.recover()

    assert "ORD0" == created.id
    logged = [line for line in caplog.messages if line.startswith("a record could not be closed in the journal")]
    assert 1 == len(logged)
    assert {"paymentsdk"} == {record.name for record in caplog.records}
    assert ({RecordState.DONE: 1}, 1) == (dict(summary.resolved), len(platform.made))


async def test_a_token_without_a_seller_has_no_records(world: World, platform: Platform) -> None:
    """The key is derived from the seller: a token that does not name one cannot send a journaled write."""
    async with world.connect(token="opaque") as client:
        with pytest.raises(RequestInvalid, match="does not end with the seller's user id") as rejected:
            await client.orders.create(order(), once="table-7/1")

    assert ("access_token", []) == (rejected.value.path, platform.posts)


async def test_a_journaled_call_needs_a_bound_for_its_attempts(world: World, platform: Platform) -> None:
    """A lease has to outlive each attempt: one without an end would outlive every lease."""
    async with world.connect(timeout=Timeout(attempt=None)) as client:
        with pytest.raises(RequestInvalid, match="must be bounded for a journaled call") as rejected:
            await client.orders.create(order(), once="table-7/1")

    assert ("timeout.attempt", []) == (rejected.value.path, platform.posts)


async def test_a_record_may_end_at_a_moment(world: World, platform: Platform, clock: FakeClock) -> None:
    """`not_after` may be a moment, with its offset: a local time would be another moment on each machine."""
    store = world.journal(Journal)
    moment = datetime.fromtimestamp(clock.now() + 30, UTC)
    async with world.connect(journal=store) as client:
        await client.orders.create(order(), once="table-7/1", not_after=moment)
        ends = (await store.get(KEY)).not_after
        with pytest.raises(RequestInvalid, match="with its offset") as rejected:
            await client.orders.create(order(), once="table-7/2", not_after=moment.replace(tzinfo=None))

    assert (moment.timestamp(), "not_after", 1) == (ends, rejected.value.path, len(platform.posts))


async def test_what_is_kept_of_the_headers_of_a_response(world: World, platform: Platform) -> None:
    """Of a response that is told once more there are three header fields: others may hold credentials."""

    def answer(request: Request) -> Response:
        response = platform(request)
        more = {"Content-Type": "application/json", "X-Request-Id": "r-1", "Set-Cookie": "session=1"}
        return Response(response.status, {**response.headers, **more}, response.body)

    async with world.connect(answer) as client:
        create = OPERATIONS["orders.create"]
        first = await client.call(create, order(), once="table-7/1")
        again = await client.call(create, order(), once="table-7/1")

    assert {"Date", "Content-Type", "X-Request-Id"} == set(again.headers)
    assert ("r-1", first.headers["Date"], 0) == (again.request_id, again.headers["Date"], again.attempts)
