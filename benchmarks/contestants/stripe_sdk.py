"""stripe-python over aiohttp; requests a payment intent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import stripe

from benchmarks import payloads
from benchmarks.contestants import Calls, Contestant, Target

_INTENT: stripe.params.PaymentIntentCreateParams = {
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


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, context = payloads.peer_ids("pi_"), target.context()
    http_client = stripe.AIOHTTPClient(**({"connector": aiohttp.TCPConnector(ssl=context)} if context else {}))
    client = stripe.StripeClient(
        "sk_test_4eC39HqLyjWDarjtT1zdp7dc", base_addresses={"api": target.base_url}, http_client=http_client
    )
    intents = client.v1.payment_intents

    async def get() -> stripe.PaymentIntent:
        return await intents.retrieve_async(next(ids))

    async def post() -> stripe.PaymentIntent:
        return await intents.create_async(_INTENT)

    try:
        yield Calls(get, post)
    finally:
        await http_client.close_async()  # type: ignore[no-untyped-call]


CONTESTANTS = (
    Contestant(
        "stripe, aiohttp",
        connect,
        "stripe: `v1.payment_intents` of stripe-python, its own defaults, a response of the same size as an order",
    ),
)
