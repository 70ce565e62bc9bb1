"""The methods of the client: what each of them sends, and what it rejects."""

from __future__ import annotations

import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from paymentsdk import OPERATIONS, PaymentsClient, Request, RequestInvalid, Response
from paymentsdk.resources import wallet_payments
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.oauth import TokenRequest
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.testing import MemoryTransport

BASE_URL = "https://platform.test"
WALLET = wallet_payments.WalletPaymentRequest(
    wallet_payment=wallet_payments.WalletChargeRequest(transaction_amount=Decimal(80)),
    payer=wallet_payments.WalletPayerRequest(token="the-token-of-the-payer", type_token="wallet"),
)
ORDER = OrderRequest(
    external_reference="a",
    total_amount=Decimal(5),
    transactions=TransactionsRequest(payments=[PaymentRequest(amount=Decimal(5))]),
)
PREFERENCE = PreferenceRequest(items=[PreferenceItemRequest(title="A book")])
WEST = datetime(2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=-3)))


@pytest.fixture
def transport() -> MemoryTransport:
    """A transport that gives one response, to whatever is asked."""
    bodies = {"/oauth/token": b'{"access_token": "t"}', "/search": b'{"results": [], "elements": []}'}

    def response(request: Request) -> Response:
        body = next((body for path, body in bodies.items() if path in request.url), b'{"id": "x"}')
        return Response(200, {}, body)

    return MemoryTransport(response)


@pytest.fixture
async def client(transport: MemoryTransport) -> AsyncIterator[PaymentsClient]:
    """A client that has a token and the credentials of an application."""
    async with PaymentsClient(
        "seller", base_url=BASE_URL, client_id="app", client_secret="the-secret", transport=transport
    ) as client:
        yield client


