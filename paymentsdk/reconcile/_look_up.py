"""Orders that the walk has not found: looked up by reference, and by the id that the book has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec
from msgspec import Struct

from paymentsdk.errors import BadRequest, NotFound, RequestInvalid
from paymentsdk.reconcile._certificate import is_atomic
from paymentsdk.reconcile._ledger import Ledger
from paymentsdk.reconcile._rows import AMOUNTS, is_kept
from paymentsdk.reconcile._rows import Order as MerchantOrder
from paymentsdk.reconcile._search import Search
from paymentsdk.reconcile._tasks import together
from paymentsdk.reconcile._walker import COMMIT_EVERY, MOST_IN_FLIGHT
from paymentsdk.reconcile._windows import Rules
from paymentsdk.resources.orders import GET, Order, RefundStatus


class Absent(NamedTuple):
    """An order of the book that the walk has not found."""

    n: int
    account: str
    reference: str
    order_id: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What its look-up is kept under."""
        return self.account, self.reference, self.order_id


class Seen(Struct, frozen=True, kw_only=True):
    """An order that a look-up has shown, in columns of a walk."""

    id: str
    currency: str | None = None
    total: Decimal | None = None
    paid: Decimal = Decimal(0)
    refunded: Decimal = Decimal(0)
    # The name in the ledgers of runs that began under 0.2.0.
    status: str | None = msgspec.field(default=None, name="state")
    created: datetime | None = None


class Found(Struct, frozen=True, kw_only=True):
    """What the look-ups of an order of the book have come to."""

    at: int
    """When, in milliseconds since 1970."""
    is_doubtful: bool
    """Whether the search may have more orders of the reference than it showed, or an amount could not be read."""
    orders: tuple[Seen, ...]
    """The merchant orders of the reference."""
    by_id: Seen | None = None
    """The order of the id; `None` if there is none, or no id."""


FOUND = msgspec.msgpack.Decoder(Found)
_ENCODE = msgspec.msgpack.Encoder().encode
#: How often a reference is asked for whose orders do not come on one page.
_TRIES = 5


@dataclass
class LookUps:
    """Looks orders up, and keeps what was found in the ledger."""

    search: Search
    rules: Rules
    ledger: Ledger
    in_flight: int
    """Orders of an account that are looked up at a time."""
    told: Callable[[int], None]
    """Called with the number of orders that are done, each time some are kept."""

    _found: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    _kept_at: float = 0.0
    _done: int = 0

    async def run(self, absent: Iterator[Absent]) -> None:
        """Look up what is *absent*, except for what an earlier run has."""
        workers = min(MOST_IN_FLIGHT, self.in_flight * len(self.search.accounts))
        try:
            await together(self._work(absent) for _ in range(workers))
        finally:
            self._keep()

    async def _work(self, absent: Iterator[Absent]) -> None:
        for one in absent:
            if self.ledger.look_up(*one.key) is None:
                found = await self._find(one)
                self._found.append((*one.key, _ENCODE(found)))
            self._done += 1
            if asyncio.get_running_loop().time() - self._kept_at >= COMMIT_EVERY:
                self._keep()

    def _keep(self) -> None:
        # A few rows in one transaction: a thread would cost more than it saves.
        found, self._found = self._found, []
        self.ledger.add_look_ups(found)
        self._kept_at = asyncio.get_running_loop().time()
        self.told(self._done)

    async def _find(self, one: Absent) -> Found:
        page = None
        for _ in range(_TRIES):
            page = await self.search.reference(one.account, one.reference)
            if page is not None and is_atomic(page, self.rules):
                break
        at = self.search.begun or 0 if page is None else page.now
        if page is None or not is_atomic(page, self.rules) or not all(map(_is_readable, page.rows)):
            return Found(at=at, is_doubtful=True, orders=())
        # The search may find more than it was asked for.
        orders = tuple(_seen(order) for order in page.rows if order.external_reference == one.reference)
        if not one.order_id or any(seen.paid for seen in orders):
            return Found(at=at, is_doubtful=False, orders=orders)
        order, is_readable = await self._get(one)
        return Found(at=at, is_doubtful=not is_readable, orders=orders, by_id=order)

    async def _get(self, one: Absent) -> tuple[Seen | None, bool]:
        """Return the order of an id, and whether its amounts could be read."""
        try:
            result = await self.search.accounts[one.account].call(GET, order_id=one.order_id)
        except (NotFound, BadRequest, RequestInvalid):
            # An id that cannot be one is that of no order, too.
            return None, True
        if any(anomaly.dropped and "amount" in anomaly.path for anomaly in result.anomalies):
            return None, False
        # The id of another order says nothing about this one.
        return (_of_order(result.value) if result.value.external_reference in (None, one.reference) else None), True


def _is_readable(order: MerchantOrder) -> bool:
    return all(is_kept(getattr(order, f"{name}_amount")) for name in AMOUNTS)


def _seen(order: MerchantOrder) -> Seen:
    return Seen(
        id=str(order.id),
        currency=order.currency,
        total=order.total_amount,
        paid=order.paid_amount or Decimal(0),
        refunded=order.refunded_amount or Decimal(0),
        status=order.order_status or order.status,
        created=order.date_created,
    )


def _of_order(order: Order) -> Seen:
    payment = order.payment
    amounts = [one.amount or Decimal(0) for one in order.refunds if one.status in (None, RefundStatus.PROCESSED)]
    refunded = payment.refunded_amount if payment is not None else None
    return Seen(
        id=order.id,
        currency=order.currency,
        total=order.total_amount,
        paid=(payment.paid_amount if payment is not None else None) or Decimal(0),
        refunded=sum(amounts, Decimal(0)) if refunded is None else refunded,
        status=order.status,
        created=order.created_date,
    )
