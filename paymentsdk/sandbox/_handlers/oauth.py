"""Tokens (4.1). Codes and refresh tokens are valid once; access tokens are valid for 180 days."""

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

#: The type of every token.
_SCHEME = "bearer"
#: The kind of grant that each grant type exchanges.
KINDS: Mapping[str, GrantKind] = {"authorization_code": "code", "refresh_token": "refresh"}


def application(store: Store, body: TokenRequest) -> Tenant:
    """Return the seller for the application in *body*: the owner of the grant in it, or any seller of the application.

    Raises:
        Rejected: The application is unknown, or its secret is wrong.
    """
    # The owner of the grant is looked up first, since an application can have thousands of sellers.
    owner = store.owner(GRANTS, _secret(body))
    seller = None if owner is None else store.get(TENANTS, str(owner))
    if seller is None or seller.client_id != body.client_id:
        seller = next(iter(store.find(TENANTS, None, [("client_id", "=", body.client_id)], limit=1)), None)
    # All sellers of an application share its secret.
    if seller is None or not compare_digest(seller.client_secret.encode(), body.client_secret.encode()):
        raise Rejected(400, "invalid_client")
    return seller


def token(context: SellerContext, request: ParsedRequest[TokenRequest]) -> Token:
    """Exchange a code or a refresh token of the seller for an access token."""
    grant = _grant(context, request.body)
    # This scope is only for the new access token. A later refresh may ask for the whole granted scope.
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
    """Return the scope of the token: the *requested* part of the *granted* scope, or all of it.

    Raises:
        Rejected: *requested* is beyond the granted scope, or its words are not separated by single spaces.
    """
    if requested is None:
        return granted
    if not set(requested.split(" ")) <= set(granted.split()):
        raise Rejected(400, "invalid_scope", f"the granted scope is {granted!r}")
    return requested


def _secret(body: TokenRequest) -> str:
    secret: str = getattr(body, GRANTED_BY[body.grant_type])
    return secret


def _grant(context: SellerContext, body: TokenRequest) -> Grant:
    """Return the grant that *body* exchanges.

    Raises:
        Rejected: The grant is unknown, of the other kind, spent, revoked, expired, or belongs to another client.
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
        raise Rejected(400, "invalid_grant", "redirect_uri differs from the application's")
    return grant


def _shape(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Return the general code with the specific error. The cause is always empty, so the message names the place."""
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
        "invalid_scope": "a malformed scope, or a scope that was not granted",
        "unsupported_grant_type": "any other grant_type",
    },
)
