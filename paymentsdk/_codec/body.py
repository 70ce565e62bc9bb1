"""A request body as bytes, checked before sending: amounts have two decimals or none, timestamps have milliseconds.

A body is encoded once, so that every attempt sends the same bytes. Nearly every body is *plain*: decoding its bytes
returns an equal body. A compiled check, written for the body's type, recognizes plain bodies first. It says yes only if
every member has exactly its declared class and keeps all of its constraints. An unknown type is not plain.

Any other body becomes dicts and lists. They are brought into the wire's form, encoded, and converted to the body's type
again. The conversion checks all constraints in C, and names the place and the rule of the first broken constraint. The
sandbox reads requests with the same conversion, so both sides reject the same bodies with the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast, get_origin
from uuid import UUID

import msgspec
from msgspec import ValidationError, inspect

from paymentsdk import money
from paymentsdk._codec.amounts import read_untyped
from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import read_day, timestamp
from paymentsdk._codec.type_walk import (
    Check,
    MemberType,
    Step,
    below,
    check_finite,
    compile_check,
    compile_step,
    is_free_form,
    walk,
)
from paymentsdk._validate import plain_moment, unfrozen
from paymentsdk.errors import RequestInvalid

B = TypeVar("B")

#: The JSON of a number that is not finite: msgspec writes a float as null, and a Decimal as its text.
_NOT_FINITE = (b"null", b"NaN", b"Infinity")
#: Deeper than any body of the contract. Without a limit, the interpreter's stack decides, which differs by version.
MAX_DEPTH = 64
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')


def _shallow(encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
    """Return *encode* for bodies with free-form data. It rejects a body that is nested too deeply."""

    def encode_shallow(body: object) -> bytes:
        encoded = encode(body)
        if encoded.count(b"{") + encoded.count(b"[") > MAX_DEPTH and _depth(encoded) > MAX_DEPTH:
            raise RequestInvalid("", _TOO_DEEP)
        return encoded

    return encode_shallow


def _depth(encoded: bytes) -> int:
    """Return how deeply JSON is nested."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(encoded):
        depth += (bracket in b"[{") - (bracket in b"]}")
        deepest = max(deepest, depth)
    return deepest


class BodyEncoder(Generic[B]):
    """Checks and encodes the bodies of one operation.

    Raises:
        RequestInvalid: The type of the body has amounts or timestamps in a tuple.
    """

    def __init__(self, body: type[B], *, decimal_strings: bool) -> None:
        self._type = body
        self._class: type = get_origin(body) or body  # A generic Struct with parameters is not a class itself.
        self._on_wire: Step = compile_step(inspect.type_info(body), _wire_step) or (lambda data: data)
        self._not_plain = _compile_plain(body)
        decimal_format: Literal["string", "number"] = "string" if decimal_strings else "number"
        self._encode = msgspec.json.Encoder(decimal_format=decimal_format, enc_hook=_standard).encode
        if body is bytes:  # Bytes are sent unchanged.
            self._encode = cast("Any", bytes)
        elif any(is_free_form(member.type) for member in walk(inspect.type_info(body))):
            self._encode = _shallow(self._encode)

    def encode(self, body: B) -> bytes:
        """Return the bytes of *body*, and leave *body* unchanged.

        Raises:
            RequestInvalid: The body breaks a rule. The error names the place and the rule.
        """
        if not isinstance(body, self._class):
            raise RequestInvalid("$", f"expected {self._type.__name__}, got {type(body).__name__}", "type")
        data, encoded = None, b""
        try:
            if self._not_plain(body) is None:
                return self._encode(body)
            data = self._on_wire(_to_data(body))
            encoded = self._encode(data)
            if any(text in encoded for text in _NOT_FINITE):
                check_finite(data)
            msgspec.convert(data, self._type)
        except ValidationError as error:
            failure = request_invalid(error, self._type)
        except RequestInvalid as error:
            failure = below("$", error)
        except RecursionError:
            failure = RequestInvalid("$", _TOO_DEEP)
        except (TypeError, ValueError) as error:
            failure = RequestInvalid("$", f"cannot be written as JSON: {error}")
        else:
            return encoded
        del data, encoded  # They may hold credentials, which a traceback can show (CONTRIBUTING: frames).
        raise failure

    def decode(self, body: bytes) -> B:
        """Read the bytes of a body as the platform does.

        Raises:
            RequestInvalid: The body breaks a rule.
            ValueError: The bytes are not JSON.
        """
        try:
            return self.read(read_untyped(body))
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None

    def read(self, data: object) -> B:
        """Convert *data*, which was read from JSON, to a body.

        Raises:
            RequestInvalid: The body breaks a rule.
        """
        try:
            body = msgspec.convert(data, self._type)
            if self._not_plain(body) is not None:
                self._on_wire(_to_data(body))  # Rejects what the type allows, such as an amount with three decimals.
        except ValidationError as error:
            raise request_invalid(error, self._type) from None
        except RequestInvalid as error:
            raise below("$", error) from None
        return body


