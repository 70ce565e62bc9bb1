"""Measures the cost of each layer of the SDK over bare aiohttp.

Each line makes the same call on the same server with one more layer of the SDK. The first line is the hand-tuned
baseline. *added* is the difference to the line above, round by round. 16 calls are in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from benchmarks import harness, payloads
from benchmarks.bench_call import connected, slices
from benchmarks.contestants import BASELINE, Calls, Target, bare_aiohttp, sdk
from benchmarks.harness import Key, Options, Result, Row, Variant
from benchmarks.server import nginx_or_asyncio
from paymentsdk import AiohttpTransport, Request
from paymentsdk.resources import orders

if TYPE_CHECKING:
    from paymentsdk import Operation, Response

WIDTH = 16
BODY = "the check of the body"
_BARE = {"Authorization": f"Bearer {payloads.TOKEN}", "Accept": "application/json"}
_OURS = {**_BARE, "Accept-Encoding": "identity", "User-Agent": "paymentsdk/1.0.0"}

#: Sends a method, a URL, headers and a body; returns the bytes of the response.
Send = Callable[[str, str, dict[str, str], bytes], Any]


def _encoder(*, checks: bool) -> Callable[[], bytes]:
    body, encoder = payloads.order_request(), orders.CREATE.encoder
    if checks and encoder is not None:
        return partial(encoder.encode, body)
    return partial(msgspec.json.Encoder(decimal_format="string").encode, body)


def _decoder(operation: Operation[Any, Any], *, checks: bool) -> Callable[[bytes], object]:
    if not checks:
        return msgspec.json.Decoder(orders.Order).decode
    body = payloads.order_request()

    def read(content: bytes) -> object:
        value, _ = operation.decoder.decode(content)
        if mismatch := operation.identity.compare(body, {"order_id": value.id}, value).mismatch:
            raise RuntimeError(mismatch)
        return value

    return read


def calls(send: Send, base_url: str, headers: Mapping[str, str], checks: Collection[str] = ()) -> Calls:
    """Return both calls through *send*, with the SDK's *checks* of the ``body`` and the ``response``."""
    ids, url = payloads.order_ids(), f"{base_url}/v1/orders"
    encode = _encoder(checks="body" in checks)
    read, created = (_decoder(operation, checks="response" in checks) for operation in (orders.GET, orders.CREATE))
    writing = {**headers, "Content-Type": "application/json"}

    async def get() -> object:
        return read(await send("GET", f"{url}/{next(ids)}", dict(headers), b""))

    async def post() -> object:
        headers_of_call = {**writing, "X-Idempotency-Key": os.urandom(16).hex()}
        return created(await send("POST", url, headers_of_call, encode()))

    return Calls(get, post)


@asynccontextmanager
async def over_session(target: Target, *, headers: Mapping[str, str], **request: Any) -> AsyncIterator[Calls]:
    """Call over an aiohttp session with *headers*, and with the options *request* for each request."""
    async with ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()) as session:

        async def send(method: str, url: str, headers_of_call: dict[str, str], body: bytes) -> bytes:
            response = await session.request(
                method, URL(url, encoded=True), headers=headers_of_call, data=body or None, **request
            )
            if not 200 <= response.status < 300:
                raise RuntimeError(response.status)
            return await response.read()

        yield calls(send, target.base_url, headers)


@asynccontextmanager
async def over_transport(target: Target, *checks: str, session: bool = False) -> AsyncIterator[Calls]:
    """Call over the SDK's transport without its engine, with or without a *session*."""
    injected = ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()) if session else None
    transport = AiohttpTransport(session=injected)

    async def send(method: str, url: str, headers: dict[str, str], body: bytes) -> bytes:
        response: Response = await transport.send(Request(method, url, headers, body, 30.0, 5.0))
        if not 200 <= response.status < 300:
            raise RuntimeError(response.status)
        return response.body

    try:
        yield calls(send, target.base_url, _OURS, checks)
    finally:
        await transport.aclose()
        if injected is not None:
            await injected.close()


_OPTIONS = {"allow_redirects": False, "raise_for_status": False, "auto_decompress": False}

#: From the baseline up. Each layer adds one thing to the layer above.
LAYERS: Mapping[str, Callable[[Target], AbstractAsyncContextManager[Calls]]] = {
    BASELINE: bare_aiohttp.connect,
    "our headers and options (no cookies, no redirects, no decompression)": lambda target: over_session(
        target, headers=_OURS, **_OPTIONS
    ),
    "no timer of aiohttp's own (the engine has one)": lambda target: over_session(
        target, headers=_OURS, timeout=ClientTimeout(connect=5.0, ceil_threshold=inf), **_OPTIONS
    ),
    "AiohttpTransport on a session (bounded body, failures told apart)": lambda target: over_transport(
        target, session=True
    ),
    "AiohttpTransport on its own session (idle connections watched, requests in turn)": over_transport,
    "the check of the response (amounts, identity)": lambda target: over_transport(target, "response"),
    BODY: lambda target: over_transport(target, "response", "body"),
    "the engine (deadline, retries, budget, token, report)": sdk.connect,
}


def _climb(method: str, layers: Mapping[str, Calls], runner: asyncio.Runner, options: Options) -> list[Row]:
    variants = []
    for name, calls_of in layers.items():
        if method == "GET" and name == BODY:
            continue
        key: Key = {"method": method, "layer": name}
        call = calls_of.get if method == "GET" else calls_of.post
        variants.append(Variant(key, slices(runner, call, WIDTH), least=WIDTH))
    rows = harness.interleave(variants, options)
    for i, row in enumerate(rows):
        row.samples["added_us"] = harness.difference(row, rows[max(0, i - 1)])
    return rows


def run(options: Options) -> Result:
    """Measure every layer."""
    rows: list[Row] = []
    with (
        nginx_or_asyncio() as server,
        harness.on_core(harness.cores()[0]),
        asyncio.Runner() as runner,
        contextlib.ExitStack() as stack,
    ):
        target = Target(server.plain)
        layers = {
            name: connected(connect, target, runner, stack)
            for name, connect in LAYERS.items()
            if not options.only or name in (*options.only, BASELINE)
        }
        for method in ("GET", "POST"):
            rows += _climb(method, layers, runner, options)
    return harness.result(
        "bench_layers", rows, options, baseline={"layer": BASELINE}, server=server.kind, in_flight=WIDTH
    )


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
