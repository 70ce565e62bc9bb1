"""Operations against raw bytes on a socket: each kind of response, once and for ever, over both transports.

`test_verdicts` records what a caller learns of failures that a transport reports. This test records the same of bytes,
from the socket to the caller, with the observed events and the bytes that were sent. A redesign of the call or of a
transport must leave every line as it is. `UPDATE_GOLDEN=1 pytest tests/golden` writes the lines again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest

from paymentsdk import (
    AiohttpTransport,
    Http11Transport,
    PaymentsClient,
    PaymentsError,
    Response,
    RetryPolicy,
    Transport,
)
from paymentsdk.events import AttemptEnded, CallEnded, Event
from paymentsdk.testing import FakeClock
from tests.golden.test_verdicts import CALLS

RECORDED = Path(__file__).parent / "wire"
#: One of each kind, as bytes are read alike for all: a read, two shapes of pages, writes with a key and without.
RECORDED_OPERATIONS = (
    "orders.get", "invoices.search", "merchant_orders.search", "orders.create", "orders.refund", "preferences.create",
    "oauth.refresh",
)  # fmt: skip
TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
TRANSPORTS: dict[str, Callable[[], Transport]] = {"aiohttp": AiohttpTransport, "http11": Http11Transport}
#: Two of these are enough to tell "once" from "for ever".
RETRY = RetryPolicy(attempts=3)
#: What the server does with a connection in place of a response.
HANG, RESET, CLOSE = b"<hang>", b"<reset>", b"<close>"
#: Ends a response after which the server closes the connection.
THEN_CLOSE = b"<then close>"

Kind = Callable[[Response], bytes]


def http(status: int, body: bytes = b"{}", *fields: str, kind: str = "application/json", length: str = "") -> bytes:
    """Return a response as it stands on the wire, with a request id and a date."""
    head = [f"HTTP/1.1 {status} Some Reason", f"Content-Type: {kind}", "X-Request-Id: req-1", *fields]
    head += [length or f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def chunked(body: bytes, *, size: bytes = b"%x", trailer: bytes = b"") -> bytes:
    """Return a response in two chunks."""
    half = len(body) // 2
    chunks = b"".join(size % len(part) + b"\r\n" + part + b"\r\n" for part in (body[:half], body[half:]) if part)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n" + trailer + b"\r\n"


def coded(status: int, code: str, *fields: str) -> bytes:
    """Return an error response of the Orders API."""
    return http(status, b'{"errors":[{"code":"%s","message":"no"}]}' % code.encode(), *fields)


def right(response: Response) -> bytes:
    """Return the response that belongs to the request."""
    return http(response.status, response.body)


def changed(response: Response, pattern: bytes, replacement: bytes) -> bytes:
    """Return the right response with every match of *pattern* replaced."""
    return http(response.status, re.sub(pattern, replacement, response.body))


KINDS: dict[str, Kind] = {
    "right": right,
    "another id": lambda r: changed(r, rb'"id":"?([^",}]+)"?', rb'"id":"other-\1"'),
    "another amount": lambda r: changed(r, rb"24\.90|5\.00", b"7.77"),
    "another reference": lambda r: changed(r, b"shop-1", b"shop-2"),
    "unknown members": lambda r: changed(r, rb"^\{", b'{"unknown":[1,{"a":null}],'),
    "an amount of another type": lambda r: changed(r, rb'"?24\.90"?|"5\.00"', b"{}"),
    "an amount that is NaN": lambda r: changed(r, rb'"?24\.90"?|"5\.00"', b"NaN"),
    "no id": lambda r: changed(r, rb'"id"', b'"di"'),
    "null": lambda r: http(r.status, b"null"),
    "a list": lambda r: http(r.status, b"[" + r.body + b"]"),
    "a number": lambda r: http(r.status, b"17"),
    "not JSON": lambda r: http(r.status, b"{not json"),
    "not UTF-8": lambda r: http(r.status, b'{"id":"\xff"}'),
    "nested 2,000 deep": lambda r: http(r.status, b"[" * 2000 + b"]" * 2000),
    "a byte order mark": lambda r: http(r.status, b"\xef\xbb\xbf" + r.body),
    "HTML": lambda r: http(r.status, b"<html>welcome</html>", kind="text/html"),
    "no body": lambda r: http(r.status, b""),
    "204": lambda _: b"HTTP/1.1 204 No Content\r\n\r\n",
    "a Content-Encoding": lambda r: http(r.status, r.body, "Content-Encoding: gzip"),
    "the token echoed": lambda r: right(r).replace(b"req-1", TOKEN.encode()),
    "chunked": lambda r: chunked(r.body),
    "chunked with a trailer": lambda r: chunked(r.body, trailer=b"X-One: 1\r\n"),
    "a chunk size with a sign": lambda r: chunked(r.body, size=b"+%x"),
    "chunks that are cut off": lambda r: chunked(r.body)[:-7] + THEN_CLOSE,
    "until the connection ends": lambda r: b"HTTP/1.1 200 OK\r\n\r\n" + r.body + THEN_CLOSE,
    "bare line feeds": lambda r: right(r).replace(b"\r\n", b"\n"),
    "two lengths": lambda r: http(r.status, r.body, "Content-Length: 1"),
    "a length with chunks": lambda r: chunked(r.body).replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n", 1),
    "a length that is no number": lambda r: http(r.status, r.body, length="Content-Length: +2"),
    "cut off in the head": lambda r: right(r)[:20] + THEN_CLOSE,
    "cut off in the body": lambda r: right(r)[:-1] + THEN_CLOSE,
    "a surplus response": lambda r: right(r) + coded(404, "order_not_found"),
    "an interim response first": lambda r: b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + right(r),
    "garbage": lambda _: b"\x00\x01 no HTTP\r\n\r\n" + THEN_CLOSE,
    "a hang": lambda _: HANG,
    "a reset": lambda _: RESET,
    "a closed connection": lambda _: CLOSE,
    "an error as 200": lambda _: http(200, b'{"status":500,"message":"Internal error"}'),
    "301": lambda _: http(301, b"", "Location: http://127.0.0.1:1/"),
    "307": lambda _: http(307, b"", "Location: http://127.0.0.1:1/"),
    "400 of the platform": lambda _: coded(400, "property_value"),
    "400 HTML": lambda _: http(400, b"<html>bad</html>", kind="text/html"),
    "401": lambda _: coded(401, "unauthorized"),
    "402 with an order": lambda _: http(402, b'{"errors":[{"code":"failed"}],"data":{"id":"ORD1"}}'),
    "403 HTML": lambda _: http(403, b"<html>blocked</html>", kind="text/html"),
    "404 of the platform": lambda _: coded(404, "order_not_found"),
    "404 of a gateway": lambda _: http(404, b'{"message":"no Route matched with those values"}'),
    "408": lambda _: http(408, b""),
    "409 key used": lambda _: coded(409, "idempotency_key_already_used"),
    "409 in progress": lambda _: coded(409, "refund_in_progress"),
    "409 a state": lambda _: coded(409, "cannot_refund_order"),
    "409 without a code": lambda _: http(409, b"{}"),
    "413": lambda _: http(413, b""),
    "423": lambda _: coded(423, "resource_locked"),
    "424": lambda _: http(424, b"{}"),
    "429": lambda _: http(429, b'{"status":429,"error":"too_many_requests"}'),
    "429 for 3 s": lambda _: http(429, b"{}", "Retry-After: 3"),
    "429 for 99 s": lambda _: http(429, b"{}", "Retry-After: 99"),
    "500": lambda _: http(500, b'{"message":"Internal error","status":500}'),
    "502 HTML": lambda _: http(502, b"<html>gateway</html>", kind="text/html"),
    "503 for 3 s": lambda _: http(503, b"{}", "Retry-After: 3"),
    "599": lambda _: http(599, b""),
}


class Server:
    """Answers requests with *kind* first and with the right response afterwards, unless *kind* holds for ever."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.sent: list[bytes] = []
        self.connections = 0
        self.script: Callable[[], bytes] = lambda: HANG

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play one connection."""
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", head)
                self.sent.append(head + (await reader.readexactly(int(length[1])) if length else b""))
                if not await self._respond(self.script(), reader, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _respond(self, response: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Write *response*, and return whether the connection goes on."""
        if response == HANG:
            self.clock.advance(30.0)
            await reader.read()
            return False
        if response == RESET:
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if response == CLOSE:
            return False
        writer.write(response.removesuffix(THEN_CLOSE))
        await writer.drain()
        return not response.endswith(THEN_CLOSE)


