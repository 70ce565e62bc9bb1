"""What became of a record that may not be sent any more, as far as reading shows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, structs

from paymentsdk.errors import PaymentsError
from paymentsdk.journal import Record, RecordState, Resolution, StoredResponse
from paymentsdk.journal._call import Journaling, WithinContract
from paymentsdk.journal._states import NO_LIMIT, TOLERANCE
from paymentsdk.money import ZERO
from paymentsdk.resources import merchant_orders, orders

#: Records in another state have had no effect.
_EFFECTIVE = tuple(set(RecordState) - {RecordState.REFUSED, RecordState.NOT_SENT, RecordState.EXPIRED})
_ORDER = msgspec.json.Decoder(orders.OrderRequest)
_REFUND = msgspec.json.Decoder(orders.RefundRequest)


class LookUp(Struct, frozen=True):
    """Finds out what became of a cancel, a refund, or an order that was paid.

    It says nothing where another record may have done what it sees, nor where there is more than the records explain.
    """

    orders: orders.Orders
    """Of the seller, as the next one."""
    merchant_orders: merchant_orders.MerchantOrders
    journaling: Journaling
    """The journal, whose other records tell what they have done, and the platform's time."""

    async def __call__(self, record: Record) -> Resolution | None:
        """Return what became of *record*; `None` if that does not show."""
        ways = {orders.CANCEL.name: self._cancel, orders.REFUND.name: self._refund, orders.CREATE.name: self._create}
        try:
            return await ways[record.operation](record) if record.operation in ways else None
        except (PaymentsError, msgspec.DecodeError):
            return None  # A record that this version cannot read may be what it would see.

    async def _cancel(self, record: Record) -> Resolution | None:
        seen = await self.orders.get(_order_id(record))
        return _done(seen) if seen.status == orders.OrderStatus.CANCELED else None

    async def _refund(self, record: Record) -> Resolution | None:
        seen = await self.orders.get(_order_id(record))
        if not record.body:
            return _done(seen) if _is_refunded_whole(seen) else None
        # Read after the order: what it shows was kept before it was sent.
        others = [row for row in await self._others(record) if row.path == record.path]
        known = {_own_refund(row) for row in others if row.state is RecordState.DONE}
        in_doubt = [row for row in others if row.state is not RecordState.DONE]
        if None in known or any(not row.body for row in in_doubt):
            return None  # It may be any of the refunds.
        wanted = _wanted(record)
        rivals = sorted([record.key, *(row.key for row in in_doubt if _wanted(row) == wanted)])
        found = [one for one in seen.refunds if (one.transaction_id, one.amount) == wanted and one.id not in known]
        if len(found) != len(rivals):
            return None
        # Of several with the same bytes it does not matter which is whose, as long as no two have one.
        return _done(_with_last(seen, found[rivals.index(record.key)]))

    async def _create(self, record: Record) -> Resolution | None:
        asked, now = _ORDER.decode(record.body or b""), self.journaling.platform_clock.earliest()
        search = self.merchant_orders.search(
            external_reference=asked.external_reference,
            date_created_from=datetime.fromtimestamp(record.begun - TOLERANCE, UTC),
            date_created_to=datetime.fromtimestamp(now or record.not_after, UTC),
            certify=True,
        )
        found = await search.collect()
        others = [row.body for row in await self._others(record) if row.operation == orders.CREATE.name]
        if any(body is None or _ORDER.decode(body).external_reference == asked.external_reference for body in others):
            return None  # It may be what that one has made.
        paid = len(found) == 1 and found[0].total_amount == asked.total_amount
        # The order itself has another id, which a merchant order does not have.
        return Resolution(state=RecordState.DONE, reason="seen by a read: it was paid") if paid else None

    async def _others(self, record: Record) -> Sequence[Record]:
        """Return what else the seller has in the journal that may have taken effect."""
        with WithinContract():
            rows = await self.journaling.journal.records(_EFFECTIVE, limit=NO_LIMIT)
        mine = (record.base_url, record.seller)
        return [row for row in rows if row.key != record.key and (row.base_url, row.seller) == mine]


def _done(seen: orders.Order) -> Resolution:
    response = StoredResponse(200, {}, msgspec.json.encode(seen))
    return Resolution(state=RecordState.DONE, reason="seen by a read", response=response)


def _is_refunded_whole(seen: orders.Order) -> bool:
    """Whether all that was paid went back: after a part of it, too, the contract has the status `refunded`."""
    payment = seen.payment
    if payment is None or seen.status != orders.OrderStatus.REFUNDED:
        return False
    paid, back = payment.amount if payment.paid_amount is None else payment.paid_amount, payment.refunded_amount
    if back is None:
        back = sum((one.amount or ZERO for one in seen.refunds if one.status == orders.RefundStatus.PROCESSED), ZERO)
    return paid is not None and back >= paid


def _order_id(record: Record) -> str:
    return record.path.split("/")[-2]


def _wanted(record: Record) -> tuple[object, object]:
    """Return the payment and the amount of a partial refund."""
    asked = _REFUND.decode(record.body or b"").transactions or ()
    return next(((one.id, one.amount) for one in asked), (None, None))


def _own_refund(record: Record) -> str | None:
    """Return the id of the refund that a record has made: the newest of its response, which comes last."""
    refunds = () if record.response is None else orders.REFUND.decode(record.response.body)[0].refunds
    if not refunds or (record.body and _wanted(record) != (refunds[-1].transaction_id, refunds[-1].amount)):
        return None
    return refunds[-1].id


def _with_last(order: orders.Order, refund: orders.Refund) -> orders.Order:
    """Return *order* with *refund* as the last, as the platform sends it."""
    refunds = (*(one for one in order.refunds if one is not refund), refund)
    before = order.transactions or orders.Transactions()
    return structs.replace(order, transactions=structs.replace(before, refunds=refunds))
