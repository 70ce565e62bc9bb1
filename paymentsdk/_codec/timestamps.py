"""Read and write the timestamps and days of requests and responses."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from paymentsdk._validate import plain_moment
from paymentsdk.errors import RequestInvalid

#: A date without a time, as the contract writes it.
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_Timestamp: TypeAlias = Annotated[datetime, Meta(tz=True)]
_write = msgspec.json.Encoder().encode
# Bound to the class of the standard library: freezegun replaces the class, also in this module.
_combine, _from_text = datetime.combine, datetime.fromisoformat
# Much faster than `msgspec.convert`, which inspects the type each time.
_read = msgspec.json.Decoder(_Timestamp).decode


def read_timestamp(value: object) -> datetime:
    """Read a timestamp with an offset.

    Raises:
        ValueError: The value is not such a timestamp.
    """
    if isinstance(value, str):
        return _read(_write(str.__str__(value)))  # msgspec does not write a subclass of str.
    raise ValueError(value)


def read_day(value: object) -> date:
    """Read a day: a date without a time, or a timestamp with an offset.

    Raises:
        ValueError: The value is neither.
    """
    return date.fromisoformat(value) if isinstance(value, str) and DATE.match(value) else read_timestamp(value)


def plain(moment: object) -> datetime:
    """Return *moment* as a `datetime` of the standard library: msgspec does not encode subclasses.

    Raises:
        TypeError: The value is not a moment.
    """
    if (standard := plain_moment(moment)) is None:
        raise TypeError(f"no JSON form for {type(moment).__name__}")
    return standard


def in_utc(moment: datetime) -> datetime:
    """Return *moment* unchanged if it has an offset, otherwise as UTC."""
    # `replace` is four times slower.
    return moment if moment.tzinfo else _combine(moment, moment.time(), UTC)


def read_loosely(text: str) -> datetime:
    """Read any form of ISO 8601, such as a date or a timestamp without an offset; the default offset is UTC.

    Raises:
        ValueError: The text is not ISO 8601.
    """
    return in_utc(_from_text(text.strip()))


def timestamp(value: object) -> str:
    """Return a moment in the wire's form: milliseconds and an offset (`2026-01-31T09:30:00.000-03:00`).

    Raises:
        RequestInvalid: *value* is not a datetime, or it has no offset and so names no certain moment.
    """
    moment = plain_moment(value)
    if moment is None:
        raise RequestInvalid("", f"expected a datetime, got {type(value).__name__}")
    offset = moment.utcoffset()
    if offset is None:
        raise RequestInvalid("", "a datetime needs a time zone")
    if offset % timedelta(minutes=1):
        # Wire formats have no seconds in an offset, unlike historic local times.
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            raise RequestInvalid("", "the moment is out of range") from None
    text = moment.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z") if moment.tzinfo is UTC else text
