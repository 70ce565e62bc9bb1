"""What a journal knows: its orders as rows of a book, and which of them are open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec
from msgspec import Struct

from paymentsdk.errors import RequestInvalid
from paymentsdk.journal import Journal, Record, RecordState
from paymentsdk.journal._states import NO_LIMIT, OPEN
from paymentsdk.reconcile._outcome import BookRow
from paymentsdk.resources import orders, preferences
from paymentsdk.resources.orders import RefundStatus


class _Item(Struct):
    quantity: Decimal = Decimal(1)
    unit_price: Decimal = Decimal(0)
    currency_id: str | None = None


class _Refund(Struct):
    amount: Decimal | None = None
    status: str | None = None


class _Transactions(Struct):
    refunds: tuple[_Refund, ...] = ()


class _Made(Struct):
    """What a reconciliation reads of the request for an order or a preference, and of the responses."""

    id: str | None = None
    external_reference: str | None = None
    total_amount: Decimal | None = None
    currency: str | None = None
    created_date: datetime | None = None
    items: tuple[_Item, ...] | None = None
    transactions: _Transactions | tuple[_Refund, ...] | None = None
    """A request for a refund has a list."""


class OpenWrite(NamedTuple):
    """What an open record is about."""

    account: str
    reference: str | None
    order_id: str | None


_MADE = msgspec.json.Decoder(_Made, strict=False)


async def open_records(journal: Journal) -> list[Record]:
    """Return the records that are open."""
    return await journal.records(OPEN, limit=NO_LIMIT)


def open_write(record: Record) -> OpenWrite:
    """Return what *record* is about: a reference that is being created, or an order that is being changed."""
    return OpenWrite(record.account or "", _read(record.body).external_reference, _order_id(record))


async def rows_of_journal(journal: Journal) -> list[BookRow]:
    """Return the orders and preferences that a journal knows of.

    Raises:
        RequestInvalid: Nothing says which reference a record is about: it was created without one.
    """
    records = await journal.records((*OPEN, RecordState.DONE), limit=NO_LIMIT)
    changes: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        order_id = _order_id(record)
        if order_id is not None and record.state is RecordState.DONE:
            changes[order_id].append(record)
    made = [record for record in records if record.operation in (orders.CREATE.name, preferences.CREATE.name)]
    return [_row(record, changes) for record in made]


def _row(record: Record, changes: Mapping[str, Sequence[Record]]) -> BookRow:
    asked, answer = _read(record.body), _answer(record)
    reference = asked.external_reference or answer.external_reference
    if reference is None:
        raise RequestInvalid("book", f"the record {record.name!r} of the journal has no external_reference")
    row = BookRow(
        account=record.account,
        reference=reference,
        created=answer.created_date or datetime.fromtimestamp(record.begun, UTC),
        currency=answer.currency,
        total=asked.total_amount or answer.total_amount,
    )
    if record.operation == preferences.CREATE.name:
        items = asked.items or answer.items or ()
        row["total"] = sum((one.quantity * one.unit_price for one in items), Decimal(0)) or None
        row["currency"] = next((one.currency_id for one in items if one.currency_id), None)
    elif answer.id is not None:
        row["order_id"] = answer.id
        row |= _changed(changes.get(answer.id, ()))
    return row


def _changed(records: Sequence[Record]) -> BookRow:
    """Return what was refunded and canceled since."""
    refunded = Decimal(0)
    for record in records:
        if record.operation == orders.CANCEL.name:
            return BookRow(status="canceled")
        answer, asked = _answer(record).transactions, _read(record.body).transactions
        if isinstance(answer, _Transactions) and answer.refunds and answer.refunds[-1].status == RefundStatus.FAILED:
            continue
        if not isinstance(asked, tuple):
            return BookRow(status="refunded")
        refunded += sum((one.amount or Decimal(0) for one in asked), Decimal(0))
    return BookRow(refunded=refunded)


def _answer(record: Record) -> _Made:
    return _read(None if record.response is None else record.response.body)


def _read(body: bytes | None) -> _Made:
    """Return what *body* says; nothing, if it is wiped."""
    if not body:
        return _Made()
    try:
        return _MADE.decode(body)
    except msgspec.MsgspecError:
        return _Made()


def _order_id(record: Record) -> str | None:
    """Return the order that a cancel or a refund is about."""
    if record.operation not in (orders.CANCEL.name, orders.REFUND.name):
        return None
    return record.path.split("/")[-2]
