"""An answer's bytes as a Struct: exact where they follow the contract, repaired where they do not.

Nearly every answer goes straight from bytes to its Struct, in C. Only when that fails is the JSON read untyped, and
walked along the type: a member that does not fit is mended where its meaning is plain (``"3"`` for a number, a number
for a text, a moment without a zone) and dropped where it is not. Each is reported as an :class:`Anomaly`, and nothing
else of the answer is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, ValidationError, structs

from paymentsdk._codec import amounts as oddity
from paymentsdk._codec.anomaly import Anomaly, Reports
from paymentsdk._codec.slices import CROOKED, RowRepair, Rows, rows_of
from paymentsdk._secrets import MASK

if TYPE_CHECKING:
    from msgspec import inspect

R = TypeVar("R")
T = TypeVar("T")

_DIGITS = f"[0-9]{{1,{oddity.MOST_PLACES}}}"
_PLAIN_AMOUNT = re.compile(rf"[-+]?{_DIGITS}(\.{_DIGITS})?([eE][-+]?[0-9]{{1,2}})?\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}\Z")
_UNSET: tuple[object, ...] = ("", [], {})
_NO_OBJECT: tuple[object, ...] = ("", [])
_WRITE = msgspec.json.Encoder(decimal_format="number").encode
#: Bytes from which on an answer is repaired in slices: less takes few milliseconds, even if all of it is crooked.
LARGE = 65_536
#: Bytes from which on any answer is decoded in slices.
HUGE = 1_048_576
#: What an answer without members looks like.
_EMPTY = frozenset({b"", b"null", b"[]", b'""'})


class Undecodable(ValueError):  # noqa: N818 - it says what the body is
    """The body is not JSON, or not of a shape that can hold the answer."""


class ResponseDecoder(Generic[R]):
    """Decodes the answers of one operation."""

    def __init__(
        self, result: type[R], *, empty: bool = False, essential: Callable[[Anomaly], bool] | None = None
    ) -> None:
        self._type = result
        self._essential = essential
        self._empty = empty
        self._exact = msgspec.json.Decoder(result).decode
        self._odd = oddity.compile_check(result)

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Return the value in *body*, and what had to be mended.

        Raises:
            Undecodable: Nothing in it can be trusted.
        """
        steps = self.steps(body)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return cast("tuple[R, tuple[Anomaly, ...]]", done.value)

    def steps(self, body: bytes) -> Generator[None, None, tuple[R, tuple[Anomaly, ...]]]:
        """Do what `decode` does, a large page of rows in slices of some milliseconds, with a pause after each."""
        if len(body) < HUGE and (done := self._read(body)):
            return done
        rows = self._rows if len(body) >= LARGE else None
        split = (yield from rows.split(body)) if rows is not None else None
        if rows is None or split is None:
            return self._read(body) or self._repair(body)
        around, entries = split
        value, anomalies = self._read(around) or self._repair(around)
        reports = Reports(anomalies, self._essential)
        found = yield from rows.decode(entries, reports)
        make = type(getattr(value, rows.name))
        whole = structs.replace(cast(Struct, value), **{rows.name: make(found)})
        return cast(R, whole), reports.all()

    def _read(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]] | None:
        """Return the value in *body*, unless something in it has to be mended."""
        value = self._read_as(body, self._exact, self._odd)
        return None if value is None else (value, ())

    def _read_as(self, body: bytes, exact: Callable[[bytes], T], odd: Callable[[T], bool]) -> T | None:
        for spelt in self._spellings(body):
            with suppress(*CROOKED):
                value = exact(spelt)
                if not odd(value):
                    return value
        return None

    def _spellings(self, body: bytes) -> Iterator[bytes]:
        """Yield *body*, and *body* with a time behind each day without one, which the contract has as well.

        A page of them would take ten times as long to repair.
        """
        yield body
        if self._dates is not None:
            dated, count = self._dates.subn(rb'\1T00:00:00Z"', body)
            if count:
                yield dated

    def _repair(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        if self._empty and body.strip() in _EMPTY:
            return self._type(), (Anomaly("$", "", "the body is empty; every member is unset"),)
        raw = _untyped(body)
        if not isinstance(raw, dict):
            raise Undecodable(f"the body holds {_kind(raw)}, not an object")
        anomalies: list[Anomaly] = []
        value = self._mend(raw, "$", anomalies)
        return cast(R, value), Reports(anomalies, self._essential).all()

    @cached_property
    def _info(self) -> inspect.Type:
        return _inspect(self._type)

    @cached_property
    def _dates(self) -> re.Pattern[bytes] | None:
        """What finds days without a time, unless there are none, or other data that may have the same names."""
        try:
            texts = set(_texts("", self._info))
        except (TypeError, RecursionError):  # The latter for a type that holds itself.
            return None
        names = "|".join(re.escape(name) for name, is_day in texts if is_day and (name, False) not in texts)
        return re.compile(rf'("(?:{names})"\s*:\s*"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})"'.encode()) if names else None

    @cached_property
    def _mend(self) -> Repair:
        return _repair_for(self._info)

    @cached_property
    def _rows(self) -> Rows | None:
        """The member with the rows, if this is an answer of one kind of rows."""
        found = rows_of(self._info)
        if found is None:
            return None
        name, on_wire, row = found
        exact = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]
        odd = oddity.compile_check(row)
        info = cast("inspect.StructType", _inspect(row))
        inner = RowRepair(
            row, odd, {f.encode_name: (f.name, m) for f, m, _ in _members(row, info.fields)}, _repair_for(info)
        )
        return Rows(
            name=name,
            on_wire=on_wire,
            read=lambda body: self._read_as(body, exact, lambda rows: any(map(odd, rows))),
            mend=lambda body, path, anomalies: _entry(inner, _untyped(body), path, anomalies, of_structs=True),
        )


