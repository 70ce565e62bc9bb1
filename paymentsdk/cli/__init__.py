"""The command line.

::

    paymentsdk demo                   an end-to-end demo on this machine
    paymentsdk sandbox                the platform on localhost, until it is interrupted
    paymentsdk sandbox pay ORD...     talk to a running sandbox: pay, policies, faults, advance
    paymentsdk journal list           the records of named writes: list, show, recover, abandon
    paymentsdk inbox list             the resources of notifications: list, show, retry
    paymentsdk tokens list            the tokens of sellers: exchange, list, refresh
    paymentsdk reconcile BOOK         compare your orders with the platform's
    paymentsdk orders get ORD...      any operation of the platform that reads or takes a key

``python -m paymentsdk`` is the same command.

The result of a command goes to stdout, everything else to stderr. The exit codes are 0 for success (also if Ctrl-C ends
a sandbox), 1 for failure, 2 for an invalid command, which was not begun, 3 for a write whose outcome is unknown or
cannot be printed, 130 for an interruption, and 141 if the reader of stdout has gone (``| head``).
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn, cast

from paymentsdk._version import __version__
from paymentsdk.cli._output import escape_unencodable, flush, say, sentence
from paymentsdk.cli._parsing import DONE, FAILED, INTERRUPTED, MISUSED, UNREAD, Parser, add_parser
from paymentsdk.errors import PaymentsError

__all__ = ["main"]

_START = (
    "Start with: paymentsdk demo. Commands for a platform take its address and your token from PAYMENTSDK_BASE_URL and "
    "PAYMENTSDK_ACCESS_TOKEN."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in *arguments*, and return the exit code.

    Args:
        arguments: The words after `paymentsdk`; by default those of the command line.
    """
    if sys.stderr is None:
        # `print` and argparse would use stdout instead, and mix messages into the result.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            return main(arguments)
    escape_unencodable()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser, code = _parser(words), DONE
    except KeyboardInterrupt:  # Ctrl-C came while the module of a command was imported.
        return INTERRUPTED
    try:
        try:
            code = _run(parser, words)
        finally:
            flush()  # Also after `--help`: Python's own flush at the end would report a reader that has gone.
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # The reader of stdout has gone.
        return code or UNREAD
    except (PaymentsError, OSError, ValueError) as error:
        say(f"{parser.prog}: {sentence(error)}")
        return code or FAILED
    return code


def _run(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Run the command; an invalid command shows its usage and ends with 2."""
    if "_ARGCOMPLETE" in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    options, unknown = parser.parse_known_args(words)
    command: ArgumentParser = options.parser
    if unknown:  # argparse itself would show the usage of the program, and not that of the command.
        command.error(f"unrecognized argument{'s' if len(unknown) > 1 else ''}: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
    except ArgumentTypeError as error:
        command.error(str(error))
    return code


def _parser(words: Sequence[str]) -> ArgumentParser:
    """Return the parser for *words*. Only the module of the command in *words* is imported."""
    about = "A payments platform: its client and its sandbox."
    parser = cast("ArgumentParser", Parser(prog="paymentsdk", description=about, epilog=_START))
    parser.set_defaults(run=_begin, parser=parser)
    parser.add_argument("--version", action="version", version=f"paymentsdk {__version__}", help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    if {"_ARGCOMPLETE", "COMP_LINE"} <= os.environ.keys():  # A shell requests completions for these words.
        words = os.environ["COMP_LINE"].split()[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        subparser = add_parser(commands, name, summary)
        if name == command:
            try:
                import_module(f"{__name__}._{name}").add_arguments(subparser)
            except ImportError as error:  # The sandbox needs a newer aiohttp than the client.
                subparser.error(str(error))
    if command not in _COMMANDS:
        from paymentsdk.cli._platform import add_operations

        add_operations(commands, command)
    return parser


def _begin(options: Namespace) -> NoReturn:
    """Print the help, because no command is named, and end with 2."""
    parser: ArgumentParser = options.parser
    parser.exit(MISUSED, parser.format_help())


#: The commands besides operations, and their summaries. The module with the name of a command adds its arguments.
_COMMANDS: Mapping[str, str] = {
    "demo": "run an end-to-end demo with injected faults, and compare both ledgers",
    "sandbox": "run the platform on localhost, or control a running sandbox",
    "journal": "list the records of named writes, and finish or close open records",
    "inbox": "list the resources of notifications, and retry failed ones",
    "tokens": "exchange authorization codes, and list or refresh the tokens of sellers",
    "reconcile": "compare your orders with the platform's, and list the differences",
}
