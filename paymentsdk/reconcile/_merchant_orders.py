"""The merchant orders of the platform: searched, kept column by column, and written to Parquet files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from paymentsdk._codec.anomaly import MOST_REPORTS
from paymentsdk._files import whole
from paymentsdk._headers import http_date
from paymentsdk._paging.proof import (
    EPOCH,
    MILLISECOND,
    NO_DATE,
    SAMPLES,
    Sample,
    Snapshot,
    Window,
    milliseconds,
    moment_of,
    prove,
    uncertainty,
)
from paymentsdk.errors import BadRequest, NotWhole, RateLimited, install_extra
from paymentsdk.reconcile._tasks import together
from paymentsdk.resources.common import Id, Moment, ResponseStruct
from paymentsdk.resources.merchant_orders import SEARCH
from paymentsdk.transports.base import header

if TYPE_CHECKING:
    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk.client import PaymentsClient

T = TypeVar("T")

#: The date that a range is about.
By: TypeAlias = Literal["date_created", "last_updated"]
#: Of more than so many accounts, the date filter is proved on fewer rows of each: thousands are asked before a walk.
FEW_ACCOUNTS = 100
#: How often rows are sampled anew that have changed before they were found.
_TRIES = 3
#: Seconds that an account waits, as 429s ask it to, while none of its calls is served.
PATIENCE = 900.0
#: Digits of an amount, and how many of them are decimals: more than any currency has. Sums may have two more.
DIGITS, DECIMALS = 36, 18
#: Columns with few values.
_REPEATED = ["account", "currency", "status", "order_status", "read_at"]
#: Columns with amounts; what the platform calls them ends in `_amount`.
AMOUNTS = ("total", "paid", "refunded")
_MOMENTS = ("created", "updated")
#: Columns that are as the platform sends them.
_COPIED = {
    name: attrgetter(name) for name in ("reference", "preference_id", "currency", *AMOUNTS, "status", "order_status")
}
#: What the extra brings, imported at its first use.
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
    """What a reconciliation reads of a merchant order; members have the names of the columns in the files."""

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
    """A page of them."""

    elements: tuple[MerchantOrderRow, ...] | None = None
    next_offset: int | None = None
    total: int | None = None


#: The search for merchant orders, which decodes only what a reconciliation reads.
SEARCH_ORDERS = SEARCH.returning(MerchantOrderPage)


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
    unread: list[str | None] = []
    """Which amounts could not be read, separated by spaces."""

    def __len__(self) -> int:
        return len(self.id)

    def add(self, ids: Sequence[str | None], orders: Sequence[MerchantOrderRow], now: int) -> range:
        """Add the *orders* of a page that was read at *now*, and return their places."""
        first = len(self)
        self.id += [row_id or "" for row_id in ids]
        for name, read in _COPIED.items():
            # Extended by an iterator, a list would keep room for more.
            getattr(self, name).extend(list(map(read, orders)))
        self.created += [None if (moment := order.created) is None else moment - EPOCH for order in orders]
        self.updated += [None if (moment := order.updated) is None else moment - EPOCH for order in orders]
        self.read_at += [now] * len(orders)
        self.unread += [None] * len(orders)
        return range(first, len(self))

    def take(self, places: Sequence[int]) -> Rows:
        """Return the rows at *places*."""
        return Rows(self.account, *([column[i] for i in places] for column in astuple(self)[1:]))


def write(parts: Sequence[Rows], path: Path) -> None:
    """Write a Parquet file, as a whole or not at all.

    Raises:
        OSError: It cannot be written.
        ValueError: An amount cannot be stored; see `drop_unstorable`.
    """
    with whole(path) as unfinished, unfinished.open("wb") as file:
        # Small parts have nothing to gain from a dictionary or from statistics: they cost more time than all the rest.
        parquet().write_table(
            _table(parts), file, compression="lz4", use_dictionary=_REPEATED, write_statistics=False, store_schema=False
        )


def drop_unstorable(rows: Rows) -> str | None:
    """Drop amounts of *rows* that were not read or that the files cannot store, and return what is wrong with them."""
    reasons = []
    for name in AMOUNTS:
        amounts = getattr(rows, name)
        for i, amount in enumerate(amounts):
            if not is_storable(amount):
                reasons.append(f"{name}_amount of {rows.id[i]} is no amount that can be kept: {amount}")
                rows.unread[i] = f"{rows.unread[i] or ''} {name}"
                amounts[i] = None
    return "; ".join(reasons[:3]) or None


def is_storable(amount: Decimal | None) -> bool:
    """Whether the files can store *amount*."""
    try:
        arrow().scalar(amount, kinds()["total"])
    except ValueError:
        return False
    return True


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
        "unread": text,
    }


# --- the search -------------------------------------------------------------------------------------------------------


class Search:
    """Asks for pages, and counts the calls.

    Args:
        accounts: The client of each seller, by name.
        limit: Rows to ask for per page.
        budgets: Bound the calls in flight of each.
    """

    def __init__(
        self, accounts: Mapping[str, PaymentsClient], limit: int, budgets: Mapping[str, asyncio.Semaphore]
    ) -> None:
        self.accounts = accounts
        self._budgets = budgets
        self.calls = 0
        #: The platform's time at the first response, in milliseconds since 1970.
        self.begun: int | None = None
        #: When each account whose calls were only answered with 429 since was first, by the clock of its client.
        self._limited_since: dict[str, float] = {}
        #: Empty where the platform takes no such number.
        self._limit = {"limit": limit}

    async def page(self, rows: Rows, offset: int = 0, /, **filters: object) -> Snapshot | None:
        """Fetch a page and add its orders to *rows*; `None` if the platform rejects its offset."""
        self.calls += 1
        limit = self._limit
        try:
            query = {"offset": offset, **filters, **limit}
            call = partial(self.accounts[rows.account].call, SEARCH_ORDERS, query=query)
            result = await self.served(rows.account, call)
        except BadRequest:
            if offset:
                return None
            if not limit:
                raise
            # It may take no number as large as that; then it has one of its own.
            self._limit = {}
            try:
                return await self.page(rows, **filters)
            except BadRequest:
                self._limit = limit
                raise
        orders: Sequence[MerchantOrderRow] = result.value.elements or ()
        # This machine's time, if the platform does not say it.
        now = milliseconds(http_date(header(result.headers, "Date")) or datetime.now(UTC))
        self.begun = self.begun or now
        ids = ids_of(orders)
        places, received = rows.add(ids, orders, now), len(orders)
        if result.anomalies:
            received += _mark_unreadable(rows, places, result.anomalies)
        by: By = "last_updated" if "last_updated_from" in filters else "date_created"
        span = _span(rows, places, by, result.anomalies)
        return Snapshot(ids=ids, places=places, total=result.value.total, now=now, received=received, span=span)

    async def served(self, account: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a *call* of an account within its budget; after a 429, wait as long as that asks, and call again.

        Raises:
            RateLimited: The wait would end 15 minutes after the first 429 since a call of the account was served.
        """
        clock = self.accounts[account]._engine.runtime.clock  # noqa: SLF001 - no caller of a client needs it
        while True:
            try:
                async with self._budgets[account]:
                    result = await call()
            except RateLimited as error:
                since = self._limited_since.setdefault(account, clock.monotonic())
                if not error.retry_after or clock.monotonic() + error.retry_after > since + PATIENCE:
                    raise
                pause = error.retry_after
            else:
                self._limited_since.pop(account, None)
                return result
            await clock.sleep(pause)

    async def prove(self, name: str, created: Window, by: By = "date_created") -> int | None:
        """Prove a date filter on live rows of an account, and return its grain; `None` if there are no rows.

        Raises:
            NotWhole: No row is found by its date: no window would prove anything.
        """

        async def find(candidates: Sequence[Sample], grain: int) -> list[bool]:
            return await together(self._shows(name, by, sample, grain) for sample in candidates)

        most = SAMPLES if len(self.accounts) <= FEW_ACCOUNTS else 1
        samples, total = await self._samples(name, by)
        for _ in range(_TRIES):
            if not samples:
                return None
            if (grain := await prove(samples, find, most)) is not None:
                return grain
            # They may have changed meanwhile; if they have not, it is the filter.
            tried = samples
            samples, total = await self._samples(name, by)
            if tried == samples:
                break
        raise not_whole(name, created, 0, total, "the date filter finds no row by the date that it shows")

    async def _samples(self, name: str, by: By) -> tuple[list[Sample], int | None]:
        """Return rows that are found without the date filter: the first, some from the middle, and the last."""
        rows = Rows(name)
        first = await self.page(rows)
        total, received = None if first is None else first.total, len(rows)
        middle, last = (total or 0) // 2, (total or 0) - received
        for offset in sorted({max(offset, received) for offset in (middle, last) if received and last > 0}):
            await self.page(rows, offset)
        moments = rows.created if by == "date_created" else rows.updated
        samples = [
            Sample(rows.id[i], moment // MILLISECOND, rows.updated[i] not in (None, rows.created[i]))
            for i, moment in enumerate(moments)
            if moment is not None and moment >= NO_DATE - EPOCH and rows.id[i]
        ]
        return samples, total

    async def _shows(self, name: str, by: By, sample: Sample, grain: int) -> bool:
        """Whether *sample* comes among the rows of its own millisecond, widened by *grain*, and none from far off."""
        window, offset, tries = Window(sample.at, sample.at + 1), 0, 0
        filters = asked_for(*window.asked(grain), by)
        while (page := await self.page(Rows(name), offset, **filters)) and page.received and tries < _TRIES:
            if page.objection_to(window, grain):
                tries += 1  # It may be the response to another query.
            elif sample.id in page.ids:
                return True
            else:
                offset += page.received
        return False


def asked_for(begin: int, end: int, by: By) -> dict[str, object]:
    """Return the filters for a range of time."""
    return {f"{by}_from": moment_of(begin), f"{by}_to": moment_of(end)}


def _span(rows: Rows, places: range, by: By, anomalies: Sequence[Anomaly]) -> tuple[int, int] | None:
    """Return the earliest and the latest date of the *rows* at *places*, as far as these are certain."""
    moments = rows.created if by == "date_created" else rows.updated
    dates = [moment for moment in moments[places.start :] if moment is not None and moment >= NO_DATE - EPOCH]
    if not dates:
        return None
    slack = uncertainty(anomalies, by)
    return (min(dates) + slack) // MILLISECOND, (max(dates) - slack) // MILLISECOND


def ids_of(orders: Sequence[MerchantOrderRow]) -> tuple[str | None, ...]:
    """Return the ids of *orders* as text: 3 and "3" are one."""
    ids = [str(order.id) for order in orders]
    # Neither is an id; a row without one has lost it in decoding.
    if "None" in ids or "" in ids:
        return tuple([None if row_id in ("None", "") else row_id for row_id in ids])
    return tuple(ids)


def not_whole(name: str, window: Window, seen: int, total: int | None, reason: str) -> NotWhole:
    """Return the error that names *window* of an account."""
    error = NotWhole((moment_of(window.begin), moment_of(window.end)), seen, total, reason)
    error.account = name or None
    error.operation = SEARCH_ORDERS.name
    return error


def _mark_unreadable(rows: Rows, places: range, anomalies: Sequence[Anomaly]) -> int:
    """Mark amounts that could not be read: absent, they would count as nothing. Return how many entries are no rows."""
    dropped = [int(match[1]) for anomaly in anomalies if anomaly.dropped and (match := _ENTRY.match(anomaly.path))]
    amounts = [match for anomaly in anomalies if anomaly.dropped and (match := _AMOUNT.match(anomaly.path))]
    unreadable = {(int(match[1]), match[2]) for match in amounts}
    if len(anomalies) > MOST_REPORTS:
        # Not all are named: any amount that is absent may be one of them.
        unreadable |= {*product(range(len(places) + len(dropped)), AMOUNTS)}
    for entry, name in unreadable:
        amounts_of_rows, i = getattr(rows, name), places.start + entry - sum(place < entry for place in dropped)
        if i < places.stop and amounts_of_rows[i] is None:
            amounts_of_rows[i] = Decimal("NaN")
    return len(dropped)
