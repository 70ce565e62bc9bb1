"""A record has an age by the store's clock and by the platform's: the larger counts. A wrong clock stops one record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

from paymentsdk import Deferred, OutcomeUnknown, PaymentsClient, Request, Response, SendFailed
from paymentsdk.journal import RecordState, SQLiteJournal
from tests.journal.platform import ONCE, World

HOUR = 3600.0
YEAR = 365 * 24 * HOUR
REFUNDED = b'{"id":"ORD1","status":"refunded","transactions":{"refunds":[{"id":"REF%d"}]}}'
UNKNOWN, DONE = RecordState.UNKNOWN, RecordState.DONE


class Clocks(World):
    """A world in which the platform, the journal and the processes each have a clock."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.handler = self.receive
        #: Seconds by which the clock of the journal is ahead, and the header fields that a cache adds.
        self.ahead = 0.0
        self.cached: dict[str, str] = {}
        self.methods: list[str] = []
        self.is_down = False

    def journal(self, kind: type[SQLiteJournal] = SQLiteJournal, **settings: object) -> SQLiteJournal:
        """Open the journal of one more process."""
        return kind(self.path, now=lambda: self.clock.now() + self.ahead, **settings)

    def connect(self, *arguments: object, **settings: object) -> PaymentsClient:
        """Start one more process."""
        return super().connect(*arguments, **{"retry": ONCE, **settings})

    def receive(self, request: Request) -> Response:
        """Respond to a request."""
        self.methods.append(request.method)
        if self.is_down:
            raise SendFailed("connection refused", sent=False)
        response = self.platform(request)
        body = response.body
        if response.status == 201:
            body = REFUNDED % [*self.platform.made].index(request.headers["X-Idempotency-Key"])
        return Response(response.status, {**response.headers, **self.cached}, body)

    async def lose(self, client: PaymentsClient, name: str) -> None:
        """Refund an order, whose response is lost."""
        self.platform.lose = True
        with pytest.raises(OutcomeUnknown):
            await client.orders.refund("ORD1", once=name)
        self.platform.lose = False

    async def refund_in_doubt(self, name: str = "refund") -> None:
        """Refund an order in a process that knows the platform's time, and hears nothing."""
        async with self.connect() as client:
            await client.plans.search().first()
            await self.lose(client, name)

    async def states(self) -> dict[str, RecordState]:
        """Return what the journal says, by name."""
        return {row.name: row.state for row in await self.rows()}


@pytest.fixture
def world(tmp_path: Path) -> Clocks:
    """A new one."""
    return Clocks(tmp_path / "payments.db")


# --- the larger age counts --------------------------------------------------------------------------------------------


async def assert_never_sent(world: Clocks) -> None:
    """Neither recovery nor a call by the name sends the refund again."""
    async with world.connect() as client:
        summary = await client.recover()
        with pytest.raises(OutcomeUnknown, match="not_after"):
            await client.orders.refund("ORD1", once="refund")

    assert {UNKNOWN: 1} == summary.resolved
    assert 1 == len(world.platform.posts)


@pytest.mark.control(
    "paymentsdk.journal._record.barred", around=lambda barred: lambda record, *ages: barred(record, ages[-1])
)
async def test_a_late_date_makes_no_record_younger(world: Clocks) -> None:
    """25 hours after a refund in doubt a `Date` is 3 hours late: the platform has forgotten the key."""
    await world.refund_in_doubt()
    world.clock.advance(25 * HOUR)
    world.platform.offset = -3 * HOUR

    await assert_never_sent(world)


def without_age(observe: Callable[..., None]) -> Callable[..., None]:
    """Take the `Date` of a cached response for that of a new one."""
    return lambda clock, headers: observe(clock, {"Date": headers.get("Date", "")})


@pytest.mark.control("paymentsdk.journal._platform_clock.PlatformClock.observe", around=without_age)
async def test_a_response_from_a_cache_is_as_old_as_its_age(world: Clocks) -> None:
    """The clock of the journal was set back by 3 hours, and a cache responds with a `Date` of 3 hours ago."""
    await world.refund_in_doubt()
    world.clock.advance(25 * HOUR)
    world.ahead, world.platform.offset, world.cached = -3 * HOUR, -3 * HOUR, {"Age": "10800"}

    await assert_never_sent(world)


