"""The web application: the steps of a request to an operation, from the socket and back.

`make_app` routes a request to `Endpoints`, which does this: read, authenticate, match the faults, claim the idempotency
key, apply the faults before the commit, check the key, replay or handle and save (`execute`), apply the faults after
the commit, send. The steps without a network are in `_pipeline.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from email.utils import format_datetime
from functools import lru_cache, partial
from itertools import count
from typing import TypeAlias

import msgspec
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from paymentsdk._headers import Headers
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import _control
from paymentsdk.sandbox._control import ALLOWED_HOSTS, PLATFORM, PREFIX, STOPPING, DisconnectedError, Route, read
from paymentsdk.sandbox._faults import FaultRule, Hit
from paymentsdk.sandbox._feed import LONGEST_RESPONSE, RequestLine, redact_body, redact_query, secrets_of
from paymentsdk.sandbox._handlers import OWN, noun_of
from paymentsdk.sandbox._openapi import document
from paymentsdk.sandbox._pages import routes
from paymentsdk.sandbox._pipeline import REPLAYED, ReceivedRequest, Reply, authenticate, execute
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._records import EPOCH
from paymentsdk.sandbox._store import is_full
from paymentsdk.sandbox._stubs import Stub, add_stubs
from paymentsdk.sandbox._wire import MAX_BODY, SHAPES, AnyOperation, Rejected, phrase
from paymentsdk.transports.base import Request

#: Takes a request as it arrived. Returns the access token that its signature stands for, or `None` if it has none.
Authenticate: TypeAlias = Callable[[Request], str | None]
_REQUEST_ID = web.RequestKey("request_id", str)
_RECEIVED = web.RequestKey("received", ReceivedRequest)
#: Usually the base URL has a path by mistake.
_NOTHING_HERE = "nothing is at this path; the base URL of the sandbox has no path"
#: The page of a gateway that responds instead of the platform.
_GATEWAY_PAGE = "<!doctype html>\n<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>\n"
#: Seconds between two checks whether the client of a hanging request is still connected.
_LOOK = 0.05
#: With this option, closing a connection sends a reset instead of an orderly end.
_NO_LINGER = struct.pack("ii", 1, 0)
_SECOND = timedelta(seconds=1)
_log = logging.getLogger("paymentsdk.sandbox")


def make_app(
    platform: Platform,
    *,
    allowed_hosts: frozenset[str] = frozenset(),
    find_token: Authenticate | None = None,
    stubs: str | None = None,
) -> web.Application:
    """Return the application of *platform*.

    Args:
        platform: The platform.
        allowed_hosts: Host names besides this machine's that a browser may use for the control API.
        find_token: Returns the token that a signature stands for.
        stubs: The path of a file with endpoints beyond the contract.
    """
    endpoints = Endpoints(platform, find_token)
    app = web.Application(client_max_size=MAX_BODY, middlewares=[endpoints.respond_always])
    app[PLATFORM], app[ALLOWED_HOSTS], app[STOPPING] = platform, allowed_hosts, endpoints.stopping
    app.on_response_prepare.append(endpoints.name_response)
    for ending in ("", "/"):  # Most requests have no slash at the end, and routes are tried in this order.
        for operation in platform.operations.values():
            # aiohttp's own pattern does not match "{id}". A client that sends a placeholder must get the operation's
            # error.
            path = re.sub(r"{(\w+)}", r"{\1:[^/]+}", operation.path) + ending
            app.router.add_route(operation.method, path, partial(endpoints.handle, operation))
    app.router.add_get("/openapi.json", _openapi)
    _control.add_routes(app)
    routes.add_routes(app)
    if stubs:
        add_stubs(app.router, stubs, endpoints.respond_as)
    return app


async def _openapi(request: web.Request) -> web.StreamResponse:
    platform = request.app[PLATFORM]
    body = msgspec.json.encode(document(platform.base_url, platform.policies, platform.operations))
    return web.Response(body=body, content_type="application/json")


class Endpoints:
    """Responds to the operations of the contract, and to all requests without a route."""

    def __init__(self, platform: Platform, find_token: Authenticate | None) -> None:
        self._platform = platform
        self._find_token = find_token
        self.stopping = asyncio.Event()
        self._in_flight: set[tuple[int, str | None]] = set()
        """The keys of the requests in flight, with their sellers."""
        self._numbers = count(1)
        self._secrets = secrets_of([*OPERATIONS.values(), *platform.operations.values()])

    async def handle(self, operation: AnyOperation, request: web.Request) -> web.StreamResponse:
        """Respond to a request to *operation*."""
        received = request[_RECEIVED] = ReceivedRequest(operation=operation)
        try:
            reply = await self._respond(request, received)
        except (RequestInvalid, Rejected) as error:
            reply = self._error_reply(received, error)
        except DisconnectedError:
            self._log_request(request, None)
            return reset_connection(request)
        await self._platform.store.committed()
        sent = _with_faults(reply, received.hit)
        self._log_request(request, sent)
        return await self._send(request, sent, received.hit)

    async def respond_as(self, stub: Stub, request: web.Request) -> web.StreamResponse:
        """Respond to *request* with the template of *stub*."""
        await read(request)
        response = stub.respond(request.match_info)
        self._log_request(request, response)
        return response

    async def _respond(self, request: web.Request, received: ReceivedRequest) -> Reply:
        platform = self._platform
        await self._read(request, received)
        tenant = authenticate(platform, received)
        received.hit = platform.faults.match(received.operation.name, tenant.user_id)
        claim = tenant.user_id, received.key if received.operation.keyed else None
        if claim in self._in_flight:
            status = 409 if platform.policies_of(tenant).concurrent_twin == "conflict" else 423
            raise Rejected(status, "resource_locked", "another request with this key is in progress")
        if claim[1]:
            self._in_flight.add(claim)
        try:
            if received.hit.rules:
                await self._inject_faults(request, received)
            await platform.catch_up()
            if received.hit.rules:  # The token may have expired meanwhile.
                tenant = authenticate(platform, received)
            return execute(platform, received, tenant)
        finally:
            self._in_flight.discard(claim)

    async def _read(self, request: web.Request, received: ReceivedRequest) -> None:
        """Read a request completely. A signature replaces the token with the token that it stands for."""
        operation, headers = received.operation, request.headers
        received.body = await read(request) if request.body_exists else b""
        received.path = dict(request.match_info)
        received.query = dict(request.query) if "?" in request.raw_path else {}
        received.authorization = headers.get("Authorization", "")
        received.content_type = headers.get("Content-Type", "").partition(";")[0].strip()
        received.key = headers.get(operation.key_header)
        if self._find_token and operation.authenticated:
            url = self._address_of(request) + request.rel_url.raw_path_qs
            token = self._find_token(Request(request.method, url, Headers(headers), received.body))
            if token is not None:
                received.authorization = f"Bearer {token}"

    def _address_of(self, request: web.Request) -> str:
        """Return the address that the client has sent *request* to. A signature may cover its host."""
        public = URL(self._platform.store.links)
        return f"{public.scheme if request.host == public.host_port_subcomponent else 'http'}://{request.host}"

    async def _inject_faults(self, request: web.Request, received: ReceivedRequest) -> None:
        """Apply the faults before the commit."""
        for rule in received.hit.rules:
            match rule.effect:
                case "delay_before_commit":
                    await pause(rule.seconds, self.stopping)
                case "hang":
                    await hang(request, self.stopping)
                    raise DisconnectedError
                case "reset":
                    raise DisconnectedError
                case "fail_before_commit" | "refuse":
                    raise _injected_error(received.operation, rule)
                case "rate_limit":
                    raise Rejected(429, rule.code or "too_many_requests", retry_after=rule.retry_after)
                case _:
                    pass

    def _error_reply(self, received: ReceivedRequest, error: Rejected | RequestInvalid) -> Reply:
        platform, operation = self._platform, received.operation
        rejected = error if isinstance(error, Rejected) else noun_of(operation).reject(operation, error)
        policies = platform.policies_of(received.tenant) if received.tenant else platform.policies
        headers = {} if rejected.retry_after is None else {"Retry-After": str(rejected.retry_after)}
        body = _error_body(rejected, operation, policies.error_shape)
        return Reply(status=rejected.status, body=body, headers=headers)

    async def _send(self, request: web.Request, reply: Reply | None, hit: Hit) -> web.StreamResponse:
        """Send the response, with the delays and the speed of *hit*. Everything is committed before."""
        for rule in hit.of("delay_after_commit"):
            await pause(rule.seconds, self.stopping)
        if reply is None:
            return reset_connection(request)
        slow = hit.first("drip")
        if slow is None and not reply.missing:
            return web.Response(
                status=reply.status, body=reply.body, content_type=reply.content_type, headers=reply.headers
            )
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        response.content_type = reply.content_type
        response.content_length = len(reply.body) + reply.missing
        pieces = [reply.body] if slow is None else [reply.body[i : i + 1] for i in range(len(reply.body))]
        await response.prepare(request)
        for piece in pieces:
            if self.stopping.is_set():
                return reset_connection(request)
            await response.write(piece)
            if slow is not None:
                await pause(slow.seconds, self.stopping)
        return reset_connection(request) if reply.missing else response

    async def name_response(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the headers of every response: the request's id, and the date."""
        received = request.get(_RECEIVED)
        response.headers["X-Request-Id"] = self._id_of(request)
        # By the clock that expires the keys, since clients measure the age of their keys with this header.
        now = self._platform.now(received and received.tenant)
        response.headers["Date"] = _http_date((now - EPOCH) // _SECOND)

    def _id_of(self, request: web.Request) -> str:
        """Return the id of *request*, which is made at its first use: aiohttp itself responds to some requests."""
        if (request_id := request.get(_REQUEST_ID)) is None:
            request_id = request[_REQUEST_ID] = f"req-{next(self._numbers)}"
        return request_id

    def _log_request(self, request: web.Request, response: Reply | web.Response | None) -> None:
        """Log the request for watchers, with what is known of it and of its response.

        A request without an operation is logged, too: its program probably has a wrong address.
        """
        received, status = request.get(_RECEIVED), None if response is None else response.status
        at, url, method, request_id = self._platform.clock.now(), request.rel_url, request.method, self._id_of(request)
        ended = time.perf_counter()
        replayed = response is not None and REPLAYED in response.headers
        # Only the beginning is shown, and masking a long page would take longer than sending it.
        beginning = getattr(response, "body", b"")[: 2 * LONGEST_RESPONSE]

        def line() -> RequestLine:
            details = {}
            if received:
                details = {
                    "key": received.key,
                    "content_type": received.content_type,
                    "body": redact_body(received.body, self._secrets, grant=not received.operation.authenticated),
                    "response": redact_body(beginning, self._secrets, grant=False),
                    "replayed": replayed,
                    "faults": received.hit.effects,
                    "milliseconds": round((ended - received.began) * 1000, 3),
                }
            return RequestLine(
                at=at,
                operation=received.operation.name if received else None,
                method=method,
                path=redact_query(url.raw_path_qs, self._secrets),
                status=status,
                tenant=received.tenant.user_id if received and received.tenant else None,
                request_id=request_id,
                **details,
            )

        self._platform.feed.log(line, len(received.body) if received else 0)

    @web.middleware
    async def respond_always(self, request: web.Request, handler: Route) -> web.StreamResponse:
        """Respond in all cases. Internal errors go to the log, not to the client."""
        try:
            return await handler(request)
        except Rejected as rejected:  # From a command or a page.
            return self._rejection_response(request, rejected)
        except web.HTTPNotFound:
            response = self._rejection_response(request, Rejected(404, "not_found", _NOTHING_HERE))
        except web.HTTPMethodNotAllowed as error:
            response = self._rejection_response(request, Rejected(405, "method_not_allowed", "method not allowed"))
            response.headers["Allow"] = error.headers["Allow"]
        except web.HTTPException:
            raise  # A redirect.
        except DisconnectedError:
            return reset_connection(request)
        except Exception as error:  # noqa: BLE001 - internal errors must not reach the client
            if isinstance(error, ConnectionError) and has_gone(request):  # The client closed the connection.
                return reset_connection(request)
            response = self._rejection_response(request, self.log_failure(request, error))
        self._log_request(request, response)
        return response

    def log_failure(self, request: web.Request, error: Exception) -> Rejected:
        """Log an error of the sandbox itself, write it to stderr, and return the rejection for the client.

        It is on stderr because a program that embeds the sandbox often has no logging.
        """
        _log.exception("the sandbox failed at %s %s", request.method, request.path)
        reason = f"the database failed ({error})" if isinstance(error, sqlite3.Error) else ""
        if is_full(error):
            reason = f"disk full ({error})"
        sys.stderr.write(f"the sandbox failed at {request.method} {request.path}: {reason or repr(error)}\n")
        return Rejected(500, "generic", f"internal error of the sandbox: {reason or 'see its stderr'}")

    def _rejection_response(self, request: web.Request, rejected: Rejected) -> web.Response:
        """Return a rejection without an operation, a command or a page: JSON for a program, a page for a browser."""
        if "text/html" in request.headers.get("Accept", ""):
            return routes.rejection_page(request, rejected)
        # The path may begin like an operation's path. The rejection then has the shape of that API.
        operations, path = self._platform.operations.values(), request.path + "/"
        operation = next(
            (operation for operation in operations if path.startswith(operation.path.partition("/{")[0] + "/")), None
        )
        shape = "flat" if path.startswith(PREFIX) else self._platform.policies.error_shape
        body = _error_body(rejected, operation, shape)
        return web.Response(status=rejected.status, body=body, content_type="application/json")


@lru_cache(64)
def _http_date(second: int) -> str:
    """Return a second since 1970 in the form of the header `Date`."""
    return format_datetime(EPOCH + second * _SECOND, usegmt=True)


def _error_body(rejected: Rejected, operation: AnyOperation | None, shape: str) -> bytes:
    """Return the body of a rejection in *shape*, a value of the policy; by default in the shape of the API."""
    message = rejected.message or (operation.meanings.get(rejected.code) if operation else None)
    write = SHAPES.get(shape, (noun_of(operation) if operation else OWN).shape)
    return msgspec.json.encode(write(rejected, message or phrase(rejected.status).lower()))


def _injected_error(operation: AnyOperation, rule: FaultRule) -> Rejected:
    """Return the error of a rule. If the rule names no code, it is the most general code of its status."""
    general = 500 if rule.effect == "fail_before_commit" else 400
    status = rule.status or next((error.status for error in operation.errors if error.code == rule.code), general)
    return Rejected(status, rule.code or noun_of(operation).general_code(operation, status))


def _with_faults(reply: Reply, hit: Hit) -> Reply | None:
    """Return *reply* after the faults in *hit*, as it is sent; `None` if nothing is sent."""
    if not hit.rules:
        return reply
    if hit.first("lose_response_after_commit"):
        return None
    if rule := hit.first("html"):
        status = rule.status or 502
        page = _GATEWAY_PAGE.format(f"{status} {phrase(status)}")
        reply = replace(reply, status=status, body=page.encode(), content_type="text/html")
    if hit.first("malformed"):
        reply = replace(reply, body=reply.body[: len(reply.body) // 2] + b"\x00<<")
    if hit.first("wrong_content_type"):
        reply = replace(reply, content_type="text/plain")
    if hit.first("truncate"):
        half = reply.body[: len(reply.body) // 2]
        reply = replace(reply, body=half, missing=len(reply.body) - len(half))
    return reply


async def pause(seconds: float, stopping: asyncio.Event) -> None:
    """Wait for *seconds*, or until the server stops."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def hang(request: web.Request, stopping: asyncio.Event) -> None:
    """Wait until the client closes the connection or the server stops."""
    while request.transport is not None and not stopping.is_set():
        await pause(_LOOK, stopping)


def has_gone(request: web.Request) -> bool:
    """Return whether the client of *request* has closed the connection."""
    return request.transport is None or request.transport.is_closing()


def reset_connection(request: web.Request) -> web.StreamResponse:
    """Reset the connection. The returned response is not sent."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return web.Response()
