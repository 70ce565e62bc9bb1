"""``paymentsdk inbox list``, ``show`` and ``retry``: commands for the resources that wait in an inbox."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from paymentsdk._postgres import is_dsn
from paymentsdk._validate import check_path
from paymentsdk.cli._accounts import run
from paymentsdk.cli._output import Output, counted, fields_of, table_of
from paymentsdk.cli._parsing import Commands, add_parser, file

if TYPE_CHECKING:
    from paymentsdk.webhooks import Inbox

#: The variable that names the database. All users of a machine can see arguments, so a password belongs here.
_VARIABLE = "PAYMENTSDK_INBOX"
_WHERE = f"the SQLite file (default: {_VARIABLE}); put a postgresql:// address into {_VARIABLE}"
#: Runs a command on the inbox with the options.
_Command = Callable[["Inbox", argparse.Namespace], Awaitable[Output]]


def add_arguments(inbox: argparse.ArgumentParser) -> None:
    """Add the commands of `inbox`."""
    within = inbox.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = _add(within, "list", _list, "list the resources that wait to be handled")
    listed.add_argument("--failed", action="store_true", help="list only resources that have failed 20 times")
    show = _add(within, "show", _show, "show why the last attempt failed, and which states were handled")
    retry = _add(within, "retry", _retry, "make a resource due again that has failed 20 times")
    for parser in (show, retry):
        parser.add_argument("id", metavar="ID", help="the id of the resource, such as ORD...")


def _add(commands: Commands, name: str, command: _Command, summary: str) -> argparse.ArgumentParser:
    parser = add_parser(commands, name, summary, _run)
    parser.add_argument("--file", type=file, metavar="FILE", help=_WHERE)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(command=command)
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run the command in *options*, print its result, and return the exit code."""
    from paymentsdk.webhooks import Inbox

    command: _Command = options.command
    database = options.file or os.environ.get(_VARIABLE) or ""
    if not is_dsn(database) and not (database and check_path("--file", database).is_file()):
        missing = f"there is no inbox {database}" if database else "no inbox is named"
        raise FileNotFoundError(f"{missing}; name it with --file or {_VARIABLE}")
    return run(lambda: command(Inbox(database), options), as_json=options.json)


async def _list(inbox: Inbox, options: argparse.Namespace) -> Output:
    rows = [asdict(row) for row in await inbox.rows(failed=options.failed)]
    return Output(rows, table_of(rows, "nothing waits", ("status", "attempt", "seller", "topic", "id")))


async def _show(inbox: Inbox, options: argparse.Namespace) -> Output:
    rows = [asdict(row) for row in await inbox.rows(id=options.id)]
    if not rows:
        raise ValueError(f"the inbox has no {options.id!r}")
    return Output(rows, fields_of({**row, "handled": " ".join(row["handled"])} for row in rows))


async def _retry(inbox: Inbox, options: argparse.Namespace) -> Output:
    rows = await inbox.rows(failed=True, id=options.id)
    for row in rows:
        await inbox.retry(row.seller, row.topic, row.id)
    if not rows:
        raise ValueError(f"the inbox has no {options.id!r} that has failed")
    return Output([asdict(row) for row in rows], [f"{counted(len(rows), 'resource')} made due"])
