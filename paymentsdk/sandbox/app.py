"""The web application: one handler for all operations, its routes and types taken from ``OPERATIONS``."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field
from itertools import count

import aiohttp
import msgspec
from aiohttp import web

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import answers, behaviours, control
from paymentsdk.sandbox._keys import ALLOWED_HOSTS, PLATFORM, PREFIX, STOPPING, Handler
from paymentsdk.sandbox.answers import SHAPES, Refused, Shape, cause
from paymentsdk.sandbox.codes import general
from paymentsdk.sandbox.events import RequestLine
from paymentsdk.sandbox.exchange import Caller, Incoming, admit, carry_out, identify
from paymentsdk.sandbox.faults import FaultRule, Hit
from paymentsdk.sandbox.idempotency import InFlight, claim_of, place_of
from paymentsdk.sandbox.intake import MAX_BODY, TOO_LARGE, AnyOperation
from paymentsdk.sandbox.line import Outcome, break_off, hang, pause, spoiled, transmit
from paymentsdk.sandbox.masks import mask_body, mask_parameters
from paymentsdk.sandbox.pages import routes
from paymentsdk.sandbox.platform import Platform

__all__ = ["PLATFORM", "PREFIX", "STOPPING", "make_app"]

if not hasattr(web, "RequestKey"):  # The client alone may run with an older one.
    raise ImportError(f"the sandbox needs aiohttp 3.14 or later, and {aiohttp.__version__} is installed")

_REQUEST_ID = web.RequestKey("request_id", str)
_SERVICE: web.AppKey[_Service] = web.AppKey("service")

#: What is raised by reading from a client that has gone, or writing to it, as any may at any moment.
_GONE = (ConnectionError, TimeoutError, web.RequestPayloadError)
#: As a rule somebody has put a path into the base URL.
_NOTHING_HERE = "nothing is at this path; the base URL of the sandbox has none of its own"
_log = logging.getLogger("paymentsdk.sandbox")


class _BrokenOff(Exception):  # noqa: N818 - it says what happened
    """The connection breaks before anything is done: a fault has it so, or the client has gone."""


def make_app(
    platform: Platform, *, live_tokens: bool = False, allowed_hosts: frozenset[str] = frozenset()
) -> web.Application:
    """Return the application of *platform*.

    Args:
        platform: The platform.
        live_tokens: Whether ``APP_USR`` tokens are taken.
        allowed_hosts: Names besides those of this machine that a browser may know the control API by.
    """
    app = web.Application(client_max_size=MAX_BODY, middlewares=[_always_answered])
    app[PLATFORM] = platform
    app[ALLOWED_HOSTS] = allowed_hosts
    app[STOPPING] = asyncio.Event()
    app[_SERVICE] = service = _Service(platform, app[STOPPING], live_tokens=live_tokens)
    app.on_response_prepare.append(service.name_answer)
    for operation in OPERATIONS.values():
        # A placeholder that nobody has filled in is a bad value like others, which aiohttp's own pattern does not take.
        path = re.sub(r"{(\w+)}", r"{\1:[^/]+}", operation.path)
        for route in (path, path + "/"):
            app.router.add_route(operation.method, route, service.handler(operation))
    app.router.add_get("/openapi.json", _openapi)
    control.add_routes(app)
    routes.add_routes(app)
    return app


@web.middleware
async def _always_answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer whatever happens; what went wrong inside is for the log."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        answer = _said(request, Refused(404, "not_found", _NOTHING_HERE))
    except web.HTTPMethodNotAllowed as error:
        answer = _said(request, Refused(405, "method_not_allowed", "method not allowed"))
        answer.headers["Allow"] = error.headers["Allow"]
    except web.HTTPException:
        raise  # A redirect.
    except _GONE:
        return break_off(request)
    except Exception:  # noqa: BLE001 - nothing that went wrong here may reach the caller
        _log.exception("the sandbox failed at %s %s", request.method, request.path)
        return _said(request, Refused(500, "generic", "internal error of the sandbox"))
    request.app[_SERVICE].note_stranger(request, answer.status)
    return answer


def _said(request: web.Request, refused: Refused) -> web.Response:
    """Return what is said where no operation, command or page answers: to a program JSON, and to a browser a page."""
    if "text/html" in request.headers.get("Accept", ""):
        return routes.refusal_page(refused)
    operation = _nearest(request.path)
    shape = "flat" if request.path.startswith(PREFIX) else request.app[PLATFORM].policies.error_shape
    body = answers.refusal(refused, operation, _shape(operation, shape))
    return web.Response(status=refused.status, body=body, content_type="application/json")


def _nearest(path: str) -> AnyOperation | None:
    """Return an operation of the interface that *path* looks like a part of, where no operation has it itself."""
    of_interface = (one for one in OPERATIONS.values() if f"{path}/".startswith(one.path.partition("/{")[0] + "/"))
    return next(of_interface, None)


def _shape(operation: AnyOperation | None, name: str) -> Shape:
    """Return the shape of this *name*; unless there is one for all, that of the API."""
    of_api = behaviours.SHAPE.get(operation.name, cause) if operation else cause
    return SHAPES.get(name, of_api)


@dataclass
class _Exchange:
    """What is known so far of one request."""

    operation: AnyOperation
    request_id: str
    began: float = field(default_factory=time.perf_counter)
    incoming: Incoming | None = None
    caller: Caller | None = None
    hit: Hit = field(default_factory=Hit)


class _Service:
    """Answers the operations of the contract."""

    def __init__(self, platform: Platform, stopping: asyncio.Event, *, live_tokens: bool) -> None:
        self._platform = platform
        self._stopping = stopping
        self._live_tokens = live_tokens
        self._in_flight = InFlight()
        self._numbers = count(1)

    async def name_answer(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give every answer the id of its request."""
        response.headers["X-Request-Id"] = self._request_id(request)

    def _request_id(self, request: web.Request) -> str:
        if _REQUEST_ID not in request:
            request[_REQUEST_ID] = f"req-{next(self._numbers)}"
        return request[_REQUEST_ID]

    def handler(self, operation: AnyOperation) -> Handler:
        """Return the handler of *operation*."""

        async def handle(request: web.Request) -> web.StreamResponse:
            exchange = _Exchange(operation, self._request_id(request))
            try:
                outcome = await self._answer(request, exchange)
            except Refused as refused:
                outcome = self._refusal(exchange, refused)
            except _BrokenOff:
                self._note(request, exchange, None)
                return break_off(request)
            left = spoiled(outcome, exchange.hit)
            self._note(request, exchange, left)
            return await transmit(request, left, exchange.hit, self._stopping)

        return handle

    def note_stranger(self, request: web.Request, status: int) -> None:
        """Keep a line about a request that nothing here answers: most likely its program has a wrong address."""
        self._platform.feed.note(
            RequestLine(
                at=self._platform.clock.now(),
                operation=None,
                method=request.method,
                path=mask_parameters(request.rel_url.raw_path_qs),
                status=status,
                tenant=None,
                request_id=self._request_id(request),
            )
        )

    async def _answer(self, request: web.Request, exchange: _Exchange) -> Outcome:
        """Read, identify, break what is to be broken, and do what is asked for."""
        platform, operation = self._platform, exchange.operation
        exchange.incoming = incoming = await _incoming(request)
        exchange.caller = caller = identify(platform, operation, incoming, live_tokens=self._live_tokens)
        admit(platform, operation, caller)
        user_id, policies = caller.tenant.user_id, platform.policies_of(caller.tenant)
        exchange.hit = platform.faults.match(operation.name, user_id)
        key = incoming.key if operation.keyed else None
        claim = claim_of(user_id, key, place_of(operation, incoming.path), policies) if key else None
        async with self._in_flight.turn(claim, policies) as waited:
            await self._faults_before(request, exchange)
            platform.settle()
            if waited or exchange.hit.rules:
                # While it waited, the token may have ended.
                caller = identify(platform, operation, incoming, live_tokens=self._live_tokens)
                admit(platform, operation, caller)
            return carry_out(platform, operation, incoming, caller, exchange.hit)

    async def _faults_before(self, request: web.Request, exchange: _Exchange) -> None:
        """Let the faults that come before the commit have their way."""
        for rule in exchange.hit.rules:
            match rule.effect:
                case "delay_before_commit":
                    await pause(rule.seconds, self._stopping)
                case "reset":
                    raise _BrokenOff
                case "hang":
                    await hang(request, self._stopping)
                    raise _BrokenOff
                case "fail_before_commit":
                    raise _ordered(exchange.operation, rule, 500)
                case "refuse":
                    raise _ordered(exchange.operation, rule, 400)
                case "rate_limit":
                    raise Refused(429, rule.code or "too_many_requests", retry_after=rule.retry_after)
                case _:
                    pass

    def _refusal(self, exchange: _Exchange, refused: Refused) -> Outcome:
        tenant = exchange.caller and exchange.caller.tenant
        policies = self._platform.policies_of(tenant) if tenant else self._platform.policies
        body = answers.refusal(refused, exchange.operation, _shape(exchange.operation, policies.error_shape))
        headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
        return Outcome(status=refused.status, body=body, headers=headers)

    def _note(self, request: web.Request, exchange: _Exchange, outcome: Outcome | None) -> None:
        """Keep a line about the request for those who watch."""
        incoming, caller = exchange.incoming, exchange.caller
        self._platform.feed.note(
            RequestLine(
                at=self._platform.clock.now(),
                operation=exchange.operation.name,
                method=request.method,
                path=mask_parameters(request.rel_url.raw_path_qs),
                status=outcome.status if outcome else None,
                tenant=caller.tenant.user_id if caller else None,
                request_id=exchange.request_id,
                key=incoming.key if incoming else None,
                content_type=incoming.content_type if incoming else "",
                body=mask_body(incoming.body if incoming else b"", grant=not exchange.operation.authenticated),
                answer=mask_body(outcome.body if outcome else b"", grant=False),
                replayed=bool(outcome and outcome.replayed),
                faults=tuple(rule.effect for rule in exchange.hit.rules),
                milliseconds=round((time.perf_counter() - exchange.began) * 1000, 3),
            )
        )


async def _incoming(request: web.Request) -> Incoming:
    """Read a request whole.

    Raises:
        Refused: Its body is too large.
        _BrokenOff: The client has gone.
    """
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(413, "request_too_large", TOO_LARGE) from None
    except _GONE:
        raise _BrokenOff from None
    return Incoming(
        path=dict(request.match_info),
        query=dict(request.query),
        authorization=request.headers.get("Authorization", ""),
        content_type=request.headers.get("Content-Type", "").partition(";")[0].strip(),
        key=request.headers.get("X-Idempotency-Key"),
        body=body,
    )


def _ordered(operation: AnyOperation, rule: FaultRule, status: int) -> Refused:
    """Return the refusal that a rule asks for; unless it names a code, the most general one of its status."""
    status = rule.status or next((one.status for one in operation.errors if one.code == rule.code), status)
    return Refused(status, rule.code or general(operation, status))


async def _openapi(request: web.Request) -> web.StreamResponse:
    from paymentsdk.sandbox import openapi  # noqa: PLC0415 - it walks all types, and few ask for it

    platform = request.app[PLATFORM]
    body = msgspec.json.encode(openapi.document(platform.base_url, platform.policies))
    return web.Response(body=body, content_type="application/json")
