"""What of an order is rejected, with its code and its place."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paymentsdk import BadRequest, NotFound
from tests.sandbox.orders import payment


@pytest.mark.parametrize(("policy", "longer"), [("PT3600H", "PT3601H"), ("PT3H", "PT3H1S")])
async def test_the_longest_expiration_is_a_policy(start, plain_to, data, policy, longer):
    """The contract gives two maxima."""
    plain = plain_to(await start(policies={"max_order_expiration": policy}))

    accepted, rejected = [
        await plain("POST", "/v1/orders", data(expiration_time=text), key=text) for text in (policy, longer)
    ]

    assert (201, 400, "property_value") == (accepted.status, rejected.status, rejected.code)


ITEM = {"title": "t", "unit_price": "1", "quantity": 1, "unit_measure": "kg"}


def discount(*totals: str) -> dict[str, object]:
    """Return discounts of debit cards with these totals."""
    return {"payment_methods": [{"type": "debit_card", "new_total_amount": total} for total in totals]}


def with_cash(**members: object) -> dict[str, object]:
    """Return the members of an order of 50.00 with a cash withdrawal of 20.00."""
    return {
        "total_amount": "70.00",
        "transactions": {"payments": [{"amount": "50.00"}], "cash_withdrawal": {"amount": "20.00"}},
        **members,
    }


RULES = [
    ({"type": "online"}, "property_value", "type"),
    ({"expiration_time": 900}, "property_type", "expiration_time"),
    ({"transactions": {"payments": []}}, "minimum_items", "transactions.payments"),
    ({"transactions": {"payments": [{"amount": "25"}] * 2}}, "maximum_items", "transactions.payments"),
    ({"transactions": {}}, "required_properties", "transactions"),
    ({"config": {"qr": {}, "print": {}}}, "unsupported_properties", "config"),
    ({"items": [{**ITEM, "external_categories": [{"id": "x"}]}], "discounts": discount("1")},
     "property_value", "items[0].external_categories"),
    (with_cash(total_amount="50.00"), "property_value", "total_amount: is not the sum of the transactions"),
    (with_cash(total_amount="70.01"), "property_value", "total_amount: is not the sum of the transactions"),
]  # fmt: skip


async def test_a_broken_rule_is_rejected_with_its_code_and_its_place(plain, data):
    """The Orders API names the member that is to blame in `details`."""
    for members, code, place in RULES:
        response = await plain("POST", "/v1/orders", {**data(), **members}, key="k")

        assert (400, code) == (response.status, response.code), members
        assert any(place in detail for detail in response.json["errors"][0]["details"])


async def test_required_members_are_required(plain, data):
    """`type` has one value, and the contract requires it all the same."""
    for missing in ("type", "external_reference", "total_amount", "transactions"):
        body = data()
        del body[missing]
        response = await plain("POST", "/v1/orders", body, key="k")

        assert (400, "required_properties") == (response.status, response.code)
        assert missing in response.json["errors"][0]["details"][0]


async def test_what_is_no_json_object_is_rejected(plain):
    """Malformed JSON is `property_type`, however it is malformed."""
    for body in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        response = await plain("POST", "/v1/orders", body, key="k")
        assert (400, "property_type") == (response.status, response.code)


async def test_the_form_of_an_order_id_is_checked(plain):
    """ORD and 26 characters; anything else is `invalid_path_param`."""
    for order_id in ("ORD1", "PAY" + "0" * 26, "ORD" + "0" * 27, "ORD" + "-" * 26, "%00"):
        for method, verb in (("GET", ""), ("POST", "/cancel"), ("POST", "/refund")):
            response = await plain(method, f"/v1/orders/{order_id}{verb}", key="k")
            assert (400, "invalid_path_param") == (response.status, response.code)
            assert ["order_id"] == response.json["errors"][0]["details"]


async def test_orders_of_others_are_not_found(client, connect, sandbox, order):
    """A seller sees their own orders only."""
    new_order = await client.orders.create(order())
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        for call in (second_client.orders.get, second_client.orders.cancel, second_client.orders.refund):
            with pytest.raises(NotFound) as refused:
                await call(new_order.id)
            assert "order_not_found" == refused.value.code


async def test_the_currency_is_the_sellers(connect, sandbox, order):
    """Currency and country come from the seller's account; other countries are `unsupported_site`."""
    async with connect(sandbox, sandbox.create_tenant(country="BR")) as client:
        new_order = await client.orders.create(order())
    async with connect(sandbox, sandbox.create_tenant(country="MX")) as client:
        with pytest.raises(BadRequest) as refused:
            await client.orders.create(order())

    assert ("BRL", "BR") == (new_order.currency, new_order.country_code)
    assert "unsupported_site" == refused.value.code


