"""``paymentsdk reconcile BOOK``: compare a book with the platform, and list the differences.

Credentials come from the environment, as `PaymentsClient.from_env` reads them, or from a token store or file. All users
of a machine can see arguments, so no argument has a credential.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from paymentsdk import errors
from paymentsdk.cli._accounts import TOKENS_VARIABLE, add_sources, end_at_sigterm, sellers_of
from paymentsdk.cli._journal import VARIABLE, journal_at
from paymentsdk.cli._output import Output, ProgressLines, columns, counted, print_output, say, sentence
from paymentsdk.cli._parsing import file, pair, pairs
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk.reconcile import Book, Progress, Report

SAME, DIFFERENT, MISUSED, TOKEN, PLATFORM, NOT_WHOLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
_EPILOG = """\
examples:
  paymentsdk reconcile book.parquet --out run-2026-11-22 --from 2026-11-22
  paymentsdk reconcile book.csv --out run --accounts tokens.json --csv rows.csv

exit codes:
  0    no differences
  1    differences
  2    the command or the book is invalid, or a file cannot be used
  3    the platform rejects the token
  4    the platform cannot be reached
  5    some orders or sellers could not be read
  130  interrupted: the same command resumes; on another day, give its --from
"""
#: The exit codes of errors; the first matching line counts.
_FAILURES: Mapping[tuple[type[Exception], ...], int] = {
    (RequestInvalid, errors.JournalUnavailable, ImportError, OSError, ValueError): MISUSED,
    (errors.AuthenticationFailed, errors.PermissionDenied, errors.ReauthorizationRequired, errors.RefreshFailed): TOKEN,
    (errors.NotWhole,): NOT_WHOLE,
    (Exception,): PLATFORM,
}
#: The years of orders.
_YEARS = range(1970, 9999)
#: The names of the amounts of a sum.
_SUMS = ("book", "platform", "difference", "refunded (book)", "refunded", "difference of refunds")


def add_arguments(reconcile: argparse.ArgumentParser) -> None:
    """Add the arguments of `reconcile`."""
    reconcile.epilog = _EPILOG
    reconcile.set_defaults(run=_run)
    add = reconcile.add_argument
    add("book", type=file, nargs="?", metavar="BOOK", help="your record of the orders: a .parquet or .csv file")
    about = "instead of BOOK: postgresql://user@host/database; put the password into PGPASSWORD or ~/.pgpass"
    add("--book", type=file, dest="dsn", metavar="ADDRESS", help=about)
    add("--query", metavar="SQL", help="selects the rows of --book, such as 'SELECT reference, paid FROM orders'")
    add("--decimal-comma", action="store_true", help="BOOK has semicolons, and amounts such as 24,90")
    add("--out", type=file, required=True, metavar="DIR", help="the directory of the run; an earlier run resumes")
    begin = "begin of the period: a day in UTC such as 2026-11-22, or a moment with a time zone (default: yesterday)"
    add("--from", type=_moment, dest="begin", metavar="WHEN", help=begin)
    add("--to", type=_moment, dest="end", metavar="WHEN", help="end of the period (default: a day after --from)")
    add_sources(reconcile)
    column = "the name of COLUMN in your book, such as paid=amount; can be repeated"
    add("--column", type=pair, action="append", default=[], metavar="COLUMN=NAME", help=column)
    add("--csv", type=file, metavar="FILE", help="write the differences to a CSV file for a spreadsheet")
    add("--html", type=file, metavar="FILE", help="write the sums and differences as a page to read or print")
    add("--json", action="store_true", help="print the result as one line of JSON")


def _run(options: argparse.Namespace) -> int:
    """Reconcile, print the result, and return the exit code."""
    try:
        _check_overwriting(options)
        report = asyncio.run(_reconciled(options))
        if options.csv:
            report.write_csv(options.csv)
        if options.html:
            report.write_html(options.html)
        not_read = [outcome for outcome in report.counts if outcome.value == "not_read"]
        code = NOT_WHOLE if report.not_whole or report.failed or not_read else SAME if report.is_same else DIFFERENT
        print_output(Output({**_data(report), "exit_code": code}, list(_lines(report))), as_json=options.json)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        say("interrupted: the same command resumes from here")
        return INTERRUPTED
    except (errors.PaymentsError, ImportError, OSError, ValueError) as error:
        account = getattr(error, "account", None)
        whose = f"{account}: " if account and not isinstance(error, errors.NotWhole) else ""
        say(f"paymentsdk: {whose}{sentence(error)}")
        return next(code for kinds, code in _FAILURES.items() if isinstance(error, kinds))
    return code


def _check_overwriting(options: argparse.Namespace) -> None:
    """Reject a report that would overwrite an input: the book, the journal or the tokens."""
    variables = map(os.environ.get, (VARIABLE, TOKENS_VARIABLE))
    sources = [Path(name) for name in (options.book, options.accounts, options.tokens, *variables) if name]
    for option in ("csv", "html"):
        path = Path(getattr(options, option) or "")
        if path.name and path.exists() and any(source.exists() and source.samefile(path) for source in sources):
            raise RequestInvalid(f"--{option}", f"{path} is an input of this command; name another file")


async def _reconciled(options: argparse.Namespace) -> Report:
    from paymentsdk import FlowControl, PaymentsClient
    from paymentsdk.reconcile import reconcile

    end_at_sigterm()
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = options.begin or midnight - timedelta(days=1)
    end = options.end or begin + timedelta(days=1)
    auth = (await sellers_of(options)).auth or None
    address = os.environ.get(VARIABLE)
    journal = journal_at(address, VARIABLE) if address else None
    book = _book(options)
    phase, lines = "", ProgressLines()

    def progress(now: Progress) -> None:
        nonlocal phase
        line = f"{now.phase}: {now.share:.0%}, {counted(now.rows, 'order')}, {counted(now.calls, 'call')}"
        lines.say(line, at_once=now.phase != phase or now.share >= 1)
        phase = now.phase

    # With the journal, orders with an open write are reported as unknown, and nobody corrects them by hand.
    async with PaymentsClient.from_env(flow=FlowControl(adaptive=True), accounts=auth, journal=journal) as client:
        return await reconcile(book, client, created=(begin, end), out=options.out, accounts=auth, progress=progress)


def _book(options: argparse.Namespace) -> Book:
    from paymentsdk.reconcile import Book

    names = pairs(options.column)
    if options.dsn and options.query and not options.book:
        return Book.query(options.dsn, options.query, names=names)
    if options.dsn or options.query or not options.book:
        raise RequestInvalid("BOOK", "name either a file, or a database with both --book and --query")
    suffix = Path(options.book).suffix.lower()
    if suffix == ".csv":
        return Book.csv(options.book, names=names, decimal_comma=options.decimal_comma)
    if suffix == ".parquet" and not options.decimal_comma:
        return Book.parquet(options.book, names=names)
    raise RequestInvalid("BOOK", "must end in .csv, or in .parquet without --decimal-comma")


# --- arguments --------------------------------------------------------------------------------------------------------


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.year not in _YEARS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2026-11-22")
    if len(text) == len("2026-11-22"):
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; write {text}Z for UTC")
    return moment


# --- output -----------------------------------------------------------------------------------------------------------


def _data(report: Report) -> dict[str, object]:
    return {
        "same": report.is_same,
        "counts": dict(report.counts.most_common()),
        "sums": report.sums,
        "orders": report.rows,
        "calls": report.calls,
        "columns": report.columns,
        "as_of": report.as_of,
        "not_whole": [str(error) for error in report.not_whole],
        "failed": {name: str(error) for name, error in report.failed.items()},
        "open_records": [record.name for record in report.open_records],
        "differences": str(report.path),
    }


def _amount(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount:,f}"


def _lines(report: Report) -> Iterator[str]:
    from paymentsdk.reconcile._report import notes

    names = ("orders", "outcome", "currency", *_SUMS)
    rows = [
        (f"{line.orders:,}", outcome.title, line.currency, *map(_amount, line.amounts))
        for line in report.totals
        if (outcome := line.outcome)
    ]
    if rows:
        yield from columns({name: cells for name, *cells in zip(names, *rows, strict=True) if any(cells)})
    outcomes = dict.fromkeys(filter(None, (line.outcome for line in report.totals)))
    yield from (f"{outcome.title}: {outcome.action}" for outcome in outcomes if outcome.action)
    yield from notes(report)
    if report.open_records:
        yield f"{counted(len(report.open_records), 'record')} open in the journal: run `paymentsdk journal recover`"
    yield f"Differences: {report.path}"