def _inspect(kind: type) -> inspect.Type:
    from msgspec import inspect  # noqa: PLC0415 - only a crooked or large answer needs it

    return inspect.type_info(kind)


def _untyped(body: bytes) -> object:
    try:
        return _READ(body)
    except CROOKED as error:
        raise Undecodable(f"the body is not JSON: {error}") from None


#: Takes a value as read from JSON, never null, its place and the list to report to; returns it typed, or ``None``.
Repair = Callable[[object, str, list[Anomaly]], object]


def _texts(name: str, info: inspect.Type) -> Iterator[tuple[str, bool]]:
    """Yield the name of each text in the member *name*, and whether it is a day.

    Raises:
        TypeError: It holds free-form data, or what only an operation of somebody else's has.
    """
    from msgspec import inspect  # noqa: PLC0415 - as above

    match info:
        case inspect.Metadata(extra={"day": True}):
            yield name, True
        case inspect.StructType(fields=fields):
            for f in fields:
                yield from _texts(f.encode_name, f.type)
        case inspect.UnionType(types=types):
            for kind in types:
                yield from _texts(name, kind)
        case inspect.Metadata(type=item) | inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from _texts(name, item)
        case inspect.StrType() | inspect.EnumType() | inspect.DateTimeType():
            yield name, False
        case inspect.NoneType() | inspect.BoolType() | inspect.IntType() | inspect.FloatType() | inspect.DecimalType():
            pass
        case _:
            raise TypeError(f"nobody knows which days {info} holds")


def _number(text: str) -> Decimal | float:
    # A hostile exponent stays a float: as a Decimal it would be a memory bomb for the first who rounds it.
    return Decimal(text) if _PLAIN_AMOUNT.match(text) else float(text)


_READ = msgspec.json.Decoder(float_hook=_number).decode


