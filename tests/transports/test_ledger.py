"""Writes over either transport, while the platform fails in every way: the ledger has each of them once."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from paymentsdk import (
    AiohttpTransport,
    Http11Transport,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    RetryPolicy,
    Timeout,
)
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule, Sandbox

ORDERS = 60
#: Every way to lose a response, or what was asked for, at random and often.
FAULTS = [
    FaultRule(effect="lose_response_after_commit", probability=0.1, seed=1),
    FaultRule(effect="fail_before_commit", probability=0.1, seed=2),
    FaultRule(effect="truncate", probability=0.1, seed=3),
    FaultRule(effect="malformed", probability=0.1, seed=4),
    FaultRule(effect="html", probability=0.1, seed=5),
    FaultRule(effect="reset", probability=0.1, seed=6),
    FaultRule(effect="delay_after_commit", probability=0.05, seed=7, seconds=0.4),
]


def order(name: str) -> OrderRequest:
    """The order of a name."""
    payments = TransactionsRequest(payments=[PaymentRequest(amount=Decimal("10.00"))])
    return OrderRequest(external_reference=name, total_amount=Decimal("10.00"), transactions=payments)


async def create(client: PaymentsClient, name: str) -> tuple[str, str]:
    """Create the order *name*, again and again with one key until its outcome is known; return its key and its id."""
    key = f"key-of-{name}"
    for _ in range(50):
        try:
            return key, (await client.orders.create(order(name), idempotency_key=key)).id
        except (OutcomeUnknown, NotSent):
            continue
    raise AssertionError(f"{name} fails for ever")


@pytest.mark.control("paymentsdk.sandbox._pipeline.replay", lambda *_, **__: None)
@pytest.mark.parametrize("transport", [AiohttpTransport, Http11Transport])
async def test_the_ledger_has_each_order_once(transport: type[AiohttpTransport | Http11Transport]) -> None:
    """Of 60 orders, whose requests fail every other time, each exists once, with the id that was told.

    The control is a platform that has forgotten its keys: what is resent is done twice.
    """
    async with Sandbox(seed=7) as sandbox:
        for fault in FAULTS:
            sandbox.faults.add(fault)
        policy = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.002)
        timeout = Timeout(total=5.0, attempt=0.3, connect=0.3)
        async with PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, transport=transport(), retry=policy, timeout=timeout
        ) as client:
            outcomes = client.map(lambda number: create(client, f"order-{number}"), range(ORDERS), concurrency=8)
            async with asyncio.timeout(60):
                returned = [outcome.value async for outcome in outcomes]
        created = [
            (entry.idempotency_key, entry.order_id) for entry in sandbox.ledger() if entry.kind == "order_created"
        ]
        hits = [fault.hits for fault in sandbox.faults.list()]

    assert sorted(returned) == sorted(created)
    assert all(hits), hits
