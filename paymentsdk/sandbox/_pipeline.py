"""One request to an operation, from the first byte to the last, read from the top down.

parse -> authenticate -> idempotency key -> injected faults -> handle -> respond. The functions below `Pipeline` are its
steps, and know no network.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import format_datetime
from http import HTTPStatus
from itertools import count
from typing import TypeAlias

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._headers import Headers
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.oauth import TokenRequest
from paymentsdk.sandbox import _idempotency, _responses
from paymentsdk.sandbox._context import Call
from paymentsdk.sandbox._delivery import Response, apply_faults, hang, pause, read, reset_connection, send
from paymentsdk.sandbox._events import LONGEST_SHOWN, RequestLine
from paymentsdk.sandbox._faults import FaultRule, Hit
from paymentsdk.sandbox._handlers import noun_of
from paymentsdk.sandbox._handlers.oauth import application
from paymentsdk.sandbox._keys import Route
from paymentsdk.sandbox._noun import requested_error
from paymentsdk.sandbox._parsing import TOO_LARGE, AnyOperation, read_body, read_query, unstorable
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import GRANTS, Grant, Tenant
from paymentsdk.sandbox._redaction import redact_body, redact_parameters, secrets_of
from paymentsdk.sandbox._responses import SHAPES, Rejected
from paymentsdk.sandbox._snapshots import is_full
from paymentsdk.sandbox._store import SavedResponse
from paymentsdk.transports.base import Request

#: Takes a request as it came; returns the access token that its signature stands for, or `None` if it has none.
Authenticate: TypeAlias = Callable[[Request], str | None]
#: The header of a response that was given before.
REPLAYED = "X-Idempotency-Replayed"
#: What is raised by reading from a client that has gone, or writing to it, as any may at any moment.
CLIENT_GONE = (ConnectionError, TimeoutError, web.RequestPayloadError)
_REQUEST_ID = web.RequestKey("request_id", str)
_BEARER = "bearer "


class Incoming(Struct, frozen=True, kw_only=True):
    """A request as it came."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    """The parameters, the first of each name."""
    authorization: str
    content_type: str
    """The header of this name without its parameters; empty for none."""
    key: str | None
    """The header with the idempotency key."""
    body: bytes


#: Of a request whose connection was lost before it was whole.
_NOTHING_READ = Incoming(path={}, query={}, authorization="", content_type="", key=None, body=b"")


class Principal(Struct, frozen=True):
    """Who asks: the seller, and the token that says so (none at the token endpoint)."""

    tenant: Tenant
    grant: Grant | None = None


class _ConnectionLostError(Exception):
    """The connection breaks before anything is done: a fault has it so, or the client has gone."""


@dataclass
class _Exchange:
    """What is known so far of one request."""

    operation: AnyOperation
    began: float = field(default_factory=time.perf_counter)
    incoming: Incoming | None = None
    principal: Principal | None = None
    hit: Hit = field(default_factory=Hit)


_EXCHANGE = web.RequestKey("exchange", _Exchange)


class Pipeline:
    """Responds to the operations of the contract."""

    def __init__(
        self,
        platform: Platform,
        stopping: asyncio.Event,
        *,
        live_tokens: bool,
        authenticate: Authenticate | None = None,
    ) -> None:
        self._platform = platform
        self._authenticate = authenticate
        self._stopping = stopping
        self._live_tokens = live_tokens
        self._in_flight = _idempotency.InFlight()
        self._numbers = count(1)
        self._secrets = secrets_of(platform.operations.values())

    def handler(self, operation: AnyOperation) -> Route:
        """Return the aiohttp handler of *operation*."""

        async def handle(request: web.Request) -> web.StreamResponse:
            exchange = request[_EXCHANGE] = _Exchange(operation)
            try:
                response = await self._respond(request, exchange)
            except Rejected as rejected:
                response = self._error_response(exchange, rejected)
            except _ConnectionLostError:
                self.log(request, None, exchange)
                return reset_connection(request)
            sent = apply_faults(response, exchange.hit)
            self.log(request, sent.status if sent else None, exchange, sent)
            return await send(request, sent, exchange.hit, self._stopping)

        return handle

    async def _respond(self, request: web.Request, exchange: _Exchange) -> Response:
        platform, operation = self._platform, exchange.operation
        exchange.incoming = incoming = self._with_token(request, operation, await _parse(request, operation))
        principal = self._authenticated(exchange, incoming)
        tenant, policies = principal.tenant, platform.policies_of(principal.tenant)
        exchange.hit = platform.faults.match(operation.name, tenant.user_id)
        key = incoming.key if operation.keyed else None
        place = _idempotency.place_of(operation, incoming.path)
        claim = _idempotency.claim_of(tenant.user_id, key, place, policies) if key else None
        async with self._in_flight.turn(claim, policies) as waited:
            await self._inject_faults(request, exchange)
            await platform.catch_up()
            if waited or exchange.hit.rules:  # Meanwhile the token may have ended.
                principal = self._authenticated(exchange, incoming)
            return execute(platform, operation, incoming, principal, exchange.hit)

    def _with_token(self, request: web.Request, operation: AnyOperation, incoming: Incoming) -> Incoming:
        """Return *incoming* with the token that its signature stands for, if it has one that is known here."""
        if self._authenticate is None or not operation.authenticated:
            return incoming
        url, headers = self._platform.base_url + request.raw_path, Headers(request.headers)
        token = self._authenticate(Request(request.method, url, headers, incoming.body))
        return incoming if token is None else replace(incoming, authorization=f"Bearer {token}")

    def _authenticated(self, exchange: _Exchange, incoming: Incoming) -> Principal:
        platform, operation = self._platform, exchange.operation
        principal = authenticate(platform, operation, incoming, live_tokens=self._live_tokens)
        exchange.principal = principal  # Also a token that is rejected says whose policies hold.
        check_token(platform, operation, principal)
        return principal

    async def _inject_faults(self, request: web.Request, exchange: _Exchange) -> None:
        """Apply the faults that come before the commit."""
        for rule in exchange.hit.rules:
            match rule.effect:
                case "delay_before_commit":
                    await pause(rule.seconds, self._stopping)
                case "reset":
                    raise _ConnectionLostError
                case "hang":
                    await hang(request, self._stopping)
                    raise _ConnectionLostError
                case "fail_before_commit":
                    raise _injected_error(exchange.operation, rule, 500)
                case "refuse":
                    raise _injected_error(exchange.operation, rule, 400)
                case "rate_limit":
                    raise Rejected(429, rule.code or "too_many_requests", retry_after=rule.retry_after)
                case _:
                    pass

    def _error_response(self, exchange: _Exchange, rejected: Rejected) -> Response:
        tenant = exchange.principal and exchange.principal.tenant
        policies = self._platform.policies_of(tenant) if tenant else self._platform.policies
        shape = SHAPES.get(policies.error_shape, noun_of(exchange.operation).shape)
        headers = {} if rejected.retry_after is None else {"Retry-After": str(rejected.retry_after)}
        body = _responses.rejection(rejected, exchange.operation, shape)
        return Response(status=rejected.status, body=body, headers=headers)

    async def name_response(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give every response the id of its request."""
        response.headers["X-Request-Id"] = self.request_id(request)
        # Clients count the age of their keys by it: it is the time of the clock that forgets them.
        response.headers["Date"] = format_datetime(self._platform.clock.now(), usegmt=True)

    def request_id(self, request: web.Request) -> str:
        """Return the id of *request*, which it gets at the first look."""
        if _REQUEST_ID not in request:
            request[_REQUEST_ID] = f"req-{next(self._numbers)}"
        return request[_REQUEST_ID]

    def log_failure(self, request: web.Request, error: Exception) -> Rejected:
        """Say on stderr and in the list of requests that the sandbox itself failed, and return what the client is told.

        Nobody may be left to guess: a program that embeds the sandbox has often no logging at all.
        """
        cause = _cause(error)
        sys.stderr.write(f"the sandbox failed at {request.method} {request.path}: {cause or repr(error)}\n")
        rejected = Rejected(500, "generic", f"internal error of the sandbox: {cause or 'see its stderr'}")
        exchange = request.get(_EXCHANGE)
        response = self._error_response(exchange, rejected) if exchange else None
        self.log(request, rejected.status, exchange, response)
        return rejected

    def log(
        self,
        request: web.Request,
        status: int | None,
        exchange: _Exchange | None = None,
        response: Response | None = None,
    ) -> None:
        """Log the request for those who watch, with what is known of it and of the response.

        Without an *exchange*, no operation has handled it: most likely its program has a wrong address.
        """
        line = RequestLine(
            at=self._platform.clock.now(),
            operation=None,
            method=request.method,
            path=redact_parameters(request.rel_url.raw_path_qs, self._secrets),
            status=status,
            tenant=None,
            request_id=self.request_id(request),
        )
        if exchange:
            incoming, grant = exchange.incoming or _NOTHING_READ, not exchange.operation.authenticated
            # Nobody sees more than the beginning, and to search a long page takes longer than to send it.
            answer = response.body[: 2 * LONGEST_SHOWN] if response else b""
            line = replace(
                line,
                operation=exchange.operation.name,
                tenant=exchange.principal.tenant.user_id if exchange.principal else None,
                key=incoming.key,
                content_type=incoming.content_type,
                body=redact_body(incoming.body, grant=grant, also=self._secrets),
                answer=redact_body(answer, grant=False, also=self._secrets),
                replayed=bool(response and REPLAYED in response.headers),
                faults=tuple(rule.effect for rule in exchange.hit.rules),
                milliseconds=round((time.perf_counter() - exchange.began) * 1000, 3),
            )
        self._platform.feed.log(line)


