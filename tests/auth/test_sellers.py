"""A source of tokens keeps to its seller: a store with the pair of another moves no money of that one."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from paymentsdk import (
    MemoryTokenStore,
    OutcomeUnknown,
    RefreshFailed,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.auth.platform import DAY, START
from tests.journal.platform import order


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


async def test_a_live_token_stays_in_use_next_to_another_pair(make_client, clock: FakeClock, caplog) -> None:
    """It is due for a refresh, which would put the pair of one seller in place of that of the other."""
    store = MemoryTokenStore(BOB)
    tokens: list[str] = []

    def answer(request: Request) -> Response:
        tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        return Response(200, {}, b'{"id":"ORD1"}')

    client = make_client(ANN, store=store, transport=MemoryTransport(answer), retry=RetryPolicy(attempts=1))
    clock.advance(80 * DAY)
    await client.orders.get("ORD1")
    clock.advance(20 * DAY)
    with pytest.raises(RefreshFailed, match="another seller"):
        await client.orders.get("ORD1")

    assert ([ANN.access_token], BOB) == (tokens, await store.load())
    assert "another seller" in caplog.text
