"""Repairs a response that does not follow the contract, walked member by member along its type.

A member that does not fit is repaired where its meaning is plain (`"3"` for a number, a number for a string, a
timestamp without an offset) and dropped where it is not. Each is reported as an `Anomaly`, and nothing else is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import cast

import msgspec
from msgspec import Struct, ValidationError, inspect, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, Anomaly, DecodingError
from paymentsdk._codec.relaxed import Member, RepairRow
from paymentsdk._codec.timestamps import read_day, read_epoch, read_loosely, read_timestamp
from paymentsdk._codec.type_walk import Marks, alternatives, walk
from paymentsdk._secrets import MASK

_DIGITS = f"[0-9]{{1,{amounts.MOST_PLACES}}}"
_PLAIN_AMOUNT = re.compile(rf"[-+]?{_DIGITS}(\.{_DIGITS})?([eE][-+]?[0-9]{{1,2}})?\Z")
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}\Z")
_UNSET: tuple[object, ...] = ("", [], {})
_NO_OBJECT: tuple[object, ...] = ("", [])
#: Types of values that are no strings.
_NO_STRINGS = (
    *(inspect.StructType, inspect.VarTupleType, inspect.ListType, inspect.NoneType),
    *(inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.DecimalType),
)
_NEARLY_TIMESTAMPS: dict[type, Callable[..., object]] = {str: read_loosely, int: read_epoch}
_WRITE = msgspec.json.Encoder(decimal_format="number").encode

#: Takes a value as read from JSON, never null, its place and the list to report to; returns it typed, or `None`.
Repair = Callable[[object, str, list[Anomaly]], object]


def _number(text: str) -> Decimal | float:
    # A hostile exponent stays a float: as a Decimal it would be a memory bomb for the first who rounds it.
    return Decimal(text) if _PLAIN_AMOUNT.match(text) else float(text)


_READ = msgspec.json.Decoder(float_hook=_number).decode


def _untyped(body: bytes) -> object:
    try:
        return _READ(body)
    except MALFORMED as error:
        raise DecodingError(f"the body is not JSON: {error}") from None


def compile_body(kind: type) -> Callable[[bytes], tuple[object, list[Anomaly]]]:
    """Compile what reads and repairs a body: it returns the value, and what was wrong.

    It raises `DecodingError` where nothing in the body can be trusted.
    """
    repair = repair_for(inspect.type_info(kind))

    def read(body: bytes) -> tuple[object, list[Anomaly]]:
        raw = _untyped(body)
        if not isinstance(raw, dict):
            raise DecodingError(f"the body holds {_kind(raw)}, not an object")
        anomalies: list[Anomaly] = []
        return repair(raw, "$", anomalies), anomalies

    return read


def compile_row(kind: type[Struct]) -> tuple[dict[str, Member], RepairRow]:
    """Compile the repair of each member of a row, by its name in JSON, and that of a whole row."""
    info = cast("inspect.StructType", inspect.type_info(kind))
    repair = repair_for(info)

    def of_member(repair: Repair) -> RepairRow:
        return lambda raw, path, anomalies: repair(_untyped(raw), path, anomalies)

    members = {
        f.encode_name: Member(f.name, f.required, empty, _may_be_null(f.type), of_member(one))
        for f, one, empty in _members(kind, info.fields)
    }
    return members, lambda raw, path, anomalies: _entry(repair, _untyped(raw), path, anomalies, of_structs=True)


def rows_of(kind: type) -> tuple[str, str, type[Struct]] | None:
    """Return the member of a response that lists Structs, by its names here and in JSON; `None` if not one does."""
    found: list[tuple[str, str, type[Struct]]] = [
        (f.name, f.encode_name, one.type.cls)
        for f in getattr(inspect.type_info(kind), "fields", ())
        for listed in alternatives(f.type)
        if isinstance(listed.type, inspect.ListType | inspect.VarTupleType)
        for one in alternatives(listed.type.item_type)
        if isinstance(one.type, inspect.StructType)
    ]
    return found[0] if len(found) == 1 else None


def days_without_time(kind: type) -> re.Pattern[bytes] | None:
    """Compile what finds the days of a response that have no time; `None` if other data may have the same names."""
    try:
        strings = set(_strings(inspect.type_info(kind)))
    except TypeError:
        return None
    names = "|".join(re.escape(name) for name, is_day in strings if is_day and (name, False) not in strings)
    return re.compile(rf'("(?:{names})"\s*:\s*"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})"'.encode()) if names else None


def _strings(info: inspect.Type) -> Iterator[tuple[str, bool]]:
    """Yield the name of each string in a type, and whether it is a day.

    Raises:
        TypeError: It holds free-form data, or what only an operation of somebody else's has.
    """
    for found in walk(info):
        if found.marks.get("day"):
            yield found.name, True
        elif isinstance(found.type, inspect.StrType | inspect.EnumType | inspect.DateTimeType):
            yield found.name, False
        elif not isinstance(found.type, _NO_STRINGS):
            raise TypeError(f"nobody knows which days {found.type} holds")


def repair_for(info: inspect.Type) -> Repair:
    """Compile the repair for a type."""
    repairs = [
        _repair_for(one.type, one.marks) for one in alternatives(info) if not isinstance(one.type, inspect.NoneType)
    ]
    if not repairs:
        raise TypeError("there is nothing but null")
    return _union(repairs) if len(repairs) > 1 else repairs[0]


def _repair_for(info: inspect.Type, marks: Marks) -> Repair:
    """Compile the repair for a type that is no union."""
    match info:
        case inspect.CustomType() if marks.get("day"):
            return _leaf(date, _NEARLY_TIMESTAMPS, exact=read_day)
        case _ if marks.get("day"):
            return _leaf(datetime, _NEARLY_TIMESTAMPS, exact=_day)
        case inspect.StructType(cls=cls, fields=fields):
            return _struct(cls, fields)
        case inspect.VarTupleType(item_type=item):
            return _list(repair_for(item), tuple, of_structs=isinstance(item, inspect.StructType))
        case inspect.ListType(item_type=item):
            return _list(repair_for(item), list, of_structs=isinstance(item, inspect.StructType))
        case inspect.DictType(
            value_type=inspect.AnyType() | inspect.CustomType() | inspect.Metadata(type=inspect.CustomType())
        ):
            return _leaf(dict, {}, exact=_free_object)
        case _:
            return _repair_for_value(info)


def _repair_for_value(info: inspect.Type) -> Repair:
    """Compile the repair for a type that holds no others."""
    match info:
        case inspect.EnumType(cls=cls):
            return _leaf(cls, {int: lambda number: cls(str(number)), Decimal: lambda number: cls(str(number))})
        case inspect.StrType(min_length=least):
            exact = _text if least else None
            return _leaf(str, {int: str, Decimal: str, bool: lambda value: str(value).lower()}, exact)
        case inspect.IntType():
            return _leaf(int, {str: _int, Decimal: _whole})
        case inspect.BoolType():
            return _leaf(bool, {str: {"true": True, "false": False}.__getitem__, int: {0: False, 1: True}.__getitem__})
        case inspect.FloatType():
            return _leaf(float, {str: _float}, exact=_float_of_number)
        case inspect.DecimalType():
            return _leaf(Decimal, {}, exact=_decimal)
        case inspect.DateTimeType():
            return _leaf(datetime, _NEARLY_TIMESTAMPS, exact=read_timestamp)
        case _:
            raise TypeError(f"nobody knows how to repair {info}")


def _leaf(
    wanted: type,
    repairs: dict[type, Callable[..., object]],
    exact: Callable[[object], object] | None = None,
) -> Repair:
    """Repair a single value: *exact*, or the type, reads what follows the contract, and *repairs* what nearly does."""
    is_plain = exact is None and wanted in (str, int, bool)
    # What only nearly follows the contract needs no exception to be found.
    nearly = frozenset() if exact else frozenset(repairs)

    def run(value: object, path: str, anomalies: list[Anomaly]) -> object:
        try:
            if not is_plain and type(value) not in nearly:
                return exact(value) if exact else msgspec.convert(value, wanted)
            if type(value) is wanted:
                return value
        except (ValidationError, ValueError, TypeError):
            pass
        except RecursionError:
            anomalies.append(Anomaly(path, None, "is nested too deeply; dropped", dropped=True))
            return None
        if (repair := repairs.get(type(value))) is not None:
            with suppress(ValueError, KeyError, ArithmeticError, OSError):  # OSError: beyond all calendars.
                repaired = repair(value)
                anomalies.append(Anomaly(path, value, f"expected {wanted.__name__}, got {_kind(value)}; mended"))
                return repaired
        anomalies.append(_mismatched(path, value, wanted.__name__ if isinstance(wanted, type) else str(wanted)))
        return None

    return run


def _masked(inner: Repair) -> Repair:
    """Repair a credential, and report it without showing it."""

    def run(value: object, path: str, anomalies: list[Anomaly]) -> object:
        found: list[Anomaly] = []
        repaired = inner(value, path, found)
        anomalies.extend(structs.replace(anomaly, value=MASK) for anomaly in found)
        return repaired

    return run


def _union(repairs: list[Repair]) -> Repair:
    """Repair a value of several types: the first that reads it without complaint, or else the first that reads it."""

    def run(value: object, path: str, anomalies: list[Anomaly]) -> object:
        tries: list[tuple[object, list[Anomaly]]] = []
        for repair in repairs:
            found: list[Anomaly] = []
            tries.append((repair(value, path, found), found))
            if not found:
                return tries[-1][0]
        best, found = next((one for one in tries if one[0] is not None), tries[0])
        anomalies.extend(found)
        return best

    return run


def _members(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> list[tuple[inspect.Field, Repair, str | None]]:
    """Return the members of *cls*, each with its repair, and with what stands for it where it is missing."""
    secrets: frozenset[str] = getattr(cls, "__secrets__", frozenset())
    kinds = {f.name: f.type for f in structs.fields(cls)}
    repairs = [(f, _member(f.type, kinds[f.name])) for f in fields]
    return [(f, _masked(repair) if f.name in secrets else repair, _empty(f.type)) for f, repair in repairs]


def _struct(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> Repair:
    compiled = cache(lambda: _members(cls, fields))  # At the first use, so that a type may hold itself.

    def run(value: object, path: str, anomalies: list[Anomaly]) -> object:
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            anomalies.append(Anomaly(path, value, "a list of one stands for its object"))
            value = value[0]
        if not isinstance(value, dict):
            anomalies.append(_mismatched(path, value, "an object"))
            return None
        members = {}
        for f, repair, empty in compiled():
            raw = value.get(f.encode_name)
            repaired = None if raw is None else repair(raw, f"{path}.{f.encode_name}", anomalies)
            if repaired is not None:
                members[f.name] = repaired
            elif f.required and raw is None and f.encode_name in value and _may_be_null(f.type):
                members[f.name] = None
            elif f.required and path == "$":
                raise DecodingError(f"the body has no usable {f.encode_name!r}")
            elif f.required:
                if raw is None:
                    read_as = "None" if empty is None else "empty"
                    anomalies.append(Anomaly(f"{path}.{f.encode_name}", None, f"is missing; read as {read_as}"))
                members[f.name] = empty  # A row without its id is still a row: it must not vanish from a walk.
        return cls(**members)

    return run


def _may_be_null(info: inspect.Type) -> bool:
    """Whether null is a value of its own here, as of a member of somebody else's that is a string or None."""
    return any(
        isinstance(one.type, inspect.AnyType | inspect.NoneType)
        or (isinstance(one.type, inspect.CustomType) and one.type.cls is object)
        for one in alternatives(info)
    )


