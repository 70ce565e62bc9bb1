"""Requests as Structs: checked by the same decoder as in the client, and rejected in the same words.

No value that a client sends gets further than this unless it has the type that the contract gives it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from operator import is_
from typing import NoReturn, dataclass_transform

import msgspec
from msgspec import Struct, ValidationError, field, inspect

from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import DATE
from paymentsdk._operation.operation import MIB, Operation
from paymentsdk._paging.options import LARGEST_OFFSET
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import KeywordOnlyMeta
from paymentsdk.sandbox._policies import Policies

AnyOperation = Operation[object, object]

#: Bytes of the longest body that is read, and what is said to a longer one.
MAX_BODY = MIB
TOO_LARGE = f"the body is larger than {MAX_BODY // MIB} MiB"

#: Deeper than any body of the contract, and far from the depth at which a decoder runs out of stack.
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class ControlStruct(Struct, metaclass=KeywordOnlyMeta, frozen=True, forbid_unknown_fields=True):
    """Base of what the control API takes, which rejects members that it does not know."""


#: Takes what was read from JSON and its place; rejects it, returns it, or returns what it stands for.
Reader = Callable[[object, str], object]

#: Numbers with a fraction are kept exactly: as floats they could change on their way through.
_READ = msgspec.json.Decoder(float_hook=Decimal).decode
_WRITE = msgspec.json.Encoder(decimal_format="number").encode
_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{2})?\Z")
#: Days of which a part, at some offset, is no moment in UTC.
_ENDS_OF_TIME = ("0001-01-01", "9999-12-31")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def read_body(operation: AnyOperation, body: bytes, policies: Policies) -> object:
    """Return *body* as the operation's Struct, or ``None`` where it has none.

    Raises:
        RequestInvalid: It breaks a rule.
    """
    if operation.body is None or operation.encoder is None:
        if operation.keyed:
            _check_empty(body)
        return None
    if operation.body is bytes:
        return body
    if not body.strip():
        if operation.body_required:
            raise RequestInvalid("$", "Expected `object`, got no body", "object")
        body = b"{}"
    try:
        raw = _READ(body)
        _check_plain(raw, MAX_DEPTH)
        if not operation.authenticated:
            json.loads(body, object_pairs_hook=_once_each)
        strict = operation.decimal_strings or policies.numbers_as_text == "refuse"
        normalized = _reader(operation, strict=strict)(raw, "$")
        return operation.encoder.decode(body if normalized is raw else _WRITE(normalized))
    except RequestInvalid:
        raise
    except (ValueError, ArithmeticError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "a number or a string is out of range"
        reason = reason.removeprefix("JSON is malformed: ")
        raise RequestInvalid("$", f"JSON is malformed: {reason}", "syntax") from None


def _once_each(members: list[tuple[str, object]]) -> None:
    """Reject a parameter of the token endpoint that is given twice: which of them counts, nobody could say."""
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise RequestInvalid(f"$.{name}", "is given twice")
        seen.add(name)


class _Nothing(Struct, forbid_unknown_fields=True):
    """The body of an operation that takes none: no member at all."""


def _check_empty(body: bytes) -> None:
    """Reject a *body* that says something: it would be lost, and the key be taken for it."""
    try:
        msgspec.json.decode(body.strip() or b"{}", type=_Nothing)
    except ValidationError as error:
        raise request_invalid(error) from None
    except (ValueError, RecursionError):
        raise RequestInvalid("$", "JSON is malformed", "syntax") from None


def read_query(operation: AnyOperation, query: Mapping[str, str]) -> Mapping[str, object]:
    """Return the filters in *query*; empty ones count as not given, and unknown ones are not looked at.

    Raises:
        RequestInvalid: One breaks a rule.
    """
    if operation.query is None:
        return {}
    given = {name: value for name, value in query.items() if value and name in operation.query.__annotations__}
    try:
        for name, text in given.items():
            _check_text(f"$.{name}", text)
        known: Mapping[str, object] = msgspec.convert(given, operation.query, strict=False)
        for name, value in known.items():
            _check_value(name, given[name], value)
    except ValidationError as error:
        raise request_invalid(error) from None
    return known


def _check_value(name: str, text: str, value: object) -> None:
    """Reject a moment or a position that its type allows, and no search can go by."""
    if isinstance(value, datetime):
        # Text may be read as seconds since 1970; no client means them.
        if not _DAY.match(text):
            raise RequestInvalid(f"$.{name}", "is not a moment such as 2026-01-31T09:30:00Z")
        try:
            value.astimezone(UTC)
        except OverflowError:
            raise RequestInvalid(f"$.{name}", "is out of range") from None
    elif name in {"offset", "limit"} and isinstance(value, int) and value > LARGEST_OFFSET:
        raise RequestInvalid(f"$.{name}", "is out of range")


def check_amounts(form: type[Struct], body: bytes) -> None:
    """Reject a *body* of the control API in which an amount of *form* is a text that is not written as one.

    Raises:
        RequestInvalid: There is one.
        ValueError: It is not JSON.
        ArithmeticError: It has a number that is out of range.
    """
    _amounts(form)(_READ(body), "$")


@cache
def _amounts(form: type[Struct]) -> Reader:
    return _reader_of(inspect.type_info(form), (str, int, Decimal)) or _as_it_is


def unstorable(text: str) -> bool:
    """Whether *text* cannot be kept: it has half a character, or NUL."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def _check_text(path: str, text: str) -> None:
    if unstorable(text):
        _reject("has a character that no string may have", path)


