"""Orders through the real client: every state, every transition, every limit of the contract."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import count

import pytest

from paymentsdk import APIError, BadRequest, Conflict, NotFound, OutcomeUnknown
from paymentsdk.resources.orders import Order
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Rejected
from paymentsdk.sandbox._handlers import HANDLERS


def payment(order: Order):
    """Return the one payment of an order."""
    return order.transactions.payments[0]


async def test_a_new_order_has_every_member_that_the_contract_gives_it(client, sandbox, order):
    """Ids, defaults, the seller's currency and country, one payment that is ready to process."""
    made = await client.orders.create(order(config={"qr": {"external_pos_id": "POS001", "mode": "dynamic"}}))

    assert made == await client.orders.get(made.id)
    assert 29 == len(made.id)
    assert made.id.startswith("ORD")
    assert payment(made).id.startswith("PAY")
    assert 29 == len(payment(made).id)
    assert ("created", "created") == (made.status, made.status_detail)
    assert ("created", "ready_to_process") == (payment(made).status, payment(made).status_detail)
    assert ("PT15M", "automatic", "qr") == (made.expiration_time, made.processing_mode, made.type)
    assert ("ARS", "AR", str(sandbox.tenant.user_id)) == (made.currency, made.country_code, made.user_id)
    assert Decimal("50.00") == made.total_amount == payment(made).amount
    assert made.created_date == made.last_updated_date == sandbox.clock.now()
    assert sandbox.client_id == made.integration_data.application_id
    assert None is payment(made).refunded_amount


async def test_moments_and_amounts_have_the_form_of_the_contract(plain, data):
    """Milliseconds and Z; amounts as they were given, with two decimals or none."""
    made = (await plain("POST", "/v1/orders", data("50"), key="k")).json
    with_cents = (await plain("POST", "/v1/orders", data("50.10"), key="l")).json

    assert made["created_date"].endswith("Z")
    assert 24 == len(made["created_date"])
    assert ("50", "50.10") == (made["total_amount"], with_cents["total_amount"])


async def test_members_that_are_not_there_are_left_out(plain, data):
    """`qr_data` only with dynamic and hybrid codes; refunds and paid amounts only once there are any."""
    made = (await plain("POST", "/v1/orders", data(), key="k")).json

    assert {"id", "amount", "status", "status_detail"} == made["transactions"]["payments"][0].keys()
    assert not {"type_response", "marketplace_fee", "description"} & made.keys()


@pytest.mark.parametrize(("mode", "shown"), [("static", False), ("dynamic", True), ("hybrid", True), (None, False)])
async def test_the_mode_decides_whether_there_is_a_code(client, order, mode, shown):
    """`type_response.qr_data` is there for dynamic and hybrid, and static is the default."""
    made = await client.orders.create(order(config={"qr": {"external_pos_id": "POS001", "mode": mode}}))

    assert shown == (made.type_response is not None)
    assert (mode or "static") == made.config.qr.mode


async def test_everything_that_was_sent_comes_back(client, connect, sandbox, order):
    """Items, discounts, integration data, fee and description are part of the order."""
    token = await client.oauth.exchange_code(sandbox.authorization_code)
    async with client.with_options(access_token=token.access_token) as oauth:
        asked = order(
            description="Two coffees",
            marketplace_fee="1.50",
            items=[
                {"title": "Coffee", "unit_price": "25.00", "quantity": 2, "unit_measure": "unit", "external_code": "c"}
            ],
            discounts={"payment_methods": [{"type": "debit_card", "new_total_amount": "45.00"}]},
            integration_data={"platform_id": "p", "integrator_id": "dev_1", "sponsor": {"id": "12"}},
        )
        made = await oauth.orders.create(asked)

    assert ("Two coffees", Decimal("1.50")) == (made.description, made.marketplace_fee)
    assert ("Coffee", 2, "c") == (made.items[0].title, made.items[0].quantity, made.items[0].external_code)
    assert Decimal("45.00") == made.discounts.payment_methods[0].new_total_amount
    assert ("p", "dev_1", "12") == (
        made.integration_data.platform_id,
        made.integration_data.integrator_id,
        made.integration_data.sponsor.id,
    )


async def test_a_payment_makes_an_order_processed(client, sandbox, order):
    """Created -> processed / accredited, with the method, the amount paid and a reference."""
    made = await client.orders.create(order())
    sandbox.clock.advance("PT1M")

    sandbox.buyer.pay(made, payment_method="credit_card", installments=3)
    paid = await client.orders.get(made.id)

    assert ("processed", "accredited") == (paid.status, paid.status_detail)
    assert ("processed", "accredited") == (payment(paid).status, payment(paid).status_detail)
    assert Decimal("50.00") == payment(paid).paid_amount
    assert ("credit_card", 3) == (payment(paid).payment_method.type, payment(paid).payment_method.installments)
    assert payment(paid).reference_id
    assert paid.last_updated_date - paid.created_date == timedelta(minutes=1)


