"""Repairs of single values: an almost correct text, number, moment or enum is read as one, and reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from math import inf, isfinite
from typing import Any, TypeAlias, cast

from msgspec import Raw, ValidationError, inspect

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import Place
from paymentsdk._codec.timestamps import read_day, read_loosely, read_timestamp

#: Receives an anomaly, as `Reports.add` does.
Report: TypeAlias = Callable[..., None]
#: Gets the bytes of a value, its place and a report function; returns the value, or `None` if it is null or dropped.
Repair: TypeAlias = Callable[[Raw, Place, Report], object]
#: Reads a value; returns `None` or raises if it cannot.
Read: TypeAlias = Callable[[Any], object]

_DAY = len("2026-01-31")
#: Characters of the longest enum value that is cached.
_LONGEST_CACHED = 64
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}\Z")
_UNREADABLE = (ValueError, KeyError, ArithmeticError)
#: Types whose empty value stands for unset.
_EMPTY_OF = frozenset({str, list, dict})


def read_untyped(raw: bytes | Raw) -> object:
    """Read JSON of any shape. A number with more digits than Python reads becomes infinity, and is dropped later."""
    try:
        return amounts.read_untyped(raw)
    except ValidationError:
        return inf


def report_mismatch(
    place: Place, value: object, report: Report, reason: str, unset: str = "stands for unset; read as None"
) -> None:
    """Report a value that cannot be read. An empty value that stands for unset is not reported as lost."""
    if not value and type(value) in _EMPTY_OF:
        report(place, value, unset)
    else:
        report(place, value, reason, dropped=True)


def _leaf(cls: type, nearly: Mapping[type, Read], exact: Mapping[type, Read] | None = None) -> Repair:
    """Repair a single value.

    *exact* has the readers for values that follow the contract, by their JSON type. By default *cls* is that type.
    *nearly* has the readers for values that almost follow it.
    """
    plain = cls if exact is None else None
    repaired_as, dropped_as = (f"expected {cls.__name__}, got {{}}; {outcome}" for outcome in ("repaired", "dropped"))
    reads: dict[type, list[tuple[Read, str | None]]] = {kind: [(read, None)] for kind, read in (exact or {}).items()}
    for kind, read in nearly.items():
        reads.setdefault(kind, []).append((read, repaired_as))

    def read_value(raw: Raw, place: Place, report: Report) -> object:
        value = read_untyped(raw)
        kind = type(value)
        if kind is plain or value is None:
            return value
        for read, reason in reads.get(kind, ()) if value or kind is not str else ():
            try:
                result = read(value)
            except _UNREADABLE:
                continue
            if result is not None:
                if reason is not None:
                    report(place, value, reason)
                return result
        report_mismatch(place, value, report, dropped_as)
        return None

    return read_value


def _moment(text: str) -> datetime | None:
    # A malformed text usually has no offset; this check avoids an exception.
    return read_timestamp(text) if text[-1] in "Zz" or text[-6:-5] in "+-" or text[-5:-4] in "+-" else None


def _float(value: float | Decimal | str) -> float | None:
    return number if isfinite(number := float(value)) else None


def _int(text: str) -> int | None:
    return int(text) if _INTEGER.match(text) else None


def _integer(number: Decimal) -> int | None:
    return int(number) if number == number.to_integral_value() else None


def _decimal(value: object) -> Decimal | None:
    """Read an amount of a response as the decoder does: a number, or any text that `Decimal` accepts."""
    amount = Decimal(cast(str, value))
    return amount if amounts.is_sound(amount) else None


def _first_moment(text: str) -> datetime | None:
    """Read a day as its first moment in UTC, or a moment unchanged."""
    return _moment(text) if len(text) > _DAY else read_timestamp(f"{text}T00:00:00Z")


_NEARLY_MOMENTS: dict[type, Read] = {str: read_loosely}
_NEARLY_BOOLEANS: dict[type, Read] = {
    str: {"true": True, "false": False}.__getitem__,
    int: {0: False, 1: True}.__getitem__,
}


def _enum(info: inspect.EnumType) -> Repair:
    # `OpenEnum` creates a member for each unknown value.
    cached = lru_cache(maxsize=256)(info.cls)

    def named(value: object) -> object:
        text = str(value)
        return cached(text) if len(text) <= _LONGEST_CACHED else info.cls(text)

    return _leaf(info.cls, {int: named, Decimal: named}, {str: named})


def _text(info: inspect.StrType) -> Repair:
    nearly: dict[type, Read] = {int: str, Decimal: str, bool: lambda value: str(value).lower()}
    return _leaf(str, nearly, {str: str} if info.min_length else None)


def day_repair(info: inspect.Type) -> Repair:
    """Compile the repair of a day, which may arrive as a moment."""
    is_date = isinstance(info, inspect.CustomType)
    return _leaf(date if is_date else datetime, _NEARLY_MOMENTS, {str: read_day if is_date else _first_moment})


#: Compiles the repair for each type of a single value.
VALUE_REPAIRS: dict[type, Callable[[Any], Repair]] = {
    inspect.EnumType: _enum,
    inspect.StrType: _text,
    inspect.IntType: lambda _: _leaf(int, {str: _int, Decimal: _integer}),
    inspect.BoolType: lambda _: _leaf(bool, _NEARLY_BOOLEANS),
    inspect.FloatType: lambda _: _leaf(float, {str: _float}, dict.fromkeys((int, Decimal, float), _float)),
    inspect.DecimalType: lambda _: _leaf(Decimal, {}, dict.fromkeys((int, Decimal, str), _decimal)),
    inspect.DateTimeType: lambda _: _leaf(datetime, _NEARLY_MOMENTS, {str: _moment}),
}
