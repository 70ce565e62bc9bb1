"""A platform in memory that keeps idempotency keys, an order to send to it, and the processes that do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path

import msgspec

from paymentsdk import PaymentsClient, Request, Response, RetryPolicy, SendFailed
from paymentsdk.journal import Record, RecordState, SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest
from paymentsdk.testing import FakeClock, MemoryTransport

TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
URL = "https://platform.test"
ONCE = RetryPolicy(attempts=1)
#: It has a credential of the payer.
PAYMENT = WalletPaymentRequest(
    wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5)),
    payer=WalletPayerRequest(token="the-payers-token", type_token="wallet"),
)


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
        self.reads = 0
        self.fail: Callable[[Request], Response | None] | None = None
        self.lose = False
        #: No write leaves the machine of the client.
        self.is_away = False

    def __call__(self, request: Request) -> Response:
        moment = datetime.fromtimestamp(self.clock.now() + self.offset, UTC)
        headers = {"Date": format_datetime(moment, usegmt=True)}
        if request.method == "GET":
            self.reads += 1
            body = b'{"paging":{"offset":0,"total":0},"results":[]}'
            return Response(200, headers, body)
        if self.is_away:
            raise SendFailed("connection refused", sent=False)
        self.posts.append(request)
        if self.fail is not None and (failed := self.fail(request)) is not None:
            return Response(failed.status, {**headers, **failed.headers}, failed.body)
        key = request.headers.get("X-Idempotency-Key", f"none-{len(self.posts)}")
        number = list(self.made).index(key) if key in self.made else len(self.made)
        self.made[key] = request.body
        if self.lose:
            raise SendFailed("connection reset", sent=True)
        if b"email" in request.body:
            return Response(201, headers, b'{"id":"c-%d","email":"ann@example.com"}' % number)
        reference = msgspec.json.decode(request.body or b"{}").get("external_reference", "A-1")
        body = {"id": f"ORD{number}", "external_reference": reference, "total_amount": "10.50"}
        return Response(201, headers, msgspec.json.encode(body))


class World:
    """A platform, a journal file, and the processes that share them; all go by one clock."""

    def __init__(self, path: Path, kind: type[Platform] = Platform) -> None:
        self.path = path
        self.clock = FakeClock()
        self.platform = kind(self.clock)
        self.handler: Callable[[Request], object] = self.platform

    def journal(self, kind: type[SQLiteJournal] = SQLiteJournal, **settings: object) -> SQLiteJournal:
        """Open the journal of one more process."""
        return kind(self.path, now=self.clock.now, **settings)

    def connect(
        self,
        handler: Callable[[Request], object] | None = None,
        token: str | None = TOKEN,
        *,
        journal: SQLiteJournal | None = None,
        kind: type[PaymentsClient] = PaymentsClient,
        **settings: object,
    ) -> PaymentsClient:
        """Start one more process; a second one stands for the process after a restart."""
        transport = MemoryTransport(handler or self.handler)
        settings = {"base_url": URL, "clock": self.clock, "transport": transport, **settings}
        return kind(token, journal=journal or self.journal(), **settings)

    async def rows(self) -> list[Record]:
        """Return all records of the journal."""
        async with aclosing(self.journal()) as journal:
            return await journal.records(tuple(RecordState))
