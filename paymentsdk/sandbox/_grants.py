"""Grants of a seller: access tokens, refresh tokens and authorization codes, each with its form and its lifetime."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias

from paymentsdk.resources.oauth import DEFAULT_LIFETIME
from paymentsdk.sandbox._context import SellerContext
from paymentsdk.sandbox._records import GRANTS, Grant

GrantKind: TypeAlias = Literal["access", "refresh", "code"]

SCOPES = "offline_access read write"
#: The contract gives refresh tokens no end; this is longer than any test will wait.
_LIFETIMES: dict[GrantKind, timedelta] = {
    "access": timedelta(seconds=DEFAULT_LIFETIME),
    "refresh": timedelta(days=3650),
    "code": timedelta(minutes=10),
}


def make_grant(
    context: SellerContext, kind: GrantKind, scope: str, *, oauth: bool = True, access_token: str | None = None
) -> Grant:
    """Give the seller's application a new grant, and keep it."""
    tenant = context.tenant
    if kind == "access":
        secret = f"TEST-{tenant.client_id}-{context.now:%m%d%H}-{context.ids.token()}-{tenant.user_id}"
    else:
        secret = f"TG-{context.ids.token(24)}-{tenant.user_id}"
    expires_at = context.now + _LIFETIMES[kind]
    return context.put(
        GRANTS,
        Grant(
            secret=secret,
            kind=kind,
            user_id=tenant.user_id,
            scope=scope,
            expires_at=expires_at,
            oauth=oauth,
            access_token=access_token,
        ),
    )


def usable(context: SellerContext, secret: str) -> bool:
    """Say whether a grant of the seller can still be used."""
    grant = context.get(GRANTS, secret)
    return grant is not None and not (grant.spent or grant.revoked) and grant.expires_at > context.now
