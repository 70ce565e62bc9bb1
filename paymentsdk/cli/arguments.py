"""What an argument may be: each function reads the text of one, or says what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator

__all__ = ["Choices", "count", "duration", "file", "pair", "port"]

_LARGEST_PORT = 65_535
#: How people write a duration who do not know ISO 8601: `20m`, `1.5 h`.
_SPOKEN = re.compile(r"(?P<number>\d+)\s*(?P<unit>s|sec|m|min|h|d|w)[a-z]*", re.IGNORECASE)


class Choices(Iterable[str]):
    """Values to choose from, which are not looked up before somebody wants to see or to check them.

    Args:
        find: Returns them.
    """

    def __init__(self, find: Callable[[], Iterable[str]]) -> None:
        self._find = find

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def count(text: str) -> int:
    """Read a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def port(text: str) -> int:
    """Read the number of a port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port from 0 to {_LARGEST_PORT}")
    return int(text)


def file(text: str) -> str:
    """Read the name of a file. An empty one is a variable that is not set, most likely."""
    if not text:
        raise ArgumentTypeError("'' names no file")
    return text


def duration(text: str) -> str:
    """Read an ISO 8601 duration, in letters of any case."""
    from paymentsdk.resources.common import parse_duration  # noqa: PLC0415 - `paymentsdk --help` does without

    try:
        parse_duration(text.upper())
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a duration; write {_as_iso(text) or 'one such as PT20M'}") from None
    return text.upper()


def _as_iso(text: str) -> str | None:
    spoken = _SPOKEN.fullmatch(text.strip())
    if spoken is None:
        return None
    unit = spoken["unit"][0].upper()
    return f"{'P' if unit in 'DW' else 'PT'}{spoken['number']}{unit}"
