"""wreq, a client in Rust."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from wreq import Client
from wreq.tls import CertStore

from benchmarks import payloads
from benchmarks.contestants import Calls, Target
from paymentsdk.resources.orders import Order

NAME = "bare wreq"
NOTES = "bare wreq: bytes body, prebuilt decoder; the CPU time of its threads is counted with it"


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Calls]:
    """Set up the client."""
    ids, body = payloads.order_ids(), payloads.order_request()
    encode, decode = payloads.ENCODE, payloads.DECODE
    reading, writing = payloads.READING, payloads.WRITING
    orders = f"{target.base_url}/v1/orders"
    options = {}
    if target.authority:
        options["tls_verify"] = CertStore.from_pem_stack(Path(target.authority).read_bytes())  # noqa: ASYNC240
    client = Client(**options)

    async def get() -> Order:
        response = await client.get(f"{orders}/{next(ids)}", headers=reading)
        if response.status.as_int() != 200:
            raise RuntimeError(response.status)
        return decode(await response.bytes())

    async def post() -> Order:
        headers = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
        response = await client.post(orders, body=encode(body), headers=headers)
        if response.status.as_int() != 201:
            raise RuntimeError(response.status)
        return decode(await response.bytes())

    yield Calls(get, post)
