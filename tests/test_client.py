"""The client: settings in, resources out; one loop, one end."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace

import pytest

from paymentsdk import ClientClosed, PaymentsClient, RequestInvalid, Response, RetryPolicy, StaticToken, Timeout
from paymentsdk.resources.orders import Orders
from paymentsdk.testing import MemoryTransport

ORDER = Response(200, {}, b'{"id":"ORD1"}')


def client(**settings: object) -> PaymentsClient:
    """A client whose transport returns an order."""
    options = {"access_token": "token", "base_url": "https://x", "transport": MemoryTransport(lambda request: ORDER)}
    return PaymentsClient(**{**options, **settings})


def transport_of(client: PaymentsClient) -> MemoryTransport:
    """The transport of a client."""
    return client._engine.runtime.transport


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://x/", "https://x/v1/orders/ORD1"),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787/v1/orders/ORD1"),
        ("http://[::1]:8787/", "http://[::1]:8787/v1/orders/ORD1"),
        ("https://gateway.example.com/payments/", "https://gateway.example.com/payments/v1/orders/ORD1"),
    ],
)
async def test_the_address_of_the_platform(base_url: str, url: str) -> None:
    """An address may have a port and a path, with or without a slash at its end."""
    async with client(base_url=base_url) as sdk:
        await sdk.orders.get("ORD1")

    assert [url] == [request.url for request in transport_of(sdk).requests]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"access_token": "two words"}, "access_token"),
        ({"auth": StaticToken("other")}, "auth"),
        ({"session": SimpleNamespace(request=print, close=print)}, "session"),
        ({"client_id": "app-1"}, "client_secret"),
        ({"retry": 3}, "retry"),
        ({"session_header": "not a name"}, "session_header"),
        ({"headers": {"X-Tag": ""}}, "headers.X-Tag"),
    ],
)
def test_a_setting_that_makes_no_sense(settings: dict[str, object], path: str) -> None:
    """An invalid setting is rejected when the client is created, with its name."""
    with pytest.raises(RequestInvalid) as refused:
        client(**settings)

    assert path == refused.value.path


class Awaited:
    """Parts with coroutine functions where plain functions are needed."""

    async def token(self, now: float) -> str | None:
        raise NotImplementedError

    async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
        raise NotImplementedError

    async def __call__(self, attempt: object) -> None:
        raise NotImplementedError


def test_an_option_that_makes_no_sense() -> None:
    """The options of a copy are checked like the settings of the original."""
    for name, value in {"access_token": "", "auth": "token", "retry": True, "headers": {"X Tag": "a"}}.items():
        with pytest.raises(RequestInvalid) as refused:
            client().with_options(**{name: value})
        assert name == refused.value.path


# --- the environment --------------------------------------------------------------------------------------------------

VARIABLES = {
    "PAYMENTSDK_BASE_URL": "https://from-env",
    "PAYMENTSDK_ACCESS_TOKEN": "token-from-env",
    "PAYMENTSDK_CLIENT_ID": "app-from-env",
    "PAYMENTSDK_CLIENT_SECRET": "secret-from-env",
    "PAYMENTSDK_TRANSPORT": "aiohttp",
}


@pytest.fixture
def environment(monkeypatch):
    """Set only these variables of the environment."""

    def environment(**variables: str) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return environment


async def test_a_client_from_the_environment(environment) -> None:
    """Address, token and application come from variables."""
    environment(**VARIABLES)

    async with PaymentsClient.from_env(transport=MemoryTransport([ORDER])) as sdk:
        await sdk.orders.get("ORD1")

    [request] = transport_of(sdk).requests
    assert ("https://from-env/v1/orders/ORD1", "Bearer token-from-env") == (
        request.url,
        request.headers["Authorization"],
    )


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({}, "PAYMENTSDK_BASE_URL"),
        ({"PAYMENTSDK_BASE_URL": "nowhere"}, "base_url"),
        ({"PAYMENTSDK_BASE_URL": "https://x", "PAYMENTSDK_CLIENT_ID": "a"}, "client_secret"),
    ],
)
def test_an_environment_that_makes_no_sense(environment, variables: dict[str, str], path: str) -> None:
    """The error names the missing variables."""
    environment(**variables)

    with pytest.raises(RequestInvalid) as refused:
        PaymentsClient.from_env(transport=MemoryTransport())

    assert path == refused.value.path


def test_a_transport_that_does_not_exist(environment) -> None:
    """An unknown name is rejected. The argument `transport` overrides the variable."""
    environment(**{**VARIABLES, "PAYMENTSDK_TRANSPORT": "http2"})
    with pytest.raises(RequestInvalid, match="PAYMENTSDK_TRANSPORT: must be aiohttp or http11"):
        PaymentsClient.from_env()
    PaymentsClient.from_env(transport=MemoryTransport())


async def test_options_override_the_environment(environment) -> None:
    """Arguments fill gaps in the environment. A source of tokens replaces the token of the environment."""
    environment(**VARIABLES)
    transport = MemoryTransport(lambda request: ORDER)

    sdk = PaymentsClient.from_env(transport=transport, auth=StaticToken("another"), headers={"X-Tag": "a"})
    await sdk.orders.get("ORD1")

    assert ("Bearer another", "a") == (
        transport.requests[0].headers["Authorization"],
        transport.requests[0].headers["X-Tag"],
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("auth", "a token", "must have sign, or token and renew, which str lacks"),
        ("auth", Awaited(), "token of Awaited must not be async: it is not awaited"),
        (
            "journal",
            3,
            "must have begin and get and renew and resolve and claim and records and aclose, which int lacks",
        ),
    ],
)
def test_parts_of_another_kind(name: str, value: object, reason: str) -> None:
    """An unfit part is rejected when the client is created: at the first write, the outcome would be unknown."""
    options = {"access_token": None if name == "auth" else "token", "base_url": "https://x", name: value}

    with pytest.raises(RequestInvalid) as refused:
        PaymentsClient(**options)

    assert (name, reason) == (refused.value.path, refused.value.reason)


# --- resources --------------------------------------------------------------------------------------------------------


def test_options_that_are_not_given_stay() -> None:
    """A copy of a copy has the options of both; the original does not change."""
    sdk = client(strict=True)
    policy, bounds = RetryPolicy(attempts=2), Timeout(total=5)

    copy = sdk.with_options(retry=policy).with_options(timeout=bounds, idempotency_key="k-1", headers={"X-Tag": "a"})

    settings = copy._engine.settings
    assert (policy, bounds, "k-1", True) == (
        settings.retry,
        settings.timeout,
        settings.idempotency_key,
        settings.strict,
    )
    assert "a" == settings.headers["X-Tag"]
    assert (RetryPolicy(), Timeout(), None) == (
        sdk._engine.settings.retry,
        sdk._engine.settings.timeout,
        sdk._engine.settings.idempotency_key,
    )
    assert not copy.with_options(strict=False)._engine.settings.strict


# --- the end ----------------------------------------------------------------------------------------------------------


class ShopClient(PaymentsClient):
    """A subclass of the client with more attributes."""

    till = "none"

    @functools.cached_property
    def tills(self) -> Orders:
        """A resource of the subclass."""
        return Orders(self)


async def test_a_copy_of_a_subclass_is_whole() -> None:
    """A copy has the values of a subclass, and its computed resources call with the options of the copy."""
    transport = MemoryTransport(lambda request: ORDER)
    sdk = ShopClient("token", base_url="https://x", transport=transport)
    sdk.till = "7"
    assert [sdk.tills, sdk.orders]

    copy = sdk.with_options(access_token="other")
    for orders in (copy.tills, copy.orders, sdk.tills):
        await orders.get("ORD1")

    assert "7" == copy.till
    assert ["Bearer other"] * 2 + ["Bearer token"] == [
        request.headers["Authorization"] for request in transport.requests
    ]


@pytest.mark.parametrize("manner", ["async with", "aclose"])
async def test_a_closed_client_says_so(manner: str) -> None:
    """After `async with` or `aclose`, every call of the client and its copies raises `ClientClosed`."""
    sdk = client()
    copy = sdk.with_options(access_token="other")
    if manner == "async with":
        async with sdk:
            pass
    else:
        await sdk.aclose()
        await sdk.aclose()

    for closed in (sdk, copy):
        with pytest.raises(ClientClosed, match="the client is closed"):
            await closed.orders.get("ORD1")
    assert transport_of(sdk).closed
    assert "<PaymentsClient https://x (closed)>" == repr(sdk)


def test_a_client_is_closed_on_its_own_loop() -> None:
    """Closing a client on another loop raises an error and closes nothing while its own loop runs."""
    sdk = client()

    async def elsewhere() -> None:
        with pytest.raises(ClientClosed, match="close it there"):
            await sdk.aclose()

    async def main() -> None:
        await sdk.orders.get("ORD1")
        await asyncio.to_thread(asyncio.run, elsewhere())
        assert "ORD1" == (await sdk.orders.get("ORD1")).id

    asyncio.run(main())
    asyncio.run(sdk.aclose())
    assert transport_of(sdk).closed