# --- the form on the wire ---------------------------------------------------------------------------------------------

#: Types that plain data keeps: their step makes text of them, or no member accepts them.
_KEPT = (Decimal, unfrozen(datetime), unfrozen(date), time, timedelta, bytes, bytearray, UUID)


def _to_data(body: object) -> object:
    return msgspec.to_builtins(body, builtin_types=_KEPT, str_keys=True, enc_hook=_standard)


def _standard(value: object) -> object:
    """Convert a text, an amount or a moment of a subclass to the class that msgspec knows."""
    standard: object = None
    match value:
        case str():
            standard = str.__str__(value)
        case Decimal():
            standard = Decimal(value)
        case datetime():
            standard = plain_moment(value)
        case date():
            standard = date.isoformat(value)
        case _:
            pass
    if standard is None:
        expected = "expected a moment, got" if isinstance(value, datetime) else "no JSON form for"
        raise TypeError(f"{expected} {type(value).__name__}")
    return standard


def _wire_step(member: MemberType) -> Step | None:
    """Return the step that brings a member's values into the wire's form; `None` if msgspec writes that form."""
    if member.marks.get("day"):
        return _day
    match member.type:
        case inspect.DecimalType():
            return partial(_amount, above_zero="above" in member.marks)
        case inspect.DateTimeType():
            return timestamp
        case _:
            return None


def _amount(value: object, *, above_zero: bool) -> object:
    try:
        amount = money.exact(value)
    except ValueError as error:
        raise RequestInvalid("", str(error)) from None
    if amount.is_signed() or (above_zero and not amount):  # "-0.00" is rejected, too.
        raise RequestInvalid("", "must be above 0" if above_zero else "must not be negative")
    return amount


def _day(value: object) -> str:
    """Return a date unchanged, and a moment as `timestamp` does; both may be text, as in a body that was read."""
    if isinstance(value, str):
        try:
            value = read_day(value)
        except ValueError:
            raise RequestInvalid("", "is neither a date such as 2026-01-31 nor a moment with its offset") from None
    return date.isoformat(value) if isinstance(value, date) and not isinstance(value, datetime) else timestamp(value)


# --- whether a body is plain ------------------------------------------------------------------------------------------

#: The names that the source uses.
_NAMES: dict[str, object] = {
    "Decimal": Decimal,
    "StrEnum": StrEnum,
    "cents": Decimal("0.01"),
    "one": Decimal(1),
    "zero": money.ZERO,
    "most": Decimal(10**money.MOST_DIGITS),
}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _compile_plain(kind: type) -> Check:
    """Compile a check that names a member of a *kind* that is not plain."""
    names = dict(_NAMES)

    def not_plain(member: MemberType, value: str) -> str:
        return " or ".join(_not_plain(member.type, value, names))

    return compile_check(kind, not_plain, names)


def _not_plain(info: inspect.Type, value: str, names: dict[str, object]) -> Iterator[str]:
    """Yield the source of each condition under which a *value* of *info* is not plain.

    A value whose type is a union of several types never counts as plain. The slow way finds out which type it has.
    """
    match info:
        case inspect.StructType(cls=cls):
            yield f"{value}.__class__ is not {_named(get_origin(cls) or cls, names)}"
            if hasattr(cls, "__post_init__"):
                yield f"{value}.__post_init__()"  # The rules across the Struct's members; some of them are mutable.
        case inspect.ListType():
            yield f"{value}.__class__ is not list"
            yield from _lengths(info, value)
        case inspect.StrType(pattern=pattern):
            yield f"{value}.__class__ is not str"
            yield from _lengths(info, value)
            if pattern is not None:
                yield f"{_named(re.compile(pattern).search, names)}({value}) is None"
        case inspect.IntType(multiple_of=None):
            yield f"{value}.__class__ is not int"
            bounds = {sign: getattr(info, name) for name, sign in _BOUNDS.items()}
            yield from (f"not {value} {sign} {bound}" for sign, bound in bounds.items() if bound is not None)
        case inspect.DecimalType():
            # The wire's form: two decimals or none.
            yield f"{value}.__class__ is not Decimal"
            yield f"not ({value}.same_quantum(cents) or {value}.same_quantum(one))"
            yield f"not zero < {value} < most"
        case inspect.BoolType():
            yield f"{value}.__class__ is not bool"
        case inspect.LiteralType(values=values) if all(isinstance(choice, str) for choice in values):
            yield f"{value}.__class__ is not str and not isinstance({value}, StrEnum)"
            yield f"{value} not in {_named(frozenset(values), names)}"
        case _:
            yield "True"


def _lengths(info: inspect.StrType | inspect.ListType, value: str) -> Iterator[str]:
    if info.min_length:
        yield f"len({value}) < {info.min_length}"
    if info.max_length is not None:
        yield f"len({value}) > {info.max_length}"


def _named(value: object, names: dict[str, object]) -> str:
    """Give *value* a name for use in the source."""
    name = f"n{len(names)}"
    names[name] = value
    return name
