"""Types of arguments: each function reads the text of an argument, or says what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

_LARGEST_PORT = 65_535
#: How people write a duration who do not know ISO 8601: `20m`, `2 days`. Months are none of these, nor is `1.5 h`.
_SPOKEN = re.compile(
    r"(?P<number>[0-9]+)\s*(?P<unit>s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?)", re.IGNORECASE
)


class Choices(Iterable[str]):
    """Values to choose from, looked up only when somebody wants to see or to check them.

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


def pairs(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the *given* pairs by name; reject a name that is given twice: nobody knows which value is meant."""
    values: dict[str, str] = {}
    for name, value in given:
        if name in values:
            raise ArgumentTypeError(f"{name} is given twice")
        values[name] = value
    return values


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


def address(text: str) -> str:
    """Read where a sandbox is."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # It is looked at only now.
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ArgumentTypeError(f"{text!r} is not an http or https address such as http://127.0.0.1:8787")
    return text


def order_name(text: str) -> str:
    """Read the name of an order or a preference: as it is, or the last part of an address, without its query."""
    # A page that was paid at says in its address how that came out.
    name = text.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not name:
        raise ArgumentTypeError(f"{text!r} names no order")
    return name


def duration(text: str) -> str:
    """Read an ISO 8601 duration, in letters of any case."""
    from paymentsdk.resources.common import parse_duration

    try:
        parse_duration(text.upper())
    except ValueError:
        hint = _as_iso(text) or "one such as PT20M or P30D"
        raise ArgumentTypeError(f"{text!r} is not a duration; write {hint}") from None
    return text.upper()


def _as_iso(text: str) -> str | None:
    spoken = _SPOKEN.fullmatch(text.strip())
    if spoken is None:
        return None
    unit = spoken["unit"][0].upper()
    return f"{'P' if unit in 'DW' else 'PT'}{spoken['number']}{unit}"
