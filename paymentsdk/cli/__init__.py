"""The command line.

::

    paymentsdk demo                   an end-to-end demo on this machine
    paymentsdk sandbox                the platform on localhost, until it is interrupted
    paymentsdk sandbox pay ORD...     talk to a running sandbox: pay, policies, faults, advance
    paymentsdk journal list           the records of named writes: list, show, recover, abandon
    paymentsdk reconcile BOOK         a book of orders, held against the platform
    paymentsdk orders get ORD...      any operation of the platform that reads or takes a key
    paymentsdk completion bash        what completes these words in bash, zsh or fish

``python -m paymentsdk`` is the same command.

What was asked for goes to stdout, everything else to stderr. The exit code is 0 for success (also of a sandbox that
Ctrl-C ended), 1 for failure, 2 for a command that makes no sense and was not begun, 3 for a write whose outcome is not
known or cannot be printed, 130 for an interruption, and 141 where nobody reads stdout any more (``| head``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Never

from paymentsdk._version import __version__
from paymentsdk.cli._journal import add_journal
from paymentsdk.cli._output import flush, say
from paymentsdk.cli._parsing import DONE, FAILED, INTERRUPTED, MISUSED, UNREAD, Commands, Parser, add_parser, count
from paymentsdk.cli._reconcile import add_reconcile
from paymentsdk.cli._sandbox import add_sandbox
from paymentsdk.errors import PaymentsError, install_extra

if TYPE_CHECKING:
    from paymentsdk._operation.operation import Operation
    from paymentsdk.client import PaymentsClient

__all__ = ["main"]

_START = (
    "Start with: paymentsdk demo. Commands for a platform take its address and your token from PAYMENTSDK_BASE_URL and "
    "PAYMENTSDK_ACCESS_TOKEN, or from a profile."
)


def main(
    arguments: Sequence[str] | None = None,
    *,
    operations: Iterable[Operation[Never, object]] | None = None,
    connect: Callable[[str | None], PaymentsClient] | None = None,
) -> int:
    """Do what *arguments*, or the command line, ask for, and return the exit code.

    A package that is built on this one makes a command of its own operations: ``main(operations=
    FooClient.own_operations, connect=connect)``. It has these, ``completion``, and nothing else.

    Args:
        arguments: The words behind the name of the command.
        operations: What the command can do, in place of what this package can.
        connect: Makes the client, given the value of ``--profile``; by default from a profile, or the environment.
    """
    if sys.stderr is None:
        # `print` and argparse would take stdout in its place, and what was asked for would stand among the rest.
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            return main(arguments, operations=operations, connect=connect)
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, code = _parser(words, operations, connect), DONE
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


def _run(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Do what is asked for; a command that makes no sense ends with 2, and says how it is used."""
    if "_ARGCOMPLETE" in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    options, unknown = parser.parse_known_args(words)
    command: argparse.ArgumentParser = options.parser
    if unknown:  # Found by argparse itself, it would be a complaint of the whole program.
        command.error(f"unrecognized argument{'s' if len(unknown) > 1 else ''}: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
    except argparse.ArgumentTypeError as error:
        command.error(str(error))
    return code


def _parser(
    words: Sequence[str],
    operations: Iterable[Operation[Never, object]] | None,
    connect: Callable[[str | None], PaymentsClient] | None,
) -> argparse.ArgumentParser:
    """Return the parser for *words*: what the operations need to know is found out only for those who ask for one."""
    own = operations is not None
    parser = Parser(
        prog=None if own else "paymentsdk",
        description="Ask the platform." if own else "A payments platform: its client and its sandbox.",
        epilog=None if own else _START,
    )
    parser.set_defaults(run=_begin, parser=parser, version=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    if not own:
        parser.add_argument("--version", action="store_true", help="print the version")
        for add in _OWN.values():
            add(commands)
    _add_completion(commands)
    if own or words[:1] not in [[name] for name in _OWN]:
        from paymentsdk.cli._platform import add_operations
        from paymentsdk.resources import OPERATIONS

        add_operations(commands, OPERATIONS.values() if operations is None else operations, connect)
    return parser


def _begin(options: argparse.Namespace) -> int:
    """Show the version, or the help to whoever names no command."""
    if not options.version:
        options.parser.exit(MISUSED, options.parser.format_help())
    # By argparse's own action it would end with 0 also when nobody reads it any more.
    print(f"paymentsdk {__version__}")
    return 0


def _add_completion(commands: Commands) -> None:
    summary = "print a completion script for a shell"
    how = 'bash and zsh: eval "$(paymentsdk completion bash)"; fish: paymentsdk completion fish | source'
    completion = add_parser(commands, "completion", summary, _run_completion, epilog=how)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def _run_completion(options: argparse.Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise argparse.ArgumentTypeError(f"to complete words, {install_extra('cli')}") from None
    print(shellcode([options.parser.prog.split()[0]], shell=options.shell))
    return 0


def _add_demo(commands: Commands) -> None:
    summary = "run an end-to-end demo between a client and a sandbox, with injected faults, and compare their ledgers"
    demo = add_parser(commands, "demo", summary, _run_demo)
    demo.add_argument("--orders", type=count, default=300, metavar="N", help="orders to create (default: 300)")
    demo.add_argument("--concurrency", type=count, default=32, metavar="N", help="calls in flight (default: 32)")
    demo.add_argument("--json", action="store_true", help="print the result as one line of JSON")


def _run_demo(options: argparse.Namespace) -> int:
    from paymentsdk.cli._demo import demonstrate

    return demonstrate(number=options.orders, concurrency=options.concurrency, as_json=options.json)


#: The commands besides those of the operations.
_OWN: Mapping[str, Callable[[Commands], None]] = {
    "demo": _add_demo,
    "sandbox": add_sandbox,
    "journal": add_journal,
    "reconcile": add_reconcile,
}
