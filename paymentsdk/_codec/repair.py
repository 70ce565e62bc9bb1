"""Repairs a response that does not follow the contract, walked member by member along its type.

A member that does not fit is repaired where its meaning is plain (`"3"` for a number, a number for a string, a
timestamp without an offset) and dropped where it is not. Each is reported as an `Anomaly`, and nothing else is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Protocol, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, ValidationError, inspect, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, DecodingError, Place, Reports, kind_of
from paymentsdk._codec.relaxed import Member, RowType
from paymentsdk._codec.timestamps import in_utc, read_day, read_epoch, read_iso, read_loosely, read_timestamp
from paymentsdk._codec.type_walk import Marks, alternatives, walk
from paymentsdk._secrets import MASK

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}\Z")
_NO_OBJECT: tuple[object, ...] = ("", [])
#: Types whose values are taken as JSON has them.
_PLAIN = ((inspect.StrType(), str), (inspect.IntType(), int), (inspect.BoolType(), bool))
#: Types of values that are no strings.
_NO_STRINGS = (
    *(inspect.StructType, inspect.VarTupleType, inspect.ListType, inspect.NoneType),
    *(inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.DecimalType),
)
_NEARLY_STRINGS: dict[type, Callable[..., object]] = {int: str, Decimal: str, bool: lambda value: str(value).lower()}
_NEARLY_TIMESTAMPS: dict[type, Callable[..., object]] = {str: read_loosely, int: read_epoch}
#: Longer values of an enum are not remembered.
_LONGEST_KNOWN = 64
_WRITE = msgspec.json.Encoder(decimal_format="number").encode


class Report(Protocol):
    """Takes an anomaly, as `Reports.add` does."""

    def __call__(self, place: Place, value: object, reason: str, *, dropped: bool = False) -> None: ...


#: Takes a value as read from JSON, never null, its place and what to report to; returns it typed, or `None`.
Repair = Callable[[object, Place, Report], object]


_READ = msgspec.json.Decoder(float_hook=amounts.read_number).decode


def _untyped(body: bytes) -> object:
    try:
        return _READ(body)
    except MALFORMED as error:
        raise DecodingError(f"the body is not JSON: {error}") from None


def compile_body(kind: type) -> Callable[[bytes, Reports], object]:
    """Compile what reads and repairs a body, and reports what was wrong.

    It raises `DecodingError` where nothing in the body can be trusted.
    """
    repair = repair_for(inspect.type_info(kind))

    def read(body: bytes, reports: Reports) -> object:
        raw = _untyped(body)
        if not isinstance(raw, dict):
            raise DecodingError(f"the body holds {kind_of(raw)}, not an object")
        return repair(raw, "$", reports.add)

    return read


def compile_row(kind: type[Struct]) -> RowType:
    """Compile the repair of each member of a row, and that of a whole row."""
    info = cast("inspect.StructType", inspect.type_info(kind))
    repair = repair_for(info)
    members = {f.encode_name: Member(f.name, restore, _is_free(f.type)) for f, restore in _members(kind, info.fields)}
    return RowType(
        kind, members, lambda raw, place, report: _entry(repair, _untyped(raw), place, report, of_structs=True)
    )


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
            return _leaf(date, _NEARLY_TIMESTAMPS, read_day, (str,))
        case _ if marks.get("day"):
            return _leaf(datetime, _NEARLY_TIMESTAMPS, _day, (str,))
        case inspect.StructType(cls=cls, fields=fields):
            return _struct(cls, fields)
        case inspect.VarTupleType(item_type=item):
            return _list(repair_for(item), tuple, of_structs=isinstance(item, inspect.StructType))
        case inspect.ListType(item_type=item):
            return _list(repair_for(item), list, of_structs=isinstance(item, inspect.StructType))
        case inspect.DictType(
            value_type=inspect.AnyType() | inspect.CustomType() | inspect.Metadata(type=inspect.CustomType())
        ):
            return _leaf(dict, {}, _free_form, (dict,))
        case _:
            return _repair_for_value(info)


def _repair_for_value(info: inspect.Type) -> Repair:
    """Compile the repair for a type that holds no others."""
    match info:
        case inspect.EnumType(cls=cls):
            return _enum(cls)
        case inspect.StrType(min_length=least):
            return _leaf(str, _NEARLY_STRINGS, _text, (str,)) if least else _leaf(str, _NEARLY_STRINGS)
        case inspect.IntType():
            return _leaf(int, {str: _int, Decimal: _whole})
        case inspect.BoolType():
            return _leaf(bool, {str: {"true": True, "false": False}.__getitem__, int: {0: False, 1: True}.__getitem__})
        case inspect.FloatType():
            return _leaf(float, {str: _float}, _float, (int, Decimal))
        case inspect.DecimalType():
            return _leaf(Decimal, {}, _decimal, (int, Decimal, str))
        case inspect.DateTimeType():
            return _timestamp()
        case _:
            raise TypeError(f"nobody knows how to repair {info}")


def _enum(cls: type) -> Repair:
    # Far cheaper than `msgspec.convert`, which looks at the type each time.
    read: Callable[[bytes], object] = msgspec.json.Decoder(cls).decode
    known = lru_cache(maxsize=256)(lambda text: read(_WRITE(text)))

    def named(value: object) -> object:
        text = str(value)
        return known(text) if len(text) <= _LONGEST_KNOWN else read(_WRITE(text))

    return _leaf(cls, {int: named, Decimal: named}, named, (str,))


def _timestamp() -> Repair:
    other = _leaf(datetime, {int: read_epoch})

    def run(value: object, place: Place, report: Report) -> object:
        # What is malformed has no offset, as a rule, or is no date at all: neither costs an exception.
        found = read_iso(value) if isinstance(value, str) else None
        if isinstance(value, str) and value[:1].isdigit() and (found is None or found.tzinfo):
            try:
                return read_timestamp(value)
            except ValueError:
                pass
        if found is None:
            return other(value, place, report)
        report(place, value, "expected datetime, got a string; repaired")
        return in_utc(found)

    return run


def _leaf(
    wanted: type,
    repairs: dict[type, Callable[..., object]],
    exact: Callable[..., object] | None = None,
    takes: tuple[type, ...] | None = None,
) -> Repair:
    """Repair a single value.

    *exact* reads what follows the contract, of the types that it *takes*, or of any; without it the type is that of
    the value. *repairs* read what nearly follows it.
    """
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    plain = wanted if exact is None else None
    repaired_as, dropped_as = (f"expected {name}, got {{}}; {what}" for what in ("repaired", "dropped"))

    def run(value: object, place: Place, report: Report) -> object:
        kind = type(value)
        if kind is plain:
            return value
        if exact is not None and (takes is None or kind in takes):
            try:
                return exact(value)
            except (ValidationError, ValueError, TypeError):
                pass
            except RecursionError:
                report(place, None, "is nested too deeply; dropped", dropped=True)
                return None
        if (repair := repairs.get(kind)) is not None:
            try:
                repaired = repair(value)
            except (ValidationError, ValueError, KeyError, ArithmeticError, OSError):  # OSError: beyond all calendars.
                pass
            else:
                report(place, value, repaired_as)
                return repaired
        _report_mismatch(place, value, report, dropped_as)
        return None

    return run


def _masked(inner: Repair) -> Repair:
    """Repair a credential, and report it without showing it."""

    def run(value: object, place: Place, report: Report) -> object:
        def masked(place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
            report(place, MASK, reason.replace("{}", kind_of(value)), dropped=dropped)

        return inner(value, place, masked)

    return run


def _union(repairs: list[Repair]) -> Repair:
    """Repair a value of several types: the first that reads it without complaint, or else the first that reads it."""

    def run(value: object, place: Place, report: Report) -> object:
        tries: list[tuple[object, list[Callable[[Report], None]]]] = []
        for repair in repairs:
            found: list[Callable[[Report], None]] = []
            tries.append((repair(value, place, _kept_in(found)), found))
            if not found:
                return tries[-1][0]
        best, found = next((one for one in tries if one[0] is not None), tries[0])
        for hand_on in found:
            hand_on(report)
        return best

    return run


def _kept_in(found: list[Callable[[Report], None]]) -> Report:
    """Return what keeps reports in *found*, until it is known which try counts."""

    def keep(place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
        found.append(lambda report: report(place, value, reason, dropped=dropped))

    return keep


def _members(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> list[tuple[inspect.Field, Repair]]:
    """Return the members of *cls*, each with what reads it: a value, null, or `UNSET` for none."""
    secrets: frozenset[str] = getattr(cls, "__secrets__", frozenset())
    kinds = {f.name: f.type for f in structs.fields(cls)}
    repairs = [(f, _member(f.type, kinds[f.name])) for f in fields]
    return [(f, _restored(f, _masked(repair) if f.name in secrets else repair)) for f, repair in repairs]


def _restored(f: inspect.Field, repair: Repair) -> Repair:
    """Compile what reads a member of the Struct at a place: its value, or what it has without one."""
    on_wire, required = f.encode_name, f.required
    empty, may_be_null = _empty(f.type), _may_be_null(f.type)
    missing = f"is missing; read as {'None' if empty is None else 'empty'}"
    make = f.default_factory
    plain: set[type[object]] = {kind for one in alternatives(f.type) for info, kind in _PLAIN if one.type == info}

    def run(value: object, place: Place, report: Report) -> object:
        if type(value) in plain:
            return value
        if value is not None and value is not UNSET:
            repaired = repair(value, (place, on_wire), report)
            if repaired is not None:
                return repaired
        if not required:
            return f.default if make is NODEFAULT else make()
        if value is None and may_be_null:
            return None
        if place == "$":
            raise DecodingError(f"the body has no usable {on_wire!r}")
        if value is None or value is UNSET:
            report((place, on_wire), None, missing)
        return empty  # A row without its id is still a row: it must not vanish from a walk.

    return run


def _struct(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> Repair:
    # At the first use, so that a type may hold itself.
    compiled = cache(lambda: [(f.name, f.encode_name, restore) for f, restore in _members(cls, fields)])

    def run(value: object, place: Place, report: Report) -> object:
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            report(place, value, "a list of one stands for its object")
            value = value[0]
        if not isinstance(value, dict):
            _report_mismatch(place, value, report, "expected an object, got {}; dropped")
            return None
        get = value.get
        return cls(**{name: restore(get(on_wire, UNSET), place, report) for name, on_wire, restore in compiled()})

    return run


def _may_be_null(info: inspect.Type) -> bool:
    """Whether null is a value of its own here, as of a member of somebody else's that is a string or None."""
    return any(
        isinstance(one.type, inspect.AnyType | inspect.NoneType)
        or (isinstance(one.type, inspect.CustomType) and one.type.cls is object)
        for one in alternatives(info)
    )


