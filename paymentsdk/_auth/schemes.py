"""How calls are authenticated: a fixed token, a source of tokens, or signatures."""

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
    """The application at the token endpoint (4.1)."""

    client_id: str
    client_secret: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"client_secret"})


def credentials_of(client_id: str | None, client_secret: str | None) -> Credentials | None:
    """Return the application, or ``None`` if neither its id nor its secret is given.

    Raises:
        RequestInvalid: One is missing, or is not a string.
    """
    if client_id is None and client_secret is None:
        return None
    if not isinstance(client_id, str):
        raise RequestInvalid("client_id", "must be a string, and goes together with client_secret")
    if not isinstance(client_secret, str):
        raise RequestInvalid("client_secret", "must be a string, and goes together with client_id")
    return Credentials(client_id=client_id, client_secret=client_secret)


#: Asks the platform for a new pair, given a refresh token.
Exchange = Callable[[str], Awaitable[TokenPair]]


class Auth(Protocol):
    """Gives calls their bearer token: a source of tokens is any object with these two methods."""

    def token(self, now: float) -> str | None:
        """Return the token to use at *now* (seconds since the epoch), or ``None`` if `renew` must be awaited."""
        ...

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """Return a token other than *rejected*, or ``None`` if there can be none.

        Every call that has no token, or whose token was rejected, awaits this at the same time: let one of them obtain
        the new token, and return it to the others as well.

        Args:
            rejected: The token that the platform rejected; ``None`` when `token` had none.
            exchange: Asks the platform for a new pair.
            now: Seconds since the epoch.

        Raises:
            ReauthorizationRequired: There is no grant that can be refreshed.
            PaymentsError: The platform could not be asked.
        """
        ...


class Signer(Protocol):
    """Signs every request: an auth scheme for platforms that take more than a bearer token, such as an HMAC."""

    def sign(self, request: Request, now: float) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        """Return the header fields that authenticate *request*; may be async.

        They are added to its header fields, and take the place of those with the same name. The values are credentials:
        no `repr`, log or error shows them. Each attempt is signed anew, when it goes out. A rejected one is final.

        Args:
            request: The attempt as it will be sent: method, URL, header fields, and the bytes of the body.
            now: Seconds since the epoch.

        Raises:
            PaymentsError: It cannot be signed; nothing was sent. Any other exception becomes a `NotSent`.
        """
        ...


#: How calls say whose they are: with a bearer token, or a signature.
AuthScheme: TypeAlias = Auth | Signer


def check_scheme(name: str, scheme: AuthScheme | None) -> None:
    """Reject what is no auth scheme; ``None`` is none.

    Raises:
        RequestInvalid: It has neither `sign` nor `token` and `renew`.
    """
    if hasattr(scheme, "sign"):
        check_methods(name, scheme, "sign")
    elif scheme is not None and not hasattr(scheme, "token") and not hasattr(scheme, "renew"):
        raise RequestInvalid(name, f"must have sign, or token and renew, which {type(scheme).__name__} lacks")
    else:
        check_methods(name, scheme, "token", "renew", sync="token")


def check_token(token: str) -> str:
    """Return *token* if it can stand in a header.

    Raises:
        RequestInvalid: It cannot. The error does not show it.
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
        del now  # It does not end.
        return self._token

    async def renew(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """See `Auth.renew`."""
        del rejected, exchange, now  # There is no other.
        return None

    def __repr__(self) -> str:
        return "StaticToken(***)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("StaticToken holds a credential and cannot be pickled")


class Seller:
    """The seller, as far as a client can tell: one token, or one source of tokens, is one seller."""

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
    """No token, for a client that only obtains tokens: every other call raises, and is not sent."""

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
    """Return the signer that *scheme* is, if it is one, and the source of the tokens of calls."""
    signer, tokens = cast("Signer", scheme), cast("Auth", scheme)
    return (signer, NoToken()) if hasattr(scheme, "sign") else (None, tokens)
