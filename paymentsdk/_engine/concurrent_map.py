"""`client.map`: one call for each of many items, so many at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Iterable
from copy import copy
from inspect import isawaitable
from typing import Generic, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType

from paymentsdk._validate import check_within
from paymentsdk.errors import ClientClosed, PaymentsError, RequestInvalid

T = TypeVar("T")
R = TypeVar("R")

_MOST = 100_000


class MapOutcome(Struct, Generic[T, R], frozen=True):
    """What came of one item of `client.map`."""

    item: T
    """The item, as it was given."""
    error: PaymentsError | None = None
    """Why the call failed; `None` if it did not."""
    _value: R | UnsetType = UNSET

    @property
    def value(self) -> R:
        """What the function returned.

        Raises:
            PaymentsError: `error`, if there is one.
        """
        if self.error is not None:
            raise self.error
        return cast("R", self._value)

    def __repr__(self) -> str:
        result = f"{self._value!r}" if self.error is None else f"error={self.error!r}"
        return f"MapOutcome({self.item!r}, {result})"


def check_map(function: object, items: object, concurrency: int) -> None:
    """Reject what `concurrent_map` cannot work with.

    Raises:
        RequestInvalid: One of them.
    """
    if not callable(function):
        raise RequestInvalid("function", f"must be a function, not {type(function).__name__}")
    if not isinstance(items, AsyncIterable | Iterable):
        raise RequestInvalid("items", f"must be an iterable or an async iterable, not {type(items).__name__}")
    check_within("concurrency", concurrency, 1, _MOST)


async def concurrent_map(
    function: Callable[[T], Awaitable[R]], items: Iterable[T] | AsyncIterable[T], *, concurrency: int, ordered: bool
) -> AsyncGenerator[MapOutcome[T, R], None]:
    """See `PaymentsClient.map`."""
    changed = asyncio.Event()
    calls = _Calls(function, changed, ordered=ordered)
    source: _Items[T] | _AsyncItems[T] = (
        _AsyncItems(items, changed) if isinstance(items, AsyncIterable) else _Items(items)
    )
    try:
        while True:
            changed.clear()
            outcome = calls.take()
            # What has ended and was not yielded yet counts as well, so that a slow consumer holds everything up.
            while calls.closed is None and len(calls) < concurrency and (item := source.take()) is not UNSET:
                calls.start(item)
            if outcome is not None:
                yield outcome
            elif len(calls) or (source.error is None and calls.closed is None):
                await changed.wait()
            else:
                break
    finally:
        await calls.end()
        await source.aclose()
    # Only now, since what was under way may have moved money.
    failure = calls.closed or source.error
    if failure is not None and not isinstance(failure, StopIteration | StopAsyncIteration):
        raise failure


class _Calls(Generic[T, R]):
    """The calls that are under way, or have ended and were not taken yet."""

    def __init__(self, function: Callable[[T], Awaitable[R]], changed: asyncio.Event, *, ordered: bool) -> None:
        self._function = function
        self._changed = changed
        self._tasks: dict[asyncio.Task[R], T] = {}
        #: The next one to take is the first: by the order of the items, or of the ends.
        self._line: deque[asyncio.Task[R]] = deque()
        self._ordered = ordered
        self.closed: ClientClosed | None = None
        """That the client is closed: every further call would fail, of endless items without an end."""

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, item: T) -> None:
        """Begin the call for *item*."""
        task = asyncio.ensure_future(self._call(item))
        self._tasks[task] = item
        if self._ordered:
            self._line.append(task)
        task.add_done_callback(self._ended)

    async def _call(self, item: T) -> R:
        made = self._function(item)
        if not isawaitable(made):
            raise TypeError(f"the function of a map must be async, but returned {type(made).__name__}")
        return await made

    def _ended(self, task: asyncio.Task[R]) -> None:
        if not self._ordered:
            self._line.append(task)
        self._changed.set()

    def take(self) -> MapOutcome[T, R] | None:
        """Return what came of the next call, if that has ended.

        Raises:
            Exception: It raised something else than a `PaymentsError`.
        """
        if not self._line or not self._line[0].done():
            return None
        task = self._line.popleft()
        item = self._tasks.pop(task)
        try:
            return MapOutcome(item, _value=task.result())
        except PaymentsError as error:
            if isinstance(error, ClientClosed):
                self.closed = copy(error)
            return MapOutcome(item, error)

    async def end(self) -> None:
        """Cancel the calls that are under way, and wait until they have ended."""
        await _cancelled(self._tasks)


class _Items(Generic[T]):
    """Items to take one by one."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self.error: Exception | None = None
        """Why there are no more."""

    def take(self) -> T | UnsetType:
        """Return the next item; `UNSET` if there is none."""
        if self.error is None:
            try:
                return next(self._items)
            except Exception as error:  # noqa: BLE001 - of the caller's: raised when all calls have ended
                self.error = error
        return UNSET

    async def aclose(self) -> None:
        """Do nothing."""


class _AsyncItems(Generic[T]):
    """The same, from an async iterable. One item is asked for at a time, and only when there is a place for it."""

    def __init__(self, items: AsyncIterable[T], changed: asyncio.Event) -> None:
        self._items = aiter(items)
        self._changed = changed
        self._next: asyncio.Future[T] | None = None
        self.error: Exception | None = None

    def take(self) -> T | UnsetType:
        """Return the next item; `UNSET` if it is not there yet, or there is none."""
        if self.error is not None:
            return UNSET
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._items))
            self._next.add_done_callback(lambda _: self._changed.set())
        if not self._next.done():
            return UNSET
        asked, self._next = self._next, None
        try:
            return asked.result()
        except Exception as error:  # noqa: BLE001 - as above
            self.error = error
            return UNSET

    async def aclose(self) -> None:
        """Close the iterator: nobody asks it for more."""
        if self._next is not None:
            await _cancelled([self._next])
        if isinstance(self._items, AsyncGenerator):
            await self._items.aclose()


async def _cancelled(futures: Collection[asyncio.Future[T]]) -> None:
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
