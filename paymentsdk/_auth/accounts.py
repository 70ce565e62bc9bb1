"""Sellers by name, for a program that works for many sellers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._auth.schemes import AuthScheme, StaticToken, check_scheme
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._secrets import masked
from paymentsdk.errors import PaymentsError, RequestInvalid, describe

#: The credentials of a seller: an access token, a pair to refresh, or an auth scheme.
AccountCredentials: TypeAlias = str | TokenPair | AuthScheme
#: Returns the credentials of an account, by its name.
AccountResolver: TypeAlias = Mapping[str, AccountCredentials] | Callable[[str], AccountCredentials]

# The name is used in logs, metrics, file names and keys.
_NAME = re.compile(r"[!-~]{1,100}\Z")


class Accounts:
    """The accounts of a client. Each name is looked up once; its auth scheme is kept as long as the client lives."""

    __slots__ = ("_known", "_resolve")

    def __init__(self, resolver: AccountResolver) -> None:
        self._resolve = resolver
        self._known: dict[str, AuthScheme] = {}

    def auth(self, name: str) -> AuthScheme:
        """Return the auth scheme of the account *name*: the same object each time, so that its refresh is shared.

        Raises:
            RequestInvalid: The name is invalid, or the resolver has no credentials for it.
        """
        if not isinstance(name, str) or not _NAME.match(name):
            raise RequestInvalid("account", "must be 1 to 100 visible ASCII characters")
        name = str.__str__(name)
        auth = self._known.get(name)
        if auth is None:
            auth = self._known[name] = _scheme(name, self._look_up(name))
        return auth

    def _look_up(self, name: str) -> object:
        resolve = self._resolve
        try:
            return masked(resolve[name] if isinstance(resolve, Mapping) else resolve(name))
        except KeyError:
            raise RequestInvalid(f"accounts[{name!r}]", "is not a known account") from None
        except PaymentsError:
            raise
        except Exception as error:  # noqa: BLE001 - a resolver's error text may contain a credential
            raise RequestInvalid(f"accounts[{name!r}]", f"the resolver raised {describe(error)}") from None


def _scheme(name: str, credentials: object) -> AuthScheme:
    if isinstance(credentials, str):
        return StaticToken(credentials)
    if isinstance(credentials, TokenPair):
        return RefreshingToken(credentials)
    place = f"accounts[{name!r}]"
    if credentials is None:
        raise RequestInvalid(place, "is not a known account")
    scheme = cast("AuthScheme", credentials)
    check_scheme(place, scheme)
    return scheme