def _empty(info: inspect.Type) -> str | None:
    """Return what stands for a member that a row must have and lacks: an empty string, if a string belongs there."""
    return "" if any(isinstance(one.type, inspect.StrType) for one in alternatives(info)) else None


def _member(info: inspect.Type, kind: object) -> Repair:
    """Compile the repair for a member; one of a type that only an operation of somebody else's has is taken whole."""
    try:
        return repair_for(info)
    except TypeError:
        read = msgspec.json.Decoder(kind).decode
        return _leaf(cast(type, kind), {}, exact=lambda value: read(_WRITE(value)))


def _list(item: Repair, make: type[list[object] | tuple[object, ...]], *, of_structs: bool) -> Repair:
    def run(value: object, path: str, anomalies: list[Anomaly]) -> object:
        if isinstance(value, dict) and value and of_structs:
            anomalies.append(Anomaly(path, value, "an object stands for a list of one"))
            value = [value]
        if not isinstance(value, list):
            anomalies.append(_mismatched(path, value, "a list", unset="stands for an empty list"))
            return None
        rows = []
        for i, raw in enumerate(value):
            row = _entry(item, raw, f"{path}[{i}]", anomalies, of_structs=of_structs)
            if row is not None:
                rows.append(row)
        return make(rows)

    return run


