"""Timeouts, and the deadlines of all calls in flight with one timer.

A timer per call (``asyncio.timeout``, or the three that aiohttp would start) costs more than the rest of the engine.
Instead, a call adds its deadline to a set, and one timer fires for the nearest deadline. As long as calls end in time,
that is about one timer per timeout, not one per call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from msgspec import Struct

from paymentsdk._clock import Alarm, Clock
from paymentsdk._validate import check_seconds

T = TypeVar("T")

#: The least seconds between two firings: ten thousand calls that hang must not be searched ten thousand times.
REST = 0.005


class Timeout(Struct, frozen=True):
    """Time limits in seconds: above 0 and at most 86,400, or ``None`` for no limit."""

    total: float | None = 60.0
    """The whole call, 60 s by default. This is a true deadline: it covers the wait for a connection, every attempt to
    its last byte, the pauses between attempts, and the wait for a token refresh. Each page of a search is a call. With
    `once=` it limits the attempts of a write. The waits for the journal, and for another call of this client with the
    same name, come on top. The decoding of a large page comes on top, too."""
    attempt: float | None = 30.0
    """One attempt, to the last byte of its response, 30 s by default. It includes the wait for a first token and the
    signature, but not the wait for a permit of `flow`."""
    connect: float | None = 5.0
    """The wait for a pooled or new connection, 5 s by default. If it expires, nothing was sent. For a key that was sent
    before, it also ends 23 hours after the key was first sent."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                check_seconds(f"timeout.{name}", value)


class RefreshTimeout(Timeout, frozen=True):
    """The time limit of a token refresh, set as `refresh_timeout`: `total`, and half of it per attempt."""


def end_of_attempt(timeout: Timeout, now: float, deadline: float) -> float:
    """Return when an attempt that begins *now* must end, in a call that ends at *deadline*."""
    limit = timeout.attempt
    return deadline if limit is None or now + limit > deadline else now + limit


def connect_timeout(timeout: Timeout, left: float) -> float:
    """Return how long an attempt that has *left* seconds may wait for a connection.

    The wait must end before the attempt does: an attempt that is cut off after the wait may have been sent.
    """
    connect = timeout.connect
    return 0.9 * left if connect is None else min(connect, 0.9 * left)


class Expired(Exception):  # noqa: N818 - it never leaves the call
    """Our own deadline ended a wait. Its cause is the exception that the awaited work raised."""


class Deadline(Struct, eq=False):
    """The deadline of one task: of a call, and of its current attempt."""

    task: asyncio.Task[object]
    when: float
    cancelling: int
    """How many cancellations were pending when it was set."""
    total: float
    """When the call must end, after any number of attempts."""
    timeout: Timeout
    """The time limits that the deadlines come from."""
    expired: bool = False
    """Whether this deadline has cancelled the task."""

    @property
    def ran_out(self) -> str:
        """The time limit that ended the wait, in words, as the caller has set it."""
        timeout, attempt = self.timeout, self.when < self.total
        if isinstance(timeout, RefreshTimeout):
            return f"the time ran out ({'half of ' * attempt}refresh_timeout={timeout.total:g} s)"
        name = "attempt" if attempt else "total"
        return f"the time ran out (timeout.{name}={getattr(timeout, name):g} s)"

    def uncancel(self) -> bool:
        """Take back the pending cancellation if it is this deadline's; return whether it was.

        A cancellation by other code, at the same moment or before, is left in place.
        """
        if not self.expired:
            return False
        self.expired = False
        return self.task.uncancel() <= self.cancelling

    async def bound(
        self, work: Awaitable[T], undo: Callable[[T], object] | None = None, *, may_be_late: bool = False
    ) -> T:
        """Await *work* until this deadline. Only this method takes back our own cancellation.

        Args:
            work: The awaitable. It may swallow a cancellation, or turn it into another error.
            undo: Called with the result of *work* if *work* returns despite a cancellation.
            may_be_late: Whether such a late result counts. A response does.

        Raises:
            Expired: This deadline ended the wait. The error names the time limit.
            asyncio.CancelledError: Other code has cancelled the task.
        """
        try:
            result = await work
        except (asyncio.CancelledError, Exception) as error:
            if self.uncancel():
                raise Expired(self.ran_out) from error
            raise
        if may_be_late:
            if self.expired:
                self.uncancel()
        elif self.expired or self.cancelled_by_others():
            if undo is not None:
                undo(result)
            del result  # It may be a credential, which no traceback may show.
            if self.uncancel():
                raise Expired(self.ran_out)
            raise asyncio.CancelledError
        return result

    def cancelled_by_others(self) -> bool:
        """Return whether other code has cancelled the task since the deadline was set."""
        return self.task.cancelling() - self.expired > self.cancelling


class Deadlines:
    """Cancels the tasks that outlive their deadlines."""

    __slots__ = ("_clock", "_live", "_next", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: set[Deadline] = set()
        self._next = inf
        self._timer: Alarm | None = None

    def add(self, timeout: Timeout, now: float, loop: asyncio.AbstractEventLoop | None = None) -> Deadline:
        """Cancel the current task (of *loop*, if given) when *timeout* expires after *now*, unless removed before."""
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a call has to run inside a task")
        when = total = inf if timeout.total is None else now + timeout.total
        if timeout.attempt is not None and now + timeout.attempt < total:
            when = now + timeout.attempt
        deadline = Deadline(task, when, task.cancelling(), total, timeout)
        self._live.add(deadline)
        if when < self._next:
            self._schedule(when)
        return deadline

    def reset(self, deadline: Deadline, when: float) -> None:
        """Move *deadline* to another time."""
        deadline.when = when
        self._live.add(deadline)  # It left the set if it fired for an earlier time.
        if when < self._next:
            self._schedule(when)

    def restart(self, deadline: Deadline) -> None:
        """Set *deadline* to the end of an attempt that begins now."""
        self.reset(deadline, end_of_attempt(deadline.timeout, self._clock.monotonic(), deadline.total))

    def remove(self, deadline: Deadline) -> None:
        """Remove *deadline*: its call has ended."""
        self._live.discard(deadline)

    def _schedule(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = when
        self._timer = self._clock.call_at(when, self._fire)

    def _fire(self) -> None:
        self._next = inf
        self._timer = None
        now = self._clock.monotonic()
        for deadline in [deadline for deadline in self._live if deadline.when <= now]:
            self._live.discard(deadline)
            deadline.expired = True
            deadline.task.cancel()
        first = min((deadline.when for deadline in self._live), default=inf)
        if first < inf:
            self._schedule(max(first, now + REST))


async def cancelled_again(cancelled: asyncio.CancelledError, note: str | None) -> None:
    """Wait one turn for anyio to cancel once more, and add *note* to the error that propagates.

    A cancel scope of anyio cancels at every wait, and recognizes its own cancellation by the message of the error. That
    message may be lost by now: the transport may have raised another error or swallowed the cancellation, or our
    deadline may have come first. The error that the scope raises in this turn has the message.

    Raises:
        asyncio.CancelledError: The new cancellation, instead of *cancelled*.
    """
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as again:
        cancelled = again
        raise again from None
    finally:
        if note is not None:
            cancelled.add_note(note)
        del cancelled  # Breaks a reference cycle that holds the whole call (CONTRIBUTING: cycles).
