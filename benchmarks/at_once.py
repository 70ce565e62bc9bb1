"""Calls without a network: a transport that responds immediately, and a comparison of ways to make one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat

from msgspec import Struct

from benchmarks import harness
from benchmarks.harness import Options, Row, Variant
from paymentsdk import Request, Response

BASE_URL = "http://127.0.0.1"

#: Makes the call once.
Call = Callable[[], Coroutine[object, object, object]]


class AtOnce:
    """Returns the same response to every request. Unlike ``MemoryTransport`` it keeps none: there are millions."""

    def __init__(self, status: int, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "X-Request-Id": "4d2e1c6a9b7f40d8a3c5e7f1b2d4a6c8"}
        self._response = Response(status, headers, body)

    async def send(self, request: Request) -> Response:  # noqa: ARG002 - whatever is asked
        return self._response

    async def aclose(self) -> None:
        pass


class Way(Struct, frozen=True, kw_only=True):
    """One way to make a call.

    Attributes:
        name: The name in results.
        against: The name of the way to compare with; the same name for no comparison.
        call: Makes the call.
        meanwhile: A context that is open during the measurement.
    """

    name: str
    against: str
    call: Call
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext


def race(candidates: Sequence[Way], name: str, runner: asyncio.Runner, options: Options) -> list[Row]:
    """Measure *candidates* to make the call *name*; each row also has the additional cost over its baseline."""
    if options.only:
        names = {
            label
            for candidate in candidates
            if candidate.name in options.only
            for label in (candidate.name, candidate.against)
        }
        candidates = [candidate for candidate in candidates if candidate.name in names]
    variants = [
        Variant({"call": name, "way": candidate.name, "against": candidate.against}, _slice(candidate, runner))
        for candidate in candidates
    ]
    rows = harness.interleave(variants, options)
    by_name = {str(row.key["way"]): row for row in rows}
    for row in rows:
        base = by_name.get(str(row.key["against"]), row)
        row.samples["added_us"] = harness.difference(row, base)
    return rows


def _slice(candidate: Way, runner: asyncio.Runner) -> Callable[[int], None]:
    async def calls(count: int) -> None:
        call = candidate.call
        for _ in repeat(None, count):
            await call()

    def run(count: int) -> None:
        with candidate.meanwhile():
            runner.run(calls(count))

    return run