async def test_a_buyer_knows_three_outcomes(client, sandbox, order):
    """A word that is none of them pays nothing: `reject` is no way to say `approved`."""
    made = await client.orders.create(order())
    basket = await client.preferences.create(PreferenceRequest(items=[PreferenceItemRequest(unit_price=Decimal(5))]))

    with pytest.raises(Rejected, match="approved, rejected, in_review"):
        sandbox.buyer.pay(made, outcome="reject")
    with pytest.raises(Rejected, match="approved, rejected, in_review"):
        sandbox.buyer.pay_preference(basket, outcome="accredited")

    assert "created" == (await client.orders.get(made.id)).status
    assert [] == await client.merchant_orders.search().collect()


async def test_a_buyer_pays_in_a_way_that_there_is(client, sandbox, order):
    """A kind of method that nobody knows pays nothing, and the rejection names those that there are."""
    made = await client.orders.create(order())

    with pytest.raises(Rejected, match="account_money, credit_card, debit_card, prepaid_card"):
        sandbox.buyer.pay(made, payment_method="cash")

    assert "created" == (await client.orders.get(made.id)).status


async def test_a_rejected_attempt_leaves_no_trace(client, sandbox, order):
    """Rejected payments are not exposed, nor when one was tried; the order stays created, and can still be paid."""
    made = await client.orders.create(order())
    sandbox.clock.advance("PT1M")

    sandbox.buyer.reject(made)

    assert made == await client.orders.get(made.id)
    assert "processed" == sandbox.buyer.pay(made).status


@pytest.mark.parametrize("installments", [-1, 0, 37])
async def test_an_order_is_paid_in_as_many_installments_as_there_can_be(client, sandbox, order, installments):
    """1 to 36; with another method they are not looked at."""
    made = await client.orders.create(order())

    with pytest.raises(Rejected, match="an order is paid in 1 to 36 installments"):
        sandbox.buyer.pay(made, payment_method="credit_card", installments=installments)

    assert 1 == payment(sandbox.buyer.pay(made, installments=installments)).payment_method.installments


async def test_a_payment_in_review_is_decided_later(client, sandbox, order):
    """Created / in_review, then either way."""
    made = await client.orders.create(order())

    sandbox.buyer.pay(made, outcome="in_review")
    waiting = await client.orders.get(made.id)
    sandbox.buyer.reject(made)
    rejected = await client.orders.get(made.id)
    paid = sandbox.buyer.pay(made)

    assert ("created", "in_review") == (waiting.status, payment(waiting).status_detail)
    assert ("created", "ready_to_process") == (rejected.status, payment(rejected).status_detail)
    assert "processed" == paid.status


@pytest.mark.parametrize("method", ["debit_card", "credit_card", "account_money", "prepaid_card"])
async def test_the_method_picks_its_discount(client, sandbox, order, method):
    """paid_amount reflects the discount of the method, and only of the method."""
    entries = [{"type": method, "new_total_amount": "40.00"}]
    made = await client.orders.create(order(discounts={"payment_methods": entries}))
    other = await client.orders.create(order(discounts={"payment_methods": entries}))

    paid = sandbox.buyer.pay(made, payment_method=method)
    full = sandbox.buyer.pay(other, payment_method="credit_card" if method != "credit_card" else "debit_card")

    assert (Decimal("40.00"), method) == (payment(paid).paid_amount, payment(paid).discounts.type)
    assert (Decimal("50.00"), None) == (payment(full).paid_amount, payment(full).discounts)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize(
    ("method", "installments"), [("credit_card", 36), ("account_money", 1), ("debit_card", 1), ("prepaid_card", 1)]
)
async def test_only_a_credit_card_is_paid_in_parts(plain, sandbox, data, method, installments, outside):  # noqa: PLR0917
    """Whatever number is asked for, wherever; any other method takes all at once."""
    made = (await plain("POST", "/v1/orders", data(), key="k")).json
    how = {"payment_method": method, "installments": 36}
    if outside:
        assert 200 == (await plain("POST", f"/_sandbox/orders/{made['id']}/pay", how)).status
    else:
        sandbox.buyer.pay(made["id"], **how)

    [payment] = (await plain("GET", f"/v1/orders/{made['id']}")).json["transactions"]["payments"]
    assert (method, installments) == (payment["payment_method"]["type"], payment["payment_method"]["installments"])


