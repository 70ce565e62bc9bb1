"""Bytes to Structs and back: requests as they are read, and responses and rejections as they are written.

Requests are checked by the same decoder as in the client, and rejected in the same words. No value that a client sends
gets further than this unless it has the type that the contract gives it.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from http import HTTPStatus
from typing import Any, NoReturn, TypeAlias, TypeVar, cast, dataclass_transform
from urllib.parse import parse_qsl

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, ValidationError, field, inspect
from msgspec.structs import fields

from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import DATE
from paymentsdk._codec.type_walk import (
    MemberType,
    Step,
    alternatives,
    below,
    compile_function,
    compile_step,
    walk,
)
from paymentsdk._contract.operation import MIB, Operation
from paymentsdk._paging.cursor import LARGEST_OFFSET
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import KeywordOnlyMeta

A = TypeVar("A", bound=Struct)
T = TypeVar("T")
AnyOperation = Operation[object, object]

#: Numbers with a fraction are kept exactly: as floats they could change on their way through.
read_json = msgspec.json.Decoder(float_hook=Decimal).decode
write_json = msgspec.json.Encoder(decimal_format="number").encode
_write_texts = msgspec.json.Encoder(decimal_format="string").encode

#: Bytes of the longest body that is read, and what is said to a longer one.
MAX_BODY = MIB
TOO_LARGE = f"the body is larger than {MAX_BODY // MIB} MiB"

#: Deeper than any body of the contract, and far from the depth at which a decoder runs out of stack.
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1
_FORM = "application/x-www-form-urlencoded"

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: Only a body with this, or one that is nested, can hold what `_check_plain` rejects.
_SUSPICIOUS = re.compile(rb"\\u|[0-9]{19}")
_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{2})?\Z")
#: An amount is written with two decimals or none; a JSON number may come with one.
_TENTH = Decimal("0.1")
#: Days of which a part, at some offset, is no moment in UTC.
_ENDS_OF_TIME = ("0001-01-01", "9999-12-31")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class ControlStruct(Struct, metaclass=KeywordOnlyMeta, frozen=True, forbid_unknown_fields=True):
    """Base of what the control API takes, which rejects members that it does not know."""


# --- requests ----------------------------------------------------------------------------------------------------


def read_body(operation: AnyOperation, body: bytes, content_type: str, *, form: bool = False) -> object:
    """Return *body* as the operation's Struct, or ``None`` where it has none. What says nothing of its type is JSON.

    With *form*, a body may also be a form (`application/x-www-form-urlencoded`).

    Raises:
        RequestInvalid: It breaks a rule, or says that it is something other than JSON.
    """
    if operation.body is bytes:
        return body
    if operation.encoder is None and not operation.keyed:
        return None
    kind = content_type.lower()
    if form and kind == _FORM:
        parameters = parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
        _once_each(parameters)
        kind, body = "", msgspec.json.encode(dict(parameters))
    if kind and not kind.endswith(("/json", "+json")) and body.strip():
        raise RequestInvalid("$", f"JSON is malformed: the content type is {kind!r}", "syntax")
    if operation.encoder is None:
        _check_empty(body)
        return None
    if not body.strip():
        if operation.body_required:
            raise RequestInvalid("$", "Expected `object`, got no body", "object")
        body = b"{}"
    with _reading():
        raw = read_json(body)
        if _SUSPICIOUS.search(body) or body.count(b"{") + body.count(b"[") >= MAX_DEPTH:
            _check_plain(raw, MAX_DEPTH)
        if not operation.authenticated:
            json.loads(body, object_pairs_hook=_once_each)
        return operation.encoder.read(
            _decoder_form(cast("Hashable", operation.body), decimal_strings=operation.decimal_strings)(raw)
        )


@contextmanager
def _reading() -> Iterator[None]:
    """Raise whatever a request that is read inside makes go wrong as a `RequestInvalid`."""
    try:
        yield
    except ValidationError as error:
        raise request_invalid(error) from None
    except RequestInvalid:
        raise
    except (ValueError, ArithmeticError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        default = "it is nested too deeply" if deep else "a number or a string is out of range"
        reason = str(error).removeprefix("JSON is malformed: ") if isinstance(error, msgspec.DecodeError) else default
        raise RequestInvalid("$", f"JSON is malformed: {reason}", "syntax") from None


def _once_each(members: Sequence[tuple[str, object]]) -> None:
    """Reject a parameter of the token endpoint that is given twice: which of them counts, nobody could say."""
    names: set[str] = set()
    for name, _ in members:
        if name in names:
            raise RequestInvalid(f"$.{name}", "is given twice")
        names.add(name)


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
    texts = {name: value for name, value in query.items() if value and name in operation.query.__annotations__}
    with _reading():
        for name, text in texts.items():
            _check_text(f"$.{name}", text)
        filters: Mapping[str, object] = msgspec.convert(texts, operation.query, strict=False)
        for name, value in filters.items():
            # Text may be read as seconds since 1970; no client means them.
            if isinstance(value, datetime) and not DATE.match(texts[name][:10]):
                raise RequestInvalid(f"$.{name}", "is not a moment such as 2026-01-31T09:30:00Z")
            if name in {"offset", "limit"} and isinstance(value, int) and value > LARGEST_OFFSET:
                raise RequestInvalid(f"$.{name}", "is out of range")
        _decoder_form(operation.query)({**texts})
    return filters


def read_command(form: type[T], body: bytes) -> T:
    """Return the *body* of a request to the control API, which has the form *form*; none is an empty object.

    Raises:
        RequestInvalid: It breaks a rule, or an amount is a text that is not written as one.
    """
    body = body.strip() or b"{}"
    with _reading():
        if isinstance(form, type) and issubclass(form, Struct):
            _decoder_form(form)(read_json(body))
        return msgspec.json.decode(body, type=form)


def unstorable(text: str) -> bool:
    """Whether *text* cannot be kept: it has half a character, or NUL."""
    return _UNSTORABLE.search(text) is not None


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
        match raw:
            case _ if depth == 0:
                _reject("is nested too deeply")
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
        raise below(place, error) from None


@cache
def _decoder_form(form: Hashable, *, decimal_strings: bool | None = None) -> Callable[[object], object]:
    """Return what brings data that was read from JSON into the form that the decoder of its type takes.

    What has another type is for the decoder to reject. An amount in another notation than *decimal_strings* asks for is
    rejected; `None` allows both. A date without a time, which the contract asks for in places, becomes its first
    moment, UTC. ``2.0`` becomes the integer that it is in JSON: languages with one kind of number write it so.
    """

    def leaf(member: MemberType) -> Step | None:
        match member.type:
            case _ if member.marks.get("day"):
                return _read_day
            case inspect.DateTimeType():
                return _check_moment
            case inspect.DecimalType():
                return partial(_check_amount, decimal_strings=decimal_strings)
            case inspect.IntType():
                return _whole_number
            case inspect.StructType(cls=cls) if not issubclass(cls, ControlStruct):
                # The SDK fills it in, so the contract requires it; the control API fills in its own.
                required = [field.encode_name for field in member.type.fields if field.default_factory is not NODEFAULT]
                return partial(_require_members, required) if required else None
            case _:
                return None

    step = compile_step(inspect.type_info(form), leaf) or (lambda data: data)

    def read(data: object) -> object:
        try:
            return step(data)
        except RequestInvalid as error:
            raise below("$", error) from None

    return read


def _require_members(names: Sequence[str], value: object) -> object:
    if isinstance(value, dict):
        for name in names:
            if name not in value:
                raise RequestInvalid("", f"Object missing required field `{name}`", "required")
    return value


def _whole_number(value: object) -> object:
    is_whole = isinstance(value, Decimal) and abs(value) <= _LARGEST_INTEGER and value == value.to_integral_value()
    return int(cast("Decimal", value)) if is_whole else value


def _check_amount(value: object, *, decimal_strings: bool | None) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return value
    if decimal_strings is not None and isinstance(value, str) is not decimal_strings:
        expected, got = ("decimal string", "number") if decimal_strings else ("number", "str")
        raise RequestInvalid("", f"Expected `{expected}`, got `{got}`", "type")
    # Python itself reads "5_0", " 50" and digits of other scripts as numbers.
    if isinstance(value, str) and not _AMOUNT.match(value):
        raise RequestInvalid("", "an amount is written in digits, with two decimals or none")
    return value


def _read_day(value: object) -> object:
    return f"{value}T00:00:00Z" if isinstance(value, str) and DATE.match(value) else _check_moment(value)


def _check_moment(value: object) -> object:
    """Reject a moment that has no place in UTC, such as some of the first day of the year 1."""
    if isinstance(value, str) and value.startswith(_ENDS_OF_TIME):
        try:
            datetime.fromisoformat(value).astimezone(UTC)
        except OverflowError:
            raise RequestInvalid("", "is out of range") from None
        except ValueError:
            pass  # The decoder says what is wrong with it.
    return value


# --- responses ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Rejected(Exception):  # noqa: N818 - it says what happened
    """The platform says no."""

    status: int
    """The HTTP status."""
    code: str
    """The platform's code."""
    message: str = ""
    """What a person reads; by default what the contract says about *code*."""
    _: KW_ONLY
    details: tuple[str, ...] = ()
    """The places in the request that break the rule."""
    retry_after: int | None = None
    """Seconds to wait."""

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, (self.status, self.code, self.message, *self.details))))


