"""A fair queue for connections."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from math import inf
from typing import TypeAlias

from paymentsdk.transports._sockets import shared_buffer

#: Scheme, host and port, or the like: what a limit per host counts by.
Host: TypeAlias = tuple[str, int | None, bool]
#: Stands for all of them where there is no such limit.
ANY: Host = ("", None, False)


class Gate:
    """Places for requests, in all and per host, given to those who wait in the order in which they asked.

    aiohttp lets a task that gives its place back take it again before the task that waits for it has a turn: under
    a limit, a few that send one request after the other keep all others out.
    """

    def __init__(self, limit: int, limit_per_host: int) -> None:
        self.per_host: float = limit_per_host or inf
        self.buffer = shared_buffer()
        #: Connections that are open, in use or idle.
        self.connections = 0
        self._free: float = limit or inf
        self._taken: Counter[Host] = Counter()
        self._waiting: dict[Host, OrderedDict[asyncio.Future[None], int]] = {}
        self._asked = 0

    def enter(self, host: Host) -> bool:
        """Take a place, if there is one: then nobody waits for it."""
        if self._free < 1:
            return False
        if self.per_host is not inf:
            if self._taken[host] >= self.per_host:
                return False
            self._taken[host] += 1
        self._free -= 1
        return True

    async def wait(self, host: Host) -> None:
        """Wait for a place."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(host, OrderedDict())
        self._asked += 1
        line[place] = self._asked
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave(host)  # It was given a place all the same.
            raise
        finally:
            line.pop(place, None)
            if not line and self._waiting.get(host) is line:
                del self._waiting[host]

    def leave(self, host: Host) -> None:
        """Give a place back, to whoever has waited longest for one like it."""
        self._free += 1
        if self.per_host is not inf:
            self._taken[host] -= 1
            if not self._taken[host]:
                del self._taken[host]
        while self._waiting and (first := self._first()) is not None and self.enter(first):
            line = self._waiting[first]
            place, _ = line.popitem(last=False)
            if not line:
                del self._waiting[first]
            if place.done():
                self.leave(first)
            else:
                place.set_result(None)

    def _first(self) -> Host | None:
        waiting = [host for host in self._waiting if self._taken[host] < self.per_host]
        return min(waiting, key=lambda host: next(iter(self._waiting[host].values())), default=None)
