"""Orders through the real client: what they are made with, and each state and transition until they end."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import count

import pytest

from paymentsdk import APIError, Conflict
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Rejected
from tests.sandbox.orders import bring, members, payment


async def test_a_new_order_has_every_member_that_the_contract_gives_it(client, sandbox, order):
    """Ids, defaults, the seller's currency and country, one payment that is ready to process."""
    new_order = await client.orders.create(order(config={"qr": {"external_pos_id": "POS001", "mode": "dynamic"}}))

    assert new_order == await client.orders.get(new_order.id)
    assert 29 == len(new_order.id)
    assert new_order.id.startswith("ORD")
    assert payment(new_order).id.startswith("PAY")
    assert 29 == len(payment(new_order).id)
    assert ("created", "created") == (new_order.status, new_order.status_detail)
    assert ("created", "ready_to_process") == (payment(new_order).status, payment(new_order).status_detail)
    assert ("PT15M", "automatic", "qr") == (new_order.expiration_time, new_order.processing_mode, new_order.type)
    assert ("ARS", "AR", str(sandbox.tenant.user_id)) == (new_order.currency, new_order.country_code, new_order.user_id)
    assert Decimal("50.00") == new_order.total_amount == payment(new_order).amount
    assert new_order.created_date == new_order.last_updated_date == sandbox.clock.now()
    assert sandbox.client_id == new_order.integration_data.application_id
    assert None is payment(new_order).refunded_amount


async def test_moments_and_amounts_have_the_form_of_the_contract(plain, data):
    """Milliseconds and Z; amounts as they were given, with two decimals or none."""
    new_order = (await plain("POST", "/v1/orders", data("50"), key="k")).json
    with_cents = (await plain("POST", "/v1/orders", data("50.10"), key="l")).json

    assert new_order["created_date"].endswith("Z")
    assert 24 == len(new_order["created_date"])
    assert ("50", "50.10") == (new_order["total_amount"], with_cents["total_amount"])


async def test_the_mode_decides_whether_there_is_a_code(client, order):
    """`type_response.qr_data` is there for dynamic and hybrid, and static is the default."""
    for mode in ("static", "dynamic", "hybrid", None):
        new_order = await client.orders.create(order(config={"qr": {"external_pos_id": "POS001", "mode": mode}}))

        assert (mode in {"dynamic", "hybrid"}) == (new_order.type_response is not None)
        assert (mode or "static") == new_order.config.qr.mode


async def test_everything_that_was_sent_comes_back(client, connect, sandbox, order):
    """Items, discounts, integration data, fee and description are part of the order."""
    token = await client.oauth.exchange_code(sandbox.authorization_code)
    async with client.with_options(access_token=token.access_token) as oauth:
        items = [{"title": "Coffee", "unit_price": "25.00", "quantity": 2, "unit_measure": "u", "external_code": "c"}]
        discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "45.00"}]}
        integration = {"platform_id": "p", "integrator_id": "dev_1", "sponsor": {"id": "12"}}
        more = {"description": "Two coffees", "marketplace_fee": "1.50", "integration_data": integration}
        new_order = await oauth.orders.create(order(items=items, discounts=discounts, **more))

    assert ("Two coffees", Decimal("1.50")) == (new_order.description, new_order.marketplace_fee)
    assert ("Coffee", 2, "c") == members(new_order.items[0], "title quantity external_code")
    assert Decimal("45.00") == new_order.discounts.payment_methods[0].new_total_amount
    assert ("p", "dev_1", "12") == members(new_order.integration_data, "platform_id integrator_id sponsor.id")


async def test_a_payment_makes_an_order_processed(client, sandbox, order):
    """Created -> processed / accredited, with the method, the amount paid and a reference."""
    new_order = await client.orders.create(order())
    sandbox.clock.advance("PT1M")

    sandbox.buyer.pay(new_order, payment_method="credit_card", installments=3)
    paid = await client.orders.get(new_order.id)

    assert ("processed", "accredited") == (paid.status, paid.status_detail)
    assert ("processed", "accredited") == (payment(paid).status, payment(paid).status_detail)
    assert Decimal("50.00") == payment(paid).paid_amount
    assert ("credit_card", 3) == (payment(paid).payment_method.type, payment(paid).payment_method.installments)
    assert 12 == len(payment(paid).reference_id)
    assert paid.last_updated_date - paid.created_date == timedelta(minutes=1)


async def test_a_buyer_knows_three_outcomes(client, sandbox, order):
    """An unknown outcome such as `reject` is rejected and pays nothing."""
    new_order = await client.orders.create(order())
    basket = await client.preferences.create(PreferenceRequest(items=[PreferenceItemRequest(unit_price=Decimal(5))]))

    with pytest.raises(Rejected, match="approved, rejected, in_review"):
        sandbox.buyer.pay(new_order, outcome="reject")
    with pytest.raises(Rejected, match="approved, rejected, in_review"):
        sandbox.buyer.pay_preference(basket, outcome="accredited")

    assert "created" == (await client.orders.get(new_order.id)).status
    assert [] == await client.merchant_orders.search().collect()


async def test_a_rejected_attempt_leaves_no_trace(client, sandbox, order):
    """Rejected payments are not exposed, nor when one was tried; the order stays created, and can still be paid."""
    new_order = await client.orders.create(order())
    sandbox.clock.advance("PT1M")

    assert new_order == sandbox.buyer.reject(new_order) == await client.orders.get(new_order.id)
    assert "processed" == sandbox.buyer.pay(new_order).status