#: How a member is sent: its name, that on the wire, whether also as null, and its form if it has one.
_Member: TypeAlias = tuple[str, str, bool, Callable[[object], object] | None]
#: Writes the body of a rejection, which is sent with a message.
Shape: TypeAlias = Callable[[Rejected, str], Mapping[str, object]]


def wire_form(value: object) -> object:
    """Return *value* as plain data: moments in UTC with milliseconds, days without a time if they have none.

    A member that is ``None`` is left out, unless its Struct has no default for it, or `UNSET`: then it is sent as null.
    """
    kind: type = type(value)
    return _writer(kind)(value)


@cache
def _writer(kind: type) -> Callable[[Any], object]:
    """Return what brings values of a class into their form on the wire."""
    if issubclass(kind, Struct):
        return _struct_writer(kind)
    if issubclass(kind, dict):
        return lambda value: {name: wire_form(member) for name, member in value.items()}
    if issubclass(kind, list | tuple):
        return lambda value: [wire_form(item) for item in value]
    if issubclass(kind, datetime):
        return lambda value: value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _write_amount if issubclass(kind, Decimal) else lambda value: value


def _struct_writer(kind: type[Struct]) -> Callable[[Any], object]:
    """Compile the writer of a Struct: most members are None, and the looking takes longer than the writing."""
    lines, scope = ["data = {}"], dict[str, object](UNSET=UNSET)
    for number, (attribute, name, always, form) in enumerate(_members(kind)):
        if form is not None:
            scope[f"form{number}"] = form
        lines += [
            f"member = value.{attribute}",
            f"if member is not UNSET{'' if always else ' and member is not None'}:",
            f"    data[{name!r}] = " + ("member" if form is None else f"form{number}(member)"),
        ]
    return compile_function("value", [*lines, "return data"], scope)


