"""Reconciliation: compare a book with all orders of many sellers, and prove that no order is missing.

Needs the extra `reconcile`, or `dask` to spread the walk over many machines.

>>> from paymentsdk.reconcile import Book, Outcome, reconcile
>>> report = await reconcile(Book.parquet("book.parquet"), client, created=(begin, end), out="run-2026-11-22")
>>> report.counts
Counter({<Outcome.MATCH: 'match'>: 996052, <Outcome.MISSING: 'missing'>: 1003, ...})
"""

# The steps of a reconciliation: `_book.py` reads the user's orders. `_run.py` runs the phases, and resumes them from
# what `_checkpoint.py` has saved. `_walk.py` makes the calls and walks the windows of time, on this event loop or on
# workers. `paymentsdk/_paging/proof.py` proves that windows show their rows, and that all rows of a
# window were seen. `_merchant_orders.py` reads the rows and writes the files. Then `_follow_up.py` reads orders that
# have changed or were not found, `_diff.py` compares in SQL, and `_report.py` reports the differences.

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from paymentsdk._call.engine import of_one_seller
from paymentsdk._paging.proof import MILLISECOND, Rules, Window, milliseconds, moment_of
from paymentsdk._validate import check_path, check_utf8, check_within, plain_duration, plain_moment
from paymentsdk.errors import RequestInvalid
from paymentsdk.journal import Record
from paymentsdk.journal._record import NO_LIMIT, OPEN
from paymentsdk.reconcile._book import Book, BookRow, Subject, subject_of
from paymentsdk.reconcile._checkpoint import Checkpoint
from paymentsdk.reconcile._diff import Diff
from paymentsdk.reconcile._follow_up import Changes, LookUps
from paymentsdk.reconcile._merchant_orders import check_installed
from paymentsdk.reconcile._outcome import Outcome
from paymentsdk.reconcile._report import Difference, Report
from paymentsdk.reconcile._run import DaskExecutor, Executor, Progress, Run, WalkReport, asked_of, question
from paymentsdk.reconcile._sums import Sum
from paymentsdk.reconcile._walk import MOST_IN_FLIGHT

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

__all__ = [
    "Book",
    "BookRow",
    "DaskExecutor",
    "Difference",
    "Executor",
    "Outcome",
    "Progress",
    "Report",
    "Sum",
    "WalkReport",
    "reconcile",
    "walk",
]

#: The years of orders. Moments in these years can be moved by milliseconds without leaving the range of `datetime`.
_YEARS = range(1970, 9999)
#: The names of comparison databases begin with this; the next run deletes them.
_PREFIX = "paymentsdk-comparison-"
#: The file of the report, in the directory of the run.
_DIFFERENCES = "differences.parquet"