def _reject(reason: str, path: str = "") -> NoReturn:
    raise RequestInvalid(path, reason)


def _check_plain(raw: object, depth: int, place: str = "$") -> None:
    """Reject what JSON can hold and no document should: NUL, integers of more than 64 bits, bottomless nesting.

    *place* is that of *raw* within what it is a part of. Each level puts its own in front once something is rejected: a
    path that grew on the way down would copy a long name for every entry below it.
    """
    try:
        if depth == 0:
            _reject("is nested too deeply")
        match raw:
            case dict():
                for name, member in raw.items():
                    _check_text("", name)
                    _check_plain(member, depth - 1, f".{name}")
            case list():
                for i, item in enumerate(raw):
                    _check_plain(item, depth - 1, f"[{i}]")
            case str():
                _check_text("", raw)
            case int() if abs(raw) > _LARGEST_INTEGER:
                _reject("is out of range")
            case _:
                pass
    except RequestInvalid as error:
        raise RequestInvalid(place + error.path, error.reason, error.rule) from None


@cache
def _reader(operation: AnyOperation, *, strict: bool) -> Reader:
    """Return what reads the raw body of *operation* along its type.

    With *strict*, an amount in the other notation is rejected: a number for a decimal string, or text for a number. A
    date without a time, which the contract asks for in places, becomes its first moment, UTC.
    """
    wanted = ((str,) if operation.decimal_strings else (int, Decimal)) if strict else (str, int, Decimal)
    return _reader_of(inspect.type_info(operation.body), wanted) or _as_it_is


def _as_it_is(raw: object, path: str) -> object:
    return raw


def _reader_of(info: inspect.Type, wanted: tuple[type, ...]) -> Reader | None:
    match info:
        case inspect.Metadata(extra={"day": True}):
            return _day_reader
        case inspect.Metadata(type=inner):
            return _reader_of(inner, wanted)
        case inspect.UnionType(types=types):
            return next(filter(None, (_reader_of(one, wanted) for one in types)), None)
        case inspect.DecimalType():
            return _amount_reader(wanted)
        case inspect.IntType():
            return _whole_reader
        case inspect.DateTimeType():
            return _moment_reader
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            found = _reader_of(item, wanted)
            return _list_reader(found) if found else None
        case inspect.StructType(cls=cls, fields=fields):
            members = {f.encode_name: found for f in fields if (found := _reader_of(f.type, wanted))}
            # A member that the SDK fills in is one that the contract requires; the control API fills in its own.
            filled_in = [f.encode_name for f in fields if f.default_factory is not msgspec.NODEFAULT]
            required = [] if issubclass(cls, ControlStruct) else filled_in
            return _struct_reader(members, required) if members or required else None
        case _:
            return None


def _amount_reader(wanted: tuple[type, ...]) -> Reader:
    names = "decimal string" if str in wanted else "number"

    def read(raw: object, path: str) -> object:
        # The decoder itself finds everything that is neither a number nor text.
        if isinstance(raw, str | int | Decimal) and not isinstance(raw, bool) and not isinstance(raw, wanted):
            got = "str" if isinstance(raw, str) else "number"
            raise RequestInvalid(path, f"Expected `{names}`, got `{got}`", "type")
        # Python itself reads "5_0", " 50" and digits of other scripts as numbers.
        if isinstance(raw, str) and not _AMOUNT.match(raw):
            raise RequestInvalid(path, "an amount is written in digits, with two decimals or none")
        return raw

    return read


def _whole_reader(raw: object, path: str) -> object:
    """Read ``2.0`` as the integer that it is in JSON: languages with one kind of number write it so."""
    if isinstance(raw, Decimal) and raw == raw.to_integral_value() and abs(raw) <= _LARGEST_INTEGER:
        return int(raw)
    return raw


def _day_reader(raw: object, path: str) -> object:
    if isinstance(raw, str) and DATE.match(raw):
        return f"{raw}T00:00:00Z"
    return _moment_reader(raw, path)


def _moment_reader(raw: object, path: str) -> object:
    try:
        if isinstance(raw, str) and raw.startswith(_ENDS_OF_TIME):
            datetime.fromisoformat(raw).astimezone(UTC)
    except OverflowError:
        raise RequestInvalid(path, "is out of range") from None
    except ValueError:
        pass  # The decoder says what is wrong with it.
    return raw


def _list_reader(inner: Reader) -> Reader:
    def read(raw: object, path: str) -> object:
        if not isinstance(raw, list):
            return raw
        normalized = [inner(item, f"{path}[{i}]") for i, item in enumerate(raw)]
        return raw if all(map(is_, normalized, raw)) else normalized

    return read


def _struct_reader(members: Mapping[str, Reader], required: Sequence[str]) -> Reader:
    def read(raw: object, path: str) -> object:
        if not isinstance(raw, dict):
            return raw
        for name in required:
            if name not in raw:
                raise RequestInvalid(path, f"Object missing required field `{name}`", "required")
        normalized = {name: members[name](raw[name], f"{path}.{name}") for name in members.keys() & raw.keys()}
        return raw if all(value is raw[name] for name, value in normalized.items()) else {**raw, **normalized}

    return read
