"""Header fields: which may be sent, and how they are merged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import lru_cache
from typing import TypeVar, cast

from paymentsdk._codec.timestamps import in_utc
from paymentsdk._secrets import LONG, masked
from paymentsdk.errors import RequestInvalid

T = TypeVar("T")

#: The header for the idempotency key, unless an operation names another.
KEY_HEADER = "X-Idempotency-Key"
#: The transport sets these itself, or could not read a response to a request with them.
OF_THE_TRANSPORT = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
#: The engine sets these as well.
RESERVED = OF_THE_TRANSPORT | {"authorization", "content-type", "x-idempotency-key"}
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_VALUE = re.compile(r"[ -~]{1,1024}\Z")
#: Fields whose values are never credentials; any other field may have the key of a user's gateway.
_HARMLESS = frozenset({
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-encoding", "content-length",
    "content-type", "date", "host", "retry-after", "server", "traceparent", "tracestate", "transfer-encoding",
    "user-agent", "x-correlation-id", "x-idempotency-key", "x-request-id",
})  # fmt: skip
_SCHEME = re.compile(r"(?:basic|bearer) +", re.IGNORECASE)


class Headers(dict[str, str]):
    """A plain dict of header fields. Its repr only shows the values of known fields that hold no credentials.

    A pickle has all values, as that of any dict.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: value if name.lower() in _HARMLESS else "***" for name, value in self.items()})


def merge(fields: dict[str, str], more: Mapping[str, str]) -> None:
    """Add *more* to *fields*; a field of the same name, in upper or lower case, is replaced."""
    for name in more:
        if name not in fields:
            size, lower = len(name), name.lower()  # Most differ in length, which is quick to compare.
            for field in [field for field in fields if len(field) == size and field.lower() == lower]:
                del fields[field]
    fields.update(more)


def merged(fields: Mapping[str, str], more: Mapping[str, str]) -> Headers:
    """Return *fields* merged with *more*."""
    result = Headers(fields)
    merge(result, more)
    return result


def masked_values(headers: T) -> T:
    """Return a copy of *headers* with masked values, as one may be a credential; return a non-mapping unchanged."""
    if not isinstance(headers, Mapping):
        return headers
    return cast("T", {name: masked(value) for name, value in headers.items()})


def secret_values(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values in *headers* that may be credentials, which are masked where the platform repeats them.

    Values of fewer than 8 characters, such as `true`, and numbers are left out: masking them would make the JSON of a
    rejection unreadable.
    """
    values = [_SCHEME.sub("", value, 1) for name, value in headers.items() if name.lower() not in _HARMLESS]
    return tuple(masked(text) for text in values if len(text) >= LONG and not text.replace(".", "").isdigit())


@lru_cache(maxsize=8)  # Many responses arrive within a second.
def http_date(text: str | None) -> datetime | None:
    """Return the moment in a ``Date`` or ``Retry-After`` (by default in UTC); ``None`` if it has no date."""
    from email.utils import parsedate_to_datetime  # not cheap to import

    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return in_utc(moment)


@lru_cache(maxsize=256)  # Programs use few names, and an observer may add one to each request.
def check_name(name: str, path: str) -> None:
    """Check that *name* can be the name of a header.

    Raises:
        RequestInvalid: It cannot.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise RequestInvalid(path, f"{name!r} is not the name of a header")


def check_headers(
    headers: Mapping[str, str], path: str = "headers", *, reserved: AbstractSet[str] = RESERVED
) -> Headers:
    """Return a copy of *headers* if they can be sent. Later changes to *headers* have no effect.

    Args:
        headers: The header fields.
        path: The name of the headers in errors.
        reserved: The names that the caller may not set, in lower case.

    Raises:
        RequestInvalid: A name or a value has characters that a header cannot have, or the name is reserved. The error
            does not show the value.
    """
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise RequestInvalid(path, f"must be a mapping of names to values, not {type(headers).__name__}")
    fields = headers if type(headers) is dict else dict(headers)
    for name, value in fields.items():
        check_name(name, path)
        if name.lower() in reserved:
            raise RequestInvalid(f"{path}.{name}", "is set by the client itself")
        if not isinstance(value, str) or not _VALUE.match(value):
            raise RequestInvalid(f"{path}.{name}", "must be 1 to 1024 printable ASCII characters")
    # As in `check_key`: send the checked text, and not the format of a subclass of str. Copy only after all checks: a
    # traceback shows local variables, and only the original values are masked.
    return Headers({str.__str__(name): str.__str__(value) for name, value in fields.items()})
