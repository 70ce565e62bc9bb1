"""The way back to the client: a response as it should be, or as a fault has it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.sandbox._faults import Hit
from paymentsdk.sandbox._responses import phrase

#: The page of a gateway that responds in place of the platform.
_GATEWAY_PAGE = "<!doctype html>\n<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>\n"
#: Seconds for a body to arrive.
READ_TIMEOUT = 30.0
#: Seconds between two looks whether the client of a hanging request is still there.
_LOOK = 0.05
#: With this option a closed connection ends in a reset instead of an orderly goodbye.
_NO_LINGER = struct.pack("ii", 1, 0)


async def read(request: web.Request) -> bytes:
    """Return the body of *request*.

    Raises:
        TimeoutError: It did not come whole in time: nobody waits for ever for a client that has stopped sending.
    """
    async with asyncio.timeout(READ_TIMEOUT):
        return await request.read()


class Response(Struct, frozen=True, kw_only=True):
    """A response, ready to be sent."""

    status: int
    """The HTTP status."""
    body: bytes
    """The bytes that are sent."""
    headers: Mapping[str, str] = {}
    """Headers of its own."""
    content_type: str = "application/json"
    """What it says the body is."""
    missing: int = 0
    """How many bytes it promises and never sends: the connection breaks instead."""


async def pause(seconds: float, stopping: asyncio.Event) -> None:
    """Wait for *seconds*, or until the server stops."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def hang(request: web.Request, stopping: asyncio.Event) -> None:
    """Wait until the client has gone, or the server stops."""
    while request.transport is not None and not stopping.is_set():
        await pause(_LOOK, stopping)


def reset_connection(request: web.Request) -> web.StreamResponse:
    """Reset the connection; the response that is returned goes nowhere."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return web.Response()


def apply_faults(outcome: Response, hit: Hit) -> Response | None:
    """Return what the faults in *hit* leave of *outcome*, as it will be sent; `None` when nothing will be."""
    if hit.first("lose_response_after_commit"):
        return None
    if rule := hit.first("html"):
        status = rule.status or 502
        page = _GATEWAY_PAGE.format(f"{status} {phrase(status)}")
        outcome = replace(outcome, status=status, body=page.encode(), content_type="text/html")
    if hit.first("malformed"):
        outcome = replace(outcome, body=outcome.body[: len(outcome.body) // 2] + b"\x00<<")
    if hit.first("wrong_content_type"):
        outcome = replace(outcome, content_type="text/plain")
    if hit.first("truncate"):
        half = outcome.body[: len(outcome.body) // 2]
        outcome = replace(outcome, body=half, missing=len(outcome.body) - len(half))
    return outcome


async def send(request: web.Request, outcome: Response | None, hit: Hit, stopping: asyncio.Event) -> web.StreamResponse:
    """Send what is left of a response, as late and as slowly as *hit* has it. Everything is committed by now."""
    for rule in hit.of("delay_after_commit"):
        await pause(rule.seconds, stopping)
    if outcome is None:
        return reset_connection(request)
    slow = hit.first("drip")
    if slow is None and not outcome.missing:
        return web.Response(
            status=outcome.status, body=outcome.body, content_type=outcome.content_type, headers=outcome.headers
        )
    response = web.StreamResponse(status=outcome.status, headers=outcome.headers)
    response.content_type = outcome.content_type
    response.content_length = len(outcome.body) + outcome.missing
    pieces = [outcome.body] if slow is None else [outcome.body[i : i + 1] for i in range(len(outcome.body))]
    await response.prepare(request)
    for piece in pieces:
        if stopping.is_set():
            return reset_connection(request)
        await response.write(piece)
        if slow is not None:
            await pause(slow.seconds, stopping)
    return reset_connection(request) if outcome.missing else response
