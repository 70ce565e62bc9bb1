"""The rows of a reconciliation: what is read of each merchant order, and the Parquet files that they are written to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple, replace

from paymentsdk.errors import install_extra
from paymentsdk.reconcile._windows import EPOCH
from paymentsdk.resources.common import Id, Moment, ResponseStruct
from paymentsdk.resources.merchant_orders import SEARCH

#: Digits of an amount, and how many of them are decimals: more than any currency has.
DIGITS, DECIMALS = 38, 18
#: Columns with few values.
_REPEATED = ["account", "currency", "status", "order_status", "read_at"]
#: Columns with amounts; what the platform calls them ends in `_amount`.
AMOUNTS = ("total", "paid", "refunded")
_MOMENTS = ("created", "updated")
#: What the extra brings, imported at its first use.
duckdb = partial(import_module, "duckdb")
arrow = partial(import_module, "pyarrow")
parquet = partial(import_module, "pyarrow.parquet")
_SMALLEST = Decimal(1).scaleb(-DECIMALS)
_EXACTLY = Context(prec=DIGITS, traps=[Inexact, InvalidOperation])


class _Priced(ResponseStruct):
    """A part of an order that names its currency."""

    currency_id: str | None = None


class Order(ResponseStruct):
    """What a reconciliation reads of a merchant order."""

    id: Id
    status: str | None = None
    order_status: str | None = None
    external_reference: str | None = None
    preference_id: str | None = None
    date_created: Moment | None = None
    last_updated: Moment | None = None
    total_amount: Decimal | None = None
    paid_amount: Decimal | None = None
    refunded_amount: Decimal | None = None
    items: tuple[_Priced, ...] | None = None
    payments: tuple[_Priced, ...] | None = None

    @property
    def currency(self) -> str | None:
        """The currency of its first payment, or of its first item."""
        if self.payments and (first := self.payments[0].currency_id):
            return first
        return next((one.currency_id for one in (*(self.payments or ()), *(self.items or ())) if one.currency_id), None)


class OrderPage(ResponseStruct):
    """A page of them."""

    elements: tuple[Order, ...] | None = None
    next_offset: int | None = None
    total: int | None = None


#: The search for merchant orders, which decodes only what a reconciliation reads.
SEARCH_ORDERS = SEARCH.returning(OrderPage)


class Rows(Struct):
    """Rows of an account, column by column, until they are written: as orders, they would take much more memory.

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
    """Since 1970, as `updated`: pyarrow takes three times as long for a datetime."""
    updated: list[timedelta | None] = []
    read_at: list[int] = []
    """By the platform's clock, in milliseconds since 1970."""

    def __len__(self) -> int:
        return len(self.id)

    def add(self, ids: Sequence[str | None], orders: Sequence[Order], now: int) -> range:
        """Add the *orders* of a page that was read at *now*, and return their places."""
        first = len(self)
        self.id += [one or "" for one in ids]
        self.reference += [one.external_reference for one in orders]
        self.preference_id += [one.preference_id for one in orders]
        self.currency += [one.currency for one in orders]
        self.total += [one.total_amount for one in orders]
        self.paid += [one.paid_amount for one in orders]
        self.refunded += [one.refunded_amount for one in orders]
        self.status += [one.status for one in orders]
        self.order_status += [one.order_status for one in orders]
        self.created += [None if (moment := one.date_created) is None else moment - EPOCH for one in orders]
        self.updated += [None if (moment := one.last_updated) is None else moment - EPOCH for one in orders]
        self.read_at += [now] * len(orders)
        return range(first, len(self))

    def take(self, places: Sequence[int]) -> Rows:
        """Return the rows at *places*."""
        return Rows(self.account, *([column[i] for i in places] for column in astuple(self)[1:]))


def write(parts: Sequence[Rows], path: Path) -> None:
    """Write a Parquet file, as a whole or not at all.

    Raises:
        OSError: It cannot be written.
        ValueError: An amount cannot be kept; see `keepable`.
    """
    with whole(path) as unfinished, unfinished.open("wb") as file:
        # Small parts have nothing to gain from a dictionary or from statistics: they cost more time than all the rest.
        parquet().write_table(
            _table(parts), file, compression="lz4", use_dictionary=_REPEATED, write_statistics=False, store_schema=False
        )


def keepable(rows: Rows) -> tuple[Rows, str | None]:
    """Return *rows* without amounts that were not read or have more digits than can be kept, and what is wrong."""
    kept, reasons = replace(rows), []
    for name in AMOUNTS:
        amounts: list[Decimal | None] = getattr(rows, name)
        reasons += [
            f"{name}_amount of {order_id} is no amount that can be kept: {amount}"
            for order_id, amount in zip(rows.id, amounts, strict=True)
            if not is_kept(amount)
        ]
        setattr(kept, name, [amount if is_kept(amount) else None for amount in amounts])
    return kept, "; ".join(reasons[:3]) or None


def is_kept(amount: Decimal | None) -> bool:
    """Whether the files can keep *amount*."""
    try:
        return amount is None or amount.quantize(_SMALLEST, context=_EXACTLY).is_finite()
    except (Inexact, InvalidOperation):
        return False


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write what is *path* in the end: as a whole or not at all, also if the machine stops."""
    unfinished = path.with_suffix(".unfinished")
    yield unfinished
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    if os.name == "nt":
        return  # It opens no directories, and writes their names by itself.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_installed() -> None:
    """Raise where the extra is missing.

    Raises:
        ImportError: pyarrow or duckdb is not installed; the message says how to get them.
    """
    for name in ("pyarrow", "duckdb"):
        if find_spec(name) is None:
            raise ImportError(f"a reconciliation needs {name}: {install_extra('reconcile')}")


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
    }
