"""Tokens (4.1): codes and refresh tokens that are good once, and access tokens that end after 180 days."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from http import HTTPStatus

from msgspec.structs import replace

from paymentsdk.resources import oauth
from paymentsdk.resources.oauth import DEFAULT_LIFETIME, GRANTED_BY, Token, TokenRequest
from paymentsdk.sandbox._noun import GrantKind, Handler, MagicValue, Noun, ParsedRequest, SellerContext, make_grant
from paymentsdk.sandbox._records import GRANTS, TENANTS, Grant, Tenant
from paymentsdk.sandbox._store import Store
from paymentsdk.sandbox._wire import Rejected

#: How the token is sent: the type of every token.
_SCHEME = "bearer"
#: What each type of grant exchanges.
KINDS: Mapping[str, GrantKind] = {"authorization_code": "code", "refresh_token": "refresh"}


def application(store: Store, body: TokenRequest) -> Tenant:
    """Return the seller whose application *body* speaks for: of those who share it, the one whose grant is in *body*.

    Raises:
        Rejected: There is no such application, or its secret is another.
    """
    # First whose grant it is, who is nearly always the one: an application can have thousands of sellers.
    owner = store.owner(GRANTS, _secret(body))
    seller = None if owner is None else store.get(TENANTS, str(owner))
    if seller is None or seller.client_id != body.client_id:
        seller = next(iter(store.find(TENANTS, None, [("client_id", "=", body.client_id)], limit=1)), None)
    # Those who share an application have its secret in common.
    if seller is None or not compare_digest(seller.client_secret.encode(), body.client_secret.encode()):
        raise Rejected(400, "invalid_client")
    return seller


def token(context: SellerContext, request: ParsedRequest[TokenRequest]) -> Token:
    """Exchange a code or a refresh token of the seller for an access token."""
    grant = _grant(context, request.body)
    # The scope of this token alone: a later refresh may ask for all that was granted.
    access = make_grant(context, "access", _scope(request.body.scope, grant.scope))
    if grant.access_token and context.policies.access_tokens_after_refresh == "revoked":
        earlier = context.require(GRANTS, grant.access_token)
        context.put(GRANTS, replace(earlier, revoked=True))
    if grant.kind == "code" or context.policies.refresh_tokens == "rotate":
        context.put(GRANTS, replace(grant, spent=True))
        refresh = make_grant(context, "refresh", grant.scope, access_token=access.secret)
    else:
        refresh = context.put(GRANTS, replace(grant, access_token=access.secret))
    context.record("token_created", id=str(context.tenant.user_id), order_id=grant.kind)
    return Token(
        access_token=access.secret,
        token_type=_SCHEME,
        expires_in=DEFAULT_LIFETIME,
        scope=access.scope,
        user_id=context.tenant.user_id,
        refresh_token=refresh.secret,
        public_key=context.tenant.public_key,
        live_mode=False,
    )


def _scope(requested: str | None, granted: str) -> str:
    """Return what the token may do: the part of what was *granted* that is *asked* for, or all of it.

    Raises:
        Rejected: Anything else is asked for, or it is not written as words with one space between two.
    """
    if requested is None:
        return granted
    if not set(requested.split(" ")) <= set(granted.split()):
        raise Rejected(400, "invalid_scope", f"the scope that was granted is {granted!r}")
    return requested


def _secret(body: TokenRequest) -> str:
    secret: str = getattr(body, GRANTED_BY[body.grant_type])
    return secret


def _grant(context: SellerContext, body: TokenRequest) -> Grant:
    """Return what *body* exchanges.

    Raises:
        Rejected: It is unknown, of the other kind, spent, revoked, expired, or another client's.
    """
    kind = KINDS[body.grant_type]
    grant = context.get(GRANTS, _secret(body))
    if grant is None or grant.kind != kind:
        raise Rejected(400, "invalid_grant")
    if grant.spent:
        raise Rejected(400, "invalid_grant", "it was used before")
    if grant.revoked:
        raise Rejected(400, "invalid_grant", "it was revoked")
    if grant.expires_at <= context.now:
        raise Rejected(400, "invalid_grant", "it has expired")
    if kind == "code" and context.tenant.redirect_uri not in (None, body.redirect_uri):
        raise Rejected(400, "invalid_grant", "redirect_uri is not the one of the application")
    return grant


def _shape(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Write the general code and the sub-error; the cause is always empty, so the message names the place."""
    message = ": ".join((message, ", ".join(rejected.details))) if rejected.details else message
    code = "bad_request" if rejected.status == HTTPStatus.BAD_REQUEST else rejected.code
    return {"message": message, "code": code, "error": rejected.code, "status": rejected.status, "cause": []}


NOUN = Noun(
    handlers=[Handler(operation=oauth.TOKEN, handle=token, magic=MagicValue("code"))],
    member_codes={"scope": "invalid_scope"},
    rule_codes={"choice": "unsupported_grant_type"},
    other_code="invalid_request",
    shape=_shape,
    causes={
        "invalid_client": "an unknown client_id, or a wrong client_secret",
        "invalid_grant": "a code or refresh token that is unknown, spent, revoked, expired or another client's",
        "invalid_request": "a parameter that is missing, malformed, unknown or given twice",
        "invalid_scope": "a scope that is malformed, or beyond what was granted",
        "unsupported_grant_type": "any other grant_type",
    },
)
