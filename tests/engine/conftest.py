"""A client over a transport in memory, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import pytest

from paymentsdk import (
    Operation,
    OutcomeUnknown,
    Pager,
    PaymentsClient,
    PaymentsError,
    RefreshingToken,
    Request,
    Response,
    SendFailed,
    TokenPair,
)
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.invoices import Invoice
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.contract.calls import body_of
from tests.engine.issuer import ONCE, Issuer

Step: TypeAlias = Response | BaseException | Callable[[Request], Awaitable[Response]]
Call: TypeAlias = Callable[[PaymentsClient], Awaitable[object]]

# --- what is asked for, and what the platform says to it --------------------------------------------------------------

BASE_URL = "https://platform.test"
TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
CLIENT_SECRET = "client-secret-0123456789"
KEY = "X-Idempotency-Key"


class Job(NamedTuple):
    """A call, and the response to it."""

    call: Call
    response: Response


def order_request() -> OrderRequest:
    """An order over 24.90."""
    payments = [PaymentRequest(amount=Decimal("24.90"))]
    return OrderRequest(
        external_reference="shop-1", total_amount=Decimal("24.90"), transactions=TransactionsRequest(payments=payments)
    )


def wallet_payment_request() -> WalletPaymentRequest:
    """A payment of 24.90 from a wallet."""
    return WalletPaymentRequest(
        wallet_payment=WalletChargeRequest(transaction_amount=Decimal("24.90"), external_reference="shop-1"),
        payer=WalletPayerRequest(token="payer-token-0123456789", type_token="wallet"),
    )


def preference_request() -> PreferenceRequest:
    """A preference with one item."""
    item = PreferenceItemRequest(title="A book", quantity=1, unit_price=Decimal("24.90"))
    return PreferenceRequest(items=[item], external_reference="shop-1")


def says(status: int, body: bytes = b"{}", headers: dict[str, str] | None = None) -> Response:
    """A response with a request id of its own."""
    return Response(status, {"X-Request-Id": f"req-{status}", **(headers or {})}, body)


ORDER = says(200, b'{"id":"ORD1","external_reference":"shop-1","total_amount":"24.90"}')
CREATED = says(201, ORDER.body)
PAGE = says(200, b'{"paging":{"offset":0,"total":1},"results":[{"id":"1"}]}')
ROWS = says(200, b'{"elements":[{"id":1}],"next_offset":0,"total":1}')
PLAN = says(200, b'{"id":"plan-1"}')
DELETED = says(200, b'{"status":"deleted"}')
WALLET_PAYMENT = says(201, b'{"id":1,"wallet_payment":{"transaction_amount":24.90,"external_reference":"shop-1"}}')
CUSTOMER = says(201, b'{"id":"c-1","email":"ann@example.com"}')
PREFERENCE = says(201, b'{"id":"77-abc","external_reference":"shop-1"}')
TOKENS = says(200, b'{"access_token":"APP_USR-new-access","refresh_token":"TG-new-refresh","expires_in":3600}')

JOBS: dict[str, Job] = {
    "orders.get": Job(lambda c: c.orders.get("ORD1"), ORDER),
    "plans.get": Job(lambda c: c.plans.get("plan-1"), PLAN),
    "invoices.search": Job(lambda c: c.invoices.search().first(), PAGE),
    "merchant_orders.search": Job(lambda c: c.merchant_orders.search().first(), ROWS),
    "orders.create": Job(lambda c: c.orders.create(order_request()), CREATED),
    "orders.cancel": Job(lambda c: c.orders.cancel("ORD1"), ORDER),
    "orders.refund": Job(lambda c: c.orders.refund("ORD1", payment_id="PAY1", amount=Decimal("5.00")), ORDER),
    "wallet_payments.create": Job(lambda c: c.wallet_payments.create(wallet_payment_request()), WALLET_PAYMENT),
    "release_reports.disable_schedule": Job(lambda c: c.release_reports.disable_schedule(), DELETED),
    "customers.create": Job(lambda c: c.customers.create(CustomerRequest(email="ann@example.com")), CUSTOMER),
    "preferences.create": Job(lambda c: c.preferences.create(preference_request()), PREFERENCE),
    "oauth.exchange_code": Job(lambda c: c.oauth.exchange_code("TG-code-0123456789"), TOKENS),
    "oauth.refresh": Job(lambda c: c.oauth.refresh("TG-refresh-0123456789"), TOKENS),
}


def example_call(operation: Operation) -> Call:
    """A call of *operation* with its example as the body, and an id in each placeholder of its path."""
    return lambda c: c.call(operation, body_of(operation.name), **dict.fromkeys(operation.path_names, "ORD1"))


@pytest.fixture(scope="session")
def jobs() -> dict[str, Job]:
    """The calls of all methods, by name."""
    return JOBS


# --- the client, and what came of a call ------------------------------------------------------------------------------


class Script:
    """A handler that takes its steps one by one, and the last one for ever."""

    def __init__(self, *steps: Step) -> None:
        self.steps = deque(steps)

    async def __call__(self, request: Request) -> Response:
        step = self.steps.popleft() if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, BaseException):
            raise step
        return step if isinstance(step, Response) else await step(request)


@dataclass
class Played:
    """What came of a call."""

    value: object
    error: PaymentsError | None
    requests: list[Request]
    slept: list[float]

    @property
    def keys(self) -> set[str | None]:
        """The idempotency keys that went out."""
        return {request.headers.get(KEY) for request in self.requests}

    def is_unknown(self) -> bool:
        """Whether nobody knows what came of it."""
        return type(self.error) is OutcomeUnknown


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def transport() -> MemoryTransport:
    """A transport with no responses yet."""
    return MemoryTransport()


@pytest.fixture
async def make_client(clock: FakeClock) -> AsyncIterator[Callable[..., PaymentsClient]]:
    """Make clients that are closed in the end: over a transport, a handler, or steps to take."""
    clients: list[PaymentsClient] = []

    def make(*steps: Step, transport: MemoryTransport | None = None, **settings: object) -> PaymentsClient:
        if "auth" not in settings:
            settings.setdefault("access_token", TOKEN)
        defaults = {"base_url": BASE_URL, "client_id": "app-1", "client_secret": CLIENT_SECRET, "clock": clock}
        carrier = transport if transport is not None else MemoryTransport(Script(*steps))
        client = PaymentsClient(**{**defaults, "transport": carrier, **settings})
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
def client(make_client: Callable[..., PaymentsClient], transport: MemoryTransport) -> PaymentsClient:
    """A client over `transport`."""
    return make_client(transport=transport)


@pytest.fixture
def play(make_client: Callable[..., PaymentsClient], clock: FakeClock) -> Callable[..., Awaitable[Played]]:
    """Make a call while the platform takes some steps, and tell what came of it."""

    async def play(call: Call | str, *steps: Step, **settings: object) -> Played:
        if isinstance(call, str):
            call = JOBS[call].call
        transport = settings.pop("transport", None) or MemoryTransport(Script(*steps))
        client = make_client(transport=transport, **settings)
        before = len(clock.slept)
        value, error = None, None
        try:
            value = await call(client)
        except PaymentsError as caught:
            error = caught
        return Played(value, error, transport.requests, clock.slept[before:])

    return play


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a token store keeps its pair."""
    return tmp_path / "tokens.json"


