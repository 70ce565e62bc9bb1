"""How calls are authenticated: with a fixed token, a source of tokens, or signatures."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Protocol, TypeAlias, cast

from msgspec import Struct

from paymentsdk._auth.token_store import TokenPair
from paymentsdk._secrets import MaskedRepr, masked
from paymentsdk._validate import check_methods
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports.base import Request

_TOKEN = re.compile(r"[!-~]+\Z")


class Credentials(MaskedRepr, Struct, frozen=True, kw_only=True):
    """The id and secret of the application at the token endpoint (4.1)."""

    client_id: str
    client_secret: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"client_secret"})


def credentials_of(client_id: str | None, client_secret: str | None) -> Credentials | None:
    """Return the credentials of the application, or ``None`` if neither its id nor its secret is given.

    Raises:
        RequestInvalid: One of them is missing or not a string.
    """
    if client_id is None and client_secret is None:
        return None
    if not isinstance(client_id, str):
        raise RequestInvalid("client_id", "must be a string, and goes together with client_secret")
    if not isinstance(client_secret, str):
        raise RequestInvalid("client_secret", "must be a string, and goes together with client_id")
    return Credentials(client_id=client_id, client_secret=client_secret)


#: Requests a new pair from the platform, with a refresh token.
Exchange = Callable[[str], Awaitable[TokenPair]]


class Auth(Protocol):
    """A source of bearer tokens for calls: any object with these two methods."""

    def token(self, now: float) -> str | None:
        """Return the token to use at *now* (seconds since the epoch), or ``None`` if the caller must await `renew`."""
        ...

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """Return a token other than *rejected*, or ``None`` if there is no other token.

        All calls without a token, or with a rejected token, await this at the same time: obtain the new token once, and
        return it to all of them.

        Args:
            rejected: The token that the platform rejected. ``None`` if `token` returned ``None``.
            exchange: Requests a new pair from the platform, with a refresh token.
            now: Seconds since the epoch.

        Raises:
            ReauthorizationRequired: No grant can be refreshed.
            PaymentsError: The platform could not be asked.
        """
        ...


class Signer(Protocol):
    """Signs every request: an auth scheme for platforms that require more than a bearer token, such as an HMAC."""

    def sign(self, request: Request, now: float) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        """Return the header fields that authenticate *request*; this may be an async method.

        The fields are added to the request, and replace fields with the same names. Their values are credentials: no
        `repr`, log or error shows them. Each attempt is signed again when it is sent. A rejection is final.

        Args:
            request: The attempt as it will be sent: method, URL, header fields, and the bytes of the body.
            now: Seconds since the epoch.

        Raises:
            PaymentsError: The request cannot be signed. Nothing was sent. Any other exception becomes a `NotSent`.
        """
        ...


#: Authenticates calls, with a bearer token or with signatures.
AuthScheme: TypeAlias = Auth | Signer


def check_scheme(name: str, scheme: AuthScheme | None) -> None:
    """Check that *scheme* is an auth scheme or ``None``.

    Raises:
        RequestInvalid: It has neither `sign` nor both of `token` and `renew`.
    """
    if hasattr(scheme, "sign"):
        check_methods(name, scheme, "sign")
    elif scheme is not None and not hasattr(scheme, "token") and not hasattr(scheme, "renew"):
        raise RequestInvalid(name, f"must have sign, or token and renew, which {type(scheme).__name__} lacks")
    else:
        check_methods(name, scheme, "token", "renew", sync="token")


def check_token(token: str) -> str:
    """Return *token* if a header can hold it.

    Raises:
        RequestInvalid: A header cannot hold it. The error does not show the token.
    """
    token = masked(token)
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise RequestInvalid("access_token", "must be visible ASCII characters without spaces")
    return token


class StaticToken:
    """One fixed token, never refreshed: a 401 is final."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        token = masked(token)
        self._token = check_token(token)

    def token(self, now: float) -> str | None:
        """See `Auth.token`."""
        del now  # It does not expire.
        return self._token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See `Auth.renew`."""
        del rejected, exchange, now  # There is no other token.
        return None

    def __repr__(self) -> str:
        return "StaticToken(***)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("StaticToken holds a credential and cannot be pickled")


class Seller:
    """Identifies a seller, as far as a client knows: one token, or one source of tokens, is one seller."""

    __slots__ = ("_auth", "_key")

    def __init__(self, auth: AuthScheme) -> None:
        self._auth = auth  # Kept, so that no other object gets its id.
        # Some programs make a copy of the client, and so a `StaticToken`, for each call.
        self._key = auth.token(0.0) if isinstance(auth, StaticToken) else id(auth)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seller) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class NoToken:
    """A client that only obtains tokens has no token: every other call raises, and is not sent."""

    __slots__ = ()

    def token(self, now: float) -> str | None:
        """See `Auth.token`."""
        del now
        return None

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See `Auth.renew`."""
        del rejected, exchange, now
        raise RequestInvalid(
            "access_token", "is not set: give PaymentsClient an access_token or auth, or use client.account(name)"
        )


def signer_or_tokens(scheme: AuthScheme) -> tuple[Signer | None, Auth]:
    """Return *scheme* as the signer or `None`, and the source of the calls' tokens."""
    signer, tokens = cast("Signer", scheme), cast("Auth", scheme)
    return (signer, NoToken()) if hasattr(scheme, "sign") else (None, tokens)
