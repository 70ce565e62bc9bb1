"""A command that asks a sandbox that runs: the options that all of them have, and how each is done."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from paymentsdk.cli._arguments import address
from paymentsdk.cli._output import Output, print_output
from paymentsdk.cli._parser import Commands, Parser, add_parser
from paymentsdk.cli._running import DEFAULT_HOST, DEFAULT_PORT, Running

#: Does what the options ask for with the sandbox.
Command = Callable[[Running, argparse.Namespace], Output]


def add_command(commands: Commands, name: str, command: Command, summary: str) -> Parser:
    """Add a command that asks a sandbox, with the options that all of them have."""
    parser = add_parser(commands, name, summary, ask)
    # Without defaults: a command within a command would set what was said before it back to them.
    where = f"the sandbox (default: PAYMENTSDK_BASE_URL, or port {DEFAULT_PORT} here)"
    parser.add_argument("--url", type=address, default=argparse.SUPPRESS, help=where)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the response as JSON")
    parser.set_defaults(command=command, name=name)
    return parser


def ask(options: argparse.Namespace) -> int:
    """Do the command in *options* to the sandbox that they name, print what it came to, and return the exit code.

    Raises:
        argparse.ArgumentTypeError: An option would do nothing here, or ``PAYMENTSDK_BASE_URL`` is no address.
    """
    _refuse_settings(options)
    output: Output = options.command(Running(_said_place(options)), options)
    return print_output(output, as_json="json" in options)


def _refuse_settings(options: argparse.Namespace) -> None:
    said = [one.option_strings[0] for one in options.settings if getattr(options, one.dest) != one.default]
    if said:
        words = f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} for starting a sandbox"
        hint = f"; for a response in JSON, write --json after `{options.name}`" if "--json" in said else ""
        raise argparse.ArgumentTypeError(f"{words}, and `{options.name}` asks one that runs{hint}")


def _said_place(options: argparse.Namespace) -> str | None:
    """Return where ``--url`` leads, or ``--host`` and ``--port``: whoever starts a sandbox with them finds it again."""
    url: str | None = getattr(options, "url", None)
    if options.host is None and options.port is None:
        return url
    if url:
        raise argparse.ArgumentTypeError("--url says where the sandbox is, and --host or --port says it otherwise")
    host = options.host or DEFAULT_HOST
    return f"http://{f'[{host}]' if ':' in host else host}:{DEFAULT_PORT if options.port is None else options.port}"