async def test_no_more_goes_back_than_was_paid(client, sandbox, order):
    """With a discount, what can be refunded is what the buyer paid."""
    made = await client.orders.create(
        order(discounts={"payment_methods": [{"type": "debit_card", "new_total_amount": "40.00"}]})
    )
    sandbox.buyer.pay(made, payment_method="debit_card")

    with pytest.raises(BadRequest) as refused:
        await client.orders.refund(made.id, payment_id=payment(made).id, amount=Decimal("40.01"))
    await client.orders.refund(made.id)

    assert "refund_amount_exceeds" == refused.value.code
    assert 0 == sum(entry.amount for entry in sandbox.ledger())


async def test_a_full_refund_gives_everything_back(client, sandbox, order):
    """Processed -> refunded / refunded; the refund is an entry of its own."""
    made = await client.orders.create(order())
    sandbox.buyer.pay(made)

    response = await client.orders.refund(made.id)
    now = await client.orders.get(made.id)

    assert ("refunded", "refunded") == (response.status, response.status_detail) == (now.status, now.status_detail)
    assert ("refunded", "refunded") == (payment(now).status, payment(now).status_detail)
    assert Decimal("50.00") == payment(now).refunded_amount
    [refund] = now.transactions.refunds
    assert (refund,) == response.transactions.refunds
    assert refund.id.startswith("REF")
    assert (payment(made).id, Decimal("50.00"), "processed") == (refund.transaction_id, refund.amount, refund.status)
    assert None is response.total_amount


@pytest.mark.parametrize("body", [None, b"", {}])
async def test_no_body_and_an_empty_object_refund_everything(client, plain, sandbox, order, body):
    """A full refund takes no body, or `{}` (wire-facts: Requests)."""
    made = await client.orders.create(order())
    sandbox.buyer.pay(made)

    response = await plain("POST", f"/v1/orders/{made.id}/refund", body, key="k")

    assert (201, "refunded") == (response.status, response.json["status"])


@pytest.mark.parametrize("parts", [0, 2])
async def test_a_refund_is_of_one_payment(client, plain, sandbox, order, parts):
    """A list of none or of several breaks a rule; the contract has the codes for that at creation alone."""
    made = await client.orders.create(order())
    sandbox.buyer.pay(made)
    part = {"id": payment(made).id, "amount": "10.00"}

    response = await plain("POST", f"/v1/orders/{made.id}/refund", {"transactions": [part] * parts}, key="k")

    assert (400, "property_value") == (response.status, response.code)
    assert "processed" == (await client.orders.get(made.id)).status


@pytest.mark.parametrize("status", ["refunded", "processed"])
@pytest.mark.parametrize("detail", ["partially_refunded", "accredited"])
@pytest.mark.control(
    "paymentsdk.sandbox._handlers.orders.refundable",
    lambda payment: payment.paid_amount,
    raises=pytest.fail.Exception,
)
async def test_parts_go_back_until_nothing_is_left(start, connect, order, status, detail):
    """A part leads to the state of the policies, the last part to refunded; then nothing can be refunded."""
    sandbox = await start(policies={"partial_refund_status": status, "partial_refund_detail": detail})
    async with connect(sandbox) as client:
        made = await client.orders.create(order())
        sandbox.buyer.pay(made)
        first = await client.orders.refund(made.id, payment_id=payment(made).id, amount=Decimal("20.00"))
        between = await client.orders.get(made.id)
        last = await client.orders.refund(made.id, payment_id=payment(made).id, amount=Decimal("30.00"))
        done = await client.orders.get(made.id)
        with pytest.raises(Conflict) as refused:
            await client.orders.refund(made.id)

    assert (status, detail) == (first.status, first.status_detail) == (between.status, between.status_detail)
    assert Decimal("20.00") == payment(between).refunded_amount
    assert ("refunded", "refunded") == (last.status, last.status_detail)
    assert [Decimal("20.00"), Decimal("30.00")] == [refund.amount for refund in done.transactions.refunds]
    assert "order_already_refunded" == refused.value.code


async def test_a_refund_can_take_its_time(start, connect, order):
    """Under `refund_seconds` a refund is processing and the order unchanged, and no other can begin meanwhile."""
    sandbox = await start(frozen=True, policies={"refund_seconds": 60})
    async with connect(sandbox) as client:
        made = await client.orders.create(order())
        sandbox.buyer.pay(made)
        response = await client.orders.refund(made.id)
        with pytest.raises(OutcomeUnknown) as refused:
            await client.orders.refund(made.id)
        [happening] = sandbox.clock.advance("PT60S")
        done = await client.orders.get(made.id)

    assert ("processed", "processing") == (response.status, response.transactions.refunds[0].status)
    assert "refund_in_progress" == refused.value.last_error.code
    assert ("refund.processed", made.id) == (happening.kind, happening.id)
    assert ("refunded", "processed") == (done.status, done.transactions.refunds[0].status)