def _repair_for(info: inspect.Type) -> Repair:  # noqa: C901, PLR0912 - a table
    """Compile the repair for a type."""
    from msgspec import inspect  # noqa: PLC0415

    match info:
        case inspect.Metadata(type=inspect.CustomType(), extra={"day": True}):
            return _leaf(date, {str: _moment, int: _epoch}, exact=_date_or_moment)
        case inspect.Metadata(extra={"day": True}):
            return _leaf(datetime, {str: _moment, int: _epoch}, exact=_day)
        case inspect.UnionType(types=types):
            kinds = [t for t in types if not isinstance(t, inspect.NoneType)]
            return _union(kinds) if len(kinds) > 1 else _repair_for(kinds[0])
        case inspect.StructType(cls=cls, fields=fields):
            return _struct(cls, fields)
        case inspect.VarTupleType(item_type=item):
            return _list(_repair_for(item), tuple, of_structs=isinstance(item, inspect.StructType))
        case inspect.ListType(item_type=item):
            return _list(_repair_for(item), list, of_structs=isinstance(item, inspect.StructType))
        case inspect.DictType(
            value_type=inspect.AnyType() | inspect.CustomType() | inspect.Metadata(type=inspect.CustomType())
        ):
            return _leaf(dict, {}, exact=_free_object)
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
            return _leaf(datetime, {str: _moment, int: _epoch}, exact=_exact_moment)
        case _:
            raise TypeError(f"nobody knows how to mend {info}")


def _leaf(
    wanted: type,
    repairs: dict[type, Callable[..., object]],
    exact: Callable[[object], object] | None = None,
) -> Repair:
    """Repair a single value: *exact*, or the type, reads what follows the contract, and *repairs* what nearly does."""
    is_plain = exact is None and wanted in (str, int, bool)

    def mend(value: object, path: str, anomalies: list[Anomaly]) -> object:
        try:
            if not is_plain:
                return exact(value) if exact else msgspec.convert(value, wanted)
            if type(value) is wanted:
                return value
        except (ValidationError, ValueError, TypeError):
            pass
        except RecursionError:
            anomalies.append(Anomaly(path, None, "is nested too deeply; dropped", dropped=True))
            return None
        if (repair := repairs.get(type(value))) is not None:
            with suppress(ValueError, KeyError, ArithmeticError, OSError):  # OSError: of a moment beyond all calendars.
                mended = repair(value)
                anomalies.append(Anomaly(path, value, f"expected {wanted.__name__}, got {_kind(value)}; mended"))
                return mended
        anomalies.append(_mismatched(path, value, wanted.__name__ if isinstance(wanted, type) else str(wanted)))
        return None

    return mend


def _masked(inner: Repair) -> Repair:
    """Repair a credential, and report it without showing it."""

    def mend(value: object, path: str, anomalies: list[Anomaly]) -> object:
        found: list[Anomaly] = []
        mended = inner(value, path, found)
        anomalies.extend(structs.replace(anomaly, value=MASK) for anomaly in found)
        return mended

    return mend


def _union(kinds: list[inspect.Type]) -> Repair:
    """Repair a value of several types: the first that reads it without complaint, or else the first that reads it."""
    menders = [_repair_for(kind) for kind in kinds]

    def mend(value: object, path: str, anomalies: list[Anomaly]) -> object:
        tries: list[tuple[object, list[Anomaly]]] = []
        for mender in menders:
            found: list[Anomaly] = []
            tries.append((mender(value, path, found), found))
            if not found:
                return tries[-1][0]
        best, found = next((one for one in tries if one[0] is not None), tries[0])
        anomalies.extend(found)
        return best

    return mend