async def reconcile(
    book: Book,
    client: PaymentsClient,
    *,
    created: tuple[datetime, datetime],
    out: str | os.PathLike[str],
    accounts: Iterable[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    lag: timedelta = timedelta(minutes=15),
    max_window: int = 1_000,
    in_flight: int = 8,
    executor: Executor | None = None,
) -> Report:
    """Compare *book* with all merchant orders that were created in a period, and report the differences of each order.

    The run first walks all orders of the period, as `walk` does. It then reads orders again that changed during the
    walk, so that all orders are as of one moment. It looks up orders of the book that the walk did not find, by
    reference and by the id in the book. Orders of the book that were created outside of the period are compared if the
    walk has found them.

    A reconciliation moves no money. To resume a run that ended early, call this again with the same arguments. After a
    complete run, the same call compares again, also with a corrected book, and reads only what has changed since.

    A seller that cannot be read does not end the run: see `Report.failed`. After a 429, the run waits as long as the
    platform asks. It sets a seller aside after 15 minutes in which no call of that seller was served.

    Args:
        book: The orders that you know of.
        client: The client of the seller, or of all sellers.
        created: The first moment of the period, and the first moment after it. Both need a time zone.
        out: A directory for the files, created if missing. It belongs to one *created*, *lag*, *max_window* and
            `base_url`; the accounts may differ between runs. A client of one seller is recognised by its account or by
            the user id in its token. Sellers whose tokens have no user id, or that use a `Signer`, are not
            distinguished.
        accounts: The names of sellers to walk in addition to those in the book, as `client.account` accepts them. All
            orders of a seller without lines in the book are extra.
        progress: Called after each commit, up to four times a second. It must not block.
        lag: How late an order may appear in the search, 0 to 1 day. Younger orders that only one side has are
            `Outcome.TOO_RECENT`.
        max_window: The platform's totals are trusted below this number, 2 to 100,000.
        in_flight: Calls in flight per account, 1 to 64. All accounts together have at most 64.
        executor: A `DaskExecutor` that walks the windows, for one run at a time. Default: this event loop.

    Raises:
        RequestInvalid: An argument or a row of the book is invalid, *out* holds a run with other arguments or other
            files, or another process works on it.
        OSError: Files cannot be written, for example because the disk is full. Make room, and call again.
        NotWhole: The date filter finds no order of any seller by its date. Single windows that are not whole are in the
            report.
        ImportError: The extra `reconcile` is not installed.
        PaymentsError: No seller could be read. This is the first error, as `client.call` raises it; its `account` names
            the seller. Finished windows are kept.
    """
    window, rules = _checked(created, lag, max_window, in_flight)
    directory, more = _directory(out), _names(accounts or ())
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    temporary = TemporaryDirectory(prefix=_PREFIX, dir=directory, ignore_cleanup_errors=True)
    with temporary as name, closing(await asyncio.to_thread(Diff, Path(name))) as diff:
        # Open records are read before and after the book: the book may lack the result of a write that ends meanwhile.
        open_before = await _open_records(client)
        columns = await book.load(diff.database, diff.directory)
        names = sorted({*diff.accounts(), *more}) or [""]
        if "" in names and len(names) > 1:
            raise RequestInvalid("book.account", "is needed in every row if there are several accounts")
        base_url, seller = await asked_of(client, names)
        with closing(Checkpoint(directory, question(window, names, rules, base_url, seller))) as checkpoint:
            _drop_left(directory, diff)
            async with executor or nullcontext():
                run = Run(window, _clients(client, names), rules, in_flight, checkpoint, progress, executor)
                open_records = await _open_records(client)
                writes = {subject_of(record, seller) for record in (*open_before, *open_records)}
                return await _compared(run, diff, columns, open_records, writes)


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
    executor: Executor | None = None,
) -> WalkReport:
    """Write all merchant orders that were created in a period to Parquet files, and prove that no order is missing.

    The walk splits the period into windows. A window is whole when the number of different orders seen in it equals
    the platform's total. Every other window is named in a `NotWhole`; no window is silently short. The page "A walk
    that proves that it is whole" of the documentation has the proof and its assumptions about the platform.

    To resume a run that ended early for any reason, call this again with the same arguments. Finished windows are not
    walked again, except windows that were younger than *lag* when they were walked.

    A seller that cannot be read does not end the run: see `WalkReport.failed`. After a 429, the run waits as long as
    the platform asks. It sets a seller aside after 15 minutes in which no call of that seller was served.

    Args:
        client: The client of the seller, or of all sellers.
        created: The first moment of the period, and the first moment after it. Both need a time zone.
        out: A directory for the files, created if missing. It belongs to one *created*, *lag*, *max_window* and
            `base_url`; the accounts may differ between runs. A client of one seller is recognised by its account or by
            the user id in its token. Sellers whose tokens have no user id, or that use a `Signer`, are not
            distinguished.
        accounts: The names of several sellers, as `client.account` accepts them.
        progress: Called after each commit, up to four times a second. It must not block.
        lag: How late an order may appear in the search, 0 to 1 day. Windows that ended less than this ago are whole as
            of one moment only, and a resumed run walks them again.
        max_window: The platform's totals are trusted below this number, 2 to 100,000. Set it to the platform's largest
            offset, or to the number at which its totals stop.
        in_flight: Calls in flight per account, 1 to 64. All accounts together have at most 64.
        executor: A `DaskExecutor` that walks the windows, for one run at a time. Default: this event loop.

    Raises:
        NotWhole: Some windows could not be certified. This is the first; its notes name the others. All other windows
            are written. Call again to walk these windows again.
        RequestInvalid: An argument is invalid, *out* holds a run with other arguments or other files, or another
            process works on it.
        OSError: Files cannot be written, for example because the disk is full. Make room, and call again.
        ImportError: The extra `reconcile` is not installed.
        PaymentsError: No seller could be read. This is the first error, as `client.call` raises it; its `account` names
            the seller. Finished windows are kept.
    """
    window, rules = _checked(created, lag, max_window, in_flight)
    names = [""] if accounts is None else _names(accounts)
    if not names:
        raise RequestInvalid("accounts", "is empty")
    directory = _directory(out)
    with closing(Checkpoint(directory, question(window, names, rules, *await asked_of(client, names)))) as checkpoint:
        async with executor or nullcontext():
            run = Run(window, _clients(client, names), rules, in_flight, checkpoint, progress, executor)
            report = await run.walk_all()
    if report.not_whole:
        first, *more = report.not_whole
        for note in (*more, *(f"{name} was not read: {error}" for name, error in report.failed.items())):
            first.add_note(str(note))
        raise first
    return report


