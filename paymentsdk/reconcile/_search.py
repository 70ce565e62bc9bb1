"""The search for merchant orders, as a reconciliation asks it: pages of a range of time, or of one reference."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from paymentsdk._codec.anomaly import MOST_REPORTS
from paymentsdk._headers import http_date
from paymentsdk.errors import BadRequest
from paymentsdk.reconcile._certificate import Sight
from paymentsdk.reconcile._proof import GRAINS, Question, Sample, prove
from paymentsdk.reconcile._rows import AMOUNTS, SEARCH_ORDERS, Order
from paymentsdk.reconcile._tasks import answered, together
from paymentsdk.reconcile._windows import NO_DATE, milliseconds, moment_of
from paymentsdk.transports.base import header

if TYPE_CHECKING:
    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk.client import PaymentsClient

#: The date that a range is about.
By: TypeAlias = Literal["date_created", "last_updated"]
_ENTRY = re.compile(r"\$\.elements\[(\d+)\]\Z")
_AMOUNT = re.compile(r"\$\.elements\[(\d+)\]\.((?:total|paid|refunded)_amount)\Z")


class Proof(NamedTuple):
    """How exactly a date filter works."""

    account: str
    """Whose rows it was proved on; empty if nobody has any."""
    grain: int | None
    """In milliseconds; `None` if no row is found by its date."""
    total: int | None
    """How many rows the account has."""


class Search:
    """Asks for pages, and counts the calls.

    Args:
        accounts: The client of each seller, by name.
        limit: Rows to ask for per page.
        in_flight: Calls in flight per account.
        budget: Bounds the calls in flight instead, of all accounts together.
    """

    def __init__(
        self,
        accounts: Mapping[str, PaymentsClient],
        limit: int,
        in_flight: int,
        budget: asyncio.Semaphore | None = None,
    ) -> None:
        self.accounts = accounts
        self._budgets = {name: budget or asyncio.Semaphore(in_flight) for name in accounts}
        self.calls = 0
        #: The platform's time at the first response, in milliseconds since 1970.
        self.begun: int | None = None
        #: `None` where the platform takes no such number.
        self._limit: int | None = limit

    async def page(
        self, name: str, begin: int | None, end: int | None, offset: int, *, by: By = "date_created"
    ) -> Sight[Order] | None:
        """Fetch a page of a range, which may be open; `None` if the platform rejects its offset."""
        query: dict[str, object] = {"offset": offset}
        if begin is not None:
            query[f"{by}_from"] = moment_of(begin)
        if end is not None:
            query[f"{by}_to"] = moment_of(end)
        return await self._ask(name, query)

    async def reference(self, name: str, reference: str) -> Sight[Order] | None:
        """Fetch the first page of the orders of a reference."""
        return await self._ask(name, {"offset": 0, "external_reference": reference})

    async def _ask(self, name: str, query: dict[str, object]) -> Sight[Order] | None:
        self.calls += 1
        limited = query if self._limit is None else {**query, "limit": self._limit}
        try:
            async with self._budgets[name]:
                result = await self.accounts[name].call(SEARCH_ORDERS, query=limited)
        except BadRequest:
            if query["offset"]:
                return None
            if self._limit is None:
                raise
            # It may take no number as large as that; then it has one of its own.
            self._limit = None
            return await self._ask(name, query)
        orders: Sequence[Order] = result.value.elements or ()
        dropped = 0
        if result.anomalies:
            dropped = sum(one.dropped and _ENTRY.match(one.path) is not None for one in result.anomalies)
            orders = _with_unreadable(orders, result.anomalies)
        now = platform_time(result.headers)
        if self.begun is None:
            self.begun = now
        return Sight(
            ids=ids_of(orders),
            rows=orders,
            total=result.value.total,
            now=now,
            received=len(orders) + dropped,
        )

    async def prove(self, by: By = "date_created") -> Proof:
        """Prove a date filter on live rows of the first account that has some."""
        for name in self.accounts:
            samples, total = await self._samples(name, by)
            if samples:
                return Proof(name, await answered(prove(samples), partial(self._find, name, by)), total)
        # Nothing to prove it on. The rows that appear later are few, so the coarsest grain costs nothing.
        return Proof("", GRAINS[-1], 0)

    async def _samples(self, name: str, by: By) -> tuple[list[Sample], int | None]:
        """Return rows that are found without the date filter: the first, and some from the middle."""
        first = await self.page(name, None, None, 0)
        if first is None or not first.rows:
            return [], 0
        middle = (first.total or 0) // 2
        more = await self.page(name, None, None, middle) if middle > first.received else None
        rows = [*first.rows, *(more.rows if more else ())]
        return [sample for order in rows if (sample := _sample(order, by)) is not None], first.total

    async def _find(self, name: str, by: By, questions: Sequence[Question]) -> list[bool]:
        return await together(self._finds(name, by, question) for question in questions)

    async def _finds(self, name: str, by: By, question: Question) -> bool:
        offset = 0
        while True:
            page = await self.page(name, question.begin, question.end, offset, by=by)
            if page is None or not page.received:
                return False
            if question.id in page.ids:
                return True
            offset += page.received


def ids_of(orders: Sequence[Order]) -> tuple[str | None, ...]:
    """Return the ids of *orders* as text: 3 and "3" are one."""
    ids = [str(order.id) for order in orders]
    # Neither is an id; a row without one has lost it in decoding.
    if "None" in ids or "" in ids:
        return tuple([None if one in ("None", "") else one for one in ids])
    return tuple(ids)


def platform_time(headers: Mapping[str, str]) -> int:
    """Return the platform's time, in milliseconds since 1970; this machine's, if the platform does not say it."""
    moment = http_date(header(headers, "Date"))
    return milliseconds(datetime.now(UTC) if moment is None else moment)


def _with_unreadable(orders: Sequence[Order], anomalies: Sequence[Anomaly]) -> Sequence[Order]:
    """Mark amounts that could not be read: absent, they would count as nothing."""
    dropped = [int(found[1]) for one in anomalies if one.dropped and (found := _ENTRY.match(one.path))]
    unreadable = {(found[1], found[2]) for one in anomalies if one.dropped and (found := _AMOUNT.match(one.path))}
    if len(anomalies) > MOST_REPORTS:
        # Not all are named: any amount that is absent may be one of them.
        unreadable |= {(str(i), f"{name}_amount") for i in range(len(orders) + len(dropped)) for name in AMOUNTS}
    marked = list(orders)
    for place, name in unreadable:
        i = int(place) - sum(one < int(place) for one in dropped)
        if i < len(marked) and getattr(marked[i], name) is None:
            marked[i] = replace(marked[i], **{name: Decimal("NaN")})
    return marked


def _sample(order: Order, by: By) -> Sample | None:
    [row_id] = ids_of([order])
    moment = order.date_created if by == "date_created" else order.last_updated
    if moment is None or moment < NO_DATE or row_id is None:
        return None
    is_changed = order.last_updated not in (None, order.date_created)
    return Sample(row_id, milliseconds(moment), is_changed)
