"""Responses that cannot be trusted, and surplus bytes: the request always counts as sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

from paymentsdk._contract.operation import KIB, MIB
from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import Peer, Script, echo, forever, http, once, play, replies
from paymentsdk.testing.transport_conformance._case import CASES, Case, Link, MakeTransport, case, linked, served
from paymentsdk.transports.base import DiscardingTransport, Response

_OK, _TWO = b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n{}"
_CHUNKED, _ONE_CHUNK = _OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"


async def _fail(make: MakeTransport, *scripts: Script) -> None:
    """Check that with each of *scripts* a request fails as sent once, and that its connection is closed."""
    for script in scripts:
        async with linked(make, script) as link:
            await link.fail(link.request(timeout=5.0), sent=True)
            expect(len(link.server.seen) == 1, f"the request was sent {len(link.server.seen)} times")
            await link.server.all_hung_up()


@case
async def closed_before_the_response(make: MakeTransport) -> None:
    """A connection that ends or breaks without a response is a failure, sent once."""
    await _fail(make, once(), once(Peer.reset))


@served(play(lambda peer: peer.part(KIB), Peer.reset))
async def reset_within_the_request(link: Link) -> None:
    """If a connection breaks after a part of a request has arrived, the request counts as sent, and is sent once."""
    body = bytes(16 * MIB)  # More than the buffers between the two ends hold, so that writing fails.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Some clients warn about so large a body.
        await link.fail(link.request("/", "POST", body=body, timeout=5.0), sent=True)
    expect(link.server.opened == 1, f"it took {link.server.opened} connections")
    await link.server.all_hung_up()


@case
async def cut_off_within_the_head(make: MakeTransport) -> None:
    """If the connection ends or breaks within the head, the request fails and counts as sent."""
    head = _OK + b"Content-Le"
    await _fail(make, once(head), once(head, Peer.reset))


@case
async def cut_off_within_the_body(make: MakeTransport) -> None:
    """If the body is shorter than its length, or the connection breaks within it, the request fails."""
    short = http(200, b'{"id": "ORD1"', length=100)
    await _fail(make, once(short), once(short, Peer.reset))


@case
async def broken_off_without_a_length(make: MakeTransport) -> None:
    """A body without length or chunks ends with its connection. If the connection breaks instead, the request fails."""
    for head in (b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request", b"HTTP/1.0 200 OK"):
        await _fail(make, *(once(head + b"\r\n\r\n" + body, Peer.reset) for body in (b"", b'{"id": "ORD1"')))


@case
async def cut_off_within_the_chunks(make: MakeTransport) -> None:
    """A body without its last chunk fails the request, even if its content looks complete."""
    whole = _CHUNKED + b"2\r\n{}\r\n"
    await _fail(make, once(whole), once(_CHUNKED + b"ff\r\n{}"), once(whole, Peer.reset))


@case
async def garbage_is_no_response(make: MakeTransport) -> None:
    """Bytes that are not HTTP fail the request. In particular, they do not pass for a 400 of the platform."""
    garbage = (b"HTTP/1.1 abc OK", b"\x16\x03\x01\x02\x00\x01\x00\xfc", b'{"status": "created"}')
    await _fail(make, *(once(line + b"\r\n\r\n") for line in garbage))


@case
async def chunks_that_break_on_the_way(make: MakeTransport) -> None:
    """A malformed chunk fails the request immediately, although the head and the chunks before it were well-formed."""
    await _fail(make, once(_CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n", Peer.hung_up))
    await _fail(make, once(_CHUNKED + b"2\r\n{}\r\n", b"zz\r\n", Peer.hung_up))
    await _fail(make, once(_CHUNKED + b"2\r\n{}", b"XX0\r\n\r\n", Peer.hung_up))


@case
async def another_protocol_is_no_response(make: MakeTransport) -> None:
    """An unrequested 101 fails the request, and its connection is closed."""
    await _fail(make, once(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))


# --- responses that are too large -------------------------------------------------------------------------------------


@case
async def a_head_without_end_is_not_taken_in(make: MakeTransport) -> None:
    """A head without end fails the request, and does not fill the memory."""
    more = b"X-More: " + b"m" * 1000 + b"\r\n"
    await _fail(make, once(_OK, forever(more)), once(_OK + b"X-Long: ", forever(b"m" * KIB)))


async def _limit(link: Link, most: int) -> None:
    """Send a request with a limit of *most* bytes for its response, and check that it fails permanently."""
    failed = await link.fail(link.request(timeout=2.0, max_response=most), sent=True)
    expect(failed.permanent, "a second attempt would fail the same way, so the error must be permanent")


_LARGE = b"x" * 300 * KIB


@served(once(http(200, _LARGE)), once(_OK + b"Connection: close\r\n\r\n" + _LARGE))
async def a_response_may_be_as_large_as_allowed(link: Link) -> None:
    """A response of exactly ``max_response`` bytes is returned whole."""
    await link.receive("/", _LARGE, max_response=len(_LARGE))


@served(once(_CHUNKED + b"3\r\nxxx\r\n0\r\n\r\n"))
async def chunks_above_the_limit_are_refused_at_once(link: Link) -> None:
    """A chunked body that arrives together with its head is also limited by ``max_response``."""
    await _limit(link, 2)
    await link.receive("/", b"xxx", max_response=3)


@served(once(http(200, b"", length=KIB + 1), Peer.hung_up))
async def a_length_above_the_limit_is_refused_at_once(link: Link) -> None:
    """A response whose length is too large is rejected without waiting for its body."""
    await _limit(link, KIB)
    await link.server.all_hung_up()


@case
async def a_body_without_end_is_not_taken_in(make: MakeTransport) -> None:
    """A response without a length is rejected once it is larger than allowed."""
    piece = b"x" * 64 * KIB
    closing = once(_OK + b"Connection: close\r\n\r\n", forever(piece))
    for script in (closing, once(_CHUNKED, forever(b"%x\r\n%b\r\n" % (len(piece), piece)))):
        async with linked(make, script) as link:
            await _limit(link, MIB)
            await link.server.all_hung_up()


_PACKED = (gzip.compress(bytes(16 * MIB)), gzip.compress(b"[" + b"1," * 10_000 + b"1]")[:-40])


@served(*(once(http(200, body, "Content-Encoding: gzip")) for body in _PACKED))
async def nothing_is_unpacked(link: Link) -> None:
    """An unrequested compressed response is rejected, or returned compressed: it never fills the memory.

    A truncated response does not pass for a shorter one.
    """
    request = link.request(headers={"Accept-Encoding": "identity"}, timeout=5.0, max_response=MIB)
    await link.may_fail(request, *_PACKED)


# --- malformed responses ----------------------------------------------------------------------------------------------

#: Heads and bodies that break RFC 9112, by their fault.
MALFORMED: dict[str, bytes] = {
    "a_bare_line_feed": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "a_bare_line_feed_within_the_head": _OK + b"X-One: 1\n" + _TWO,
    "a_bare_carriage_return": _OK + b"X-One: 1\rX-Two: 2\r\n" + _TWO,
    "a_space_before_the_colon": _OK + b"Content-Length : 2\r\n\r\n{}",
    "a_name_with_a_space": _OK + b"X One: 1\r\n" + _TWO,
    "no_colon": _OK + b"Content-Length\r\n\r\n{}",
    "no_name": _OK + b": 1\r\n" + _TWO,
    "a_null_byte_in_a_value": _OK + b"X-One: 1\x002\r\n" + _TWO,
    "a_status_below_100": b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}",
    "a_status_above_599": b"HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\n{}",
    "a_status_of_two_digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a_status_of_four_digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a_status_that_is_signed": b"HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "another_version": b"HTTP/3.7 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "no_version": b"HTTP 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a_length_below_zero": _OK + b"Content-Length: -2\r\n\r\n{}",
    "a_length_that_is_signed": _OK + b"Content-Length: +2\r\n\r\n{}",
    "a_length_that_is_no_number": _OK + b"Content-Length: 0x2\r\n\r\n{}",
    "a_length_with_a_space": _OK + b"Content-Length: 2 2\r\n\r\n{}",
    "a_length_beyond_all_bounds": _OK + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "no_length_in_its_field": _OK + b"Content-Length:\r\n\r\n{}",
    "two_lengths": _OK + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "two_lengths_in_one_field": _OK + b"Content-Length: 2, 4\r\n\r\n{}{}",
    "a_length_with_chunks": _OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + _ONE_CHUNK,
    "chunks_with_a_length": _OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" + _ONE_CHUNK,
    "a_chunk_size_that_is_no_number": _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "a_chunk_below_zero": _CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a_chunk_with_a_prefix": _CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a_chunk_without_a_size": _CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a_chunk_that_is_too_long": _CHUNKED + b"2\r\n{} \r\n0\r\n\r\n",
    "a_chunk_that_is_one_byte_short": _CHUNKED + b"3\r\n{}\r\n0\r\n\r\n",
    "a_chunk_beyond_all_bounds": _CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "chunks_with_bare_line_feeds": _CHUNKED + b"2\n{}\n0\n\n",
    "a_line_feed_behind_a_chunk_extension": _CHUNKED + b"2;a=b\n{}\r\n0\r\n\r\n",
    "a_line_feed_behind_the_last_chunk": _CHUNKED + b"2\r\n{}\r\n0\n\r\n",
    "a_line_feed_behind_a_trailer": _CHUNKED + b"2\r\n{}\r\n0\r\nX-One: 1\n\r\n",
    "a_line_feed_behind_a_chunk": _CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "a_control_character_in_a_chunk_extension": _CHUNKED + b"2;a\x01b\r\n{}\r\n0\r\n\r\n",
    "a_transfer_coding_that_nobody_knows": _OK + b"Transfer-Encoding: chunke\r\nConnection: close\r\n\r\n" + _ONE_CHUNK,
    "no_transfer_coding_in_its_field": _OK + b"Transfer-Encoding:\r\nConnection: close\r\n\r\n" + _ONE_CHUNK,
    "two_transfer_codings": _OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + _ONE_CHUNK,
    "a_control_character_in_a_value": _OK + b"X-One: 1\x012\r\n" + _TWO,
    "a_control_character_in_the_reason": b"HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\n{}",
    "a_folded_field": _OK + b"X-One: 1\r\n 2\r\n" + _TWO,
    "a_field_folded_by_a_carriage_return": _OK + b"X-One:\r 2\r\n" + _TWO,
}

_MALFORMED_FAILS = "A malformed response fails the request, which counts as sent and is sent only once."

#: Bytes after a complete response, by their kind.
SURPLUS: dict[str, bytes] = {
    "garbage": b"garbage",
    "the_beginning_of_a_response": b"HTTP/1.1 200",
    "a_second_response": http(200, b"stray"),
    "two_more_responses": http(200, b"stray") * 2,
}


async def _close(make: MakeTransport, first: bytes, expected: bytes, status: int = 200) -> None:
    """Check that *first* is returned with *status* and the body *expected*, and that its connection is closed."""
    async with linked(make, replies({"/first": [first]})) as link:
        await link.receive("/first", expected, status=status, timeout=5.0)
        await link.receive("/second", b"/second", "POST", timeout=5.0)
        expect(link.server.seen[1].connection == 1, "the connection was used again")


def _add(name: str, rule: str, check: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Add a rule that calls *check* with *arguments*."""
    CASES.append(Case(name, rule, lambda make: check(make, *arguments)))


