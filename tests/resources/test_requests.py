"""What goes out: every member of the contract, nothing that was not set, and nothing that breaks a rule."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal, localcontext

import msgspec
import pytest

from paymentsdk import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.orders import (
    CategoryRequest,
    DiscountRequest,
    DiscountsRequest,
    IntegrationDataRequest,
    ItemRequest,
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    QRMode,
    QRModeName,
    TransactionsRequest,
)
from paymentsdk.resources.preferences import (
    AuthenticationType,
    PayerRequest,
    PreferenceItemRequest,
    PreferenceRequest,
    ShipmentsRequest,
)
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest

# One request per operation, with every member that the spec names, as it goes out.
WHOLE = {
    "oauth.token": """{"client_id": "1", "client_secret": "s", "grant_type": "authorization_code", "code": "c",
        "redirect_uri": "https://shop.example.com", "code_verifier": "v", "scope": "read"}""",
    "preferences.create": """{"items": [{"id": "sku-1", "title": "Flight", "description": "To the south",
        "picture_url": "https://shop.example.com/1.png", "category_id": "travels", "quantity": 2, "currency_id": "BRL",
        "unit_price": 75.76, "type": "ticket", "warranty": false, "event_date": "2026-03-01T20:00:00.000-03:00",
        "category_descriptor": {"passenger": {"first_name": "Ana", "last_name": "Souza", "identification_type": "CPF",
        "identification_number": "19119119100"}, "route": {"departure": "GRU", "destination": "EZE",
        "departure_date_time": "2026-03-01T20:00:00.000-03:00", "arrival_date_time": "2026-03-01T23:00:00.000-03:00",
        "company": "An airline"}}}], "payer": {"name": "Ana", "surname": "Souza", "first_name": "Ana",
        "last_name": "Souza", "email": "ana@example.com", "phone": {"area_code": 11, "number": 987654321},
        "identification": {"type": "CPF", "number": "19119119100", "identification_type": "CPF",
        "identification_number": "19119119100"}, "address": {"zip_code": "06233-200", "street_name": "Rua A",
        "street_number": 123}, "date_created": "2015-06-02T12:58:41.425-04:00", "authentication_type": "Native web",
        "registration_date": "2015-06-02T12:58:41.425-04:00", "is_prime_user": true,
        "is_first_purchase_online": false, "last_purchase": "2025-06-02T12:58:41.425-04:00"},
        "payment_methods": {"excluded_payment_methods": [{"id": "visa"}], "excluded_payment_types": [{"id": "ticket"}],
        "default_payment_method_id": "master", "installments": 36, "default_installments": 1},
        "shipments": {"mode": "custom", "local_pickup": false, "dimensions": "30x30x30,500",
        "default_shipping_method": 73328, "free_methods": [{"id": 73328}], "cost": 10.50, "free_shipping": false,
        "express_shipment": true, "receiver_address": {"zip_code": "06233-200", "street_name": "Rua A",
        "city_name": "Osasco", "state_name": "SP", "street_number": 3003, "country_name": "Brasil"}},
        "back_urls": {"success": "https://s.example.com", "pending": "https://p.example.com",
        "failure": "http://f.example.com/a?b=c"}, "notification_url": "https://shop.example.com/hook",
        "statement_descriptor": "SHOP", "additional_info": "gift", "auto_return": "approved",
        "external_reference": "basket-42", "expires": true, "expiration_date_from": "2026-01-31T09:30:00.000-04:00",
        "expiration_date_to": "2026-02-28T09:30:00.000-04:00", "date_of_expiration": "2026-02-28T09:30:00.000-04:00",
        "marketplace": "NONE", "marketplace_fee": 151.52, "differential_pricing": {"id": 7},
        "tracks": [{"type": "google_ad", "values": {"conversion_id": 1, "conversion_label": "a", "pixel_id": "2"}}],
        "binary_mode": true, "sponsor_id": 8, "metadata": {"a": {"b": [1, "x"]}}}""",
    "wallet_payments.create": """{"wallet_payment": {"transaction_amount": 80.00, "description": "Taxi",
        "external_reference": "ride-7", "statement_descriptor": "TAXI", "forward_data": {"sub_merchant":
        {"sub_merchant_id": "s1", "mcc": "4121", "country": "BRA", "address_door_number": 12, "zip": "06233",
        "document_number": "191", "city": "Osasco", "address_street": "Rua A", "legal_name": "Taxi SA",
        "region_code_iso": "BR-SP", "region_code": "SP", "document_type": "CNPJ", "phone": {"number": "55"},
        "url": "https://taxi.example.com"}}, "discount": {"amount": 10, "description": "Ten off", "code": "TEN",
        "detail": {"cap": 20, "type": "fixed", "value": 10}}}, "payer": {"token": "t", "type_token": "wallet"},
        "binary_mode": true, "capture": false}""",
    "customers.create": """{"email": "ana@example.com", "first_name": "Ana", "last_name": "Souza",
        "phone": {"area_code": "11", "number": "987654321"}, "identification": {"type": "CPF",
        "number": "19119119100"}, "default_address": "home", "address": {"id": "1", "zip_code": "06233",
        "street_name": "Rua A", "street_number": 123}, "date_registered": "2025-01-31T09:30:00.000-04:00",
        "description": "Prefers mornings", "default_card": "none", "metadata": {"vip": true}}""",
    "orders.create": """{"external_reference": "ticket-1", "total_amount": "50.00", "transactions": {"payments":
        [{"amount": "50.00"}]}, "config": {"qr": {"external_pos_id": "POS1", "mode": "dynamic"}},
        "description": "Two coffees", "expiration_time": "PT3600H", "marketplace_fee": "1.00", "items":
        [{"title": "Coffee", "unit_price": "25.00", "quantity": 2, "unit_measure": "unit", "external_code": "c1"}],
        "discounts": {"payment_methods": [{"new_total_amount": "45.00", "type": "credit_card"}]}, "integration_data":
        {"platform_id": "2", "integrator_id": "dev_3", "sponsor": {"id": "4"}}, "type": "qr"}""",
    "orders.refund": '{"transactions": [{"id": "PAY1", "amount": "25.00"}]}',
}
#: A place in a whole request, what is put there, where the error points, and what it says.
BROKEN = [
    ("oauth.token", "client_id", "", "$.client_id", "length >= 1"),
    ("oauth.token", "client_secret", None, "$.client_secret", "Expected `str`"),
    ("oauth.token", "grant_type", "password", "$.grant_type", "Invalid enum value"),
    ("oauth.token", "code", None, "$.code", "authorization_code"),
    ("oauth.token", "code", "", "$.code", "length >= 1"),
    ("oauth.token", "refresh_token", "r", "$.refresh_token", "does not go with"),
    ("oauth.token", "surprise", "x", "$", "unknown field `surprise`"),
    ("preferences.create", "items", [], "$.items", "length >= 1"),
    ("preferences.create", "items", None, "$.items", "Expected `array`"),
    ("preferences.create", "items.0.quantity", 0, "$.items[0].quantity", ">= 1"),
    ("preferences.create", "items.0.quantity", "2", "$.items[0].quantity", "Expected `int"),
    ("preferences.create", "items.0.quantity", 1.5, "$.items[0].quantity", "Expected `int"),
    ("preferences.create", "items.0.unit_price", -1, "$.items[0].unit_price", "not negative"),
    ("preferences.create", "items.0.unit_price", 0.125, "$.items[0].unit_price", "two decimals"),
    ("preferences.create", "items.0.unit_price", "NaN", "$.items[0].unit_price", "finite"),
    ("preferences.create", "items.0.event_date", "2026-03-01T20:00:00", "$.items[0].event_date", "timezone"),
    ("preferences.create", "items.0.warranty", "yes", "$.items[0].warranty", "Expected `bool"),
    ("preferences.create", "payment_methods.installments", 0, "$.payment_methods.installments", ">= 1"),
    ("preferences.create", "payment_methods.installments", 37, "$.payment_methods.installments", "<= 36"),
    ("preferences.create", "payment_methods.installments", "6", "$.payment_methods.installments", "Expected `int"),
    ("preferences.create", "payment_methods.default_installments", 0, "$.payment_methods.default_installments", ">= 1"),
    ("preferences.create", "payer.authentication_type", "gmail", "$.payer.authentication_type", "Invalid enum value"),
    ("preferences.create", "shipments.cost", -0.5, "$.shipments.cost", "not negative"),
    ("preferences.create", "shipments.local_pickup", 1, "$.shipments.local_pickup", "Expected `bool"),
    ("preferences.create", "back_urls.success", "shop.example.com", "$.back_urls.success", "http or https"),
    ("preferences.create", "back_urls.pending", "ftp://shop.example.com", "$.back_urls.pending", "http or https"),
    ("preferences.create", "back_urls.failure", "https://shop.example.com\n", "$.back_urls.failure", "http or https"),
    ("preferences.create", "back_urls.failure", "https://sho p.example.com", "$.back_urls.failure", "http or https"),
    ("preferences.create", "back_urls.failure", "https://shöp.example.com", "$.back_urls.failure", "http or https"),
    ("preferences.create", "auto_return", "all", "$.auto_return", "Invalid enum value"),
    ("preferences.create", "marketplace_fee", 151.53, "$.marketplace_fee", "above the total amount"),
    ("preferences.create", "marketplace_fee", -1, "$.marketplace_fee", "not negative"),
    ("preferences.create", "binary_mode", "true", "$.binary_mode", "Expected `bool"),
    ("preferences.create", "differential_pricing.id", "7", "$.differential_pricing.id", "Expected `int"),
    ("preferences.create", "expiration_date_to", "2026-01-31T09:29:59-04:00", "$.expiration_date_to", "not after"),
    ("preferences.create", "expiration_date_to", "2026-01-31T13:30:00Z", "$.expiration_date_to", "not after"),
    ("preferences.create", "metadata", [], "$.metadata", "Expected `object"),
    ("wallet_payments.create", "wallet_payment", None, "$.wallet_payment", "Expected `object"),
    ("wallet_payments.create", "wallet_payment.transaction_amount", 0, "$.wallet_payment.transaction_amount", "above"),
    ("wallet_payments.create", "wallet_payment.discount.amount", -1, "$.wallet_payment.discount.amount", "negative"),
    ("wallet_payments.create", "payer", None, "$.payer", "Expected `object"),
    ("wallet_payments.create", "payer.token", "", "$.payer.token", "length >= 1"),
    ("wallet_payments.create", "payer.type_token", None, "$.payer.type_token", "Expected `str`"),
    ("wallet_payments.create", "capture", "no", "$.capture", "Expected `bool"),
    ("customers.create", "email", "ana", "$.email", "must be an address"),
    ("customers.create", "email", "ana@example", "$.email", "must be an address"),
    ("customers.create", "email", "ana@example.com\n", "$.email", "must be an address"),
    ("customers.create", "email", "änna@example.com", "$.email", "must be an address"),
    ("customers.create", "email", "a b@example.com", "$.email", "must be an address"),
    ("customers.create", "date_registered", "yesterday", "$.date_registered", "RFC3339"),
    ("customers.create", "phone.area_code", {}, "$.phone.area_code", "Expected `int | str"),
    ("customers.create", "metadata", "vip", "$.metadata", "Expected `object"),
    ("orders.create", "external_reference", "a" * 65, "$.external_reference", "length <= 64"),
    ("orders.create", "external_reference", "a b", "$.external_reference", "must be of ASCII letters"),
    ("orders.create", "external_reference", "a\n", "$.external_reference", "must be of ASCII letters"),
    ("orders.create", "external_reference", "\u0663", "$.external_reference", "must be of ASCII letters"),
    ("orders.create", "external_reference", "", "$.external_reference", "length >= 1"),
    ("orders.create", "description", "a" * 151, "$.description", "length <= 150"),
    ("orders.create", "type", "online", "$.type", "Invalid enum value"),
    ("orders.create", "total_amount", "49.00", "$.total_amount", "sum of the payments"),
    ("orders.create", "total_amount", "50.001", "$.total_amount", ""),
    ("orders.create", "transactions.payments", [], "$.transactions.payments", "length >= 1"),
    ("orders.create", "transactions.payments", [{"amount": "25"}] * 2, "$.transactions.payments", "length <= 1"),
    ("orders.create", "marketplace_fee", "50.01", "$.marketplace_fee", "above the total amount"),
    ("orders.create", "expiration_time", "PT29S", "$.expiration_time", "30 seconds"),
    ("orders.create", "expiration_time", "PT3601H", "$.expiration_time", "3600 hours"),
    ("orders.create", "expiration_time", "5 minutes", "$.expiration_time", "ISO 8601"),
    ("orders.create", "config.qr.mode", "magic", "$.config.qr.mode", "Invalid enum value"),
    ("orders.create", "items.0.title", "a" * 151, "$.items[0].title", "length <= 150"),
    ("orders.create", "items.0.unit_measure", "a" * 11, "$.items[0].unit_measure", "length <= 10"),
    ("orders.create", "items.0.external_code", "a" * 31, "$.items[0].external_code", "length <= 30"),
    ("orders.create", "items.0.quantity", 1.5, "$.items[0].quantity", "Expected `int`"),
    ("orders.create", "items.0.external_categories", [{"id": "x"}], "$.items[0].external_categories", "discounts"),
    ("orders.create", "discounts.payment_methods", [{"new_total_amount": "1", "type": "credit_card"}] * 5,
     "$.discounts.payment_methods", "length <= 4"),
    ("orders.create", "discounts.payment_methods.0.new_total_amount", "0",
     "$.discounts.payment_methods[0].new_total_amount", "above 0"),
    ("orders.create", "discounts.payment_methods.0.new_total_amount", "50.01",
     "$.discounts.payment_methods[0].new_total_amount", "above the total amount"),
    ("orders.create", "integration_data.integrator_id", "prod_3", "$.integration_data.integrator_id", "with dev_"),
    ("orders.create", "notification_url", "https://shop.example.com", "$", "unknown field `notification_url`"),
    ("orders.refund", "transactions.0.amount", "0", "$.transactions[0].amount", "above 0"),
    ("orders.refund", "transactions.0.id", "", "$.transactions[0].id", "length >= 1"),
]  # fmt: skip


def _put(request: object, path: str, value: object) -> None:
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        request = request[step]
    request[last] = value


@pytest.mark.parametrize("name", WHOLE)
def test_every_member_of_the_contract_goes_out(name: str) -> None:
    """A request from plain data keeps all members of the spec, and leaves as exactly what the wire wants."""
    operation = OPERATIONS[name]
    request = msgspec.convert(json.loads(WHOLE[name], parse_float=Decimal), operation.body)

    encoded = operation.encoder.encode(request)

    assert json.loads(WHOLE[name], parse_float=str) == json.loads(encoded, parse_float=str)


@pytest.mark.parametrize(("name", "path", "value", "place", "reason"), BROKEN)
def test_what_the_platform_refuses_is_refused_here(
    name: str, path: str, value: object, place: str, reason: str
) -> None:
    """One broken rule is refused with its place and its rule; the request without it (the control above) passes."""
    request = copy.deepcopy(json.loads(WHOLE[name]))
    _put(request, path, value)

    with pytest.raises(RequestInvalid) as refusal:
        OPERATIONS[name].encoder.decode(json.dumps(request).encode())

    assert place == refusal.value.path
    assert reason in refusal.value.reason


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


def wallet(amount: object, payer: object = None) -> WalletPaymentRequest:
    """A wallet payment."""
    return WalletPaymentRequest(
        wallet_payment=WalletChargeRequest(transaction_amount=amount),
        payer=payer or WalletPayerRequest(token="t", type_token="wallet"),
    )


DISCOUNTS = DiscountsRequest(payment_methods=[DiscountRequest(new_total_amount=Decimal(1), type="credit_card")])
LATE, EARLY = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
#: Requests made in Python, of types that no wire has: refused by the call at their own place, and never a crash.
WRONG: list[tuple[str, Callable[[], object], str, str]] = [
    ("preferences.create", lambda: preference(items=item(0.1)), "$.items[0].unit_price", "not float"),
    ("preferences.create", lambda: preference(items=item(Decimal("NaN"))), "$.items[0].unit_price", "finite"),
    ("preferences.create", lambda: preference(items=item(Decimal("Infinity"))), "$.items[0].unit_price", "finite"),
    ("preferences.create", lambda: preference(items=item(Decimal("1E+2"))), "$.items[0].unit_price", "exponent"),
    ("preferences.create", lambda: preference(items=item(Decimal("0.125"))), "$.items[0].unit_price", "two decimals"),
    ("preferences.create", lambda: preference(items=item("24.90")), "$.items[0].unit_price", "not str"),
    ("preferences.create", lambda: preference(items=item(Decimal(1), True)), "$.items[0].quantity", "Expected `int"),
    ("preferences.create", lambda: preference(items=[{"title": "A book"}]), "$.items[0]", "got dict"),
    ("preferences.create", lambda: preference(items=None), "$.items", "Expected `array`"),
    ("preferences.create", lambda: preference(marketplace_fee=0.1), "$.marketplace_fee", "not float"),
    ("preferences.create", lambda: preference(marketplace_fee=Decimal("NaN")), "$.marketplace_fee", "finite"),
    ("preferences.create", lambda: preference(marketplace_fee=Decimal("24.91")), "$.marketplace_fee", "above the tot"),
    ("preferences.create", lambda: preference(payer={"email": "a"}), "$.payer", "got dict"),
    ("preferences.create", lambda: preference(shipments=ShipmentsRequest(cost=1.0)), "$.shipments.cost", "not float"),
    ("preferences.create", lambda: preference(date_of_expiration=LATE.replace(tzinfo=None)),
     "$.date_of_expiration", "time zone"),
    ("preferences.create", lambda: preference(expiration_date_from="2026", expiration_date_to=LATE),
     "$.expiration_date_from", "expected a datetime"),
    ("preferences.create", lambda: preference(expiration_date_from=LATE, expiration_date_to=EARLY),
     "$.expiration_date_to", "not after"),
    ("preferences.create", lambda: preference(expiration_date_from=LATE, expiration_date_to=EARLY.replace(tzinfo=None)),
     "$.expiration_date_to", "time zone"),
    ("wallet_payments.create", lambda: wallet(80.0), "$.wallet_payment.transaction_amount", "not float"),
    ("wallet_payments.create", lambda: wallet(Decimal(0)), "$.wallet_payment.transaction_amount", "above 0"),
    ("wallet_payments.create", lambda: wallet(Decimal(1), {"token": "t"}), "$.payer", "type_token"),
    ("customers.create", lambda: CustomerRequest(date_registered=datetime(2026, 1, 1)),  # noqa: DTZ001
     "$.date_registered", "time zone"),
    ("customers.create", lambda: CustomerRequest(email=5), "$.email", "Expected `str"),
    ("customers.create", lambda: CustomerRequest(metadata={"a": object()}), "$", "cannot be written as JSON"),
    ("customers.create", lambda: {"email": "ana@example.com"}, "$", "expected CustomerRequest, got dict"),
    ("orders.create", lambda: order(total_amount=24.90), "$.total_amount", "not float"),
    ("orders.create", lambda: order(total_amount=Decimal("24.91")), "$.total_amount", "sum of the payments"),
    ("orders.create", lambda: order(marketplace_fee=Decimal("sNaN")), "$.marketplace_fee", "finite"),
    ("orders.create", lambda: order(marketplace_fee=Decimal("24.91")), "$.marketplace_fee", "above the total"),
    ("orders.create", lambda: order(transactions=TransactionsRequest(payments=[{"amount": "24.90"}])),
     "$.transactions.payments[0]", "got dict"),
    ("orders.create", lambda: order(transactions=TransactionsRequest(payments=None)),
     "$.transactions.payments", "Expected `array"),
    ("orders.create", lambda: order(items=[{"title": "a"}], discounts=DISCOUNTS), "$.items[0]", "got dict"),
    ("orders.create", lambda: order(items=5, discounts=DISCOUNTS), "$.items", "Expected `array"),
    ("orders.create", lambda: order(integration_data=IntegrationDataRequest(integrator_id="x")),
     "$.integration_data.integrator_id", "with dev_"),
    ("orders.create", lambda: order(
        items=[ItemRequest(title="a", unit_price=Decimal(1), quantity=1, unit_measure="u",
                           external_categories=[CategoryRequest(id="x")])],
        discounts=DISCOUNTS,
    ), "$.items[0].external_categories", "combined with discounts"),
]  # fmt: skip


@pytest.mark.control("paymentsdk.money._EXACTLY", Context(prec=3), raises=(AssertionError, RequestInvalid))
def test_no_sum_is_rounded() -> None:
    """How a program has its own amounts rounded says nothing of ours."""
    with localcontext(prec=3):
        assert preference(items=item(Decimal("1234.56")), marketplace_fee=Decimal("1234.56"))
        with pytest.raises(RequestInvalid, match="above the total"):
            preference(items=item(Decimal("1234.56")), marketplace_fee=Decimal("1234.57"))


@pytest.mark.parametrize(("name", "make", "place", "reason"), WRONG)
def test_wrong_types_are_refused_at_their_place(name: str, make: Callable[[], object], place: str, reason: str) -> None:
    """A float, NaN or dict in a request is refused by its own rule; the rules across members never stumble over it."""
    with pytest.raises(RequestInvalid) as refusal:
        OPERATIONS[name].encoder.encode(make())

    assert place == refusal.value.path
    assert reason in refusal.value.reason


#: Requests that pass, and their bytes.
EXACT: list[tuple[str, Callable[[], object], bytes]] = [
    ("customers.create", CustomerRequest, b"{}"),
    ("customers.create", lambda: CustomerRequest(email="ana@example.com"), b'{"email":"ana@example.com"}'),
    ("customers.create",
     lambda: CustomerRequest(date_registered=datetime(2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=-3)))),
     b'{"date_registered":"2026-01-31T09:30:00.000-03:00"}'),
    ("preferences.create", lambda: preference(items=item(Decimal("24.9"))),
     b'{"items":[{"quantity":1,"unit_price":24.90}]}'),
    ("preferences.create", lambda: preference(items=item(Decimal(0), 3)), b'{"items":[{"quantity":3,"unit_price":0}]}'),
    ("preferences.create", lambda: preference(items=[PreferenceItemRequest(id="a")]), b'{"items":[{"id":"a"}]}'),
    # The fee may be the whole total, and is not judged where no total is known.
    ("preferences.create", lambda: preference(items=item(Decimal("0.1"), 3), marketplace_fee=Decimal("0.3")),
     b'{"items":[{"quantity":3,"unit_price":0.10}],"marketplace_fee":0.30}'),
    ("preferences.create",
     lambda: preference(items=[PreferenceItemRequest(unit_price=Decimal(1))], marketplace_fee=Decimal(5)),
     b'{"items":[{"unit_price":1}],"marketplace_fee":5}'),
    ("wallet_payments.create", lambda: wallet(Decimal("80.5")),
     b'{"wallet_payment":{"transaction_amount":80.50},"payer":{"token":"t","type_token":"wallet"}}'),
    ("wallet_payments.create", lambda: wallet(None),
     b'{"wallet_payment":{},"payer":{"token":"t","type_token":"wallet"}}'),
    ("preferences.create",
     lambda: preference(items=item(None), payer=PayerRequest(authentication_type=AuthenticationType.NATIVE_WEB)),
     b'{"items":[{"quantity":1}],"payer":{"authentication_type":"Native web"}}'),
    ("orders.create", lambda: order(total_amount=Decimal("24.9")),
     b'{"external_reference":"s","total_amount":"24.90","transactions":{"payments":[{"amount":"24.90"}]},"type":"qr"}'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "encoded"), EXACT)
def test_only_what_was_set_goes_out(name: str, make: Callable[[], object], encoded: bytes) -> None:
    """Members that were not set are not sent; amounts have two decimals or none, and moments an offset."""
    assert encoded == OPERATIONS[name].encoder.encode(make())


@pytest.mark.parametrize("mode", [QRMode.HYBRID, "hybrid"])
def test_a_mode_is_its_text_or_its_constant(mode: QRModeName) -> None:
    """Both go out alike."""
    config = OrderConfigRequest(qr=QRConfigRequest(mode=mode))

    assert b'"config":{"qr":{"mode":"hybrid"}}' in OPERATIONS["orders.create"].encoder.encode(order(config=config))


def test_unknown_members_are_ignored_except_by_the_orders_api() -> None:
    """The platform ignores members that it does not know; its Orders API refuses them."""
    assert CustomerRequest() == OPERATIONS["customers.create"].encoder.decode(b'{"nickname": "An"}')
    with pytest.raises(RequestInvalid):
        OPERATIONS["orders.refund"].encoder.decode(b'{"reason": "none"}')
