"""An inbox has each resource looked at after each message, by one worker at a time, until that has succeeded."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest

from paymentsdk import RequestInvalid
from paymentsdk._database import close_shared
from paymentsdk.resources.orders import GET, Order
from paymentsdk.webhooks import Inbox, InboxDepth, InboxRow, Look, state_of
from tests.webhooks.shop import Shop

Until = Callable[[Callable[[], object]], Awaitable[None]]
EVERY = 0.005
START = 1_777_896_000.0
NOON = datetime.fromtimestamp(START, UTC)
#: What a fence raises, by the driver.
REJECTED = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)


class World:
    """A clock that a test moves, an inbox, and the looks of its handler so far."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.now = START
        self.looks: list[Look] = []
        self.inbox = self.another()

    def another(self, **settings: object) -> Inbox:
        """Return an inbox of the same database, as another process has one."""
        return Inbox(self.database, now=self.time, **settings)

    def time(self) -> float:
        """The clock of the database."""
        return self.now

    async def note(self, look: Look) -> None:
        """Handle a look."""
        self.looks.append(look)

    async def is_at(self, status: str) -> None:
        """Wait until the one row has a status."""
        await self.wait(lambda rows: [row.status for row in rows] == [status])

    async def is_quiet(self) -> None:
        """Wait until nothing waits and nothing is in hand."""
        await self.wait(lambda rows: not {"waiting", "in hand"} & {row.status for row in rows})

    async def wait(self, condition: Callable[[list[InboxRow]], bool], **which: object) -> None:
        """Wait until *condition* is true of the rows."""
        for _ in range(2000):
            if condition(rows := await self.inbox.rows(**which)):
                return
            await asyncio.sleep(EVERY)
        pytest.fail(f"never: {rows}")


@pytest.fixture
def world(database: str) -> World:
    """A world with an inbox in each database."""
    return World(database)


async def test_looks_that_wait_are_merged(world: World) -> None:
    """Three messages about a resource before its look are one look; another seller's has its own."""
    for seller in ("77", "77", "78", "77"):
        await world.another().put(seller, "orders", "ORD1")

    assert await world.inbox.depth() == InboxDepth(waiting=2, in_hand=0, failed=0, oldest=0.0)
    async with world.inbox.handling(world.note, every=EVERY):
        await world.is_quiet()

    assert sorted((look.seller, look.topic, look.id, look.attempt) for look in world.looks) == [
        ("77", "orders", "ORD1", 1),
        ("78", "orders", "ORD1", 1),
    ]


async def test_a_message_during_a_look_leads_to_another(world: World) -> None:
    """What a look has read may be older than the message: the resource is read again, by one worker at a time."""
    under_way = 0

    async def handle(look: Look) -> None:
        nonlocal under_way
        under_way += 1
        await world.note(look)
        if len(world.looks) <= 2:
            await world.inbox.put("77", "orders", "ORD1")
        assert under_way == 1
        under_way -= 1

    await world.inbox.put("77", "orders", "ORD1")
    async with world.inbox.handling(handle, every=EVERY), world.another().handling(handle, every=EVERY):
        await world.is_quiet()

    assert [look.attempt for look in world.looks] == [1, 1, 1]


async def test_a_look_that_is_due_later_is_made_then(world: World, until: Until) -> None:
    """The first and the last moment lead to a look, also without a message; putting one once more changes nothing."""
    moments = [NOON + timedelta(minutes=minutes) for minutes in (15, 5, 15)]
    for due in moments:
        await world.inbox.put("77", "orders", "ORD1", due=due)
    assert await world.inbox.depth() == InboxDepth(waiting=0, in_hand=0, failed=0, oldest=None)

    async with world.inbox.handling(world.note, every=EVERY):
        for number, due in enumerate(sorted({*moments}), 1):
            [row] = await world.inbox.rows()
            assert (row.status, row.due) == ("scheduled", due)
            assert len(world.looks) == number - 1
            world.now = due.timestamp()
            await until(lambda number=number: len(world.looks) == number)
            await world.is_quiet()

    assert await world.inbox.rows() == []
    [row] = await world.inbox.rows(id="ORD1")
    assert (row.status, row.due) == ("at rest", None)


