"""The parser of commands, and the types of their arguments; a type reads a text, or says what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from paymentsdk._resume_point import ResumePoint

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: Exit codes; `UNREAD` is the code that shells report for a program that SIGPIPE ended.
DONE, FAILED, MISUSED, IN_DOUBT, INTERRUPTED, UNREAD = 0, 1, 2, 3, 130, 141
#: The largest `count`.
_MOST = 1_000_000_000
#: The object to which commands are added; argparse has no public name for its type.
Commands: TypeAlias = "_SubParsersAction[ArgumentParser]"

_ACCOUNT = re.compile("[!-~]{1,100}")
#: Mistyped words in the errors of argparse.
_MISTYPED = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)|unrecognized arguments?: (-[^ =]*)")


class Parser(ArgumentParser):
    """A parser of commands that suggests the right option or command for a mistyped word."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and *message*, with a suggestion for a mistyped word, and end with 2."""
        # From Python 3.15 on, argparse suggests a command, too.
        message = re.sub(r", maybe you meant '[^']*'\?", "", message)
        if mistyped := _MISTYPED.search(message):
            command, commands, option = mistyped.groups()
            words = re.findall(r"[\w-]+", commands) if commands else re.findall(r"--[\w-]+", self.format_help())
            message += suggestion(command or option or "", words)
        super().error(message)


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return a suggestion from *words* for a mistyped *word*, such as ``; did you mean shop-1?``, or an empty text."""
    similar = get_close_matches(word, words)
    return f"; did you mean {similar[0]}?" if similar else ""


def add_parser(
    commands: Commands,
    name: str,
    summary: str,
    run: Callable[[Namespace], int] | None = None,
    *,
    epilog: str | None = None,
) -> ArgumentParser:
    """Add a command, and return its parser.

    Args:
        commands: The commands to which it is added.
        name: The name of the command.
        summary: Says what the command does.
        run: Runs the command with its options, and returns the exit code. A command without it has nested commands.
        epilog: The end of its help, which is printed without changes.
    """
    parser = commands.add_parser(
        name,
        help=summary.replace("%", "%%"),
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def pairs(assignments: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values of *assignments* by name; reject a name that is given twice."""
    values: dict[str, str] = {}
    for name, value in assignments:
        if name in values:
            raise ArgumentTypeError(f"{name} is given twice")
        values[name] = value
    return values


def count(text: str) -> int:
    """Read a number from 1 to a billion. Larger numbers overflow times and databases."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST:,}")
    return int(text)


def resume_point(text: str) -> ResumePoint:
    """Read ``ROW`` or ``ROW/TOTAL``, which an interrupted search prints for `--start`."""
    offset, slash, total = text.partition("/")
    if not offset.isdecimal() or (slash and not total.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is neither a row, such as 50, nor a row and a total, such as 50/120")
    return ResumePoint(int(offset), int(total) if slash else None)


def account_name(text: str) -> str:
    """Read the name of a seller, as `client.account` accepts it. An empty one, as of an unset variable, is rejected."""
    if not _ACCOUNT.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not an account name: it needs 1 to 100 visible ASCII characters")
    return text


def file(text: str) -> str:
    """Read the name of a file. An empty one, as of an unset variable, is rejected."""
    if not text:
        raise ArgumentTypeError("the name of the file is empty")
    return text
