"""A source of tokens keeps to its seller, gives each waiter an error of its own, and takes over later pairs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from paymentsdk import (
    APIError,
    Auth,
    MemoryTokenStore,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    Request,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.auth.platform import DAY, START, Platform
from tests.engine.issuer import Issuer
from tests.journal.platform import order

# --- sellers ----------------------------------------------------------------------------------------------------------


def pair(user: int, number: int = 1) -> TokenPair:
    """A pair of a seller, as the contract has it (4.1): it ends in a hundred days."""
    token = f"APP_USR-9001-112304-0123456789abcdef{number}-{user}"
    end, issued = START + 100 * DAY, START - 80 * DAY
    return TokenPair(access_token=token, refresh_token=f"TG-{user}", expires_at=end, issued_at=issued)


ANN, BOB = pair(77), pair(88)
ORDER = Response(200, {}, b'{"id":"ORD1"}')


class Overwritten:
    """A platform that loses the response to a write, and then takes the token for ended.

    Meanwhile somebody has put another pair into the store.
    """

    def __init__(self, store: MemoryTokenStore, by: TokenPair) -> None:
        self.store, self.by = store, by
        self.writers: list[str] = []
        self.refreshes = 0

    async def __call__(self, request: Request) -> Response:
        if request.url.endswith("/oauth/token"):
            self.refreshes += 1
            return Response(400, {}, b'{"error":"invalid_grant"}')
        self.writers.append(request.headers["Authorization"].rpartition("-")[2])
        if len(self.writers) == 1:
            await self.store.save(self.by)
            raise SendFailed("connection reset", sent=True)
        return Response(401) if len(self.writers) == 2 else Response(201, {}, b'{"id":"ORD1"}')


@pytest.mark.control("paymentsdk._auth.refresh.certain_user_id", lambda token: None, raises=AssertionError)
async def test_a_retry_carries_no_token_of_another_seller(make_client) -> None:
    """It would be a second order, of somebody else: the outcome of the first stays unknown, and nothing is spent."""
    store = MemoryTokenStore(ANN)
    platform = Overwritten(store, BOB)
    client = make_client(ANN, store=store, transport=MemoryTransport(platform))

    with pytest.raises(OutcomeUnknown, match="another seller: of user 88, not 77"):
        await client.orders.create(order())

    assert (["77", "77"], 0, BOB) == (platform.writers, platform.refreshes, await store.load())


async def test_a_retry_takes_the_next_pair_of_its_seller(make_client) -> None:
    """The control of the test: another process has refreshed the token."""
    store, later = MemoryTokenStore(ANN), pair(77, number=2)
    platform = Overwritten(store, replace(later, expires_at=START + 180 * DAY))
    client = make_client(ANN, store=store, transport=MemoryTransport(platform))

    await client.orders.create(order())

    assert ["77", "77", "77"] == platform.writers


class Mixed:
    """A platform that responds to a refresh of one seller with what it has issued to another."""

    def __init__(self, issued: TokenPair) -> None:
        self.issued = issued
        self.refreshed_with: list[str] = []
        self.asked_by: list[str] = []

    async def __call__(self, request: Request) -> Response:
        if request.url.endswith("/oauth/token"):
            self.refreshed_with.append(json.loads(request.body)["refresh_token"])
            issued = {"access_token": self.issued.access_token, "refresh_token": "TG-new", "expires_in": 180 * int(DAY)}
            return Response(200, {}, json.dumps(issued).encode())
        self.asked_by.append(request.headers["Authorization"].rpartition("-")[2])
        return Response(401) if self.asked_by == ["77"] else ORDER


@pytest.mark.control("paymentsdk._auth.refresh.certain_user_id", lambda token: None)
async def test_a_pair_that_the_platform_has_issued_to_another_is_not_taken(make_client, clock: FakeClock) -> None:
    """It is the response to somebody else: it is not saved, no call goes out with it, and the grant may be good."""
    store = MemoryTokenStore(ANN)
    platform = Mixed(BOB)
    client = make_client(ANN, store=store, transport=MemoryTransport(platform))

    clock.advance(101 * DAY)
    for _ in range(2):
        with pytest.raises(RefreshFailed, match="of another seller: of user 88, not 77"):
            await client.orders.get("ORD1")

    assert (["TG-77", "TG-77"], [], ANN) == (platform.refreshed_with, platform.asked_by, await store.load())


# --- waiters ----------------------------------------------------------------------------------------------------------


class Failing(Auth):
    """A source of tokens that remembers why it has none, and raises that object to whoever waits."""

    def __init__(self, error: PaymentsError) -> None:
        self.error = error

    def token(self, now: float) -> str | None:
        """Have every call wait."""
        return None

    async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
        """Fail, once all of them wait."""
        await asyncio.sleep(0)
        raise self.error


def failures() -> list[PaymentsError]:
    """Return what may be raised to many at a time."""
    spent = ReauthorizationRequired(401, "invalid_grant", "spent")
    spent.settled = True  # Of the refresh.
    return [spent, RefreshFailed("the store is full")]


async def told(client: PaymentsClient) -> list[PaymentsError]:
    """Make three calls at a time that fail, and return what each was told."""
    calls = (
        client.orders.cancel("ORD1", idempotency_key="k-1"),
        client.orders.cancel("ORD2", idempotency_key="k-2"),
        client.orders.get("ORD3"),
    )
    ends = await asyncio.gather(*calls, return_exceptions=True)
    return [end for end in ends if isinstance(end, PaymentsError)]


def attributes(errors: list[PaymentsError]) -> list[tuple[str | None, str | None]]:
    """Return what each of *errors* says of its call."""
    return [(error.operation, error.idempotency_key) for error in errors]


OWN = [("orders.cancel", "k-1"), ("orders.cancel", "k-2"), ("orders.get", None)]


@pytest.mark.control("paymentsdk._call.verdicts._own", lambda error: error)
@pytest.mark.parametrize("number", range(2), ids=[type(error).__name__ for error in failures()])
async def test_each_caller_has_an_error_of_its_own(make_client: Callable[..., PaymentsClient], number: int) -> None:
    """Operation and key are those of the call, though one object was raised to all; that object stays as it was."""
    error = failures()[number]  # One for each run: the control changes it.
    errors = await told(make_client(auth=Failing(error)))

    assert OWN == attributes(errors)
    assert {type(error)} == {type(caller_error) for caller_error in errors}
    assert (None, None) == (error.operation, error.idempotency_key)


@pytest.mark.control("paymentsdk._call.verdicts._own", lambda error: error)
async def test_a_rejected_refresh_settles_no_write(
    make_client: Callable[..., PaymentsClient], platform: Platform, clock: FakeClock
) -> None:
    """With a key that was sent before, a spent grant is an `OutcomeUnknown`, and nothing in it says "settled"."""
    platform.trouble = [Response(400, {}, b'{"error":"invalid_grant"}')]
    client = make_client(platform.pair(expires_at=START - 1))
    before = datetime.fromtimestamp(clock.now(), UTC) - timedelta(hours=1)
    for _ in range(2):  # The grant is found spent, and remembered.
        with pytest.raises(OutcomeUnknown) as raised:
            await client.orders.cancel("ORD1", idempotency_key="k-1", first_sent_at=before)

        last = raised.value.last_error
        assert isinstance(last, APIError)
        assert (ReauthorizationRequired, False) == (type(last), last.settled)
        assert before == raised.value.first_sent_at


# --- pairs of the store -----------------------------------------------------------------------------------------------


issued = Issuer().pair
#: The pair that the platform issues for a refresh token.
NEW = issued(9, START + 3600)


class Exchange:
    """Exchanges each refresh token but those that are *spent*."""

    def __init__(self, *spent: str) -> None:
        self.spent = spent
        self.received: list[str] = []

    async def exchange(self, refresh_token: str) -> TokenPair:
        """Return a new pair."""
        self.received.append(refresh_token)
        if refresh_token in self.spent:
            raise ReauthorizationRequired(400, "invalid_grant", "it is spent")
        return NEW


@pytest.mark.parametrize(
    ("expires_at", "stored", "sent"),
    [
        (START, START - 1, "TG-refresh-1"),
        (START, START, "TG-refresh-2"),
        (START, None, "TG-refresh-2"),
        (None, START, "TG-refresh-2"),
        (START - 2, START - 1, "TG-refresh-2"),
    ],
)
async def test_the_pair_that_expires_later_is_used(expires_at: float | None, stored: float | None, sent: str) -> None:
    """So is a stored pair when one of the two expiries is unknown; a pair that has expired is refreshed."""
    platform = Exchange()
    token = RefreshingToken(issued(1, expires_at), store=MemoryTokenStore(issued(2, stored)))

    access = await token.renew("APP_USR-access-1" if expires_at is None else None, platform.exchange, START)

    if stored is None:
        assert ([], "APP_USR-access-2") == (platform.received, access)
    else:
        assert ([sent], NEW.access_token) == (platform.received, access)


@pytest.mark.parametrize("stored", [START - 1, START + 1, None])
async def test_a_spent_pair_gives_way_to_any_other(stored: float | None) -> None:
    """Also to a stored pair that expires earlier; the token that the platform rejected is not used again."""
    platform, store = Exchange("TG-refresh-1"), MemoryTokenStore()
    token = RefreshingToken(issued(1, START), store=store)
    with pytest.raises(ReauthorizationRequired):
        await token.renew(None, platform.exchange, START)
    assert token.revoked

    await store.save(issued(2, stored))
    access = await token.renew(None, platform.exchange, START)

    used = NEW.access_token if stored == START - 1 else "APP_USR-access-2"
    assert (used, False) == (access, token.revoked)
