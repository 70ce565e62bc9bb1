"""The usual way: straight to a connection of the pool, past the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from paymentsdk._core.wire import Request, Response, SendFailed
from paymentsdk.errors import ClientClosed
from paymentsdk.transports.aiohttp._failures import unsent
from paymentsdk.transports.aiohttp._messages import message_of, read_body
from paymentsdk.transports.aiohttp._pool import Server, connecting_within

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection


#: A request of more bytes may not have left when its answer comes.
_LARGE = 64 * 1024


async def over_pool(server: Server, request: Request) -> Response:
    """Send *request* to *server*, on a connection of its pool."""
    message = message_of(request, server)
    connection, protocol, transport = await _connected(server, request)
    large = len(message) > _LARGE
    try:
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        transport.write(message)
        del message  # A traceback can show variables.
        while True:
            head, content = await protocol.read()
            if not 100 <= head.code < 200 or head.code == 101:  # noqa: PLR2004
                break
        body = await read_body(head.code, head.headers, content, request.max_answer)
    except BaseException:
        if large:
            transport.abort()  # Closed, it would go on to write what is left.
        connection.close()
        raise
    if large or transport.get_write_buffer_size():
        connection.close()  # It may not have taken all of the request yet: the next one would wait behind it.
    else:
        # Without the parser of this answer, whatever else comes is seen, be it half a line: no other can read it.
        protocol._parser = None  # noqa: SLF001 - it is how a new connection begins
        connection.release()
    return Response(head.code, head.headers, body)


async def _connected(server: Server, request: Request) -> tuple[Connection, ResponseHandler, asyncio.Transport]:
    """Return a connection on which nothing has happened yet. Whatever is raised, nothing was sent."""
    failure: SendFailed | ClientClosed
    pool = server.pool
    try:
        # What `connect` does first, without what it does for a connection that has to be opened or waited for.
        idle = None if pool.waited_for else await pool.idle(server.key, [])
        connection = idle or await pool.connect(server.request, [], connecting_within(request.connect_timeout))
    except Exception as error:  # noqa: BLE001 - whatever it is, it came before the request
        failure = unsent(error, pool)
    else:
        protocol = connection.protocol
        transport = None if protocol is None else protocol.transport
        if (
            protocol is not None
            and transport is not None
            # The idle one was looked at a moment ago.
            and (connection is idle or not (transport.is_closing() or protocol.should_close))
        ):
            return connection, protocol, transport
        connection.close()
        failure = SendFailed("the connection was closed, or answered, before the request was sent", sent=False)
    # Outside the handler: aiohttp's error must not become its context.
    raise failure
