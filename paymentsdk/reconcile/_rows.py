"""The rows of a reconciliation: what is read of each merchant order, and the Parquet files that they are written to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from paymentsdk.resources.common import Id, Moment, ResponseStruct
from paymentsdk.resources.merchant_orders import SEARCH

#: Digits of an amount, and how many of them are decimals: more than any currency has.
DIGITS, DECIMALS = 38, 18
#: Columns with few values.
_REPEATED = ["account", "currency", "status", "order_status", "read_at"]
AMOUNTS = ("total_amount", "paid_amount", "refunded_amount")
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


#: An order as it was read, and when, by the platform's clock: in milliseconds since 1970.
Row: TypeAlias = tuple[Order, int]


class Part(NamedTuple):
    """The rows of an account to be written."""

    account: str
    rows: Sequence[Row]


def write(parts: Sequence[Part], path: Path) -> None:
    """Write a Parquet file, which is there as a whole or not at all, also if the machine stops.

    Raises:
        OSError: It cannot be written.
        ValueError: An amount cannot be kept; see `keepable`.
    """
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        # Small parts have nothing to gain from a dictionary: it costs more time than all the rest.
        parquet().write_table(_table(parts), file, compression="lz4", use_dictionary=_REPEATED)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_directory(path.parent)


def keepable(rows: Sequence[Row]) -> tuple[list[Row], str | None]:
    """Return *rows* without amounts that were not read or have more digits than can be kept, and what is wrong."""
    kept, reasons = list(rows), []
    for i, (order, at) in enumerate(rows):
        for name in AMOUNTS:
            amount: Decimal | None = getattr(order, name)
            if amount is not None and not _is_kept(amount):
                reasons.append(f"{name} of {order.id} is no amount that can be kept: {amount}")
                kept[i] = replace(kept[i][0], **{name: None}), at
    return kept, "; ".join(reasons[:3]) or None


def _is_kept(amount: Decimal) -> bool:
    try:
        return amount.quantize(_SMALLEST, context=_EXACTLY).is_finite()
    except (Inexact, InvalidOperation):
        return False


def sync_file(path: Path) -> None:
    """Have the contents of a file survive a crash of the machine."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Have the names of the files in *path* survive a crash of the machine."""
    if os.name == "nt":
        return  # It opens no directories, and writes their names by itself.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_installed() -> None:
    """Refuse to begin without the extra.

    Raises:
        ImportError: pyarrow or duckdb is not installed; the message says how to get them.
    """
    for name in ("pyarrow", "duckdb"):
        if find_spec(name) is None:
            raise ImportError(f"a reconciliation needs {name}: install the extra `reconcile` of paymentsdk")


@cache
def duckdb() -> ModuleType:
    """Return the module `duckdb`, imported at the first use."""
    return import_module("duckdb")


@cache
def arrow() -> ModuleType:
    """Return the module `pyarrow`, imported at the first use."""
    return import_module("pyarrow")


@cache
def parquet() -> ModuleType:
    """Return the module `pyarrow.parquet`, imported at the first use."""
    return import_module("pyarrow.parquet")


#: What is written as it was read.
_READ = attrgetter(
    "external_reference",
    "preference_id",
    "total_amount",
    "paid_amount",
    "refunded_amount",
    "status",
    "order_status",
    "date_created",
    "last_updated",
)


def _table(parts: Sequence[Part]) -> object:
    rows = [row for part in parts for row in part.rows]
    orders = [order for order, _ in rows]
    # One pass over the rows, not one for each column.
    references, preferences, *others = zip(*map(_READ, orders), strict=True) if orders else [()] * 9
    columns = [
        [part.account for part in parts for _ in part.rows],
        [str(order.id) for order in orders],
        references,
        preferences,
        [order.currency for order in orders],
        *others,
        [read_at for _, read_at in rows],
    ]
    pa, own = arrow(), kinds()
    arrays = [pa.array(values, kind) for values, kind in zip(columns, own.values(), strict=True)]
    return pa.Table.from_arrays(arrays, names=list(own))


@cache
def kinds() -> dict[str, object]:
    """Return the types of the columns, by name."""
    pa = arrow()
    text, amount, moment = pa.string(), pa.decimal128(DIGITS, DECIMALS), pa.timestamp("us", "UTC")
    return {
        "account": text,
        "id": text,
        "reference": text,
        "preference_id": text,
        "currency": text,
        "total": amount,
        "paid": amount,
        "refunded": amount,
        "status": text,
        "order_status": text,
        "created": moment,
        "updated": moment,
        "read_at": pa.timestamp("ms", "UTC"),
    }
