"""openai-python with its aiohttp extra; requests a chat completion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp  # noqa: F401 - the extra: without it the contestant is left out
import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from benchmarks import payloads
from benchmarks.contestants import Calls, Contestant, Target

_MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "You are a till. You add up what is on the belt, and say the total."},
    {
        "role": "user",
        "content": "Coffee beans, 12.45, 2 kg, CB-1; hand grinder, 37.50, 1 unit, HG-9. "
        "Reference store-0042_till-7_20260131-000917, point of sale STORE42POS007, ten minutes to pay.",
    },
]


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, context = payloads.peer_ids("chatcmpl-"), target.context()
    transport = openai.DefaultAioHttpClient(**({"verify": context} if context else {}))
    async with openai.AsyncOpenAI(api_key="sk-test", base_url=f"{target.base_url}/v1", http_client=transport) as client:
        completions = client.chat.completions

        async def get() -> ChatCompletion:
            return await completions.retrieve(next(ids))

        async def post() -> ChatCompletion:
            return await completions.create(model="gpt-4.1-mini", messages=_MESSAGES)

        yield Calls(get, post)


CONTESTANTS = (
    Contestant(
        "openai, aiohttp",
        connect,
        "openai: `AsyncOpenAI.chat.completions` of openai-python with its aiohttp extra, its own defaults, a response "
        "of the same size as an order",
    ),
)
