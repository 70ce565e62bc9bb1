"""The reads after the walk: rows that have changed since, and orders of the book that the walk has not found."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk import errors, money
from paymentsdk._paging.proof import EPOCH, GRAINS, Rules, Window, moment_of
from paymentsdk.errors import BadRequest, NotFound, NotWhole, PaymentsError, RequestInvalid
from paymentsdk.reconcile._book import STATES
from paymentsdk.reconcile._merchant_orders import Rows, drop_unstorable, is_storable, write
from paymentsdk.reconcile._run import Run
from paymentsdk.reconcile._tasks import for_each, together
from paymentsdk.reconcile._walk import MOST_IN_FLIGHT, MOST_PENDING, not_whole
from paymentsdk.resources.orders import GET, Order, RefundStatus

#: Ranges without an end that are asked for until one comes as one page.
MOST_ROUNDS = 20
#: No row is too old for its changes to be shown, as long as it is shown at all.
_EVER = 10**15
#: Look-ups that wait to be kept, at most.
_BATCH = 1_000
#: How often a reference is asked for whose orders do not come on one page.
_TRIES = 5


@dataclass
class Changes:
    """What has changed since the walk: a second walk over `last_updated`, so that all rows speak of one time.

    A row that changes leaves its range of `last_updated` and enters a later one. So ranges are walked from the earliest
    to the latest, each after it has ended: a row that changes meanwhile is met again. The last range has no end, and
    has to come as one page: behind it there is nothing. So each change that was shown when the first range was asked
    for is found. One that is shown later may have a date in a range that is done by then.
    """

    run: Run

    files: list[Path] = field(default_factory=list)
    not_whole: list[NotWhole] = field(default_factory=list)
    as_of: int | None = None
    """Until when, in milliseconds since 1970; `None` if no such moment is known."""
    _rows: list[Rows] = field(default_factory=list)
    _pending: int = 0
    """How many these are."""
    _moments: dict[str, int | None] = field(default_factory=dict)
    """The `as_of` of each account."""

    def __post_init__(self) -> None:
        self._directory = self.run.checkpoint.directory / "changes"

    async def read(self) -> None:
        """Write the rows that have changed since the first window was walked."""
        shutil.rmtree(self._directory, ignore_errors=True)
        since = self.run.checkpoint.sums().since
        if since is None:
            return
        # What changed shortly before may have been shown only since.
        self._since = since - self.run.rules.lag
        await asyncio.to_thread(self._directory.mkdir)
        await self.run.take_phase(self._read_accounts)
        await self._flush()
        moments = [moment for moment in self._moments.values() if moment is not None]
        if len(moments) == len(self._moments) and not self.not_whole:
            self.as_of = min(moments)

    async def _read_accounts(self, names: list[str]) -> None:
        turn, numbers, since = asyncio.Semaphore(MOST_IN_FLIGHT), count(1), self._since
        unproved: dict[str, PaymentsError] = {}
        proved = await self.run.prove(names, Window(since, since + 1), unproved, "last_updated")
        for name, error in unproved.items():
            if isinstance(error, NotWhole):
                self._moments[name] = None
            else:
                self.run.failed[name] = error

        async def read(name: str) -> int | None:
            rules = replace(self.run.rules, grain=proved[name] or GRAINS[-1], horizon=_EVER)
            async with turn:
                moment = await self._account(name, rules, since)
            self.run.report_progress("changes", next(numbers) / len(names))
            return moment

        self._moments |= await for_each(proved, read, self.run.failed)

    async def _account(self, name: str, rules: Rules, begin: int) -> int | None:
        """Return the moment of the first page, if the last range has come as one."""
        shown_by: int | None = None
        for _ in range(MOST_ROUNDS):
            rows = Rows(name)
            page = await self.run.walk.page(rows, last_updated_from=moment_of(begin - rules.grain))
            if page is None:
                return None
            shown_by = page.now if shown_by is None else shown_by
            if page.is_atomic(rules) and not page.objection_to(Window(begin, _EVER), rules.grain):
                await self._add(Window(begin, page.now), rows)
                return shown_by
            if begin < page.now and not await self._ranges(name, rules, Window(begin, page.now)):
                return None
            begin = max(begin, page.now)
        return None

    async def _ranges(self, name: str, rules: Rules, whole: Window) -> bool:
        """Walk ranges that have ended, the earliest first; say whether all of them were whole."""
        stack = [whole]
        while stack:
            window = stack.pop()
            _, verdict, rows = await self.run.walk.examined(name, window, rules, by="last_updated")
            if verdict.pieces:
                stack += reversed(verdict.pieces)
                continue
            await self._add(window, rows.take(verdict.places))
            if verdict.reason is not None:
                reason = f"what has changed in this time: {verdict.reason}"
                self.not_whole.append(not_whole(name, window, len(verdict.places), verdict.total, reason))
                return False
        return True

    async def _add(self, window: Window, rows: Rows) -> None:
        if reason := drop_unstorable(rows):
            self.not_whole.append(not_whole(rows.account, window, len(rows), len(rows), reason))
        if rows:
            self._rows.append(rows)
            self._pending += len(rows)
        if self._pending >= MOST_PENDING:
            await self._flush()

    async def _flush(self) -> None:
        rows, self._rows, self._pending = self._rows, [], 0
        if rows:
            path = self._directory / f"{len(self.files):06}.parquet"
            self.files.append(path)
            await asyncio.to_thread(write, rows, path)


# --- orders that were not found ---------------------------------------------------------------------------------------


class Absent(NamedTuple):
    """An order of the book that the walk has not found."""

    n: int
    """Its row in the book."""
    account: str
    reference: str
    order_id: str


class LookedUp(Struct, frozen=True, kw_only=True):
    """The result of a look-up: a merchant order of the reference, or the order of the id.

    `id` is `None` if there is no such order.
    """

    by_id: bool = False
    is_doubtful: bool = False
    """Whether the search may have more orders of the reference than it showed."""
    id: str | None = None
    currency: str | None = None
    total: Decimal | None = None
    paid: Decimal | None = None
    refunded: Decimal | None = None
    status: str | None = None
    created: datetime | None = None
    reason: str | None = None
    """Why it could not be read."""
    read_at: datetime


#: Where an order has its amounts.
_AMOUNTS = {
    "total": ("$.total_amount",),
    "paid": ("$.transactions.payments[0].paid_amount",),
    "refunded": ("$.transactions.payments[0].refunded_amount", "$.transactions.refunds"),
}
#: Look-ups of a seller in a row that get no response; then it is the seller that cannot be read.
_MOST_SILENT = 10
#: Errors of a look-up that are about its seller.
_OF_SELLER = (errors.AuthenticationFailed, errors.RateLimited, errors.ReauthorizationRequired)


class LookUps:
    """Looks orders up, by reference and by the id that the book has.

    Args:
        run: The run.
        missing: How many orders there are to look up.
        add: Keeps what the look-ups of some orders have shown.
        forget: Drops what the look-ups of some accounts have shown.
    """

    def __init__(
        self,
        run: Run,
        missing: int,
        add: Callable[[Iterable[tuple[Absent, Iterable[LookedUp]]]], None],
        forget: Callable[[Iterable[str]], None],
    ) -> None:
        self.run = run
        self._missing = missing
        self._add = add
        self._forget = forget
        #: Look-ups without a response, by seller, since the last that had one.
        self._silent: Counter[str] = Counter()
        #: Look-ups that are done, and not kept yet.
        self._pending: list[tuple[Absent, list[LookedUp]]] = []
        self._done = 0

    async def look_up_all(self, absent: Callable[[], Iterator[Absent]]) -> None:
        """Look up the orders that are *absent*."""

        async def look_up(names: list[str]) -> None:
            accounts, workers = {*names}, min(MOST_IN_FLIGHT, self.run.in_flight * len(names))
            orders = (line for line in absent() if line.account in accounts and line.account not in self.run.failed)
            # Those that are taken again had look-ups before they failed.
            self._forget(names)
            await together(self._work(orders) for _ in range(workers))
            self._flush()

        await self.run.take_phase(look_up)
        self._forget(self.run.failed)
        self.run.report_progress("look-ups", 1.0)

    async def _work(self, orders: Iterator[Absent]) -> None:
        for order in orders:
            await for_each([order.account], partial(self._look_up, order), self.run.failed)
            self._done += 1
            self.run.report_progress("look-ups", min(1.0, self._done / self._missing))
            if len(self._pending) >= _BATCH:
                self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._add(pending)

    async def _look_up(self, line: Absent, _: str) -> None:
        orders: list[LookedUp] = []
        try:
            await self._find(line, orders)
        except (errors.APIError, errors.NoAnswer) as error:
            self._silent[line.account] += isinstance(error, errors.NoAnswer)
            if isinstance(error, _OF_SELLER) or self._silent[line.account] > _MOST_SILENT:
                raise
            at = moment_of(self.run.walk.begun or 0)
            orders.append(LookedUp(by_id=bool(line.order_id), reason=str(error), read_at=at))
        else:
            self._silent[line.account] = 0
        self._pending.append((line, orders))

    async def _find(self, line: Absent, orders: list[LookedUp]) -> None:
        """Add to *orders* what is found of one; what was found before an error is among them."""
        page = None
        for _ in range(_TRIES):
            rows = Rows(line.account)
            page = await self.run.walk.page(rows, external_reference=line.reference)
            if page is not None and page.is_atomic(self.run.rules) and _answers(rows, line.reference):
                await self._judge(line, rows, moment_of(page.now), orders)
                return
            if page is not None and (page.total or 0) >= self.run.rules.max_window:
                break  # No page of so many is believed.
        at = moment_of((self.run.walk.begun or 0) if page is None else page.now)
        orders.append(LookedUp(by_id=bool(line.order_id), is_doubtful=True, read_at=at))

    async def _judge(self, line: Absent, rows: Rows, at: datetime, orders: list[LookedUp]) -> None:
        """Add to *orders* what all *rows* of a reference say, and the order of the id."""
        drop_unstorable(rows)
        # The search may find more than it was asked for, such as all references that begin so.
        orders += [_seen(rows, i, at) for i in range(len(rows)) if rows.reference[i] == line.reference]
        if not line.order_id:
            return
        order = await self._get(line, at)
        # What was paid is among the rows: if another line of the book has it, this one has nothing.
        is_counted = order.paid and any(seen.paid for seen in orders)
        orders.append(LookedUp(by_id=True, read_at=at) if is_counted else order)

    async def _get(self, line: Absent, at: datetime) -> LookedUp:
        """Return the order of an id."""
        nothing = LookedUp(by_id=True, read_at=at)
        try:
            call = partial(self.run.accounts[line.account].call, GET, order_id=line.order_id)
            result = await self.run.walk.served(line.account, call)
        except (NotFound, BadRequest, RequestInvalid) as error:
            # An id that cannot be one is that of no order, too. Another 400, such as a gateway's, says nothing of it.
            if isinstance(error, BadRequest) and error.code != "invalid_path_param":
                raise
            return nothing
        order = _of_order(result.value, at)
        dropped = [anomaly.path for anomaly in result.anomalies if anomaly.dropped]
        for name, places in _AMOUNTS.items():
            is_unread = any(place.startswith(path) or path.startswith(place) for path in dropped for place in places)
            if is_unread or not is_storable(getattr(order, name)):
                order = replace(order, **{name: None})
        # The id of another order says nothing about this one.
        return order if result.value.external_reference in (None, line.reference) else nothing


def _answers(rows: Rows, reference: str) -> bool:
    """Whether *rows* can be what was found by *reference*, since some have one like it, or none has any."""
    references = list(filter(None, rows.reference))
    return not references or any(reference.casefold() in text.casefold() for text in references)


def _seen(rows: Rows, i: int, at: datetime) -> LookedUp:
    created, state, unread = rows.created[i], rows.order_status[i] or "", rows.unread[i] or ""
    return LookedUp(
        id=rows.id[i],
        currency=rows.currency[i],
        total=rows.total[i],
        paid=None if "paid" in unread else rows.paid[i] or Decimal(0),
        refunded=None if "refunded" in unread else rows.refunded[i] or Decimal(0),
        status=state if state.lower() in STATES else rows.status[i],
        created=None if created is None else EPOCH + created,
        read_at=at,
    )


def _of_order(order: Order, at: datetime) -> LookedUp:
    payment = order.payment
    counted = (None, RefundStatus.PROCESSED)
    amounts = [refund.amount or Decimal(0) for refund in order.refunds if refund.status in counted]
    refunded = payment.refunded_amount if payment is not None else None
    return LookedUp(
        by_id=True,
        id=order.id,
        currency=order.currency,
        total=order.total_amount,
        paid=(payment.paid_amount if payment is not None else None) or Decimal(0),
        refunded=money.total((1, amount) for amount in amounts) if refunded is None else refunded,
        status=order.status,
        created=order.created_date,
        read_at=at,
    )
