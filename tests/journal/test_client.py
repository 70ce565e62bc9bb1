"""Journaled writes through the client: `once=`, `not_after=`, `defer=`, and recovery, over a real SQLite file."""

from __future__ import annotations

import asyncio
import pickle
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from paymentsdk import (
    OPERATIONS,
    Deferred,
    InProgress,
    JournalUnavailable,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    ReauthorizationRequired,
    RecordConflict,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
)
from paymentsdk.events import Event
from paymentsdk.journal import RecordState, derive_key
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.orders import CREATE
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.conftest import PATIENCE
from tests.journal.platform import ONCE, TOKEN, URL, Platform, World, order


async def test_the_same_name_returns_the_finished_order(start, platform: Platform) -> None:
    """A second call with the name, also of another process, sends nothing and returns the first one's order."""
    client = start()
    first = await client.orders.create(order(), once="table-7/1")
    await client.aclose()

    assert first == await start().orders.create(order(), once="table-7/1")
    assert 1 == len(platform.posts)


async def test_a_result_says_how_old_a_kept_response_is(start, platform: Platform, clock: FakeClock) -> None:
    """A till must not show the code of an order that has expired since: the response is the first one."""
    now = clock.now()
    async with start() as client:
        first = await client.call(CREATE, order(), once="table-7/1")
    clock.advance(86_400)
    async with start() as client:
        again = await client.call(CREATE, order(), once="table-7/1")
        second = await client.call(CREATE, order(), once="table-7/2")

    assert (None, None) == (first.kept_at, second.kept_at)
    assert now <= again.kept_at.timestamp() <= now + 60.0
    assert first.value == again.value


async def test_observers_learn_the_key_with_the_first_attempt(start, platform: Platform) -> None:
    """It is derived from the name; a call that its record responds to makes no attempt, and tells nobody."""
    reports: list[Event] = []
    client = start(observers=[reports.append])
    for _ in range(2):
        await client.orders.create(order(), once="table-7/1")
    of_orders = [event for event in reports if getattr(event, "operation", None) == "orders.create"]
    key = derive_key(URL, "77", "orders.create", "table-7/1")
    events = ["CallStarted", "AttemptStarted", "AttemptEnded", "CallEnded", "RecordResolved"]

    assert [(name, key) for name in events] == [(type(event).__name__, event.idempotency_key) for event in of_orders]


async def test_a_conflict_leads_to_the_kept_bytes_and_not_to_a_second_order(start, platform: Platform) -> None:
    """After a deploy that changes a description, the same sale has other bytes: recovery sends those that were kept."""
    platform.lose = True
    async with start(retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once="table-7/1")
    platform.lose = False
    async with start() as client:
        with pytest.raises(RecordConflict) as raised:
            await client.orders.create(order(price="10.51"), once="table-7/1")
        await client.recover()
        await client.orders.create(order(), once="table-7/1")

    assert 1 == len(platform.made)
    assert "do not rename the same sale: client.recover() finishes the kept request" in str(raised.value)


async def test_a_lost_response_is_recovered_with_the_same_key_and_bytes(start, platform: Platform, clock) -> None:
    """Recovery sends what is in doubt once more, and the platform repeats what it did: one order."""
    platform.lose = True
    client = start(retry=ONCE)
    with pytest.raises(OutcomeUnknown):
        await client.orders.create(order(), once="table-7/1")
    await client.aclose()
    platform.lose = False

    again = start()
    summary = await again.recover()

    assert {RecordState.DONE: 1} == dict(summary.resolved)
    assert summary.is_complete
    assert 1 == len(platform.made)
    assert 1 == len({request.body for request in platform.posts})
    assert "ORD0" == (await again.orders.create(order(), once="table-7/1")).id


async def test_what_was_not_sent_may_be_sent_again(start, platform: Platform) -> None:
    """A call that is told `NotSent` may be repeated under its name."""
    platform.is_away, client = True, start(retry=ONCE)
    with pytest.raises(NotSent):
        await client.orders.create(order(), once="table-7/1")
    platform.is_away = False

    assert "ORD0" == (await client.orders.create(order(), once="table-7/1")).id