@pytest.mark.parametrize("seconds", [0, 60])
async def test_a_refund_can_fail_and_be_tried_again(start, connect, order, seconds):
    """Under `refund_outcome=failed` no money moves and only the list of refunds changes; another key tries it again."""
    sandbox = await start(frozen=True, policies={"refund_seconds": seconds, "refund_outcome": "failed"})
    async with connect(sandbox) as client:
        made = await client.orders.create(order("50.00"))
        paid = sandbox.buyer.pay(made)
        part = {"payment_id": made.transactions.payments[0].id, "amount": Decimal("20.00")}
        asked = await client.orders.refund(made.id, **part, idempotency_key="first")
        happened = sandbox.clock.advance("PT60S")
        failed, [before] = await client.orders.get(made.id), await client.merchant_orders.search().collect()
        sandbox.platform.change_policies({"refund_outcome": "processed"})
        assert asked == await client.orders.refund(made.id, **part, idempotency_key="first")
        await client.orders.refund(made.id, **part, idempotency_key="second")
        sandbox.clock.advance("PT60S")
        done, [after] = await client.orders.get(made.id), await client.merchant_orders.search().collect()

    assert ("processing" if seconds else "failed") == asked.transactions.refunds[0].status
    assert (["refund.failed"] if seconds else []) == [one.kind for one in happened]
    assert (paid.status, paid.status_detail, paid.transactions.payments) == (
        failed.status,
        failed.status_detail,
        failed.transactions.payments,
    )
    assert (0, 20) == (before.refunded_amount, after.refunded_amount)
    assert ["failed", "processed"] == [one.status for one in done.transactions.refunds]
    assert Decimal("20.00") == done.transactions.payments[0].refunded_amount
    moved = [(one.kind, one.amount, one.idempotency_key) for one in sandbox.ledger() if "refund" in one.kind]
    assert [("refund_failed", 0, "first"), ("refund", -20, "second")] == moved


async def test_money_goes_back_when_a_refund_is_done(start, connect, order):
    """While it is processing the ledger says what the payment says: nothing has moved; then it has its key."""
    sandbox = await start(frozen=True, policies={"refund_seconds": 60})
    async with connect(sandbox) as client:
        made = await client.orders.create(order("50.00"))
        sandbox.buyer.pay(made)
        await client.orders.refund(made.id, idempotency_key="k")
        meanwhile = sandbox.ledger()
        sandbox.clock.advance("PT60S")

    assert 50 == sum(entry.amount for entry in meanwhile)
    done = sandbox.ledger()[-1]
    assert ("refund", -50, "k") == (done.kind, done.amount, done.idempotency_key)


async def test_nothing_is_canceled_amid_a_refund(start, connect, order):
    """423 `resource_locked`, as the table of rejections says: otherwise the money would go back twice."""
    sandbox = await start(frozen=True, policies={"refund_seconds": 60, "cancel_from": "any"})
    async with connect(sandbox) as client:
        made = await client.orders.create(order())
        sandbox.buyer.pay(made)
        await client.orders.refund(made.id)
        with pytest.raises(OutcomeUnknown) as refused:
            await client.orders.cancel(made.id)

        sandbox.clock.advance("PT60S")

    assert (423, "resource_locked") == (refused.value.last_error.status, refused.value.last_error.code)
    assert "a refund that is processing" in HANDLERS["orders.cancel"].causes["resource_locked"]
    assert 0 == sum(entry.amount for entry in sandbox.ledger())


async def test_the_whole_order_can_be_the_response_to_a_refund(start, connect, order):
    """Under `refund_answer=full` nothing is left out."""
    sandbox = await start(policies={"refund_answer": "full"})
    async with connect(sandbox) as client:
        made = await client.orders.create(order())
        sandbox.buyer.pay(made)

        assert await client.orders.refund(made.id) == await client.orders.get(made.id)


async def test_a_refund_of_another_payment_is_rejected(client, sandbox, order):
    """The payment must be the order's own."""
    made = await client.orders.create(order())
    sandbox.buyer.pay(made)

    with pytest.raises(BadRequest) as refused:
        await client.orders.refund(made.id, payment_id="PAY" + "0" * 26, amount=Decimal(1))

    assert "property_value" == refused.value.code
    assert "transactions[0].id" in refused.value.details[0].details[0]


async def test_an_order_that_nobody_paid_can_be_canceled_once(client, order):
    """Created -> canceled; the payment says that it was canceled through the API; a second time is rejected."""
    made = await client.orders.create(order())

    canceled = await client.orders.cancel(made.id)
    with pytest.raises(Conflict) as refused:
        await client.orders.cancel(made.id)

    assert ("canceled", "canceled") == (canceled.status, canceled.status_detail)
    assert ("canceled", "canceled_by_api") == (payment(canceled).status, payment(canceled).status_detail)
    assert canceled == await client.orders.get(made.id)
    assert "order_already_canceled" == refused.value.code