def _is_free(info: inspect.Type) -> bool:
    """Whether a type holds free-form data."""
    return any(isinstance(found.type, inspect.AnyType | inspect.CustomType | inspect.RawType) for found in walk(info))


def _empty(info: inspect.Type) -> str | None:
    """Return what stands for a member that a row must have and lacks: an empty string, if a string belongs there."""
    return "" if any(isinstance(one.type, inspect.StrType) for one in alternatives(info)) else None


def _member(info: inspect.Type, kind: object) -> Repair:
    """Compile the repair for a member; one of a type that only an operation of somebody else's has is taken whole."""
    try:
        return repair_for(info)
    except TypeError:
        read = msgspec.json.Decoder(kind).decode
        return _leaf(cast(type, kind), {}, lambda value: read(_WRITE(value)))


def _list(item: Repair, make: type[list[object] | tuple[object, ...]], *, of_structs: bool) -> Repair:
    def run(value: object, place: Place, report: Report) -> object:
        if isinstance(value, dict) and value and of_structs:
            report(place, value, "an object stands for a list of one")
            value = [value]
        if not isinstance(value, list):
            _report_mismatch(place, value, report, "expected a list, got {}; dropped", "stands for an empty list")
            return None
        rows = (_entry(item, raw, (place, i), report, of_structs=of_structs) for i, raw in enumerate(value))
        return make(row for row in rows if row is not None)

    return run


def _entry(item: Repair, raw: object, place: Place, report: Report, *, of_structs: bool) -> object:
    """Repair an entry of a list; `None` if nothing is left of it."""
    if raw is None or (of_structs and raw in _NO_OBJECT):
        report(place, raw, "is no entry; dropped", dropped=True)
        return None
    return item(raw, place, report)


def _report_mismatch(
    place: Place, value: object, report: Report, reason: str, unset: str = "stands for unset; read as None"
) -> None:
    """Say what became of a value that nothing can be made of: nothing is lost with one that stands for unset."""
    if not value and isinstance(value, str | list | dict):
        report(place, value, unset)
    else:
        report(place, value, reason, dropped=True)


def _float(value: object) -> float:
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
    """Read an amount of a response: any plain number, as a number or as text."""
    if not isinstance(value, str) or amounts.PLAIN.match(value):
        amount = Decimal(cast(str, value))
        if amounts.is_sound(amount):
            return amount
    raise ValueError("not an amount")


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
    if not value:
        raise ValueError("empty")
    return cast(str, value)


def _day(value: object) -> datetime:
    day = read_day(value)
    return day if isinstance(day, datetime) else datetime(day.year, day.month, day.day, tzinfo=UTC)
