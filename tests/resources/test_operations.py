"""The declarations: all thirteen operations, all documented codes, and which responses belong to which request."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec import convert

from paymentsdk import Operation, PaymentsClient, RequestInvalid, Response, RetryClass
from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.common import ResponseStruct
from paymentsdk.resources.orders import Order
from paymentsdk.testing import MemoryTransport

READ, KEYED, UNKEYED = RetryClass.READ, RetryClass.KEYED, RetryClass.UNKEYED
#: The table of the spec: section, method, path; and what a failure means.
DECLARED = {
    "oauth.token": ("4.1", "POST", "/oauth/token", RetryClass.TOKEN_CODE),
    "invoices.search": ("4.2", "GET", "/authorized_payments/search", READ),
    "preferences.create": ("4.3", "POST", "/checkout/preferences", UNKEYED),
    "wallet_payments.create": ("4.4", "POST", "/v1/advanced_payments", KEYED),
    "plans.get": ("4.5", "GET", "/preapproval_plan/{id}", READ),
    "plans.search": ("4.6", "GET", "/preapproval_plan/search", READ),
    "merchant_orders.search": ("4.7", "GET", "/merchant_orders/search", READ),
    "customers.create": ("4.8", "POST", "/v1/customers", UNKEYED),
    "release_reports.disable_schedule": ("4.9", "DELETE", "/v1/account/release_report/schedule", RetryClass.REPEATABLE),
    "orders.create": ("4.10", "POST", "/v1/orders", KEYED),
    "orders.get": ("4.11", "GET", "/v1/orders/{order_id}", READ),
    "orders.cancel": ("4.12", "POST", "/v1/orders/{order_id}/cancel", KEYED),
    "orders.refund": ("4.13", "POST", "/v1/orders/{order_id}/refund", KEYED),
}


def test_every_operation_of_the_spec_is_declared() -> None:
    """Thirteen operations, each with the section, the method and the path of the spec, and its row of failures."""
    declared = {
        name: (operation.section, operation.method, operation.path, operation.retry)
        for name, operation in OPERATIONS.items()
    }

    assert DECLARED == declared


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"path": "v1/shops"}, "shops.create.path"),  # https://api.example.comv1/shops
        ({"path": "@example.net/v1"}, "shops.create.path"),
        ({"path": "/v1/shops?all=1"}, "shops.create.path"),
        ({"path": "/v1/shops\r\nX: 1"}, "shops.create.path"),
        ({"retry": "keyed write"}, "shops.create.retry"),
    ],
)
def test_a_declaration_that_would_send_the_token_astray_is_rejected(change: dict[str, object], place: str) -> None:
    """An operation of one's own goes below the base URL, and with a key if it takes one, or cannot be declared."""
    declared = {"name": "shops.create", "method": "POST", "path": "/v1/shops/{shop_id}", "retry": RetryClass.KEYED}
    more = {"section": "", "summary": "", "result": Order}
    assert Operation(**declared, **more).keyed

    with pytest.raises(RequestInvalid) as rejected:
        Operation(**{**declared, **change}, **more)

    assert place == rejected.value.path


class Deleted(ResponseStruct):
    """What is left of a thing."""

    state: str | None = None


class Named(ResponseStruct):
    """A thing that has an id whenever it is told of."""

    id: str


def deletion(**declared: object) -> Operation[None, object]:
    """Declare the deletion of a thing."""
    return Operation(name="things.delete", method="DELETE", path="/things/{thing_id}", retry=RetryClass.REPEATABLE,
                     **{"result": Deleted, **declared})  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
async def test_a_204_is_a_success_without_a_body(strict: bool) -> None:
    """It is what the declaration says: no anomaly, and none for a strict client either."""
    transport = MemoryTransport([Response(204, {}, b"")])
    async with PaymentsClient("token", base_url="https://things.test", transport=transport, strict=strict) as client:
        result = await client.call(deletion(status=204), thing_id="1")

    assert (Deleted(), ()) == (result.value, result.anomalies)


async def test_a_body_that_is_missing_where_the_contract_has_one_is_an_anomaly() -> None:
    """Negative control of the above: `empty_response` accepts it, and says that it is another than the documented."""
    transport = MemoryTransport([Response(200, {}, b"")])
    async with PaymentsClient("token", base_url="https://things.test", transport=transport) as client:
        result = await client.call(deletion(empty_response=True), thing_id="1")

    assert ["$"] == [anomaly.path for anomaly in result.anomalies]


