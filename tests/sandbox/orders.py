"""Orders in each of their states."""

from __future__ import annotations

from paymentsdk.resources.orders import Order


def payment(order: Order):
    """Return the one payment of an order."""
    return order.transactions.payments[0]


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
