"""The control API under ``/_sandbox/``, with which tests, the command line and the dashboard control the sandbox.

Bodies and responses are JSON; errors are ``{code, message}``. Requests from pages of other sites are rejected, so that
no such page can pay an order. Every browser tells where a request comes from, in ``Origin``, ``Sec-Fetch-Site`` or
``Host``. Programs may use any host name, such as the name of a container. DNS rebinding needs a browser, and every
browser sends at least one of the ``_BROWSER`` headers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import aiohttp
import msgspec
from aiohttp import web

from paymentsdk._contract.operation import MIB
from paymentsdk.sandbox._commands import COMMANDS, Command
from paymentsdk.sandbox._control_document import control_document
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._wire import MAX_BODY, Rejected, encode, read_command

if not hasattr(web, "RequestKey"):  # The client alone works with older versions.
    raise ImportError(f"the sandbox needs aiohttp 3.14.4 or later, and {aiohttp.__version__} is installed")

Route: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

PLATFORM = web.AppKey("platform", Platform)
#: Host names besides those of this machine that a browser may use for the control API.
ALLOWED_HOSTS = web.AppKey("allowed_hosts", frozenset[str])
#: Set when the server stops. It ends hangs, drips and event streams.
STOPPING = web.AppKey("stopping", asyncio.Event)
_NUMBER = re.compile(r"[0-9]{1,15}")
#: The path of the control API. Its rejections have one shape, whatever shapes the APIs use.
PREFIX = "/_sandbox/"
#: Seconds for a body to arrive.
READ_TIMEOUT = 30.0
#: Bytes of the largest snapshot file.
LARGEST_FILE = 256 * MIB
#: Over http, browsers send ``Sec-Fetch-Site`` only for pages on this machine, and a GET has no ``Origin``.
_BROWSER = ("Origin", "Sec-Fetch-Site", "Accept-Language")
#: Seconds between two looks at the clock for a watcher, and between signs of life on a quiet stream.
_TICK = 1.0


class DisconnectedError(Exception):
    """The client has closed the connection, or has stopped sending its request: no response is needed.

    A class apart from network errors: handlers of another program may raise network errors about their own servers.
    """


def add_routes(app: web.Application) -> None:
    """Add the control API to *app*."""
    for (method, path), command in COMMANDS.items():
        handler = guarded(_handler(command))
        # Programs that wait for a server, such as `wait-on`, send HEAD.
        for name in (method, "HEAD") if method == "GET" else (method,):
            app.router.add_route(name, PREFIX + path, handler)
    app.router.add_get(PREFIX + "openapi.json", guarded(_document))
    # A HEAD request would wait for the end of an endless stream.
    app.router.add_get(PREFIX + "events", guarded(_events), allow_head=False)


def guarded(handler: Route) -> Route:
    """Return *handler* behind the check of the request's origin. A ``ValueError`` becomes a rejection."""

    async def handle(request: web.Request) -> web.StreamResponse:
        check_origin(request.headers, request.app[ALLOWED_HOSTS])
        try:
            return await handler(request)
        except ValueError as error:
            raise Rejected(400, "bad_request", str(error)) from None

    return handle


def _handler(command: Command) -> Route:
    async def handle(request: web.Request) -> web.StreamResponse:
        arguments = _query(request, command.parameters)
        if command.body is bytes:
            arguments["body"] = await read(request.clone(client_max_size=LARGEST_FILE), LARGEST_FILE)
        else:
            content = await read(request)
            if command.body is not None:
                arguments["body"] = read_command(command.body, content)
        await request.app[PLATFORM].catch_up()
        result = command.run(request.app[PLATFORM], *request.match_info.values(), **arguments)
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, bytes):
            return web.Response(body=result, content_type=command.media)
        # Amounts are strings, since scripts read numbers inexactly.
        return web.Response(body=encode(result, decimal_strings=True), content_type="application/json")

    return handle


async def read(request: web.Request, most: int = MAX_BODY) -> bytes:
    """Return the body of *request*, of at most *most* bytes.

    Raises:
        Rejected: The body is too large.
        DisconnectedError: The body did not arrive completely within `READ_TIMEOUT`.
    """
    try:
        if request.content.is_eof():  # The body has arrived.
            return await request.read()
        async with asyncio.timeout(READ_TIMEOUT):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Rejected(413, "request_too_large", f"the body is larger than {most // MIB} MiB") from None
    except (ConnectionError, TimeoutError, web.RequestPayloadError):
        raise DisconnectedError from None


def _query(request: web.Request, parameters: tuple[str, ...]) -> dict[str, object]:
    """Return the parameters in the query. All are numbers, each is one of *parameters* and is given once.

    Raises:
        Rejected: A parameter is unknown, repeated or not a number, or has more digits than any id.
    """
    for name in request.query:
        if name not in parameters:
            names = ", ".join(parameters) or "none"
            raise Rejected(400, "bad_request", f"{name!r} is not a parameter of this request; it takes: {names}")
        if len(request.query.getall(name)) > 1:
            raise Rejected(400, "bad_request", f"{name} is given more than once")
        if not _NUMBER.fullmatch(request.query[name]):
            raise Rejected(400, "bad_request", f"{name} is not a number")
    return {name: int(text) for name, text in request.query.items()}


async def _document(request: web.Request) -> web.StreamResponse:
    body = msgspec.json.encode(control_document(request.app[PLATFORM].base_url, PREFIX))
    return web.Response(body=body, content_type="application/json")


async def _events(request: web.Request) -> web.StreamResponse:
    """Stream every event from now on (server-sent events). While someone watches, due jobs run without a request."""
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
            data = encode({"tenant": event.tenant, "document": event.document}, decimal_strings=True)
            await response.write(b"event: %s\ndata: %s\n\n" % (event.kind.encode(), data))
    return response


def check_origin(headers: Mapping[str, str], allowed_hosts: frozenset[str]) -> None:
    """Reject a request that comes from a page of another site.

    Args:
        headers: The headers, under the names below.
        allowed_hosts: Host names besides those of this machine that the sandbox is reached by.

    Raises:
        Rejected: The page is from another site, or uses a foreign name for this machine (DNS rebinding).
    """
    host = headers.get("Host", "")
    name = _parts("//" + host).hostname
    if _is_browser(headers) and name not in {"localhost", *allowed_hosts} and not _is_address(name):
        words = f"a browser cannot use the sandbox under the host name {name}: start it with --public-url http://{host}"
        raise Rejected(403, "forbidden", words)
    origin = headers.get("Origin")
    foreign = headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}
    if foreign or (origin is not None and _parts(origin).netloc != host):
        raise Rejected(403, "forbidden", "the control API rejects requests from other sites")


def _is_browser(headers: Mapping[str, str]) -> bool:
    # A script can set the last two headers, but cannot remove any of them.
    return any(name in headers for name in _BROWSER) or headers.get("User-Agent", "").startswith("Mozilla/")


def _is_address(name: str | None) -> bool:
    """Return whether *name* is an IP address. Rebinding does not change the name that a browser sends."""
    try:
        ip_address(name or "")
    except ValueError:
        return False
    return True


def _parts(url: str) -> SplitResult:
    """Return the parts of *url*; empty ones if it cannot be read, such as with an unclosed bracket."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
