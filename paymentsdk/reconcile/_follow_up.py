"""What is read after the walk: rows that have changed since, and orders of the book that it has not found."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from paymentsdk import errors, money
from paymentsdk._paging.proof import EPOCH, GRAINS, Rules, Window, moment_of
from paymentsdk.errors import BadRequest, NotFound, NotWhole, RequestInvalid
from paymentsdk.reconcile._book import STATES
from paymentsdk.reconcile._merchant_orders import Rows, drop_unstorable, is_storable, not_whole, write
from paymentsdk.reconcile._tasks import for_each, together
from paymentsdk.reconcile._walk import COMMIT_EVERY, MOST_IN_FLIGHT, MOST_PENDING, Walk, examined
from paymentsdk.resources.orders import GET, Order, RefundStatus

#: Ranges without an end that are asked for until one comes as one page.
MOST_ROUNDS = 20
#: No row is too old for its changes to be shown, as long as it is shown at all.
_EVER = 10**15
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

    walk: Walk

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
        self._directory = self.walk.checkpoint.directory / "changes"

    async def run(self) -> None:
        """Write the rows that have changed since the first window was walked."""
        shutil.rmtree(self._directory, ignore_errors=True)
        since = self.walk.checkpoint.sums().since
        if since is None:
            return
        # What changed shortly before may have been shown only since.
        self._since = since - self.walk.rules.lag
        await asyncio.to_thread(self._directory.mkdir)
        await self.walk.take_phase(self._read_accounts)
        await self._flush()
        known = [moment for moment in self._moments.values() if moment is not None]
        if len(known) == len(self._moments) and not self.not_whole:
            self.as_of = min(known)

    async def _read_accounts(self, names: list[str]) -> None:
        turn, done, since = asyncio.Semaphore(MOST_IN_FLIGHT), count(1), self._since
        proved = await self.walk.prove(names, Window(since, since + 1), "last_updated")

        async def read(name: str) -> int | None:
            grain = proved[name]
            if isinstance(grain, NotWhole):
                return None
            rules = replace(self.walk.rules, grain=grain or GRAINS[-1], horizon=_EVER)
            async with turn:
                moment = await self._account(name, rules, since)
            self.walk.report_progress("changes", next(done) / len(names))
            return moment

        self._moments |= await for_each(proved, read, self.walk.failed)

    async def _account(self, name: str, rules: Rules, begin: int) -> int | None:
        """Return the moment of the first page, if the last range has come as one."""
        shown_by: int | None = None
        for _ in range(MOST_ROUNDS):
            rows = Rows(name)
            page = await self.walk.search.page(rows, last_updated_from=moment_of(begin - rules.grain))
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
            verdict, rows = await examined(self.walk.search, rules, name, window, by="last_updated")
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
    account: str
    reference: str
    order_id: str
    has_changed: bool
    """Whether an order of the reference has changed since the walk began."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What its look-up is saved under."""
        return self.account, self.reference, self.order_id

    @property
    def may_be_kept(self) -> bool:
        """Whether what an earlier run has found is true of now: of an order that nobody paid, no change is shown."""
        return not (self.order_id or self.has_changed)