@asynccontextmanager
async def listening(clock: FakeClock) -> AsyncIterator[tuple[Server, str]]:
    """Listen on a free port of this machine, and give the server and its address."""
    server = Server(clock)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        yield server, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


def outcome_of(error: BaseException) -> str:
    """Return what a program can tell by *error*: its type, its facts and its notes, without free text."""
    names = ("status", "code", "settled", "retry_after", "attempts", "request_id", "seen", "total")
    facts = {name: value for name in names if (value := getattr(error, name, None)) is not None}
    facts["last"] = type(getattr(error, "last_error", None)).__name__
    facts["keyed"] = getattr(error, "idempotency_key", None) is not None
    facts["notes"] = len(getattr(error, "__notes__", ()))
    return f"{type(error).__name__} " + " ".join(f"{name}={value}" for name, value in facts.items())


def described(events: list[Event]) -> str:
    """Return the events of a call: how each attempt and the call ended, and how many others there were."""
    parts = [
        f"{event.number}:{event.status}:{event.kind.value if event.kind else 'ok'}"
        for event in events
        if isinstance(event, AttemptEnded)
    ]
    parts += [event.outcome.value for event in events if isinstance(event, CallEnded)]
    counts = Counter(type(event).__name__ for event in events)
    return f"{' '.join(parts)} of {sum(counts.values())} events"


