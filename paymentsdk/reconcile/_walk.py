"""The walk over the windows of some accounts on one event loop.

Each window is certified or split, and its rows are written to files. The date filter is proved first, on rows that were
found without it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from paymentsdk._futures import in_thread
from paymentsdk._paging.proof import (
    EPOCH,
    MILLISECOND,
    NO_DATE,
    SAMPLES,
    Examination,
    Rules,
    Sample,
    Snapshot,
    Verdict,
    Window,
    moment_of,
    prove,
)
from paymentsdk.errors import BadRequest, NotWhole, PaymentsError, RateLimited
from paymentsdk.reconcile._checkpoint import DoneWindow
from paymentsdk.reconcile._merchant_orders import SEARCH_ORDERS, By, Rows, drop_unstorable, write
from paymentsdk.reconcile._tasks import for_each, together, work_off

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

T = TypeVar("T")

#: The maximum of calls in flight, of all accounts together.
MOST_IN_FLIGHT = 64
#: Seconds between two commits. A killed process loses this much work. A shorter time would make many small files.
COMMIT_EVERY = 0.25
#: The maximum of rows that wait to be written.
MOST_PENDING = 20_000
#: With more accounts than this, the date filter is proved on fewer rows of each, so that the walk starts sooner.
FEW_ACCOUNTS = 100
#: The maximum of samples per proof, because sampled rows may change before they are searched.
_TRIES = 3
#: Seconds for which an account with only 429s goes on waiting as the platform asks.
PATIENCE = 900.0


@dataclass
class Walk:
    """A walk over windows of accounts. It requests pages, and commits finished windows in batches."""

    accounts: Mapping[str, "PaymentsClient"]
    """The client of each seller, by name."""
    limit: int | None
    """Rows to request per page; `None` after the platform has rejected the number."""
    in_flight: int
    """Windows of an account that are walked concurrently, and calls of the account in flight."""
    directory: Path
    """The directory for the files."""
    commit: Callable[[Sequence[DoneWindow], Sequence[tuple[str, bool]]], None]
    """Enters windows and the files with their rows; called in a thread."""
    on_commit: Callable[[], None] = lambda: None
    """Called after each commit."""
    failed: dict[str, PaymentsError] = field(default_factory=dict)
    """The accounts whose calls have failed, with the error of each."""

    calls: int = 0
    begun: int | None = None
    """The platform's time at the first response, in milliseconds since 1970."""
    _limited_since: dict[str, float] = field(default_factory=dict)
    """The time of the first 429 of each account that has got only 429s since, by the clock of its client."""
    _pending: list[tuple[DoneWindow, Rows]] = field(default_factory=list)
    """Finished windows that are not committed yet, with their rows."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _committed_at: float = 0.0

    def __post_init__(self) -> None:
        self._budgets = {name: asyncio.Semaphore(self.in_flight) for name in self.accounts}

    # --- calls --------------------------------------------------------------------------------------------------------

    async def page(self, rows: Rows, offset: int = 0, /, **filters: object) -> Snapshot | None:
        """Fetch a page and add its orders to *rows*; `None` if the platform rejects its offset."""
        self.calls += 1
        limit = self.limit
        query = {"offset": offset, **filters, **({} if limit is None else {"limit": limit})}
        try:
            call = partial(self.accounts[rows.account].call, SEARCH_ORDERS, query=query)
            result = await self.served(rows.account, call)
        except BadRequest:
            if offset:
                return None
            if limit is None:
                raise
            # The platform may reject the limit as too large: try without it.
            self.limit = None
            try:
                return await self.page(rows, **filters)
            except BadRequest:
                self.limit = limit
                raise
        page = rows.add_page(result, "last_updated" if "last_updated_from" in filters else "date_created")
        self.begun = self.begun or page.now
        return page

    async def served(self, account: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a *call* of an account within its budget. After a 429, wait as long as it asks, and call again.

        Raises:
            RateLimited: The 429 asks for no wait, or the wait would end later than 15 minutes after the account's first
                429 in a row.
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
        """Prove a date filter on live rows of an account, and return its grain; `None` for an account without rows.

        Raises:
            NotWhole: The filter finds no row by its date, so no window would prove anything.
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
            # The sampled rows may have changed before they were searched. If they have not, the filter does not work.
            tried = samples
            samples, total = await self._samples(name, by)
            if tried == samples:
                break
        raise not_whole(name, created, 0, total, "the date filter finds no row by the date that it shows")

    async def _samples(self, name: str, by: By) -> tuple[list[Sample], int | None]:
        """Return rows that are found without the date filter, from the first page, the middle and the last page."""
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
        """Return whether a search for the millisecond of *sample*, widened by *grain*, shows it and no distant row."""
        window, offset, tries = Window(sample.at, sample.at + 1), 0, 0
        filters = asked_for(window, grain, by)
        while (page := await self.page(Rows(name), offset, **filters)) and page.received and tries < _TRIES:
            if page.objection_to(window, grain):
                tries += 1  # This may be the response to another query.
            elif sample.id in page.ids:
                return True
            else:
                offset += page.received
        return False

    # --- windows ------------------------------------------------------------------------------------------------------

    async def run(self, todo: Mapping[str, list[Window]], rules: Mapping[str, Rules]) -> None:
        """Walk the windows of each account by its own rules, because the grain of the date filter may differ."""
        at_once = asyncio.Semaphore(max(1, MOST_IN_FLIGHT // self.in_flight))

        async def walk(name: str) -> None:
            async with at_once:
                await self._account(name, todo[name], rules[name])

        try:
            await for_each(todo, walk, self.failed)
        finally:
            # Finished windows are also committed after an error, so that they need not be walked again.
            await self._commit()

    async def examined(
        self, name: str, window: Window, rules: Rules, by: By = "date_created"
    ) -> tuple[Window, Verdict, Rows]:
        """Walk *window* of an account, and return it with its verdict and the rows that the verdict refers to."""
        rows = Rows(name)
        fetch = partial(self.page, rows, **asked_for(window, rules.grain, by))

        async def ask(offsets: Sequence[int]) -> list[Snapshot | None]:
            return [await fetch(*offsets)] if len(offsets) == 1 else await together(map(fetch, offsets))

        return window, await Examination(window, rules, ask).verdict(), rows

    async def _account(self, name: str, windows: list[Window], rules: Rules) -> None:
        """Walk the windows of one account, some concurrently. The latest come first, as they split into most pieces."""

        async def take(examined: tuple[Window, Verdict, Rows]) -> None:
            window, verdict, rows = examined
            if verdict.pieces:
                windows.extend(verdict.pieces)
            else:
                await self._finish(window, verdict, rows, rules)

        await work_off(windows, lambda window: self.examined(name, window, rules), take, self.in_flight)

    async def _finish(self, window: Window, verdict: Verdict, pages: Rows, rules: Rules) -> None:
        """Keep the rows of *window*, and commit if a commit is due."""
        rows, undated = _cut(pages, verdict.places, window)
        # A young window is certified only as of one moment, because rows may appear in it later.
        is_final = verdict.reason is None and window.is_settled(rules, verdict.at)
        # After several tries, some rows were read before the last try began.
        at = min(map(pages.read_at.__getitem__, verdict.places), default=verdict.at)
        about = (len(rows), undated, len(verdict.places), verdict.total, verdict.reason)
        self._pending.append((DoneWindow(rows.account, window.begin, window.end, is_final, at, *about), rows))
        is_full = sum(len(rows) for _, rows in self._pending) >= MOST_PENDING
        is_due = asyncio.get_running_loop().time() - self._committed_at >= COMMIT_EVERY
        if is_full or (is_due and not self._turn.locked()):
            await self._commit()

    async def _commit(self) -> None:
        """Commit all pending windows."""
        async with self._turn:
            pending, self._pending = self._pending, []
            if pending:
                await in_thread(self._save, pending)
                self._committed_at = asyncio.get_running_loop().time()
                self.on_commit()

    def _save(self, pending: Sequence[tuple[DoneWindow, Rows]]) -> None:
        """Write the files, then enter the windows. A file without a window does no harm, but the reverse loses rows."""
        try:
            files = self._write(pending)
        except ValueError:
            # A window is not whole if an amount of its rows cannot be stored.
            pending = [(_without_unstorable(window, rows), rows) for window, rows in pending]
            files = self._write(pending)
        self.commit([window for window, _ in pending], files)

    def _write(self, pending: Sequence[tuple[DoneWindow, Rows]]) -> list[tuple[str, bool]]:
        files = []
        for is_final in (True, False):
            parts = [rows for window, rows in pending if rows and window.is_final == is_final]
            if parts:
                # The name is unique among workers, because two may do the same job if one was believed dead.
                file = f"{uuid4().hex}.parquet"
                write(parts, self.directory / file)
                files.append((file, is_final))
        return files


def asked_for(window: Window, grain: int, by: By) -> dict[str, object]:
    """Return the query for *window*, with a date filter that is exact to a *grain*."""
    return {f"{by}_{end}": moment_of(moment) for end, moment in zip(("from", "to"), window.asked(grain), strict=True)}


def not_whole(name: str, window: Window, seen: int, total: int | None, reason: str) -> NotWhole:
    """Return the error about *window* of an account."""
    error = NotWhole((moment_of(window.begin), moment_of(window.end)), seen, total, reason)
    error.account = name or None
    error.operation = SEARCH_ORDERS.name
    return error


def _cut(rows: Rows, places: Sequence[int], window: Window) -> tuple[Rows, int]:
    """Return the *rows* at *places* that belong to *window* or have no date, and how many have no date."""
    begin, end = window.begin * MILLISECOND, window.end * MILLISECOND
    inside = [i for i in places if (date := rows.created[i]) is not None and begin <= date < end]
    undated = []
    if len(inside) < len(places):
        undated = [i for i in places if (date := rows.created[i]) is None or date < NO_DATE - EPOCH]
    if len(inside) < len(rows):
        rows = rows.take([*inside, *undated])
    return rows, len(undated)


def _without_unstorable(window: DoneWindow, rows: Rows) -> DoneWindow:
    """Drop amounts of *rows* that cannot be stored, and return *window* with the reason."""
    reason = drop_unstorable(rows)
    return window if reason is None else window._replace(is_final=False, reason=window.reason or reason)
