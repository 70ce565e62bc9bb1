"""Plans, subscriptions, and the invoices that the clock makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from paymentsdk import NotFound
from paymentsdk.sandbox import FreeTrialRequest, PlanRequest, RecurringRequest, Rejected
from tests.sandbox.orders import members


async def make_plan(plain, reason: str = "Weekly", **recurring: object) -> dict:
    """Make a plan through the control API, since the contract has no operation for it."""
    body = {"reason": reason, "auto_recurring": {"transaction_amount": "10.00", **recurring}}
    response = await plain("POST", "/_sandbox/plans", body)
    assert 200 == response.status, response.raw
    return response.json


async def test_the_first_seller_has_a_plan(client, sandbox):
    """`plan_id`: monthly, active, and the same in a search, which also counts subscriptions."""
    plan = await client.plans.get(sandbox.plan_id)
    sandbox.buyer.subscribe(plan.init_point)
    [row] = await client.plans.search().collect()

    assert ("active", 1, "months", Decimal("99.90"), "ARS") == members(
        plan,
        "status auto_recurring.frequency auto_recurring.frequency_type auto_recurring.transaction_amount"
        " auto_recurring.currency_id",
    )
    assert (int(sandbox.client_id), sandbox.tenant.user_id) == (plan.application_id, plan.collector_id)
    assert (None, 1) == (plan.subscribed, row.subscribed)


async def test_a_plan_has_every_member_that_it_was_made_with(plain):
    """Free trial, allowed methods, billing day."""
    recurring = {"transaction_amount": 30, "frequency": 2, "repetitions": 12, "billing_day": 10}
    recurring |= {"billing_day_proportional": True, "currency_id": "USD"}
    recurring |= {"free_trial": {"frequency": 7, "frequency_type": "days"}}
    body = {"reason": "Gym", "back_url": "https://shop.example.com", "external_reference": "gym"}
    body |= {"payment_methods_allowed": {"payment_types": [{"id": "credit_card"}]}}

    new_plan = (await plain("POST", "/_sandbox/plans", {**body, "auto_recurring": recurring})).json
    plan = (await plain("GET", f"/preapproval_plan/{new_plan['id']}")).json

    assert body == {name: plan[name] for name in body}
    trial = plan["auto_recurring"].pop("free_trial")
    assert recurring.pop("free_trial").items() <= trial.items()
    assert recurring.items() <= plan["auto_recurring"].items()


async def test_plans_are_searched_by_status_and_words_and_sorted(plain, client):
    """`q` looks in reason, reference and id; `sort` and `criteria` order; nothing found is an empty page."""
    for reason in ("Alpha club", "Beta club"):
        await make_plan(plain, reason)

    async def reasons(**filters: str) -> list[str]:
        return [plan.reason async for plan in client.plans.search(**filters)]

    assert ["Alpha club", "Beta club"] == await reasons(q="CLUB", sort="reason")
    assert ["Beta club", "Alpha club"] == await reasons(q="club", sort="reason", criteria="desc")
    assert 3 == len(await reasons(status="active"))
    assert [] == await reasons(status="inactive")
    response = await plain("GET", "/preapproval_plan/search?q=nothing")
    assert {"paging": {"offset": 0, "limit": 30, "total": 0}, "results": []} == response.json


@pytest.mark.parametrize(("search", "queries"), [
    ("preapproval_plan", ["limit=0", "sort=colour", "criteria=up"]),
    ("authorized_payments", ["limit=0", "id=x", "payment_id=1.5", "payer_id=%D9%A3"]),
])  # fmt: skip
async def test_a_bad_search_is_rejected(plain, search, queries):
    """400 `bad-request`."""
    responses = [await plain("GET", f"/{search}/search?{query}") for query in queries]

    assert {(400, "bad-request")} == {(response.status, response.code) for response in responses}


def balance(sandbox) -> Decimal:
    """Return the money that the sellers of *sandbox* have."""
    return sum((entry.amount for entry in sandbox.ledger()), Decimal(0))


async def states(client, subscription) -> list[tuple[str, str, int]]:
    """Return status, summary and attempts of the invoices of a subscription, oldest first."""
    invoices = await client.invoices.search(preapproval_id=subscription.id).collect()
    return [(invoice.status, invoice.summarized, invoice.retry_attempt) for invoice in reversed(invoices)]


async def test_an_invoice_is_scheduled_then_collected(client, sandbox):
    """Scheduled -> processed; the next one is scheduled a period later."""
    subscription = sandbox.buyer.subscribe(external_reference="member-1")
    sandbox.clock.advance("P27D")
    collected, waiting = reversed(await client.invoices.search(preapproval_id=subscription.id).collect())

    assert ("processed", "done", 1) == (collected.status, collected.summarized, collected.retry_attempt)
    assert ("approved", "accredited") == (collected.payment.status, collected.payment.status_detail)
    assert ("scheduled", "pending", 0) == (waiting.status, waiting.summarized, waiting.retry_attempt)
    assert None is waiting.payment
    assert collected.debit_date.date() == subscription.started.date()
    assert ("scheduled", "member-1", "ARS", Decimal("99.90"), "Monthly subscription") == members(
        collected, "type external_reference currency_id transaction_amount reason"
    )
    assert (10, 11) == (len(str(collected.id)), len(str(collected.payment.id)))
    assert Decimal("99.90") == balance(sandbox)


async def test_a_free_trial_delays_the_first_invoice(plain, client, sandbox):
    """Scheduled until the trial is over."""
    plan = await make_plan(plain, free_trial={"frequency": 7, "frequency_type": "days", "first_invoice_offset": 1})
    subscription = sandbox.buyer.subscribe(plan["id"])

    sandbox.clock.advance(timedelta(days=8, milliseconds=-1))
    assert [("scheduled", "pending", 0)] == await states(client, subscription)
    sandbox.clock.advance(timedelta(milliseconds=1))
    assert ("processed", "done", 1) == (await states(client, subscription))[0]


async def test_collection_is_tried_again(client, sandbox):
    """Scheduled, recycling twice, processed, after the waits of the policy; it is one invoice."""
    subscription = sandbox.buyer.subscribe(rejections=2)
    attempts = []
    for wait in ("PT0S", "P1D", "P3D"):
        sandbox.clock.advance(wait)
        attempts.append((await states(client, subscription))[0])
    [*_, first] = await client.invoices.search(preapproval_id=subscription.id).collect()

    assert [("recycling", "pending", 1), ("recycling", "pending", 2), ("processed", "done", 3)] == attempts
    assert Decimal("99.90") == balance(sandbox)
    assert "approved" == first.payment.status
    assert first.last_modified == subscription.started + timedelta(days=4)


async def test_collection_is_given_up(start, connect):
    """After the last wait: `processed` with a rejected payment, as the contract says."""
    sandbox = await start(frozen=True, policies={"invoice_retries": "P1D,P1D"})
    async with connect(sandbox) as client:
        subscription = sandbox.buyer.subscribe(rejections=-1)
        happened = sandbox.clock.advance("P2D")
        [*_, first] = await client.invoices.search(preapproval_id=subscription.id).collect()

    assert ["invoice.recycling", "invoice.recycling", "invoice.processed"] == [event.kind for event in happened]
    assert ("processed", "done", 3, "rejected") == members(first, "status summarized retry_attempt payment.status")
    assert 0 == balance(sandbox)


async def test_repetitions_end_a_subscription(plain, client, sandbox):
    """Three charges, three invoices, and no fourth: then the plan has a subscriber less."""
    plan = await make_plan(plain, frequency=10, frequency_type="days", repetitions=3)
    subscription = sandbox.buyer.subscribe(plan["id"])

    sandbox.clock.advance("P100D")
    invoices = await client.invoices.search(preapproval_id=subscription.id).collect()

    assert [20, 10, 0] == [(invoice.debit_date.date() - subscription.started.date()).days for invoice in invoices]
    assert {("processed", "approved")} == {(invoice.status, invoice.payment.status) for invoice in invoices}
    assert 0 == (await client.plans.search(q=plan["id"]).first()).subscribed


async def test_a_subscription_can_be_ended(client, sandbox):
    """What is open is canceled, what was collected stays, nothing more is made."""
    subscription = sandbox.buyer.subscribe()
    sandbox.clock.advance("P1D")

    sandbox.buyer.unsubscribe(subscription)
    assert () == sandbox.clock.advance("P90D")
    assert [("processed", "done", 1), ("canceled", "done", 0)] == await states(client, subscription)
    canceled, _ = await client.invoices.search(preapproval_id=subscription.id).collect()
    assert None is canceled.payment
    assert [Decimal("99.90")] == [entry.amount for entry in sandbox.ledger()]


PAYMENT_STATES = [
    "pending", "approved", "authorized", "in_process", "in_mediation", "rejected", "canceled", "refunded",
    "charged_back",
]  # fmt: skip

STATE_DETAILS = {"approved": "accredited", "rejected": "cc_rejected_insufficient_amount"}
STATE_DETAILS |= {"refunded": "refunded", "charged_back": "settled"}


async def test_every_state_of_a_payment_can_be_reached(client, sandbox):
    """The money follows: it is the seller's while approved or in mediation."""
    sandbox.buyer.subscribe()
    sandbox.clock.advance("PT0S")
    [invoice] = [row for row in await client.invoices.search().collect() if row.status == "processed"]

    for status in PAYMENT_STATES:
        sandbox.buyer.change_invoice_payment(invoice.id, status)
        [changed] = await client.invoices.search(id=invoice.id).collect()

        expected = Decimal("99.90") if status in {"approved", "in_mediation"} else 0
        assert (status, expected) == (changed.payment.status, balance(sandbox))
        assert STATE_DETAILS.get(status) == changed.payment.status_detail
    with pytest.raises(Rejected, match=r"no such payment status status$"):
        sandbox.buyer.change_invoice_payment(invoice.id, "lost")