async def bring(client, sandbox, order, state: str) -> Order:
    """Return an order in *state*."""
    made = await client.orders.create(order())
    if state in {"processed", "refunded"}:
        sandbox.buyer.pay(made)
    if state == "refunded":
        await client.orders.refund(made.id)
    if state == "canceled":
        await client.orders.cancel(made.id)
    if state == "expired":
        sandbox.clock.advance("PT15M")
    return await client.orders.get(made.id)


@pytest.mark.parametrize("state", ["processed", "refunded", "expired"])
async def test_only_a_created_order_can_be_canceled(client, sandbox, order, state):
    """By default, `created` is the only state that a cancellation starts from."""
    made = await bring(client, sandbox, order, state)

    with pytest.raises(Conflict) as refused:
        await client.orders.cancel(made.id)

    assert "cannot_cancel_order" == refused.value.code
    assert state == made.status == (await client.orders.get(made.id)).status


@pytest.mark.parametrize("state", ["created", "processed", "refunded", "expired"])
async def test_any_order_can_be_canceled_under_the_other_policy(start, connect, order, state):
    """`cancel_from=any`, as the table of transitions says; what was paid goes back, once."""
    sandbox = await start(frozen=True, policies={"cancel_from": "any"})
    async with connect(sandbox) as client:
        made = await bring(client, sandbox, order, state)
        assert "canceled" == (await client.orders.cancel(made.id)).status

    assert 0 == sum(entry.amount for entry in sandbox.ledger())


@pytest.mark.control("paymentsdk.sandbox._handlers.orders.refundable", lambda payment: payment.paid_amount)
async def test_the_rest_of_a_half_refunded_order_goes_back_when_it_is_canceled(start, connect, order):
    """The cancellation gives back what the refund left, and is none itself: `refunded_amount` is of refunds alone."""
    sandbox = await start(frozen=True, policies={"cancel_from": "any"})
    async with connect(sandbox) as client:
        made = await bring(client, sandbox, order, "processed")
        await client.orders.refund(made.id, payment_id=made.payment.id, amount=Decimal("20.00"))
        canceled = await client.orders.cancel(made.id)
        sold = await client.merchant_orders.search().first()

    assert (Decimal("20.00"), Decimal("20.00")) == (canceled.payment.refunded_amount, canceled.refunds[0].amount)
    assert [Decimal("-20.00"), Decimal("-30.00")] == [one.amount for one in sandbox.ledger()][-2:]
    assert ("reverted", Decimal("50.00")) == (sold.order_status, sold.refunded_amount)


@pytest.mark.parametrize("state", ["created", "canceled", "expired"])
async def test_only_a_paid_order_can_be_refunded(client, sandbox, order, state):
    """There is nothing to give back."""
    made = await bring(client, sandbox, order, state)

    with pytest.raises(Conflict) as refused:
        await client.orders.refund(made.id)

    assert "cannot_refund_order" == refused.value.code


@pytest.mark.parametrize("state", ["processed", "refunded", "canceled", "expired"])
async def test_only_a_created_order_can_be_paid(client, sandbox, order, state):
    """The buyer is told why not."""
    made = await bring(client, sandbox, order, state)

    with pytest.raises(Rejected, match=state):
        sandbox.buyer.pay(made)


@pytest.mark.parametrize(("text", "seconds"), [(None, 900), ("PT30S", 30), ("PT2H", 7200), ("P1DT1S", 86401)])
async def test_an_order_expires_at_its_moment(client, sandbox, order, text, seconds):
    """15 minutes, or what was asked for; not a millisecond sooner."""
    made = await client.orders.create(order(**({"expiration_time": text} if text else {})))

    sandbox.clock.advance(timedelta(seconds=seconds, milliseconds=-1))
    before = await client.orders.get(made.id)
    [happening] = sandbox.clock.advance(timedelta(milliseconds=1))
    after = await client.orders.get(made.id)

    assert ("created", text or "PT15M") == (before.status, before.expiration_time)
    assert ("order.expired", made.id) == (happening.kind, happening.id)
    assert ("expired", "expired") == (after.status, after.status_detail)
    assert ("expired", "expired") == (payment(after).status, payment(after).status_detail)
    assert after.last_updated_date == happening.at


