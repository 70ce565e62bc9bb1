"""Checks of what a caller hands over besides bodies: objects with methods, numbers and addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from paymentsdk._secrets import masked
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from pathlib import Path

C = TypeVar("C", bound=type)


def unfrozen(cls: C) -> C:
    """Return the class of the standard library, of which *cls* may be the subclass that freezegun puts in its place."""
    return cast("C", next(base for base in cls.__mro__ if base.__module__ == "datetime"))


_DAY = 86_400
#: The address of a database, or one with a user and a password; also where a colon or slash of it is missing.
_LOGIN = re.compile(r"\Apostgres(?:ql)?(?::|//)|(?:\A|//)[^/\\\s:]{2,}:[^/\\\s]+@")
_NO_PATH = "looks like the address of a server, not the path of a file; an address begins with postgresql://"
#: The class of the standard library, also in a module that is imported while freezegun has put another in its place.
_MOMENTS = (unfrozen(datetime),)
#: Encrypts bytes that are kept, or decrypts them.
Seal: TypeAlias = Callable[[bytes], bytes]
#: The variable that allows plain http to another machine where it is ``1``.
ALLOW_HTTP = "PAYMENTSDK_ALLOW_HTTP"


def plain_moment(value: object) -> datetime | None:
    """Return a moment of a subclass as a `datetime`, since subclasses change arithmetic, comparison and text.

    Returns `None` for what is no moment, such as `pandas.NaT`, which is an instance of `datetime` all the same.
    """
    if type(value) in _MOMENTS:
        return cast("datetime", value)
    if not isinstance(value, _MOMENTS):
        return None
    day, time = (value.year, value.month, value.day), (value.hour, value.minute, value.second, value.microsecond)
    try:
        return _MOMENTS[0](*day, *time, value.tzinfo, fold=value.fold)
    except (TypeError, ValueError):
        return None


def plain_duration(value: object) -> timedelta | None:
    """Return a duration of a subclass as a `timedelta`; `None` for what is none."""
    if type(value) is timedelta or not isinstance(value, timedelta):
        return value if isinstance(value, timedelta) else None
    # Some count months beside the days: these are of all of it.
    parts = (part.__get__(value) for part in (timedelta.days, timedelta.seconds, timedelta.microseconds))
    return timedelta(*parts)


def check_methods(name: str, value: object, *methods: str, sync: str | None = None) -> None:
    """Reject a part of the caller's own that lacks a method which will be called; ``None`` is no part.

    *sync* is the one of them that is called without ``await``.

    Raises:
        RequestInvalid: It lacks one of *methods*, or is a class, or *sync* is a coroutine function.
    """
    if value is None:
        return
    if isinstance(value, type):
        raise RequestInvalid(name, f"must be an instance, not the class {value.__name__}")
    if missing := [method for method in methods if not callable(getattr(value, method, None))]:
        raise RequestInvalid(name, f"must have {' and '.join(missing)}, which {type(value).__name__} lacks")
    if sync is not None and (iscoroutinefunction(value) or iscoroutinefunction(getattr(value, sync))):
        raise RequestInvalid(name, f"{sync} of {type(value).__name__} must not be async: it is not awaited")


def check_seals(seal: Seal | None, unseal: Seal | None) -> None:
    """Reject a seal without what undoes it, and the other way round.

    Raises:
        TypeError: One of them is missing.
    """
    if (seal is None) is not (unseal is None):
        raise TypeError("give seal and unseal, or neither")


def check_within(name: str, value: int, least: int, most: int) -> int:
    """Return *value* if it is a whole number from *least* to *most*.

    Raises:
        RequestInvalid: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestInvalid(name, f"must be a whole number, {least:,} to {most:,}")
    return value


def check_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return *path*, absolute: the process may change its folder.

    Raises:
        RequestInvalid: It is the address of a server. Names of files are shown, so its password would be, too.
    """
    from pathlib import Path  # it brings half of the library along, and most programs have no such file

    if "://" in check_no_login(name, path):
        raise RequestInvalid(name, _NO_PATH)
    return Path(path).absolute()


def check_no_login(name: str, path: str | os.PathLike[str]) -> str:
    """Return *path* as text. It may be an address that DuckDB reads, such as `s3://bucket/book.csv`.

    Raises:
        RequestInvalid: It has a password in it, or is the address of a database.
    """
    text = os.fspath(path)
    if _LOGIN.search(text):
        raise RequestInvalid(name, _NO_PATH)
    return text


def check_bool(name: str, value: object) -> None:
    """Reject what is neither `True` nor `False`: the text "false" of some environment is true.

    Raises:
        RequestInvalid: It is something else.
    """
    if type(value) is not bool:
        raise RequestInvalid(name, "must be True or False")


def check_seconds(name: str, value: float, *, zero: bool = False) -> float:
    """Return *value* if it is a number of seconds above 0 (or 0, with *zero*) and at most 86,400.

    Raises:
        RequestInvalid: It is not.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is not in the range either.
    if not number or not 0 <= value <= _DAY or (value == 0 and not zero):
        raise RequestInvalid(name, f"must be {'0 to' if zero else 'above 0 and at most'} {_DAY} seconds")
    return value


def check_proxy(proxy: str | None) -> None:
    """Reject what is not the URL of a proxy; ``None`` is none.

    Raises:
        RequestInvalid: It is something else. The error does not show it: there may be a password in it.
    """
    proxy = masked(proxy)
    if proxy is not None and not is_http(proxy):
        raise RequestInvalid("proxy", "must be an http or https URL such as http://proxy.example.com:3128")


def check_utf8(name: str, path: str) -> None:
    """Reject a *path* whose bytes are no text: neither DuckDB nor Parquet takes it.

    Raises:
        RequestInvalid: It is not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise RequestInvalid(name, f"{path} is not UTF-8, as a path has to be here") from None


def is_http(url: str) -> bool:
    """Whether *url* is one of http or https."""
    from yarl import URL  # only who has a proxy needs it

    if not isinstance(url, str):
        return False
    try:
        parts = URL(url)
        return parts.scheme in {"http", "https"} and bool(parts.host) and parts.port is not None
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine: ``localhost`` or a name below it, ``127.0.0.0/8`` or ``::1``."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address  # only who makes a client needs it

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