async def _compared(
    run: Run, diff: Diff, columns: tuple[str, ...], open_records: Sequence[Record], open_writes: Collection[Subject]
) -> Report:
    """Take every step of a reconciliation, write the differences, and return the report."""
    walked = await run.walk_all()
    changes = Changes(run)
    await changes.read()
    # A run that made no call knows no platform time: the end of the period stands for it.
    begun = run.walk.begun or run.created.end
    oldest = begun - run.rules.horizon
    missing = await asyncio.to_thread(
        diff.compare,
        run.created,
        walked.parts,
        changes.files,
        columns=columns,
        # The grain of the date filter does not matter here: the search shows every order that is older than the lag.
        settled=begun - run.rules.lag,
        oldest=oldest,
        doubtful=walked.not_whole,
        accounts=run.accounts,
        open_writes=open_writes,
    )
    if missing:
        await LookUps(run, diff, missing).look_up_all()
    run.report_progress("comparison", 0.0)
    # The search does not show changes of orders that have become too old for it since they were walked.
    whole_from = run.checkpoint.sums().whole_from
    as_of = None if whole_from is not None and whole_from < oldest else changes.as_of
    directory = run.checkpoint.directory
    sums = await asyncio.to_thread(diff.finish, directory / _DIFFERENCES, run.failed)
    run.report_progress("comparison", 1.0)
    return Report(
        directory=directory,
        sums=sums,
        columns=columns,
        created=(moment_of(run.created.begin), moment_of(run.created.end)),
        rows=walked.rows,
        calls=run.walk.calls,
        as_of=None if as_of is None else moment_of(as_of),
        not_whole=(*walked.not_whole, *changes.not_whole),
        failed=run.failed,
        open_records=tuple(open_records),
    )


async def _open_records(client: PaymentsClient) -> Sequence[Record]:
    return () if client.journal is None else await client.journal.records(OPEN, limit=NO_LIMIT)


def _drop_left(out: Path, diff: Diff) -> None:
    """Delete the temporary files of killed runs. The caller has locked *out*."""
    for path in out.glob(f"{_PREFIX}*"):
        if path != diff.directory:
            shutil.rmtree(path, ignore_errors=True)
    for path in out.glob(f"{_DIFFERENCES}.*.unfinished"):
        path.unlink(missing_ok=True)


# --- arguments --------------------------------------------------------------------------------------------------------


def _checked(
    created: tuple[datetime, datetime], lag: timedelta, max_window: int, in_flight: int
) -> tuple[Window, Rules]:
    check_installed()
    check_within("in_flight", in_flight, 1, MOST_IN_FLIGHT)
    ends = [plain_moment(end) for end in created] if isinstance(created, tuple | list) else []
    moments = [moment for moment in ends if moment is not None and moment.year in _YEARS]
    if not len(ends) == len(moments) == 2:  # noqa: PLR2004 - begin and end
        raise RequestInvalid("created", "must be two datetimes, from 1970 on")
    for moment in moments:
        if moment.utcoffset() is None:
            raise RequestInvalid("created", f"needs a time zone: {moment}")
    # The platform dates orders to the millisecond, so both ends are rounded up to whole milliseconds. The sum is made
    # in UTC, because a sum in local time may be an hour off when clocks go back.
    begin, end = (milliseconds(moment.astimezone(UTC) + MILLISECOND - moment.resolution) for moment in moments)
    if begin >= end:
        raise RequestInvalid("created", "is empty: its end must be after its begin")
    delay = plain_duration(lag)
    if delay is None or not timedelta(0) <= delay <= timedelta(days=1):
        raise RequestInvalid("lag", "must be a timedelta, 0 to 1 day")
    check_within("max_window", max_window, 2, 100_000)
    return Window(begin, end), Rules(lag=delay // MILLISECOND, max_window=max_window)


def _directory(out: str | os.PathLike[str]) -> Path:
    # The parent directories are checked, too: files are written by their whole path.
    check_utf8("out", str(check_path("out", out)))
    return Path(out)


def _names(accounts: Iterable[str]) -> list[str]:
    if isinstance(accounts, str):
        raise RequestInvalid("accounts", "must be a list of names, not a single name")
    return sorted({*accounts})


def _clients(client: PaymentsClient, names: Iterable[str]) -> dict[str, PaymentsClient]:
    return {name: of_one_seller(client.account(name) if name else client) for name in names}