def _entry(item: Repair, raw: object, path: str, anomalies: list[Anomaly], *, of_structs: bool) -> object:
    """Repair an entry of a list; `None` if nothing is left of it."""
    if raw is None or (of_structs and raw in _NO_OBJECT):
        anomalies.append(Anomaly(path, raw, "is no entry; dropped", dropped=True))
        return None
    return item(raw, path, anomalies)


def _mismatched(path: str, value: object, wanted: str, unset: str = "stands for unset; read as None") -> Anomaly:
    """Say what became of a value that nothing can be made of: nothing is lost with one that stands for unset."""
    if value in _UNSET:
        return Anomaly(path, value, unset)
    return Anomaly(path, value, f"expected {wanted}, got {_kind(value)}; dropped", dropped=True)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _float(text: str) -> float:
    return float(_decimal(text))


def _float_of_number(value: object) -> float:
    if type(value) not in (int, Decimal):
        raise TypeError(value)
    return float(_decimal(value))


def _int(text: str) -> int:
    if not _INTEGER.match(text):
        raise ValueError(text)
    return int(text)


def _whole(number: Decimal) -> int:
    if number != number.to_integral_value():
        raise ValueError(number)
    return int(number)


def _decimal(value: object) -> Decimal:
    """Read an amount of an answer: any plain number, as a number or as text."""
    if type(value) in (int, Decimal) or (isinstance(value, str) and _PLAIN_AMOUNT.match(value)):
        amount = Decimal(cast(str, value))
        if amounts.is_sound(amount):
            return amount
    raise ValueError("not an amount")


def _free_object(value: object) -> object:
    if not isinstance(value, dict):
        raise TypeError(value)
    return _free_form(value)


def _free_form(value: object) -> object:
    """Give free-form data the numbers that the exact way gives it."""
    match value:
        case dict():
            return {key: _free_form(member) for key, member in value.items()}
        case list():
            return [_free_form(member) for member in value]
        case Decimal():
            return float(value)
        case _:
            return value


def _text(value: object) -> str:
    text = msgspec.convert(value, str)
    if not text:
        raise ValueError("empty")
    return text


def _day(value: object) -> datetime:
    day = read_day(value)
    return day if isinstance(day, datetime) else datetime(day.year, day.month, day.day, tzinfo=UTC)
