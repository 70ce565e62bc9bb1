"""A fair queue for the connections of a pool."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from itertools import count
from math import inf
from typing import TypeAlias, TypeVar

from paymentsdk.transports._pool import Pool, closed_while_waiting, overslept
from paymentsdk.transports.base import UNSENT, PoolFull

C = TypeVar("C")
#: Who waits for a place: with a number, by which they came, and the host.
Queue: TypeAlias = OrderedDict[asyncio.Future[None], tuple[int, Hashable]]


class FairPool(Pool[C]):
    """A pool with a place for each request, given out in turn.

    Whoever gives a place back queues up behind those who wait. Where a connection goes to whoever asks first, few
    tasks that send one request after the other keep all others out.
    """

    def __init__(self, limit: int, limit_per_host: int) -> None:
        super().__init__()
        self.limit: float = limit or inf
        self.limit_per_host: float = limit_per_host or inf
        self.counts_hosts: bool = limit_per_host > 0
        self._taken = 0
        self._taken_of: Counter[Hashable] = Counter()
        #: Who waits, in a queue for each host: those for one that is full are in nobody's way. With each, its number.
        self._waiting: dict[Hashable, Queue] = {}
        self._numbers = count()

    @property
    def in_flight(self) -> int:
        """How many places are taken."""
        return self._taken

    def enter(self, host: Hashable) -> bool:
        """Take a place for a request to *host*, if there is one: then nobody waits for it."""
        if self._taken >= self.limit:
            return False
        if self.counts_hosts:
            if self._taken_of[host] >= self.limit_per_host:
                return False
            self._taken_of[host] += 1
        self._taken += 1
        return True

    async def wait(self, host: Hashable, within: float | None) -> float | None:
        """Wait for a place for at most *within* seconds; return what is left of them to connect in.

        Raises:
            PoolFull: There was none in time.
            ClientClosed: The pool was closed meanwhile.
        """
        place = self.loop.create_future()
        queue = self._waiting.setdefault(host, OrderedDict())
        queue[place] = next(self._numbers), host
        since, began = self.loop.time(), time.time()
        try:
            async with asyncio.timeout(within):
                await place
        except (TimeoutError, asyncio.CancelledError) as error:
            if not place.cancelled():
                self.leave(host)  # It was given a place all the same.
            if isinstance(error, asyncio.CancelledError):
                setattr(error, UNSENT, True)
                raise
        else:
            if self.closed:
                raise closed_while_waiting()
            if not overslept(began, within):
                return None if within is None else within - (self.loop.time() - since)
            self.leave(host)
        finally:
            queue.pop(place, None)
            if not queue and self._waiting.get(host) is queue:
                del self._waiting[host]
        raise PoolFull("no connection in time: all connections that the pool may have are in use", sent=False)

    def leave(self, host: Hashable) -> None:
        """Give a place back, to whoever has waited longest for one like it."""
        self._taken -= 1
        if self.counts_hosts:
            self._taken_of[host] -= 1
        while self._waiting and (queue := self._next_queue()) is not None:
            place, (_, asked) = queue.popitem(last=False)
            if not place.done():  # Else it was cancelled, and is about to leave.
                self.enter(asked)
                place.set_result(None)
                break
        if self.usable_on is None:
            self.one_has_left()

    def _next_queue(self) -> Queue | None:
        """Return the queue whose first has waited longest, among those whose host has a place."""
        full = self.limit_per_host
        free = [queue for host, queue in self._waiting.items() if queue and self._taken_of[host] < full]
        return min(free, key=lambda queue: next(iter(queue.values()))[0], default=None)

    async def abort(self) -> None:
        """See `Pool.abort`."""
        await super().abort()
        with suppress(RuntimeError):  # Nobody waits on an event loop that is closed.
            for place in [place for queue in self._waiting.values() for place in queue]:
                if not place.done():
                    place.set_result(None)
