"""The tokens of the sellers in the chaos run: they end early, and a person authorizes again what a kill has lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import urllib.request
from hashlib import sha256
from http.client import HTTPException
from random import Random
from typing import Any

from msgspec.structs import replace

from paymentsdk import PaymentsClient, PaymentsError, PostgresTokenStore, SQLiteTokenStore, TokenPair
from tests.chaos.worker import MUST_AUTHORISE, Diary, Plan, place_of, store_at

#: Seconds between two looks at the tokens.
EVERY = 0.5
#: Every so many looks a backup of the store is made, and after the last of them that of one seller restored.
RESTORED = 7
#: How often a seller gets a pair that ends within seconds by its own end; else the platform ends the one it has.
ENDING = 0.3


def control(base_url: str, method: str, path: str, body: object = None) -> bytes:
    """Make a request to the control API of a sandbox."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{base_url}/_sandbox/{path}", data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


class Tokens:
    """Ends tokens and makes new ones, as time and people do."""

    def __init__(self, plan: Plan, users: list[int]) -> None:
        self._plan, self._users = plan, users
        self._random = Random(f"{plan.seed}/tokens")
        self._ended: set[str] = set()
        self._read = 0
        self._backups: dict[int, TokenPair] = {}
        self.restored = 0
        """Backups of the store that were restored while clients lived."""

    def store(self, place: int) -> PostgresTokenStore | SQLiteTokenStore:
        """Where the pair of a seller is."""
        return store_at(self._plan, place)

    async def authorize(self, place: int, *, lives: float | None = None) -> None:
        """Have the seller authorize again, and keep the new pair: no token of it was ever rejected.

        Its end is that of the platform, or else *lives* so many seconds away.
        """
        sellers = json.loads(await self._control("GET", "tenants"))
        [seller] = [seller for seller in sellers if seller["user_id"] == self._users[place]]
        async with PaymentsClient(
            base_url=self._plan.base_url, client_id=self._plan.client_id, client_secret=self._plan.client_secret
        ) as client:
            token = await client.oauth.exchange_code(seller["authorization_code"])
        pair = token.pair()
        if lives is not None:
            pair = replace(pair, expires_at=time.time() + lives)
            ending = sha256(f"Bearer {pair.access_token}".encode()).hexdigest()
            Diary(self._plan.folder / "sent").write(user=self._users[place], ending=ending)
        await self.store(place).save(pair)

    async def expire(self, place: int) -> None:
        """End the token that the seller has now, unless it has ended already."""
        pair = await self.store(place).load()
        if pair is not None and pair.access_token not in self._ended:
            self._ended.add(pair.access_token)
            try:
                await self._control("POST", "tokens/revoke", {"token": pair.access_token})
            except OSError:
                self._ended.discard(pair.access_token)
                raise

    async def look_after(self) -> None:
        """End tokens at random, and have those authorize again who must, until this is cancelled."""
        for number in itertools.count():
            try:
                for place in self._lost():
                    await self.authorize(place)
                if number % RESTORED == 1:
                    await self._back_up()
                elif number % RESTORED == 0 and number:
                    await self._restore()
                for place in self._random.sample(range(len(self._users)), 1 + len(self._users) // 20):
                    if self._random.random() < ENDING:
                        await self.authorize(place, lives=self._random.uniform(1.0, 8.0))
                    else:
                        await self.expire(place)
            except (OSError, HTTPException, PaymentsError):
                pass  # The sandbox or the database is away.
            await asyncio.sleep(EVERY)

    async def _back_up(self) -> None:
        for place in range(len(self._users)):
            if (pair := await self.store(place).load()) is not None:
                self._backups[place] = pair

    async def _restore(self) -> None:
        """Restore the pair of a seller that had another since the backup: its refresh token is spent."""
        for place in self._random.sample(sorted(self._backups), len(self._backups)):
            if await self.store(place).load() != self._backups[place]:
                await self.store(place).save(self._backups.pop(place))
                self.restored += 1
                return

    def _lost(self) -> set[int]:
        """Return the sellers of whom a process was told that they must authorize again, since the last look."""
        path = self._plan.folder / "told"
        lines = path.read_text().splitlines()[self._read :] if path.exists() else []
        self._read += len(lines)
        return {place_of(line) for line in lines if MUST_AUTHORISE in line}

    async def _control(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(control, self._plan.base_url, method, path, body)
