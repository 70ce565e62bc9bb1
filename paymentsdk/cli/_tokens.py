"""``paymentsdk tokens exchange``, ``list`` and ``refresh``: commands for the tokens of many sellers.

The authorization code comes from stdin, and the application from the environment, because all users of a machine can
see arguments. No command prints a token.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from paymentsdk._auth.token_store import certain_user_id
from paymentsdk.cli._accounts import Store, TokenStores, add_command, add_store, stores_of
from paymentsdk.cli._output import Output, Row, counted, in_terminal, say, table_of
from paymentsdk.cli._parsing import account_name, suggestion
from paymentsdk.errors import PaymentsError, ReauthorizationRequired, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

_AGAIN = "authorize again"
_STATES = f"""\
states: ok; refresh due (run `paymentsdk tokens refresh`); {_AGAIN} (the
refresh token is missing or spent: the seller has to authorize your application
again before the access token expires); unreadable (sealed or damaged)
"""
_CODE = """\
The authorization code is read from stdin. The address of the platform comes
from PAYMENTSDK_BASE_URL, and the credentials of your application come from
PAYMENTSDK_CLIENT_ID and PAYMENTSDK_CLIENT_SECRET.
"""


def add_arguments(tokens: argparse.ArgumentParser) -> None:
    """Add the commands of `tokens`."""
    tokens.set_defaults(opened=_opened)
    within = tokens.add_subparsers(title="commands", metavar="COMMAND", required=True)
    about = "exchange an authorization code, and save the token pair"
    exchange = add_command(within, "exchange", _exchange, about, _CODE)
    exchange.add_argument("account", type=account_name, metavar="ACCOUNT", help="your name for the seller")
    exchange.add_argument("--redirect-uri", metavar="URI", help="the redirect URI of your application, if it has one")
    add_command(within, "list", _list, "list the accounts with the state and expiry of their tokens", _STATES)
    about = "refresh all tokens that are due, or the tokens of the named accounts"
    refresh = add_command(within, "refresh", _refresh, about, f"{_STATES}\nThe exit code is 1 if a refresh failed.\n")
    refresh.add_argument("accounts", nargs="*", metavar="ACCOUNT", help="an account to refresh even if it is not due")
    for parser in within.choices.values():
        add_store(parser)


def _opened(options: argparse.Namespace) -> AbstractAsyncContextManager[TokenStores]:
    stores = stores_of(options, create=options.command is _exchange)
    if stores is None:
        raise argparse.ArgumentTypeError("name the token store with --tokens, or PAYMENTSDK_TOKENS")
    if (
        options.command is _exchange
    ):  # Without an event loop, in which the first Ctrl-C would not end the wait for stdin.
        options.code = _code()
    return nullcontext(stores)


def _application() -> PaymentsClient:
    """Return the client of the application in the environment."""
    from paymentsdk.client import PaymentsClient

    for variable in ("PAYMENTSDK_CLIENT_ID", "PAYMENTSDK_CLIENT_SECRET"):
        if not os.environ.get(variable):
            raise RequestInvalid(variable, "is not set; set it to the value of your application")
    return PaymentsClient.from_env()


# --- exchange -----------------------------------------------------------------------------------------------------


def _code() -> str:
    """Return the authorization code from stdin."""
    if in_terminal(sys.stdin):
        say("paste the authorization code, and press Enter:")
    code = sys.stdin.readline().strip() if sys.stdin is not None else ""
    if not code:
        raise argparse.ArgumentTypeError("stdin has no authorization code")
    return code


async def _exchange(stores: TokenStores, options: argparse.Namespace) -> Output:
    store = stores.store(options.account)
    async with _application() as client, store.lock():
        keeping = asyncio.ensure_future(_keep(client, store, stores.place, options))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            say("waiting for the token pair, because a code can be used once; press Ctrl-C again to lose it")
            await keeping
    row = await _row(stores, options.account)
    return Output(row, table_of([row], ""))


async def _keep(client: PaymentsClient, store: Store, place: str, options: argparse.Namespace) -> None:
    """Exchange the code, and save the pair."""
    former = await store.load()
    await store.prepare()
    account = options.account
    try:
        pair = (await client.oauth.exchange_code(options.code, redirect_uri=options.redirect_uri)).pair()
    except PaymentsError as error:
        raise ValueError(f"{account}: {error}") from None
    before, seller = (certain_user_id(former.access_token) if former else None), certain_user_id(pair.access_token)
    if before and seller and before != seller:
        # If this pair was saved, calls for one seller would be made for another.
        reason = f"{account!r} is user {before} in {place}, but the code belongs to user {seller}"
        raise RequestInvalid("ACCOUNT", f"{reason}; choose another name, and let the seller authorize again")
    await store.save(pair)


# --- list ---------------------------------------------------------------------------------------------------------


async def _list(stores: TokenStores, _options: argparse.Namespace) -> Output:
    rows = [await _row(stores, account) for account in await stores.names()]
    return Output(rows, table_of(rows, f"{stores.place} has no account"))


async def _row(stores: TokenStores, account: str, state: str | None = None) -> Row:
    """Return the printed fields of the pair of *account*, without its tokens."""
    from paymentsdk._auth.refresh import RefreshingToken

    try:
        pair = await stores.pair(account)
    except RequestInvalid:
        return {"account": account, "seller": None, "state": "unreadable", "expires": None}
    due = "ok" if RefreshingToken(pair).token(time.time()) else "refresh due"
    expires = None if pair.expires_at is None else datetime.fromtimestamp(int(pair.expires_at), UTC)
    state = state or (due if pair.refresh_token else _AGAIN)
    return {"account": account, "seller": certain_user_id(pair.access_token), "state": state, "expires": expires}


# --- refresh ------------------------------------------------------------------------------------------------------


async def _refresh(stores: TokenStores, options: argparse.Namespace) -> Output:
    from paymentsdk._auth.refresh import RefreshingToken
    from paymentsdk._call.engine import engine_of

    names = await stores.names()
    for account in options.accounts:
        if account not in names:
            reason = f"{stores.place} has no account {account!r}{suggestion(account, names)}"
            raise RequestInvalid("ACCOUNT", f"{reason}; `paymentsdk tokens list` shows all")
    rows: list[Row] = []
    code = 0
    async with _application() as client:
        engine = engine_of(client)
        for account in options.accounts or names:
            try:
                pair, now = await stores.pair(account), time.time()
                token = RefreshingToken(pair, store=stores.store(account))
                if options.accounts or not token.token(now):
                    # As after a rejection: if another process has just refreshed the pair, its result is used.
                    await token.renew(pair.access_token, partial(engine.runtime.exchange, engine), now)
                    rows.append(await _row(stores, account))
            except (PaymentsError, OSError) as error:
                say(f"paymentsdk: {account}: {error}")
                # After `invalid_client`, the credentials of the application are wrong, and the grant is still valid.
                is_spent = isinstance(error, ReauthorizationRequired) and error.code != "invalid_client"
                rows.append(await _row(stores, account, _AGAIN if is_spent else None))
                code = 1
    return Output(rows, table_of(rows, f"no token is due, of {counted(len(names), 'account')}"), code=code)