def digest(server: Server) -> str:
    """Return the count of requests, and a digest of their bytes without what differs between runs and versions."""
    heads = [re.sub(rb"(?im)^(host|user-agent): .*\r\n", b"", request) for request in server.sent]
    return f"{len(heads)} requests {hashlib.sha256(b'|'.join(heads)).hexdigest()[:12]}"


async def play(operation: str, transport: str, kind: Kind, *, for_ever: bool) -> str:
    """Make the call over a socket, and return the line that is recorded.

    An observed call takes the general way from its beginning. One that nobody observes begins inline, on a connection
    that an earlier call has opened, and has to come to the same.
    """
    line = await played(operation, transport, kind, for_ever=for_ever, observed=True)
    inline = await played(operation, transport, kind, for_ever=for_ever, observed=False)
    assert re.sub(r" \| [^|]* of [0-9]+ events", "", line) == inline
    return line


async def played(operation: str, transport: str, kind: Kind, *, for_ever: bool, observed: bool) -> str:
    """Make the call over a socket, and return what came of it."""
    call, response = CALLS[operation]
    clock, events = FakeClock(), list[Event]()
    async with listening(clock) as (server, base_url):
        steps = iter([kind(response)])
        server.script = lambda: kind(response) if for_ever else next(steps, right(response))
        async with PaymentsClient(
            TOKEN,
            base_url=base_url,
            client_id="app-1",
            client_secret="client-secret-0123456789",
            clock=clock,
            transport=TRANSPORTS[transport](),
            retry=RETRY,
            observers=[events.append] if observed else None,
        ) as client:
            if not observed:
                first, server.script = server.script, lambda: http(200, b'{"id":"plan-1"}')
                await client.plans.get("plan-1")
                server.script = first
                server.sent.clear()
            try:
                value = await call(client)
                outcome = f"value {hashlib.sha256(repr(value).encode()).hexdigest()[:12]}"
            except PaymentsError as error:
                outcome = outcome_of(error)
        pauses = ", ".join(f"{seconds:.2f}" for seconds in clock.slept) or "none"
        parts = [outcome, *([described(events)] if observed else []), digest(server), f"pauses {pauses}"]
        return " | ".join(parts)


async def lines(operation: str) -> list[str]:
    """Return every case of *operation* as it is recorded: one line where counts and transports agree."""
    recorded = []
    for name, kind in KINDS.items():
        labels_of: dict[str, list[str]] = {}
        for count, transport in product(("once", "for ever"), TRANSPORTS):
            line = await play(operation, transport, kind, for_ever=count == "for ever")
            labels_of.setdefault(line, []).append(f"{count} {transport}")
        recorded += [f"{name} ({', '.join(labels)}): {line}" for line, labels in labels_of.items()]
    return recorded


@pytest.mark.parametrize("operation", RECORDED_OPERATIONS)
async def test_what_a_caller_learns_from_bytes_is_on_record(operation: str) -> None:
    """Values, errors, attempts, events, sent bytes and pauses are what they were."""
    current, path = await lines(operation), RECORDED / f"{operation}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        RECORDED.mkdir(exist_ok=True)
        path.write_text("\n".join(current) + "\n", encoding="utf-8")

    assert path.read_text(encoding="utf-8").splitlines() == current


async def test_a_response_that_is_read_differently_is_noticed() -> None:
    """A kind that another one replaces changes its line: the record is of what happens."""
    usual = await play("orders.get", "http11", KINDS["right"], for_ever=True)

    assert usual != await play("orders.get", "http11", KINDS["another id"], for_ever=True)
