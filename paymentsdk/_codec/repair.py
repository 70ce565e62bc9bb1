"""Repairs a response that does not follow the contract, along its type and straight from its bytes.

A Struct is decoded in C, except its malformed members. These stay bytes, and each is read on its own. A value is
repaired if its meaning is plain (`"3"` for a number, a number for a string, a timestamp without an offset). A Struct or
a list is repaired in the same way again. Anything else is dropped. Each repair is reported as an `Anomaly`, and nothing
else changes. A member that is malformed in one Struct is usually malformed in all, so each way of reading is compiled
once.

A user's operation may respond with types that no operation of the platform has: values and lists with bounds, lists
with nulls, tagged Structs, or Structs encoded as lists. Such a value is decoded exactly, or dropped and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial, reduce
from itertools import count, repeat
from operator import or_
from types import GenericAlias
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, Struct, ValidationError, inspect, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MOST_MISSING, DecodingError, Place, kind_of
from paymentsdk._codec.type_walk import Check, allows_null, alternatives, compile_function
from paymentsdk._codec.values import VALUE_REPAIRS, Repair, Report, day_repair, read_untyped, report_mismatch
from paymentsdk._secrets import MASK
from paymentsdk.errors import describe

#: How the decoder names the first member of a listed Struct that it rejects (or the member around it) or misses.
_PLACE = re.compile(r"(?:required field `([^`]+)` - at )?`\$\[[^]]+\](?:\.([^.`\[]+))?")
#: The most compiled ways to read the Structs of one kind: each takes a millisecond to compile.
MOST_COMPILED = 64
#: Entries of a list that are decoded together: if one is malformed, each of them is built on its own.
MOST_AT_ONCE = 32
#: The rules that a type may have for its values.
_RULES = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
#: Texts that must not be empty: an empty one stands for unset.
_NOT_EMPTY = inspect.StrType(min_length=1)
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
#: A list that begins with more entries that are neither an object nor a text than a response may lose. Each entry would
#: take eighty bytes before the entries are counted.
_NO_ROWS = re.compile(rb'\[(?:[^\[\]{}",]++,){%d}' % (MOST_MISSING + 1))
#: Stands for each missing member; it is read as null if the member is optional.
_MISSING = Raw(b"null")
_entries = msgspec.json.Decoder(list[Raw]).decode
_members_of = msgspec.json.Decoder(dict[str, Raw]).decode
_OBJECT = "an object stands for a list of one"


class RelaxedDecoder(NamedTuple):
    """Decodes Structs whose relaxed members may be anything: these stay bytes, and `rebuild` reads each on its own."""

    relaxed: frozenset[str]
    """The names of the relaxed members in JSON."""
    decode: Callable[[bytes], list[Struct]]
    """Decodes a list of the relaxed Structs."""
    unusable: Check
    """Names a member with an unusable amount, among the members that are not relaxed."""
    rebuild: Callable[[list[Struct], Iterable[Place], Report], list[object]]
    """Builds the Structs of such a list, from the places that they have in the response."""


class StructRepair:
    """Decodes Structs of one kind, and repairs them if needed.

    Args:
        cls: Their type.
        relaxed: The members that are always read on their own.
    """

    def __init__(self, cls: type[Struct], relaxed: frozenset[str] = frozenset()) -> None:
        self._cls = cls
        self._relaxed = relaxed
        #: The members that are malformed in most Structs of the current page.
        self._malformed = relaxed
        self._decoder = lru_cache(MOST_COMPILED)(self._compile)

    def __call__(self, raw: Raw, place: Place, report: Report) -> object:
        """Return the Struct at *place*; `None` if the value is not an object."""
        return None if begins(raw, b"n") else next(iter(self.read([raw], place, report)), None)

    def read(self, raws: Sequence[bytes | Raw], place: Place, report: Report, first: int | None = None) -> list[object]:
        """Return the Struct at *place*, or the entries of a list at *place*, without entries that are not objects.

        Args:
            raws: The bytes of the Struct or of the entries.
            place: The place of the Struct or of the list.
            report: Receives the anomalies.
            first: The number of the first entry. `None` for a Struct that is not in a list.
        """
        if first == 0 and len(raws) >= MOST_AT_ONCE:
            self._malformed = self._relaxed  # The next page may have other malformed members.
        if (decoded := self.decode(raws)) is not None:
            decoder, rows = decoded
            return decoder.rebuild(rows, [place] if first is None else zip(repeat(place), count(first)), report)
        if first is not None and len(raws) > 1:
            return [row for number, raw in enumerate(raws, first) for row in self.read([raw], place, report, number)]
        return self._read_other(raws[0], place if first is None else (place, first), report)

    def decode(self, raws: Sequence[bytes | Raw]) -> tuple[RelaxedDecoder, list[Struct]] | None:
        """Decode *raws* except the malformed members; `None` if one of *raws* is not an object."""
        body = b"".join((b"[", b",".join(raws), b"]"))  # Other ways copy a large body more often.
        decoder = self._decoder(self._relaxed)
        while True:
            try:
                rows = decoder.decode(body)
            except (ValidationError, ArithmeticError) as error:
                match = _PLACE.search(str(error))
                malformed: str | None = (match[2] or match[1]) if match else None
            else:
                malformed = next(filter(None, map(decoder.unusable, rows)), None)
                if malformed is None:
                    self._malformed = decoder.relaxed
                    return decoder, rows
            # Every member is suspect if the decoder names none, or if the Struct checks itself as a whole.
            is_named = malformed in self._members and not hasattr(self._cls, "__post_init__")
            suspects = {malformed} if malformed and is_named else {*self._members}
            if decoder.relaxed >= suspects:
                return None
            relaxed = decoder.relaxed.union(suspects)
            # A member that is malformed in one Struct is malformed in most of its kind.
            expected = self._malformed  # Read once, as another thread may repair another page.
            decoder = self._decoder(expected if expected.issuperset(relaxed) else relaxed)

    def _read_other(self, raw: bytes | Raw, place: Place, report: Report) -> list[object]:
        """Read a value that should be an object but is not."""
        value = read_untyped(raw)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            report(place, value, "a list of one stands for its object")
            return self.read(_entries(raw), place, report)
        if isinstance(place[-1], int) and (value is None or value in ("", [])):
            report(place, value, "is not an entry; dropped", dropped=True)
        else:
            wrong = "its tag is unknown here" if isinstance(value, dict) else None
            report_mismatch(place, value, report, f"{wrong or 'expected an object, got {}'}; dropped")
        return []

    @cached_property
    def _members(self) -> Mapping[str, Repair]:
        """The repair of each member, by its name in JSON."""
        secrets: frozenset[str] = getattr(self._cls, "__secrets__", frozenset())
        infos = cast("inspect.StructType", inspect.type_info(self._cls)).fields
        members = {}
        for info, field in zip(infos, structs.fields(self._cls), strict=True):
            repair = repair_of(field.type, info.type)
            repair = _masked(repair) if info.name in secrets else repair
            members[info.encode_name] = repair if info.default is None else _member(info, repair)
        return members

    def _compile(self, relaxed: frozenset[str]) -> RelaxedDecoder:
        if not relaxed:
            return RelaxedDecoder(
                relaxed, _list_decoder(self._cls), amounts.compile_check(self._cls), lambda rows, *_: [*rows]
            )
        members: list[tuple[str, object, object] | tuple[str, object]] = []
        values: list[str] = []
        scope: dict[str, object] = {"cls": self._cls}
        for field in structs.fields(self._cls):
            value, make = f"row.{field.name}", field.default_factory
            if field.encode_name in relaxed:
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
        info = cast("inspect.StructType", inspect.type_info(self._cls))
        twin = msgspec.defstruct(
            "Relaxed",
            cast("list[tuple[str, type]]", members),
            rename=names,
            kw_only=True,
            gc=False,
            tag=info.tag,
            tag_field=info.tag_field,
        )
        line = f"return [cls({', '.join(values)}) for row, place in zip(rows, places)]"
        if hasattr(self._cls, "__post_init__"):
            scope["cls"] = partial(_make_checked, self._cls)
            checked = f"[cls(place, report, {', '.join(values)}) for row, place in zip(rows, places)]"
            line = f"return [row for row in {checked} if row is not None]"
        rebuild = cast("Callable[..., list[object]]", compile_function("rows, places, report", [line], scope))
        return RelaxedDecoder(relaxed, _list_decoder(twin), amounts.compile_check(twin), rebuild)


def _make_checked(cls: type[Struct], place: Place, report: Report, /, **members: object) -> Struct | None:
    """Create a Struct that checks itself as a whole; report and drop it if it rejects its members."""
    try:
        return cls(**members)
    except (TypeError, ValueError, ArithmeticError) as error:
        if place == "$":
            raise DecodingError(f"the body is rejected: {describe(error)}") from None
        report(place, None, f"is rejected: {describe(error)}; dropped", dropped=True)
    return None


def _list_decoder(cls: type[Struct]) -> Callable[[bytes], list[Struct]]:
    return msgspec.json.Decoder(cast("type[list[Struct]]", GenericAlias(list, (cls,)))).decode


#: The repair of the Structs of a type: all members of that type share it, so a type may be recursive.
struct_repair = cache(StructRepair)


def begins(raw: Raw, byte: bytes) -> bool:
    """Return whether *raw* begins with *byte*, which tells its JSON type."""
    return memoryview(raw)[:1] == byte


# --- members ----------------------------------------------------------------------------------------------------------


def _member(info: inspect.Field, repair: Repair) -> Repair:
    """Compile the reader of a member that is required, or whose default is not `None`."""
    empty = _empty(info.type)
    may_be_null = allows_null(info.type)
    missing = f"is missing; read as {'None' if empty is None else 'empty'}"

    def read_member(raw: Raw, place: Place, report: Report) -> object:
        is_missing, is_null = raw is _MISSING, begins(raw, b"n")
        if is_null and may_be_null and not is_missing:
            return None
        if not is_missing and (value := repair(raw, place, report)) is not None:
            return value
        if not info.required:
            if info.default_factory is not NODEFAULT:
                return info.default_factory()
            return UNSET if info.default is NODEFAULT else info.default  # `inspect` does not report `UNSET`.
        if place[0] == "$":
            raise DecodingError(f"the body has no usable {info.encode_name!r}")
        if is_null:
            report(place, None, missing)
        return empty  # A row without its id is still a row: it must not vanish from a walk.

    return read_member


def _empty(info: inspect.Type) -> str | None:
    """Return the value for a required member that is missing: an empty string if a string is allowed, or `None`."""
    return "" if any(isinstance(kind.type, inspect.StrType) for kind in alternatives(info)) else None


def _masked(repair: Repair) -> Repair:
    """Repair a credential, and mask it in the report."""

    def read_masked(raw: Raw, place: Place, report: Report) -> object:
        def report_masked(place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
            report(place, MASK, reason.replace("{}", kind_of(value)), dropped=dropped)

        return repair(raw, place, report_masked)

    return read_masked


def repair_of(kind: object, info: inspect.Type) -> Repair:
    """Compile the repair for *kind*, described by *info*; a type that the platform does not use is decoded exactly."""
    try:
        return repair_for(info)
    except TypeError:
        return _as_it_is(kind)


def repair_for(info: inspect.Type) -> Repair:
    """Compile the repair for a type.

    Raises:
        TypeError: The type cannot be repaired.
    """
    kinds = [alternative for alternative in alternatives(info) if not isinstance(alternative.type, inspect.NoneType)]
    if not kinds or not all(kind.marks.get("day") or _is_known(kind.type) for kind in kinds):
        raise TypeError(f"nobody knows how to repair {info}")
    structs = [kind.type for kind in kinds if isinstance(kind.type, inspect.StructType)]
    # Only a tag says which Struct of several a value is. The platform has no such types: decode exactly, or drop.
    tagged = structs if len(structs) > 1 else []
    repairs = [
        day_repair(kind.type) if kind.marks.get("day") else _REPAIRS[type(kind.type)](kind.type)
        for kind in kinds
        if kind.type not in tagged
    ]
    repairs += [_as_it_is(reduce(or_, (kind.cls for kind in tagged)))] if tagged else []
    return _union(repairs) if len(repairs) > 1 else repairs[0]


def _is_known(kind: inspect.Type) -> bool:
    """Return whether values of *kind* can be repaired. A type with further rules is decoded exactly instead."""
    if isinstance(kind, inspect.EnumType):
        return issubclass(kind.cls, str)
    if isinstance(kind, inspect.DictType):
        return isinstance(next(alternatives(kind.value_type)).type, inspect.AnyType | inspect.CustomType)
    has_rules = kind != _NOT_EMPTY and any(getattr(kind, name, None) is not None for name in _RULES)
    return type(kind) in _REPAIRS and not has_rules


def _union(repairs: list[Repair]) -> Repair:
    """Repair a value of several types: the first that reads it without an anomaly, or else the first that reads it."""

    def read_union(raw: Raw, place: Place, report: Report) -> object:
        tries: list[tuple[object, list[Callable[[], None]]]] = []
        for repair in repairs:
            deferred: list[Callable[[], None]] = []
            tries.append((repair(raw, place, partial(_defer, deferred, report)), deferred))
        value, deferred = min(tries, key=lambda result: (result[0] is None, bool(result[1])))
        for report_now in deferred:
            report_now()
        return value

    return read_union


def _defer(deferred: list[Callable[[], None]], report: Report, *anomaly: object, dropped: bool = False) -> None:
    deferred.append(partial(report, *anomaly, dropped=dropped))


def _list(info: inspect.ListType | inspect.VarTupleType, make: type[list[object] | tuple[object, ...]]) -> Repair:
    if allows_null(info.item_type):
        raise TypeError("its entries may be null")
    item = repair_for(info.item_type)

    def read_list(raw: Raw, place: Place, report: Report) -> object:
        entries = _list_entries(raw, place, report, of_structs=isinstance(item, StructRepair))
        if entries is None:
            return None
        rows: list[object] = []
        if isinstance(item, StructRepair):
            for i in range(0, len(entries), MOST_AT_ONCE):
                rows += item.read(entries[i : i + MOST_AT_ONCE], place, report, i)
            return make(rows)
        for i, entry in enumerate(entries):
            if begins(entry, b"n"):
                report((place, i), None, "is not an entry; dropped", dropped=True)
            elif (row := item(entry, (place, i), report)) is not None:
                rows.append(row)
        return make(rows)

    return read_list


def _list_entries(raw: Raw, place: Place, report: Report, *, of_structs: bool) -> list[Raw] | None:
    """Return the entries of a value that should be a list; `None` if it cannot be read as a list."""
    if begins(raw, b"["):
        if of_structs and _NO_ROWS.match(raw):
            raise DecodingError(f"more than {MOST_MISSING:,} entries of its lists are malformed")
        return _entries(raw)
    value = read_untyped(raw)
    if of_structs and value and begins(raw, b"{"):
        entries = _numbered(raw)
        report(place, value, "an object with numbered members stands for its list" if entries else _OBJECT)
        return entries or [raw]
    if value is not None:
        report_mismatch(place, value, report, "expected a list, got {}; dropped", "stands for an empty list")
    return None


def _numbered(raw: Raw) -> list[Raw]:
    """Return the objects that an object holds under numbers, in their order; empty if it holds anything else.

    PHP writes a list with gaps like this.
    """
    members = _members_of(raw)
    if not all(_NUMBER.match(name) and begins(value, b"{") for name, value in members.items()):
        return []
    return [members[name] for name in sorted(members, key=int)]


def _as_it_is(kind: object) -> Repair:
    """Decode a value exactly, or drop it."""
    # In free-form data, a number that is too large for a float must not cost the data around it.
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
        report_mismatch(place, read_untyped(raw), report, reason)
        return None

    return read_as_it_is


#: Compiles the repair for each type.
_REPAIRS: dict[type, Callable[[Any], Repair]] = {
    **VALUE_REPAIRS,
    inspect.StructType: lambda info: _as_it_is(info.cls) if info.array_like else struct_repair(info.cls),
    inspect.VarTupleType: lambda info: _list(info, tuple),
    inspect.ListType: lambda info: _list(info, list),
    inspect.DictType: lambda _: _as_it_is(dict),
}
