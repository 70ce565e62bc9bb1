"""What comes of a call, on record: each operation x failure x in doubt or not x whose key x how often it fails.

A redesign of the engine must leave every line as it is. A change of behaviour names the lines that it changes:
`UPDATE_GOLDEN=1 pytest tests/golden` writes them again, and the difference shows what a caller will see.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk import (
    OPERATIONS,
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
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.engine.conftest import order_request, wallet_payment_request

RECORDED = Path(__file__).parent / "verdicts"
KEY = "X-Idempotency-Key"
AMOUNT = Decimal("24.90")

Step = Response | SendFailed | str
Call = Callable[[PaymentsClient], Awaitable[object]]


def json(status: int, body: str = "{}", **headers: str) -> Response:
    """A response with a JSON body."""
    return Response(status, {"Content-Type": "application/json", **headers}, body.encode())


def preference_request() -> PreferenceRequest:
    """A preference with one item."""
    return PreferenceRequest(items=[PreferenceItemRequest(title="A book", quantity=1, unit_price=AMOUNT)])


ORDER = json(200, '{"id":"ORD1","external_reference":"shop-1","total_amount":"24.90"}')
REFUND = json(
    200,
    '{"id":"ORD1","status":"refunded","status_detail":"refunded","transactions":'
    '{"refunds":[{"id":"REF1","transaction_id":"PAY1","amount":"5.00","status":"processed"}]}}',
)
TOKENS = json(200, '{"access_token":"APP_USR-new-access","refresh_token":"TG-new-refresh","expires_in":15552000}')
PAGE = json(200, '{"paging":{"offset":0,"total":1},"results":[{"id":"1"}]}')

CALLS: dict[str, tuple[Call, Response]] = {
    "orders.create": (lambda c: c.orders.create(order_request()), ORDER),
    "orders.get": (lambda c: c.orders.get("ORD1"), ORDER),
    "orders.cancel": (lambda c: c.orders.cancel("ORD1"), ORDER),
    "orders.refund": (lambda c: c.orders.refund("ORD1", payment_id="PAY1", amount=Decimal("5.00")), REFUND),
    "wallet_payments.create": (
        lambda c: c.wallet_payments.create(wallet_payment_request()),
        json(201, '{"id":1,"wallet_payment":{"transaction_amount":24.90,"external_reference":"shop-1"}}'),
    ),
    "preferences.create": (
        lambda c: c.preferences.create(preference_request()),
        json(201, '{"id":"77-abc","items":[{"title":"A book","quantity":1,"unit_price":24.90}]}'),
    ),
    "customers.create": (
        lambda c: c.customers.create(CustomerRequest(email="ann@example.com")),
        json(201, '{"id":"c-1","email":"ann@example.com"}'),
    ),
    "release_reports.disable_schedule": (
        lambda c: c.release_reports.disable_schedule(),
        json(200, '{"status":"deleted"}'),
    ),
    "plans.get": (lambda c: c.plans.get("plan-1"), json(200, '{"id":"plan-1"}')),
    "plans.search": (lambda c: c.plans.search().collect(), PAGE),
    "invoices.search": (lambda c: c.invoices.search().collect(), PAGE),
    "merchant_orders.search": (
        lambda c: c.merchant_orders.search().collect(),
        json(200, '{"elements":[{"id":1}],"next_offset":0,"total":1}'),
    ),
    "oauth.exchange_code": (lambda c: c.oauth.exchange_code("TG-code-0123456789"), TOKENS),
    "oauth.refresh": (lambda c: c.oauth.refresh("TG-refresh-0123456789"), TOKENS),
}


#: Both kinds of tokens come from one operation.
TOKENS_OPERATION = {"oauth.exchange_code": "oauth.token", "oauth.refresh": "oauth.token"}
KEYED = {name for name in CALLS if OPERATIONS[TOKENS_OPERATION.get(name, name)].keyed}


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
    **{f"{status}": json(status) for status in (307, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 423, 425, 429)},
    **{f"{status}": json(status) for status in (451, 500, 502, 503)},
    "429 for 3 s": json(429, '{"status":429,"error":"too_many_requests"}', **{"Retry-After": "3"}),
    "429 for 99 s": json(429, '{"status":429,"error":"too_many_requests"}', **{"Retry-After": "99"}),
    "503 for 3 s": json(503, "{}", **{"Retry-After": "3"}),
    "404 of a gateway": json(404, '{"message":"no Route matched with those values"}'),
    "504 of a gateway": Response(504, {"Content-Type": "text/html"}, b"<html>gateway</html>"),
    **{
        f"{status} {code}": coded(status, code)
        for status, code in (
            (400, "bad_request"),
            (400, "property_value"),
            (400, "refund_amount_exceeds"),
            (400, "invalid_access_token"),
            (404, "order_not_found"),
            (404, "pos_not_found"),
            (409, "idempotency_key_already_used"),
            (409, "order_already_canceled"),
            (409, "cannot_cancel_order"),
            (409, "refund_in_progress"),
            (423, "resource_locked"),
        )
    },
    "400 invalid_grant": json(400, '{"message":"no","error":"invalid_grant","status":400,"cause":[]}'),
    "400 customer exists": json(400, '{"error":"bad_request","status":400,"cause":[{"code":"101"}]}'),
}

#: What came before the failure; whether it goes on for ever; whose key it is; how the client is set up.
BEFORE = {"": (), "reset, ": (FAILURES["reset"],), "unsent, ": (FAILURES["unsent"],)}
OPTIONS: dict[str, dict[str, object]] = {
    "": {},
    "key given, ": {"idempotency_key": "key-of-the-caller"},
    "unkeyed again, ": {"retry": RetryPolicy(retry_unkeyed=True)},
    "strict, ": {"strict": True},
    "short, ": {"timeout": Timeout(total=2.0, attempt=0.7)},
    "refreshing, ": {"auth": None},
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


def told(error: BaseException) -> str:
    """What a caller learns from *error*, in one line."""
    names = ("status", "code", "settled", "retry_after", "attempts", "first_reason", "reason", "seen", "total")
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
    """Make the call and return the line that is recorded.

    Without options the call is made twice. Nobody observes the first one, so its first attempt is the inline one. The
    second one takes the general way from its beginning, and has to come to the same.
    """
    line = await played(operation, options, steps, last)
    if not options:
        assert line == await played(operation, {"observers": [lambda event: None]}, steps, last)
    return line


async def played(operation: str, options: dict[str, object], steps: Sequence[Step], last: Step) -> str:
    """Make the call and return what came of it."""
    clock = FakeClock()
    platform = Platform(clock, steps, last)
    options = dict(options)
    key = options.pop("idempotency_key", None)
    credentials: dict[str, object] = {"access_token": "APP_USR-9001-112304-0123456789abcdef-77"}
    if "auth" in options:
        pair = TokenPair(access_token="APP_USR-first", refresh_token="TG-first-refresh", expires_at=2_000_000_000.0)
        credentials = {"auth": RefreshingToken(pair)}
        del options["auth"]
    client = PaymentsClient(
        base_url="https://platform.test",
        client_id="app-1",
        client_secret="client-secret-0123456789",
        clock=clock,
        transport=MemoryTransport(platform),
        **credentials,
        **options,
    )
    async with client:
        caller = client.with_options(idempotency_key=key) if key else client
        try:
            await CALLS[operation][0](caller)
            outcome = "value"
        except PaymentsError as error:
            outcome = told(error)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            outcome = "cancelled"
    pauses = ", ".join(f"{seconds:.2f}" for seconds in clock.slept)
    return f"{outcome} | {sent(platform)} | pauses {pauses or 'none'}"


async def lines(operation: str) -> list[str]:
    """Every case of *operation*, as it is recorded: with an option only where it changes what happens."""
    verdicts: list[str] = []
    usually: dict[tuple[str, str, str], str] = {}
    for name, failure in FAILURES.items():
        for before, first in BEFORE.items():
            for option, settings in OPTIONS.items():
                if option == "key given, " and operation not in KEYED:
                    continue
                for count, last in {"once": CALLS[operation][1], "for ever": failure}.items():
                    line = await play(operation, settings, (*first, failure), last)
                    usual = usually.setdefault((before, name, count), line)
                    if not option or line != usual:
                        verdicts.append(f"{option}{before}{name} {count}: {line}")
    return verdicts


def recorded(operation: str) -> Path:
    """Where the lines of *operation* are."""
    return RECORDED / f"{operation}.txt"


@pytest.fixture(scope="module")
def update() -> Iterator[bool]:
    """Whether the lines are written again instead of compared."""
    return bool(os.environ.get("UPDATE_GOLDEN"))


@pytest.mark.parametrize("operation", CALLS)
async def test_the_verdicts_are_those_on_record(operation: str, update: bool) -> None:
    """The error, the number of requests, their bytes and keys and the pauses between them are what they were."""
    now = await lines(operation)
    if update:
        RECORDED.mkdir(exist_ok=True)
        recorded(operation).write_text("\n".join(now) + "\n", encoding="utf-8")

    assert recorded(operation).read_text(encoding="utf-8").splitlines() == now


def test_every_operation_has_its_verdicts_on_record() -> None:
    """An operation that is added is recorded, too."""
    assert set(OPERATIONS) == {TOKENS_OPERATION.get(name, name) for name in CALLS}


async def test_a_verdict_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one retry less than on record, lines differ: the record is of what happens."""
    with monkeypatch.context() as patch:
        patch.setitem(OPTIONS, "", {"retry": RetryPolicy(attempts=3)})
        now = await lines("orders.get")

    assert recorded("orders.get").read_text(encoding="utf-8").splitlines() != now
