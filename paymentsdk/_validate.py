"""Checks of arguments that are not bodies: objects with methods, numbers, paths and addresses."""

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
    """Return the class of the standard library, even if *cls* is the subclass that freezegun replaces it with."""
    return cast("C", next(base for base in cls.__mro__ if base.__module__ == "datetime"))


_DAY = 86_400
#: A database address, or an address with a user and a password; also if a colon or slash is missing.
_LOGIN = re.compile(r"\Apostgres(?:ql)?(?::|//)|(?:\A|//)[^/\\\s:]{2,}:[^/\\\s]+@")
_NO_PATH = "looks like the address of a server, not the path of a file; an address begins with postgresql://"
#: The class of the standard library, also if this module is imported while freezegun has replaced it.
_MOMENTS = (unfrozen(datetime),)
#: Encrypts or decrypts the bytes that are stored.
Seal: TypeAlias = Callable[[bytes], bytes]
#: The environment variable that allows plain http to another machine; its value must be ``1``.
ALLOW_HTTP = "PAYMENTSDK_ALLOW_HTTP"


def plain_moment(value: object) -> datetime | None:
    """Return a moment of a subclass as a `datetime`, since subclasses change arithmetic, comparison and text.

    Return `None` for values that are not moments, such as `pandas.NaT`, which is an instance of `datetime`.
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
    """Return a duration of a subclass as a `timedelta`; `None` for any other value."""
    if type(value) is timedelta or not isinstance(value, timedelta):
        return value if isinstance(value, timedelta) else None
    # Some subclasses count months separately; these attributes cover the whole duration.
    parts = (part.__get__(value) for part in (timedelta.days, timedelta.seconds, timedelta.microseconds))
    return timedelta(*parts)


def check_methods(name: str, value: object, *methods: str, sync: str | None = None) -> None:
    """Check that a user's object has all *methods* that will be called; ``None`` is accepted.

    *sync* is the method that is called without ``await``.

    Raises:
        RequestInvalid: The object lacks one of *methods*, or is a class, or *sync* is a coroutine function.
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
    """Check that *seal* and *unseal* are both given, or neither.

    Raises:
        TypeError: Only one of them is given.
    """
    if (seal is None) is not (unseal is None):
        raise TypeError("pass both seal and unseal, or neither")


def check_within(name: str, value: int, least: int, most: int) -> int:
    """Return *value* if it is a whole number from *least* to *most*.

    Raises:
        RequestInvalid: It is not such a number.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestInvalid(name, f"must be a whole number, {least:,} to {most:,}")
    return value


def check_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the absolute form of *path*, as the process may change its folder.

    Raises:
        RequestInvalid: It is a server's address. Names of files are shown in errors, and its password must not be.
    """
    from pathlib import Path  # slow to import, and most programs have no such file

    if "://" in check_no_login(name, path):
        raise RequestInvalid(name, _NO_PATH)
    return Path(path).absolute()


def check_no_login(name: str, path: str | os.PathLike[str]) -> str:
    """Return *path* as text. It may be an address that DuckDB reads, such as `s3://bucket/book.csv`.

    Raises:
        RequestInvalid: It contains a password, or is a database's address.
    """
    text = os.fspath(path)
    if _LOGIN.search(text):
        raise RequestInvalid(name, _NO_PATH)
    return text


def check_bool(name: str, value: object) -> None:
    """Check that *value* is `True` or `False`: for example, the text "false" of an environment variable counts as true.

    Raises:
        RequestInvalid: It is another value.
    """
    if type(value) is not bool:
        raise RequestInvalid(name, "must be True or False")


def check_seconds(name: str, value: float, *, zero: bool = False) -> float:
    """Return *value* if it is a number of seconds above 0 (or 0, with *zero*) and at most 86,400.

    Raises:
        RequestInvalid: It is not such a number.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # The comparison also rejects NaN.
    if not number or not 0 <= value <= _DAY or (value == 0 and not zero):
        raise RequestInvalid(name, f"must be {'0 to' if zero else 'above 0 and at most'} {_DAY} seconds")
    return value


def check_proxy(proxy: str | None) -> None:
    """Check that *proxy* is the URL of a proxy, or ``None``.

    Raises:
        RequestInvalid: It is not. The error does not show it, because it may contain a password.
    """
    proxy = masked(proxy)
    if proxy is not None and not is_http(proxy):
        raise RequestInvalid("proxy", "must be an http or https URL such as http://proxy.example.com:3128")


def check_utf8(name: str, path: str) -> None:
    """Check that *path* is valid UTF-8: neither DuckDB nor Parquet accepts another path.

    Raises:
        RequestInvalid: It is not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise RequestInvalid(name, f"{path} is not UTF-8, which a path must be here") from None


def is_http(url: str) -> bool:
    """Return whether *url* is an http or https URL."""
    from yarl import URL  # only needed for a proxy

    if not isinstance(url, str):
        return False
    try:
        parts = URL(url)
        return parts.scheme in {"http", "https"} and bool(parts.host) and parts.port is not None
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether *host* is this machine: ``localhost`` or a name below it, ``127.0.0.0/8`` or ``::1``."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address  # only needed to make a client

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
