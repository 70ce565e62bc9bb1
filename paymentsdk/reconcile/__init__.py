"""Reconciliation: a book held against all orders of many sellers, by a walk that proves that it is whole.

Needs the extra `reconcile`, or `dask` to share the walk out over many machines.

>>> from paymentsdk.reconcile import Book, Outcome, reconcile
>>> report = await reconcile(Book.parquet("book.parquet"), client, created=(begin, end), out="run-2026-11-22")
>>> report.counts
Counter({<Outcome.MATCH: 'match'>: 996052, <Outcome.MISSING: 'missing'>: 1003, ...})
"""

# The way of a reconciliation: `_book.py` reads the orders that its owner knows of. `_run.py` takes the phases of a run,
# and resumes it by what `_checkpoint.py` has saved. `_walk.py` makes the calls and walks the windows of time, on this
# event loop or on workers (`_executors.py`). `paymentsdk/_paging/proof.py` proves that windows show their rows, and
# that all rows of a window were seen; `_merchant_orders.py` reads the rows, and writes the files. Then `_follow_up.py`
# reads what has changed or was not found, `_diff.py` compares, in SQL, and `_report.py` says what differs.

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
from paymentsdk.reconcile._executors import DaskExecutor
from paymentsdk.reconcile._follow_up import Changes, LookUps
from paymentsdk.reconcile._merchant_orders import check_installed
from paymentsdk.reconcile._outcome import Outcome
from paymentsdk.reconcile._report import Difference, Report
from paymentsdk.reconcile._run import Executor, Progress, Run, WalkReport, asked_of, question
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