@pytest.fixture
def issuer() -> Issuer:
    """A platform that issues tokens."""
    return Issuer()


@pytest.fixture
def signed_in(make_client, issuer: Issuer):
    """Make a client of `issuer` with a token that can be refreshed."""

    def signed_in(pair: TokenPair | None = None, **settings: object) -> PaymentsClient:
        settings.setdefault("retry", ONCE)
        store = settings.pop("store", None)
        settings.setdefault("auth", RefreshingToken(pair, store=store))
        return make_client(issuer, **settings)

    return signed_in


class Table:
    """Rows on the platform, searched by offset and limit, in either shape of response.

    Args:
        rows: How many there are to begin with; their ids count from 1.
        cap: The most that a page has, whatever is asked for.
        elements: Respond with `elements` and `next_offset` in place of `paging` and `results`.
        drift: Called before each page, to change `ids`.
        changes: Called with the body of each response and its request, to spoil it.
    """

    def __init__(
        self,
        rows: int,
        *,
        cap: int = 30,
        elements: bool = False,
        drift: Callable[[Table], None] | None = None,
        changes: Callable[[dict[str, object], Request], object] | None = None,
    ) -> None:
        self.ids = list(range(1, rows + 1))
        self.cap = cap
        self.elements = elements
        self.drift = drift
        self.changes = changes
        self.offsets: list[int] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def __call__(self, request: Request) -> Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if self.drift is not None:
            self.drift(self)
        query = dict(parse_qsl(urlsplit(request.url).query))
        offset, limit = int(query.get("offset", 0)), min(int(query.get("limit", self.cap)), self.cap)
        self.offsets.append(offset)
        response = self._page(offset, limit)
        if self.changes is not None:
            response = self.changes(response, request) or response
        return response if isinstance(response, Response) else Response(200, {}, json.dumps(response).encode())

    def _page(self, offset: int, limit: int) -> dict[str, object]:
        rows = [{"id": row} for row in self.ids[offset : offset + limit]]
        total, reached = len(self.ids), offset + len(rows)
        if self.elements:
            return {"elements": rows, "next_offset": 0 if reached >= total else reached, "total": total}
        return {"paging": {"offset": offset, "limit": limit, "total": total}, "results": rows}

    def search(self, client: PaymentsClient, **options: int) -> Pager[Invoice] | Pager[MerchantOrder]:
        """Search it through *client*."""
        return (client.merchant_orders if self.elements else client.invoices).search(**options)


@pytest.fixture(scope="session")
def tables() -> type[Table]:
    """Rows on the platform."""
    return Table


@pytest.fixture
def hang(clock: FakeClock) -> Callable[[Request], Awaitable[Response]]:
    """A step that does not respond: the time that the attempt may take passes."""

    async def hang(request: Request) -> Response:
        asyncio.get_running_loop().call_soon(clock.advance, request.timeout)
        for _ in range(20):
            await asyncio.sleep(0)
        raise LookupError("nobody put an end to it")

    return hang


@pytest.fixture
def failures(hang: Callable[[Request], Awaitable[Response]]) -> dict[str, Step]:
    """The ways to fail, by the names that the tables use."""
    return {
        "unsent": SendFailed("connection refused", sent=False),
        "reset": SendFailed("connection reset", sent=True),
        "timeout": hang,
        "truncated": says(200, b'{"id":"ORD'),
        "html": says(200, b"<html>"),
        **{
            str(status): says(status)
            for status in (307, 400, 401, 402, 403, 404, 408, 409, 422, 423, 424, 429, 500, 503)
        },
    }
