"""Commands, how each is added, and the types of their arguments: a type reads a text, or says what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from paymentsdk._resume_point import ResumePoint

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: Exit codes; the last is what a shell says of a program that SIGPIPE ended.
DONE, FAILED, MISUSED, IN_DOUBT, INTERRUPTED, UNREAD = 0, 1, 2, 3, 130, 141
#: What `count` takes.
_MOST = 1_000_000_000
#: Where commands are added; argparse has no public name for it.
Commands: TypeAlias = "_SubParsersAction[ArgumentParser]"

_ACCOUNT = re.compile("[!-~]{1,100}")
#: Mistyped words in the errors of argparse.
_MISTYPED = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)|unrecognized arguments?: (-[^ =]*)")


class Parser(ArgumentParser):
    """A parser of commands that names the option or the command that a mistyped word is close to."""

    def error(self, message: str) -> NoReturn:
        """End with 2, with how the command is used, and what a mistyped word was meant to be."""
        if mistyped := _MISTYPED.search(message):
            command, commands, option = mistyped.groups()
            words = re.findall(r"[\w-]+", commands) if commands else re.findall(r"--[\w-]+", self.format_help())
            message += suggestion(command or option or "", words)
        super().error(message)


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return what follows a *word* that is none of *words*, such as ``; did you mean shop-1?``; or nothing."""
    similar = get_close_matches(word, words, 1)
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
        commands: Where to.
        name: What it is called.
        summary: What it does, in words.
        run: Does what the options ask for, and returns the exit code; without it, there are commands within this one.
        epilog: What its help ends with, printed as it is.
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
    """Return the *given* pairs by name; reject a name that is given twice: nobody knows which value is meant."""
    values: dict[str, str] = {}
    for name, value in assignments:
        if name in values:
            raise ArgumentTypeError(f"{name} is given twice")
        values[name] = value
    return values


def count(text: str) -> int:
    """Read a number from 1 to a billion: what is far above it fits neither a time nor a database."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of at least 1")
    if int(text) > _MOST:
        raise ArgumentTypeError(f"{text} is above {_MOST:,}")
    return int(text)


def resume_point(text: str) -> ResumePoint:
    """Read ``ROW`` or ``ROW/TOTAL``, as a search that breaks off says where to go on."""
    offset, slash, total = text.partition("/")
    if not offset.isdecimal() or (slash and not total.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is neither a row, such as 50, nor a row and a total, such as 50/120")
    return ResumePoint(int(offset), int(total) if slash else None)


def account_name(text: str) -> str:
    """Read the name of a seller, as `client.account` takes it. An empty one is a variable that is not set."""
    if not _ACCOUNT.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} names no account: it has 1 to 100 visible ASCII characters")
    return text


def file(text: str) -> str:
    """Read the name of a file. An empty one is a variable that is not set, most likely."""
    if not text:
        raise ArgumentTypeError("'' names no file")
    return text
