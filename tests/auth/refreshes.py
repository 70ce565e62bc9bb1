"""A process that needs a new token at once: `python -m tests.auth.refreshes WHERE FOLDER [DIES]`.

WHERE is a file, or the address of a database. The platform is a file that everybody appends to: the first to send a
refresh token gets the next pair. DIES is `before` or `after` the platform has issued it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from paymentsdk import PostgresTokenStore, ReauthorizationRequired, RefreshingToken, SQLiteTokenStore, TokenPair

NOW = 1_700_000_000.0


def store_at(address: str) -> PostgresTokenStore | SQLiteTokenStore:
    """Return the store of the one seller."""
    store_type = PostgresTokenStore if address.startswith("postgresql:") else SQLiteTokenStore
    return store_type(address, "shop-1")


def pair(number: int) -> TokenPair:
    """The pair of this number; it ends before the next one begins."""
    return TokenPair(access_token=f"access-{number}", refresh_token=f"refresh-{number}", expires_at=NOW + 600 * number)


def note(path: Path, line: str) -> None:
    """Write a line that survives this process."""
    with path.open("a") as file:
        file.write(f"{line}\n")


async def run(address: str, folder: Path, dies: str) -> str:
    """Get a token, and return it."""

    async def exchange(refresh_token: str) -> TokenPair:
        note(folder / "asked", refresh_token)
        if dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if f"{refresh_token} spent\n" in (folder / "issued").read_text():
            raise ReauthorizationRequired(401, "invalid_grant", "it was spent before")
        note(folder / "issued", f"{refresh_token} spent")
        await asyncio.sleep(0.05)
        if dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return pair(int(refresh_token.removeprefix("refresh-")) + 1)

    token = RefreshingToken(store=store_at(address))
    try:
        return await token.renew(None, exchange, NOW + 600) or "none"
    except ReauthorizationRequired:
        return "must authorize again"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(run(sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:]))))
