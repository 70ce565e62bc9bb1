"""Responses that are not what they should be: malformed ones, and bytes that belong to no request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, Peer, Script, always, echo, http, once, turns
from paymentsdk.testing.transport_conformance._case import CASES, Case, MakeTransport, case, may_fail, opened, send
from paymentsdk.testing.transport_conformance._responses import CHUNKED, fails
from paymentsdk.transports.base import DiscardingTransport, Request

_ONE_CHUNK = b"2\r\n{}\r\n0\r\n\r\n"
_OK, _TWO = b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n{}"
#: Heads and bodies that break RFC 9112, by what is wrong with them.
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
    "two_lengths_in_one_field": _OK + b"Content-Length: 2, 4\r\n\r\n{}{}",
    "a_length_with_chunks": _OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + _ONE_CHUNK,
    "chunks_with_a_length": _OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" + _ONE_CHUNK,
    "a_chunk_below_zero": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a_chunk_with_a_prefix": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a_chunk_without_a_size": CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a_chunk_that_is_too_long": CHUNKED + b"2\r\n{} \r\n0\r\n\r\n",
    "a_chunk_that_is_one_byte_short": CHUNKED + b"3\r\n{}\r\n0\r\n\r\n",
    "a_chunk_beyond_all_bounds": CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "chunks_with_bare_line_feeds": CHUNKED + b"2\n{}\n0\n\n",
    "a_line_feed_behind_a_chunk_extension": CHUNKED + b"2;a=b\n{}\r\n0\r\n\r\n",
    "a_line_feed_behind_the_last_chunk": CHUNKED + b"2\r\n{}\r\n0\n\r\n",
    "a_line_feed_behind_a_trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX-One: 1\n\r\n",
    "a_line_feed_behind_a_chunk": CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "a_control_character_in_a_chunk_extension": CHUNKED + b"2;a\x01b\r\n{}\r\n0\r\n\r\n",
    "a_transfer_coding_that_nobody_knows": _OK + b"Transfer-Encoding: chunke\r\nConnection: close\r\n\r\n" + _ONE_CHUNK,
    "no_transfer_coding_in_its_field": _OK + b"Transfer-Encoding:\r\nConnection: close\r\n\r\n" + _ONE_CHUNK,
    "two_transfer_codings": _OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + _ONE_CHUNK,
    "a_control_character_in_a_value": _OK + b"X-One: 1\x012\r\n" + _TWO,
    "a_control_character_in_the_reason": b"HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\n{}",
    "a_folded_field": _OK + b"X-One: 1\r\n 2\r\n" + _TWO,
    "a_field_folded_by_a_carriage_return": _OK + b"X-One:\r 2\r\n" + _TWO,
}

#: What follows a complete response, by what it is.
SURPLUS: dict[str, bytes] = {
    "garbage": b"garbage",
    "the_beginning_of_a_response": b"HTTP/1.1 200",
    "a_second_response": http(200, b"stray"),
    "two_more_responses": http(200, b"stray") * 2,
}


def _no_response(name: str, data: bytes) -> Case:
    async def check(make: MakeTransport) -> None:
        await fails(make, once(data))

    check.__name__ = f"{name}_is_no_response"
    check.__doc__ = f"A response with {name.replace('_', ' ')} is malformed: a failure, sent once."
    return Case(check)


CASES.extend(_no_response(name, data) for name, data in MALFORMED.items())


def _first_then(first: bytes) -> Script:
    """Return a script that gives *first* to the request for `/first`, and every other its own target."""

    async def script(peer: Peer) -> None:
        async for seen in peer.requests():
            await peer.write(first if seen.target == "/first" else http(200, seen.target.encode()))

    return script


async def _ends_the_connection(make: MakeTransport, first: bytes, status: int, body: bytes) -> None:
    """Check that *first* comes back as *status* and *body*, and that its connection carries no further request."""
    async with FaultServer(_first_then(first)) as server, opened(make) as transport:
        response = await send(transport, Request("GET", server.url("/first"), timeout=5.0))
        expect((response.status, response.body) == (status, body), f"{response!r} {response.body!r} came back")
        second = await send(transport, Request("POST", server.url("/second"), timeout=5.0))
        expect(second.body == b"/second", f"{second.body!r} came back to the next request")
        expect(server.seen[1].connection != server.seen[0].connection, "the connection was used again")


def _surplus(name: str, data: bytes) -> Case:
    async def check(make: MakeTransport) -> None:
        await _ends_the_connection(make, http(200, b"{}") + data, 200, b"{}")

    check.__name__ = f"surplus_bytes_end_the_connection_{name}"
    check.__doc__ = f"A complete response with {name.replace('_', ' ')} behind it comes back; its connection is closed."
    return Case(check)


CASES.extend(_surplus(name, data) for name, data in SURPLUS.items())


@case
async def a_body_where_there_is_none(make: MakeTransport) -> None:
    """A 204 or a 304 has no body: bytes behind it are surplus. It comes back empty, and its connection is closed."""
    for status in (204, 304):
        await _ends_the_connection(make, b"HTTP/1.1 %d Empty\r\n\r\n{}" % status, status, b"")
        await _ends_the_connection(make, http(status, b"{}"), status, b"")


# --- bytes that belong to no request ----------------------------------------------------------------------------------

_STRAY = http(200, b"stray")


@case
async def bytes_on_an_idle_connection_end_it(make: MakeTransport) -> None:
    """However little arrives on an idle connection, the connection carries no further request."""
    for early in (b"H", b"\r\n", b"HTTP/1.1 100 Continue\r\n", _STRAY[:-1], _STRAY, _STRAY * 2):
        go_on, written = asyncio.Event(), asyncio.Event()

        async def script(
            peer: Peer, early: bytes = early, go_on: asyncio.Event = go_on, written: asyncio.Event = written
        ) -> None:
            async for seen in peer.requests():
                await peer.write(http(200, seen.target.encode()))
                if seen.target == "/first":
                    await go_on.wait()
                    await peer.write(early)
                    written.set()

        async with FaultServer(script) as server, opened(make) as transport:
            await send(transport, Request("GET", server.url("/first")))
            go_on.set()
            await written.wait()
            await asyncio.sleep(0.05)  # What comes to nobody has come by then.
            second = await send(transport, Request("POST", server.url("/second"), timeout=5.0))
            expect(second.body == b"/second", f"after {early!r}, {second.body!r} came back")
            expect(server.seen[1].connection == 1, f"the connection was used again after {early!r}")


async def _unread(make: MakeTransport, late: Callable[[socket.socket], object]) -> None:
    """Do *late* to the server's end of an idle connection, and send before the event loop has had a turn."""
    peers: list[Peer] = []

    async def script(peer: Peer) -> None:
        peers.append(peer)
        await echo(peer)

    async with FaultServer(script) as server, opened(make) as transport:
        await send(transport, Request("GET", server.url("/first")))
        with peers[0].socket() as idle:
            late(idle)
            second = await send(transport, Request("POST", server.url("/second"), timeout=5.0))
        expect(second.body == b"/second", f"{second.body!r} came back")