async def test_deferred_is_left_to_recovery(start, platform: Platform) -> None:
    """With `defer`, what could not be sent is no `NotSent`: recovery sends it, though one before has reached nobody."""
    platform.is_away, client = True, start(retry=ONCE)
    with pytest.raises(Deferred) as deferred:
        await client.orders.create(order(), once="table-7/1", defer=True)
    assert not isinstance(deferred.value, NotSent)
    assert {RecordState.DEFERRED: 1} == dict((await client.recover()).resolved)
    platform.is_away = False

    assert {RecordState.DONE: 1} == dict((await client.recover()).resolved)
    assert 1 == len(platform.made)


async def test_another_sellers_token_sends_nothing(start, platform: Platform) -> None:
    """A record belongs to a seller of the platform: under another user's token it would be a second order."""
    platform.lose = True
    client = start(retry=ONCE)
    with pytest.raises(OutcomeUnknown):
        await client.orders.create(order(), once="table-7/1")
    platform.lose = False
    sent = len(platform.posts)

    summary = await start("APP_USR-9001-112304-0123456789abcdef-78").recover()

    assert sent == len(platform.posts)
    assert 1 == len(summary.left)


async def test_a_write_without_a_key_is_never_sent_twice(start, platform: Platform) -> None:
    """A customer in doubt stays in doubt, whatever the policy of retries: recovery leaves the record to a person.

    So does a second call. Neither error advises to send it with a key, which it does not take.
    """
    platform.lose = True
    client = start(retry=RetryPolicy(retry_unkeyed=True))
    with pytest.raises(OutcomeUnknown) as first:
        await client.customers.create(CustomerRequest(email="ann@example.com"), once="ann")
    platform.lose = False
    summary = await client.recover()
    with pytest.raises(OutcomeUnknown) as second:
        await client.customers.create(CustomerRequest(email="ann@example.com"), once="ann")

    assert (1, ["ann"]) == (len(platform.posts), [row.name for row in summary.left])
    for error in (first.value, second.value):
        assert error.idempotency_key is None
        assert error.advice == f"its name does not resend it; without it, {OPERATIONS['customers.create'].in_doubt}"


async def test_an_unknown_outcome_of_a_named_write_leads_back_to_its_name(start, platform: Platform) -> None:
    """Its error does not advise to send it with its key alone: that would go round the record, and `not_after`."""
    platform.lose = True
    client = start(retry=ONCE)
    with pytest.raises(OutcomeUnknown) as raised:
        await client.orders.create(order(), once="table-7/1")

    error = pickle.loads(pickle.dumps(raised.value))
    assert "table-7/1" == error.once
    assert "once='table-7/1'" in error.advice
    assert "idempotency_key" not in str(error)


async def test_a_deferred_write_without_a_key_is_sent_by_recovery(start, platform: Platform) -> None:
    """Nothing was sent of it, so that it is sent for the first time; once it is in doubt, nobody sends it again."""
    platform.is_away, client = True, start(retry=ONCE)
    ann = CustomerRequest(email="ann@example.com")
    with pytest.raises(Deferred):
        await client.customers.create(ann, once="ann", defer=True, not_after=timedelta(hours=1))
    platform.is_away, platform.lose = False, True

    assert {RecordState.UNKNOWN: 1} == dict((await client.recover()).resolved)
    assert {} == dict((await client.recover()).resolved)
    assert 1 == len(platform.posts)


async def test_what_is_deferred_is_given_up_by_a_call_that_does_not_defer(start, platform: Platform) -> None:
    """To call again with the name is to try it: `defer=True` says once more that recovery may send it later."""
    platform.is_away, client = True, start(retry=ONCE)
    for defer, state in ((True, RecordState.DEFERRED), (True, RecordState.DEFERRED), (False, RecordState.NOT_SENT)):
        with pytest.raises(Deferred if defer else NotSent):
            await client.orders.create(order(), once="table-7/1", defer=defer)
        assert [state] == [row.state for row in await client.journal.records(set(RecordState))]


