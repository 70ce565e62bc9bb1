"""Whose calls a client makes: the bearer token of its requests, or their signatures."""

from __future__ import annotations

import re
from inspect import isawaitable
from typing import TYPE_CHECKING

from msgspec import structs

from paymentsdk._auth.schemes import check_token
from paymentsdk._headers import OF_THE_TRANSPORT, check_headers, masked_values, merged
from paymentsdk.transports.base import Headers, Request

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Auth, Exchange, Signer


#: The platform's user id is the last part of an access token (4.1).
_USER_ID = re.compile(r"(?:APP_USR|TEST)-.+-([0-9]{1,20})\Z")


def user_id(token: str | None) -> str | None:
    """Return the platform's user id in *token*, or `None` if it names none."""
    found = None if token is None else _USER_ID.match(token)
    return found and found[1]


class Bearer:
    """Takes tokens from their source, and looks whether they can stand in a header: at each of them once."""

    __slots__ = ("_auth", "_checked")

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._checked: str | None = None

    def token(self, now: float) -> str | None:
        """Return the token to use at *now*, or `None` if one has to be waited for.

        Raises:
            RequestInvalid: It cannot stand in a header.
        """
        token = self._auth.token(now)
        return token if token is self._checked else self._check(token)

    async def refresh(self, rejected: str | None, exchange: Exchange, now: float) -> str | None:
        """Return another token than *rejected*; `None` if there can be none.

        Raises:
            RequestInvalid: It cannot stand in a header.
        """
        return self._check(await self._auth.renew(rejected, exchange, now))

    def _check(self, token: str | None) -> str | None:
        if token is not None and token is not self._checked:
            check_token(token)
            self._checked = token
        return token


async def sign(signer: Signer, request: Request, now: float, key_header: str) -> tuple[Request, tuple[str, ...]]:
    """Return *request* with the header fields of its signature, and their values, which nothing may show.

    Raises:
        RequestInvalid: Something in them cannot stand in a header, or is not theirs to set: with another key, in
            *key_header*, an attempt would be another request.
    """
    given = signer.sign(request, now)
    reserved = OF_THE_TRANSPORT | {"content-type", key_header.lower()}
    fields = check_headers(await given if isawaitable(given) else given, "auth.sign", reserved=reserved)
    headers = Headers(merged(request.headers, masked_values(fields)))
    return structs.replace(request, headers=headers), tuple(fields.values())
