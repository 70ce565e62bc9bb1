"""Merchant orders of the platform, which are read from pages, stored by column, and written to Parquet files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from importlib import import_module
from itertools import chain, product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from paymentsdk._codec.anomaly import MOST_REPORTS
from paymentsdk._files import whole
from paymentsdk._headers import http_date
from paymentsdk._paging.export import DECIMALS, DIGITS
from paymentsdk._paging.proof import EPOCH, NO_DATE, Snapshot, milliseconds, span_of, uncertainty
from paymentsdk.errors import import_extra
from paymentsdk.resources.common import Id, Moment, ResponseStruct
from paymentsdk.resources.merchant_orders import SEARCH
from paymentsdk.transports.base import header

if TYPE_CHECKING:
    from paymentsdk._call.response import Result
    from paymentsdk._codec.anomaly import Anomaly

#: The date by which a range selects rows.
By: TypeAlias = Literal["date_created", "last_updated"]
#: Columns with few different values.
_REPEATED = ["account", "currency", "status", "order_status", "read_at"]
#: Columns with amounts. The platform's names for them end in `_amount`.
AMOUNTS = ("total", "paid", "refunded")
_MOMENTS = ("created", "updated")
#: Columns with values as the platform sends them.
_COPIED = {
    name: attrgetter(name) for name in ("reference", "preference_id", "currency", *AMOUNTS, "status", "order_status")
}
#: The modules of the extra, imported at their first use.
duckdb = partial(import_module, "duckdb")
arrow = partial(import_module, "pyarrow")
parquet = partial(import_module, "pyarrow.parquet")
_ENTRY = re.compile(r"\$\.elements\[(\d+)\]\Z")
_AMOUNT = re.compile(r"\$\.elements\[(\d+)\]\.(total|paid|refunded)_amount\Z")


class _Priced(ResponseStruct):
    """A part of an order that names its currency."""

    currency_id: str | None = None


class MerchantOrderRow(
    ResponseStruct,
    rename={
        "reference": "external_reference",
        "created": "date_created",
        "updated": "last_updated",
        **{name: f"{name}_amount" for name in AMOUNTS},
    },
):
    """The members of a merchant order that a reconciliation reads, by the names of the columns in the files."""

    id: Id
    reference: str | None = None
    preference_id: str | None = None
    total: Decimal | None = None
    paid: Decimal | None = None
    refunded: Decimal | None = None
    status: str | None = None
    order_status: str | None = None
    created: Moment | None = None
    updated: Moment | None = None
    items: tuple[_Priced, ...] | None = None
    payments: tuple[_Priced, ...] | None = None

    @property
    def currency(self) -> str | None:
        """The currency of its first payment, or of its first item."""
        if self.payments and (first := self.payments[0].currency_id):
            return first
        parts = (*(self.payments or ()), *(self.items or ()))
        return next((part.currency_id for part in parts if part.currency_id), None)


class MerchantOrderPage(ResponseStruct):
    """A page of merchant orders."""

    elements: tuple[MerchantOrderRow, ...] | None = None
    next_offset: int | None = None
    total: int | None = None


#: The search for merchant orders, which decodes only what a reconciliation reads.
SEARCH_ORDERS = SEARCH.returning(MerchantOrderPage)


class Rows(Struct):
    """Rows of an account that wait to be written. They are stored by column, which takes much less memory.

    Members have the names of the columns in the files.
    """

    account: str
    id: list[str] = []
    reference: list[str | None] = []
    preference_id: list[str | None] = []
    currency: list[str | None] = []
    total: list[Decimal | None] = []
    paid: list[Decimal | None] = []
    refunded: list[Decimal | None] = []
    status: list[str | None] = []
    order_status: list[str | None] = []
    created: list[timedelta | None] = []
    """The time since 1970, because pyarrow takes three times as long for a datetime."""
    updated: list[timedelta | None] = []
    """The time since 1970."""
    read_at: list[int] = []
    """The platform's time, in milliseconds since 1970."""
    unread: list[str | None] = []
    """The names of the amounts that could not be read, separated by spaces."""

    def __len__(self) -> int:
        return len(self.id)

    def add_page(self, result: Result[MerchantOrderPage], by: By) -> Snapshot:
        """Add the orders of a page, and return the page as a snapshot of a range of *by*."""
        orders: Sequence[MerchantOrderRow] = result.value.elements or ()
        # Without a `Date` of the platform, the time of this machine counts.
        now = milliseconds(http_date(header(result.headers, "Date")) or datetime.now(UTC))
        # The ids are compared as text, so 3 and "3" are the same id. Reading may have dropped an id.
        ids = tuple([None if order.id in (None, "") else str(order.id) for order in orders])
        places, received = range(len(self), len(self) + len(orders)), len(orders)
        self.id += [row_id or "" for row_id in ids]
        for name, read in _COPIED.items():
            # A list that is extended by an iterator reserves too much memory.
            getattr(self, name).extend(list(map(read, orders)))
        self.created += [None if (moment := order.created) is None else moment - EPOCH for order in orders]
        self.updated += [None if (moment := order.updated) is None else moment - EPOCH for order in orders]
        self.read_at += [now] * len(orders)
        self.unread += [None] * len(orders)
        if result.anomalies:
            received += _mark_unreadable(self, places, result.anomalies)
        span = _span(self, places, by, result.anomalies)
        return Snapshot(ids=ids, places=places, total=result.value.total, now=now, received=received, span=span)

    def take(self, places: Sequence[int]) -> Rows:
        """Return the rows at *places*."""
        return Rows(self.account, *([column[i] for i in places] for column in astuple(self)[1:]))


