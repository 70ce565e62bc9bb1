"""Timestamps and days: the one reader of them in requests and responses, and the one writer."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from paymentsdk._validate import plain_moment
from paymentsdk.errors import RequestInvalid

#: A date alone, as the contract writes it.
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_Timestamp: TypeAlias = Annotated[datetime, Meta(tz=True)]
_write = msgspec.json.Encoder().encode
# Bound to the class of the standard library: freezegun puts another one in its place, in this module, too.
_combine, _from_text = datetime.combine, datetime.fromisoformat
# Far cheaper than `msgspec.convert`, which looks at the type each time.
_read = msgspec.json.Decoder(_Timestamp).decode


def read_timestamp(value: object) -> datetime:
    """Read a timestamp with its offset.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, str):
        return _read(_write(str.__str__(value)))  # Of a subclass, nothing is written.
    raise ValueError(value)


def read_day(value: object) -> date:
    """Read a day: a date alone, or a timestamp with its offset.

    Raises:
        ValueError: It is neither.
    """
    return date.fromisoformat(value) if isinstance(value, str) and DATE.match(value) else read_timestamp(value)


def plain(moment: object) -> datetime:
    """Return *moment* as a `datetime` of the standard library: msgspec encodes no subclass.

    Raises:
        TypeError: It is no moment.
    """
    if (standard := plain_moment(moment)) is None:
        raise TypeError(f"there is no form for {type(moment).__name__}")
    return standard


def in_utc(moment: datetime) -> datetime:
    """Return *moment* with its offset, or as UTC if it has none."""
    # `replace` takes four times as long.
    return moment if moment.tzinfo else _combine(moment, moment.time(), UTC)


def read_loosely(text: str) -> datetime:
    """Read any form of ISO 8601, such as a date alone or a timestamp without an offset; as UTC if nothing is said.

    Raises:
        ValueError: It is none.
    """
    return in_utc(_from_text(text.strip()))


def timestamp(value: object) -> str:
    """Return a moment as the wire has it: milliseconds and an offset (`2026-01-31T09:30:00.000-03:00`).

    Raises:
        RequestInvalid: *value* is not a datetime, or has no offset, so that nobody could say which moment it is.
    """
    moment = plain_moment(value)
    if moment is None:
        raise RequestInvalid("", f"expected a datetime, got {type(value).__name__}")
    offset = moment.utcoffset()
    if offset is None:
        raise RequestInvalid("", "a datetime needs a time zone")
    if offset % timedelta(minutes=1):
        # No wire format has seconds in an offset, as the local times of long ago have them.
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            raise RequestInvalid("", "the moment is out of range") from None
    text = moment.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z") if moment.tzinfo is UTC else text