async def test_a_look_for_a_message_replaces_none_at_a_moment_to_come(world: World, until: Until) -> None:
    """So an order whose next notification is lost is read when it was put for, also if that was put during a look."""
    soon, late, last = (NOON + timedelta(minutes=minutes) for minutes in (5, 10, 100))

    async def handle(look: Look) -> None:
        if world.looks:
            await world.inbox.put("77", "orders", "ORD1", due=soon)
        await world.note(look)

    for due in (late, last, None):
        await world.inbox.put("77", "orders", "ORD1", due=due)
    async with world.inbox.handling(handle, every=EVERY):
        await world.is_at("scheduled")
        assert [row.due for row in await world.inbox.rows()] == [late]
        await world.inbox.put("77", "orders", "ORD1")
        await until(lambda: len(world.looks) == 2)
        await world.is_at("scheduled")
        assert [row.due for row in await world.inbox.rows()] == [soon]


async def test_a_handler_that_panics_ends_no_other_look(world: World) -> None:
    """A panic of a library in Rust is no `Exception`: the look has failed, and the worker goes on."""

    class Panic(BaseException):
        """As such a library raises it."""

    async def handle(look: Look) -> None:
        await world.note(look)
        if look.id == "ORD1":
            raise Panic

    async with world.inbox.handling(handle, every=EVERY):
        await world.inbox.put("77", "orders", "ORD1")
        await world.wait(lambda rows: rows and rows[0].reason)
        await world.inbox.put("77", "orders", "ORD2")
        await world.wait(lambda rows: [row.id for row in rows] == ["ORD1"])

    assert [look.id for look in world.looks] == ["ORD1", "ORD2"]


