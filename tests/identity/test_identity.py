"""A response is believed only if it is the response to this request."""

from __future__ import annotations

import pytest
from msgspec import structs

from paymentsdk import OPERATIONS, OutcomeUnknown, RetryPolicy
from paymentsdk.testing import MemoryTransport
from tests.identity.writes import WRITES, says, write

ONCE = RetryPolicy(attempts=1)
PAYMENT = {"id": "PAY7", "amount": "7.00", "status": "processed"}

#: What other calls of the same client, or somebody before the platform, respond with a 2xx.
FOREIGN: dict[str, object] = {
    "an order": {
        "id": "ORD7", "type": "qr", "external_reference": "shop-7", "total_amount": "7.00", "status": "created",
        "transactions": {"payments": [PAYMENT]}},
    "a refund": {"id": "ORD7", "status": "refunded", "transactions": {
        "refunds": [{"id": "REF7", "transaction_id": "PAY7", "amount": "7.00"}]}},
    "a cancellation": {"id": "ORD7", "status": "canceled", "status_detail": "canceled"},
    "a wallet payment": {
        "id": 7, "payments": [{"id": 8, "transaction_amount": 7, "external_reference": "shop-7"}],
        "wallet_payment": {"transaction_amount": 7}},
    "a preference": {"id": "77-7", "items": [{"title": "A lamp", "quantity": 2, "unit_price": 7}],
                     "init_point": "https://pay.example.com/7", "collector_id": 77},
    "a customer": {"id": "c-7", "email": "bob@example.com"},
    "a plan": {"id": "plan-7", "status": "active", "reason": "Gym", "auto_recurring": {"frequency": 1}},
    "a page of merchant orders": {"elements": [{"id": 7}], "next_offset": 0, "total": 1},
    "a token": {"access_token": "APP_USR-7", "token_type": "bearer", "refresh_token": "TG-7", "user_id": 7},
    "an error with an id": {"id": "err-7c", "status": 500, "message": "Internal error"},
    "an error": {"error": "bad_request", "message": "Bad Request", "status": 400, "cause": []},
    "a page of HTML": b"<html>It works!</html>",
}  # fmt: skip


async def outcome(client_over, name: str, body: object, **settings: object) -> object:
    """Return the result of the write *name* whose response has *body*, or the error."""
    transport = MemoryTransport([says(body, OPERATIONS[name].status)])
    try:
        return await write(name)(client_over(transport, retry=ONCE, **settings))
    except OutcomeUnknown as error:
        return error


@pytest.mark.control("paymentsdk.Operation.identity", property(lambda operation: None))
@pytest.mark.parametrize("name", WRITES)
async def test_no_foreign_response_is_taken_for_the_result_of_a_write(client_over, name):
    """Whatever else the platform, or somebody before it, sends with a 2xx: no write counts as done by it."""
    believed = [kind for kind, body in FOREIGN.items()
             if not isinstance(await outcome(client_over, name, body), OutcomeUnknown)]  # fmt: skip

    assert [] == believed


