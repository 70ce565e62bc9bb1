"""Header fields: which may be sent, and how they are put together."""

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

#: The header of an idempotency key, unless an operation names another.
KEY_HEADER = "X-Idempotency-Key"
#: What the transport writes itself, or what a transport of this package could not read the response to.
OF_THE_TRANSPORT = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
#: What the engine writes as well.
RESERVED = OF_THE_TRANSPORT | {"authorization", "content-type", "x-idempotency-key"}
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_VALUE = re.compile(r"[ -~]{1,1024}\Z")
#: Fields whose values are no credentials; any other may be the key of somebody's gateway.
_HARMLESS = frozenset({
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-encoding", "content-length",
    "content-type", "date", "host", "retry-after", "server", "traceparent", "tracestate", "transfer-encoding",
    "user-agent", "x-correlation-id", "x-idempotency-key", "x-request-id",
})  # fmt: skip
_SCHEME = re.compile(r"(?:basic|bearer) +", re.IGNORECASE)


class Headers(dict[str, str]):
    """A plain dict of header fields. Printed, it shows the values of well-known fields that hold no credential.

    Pickled, it has all values, as any dict.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: value if name.lower() in _HARMLESS else "***" for name, value in self.items()})


def merge(fields: dict[str, str], more: Mapping[str, str]) -> None:
    """Put *more* into *fields*, in place of those of the same name, in whatever case it is written."""
    for name in more:
        if name not in fields:
            size, lower = len(name), name.lower()  # Most differ in their length: an observer may add to each request.
            for field in [field for field in fields if len(field) == size and field.lower() == lower]:
                del fields[field]
    fields.update(more)


def merged(fields: Mapping[str, str], more: Mapping[str, str]) -> Headers:
    """Return *fields* with *more* merged into them."""
    result = Headers(fields)
    merge(result, more)
    return result


def masked_values(headers: T) -> T:
    """Return a copy of *headers* whose values no traceback shows: one may be a credential. No mapping stays itself."""
    if not isinstance(headers, Mapping):
        return headers
    return cast("T", {name: masked(value) for name, value in headers.items()})


def secret_values(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what in *headers* may be a credential, to be masked where the platform repeats it.

    Not what is shorter than 8 characters, such as `true`, nor a number: without it, the JSON of a rejection could not
    be read.
    """
    values = [_SCHEME.sub("", value, 1) for name, value in headers.items() if name.lower() not in _HARMLESS]
    return tuple(masked(text) for text in values if len(text) >= LONG and not text.replace(".", "").isdigit())


@lru_cache(maxsize=8)  # Many responses come within a second.
def http_date(text: str | None) -> datetime | None:
    """Return the moment in a ``Date`` or ``Retry-After``; ``None`` if it is none. Without a zone, it is in UTC."""
    from email.utils import parsedate_to_datetime  # not cheap to import

    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return in_utc(moment)


@lru_cache(maxsize=256)  # Programs have few, and an observer may add one to each request.
def check_name(name: str, path: str) -> None:
    """Reject what is not the name of a header.

    Raises:
        RequestInvalid: It is none.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise RequestInvalid(path, f"{name!r} is not the name of a header")


def check_headers(
    headers: Mapping[str, str], path: str = "headers", *, reserved: AbstractSet[str] = RESERVED
) -> Headers:
    """Return a copy of *headers* if they can be sent: what the caller does to them later is not looked at.

    *path* is what the caller knows them by, *reserved* the names, in lower case, that are not the caller's to set.

    Raises:
        RequestInvalid: A name or a value has characters that do not belong in a header, or the name is reserved. The
            error shows no value.
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
    # As in `check_key`: the text that was checked goes out, and not what a subclass of str formats itself as. Only once
    # all are checked: a traceback shows what is local, and only the values as they were given are masked.
    return Headers({str.__str__(name): str.__str__(value) for name, value in fields.items()})
