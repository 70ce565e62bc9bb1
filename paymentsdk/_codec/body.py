"""A request's body as bytes, checked before anything is sent: amounts have two decimals or none, moments milliseconds.

A body is encoded once, so that every attempt sends the same bytes. Nearly every one is plain: just what its own bytes
would be read as. Whether it is, is checked first, by source that is written for its type and compiled. It says yes only
where every member is of exactly its declared class and keeps all of its constraints; whatever it does not know is not
plain. Any other is brought into the form that the wire wants, encoded, and decoded again with its own type: this runs
all constraints of all members in C, and gives the place and the rule of the first one that is broken. The platform's
own decoder in the sandbox is the same one, so both sides reject the same things with the same words.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from operator import is_
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_origin

import msgspec
from msgspec import UNSET, Struct, ValidationError, inspect
from msgspec.structs import fields

from paymentsdk import money
from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import read_day, timestamp
from paymentsdk._codec.type_walk import Check, Found, Marks, alternatives, below, compile_check, parts
from paymentsdk.errors import RequestInvalid

B = TypeVar("B")

#: Takes a member; returns it as the wire wants it, the very same object if nothing changes. It raises `RequestInvalid`
#: with the place below the member; each level puts its own in front, so that a good body pays for no text.
Step: TypeAlias = Callable[[object], object]

#: What brings a member of a Struct into its form: its name here, its place, and the step.
MemberStep: TypeAlias = tuple[str, str, Step]

#: Why the type of a body is rejected: amounts would go out that nobody has looked at.
_MISPLACED = "amounts and moments must be in Structs or lists, and in no union but with null"


class BodyEncoder(Generic[B]):
    """Checks and encodes the bodies of one operation.

    Raises:
        RequestInvalid: There are amounts or timestamps where nothing checks them.
    """

    def __init__(self, body: type[B], *, decimal_strings: bool) -> None:
        self._type = body
        self._class: type = get_origin(body) or body  # A generic Struct with its parameters is no class itself.
        self._on_wire: Step = _step(inspect.type_info(body)) or (lambda value: value)
        self._not_plain = _compile_plain(body)
        decimal_format: Literal["string", "number"] = "string" if decimal_strings else "number"
        self._encode = msgspec.json.Encoder(decimal_format=decimal_format, enc_hook=_plain_text).encode
        self._decode: Callable[[bytes], B] = msgspec.json.Decoder(body).decode
        if body is bytes:  # They go out as they are.
            self._encode = self._decode = cast("Any", bytes)

    def encode(self, body: B) -> bytes:
        """Return the bytes of *body*, which is left as it is.

        Raises:
            RequestInvalid: It breaks a rule; the error names the place and the rule.
        """
        if not isinstance(body, self._class):
            raise RequestInvalid("$", f"expected {self._type.__name__}, got {type(body).__name__}", "type")
        encoded = b""
        try:
            if self._not_plain(body) is None:
                return self._encode(body)
            on_wire = self._on_wire(body)
            encoded = self._encode(on_wire)
            read = self._decode(encoded)
            if read != body:
                _compare(on_wire, read)
        except ValidationError as error:
            failure = request_invalid(error, self._type)
        except RequestInvalid as error:
            failure = below("$", error)
        except (TypeError, ValueError, RecursionError) as error:
            failure = RequestInvalid("$", f"cannot be written as JSON: {error}")
        else:
            return encoded
        del encoded  # It may hold credentials, and a traceback can show variables.
        raise failure

    def decode(self, body: bytes) -> B:
        """Read a body as the platform does: for the sandbox.

        Raises:
            RequestInvalid: It breaks a rule.
            ValueError: It is not JSON.
        """
        try:
            value = self._decode(body)
        except ValidationError as error:
            raise request_invalid(error, self._type) from None
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        try:
            self._on_wire(value)  # It rejects what the decoder lets through, such as an amount of three decimals.
        except RequestInvalid as error:
            raise below("$", error) from None
        return value


def _compare(given: object, read: object) -> None:
    """Reject what the encoder has written in a form of its own: `bytes` as base64, a UUID as text, NaN as null.

    And a Struct that stands in the place of another.

    Raises:
        RequestInvalid: There is such a member; its place is below *given*.
    """
    members: Iterable[tuple[str, object, object]] = ()
    match read:
        case str() if not isinstance(given, str | Enum):
            raise RequestInvalid("", f"expected text, got {type(given).__name__}")
        case None if isinstance(given, float):
            raise RequestInvalid("", f"{given} is not a JSON number")
        case Struct() if isinstance(given, Struct) and not isinstance(given, type(read)):
            # The platform would read what the two have in common, and nothing of the rest.
            raise RequestInvalid("", f"expected {type(read).__name__}, got {type(given).__name__}")
        case Struct() if isinstance(given, Struct):
            members = ((f".{f.encode_name}", getattr(given, f.name), getattr(read, f.name)) for f in fields(read))
        case Struct() if isinstance(given, Mapping):
            names = {f.encode_name: f.name for f in fields(read)}
            members = ((f".{key}", value, getattr(read, names[key])) for key, value in given.items() if key in names)
        case list() | tuple() if isinstance(given, list | tuple):
            members = ((f"[{i}]", *pair) for i, pair in enumerate(zip(given, read, strict=True)))
        case dict() if isinstance(given, Mapping):
            # Free-form data: a moment or a UUID may well become a text here.
            pairs = ((key, value, read.get(str(key))) for key, value in given.items())
            members = ((f".{key}", value, member) for key, value, member in pairs if not isinstance(member, str))
        case dict() if isinstance(given, Struct):
            _compare({f.encode_name: getattr(given, f.name) for f in fields(given) if f.encode_name in read}, read)
    for place, before, after in members:
        try:
            _compare(before, after)
        except RequestInvalid as error:
            raise below(place, error) from None


def _plain_text(value: object) -> str:
    """Return the text of a subclass of `str`, such as a credential: msgspec itself writes none."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"there is no form for {type(value).__name__}")