#: Real and documented responses to these writes.
REAL: list[tuple[str, object]] = [
    ("orders.create", {"id": "ORD1", "type": "qr", "external_reference": "shop-1", "total_amount": "24.90",
                       "transactions": {"payments": [{"id": "PAY1", "amount": "24.90"}]}, "client_token": "x"}),
    ("orders.create", {"id": "ORD1", "total_amount": "24.90", "status": "action_required", "client_token": "x"}),
    ("orders.create", {"id": "ORD1", "total_amount": 24.9, "external_reference": ""}),
    ("orders.cancel", {"id": "ORD1", "status": "cancelled", "transactions": {"payments": [PAYMENT]}}),
    ("orders.cancel", {"id": "ORD1"}),
    ("orders.refund", {"id": "ORD1", "status": "processed", "status_detail": "partially_refunded", "transactions": {
        "refunds": [{"id": "REF1", "transaction_id": "PAY1", "reference_id": "1", "amount": "5.00"}]}}),
    ("orders.refund", {"id": "ORD1", "status": "refunded", "transactions": {"refunds": [{"id": 4}]}, "new": 1}),
    ("orders.refund", {"id": "ORD1", "transactions": {"refunds": [
        {"id": "REF0", "transaction_id": "PAY1", "amount": "2.00"},
        {"id": "REF1", "transaction_id": "PAY1", "amount": 5}]}}),
    ("wallet_payments.create", {"id": 1, "payments": [
        {"transaction_amount": 20}, {"transaction_amount": "4.90", "external_reference": "shop-1"}]}),
    ("wallet_payments.create", {"id": 1, "payments": [
        {"transaction_amount": 20, "external_reference": "shop-1"}, {"id": 2, "transaction_amount": ""}]}),
    ("wallet_payments.create", {"id": 1, "external_reference": "?", "wallet_payment": {
        "external_reference": "shop-1"}}),
    ("preferences.create", {"id": "77-a", "items": [{"id": "sku-1", "title": "A book", "quantity": 1,
        "unit_price": 24.90, "currency_id": "ARS"}], "init_point": "https://a", "collector_id": 77, "site_id": "MLA"}),
    ("preferences.create", {"id": "77-a", "items": [{"title": " A  Book", "quantity": "1", "unit_price": "24.9"}]}),
    ("customers.create", {"id": "c", "email": "Ann@Example.com", "user_id": 1, "merchant_id": 2,
                          "default_address": None, "address": {"street_name": {"es": "Calle"}}}),
    ("release_reports.disable_schedule", {"id": 1, "status": "deleted", "scheduled": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body"), REAL)
async def test_a_real_response_is_accepted_as_identified(client_over, name, body):
    """Members may be missing, unknown, or of another type: what identifies the response is enough."""
    result = await outcome(client_over, name, body)

    assert not isinstance(result, OutcomeUnknown), result
    assert not [anomaly for anomaly in result.anomalies if "unidentified" in anomaly.reason]


@pytest.mark.parametrize("ids", [["", ""], [None, ""]], ids=["none", "half"])
async def test_items_without_an_id_may_come_back_with_an_empty_one(client_over, ids):
    """An empty text stands for unset, also where no item has been given an id."""
    items = [{"title": f"{place}. book", "quantity": 1, "unit_price": 24.9} for place in range(2)]
    basket = [item if not item_id else {**item, "id": item_id} for item, item_id in zip(items, ids, strict=True)]
    echoed = [{**item, "id": item_id} for item, item_id in zip(items, ids, strict=True)]
    transport = MemoryTransport([says({"id": "77-a", "items": echoed})])

    result = await write("preferences.create", items=basket)(client_over(transport))

    assert "77-a" == result.value.id
    assert not [anomaly for anomaly in result.anomalies if "unidentified" in anomaly.reason]


@pytest.mark.control("paymentsdk._contract.identity.undeclared", lambda raw, value, place: iter(()))
@pytest.mark.parametrize("name", ["orders.create", "wallet_payments.create", "preferences.create", "customers.create"])
async def test_a_response_that_nothing_identifies_is_accepted_with_an_anomaly_or_not_at_all(client_over, name):
    """A minimal response is believed, and says so; a member that its type does not have belongs to something else."""
    minimal = await outcome(client_over, name, {"id": "1"})
    more = await outcome(client_over, name, {"id": "1", "frequency": 3})

    assert "1" == str(minimal.value.id)
    assert "$" in [anomaly.path for anomaly in minimal.anomalies if anomaly.reason.startswith("unidentified response")]
    assert isinstance(more, OutcomeUnknown)
    assert "$.frequency is not one of its fields" in more.reason


@pytest.mark.parametrize(
    "members",
    [b'"error":"bad_request","message":"opera\xe7\xe3o inv\xe1lida"', b'"frequency":1e400'],
    ids=["an error", "a number"],
)
async def test_an_unreadable_member_hides_no_other(client_over, members):
    """A text that is not UTF-8, or a number beyond all floats, is skipped: what stands beside it still tells."""
    result = await outcome(client_over, "orders.create", b'{"id":"1",' + members + b"}")

    assert isinstance(result, OutcomeUnknown)


#: The responses of other operations about the same basket.
OF_THE_BASKET = {
    "preferences.create": {"id": "ORD1", "type": "qr", "external_reference": "shop-1", "total_amount": "24.90",
                           "status": "created", "transactions": {"payments": [PAYMENT]}},
    "orders.create": {"id": "77-a", "external_reference": "shop-1", "init_point": "https://a", "collector_id": 77},
}  # fmt: skip


@pytest.mark.control(
    "paymentsdk._contract.identity.compile_comparison",
    around=lambda compiled: (
        lambda echoes, *, of_entry=False: compiled(
            [structs.replace(echo, shared=False) for echo in echoes], of_entry=of_entry
        )
    ),
)
@pytest.mark.parametrize("name", OF_THE_BASKET)
async def test_a_reference_alone_does_not_tell_an_order_from_a_preference(client_over, name, monkeypatch):
    """One basket has one reference: an order with it is no preference, nor the other way round."""
    operation = OPERATIONS[name]
    monkeypatch.setitem(vars(operation), "identity", type(operation).identity.func(operation))

    foreign = await outcome(client_over, name, OF_THE_BASKET[name])
    bare = await outcome(client_over, name, {"id": "1", "external_reference": "shop-1"})

    assert isinstance(foreign, OutcomeUnknown), foreign
    assert ["$"] == [anomaly.path for anomaly in bare.anomalies if anomaly.reason.startswith("unidentified response")]


#: Responses about something else in one member alone.
OTHERS: list[tuple[str, object, str]] = [
    ("orders.create", {"id": "1", "external_reference": "shop-1", "total_amount": "24.91"}, "total_amount"),
    ("orders.create", {"id": "1", "external_reference": "shop-1",
                       "transactions": {"payments": [{"id": "P", "amount": "24.91"}]}}, "payments[].amount"),
    ("orders.create", {"id": "1", "external_reference": "shop-1", "total_amount": "NaN"}, "$.total_amount"),
    ("orders.create", {"id": "1", "external_reference": "shop-1",
                       "transactions": {"payments": [{"id": "P", "amount": "1e999"}]}}, "payments[0].amount"),
    ("orders.create", {"id": "1", "external_reference": {"a": 1}, "total_amount": "24.90"}, "external_reference"),
    ("orders.create", {"id": "1", "total_amount": "24.90", "transactions": "none"}, "$.transactions"),
    ("wallet_payments.create", {"id": 1, "payments": [{"transaction_amount": 24.91}]}, "transaction_amount"),
    ("wallet_payments.create", {"id": 1, "payments": [{"transaction_amount": "NaN"}]}, "transaction_amount"),
    ("wallet_payments.create", {"id": 1, "payments": [{"transaction_amount": 24.9, "external_reference": "b"}]},
     "external_reference"),
    ("preferences.create", {"id": "1", "items": [{"title": "A lamp", "quantity": 1, "unit_price": 24.9}]}, "title"),
    ("preferences.create", {"id": "1", "items": [{"unit_price": 25}]}, "unit_price"),
    ("preferences.create", {"id": "1", "items": [{"unit_price": 24.9}, {"unit_price": 1}]}, "unit_price"),
    ("preferences.create", {"id": "1", "items": [{"title": "A book", "unit_price": "?"}]}, "unit_price"),
    ("customers.create", {"id": "1", "email": "bob@example.com"}, "email"),
    ("orders.cancel", {"id": "ORD2"}, "id"),
    *[("orders.cancel", {"id": "ORD1", "status": state}, "another status")
      for state in ("created", "processed", "refunded", "expired", "failed", "processing", "action_required")],
    ("orders.cancel", {"id": "ORD1", "status": "refunded", "transactions": {"refunds": [{"id": "R"}]}}, "status"),
    ("orders.refund", {"id": "ORD1", "transactions": {"refunds": [{"id": "R", "amount": "6"}]}}, "refunds"),
    ("orders.refund", {"id": "ORD1", "transactions": {"refunds": [{"id": "R", "transaction_id": "PAY2"}]}}, "refunds"),
    ("orders.refund", {"id": "ORD1", "transactions": {"refunds": [{"id": "R", "amount": "NaN"}]}}, "amount"),
    ("orders.cancel", {"id": "ORD1", "message": "locked"}, "fields of an error"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "reason"), OTHERS)
async def test_one_member_that_does_not_agree_is_enough(client_over, name, body, reason):
    """What is present must agree, and an amount that cannot be read does not."""
    error = await outcome(client_over, name, body)

    assert isinstance(error, OutcomeUnknown)
    assert reason in error.reason


@pytest.mark.parametrize(("name", "status", "declared"), [
    ("orders.create", 201, True), ("orders.create", 202, False), ("orders.create", 200, False),
    ("preferences.create", 200, True), ("preferences.create", 201, True), ("customers.create", 203, False),
])  # fmt: skip
async def test_an_undeclared_2xx_is_an_anomaly(client_over, name, status, declared):
    """202 means that it is not done yet: who looks at the anomalies learns that the contract has another status."""
    bodies = {"orders.create": {"id": "ORD1", "total_amount": "24.90"}, "customers.create": {"id": "1"}}
    transport = MemoryTransport([says(bodies.get(name, {"id": "1", "external_reference": "shop-1"}), status)])

    result = await write(name)(client_over(transport))

    assert declared is ("$status" not in [anomaly.path for anomaly in result.anomalies])


@pytest.mark.control("paymentsdk._contract.identity.Identity.unreadable", lambda self, anomaly: False)
async def test_no_number_of_anomalies_hides_what_identifies_a_response(client_over):
    """A report is cut after a hundred; that the member to compare cannot be read is told nevertheless."""
    items = [{"id": "sku-1", "title": "A book", "quantity": 1, "unit_price": 24.9}] * 150
    malformed = [{**item, "category_id": {"lost": True}} for item in items]
    body = {"id": "77-7", "items": malformed, "external_reference": {"lost": True}, "collector_id": 77}
    client = client_over(MemoryTransport([says(body)]), retry=ONCE)

    with pytest.raises(OutcomeUnknown) as raised:
        await write("preferences.create", items=items)(client)

    assert "$.external_reference" in str(raised.value)
