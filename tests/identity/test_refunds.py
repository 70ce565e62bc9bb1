"""A response to a refund is believed if one of its entries agrees with what was asked for."""

from __future__ import annotations

import asyncio
import json

import pytest

from paymentsdk import Request, Response
from paymentsdk.testing import MemoryTransport
from tests.identity.writes import partial_refund, says


def refunded(*ids: str, amount: str = "5.00") -> Response:
    """A response with the refunds *ids*, the newest last."""
    refunds = [{"id": refund_id, "transaction_id": "PAY1", "amount": amount} for refund_id in ids]
    return says({"id": "ORD1", "status": "processed", "transactions": {"refunds": refunds}})


def agrees(compare):
    """Take every response for one that agrees with its request."""
    return lambda *args: type(compare(*args))(agreed=2)


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
