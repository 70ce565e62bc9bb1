"""``paymentsdk journal list``, ``show``, ``recover`` and ``abandon``: what a person does with the records of a journal.

Credentials come from the environment alone, as `PaymentsClient.from_env` reads them: arguments are seen by everybody on
the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paymentsdk._postgres import is_dsn
from paymentsdk._validate import check_path
from paymentsdk.cli._accounts import add_sources, end_at_sigterm, sellers_of
from paymentsdk.cli._output import Output, Row, columns, counted, fields, print_output, say
from paymentsdk.cli._parsing import Commands, add_parser, count, file
from paymentsdk.errors import JournalUnavailable, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk.journal import Journal, PostgresJournal, Record, RecoverySummary, SQLiteJournal

_DEFAULT_FILE = "payments.db"
#: Names the journal, also with the password of a database: arguments are seen by everybody on the machine.
VARIABLE = "PAYMENTSDK_JOURNAL"
_EXAMPLES = """\
examples:
  paymentsdk journal list
  paymentsdk journal show table-7/1
  paymentsdk journal recover
"""
_RECOVER = """\
The sellers are those of --accounts or --tokens, or the one of
PAYMENTSDK_ACCESS_TOKEN; PAYMENTSDK_BASE_URL is the address.
The exit code is 0 if no record is open any more, and 1 if one is.
"""
#: Does what the options ask for with the journal.
_Command = Callable[["Journal", argparse.Namespace], Awaitable[Output]]


def add_arguments(journal: argparse.ArgumentParser) -> None:
    """Add the commands of `journal`."""
    journal.epilog = _EXAMPLES
    within = journal.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = _add(within, "list", _list, "list the records that are open")
    listed.add_argument("--all", action="store_true", help="also those that are closed")
    listed.add_argument("--limit", type=count, default=1000, metavar="N", help="at most N records (default: 1000)")
    shown = _add(within, "show", _show, "show all that is known of a record")
    shown.add_argument("what", metavar="NAME|KEY", help="what the caller named it by, or its idempotency key")
    about = "finish the open records of all sellers that it has credentials for"
    add_sources(_add(within, "recover", _recover, about, epilog=_RECOVER))
    abandoned = _add(within, "abandon", _abandon, "close an open record whose outcome nobody can tell")
    abandoned.add_argument("key", metavar="KEY", help="its idempotency key, which `show` prints")


def _add(
    commands: Commands, name: str, command: _Command, summary: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    parser = add_parser(commands, name, summary, _run, epilog=epilog)
    where = f"the file of the journal (default: {VARIABLE}, or {_DEFAULT_FILE}); give a postgresql:// address in "
    where += f"{VARIABLE}: other users of this machine can see a command line, and the password in it"
    parser.add_argument("--file", type=file, metavar="FILE", help=where)
    parser.add_argument("--json", action="store_true", help="print the response as JSON")
    parser.set_defaults(command=command)
    return parser


def _run(options: argparse.Namespace) -> int:
    """Do the command in *options*, print what it came to, and return the exit code."""
    command: _Command = options.command
    where = options.file or os.environ.get(VARIABLE) or _DEFAULT_FILE

    async def done() -> Output:
        end_at_sigterm()
        try:
            async with aclosing(journal_at(where, "--file")) as journal:
                return await command(journal, options)
        except JournalUnavailable as error:
            # Its text is for programs: that they call again.
            raise OSError(f"the journal is not available: {error.reason}") from None

    return print_output(asyncio.run(done()), as_json=options.json)


def journal_at(where: str, option: str) -> PostgresJournal | SQLiteJournal:
    """Return the journal in the file, or at the address, that an *option* may name.

    Raises:
        FileNotFoundError: There is none, or an empty file: a journal that was made now would look settled.
    """
    from paymentsdk.journal import PostgresJournal, SQLiteJournal

    if is_dsn(where):
        return PostgresJournal(where)
    path = check_path(option, where)
    if not path.is_file() or not path.stat().st_size:
        raise FileNotFoundError(f"there is no journal {where}; say where it is with {option}, or {VARIABLE}")
    return SQLiteJournal(where)


# --- list and show ------------------------------------------------------------------------------------------------


def _shown(record: Record) -> Row:
    """Return what people may see of *record*: neither its body nor its headers nor its response have a place here."""
    return {
        "name": record.name,
        "state": record.state.value,
        "reason": record.reason,
        "operation": record.operation,
        "key": record.key,
        "base_url": record.base_url,
        "path": record.path,
        "seller": record.seller,
        "account": record.account,
        # In platform time; `lease_until` and `updated` are on the clock of the journal.
        "begun": _moment(record.begun),
        "not_after": _moment(record.not_after),
        "recoverable": record.recoverable,
        "owner": record.owner,
        "lease_until": _moment(record.lease_until) if record.lease_until else None,
        "updated": _moment(record.updated),
        "status": record.response.status if record.response else None,
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


async def _list(journal: Journal, options: argparse.Namespace) -> Output:
    from paymentsdk.journal import RecordState
    from paymentsdk.journal._record import OPEN

    rows = await journal.records(frozenset(RecordState if options.all else OPEN), limit=options.limit + 1)
    if len(rows) > options.limit:
        say(f"the oldest {options.limit:,} are shown, there are more: see --limit")
        del rows[options.limit :]
    table = {
        "STATE": [row.state.value for row in rows],
        "OPERATION": [row.operation for row in rows],
        "BEGUN (UTC)": [f"{_moment(row.begun):%Y-%m-%d %H:%M}" for row in rows],
        "NAME": [row.name for row in rows],
    }
    return Output([_shown(row) for row in rows], list(columns(table)) if rows else ["no records"])


async def _show(journal: Journal, options: argparse.Namespace) -> Output:
    """Show the record with that key, or those with that name: of several operations or sellers, perhaps."""
    from paymentsdk.journal import RecordState

    row, every = await journal.get(options.what), tuple(RecordState)
    rows = [row] if row else await journal.records(every, limit=sys.maxsize)
    found = [_shown(one) for one in rows if row or one.name == options.what]
    if not found:
        raise ValueError(f"no record has the name or the key {options.what!r}")
    told = [{name.replace("_", " "): value for name, value in one.items()} for one in found]
    return Output(found, [line for one in told for line in ("", *fields(one))][1:])


# --- recover ------------------------------------------------------------------------------------------------------


async def _recover(journal: Journal, options: argparse.Namespace) -> Output:
    from paymentsdk import PaymentsClient
    from paymentsdk.journal._record import OPEN

    sellers = await sellers_of(options)
    resolved, names, accounts = Counter[str](), list[str](), dict(sellers.auth)
    if accounts:  # The program may call its accounts by other names, or make a client for each seller.
        by_user_id, rows = await sellers.by_user_id(), await journal.records(OPEN, limit=sys.maxsize)
        strays = [(row.account, by_user_id[row.seller]) for row in rows if row.seller in by_user_id]
        names = sorted({name for account, name in strays if account is None})
        accounts = {account: accounts[name] for account, name in strays if account is not None} | accounts
    # Without such a source, whatever the program calls its accounts: a record is sent by a token of its user id alone.
    async with PaymentsClient.from_env(journal=journal, accounts=accounts or _token) as client:
        summaries = [await seller.recover(progress=_tell) for seller in (*map(client.account, names), client)]
    for summary in summaries:
        resolved.update({state.value: number for state, number in summary.resolved.items()})
    summary = summaries[-1]  # What an earlier summary has left open, the last has taken up again.
    complete, left = summary.is_complete, summary.left
    lines = [
        *(f"{number:>6,} {state}" for state, number in resolved.most_common()),
        *summary.problems,
        *(f"{_whose(row)}left {row.state.value}: {row.name} ({row.operation}, seller {row.seller})" for row in left),
        "no record is open" if complete else "records are open: see `paymentsdk journal list`",
    ]
    data = {"complete": complete, "resolved": resolved, "left": [*map(_shown, left)], "problems": summary.problems}
    return Output(data, lines, code=0 if complete else 1)


def _whose(record: Record) -> str:
    return f"{record.account}: " if record.account else ""


def _token(_account: str) -> str:
    if not (token := os.environ.get("PAYMENTSDK_ACCESS_TOKEN")):
        reason = "is not set; a record is sent with a token of its seller. Or name a token store with --tokens"
        raise RequestInvalid("PAYMENTSDK_ACCESS_TOKEN", reason)
    return token


def _tell(summary: RecoverySummary) -> None:
    say(f"recovery: {counted(sum(summary.resolved.values()), 'record')} taken over")


# --- abandon ------------------------------------------------------------------------------------------------------


async def _abandon(journal: Journal, options: argparse.Namespace) -> Output:
    from paymentsdk.journal import RecordState, Resolution

    resolution = Resolution(state=RecordState.ABANDONED, reason="abandoned by a person")
    try:
        row = await journal.resolve(options.key, resolution, owner="")
    except LookupError:
        raise ValueError(f"no record has the key {options.key!r}") from None
    if row.is_open:
        raise ValueError(f"{row.name} has a living owner, until {_moment(row.lease_until):%H:%M:%S} UTC at least")
    if row.state is not RecordState.ABANDONED:
        raise ValueError(f"{row.name} is {row.state.value}: there is nothing to abandon")
    return Output(_shown(row), [f"{row.name} is abandoned: whoever names it once more gets OutcomeUnknown"])