def write(parts: Sequence[Rows], path: Path) -> None:
    """Write a Parquet file, whole or not at all.

    Raises:
        OSError: The file cannot be written.
        ValueError: An amount cannot be stored; see `drop_unstorable`.
    """
    with whole(path) as unfinished, unfinished.open("wb") as file:
        # Dictionaries and statistics do not help small files, and would take most of the time.
        parquet().write_table(
            _table(parts), file, compression="lz4", use_dictionary=_REPEATED, write_statistics=False, store_schema=False
        )


def drop_unstorable(rows: Rows) -> str | None:
    """Drop amounts of *rows* that could not be read or stored, and return the reasons; `None` if none was dropped."""
    reasons = []
    for name in AMOUNTS:
        amounts = getattr(rows, name)
        for i, amount in enumerate(amounts):
            if not is_storable(amount):
                reasons.append(f"{name}_amount of {rows.id[i]} cannot be stored as an amount: {amount}")
                rows.unread[i] = f"{rows.unread[i] or ''} {name}"
                amounts[i] = None
    return "; ".join(reasons[:3]) or None


def is_storable(amount: Decimal | None) -> bool:
    """Return whether the files can store *amount*."""
    try:
        arrow().scalar(amount, kinds()["total"])
    except ValueError:
        return False
    return True


def check_installed() -> None:
    """Check that the extra is installed.

    Raises:
        ImportError: pyarrow or duckdb is not installed; the message says how to install them.
    """
    for name in ("pyarrow", "duckdb"):
        import_extra(name, "reconcile", f"a reconciliation needs {name}")


def _table(parts: Sequence[Rows]) -> object:
    pa, arrays = arrow(), []
    for name, kind in kinds().items():
        if name == "account":
            arrays.append(pa.array([part.account for part in parts for _ in part.id], kind))
            continue
        values = list(chain.from_iterable(getattr(part, name) for part in parts))
        arrays.append(pa.array(values, pa.duration("us")).view(kind) if name in _MOMENTS else pa.array(values, kind))
    return pa.Table.from_arrays(arrays, names=list(kinds()))


@cache
def kinds() -> dict[str, object]:
    """Return the types of the columns, by name."""
    pa = arrow()
    text, amount, moment = pa.string(), pa.decimal128(DIGITS, DECIMALS), pa.timestamp("us", "UTC")
    return {
        **dict.fromkeys(("account", "id", "reference", "preference_id", "currency"), text),
        **dict.fromkeys(AMOUNTS, amount),
        **dict.fromkeys(("status", "order_status"), text),
        **dict.fromkeys(_MOMENTS, moment),
        "read_at": pa.timestamp("ms", "UTC"),
        "unread": text,
    }


def _mark_unreadable(rows: Rows, places: range, anomalies: Sequence[Anomaly]) -> int:
    """Mark unreadable amounts, which would otherwise count as 0; return how many entries could not be read as rows."""
    dropped = [int(match[1]) for anomaly in anomalies if anomaly.dropped and (match := _ENTRY.match(anomaly.path))]
    amounts = [match.groups() for anomaly in anomalies if anomaly.dropped and (match := _AMOUNT.match(anomaly.path))]
    unreadable = [(places.start + int(entry) - sum(i < int(entry) for i in dropped), name) for entry, name in amounts]
    if len(anomalies) > MOST_REPORTS:
        # Not all anomalies are named, so any missing amount may be unreadable.
        unreadable = [*product(places, AMOUNTS)]
    for i, name in unreadable:
        amounts_of_rows = getattr(rows, name)
        if i < places.stop and amounts_of_rows[i] is None:
            amounts_of_rows[i] = Decimal("NaN")
    return len(dropped)


def _span(rows: Rows, places: range, by: By, anomalies: Sequence[Anomaly]) -> tuple[int, int] | None:
    """Return the earliest and the latest certain date of the *rows* at *places*; `None` if no row has a date."""
    moments = rows.created if by == "date_created" else rows.updated
    dates = [moment for moment in moments[places.start :] if moment is not None and moment >= NO_DATE - EPOCH]
    return span_of(dates, uncertainty(anomalies, by))
