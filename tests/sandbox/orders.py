"""Orders in each of their states."""

from __future__ import annotations

from operator import attrgetter

from paymentsdk.resources.orders import Order


def members(value: object, names: str) -> tuple:
    """Return the members of *value* with these *names*, in their order; `a.b` is the `b` of its `a`."""
    return attrgetter(*names.split())(value)


def payment(order: Order):
    """Return the one payment of an order."""
    return order.transactions.payments[0]


async def bring(client, sandbox, order, state: str) -> Order:
    """Return an order in *state*."""
    new_order = await client.orders.create(order())
    if state in {"processed", "refunded"}:
        sandbox.buyer.pay(new_order)
    if state == "refunded":
        await client.orders.refund(new_order.id)
    if state == "canceled":
        await client.orders.cancel(new_order.id)
    if state == "expired":
        sandbox.clock.advance("PT15M")
    return await client.orders.get(new_order.id)