@pytest.mark.parametrize("left", range(1, 9))
@pytest.mark.parametrize("what", ["cancel", "pay"])
async def test_nothing_happens_to_an_order_after_its_moment(start, connect, order, what, left):
    """Also when the moment comes while the request is at work: the clock goes on each time somebody looks at it."""
    sandbox = await start()
    machine = count(1_800_000_000_000)
    sandbox.clock._wall = lambda: next(machine) / 1000
    async with connect(sandbox) as client:
        made = await client.orders.create(order(expiration_time="PT30S"))
        machine = count(int(made.created_date.timestamp() * 1000) + 30_000 - left)
        with suppress(APIError, Rejected):
            await client.orders.cancel(made.id) if what == "cancel" else sandbox.buyer.pay(made)
        after = await client.orders.get(made.id)

    in_time = after.last_updated_date < made.created_date + timedelta(seconds=30)
    assert in_time == (after.status != "expired")


async def test_a_live_clock_expires_orders_by_itself(start, connect, order):
    """Nobody has to move the clock: what is due is done before the next look."""
    sandbox = await start()
    sandbox.clock._wall = iter(range(1_800_000_000, 1_900_000_000, 20)).__next__
    async with connect(sandbox) as client:
        made = await client.orders.create(order(expiration_time="PT30S"))
        assert "expired" == (await client.orders.get(made.id)).status


@pytest.mark.parametrize(
    ("policy", "text", "taken"),
    [("PT3600H", "PT3600H", True), ("PT3600H", "PT3601H", False), ("PT3H", "PT3H", True), ("PT3H", "PT3H1S", False)],
)
async def test_the_longest_expiration_is_a_policy(start, plain_to, data, policy, text, taken):  # noqa: PLR0917 - fixtures
    """The contract gives two maxima."""
    sandbox = await start(policies={"max_order_expiration": policy})

    response = await plain_to(sandbox)("POST", "/v1/orders", data(expiration_time=text), key="k")

    assert (201 if taken else 400) == response.status
    assert taken or "property_value" == response.code


ITEM = {"title": "t", "unit_price": "1", "quantity": 1, "unit_measure": "kg"}


@pytest.mark.parametrize(
    ("members", "code", "place"),
    [
        ({"type": "online"}, "property_value", "type"),
        ({"external_reference": "a" * 65}, "property_value", "external_reference"),
        ({"external_reference": "a b"}, "property_value", "external_reference"),
        ({"external_reference": "é"}, "property_value", "external_reference"),
        ({"external_reference": 5}, "property_type", "external_reference"),
        ({"external_reference": None}, "property_type", "external_reference"),
        ({"description": "a" * 151}, "property_value", "description"),
        ({"expiration_time": "PT29S"}, "property_value", "expiration_time"),
        ({"expiration_time": "soon"}, "property_value", "expiration_time"),
        ({"expiration_time": 900}, "property_type", "expiration_time"),
        ({"total_amount": 50.0}, "property_type", "total_amount"),
        ({"total_amount": 50}, "property_type", "total_amount"),
        (
            {"total_amount": "50.001", "transactions": {"payments": [{"amount": "50.001"}]}},
            "property_value",
            "amount",
        ),
        ({"total_amount": "5e1"}, "property_value", "total_amount"),
        ({"total_amount": "NaN"}, "property_value", "total_amount"),
        ({"total_amount": "49.00"}, "invalid_total_amount", "total_amount"),
        ({"transactions": {"payments": [{"amount": 50}]}}, "property_type", "transactions.payments[0].amount"),
        ({"transactions": {"payments": [{"amount": "-50.00"}]}}, "invalid_total_amount", "total_amount"),
        ({"transactions": {"payments": []}}, "minimum_items", "transactions.payments"),
        (
            {"transactions": {"payments": [{"amount": "25"}, {"amount": "25"}]}},
            "maximum_items",
            "transactions.payments",
        ),
        ({"transactions": {}}, "required_properties", "transactions"),
        ({"items": [{**ITEM, "title": "a" * 151}]}, "property_value", "items[0].title"),
        ({"items": [{**ITEM, "unit_measure": "a" * 11}]}, "property_value", "items[0].unit_measure"),
        ({"items": [{**ITEM, "external_code": "a" * 31}]}, "property_value", "items[0].external_code"),
        ({"items": [{**ITEM, "quantity": 1.5}]}, "property_type", "items[0].quantity"),
        ({"items": [{**ITEM, "quantity": "1"}]}, "property_type", "items[0].quantity"),
        ({"items": [{"title": "t"}]}, "required_properties", "items[0]"),
        ({"config": {"qr": {"mode": "printed"}}}, "property_value", "config.qr.mode"),
        ({"integration_data": {"integrator_id": "1"}}, "property_value", "integration_data.integrator_id"),
        ({"notification_url": "https://shop.example.com"}, "unsupported_properties", "notification_url"),
        ({"config": {"qr": {}, "print": {}}}, "unsupported_properties", "config"),
        (
            {"discounts": {"payment_methods": [{"type": "debit_card", "new_total_amount": "1"}] * 5}},
            "maximum_items",
            "discounts.payment_methods",
        ),
        *(
            (
                {"discounts": {"payment_methods": [{"type": "debit_card", "new_total_amount": total}]}},
                "property_value",
                "discounts.payment_methods[0].new_total_amount",
            )
            for total in ("0", "0.00", "50.01", "-1.00")
        ),
        (
            {
                "items": [{**ITEM, "external_categories": [{"id": "x"}]}],
                "discounts": {"payment_methods": [{"type": "debit_card", "new_total_amount": "1"}]},
            },
            "property_value",
            "items[0].external_categories",
        ),
    ],
)
async def test_a_broken_rule_is_rejected_with_its_code_and_its_place(plain, data, members, code, place):
    """The Orders API names the member that is to blame in `details`."""
    response = await plain("POST", "/v1/orders", {**data(), **members}, key="k")

    assert (400, code) == (response.status, response.code)
    assert any(place in detail for detail in response.json["errors"][0]["details"])


