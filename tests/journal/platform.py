"""A platform in memory that keeps idempotency keys, and an order to send to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import format_datetime

from paymentsdk import Request, Response, RetryPolicy, SendFailed
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import FakeClock

TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
URL = "https://platform.test"
ONCE = RetryPolicy(attempts=1)


def order(reference: str = "A-1", price: str = "10.50") -> OrderRequest:
    """An order."""
    amount = Decimal(price)
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    return OrderRequest(external_reference=reference, total_amount=amount, transactions=payments)


class Platform:
    """A platform that keeps keys for a day, forgets what it rejected, and has a clock of its own."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.offset = 0.0
        self.made: dict[str, bytes] = {}
        self.posts: list[Request] = []
        self.fail: Callable[[Request], Response | None] | None = None
        self.lose = False

    def __call__(self, request: Request) -> Response:
        moment = datetime.fromtimestamp(self.clock.now() + self.offset, UTC)
        headers = {"Date": format_datetime(moment, usegmt=True)}
        if request.method == "GET":
            body = b'{"paging":{"offset":0,"total":0},"results":[]}'
            return Response(200, headers, body)
        self.posts.append(request)
        if self.fail is not None and (failed := self.fail(request)) is not None:
            return Response(failed.status, {**headers, **failed.headers}, failed.body)
        key = request.headers.get("X-Idempotency-Key", f"none-{len(self.posts)}")
        number = list(self.made).index(key) if key in self.made else len(self.made)
        self.made[key] = request.body
        if self.lose:
            raise SendFailed("connection reset", sent=True)
        body = b'{"id":"ORD%d","external_reference":"A-1","total_amount":"10.50"}' % number
        if b"email" in request.body:
            body = b'{"id":"c-%d","email":"ann@example.com"}' % number
        return Response(201, headers, body)
