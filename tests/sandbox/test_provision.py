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
    entries = [msgspec.structs.replace(entry, idempotency_key=None) for entry in sandbox.ledger()]
    documents = [await client.orders.get(order), *sold, *entries]
    return [
        (OWN.sub("*", text := msgspec.json.encode(document).decode()), len(OWN.findall(text))) for document in documents
    ]


async def test_a_provisioned_order_is_like_one_of_the_api(start, connect):
    """Every member of it, of its merchant order and of the ledger; by itself, it is as good as any."""
    versions = []
    for by_api in (True, False):
        sandbox = await start(seed=7, frozen=True)
        async with connect(sandbox) as client:
            if by_api:
                payments = TransactionsRequest(payments=[PaymentRequest(amount=Decimal("1.00"))])
                request = OrderRequest(
                    external_reference=REFERENCE, total_amount=Decimal("1.00"), transactions=payments
                )
                new_order = await client.orders.create(request)
                sandbox.buyer.pay(new_order)
            else:
                sandbox.provision(orders=1)
            [entry, _] = sandbox.ledger()
            versions.append(await everything_of(client, sandbox, entry.order_id))
            refunded = await client.orders.refund(entry.order_id)
            assert "refunded" == refunded.status

    assert versions[0] == versions[1]


@pytest.mark.control("paymentsdk.sandbox._tenants._Past.schedule", SellerContext.schedule)
async def test_provisioned_orders_spread_over_the_days(sandbox, client):
    """Oldest first, from so many days ago until now; each with its own ids, amount and moment; of the seller asked."""
    second_seller = sandbox.create_tenant()
    sandbox.provision(orders=250, days=50)
    sandbox.provision(orders=3, days=1, tenant=second_seller)
    assert None is sandbox.platform.store.take_due(sandbox.clock.now()), "a paid order has nothing to wait for"

    sold = list(reversed(await client.merchant_orders.search().collect()))
    begin = sandbox.clock.now() - timedelta(days=50)

    assert [f"provisioned-{number}" for number in range(1, 251)] == [sale.external_reference for sale in sold]
    assert [begin + timedelta(hours=4.8) * number for number in range(250)] == [sale.date_created for sale in sold]
    assert 250 == len({sale.id for sale in sold}) == len({sale.payments[0].id for sale in sold})
    assert sum(sale.paid_amount for sale in sold) == sum(
        entry.amount for entry in sandbox.ledger(sandbox.tenant.user_id) if entry.kind == "payment"
    )
    assert all(Decimal(1) <= sale.total_amount == sale.paid_amount < 1000 for sale in sold)
    assert 6 == len(sandbox.ledger(second_seller.user_id))
    assert () == sandbox.clock.advance("P1D")