for _name, _data in MALFORMED.items():
    _add(f"{_name}_is_no_response", _MALFORMED_FAILS, _fail, once(_data))
for _name, _data in SURPLUS.items():
    _rule = f"A complete response followed by {_name.replace('_', ' ')} is returned, and its connection is closed."
    _add(f"surplus_bytes_end_the_connection_{_name}", _rule, _close, http() + _data, b"{}")


@case
async def a_body_where_there_is_none(make: MakeTransport) -> None:
    """A 204 or a 304 has no body: later bytes are surplus. It is returned empty, and its connection is closed."""
    for status in (204, 304):
        await _close(make, b"HTTP/1.1 %d Empty\r\n\r\n{}" % status, b"", status)
        await _close(make, http(status, b"{}"), b"", status)


# --- surplus bytes ----------------------------------------------------------------------------------------------------

_STRAY = http(200, b"stray")


@contextlib.asynccontextmanager
async def _idle(make: MakeTransport) -> AsyncIterator[tuple[Link, socket.socket]]:
    """Make an idle connection, and yield the server's end of it, which bypasses the event loop."""
    async with linked(make, echo) as link:
        await link.receive("/first", b"/first")
        with link.server.peers[0].socket() as end:
            yield link, end


async def _send_while_idle(make: MakeTransport, *early: bytes) -> None:
    """Check that after any of *early* has arrived on an idle connection, the connection carries no further request."""
    for data in early:
        async with _idle(make) as (link, end):
            end.sendall(data)
            await asyncio.sleep(0.05)  # By then, the bytes have arrived.
            await link.receive("/second", b"/second", "POST", timeout=5.0)
            expect(link.server.seen[1].connection == 1, f"the connection was used again after {data!r}")


