"""The command line.

::

    paymentsdk demo                   an end-to-end demo on this machine
    paymentsdk sandbox                the platform on localhost, until it is interrupted
    paymentsdk sandbox pay ORD...     talk to a running sandbox: pay, policies, faults, advance
    paymentsdk journal list           the records of named writes: list, show, recover, abandon
    paymentsdk inbox list             the resources of notifications: list, show, retry
    paymentsdk tokens list            the tokens of sellers: exchange, list, refresh
    paymentsdk reconcile BOOK         a book of orders, held against the platform
    paymentsdk orders get ORD...      any operation of the platform that reads or takes a key

``python -m paymentsdk`` is the same command.

What was asked for goes to stdout, everything else to stderr. The exit code is 0 for success (also of a sandbox that
Ctrl-C ended), 1 for failure, 2 for a command that makes no sense and was not begun, 3 for a write whose outcome is not
known or cannot be printed, 130 for an interruption, and 141 where nobody reads stdout any more (``| head``).
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from importlib import import_module
from pathlib import Path
from typing import cast

from paymentsdk._version import __version__
from paymentsdk.cli._output import escape_unencodable, flush, say
from paymentsdk.cli._parsing import DONE, FAILED, INTERRUPTED, MISUSED, UNREAD, Parser, add_parser
from paymentsdk.errors import PaymentsError

__all__ = ["main"]

_START = (
    "Start with: paymentsdk demo. Commands for a platform take its address and your token from PAYMENTSDK_BASE_URL and "
    "PAYMENTSDK_ACCESS_TOKEN."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what *arguments*, or the command line, ask for, and return the exit code.

    Args:
        arguments: The words behind the name of the command.
    """
    if sys.stderr is None:
        # `print` and argparse would take stdout in its place, and what was asked for would stand among the rest.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            return main(arguments)
    escape_unencodable()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser, code = _parser(words), DONE
    except KeyboardInterrupt:  # While a command is loaded.
        return INTERRUPTED
    try:
        try:
            code = _run(parser, words)
        finally:
            flush()  # Also after `--help`: at its end Python would complain of a reader who left.
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # The reader has seen enough.
        return code or UNREAD
    except (PaymentsError, OSError, ValueError) as error:
        say(f"{parser.prog}: {error}")
        return code or FAILED
    return code


def _run(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Do what is asked for; a command that makes no sense ends with 2, and says how it is used."""
    if "_ARGCOMPLETE" in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    options, unknown = parser.parse_known_args(words)
    command: ArgumentParser = options.parser
    if unknown:  # Found by argparse itself, it would be a complaint of the whole program.
        command.error(f"unrecognized argument{'s' if len(unknown) > 1 else ''}: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
    except ArgumentTypeError as error:
        command.error(str(error))
    return code


def _parser(words: Sequence[str]) -> ArgumentParser:
    """Return the parser for *words*: what a command takes is found out only for whoever names it."""
    about = "A payments platform: its client and its sandbox."
    parser = cast("ArgumentParser", Parser(prog="paymentsdk", description=about, epilog=_START))
    parser.set_defaults(run=_begin, parser=parser)
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    if {"_ARGCOMPLETE", "COMP_LINE"} <= os.environ.keys():  # A shell asks what its words could be completed to.
        words = os.environ["COMP_LINE"].split()[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        subparser = add_parser(commands, name, summary)
        if name == command:
            try:
                import_module(f"{__name__}._{name}").add_arguments(subparser)
            except ImportError as error:  # The sandbox needs a later aiohttp than the client.
                subparser.error(str(error))
    if command not in _COMMANDS:
        from paymentsdk.cli._platform import add_operations

        add_operations(commands, command)
    return parser


def _begin(options: Namespace) -> int:
    """Show the version, or the help to whoever names no command."""
    if not options.version:
        options.parser.exit(MISUSED, options.parser.format_help())
    # By argparse's own action it would end with 0 also when nobody reads it any more.
    print(f"paymentsdk {__version__}")
    return 0


#: The commands besides those of the operations, and what each does; it is added by the module that is named like it.
_COMMANDS: Mapping[str, str] = {
    "demo": "run an end-to-end demo with injected faults, and compare both ledgers",
    "sandbox": "run the platform on localhost, or talk to a sandbox that runs",
    "journal": "list the records of named writes, finish what is open, or close it",
    "inbox": "list the resources that notifications were about, or retry a look that failed",
    "tokens": "exchange authorization codes, and list or refresh the tokens of sellers",
    "reconcile": "compare a book of orders with the platform, and list what differs",
}
