"""A request's body as bytes, checked before anything is sent: amounts have two decimals or none, moments milliseconds.

A body is encoded once, so that every attempt sends the same bytes. Nearly every one is plain: just what its own bytes
would be read as. Whether it is, is checked first, by source that is written for its type and compiled. It says yes only
where every member is of exactly its declared class and keeps all of its constraints; whatever it does not know is not
plain. Any other body becomes dicts and lists, which are brought into the form of the wire, encoded, and converted to
the body's type again. The conversion checks all constraints in C, and names the place and the rule of the first one
that is broken. The sandbox reads requests by the same conversion, so both sides reject the same things in the same
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from paymentsdk._codec.type_walk import Check, MemberType, Step, below, check_finite, compile_check, compile_step
from paymentsdk._validate import plain_moment, unfrozen
from paymentsdk.errors import RequestInvalid

B = TypeVar("B")

#: What JSON may hold where a number is not finite: msgspec writes a float as null, and a Decimal as its text.
_NOT_FINITE = (b"null", b"NaN", b"Infinity")


class BodyEncoder(Generic[B]):
    """Checks and encodes the bodies of one operation.

    Raises:
        RequestInvalid: There are amounts or timestamps in a tuple.
    """

    def __init__(self, body: type[B], *, decimal_strings: bool) -> None:
        self._type = body
        self._class: type = get_origin(body) or body  # A generic Struct with its parameters is no class itself.
        self._on_wire: Step = compile_step(inspect.type_info(body), _wire_step) or (lambda data: data)
        self._not_plain = _compile_plain(body)
        decimal_format: Literal["string", "number"] = "string" if decimal_strings else "number"
        self._encode = msgspec.json.Encoder(decimal_format=decimal_format, enc_hook=_standard).encode
        if body is bytes:  # They go out as they are.
            self._encode = cast("Any", bytes)

    def encode(self, body: B) -> bytes:
        """Return the bytes of *body*, which is left as it is.

        Raises:
            RequestInvalid: It breaks a rule; the error names the place and the rule.
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
        except (TypeError, ValueError, RecursionError) as error:
            failure = RequestInvalid("$", f"cannot be written as JSON: {error}")
        else:
            return encoded
        del data, encoded  # They may hold credentials, and a traceback can show variables.
        raise failure

    def decode(self, body: bytes) -> B:
        """Read a body as the platform does.

        Raises:
            RequestInvalid: It breaks a rule.
            ValueError: It is not JSON.
        """
        try:
            return self.read(read_untyped(body))
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None

    def read(self, data: object) -> B:
        """Return the body that *data* is, which was read from JSON.

        Raises:
            RequestInvalid: It breaks a rule.
        """
        try:
            body = msgspec.convert(data, self._type)
            self._on_wire(_to_data(body))  # It rejects what its type allows, such as an amount of three decimals.
        except ValidationError as error:
            raise request_invalid(error, self._type) from None
        except RequestInvalid as error:
            raise below("$", error) from None
        return body


# --- the form on the wire ---------------------------------------------------------------------------------------------

#: What stays as it is in plain data: its step makes text of it, or no member takes it.
_KEPT = (Decimal, unfrozen(datetime), unfrozen(date), time, timedelta, bytes, bytearray, UUID)


def _to_data(body: object) -> object:
    return msgspec.to_builtins(body, builtin_types=_KEPT, str_keys=True, enc_hook=_standard)


def _standard(value: object) -> object:
    """Return a text, an amount or a moment of a subclass as one of the class that msgspec knows."""
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
        expected = "expected a moment, got" if isinstance(value, datetime) else "there is no form for"
        raise TypeError(f"{expected} {type(value).__name__}")
    return standard


def _wire_step(member: MemberType) -> Step | None:
    """Return what brings values of a type into the form that the wire wants, if msgspec's own form is another."""
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
    if amount.is_signed() or (above_zero and not amount):  # "-0.00" is an odd thing to send.
        raise RequestInvalid("", "must be above 0" if above_zero else "an amount is not negative")
    return amount


def _day(value: object) -> str:
    """Return a date as it is, and a moment as `timestamp` does; either may be text, as in a body that was read."""
    if isinstance(value, str):
        try:
            value = read_day(value)
        except ValueError:
            raise RequestInvalid("", "is neither a date such as 2026-01-31 nor a moment with its offset") from None
    return date.isoformat(value) if isinstance(value, date) and not isinstance(value, datetime) else timestamp(value)


# --- whether a body is plain ------------------------------------------------------------------------------------------

#: What the source refers to.
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
    """Compile what names a member of a body of *kind* that is not plain."""
    names = dict(_NAMES)

    def not_plain(member: MemberType, value: str) -> str:
        return " or ".join(_not_plain(member.type, value, names))

    return compile_check(kind, not_plain, names)


def _not_plain(info: inspect.Type, value: str, names: dict[str, object]) -> Iterator[str]:
    """Yield the source of each thing that may be true of a *value* of *info* that is not plain.

    Of several types of a union, a value is never all, so it is not plain: which it is of, the long way finds out.
    """
    match info:
        case inspect.StructType(cls=cls):
            yield f"{value}.__class__ is not {_named(get_origin(cls) or cls, names)}"
            if hasattr(cls, "__post_init__"):
                yield f"{value}.__post_init__()"  # The rules across its members, some of which can be changed.
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
            # The form on the wire: two decimals or none.
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
    """Give *value* a name in the source."""
    name = f"n{len(names)}"
    names[name] = value
    return name
