"""Measures the cost of each safety feature for a successful call, in microseconds.

The bench reads and creates an order over a transport that responds immediately, so it measures only the engine. *Added*
is the difference to the way named in *against*, round by round. A way without a feature shows the cost of the feature
as a negative number.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec
from tenacity import AsyncRetrying, retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from benchmarks import harness, payloads
from benchmarks.at_once import BASE_URL, AtOnce, Call, Way, race
from benchmarks.harness import Options, Result
from paymentsdk import (
    FlowControl,
    Operation,
    PaymentsClient,
    RefreshingToken,
    Request,
    RetryPolicy,
    Timeout,
    TokenPair,
)
from paymentsdk._call.deadline import Deadline
from paymentsdk._clock import SystemClock
from paymentsdk.events import Event
from paymentsdk.resources import orders

BY_HAND = "by hand, unchecked"
CHECKED = "by hand, checked"
OURS = "client.call"
ALL_ON = "paymentsdk, all on"
_ID = next(payloads.order_ids())
_SAFE = re.compile(r"[A-Za-z0-9_-]+\Z")
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "by hand"}


class Subject:
    """The call that all ways make."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.writes = name == "POST"
        self.operation: Operation[Any, Any] = orders.CREATE if self.writes else orders.GET
        self.body = payloads.order_request() if self.writes else None
        self.path: Mapping[str, str] = {} if self.writes else {"order_id": _ID}
        self.transport = AtOnce(201, payloads.created_order()) if self.writes else AtOnce(200, payloads.order(_ID))

    def client(self, **settings: Any) -> PaymentsClient:
        """Return a client with the usual settings and *settings*."""
        options = {"access_token": payloads.TOKEN, "transport": self.transport, **settings}
        return PaymentsClient(base_url=BASE_URL, **options)

    def through_call(self, client: PaymentsClient, operation: Operation[Any, Any] | None = None) -> Call:
        """Return the call through ``client.call``, optionally with another declaration of the operation."""
        called, body, path = operation or self.operation, self.body, dict(self.path)

        async def call() -> object:
            return (await client.call(called, body, **path)).value  # type: ignore[arg-type]  # the names are those of the path

        return call

    def through_method(self, client: PaymentsClient) -> Call:
        """Return the call in the usual way."""
        create, get, body = client.orders.create, client.orders.get, self.body
        return (lambda: get(_ID)) if body is None else (lambda: create(body))


# --- what a program would write without the engine --------------------------------------------------------------------


def by_hand(subject: Subject) -> Call:
    """Return the bare call: encode, send, decode."""
    encode = msgspec.json.Encoder(decimal_format="string").encode
    decode = msgspec.json.Decoder(orders.Order).decode
    send, body = subject.transport.send, subject.body
    method, url = subject.operation.method, BASE_URL + "/v1/orders"

    async def call() -> object:
        headers = {**_HEADERS, "Authorization": "Bearer " + payloads.TOKEN}
        if body is None:
            request = Request(method, f"{url}/{_ID}", headers)
        else:
            headers["Content-Type"] = "application/json"
            headers["X-Idempotency-Key"] = os.urandom(16).hex()
            request = Request(method, url, headers, encode(body))
        response = await send(request)
        if not 200 <= response.status < 300:
            raise RuntimeError(response.status)
        return decode(response.body)

    return call


def checked(subject: Subject) -> Call:
    """Return the call with only the SDK's checks of the body, the path, the response and its identity."""
    operation, body, path = subject.operation, subject.body, subject.path
    encode = operation.encoder.encode if operation.encoder else None
    decode, compare, safe = operation.decoder.decode, operation.identity.compare, _SAFE.match
    send, method, url = subject.transport.send, operation.method, BASE_URL + "/v1/orders"

    async def call() -> object:
        headers = {**_HEADERS, "Authorization": "Bearer " + payloads.TOKEN}
        if encode is None:
            if not safe(_ID):
                raise ValueError(_ID)
            request = Request(method, f"{url}/{_ID}", headers)
        else:
            headers["Content-Type"] = "application/json"
            headers["X-Idempotency-Key"] = os.urandom(16).hex()
            request = Request(method, url, headers, encode(body))
        response = await send(request)
        if not 200 <= response.status < 300:
            raise RuntimeError(response.status)
        value, _ = decode(response.body)
        if mismatch := compare(body, path, value).mismatch:
            raise RuntimeError(mismatch)
        return value

    return call


def _decorated(call: Call) -> Call:
    resend = retry(
        retry=retry_if_exception_type((OSError, TimeoutError)),
        stop=stop_after_attempt(4),
        wait=wait_random_exponential(multiplier=0.5, max=8),
        reraise=True,
    )
    decorated: Call = resend(call)
    return decorated


def _looped(call: Call) -> Call:
    retrying, stop = retry_if_exception_type((OSError, TimeoutError)), stop_after_attempt(4)
    wait = wait_random_exponential(multiplier=0.5, max=8)

    async def looped() -> object:
        async for attempt in AsyncRetrying(retry=retrying, stop=stop, wait=wait, reraise=True):
            with attempt:
                value = await call()
        return value

    return looped


def _timed(call: Call) -> Call:
    async def timed() -> object:
        async with asyncio.timeout(30):
            return await call()

    return timed


