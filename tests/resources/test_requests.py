"""What goes out: every member of the contract, nothing that was not set, and nothing that breaks a rule."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal, localcontext
from pkgutil import resolve_name

import msgspec
import pytest
from msgspec import inspect

from paymentsdk import RequestInvalid
from paymentsdk.resources import OPERATIONS, wallet_payments
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.orders import (
    CategoryRequest,
    DiscountRequest,
    DiscountsRequest,
    ItemRequest,
    OrderRequest,
    PaymentRequest,
    TransactionsRequest,
)
from paymentsdk.resources.preferences import AuthenticationType, PayerRequest, PreferenceItemRequest, PreferenceRequest
from tests.resources.members import declared, present
from tests.resources.request_rules import BROKEN, WHOLE, put

#: Members that others of the same request forbid.
INSTEAD = {("TokenRequest", "refresh_token"), ("ItemRequest", "external_categories"), ("CategoryRequest", "id")}


def test_the_table_has_every_member_that_is_declared() -> None:
    """A member that is new in a request is tried at both ends of the wire: all tests of the table are about it too."""
    bodies = [operation.body for operation in OPERATIONS.values() if operation.body]
    members = {
        member for name, text in WHOLE.items()
        for member in present(inspect.type_info(OPERATIONS[name].body), json.loads(text))
    }  # fmt: skip

    expected = {member for body in bodies for member in declared(inspect.type_info(body))}
    assert expected == members | INSTEAD, "give new members a value in an `example` or tests/resources/requests.json"


@pytest.mark.parametrize("name", WHOLE)
def test_every_member_of_the_contract_goes_out(name: str) -> None:
    """A request from plain data keeps all members of the spec, and leaves as exactly what the wire wants."""
    operation = OPERATIONS[name]
    request = msgspec.convert(json.loads(WHOLE[name], parse_float=Decimal), operation.body)

    encoded = operation.encoder.encode(request)

    assert json.loads(WHOLE[name], parse_float=str) == json.loads(encoded, parse_float=str)


@pytest.mark.parametrize(("name", "path", "value", "place", "reason"), BROKEN)
def test_what_the_platform_rejects_is_rejected_here(
    name: str, path: str, value: object, place: str, reason: str
) -> None:
    """One broken rule is rejected with its place and its rule; the request without it (the control above) passes."""
    request = copy.deepcopy(json.loads(WHOLE[name]))
    put(request, path, value)

    with pytest.raises(RequestInvalid) as rejection:
        OPERATIONS[name].encoder.decode(json.dumps(request).encode())

    assert place == rejection.value.path
    assert reason in rejection.value.reason


#: What just keeps a rule of an order.
EDGES = {
    "external_reference": "a" * 64,
    "expiration_time": "PT30S",
    "marketplace_fee": "50.00",
    "items.0.title": "a" * 150,
    "items.0.unit_price": "0",
    "items.0.quantity": 1,
    "items.0.unit_measure": "a" * 10,
    "items.0.external_categories": [],
    "discounts.payment_methods.0.new_total_amount": "50.00",
    "discounts.payment_methods": [{"new_total_amount": "1", "type": "credit_card"}] * 4,
}


def test_what_just_keeps_a_rule_of_an_order_passes() -> None:
    """A rule rejects nothing but what breaks it: the platform takes what stands at its edge, and a sale is not lost."""
    for path, value in EDGES.items():
        request = json.loads(WHOLE["orders.create"])
        put(request, path, value)

        assert OPERATIONS["orders.create"].encoder.decode(json.dumps(request).encode()), path


#: The members that the contract calls a date, or says nothing of.
ROUTE = "items.0.category_descriptor.route."
DAYS = {
    "preferences.create": ("items.0.event_date", f"{ROUTE}departure_date_time", "payer.date_created"),
    "customers.create": ("date_registered",),
}


@pytest.mark.parametrize("day", ["2026-01-31", "0001-01-01", "2026-01-31T09:30:00.000-03:00"])
def test_a_day_goes_out_as_a_date_or_a_moment(day: str) -> None:
    """What the contract calls a date may be either, from plain data, and leaves as it was given."""
    for name, places in DAYS.items():
        request = copy.deepcopy(json.loads(WHOLE[name]))
        for place in places:
            put(request, place, day)

        body = OPERATIONS[name].encoder.encode(msgspec.convert(request, OPERATIONS[name].body))

        assert request == json.loads(body)


@pytest.mark.control(
    "paymentsdk._codec.body._day",
    around=lambda _: resolve_name("paymentsdk._codec.timestamps.timestamp"),
    raises=RequestInvalid,
)
def test_a_day_may_be_a_date_or_a_datetime() -> None:
    """In Python a date has no time, and goes out without one; a datetime goes out with its offset."""
    item = PreferenceItemRequest(title="A play", event_date=date(2026, 1, 31))
    payer = PayerRequest(last_purchase=datetime(2026, 1, 31, 9, 30, tzinfo=UTC))

    encoder = replace(OPERATIONS["preferences.create"]).encoder  # A new one: that of the program is compiled already.
    body = json.loads(encoder.encode(PreferenceRequest(items=[item], payer=payer)))

    assert "2026-01-31" == body["items"][0]["event_date"]
    assert "2026-01-31T09:30:00.000Z" == body["payer"]["last_purchase"]


def preference(**members: object) -> PreferenceRequest:
    """A preference over 24.90 with one item."""
    item = PreferenceItemRequest(title="A book", quantity=1, unit_price=Decimal("24.90"))
    return PreferenceRequest(**{"items": [item], **members})


def order(**members: object) -> OrderRequest:
    """An order over 24.90."""
    amount = Decimal("24.90")
    transactions = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    return OrderRequest(**{"external_reference": "s", "total_amount": amount, "transactions": transactions, **members})


def item(unit_price: object, quantity: object = 1) -> list[PreferenceItemRequest]:
    """The items of a preference."""
    return [PreferenceItemRequest(unit_price=unit_price, quantity=quantity)]


def wallet(amount: object, payer: object = None) -> wallet_payments.WalletPaymentRequest:
    """A wallet payment."""
    return wallet_payments.WalletPaymentRequest(
        wallet_payment=wallet_payments.WalletChargeRequest(transaction_amount=amount),
        payer=payer or wallet_payments.WalletPayerRequest(token="t", type_token="wallet"),
    )


DISCOUNTS = DiscountsRequest(payment_methods=[DiscountRequest(new_total_amount=Decimal(1), type="credit_card")])
LATE, EARLY = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
#: Requests made in Python, of types that no wire has: rejected by the call at their own place, and never a crash.
WRONG: list[tuple[str, Callable[[], object], str, str]] = [
    ("preferences.create", lambda: preference(items=item(0.1)), "$.items[0].unit_price", "not float"),
    ("preferences.create", lambda: preference(items=item(Decimal(1), True)), "$.items[0].quantity", "Expected `int"),
    ("preferences.create", lambda: preference(metadata={"rate": float("nan")}), "$.metadata.rate", "not a JSON number"),
    ("preferences.create", lambda: preference(marketplace_fee=Decimal("24.91")), "$.marketplace_fee", "above the tot"),
    ("preferences.create", lambda: preference(date_of_expiration=LATE.replace(tzinfo=None)),
     "$.date_of_expiration", "time zone"),
    ("preferences.create", lambda: preference(expiration_date_from=LATE, expiration_date_to=EARLY),
     "$.expiration_date_to", "not after"),
    ("wallet_payments.create", lambda: wallet(Decimal(1), {"token": "t"}), "$.payer", "type_token"),
    ("customers.create", lambda: CustomerRequest(metadata={"a": object()}), "$", "cannot be written as JSON"),
    ("customers.create", lambda: {"email": "ana@example.com"}, "$", "expected CustomerRequest, got dict"),
    ("orders.create", lambda: order(total_amount=Decimal("24.91")), "$.total_amount", "sum of the transactions"),
    ("orders.create", lambda: order(marketplace_fee=Decimal("24.91")), "$.marketplace_fee", "above the total"),
    ("orders.create", lambda: order(transactions=TransactionsRequest(payments=[{"amount": "24.90"}])),
     "$.transactions.payments[0].amount", "not str"),
    ("orders.create", lambda: order(discounts=DiscountsRequest(payment_methods=[{"type": "credit_card"}])),
     "$.discounts.payment_methods[0]", "missing required field"),
    ("orders.create", lambda: order(
        items=[ItemRequest(title="a", unit_price=Decimal(1), quantity=1, unit_measure="u",
                           external_categories=[CategoryRequest(id="x")])],
        discounts=DISCOUNTS,
    ), "$.items[0].external_categories", "combined with discounts"),
]  # fmt: skip


@pytest.mark.control("paymentsdk.money.EXACTLY", Context(prec=3), raises=(AssertionError, RequestInvalid))
def test_no_sum_is_rounded() -> None:
    """How a program has its own amounts rounded says nothing of ours."""
    with localcontext(prec=3):
        assert preference(items=item(Decimal("1234.56")), marketplace_fee=Decimal("1234.56"))
        with pytest.raises(RequestInvalid, match="above the total"):
            preference(items=item(Decimal("1234.56")), marketplace_fee=Decimal("1234.57"))


@pytest.mark.parametrize(("name", "make", "place", "reason"), WRONG)
def test_wrong_types_are_rejected_at_their_place(
    name: str, make: Callable[[], object], place: str, reason: str
) -> None:
    """A float, NaN or dict in a request is rejected by its own rule; the rules across members never stumble over it."""
    with pytest.raises(RequestInvalid) as rejection:
        OPERATIONS[name].encoder.encode(make())

    assert place == rejection.value.path
    assert reason in rejection.value.reason


#: Requests that pass, and their bytes.
EXACT: list[tuple[str, Callable[[], object], bytes]] = [
    ("customers.create", CustomerRequest, b"{}"),
    ("customers.create",
     lambda: CustomerRequest(date_registered=datetime(2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=-3)))),
     b'{"date_registered":"2026-01-31T09:30:00.000-03:00"}'),
    ("preferences.create", lambda: preference(items=item(Decimal(0), 3)), b'{"items":[{"quantity":3,"unit_price":0}]}'),
    # The fee may be the whole total, and is not judged where no total is known.
    ("preferences.create", lambda: preference(items=item(Decimal("0.1"), 3), marketplace_fee=Decimal("0.3")),
     b'{"items":[{"quantity":3,"unit_price":0.10}],"marketplace_fee":0.30}'),
    ("wallet_payments.create", lambda: wallet(Decimal("80.5")),
     b'{"wallet_payment":{"transaction_amount":80.50},"payer":{"token":"t","type_token":"wallet"}}'),
    ("preferences.create",
     lambda: preference(items=item(None), payer=PayerRequest(authentication_type=AuthenticationType.NATIVE_WEB)),
     b'{"items":[{"quantity":1}],"payer":{"authentication_type":"Native web"}}'),
    # The fee, and what a discount leaves, may be the whole total.
    ("orders.create", lambda: order(marketplace_fee=Decimal("24.90"), discounts=DiscountsRequest(
        payment_methods=[DiscountRequest(new_total_amount=Decimal("24.90"), type="debit_card")])),
     (b'{"external_reference":"s","total_amount":"24.90","transactions":{"payments":[{"amount":"24.90"}]},'
      b'"marketplace_fee":"24.90",'
      b'"discounts":{"payment_methods":[{"new_total_amount":"24.90","type":"debit_card"}]},"type":"qr"}')),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "encoded"), EXACT)
def test_only_what_was_set_goes_out(name: str, make: Callable[[], object], encoded: bytes) -> None:
    """Members that were not set are not sent; amounts have two decimals or none, and moments an offset."""
    assert encoded == OPERATIONS[name].encoder.encode(make())


def test_unknown_members_are_ignored_except_by_the_orders_api() -> None:
    """The platform ignores members that it does not know; its Orders API rejects them."""
    assert CustomerRequest() == OPERATIONS["customers.create"].encoder.decode(b'{"nickname": "An"}')
    with pytest.raises(RequestInvalid):
        OPERATIONS["orders.refund"].encoder.decode(b'{"reason": "none"}')


def test_amounts_in_other_notations_go_out_in_plain_digits() -> None:
    """Plain data may write an amount as Python reads it (choices.md): the request and its bytes hold the number."""
    operation = OPERATIONS["orders.create"]
    for written in ("5_0.00", "\u0665\u0660.00"):
        payments = {"payments": [{"amount": written}]}
        request = msgspec.convert(
            {"external_reference": "x", "total_amount": written, "transactions": payments}, operation.body
        )
        sent = json.loads(operation.encoder.encode(request))

        assert Decimal(50) == request.total_amount
        assert re.fullmatch(r"50(\.00)?", sent["total_amount"])
        assert sent["total_amount"] == sent["transactions"]["payments"][0]["amount"]