async def test_a_spent_grant_says_nothing_of_the_record(start, platform: Platform) -> None:
    """The write may have taken effect before the token ended: nobody may take its error for a rejection of it."""

    class Spent:
        def token(self, now: float) -> None:
            """See `Auth`."""

        async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
            raise ReauthorizationRequired(400, "invalid_grant")

    platform.lose = True
    with pytest.raises(OutcomeUnknown):
        await start(retry=ONCE).orders.create(order(), once="table-7/1")
    with pytest.raises(ReauthorizationRequired) as raised:
        await start(None, auth=Spent()).orders.create(order(), once="table-7/1")

    assert not raised.value.settled


async def test_a_journal_that_fails_sends_nothing(start, platform: Platform, tmp_path: Path) -> None:
    """Nothing goes out whose record is not durable."""
    client = start()
    await client.plans.search().collect()
    await client.journal.aclose()
    with pytest.raises(JournalUnavailable):
        await client.orders.create(order(), once="table-7/1")

    assert [] == platform.posts


async def test_a_call_of_another_living_process_is_in_progress(start, platform: Platform) -> None:
    """Who works on a record holds it by a lease: another process raises, recovers nothing, and sends nothing."""
    second, names, left = start(), [], []

    async def meanwhile(request: Request) -> Response:
        if request.method == "POST":
            with pytest.raises(InProgress) as raised:
                await second.orders.create(order(), once="table-7/1")
            names.append(raised.value.once)
            left.extend(row.name for row in (await second.recover()).left)
        return platform(request)

    await start(handler=meanwhile).orders.create(order(), once="table-7/1")

    assert ["table-7/1"] == names == left
    assert 1 == len(platform.posts)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"once": "a", "idempotency_key": "k"}, "once"),
        ({"once": ""}, "once"),
        ({"once": 7}, "once"),
        ({"not_after": timedelta(1)}, "once"),
        ({"defer": True}, "once"),
        ({"once": "a", "not_after": timedelta(0)}, "not_after"),
        ({"once": "a", "not_after": datetime(2030, 1, 1)}, "not_after"),  # noqa: DTZ001 - without an offset on purpose
    ],
)
async def test_options_that_make_no_sense_are_rejected(start, platform: Platform, options, path: str) -> None:
    """The error names the option, and nothing is sent."""
    with pytest.raises(RequestInvalid) as rejected:
        await start().orders.create(order(), **options)

    assert path == rejected.value.path
    assert [] == platform.posts


async def test_without_a_journal_a_name_is_rejected(platform: Platform, clock: FakeClock) -> None:
    """A name without a journal would promise what nobody keeps."""
    async with PaymentsClient(TOKEN, base_url=URL, clock=clock, transport=MemoryTransport(platform)) as client:
        with pytest.raises(RequestInvalid, match="journal"):
            await client.orders.create(order(), once="a")


async def test_recovery_in_the_background(start, world: World, platform: Platform, until) -> None:
    """As long as the context lasts, open records are carried out."""
    platform.lose = True
    client = start(retry=ONCE)
    with pytest.raises(OutcomeUnknown):
        await client.orders.create(order(), once="table-7/1")
    platform.lose = False
    async with client.recovery(every=5):
        await until(lambda: len(platform.posts) > 1)
        async with asyncio.timeout(PATIENCE):
            while [row.state for row in await world.rows()] != [RecordState.DONE]:
                pass

    assert 1 == len(platform.made)


async def test_what_stays_unknown_hides_nothing_younger(start, platform: Platform, clock: FakeClock) -> None:
    """More records than a batch that nobody can settle: recovery still comes to those behind them."""
    platform.lose, client = True, start(retry=ONCE)
    for number in range(18):
        if number == 17:
            clock.advance(16 * 60)
        with pytest.raises(OutcomeUnknown):
            await client.orders.create(order(), once=f"{number}")
    platform.lose = False

    assert {RecordState.UNKNOWN: 17, RecordState.DONE: 1} == dict((await client.recover()).resolved)