async def test_an_order_is_paid_in_as_many_installments_as_there_can_be(client, sandbox, order):
    """1 to 36 with a credit card; any other method takes all at once."""
    methods = {"credit_card": ("visa", 36), "debit_card": ("debvisa", 1), "prepaid_card": ("prepaid", 1)}
    orders = {method: await client.orders.create(order()) for method in methods}

    for installments in (0, 37):
        with pytest.raises(Rejected, match="installments must be 1 to 36"):
            sandbox.buyer.pay(orders["credit_card"], payment_method="credit_card", installments=installments)
    for method, expected in methods.items():
        paid = sandbox.buyer.pay(orders[method], payment_method=method, installments=36)
        assert (method, *expected) == members(payment(paid).payment_method, "type id installments")


async def test_a_payment_in_review_is_decided_later(client, sandbox, order):
    """Created / in_review, then either way."""
    new_order = await client.orders.create(order())

    sandbox.buyer.pay(new_order, outcome="in_review")
    waiting = await client.orders.get(new_order.id)
    sandbox.buyer.reject(new_order)
    rejected = await client.orders.get(new_order.id)
    paid = sandbox.buyer.pay(new_order)

    assert ("created", "in_review") == (waiting.status, payment(waiting).status_detail)
    assert ("created", "ready_to_process") == (rejected.status, payment(rejected).status_detail)
    assert "processed" == paid.status


@pytest.mark.parametrize("method", ["debit_card", "credit_card"])
async def test_the_method_picks_its_discount(client, sandbox, order, method):
    """paid_amount reflects the discount of the method, and only of the method."""
    entries = [{"type": method, "new_total_amount": "40.00"}]
    first_order = await client.orders.create(order(discounts={"payment_methods": entries}))
    second_order = await client.orders.create(order(discounts={"payment_methods": entries}))

    paid = sandbox.buyer.pay(first_order, payment_method=method)
    full = sandbox.buyer.pay(second_order, payment_method="credit_card" if method != "credit_card" else "debit_card")

    assert (Decimal("40.00"), method) == (payment(paid).paid_amount, payment(paid).discounts.type)
    assert (Decimal("50.00"), None) == (payment(full).paid_amount, payment(full).discounts)


async def test_an_unpaid_order_can_be_canceled(client, order):
    """Created -> canceled; the payment says that it was canceled through the API."""
    new_order = await client.orders.create(order())

    canceled = await client.orders.cancel(new_order.id)

    assert ("canceled", "canceled") == (canceled.status, canceled.status_detail)
    assert ("canceled", "canceled_by_api") == (payment(canceled).status, payment(canceled).status_detail)
    assert canceled == await client.orders.get(new_order.id)


@pytest.mark.parametrize("state", ["processed", "refunded", "canceled", "expired"])
async def test_only_a_created_order_can_be_canceled_or_paid(client, sandbox, order, state):
    """By default; the buyer is told why not."""
    new_order = await bring(client, sandbox, order, state)

    with pytest.raises(Conflict) as refused:
        await client.orders.cancel(new_order.id)
    with pytest.raises(Rejected, match=f"409 cannot_pay_order the order is {state}"):
        sandbox.buyer.pay(new_order)

    assert ("order_already_canceled" if state == "canceled" else "cannot_cancel_order") == refused.value.code
    assert state == new_order.status == (await client.orders.get(new_order.id)).status


@pytest.mark.parametrize("state", ["created", "processed", "refunded", "expired"])
async def test_any_order_can_be_canceled_under_the_other_policy(start, connect, order, state):
    """`cancel_from=any` cancels an order in any state; a paid amount goes back once."""
    sandbox = await start(frozen=True, policies={"cancel_from": "any"})
    async with connect(sandbox) as client:
        new_order = await bring(client, sandbox, order, state)
        assert "canceled" == (await client.orders.cancel(new_order.id)).status

    assert 0 == sum(entry.amount for entry in sandbox.ledger())


async def test_an_order_expires_at_its_moment(client, sandbox, order):
    """15 minutes, or what was asked for; not a millisecond sooner."""
    for text, seconds in ((None, 900), ("PT30S", 30), ("P1DT1S", 86401)):
        new_order = await client.orders.create(order(**({"expiration_time": text} if text else {})))

        sandbox.clock.advance(timedelta(seconds=seconds, milliseconds=-1))
        before = await client.orders.get(new_order.id)
        [happening] = sandbox.clock.advance(timedelta(milliseconds=1))
        after = await client.orders.get(new_order.id)

        assert ("created", text or "PT15M") == (before.status, before.expiration_time)
        assert ("order.expired", new_order.id) == (happening.kind, happening.id)
        assert ("expired", "expired") == (after.status, after.status_detail)
        assert ("expired", "expired") == (payment(after).status, payment(after).status_detail)
        assert after.last_updated_date == happening.at


@pytest.mark.parametrize("milliseconds", [1, 5])
@pytest.mark.parametrize("action", ["cancel", "pay"])
async def test_nothing_happens_to_an_order_after_its_moment(start, connect, order, action, milliseconds):
    """Also when the moment comes while the request is at work: the clock goes on each time somebody looks at it."""
    sandbox = await start()
    machine = count(1_800_000_000_000)
    sandbox.clock._wall = lambda: next(machine) * 1_000_000
    async with connect(sandbox) as client:
        new_order = await client.orders.create(order(expiration_time="PT30S"))
        machine = count(int(new_order.created_date.timestamp() * 1000) + 30_000 - milliseconds)
        with suppress(APIError, Rejected):
            await client.orders.cancel(new_order.id) if action == "cancel" else sandbox.buyer.pay(new_order)
        after = await client.orders.get(new_order.id)

    in_time = after.last_updated_date < new_order.created_date + timedelta(seconds=30)
    assert in_time == (after.status != "expired")
