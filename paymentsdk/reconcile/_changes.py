"""What has changed since the walk: a second walk over `last_updated`, so that all rows speak of one time.

A row that changes leaves its range of `last_updated` and enters a later one. So ranges are walked from the earliest to
the latest, each after it has ended: a row that changes meanwhile is met again. The last range has no end, and has to
come as one page, which is one moment: whatever changed before is in it, or in a range before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from paymentsdk.errors import NotWhole
from paymentsdk.reconcile._certificate import Split, Whole, is_atomic
from paymentsdk.reconcile._rows import Rows, keepable, write
from paymentsdk.reconcile._search import Search
from paymentsdk.reconcile._tasks import together
from paymentsdk.reconcile._walk import not_whole
from paymentsdk.reconcile._walker import MOST_IN_FLIGHT, MOST_PENDING, examined
from paymentsdk.reconcile._windows import Rules, Window

#: Ranges without an end that are asked for until one comes as one page.
MOST_ROUNDS = 20
#: No row is too old for its changes to be shown, as long as it is shown at all.
_EVER = 10**15


class Changes(NamedTuple):
    """What has changed."""

    files: list[Path]
    as_of: int | None
    """Until when, in milliseconds since 1970; `None` if no such moment is known."""
    not_whole: list[NotWhole]


@dataclass
class ChangesWalk:
    """Walks all changes of some accounts."""

    search: Search
    rules: Rules
    directory: Path
    """Where files go."""
    told: Callable[[float], None]
    """Called with the part that is done, 0 to 1."""

    _rows: list[Rows] = field(default_factory=list)
    _files: list[Path] = field(default_factory=list)
    _not_whole: list[NotWhole] = field(default_factory=list)

    async def run(self, since: int) -> Changes:
        """Write the rows that have changed from *since* on, in milliseconds since 1970."""
        proof = await self.search.prove("last_updated")
        if proof.grain is None:
            return Changes([], None, [])
        self.rules = replace(self.rules, grain=proof.grain, horizon=_EVER)
        turn, done, names = asyncio.Semaphore(MOST_IN_FLIGHT), count(1), list(self.search.accounts)

        async def one(name: str) -> int | None:
            async with turn:
                moment = await self._account(name, since)
            self.told(next(done) / len(names))
            return moment

        moments = await together(one(name) for name in names)
        await self._flush()
        known = [one for one in moments if one is not None]
        as_of = min(known) if len(known) == len(moments) and not self._not_whole else None
        return Changes(self._files, as_of, self._not_whole)

    async def _account(self, name: str, begin: int) -> int | None:
        for _ in range(MOST_ROUNDS):
            page = await self.search.page(name, begin - self.rules.grain, None, 0, by="last_updated")
            if page is None:
                return None
            if is_atomic(page, self.rules):
                rows = Rows(name)
                rows.add(page.ids, page.rows, page.now)
                await self._keep(Window(begin, page.now), rows)
                return page.now
            if begin < page.now and not await self._ranges(name, Window(begin, page.now)):
                return None
            begin = max(begin, page.now)
        return None

    async def _ranges(self, name: str, whole: Window) -> bool:
        """Walk ranges that have ended, the earliest first; tell whether all of them were whole."""
        stack = [whole]
        while stack:
            window = stack.pop()
            verdict, rows = await examined(self.search, self.rules, name, window, by="last_updated")
            if isinstance(verdict, Split):
                stack += reversed(verdict.pieces)
                continue
            await self._keep(window, rows.take(verdict.rows))
            if not isinstance(verdict, Whole):
                reason = f"what has changed in this time: {verdict.reason}"
                self._not_whole.append(not_whole(name, window, verdict.seen, verdict.total, reason))
                return False
        return True

    async def _keep(self, window: Window, rows: Rows) -> None:
        rows, reason = keepable(rows)
        if reason is not None:
            self._not_whole.append(not_whole(rows.account, window, len(rows), len(rows), reason))
        self._rows.append(rows)
        if sum(map(len, self._rows)) >= MOST_PENDING:
            await self._flush()

    async def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if any(rows):
            path = self.directory / f"{len(self._files):06}.parquet"
            self._files.append(path)
            await asyncio.to_thread(write, rows, path)
