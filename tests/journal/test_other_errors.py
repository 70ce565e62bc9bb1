"""A journal of one's own that raises what the contract does not have: callers hear what is known of their money."""

from __future__ import annotations

import asyncio
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


class Failing(MemoryJournal):
    """Raises an error in some of its methods."""

    fails: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> object:
        if name in object.__getattribute__(self, "fails"):
            return object.__getattribute__(self, "fail")
        return object.__getattribute__(self, name)

    async def fail(self, *_: object, **__: object) -> object:
        """Fail."""
        raise OSError(28, "No space left on device")


@pytest.fixture
def journal(clock: FakeClock) -> Failing:
    """A journal that keeps its records until it is told what fails."""
    return Failing({}, clock.now)


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