@case
async def bytes_that_nobody_has_read_yet(make: MakeTransport) -> None:
    """Bytes that wait in the system as a request goes out, or the end, are seen: it takes another connection."""
    await _unread(make, lambda idle: idle.send(_STRAY))
    await _unread(make, lambda idle: idle.shutdown(socket.SHUT_WR))


@case
async def a_stray_response_during_a_request(make: MakeTransport) -> None:
    """One that comes before the response passes for it. The response then is surplus, and no later request takes it."""
    async with FaultServer(_first_then(_STRAY + http(200, b"/first"))) as server, opened(make) as transport:
        await may_fail(transport, Request("GET", server.url("/first"), timeout=5.0), b"stray")
        for target in ("/second", "/third"):
            response = await send(transport, Request("GET", server.url(target), timeout=5.0))
            expect(response.body == target.encode(), f"{response.body!r} came back to {target}")


# --- discard ----------------------------------------------------------------------------------------------------------


@case
async def a_discarded_connection_takes_no_request(make: MakeTransport) -> None:
    """After `discard(response)`, if the transport has it, no request starts on the connection of *response*.

    That holds when the connection is idle, and when the next request has already been waiting for it.
    """
    async with FaultServer(_first_then(http(200, b"/first"))) as server, opened(make, limit=1) as transport:
        if not isinstance(transport, DiscardingTransport):
            return
        transport.discard(await send(transport, Request("GET", server.url("/first"))))
        await send(transport, Request("GET", server.url("/second")))
        expect(server.seen[1].connection == 1, "the next request went out on the discarded connection")

        async def first() -> None:
            transport.discard(await send(transport, Request("GET", server.url("/first"))))

        waiting: list[Awaitable[object]] = [first()]
        waiting += [send(transport, Request("GET", server.url("/third"))) for _ in range(3)]
        await asyncio.gather(*waiting)
        expect(server.seen[-1].connection > 1, "the requests that waited went out on the discarded connection")


@case
async def discarding_is_harmless(make: MakeTransport) -> None:
    """A connection may be discarded twice, after it is gone, and after the transport was closed."""
    async with FaultServer(always(http())) as server, opened(make) as transport:
        if not isinstance(transport, DiscardingTransport):
            return
        response = await send(transport, Request("GET", server.url()))
        for _ in range(2):
            transport.discard(response)
            await turns()
        await send(transport, Request("GET", server.url()))
        await transport.aclose()
        transport.discard(response)