SETTLED = dict.fromkeys(("approved", "in_mediation", "refunded", "charged_back"), "processed")
SETTLED |= dict.fromkeys(("canceled", "cancelled"), "canceled")


async def recycling_invoices(client, sandbox, count: int):
    """Return invoices, each of a subscription of its own, that could not be collected at first."""
    for _ in range(count):
        sandbox.buyer.subscribe(rejections=1)
    sandbox.clock.advance("PT0S")
    return [row for row in await client.invoices.search().collect() if row.status == "recycling"]


async def test_an_invoice_that_was_settled_by_hand_is_not_collected(client, sandbox):
    """Whatever was tried before and is due after: the payment stays as it is, and the ledger says the same."""
    invoices = dict(zip(SETTLED, await recycling_invoices(client, sandbox, len(SETTLED)), strict=True))
    for status, invoice in invoices.items():
        sandbox.buyer.change_invoice_payment(invoice.id, status)

    assert () == sandbox.clock.advance("P20D")
    for status, invoice in invoices.items():
        [after] = await client.invoices.search(id=invoice.id).collect()
        assert (SETTLED[status], "done", 1, status) == members(after, "status summarized retry_attempt payment.status")
    assert 2 * Decimal("99.90") == balance(sandbox)


async def test_an_invoice_that_was_left_open_by_hand_is_collected(client, sandbox):
    """Its next attempt decides, and its money moves once."""
    still_open = sorted({*PAYMENT_STATES} - SETTLED.keys())
    invoices = await recycling_invoices(client, sandbox, len(still_open))
    for status, invoice in zip(still_open, invoices, strict=True):
        changed = sandbox.buyer.change_invoice_payment(invoice.id, status)
        assert ("recycling", "pending", status) == (changed.status, changed.summarized, changed.payment.status)
    sandbox.clock.advance("P20D")

    for invoice in invoices:
        [after] = await client.invoices.search(id=invoice.id).collect()
        assert ("processed", "done", "approved") == members(after, "status summarized payment.status")
    assert len(still_open) * Decimal("99.90") == balance(sandbox)