def _write_amount(value: Decimal) -> Decimal:
    if not value.same_quantum(_TENTH):
        return value
    # Not by `quantize`, which goes by the decimal context of the program.
    return Decimal((value.is_signed(), (*value.as_tuple().digits, 0), -2))


#: What has another form on the wire, or holds what has.
_OTHERWISE = (
    inspect.StructType,
    inspect.DateTimeType,
    inspect.DecimalType,
    inspect.DictType,
    inspect.AnyType,
    inspect.CustomType,
)


def _members(form: type[Struct]) -> tuple[_Member, ...]:
    """Return how each member is sent."""
    members = [
        (member.name, member.encode_name, member.required or member.default is UNSET, _form_of(member.type))
        for member in fields(form)
    ]
    tag, tag_field = form.__struct_config__.tag, form.__struct_config__.tag_field
    return (*members, ("__class__", tag_field, True, lambda _: tag)) if tag_field else tuple(members)


def _form_of(kind: object) -> Callable[[object], object] | None:
    info = inspect.type_info(kind)
    if any(part.marks.get("day") for part in alternatives(info)):
        return _day
    return wire_form if any(isinstance(part.type, _OTHERWISE) for part in walk(info)) else None


def _day(value: object) -> object:
    """Return a day without a time, unless it is not the first moment of one."""
    text = wire_form(value)
    return text.removesuffix("T00:00:00.000Z") if isinstance(text, str) else text


def encode(value: object, *, decimal_strings: bool = False) -> bytes:
    """Return *value* as the bytes of a response."""
    return (_write_texts if decimal_strings else write_json)(wire_form(value))


def media_type(operation: Operation[object, object]) -> str:
    """Return what the body of a success is."""
    return "application/octet-stream" if operation.accept == "*/*" else operation.accept.partition(";")[0]


def phrase(status: int) -> str:
    """Return what *status* is called; a fault may ask for one that has no name."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else f"Status {status}"


def errors(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Write a list of errors."""
    details = {"details": rejected.details} if rejected.details else {}
    return {"errors": [{"code": rejected.code, "message": message, **details}]}


def cause(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Write a general error and its cause; so does each API that has no shape of its own."""
    data = {"data": ", ".join(rejected.details)} if rejected.details else {}
    entry = {"code": rejected.code, "description": message, **data}
    return {"message": message, "error": rejected.code, "status": rejected.status, "cause": [entry]}


#: The shapes that a policy can choose for all.
SHAPES: Mapping[str, Shape] = {
    "cause": cause,
    "errors": errors,
    "flat": lambda rejected, message: {"code": rejected.code, "message": message},
}


def structs_in(types: Iterable[type]) -> Iterable[inspect.StructType]:
    """Return *types* and every Struct inside them, each once."""
    parts = (part.type for kind in types for part in walk(inspect.type_info(kind)))
    return {part.cls: part for part in parts if isinstance(part, inspect.StructType)}.values()


def echo(body: Struct, form: type[A], **members: object) -> A:
    """Return the response Struct *form* with the members that it shares with the request *body*, and *members*."""
    shared = msgspec.to_builtins(body, builtin_types=(Decimal, datetime))
    response = msgspec.convert({**shared, **dict.fromkeys(members), "id": members.get("id", "")}, form)
    return msgspec.structs.replace(response, **members)
