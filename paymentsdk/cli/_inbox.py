"""``paymentsdk inbox list``, ``show`` and ``retry``: commands for the resources that wait in an inbox."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from paymentsdk.cli._accounts import add_command, existing
from paymentsdk.cli._output import Output, counted, fields_of, table_of
from paymentsdk.cli._parsing import file

if TYPE_CHECKING:
    from paymentsdk.webhooks import Inbox

#: The variable that names the database. All users of a machine can see arguments, so a password belongs here.
_VARIABLE = "PAYMENTSDK_INBOX"
_WHERE = f"the SQLite file (default: {_VARIABLE}); put a postgresql:// address into {_VARIABLE}"


def add_arguments(inbox: argparse.ArgumentParser) -> None:
    """Add the commands of `inbox`."""
    inbox.set_defaults(opened=_opened)
    within = inbox.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = add_command(within, "list", _list, "list the resources that wait to be handled")
    listed.add_argument("--failed", action="store_true", help="list only resources that have failed 20 times")
    show = add_command(within, "show", _show, "show why the last attempt failed, and which states were handled")
    retry = add_command(within, "retry", _retry, "make a resource due again that has failed 20 times")
    for parser in (show, retry):
        parser.add_argument("id", metavar="ID", help="the id of the resource, such as ORD...")
    for parser in within.choices.values():
        parser.add_argument("--file", type=file, metavar="FILE", help=_WHERE)


def _opened(options: argparse.Namespace) -> AbstractAsyncContextManager[Inbox]:
    from paymentsdk.webhooks import Inbox

    return nullcontext(Inbox(existing("--file", options.file or os.environ.get(_VARIABLE) or "", _VARIABLE, "inbox")))


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