@pytest.mark.parametrize(("policy", "status"), [("optional", 200), ("one_required", 400)])
async def test_a_search_without_an_identifier_is_a_policy(start, plain_to, policy, status):
    """The contract marks all four as required, and says that any of them will do."""
    sandbox = await start(policies={"invoice_filters": policy})
    plain = plain_to(sandbox)

    assert status == (await plain("GET", "/authorized_payments/search?")).status
    assert 200 == (await plain("GET", "/authorized_payments/search?payer_id=5")).status


async def test_invoices_and_plans_of_others_are_not_seen(connect, sandbox):
    """A seller sees their own; the plan of another seller is `not-found`."""
    sandbox.buyer.subscribe()
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        assert [] == await second_client.invoices.search().collect()
        with pytest.raises(NotFound) as rejected:
            await second_client.plans.get(sandbox.plan_id)

    assert "not-found" == rejected.value.code


CALENDARS = [
    ({}, ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
    ({"frequency": 7, "frequency_type": "days"}, ["2026-01-31", "2026-02-07", "2026-02-14", "2026-02-21"]),
    ({"billing_day": 10}, ["2026-02-10", "2026-03-10", "2026-04-10"]),
    ({"frequency": 12}, ["2026-01-31", "2027-01-31", "2028-01-31"]),
    ({"free_trial": {"frequency": 1, "frequency_type": "months"}}, ["2026-02-28", "2026-03-28"]),
]


async def test_debit_dates_keep_to_the_calendar(plain, client, sandbox):
    """A month that lacks the day takes its last; the next month has the day again."""
    begin = datetime(2026, 1, 31, 12, tzinfo=UTC)
    sandbox.clock.freeze(begin)
    plans = [(await make_plan(plain, **recurring))["id"] for recurring, _ in CALENDARS]
    subscriptions = [sandbox.buyer.subscribe(plan) for plan in plans]
    sandbox.clock.advance("P735D")
    sandbox.clock.freeze(begin)  # The access token has not expired then.

    for subscription, (_, dates) in zip(subscriptions, CALENDARS, strict=True):
        invoices = await client.invoices.search(preapproval_id=subscription.id).collect()
        moments = [f"{invoice.debit_date}".removesuffix(" 00:00:00+00:00") for invoice in reversed(invoices)]
        assert dates == moments[: len(dates)]


#: What a month before the billing day costs, by the plan and its trial.
PARTS = [
    ({"frequency": 1, "frequency_type": "months"}, "120.00"),
    ({"frequency": 12, "frequency_type": "months"}, "10.00"),
    ({"frequency": 20, "frequency_type": "days"}, "180.00"),
    ({"frequency": 7, "frequency_type": "days"}, "360.00"),
    ({"billing_day_proportional": False}, "360.00"),
    # There are no cents in Chile.
    ({"transaction_amount": "1000", "currency_id": "CLP"}, "333"),
    ({"transaction_amount": "1000", "currency_id": "UYU"}, "333.33"),
    # A part is counted from the end of the free trial; one that ends on the billing day is followed by a whole.
    ({"free_trial": {"frequency": 4, "frequency_type": "days"}}, "72.00"),
    ({"free_trial": {"frequency": 4, "frequency_type": "days", "first_invoice_offset": 3}}, "36.00"),
    ({"free_trial": {"frequency": 10, "frequency_type": "days"}}, "360.00"),
]


@pytest.mark.control("paymentsdk.sandbox._handlers.invoices._WHOLE", {"UYU": Decimal(1)})
async def test_a_part_is_one_of_what_a_whole_charge_is_for(plain, sandbox):
    """Ten days are a third of a month and little of a year, and of a week they are no part: that is charged whole."""
    sandbox.clock.freeze(datetime(2026, 3, 1, tzinfo=UTC))
    charge = {"transaction_amount": "360.00", "billing_day": 11, "billing_day_proportional": True}
    for number, (recurring, _) in enumerate(PARTS):
        plan = await make_plan(plain, **{**charge, **recurring})
        sandbox.buyer.subscribe(plan["id"], external_reference=str(number))

    sandbox.clock.advance("P10D")

    charged = {entry.external_reference: f"{entry.amount}" for entry in sandbox.ledger() if entry.amount}
    assert {str(number): amount for number, (_, amount) in enumerate(PARTS)} == charged


async def test_the_ledger_has_the_currency_of_the_plan(plain, client, sandbox):
    """What is charged and what goes back are in the currency of the invoice, whatever the seller's is."""
    sandbox.buyer.subscribe((await make_plan(plain, currency_id="USD"))["id"])
    sandbox.clock.advance("PT0S")
    [invoice] = [row for row in await client.invoices.search().collect() if row.payment]
    sandbox.buyer.change_invoice_payment(invoice.id, "refunded")

    assert "USD" == invoice.currency_id
    assert [("USD", 10), ("USD", -10)] == [
        (entry.currency, entry.amount) for entry in sandbox.ledger() if entry.kind == "invoice_payment"
    ]


async def test_an_uncollected_invoice_has_no_payment_to_change(plain, client, sandbox):
    """409: its charge could not be given back before it was made."""
    subscription = sandbox.buyer.subscribe()
    invoices = await client.invoices.search(preapproval_id=subscription.id).collect()
    [invoice] = [row for row in invoices if row.status == "scheduled"]

    response = await plain("POST", f"/_sandbox/invoices/{invoice.id}/payment", {"status": "refunded"})

    assert (409, "no_payment") == (response.status, response.code)
    assert None is (await client.invoices.search(id=invoice.id).first()).payment


async def test_only_an_active_plan_is_subscribed_to(plain, sandbox):
    """409 for one that its seller has put away."""
    body = {"reason": "r", "auto_recurring": {"transaction_amount": 5}, "status": "inactive"}
    plan = (await plain("POST", "/_sandbox/plans", body)).json

    assert 409 == (await plain("POST", "/_sandbox/subscriptions", {"plan_id": plan["id"]})).status
    with pytest.raises(Rejected, match="409 plan_not_active the plan is inactive"):
        sandbox.buyer.subscribe(plan["id"])


async def test_rejections_are_a_number_or_all(plain):
    """-1 stands for all of them, and no other number below zero for anything."""
    statuses = [(await plain("POST", "/_sandbox/subscriptions", {"rejections": number})).status for number in (-2, -1)]

    assert [400, 200] == statuses


async def test_a_plan_is_made_in_python(client, sandbox):
    """Of the first seller, unless another is named."""
    second_seller = sandbox.create_tenant()
    weekly = RecurringRequest(transaction_amount=Decimal("7.00"), frequency=7, frequency_type="days", repetitions=2)

    plan, second_plan = (
        sandbox.create_plan(PlanRequest(reason="Gym", auto_recurring=weekly), seller)
        for seller in (None, second_seller)
    )

    assert (sandbox.tenant.user_id, second_seller.user_id) == (plan.collector_id, second_plan.collector_id)
    assert plan == await client.plans.get(plan.id)


@pytest.mark.parametrize("wrong", [
    *({"transaction_amount": amount} for amount in (7.5, Decimal(0))),
    *({"frequency": 0}, {"billing_day": 31}, {"free_trial": FreeTrialRequest(frequency=0)}),
])  # fmt: skip
async def test_a_plan_that_breaks_a_rule_is_not_made(client, sandbox, wrong):
    """A Struct that Python made is checked as one that came over HTTP."""

    def make() -> None:
        recurring = RecurringRequest(**{"transaction_amount": Decimal(7), **wrong})
        sandbox.create_plan(PlanRequest(reason="Gym", auto_recurring=recurring))

    with pytest.raises(ValueError, match=r"Decimal|Expected `int`|above 0"):
        make()

    assert [sandbox.plan_id] == [plan.id async for plan in client.plans.search()]
