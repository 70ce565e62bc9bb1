"""Operations against raw bytes on a socket: what comes of each kind of response, over both transports.

`test_verdicts` records what a caller learns of failures that a transport reports. This test records the same of bytes,
from the socket to the caller, with the observed events and the bytes that were sent. A redesign of the call or of a
transport must leave every line as it is. `UPDATE_GOLDEN=1 pytest tests/golden` writes the lines again.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence

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
from tests.engine.conftest import CLIENT_SECRET, JOBS, TOKEN
from tests.faults import FaultServer, Peer, Script, Seen
from tests.golden.test_verdicts import CALLS, RECORDED, assert_recorded, told

#: Bytes are read alike for all: a read, a page, and a write with a key.
OPERATIONS = ("orders.get", "merchant_orders.search", "orders.create")
TRANSPORTS: dict[str, Callable[[], Transport]] = {"aiohttp": AiohttpTransport, "http11": Http11Transport}
RETRY = RetryPolicy(attempts=3)
#: What the server does with a connection in place of a response.
HANG, RESET = b"<hang>", b"<reset>"
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
    "a surplus response": lambda r: right(r) + http(404),
    "an interim response first": lambda r: b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + right(r),
    "garbage": lambda _: b"\x00\x01 no HTTP\r\n\r\n" + THEN_CLOSE,
    "a hang": lambda _: HANG,
    "a reset": lambda _: RESET,
    "a closed connection": lambda _: THEN_CLOSE,
    "an error as 200": lambda _: http(200, b'{"status":500,"message":"Internal error"}'),
    "301": lambda _: http(301, b"", "Location: http://127.0.0.1:1/"),
    "307": lambda _: http(307, b"", "Location: http://127.0.0.1:1/"),
}


def playing(response: Callable[[], bytes], clock: FakeClock) -> Script:
    """Answer each request with what *response* says."""

    async def script(peer: Peer) -> None:
        async for _ in peer.requests():
            data = response()
            if data == HANG:
                clock.advance(30.0)
                await peer.hung_up()
            elif data == RESET:
                peer.reset()
            else:
                await peer.write(data.removesuffix(THEN_CLOSE))
            if data.endswith((HANG, RESET, THEN_CLOSE)):
                return

    return script


#: What a program can tell by an error, without free text.
FACTS = ("status", "code", "settled", "retry_after", "attempts", "request_id", "seen", "total")


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


#: Fields that differ between runs and versions.
VARYING = {"host", "user-agent"}


def digest(requests: Sequence[Seen]) -> str:
    """Return the count of requests, and a digest of all that is the same in each run."""
    parts = [
        (
            seen.method,
            seen.target,
            sorted(field for field in seen.headers.items() if field[0] not in VARYING),
            seen.body,
        )
        for seen in requests
    ]
    return f"{len(requests)} requests {hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


async def play(operation: str, kind: Kind, transport: str, *, observed: bool) -> list[str]:
    """Make the call over a socket, and return the parts of the line that is recorded, the events last."""
    clock, events, answers = FakeClock(), list[Event](), [http(200, b'{"id":"plan-1"}')]
    async with FaultServer(playing(lambda: answers[-1], clock)) as server:
        async with PaymentsClient(
            TOKEN,
            base_url=server.url(""),
            client_id="app-1",
            client_secret=CLIENT_SECRET,
            clock=clock,
            transport=TRANSPORTS[transport](),
            retry=RETRY,
            observers=[events.append] if observed else None,
        ) as client:
            if not observed:
                await client.plans.get("plan-1")
                server.seen.clear()
            answers.append(kind(JOBS[operation].response))
            try:
                value = await CALLS[operation](client)
                outcome = f"value {hashlib.sha256(repr(value).encode()).hexdigest()[:12]}"
            except PaymentsError as error:
                outcome = told(error, FACTS)
        pauses = ", ".join(f"{seconds:.2f}" for seconds in clock.slept) or "none"
        return [outcome, digest(server.seen), f"pauses {pauses}", described(events)]


async def lines(operation: str) -> list[str]:
    """Return every case of *operation* as it is recorded: one line where the transports agree.

    An observed call takes the general way from its beginning. One that nobody observes begins inline, on a connection
    that an earlier call has opened, and has to come to the same.
    """
    recorded = []
    for name, kind in KINDS.items():
        by_default = await play(operation, kind, "aiohttp", observed=True)
        fast = await play(operation, kind, "http11", observed=False)
        if by_default[:-1] != fast[:-1]:
            recorded.append(f"{name}, http11: {' | '.join(fast[:-1])}")
        recorded.append(f"{name}: {' | '.join(by_default)}")
    return recorded


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_a_caller_learns_from_bytes_is_on_record(operation: str) -> None:
    """Values, errors, attempts, events, sent bytes and pauses are what they were."""
    assert_recorded(RECORDED / "wire" / f"{operation}.txt", await lines(operation))
