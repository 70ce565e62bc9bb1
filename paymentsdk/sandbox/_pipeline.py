"""The steps of one request to an operation: authenticate, look up the idempotency key, handle, save the response.

`Endpoints` in `_app.py` takes these steps in this order, and does all network I/O. This file does none.

A key (spec: Limits; wire-facts: Requests) belongs to a seller and to one request: an operation, its path and its body.
For 24 hours after the first use, the same request gets the saved response again, byte for byte. Another request gets
409. The response is saved in the transaction of the effect. A rejected request has no effect and is not saved: the
client may correct it and send it again with its key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

import msgspec
from msgspec import Struct, field, inspect

from paymentsdk._codec.type_walk import allows_null
from paymentsdk.resources.oauth import TokenRequest
from paymentsdk.sandbox._faults import Hit
from paymentsdk.sandbox._handlers import noun_of
from paymentsdk.sandbox._handlers.oauth import application
from paymentsdk.sandbox._noun import ParsedRequest, SellerContext, requested_error
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import GRANTS, Grant, Tenant
from paymentsdk.sandbox._store import SavedResponse
from paymentsdk.sandbox._wire import (
    AnyOperation,
    Rejected,
    encode,
    media_type,
    read_body,
    read_json,
    read_query,
    unstorable,
)

#: The header of a replayed response.
REPLAYED = "X-Idempotency-Replayed"
_BEARER = "bearer "
_VISIBLE = re.compile(r"[!-~]+")
#: How long a key is remembered (spec: Limits).
REMEMBERED = timedelta(hours=24)
_WRITE_SORTED = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class ReceivedRequest(Struct, kw_only=True):
    """A request, and what the steps have found out about it so far."""

    operation: AnyOperation
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    """The parameters. Of repeated names, only the first."""
    authorization: str = ""
    content_type: str = ""
    """The header of this name without its parameters; empty if it is missing."""
    key: str | None = None
    """The header with the idempotency key, even if the operation uses none."""
    body: bytes = b""
    tenant: Tenant | None = None
    """The seller; `None` until it is known."""
    grant: Grant | None = None
    """The token of the seller; `None` at the token endpoint."""
    hit: Hit = Hit()
    """The faults that hit the request."""
    began: float = field(default_factory=time.perf_counter)


class Reply(Struct, frozen=True, kw_only=True):
    """The response to a request, ready to send. Faults may send only a part of it."""

    status: int
    """The HTTP status."""
    body: bytes
    """The bytes that are sent."""
    headers: Mapping[str, str] = {}
    """Additional headers."""
    content_type: str = "application/json"
    """The header Content-Type."""
    missing: int = 0
    """How many announced bytes are not sent: the connection breaks instead."""


#: The message for a token that no seller has.
_UNKNOWN = "the access token is not known; GET /_sandbox/tenants lists the valid ones"


# --- authenticate ------------------------------------------------------------------------------------------------


def authenticate(platform: Platform, received: ReceivedRequest) -> Tenant:
    """Return the seller of a request. The seller's policies apply to all later steps, also to a missing scope.

    Raises:
        Rejected: The token is missing, unknown, revoked or expired, or lacks the scope; a token is in the query of an
            operation that rejects this; the application is unknown.
        RequestInvalid: The body of a request for a token breaks a rule. The body names the application.
    """
    operation = received.operation
    if not operation.authenticated:
        body = _body(platform, received)
        if not isinstance(body, TokenRequest):
            raise TypeError(operation.name)
        received.tenant = application(platform.store, body)
        return received.tenant
    scheme, token = received.authorization[: len(_BEARER)], received.authorization[len(_BEARER) :].strip()
    if scheme.lower() != _BEARER:
        raise _unauthorized(platform.policies, operation, "a bearer token is needed")
    if "access_token" in received.query and noun_of(operation).in_header_only:
        raise Rejected(400, "bad_request", "a token in the query is not allowed", details=("access_token",))
    if token.startswith("APP_USR"):
        message = "the sandbox takes no APP_USR token"
        raise _unauthorized(platform.policies, operation, message, "invalid_credentials")
    grant = None if unstorable(token) else platform.store.get(GRANTS, token)
    tenant = platform.find_tenant(grant.user_id) if grant and grant.kind == "access" else None
    if grant is None or tenant is None:
        raise _unauthorized(platform.policies, operation, _UNKNOWN)
    received.tenant, received.grant = tenant, grant
    policies = platform.policies_of(tenant)
    if grant.revoked:
        raise _unauthorized(policies, operation, "the access token was revoked")
    if grant.expires_at <= platform.now(tenant):
        raise _unauthorized(policies, operation, "the access token has expired")
    if ("write" if operation.writes else "read") not in grant.scope.split():
        raise Rejected(403, "forbidden", f"the scope of the token is {grant.scope!r}")
    return tenant


def _body(platform: Platform, received: ReceivedRequest) -> object:
    """Return the body of a request as its Struct. A request for a token may have a form, if the policy allows it."""
    operation = received.operation
    form = not operation.authenticated and platform.policies.token_body != "json"  # noqa: S105 - no password
    return read_body(operation, received.body, received.content_type, form=form)


def _unauthorized(policies: Policies, operation: AnyOperation, message: str, code: str = "") -> Rejected:
    """Return the rejection of a token, with the code that the operation documents for it."""
    documented = (error.code for error in operation.errors if error.status == HTTPStatus.UNAUTHORIZED)
    codes = (code, "unauthorized", *documented, "invalid_access_token")
    code_of_operation = next((candidate for candidate in codes if candidate in operation.meanings), "unauthorized")
    status = policies.denied_preference_status if code_of_operation == "invalid_access_token" else 401
    return Rejected(status, code_of_operation, message)


# --- the idempotency key -----------------------------------------------------------------------------------------


def _checked_key(operation: AnyOperation, key: str | None, policies: Policies) -> str | None:
    """Return the key, or ``None`` if the operation uses none. A missing or invalid key is rejected."""
    if not operation.keyed:
        return None
    if not key:
        raise Rejected(400, "empty_required_header", details=(operation.key_header,))
    if not _VISIBLE.fullmatch(key):
        code, wrong = "bad_request", "has a character that is not visible ASCII"
    elif len(key) > policies.max_key_length:
        code, wrong = "invalid_idempotency_key_length", f"has more than {policies.max_key_length} characters"
    else:
        return key
    code = code if code in operation.meanings else "bad_request"
    raise Rejected(400, code, details=(f"{operation.key_header}: {wrong}",))


def _described(received: ReceivedRequest) -> bytes:
    """Return the operation, the path and the body: the request that an idempotency key belongs to."""
    return msgspec.json.encode([received.operation.name, sorted(received.path.items())]) + b"\n" + received.body


def _is_same(operation: AnyOperation, request: bytes, other: bytes) -> bool:
    """Return whether two described requests are one. Spaces and the order of members in JSON make no difference."""
    if operation.body is bytes:
        return request == other
    try:
        return request == other or _canonical(request) == _canonical(other)
    except (ValueError, ArithmeticError, RecursionError):
        return False  # One of the bodies is no JSON.


def _canonical(request: bytes) -> tuple[bytes, bytes]:
    """Return a described request with its body sorted and without spaces. Numbers keep their form.

    As floats, two large amounts could be equal, and as text, an amount and a string.
    """
    call, _, body = request.partition(b"\n")
    return call, _WRITE_SORTED(read_json(body if body.strip() else b"{}"))


# --- handle ------------------------------------------------------------------------------------------------------


def execute(platform: Platform, received: ReceivedRequest, tenant: Tenant) -> Reply:
    """Handle a request once per idempotency key: either replay, or commit effect, ledger and saved response together.

    The transaction is shared: wait for `Store.committed` before you respond, also with a rejection.

    Raises:
        Rejected: Nothing was done.
        RequestInvalid: Nothing was done, since the request breaks a rule.
    """
    operation = received.operation
    key = _checked_key(operation, received.key, platform.policies_of(tenant))
    with platform.store.transaction(shared=True):
        until = platform.clock.now()
        # The due jobs ran just before this. Jobs that became due since then also run before the request.
        platform.run_due(until)
        context = platform.context(tenant, now=until, key=key)
        now = context.now
        described = _described(received) if key else b""
        earlier = platform.store.saved_response(tenant.user_id, key, after=now - REMEMBERED) if key else None
        # Before the body is read: a used key is reported first, even if the body is invalid.
        if earlier and not _is_same(operation, earlier.request, described):
            raise Rejected(409, "idempotency_key_already_used")
        response = earlier or SavedResponse(described, _handle(platform, received, context))
        if key and not earlier:
            platform.store.save_response(tenant.user_id, key, response, at=now, forgotten=now - REMEMBERED)
    headers = {REPLAYED: "true"} if earlier else {}
    return Reply(status=operation.status, body=response.body, headers=headers, content_type=media_type(operation))


def _handle(platform: Platform, received: ReceivedRequest, context: SellerContext) -> bytes:
    """Call the handler of the operation, and return the body of the response."""
    operation, hit, handler = received.operation, received.hit, platform.handlers[received.operation.name]
    drift = hit.first("page_drift")
    request = ParsedRequest(
        body=_body(platform, received),
        content=received.body,
        path=received.path,
        query=read_query(operation, received.query),
        grant=received.grant,
        drift=drift.rows if drift else 0,
        effects=hit.effects,
    )
    # For an operation on an existing thing, the handler itself reads the magic value.
    member = handler.magic.member if handler.magic and not handler.magic.later else None
    if requested := requested_error(operation, member and _member(request, member)):
        raise requested
    result = handler.handle(context, request)
    if operation.status == HTTPStatus.NO_CONTENT:
        return b""
    if result is None and not (operation.empty_response or allows_null(inspect.type_info(operation.result))):
        raise TypeError(f"the handler of {operation.name} must return the body of the response, not None")
    if operation.result is not bytes:
        return encode(result, decimal_strings=operation.decimal_strings)
    if not isinstance(result, bytes):
        raise TypeError(f"the handler of {operation.name} must return bytes, not {type(result).__name__}")
    return result


def _member(request: ParsedRequest[object], path: str) -> object:
    """Return the member of the request at *path*, such as `payer.email`."""
    value: object = request.body if request.body is not None else {**request.path, **request.query}
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value