@pytest.mark.parametrize("missing", ["type", "external_reference", "total_amount", "transactions"])
async def test_required_members_are_required(plain, data, missing):
    """`type` has one value, and the contract requires it all the same."""
    body = data()
    del body[missing]

    response = await plain("POST", "/v1/orders", body, key="k")

    assert (400, "required_properties") == (response.status, response.code)
    assert missing in response.json["errors"][0]["details"][0]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000])
async def test_what_is_no_json_object_is_rejected(plain, body):
    """Malformed JSON is `property_type`, however it is malformed."""
    response = await plain("POST", "/v1/orders", body, key="k")

    assert (400, "property_type") == (response.status, response.code)


async def test_limits_are_taken_at_their_edge(client, order):
    """64, 150, 150, 10 and 30 characters, four discounts: taken."""
    types = ["debit_card", "credit_card", "account_money", "prepaid_card"]
    made = await client.orders.create(
        order(
            external_reference="a" * 64,
            description="é" * 150,
            items=[{**ITEM, "title": "t" * 150, "unit_measure": "u" * 10, "external_code": "c" * 30}],
            discounts={"payment_methods": [{"type": kind, "new_total_amount": "1.00"} for kind in types]},
        )
    )

    assert 4 == len(made.discounts.payment_methods)


@pytest.mark.parametrize(
    "order_id", ["ORD1", "PAY" + "0" * 26, "ORD" + "0" * 27, "ORD" + "-" * 26, "%00", "{order_id}"]
)
@pytest.mark.parametrize(("method", "verb"), [("GET", ""), ("POST", "/cancel"), ("POST", "/refund")])
async def test_the_form_of_an_order_id_is_checked(plain, method, verb, order_id):
    """ORD and 26 characters; anything else is `invalid_path_param`."""
    response = await plain(method, f"/v1/orders/{order_id}{verb}", key="k")

    assert (400, "invalid_path_param") == (response.status, response.code)


async def test_orders_of_others_are_not_found(client, connect, sandbox, order):
    """A seller sees their own orders only."""
    made = await client.orders.create(order())
    async with connect(sandbox, sandbox.create_tenant()) as other:
        for call in (other.orders.get, other.orders.cancel, other.orders.refund):
            with pytest.raises(NotFound) as refused:
                await call(made.id)
            assert "order_not_found" == refused.value.code


@pytest.mark.parametrize(("country", "currency"), [("AR", "ARS"), ("BR", "BRL"), ("CL", "CLP"), ("UY", "UYU")])
async def test_the_currency_is_the_sellers(connect, sandbox, order, country, currency):
    """Currency and country come from the seller's account."""
    async with connect(sandbox, sandbox.create_tenant(country=country)) as client:
        made = await client.orders.create(order())

    assert (currency, country) == (made.currency, made.country_code)


async def test_other_countries_are_not_supported(connect, sandbox, order):
    """`unsupported_site`."""
    async with connect(sandbox, sandbox.create_tenant(country="MX")) as client:
        with pytest.raises(BadRequest) as refused:
            await client.orders.create(order())

    assert "unsupported_site" == refused.value.code


async def test_a_point_of_sale_must_be_the_sellers(client, connect, sandbox, order):
    """`pos_not_found` for a point of sale of somebody else."""
    async with connect(sandbox, sandbox.create_tenant(external_pos_ids=["POS-2"])) as other:
        await other.orders.create(order(config={"qr": {"external_pos_id": "POS-2"}}))
    with pytest.raises(NotFound) as refused:
        await client.orders.create(order(config={"qr": {"external_pos_id": "POS-2"}}))

    assert "pos_not_found" == refused.value.code


