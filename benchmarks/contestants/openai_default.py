"""openai-python with its default HTTP client; requests a chat completion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import openai
from openai import DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletion

from benchmarks import payloads
from benchmarks.contestants import Calls, Target

NAME = "openai, default"
NOTES = (
    "openai: `AsyncOpenAI.chat.completions` of openai-python, its own defaults, a response of the same size as an order"
)


def connect(target: Target) -> AbstractAsyncContextManager[Calls]:
    """Set up the client."""
    return calls(target, DefaultAsyncHttpxClient)


@asynccontextmanager
async def calls(target: Target, http_client: type[DefaultAsyncHttpxClient]) -> AsyncIterator[Calls]:
    """Request chat completions through a client of the type *http_client*."""
    ids = payloads.peer_ids("chatcmpl-")
    context = target.context()
    transport = http_client(verify=context) if context else http_client()
    async with openai.AsyncOpenAI(api_key="sk-test", base_url=f"{target.base_url}/v1", http_client=transport) as client:
        completions = client.chat.completions

        async def get() -> ChatCompletion:
            return await completions.retrieve(next(ids))

        async def post() -> ChatCompletion:
            return await completions.create(
                model="gpt-4.1-mini",
                messages=[
                    {"role": "system", "content": "You are a till. You add up what is on the belt, and say the total."},
                    {
                        "role": "user",
                        "content": "Coffee beans, 12.45, 2 kg, CB-1; hand grinder, 37.50, 1 unit, HG-9. "
                        "Reference store-0042_till-7_20260131-000917, point of sale STORE42POS007, ten minutes to pay.",
                    },
                ],
            )

        yield Calls(get, post)
