"""A journal of one's own that raises what the contract does not have: callers hear what is known of their money."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from paymentsdk import (
    InProgress,
    OutcomeUnknown,
    PaymentsClient,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.journal import RecordState
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import ONCE, TOKEN, URL, Platform, order
from tests.journal.test_conformance import MemoryJournal

ERRORS = [OSError(28, "No space left on device"), KeyError("row"), AttributeError("connection")]


class Failing(MemoryJournal):
    """Raises *error* in some of its methods."""

    error: Exception
    fails: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> object:
        if name in object.__getattribute__(self, "fails"):
            return object.__getattribute__(self, "fail")
        return object.__getattribute__(self, name)

    async def fail(self, *_: object, **__: object) -> object:
        """Fail."""
        raise self.error


class Failed(Failing):
    """Raises before anything can be awaited, as a method does that is not async."""

    def fail(self, *_: object, **__: object) -> object:
        """Fail."""
        raise self.error


class HandsOver(Failing):
    """Returns a future that has failed already: awaited, it raises; looked at, its error was never raised."""

    def fail(self, *_: object, **__: object) -> object:
        """Fail."""
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(type(self.error)(*self.error.args))
        return failed


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest) -> Exception:
    """What the journal raises."""
    return request.param


@pytest.fixture(params=[Failing, Failed, HandsOver], ids=["async", "not async", "a future"])
def journal(request: pytest.FixtureRequest, clock: FakeClock, error: Exception) -> Failing:
    """A journal that keeps its records until it is told what fails."""
    journal = request.param({}, clock.now)
    journal.error = error
    return journal


@pytest.fixture
async def client(clock: FakeClock, platform: Platform, journal: Failing) -> AsyncIterator[PaymentsClient]:
    """A client with that journal, which knows the platform's time."""
    async with PaymentsClient(
        TOKEN, base_url=URL, clock=clock, transport=MemoryTransport(platform), journal=journal
    ) as client:
        await client.plans.search().collect()
        yield client


async def test_a_rejection_that_is_not_kept_is_in_doubt(
    client: PaymentsClient, journal: Failing, platform: Platform
) -> None:
    """Whoever were told "refused" must not find that recovery did it."""
    journal.fails = frozenset({"resolve"})
    platform.fail = lambda request: Response(402, {}, b'{"errors":[{"code":"x","message":"no"}]}')

    with pytest.raises(OutcomeUnknown):
        await client.with_options(retry=ONCE).orders.create(order(), once="table-7/1")


async def test_what_is_done_is_told_also_if_that_is_not_kept(client: PaymentsClient, journal: Failing, caplog) -> None:
    """The money has moved: what the journal raises then is logged, and whoever comes next waits for nothing."""
    journal.fails = frozenset({"resolve"})

    assert "ORD0" == (await client.orders.create(order(), once="table-7/1")).id

    journal.fails = frozenset()
    assert [RecordState.PENDING] == [row.state for row in journal.rows.values()]
    with pytest.raises(InProgress):
        await asyncio.wait_for(client.orders.create(order(), once="table-7/1"), 5)
    assert "a record could not be closed in the journal" in caplog.text


@pytest.mark.parametrize("journal", [Failing], indirect=True)
@pytest.mark.parametrize("error", [ERRORS[0]], indirect=True)
async def test_a_failing_log_blocks_no_call(client: PaymentsClient, journal: Failing) -> None:
    """A handler of the log that raises, as some do at a warning, leaves the record to whoever comes next."""
    journal.fails, errors = frozenset({"resolve"}), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    strict = logging.Handler(logging.WARNING)
    strict.emit = lambda record: 1 / 0
    logger = logging.getLogger("paymentsdk")
    logger.addHandler(strict)
    try:
        await client.orders.create(order(), once="table-7/1")
        with pytest.raises(InProgress):
            await asyncio.wait_for(client.orders.create(order(), once="table-7/1"), 5)
    finally:
        logger.removeHandler(strict)

    assert [ZeroDivisionError] == [type(raised) for raised in errors]


async def test_an_attempt_in_doubt_is_not_hidden(
    client: PaymentsClient, journal: Failing, platform: Platform, clock: FakeClock
) -> None:
    """A lease that cannot be renewed for a second attempt leaves the first one in doubt."""

    def lost(request: Request) -> Response:
        clock.advance(60.0)  # The lease is over.
        raise SendFailed("reset")

    platform.fail = lost
    journal.fails = frozenset({"renew"})
    hasty = client.with_options(retry=RetryPolicy(base_delay=0), timeout=Timeout(total=600))

    with pytest.raises(OutcomeUnknown):
        await hasty.orders.create(order(), once="table-7/1")
    assert 1 == len(platform.posts)
