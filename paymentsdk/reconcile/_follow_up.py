"""The reads after the walk: rows that changed during it, and orders of the book that it has not found."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from paymentsdk import errors, money
from paymentsdk._paging.proof import EPOCH, GRAINS, Rules, Window, moment_of
from paymentsdk.errors import BadRequest, NotFound, NotWhole, PaymentsError, RequestInvalid
from paymentsdk.reconcile._book import STATES
from paymentsdk.reconcile._diff import Absent, Diff, LookedUp
from paymentsdk.reconcile._merchant_orders import Rows, drop_unstorable, is_storable, write
from paymentsdk.reconcile._run import Run
from paymentsdk.reconcile._tasks import for_each, together
from paymentsdk.reconcile._walk import MOST_IN_FLIGHT, MOST_PENDING, not_whole
from paymentsdk.resources.orders import GET, Order, RefundStatus

#: The maximum of queries for the last, open range, until it fits on one page.
MOST_ROUNDS = 20
#: Milliseconds without an effective limit: the search shows changes of rows of any age.
_EVER = 10**15
#: The maximum of look-ups that wait to be saved.
_BATCH = 1_000
#: The maximum of queries for a reference whose orders do not fit on one page.
_TRIES = 5


@dataclass
class Changes:
    """A second walk, over `last_updated`, that finds the changes since the first, so that all rows are as of one time.

    A row that changes leaves its range of `last_updated` and enters a later range. So ranges are walked from the
    earliest to the latest, each after it has ended, and a row that changes meanwhile is found again. The last range is
    open, and has to fit on one page, so no row can be behind it. Therefore the walk finds every change that the
    platform showed before the first query. A change that is shown later may be dated in a range that is finished.
    """

    run: Run

    files: list[Path] = field(default_factory=list)
    not_whole: list[NotWhole] = field(default_factory=list)
    as_of: int | None = None
    """All changes up to this moment were found, in milliseconds since 1970; `None` if no moment is known."""
    _rows: list[Rows] = field(default_factory=list)
    _pending: int = 0
    """The number of rows in `_rows`."""
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
        # The platform may have shown a change only after the walk began, although it happened shortly before.
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
        """Return the moment of the first page if the last range fitted on one page; `None` otherwise."""
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
        """Walk ranges that have ended, the earliest first, and return whether all of them were whole."""
        stack = [whole]
        while stack:
            window = stack.pop()
            _, verdict, rows = await self.run.walk.examined(name, window, rules, by="last_updated")
            if verdict.pieces:
                stack += reversed(verdict.pieces)
                continue
            await self._add(window, rows.take(verdict.places))
            if verdict.reason is not None:
                reason = f"changes in this period: {verdict.reason}"
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


#: The paths of the amounts in an order.
_AMOUNTS = {
    "total": ("$.total_amount",),
    "paid": ("$.transactions.payments[0].paid_amount",),
    "refunded": ("$.transactions.payments[0].refunded_amount", "$.transactions.refunds"),
}
#: After this many consecutive look-ups without a response, the seller counts as not readable.
_MOST_SILENT = 10
#: Errors of a look-up that concern the whole seller.
_OF_SELLER = (errors.AuthenticationFailed, errors.RateLimited, errors.ReauthorizationRequired)


@dataclass
class LookUps:
    """Looks up orders by reference and by the id in the book."""

    run: Run
    diff: Diff
    """Names the orders to look up, and saves the results."""
    missing: int
    """The number of orders to look up."""
    _silent: Counter[str] = field(default_factory=Counter)
    """The number of consecutive look-ups without a response, by seller."""
    _pending: list[tuple[Absent, list[LookedUp]]] = field(default_factory=list)
    """Finished look-ups that are not saved yet."""
    _done: int = 0

    async def look_up_all(self) -> None:
        """Look up the orders that the walk has not found."""

        async def look_up(names: list[str]) -> None:
            accounts, workers = {*names}, min(MOST_IN_FLIGHT, self.run.in_flight * len(names))
            orders = (
                line for line in self.diff.absent() if line.account in accounts and line.account not in self.run.failed
            )
            # Accounts that are tried again may have results from before they failed.
            self.diff.forget_looked_up(names)
            await together(self._work(orders) for _ in range(workers))
            self._flush()

        await self.run.take_phase(look_up)
        self.diff.forget_looked_up(self.run.failed)
        self.run.report_progress("look-ups", 1.0)

    async def _work(self, orders: Iterator[Absent]) -> None:
        for order in orders:
            await for_each([order.account], partial(self._look_up, order), self.run.failed)
            self._done += 1
            self.run.report_progress("look-ups", min(1.0, self._done / self.missing))
            if len(self._pending) >= _BATCH:
                self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self.diff.add_looked_up(pending)

    async def _look_up(self, line: Absent, _: str) -> None:
        orders: list[LookedUp] = []
        try:
            await self._find(line, orders)
        except (errors.APIError, errors.NoAnswer) as error:
            self._silent[line.account] += isinstance(error, errors.NoAnswer)
            if isinstance(error, _OF_SELLER) or self._silent[line.account] > _MOST_SILENT:
                raise
            orders.append(LookedUp(by_id=bool(line.order_id), reason=str(error)))
        else:
            self._silent[line.account] = 0
        self._pending.append((line, orders))

    async def _find(self, line: Absent, orders: list[LookedUp]) -> None:
        """Add all found orders of *line* to *orders*; after an error, those found before it stay there."""
        page = None
        for _ in range(_TRIES):
            rows = Rows(line.account)
            page = await self.run.walk.page(rows, external_reference=line.reference)
            if page is not None and page.is_atomic(self.run.rules) and _answers(rows, line.reference):
                await self._judge(line, rows, moment_of(page.now), orders)
                return
            if page is not None and (page.total or 0) >= self.run.rules.max_window:
                break  # Totals of this size are not trusted.
        at = moment_of((self.run.walk.begun or 0) if page is None else page.now)
        orders.append(LookedUp(by_id=bool(line.order_id), is_doubtful=True, read_at=at))

    async def _judge(self, line: Absent, rows: Rows, at: datetime, orders: list[LookedUp]) -> None:
        """Add the *rows* of the reference, and the order of the id, to *orders*."""
        drop_unstorable(rows)
        # The search may return other references, for example all with the same beginning.
        orders += [_seen(rows, i, at) for i in range(len(rows)) if rows.reference[i] == line.reference]
        if not line.order_id:
            return
        order = await self._get(line, at)
        # A payment is also among the rows of its reference. If another line of the book has it, this line has no order.
        is_counted = order.paid and any(row.paid for row in orders)
        orders.append(LookedUp(by_id=True, read_at=at) if is_counted else order)

    async def _get(self, line: Absent, at: datetime) -> LookedUp:
        """Return the order of the id."""
        nothing = LookedUp(by_id=True, read_at=at)
        try:
            call = partial(self.run.accounts[line.account].call, GET, order_id=line.order_id)
            result = await self.run.walk.served(line.account, call)
        except (NotFound, BadRequest, RequestInvalid) as error:
            # No order has a malformed id. Other 400s, such as those of a gateway, do not tell whether the order exists.
            if isinstance(error, BadRequest) and error.code != "invalid_path_param":
                raise
            return nothing
        order = _of_order(result.value, at)
        dropped = [anomaly.path for anomaly in result.anomalies if anomaly.dropped]
        for name, places in _AMOUNTS.items():
            is_unread = any(place.startswith(path) or path.startswith(place) for path in dropped for place in places)
            if is_unread or not is_storable(getattr(order, name)):
                order = replace(order, **{name: None})
        # An order with another reference is not the order of this line.
        return order if result.value.external_reference in (None, line.reference) else nothing


def _answers(rows: Rows, reference: str) -> bool:
    """Return whether *rows* can be the result for *reference*: a row has a similar reference, or no row has any."""
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