@pytest.mark.parametrize("declared", [{"status": 204}, {"empty_response": True}])
def test_a_response_without_a_body_has_no_id(declared: dict[str, object]) -> None:
    """A result that cannot be made of nothing would make every success an unknown outcome: it cannot be declared."""
    assert deletion(result=bytes, **declared).decode(b"") == (b"", ())

    with pytest.raises(TypeError, match="Missing required argument 'id'"):
        deletion(result=Named, **declared)


def test_every_documented_code_has_a_meaning() -> None:
    """Each code is listed once at its operation, with a meaning; docs/reference/errors.md shows them all."""
    for operation in OPERATIONS.values():
        assert operation.errors
        assert len(operation.errors) == len({error.code for error in operation.errors})
        assert all(error.meaning for error in operation.errors)


WALLET = {
    "wallet_payment": {"transaction_amount": Decimal("24.90"), "external_reference": "a"},
    "payer": {"token": "t", "type_token": "w"},
}
DISCOUNTED = {**WALLET, "wallet_payment": {**WALLET["wallet_payment"], "discount": {"amount": Decimal(5)}}}
NUMBERED = {**WALLET, "wallet_payment": {"external_reference": "00"}}
ORDER = {
    "external_reference": "a",
    "total_amount": "24.90",
    "transactions": {"payments": [{"amount": "24.90"}]},
    "type": "qr",
}
ITEMS = [{"title": "A book"}]
#: An operation, its body, its path values, a response, and whether it can belong to the request.
ANSWERS = [
    ("wallet_payments.create", WALLET, {}, '{"id": 1, "wallet_payment": {"transaction_amount": 24.9}}', True),
    ("wallet_payments.create", WALLET, {}, '{"id": 1, "wallet_payment": {"external_reference": "b"}}', False),
    ("wallet_payments.create", WALLET, {}, '{"id": 1, "wallet_payment": {"transaction_amount": 24.91}}', False),
    ("wallet_payments.create", WALLET, {}, '{"id": 1, "payments": [{"external_reference": "b"}]}', False),
    ("wallet_payments.create", DISCOUNTED, {}, '{"id": 1, "wallet_payment": {"transaction_amount": 19.9}}', True),
    ("preferences.create", {"items": ITEMS}, {}, '{"id": "1", "external_reference": "b"}', False),
    ("preferences.create", {"items": ITEMS, "external_reference": "a"}, {},
     '{"id": "1", "external_reference": "b"}', False),
    # As a number, a reference has no zeros in front.
    ("preferences.create", {"items": ITEMS, "external_reference": "007"}, {},
     '{"id": "1", "external_reference": 7}', True),
    ("preferences.create", {"items": ITEMS, "external_reference": "007"}, {},
     '{"id": "1", "external_reference": 70}', False),
    ("wallet_payments.create", NUMBERED, {},
     '{"id": 1, "payments": [{"external_reference": 0}, {"external_reference": 1}]}', False),
    ("orders.create", {**ORDER, "external_reference": "0012"}, {}, '{"id": "ORD1", "external_reference": 12}', True),
    ("customers.create", {"email": "Ana@Example.com"}, {}, '{"id": "c", "email": "ana@example.com"}', True),
    ("customers.create", {"email": "Ana@Example.com"}, {}, '{"id": "c", "email": "bob@example.com"}', False),
    ("plans.get", None, {"id": "p1"}, '{"id": "p1"}', True),
    ("plans.get", None, {"id": "p1"}, '{"id": "p2"}', False),
    ("orders.create", ORDER, {}, '{"id": "ORD1", "external_reference": "b"}', False),
    ("orders.create", ORDER, {}, '{"id": "ORD1", "total_amount": "24.9"}', True),
    ("orders.create", ORDER, {}, '{"id": "ORD1", "total_amount": "25"}', False),
    ("orders.get", None, {"order_id": "ORD1"}, '{"id": "ORD2"}', False),
    ("orders.cancel", None, {"order_id": "ORD1"}, '{"id": "ORD2"}', False),
    ("orders.refund", None, {"order_id": "ORD1"}, '{"id": "ORD2"}', False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "path", "response", "belongs"), ANSWERS)
def test_a_response_to_another_request_is_noticed(
    name: str, body: dict[str, object] | None, path: dict[str, str], response: str, belongs: bool
) -> None:
    """What a response repeats must be what was sent, be it a value or none; what it leaves out raises no alarm."""
    operation = OPERATIONS[name]
    request = None if body is None else convert(body, operation.body)

    comparison = operation.identity.compare(request, path, operation.decode(response.encode())[0])

    assert belongs is (comparison.mismatch is None)
