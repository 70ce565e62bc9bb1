"""Sellers: made whole, with an application, tokens, a point of sale and a plan, so that a test can begin at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from paymentsdk.resources.oauth import DEFAULT_LIFETIME
from paymentsdk.sandbox.book import Book
from paymentsdk.sandbox.ids import Ids
from paymentsdk.sandbox.policies import Policies
from paymentsdk.sandbox.records import CURRENCIES, GRANTS, OTHER_CURRENCY, TENANTS, Grant, Tenant
from paymentsdk.sandbox.store import Store

__all__ = ["SCOPES", "access_token", "make_tenant", "new_code"]

SCOPES = ("offline_access", "read", "write")
CODE_LIFETIME = timedelta(minutes=10)
TOKEN_LIFETIME = timedelta(seconds=DEFAULT_LIFETIME)
#: Longer than any test will wait: the contract gives refresh tokens no end.
REFRESH_LIFETIME = timedelta(days=3650)


def make_tenant(
    store: Store,
    ids: Ids,
    now: datetime,
    *,
    country: str = "AR",
    external_pos_ids: Sequence[str] = ("POS001",),
    marketplace: str | None = "MARKET",
    scope: str = " ".join(SCOPES),
    redirect_uri: str | None = None,
    compliant: bool = True,
    discount_promises: Sequence[str] = (),
    policies: Mapping[str, object] | None = None,
) -> Tenant:
    """Make a seller, and keep them with their grants.

    Raises:
        ValueError: A policy is unknown or has a value that it may not have; no point of sale was given.
    """
    if not external_pos_ids:
        raise ValueError("a seller needs a point of sale")
    Policies().merged(policies or {})
    user_id, client_id = ids.number(9), str(ids.number(16))
    tenant = Tenant(
        user_id=user_id,
        country=country,
        currency=CURRENCIES.get(country, OTHER_CURRENCY),
        client_id=client_id,
        client_secret=ids.token(),
        public_key=f"TEST-{ids.uuid()}",
        access_token=access_token(ids, now, client_id, user_id),
        authorization_code=f"TG-{ids.token(24)}-{user_id}",
        refresh_token=f"TG-{ids.token(24)}-{user_id}",
        external_pos_id=external_pos_ids[0],
        external_pos_ids=tuple(external_pos_ids),
        plan_id=ids.token(),
        marketplace=marketplace,
        scope=scope,
        redirect_uri=redirect_uri,
        policies=dict(policies or {}),
        discount_promises=tuple(discount_promises),
        compliant=compliant,
    )
    store.put(TENANTS, user_id, tenant)
    for kind, secret, lifetime in (
        ("access", tenant.access_token, TOKEN_LIFETIME),
        ("code", tenant.authorization_code, CODE_LIFETIME),
        ("refresh", tenant.refresh_token, REFRESH_LIFETIME),
    ):
        grant = Grant(
            secret=secret, kind=kind, user_id=user_id, scope=scope, expires_at=now + lifetime, oauth=kind != "access"
        )
        store.put(GRANTS, user_id, grant)
    return tenant


def access_token(ids: Ids, now: datetime, client_id: str, user_id: int) -> str:
    """Return a new token in the structure of the contract (spec: Token response)."""
    return f"TEST-{client_id}-{now:%m%d%H}-{ids.token()}-{user_id}"


def new_code(book: Book) -> str:
    """Return a new authorization code of the seller, valid for 10 minutes: their consent, without a page."""
    code = f"TG-{book.ids.token(24)}-{book.tenant.user_id}"
    grant = Grant(
        secret=code,
        kind="code",
        user_id=book.tenant.user_id,
        scope=book.tenant.scope,
        expires_at=book.now + CODE_LIFETIME,
    )
    book.put(GRANTS, grant)
    return code
