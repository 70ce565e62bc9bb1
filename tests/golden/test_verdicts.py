"""What comes of a call, on record: an operation of each kind x failure x in doubt or not x how often it fails.

A redesign of the engine must leave every line as it is. A change of behaviour names the lines that it changes:
`UPDATE_GOLDEN=1 pytest tests/golden` writes them again, and the difference shows what a caller will see.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from paymentsdk import (
    PaymentsClient,
    PaymentsError,
    RefreshingToken,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
    Timeout,
    TokenPair,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import CLIENT_SECRET, JOBS, KEY, TOKEN, TOKENS, Call

RECORDED = Path(__file__).parent
#: One of each class of retries, a page, and a write whose codes name a state.
CALLS: dict[str, Call] = {
    name: JOBS[name].call
    for name in (
        *("orders.get", "orders.create", "orders.refund", "preferences.create", "release_reports.disable_schedule"),
        *("oauth.exchange_code", "oauth.refresh"),
    )
} | {"merchant_orders.search": lambda client: client.merchant_orders.search().collect()}

Step = Response | SendFailed | str


def json(status: int, body: str = "{}", **headers: str) -> Response:
    """A response with a JSON body."""
    return Response(status, {"Content-Type": "application/json", **headers}, body.encode())


def coded(status: int, code: str) -> Response:
    """An error response as the Orders API has it."""
    return json(status, f'{{"errors":[{{"code":"{code}","message":"no"}}]}}')


FAILURES: dict[str, Step] = {
    "unsent": SendFailed("connection refused", sent=False),
    "permanent": SendFailed("certificate", sent=False, permanent=True),
    "reset": SendFailed("connection reset", sent=True),
    "hang": "hang",
    "cancel": "cancel",
    "truncated": json(200, '{"id":"ORD'),
    "html": Response(200, {"Content-Type": "text/html"}, b"<html>"),
    "foreign": json(200, '{"id":"ORD2","external_reference":"shop-2","total_amount":"7.00"}'),
    "error as 200": json(200, '{"id":"err-7c","status":500,"message":"Internal error"}'),
    "empty page": json(200, '{"paging":{"offset":0,"total":9},"results":[],"elements":[],"total":9,"next_offset":0}'),
    **{f"{status}": json(status) for status in (307, 400, 401, 402, 403, 404, 408, 409, 413, 422, 423, 425, 429, 500)},
    "429 for 3 s": json(429, '{"status":429,"error":"too_many_requests"}', **{"Retry-After": "3"}),
    "429 for 99 s": json(429, '{"status":429,"error":"too_many_requests"}', **{"Retry-After": "99"}),
    "503 for 3 s": json(503, "{}", **{"Retry-After": "3"}),
    "404 of a gateway": json(404, '{"message":"no Route matched with those values"}'),
    "504 of a gateway": Response(504, {"Content-Type": "text/html"}, b"<html>gateway</html>"),
    **{
        f"{status} {code}": coded(status, code)
        for status, code in (
            (400, "bad_request"),
            (400, "refund_amount_exceeds"),
            (400, "invalid_access_token"),
            (404, "order_not_found"),
            (409, "idempotency_key_already_used"),
            (409, "order_already_canceled"),
            (409, "refund_in_progress"),
            (423, "resource_locked"),
        )
    },
    "400 invalid_grant": json(400, '{"message":"no","error":"invalid_grant","status":400,"cause":[]}'),
    "400 customer exists": json(400, '{"error":"bad_request","status":400,"cause":[{"code":"101"}]}'),
}

#: How a client may be set up, and what that is about: an operation, or some failures.
OPTIONS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "key given, ": ({"idempotency_key": "key-of-the-caller"}, ("orders.create",)),
    "unkeyed again, ": ({"retry": RetryPolicy(retry_unkeyed=True)}, ("preferences.create",)),
    "strict, ": ({"strict": True}, ("truncated", "foreign", "error as 200")),
    "short, ": ({"timeout": Timeout(total=2.0, attempt=0.7)}, ("hang", "429 for 3 s", "503 for 3 s")),
    "refreshing, ": ({"auth": None}, ("401", "400 invalid_access_token")),
}


class Platform:
    """Responds with *steps*, and then with the *last* for ever; tokens are refreshed beside them."""

    def __init__(self, clock: FakeClock, steps: Sequence[Step], last: Step) -> None:
        self.clock = clock
        self.steps = list(steps)
        self.last = last
        self.seen: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        if request.url.endswith("/oauth/token") and b"TG-first-refresh" in request.body:
            return TOKENS
        self.seen.append(request)
        step = self.steps.pop(0) if self.steps else self.last
        if isinstance(step, Response):
            return step
        if isinstance(step, SendFailed):
            raise SendFailed(step.reason, step.sent, permanent=step.permanent)
        if step == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        else:
            asyncio.get_running_loop().call_soon(self.clock.advance, request.timeout)
        for _ in range(20):
            await asyncio.sleep(0)
        raise LookupError("nobody ended the wait")


FACTS = ("status", "code", "settled", "retry_after", "attempts", "first_reason", "reason", "seen", "total")


def told(error: BaseException, names: Sequence[str] = FACTS) -> str:
    """What a caller learns from *error*, in one line."""
    values = {name: getattr(error, name, None) for name in names}
    values["last_error"] = type(error.last_error).__name__ if getattr(error, "last_error", None) else None
    values["keyed"] = getattr(error, "idempotency_key", None) is not None or None
    facts = " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    return f"{type(error).__name__} {facts}"


def sent(platform: Platform) -> str:
    """What the platform saw: how many requests, keys, tokens and different bodies."""
    requests = platform.seen
    bodies = {request.body for request in requests}
    digest = hashlib.sha256(b"".join(sorted(bodies))).hexdigest()[:8]
    keys = {request.headers.get(KEY) for request in requests} - {None}
    tokens = {request.headers.get("Authorization") for request in requests} - {None}
    return f"{len(requests)} requests, {len(keys)} keys, {len(tokens)} tokens, {len(bodies)} bodies {digest}"


async def play(operation: str, options: dict[str, object], steps: Sequence[Step], last: Step) -> str:
    """Make the call and return the line that is recorded."""
    clock = FakeClock()
    platform = Platform(clock, steps, last)
    options = dict(options)
    key = options.pop("idempotency_key", None)
    credentials: dict[str, object] = {"access_token": TOKEN}
    if "auth" in options:
        pair = TokenPair(access_token="APP_USR-first", refresh_token="TG-first-refresh", expires_at=2_000_000_000.0)
        credentials = {"auth": RefreshingToken(pair)}
        del options["auth"]
    client = PaymentsClient(
        base_url="https://platform.test",
        client_id="app-1",
        client_secret=CLIENT_SECRET,
        clock=clock,
        transport=MemoryTransport(platform),
        **credentials,
        **options,
    )
    async with client:
        caller = client.with_options(idempotency_key=key) if key else client
        try:
            await CALLS[operation](caller)
            outcome = "value"
        except PaymentsError as error:
            outcome = told(error)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            outcome = "cancelled"
    pauses = ", ".join(f"{seconds:.2f}" for seconds in clock.slept)
    return f"{outcome} | {sent(platform)} | pauses {pauses or 'none'}"


def cases(operation: str) -> Iterator[tuple[str, dict[str, object], Sequence[Step], Step]]:
    """Yield the name of each case of *operation*, the settings, the first steps, and the last one for ever."""
    reset = FAILURES["reset"]
    for name, failure in FAILURES.items():
        yield f"{name} once", {}, (failure,), JOBS[operation].response
        yield f"{name} for ever", {}, (), failure
        yield f"reset, {name} for ever", {}, (reset,), failure
        for option, (settings, about) in OPTIONS.items():
            if operation in about or name in about:
                yield f"{option}{name} for ever", settings, (), failure


async def lines(operation: str) -> list[str]:
    """Return every case of *operation* as it is recorded.

    A call that nobody observes begins with the inline attempt. An observed one takes the general way from its
    beginning, and has to come to the same.
    """
    verdicts = [f"{name}: {await play(operation, *case)}" for name, *case in cases(operation)]
    for name, failure in FAILURES.items():
        line = await play(operation, {"observers": [lambda event: None]}, (), failure)
        assert f"{name} for ever: {line}" in verdicts
    return verdicts


def assert_recorded(path: Path, current: list[str]) -> None:
    """Compare the lines with those on record, or write them again."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text("\n".join(current) + "\n", encoding="utf-8")

    assert path.read_text(encoding="utf-8").splitlines() == current


@pytest.mark.parametrize("operation", CALLS)
async def test_the_verdicts_are_those_on_record(operation: str) -> None:
    """The error, the number of requests, their bytes and keys and the pauses between them are what they were."""
    assert_recorded(RECORDED / "verdicts" / f"{operation}.txt", await lines(operation))
