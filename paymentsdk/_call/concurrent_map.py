"""`client.map`: one call for each item, with a limit on the calls in flight."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, TypeVar, cast

from msgspec import Struct

from paymentsdk.errors import PaymentsError

T = TypeVar("T")
R = TypeVar("R")

#: The most calls under way.
MOST = 100_000


class MapOutcome(Struct, Generic[T, R], frozen=True):
    """The outcome of one item of `client.map`."""

    item: T
    """The item, as it was passed."""
    error: PaymentsError | None = None
    """The error of the call. `None` if it succeeded."""
    _value: R | None = None

    @property
    def value(self) -> R:
        """The value that the function returned.

        Raises:
            PaymentsError: The call failed. This is `error`.
        """
        if self.error is not None:
            raise self.error
        return cast("R", self._value)


async def outcomes(
    function: Callable[[T], Awaitable[R]], items: Iterable[T] | AsyncIterable[T], concurrency: int, *, ordered: bool
) -> AsyncGenerator[MapOutcome[T, R], None]:
    """See `PaymentsClient.map`."""
    #: The calls that run, or have ended but were not yielded yet. So a slow consumer holds back the reader.
    calls: dict[asyncio.Task[R], T] = {}
    free = asyncio.Semaphore(concurrency)
    #: The next call to yield, in the order of the items or in the order in which calls end; `None` once all have begun.
    next_calls: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()

    async def begin_calls() -> None:
        source = aiter(items) if isinstance(items, AsyncIterable) else _each_of(items)
        try:
            await free.acquire()
            async for item in source:
                call = asyncio.ensure_future(_call(function, item))
                calls[call] = item
                if ordered:
                    next_calls.put_nowait(call)
                else:
                    call.add_done_callback(next_calls.put_nowait)
                await free.acquire()
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    reader = asyncio.ensure_future(begin_calls())
    reader.add_done_callback(lambda _: next_calls.put_nowait(None))
    try:
        while calls or not reader.done():
            if (call := await next_calls.get()) is None:
                continue
            await asyncio.wait((call,))
            outcome = _outcome(calls.pop(call), call)
            free.release()
            yield outcome
    finally:
        reader.cancel()
        for call in calls:
            call.cancel()
        await asyncio.gather(reader, *calls, return_exceptions=True)
    reader.result()


async def _each_of(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _call(function: Callable[[T], Awaitable[R]], item: T) -> R:
    return await function(item)


def _outcome(item: T, call: asyncio.Task[R]) -> MapOutcome[T, R]:
    """Return the outcome of the *call* for *item*; raise an error that is not a `PaymentsError`."""
    error = call.exception()  # Raising and catching it would make a reference cycle (CONTRIBUTING: cycles).
    return MapOutcome(item, error) if isinstance(error, PaymentsError) else MapOutcome(item, _value=call.result())
