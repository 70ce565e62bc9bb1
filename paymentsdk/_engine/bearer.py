"""The bearer token of a client's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paymentsdk._auth.schemes import check_token

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Auth, Exchange


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
