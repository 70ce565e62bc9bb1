"""One request to an operation, once it was read: authenticate -> idempotency key -> handle -> keep the response.

`Endpoints` in `_app.py` takes these steps in their order, and knows the network. Nothing here does.

A key (spec: Limits; wire-facts: Requests) belongs to a seller and to one request: an operation, its path and its body.
In the 24 hours after its first use the same request gets the saved response again, byte for byte; another one gets 409.
The response is saved in the transaction of the effect. A rejected request had no effect and is not remembered: it may
be normalized and sent again with its key.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

#: The header of a response that was given before.
REPLAYED = "X-Idempotency-Replayed"
_BEARER = "bearer "
#: For how long a key is remembered (spec: Limits).
REMEMBERED = timedelta(hours=24)
#: Numbers stay what they are: as floats, two large amounts could look the same, and as text, an amount and its text.
_WRITE = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class ReceivedRequest(Struct, kw_only=True):
    """A request, and what is known so far of who sent it and what becomes of it."""

    operation: AnyOperation
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    """The parameters, the first of each name."""
    authorization: str = ""
    content_type: str = ""
    """The header of this name without its parameters; empty for none."""
    key: str | None = None
    """The header with the idempotency key, also where the operation takes none."""
    body: bytes = b""
    tenant: Tenant | None = None
    """The seller; `None` until they are known."""
    grant: Grant | None = None
    """The token that says so; none at the token endpoint."""
    hit: Hit = Hit()
    """The faults that hit it."""
    began: float = field(default_factory=time.perf_counter)


class Reply(Struct, frozen=True, kw_only=True):
    """The response to a request, ready to be sent: of what it says, faults may leave less."""

    status: int
    """The HTTP status."""
    body: bytes
    """The bytes that are sent."""
    headers: Mapping[str, str] = {}
    """Headers of its own."""
    content_type: str = "application/json"
    """What it says the body is."""
    missing: int = 0
    """How many bytes it promises and never sends: the connection breaks instead."""


#: What is said to a token that no seller has.
_UNKNOWN = "the access token is not known here; GET /_sandbox/tenants lists tokens that are"


# --- authenticate ------------------------------------------------------------------------------------------------


def authenticate(platform: Platform, received: ReceivedRequest, *, live_tokens: bool) -> Tenant:
    """Return who asks, under whose policies all that follows is: also that a token is not good for the operation.

    Args:
        platform: The platform.
        received: The request.
        live_tokens: Whether a token that begins with `APP_USR` stands for its `TEST` twin.

    Raises:
        Rejected: The token is missing or unknown, was revoked, has expired, or lacks the scope; there is one in the
            query, where that is not allowed; the application is not known.
        RequestInvalid: The body, which says who asks for a token, breaks a rule.
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
        if not live_tokens:
            message = "the sandbox takes no APP_USR token"
            raise _unauthorized(platform.policies, operation, message, "invalid_credentials")
        token = "TEST" + token.removeprefix("APP_USR")
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
    """Return the body of a request as its Struct; of a request for a token also a form, if the policy says so."""
    operation = received.operation
    form = not operation.authenticated and platform.policies.token_body != "json"  # noqa: S105 - no password
    return read_body(operation, received.body, received.content_type, form=form)


def _unauthorized(policies: Policies, operation: AnyOperation, message: str, code: str = "") -> Rejected:
    """Return the error of a token, with the code that the operation documents for it."""
    documented = (error.code for error in operation.errors if error.status == HTTPStatus.UNAUTHORIZED)
    codes = (code, "unauthorized", *documented, "invalid_access_token")
    code_of_operation = next((candidate for candidate in codes if candidate in operation.meanings), "unauthorized")
    status = policies.denied_preference_status if code_of_operation == "invalid_access_token" else 401
    return Rejected(status, code_of_operation, message)


# --- the idempotency key -----------------------------------------------------------------------------------------


