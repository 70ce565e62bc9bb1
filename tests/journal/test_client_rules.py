"""What a journaled call promises when something else fails: it is cancelled, the disk is full, the name is purged."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    BadRequest,
    Deferred,
    InProgress,
    JournalUnavailable,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    RecordConflict,
    RefreshFailed,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.journal import Action, Record, RecordResolved, RecordState, Resolution, SQLiteJournal, derive_key
from paymentsdk.journal._record import digest
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.conftest import PATIENCE
from tests.journal.platform import ONCE, TOKEN, URL, Platform, order

KEY = derive_key(URL, "77", "orders.create", "table-7/1")
REFUSED = Response(400, {}, b'{"errors":[{"code":"property_value","message":"no"}]}')
PAYMENT = WalletPaymentRequest(
    wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5)),
    payer=WalletPayerRequest(token="the-payers-token", type_token="wallet"),
)


class Journal(SQLiteJournal):
    """A journal that counts how often a lease is renewed, and whose disk may be full when a record is to be closed."""

    full = False
    renewed = 0

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """Count it."""
        self.renewed += 1
        return await super().renew(key, owner=owner, lease=lease)

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """Fail where the disk is full."""
        if self.full:
            raise JournalUnavailable("disk full")
        return await super().resolve(key, resolution, owner=owner)


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Callable[..., Journal]:
    """Open the journal of a process."""
    return lambda **settings: Journal(tmp_path / "payments.db", now=clock.now, **settings)


@pytest.fixture
def connect(clock: FakeClock, platform: Platform) -> Callable[..., PaymentsClient]:
    """Start a process with a journal."""

    def connect(journal: Journal, handler: Callable[[Request], object] = platform, **settings: object):
        settings = {"base_url": URL, "clock": clock, "transport": MemoryTransport(handler), **settings}
        return PaymentsClient(settings.pop("token", TOKEN), journal=journal, **settings)

    return connect


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
    tmp_path: Path, connect, platform: Platform, clock: FakeClock
) -> None:
    """Its record is closed, or recovery would send what nobody asks for; the name can be used again."""
    store = SlowJournal(tmp_path / "payments.db", now=clock.now)
    async with connect(store) as client:
        await client.plans.search().collect()
        await cancelled_as_it_begins(client, store)
        clock.advance(61)
        await client.recover()
        assert [] == platform.posts
        await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.made)


async def test_a_record_in_doubt_stays_so_if_its_call_is_cancelled(
    tmp_path: Path, connect, platform: Platform, clock: FakeClock
) -> None:
    """An earlier call may have sent it: that nothing is sent this time says nothing of its outcome."""

    def refused(request: Request) -> Response:
        raise SendFailed("connection refused", sent=False)

    store = SlowJournal(tmp_path / "payments.db", now=clock.now)
    async with connect(store, retry=ONCE) as client:
        platform.lose = True
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")
        platform.fail = refused
        await cancelled_as_it_begins(client, store)
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")


async def test_a_rejection_that_is_not_durable_is_not_told(journal, connect, platform: Platform, clock) -> None:
    """The platform forgets it: recovery may send, with success, what the caller would believe to be rejected."""
    platform.fail = lambda request: REFUSED
    store = journal()
    store.full = True
    async with connect(store) as client:
        with pytest.raises(OutcomeUnknown, match="disk full"):
            await client.orders.create(order(), once="table-7/1")
    platform.fail = None
    clock.advance(61)
    async with connect(journal()) as client:
        assert {RecordState.DONE: 1} == dict((await client.recover()).resolved)


def written(body: bytes, begun: float) -> Record:
    """Return an order that another version of this package has written into the journal before it died."""
    return Record(
        key=KEY,
        name="table-7/1",
        operation="orders.create",
        base_url=URL,
        seller="77",
        path="/v1/orders",
        headers={"X-Of-Then": "1"},
        body=body,
        digest=digest("POST", "/v1/orders", body),
        begun=begun,
        not_after=begun + 600,
        owner="dead/1",
    )


async def test_recovery_sends_the_bytes_of_another_version(journal, connect, platform: Platform, clock) -> None:
    """The kept bytes go out as they are, whatever this version would make of the request."""
    payments = b'"transactions": {"payments": [{"amount": "10.50"}]}'
    body = b'{"total_amount": "10.50", "external_reference": "A-1", "type": "qr", ' + payments + b"}"
    assert body != msgspec.json.encode(msgspec.json.decode(body))
    store = journal()
    await store.begin(written(body, clock.now()), lease=0)
    async with connect(store) as client:
        summary = await client.recover()

    assert ({RecordState.DONE: 1}, ()) == (dict(summary.resolved), summary.problems)
    assert [(body, KEY, "1")] == [
        (post.body, post.headers["X-Idempotency-Key"], post.headers["X-Of-Then"]) for post in platform.posts
    ]


@pytest.mark.parametrize("body", [b'{"member_of_tomorrow":1}', b"member_of_tomorrow"])
async def test_a_request_that_this_version_cannot_read_is_left(
    journal, connect, platform: Platform, clock, body: bytes
) -> None:
    """Such as one of a later version: it is not sent, the summary says why, and the others are carried out."""
    platform.lose = True
    store = journal()
    await store.begin(written(body, clock.now()), lease=0)
    async with connect(store, retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-8/1")
        platform.lose = False
        summary = await client.recover()

    assert ({RecordState.DONE: 1}, False) == (dict(summary.resolved), summary.is_complete)
    assert ["table-7/1"] == [row.name for row in summary.left]
    assert ("member_of_tomorrow" if b"{" in body else "DecodeError") in "".join(summary.problems)


@pytest.mark.parametrize("body", [b'{"member_of_tomorrow":1}', None])
async def test_recovery_holds_nothing_that_it_cannot_send(journal, connect, platform: Platform, clock, body) -> None:
    """A record of another platform or version stays free: the client that can send it does not wait for a lease."""
    store = journal()
    record = written(body or msgspec.json.encode(order()), clock.now())
    await store.begin(record, lease=0)
    async with connect(journal(), base_url=URL if body else "http://127.0.0.1:2") as client:
        second = await client.recover()

    assert ([record.key], 1, {}) == ([row.key for row in second.left], len(second.problems), second.resolved)
    assert [record.key] == [row.key for row in await store.claim(["77"], owner="q/1", lease=60, keys=[record.key])]
    await store.aclose()


@pytest.mark.control(
    "paymentsdk.journal._table.Codec._unsealed",
    lambda self, body, name: self._unseal(body),
    raises=ValueError,
)
async def test_a_seal_whose_key_was_discarded_costs_its_records_alone(
    journal, connect, platform: Platform, caplog
) -> None:
    """Recovery leaves them to a person, says which, once, and carries out the others; who brings one again resumes."""

    def discarded(body: bytes) -> bytes:
        raise ValueError("InvalidTag")

    def lost(request: Request) -> Response:
        raise SendFailed("connection reset", sent=True)

    platform.fail = lost
    async with connect(journal(seal=bytes, unseal=bytes), retry=ONCE) as client:
        for call in (client.wallet_payments.create(PAYMENT, once="ride-7"), client.orders.create(order(), once="A-1")):
            with pytest.raises(OutcomeUnknown):
                await call
    platform.fail = None
    async with connect(journal(seal=bytes, unseal=discarded)) as client:
        summary = await client.recover()
        await client.recover()
        assert [["ride-7"], {RecordState.DONE: 1}] == [[row.name for row in summary.left], dict(summary.resolved)]
        assert 1 == caplog.text.count("the body of the record ride-7 cannot be unsealed: ValueError")
        platform.fail = lambda request: Response(201, {}, b'{"id":1,"wallet_payment":{"transaction_amount":5}}')
        assert 1 == (await client.wallet_payments.create(PAYMENT, once="ride-7")).id
    assert 1 == len({post.headers["X-Idempotency-Key"] for post in platform.posts if b"token" in post.body})


async def test_what_recovery_could_not_send_is_not_deferred(journal, connect, platform: Platform) -> None:
    """A payer's token is kept with a seal alone: without one, what is to be deferred is rejected before it is kept."""

    def unreachable(request: Request) -> Response:
        raise SendFailed("connection refused", sent=False)

    platform.fail = unreachable
    seal = {"seal": lambda body: body[::-1], "unseal": lambda body: body[::-1]}
    ends = []
    for settings in ({}, seal):
        async with connect(journal(**settings), retry=ONCE) as client:
            await client.plans.search().collect()
            with pytest.raises(PaymentsError) as raised:
                await client.wallet_payments.create(PAYMENT, once="ride-7", defer=True)
            ends.append((type(raised.value), len(await client.journal.records(set(RecordState)))))

    assert [(RequestInvalid, 0), (Deferred, 1)] == ends


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_payers_token_is_recovered_with_a_seal_alone(journal, connect, platform: Platform, sealed) -> None:
    """Sealed, the payment is sent again with its token; without a seal it was not kept, and is left to a person."""
    paid = Response(201, {}, b'{"id":1,"wallet_payment":{"transaction_amount":5}}')

    def lost(request: Request) -> Response:
        raise SendFailed("connection reset", sent=True)

    platform.fail = lost
    seal = {"seal": lambda body: body[::-1], "unseal": lambda body: body[::-1]} if sealed else {}
    async with connect(journal(**seal), retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.wallet_payments.create(PAYMENT, once="ride-7")
    platform.fail = lambda request: paid
    async with connect(journal(**seal)) as client:
        summary = await client.recover()

    assert ({RecordState.DONE: 1} if sealed else {}) == dict(summary.resolved)
    assert ([] if sealed else ["ride-7"]) == [row.name for row in summary.left]
    assert (2 if sealed else 1) == len(platform.posts)
    assert 1 == len({post.body for post in platform.posts})


async def test_a_second_use_of_a_purged_name_is_seen(journal, connect, platform: Platform) -> None:
    """The tombstone says that it is done, and sends nothing; other bytes are still a conflict."""
    async with connect(journal()) as client:
        await client.orders.create(order(), once="table-7/1")
    store = journal()
    assert 1 == await store.purge(math.inf)
    async with connect(store) as client:
        with pytest.raises(OutcomeUnknown, match="its response was not kept"):
            await client.orders.create(order(), once="table-7/1")
        with pytest.raises(RecordConflict):
            await client.orders.create(order(price="11.00"), once="table-7/1")

    assert 1 == len(platform.posts)


async def test_a_purged_rejection_is_told_as_one(journal, connect, platform: Platform) -> None:
    """Its response is gone, so that it is no `APIError`; its reason still says what the platform said."""
    platform.fail = lambda _: Response(400, {}, b'{"errors":[{"code":"property_value","message":"no"}]}')
    async with connect(journal()) as client:
        with pytest.raises(APIError):
            await client.orders.create(order(), once="table-7/1")
        await client.journal.purge(math.inf)
        with pytest.raises(OutcomeUnknown, match="it was rejected; its response was not kept: 400 property_value no"):
            await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.posts)