UTC_TEXT = "2026-01-31T12%3A30%3A00.000Z"
#: A call, and the request that it makes: method, path and query, body.
SENT: list[tuple[Callable[[PaymentsClient], Awaitable[object]], str, str, object]] = [
    (lambda c: c.oauth.exchange_code("c", redirect_uri="https://a", code_verifier="v"), "POST", "/oauth/token",
     {"client_id": "app", "client_secret": "the-secret", "grant_type": "authorization_code", "code": "c",
      "redirect_uri": "https://a", "code_verifier": "v"}),
    (lambda c: c.oauth.refresh("r", client_id="b", client_secret="s"), "POST", "/oauth/token",
     {"client_id": "b", "client_secret": "s", "grant_type": "refresh_token", "refresh_token": "r"}),
    (lambda c: c.preferences.create(PREFERENCE), "POST", "/checkout/preferences", {"items": [{"title": "A book"}]}),
    (lambda c: c.wallet_payments.create(WALLET), "POST", "/v1/advanced_payments",
     {"wallet_payment": {"transaction_amount": 80},
      "payer": {"token": "the-token-of-the-payer", "type_token": "wallet"}}),
    (lambda c: c.customers.create(CustomerRequest()), "POST", "/v1/customers", {}),
    (lambda c: c.release_reports.disable_schedule(), "DELETE", "/v1/account/release_report/schedule", None),
    (lambda c: c.plans.get("x"), "GET", "/preapproval_plan/x", None),
    (lambda c: c.plans.search(q="a&b c", status="active", sort="date_created", criteria="desc").collect(), "GET",
     "/preapproval_plan/search?q=a%26b%20c&status=active&sort=date_created&criteria=desc&offset=0", None),
    (lambda c: c.invoices.search(preapproval_id="p", payer_id=7, page_size=50, start=100).collect(), "GET",
     "/authorized_payments/search?preapproval_id=p&payer_id=7&offset=100&limit=50", None),
    (lambda c: c.merchant_orders.search(status="closed", date_created_from=WEST).collect(), "GET",
     "/merchant_orders/search?status=closed&date_created_from=2026-01-31T09%3A30%3A00.000-03%3A00&offset=0", None),
    (lambda c: c.merchant_orders.search(
        application_id=1, payer_id="2", sponsor_id=3, site_id="MLB", marketplace="M", items="i").collect(), "GET",
     "/merchant_orders/search?application_id=1&payer_id=2&sponsor_id=3&site_id=MLB&marketplace=M&items=i&offset=0",
     None),
    (lambda c: c.merchant_orders.search(
        date_created_to=WEST.astimezone(UTC), last_updated_to=WEST.astimezone(UTC)).collect(), "GET",
     f"/merchant_orders/search?date_created_to={UTC_TEXT}&last_updated_to={UTC_TEXT}&offset=0", None),
    (lambda c: c.orders.create(ORDER), "POST", "/v1/orders",
     {"external_reference": "a", "total_amount": "5", "transactions": {"payments": [{"amount": "5"}]}, "type": "qr"}),
    (lambda c: c.orders.get("x"), "GET", "/v1/orders/x", None),
    (lambda c: c.orders.cancel("x"), "POST", "/v1/orders/x/cancel", None),
    (lambda c: c.orders.refund("x"), "POST", "/v1/orders/x/refund", None),
    (lambda c: c.orders.refund("x", payment_id="PAY1", amount=Decimal("2.5")), "POST", "/v1/orders/x/refund",
     {"transactions": [{"id": "PAY1", "amount": "2.50"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "method", "target", "body"), SENT)
async def test_a_method_sends_what_the_spec_says(
    transport: MemoryTransport,
    call: Callable[[PaymentsClient], Awaitable[object]],
    method: str,
    target: str,
    body: object,
) -> None:
    """Each method makes one request, with the method, path, query and body of its section."""
    async with PaymentsClient(
        "seller", base_url=BASE_URL, client_id="app", client_secret="the-secret", transport=transport
    ) as client:
        await call(client)

    [request] = transport.requests
    assert (method, BASE_URL + target) == (request.method, request.url)
    assert body == (json.loads(request.body) if request.body else None)


#: Calls that are rejected, and the place that the error names.
REFUSED: list[tuple[Callable[[PaymentsClient], object], str]] = [
    (lambda c: c.oauth.exchange_code(""), "$.code"),
    (lambda c: c.oauth.exchange_code("c", client_id="app"), "client_secret"),
    (lambda c: c.plans.get("../v1/orders"), "$path.id"),
    (lambda c: c.orders.get(None), "$path.order_id"),
    (lambda c: c.orders.refund("x", amount=Decimal(1)), "payment_id"),
    (lambda c: c.invoices.search(status="paid"), "$query.status"),
    (lambda c: c.plans.search(limit=5), "limit"),
    (lambda c: c.plans.search(start=-1), "start"),
    (lambda c: c.merchant_orders.search(date_created_from=WEST.replace(tzinfo=None)), "$query.date_created_from"),
]


@pytest.mark.parametrize(("call", "place"), REFUSED)
async def test_what_breaks_a_rule_is_not_sent(
    client: PaymentsClient, transport: MemoryTransport, call: Callable[[PaymentsClient], object], place: str
) -> None:
    """An argument that breaks a rule is rejected with its name, before anything leaves."""
    with pytest.raises(RequestInvalid) as rejection:
        await call(client)

    assert place == rejection.value.path
    assert [] == transport.requests


async def test_a_token_needs_an_application(transport: MemoryTransport) -> None:
    """Without the id and secret of an application, here or on the client, no token can be asked for."""
    async with PaymentsClient(base_url=BASE_URL, transport=transport) as client:
        with pytest.raises(RequestInvalid, match="client_id"):
            await client.oauth.refresh("r")
        await client.oauth.refresh("r", client_id="app", client_secret="s")

    assert 1 == len(transport.requests)


async def test_the_token_endpoint_gets_no_bearer(client: PaymentsClient, transport: MemoryTransport) -> None:
    """Every call but the one for a token carries the seller's token."""
    await client.oauth.refresh("r")
    await client.plans.get("x")

    assert [None, "Bearer seller"] == [request.headers.get("Authorization") for request in transport.requests]


async def test_the_session_of_the_buyer_travels_in_the_header_of_the_setting(transport: MemoryTransport) -> None:
    """A setting names the header, which is sent only with a session; its usual name is the one that is declared."""
    usual = PaymentsClient("t", base_url=BASE_URL, transport=transport)
    await usual.wallet_payments.create(WALLET, session_id="device-1")
    await usual.wallet_payments.create(WALLET)
    branded = PaymentsClient("t", base_url=BASE_URL, transport=transport, session_header="X-Brand-Id")
    await branded.wallet_payments.create(WALLET, session_id="device-1")

    first, second, third = [request.headers for request in transport.requests]
    assert "device-1" == first["X-Platform-Session-Id"]
    assert {"X-Platform-Session-Id"} == OPERATIONS["wallet_payments.create"].headers.keys()
    assert "X-Platform-Session-Id" not in second
    assert "device-1" == third["X-Brand-Id"]


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.orders.create(ORDER, idempotency_kye="k"),
        lambda client: client.preferences.create(PREFERENCE, onec="a"),
        lambda client: client.preferences.create(PREFERENCE, idempotency_key="k"),
    ],
)
async def test_a_misspelt_option_is_rejected(
    client: PaymentsClient, transport: MemoryTransport, write: Callable[[PaymentsClient], Awaitable[object]]
) -> None:
    """Dropped in silence, it would leave a write with a random key, or outside the journal: nothing is sent."""
    with pytest.raises(RequestInvalid, match=r"^(idempotency_kye|onec|idempotency_key): "):
        await write(client)

    assert not transport.requests


async def test_a_key_goes_with_its_own_call_only(client: PaymentsClient, transport: MemoryTransport) -> None:
    """A given key is sent as it is; without one, each call makes its own; operations that take none get none."""
    await client.wallet_payments.create(WALLET, idempotency_key="ride-7")
    await client.wallet_payments.create(WALLET)
    await client.customers.create(CustomerRequest())

    supplied, generated, none = [request.headers.get("X-Idempotency-Key") for request in transport.requests]
    assert "ride-7" == supplied
    assert generated not in (None, "ride-7")
    assert none is None


SECRET = "secret0123"
SECRETIVE = [
    TokenRequest(client_id="app", client_secret=SECRET, grant_type="refresh_token", refresh_token=SECRET),
    TokenRequest(client_id="app", client_secret=SECRET, grant_type="authorization_code", code=SECRET),
    wallet_payments.WalletPayerRequest(token=SECRET, type_token="wallet"),
]


def test_credentials_are_not_shown() -> None:
    """Neither repr, str, format nor a rich display shows a credential, and a pickle is rejected."""
    for value in SECRETIVE:
        texts = (repr(value), str(value), f"{value}", repr([value]), repr(list(value.__rich_repr__())))

        assert not [text for text in texts if SECRET in text]
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(value)