class LookedUp(Struct, frozen=True, kw_only=True, array_like=True):
    """What a look-up has shown: a merchant order of the reference, or the order of the id.

    Without an `id` there is none, and nothing is said of it.
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


_LOOKED_UP = msgspec.msgpack.Decoder(list[LookedUp])
_ENCODE = msgspec.msgpack.Encoder().encode
#: Where an order has its amounts.
_AMOUNTS = {
    "total": ("$.total_amount",),
    "paid": ("$.transactions.payments[0].paid_amount",),
    "refunded": ("$.transactions.payments[0].refunded_amount", "$.transactions.refunds"),
}
#: Look-ups of a seller in a row that get no response; then it is the seller that cannot be read.
_MOST_SILENT = 10
#: What a look-up raises that is about its seller.
_OF_SELLER = (errors.AuthenticationFailed, errors.RateLimited, errors.ReauthorizationRequired)


@dataclass
class LookUps:
    """Looks orders up, by reference and by the id that the book has, and saves what was found in the checkpoint."""

    walk: Walk
    missing: int
    """How many there are."""

    _refused: dict[tuple[str, str, str], list[LookedUp]] = field(default_factory=dict)
    """What could not be read; a run that goes on asks for it again."""
    _silent: Counter[str] = field(default_factory=Counter)
    """Look-ups without a response, by seller, since the last that had one."""
    _found: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    _saved_at: float = 0.0
    _done: int = 0

    async def run(self, absent: Callable[[], Iterator[Absent]]) -> None:
        """Look up what is *absent*, except for what an earlier run has."""

        async def look_up(names: list[str]) -> None:
            accounts, workers = {*names}, min(MOST_IN_FLIGHT, self.walk.in_flight * len(names))
            left = (one for one in absent() if one.account in accounts and one.account not in self.walk.failed)
            try:
                await together(self._work(left) for _ in range(workers))
            finally:
                self._save()

        await self.walk.take_phase(look_up)

    async def _work(self, absent: Iterator[Absent]) -> None:
        for one in absent:
            if one.key not in self._refused and self.walk.checkpoint.look_up(*one.key) is None:
                await for_each([one.account], partial(self._look_up, one), self.walk.failed)
            self._done += 1
            if asyncio.get_running_loop().time() - self._saved_at >= COMMIT_EVERY:
                self._save()

    def found(self, one: Absent) -> list[LookedUp]:
        """Return what was found of an order that was looked up."""
        return self._refused.get(one.key) or _LOOKED_UP.decode(self.walk.checkpoint.look_up(*one.key) or b"")

    def _save(self) -> None:
        # A few rows in one transaction: a thread would cost more than it saves.
        found, self._found = self._found, []
        self.walk.checkpoint.add_look_ups(found)
        self._saved_at = asyncio.get_running_loop().time()
        self.walk.report_progress("look-ups", min(1.0, self._done / self.missing))

    async def _look_up(self, one: Absent, _: str) -> None:
        orders: list[LookedUp] = []
        try:
            await self._find(one, orders)
        except (errors.APIError, errors.NoAnswer) as error:
            self._silent[one.account] += isinstance(error, errors.NoAnswer)
            if isinstance(error, _OF_SELLER) or self._silent[one.account] > _MOST_SILENT:
                raise
            at = moment_of(self.walk.search.begun or 0)
            orders.append(LookedUp(by_id=bool(one.order_id), reason=str(error), read_at=at))
            self._refused[one.key] = orders
        else:
            self._silent[one.account] = 0
            self._found.append((*one.key, _ENCODE(orders)))

    async def _find(self, one: Absent, orders: list[LookedUp]) -> None:
        """Add to *orders* what is found of one; what was found before an error is among them."""
        search, page = self.walk.search, None
        for _ in range(_TRIES):
            rows = Rows(one.account)
            page = await search.page(rows, external_reference=one.reference)
            if page is not None and page.is_atomic(self.walk.rules) and _answers(rows, one.reference):
                await self._judge(one, rows, moment_of(page.now), orders)
                return
            if page is not None and (page.total or 0) >= self.walk.rules.max_window:
                break  # No page of so many is believed.
        at = moment_of(search.begun or 0 if page is None else page.now)
        orders.append(LookedUp(by_id=bool(one.order_id), is_doubtful=True, read_at=at))

    async def _judge(self, one: Absent, rows: Rows, at: datetime, orders: list[LookedUp]) -> None:
        """Add to *orders* what all *rows* of a reference say, and the order of the id."""
        drop_unstorable(rows)
        # The search may find more than it was asked for, such as all references that begin so.
        orders += [_seen(rows, i, at) for i in range(len(rows)) if rows.reference[i] == one.reference]
        if not one.order_id:
            return
        order = await self._get(one, at)
        # What was paid is among the rows: if another line of the book has it, this one has nothing.
        is_counted = order.paid and any(seen.paid for seen in orders)
        orders.append(LookedUp(by_id=True, read_at=at) if is_counted else order)

    async def _get(self, one: Absent, at: datetime) -> LookedUp:
        """Return the order of an id."""
        nothing = LookedUp(by_id=True, read_at=at)
        try:
            call = partial(self.walk.accounts[one.account].call, GET, order_id=one.order_id)
            result = await self.walk.search.served(one.account, call)
        except (NotFound, BadRequest, RequestInvalid) as error:
            # An id that cannot be one is that of no order, too. Another 400, such as a gateway's, says nothing of it.
            if isinstance(error, BadRequest) and error.code != "invalid_path_param":
                raise
            return nothing
        seen = _of_order(result.value, at)
        dropped = [anomaly.path for anomaly in result.anomalies if anomaly.dropped]
        for name, places in _AMOUNTS.items():
            is_unread = any(place.startswith(path) or path.startswith(place) for path in dropped for place in places)
            if is_unread or not is_storable(getattr(seen, name)):
                seen = replace(seen, **{name: None})
        # The id of another order says nothing about this one.
        return seen if result.value.external_reference in (None, one.reference) else nothing


def _answers(rows: Rows, reference: str) -> bool:
    """Whether *rows* can be what was found by *reference*, since some have one like it, or none has any."""
    shown = list(filter(None, rows.reference))
    return not shown or any(reference.casefold() in one.casefold() for one in shown)


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
    amounts = [one.amount or Decimal(0) for one in order.refunds if one.status in (None, RefundStatus.PROCESSED)]
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