def _cause(error: Exception) -> str:
    """Return what a person can do something about; empty where the error is the sandbox's own."""
    if is_full(error):
        return f"disk full ({error})"
    return f"the database failed ({error})" if isinstance(error, sqlite3.Error) else ""


async def _parse(request: web.Request, operation: AnyOperation) -> Incoming:
    """Read a request whole.

    Raises:
        Rejected: Its body is too large.
        _ConnectionLostError: The client has gone.
    """
    try:
        body = await read(request)
    except web.HTTPRequestEntityTooLarge:
        raise Rejected(413, "request_too_large", TOO_LARGE) from None
    except CLIENT_GONE:
        raise _ConnectionLostError from None
    return Incoming(
        path=dict(request.match_info),
        query=dict(request.query),
        authorization=request.headers.get("Authorization", ""),
        content_type=request.headers.get("Content-Type", "").partition(";")[0].strip(),
        key=request.headers.get(operation.key_header),
        body=body,
    )


def authenticate(platform: Platform, operation: AnyOperation, incoming: Incoming, *, live_tokens: bool) -> Principal:
    """Return who asks; whether their token is good for it, `check_token` says.

    Args:
        platform: The platform.
        operation: What is asked for.
        incoming: The request.
        live_tokens: Whether a token that begins with `APP_USR` stands for its `TEST` twin.

    Raises:
        Rejected: The token is missing or unknown; the application is not known.
    """
    if not operation.authenticated:
        with _documented_errors(operation):
            _check_content_type(operation, incoming)
            body = read_body(operation, incoming.body, platform.policies)
        if not isinstance(body, TokenRequest):
            raise TypeError(operation.name)
        return Principal(application(platform.store, body))
    scheme, token = incoming.authorization[: len(_BEARER)], incoming.authorization[len(_BEARER) :].strip()
    if scheme.lower() != _BEARER:
        raise _unauthorized(platform.policies, operation, "a bearer token is needed")
    if token.startswith("APP_USR"):
        if not live_tokens:
            message = "the sandbox takes no APP_USR token"
            raise _unauthorized(platform.policies, operation, message, "invalid_credentials")
        token = "TEST" + token.removeprefix("APP_USR")
    grant = None if unstorable(token) else platform.store.get(GRANTS, token)
    tenant = platform.tenant(grant.user_id) if grant and grant.kind == "access" else None
    if grant is None or tenant is None:
        raise _unauthorized(platform.policies, operation, "the access token is not known")
    return Principal(tenant, grant)