async def test_a_look_that_fails_is_tried_again_then_waits_for_a_person(
    world: World, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """The pauses double, up to an hour. After 20 tries the row has failed, whatever comes in, until it is retried."""
    began = []

    async def handle(look: Look) -> None:
        began.append(world.now)
        raise ValueError("the password is hunter2")

    await world.inbox.put("77", "orders", "ORD1")
    async with world.inbox.handling(handle, every=EVERY):
        for number in range(1, 21):
            await until(lambda number=number: len(began) == number)
            await world.is_at("waiting" if number < 20 else "failed")
            await world.inbox.put("77", "orders", "ORD1")
            [row] = await world.inbox.rows()
            assert await world.inbox.rows(failed=True) == ([] if number < 20 else [row])
            if number < 20:
                world.now = row.due.timestamp() + 0.001
        assert await world.inbox.depth() == InboxDepth(waiting=0, in_hand=0, failed=1, oldest=None)
        assert (row.due, row.attempt) == (None, 20)

        assert not await world.inbox.retry("77", "orders", "ORD2")
        assert await world.inbox.retry("77", "orders", "ORD1")
        await until(lambda: len(began) == 21)

    pauses = [after - before for before, after in pairwise(began)]
    assert pauses[:3] == pytest.approx([0.006, 0.011, 0.021], abs=0.001)
    assert max(pauses) == pytest.approx(EVERY * 2**18, abs=0.01)
    assert "hunter2" not in caplog.text + row.reason
    assert "ValueError" in row.reason
    assert "has failed 20 times and waits for `paymentsdk inbox retry`" in caplog.text


async def test_a_look_is_cancelled_at_the_end_of_its_lease(database: str, until: Until, caplog: object) -> None:
    """So there is one at a time: the next one begins after it."""
    inbox, tries = Inbox(database, lease=0.05), []

    async def handle(look: Look) -> None:
        tries.append(look.attempt)
        if look.attempt == 1:
            await asyncio.Event().wait()

    await inbox.put("77", "orders", "ORD1")
    async with inbox.handling(handle, every=EVERY):
        await until(lambda: len(tries) == 2)

    assert tries == [1, 2]
    assert "it took longer than its lease, 0.05 s" in caplog.text


async def test_another_worker_takes_over_after_the_lease(world: World, shop: Shop, until: Until) -> None:
    """What a stopped process had is looked at by another one; when the first goes on, its fence fails."""
    lost, go_on = [], asyncio.Event()

    async def stopped(look: Look) -> None:
        await go_on.wait()
        try:
            await shop.work(look, "processed", NOON)
        except REJECTED as error:
            lost.append(error)
            raise

    await world.inbox.put("77", "orders", "ORD1")
    async with world.another(lease=86_400).handling(stopped, every=EVERY, in_flight=1):
        await world.is_at("in hand")
        world.now += 86_401
        async with world.inbox.handling(world.note, every=EVERY):
            await until(lambda: world.looks)
            await world.is_quiet()
        go_on.set()
        await until(lambda: lost)

    assert [look.attempt for look in world.looks] == [2]
    assert await shop.sales() == []
    [row] = await world.inbox.rows(id="ORD1")
    assert (row.status, row.reason, row.handled) == ("at rest", "", ())


async def test_a_state_is_handled_once(world: World, shop: Shop) -> None:
    """The fence of a handled state fails, and the work of its transaction is rolled back; the look is done."""
    errors = []

    async def handle(look: Look) -> None:
        await world.note(look)
        try:
            await shop.work(look, "processed", NOON)
        except REJECTED as error:
            errors.append(error)
            raise

    async with world.inbox.handling(handle, every=EVERY):
        for number in (1, 2):
            await world.inbox.put("77", "orders", "ORD1")
            await world.is_quiet()
            assert len(world.looks) == number

    assert await shop.sales() == [("ORD1", "processed")]
    assert len(errors) == 1
    [row] = await world.inbox.rows(id="ORD1")
    assert (row.status, row.attempt, row.handled) == ("at rest", 0, ("processed",))


async def test_an_older_state_is_not_handled_after_a_later_one(world: World, shop: Shop, until: Until) -> None:
    """A stale read fails, and the resource is looked at again after a pause; a look without a date has no order."""
    at = datetime.fromtimestamp(1849331417.833269, UTC)  # SQLite reads this number with an error in its last bit.
    reads = [("refunded", at), ("processed", at - timedelta(microseconds=1)), ("settled", at), ("closed", None)]

    async def handle(look: Look) -> None:
        state, updated = reads[len(world.looks)]
        await world.note(look)
        assert await look.is_new(state, updated) is (state != "processed")
        await shop.work(look, state, updated)

    async with world.inbox.handling(handle, every=EVERY):
        await world.inbox.put("77", "orders", "ORD1")
        await world.is_quiet()
        await world.inbox.put("77", "orders", "ORD1")
        await until(lambda: len(world.looks) == 2)
        await world.is_at("waiting")
        world.now += 1
        await world.is_quiet()
        await world.inbox.put("77", "orders", "ORD1")
        await world.is_quiet()

    assert [look.attempt for look in world.looks] == [1, 1, 2, 1]
    assert await shop.sales() == [("ORD1", "refunded"), ("ORD1", "settled"), ("ORD1", "closed")]


async def test_a_handler_that_does_not_commit_has_failed(
    world: World, shop: Shop, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Its work is gone, so the resource is looked at again."""

    async def handle(look: Look) -> None:
        statement = look.fence("processed", NOON)
        await world.note(look)
        if look.attempt == 2:
            await shop.run(statement, "INSERT INTO sale VALUES ('ORD1', 'processed')")

    await world.inbox.put("77", "orders", "ORD1")
    async with world.inbox.handling(handle, every=EVERY):
        await until(lambda: world.looks)
        await world.is_at("waiting")
        world.now += 1
        await world.is_quiet()

    assert await shop.sales() == [("ORD1", "processed")]
    assert "attempt=1) is tried again: its fence was not committed" in caplog.text


async def test_the_end_waits_for_looks_and_begins_none(world: World, until: Until) -> None:
    """A look that is under way at the end of the context is finished; the next resource stays for another worker."""
    go_on, finished = asyncio.Event(), []

    async def handle(look: Look) -> None:
        await world.note(look)
        await go_on.wait()
        finished.append(look.id)

    await world.inbox.put("77", "orders", "ORD1")
    async with world.inbox.handling(handle, every=EVERY, in_flight=1):
        await until(lambda: world.looks)
        await world.inbox.put("77", "orders", "ORD2")
        asyncio.get_running_loop().call_soon(go_on.set)

    assert finished == ["ORD1"]
    [row] = await world.inbox.rows()
    assert (row.id, row.status, row.attempt) == ("ORD2", "waiting", 0)


async def test_a_look_that_is_cancelled_is_given_back(world: World, until: Until) -> None:
    """A caller that does not wait for the end cancels the looks; no lease holds them."""

    async def work() -> None:
        async with world.inbox.handling(handle, every=EVERY):
            await asyncio.Event().wait()

    async def handle(look: Look) -> None:
        await world.note(look)
        await asyncio.Event().wait()

    await world.inbox.put("77", "orders", "ORD1")
    task = asyncio.ensure_future(work())
    await until(lambda: world.looks)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((task,))

    [row] = await world.inbox.rows()
    assert (row.status, row.attempt) == ("waiting", 1)


async def test_rows_at_rest_are_removed_and_fences_stay(world: World, shop: Shop, until: Until) -> None:
    """After `keep` a row goes. A replay months later still finds that its state was handled."""

    async def handle(look: Look) -> None:
        await world.note(look)
        if await look.is_new("processed", NOON):
            await shop.work(look, "processed", NOON)

    inbox = world.another(keep=timedelta(days=1))
    await inbox.put("77", "orders", "ORD1")
    async with inbox.handling(handle, every=EVERY):
        await world.is_quiet()
    world.now += 86_401
    async with inbox.handling(handle, every=EVERY):
        await world.wait(lambda rows: not rows, id="ORD1")
        await inbox.put("77", "orders", "ORD1")
        await until(lambda: len(world.looks) == 2)
        await world.is_quiet()

    assert await shop.sales() == [("ORD1", "processed")]


async def test_a_look_reads_no_rows_that_are_not_due(dsn: str, until: Until) -> None:
    """Rows are kept for 90 days, at rest or for a moment to come: searches do not become slower."""
    inbox, shop, looks, number = Inbox(dsn), Shop(dsn), [], 10_000

    async def handle(look: Look) -> None:
        looks.append(look)

    for due in (NOON.replace(year=2099), None):
        await asyncio.gather(*(inbox.put("77", "orders", f"{due}".split()[0] + str(n), due=due) for n in range(number)))
    await shop.run("UPDATE paymentsdk_inbox SET ready = NULL WHERE id LIKE 'None%'")
    await shop.run("ANALYZE paymentsdk_inbox")
    async with inbox.handling(handle):
        for count in range(5):
            await inbox.put("77", "orders", "ORD1")
            await until(lambda count=count: len(looks) > count)
    await close_shared()  # The server counts what a connection has read when it ends.

    reads = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'paymentsdk_inbox'::regclass"
    [(read,)] = await shop.run(reads)
    assert read < 4 * number  # The UPDATE has read all 20,000; five looks that read as many would make it 120,000.


async def test_settings_are_checked(tmp_path: Path) -> None:
    """Settings that make no sense are rejected before anything is kept, and moments need a time zone."""
    for settings in ({"lease": 0}, {"keep": timedelta(0)}, {"keep": 7}):
        with pytest.raises(RequestInvalid) as caught:
            Inbox(tmp_path / "shop.db", **settings)
        # With variables: the half-made inbox has to show itself.
        traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    inbox = Inbox(tmp_path / "shop.db")
    with pytest.raises(RequestInvalid, match="due: must have a time zone"):
        await inbox.put("77", "orders", "ORD1", due=NOON.replace(tzinfo=None))
    for settings in ({"in_flight": 0}, {"every": 0}):
        with pytest.raises(RequestInvalid):
            await inbox.handling(None, **settings).__aenter__()


async def test_tables_of_another_version_are_rejected(database: str, shop: Shop) -> None:
    """Nothing is written to a table whose form is not known."""
    await shop.run("CREATE TABLE paymentsdk_inbox (id text)")
    with pytest.raises(ConnectionError, match=r"paymentsdk_inbox"):
        await Inbox(database).put("77", "orders", "ORD1")


async def test_what_cannot_be_kept_raises(tmp_path: Path) -> None:
    """The receiver answers 503 then, and the platform sends the message again. A worker goes on."""
    for database in (str(tmp_path / "none" / "shop.db"), "postgresql://u:secret@127.0.0.1:1/x?connect_timeout=1"):
        inbox = Inbox(database)
        with pytest.raises(ConnectionError) as caught:
            await inbox.put("77", "orders", "ORD1")
        assert "secret" not in f"{caught.value}{inbox!r}"


async def test_a_worker_outlives_its_database(tmp_path: Path, until: Until, caplog: pytest.LogCaptureFixture) -> None:
    """While the database cannot be used, the worker asks again; then it goes on."""
    inbox, looks = Inbox(tmp_path / "data" / "shop.db"), []

    async def handle(look: Look) -> None:
        looks.append(look)

    async with inbox.handling(handle, every=EVERY):
        await until(lambda: "unable to open database file" in caplog.text)
        (tmp_path / "data").mkdir()
        await inbox.put("77", "orders", "ORD1")
        await until(lambda: looks)


@pytest.mark.parametrize("level", ["read_committed", "serializable"])
async def test_states_of_two_workers_are_handled_in_order(dsn: str, level: str) -> None:
    """Whatever the isolation: of two fences at the same time, the second fails, and is tried again."""
    world, looks = World(dsn), asyncio.Queue()
    shop, go_on = Shop(dsn), asyncio.Event()
    await shop.start()

    async def handle(look: Look) -> None:
        await looks.put(look)
        await go_on.wait()

    await world.inbox.put("77", "orders", "ORD1")
    first, second = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    async with world.inbox.handling(handle, every=EVERY):
        old = await looks.get()
        slow = first.transaction(isolation=level)
        await slow.start()
        await first.execute(old.fence("processed", NOON))
        world.now += 61
        new = await looks.get()
        fast = second.transaction(isolation=level)
        await fast.start()
        waiting = asyncio.ensure_future(second.execute(new.fence("refunded", NOON + timedelta(seconds=1))))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await slow.commit()
        with pytest.raises((asyncpg.UniqueViolationError, asyncpg.SerializationError)):
            await waiting
        await fast.rollback()
        again = second.transaction(isolation=level)
        await again.start()
        await second.execute(new.fence("refunded", NOON + timedelta(seconds=1)))
        await again.commit()
        go_on.set()
    await first.close()
    await second.close()

    assert (old.attempt, new.attempt) == (1, 2)
    [row] = await world.inbox.rows(id="ORD1")
    assert row.handled == ("processed", "refunded")


def order(**members: object) -> Order:
    """Return an order as the platform sends it."""
    import msgspec

    return GET.decode(msgspec.json.encode({"id": "ORD1", **members}))[0]


def test_the_state_of_an_order_has_its_refunds() -> None:
    """Each refund with its status, in one order; of many refunds, a hash that changes with each."""
    refunds = [{"id": f"REF{number}", "status": "processed"} for number in range(100)]
    paid = order(status="processed", status_detail="accredited")
    orders = [
        order(status="processed", status_detail="partially_refunded", transactions={"refunds": refunds[:number]})
        for number in (2, 20, 21)
    ]

    assert state_of(paid) == "processed/accredited"
    assert state_of(orders[0]) == "processed/partially_refunded,REF0=processed,REF1=processed"
    assert len({len(state_of(order)) for order in orders[1:]} | {64}) == 1
    assert state_of(orders[1]) != state_of(orders[2])
    assert state_of(order()) == "None/None"