def _peers(subject: Subject) -> Iterator[Way]:
    plain = by_hand(subject)
    yield Way(name=BY_HAND, against=BY_HAND, call=plain)
    yield Way(name="by hand, in tenacity's decorator", against=BY_HAND, call=_decorated(plain))
    yield Way(name="by hand, in tenacity's loop", against=BY_HAND, call=_looped(plain))
    yield Way(name="by hand, in asyncio.timeout", against=BY_HAND, call=_timed(plain))
    yield Way(name=CHECKED, against=BY_HAND, call=checked(subject))


# --- what the engine's parts cost -------------------------------------------------------------------------------------


class NoDeadlines:
    """Watches nothing."""

    def add(self, timeout: Timeout, now: float, loop: asyncio.AbstractEventLoop | None = None) -> Deadline:
        del now
        return Deadline(cast("asyncio.Task[object]", asyncio.current_task(loop)), math.inf, 0, math.inf, timeout)

    def remove(self, deadline: object) -> None:
        pass

    def close(self) -> None:
        pass


class NoBudget:
    """Counts nothing."""

    remaining = ()


class FixedKey(SystemClock):
    """Gives every call the same idempotency key."""

    def key(self) -> str:
        return "0123456789abcdef0123456789abcdef"


class StoppedClock(SystemClock):
    """Always returns the same time."""

    now = staticmethod(lambda: 1_700_000_000.0)
    monotonic = staticmethod(lambda: 1_000.0)


class Unchecked:
    """A codec without checks."""

    def __init__(self) -> None:
        self.encode = msgspec.json.Encoder(decimal_format="string").encode
        self._decode = msgspec.json.Decoder(orders.Order).decode

    def exact(self, body: bytes) -> object:
        return self._decode(body)


def changed(operation: Operation[Any, Any], *, codec: str = "", **changes: Any) -> Operation[Any, Any]:
    """Return *operation* with *changes*, and without the checks of its ``encoder`` or ``decoder``."""
    copy = dataclasses.replace(operation, **changes)
    if codec:
        vars(copy)[codec] = Unchecked()  # cached_property keeps its values there.
    return copy


def _without_deadlines(client: PaymentsClient) -> PaymentsClient:
    client._engine.runtime.deadlines = NoDeadlines()  # type: ignore[assignment]  # noqa: SLF001 - taken out on purpose
    return client


def _without_budget(client: PaymentsClient) -> PaymentsClient:
    client._engine.runtime.budgets = NoBudget()  # type: ignore[assignment]  # noqa: SLF001 - taken out on purpose
    return client


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Log every success to a handler that drops it."""
    logger = logging.getLogger("paymentsdk")
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _observe(event: Event) -> None:
    """Do nothing: the cost of an observer depends on its author."""


def _refreshing() -> RefreshingToken:
    return RefreshingToken(TokenPair(access_token=payloads.TOKEN, refresh_token="TG-1", expires_at=4e9))  # noqa: S106


def _ours(subject: Subject) -> Iterator[Way]:
    yield Way(name=OURS, against=CHECKED, call=subject.through_call(subject.client()))
    yield Way(name="client.orders", against=OURS, call=subject.through_method(subject.client()))
    everything = subject.client(access_token=None, auth=_refreshing(), observers=[_observe])
    yield Way(name=ALL_ON, against=CHECKED, call=subject.through_method(everything))

    def without(name: str, call: Call, meanwhile: Callable[[], Any] = contextlib.nullcontext) -> Way:
        return Way(name=name, against=OURS, call=call, meanwhile=meanwhile)

    operation, through = subject.operation, subject.through_call
    yield without("- the deadline", through(_without_deadlines(subject.client())))
    yield without("- the retry budget", through(_without_budget(subject.client())))
    yield without("- retries (attempts=1)", through(subject.client(retry=RetryPolicy(attempts=1))))
    yield without("- bounds of time (None)", through(subject.client(timeout=Timeout(total=None, attempt=None))))
    yield without("- the token", through(subject.client(), changed(operation, authenticated=False)))
    yield without("- the identity check", through(subject.client(), changed(operation, echoes=())))
    yield without("- the check of amounts", through(subject.client(), changed(operation, codec="decoder")))
    yield without("- the clock", through(subject.client(clock=StoppedClock())))
    if subject.writes:
        yield without("- the check of the body", through(subject.client(), changed(operation, codec="encoder")))
        yield without("- the random key", through(subject.client(clock=FixedKey())))
    yield without("- the gate after a 429", through(subject.client(flow=FlowControl(gate=False))))
    yield without("+ a rate that is learned", through(subject.client(flow=FlowControl(adaptive=True))))
    yield without("+ an observer", through(subject.client(observers=[_observe])))
    yield without("+ a token that can be refreshed", through(subject.client(access_token=None, auth=_refreshing())))
    yield without("+ the log at DEBUG", through(subject.client()), logged)


def run(options: Options) -> Result:
    """Measure every way to read and create an order."""
    rows = []
    with harness.on_core(harness.cores()[0]), asyncio.Runner() as runner:
        for name in ("GET", "POST"):
            subject = Subject(name)
            rows += race([*_peers(subject), *_ours(subject)], name, runner, options)
    notes = [
        f"{BY_HAND}: msgspec's encoder and decoder, one dict of headers, a random key; no check at all",
        f"{CHECKED}: the same with the SDK's checks of body, path, response and identity; what is on top is the engine",
        f"{ALL_ON}: the method of the resource, an observer, a refreshable token, the log at its default level",
        "tenacity: four attempts, random exponential waits, on errors of the connection; as its documents show it",
    ]
    return harness.result("bench_retry", rows, options, notes=notes)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
