"""`client.map`: one call for each of many items, so many at a time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
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
    #: The calls that are under way, or have ended and were not yielded yet: a slow consumer holds everything up.
    calls: dict[asyncio.Task[R], T] = {}
    free = asyncio.Semaphore(concurrency)
    #: The next call to yield, by the order of the items, or of the ends; `None` when no more of them begin.
    next_calls: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()
    closed: ClientClosed | None = None

    async def begin_calls() -> None:
        async with aclosing(_one_by_one(items)) as source:
            await free.acquire()
            async for item in source:
                call = asyncio.ensure_future(_call(function, item))
                calls[call] = item
                if ordered:
                    next_calls.put_nowait(call)
                else:
                    call.add_done_callback(next_calls.put_nowait)
                await free.acquire()

    reader = asyncio.ensure_future(begin_calls())
    reader.add_done_callback(lambda _: next_calls.put_nowait(None))
    try:
        while calls or not reader.done():
            if (call := await next_calls.get()) is None:
                continue
            if not call.done():
                await asyncio.wait((call,))
            outcome = _outcome(calls.pop(call), call)
            if isinstance(outcome.error, ClientClosed):
                closed = copy(outcome.error)
                reader.cancel()  # Every further call would fail, of endless items without an end.
            free.release()
            yield outcome
    finally:
        was_reading = reader.cancel()
        for call in calls:
            call.cancel()
        await asyncio.gather(reader, *calls, return_exceptions=True)
        if was_reading and not reader.cancelled():
            reader.result()  # Closing the items has failed.
    # Only now, since what was under way may have moved money.
    if closed is not None:
        raise closed
    reader.result()


async def _one_by_one(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """Yield *items*, and close their iterator in the end: nobody asks it for more."""
    if not isinstance(items, AsyncIterable):
        for item in items:
            yield item
        return
    source = aiter(items)
    try:
        async for item in source:
            yield item
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def _call(function: Callable[[T], Awaitable[R]], item: T) -> R:
    made = function(item)
    if not isawaitable(made):
        raise TypeError(f"the function of a map must be async, but returned {type(made).__name__}")
    return await made


def _outcome(item: T, call: asyncio.Task[R]) -> MapOutcome[T, R]:
    """Return what came of the *call* for *item*; what is no `PaymentsError` is raised."""
    error = call.exception()  # Raised and caught, it would hold this frame, and so the call, and itself.
    return MapOutcome(item, error) if isinstance(error, PaymentsError) else MapOutcome(item, _value=call.result())
