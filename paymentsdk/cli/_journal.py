"""``paymentsdk journal list``, ``show``, ``recover`` and ``abandon``: commands for the records of a journal.

Credentials come from the environment, as `PaymentsClient.from_env` reads them, or from a token store or file. All users
of a machine can see arguments, so no argument has a credential.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paymentsdk._postgres import is_dsn
from paymentsdk.cli._accounts import add_command, add_sources, existing, sellers_of
from paymentsdk.cli._output import Output, Row, counted, fields_of, say, table_of
from paymentsdk.cli._parsing import count, file
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk.journal import Journal, PostgresJournal, Record, RecoverySummary, SQLiteJournal

_DEFAULT_FILE = "payments.db"
#: The variable that names the journal. All users of a machine can see arguments, so a password belongs here.
VARIABLE = "PAYMENTSDK_JOURNAL"
_WHERE = f"the journal (default: {VARIABLE}, or {_DEFAULT_FILE}); put a postgresql:// address into {VARIABLE}"
_RECOVER = "The exit code is 0 if all records are closed, and 1 if some are still open."
#: The members of a record that are printed. Moments are in platform time, except in the journal's time `lease_until`
#: and `updated`.
_SHOWN = (
    "name", "state", "reason", "operation", "key", "base_url", "path", "seller", "account", "begun", "not_after",
    "recoverable", "owner", "lease_until", "updated",
)  # fmt: skip
_MOMENTS = ("begun", "not_after", "lease_until", "updated")


def add_arguments(journal: argparse.ArgumentParser) -> None:
    """Add the commands of `journal`."""
    journal.set_defaults(opened=_opened)
    within = journal.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = add_command(within, "list", _list, "list the open records")
    listed.add_argument("--all", action="store_true", help="list closed records, too")
    listed.add_argument("--limit", type=count, default=1000, metavar="N", help="list at most N records (default: 1000)")
    show = add_command(within, "show", _show, "show the details of a record")
    show.add_argument("record", metavar="NAME|KEY", help="the name of the write, or its idempotency key")
    about = "finish the open records of all sellers with credentials"
    add_sources(add_command(within, "recover", _recover, about, epilog=_RECOVER))
    abandoned = add_command(within, "abandon", _abandon, "close an open record whose outcome stays unknown")
    abandoned.add_argument("key", metavar="KEY", help="the idempotency key, which `show` prints")
    for parser in within.choices.values():
        parser.add_argument("--file", type=file, metavar="FILE", help=_WHERE)


def _opened(options: argparse.Namespace) -> AbstractAsyncContextManager[Journal]:
    return aclosing(journal_at(options.file or os.environ.get(VARIABLE) or _DEFAULT_FILE, "--file"))


def journal_at(place: str, option: str) -> PostgresJournal | SQLiteJournal:
    """Return the journal at *place*, a file or an address that the user may name by *option*.

    Raises:
        FileNotFoundError: The file is missing or empty.
    """
    from paymentsdk.journal import PostgresJournal, SQLiteJournal

    place = existing(option, place, VARIABLE, "journal")
    return PostgresJournal(place) if is_dsn(place) else SQLiteJournal(place)


# --- list and show ------------------------------------------------------------------------------------------------


def _shown(record: Record) -> Row:
    """Return the printed fields of *record*, without its body, its headers and its response."""
    row = {name: getattr(record, name) for name in _SHOWN}
    row |= {name: _moment(row[name]) if row[name] else None for name in _MOMENTS}
    return {**row, "state": record.state.value, "status": record.response.status if record.response else None}


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


async def _list(journal: Journal, options: argparse.Namespace) -> Output:
    from paymentsdk.journal import RecordState
    from paymentsdk.journal._record import OPEN

    rows = await journal.records(frozenset(RecordState if options.all else OPEN), limit=options.limit + 1)
    if len(rows) > options.limit:
        say(f"only the oldest {options.limit:,} are listed; raise --limit to list more")
        del rows[options.limit :]
    records = [_shown(row) for row in rows]
    return Output(records, table_of(records, "no records", ("state", "operation", "begun", "name")))


async def _show(journal: Journal, options: argparse.Namespace) -> Output:
    """Show the record with the key, or all records with the name; several operations or sellers may share a name."""
    from paymentsdk.journal import RecordState

    row, states = await journal.get(options.record), tuple(RecordState)
    rows = [row] if row else await journal.records(states, limit=sys.maxsize)
    records = [_shown(record) for record in rows if row or record.name == options.record]
    if not records:
        raise ValueError(f"no record has the name or the key {options.record!r}")
    texts = ({name.replace("_", " "): value for name, value in record.items()} for record in records)
    return Output(records, fields_of(texts))


# --- recover ------------------------------------------------------------------------------------------------------


async def _recover(journal: Journal, options: argparse.Namespace) -> Output:
    from paymentsdk import PaymentsClient
    from paymentsdk.journal._record import OPEN

    accounts, resolved = (await sellers_of(options)).auth, Counter[str]()
    # A program with a client for each seller names no account, so each seller recovers its own records.
    rows = await journal.records(OPEN, limit=sys.maxsize)
    names = [*accounts] if any(row.account is None for row in rows) else []
    # Without a source, the token serves all account names. A record is sent only with a token of its user id.
    async with PaymentsClient.from_env(journal=journal, accounts=accounts or _token) as client:
        summaries = [await seller.recover(progress=_tell) for seller in (*map(client.account, names), client)]
    for summary in summaries:
        resolved.update({state.value: number for state, number in summary.resolved.items()})
    summary = summaries[-1]  # The last recovery also covers all records that earlier ones have left open.
    complete, open_rows = summary.is_complete, summary.left
    lines = [
        *(f"{number:>6,} {state}" for state, number in resolved.most_common()),
        *summary.problems,
        *(
            f"{_whose(row)}left {row.state.value}: {row.name} ({row.operation}, seller {row.seller})"
            for row in open_rows
        ),
        "no record is open" if complete else "records are open: see `paymentsdk journal list`",
    ]
    data = {"complete": complete, "resolved": resolved, "left": [*map(_shown, open_rows)], "problems": summary.problems}
    return Output(data, lines, code=0 if complete else 1)


def _whose(record: Record) -> str:
    return f"{record.account}: " if record.account else ""


def _token(_account: str) -> str:
    if not (token := os.environ.get("PAYMENTSDK_ACCESS_TOKEN")):
        reason = "is not set; set it to a token of the seller, or name a token store with --tokens"
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
        until = f"{_moment(row.lease_until):%H:%M:%S} UTC"
        raise ValueError(f"a running process owns {row.name} until {until} or later; try again then")
    if row.state is not RecordState.ABANDONED:
        raise ValueError(f"{row.name} is {row.state.value} already, so it cannot be abandoned")
    return Output(_shown(row), [f"{row.name} is abandoned: calls with this name now raise OutcomeUnknown"])
