"""Repairs a response that does not follow the contract, along its type and straight from its bytes.

A Struct is decoded in C but for those of its members that are malformed. These stay bytes, and each is read by itself:
a value where its meaning is plain (`"3"` for a number, a number for a string, a timestamp without an offset), a Struct
or a list in the same way again, and what is none of these is dropped. Each is reported as an `Anomaly`, and nothing
else is touched. What is malformed in one Struct is so in most of its kind: how these are read is compiled once.

An operation of somebody else's may respond with types that no operation of the platform has: values with bounds,
Structs that a tag tells apart, or that stand as lists. Such a value is decoded as it is, or dropped and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache, cached_property, lru_cache, partial, reduce
from itertools import count, repeat
from math import inf, isfinite
from operator import or_
from types import GenericAlias
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, Struct, ValidationError, inspect, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import DecodingError, Place, kind_of
from paymentsdk._codec.timestamps import read_day, read_loosely, read_timestamp
from paymentsdk._codec.type_walk import Check, allows_null, alternatives, compile_function
from paymentsdk._secrets import MASK
from paymentsdk.errors import describe

#: How the decoder names the first member of a listed Struct that it does not take, or what is below it; or one that is
#: missing.
_PLACE = re.compile(r"(?:required field `([^`]+)` - at )?`\$\[[^]]+\](?:\.([^.`\[]+))?")
#: Ways to read the Structs of one kind: one takes a millisecond to compile.
MOST_COMPILED = 64
#: Entries of a list that are decoded at once: where one is malformed, all of them are made one by one.
MOST_AT_ONCE = 32
#: Longer values of an enum are not remembered.
_LONGEST_KNOWN = 64
#: What a type may ask of its values besides.
_RULES = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_LISTS = (inspect.ListType, inspect.VarTupleType)
#: Texts that must not be empty: what is, stands for unset.
_NOT_EMPTY = inspect.StrType(min_length=1)
_DAY = len("2026-01-31")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}\Z")
#: Stands for each member that is missing: it is read as null where it need not be there.
_MISSING = Raw(b"null")
_entries = msgspec.json.Decoder(list[Raw]).decode
_members_of = msgspec.json.Decoder(dict[str, Raw]).decode
_OBJECT = "an object stands for a list of one"

#: Takes an anomaly, as `Reports.add` does.
Report: TypeAlias = Callable[..., None]
#: Takes the bytes of a value, its place and what to report to; returns it typed, or `None` if it is null or dropped.
Repair: TypeAlias = Callable[[Raw, Place, Report], object]


class Reader(NamedTuple):
    """How Structs are read in which some members may be anything."""

    apart: frozenset[str]
    """The names of these in JSON."""
    decode: Callable[[bytes], list[Struct]]
    """Decodes a list of such Structs."""
    unusable: Check
    """Names a member of one, not of these, with an amount that cannot be used."""
    restore: Callable[[list[Struct], Iterable[Place], Report], list[object]]
    """Makes the Structs at their places of such a list."""


class StructRepair:
    """Decodes Structs of one kind, and repairs them where they need it.

    Args:
        cls: Their type.
        apart: The members that are always read by themselves.
    """

    def __init__(self, cls: type[Struct], apart: frozenset[str] = frozenset()) -> None:
        self._cls = cls
        self._apart = apart
        self._compiled: dict[frozenset[str], Reader] = {}
        self._last = apart

    def __call__(self, raw: Raw, place: Place, report: Report) -> object:
        """Return the Struct that stands at *place*; `None` if none does."""
        return None if begins(raw, b"n") else next(iter(self.read([raw], place, report)), None)

    def read(self, raws: Sequence[bytes | Raw], place: Place, report: Report, first: int | None = None) -> list[object]:
        """Return what *raws* hold: the Struct at *place*, or entries of a list there, without those that are none.

        Args:
            raws: Their bytes.
            place: Where they stand.
            report: Takes what was wrong.
            first: The number of the first entry; `None` for a Struct by itself.
        """
        if first == 0 and len(raws) >= MOST_AT_ONCE:
            self._last = self._apart  # What was malformed in an earlier page may not be so in this one.
        if (found := self.decode(raws)) is not None:
            reader, rows = found
            return reader.restore(rows, [place] if first is None else zip(repeat(place), count(first)), report)
        if first is not None and len(raws) > 1:
            return [row for number, raw in enumerate(raws, first) for row in self.read([raw], place, report, number)]
        return self._read_other(raws[0], place if first is None else (place, first), report)

    def decode(self, raws: Sequence[bytes | Raw]) -> tuple[Reader, list[Struct]] | None:
        """Decode *raws* but for the members that are malformed; `None` if one is no object."""
        body = b"".join((b"[", b",".join(raws), b"]"))  # Of a large one, anything else makes more copies.
        reader = self._without(self._apart)
        while True:
            try:
                rows = reader.decode(body)
            except (ValidationError, ArithmeticError) as error:
                found = _PLACE.search(str(error))
                malformed: str | None = (found[2] or found[1]) if found else None
            else:
                malformed = next(filter(None, map(reader.unusable, rows)), None)
                if malformed is None:
                    self._last = reader.apart
                    return reader, rows
            # Where it is not said what is malformed, anything may be.
            named = {malformed} if malformed and malformed in self._members else {*self._members}
            if reader.apart >= named:
                return None
            apart = reader.apart.union(named)
            # What is malformed in one Struct is so in most of its kind.
            last = self._last  # Another thread may repair another page.
            reader = self._without(last if last.issuperset(apart) else apart)

    def _read_other(self, raw: bytes | Raw, place: Place, report: Report) -> list[object]:
        """Read what should be an object, and is none."""
        value = read_untyped(raw)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            report(place, value, "a list of one stands for its object")
            return self.read(_entries(raw), place, report)
        if isinstance(place[-1], int) and (value is None or value in ("", [])):
            report(place, value, "is no entry; dropped", dropped=True)
        else:
            wrong = "its tag is that of nothing that may stand here" if isinstance(value, dict) else None
            _report_mismatch(place, value, report, f"{wrong or 'expected an object, got {}'}; dropped")
        return []

    @cached_property
    def _members(self) -> Mapping[str, Repair]:
        """What reads each member, by its name in JSON."""
        secrets: frozenset[str] = getattr(self._cls, "__secrets__", frozenset())
        infos = cast("inspect.StructType", inspect.type_info(self._cls)).fields
        members = {}
        for info, field in zip(infos, structs.fields(self._cls), strict=True):
            repair = repair_of(field.type, info.type)
            repair = _masked(repair) if info.name in secrets else repair
            members[info.encode_name] = repair if info.default is None else _member(info, repair)
        return members

    def _without(self, apart: frozenset[str]) -> Reader:
        """Return how Structs are read of which the members *apart* may be anything; from some number on, all may."""
        # Of a class that checks itself as a whole, nothing must be left that it could reject.
        is_checked = bool(apart) and hasattr(self._cls, "__post_init__")
        if is_checked or (len(self._compiled) > MOST_COMPILED and apart not in self._compiled):
            apart = frozenset(self._members)
        if apart not in self._compiled:
            self._compiled[apart] = self._compile(apart)
        return self._compiled[apart]

    def _compile(self, apart: frozenset[str]) -> Reader:
        if not apart:
            return Reader(apart, _list_decoder(self._cls), amounts.compile_check(self._cls), lambda rows, *_: [*rows])
        members: list[tuple[str, object, object] | tuple[str, object]] = []
        values: list[str] = []
        scope: dict[str, object] = {"cls": self._cls}
        for field in structs.fields(self._cls):
            value, make = f"row.{field.name}", field.default_factory
            if field.encode_name in apart:
                members.append((field.name, Raw, _MISSING))
                scope[f"read_{field.name}"] = self._members[field.encode_name]
                value = f"read_{field.name}({value}, (place, {field.encode_name!r}), report)"
            elif field.required:
                members.append((field.name, field.type))
            else:
                default = field.default if make is NODEFAULT else msgspec.field(default_factory=make)
                members.append((field.name, field.type, default))
            values.append(f"{field.name}={value}")
        names = {field.name: field.encode_name for field in structs.fields(self._cls)}
        info, typed = cast("inspect.StructType", inspect.type_info(self._cls)), cast("list[tuple[str, type]]", members)
        relaxed = msgspec.defstruct(
            "Relaxed",
            typed,
            rename=names,
            kw_only=True,
            gc=False,
            tag=info.tag,
            tag_field=info.tag_field,
        )
        lines = [f"return [cls({', '.join(values)}) for row, place in zip(rows, places)]"]
        if hasattr(self._cls, "__post_init__"):
            scope["cls"] = partial(_make_checked, self._cls)
            made = f"[cls(place, report, {', '.join(values)}) for row, place in zip(rows, places)]"
            lines = [f"return [row for row in {made} if row is not None]"]
        restore = cast("Callable[..., list[object]]", compile_function("rows, places, report", lines, scope))
        return Reader(apart, _list_decoder(relaxed), amounts.compile_check(relaxed), restore)


def _make_checked(cls: type[Struct], place: Place, report: Report, /, **members: object) -> Struct | None:
    """Make a Struct that checks itself as a whole; where it rejects what was read, none is there."""
    try:
        return cls(**members)
    except (TypeError, ValueError, ArithmeticError) as error:
        if place == "$":
            raise DecodingError(f"the body is rejected: {describe(error)}") from None
        report(place, None, f"is rejected: {describe(error)}; dropped", dropped=True)
    return None


def _list_decoder(cls: type[Struct]) -> Callable[[bytes], list[Struct]]:
    return msgspec.json.Decoder(cast("type[list[Struct]]", GenericAlias(list, (cls,)))).decode


#: The repair of the Structs of a type: one for all members of that type, so that it may hold itself.
struct_repair = cache(StructRepair)


def read_untyped(raw: bytes | Raw) -> object:
    """Read JSON of any shape, what holds a number with more digits than Python reads as infinity: it is dropped so."""
    try:
        return amounts.read_untyped(raw)
    except ValidationError:
        return inf


def begins(raw: Raw, byte: bytes) -> bool:
    """Whether *raw* begins with *byte*, which says what it is."""
    return memoryview(raw)[:1] == byte


# --- members ----------------------------------------------------------------------------------------------------------


def _member(info: inspect.Field, repair: Repair) -> Repair:
    """Compile what reads a member that is required, or that is not `None` where it is missing."""
    empty = _empty(info.type)
    may_be_null = allows_null(info.type)
    missing = f"is missing; read as {'None' if empty is None else 'empty'}"

    def read_member(raw: Raw, place: Place, report: Report) -> object:
        is_missing, is_null = raw is _MISSING, begins(raw, b"n")
        if is_null and may_be_null and not is_missing:
            return None
        if not is_missing and (found := repair(raw, place, report)) is not None:
            return found
        if not info.required:
            if info.default_factory is not NODEFAULT:
                return info.default_factory()
            return UNSET if info.default is NODEFAULT else info.default  # `inspect` has no word for `UNSET`.
        if place[0] == "$":
            raise DecodingError(f"the body has no usable {info.encode_name!r}")
        if is_null:
            report(place, None, missing)
        return empty  # A row without its id is still a row: it must not vanish from a walk.

    return read_member


def _empty(info: inspect.Type) -> str | None:
    """Return what stands for a member that a row must have and lacks: an empty string, if a string belongs there."""
    return "" if any(isinstance(one.type, inspect.StrType) for one in alternatives(info)) else None


def _masked(inner: Repair) -> Repair:
    """Repair a credential, and report it without showing it."""

    def read_masked(raw: Raw, place: Place, report: Report) -> object:
        def report_masked(place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
            report(place, MASK, reason.replace("{}", kind_of(value)), dropped=dropped)

        return inner(raw, place, report_masked)

    return read_masked


def repair_of(kind: object, info: inspect.Type) -> Repair:
    """Compile the repair for *kind*, of which *info* tells; what no response of ours has is read as it is."""
    try:
        return repair_for(info)
    except TypeError:
        return _as_it_is(kind)


def repair_for(info: inspect.Type) -> Repair:
    """Compile the repair for a type.

    Raises:
        TypeError: There is no way to repair it.
    """
    found = [one for one in alternatives(info) if not isinstance(one.type, inspect.NoneType)]
    if not found or not all(one.marks.get("day") or _is_known(one.type) for one in found):
        raise TypeError(f"nobody knows how to repair {info}")
    structs = [one.type for one in found if isinstance(one.type, inspect.StructType)]
    # Nothing but its tag says which of several a value is. No response of ours has them: as it is, or not at all.
    tagged = structs if len(structs) > 1 else []
    others = [one for one in found if one.type not in tagged]
    repairs = [_day(one.type) if one.marks.get("day") else _REPAIRS[type(one.type)](one.type) for one in others]
    repairs += [_as_it_is(reduce(or_, (kind.cls for kind in tagged)))] if tagged else []
    return _union(repairs) if len(repairs) > 1 else repairs[0]


def _is_known(kind: inspect.Type) -> bool:
    """Whether values of *kind* can be repaired. Those that have to keep a rule besides are read as they are."""
    has_rules = kind != _NOT_EMPTY and any(getattr(kind, name, None) is not None for name in _RULES)
    return type(kind) in _REPAIRS and (not has_rules or isinstance(kind, _LISTS))


def _union(repairs: list[Repair]) -> Repair:
    """Repair a value of several types: the first that reads it without complaint, or else the first that reads it."""

    def read_union(raw: Raw, place: Place, report: Report) -> object:
        tries: list[tuple[object, list[Callable[[], None]]]] = []
        for repair in repairs:
            deferred: list[Callable[[], None]] = []
            tries.append((repair(raw, place, partial(_defer, deferred, report)), deferred))
            if not deferred:
                return tries[-1][0]
        value, deferred = next((one for one in tries if one[0] is not None), tries[0])
        for report_now in deferred:
            report_now()
        return value

    return read_union


def _defer(deferred: list[Callable[[], None]], report: Report, *given: object, dropped: bool = False) -> None:
    deferred.append(partial(report, *given, dropped=dropped))


def _list(info: inspect.ListType | inspect.VarTupleType, make: type[list[object] | tuple[object, ...]]) -> Repair:
    item, may_have_null = repair_for(info.item_type), allows_null(info.item_type)
    least, most = info.min_length or 0, inf if info.max_length is None else info.max_length

    def read_list(raw: Raw, place: Place, report: Report) -> object:
        if begins(raw, b"["):
            entries = _entries(raw)
        elif isinstance(item, StructRepair) and begins(raw, b"{") and (value := read_untyped(raw)):
            entries = _numbered(raw)
            report(place, value, "an object with numbered members stands for its list" if entries else _OBJECT)
            entries = entries or [raw]
        else:
            if (value := read_untyped(raw)) is not None:
                _report_mismatch(place, value, report, "expected a list, got {}; dropped", "stands for an empty list")
            return None
        if not least <= len(entries) <= most:  # Its rows are what was sent.
            report(place, read_untyped(raw), f"has {len(entries)} entries; kept as it is")
        rows: list[object] = []
        if isinstance(item, StructRepair) and not may_have_null:
            for i in range(0, len(entries), MOST_AT_ONCE):
                rows += item.read(entries[i : i + MOST_AT_ONCE], place, report, i)
            return make(rows)
        for i, one in enumerate(entries):
            if begins(one, b"n") and may_have_null:
                rows.append(None)
            elif begins(one, b"n"):
                report((place, i), None, "is no entry; dropped", dropped=True)
            elif (row := item(one, (place, i), report)) is not None:
                rows.append(row)
        return make(rows)

    return read_list


def _numbered(raw: Raw) -> list[Raw]:
    """Return the objects that an object holds under numbers, in their order; none if it holds anything else.

    PHP writes a list with gaps in that way.
    """
    members = _members_of(raw)
    if not all(_NUMBER.match(name) and begins(value, b"{") for name, value in members.items()):
        return []
    return [members[name] for name in sorted(members, key=int)]


def _as_it_is(kind: object) -> Repair:
    """Take a value as it is, or not at all."""
    # In free-form data, a number that no float can hold costs nothing of what is around it.
    exact = msgspec.json.Decoder(cast("type[object]", kind), float_hook=float).decode
    unusable = amounts.compile_check(cast("type", kind))
    reason = f"expected {kind.__name__ if isinstance(kind, type) else kind}, got {{}}; dropped"

    def read_as_it_is(raw: Raw, place: Place, report: Report) -> object:
        try:
            if begins(raw, b"n"):
                return None
            if unusable(value := exact(raw)) is None:
                return value
        except RecursionError:
            report(place, None, "is nested too deeply; dropped", dropped=True)
            return None
        except (ValidationError, ArithmeticError):
            pass
        _report_mismatch(place, read_untyped(raw), report, reason)
        return None

    return read_as_it_is


# --- single values ----------------------------------------------------------------------------------------------------


#: Reads a value; it returns `None` or raises if it cannot.
Read: TypeAlias = Callable[[Any], object]
_UNREADABLE = (ValueError, KeyError, ArithmeticError)


def _leaf(wanted: type, nearly: Mapping[type, Read], exact: Mapping[type, Read] | None = None) -> Repair:
    """Repair a single value.

    *exact* reads what follows the contract, by its type in JSON; without it that type is the one that is *wanted*.
    *nearly* reads what nearly follows it.
    """
    plain = wanted if exact is None else None
    repaired_as, dropped_as = (f"expected {wanted.__name__}, got {{}}; {what}" for what in ("repaired", "dropped"))
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
                found = read(value)
            except _UNREADABLE:
                continue
            if found is not None:
                if reason is not None:
                    report(place, value, reason)
                return found
        _report_mismatch(place, value, report, dropped_as)
        return None

    return read_value


#: What stands for unset where it is empty.
_EMPTY_OF = frozenset({str, list, dict})


def _report_mismatch(
    place: Place, value: object, report: Report, reason: str, unset: str = "stands for unset; read as None"
) -> None:
    """Say what became of a value that nothing can be made of: nothing is lost with one that stands for unset."""
    if not value and type(value) in _EMPTY_OF:
        report(place, value, unset)
    else:
        report(place, value, reason, dropped=True)


def _enum(info: inspect.EnumType) -> Repair:
    if any(isinstance(one.value, int) for one in info.cls):
        return _leaf(info.cls, {}, {int: info.cls})
    known = lru_cache(maxsize=256)(info.cls)

    def named(value: object) -> object:
        text = str(value)
        return known(text) if len(text) <= _LONGEST_KNOWN else info.cls(text)

    return _leaf(info.cls, {int: named, Decimal: named}, {str: named})


def _moment(text: str) -> datetime | None:
    # What is malformed has no offset, as a rule: that costs no exception.
    return read_timestamp(text) if text[-1] in "Zz" or text[-6:-5] in "+-" or text[-5:-4] in "+-" else None


def _float(value: float | Decimal | str) -> float | None:
    return number if isfinite(number := float(value)) else None


def _int(text: str) -> int | None:
    return int(text) if _INTEGER.match(text) else None


def _integer(number: Decimal) -> int | None:
    return int(number) if number == number.to_integral_value() else None


def _decimal(value: object) -> Decimal | None:
    """Read an amount of a response as the decoder does: a number, or any text that Python takes for one."""
    amount = Decimal(cast(str, value))
    return amount if amounts.is_sound(amount) else None


def _day(info: inspect.Type) -> Repair:
    kind = date if isinstance(info, inspect.CustomType) else datetime
    return _leaf(kind, _NEARLY_MOMENTS, {str: read_day if kind is date else _first_moment})


def _first_moment(text: str) -> datetime | None:
    """Read a day as its first moment, UTC, or a moment as it is."""
    return _moment(text) if len(text) > _DAY else read_timestamp(f"{text}T00:00:00Z")


def _free_form(info: inspect.DictType) -> Repair:
    entry = next(alternatives(info.value_type)).type
    if not isinstance(entry, inspect.AnyType | inspect.CustomType):
        raise TypeError("it holds more than free-form data")
    return _as_it_is(dict)


_NEARLY_STRINGS: dict[type, Read] = {int: str, Decimal: str, bool: lambda value: str(value).lower()}
_NEARLY_MOMENTS: dict[type, Read] = {str: read_loosely}
_NEARLY_BOOLEANS: dict[type, Read] = {
    str: {"true": True, "false": False}.__getitem__,
    int: {0: False, 1: True}.__getitem__,
}
#: What compiles the repair for each type.
_REPAIRS: dict[type, Callable[[Any], Repair]] = {
    inspect.StructType: lambda info: _as_it_is(info.cls) if info.array_like else struct_repair(info.cls),
    inspect.VarTupleType: lambda info: _list(info, tuple),
    inspect.ListType: lambda info: _list(info, list),
    inspect.DictType: _free_form,
    inspect.EnumType: _enum,
    inspect.StrType: lambda info: _leaf(str, _NEARLY_STRINGS, {str: str} if info.min_length else None),
    inspect.IntType: lambda _: _leaf(int, {str: _int, Decimal: _integer}),
    inspect.BoolType: lambda _: _leaf(bool, _NEARLY_BOOLEANS),
    inspect.FloatType: lambda _: _leaf(float, {str: _float}, dict.fromkeys((int, Decimal, float), _float)),
    inspect.DecimalType: lambda _: _leaf(Decimal, {}, dict.fromkeys((int, Decimal, str), _decimal)),
    inspect.DateTimeType: lambda _: _leaf(datetime, _NEARLY_MOMENTS, {str: _moment}),
}
