"""Which connections a transport is told to stop using, and refunds that are told apart."""

from __future__ import annotations

import asyncio
import json

import pytest

from paymentsdk import Conflict, OutcomeUnknown, RateLimited, Request, Response, RetryPolicy
from paymentsdk._contract.identity import Comparison
from paymentsdk.testing import MemoryTransport
from tests.engine.conftest import order_request
from tests.identity.writes import partial_refund, says

# --- connections ------------------------------------------------------------------------------------------------------


ONCE = RetryPolicy(attempts=1)
OURS = Response(201, {}, b'{"id":"ORD1","external_reference":"shop-1","total_amount":"24.90"}')
FOREIGN = Response(201, {}, b'{"id":"ORD2","external_reference":"shop-2","total_amount":"24.90"}')
BROKEN = Response(201, {}, b'{"id":"ORD')
LIMITED = Response(429, {}, b'{"message":"slow down"}')
DOCUMENTED = Response(409, {}, b'{"errors":[{"code":"idempotency_key_already_used","message":"used"}]}')


class Raising(MemoryTransport):
    """A transport whose `discard` is defective."""

    def discard(self, response: Response) -> None:
        super().discard(response)
        raise RuntimeError("a defect")


class Plain:
    """A transport that cannot discard."""

    async def send(self, request: Request) -> Response:
        return FOREIGN

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.control("paymentsdk._call.runtime.Runtime.discard", lambda self, response: None)
@pytest.mark.parametrize("response", [FOREIGN, BROKEN], ids=["foreign", "broken"])
async def test_a_response_to_another_request_discards_its_connection(client_over, response):
    """The responses that follow on that connection may belong to other requests as well."""
    transport = MemoryTransport([response, OURS])

    order = await client_over(transport).orders.create(order_request())

    assert "ORD1" == order.id
    assert [response] == transport.discarded


async def test_a_response_to_this_request_discards_nothing(client_over):
    """Connections are kept alive as long as nothing is wrong with them."""
    transport = MemoryTransport([OURS])

    await client_over(transport).orders.create(order_request())

    assert [] == transport.discarded


@pytest.mark.control("paymentsdk._call.runtime.Runtime.discard", lambda self, response: None)
async def test_an_undocumented_error_response_to_a_write_discards_its_connection(client_over):
    """An error response names no request: it may be the response to another, while this write has taken effect."""
    transport = MemoryTransport([LIMITED])

    with pytest.raises(RateLimited):
        await client_over(transport, retry=ONCE).orders.create(order_request())

    assert [LIMITED] == transport.discarded


@pytest.mark.control("paymentsdk.Operation.documents", lambda self, status, code: False)
async def test_a_documented_error_response_discards_nothing(client_over):
    """What the contract says of a write is believed."""
    transport = MemoryTransport([DOCUMENTED])

    with pytest.raises(Conflict):
        await client_over(transport, retry=ONCE).orders.create(order_request())

    assert [] == transport.discarded


@pytest.mark.parametrize("transport", [Raising([FOREIGN]), Plain()], ids=["raises", "has no discard"])
async def test_the_outcome_does_not_depend_on_discarding(client_over, transport):
    """A transport that cannot discard, or fails to, changes nothing of what is known about the write."""
    with pytest.raises(OutcomeUnknown, match="another external_reference"):
        await client_over(transport, retry=ONCE).orders.create(order_request())


# --- refunds ----------------------------------------------------------------------------------------------------------


def refunded(*ids: str, amount: str = "5.00") -> Response:
    """A response with the refunds *ids*, the newest last."""
    refunds = [{"id": refund_id, "transaction_id": "PAY1", "amount": amount} for refund_id in ids]
    return says({"id": "ORD1", "status": "processed", "transactions": {"refunds": refunds}})


def agrees(_):
    """Take every response for one that agrees with its request."""
    return property(lambda _: lambda *_: Comparison(agreed=2))


@pytest.mark.control("paymentsdk._contract.identity.Identity.compare", around=agrees)
async def test_a_refund_of_another_amount_is_asked_about_on_a_fresh_connection(client_over):
    """The client discards the connection that brought another refund, and sends the same key on a fresh one."""
    another = refunded("REF1", amount="7.00")
    transport = MemoryTransport([another, refunded("REF2")])

    result = await partial_refund("5.00")(client_over(transport))

    assert "REF2" == result.value.refunds[0].id
    first, second = transport.requests
    assert (False, True) == (first.fresh, second.fresh)
    assert first.headers["X-Idempotency-Key"] == second.headers["X-Idempotency-Key"]
    assert [another] == transport.discarded


async def test_concurrent_refunds_each_get_their_own(client_over):
    """Responses that overtake each other are told apart by their amounts."""

    async def answer(request: Request) -> Response:
        amount = json.loads(request.body)["transactions"][0]["amount"]
        await asyncio.sleep(0)
        return refunded(f"REF-{amount}", amount=amount)

    client = client_over(MemoryTransport(answer))

    results = await asyncio.gather(*(partial_refund(f"{n}.00")(client) for n in range(1, 20)))

    assert [f"REF-{n}.00" for n in range(1, 20)] == [result.value.refunds[0].id for result in results]
    assert {()} == {result.anomalies for result in results}