class InFlight:
    """The keys of the requests that are in progress, for the twins that arrive meanwhile."""

    def __init__(self) -> None:
        self._claims: set[tuple[int, str]] = set()

    @contextmanager
    def claim(self, received: ReceivedRequest, tenant: Tenant, policies: Policies) -> Iterator[None]:
        """Keep the key of a request in flight.

        Raises:
            Rejected: Another request has it in flight.
        """
        if not (received.operation.keyed and received.key):
            yield
            return
        claim = tenant.user_id, received.key
        if claim in self._claims:
            status = 409 if policies.concurrent_twin == "conflict" else 423
            raise Rejected(status, "resource_locked", "another request with this key is in progress")
        self._claims.add(claim)
        try:
            yield
        finally:
            self._claims.remove(claim)


def _checked_key(operation: AnyOperation, key: str | None, policies: Policies) -> str | None:
    """Return the key; ``None`` where the operation takes none. One that is missing or too long is rejected."""
    if not operation.keyed:
        return None
    if not key:
        raise Rejected(400, "empty_required_header", details=(operation.key_header,))
    if not all("!" <= character <= "~" for character in key):
        code, wrong = "bad_request", "has a character that is not visible ASCII"
    elif len(key) > policies.max_key_length:
        code, wrong = "invalid_idempotency_key_length", f"has more than {policies.max_key_length} characters"
    else:
        return key
    code = code if code in operation.meanings else "bad_request"
    raise Rejected(400, code, details=(f"{operation.key_header}: {wrong}",))


def _fingerprint(received: ReceivedRequest) -> str:
    """Return what makes two requests the same: operation, path and body; of JSON, whatever the spaces and the order."""
    request, body = [received.operation.name, sorted(received.path.items())], received.body
    try:
        text = _WRITE([*request, body if received.operation.body is bytes else read_json(body.strip() or b"{}")])
    except (ValueError, ArithmeticError, RecursionError):
        # No saved response has this one: it will be rejected.
        text = _WRITE([*request, "no JSON", body])
    return hashlib.sha256(text).hexdigest()


def replay(context: SellerContext, key: str, sent: str) -> SavedResponse | None:
    """Return the saved response for *key*; ``None`` if the request, of the fingerprint *sent*, is the first with it.

    Raises:
        Rejected: The key went with another request.
    """
    saved = context.store.saved_response(context.tenant.user_id, key, after=context.now - REMEMBERED)
    if saved is not None and saved.fingerprint != sent:
        raise Rejected(409, "idempotency_key_already_used")
    return saved


# --- handle ------------------------------------------------------------------------------------------------------


def execute(platform: Platform, received: ReceivedRequest, tenant: Tenant) -> Reply:
    """Handle a request once per idempotency key: replay, or effect, ledger and saved response in one transaction.

    The transaction is shared: wait for `Store.committed` before you respond, also with a rejection.

    Raises:
        Rejected: Nothing was done.
        RequestInvalid: Nothing was done: it breaks a rule.
    """
    operation = received.operation
    key = _checked_key(operation, received.key, platform.policies_of(tenant))
    with platform.store.transaction(shared=True):
        until = platform.clock.now()
        # A moment ago all that was due was done; what fell due since then comes before the request as well.
        platform.run_due(until)
        context = platform.context(tenant, now=until, key=key)
        now = context.now
        fingerprint = _fingerprint(received) if key else ""
        earlier = replay(context, key, fingerprint) if key else None
        # After the key: what went with it once is another request, whatever it says.
        response = earlier or SavedResponse(fingerprint, _handle(platform, received, context))
        if key and not earlier:
            platform.store.save_response(tenant.user_id, key, response, at=now, forgotten=now - REMEMBERED)
    headers = {REPLAYED: "true"} if earlier else {}
    return Reply(status=operation.status, body=response.body, headers=headers, content_type=media_type(operation))


def _handle(platform: Platform, received: ReceivedRequest, context: SellerContext) -> bytes:
    """Have the handler of the operation do what is asked, and return the body of the response."""
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
    # Of a thing which exists, the handler itself looks at the magic value.
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
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