def check_token(platform: Platform, operation: AnyOperation, principal: Principal) -> None:
    """Reject a token that is not good for *operation*, under the policies of the seller that it speaks for.

    Raises:
        Rejected: It was revoked, has expired, or lacks the scope.
    """
    grant, policies = principal.grant, platform.policies_of(principal.tenant)
    if grant is None:
        return
    if grant.revoked:
        raise _unauthorized(policies, operation, "the access token was revoked")
    if grant.expires_at <= platform.clock.now():
        raise _unauthorized(policies, operation, "the access token has expired")
    if ("write" if operation.writes else "read") not in grant.scope.split():
        raise Rejected(403, "forbidden", f"the scope of the token is {grant.scope!r}")


def _unauthorized(policies: Policies, operation: AnyOperation, message: str, code: str = "") -> Rejected:
    """Return the error of a token, with the code that the operation documents for it."""
    documented = (error.code for error in operation.errors if error.status == HTTPStatus.UNAUTHORIZED)
    codes = (code, "unauthorized", *documented, "invalid_access_token")
    known = next((one for one in codes if one in operation.meanings), "unauthorized")
    status = policies.denied_preference_status if known == "invalid_access_token" else 401
    return Rejected(status, known, message)


def _check_content_type(operation: AnyOperation, incoming: Incoming) -> None:
    """Reject a body that says it is something other than JSON; one that says nothing is read as JSON."""
    kind = incoming.content_type.lower()
    takes_none = operation.body is bytes or (operation.body is None and not operation.keyed)
    if takes_none or not incoming.body.strip() or not kind or kind.endswith(("/json", "+json")):
        return
    raise RequestInvalid("$", f"JSON is malformed: the content type is {kind!r}", "syntax")


