"""The sandbox and the client beside a model of what the contract promises, in whatever order things happen.

Every response, every rejection, everything that falls due and every line of the ledger is foretold by the model; what a
search finds and what a document shows is compared with it.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.property.harness import AFTER, ATTEMPTS, Harness
from tests.property.model import POLICIES, ZERO

MOMENT = timedelta(milliseconds=1)
#: Faults after which nothing was done.
BEFORE = ("fail_before_commit", "reset", "rate_limit")
METHODS = ("account_money", "credit_card", "debit_card", "prepaid_card")
CODES = ("A1", "A11", "B")

amounts = st.sampled_from(["10.00", "10.01", "3", "0.01", "99999.99"])
references = st.sampled_from(["ticket-1", "Ticket_2"])
#: What happens to the next requests, and to how many of them.
faults = st.none() | st.tuples(st.sampled_from(BEFORE + AFTER), st.integers(1, ATTEMPTS + 1))
passing_faults = st.none() | st.tuples(st.sampled_from(BEFORE + AFTER), st.integers(1, ATTEMPTS - 1))


@st.composite
def order_bodies(draw):
    """Orders, now and then for a till that is not there."""
    amount = draw(amounts)
    item = {"title": "Café", "unit_price": "1.50", "quantity": 2, "unit_measure": "unit", "external_code": "A1"}
    pos = draw(st.sampled_from(["POS001"] * 5 + ["POS-none"]))
    reduced = st.fixed_dictionaries({"type": st.sampled_from(METHODS), "new_total_amount": st.just("0.01")})
    members = {
        "expiration_time": st.sampled_from(["PT30S", "PT1H", "PT3600H"]),
        "description": st.just("Zwei Kaffee"),
        "items": st.sampled_from(CODES).map(lambda code: [{**item, "external_code": code}]),
        "discounts": st.lists(reduced, min_size=1, max_size=2, unique_by=lambda discount: discount["type"]).map(
            lambda entries: {"payment_methods": entries}
        ),
        "config": st.sampled_from(["static", "dynamic", "hybrid"]).map(
            lambda mode: {"qr": {"external_pos_id": pos, "mode": mode}}
        ),
    }
    return {
        "type": "qr",
        "external_reference": draw(references),
        "total_amount": amount,
        "transactions": {"payments": [{"amount": amount}]},
        **draw(st.fixed_dictionaries({}, optional=members)),
    }


class Machine(Harness):
    """What may happen: each rule says what the model foretells of it."""

    # --- orders -------------------------------------------------------------------------------------------------------

    @initialize(body=order_bodies(), method=st.sampled_from(METHODS))
    def begin(self, body, method):
        """There is something to pay, and something that was paid."""
        for _ in range(2):
            self.order(body | {"config": {"qr": {"mode": "dynamic"}}}, None, None)
        self.pay(next(iter(self.model.orders.values())), method, "approved")

    @rule(data=st.data(), body=order_bodies(), fault=faults)
    def create_order(self, data, body, fault):
        self.order(body, fault, self.old_key(data))

    def order(self, body, fault, key):
        def effect(response, key):
            (payment,) = response["transactions"]["payments"]
            self.check_order(self.model.create_order(body, response["id"], payment["id"], key), response)

        rejection = "pos_not_found" if "POS-none" in str(body) else None
        self.write("orders.create", body, fault=fault, key=key, rejection=rejection, effect=effect)

    @rule(
        data=st.data(),
        method=st.sampled_from(METHODS),
        outcome=st.sampled_from(["approved", "approved", "rejected", "in_review"]),
    )
    def pay_order(self, data, method, outcome):
        self.pay(self.an_order(data, lambda candidate: candidate.status == "created"), method, outcome)

    def pay(self, order, method, outcome):
        model = self.model
        code = None if order.status == "created" else "cannot_pay_order"
        self.act(code, lambda: self.buyer.pay(order.id, payment_method=method, outcome=outcome))
        if code:
            return
        model.pay_order(order, method, outcome)

    @rule(data=st.data(), fault=faults)
    def cancel_order(self, data, fault):
        order, model = (
            self.an_order(data, lambda candidate: candidate.left or candidate.status == "created"),
            self.model,
        )

        def effect(response, key):
            model.cancel_order(order, key)
            self.check_order(order, response)

        rejection = model.cancel_refusal(order)
        key = self.old_key(data)
        self.write("orders.cancel", None, fault=fault, key=key, rejection=rejection, effect=effect, order_id=order.id)

    @precondition(lambda self: any(order.paid for order in self.model.orders.values()))
    @rule(data=st.data(), fault=faults, amount=st.none() | st.just("half") | amounts)
    def refund_order(self, data, fault, amount):
        order, model = self.an_order(data, lambda candidate: candidate.left), self.model
        part = body = None
        if amount is not None:
            half = max((order.left / 2).quantize(Decimal("0.01")), Decimal("0.01"))
            of = data.draw(st.sampled_from([order.payment_id] * 5 + ["PAY1"]))
            part = (of, half if amount == "half" else Decimal(amount))
            body = {"transactions": [{"id": part[0], "amount": str(part[1])}]}

        def effect(response, key):
            refund = response["transactions"]["refunds"][-1]
            model.refund_order(order, part[1] if part else order.left, refund["id"], key)
            assert (order.refunds[-1].amount, order.refunds[-1].status) == (Decimal(refund["amount"]), refund["status"])
            assert (order.status, order.detail) == (response["status"], response["status_detail"])
            if model.policies["refund_response"] == "full":
                self.check_order(order, response)

        rejection = model.refund_refusal(order, part)
        key = self.old_key(data)
        self.write("orders.refund", body, fault=fault, key=key, rejection=rejection, effect=effect, order_id=order.id)

    @rule(fault=passing_faults)
    def get_orders(self, fault):
        client = self.client
        before = self.everything()
        for order in self.model.orders.values():
            outcome, response = self.send(client, "orders.get", None, fault, order_id=order.id)
            assert outcome == "done", response
            self.check_order(order, json.loads(response.raw))
        assert before == self.everything()

    def check_order(self, order, answer):
        body = {"expiration_time": "PT15M"} | order.body
        for name in ("external_reference", "total_amount", "description", "expiration_time", "items", "discounts"):
            assert body.get(name) == answer.get(name)
        mode = body.get("config", {}).get("qr", {}).get("mode", "static")
        assert ("type_response" in answer) == (mode != "static")
        assert (order.status, order.detail) == (answer["status"], answer["status_detail"])
        for moment, name in ((order.made, "created_date"), (order.updated, "last_updated_date")):
            assert timedelta(0) <= moment - datetime.fromisoformat(answer[name]) < timedelta(milliseconds=1)
        (payment,) = answer["transactions"]["payments"]
        assert (order.payment_id, body["total_amount"], *order.payment) == tuple(
            payment[name] for name in ("id", "amount", "status", "status_detail")
        )
        assert (order.paid, order.refunded) == (
            Decimal(payment["paid_amount"]) if "paid_amount" in payment else None,
            Decimal(payment.get("refunded_amount", 0)),
        )
        assert order.method == payment.get("payment_method", {}).get("type")
        assert ({"type": order.method} if order.discounted else None) == payment.get("discounts")
        refunds = answer["transactions"].get("refunds", ())
        assert [(refund.id, order.payment_id, refund.amount, refund.status) for refund in order.refunds] == [
            (refund["id"], refund["transaction_id"], Decimal(refund["amount"]), refund["status"]) for refund in refunds
        ]

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data(), fault=faults)
    def send_again(self, data, fault):
        """The same request with the same key has its saved response."""
        key = data.draw(st.sampled_from(sorted(self.model.keys)))
        if call := self.model.remembered(key):
            self.write(call.operation, call.body, fault=fault, key=key, rejection=None, **call.path)

    # --- time, switches, and starts -----------------------------------------------------------------------------------

    @rule(data=st.data(), days=st.sampled_from([0, 0, 1, 5, 31, 90]))
    def advance(self, data, days):
        """Time moves on by days, by a little, or up to the next thing that falls due, or to the moment before."""
        due = self.model.due[0][0] - self.model.now if self.model.due else MOMENT
        short = data.draw(st.sampled_from([MOMENT, timedelta(minutes=10), timedelta(hours=1), due, due - MOMENT]))
        span = timedelta(days=days) if days else short
        happened = self.sandbox.clock.advance(span)
        self.fell_due(happened, self.model.now + span)

    def fell_due(self, happened, until=None):
        foretold = self.model.fall_due(until or self.model.now)
        assert foretold == [(event.at, event.kind, event.id) for event in happened]

    @rule(
        changes=st.fixed_dictionaries(
            {}, optional={name: st.sampled_from(choices) for name, choices in POLICIES.items()}
        )
    )
    def change_policies(self, changes):
        self.sandbox.platform.change_policies(changes)
        self.model.policies |= changes

    @rule()
    def start_anew(self):
        """The file holds everything through a start."""
        self.stop()
        self.start()

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def each_effect_is_in_the_ledger_once(self):
        lines = [
            (entry.at, entry.kind, entry.order_id, entry.amount, entry.idempotency_key)
            for entry in self.sandbox.ledger()
        ]
        assert self.model.ledger == lines

    @invariant()
    def no_more_goes_back_than_was_paid(self):
        sums = {}
        for entry in self.sandbox.ledger():
            sums[entry.order_id] = sums.get(entry.order_id, ZERO) + entry.amount
            assert sums[entry.order_id] >= 0, entry


@pytest.mark.control("paymentsdk.sandbox._store.Store.saved_response", lambda *_, **__: None)
def test_what_happens_is_what_the_contract_promises():
    """In whatever order, with whatever faults in between: each effect once, and no more goes back than was paid."""
    # A failure is shown as it is found: to make it smaller would take the controls minutes.
    phases = [Phase.explicit, Phase.generate]
    examples = max(4, settings().max_examples // 20)
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=examples, stateful_step_count=25, phases=phases, report_multiple_bugs=False),
    )
