"""stripe-python over httpx, its default; requests a payment intent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import stripe

from benchmarks import payloads
from benchmarks.contestants import Calls, Target

NAME = "stripe, httpx"
NOTES = ""


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    if not target.authority:
        return calls(target, stripe.HTTPXClient())
    before = stripe.ca_bundle_path
    stripe.ca_bundle_path = target.authority  # Its only switch; stripe reads it when the client is created.
    try:
        return calls(target, stripe.HTTPXClient())
    finally:
        stripe.ca_bundle_path = before


@asynccontextmanager
async def calls(target: Target, http_client: stripe.HTTPClient) -> AsyncIterator[Calls]:
    """Request payment intents through *http_client*."""
    ids = payloads.peer_ids("pi_")
    client = stripe.StripeClient(
        "sk_test_4eC39HqLyjWDarjtT1zdp7dc", base_addresses={"api": target.base_url}, http_client=http_client
    )
    intents = client.v1.payment_intents

    async def get() -> stripe.PaymentIntent:
        return await intents.retrieve_async(next(ids))

    async def post() -> stripe.PaymentIntent:
        return await intents.create_async(
            {
                "amount": 6240,
                "currency": "brl",
                "description": "Coffee beans and a grinder",
                "automatic_payment_methods": {"enabled": True},
                "metadata": {
                    "external_reference": payloads.REFERENCE,
                    "pos": "STORE42POS007",
                    "line_1": "Coffee beans, 12.45, 2 kg, CB-1",
                    "line_2": "Hand grinder, 37.50, 1 unit, HG-9",
                },
            }
        )

    try:
        yield Calls(get, post)
    finally:
        await http_client.close_async()  # type: ignore[no-untyped-call]


__all__ = ["NAME", "NOTES", "calls", "connect", "httpx"]