#: In which there may be orders: there are milliseconds before and after each moment of them.
_YEARS = range(1970, 9999)
#: Databases of comparisons: what has such a name is deleted by the next run.
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
    """Compare *book* with all merchant orders that were made in a time, and say of each order what differs.

    First all orders of the time are walked, as `walk` does. Then those that have changed meanwhile are read again, so
    that all speak of one moment. Orders of the book that are not among them are looked up by reference, and by the id
    that the book has. Orders of the book that were made at another time are compared if the walk has met them.

    No money is moved. A run that ends early is resumed by calling this again with the same arguments. After one that
    came to its end, with a corrected book or not, the same call compares anew and asks only for what has changed since.

    A seller that cannot be read does not end the run: see `Report.failed`. After a 429, the run waits as long as the
    platform asks; it sets a seller aside after 15 minutes in which no call of that seller was served.

    Args:
        book: The orders that you know of.
        client: The client of the seller, or of all of them.
        created: The first moment, and the first moment behind the last. Both need a time zone.
        out: A directory for the files, made if it does not exist. It belongs to one question: these moments and rules,
            at this `base_url`. The accounts may be others than in an earlier run. The seller of a client of one is told
            by its account, or by the user id in its token; of tokens without one, and of a `Signer`, one is not told
            from another.
        accounts: The names of several sellers, as `client.account` takes them, besides those in the book: what they
            have is seen to be extra.
        progress: Called after each commit, up to four times a second. It must not block.
        lag: How late an order may appear in the search: 0 to 1 day. Orders that only one side has and that are younger
            than this are `Outcome.TOO_RECENT`.
        max_window: The platform's totals are believed below this: 2 to 100,000.
        in_flight: Calls in flight per account, 1 to 64. Of all accounts together, there are at most 64.
        executor: Walks the windows, for one run at a time: a `DaskExecutor`. Default: this event loop.

    Raises:
        RequestInvalid: An argument or a row of the book is invalid, *out* holds a run with other arguments or files
            of others, or another process works on it.
        OSError: Files cannot be written, as on a full disk. Make room, and call again.
        NotWhole: The date filter finds no order of any seller by its date. Single windows that are not whole are in the
            report.
        ImportError: The extra `reconcile` is not installed.
        PaymentsError: No seller could be read. This is the first error, as `client.call` says; its `account` names the
            seller. What was done by then is kept.
    """
    window, rules = _checked(created, lag, max_window, in_flight)
    if not isinstance(book, Book):
        raise RequestInvalid("book", "must be a Book, such as Book.csv(path)")
    directory, more = _directory(out), _names(accounts or ())
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    temporary = TemporaryDirectory(prefix=_PREFIX, dir=directory, ignore_cleanup_errors=True)
    with temporary as name, closing(await asyncio.to_thread(Diff, Path(name))) as diff:
        # Before the book, which cannot have heard of what they come to, and once more after it.
        open_before = await _open_records(client)
        columns = await book.load(diff.database, diff.directory)
        names = sorted({*diff.accounts(), *more}) or [""]
        if "" in names and len(names) > 1:
            raise RequestInvalid("book.account", "is needed in every row where there are several accounts")
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
    """Write all merchant orders that were made in a time to Parquet files, each once, and prove that none is missing.

    The time is parted into windows. A window is whole when as many different orders were seen in it as the platform
    counts, or else it is named in a `NotWhole`; no window is silently short. The page "A walk that proves that it is
    whole" of the documentation has the proof, and what it assumes of the platform.

    A run that ends early, however it ends, is resumed by calling this again with the same arguments: windows that are
    done are not walked again, but for those that were younger than *lag* at the time.

    A seller that cannot be read does not end the run: see `WalkReport.failed`. After a 429, the run waits as long as
    the platform asks; it sets a seller aside after 15 minutes in which no call of that seller was served.

    Args:
        client: The client of the seller, or of all of them.
        created: The first moment, and the first moment behind the last. Both need a time zone.
        out: A directory for the files, made if it does not exist. It belongs to one question: these moments and rules,
            at this `base_url`. The accounts may be others than in an earlier run. The seller of a client of one is told
            by its account, or by the user id in its token; of tokens without one, and of a `Signer`, one is not told
            from another.
        accounts: The names of several sellers, as `client.account` takes them.
        progress: Called after each commit, up to four times a second. It must not block.
        lag: How late an order may appear in the search: 0 to 1 day. Windows that ended less than this ago are whole as
            of one moment only, and a resumed run walks them again.
        max_window: The platform's totals are believed below this: 2 to 100,000. Set it to the platform's largest
            offset, or the number at which its totals stop.
        in_flight: Calls in flight per account, 1 to 64. Of all accounts together, there are at most 64.
        executor: Walks the windows, for one run at a time: a `DaskExecutor`. Default: this event loop.

    Raises:
        NotWhole: Windows could not be certified. This is the first; its notes name the others. Everything else is
            written. Call again to walk these windows again.
        RequestInvalid: An argument is invalid, *out* holds a run with other arguments or files of others, or
            another process works on it.
        OSError: Files cannot be written, as on a full disk. Make room, and call again.
        ImportError: The extra `reconcile` is not installed.
        PaymentsError: No seller could be read. This is the first error, as `client.call` says; its `account` names the
            seller. What was done by then is kept.
    """
    window, rules = _checked(created, lag, max_window, in_flight)
    names = [""] if accounts is None else sorted({*_names(accounts)})
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
    """Take every step of a reconciliation, and write what was found."""
    walked = await run.walk_all()
    changes = Changes(run)
    await changes.read()
    # Before the first call of this run nobody knew more than the book.
    begun = run.walk.begun or run.created.end
    oldest = begun - run.rules.horizon
    missing = await asyncio.to_thread(
        diff.compare,
        run.created,
        walked.parts,
        changes.files,
        columns=columns,
        # However coarse the date filter is: the search shows an order once it is older than the lag.
        settled=begun - run.rules.lag,
        oldest=oldest,
        doubtful=walked.not_whole,
        accounts=run.accounts,
        open_writes=open_writes,
    )
    if missing:
        await LookUps(run, missing, diff.add_looked_up, diff.forget_looked_up).look_up_all(diff.absent)
    run.report_progress("comparison", 0.0)
    # Of orders that were walked before they became older than the search shows, it shows no change.
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
    """Delete what killed runs have left behind; the caller has locked *out*."""
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
    if not len(ends) == len(moments) == 2:  # noqa: PLR2004 - as it says
        raise RequestInvalid("created", "must be two datetimes, from 1970 on")
    for moment in moments:
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise RequestInvalid("created", f"needs a time zone: {moment}")
    # The platform dates orders to the millisecond: one of the millisecond that *created* ends in is before its end.
    # In UTC: a sum in local time is in the first of the two hours when clocks go back.
    begin, end = (milliseconds(moment.astimezone(UTC) + MILLISECOND - moment.resolution) for moment in moments)
    if begin >= end:
        raise RequestInvalid("created", "holds no moment: it ends where it begins, or before")
    delay = plain_duration(lag)
    if delay is None or not timedelta(0) <= delay <= timedelta(days=1):
        raise RequestInvalid("lag", "must be a timedelta, 0 to 1 day")
    check_within("max_window", max_window, 2, 100_000)
    return Window(begin, end), Rules(lag=delay // MILLISECOND, max_window=max_window)


def _directory(out: str | os.PathLike[str]) -> Path:
    # With those that it is in: files are written by their whole path.
    check_utf8("out", str(check_path("out", out)))
    return Path(out)


def _names(accounts: Iterable[str]) -> list[str]:
    names = [] if isinstance(accounts, str) else list(accounts)
    if isinstance(accounts, str) or not all(isinstance(name, str) and name for name in names):
        raise RequestInvalid("accounts", "must be several strings, each the name of an account")
    return names


def _clients(client: PaymentsClient, names: Iterable[str]) -> dict[str, PaymentsClient]:
    return {name: of_one_seller(client.account(name) if name else client) for name in names}
