"""One request and its answer, without a network: who asks, with which key, what is done, what is saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from msgspec import Struct

from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.oauth import TokenRequest
from paymentsdk.sandbox import answers, idempotency, magic
from paymentsdk.sandbox.answers import Refused
from paymentsdk.sandbox.behaviours import BEHAVIOUR, MAGIC
from paymentsdk.sandbox.behaviours.oauth import application
from paymentsdk.sandbox.book import Call
from paymentsdk.sandbox.codes import refuse
from paymentsdk.sandbox.faults import Hit
from paymentsdk.sandbox.intake import AnyOperation, read_body, read_query, unfit
from paymentsdk.sandbox.line import Outcome
from paymentsdk.sandbox.platform import Platform
from paymentsdk.sandbox.policies import Policies
from paymentsdk.sandbox.records import GRANTS, Grant, Tenant
from paymentsdk.sandbox.store import SavedAnswer

__all__ = ["Caller", "Incoming", "admit", "carry_out", "identify"]

#: The header of an answer that was given before.
REPLAYED = "X-Idempotency-Replayed"
_BEARER = "bearer "


class Incoming(Struct, frozen=True, kw_only=True):
    """A request as it came.

    Attributes:
        path: The values in the path.
        query: The parameters, the first of each name.
        authorization: The header of this name.
        content_type: The header of this name, without its parameters; empty for none.
        key: The header X-Idempotency-Key.
        body: The body.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    authorization: str
    content_type: str
    key: str | None
    body: bytes


class Caller(Struct, frozen=True):
    """Who asks: the seller, and the token that says so (none at the token endpoint)."""

    tenant: Tenant
    grant: Grant | None = None


def identify(platform: Platform, operation: AnyOperation, incoming: Incoming, *, live_tokens: bool) -> Caller:
    """Return who asks; whether their token is good for it, ``admit`` says.

    Args:
        platform: The platform.
        operation: What is asked for.
        incoming: The request.
        live_tokens: Whether a token that begins with ``APP_USR`` stands for its ``TEST`` twin.

    Raises:
        Refused: The token is missing or unknown; the application is not known.
    """
    if not operation.authenticated:
        with _refusing(operation):
            _check_content_type(operation, incoming)
            body = read_body(operation, incoming.body, platform.policies)
        if not isinstance(body, TokenRequest):
            raise TypeError(operation.name)
        return Caller(application(platform.store, body))
    scheme, token = incoming.authorization[: len(_BEARER)], incoming.authorization[len(_BEARER) :].strip()
    if scheme.lower() != _BEARER:
        raise _unauthorized(platform.policies, operation, "a bearer token is needed")
    if token.startswith("APP_USR"):
        if not live_tokens:
            reason = "the sandbox takes no APP_USR token"
            raise _unauthorized(platform.policies, operation, reason, "invalid_credentials")
        token = "TEST" + token.removeprefix("APP_USR")
    grant = None if unfit(token) else platform.store.get(GRANTS, token)
    tenant = platform.tenant(grant.user_id) if grant and grant.kind == "access" else None
    if grant is None or tenant is None:
        raise _unauthorized(platform.policies, operation, "the access token is not known")
    return Caller(tenant, grant)


def admit(platform: Platform, operation: AnyOperation, caller: Caller) -> None:
    """Refuse a token that is not good for *operation*, under the policies of the seller that it speaks for.

    Raises:
        Refused: It was revoked, has expired, or is not enough.
    """
    grant, policies = caller.grant, platform.policies_of(caller.tenant)
    if grant is None:
        return
    if grant.revoked:
        raise _unauthorized(policies, operation, "the access token was revoked")
    if grant.expires_at <= platform.clock.now():
        raise _unauthorized(policies, operation, "the access token has expired")
    if ("write" if operation.writes else "read") not in grant.scope.split():
        raise Refused(403, "forbidden", f"the scope of the token is {grant.scope!r}")


def _unauthorized(policies: Policies, operation: AnyOperation, message: str, code: str = "") -> Refused:
    """Return the refusal of a token, with the code that the operation has for it."""
    documented = (error.code for error in operation.errors if error.status == HTTPStatus.UNAUTHORIZED)
    codes = (code, "unauthorized", *documented, "invalid_access_token")
    known = next((one for one in codes if one in operation.meanings), "unauthorized")
    status = policies.denied_preference_status if known == "invalid_access_token" else 401
    return Refused(status, known, message)


def _check_content_type(operation: AnyOperation, incoming: Incoming) -> None:
    """Refuse a body that says it is something other than JSON; one that says nothing is read as JSON."""
    kind = incoming.content_type.lower()
    takes_none = operation.body is None and not operation.keyed
    if takes_none or not incoming.body.strip() or not kind or kind.endswith(("/json", "+json")):
        return
    raise RequestInvalid("$", f"JSON is malformed: the content type is {kind!r}")


@contextmanager
def _refusing(operation: AnyOperation) -> Iterator[None]:
    """Refuse what breaks a rule, with the code that the operation has for it."""
    try:
        yield
    except RequestInvalid as error:
        raise refuse(operation, error) from None


def carry_out(platform: Platform, operation: AnyOperation, incoming: Incoming, caller: Caller, hit: Hit) -> Outcome:
    """Do what is asked for, once per idempotency key: claim, effect, ledger and saved answer in one transaction.

    Raises:
        Refused: Nothing was done.
    """
    tenant = caller.tenant
    policies = platform.policies_of(tenant)
    key = idempotency.checked_key(operation, incoming.key, policies)
    with platform.store.transaction():
        now = platform.clock.now()
        # A moment ago all that was due was done; what fell due since then comes before the request as well.
        platform.settle(now)
        book = platform.book(tenant, now=now, key=key)
        fingerprint = idempotency.fingerprint(operation, incoming.path, incoming.body) if key else ""
        place = idempotency.place_of(operation, incoming.path)
        if key and (saved := idempotency.replay(book, key, place, fingerprint)):
            return Outcome(status=saved.status, body=saved.body, headers={REPLAYED: "true"}, replayed=True)
        # After the key: what went with it once is another request, whatever it says.
        with _refusing(operation):
            _check_content_type(operation, incoming)
            drift = hit.first("page_drift")
            call = Call(
                body=read_body(operation, incoming.body, policies),
                path=incoming.path,
                query=read_query(operation, incoming.query),
                grant=caller.grant,
                sent=incoming.body,
                drift=drift.rows if drift else 0,
            )
            demand = magic.demanded(operation, _magic_text(operation, call))
            if demand:
                raise demand
            answer = BEHAVIOUR[operation](book, call)
        body = b""
        if operation.status != HTTPStatus.NO_CONTENT:
            body = answers.encode(answer, decimal_strings=operation.decimal_strings)
        if key:
            saved = SavedAnswer(place=place, fingerprint=fingerprint, status=operation.status, body=body, at=book.now)
            platform.store.save_answer(tenant.user_id, key, saved, forgotten=idempotency.forgotten(book))
    return Outcome(status=operation.status, body=body)


def _magic_text(operation: AnyOperation, call: Call[object]) -> object:
    """Return the member that may hold a magic value; a behaviour itself looks at that of a thing which exists."""
    where = MAGIC.get(operation.name)
    if where is None or where.later:
        return None
    value: object = call.body if call.body is not None else {**call.path, **call.query}
    for name in where.member.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
