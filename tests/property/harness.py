"""A sandbox that a client asks, with a model beside it: how things are done there, and what must come of each."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from paymentsdk import OPERATIONS, AiohttpTransport, APIError, Http11Transport, OutcomeUnknown, PaymentsClient
from paymentsdk._call.retry import RetryBudgets
from paymentsdk.sandbox import FaultRule, Rejected, Sandbox
from paymentsdk.testing import FakeClock
from tests.property.model import Model, Remembered

BEGIN = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
#: Attempts of a call; a fault that hits more requests leaves its outcome unknown.
ATTEMPTS = 4
#: Faults after which all was done.
AFTER = ("lose_response_after_commit", "truncate", "malformed", "html")


class Harness(RuleBasedStateMachine):
    """A sandbox that a client asks, its buyer and its clock; and the model beside it."""

    transport: type[AiohttpTransport | Http11Transport] = AiohttpTransport

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.model = Model(BEGIN)
        self.start(frozen_at=BEGIN)

    def start(self, **options):
        self.sandbox = Sandbox(
            db=str(self.directory / "sandbox.db"), seed=7, policies={"discount_promise": "unchecked"}, **options
        )
        self.run(self.sandbox.start())
        self.buyer = self.sandbox.buyer
        self.connected = PaymentsClient(
            base_url=self.sandbox.base_url,
            client_id=self.sandbox.client_id,
            client_secret=self.sandbox.client_secret,
            transport=self.transport(),
            clock=self.clock,
            strict=True,
        )

    def stop(self):
        self.run(self.connected.aclose())
        self.run(self.sandbox.stop())

    def teardown(self):
        self.stop()
        self.loop.close()
        shutil.rmtree(self.directory)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    @property
    def client(self):
        """The client, with a token that has not expired."""
        return self.connected.with_options(access_token=self.sandbox.access_token)

    def everything(self):
        """All that the sandbox keeps."""
        return list(self.sandbox.platform.store._connection.iterdump())

    # --- how things are done ------------------------------------------------------------------------------------------

    def send(self, client, name, data, fault, *, key=None, **path):
        """Send a request; return ``done``, ``refused`` or ``unknown``, and the response or the error."""
        body = None if data is None else msgspec.convert(data, OPERATIONS[name].body)
        # It is for a platform that fails as a whole; here each fault is one of its own.
        self.connected._engine.runtime.budgets = RetryBudgets()
        added = fault and self.sandbox.faults.add(FaultRule(effect=fault[0], operation=name, times=fault[1]))
        try:
            return "done", self.run(client.call(OPERATIONS[name], body, idempotency_key=key, **path))
        except OutcomeUnknown as error:
            return "unknown", error
        except APIError as error:
            return "refused", error
        finally:
            if added:
                added.remove()

    def write(self, name, data, *, fault, key, rejection, effect=None, **path):
        """Send a keyed write, and again with its key if its outcome is unknown; *effect* follows a first success."""
        model, client, key = self.model, self.client, key or self.clock.key()
        request = Remembered(name, path, data, model.now, b"")
        remembered = model.remembered(key)
        same = remembered if remembered and remembered.is_of(name, path, data) else None
        code = "idempotency_key_already_used" if remembered and not same else None if same else rejection

        before = self.everything()
        outcome, response = self.send(client, name, data, fault, key=key, **path)
        spent = fault is not None and fault[1] >= ATTEMPTS
        if outcome == "unknown" or (spent and outcome == "refused" and response.status == 429):
            assert key == response.idempotency_key
            assert spent or code or response.last_error.status in {409, 423}, response
            assert before == self.everything() or fault[0] in AFTER
            outcome, response = self.send(client, name, data, None, key=key, **path)

        if code and outcome == "unknown":  # An earlier attempt may have done it: the code alone settles nothing.
            assert before == self.everything()
            return
        if code:
            assert outcome == "refused", (code, response)
            unread = fault is not None and fault[0] == "malformed" and response.code is None
            assert unread or response.code == code, (code, response)
        else:
            assert outcome == "done", response
        if same:
            assert same.response == response.raw, "a replayed response is another one"
        if code or same:
            assert before == self.everything(), "what was rejected or done before changed something"
            return
        request.response = response.raw
        model.keys[key] = request
        effect(json.loads(response.raw, parse_float=Decimal), key)

    def act(self, code, do):
        """Have the buyer do something that is rejected with *code*, and then changes nothing; or with none, not."""
        _ = self.client  # Who names no seller means the first, whose grants are refreshed by that.
        before = self.everything()
        if code is None:
            return do()
        with pytest.raises(Rejected) as rejected:
            do()
        assert code == rejected.value.code
        assert before == self.everything(), "what was rejected changed something"
        return None

    def old_key(self, data):
        """Now and then a key that was used before."""
        keys = sorted(self.model.keys)
        return data.draw(st.sampled_from(keys)) if keys and data.draw(st.integers(0, 7)) == 7 else None

    def an_order(self, data, fit):
        """Mostly an order that is *fit*."""
        orders = list(self.model.orders.values())
        fitting = [order for order in orders if fit(order)]
        return data.draw(st.sampled_from(fitting if fitting and data.draw(st.integers(0, 4)) else orders))