# --- a wrong clock is the trouble of its record -----------------------------------------------------------------------


@pytest.mark.control("paymentsdk.journal._record.TOLERANCE", inf)
async def test_one_date_a_year_ahead_stops_one_record(world: Clocks) -> None:
    """What was begun by it is left to a person; other records, and new names, go on."""
    await world.refund_in_doubt("before")
    world.platform.offset = YEAR
    await world.refund_in_doubt("ahead")
    world.platform.offset = 0.0
    async with world.connect() as client:
        await world.lose(client, "after")
        summary = await client.recover()
        await client.orders.refund("ORD1", once="new")

    assert {DONE: 2, UNKNOWN: 1} == summary.resolved
    assert {"before": DONE, "ahead": UNKNOWN, "after": DONE, "new": DONE} == await world.states()
    assert 6 == len(world.platform.posts)


@pytest.mark.control("paymentsdk.journal._record.TOLERANCE", inf)
async def test_a_clock_of_the_journal_that_was_a_year_ahead_stops_one_record(world: Clocks) -> None:
    """Its lease restarts; other records, and new names, go on."""
    world.ahead = YEAR
    await world.refund_in_doubt("ahead")
    world.ahead = 0.0
    await world.refund_in_doubt("before")
    async with world.connect() as client:
        summary = await client.recover()
        await client.orders.refund("ORD1", once="new")

    assert {DONE: 1, UNKNOWN: 1} == summary.resolved
    assert {"ahead": UNKNOWN, "before": DONE, "new": DONE} == await world.states()


# --- what is read -----------------------------------------------------------------------------------------------------


async def test_a_new_name_reads_nothing(world: Clocks) -> None:
    """The first request is the write: also of a platform that tells no time, and of one that cannot be reached."""
    world.cached = {"Date": ""}
    async with world.connect() as client:
        await client.orders.refund("ORD1", once="refund")
    world.is_down = True
    async with world.connect() as client:
        with pytest.raises(Deferred, match="connection refused"):
            await client.orders.refund("ORD1", once="deferred", defer=True)

    assert ["POST", "POST"] == world.methods


Again = Callable[[PaymentsClient], object]


async def by_recovery(client: PaymentsClient) -> None:
    """Send it again by recovery."""
    await client.recover()


async def by_name(client: PaymentsClient) -> None:
    """Send it again by its name."""
    with suppress(OutcomeUnknown):
        await client.orders.refund("ORD1", once="refund")


@pytest.mark.parametrize("again", [by_recovery, by_name])
async def test_what_another_call_has_begun_waits_for_the_time(world: Clocks, again: Again) -> None:
    """Without a `Date` of the last 5 minutes one is read before; without one, the record stays as it is, and free."""
    await world.refund_in_doubt()
    async with world.connect() as client:
        world.methods.clear()
        world.is_down = True
        await again(client)
        assert ({"refund": UNKNOWN}, {"GET"}) == (await world.states(), {*world.methods})

        world.is_down = False
        world.methods.clear()
        await again(client)

    assert (["GET", "POST"], {"refund": DONE}) == (world.methods, await world.states())


@pytest.mark.control("paymentsdk.journal._platform_clock.PlatformClock.FRESH", inf)
@pytest.mark.parametrize("again", [by_recovery, by_name])
async def test_a_date_is_good_for_five_minutes(world: Clocks, again: Again) -> None:
    """Then the time is read once more."""
    await world.refund_in_doubt()
    async with world.connect() as client:
        await client.plans.search().first()
        for wait, expected in ((299, ["POST"]), (301, ["GET", "POST"])):
            world.clock.advance(wait)
            world.methods.clear()
            world.platform.lose = True
            with suppress(AssertionError):  # It hears nothing.
                await again(client)
            assert expected == world.methods
            await client.plans.search().first()
