"""The way back to the client: an answer as it should be, or as a fault has it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web
from msgspec import Struct

from paymentsdk.sandbox.faults import Hit

__all__ = ["Outcome", "break_off", "hang", "pause", "send"]

_HTML = (
    b"<!doctype html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"
)
#: Seconds between two looks whether the client of a hanging request is still there.
_LOOK = 0.05
#: With this option a closed connection ends in a reset instead of an orderly goodbye.
_NO_LINGER = struct.pack("ii", 1, 0)


class Outcome(Struct, frozen=True, kw_only=True):
    """An answer, ready to be sent."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    replayed: bool = False


async def pause(seconds: float, stopping: asyncio.Event) -> None:
    """Wait for *seconds*, or until the server stops."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def hang(request: web.Request, stopping: asyncio.Event) -> None:
    """Wait until the client has gone, or the server stops."""
    while request.transport is not None and not stopping.is_set():
        await pause(_LOOK, stopping)


def break_off(request: web.Request) -> web.StreamResponse:
    """Reset the connection; the answer that is returned goes nowhere."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return web.Response()


async def send(request: web.Request, outcome: Outcome, hit: Hit, stopping: asyncio.Event) -> web.StreamResponse:
    """Send *outcome*, or what the faults in *hit* leave of it. Everything is committed by now."""
    for rule in hit.of("delay_after_commit"):
        await pause(rule.seconds, stopping)
    if hit.first("lose_response_after_commit"):
        return break_off(request)
    body, status, kind = outcome.body, outcome.status, "application/json"
    if page := hit.first("html"):
        body, status, kind = _HTML, page.status or 502, "text/html"
    if hit.first("malformed"):
        body = body[: len(body) // 2] + b"\x00<<"
    if hit.first("wrong_content_type"):
        kind = "text/plain"
    if hit.first("truncate"):
        response = await _begin(request, status, kind, outcome.headers, len(body))
        await response.write(body[: len(body) // 2])
        return break_off(request)
    if slow := hit.first("drip"):
        response = await _begin(request, status, kind, outcome.headers, len(body))
        for i in range(len(body)):
            if stopping.is_set():
                return break_off(request)
            await response.write(body[i : i + 1])
            await pause(slow.seconds, stopping)
        return response
    return web.Response(status=status, body=body, content_type=kind, headers=outcome.headers)


async def _begin(
    request: web.Request, status: int, kind: str, headers: Mapping[str, str], length: int
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    response.content_type = kind
    response.content_length = length
    await response.prepare(request)
    return response
