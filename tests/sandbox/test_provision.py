"""Many paid orders at once."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import SellerContext

#: What stands in the place of moments and of identifiers, which differ from one order to the next.
OWN = re.compile(r'"20[0-9-]{8}T[^"]*Z"|ORD[0-9A-Z]{26}|PAY[0-9A-Z]{26}|(?<![0-9])[0-9]{11,12}(?![0-9])')


REFERENCE = "provisioned-1"


async def everything_of(client, sandbox, order):
    """Return all that can be read of *order*: itself, its merchant order, its lines of the ledger."""
    sold = await client.merchant_orders.search().collect()
    entries = [msgspec.structs.replace(one, idempotency_key=None) for one in sandbox.ledger()]
    found = [await client.orders.get(order), *sold, *entries]
    return [(OWN.sub("*", text := msgspec.json.encode(one).decode()), len(OWN.findall(text))) for one in found]


async def test_a_provisioned_order_is_like_one_of_the_api(start, connect):
    """Every member of it, of its merchant order and of the ledger; by itself, it is as good as any."""
    seen = []
    for by_api in (True, False):
        sandbox = await start(seed=7, frozen=True)
        async with connect(sandbox) as client:
            if by_api:
                payments = TransactionsRequest(payments=[PaymentRequest(amount=Decimal("1.00"))])
                asked = OrderRequest(external_reference=REFERENCE, total_amount=Decimal("1.00"), transactions=payments)
                made = await client.orders.create(asked)
                sandbox.buyer.pay(made)
            else:
                sandbox.provision(orders=1)
            [entry, _] = sandbox.ledger()
            seen.append(await everything_of(client, sandbox, entry.order_id))
            refunded = await client.orders.refund(entry.order_id)
            assert "refunded" == refunded.status

    assert seen[0] == seen[1]


@pytest.mark.control("paymentsdk.sandbox._tenants._Past.schedule", SellerContext.schedule)
async def test_provisioned_orders_spread_over_the_days(sandbox, client):
    """Oldest first, from so many days ago until now; each with its own ids, amount and moment; of the seller asked."""
    other = sandbox.create_tenant()
    sandbox.provision(orders=250, days=50)
    sandbox.provision(orders=3, days=1, tenant=other)
    assert None is sandbox.platform.store.take_due(sandbox.clock.now()), "a paid order has nothing to wait for"

    sold = list(reversed(await client.merchant_orders.search().collect()))
    begin = sandbox.clock.now() - timedelta(days=50)

    assert [f"provisioned-{number}" for number in range(1, 251)] == [one.external_reference for one in sold]
    assert [begin + timedelta(hours=4.8) * number for number in range(250)] == [one.date_created for one in sold]
    assert 250 == len({one.id for one in sold}) == len({one.payments[0].id for one in sold})
    assert sum(one.paid_amount for one in sold) == sum(
        entry.amount for entry in sandbox.ledger(sandbox.tenant.user_id) if entry.kind == "payment"
    )
    assert all(Decimal(1) <= one.total_amount == one.paid_amount < 1000 for one in sold)
    assert 6 == len(sandbox.ledger(other.user_id))
    assert () == sandbox.clock.advance("P1D")


async def test_a_program_provisions_by_the_control_api(sandbox, client, plain):
    """In pieces, between which other requests are handled; it says no to a number or a seller that there is not."""
    done = await plain("POST", "/_sandbox/provision", {"orders": 101, "days": 2})
    rejected = [
        await plain("POST", "/_sandbox/provision", body)
        for body in ({"orders": 0}, {"orders": 1, "days": 4000}, {"orders": 1, "tenant": 5})
    ]

    assert (200, {"orders": 101}) == (done.status, done.json)
    assert 101 == len(await client.merchant_orders.search().collect())
    assert [400, 400, 404] == [one.status for one in rejected]
    with pytest.raises(ValueError, match=r"\$.orders"):
        sandbox.provision(orders=0)
