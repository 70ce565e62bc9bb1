"""The web application: its routes and types are those of the operations; `_pipeline` handles each operation."""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec
from aiohttp import web

from paymentsdk.sandbox import _control, _responses
from paymentsdk.sandbox._delivery import reset_connection
from paymentsdk.sandbox._handlers import noun_of
from paymentsdk.sandbox._keys import ALLOWED_HOSTS, PLATFORM, PREFIX, STOPPING, Route
from paymentsdk.sandbox._openapi import document
from paymentsdk.sandbox._pages import routes
from paymentsdk.sandbox._parsing import MAX_BODY, AnyOperation
from paymentsdk.sandbox._pipeline import CLIENT_GONE, Authenticate, Pipeline
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._responses import SHAPES, Rejected, cause

_PIPELINE = web.AppKey("pipeline", Pipeline)
#: As a rule somebody has put a path into the base URL.
_NOTHING_HERE = "nothing is at this path; the base URL of the sandbox has none of its own"
_log = logging.getLogger("paymentsdk.sandbox")


def make_app(
    platform: Platform,
    *,
    live_tokens: bool = False,
    allowed_hosts: frozenset[str] = frozenset(),
    authenticate: Authenticate | None = None,
) -> web.Application:
    """Return the application of *platform*.

    Args:
        platform: The platform.
        live_tokens: Whether ``APP_USR`` tokens are taken.
        allowed_hosts: Names besides those of this machine that a browser may know the control API by.
        authenticate: Finds the token that a signature stands for.
    """
    app = web.Application(client_max_size=MAX_BODY, middlewares=[_respond_always])
    app[PLATFORM] = platform
    app[ALLOWED_HOSTS] = allowed_hosts
    app[STOPPING] = asyncio.Event()
    app[_PIPELINE] = pipeline = Pipeline(platform, app[STOPPING], live_tokens=live_tokens, authenticate=authenticate)
    app.on_response_prepare.append(pipeline.name_response)
    for operation in platform.operations.values():
        # A placeholder that nobody has filled in is a bad value like others, which aiohttp's own pattern does not take.
        path = re.sub(r"{(\w+)}", r"{\1:[^/]+}", operation.path)
        for route in (path, path + "/"):
            app.router.add_route(operation.method, route, pipeline.handler(operation))
    app.router.add_get("/openapi.json", _openapi)
    _control.add_routes(app)
    routes.add_routes(app)
    return app


@web.middleware
async def _respond_always(request: web.Request, handler: Route) -> web.StreamResponse:
    """Respond, whatever happens; what went wrong inside is for the log."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        response = _said(request, Rejected(404, "not_found", _NOTHING_HERE))
    except web.HTTPMethodNotAllowed as error:
        response = _said(request, Rejected(405, "method_not_allowed", "method not allowed"))
        response.headers["Allow"] = error.headers["Allow"]
    except web.HTTPException:
        raise  # A redirect.
    except CLIENT_GONE:
        return reset_connection(request)
    except Exception as error:  # noqa: BLE001 - nothing that went wrong inside may reach the client
        _log.exception("the sandbox failed at %s %s", request.method, request.path)
        return _said(request, request.app[_PIPELINE].log_failure(request, error))
    request.app[_PIPELINE].log(request, response.status)
    return response


def _said(request: web.Request, rejected: Rejected) -> web.Response:
    """Return what is said where no operation, command or page responds: to a program JSON, and to a browser a page."""
    if "text/html" in request.headers.get("Accept", ""):
        return routes.rejection_page(rejected)
    operation = _nearest(request.app[PLATFORM], request.path)
    name = "flat" if request.path.startswith(PREFIX) else request.app[PLATFORM].policies.error_shape
    shape = SHAPES.get(name, noun_of(operation).shape if operation else cause)
    body = _responses.rejection(rejected, operation, shape)
    return web.Response(status=rejected.status, body=body, content_type="application/json")


def _nearest(platform: Platform, path: str) -> AnyOperation | None:
    """Return an operation of the interface that *path* looks like a part of, where no operation has it itself."""
    path += "/"
    return next(
        (one for one in platform.operations.values() if path.startswith(one.path.partition("/{")[0] + "/")), None
    )


async def _openapi(request: web.Request) -> web.StreamResponse:
    platform = request.app[PLATFORM]
    return web.Response(
        body=msgspec.json.encode(document(platform.base_url, platform.policies, platform.operations)),
        content_type="application/json",
    )