async def test_a_point_of_sale_must_be_the_sellers(client, connect, sandbox, order):
    """`pos_not_found` for a point of sale of somebody else."""
    async with connect(sandbox, sandbox.create_tenant(external_pos_ids=["POS-2"])) as second_client:
        await second_client.orders.create(order(config={"qr": {"external_pos_id": "POS-2"}}))
    with pytest.raises(NotFound) as refused:
        await client.orders.create(order(config={"qr": {"external_pos_id": "POS-2"}}))

    place = "config.qr.external_pos_id"
    assert ("pos_not_found", (place,)) == (refused.value.code, refused.value.details[0].details)


async def test_a_fee_needs_a_token_from_oauth_and_a_marketplace(client, connect, sandbox, order):
    """`marketplace_not_valid` without OAuth, `marketplace_fee_not_allowed` without a marketplace."""
    with pytest.raises(BadRequest) as without_oauth:
        await client.orders.create(order(marketplace_fee="1.00"))
    tenant = sandbox.create_tenant(marketplace=None)
    async with connect(sandbox, tenant) as second_client:
        token = await second_client.oauth.exchange_code(tenant.authorization_code)
        with pytest.raises(NotFound) as without_marketplace:
            await second_client.with_options(access_token=token.access_token).orders.create(
                order(marketplace_fee="1.00")
            )

    assert "marketplace_not_valid" == without_oauth.value.code
    assert "marketplace_fee_not_allowed" == without_marketplace.value.code


async def test_a_sponsor_is_a_number(client, order):
    """`sponsor_id_not_valid`, also for digits of another script."""
    for sponsor in ("somebody", "\uff11\uff12"):
        with pytest.raises(BadRequest) as refused:
            await client.orders.create(order(integration_data={"sponsor": {"id": sponsor}}))

        [detail] = refused.value.details
        assert ("sponsor_id_not_valid", ("integration_data.sponsor.id",)) == (detail.code, detail.details)


async def test_the_total_of_an_order_contains_its_cash_withdrawal(client, sandbox, order):
    """The order keeps it in every state; the seller is paid for both, and gives back only the payment (spec: Order)."""
    new_order = await client.orders.create(order(**with_cash()))
    paid = sandbox.buyer.pay(new_order)
    await client.orders.refund(new_order.id, payment_id=payment(new_order).id, amount=Decimal("10.00"))
    read = await client.orders.get(new_order.id)
    [sale] = await client.merchant_orders.search().collect()

    assert {Decimal("20.00")} == {version.transactions.cash_withdrawal.amount for version in (new_order, paid, read)}
    assert (Decimal("70.00"), Decimal("50.00")) == (read.total_amount, payment(read).paid_amount)
    assert [("payment", 50), ("cash_withdrawal", 20), ("refund", -10)] == [
        (entry.kind, entry.amount) for entry in sandbox.ledger() if entry.amount
    ]
    assert (50, 50, "paid") == (sale.total_amount, sale.paid_amount, sale.order_status)


async def test_a_seller_who_may_not_hand_out_cash_is_told_so(sandbox, connect, order):
    """400 `seller_configuration`, and only for an order with a withdrawal."""
    tenant = sandbox.create_tenant(cash_withdrawals=False)
    async with connect(sandbox, tenant) as client:
        with pytest.raises(BadRequest) as caught:
            await client.orders.create(order(**with_cash()))
        new_order = await client.orders.create(order())

    assert ("seller_configuration", True) == (caught.value.code, caught.value.settled)
    assert ("transactions.cash_withdrawal",) == caught.value.details[0].details
    assert None is new_order.transactions.cash_withdrawal


async def test_a_total_with_a_discount_contains_the_cash_withdrawal(client, sandbox, order, plain, data):
    """Nobody is handed out more than they pay."""
    discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "65.00"}]}
    new_order = await client.orders.create(order(**with_cash(discounts=discounts)))
    paid = sandbox.buyer.pay(new_order, payment_method="debit_card")
    discounts["payment_methods"][0]["new_total_amount"] = "20.00"
    rejected = await plain("POST", "/v1/orders", data(**with_cash(discounts=discounts)), key="k")

    assert Decimal("45.00") == payment(paid).paid_amount
    assert (400, "property_value") == (rejected.status, rejected.code)