@pytest.mark.control("paymentsdk.journal._run.JournaledCall.covers", lambda self, seconds, moment: True)
async def test_a_lease_is_refreshed_for_a_long_call(journal, connect, platform: Platform, clock: FakeClock) -> None:
    """A call that outlasts its lease keeps the record: no other process takes it over while attempts are made."""
    second, names = connect(journal()), []

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
    store = journal()
    async with second, connect(store, slow, **patient) as client:
        await drive(clock, client.orders.create(order(), once="table-7/1"))

    assert (1, ["table-7/1"]) == (store.renewed, names)
    assert 1 == len(platform.made)


async def test_a_record_whose_time_is_over_is_not_tried_again(journal, connect, platform: Platform, clock) -> None:
    """The next attempt would come later still: there is no pause for it."""

    def slow(request: Request) -> Response:
        if request.method == "POST":
            platform.fail = lambda _: Response(503, {}, b"")
            clock.advance(10)
        return platform(request)

    async with connect(journal(), slow, retry=RetryPolicy(attempts=4)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1", not_after=timedelta(seconds=5))
        assert 1 == len(clock.slept)  # Before the attempt that was not made.

    assert 1 == len(platform.posts)


async def drive(clock: FakeClock, call: Awaitable[object]) -> None:
    """Let pauses end until *call* has ended."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await asyncio.wait((task,), timeout=0.01)
        clock.advance(0.01)
    await task


async def test_a_late_write_that_fails_is_logged(journal, connect, platform: Platform, caplog, clock) -> None:
    """The caller has its order; what is lost is one replay, which closing says and does not raise."""
    store = journal()
    store.full = True
    with caplog.at_level(logging.WARNING, "paymentsdk"):
        async with connect(store) as client:
            created = await client.orders.create(order(), once="table-7/1")
    clock.advance(61)
    async with connect(journal()) as client:
        summary = await client.recover()

    assert "ORD0" == created.id
    logged = [line for line in caplog.messages if line.startswith("a record could not be closed in the journal")]
    assert (1, True) == (len(logged), "disk full" in logged[0])
    assert {"paymentsdk"} == {record.name for record in caplog.records}
    assert ({RecordState.DONE: 1}, 1) == (dict(summary.resolved), len(platform.made))


async def test_a_read_has_no_record(journal, connect, platform: Platform) -> None:
    """What changes nothing needs no name: whoever gives one has mistaken the operation."""
    async with connect(journal()) as client:
        with pytest.raises(RequestInvalid, match=r"orders\.get changes nothing") as rejected:
            await client.call(OPERATIONS["orders.get"], order_id="ORD0", once="table-7/1")

    assert ("once", []) == (rejected.value.path, platform.posts)


async def test_a_token_without_a_seller_has_no_records(journal, platform: Platform, clock: FakeClock) -> None:
    """The key is derived from the seller: a token that does not name one cannot send a journaled write."""
    transport = MemoryTransport(platform)
    async with PaymentsClient("opaque", base_url=URL, journal=journal(), transport=transport, clock=clock) as client:
        with pytest.raises(RequestInvalid, match="does not end with the seller's user id") as rejected:
            await client.orders.create(order(), once="table-7/1")

    assert ("access_token", []) == (rejected.value.path, platform.posts)


class OwnTokens:
    """A source of tokens of one's own, which fails if it has none."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def token(self, now: float) -> str:
        """See `Auth.token`; made anew each time, so that no other variable has it."""
        if not self.parts:
            raise KeyError("the-secret of the vault")
        return "-".join(self.parts)

    async def renew(self, rejected: str | None, exchange: object, now: float) -> None:
        """There is no other."""


async def test_a_source_of_tokens_that_fails_is_no_defect(journal, connect, platform: Platform, clock) -> None:
    """A named write says so as any call does, without its text; recovery goes on with the sellers who have a token."""
    platform.lose = True
    accounts = {"bad": OwnTokens("APP_USR-9001-112304-0123456789abcdef", "78"), "good": TOKEN}
    async with connect(journal(), token=None, accounts=accounts, retry=ONCE) as client:
        for name in accounts:
            with pytest.raises(OutcomeUnknown):
                await client.account(name).orders.create(order(), once="table-7/1")
    platform.lose = False
    async with connect(journal(), token=None, accounts={**accounts, "bad": OwnTokens()}) as client:
        for _ in range(2):
            with pytest.raises(RefreshFailed, match="KeyError") as failed:
                await client.account("bad").orders.create(order(), once="table-7/2")
            # With the platform's time known, no read fails before it.
            await client.account("good").orders.create(order(), once="table-7/3")
        summary = await client.recover()

    assert "the-secret" not in f"{failed.value} {failed.value.__cause__} {failed.value.__context__} {summary}"
    assert ({RecordState.DONE: 1}, ["bad"]) == (dict(summary.resolved), [row.account for row in summary.left])


async def test_a_named_write_does_not_show_the_token_of_ones_own_source(journal, connect, clock: FakeClock) -> None:
    """Not in the variables of a traceback either, while it waits for the platform's time."""

    def away(request: Request) -> Response:
        raise SendFailed("connection refused", sent=False)

    auth = OwnTokens("APP_USR-9001-112304", "canary", "77")
    async with connect(journal(), away, token=None, auth=auth, retry=ONCE) as client:
        with pytest.raises(NotSent) as failed:
            await client.orders.create(order(), once="table-7/1")

    text = "".join(traceback.TracebackException.from_exception(failed.value, capture_locals=True).format())
    assert "engine.py" in text
    assert "-".join(auth.parts) not in text


async def test_a_journaled_call_needs_a_bound_for_its_attempts(journal, connect, platform: Platform) -> None:
    """A lease has to outlive each attempt: one without an end would outlive every lease."""
    async with connect(journal(), timeout=Timeout(attempt=None)) as client:
        with pytest.raises(RequestInvalid, match="must be bounded for a journaled call") as rejected:
            await client.orders.create(order(), once="table-7/1")

    assert ("timeout.attempt", []) == (rejected.value.path, platform.posts)


async def test_a_record_may_end_at_a_moment(journal, connect, platform: Platform, clock: FakeClock) -> None:
    """`not_after` may be a moment, with its offset: a local time would be another moment on each machine."""
    store = journal()
    moment = datetime.fromtimestamp(clock.now() + 30, UTC)
    async with connect(store) as client:
        await client.orders.create(order(), once="table-7/1", not_after=moment)
        ends = (await store.get(KEY)).not_after
        with pytest.raises(RequestInvalid, match="with its offset") as rejected:
            await client.orders.create(order(), once="table-7/2", not_after=moment.replace(tzinfo=None))

    assert (moment.timestamp(), "not_after", 1) == (ends, rejected.value.path, len(platform.posts))


async def test_observers_learn_how_old_a_record_has_become(journal, connect, platform: Platform, clock) -> None:
    """From its beginning to its end, in the platform's time, which responses tell to the second."""
    resolutions: list[RecordResolved] = []

    def slow(request: Request) -> Response:
        clock.advance(30.0 if request.method == "POST" else 0.0)
        return platform(request)

    def observe(event: object) -> None:
        if isinstance(event, RecordResolved):
            resolutions.append(event)

    async with connect(journal(), slow, observers=[observe], timeout=Timeout(attempt=60.0)) as client:
        await client.orders.create(order(), once="table-7/1")

    [resolved] = resolutions
    assert 29.0 <= resolved.age <= 32.0


async def test_recovery_sends_the_headers_of_the_call(journal, connect, platform: Platform, clock) -> None:
    """What the caller gave with the call belongs to the request, and is kept with its bytes."""
    tills: list[str | None] = []

    def down(request: Request) -> Response:
        if request.method == "POST":
            tills.append(request.headers.get("X-Till"))
            return Response(503)
        return platform(request)

    create = OPERATIONS["orders.create"]
    async with connect(journal(), down, retry=RetryPolicy(attempts=1)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call(create, order(), once="table-7/1", headers={"X-Till": "7"})
        clock.advance(61)
        await client.recover()

    assert {"7"} == set(tills)
    assert len(tills) > 1


async def test_what_is_kept_of_the_headers_of_a_response(journal, connect, platform: Platform) -> None:
    """Of a response that is told once more there are three header fields: others may hold credentials."""

    def answer(request: Request) -> Response:
        response = platform(request)
        more = {"Content-Type": "application/json", "X-Request-Id": "r-1", "Set-Cookie": "session=1"}
        return Response(response.status, {**response.headers, **more}, response.body)

    async with connect(journal(), answer) as client:
        create = OPERATIONS["orders.create"]
        first = await client.call(create, order(), once="table-7/1")
        again = await client.call(create, order(), once="table-7/1")

    assert {"Date", "Content-Type", "X-Request-Id"} == set(again.headers)
    assert ("r-1", first.headers["Date"], 0) == (again.request_id, again.headers["Date"], again.attempts)


@pytest.mark.parametrize("headers", [{"X-Request-Id": "caf\udce9"}, {"x-request-id": 5}, None])
@pytest.mark.parametrize("status", [201, 400])
async def test_header_fields_that_are_no_text_lose_no_outcome(
    journal, connect, platform: Platform, headers: Mapping[str, str] | None, status: int
) -> None:
    """A gateway may send bytes that are no UTF-8, and a transport of one's own anything: what came of it is kept."""
    rejected = b'{"errors":[{"code":"property_value","message":"no"}]}'

    def answer(request: Request) -> Response:
        response = platform(request)
        if request.method == "GET":  # It tells the time.
            return response
        return Response(status, headers, response.body if status == 201 else rejected)

    async with connect(journal(), answer) as client:
        for _ in range(2):
            with nullcontext() if status == 201 else pytest.raises(BadRequest):
                await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.posts)


async def test_a_call_that_is_cancelled_as_its_lease_is_refreshed_sends_nothing(
    journal, connect, platform: Platform, clock: FakeClock, until
) -> None:
    """The journal may take its time: a call that gave up meanwhile must not go out, and gives its turn back."""
    store = journal()
    renewing = asyncio.Event()

    async def renew(key: str, *, owner: str, lease: float) -> Record:
        renewing.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connect(store, timeout=Timeout(total=None, attempt=100)) as client:
        store.begin = late(store.begin, clock)
        store.renew = renew
        call = asyncio.ensure_future(client.orders.create(order(), once="table-7/1"))
        await until(renewing.is_set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert [] == platform.posts


def late(begin, clock: FakeClock):
    """Have a record begun so late that its lease does not cover an attempt any more."""

    async def run(*arguments: object, **more: object):
        begun = await begin(*arguments, **more)
        clock.advance(150)
        return begun

    return run


def test_nothing_waits_for_a_write_of_a_loop_that_is_closed(journal, clock: FakeClock, platform: Platform) -> None:
    """The loop ends with its one call, whose record was to be closed after that: no later call waits for it."""
    client = PaymentsClient(TOKEN, base_url=URL, journal=journal(), clock=clock, transport=MemoryTransport(platform))
    ids = []
    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # It tells of the write that is left.
        ids.append(loop.run_until_complete(client.orders.create(order(), once="table-7/1")).id)
        loop.close()

    with asyncio.Runner() as runner:
        runner.run(client.aclose())

    assert ["ORD0"] * 2 == ids


#: Two processes that are forked with one client: each says as whom it begins a record, in a journal of its own kind.
FORKED = """
import asyncio, os
from paymentsdk import JournalUnavailable, PaymentsClient
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import TOKEN, URL, Platform, order

class Remote:
    async def get(self, key):
        return None

    async def begin(self, record, *, lease):
        print(record.owner, flush=True)
        raise JournalUnavailable("it is elsewhere")

    async def records(self, among, *, limit, path="", containing=b""):
        return []

    renew = resolve = claim = begin

    async def aclose(self):
        pass

async def main():
    async with client:
        try:
            await client.orders.create(order(), once="table-7/1")
        except JournalUnavailable:
            pass

client = PaymentsClient(TOKEN, base_url=URL, journal=Remote(), transport=MemoryTransport(Platform(FakeClock())))
for _ in range(2):
    if not os.fork():
        asyncio.run(main())
        os._exit(0)
    os.wait()
"""


def test_processes_that_were_forked_are_two_owners() -> None:
    """One client may have been made before: a record that one of them holds is not that of the other."""
    process = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=PATIENCE
    )

    assert 2 == len(set(process.stdout.split())), process.stderr


@pytest.mark.parametrize("error", [OSError("no"), asyncio.CancelledError()], ids=["raises", "cancelled"])
async def test_the_journal_is_closed_also_if_the_transport_cannot_be(journal, connect, error: BaseException) -> None:
    """Else its file would stay open: closing once more would fail in the same way."""
    store, closed = journal(), []

    class Stuck(MemoryTransport):
        async def aclose(self) -> None:
            raise error

    async def close() -> None:
        closed.append(True)
        await Journal.aclose(store)

    store.aclose = close
    with pytest.raises(type(error)):
        await connect(store, transport=Stuck()).aclose()

    assert [True] == closed
