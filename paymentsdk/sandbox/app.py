"""The web application: one handler for all operations, its routes and types taken from ``OPERATIONS``."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count

import msgspec
from aiohttp import web

from paymentsdk._core.operation import MIB
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import answers
from paymentsdk.sandbox.answers import Refused
from paymentsdk.sandbox.events import RequestLine
from paymentsdk.sandbox.exchange import Caller, Incoming, Outcome, carry_out, identify
from paymentsdk.sandbox.faults import Hit
from paymentsdk.sandbox.idempotency import InFlight
from paymentsdk.sandbox.intake import AnyOperation, refuse
from paymentsdk.sandbox.line import break_off, send
from paymentsdk.sandbox.platform import Platform

__all__ = ["PLATFORM", "STOPPING", "make_app"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PLATFORM = web.AppKey("platform", Platform)
#: Set when the server stops: hangs, drips and event streams end.
STOPPING = web.AppKey("stopping", asyncio.Event)
_LIVE_TOKENS = web.AppKey("live_tokens", bool)
_IN_FLIGHT = web.AppKey("in_flight", InFlight)

MAX_BODY = MIB
REPLAYED = "X-Idempotency-Replayed"
REQUEST_ID = "X-Request-Id"
_SECRET_MEMBER = re.compile(
    r'("(?:client_secret|code_verifier|refresh_token|access_token|authorization_code|token)"\s*:\s*)"(?:[^"\\]|\\.)*"'
)
_GRANT_CODE = re.compile(r'("code"\s*:\s*)"(?:[^"\\]|\\.)*"')
_SECRET_PARAMETER = re.compile(r"((?:access_token|client_secret|refresh_token|code)=)[^&]*")
_LONGEST_SHOWN = 4_096
_log = logging.getLogger("paymentsdk.sandbox")


def make_app(platform: Platform, *, live_tokens: bool = False, allowed_hosts: frozenset[str] = frozenset()) -> web.Application:
    """Return the application of *platform*.

    Args:
        platform: The platform.
        live_tokens: Whether ``APP_USR`` tokens are taken.
        allowed_hosts: Names besides those of this machine that a browser may know the control API by.
    """
    from paymentsdk.sandbox import control  # noqa: PLC0415 - it asks for the keys above

    app = web.Application(client_max_size=MAX_BODY, middlewares=[_always_json], handler_args={"access_log": None})
    app[PLATFORM] = platform
    app[STOPPING] = asyncio.Event()
    app[_LIVE_TOKENS] = live_tokens
    app[_IN_FLIGHT] = InFlight()
    numbers = count(1)

    async def name_request(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[REQUEST_ID] = request.get("request_id") or f"req-{next(numbers)}"

    app.on_response_prepare.append(name_request)
    for operation in OPERATIONS.values():
        handler = _handler(operation, numbers)
        app.router.add_route(operation.method, operation.path, handler)
        app.router.add_route(operation.method, operation.path + "/", handler)
    app.router.add_get("/openapi.json", _openapi)
    control.add_routes(app, allowed_hosts)
    if find_spec("paymentsdk.sandbox.pages.routes"):
        from paymentsdk.sandbox.pages import routes  # noqa: PLC0415 - a sandbox without pages is whole, too

        routes.add_routes(app)
    return app


@web.middleware
async def _always_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer in JSON whatever happens; what went wrong inside is for the log, not for the caller."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400 or error.content_type != "text/plain":  # noqa: PLR2004
            raise
        refused = Refused(error.status, _CODES.get(error.status, "bad_request"), error.reason.lower())
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    except Refused as error:
        refused, headers = error, None
    except Exception:
        _log.exception("the sandbox failed at %s %s", request.method, request.path)
        refused, headers = Refused(500, "generic", "internal error of the sandbox"), None
    body = answers.refusal(refused, None)
    return web.Response(status=refused.status, body=body, content_type="application/json", headers=headers)


_CODES = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


def _handler(operation: AnyOperation, numbers: count[int]) -> Handler:
    """Return the handler of *operation*."""

    async def handle(request: web.Request) -> web.StreamResponse:
        platform, began = request.app[PLATFORM], time.perf_counter()
        request["request_id"] = f"req-{next(numbers)}"
        incoming, tenant, hit = None, None, Hit()
        platform.settle()
        try:
            incoming = await _incoming(request, operation)
            caller: Caller | Refused = _identified(request, operation, incoming)
            tenant = caller.tenant if isinstance(caller, Caller) else None
            hit = platform.faults.match(operation.name, tenant.user_id if tenant else None)
            outcome = await _outcome(request, operation, incoming, caller, hit)
        except Refused as refused:
            outcome = _refusal(platform, operation, refused)
            retry_after = refused.retry_after
        else:
            retry_after = None
        except_status = None if outcome is None else outcome.status
        platform.feed.requests.append(
            RequestLine(
                at=platform.clock.now(),
                operation=operation.name,
                method=request.method,
                path=_SECRET_PARAMETER.sub(r"\1***", request.path_qs),
                status=except_status,
                tenant=tenant.user_id if tenant else None,
                request_id=request["request_id"],
            )
        )
        return await send(request, outcome, hit)

    return handle
