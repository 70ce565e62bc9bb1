"""openai-python with its default HTTP client."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

NAME = "openai, default"


@asynccontextmanager
async def connect(base_url: str, authority: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    http_client = DefaultAsyncHttpxClient(verify=ssl.create_default_context(cafile=authority))
    async with AsyncOpenAI(api_key="sk-test", base_url=f"{base_url}/v1", http_client=http_client) as client:
        yield lambda: client.chat.completions.retrieve("chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG")