@case
async def bytes_on_an_idle_connection_end_it(make: MakeTransport) -> None:
    """If a response or garbage arrives on an idle connection, the connection carries no further request."""
    await _send_while_idle(make, b"garbage", _STRAY[:-1], _STRAY, _STRAY * 2)


@case
async def the_beginning_of_a_head_on_an_idle_connection_ends_it(make: MakeTransport) -> None:
    """If a part of a head arrives on an idle connection, the connection carries no further request."""
    await _send_while_idle(make, b"H", b"\r\n", b"HTTP/1.1 100 Continue\r\n")


@case
async def bytes_that_nobody_has_read_yet(make: MakeTransport) -> None:
    """A request takes another connection if unread bytes, or the end of the connection, wait in the system."""
    async with _idle(make) as (link, end):
        end.sendall(_STRAY)
        await link.receive("/second", b"/second", "POST", timeout=5.0)
    async with _idle(make) as (link, end):
        end.shutdown(socket.SHUT_WR)
        await link.receive("/second", b"/second", "POST", timeout=5.0)


@served(replies({"/first": [_STRAY + http(200, b"/first")]}))
async def a_stray_response_during_a_request(link: Link) -> None:
    """If a stray response passes for the response, the response itself is surplus, and no later request takes it."""
    await link.may_fail(link.request("/first", timeout=5.0), b"stray")
    for target in ("/second", "/third"):
        await link.receive(target, target.encode(), timeout=5.0)


# --- discard ----------------------------------------------------------------------------------------------------------


def _discard(link: Link, response: Response) -> bool:
    """Discard *response*, if the transport can; return whether it can."""
    if not isinstance(link.transport, DiscardingTransport):
        return False
    link.transport.discard(response)
    return True


@served(echo, limit=1)
async def a_discarded_connection_takes_no_request(link: Link) -> None:
    """After `discard(response)`, if the transport has it, no request starts on the connection of *response*.

    This holds if the connection is idle, and if the next request is already waiting for it.
    """
    if not _discard(link, await link.send("/first")):
        return
    await link.send("/second")
    expect(link.server.seen[1].connection == 1, "the next request went out on the discarded connection")

    async def first() -> None:
        _discard(link, await link.send("/first"))

    await asyncio.gather(first(), *(link.send("/third") for _ in range(3)))
    expect(link.server.seen[-1].connection > 1, "the requests that waited went out on the discarded connection")