def _members(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> list[tuple[inspect.Field, Repair, str | None]]:
    """Return the members of *cls*, each with its repair, and with what stands for it where it is missing."""
    secrets: frozenset[str] = getattr(cls, "__secrets__", frozenset())
    kinds = {f.name: f.type for f in structs.fields(cls)}
    menders = [(f, _member(f.type, kinds[f.name])) for f in fields]
    return [(f, _masked(mender) if f.name in secrets else mender, _empty(f.type)) for f, mender in menders]


def _struct(cls: type[Struct], fields: tuple[inspect.Field, ...]) -> Repair:
    members_with_menders = cache(lambda: _members(cls, fields))  # At the first use, so that a type may hold itself.

    def mend(value: object, path: str, anomalies: list[Anomaly]) -> object:
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            anomalies.append(Anomaly(path, value, "a list of one stands for its object"))
            value = value[0]
        if not isinstance(value, dict):
            anomalies.append(_mismatched(path, value, "an object"))
            return None
        members = {}
        for f, mender, empty in members_with_menders():
            raw = value.get(f.encode_name)
            mended = None if raw is None else mender(raw, f"{path}.{f.encode_name}", anomalies)
            if mended is not None:
                members[f.name] = mended
            elif f.required and raw is None and f.encode_name in value and _may_be_null(f.type):
                members[f.name] = None
            elif f.required and path == "$":
                raise Undecodable(f"the body has no usable {f.encode_name!r}")
            elif f.required:
                if raw is None:
                    read_as = "None" if empty is None else "empty"
                    anomalies.append(Anomaly(f"{path}.{f.encode_name}", None, f"is missing; read as {read_as}"))
                members[f.name] = empty  # A row without its id is still a row: it must not vanish from a walk.
        return cls(**members)

    return mend


def _may_be_null(info: inspect.Type) -> bool:
    """Whether null is a value of its own here, as of a member of somebody else's that is a text or None."""
    from msgspec import inspect  # noqa: PLC0415 - as above

    match info:
        case inspect.Metadata(type=inner):
            return _may_be_null(inner)
        case inspect.UnionType():
            return info.includes_none
        case inspect.CustomType(cls=cls):
            return cls is object
        case _:
            return isinstance(info, inspect.AnyType | inspect.NoneType)


def _empty(info: inspect.Type) -> str | None:
    """Return what stands for a member that a row must have and lacks: an empty text, but only where a text belongs."""
    from msgspec import inspect  # noqa: PLC0415 - as above

    match info:
        case inspect.StrType():
            return ""
        case inspect.Metadata(type=inner):
            return _empty(inner)
        case inspect.UnionType(types=types) if "" in map(_empty, types):
            return ""
        case _:
            return None


def _member(info: inspect.Type, kind: object) -> Repair:
    """Compile the repair for a member; one of a type that only an operation of somebody else's has is taken whole."""
    try:
        return _repair_for(info)
    except TypeError:
        read = msgspec.json.Decoder(kind).decode
        return _leaf(cast(type, kind), {}, exact=lambda value: read(_WRITE(value)))


def _list(item: Repair, make: type[list[object] | tuple[object, ...]], *, of_structs: bool) -> Repair:
    def mend(value: object, path: str, anomalies: list[Anomaly]) -> object:
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

    return mend


def _entry(item: Repair, raw: object, path: str, anomalies: list[Anomaly], *, of_structs: bool) -> object:
    """Repair an entry of a list; ``None`` if nothing is left of it."""
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
        if oddity.is_sound(amount):
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


def _exact_moment(value: object) -> datetime:
    moment = msgspec.convert(value, datetime)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    return moment


def _date_or_moment(value: object) -> date:
    if isinstance(value, str) and _DATE.match(value):
        return date.fromisoformat(value)
    return _exact_moment(value)


def _day(value: object) -> datetime:
    if isinstance(value, str) and _DATE.match(value):
        return _moment(value)
    return _exact_moment(value)


def _moment(text: str) -> datetime:
    """Read a date without a time, a moment without a zone, and the other forms of ISO 8601."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _epoch(number: int) -> datetime:
    """Read seconds or milliseconds since 1970."""
    return datetime.fromtimestamp(number / 1000 if abs(number) > 10**11 else number, UTC)
