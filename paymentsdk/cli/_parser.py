"""Commands: how each is added, and help of which a part is found out only for whoever asks for it."""

from __future__ import annotations

from argparse import ArgumentParser, HelpFormatter, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: Where commands are added; argparse has no public name for it.
Commands: TypeAlias = "_SubParsersAction[Parser]"


class Parser(ArgumentParser):
    """The parser of a command, and of those within it."""

    explain: Callable[[Parser], None] | None = None
    """Adds to the help what takes too long to find out for a command that is only done."""

    def format_help(self) -> str:
        if self.explain is not None:
            self.explain(self)
        return super().format_help()


def add_parser(
    commands: Commands,
    name: str,
    summary: str,
    run: Callable[[Namespace], int] | None = None,
    *,
    description: str | None = None,
    epilog: str | None = None,
) -> Parser:
    """Add a command, and return its parser.

    Args:
        commands: Where to.
        name: What it is called.
        summary: What it does, in words.
        run: Does what the options ask for, and returns the exit code; without it, there are commands within this one.
        description: The same in a sentence, if it is another one.
        epilog: What its help ends with; with line breaks, it is printed as it is.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[:1].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter if epilog and "\n" in epilog else HelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser
