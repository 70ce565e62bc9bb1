"""One client for many sellers: `PaymentsClient(accounts=)` and `client.account(name)`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from paymentsdk import (
    Incomplete,
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    RefreshFailed,
    RefreshingToken,
    Request,
    RequestInvalid,
    Response,
    SendFailed,
    ServerError,
    TokenPair,
)
from paymentsdk.journal import SQLiteJournal
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import order_request

ORDER = Response(200, {}, b'{"id":"ORD1"}')
TOKENS = {"shop-1": "APP_USR-one-0123456789", "shop-2": "APP_USR-two-0123456789"}


def make(transport: MemoryTransport, accounts: object, **settings: object) -> PaymentsClient:
    """Make a client of many sellers."""
    defaults = {
        "base_url": "https://platform.test",
        "clock": FakeClock(),
        "client_id": "app",
        "client_secret": "secret-1",
    }
    return PaymentsClient(transport=transport, accounts=accounts, **defaults, **settings)


def always(request: Request) -> Response:
    """The order that every get asks for."""
    return ORDER


def tokens(transport: MemoryTransport) -> list[str | None]:
    """The bearer tokens that went out."""
    return [request.headers.get("Authorization") for request in transport.requests]


@pytest.mark.parametrize("resolver", [TOKENS, TOKENS.__getitem__], ids=["mapping", "function"])
async def test_an_account_calls_with_its_own_credentials(resolver) -> None:
    """Each account carries its token and its name, over the connections of one client."""
    transport = MemoryTransport(always)
    async with make(transport, resolver) as client:
        for name in ("shop-1", "shop-2", "shop-1"):
            await client.account(name).orders.get("ORD1")

    assert ["shop-1", "shop-2", "shop-1"] == [request.account for request in transport.requests]
    assert [f"Bearer {TOKENS[name]}" for name in ("shop-1", "shop-2", "shop-1")] == tokens(transport)


async def test_one_accounts_failures_cost_another_no_retries() -> None:
    """The budget for retries is the account's: with one token for all, the name still tells them apart."""
    broken = True

    def platform(request: Request) -> Response:
        return Response(503, {}, b"{}") if request.account == "bad" and broken else ORDER

    transport = MemoryTransport(platform)
    async with make(transport, {"bad": "APP_USR-same", "good": "APP_USR-same"}) as client:
        for _ in range(36):
            with pytest.raises(Exception, match="503"):
                await client.account("bad").orders.get("ORD1")
        spent = len(transport.requests)
        with pytest.raises(Exception, match="503"):
            await client.account("bad").orders.get("ORD1")
        assert 1 == len(transport.requests) - spent  # Its own budget is used up, which the next line is held against.

        transport.replies(503, ORDER)
        await client.account("good").orders.get("ORD1")

    assert ["good", "good"] == [request.account for request in transport.requests[-2:]]


async def test_another_token_belongs_to_no_account() -> None:
    """A copy with another token is another seller, whatever account it was made from."""
    transport = MemoryTransport(always)
    async with make(transport, TOKENS) as client:
        await client.account("shop-1").with_options(access_token="APP_USR-other").orders.get("ORD1")
        await client.account("shop-1").with_options(strict=True).orders.get("ORD1")

    assert [None, "shop-1"] == [request.account for request in transport.requests]


async def get(client: PaymentsClient, seller: PaymentsClient) -> object:
    """A read."""
    return await seller.orders.get("ORD1")


async def create(client: PaymentsClient, seller: PaymentsClient) -> object:
    """A write."""
    return await seller.orders.create(order_request())


async def walk(client: PaymentsClient, seller: PaymentsClient) -> object:
    """A search."""
    return await seller.plans.search().collect()


@pytest.mark.parametrize(
    ("reply", "call", "account", "expected"),
    [
        (503, get, "shop-1", ServerError),
        (503, create, "shop-1", OutcomeUnknown),
        (SendFailed("reset"), get, "shop-1", NoAnswer),
        (SendFailed("refused", sent=False), create, "shop-1", NotSent),
        (503, get, "expired", RefreshFailed),
        (b'{"paging":{"total":3},"results":[]}', walk, "shop-1", Incomplete),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_an_error_names_the_account(
    reply: object,
    call: Callable[[PaymentsClient, PaymentsClient], Awaitable[object]],
    account: str,
    expected: type[PaymentsError],
    tmp_path: Path,
) -> None:
    """Every error of a call or a walk names the seller, also after it was copied or pickled."""

    def platform(request: Request) -> Response:
        if isinstance(reply, SendFailed):
            raise reply
        return Response(reply, {}, b"{}") if isinstance(reply, int) else Response(200, {}, reply)

    pair = TokenPair(access_token="APP_USR-old", refresh_token="TG-old", expires_at=0.0)
    accounts = {**TOKENS, "expired": RefreshingToken(pair)}
    async with make(MemoryTransport(platform), accounts, journal=SQLiteJournal(tmp_path / "j.db")) as client:
        with pytest.raises(expected) as caught:
            await call(client, client.account(account))

    error = caught.value
    assert [account] * 3 == [twin.account for twin in (error, copy.copy(error), pickle.loads(pickle.dumps(error)))]
    assert error.operation is not None


@pytest.mark.parametrize(
    ("accounts", "name", "path"),
    [
        (TOKENS, "shop-3", "accounts['shop-3']"),
        (lambda name: None, "shop-3", "accounts['shop-3']"),
        (lambda name: 1 / 0, "shop-3", "accounts['shop-3']"),
        (TOKENS, "with space", "account"),
        (TOKENS, "x" * 101, "account"),
        (None, "shop-1", "accounts"),
    ],
)
async def test_an_account_that_cannot_be_is_rejected(accounts, name, path: str) -> None:
    """The error names the account and the rule, and nothing is sent; a later call asks the resolver again."""
    transport = MemoryTransport(always)
    async with make(transport, accounts) as client:
        for _ in range(2):
            with pytest.raises(RequestInvalid) as rejected:
                client.account(name)
            assert path == rejected.value.path

    assert [] == transport.requests


async def test_a_resolver_that_raises_tells_no_secret() -> None:
    """The text of another's error may hold a credential: its type and place stand for it."""

    def resolve(name: str) -> str:
        raise ValueError("no APP_USR-canary-0123456789 here")

    async with make(MemoryTransport(always), resolve) as client:
        with pytest.raises(RequestInvalid) as rejected:
            client.account("shop-1")

    assert "ValueError" in str(rejected.value)
    assert "canary" not in str(rejected.value) + repr(
        rejected.value.__context__ if not rejected.value.__suppress_context__ else ""
    )


async def test_who_names_no_seller_learns_how() -> None:
    """A client of many sellers has no token of its own, and a client of one seller knows no accounts."""
    async with make(MemoryTransport(always), TOKENS) as client:
        with pytest.raises(RequestInvalid, match=r"access_token or auth, or use client\.account\(name\)"):
            await client.orders.get("ORD1")
    async with make(MemoryTransport(always), None) as client:
        with pytest.raises(
            RequestInvalid, match=r"names an account: use PaymentsClient\(accounts=\.\.\.\), or --accounts"
        ):
            client.account("shop-1")
