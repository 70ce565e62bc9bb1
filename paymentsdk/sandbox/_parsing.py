"""Requests as Structs: checked by the same decoder as in the client, and rejected in the same words.

No value that a client sends gets further than this unless it has the type that the contract gives it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from operator import is_
from typing import NoReturn, cast, dataclass_transform

import msgspec
from msgspec import Struct, ValidationError, field, inspect

from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import DATE
from paymentsdk._operation.operation import MIB, Operation
from paymentsdk._paging.options import LARGEST_OFFSET
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import KeywordOnlyMeta
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._responses import read_json, write_json

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


_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{2})?\Z")
#: The notations of an amount in JSON, and with them that of a decimal string.
_NUMBER = (int, Decimal)
_EITHER = (str, *_NUMBER)
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
        raw = read_json(body)
        _check_plain(raw, MAX_DEPTH)
        if not operation.authenticated:
            json.loads(body, object_pairs_hook=_once_each)
        normalized = _normalized(raw, _type_info(cast("type[Struct]", operation.body)), _wanted(operation, policies))
        # Written anew, free-form numbers could take another form.
        return operation.encoder.decode(body if normalized is raw else write_json(normalized))
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
        _check_moment(text, f"$.{name}")
    elif name in {"offset", "limit"} and isinstance(value, int) and value > LARGEST_OFFSET:
        raise RequestInvalid(f"$.{name}", "is out of range")


def check_amounts(form: type[Struct], body: bytes) -> None:
    """Reject a *body* of the control API in which an amount of *form* is a text that is not written as one.

    Raises:
        RequestInvalid: There is one.
        ValueError: It is not JSON.
        ArithmeticError: It has a number that is out of range.
    """
    _normalized(read_json(body), _type_info(form), _EITHER)


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
def _type_info(kind: type[Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _wanted(operation: AnyOperation, policies: Policies) -> tuple[type, ...]:
    """Return the notations in which amounts are taken."""
    if operation.decimal_strings:
        return (str,)
    return _NUMBER if policies.numbers_as_text == "refuse" else _EITHER


def _normalized(raw: object, info: inspect.Type, wanted: tuple[type, ...], path: str = "$") -> object:
    """Return *raw*, read along its type, as the decoder takes it: the very same object if nothing changes.

    What has another type is for the decoder to reject.

    An amount in a notation that is not *wanted* is rejected. A date without a time, which the contract asks for in
    places, becomes its first moment, UTC. ``2.0`` becomes the integer that it is in JSON: languages with one kind of
    number write it so.
    """
    match info, raw:
        case inspect.Metadata(extra={"day": True}), str() if DATE.match(raw):
            return f"{raw}T00:00:00Z"
        case inspect.Metadata(extra={"day": True}) | inspect.DateTimeType(), str() if raw.startswith(_ENDS_OF_TIME):
            _check_moment(raw, path)
        case inspect.Metadata(type=inner), _:
            return _normalized(raw, inner, wanted, path)
        case inspect.UnionType(types=types), _:
            for one in types:
                raw = _normalized(raw, one, wanted, path)
        case inspect.DecimalType(), str() | int() | Decimal() if not isinstance(raw, bool):
            _check_amount(raw, wanted, path)
        case inspect.IntType(), Decimal() if raw == raw.to_integral_value() and abs(raw) <= _LARGEST_INTEGER:
            return int(raw)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item), list():
            normalized = [_normalized(one, item, wanted, f"{path}[{i}]") for i, one in enumerate(raw)]
            return raw if all(map(is_, normalized, raw)) else normalized
        case inspect.StructType(), dict():
            return _normalized_members(raw, info, wanted, path)
        case _:
            pass
    return raw


def _normalized_members(
    raw: Mapping[str, object], info: inspect.StructType, wanted: tuple[type, ...], path: str
) -> Mapping[str, object]:
    normalized = {}
    for member in info.fields:
        name = member.encode_name
        if name in raw:
            normalized[name] = _normalized(raw[name], member.type, wanted, f"{path}.{name}")
        elif member.default_factory is not msgspec.NODEFAULT and not issubclass(info.cls, ControlStruct):
            # The SDK fills it in, so the contract requires it; the control API fills in its own.
            raise RequestInvalid(path, f"Object missing required field `{name}`", "required")
    return raw if all(value is raw[name] for name, value in normalized.items()) else {**raw, **normalized}


def _check_amount(raw: str | int | Decimal, wanted: tuple[type, ...], path: str) -> None:
    if not isinstance(raw, wanted):
        expected, got = ("decimal string", "number") if wanted == (str,) else ("number", "str")
        raise RequestInvalid(path, f"Expected `{expected}`, got `{got}`", "type")
    # Python itself reads "5_0", " 50" and digits of other scripts as numbers.
    if isinstance(raw, str) and not _AMOUNT.match(raw):
        raise RequestInvalid(path, "an amount is written in digits, with two decimals or none")


def _check_moment(raw: str, path: str) -> None:
    try:
        datetime.fromisoformat(raw).astimezone(UTC)
    except OverflowError:
        raise RequestInvalid(path, "is out of range") from None
    except ValueError:
        pass  # The decoder says what is wrong with it.
