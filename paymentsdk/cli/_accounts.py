"""The credentials of sellers by account, from a token store, a file or the environment.

All users of a machine can see the arguments of a command. So no option takes a token, and the address of a database
comes from the environment. A command refreshes tokens only if a token store keeps the new pair, because a refresh token
can be used once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tomllib
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from paymentsdk._auth.database_stores import PostgresTokenStore, SQLiteTokenStore
from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._auth.schemes import Auth, StaticToken
from paymentsdk._auth.token_store import FileTokenStore, TokenPair
from paymentsdk._database import close_shared
from paymentsdk._postgres import is_dsn
from paymentsdk._validate import check_path
from paymentsdk.cli._output import Output, print_output
from paymentsdk.cli._parsing import Commands, account_name, add_parser, file, suggestion
from paymentsdk.errors import RequestInvalid

#: The variable that names the token store; its value may have the password of a database.
TOKENS_VARIABLE = "PAYMENTSDK_TOKENS"
_STORE_HELP = (
    f"the token store: a SQLite file, or a folder with a JSON file for each account (default: {TOKENS_VARIABLE}); put "
    f"a postgresql:// address into {TOKENS_VARIABLE}"
)
_FILE_HELP = 'a JSON or TOML file with the tokens of several sellers: {"shop-1": "TEST-..."}'
Store: TypeAlias = FileTokenStore | SQLiteTokenStore | PostgresTokenStore


class _FileEntry(TokenPair, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry of an account in a file."""

    access_token: str = ""