# --- the form on the wire ---------------------------------------------------------------------------------------------


def _step(info: inspect.Type) -> Step | None:
    """Compile the wire form of a type, or `None` where msgspec's own form is right."""
    found = [one for one in alternatives(info) if not isinstance(one.type, inspect.NoneType)]
    steps = [step for one in found if (step := _step_of(one.type, one.marks)) is not None]
    if steps and len(found) > 1:
        raise RequestInvalid("$", _MISPLACED)
    return steps[0] if steps else None


def _step_of(info: inspect.Type, marks: Marks) -> Step | None:
    """Compile the wire form of a type that is no union and not null."""
    match info:
        case _ if marks.get("day"):
            return _day
        case inspect.DecimalType():
            return _amount(above_zero="above" in marks)
        case inspect.DateTimeType():
            return timestamp
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            step = _step(item)
            return None if step is None else _list_step(step)
        case inspect.StructType(cls=cls, fields=members):
            found = ((one.name, f".{one.encode_name}", _step(one.type)) for one in members)
            steps = [(name, place, step) for name, place, step in found if step is not None]
            return _struct_step(get_origin(cls) or cls, steps) if steps else None
        case _ if any(_step(part) is not None for _, part in parts(info)):
            raise RequestInvalid("$", _MISPLACED)
        case _:
            return None


def _amount(*, above_zero: bool) -> Step:
    least = "must be above 0" if above_zero else "an amount is not negative"

    def step(value: object) -> object:
        try:
            amount = money.exact(value)
        except ValueError as error:
            raise RequestInvalid("", str(error)) from None
        if amount.is_signed() or (above_zero and not amount):  # "-0.00" is an odd thing to send.
            raise RequestInvalid("", least)
        return amount

    return step


def _day(value: object) -> str:
    """Return a date as it is, and a moment as `timestamp` does; either may be text, as in a body that was read."""
    if isinstance(value, str):
        try:
            value = read_day(value)
        except ValueError:
            raise RequestInvalid("", "is neither a date such as 2026-01-31 nor a moment with its offset") from None
    return date.isoformat(value) if isinstance(value, date) and not isinstance(value, datetime) else timestamp(value)


def _list_step(step: Step) -> Step:
    def walk(value: object) -> object:
        if isinstance(value, set | frozenset):
            # It is written as a list is, so the decoder would take it.
            raise RequestInvalid("", f"expected a list, got {type(value).__name__}")
        if not isinstance(value, list | tuple):
            return value  # The decoder says what is wrong with it.
        on_wire: list[object] = []
        for i, item in enumerate(value):
            try:
                on_wire.append(item if item is None else step(item))
            except RequestInvalid as error:
                raise below(f"[{i}]", error) from None
        return value if all(map(is_, on_wire, value)) else on_wire

    return walk


def _struct_step(cls: type, steps: Sequence[MemberStep]) -> Step:
    def walk(value: object) -> object:
        if not isinstance(value, cls):
            raise RequestInvalid("", f"expected {cls.__name__}, got {type(value).__name__}")
        on_wire: Struct | None = None
        for name, place, step in steps:
            member = getattr(value, name)
            try:
                changed = member if member is None or member is UNSET else step(member)
            except RequestInvalid as error:
                raise below(place, error) from None
            if changed is not member:
                on_wire = copy.copy(cast("Struct", value)) if on_wire is None else on_wire
                # Past the checks of the type: a moment is text from here on.
                msgspec.structs.force_setattr(on_wire, name, changed)
        return value if on_wire is None else on_wire

    return walk


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

    def not_plain(found: Found, value: str) -> str:
        return " or ".join(_not_plain(found.type, value, names))

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
        case inspect.LiteralType(values=values) if all(isinstance(one, str) for one in values):
            yield f"{value}.__class__ is not str and not isinstance({value}, StrEnum)"
            yield f"{value} not in {_named(frozenset(values), names)}"
        case _:
            yield "True"


def _lengths(info: inspect.StrType | inspect.ListType, value: str) -> Iterator[str]:
    if info.min_length:
        yield f"len({value}) < {info.min_length}"
    if info.max_length is not None:
        yield f"len({value}) > {info.max_length}"


def _named(thing: object, names: dict[str, object]) -> str:
    """Give *thing* a name in the source."""
    name = f"n{len(names)}"
    names[name] = thing
    return name
