"""Deadlines of all calls in flight, with one timer.

A timer per call (``asyncio.timeout``, or the three that aiohttp would start) costs more than the rest of the engine.
Here a call puts itself on a list, and one alarm rings for the nearest deadline on it. As long as calls end in time,
that is about one alarm per timeout, not one per call.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from paymentsdk._clock import Alarm, Clock


#: Seconds between two rings at least, so that ten thousand calls that hang are not looked through ten thousand times.
REST = 0.005


class Deadline(Struct, eq=False):
    """The deadline of one task.

    Attributes:
        task: The task.
        when: The deadline.
        cancelling: How many cancellations were under way when the watch began.
        expired: It was cancelled by its deadline, and by nobody else.
    """

    task: asyncio.Task[object]
    when: float
    cancelling: int
    expired: bool = False

    def uncancel(self) -> bool:
        """Take back the cancellation now in the air, if it is this deadline's; return whether it was.

        A cancellation by someone else, at the same moment or before, is not ours to swallow.
        """
        if not self.expired:
            return False
        self.expired = False
        return self.task.uncancel() <= self.cancelling

    def cancelled_by_others(self) -> bool:
        """Whether somebody else has cancelled the task since the watch began."""
        return self.task.cancelling() - self.expired > self.cancelling


class Deadlines:
    """Cancels the tasks that outlive their deadlines."""

    __slots__ = ("_alarm", "_clock", "_live", "_next")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: set[Deadline] = set()
        self._next = inf
        self._alarm: Alarm | None = None

    def add(self, when: float, loop: asyncio.AbstractEventLoop | None = None) -> Deadline:
        """Cancel the current task (of *loop*, if given) when the clock reaches *when*, unless it is released before."""
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a call has to run inside a task")
        watch = Deadline(task, when, task.cancelling())
        self._live.add(watch)
        if when < self._next:
            self._ring_at(when)
        return watch

    def reset(self, watch: Deadline, when: float) -> None:
        """Give *watch* another deadline."""
        watch.when = when
        self._live.add(watch)  # It has left the list if it rang for an earlier deadline.
        if when < self._next:
            self._ring_at(when)

    def remove(self, watch: Deadline) -> None:
        """Forget *watch*: its call is over."""
        self._live.discard(watch)

    def close(self) -> None:
        """Stop the alarm, unless a call still needs it."""
        if self._alarm is not None and not self._live:
            self._alarm.cancel()
            self._next = inf

    def _ring_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._next = when
        self._alarm = self._clock.call_at(when, self._ring)

    def _ring(self) -> None:
        self._next = inf
        self._alarm = None
        now = self._clock.monotonic()
        for watch in [watch for watch in self._live if watch.when <= now]:
            self._live.discard(watch)
            watch.expired = True
            watch.task.cancel()
        nearest = min((watch.when for watch in self._live), default=inf)
        if nearest < inf:
            self._ring_at(max(nearest, now + REST))