class TokenStores:
    """The token stores of all accounts in one database or folder."""

    def __init__(self, address: str, *, create: bool = False) -> None:
        """Open the stores at *address*; with *create*, a missing file becomes a new database.

        Raises:
            RequestInvalid: The file or folder does not exist.
        """
        self._dsn = address if is_dsn(address) else None
        #: The name of the place in errors.
        self.place = "the token store in PostgreSQL" if self._dsn else address
        self._path = Path() if self._dsn else check_path("--tokens", address)
        if not (self._dsn or create or self._path.exists()):
            reason = f"there is no token store {address}; `paymentsdk tokens exchange` creates one"
            raise RequestInvalid("--tokens", reason)
        self._is_folder = not self._dsn and self._path.is_dir()

    def store(self, account: str) -> Store:
        """Return the store of *account*."""
        if self._dsn:
            return PostgresTokenStore(self._dsn, account)
        if not self._is_folder:
            return SQLiteTokenStore(self._path, account)
        if Path(account).name != account:
            raise RequestInvalid("ACCOUNT", f"{account!r} cannot be the name of a file in {self.place}")
        return FileTokenStore(self._path / f"{account}.json")

    async def names(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        if self._is_folder:
            return sorted(path.stem for path in self._path.glob("*.json"))
        store = PostgresTokenStore(self._dsn, "-") if self._dsn else SQLiteTokenStore(self._path, "-")
        return await store.names()

    async def pair(self, account: str) -> TokenPair:
        """Return the pair of *account*.

        Raises:
            RequestInvalid: The account has no pair, or the pair cannot be read.
        """
        try:
            pair = await self.store(account).load()
        except ValueError:  # The text of this error may have a token, so it is not shown.
            pair = None
        if pair is None:
            reason = f"{account}: {self.place} has no token pair for it, or a sealed pair, which no command can read"
            raise RequestInvalid("--tokens", f"{reason}; run `paymentsdk tokens exchange {account}`")
        return pair


class Sellers(Struct, frozen=True):
    """The accounts that a command may use."""

    place: str
    """The source of the accounts, as errors name it."""
    auth: Mapping[str, Auth] = {}
    """The authentication of each account; empty if neither an option nor the environment names a source."""

    def check(self, account: str) -> str:
        """Return *account* if it has credentials.

        Raises:
            RequestInvalid: The account has no credentials.
        """
        if not self.auth:
            reason = f"needs a token store: name it with --tokens or {TOKENS_VARIABLE}, or a file with --accounts"
            raise RequestInvalid("--account", reason)
        if account not in self.auth:
            reason = f"{self.place} has no account {account!r}{suggestion(account, self.auth)}"
            raise RequestInvalid("--account", f"{reason}; `paymentsdk tokens list` shows those of a token store")
        return account


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where credentials come from."""
    add_store(parser)
    parser.add_argument("--accounts", type=file, metavar="FILE", help=_FILE_HELP)


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a token store."""
    parser.add_argument("--tokens", type=file, metavar="FILE", help=_STORE_HELP)


def stores_of(options: argparse.Namespace, *, create: bool = False) -> TokenStores | None:
    """Return the token stores that *options* or the environment name; `None` without a name."""
    address = options.tokens or os.environ.get(TOKENS_VARIABLE)
    return TokenStores(address, create=create) if address else None


async def sellers_of(options: argparse.Namespace) -> Sellers:
    """Return the accounts of the file or, without a file, of the token store that *options* or the environment name.

    Raises:
        RequestInvalid: A file, store or account is missing or invalid. The error shows no token.
    """
    stores, auth = stores_of(options, create=bool(options.accounts)), dict[str, Auth]()
    if options.accounts:
        option, place = "--accounts", options.accounts
        auth = {account: _auth(place, entry, stores, account) for account, entry in _read(place).items()}
    elif stores:
        option, place = "--tokens", stores.place
        auth = {account: RefreshingToken(store=stores.store(account)) for account in await stores.names()}
    else:
        return Sellers("the environment")
    if not auth:
        raise RequestInvalid(option, f"{place} has no account")
    for name in auth:
        try:
            account_name(name)
        except argparse.ArgumentTypeError as error:
            raise RequestInvalid(option, f"{place}: {error}") from None
    return Sellers(place, auth)


def _auth(place: str, entry: object, stores: TokenStores | None, account: str) -> Auth:
    """Return the authentication of *account* by its *entry*, which is a token or a `_FileEntry`."""
    try:
        pair = msgspec.convert({"access_token": entry} if isinstance(entry, str) else entry, _FileEntry)
        if pair.refresh_token is None and pair.access_token:
            return StaticToken(pair.access_token)
        if pair.refresh_token and stores:
            # A refresh token alone counts as an expired pair, which the first call refreshes.
            token, expires_at = (pair.access_token, pair.expires_at) if pair.access_token else ("-", 0.0)
            first = TokenPair(access_token=token, refresh_token=pair.refresh_token, expires_at=expires_at)
            return RefreshingToken(first, store=stores.store(account))
        reason = "give access_token or refresh_token"
        if pair.refresh_token:
            reason = "a refresh token can be used once; name a token store that keeps the new one with --tokens"
    except msgspec.ValidationError as error:
        reason = f"{error}; its members are {', '.join(_FileEntry.__struct_fields__)}"
    except RequestInvalid as error:
        reason = error.reason
    raise RequestInvalid("--accounts", f"{place}: {account}: {reason}")


# --- the file -----------------------------------------------------------------------------------------------------


def _read(path: str) -> dict[str, object]:
    """Return the entry of each account in the file at *path*."""
    try:
        content = Path(path).read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise RequestInvalid("--accounts", f"cannot be read: {error}") from None
    is_toml = path.lower().endswith(".toml")
    try:
        entries = tomllib.loads(content.decode()) if is_toml else msgspec.json.decode(content)
    except ValueError:
        entries = None
    if not isinstance(entries, dict):  # The text of the parser's error may have a token, so it is not shown.
        form = 'valid TOML such as shop-1 = "TEST-..."' if is_toml else 'a JSON object such as {"shop-1": "TEST-..."}'
        raise RequestInvalid("--accounts", f"{path} is not {form}")
    return entries


# --- commands on a store ------------------------------------------------------------------------------------------


def add_command(
    commands: Commands, name: str, command: Callable[..., Awaitable[Output]], summary: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Add a *command* on a store. The option `opened` returns the context of the store with the options."""
    parser = add_parser(commands, name, summary, _run, epilog=epilog)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(command=command)
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run the command in *options* on its store, close the databases, print the result, and return the exit code."""
    opened: AbstractAsyncContextManager[object] = options.opened(options)

    async def run_and_close() -> Output:
        end_at_sigterm()
        try:
            async with opened as store:
                output: Output = await options.command(store, options)
                return output
        finally:
            await close_shared()

    return print_output(asyncio.run(run_and_close()), as_json=options.json)


def existing(option: str, place: str, variable: str, noun: str) -> str:
    """Return *place*: the address of a database, or a file with data.

    Raises:
        FileNotFoundError: The file is missing or empty. A new file would look as if nothing was open.
    """
    if not is_dsn(place) and not ((path := check_path(option, place)).is_file() and path.stat().st_size):
        raise FileNotFoundError(f"there is no {noun} {place!r}; name it with {option} or {variable}")
    return place


def end_at_sigterm() -> None:
    """Make SIGTERM, by which a scheduler ends a job, act like Ctrl-C: a refresh in flight still saves its pair."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
