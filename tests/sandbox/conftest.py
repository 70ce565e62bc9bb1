"""A sandbox on a real socket, the real client, and a plain one that may send what the real one rejects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec
import pytest

from paymentsdk import PaymentsClient, RetryPolicy
from paymentsdk.resources.orders import OrderRequest
from paymentsdk.sandbox import Sandbox, Tenant
from paymentsdk.sandbox._control import STOPPING


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self):
        return msgspec.json.decode(self.raw)

    @property
    def code(self) -> str:
        """The code of a rejection, in whatever shape it came."""
        body = self.json
        if "errors" in body:
            return body["errors"][0]["code"]
        return str(body["cause"][0]["code"]) if body.get("cause") else body.get("error") or body["code"]


class Plain:
    """Sends anything, as any program could."""

    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        self.session = session
        self.sandbox = sandbox

    async def __call__(
        self, method: str, path: str, body: object = None, *, key: str | None = None, token: str | None = "", headers=()
    ) -> Answer:
        """Send *body* (bytes as they are, anything else as JSON), by default with the first seller's token."""
        sent = {"Authorization": f"Bearer {token or self.sandbox.access_token}"} if token is not None else {}
        if key is not None:
            sent["X-Idempotency-Key"] = key
        if body is not None:
            sent["Content-Type"] = "application/json"
            body = io.BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
        sent.update(headers)
        async with self.session.request(method, self.sandbox.base_url + path, data=body, headers=sent) as response:
            return Answer(response.status, response.headers, await response.read())


@pytest.fixture
async def start() -> AsyncIterator[Callable]:
    """Starts sandboxes with options, and stops them at the end."""
    running = []

    async def start(**options: object) -> Sandbox:
        running.append(await Sandbox(**options).start())
        return running[-1]

    yield start
    for sandbox in running:
        await sandbox.stop()


@pytest.fixture
async def sandbox(start) -> Sandbox:
    """A sandbox whose clock stands still, with the same identifiers every time."""
    return await start(seed=7, frozen=True)


@pytest.fixture
def end_delays() -> Callable[[Sandbox], None]:
    """Ends the delays of a sandbox: a fault can hold a request back for as long as a test needs, and no longer."""
    return lambda sandbox: sandbox._runner.app[STOPPING].set()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections of plain clients."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def plain(session, sandbox) -> Plain:
    """Sends anything to the sandbox."""
    return Plain(session, sandbox)


async def at_once(sandbox: Sandbox, *requests: tuple[str, str, str, object]) -> list[bytes]:
    """Return the responses to requests (method, path, key, body) that the sandbox handles in one turn of its loop."""
    address = sandbox.base_url.removeprefix("http://").split(":")
    connections = [await asyncio.open_connection(*address) for _ in requests]
    for _ in range(10):  # until all are accepted
        await asyncio.sleep(0)
    for (_, writer), (method, path, key, body) in zip(connections, requests, strict=True):
        head = f"Host: x\r\nConnection: close\r\nAuthorization: Bearer {sandbox.tenant.access_token}"
        content = msgspec.json.encode(body)
        length = f"X-Idempotency-Key: {key}\r\nContent-Length: {len(content)}"
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n{length}\r\n\r\n".encode() + content)
    answers = [await reader.read() for reader, _ in connections]
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()
    return answers


def client_of(sandbox: Sandbox, tenant: Tenant | None = None, **options: object) -> PaymentsClient:
    """A client for *tenant*, or the first seller, that tries once: what a test sees is what the sandbox said."""
    info = sandbox.describe(tenant)
    return PaymentsClient(
        access_token=info.access_token,
        base_url=info.base_url,
        client_id=info.client_id,
        client_secret=info.client_secret,
        **{"retry": RetryPolicy(attempts=1), **options},
    )


@pytest.fixture
async def client(sandbox) -> AsyncIterator[PaymentsClient]:
    """The real client, for the first seller."""
    async with client_of(sandbox) as client:
        yield client


@pytest.fixture
def connect() -> Callable[..., PaymentsClient]:
    """Makes clients for sandboxes and tenants."""
    return client_of


@pytest.fixture
def plain_to(session) -> Callable[[Sandbox], Plain]:
    """Makes plain clients for other sandboxes."""
    return lambda sandbox: Plain(session, sandbox)


def order_data(amount: str = "50.00", **members: object) -> dict[str, object]:
    """A valid order as plain data."""
    return {
        "type": "qr",
        "external_reference": "ticket-1",
        "total_amount": amount,
        "transactions": {"payments": [{"amount": amount}]},
        **members,
    }


@pytest.fixture
def order() -> Callable[..., OrderRequest]:
    """Makes orders to create."""
    return lambda *args, **members: msgspec.convert(order_data(*args, **members), OrderRequest)


@pytest.fixture
def data() -> Callable[..., dict[str, object]]:
    """Makes the bodies of orders, valid or not."""
    return order_data
