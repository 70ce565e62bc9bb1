"""Reconciliation: walks over all orders of many sellers that prove that they are whole. Needs the extra ``reconcile``.

>>> from paymentsdk.reconcile import walk
>>> report = await walk(client, created=(begin, end), out="run-2026-11-22")
>>> report.parts
(PosixPath('run-2026-11-22/parts/000001.parquet'), ...)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from paymentsdk.errors import RequestInvalid
from paymentsdk.reconcile._ledger import Ledger
from paymentsdk.reconcile._rows import check_installed
from paymentsdk.reconcile._walk import MOST_IN_FLIGHT, Plan, Progress, Walk, WalkReport
from paymentsdk.reconcile._windows import MILLISECOND, Rules, Window, milliseconds

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

__all__ = ["Progress", "WalkReport", "walk"]


async def walk(
    client: PaymentsClient,
    *,
    created: tuple[datetime, datetime],
    out: str | os.PathLike[str],
    accounts: Iterable[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    lag: timedelta = timedelta(minutes=15),
    max_window: int = 1_000,
    in_flight: int = 8,
) -> WalkReport:
    """Write all merchant orders that were made in a time to Parquet files, each once, and prove that none is missing.

    The time is parted into windows. A window is whole when as many different orders were seen in it as the platform
    counts, or else it is named in a `NotWhole`; no window is silently short. The page "A walk that proves that it is
    whole" of the documentation has the proof, and what it assumes of the platform.

    A run that ends early, however it ends, is resumed by calling this again with the same arguments: windows that are
    done are not walked again, but for those that were younger than *lag* at the time.

    Args:
        client: The client of the seller, or of all of them.
        created: The first moment, and the first moment behind the last. Both need a time zone.
        out: A directory for the files, made if it does not exist. It belongs to one question: these moments, accounts
            and rules.
        accounts: The names of several sellers, as `client.account` takes them.
        progress: Called after each commit, up to four times a second. It must not block.
        lag: How late an order may appear in the search: 0 to 1 day. Windows that ended less than this ago are whole as
            of one moment only, and a resumed run walks them again.
        max_window: The platform's totals are believed below this: 2 to 100,000. Set it to the platform's largest
            offset, or the number at which its totals stop.
        in_flight: Calls in flight per account, 1 to 64. Of all accounts together, there are at most 64.

    Raises:
        NotWhole: Windows could not be certified. This is the first; its notes name the others. Everything else is
            written. Call again to walk these windows again.
        RequestInvalid: An argument makes no sense, *out* holds the run of another question, or another process works
            on it.
        ImportError: The extra ``reconcile`` is not installed.
        PaymentsError: A call failed, as `client.call` says. What was done by then is kept.
    """
    check_installed()
    rules = Rules(lag=_lag(lag), max_window=_whole("max_window", max_window, 2, 100_000))
    plan = Plan(
        created=_window(created),
        accounts={"": client} if accounts is None else {name: client.account(name) for name in accounts},
        rules=rules,
        in_flight=_whole("in_flight", in_flight, 1, MOST_IN_FLIGHT),
    )
    if not plan.accounts:
        raise RequestInvalid("accounts", "is empty")
    ledger = Ledger(Path(out), plan.question)
    try:
        report = await Walk(plan, ledger, progress).run()
    finally:
        ledger.close()
    if report.not_whole:
        first, *others = report.not_whole
        for other in others:
            first.add_note(str(other))
        raise first
    return report


def _window(created: tuple[datetime, datetime]) -> Window:
    for moment in created:
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise RequestInvalid("created", f"needs a time zone: {moment}")
    begin, end = map(milliseconds, created)
    if begin >= end:
        raise RequestInvalid("created", "ends before it begins")
    return Window(begin, end)


def _lag(lag: timedelta) -> int:
    if not timedelta(0) <= lag <= timedelta(days=1):
        raise RequestInvalid("lag", "must be a timedelta, 0 to 1 day")
    return lag // MILLISECOND


def _whole(name: str, value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise RequestInvalid(name, f"must be a whole number, {least} to {most:,}")
    return value