@contextmanager
def _documented_errors(operation: AnyOperation) -> Iterator[None]:
    """Turn a broken rule into the error that the operation documents for it."""
    try:
        yield
    except RequestInvalid as error:
        raise noun_of(operation).reject(operation, error) from None


def _injected_error(operation: AnyOperation, rule: FaultRule, status: int) -> Rejected:
    """Return the error that a rule asks for; unless it names a code, the most general one of its status."""
    status = rule.status or next((one.status for one in operation.errors if one.code == rule.code), status)
    return Rejected(status, rule.code or noun_of(operation).general_code(operation, status))


def execute(
    platform: Platform, operation: AnyOperation, incoming: Incoming, principal: Principal, hit: Hit
) -> Response:
    """Handle a request once per idempotency key: claim, effect, ledger and saved response in one transaction.

    Raises:
        Rejected: Nothing was done.
    """
    tenant = principal.tenant
    policies = platform.policies_of(tenant)
    key = _idempotency.checked_key(operation, incoming.key, policies)
    with platform.store.transaction():
        now = platform.clock.now()
        # A moment ago all that was due was done; what fell due since then comes before the request as well.
        platform.run_due(now)
        context = platform.context(tenant, now=now, key=key)
        fingerprint = _idempotency.fingerprint(operation, incoming.path, incoming.body) if key else ""
        place = _idempotency.place_of(operation, incoming.path)
        if key and (saved := _idempotency.replay(context, key, place, fingerprint)):
            return _response(operation, saved.status, saved.body, replayed=True)
        # After the key: what went with it once is another request, whatever it says.
        with _documented_errors(operation):
            _check_content_type(operation, incoming)
            drift = hit.first("page_drift")
            call = Call(
                body=read_body(operation, incoming.body, policies),
                path=incoming.path,
                query=read_query(operation, incoming.query),
                grant=principal.grant,
                sent=incoming.body,
                drift=drift.rows if drift else 0,
                effects=tuple(rule.effect for rule in hit.rules),
            )
            if requested := requested_error(operation, _magic_text(platform, operation, call)):
                raise requested
            result = platform.handlers[operation.name].handle(context, call)
        body = b""
        if operation.status != HTTPStatus.NO_CONTENT:
            body = _body(operation, result)
        if key:
            saved = SavedResponse(
                place=place, fingerprint=fingerprint, status=operation.status, body=body, at=context.now
            )
            platform.store.save_response(tenant.user_id, key, saved, forgotten=_idempotency.forgotten(context))
    return _response(operation, operation.status, body)


def _body(operation: AnyOperation, result: object) -> bytes:
    if operation.result is not bytes:
        return _responses.encode(result, decimal_strings=operation.decimal_strings)
    if not isinstance(result, bytes):
        raise TypeError(f"the handler of {operation.name} must return bytes, not {type(result).__name__}")
    return result


def _response(operation: AnyOperation, status: int, body: bytes, *, replayed: bool = False) -> Response:
    headers = {REPLAYED: "true"} if replayed else {}
    return Response(status=status, body=body, headers=headers, content_type=_responses.media_type(operation))


def _magic_text(platform: Platform, operation: AnyOperation, call: Call[object]) -> object:
    """Return the member that may hold a magic value; a handler itself looks at that of a thing which exists."""
    magic = platform.handlers[operation.name].magic
    if magic is None or magic.later:
        return None
    value: object = call.body if call.body is not None else {**call.path, **call.query}
    for name in magic.member.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