async def test_a_fee_needs_a_token_from_oauth_and_a_marketplace(client, connect, sandbox, order):
    """`marketplace_not_valid` without OAuth, `marketplace_fee_not_allowed` without a marketplace."""
    with pytest.raises(BadRequest) as without_oauth:
        await client.orders.create(order(marketplace_fee="1.00"))
    tenant = sandbox.create_tenant(marketplace=None)
    async with connect(sandbox, tenant) as other:
        token = await other.oauth.exchange_code(tenant.authorization_code)
        with pytest.raises(NotFound) as without_marketplace:
            await other.with_options(access_token=token.access_token).orders.create(order(marketplace_fee="1.00"))

    assert "marketplace_not_valid" == without_oauth.value.code
    assert "marketplace_fee_not_allowed" == without_marketplace.value.code


@pytest.mark.parametrize("sponsor", ["somebody", "\uff11\uff12"])
async def test_a_sponsor_is_a_number(client, order, sponsor):
    """`sponsor_id_not_valid`, also for digits of another script."""
    with pytest.raises(BadRequest) as refused:
        await client.orders.create(order(integration_data={"sponsor": {"id": sponsor}}))

    assert "sponsor_id_not_valid" == refused.value.code


@pytest.mark.parametrize(("policy", "status"), [("any", 201), ("known", 400)])
async def test_a_sponsor_must_be_known_under_a_policy(start, plain_to, data, policy, status):
    """`sponsors` decides about those of orders as about those of preferences: any, or the sandbox's own sellers."""
    sandbox = await start(policies={"sponsors": policy})
    plain = plain_to(sandbox)
    known = str(sandbox.create_tenant().user_id)

    responses = [
        await plain("POST", "/v1/orders", data(integration_data={"sponsor": {"id": sponsor}}), key=sponsor)
        for sponsor in ("7", known, f"0{known}")
    ]

    assert [status, 201, 201] == [response.status for response in responses]
    assert status == 201 or "sponsor_id_not_valid" == responses[0].code


def with_cash(**members: object) -> dict[str, object]:
    """Return the members of an order of 50.00 with a cash withdrawal of 20.00."""
    return {
        "total_amount": "70.00",
        "transactions": {"payments": [{"amount": "50.00"}], "cash_withdrawal": {"amount": "20.00"}},
        **members,
    }


async def test_the_total_of_an_order_contains_its_cash_withdrawal(client, sandbox, order):
    """The order keeps it in every state; the seller is paid for both, and gives back only the payment (spec: Order)."""
    made = await client.orders.create(order(**with_cash()))
    paid = sandbox.buyer.pay(made)
    await client.orders.refund(made.id, payment_id=payment(made).id, amount=Decimal("10.00"))
    read = await client.orders.get(made.id)
    [sale] = await client.merchant_orders.search().collect()

    assert {Decimal("20.00")} == {one.transactions.cash_withdrawal.amount for one in (made, paid, read)}
    assert (Decimal("70.00"), Decimal("50.00")) == (read.total_amount, payment(read).paid_amount)
    assert [("payment", 50), ("cash_withdrawal", 20), ("refund", -10)] == [
        (entry.kind, entry.amount) for entry in sandbox.ledger() if entry.amount
    ]
    assert (50, 50, "paid") == (sale.total_amount, sale.paid_amount, sale.order_status)


@pytest.mark.parametrize("total", ["50.00", "69.99", "70.01"])
async def test_a_total_without_the_cash_withdrawal_is_rejected(plain, data, order, total):
    """Client and sandbox hold the same rule."""
    with pytest.raises(ValueError, match="sum of the transactions"):
        order(**with_cash(total_amount=total))
    rejected = await plain("POST", "/v1/orders", data(**with_cash(total_amount=total)), key="k")

    assert (400, "invalid_total_amount") == (rejected.status, rejected.code)


async def test_a_seller_who_may_not_hand_out_cash_is_told_so(sandbox, connect, order):
    """400 `seller_configuration`, and only for an order with a withdrawal."""
    tenant = sandbox.create_tenant(cash_withdrawals=False)
    async with connect(sandbox, tenant) as client:
        with pytest.raises(BadRequest) as caught:
            await client.orders.create(order(**with_cash()))
        made = await client.orders.create(order())

    assert ("seller_configuration", True) == (caught.value.code, caught.value.settled)
    assert None is made.transactions.cash_withdrawal


async def test_a_total_with_a_discount_contains_the_cash_withdrawal(client, sandbox, order, plain, data):
    """Nobody is handed out more than they pay."""
    discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "65.00"}]}
    made = await client.orders.create(order(**with_cash(discounts=discounts)))
    paid = sandbox.buyer.pay(made, payment_method="debit_card")
    discounts["payment_methods"][0]["new_total_amount"] = "20.00"
    rejected = await plain("POST", "/v1/orders", data(**with_cash(discounts=discounts)), key="k")

    assert Decimal("45.00") == payment(paid).paid_amount
    assert (400, "property_value") == (rejected.status, rejected.code)
