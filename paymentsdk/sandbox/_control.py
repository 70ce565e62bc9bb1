"""The control API under ``/_sandbox/``: what a test, a command line or a dashboard does to the sandbox, over HTTP.

Bodies and responses are JSON; errors are ``{code, message}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from aiohttp import web

from paymentsdk.sandbox import _responses
from paymentsdk.sandbox._commands import COMMANDS, PARAMETERS, Command, ControlRequest
from paymentsdk.sandbox._csrf import check_origin
from paymentsdk.sandbox._delivery import read
from paymentsdk.sandbox._keys import ALLOWED_HOSTS, PLATFORM, PREFIX, STOPPING, Route
from paymentsdk.sandbox._parsing import TOO_LARGE
from paymentsdk.sandbox._responses import Rejected

#: Seconds between two looks at the clock while someone watches, and between signs of life on a quiet stream.
_TICK = 1.0


def add_routes(app: web.Application) -> None:
    """Add the control API to *app*."""
    for (method, path), command in COMMANDS.items():
        app.router.add_route(method, PREFIX + path, guarded(_handler(command, PARAMETERS[method, path])))
    app.router.add_get(PREFIX + "ledger", guarded(_ledger))
    # A HEAD would wait for the end of what has none.
    app.router.add_get(PREFIX + "events", guarded(_events), allow_head=False)


def guarded(handler: Route) -> Route:
    """Return *handler* behind the guard against pages from elsewhere, its errors in the shape of the control API."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            check_origin(request.headers, request.app[ALLOWED_HOSTS])
            return await handler(request)
        except Rejected as error:
            rejected = error
        except ValueError as error:
            rejected = Rejected(400, "bad_request", str(error))
        except web.HTTPRequestEntityTooLarge:
            rejected = Rejected(413, "request_too_large", TOO_LARGE)
        body = _responses.rejection(rejected, None, _responses.SHAPES["flat"])
        return web.Response(status=rejected.status, body=body, content_type="application/json")

    return handle


def _handler(command: Command, parameters: tuple[str, ...]) -> Route:
    async def handle(request: web.Request) -> web.StreamResponse:
        query = _query(request, parameters)
        asked = ControlRequest(path=request.match_info, query=query, body=await read(request))
        await request.app[PLATFORM].catch_up()
        done = command(request.app[PLATFORM], asked)
        if isinstance(done, Awaitable):
            done = await done
        return web.Response(body=_json(done), content_type="application/json")

    return handle


def _query(request: web.Request, parameters: tuple[str, ...]) -> Mapping[str, str]:
    """Return what is asked behind the question mark, each one of *parameters* and given once.

    Raises:
        Rejected: It is something else.
    """
    for name in request.query:
        if name not in parameters:
            taken = ", ".join(parameters) or "none"
            raise Rejected(400, "bad_request", f"{name!r} is not a parameter of this request; it takes: {taken}")
        if len(request.query.getall(name)) > 1:
            raise Rejected(400, "bad_request", f"{name} is given more than once")
    return dict(request.query)


def _json(value: object) -> bytes:
    """Return *value* as JSON; amounts as text, since a script reads numbers inexactly."""
    return _responses.encode(value, decimal_strings=True)


async def _ledger(request: web.Request) -> web.StreamResponse:
    """Export the ledger as JSON lines: of one tenant, or of all."""
    asked = ControlRequest(path={}, query=_query(request, PARAMETERS["GET", "ledger"]), body=b"")
    await request.app[PLATFORM].catch_up()
    lines = request.app[PLATFORM].store.ledger(asked.number("tenant"))
    return web.Response(body=b"".join(line + b"\n" for line in lines), content_type="application/x-ndjson")


async def _events(request: web.Request) -> web.StreamResponse:
    """Stream every event from now on (server-sent events); while someone watches, what falls due happens by itself."""
    platform, stopping = request.app[PLATFORM], request.app[STOPPING]
    _query(request, ())
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    with platform.feed.watch() as queue:
        await response.write(b": watching\n\n")
        while not stopping.is_set():
            try:
                event = await asyncio.wait_for(queue.get(), _TICK)
            except TimeoutError:
                await platform.catch_up()
                await response.write(b": still here\n\n")
                continue
            if event is None:
                break
            data = _json({"tenant": event.tenant, "document": event.document})
            await response.write(b"event: %s\ndata: %s\n\n" % (event.kind.encode(), data))
    return response
