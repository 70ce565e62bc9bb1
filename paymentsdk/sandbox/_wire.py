"""Bytes to Structs and back: reads requests, and writes responses and rejections.

Requests are checked by the client's decoder, and rejected with the same messages. A value gets past this file only if
it has the type that the contract gives it.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache, partial
from http import HTTPStatus
from typing import Any, NoReturn, TypeAlias, TypeVar, cast, dataclass_transform
from urllib.parse import parse_qsl

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, ValidationError, field, inspect
from msgspec.structs import fields

from paymentsdk._codec.encode import request_invalid
from paymentsdk._codec.timestamps import DATE
from paymentsdk._codec.type_walk import MemberType, Step, alternatives, below, compile_function, compile_step, walk
from paymentsdk._contract.operation import MIB, Operation
from paymentsdk._paging.cursor import LARGEST_OFFSET
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import KeywordOnlyMeta

A = TypeVar("A", bound=Struct)
T = TypeVar("T")
AnyOperation = Operation[object, object]

#: Decimals keep fractions exact; floats could change them.
read_json = msgspec.json.Decoder(float_hook=Decimal).decode
write_json = msgspec.json.Encoder(decimal_format="number").encode
_write_texts = msgspec.json.Encoder(decimal_format="string").encode

#: Most bytes of a body, and the message for a larger one.
MAX_BODY = MIB
TOO_LARGE = f"the body is larger than {MAX_BODY // MIB} MiB"

#: Deeper than any body of the contract, and far below the depth that exhausts a decoder's stack.
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1
_FORM = "application/x-www-form-urlencoded"

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: A body needs one of these, or deep nesting, to contain something that `_check_plain` rejects. To find a long number,
#: all digits are written as 0: five times as fast as a regular expression.
_ESCAPE, _LONG_NUMBER, _AS_ZERO = b"\\u", b"0" * 19, bytes.maketrans(b"123456789", b"0" * 9)
_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{2})?\Z")
#: Amounts have two decimals or none. A JSON number may arrive with one.
_TENTH = Decimal("0.1")
#: Days that, at some offsets, are partly outside the range of moments in UTC.
_ENDS_OF_TIME = ("0001-01-01", "9999-12-31")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class ControlStruct(Struct, metaclass=KeywordOnlyMeta, frozen=True, forbid_unknown_fields=True):
    """The base of requests to the control API. It rejects unknown members."""


# --- requests ----------------------------------------------------------------------------------------------------


def read_body(operation: AnyOperation, body: bytes, content_type: str, *, form: bool = False) -> object:
    """Return *body* as the operation's Struct; ``None`` if the operation has no body.

    A body without a content type is read as JSON. With *form*, it may also be a form
    (`application/x-www-form-urlencoded`).

    Raises:
        RequestInvalid: The body breaks a rule, or its content type is not JSON.
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
        nesting = body.count(b"{") + body.count(b"[")
        if nesting >= MAX_DEPTH or _ESCAPE in body or _LONG_NUMBER in body.translate(_AS_ZERO):
            _check_plain(raw, MAX_DEPTH)
        if not operation.authenticated:
            json.loads(body, object_pairs_hook=_once_each)
        return operation.encoder.read(
            _decoder_form(cast("Hashable", operation.body), decimal_strings=operation.decimal_strings)(raw)
        )


@contextmanager
def _reading() -> Iterator[None]:
    """Raise errors in the request that is read inside the block as a `RequestInvalid`."""
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
    """Reject repeated parameters at the token endpoint, since it is unclear which value counts."""
    names: set[str] = set()
    for name, _ in members:
        if name in names:
            raise RequestInvalid(f"$.{name}", "is given twice")
        names.add(name)


class _Nothing(Struct, forbid_unknown_fields=True):
    """The body of an operation without a body: an object without members."""


def _check_empty(body: bytes) -> None:
    """Reject a *body* with members: they would be ignored, and the key would not cover them."""
    with _reading():
        msgspec.json.decode(body.strip() or b"{}", type=_Nothing)


def read_query(operation: AnyOperation, query: Mapping[str, str]) -> Mapping[str, object]:
    """Return the filters in *query*. Empty filters count as missing, and unknown ones are ignored.

    Raises:
        RequestInvalid: A filter breaks a rule.
    """
    if operation.query is None:
        return {}
    texts = {name: value for name, value in query.items() if value and name in operation.query.__annotations__}
    with _reading():
        for name, text in texts.items():
            _check_text(f"$.{name}", text)
        filters: Mapping[str, object] = msgspec.convert(texts, operation.query, strict=False)
        for name, value in filters.items():
            # msgspec reads a number as seconds since 1970, which no client means.
            if isinstance(value, datetime) and not DATE.match(texts[name][:10]):
                raise RequestInvalid(f"$.{name}", "is not a moment such as 2026-01-31T09:30:00Z")
            if name in {"offset", "limit"} and isinstance(value, int) and value > LARGEST_OFFSET:
                raise RequestInvalid(f"$.{name}", "is out of range")
        _decoder_form(operation.query)({**texts})
    return filters


def read_command(form: type[T], body: bytes) -> T:
    """Return the *body* of a request to the control API as *form*. An empty body is read as an empty object.

    Raises:
        RequestInvalid: The body breaks a rule, or an amount in it is not written as an amount.
    """
    body = body.strip() or b"{}"
    with _reading():
        if isinstance(form, type) and issubclass(form, Struct):
            _decoder_form(form)(read_json(body))
        return msgspec.json.decode(body, type=form)


def unstorable(text: str) -> bool:
    """Return whether *text* cannot be stored, because it has a lone surrogate or NUL."""
    return _UNSTORABLE.search(text) is not None


def _check_text(path: str, text: str) -> None:
    if unstorable(text):
        _reject("has a character that no string may have", path)


def _reject(reason: str, path: str = "") -> NoReturn:
    raise RequestInvalid(path, reason)


def _check_plain(raw: object, depth: int, place: str = "$") -> None:
    """Reject what no document should contain: NUL, integers of more than 64 bits, too deep nesting.

    *place* is the place of *raw* in its parent. After an error, each level adds its own place in front: building
    the path on the way down would copy long names for every entry below them.
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
    """Return a function that brings data from JSON into the form that the decoder of its type reads.

    Values of a wrong type pass, and the decoder rejects them. Amounts in another notation than *decimal_strings* are
    rejected; `None` allows both. A date without a time, which the contract has in places, becomes its first moment in
    UTC. ``2.0`` becomes an integer, since languages with one type of numbers write integers like this.
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
                # The SDK fills these members in, so the contract requires them. The control API has its own defaults.
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
    # Python itself would read "5_0", " 50" and digits of other scripts as numbers.
    if isinstance(value, str) and not _AMOUNT.match(value):
        raise RequestInvalid("", "an amount is written in digits, with two decimals or none")
    return value


def _read_day(value: object) -> object:
    return f"{value}T00:00:00Z" if isinstance(value, str) and DATE.match(value) else _check_moment(value)


def _check_moment(value: object) -> object:
    """Reject a moment that is out of range in UTC, such as some moments of the first day of the year 1."""
    if isinstance(value, str) and value.startswith(_ENDS_OF_TIME):
        try:
            datetime.fromisoformat(value).astimezone(UTC)
        except OverflowError:
            raise RequestInvalid("", "is out of range") from None
        except ValueError:
            pass  # The decoder rejects it with a message.
    return value


# --- responses ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Rejected(Exception):  # noqa: N818 - the name says what happened
    """The platform rejects a request."""

    status: int
    """The HTTP status."""
    code: str
    """The platform's code."""
    message: str = ""
    """The message for people; by default the meaning of *code* in the contract."""
    _: KW_ONLY
    details: tuple[str, ...] = ()
    """The places in the request that break the rule."""
    retry_after: int | None = None
    """Seconds to wait before a retry; `None` if not given."""

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, (self.status, self.code, self.message, *self.details))))


#: How a member is written: its name, its name on the wire, whether also as null, and a function for its value.
_Member: TypeAlias = tuple[str, str, bool, Callable[[object], object] | None]
#: Returns the body of a rejection with a message.
Shape: TypeAlias = Callable[[Rejected, str], Mapping[str, object]]


def wire_form(value: object) -> object:
    """Return *value* as plain data: moments in UTC with milliseconds, days without a time.

    A member that is ``None`` is left out. It is sent as null if its Struct has no default for it, or `UNSET`.
    """
    return _WRITERS[type(value)](value)


class _Writers(dict[type, Callable[[Any], object]]):
    """The functions that bring values into their form on the wire, by class."""

    def __missing__(self, kind: type) -> Callable[[Any], object]:
        self[kind] = write = _writer(kind)
        return write


_WRITERS = _Writers()


def _writer(kind: type) -> Callable[[Any], object]:
    """Return the function that brings values of a class into their form on the wire."""
    if issubclass(kind, Struct):
        return _struct_writer(kind)
    if issubclass(kind, dict):
        return lambda value: {name: _WRITERS[type(member)](member) for name, member in value.items()}
    if issubclass(kind, list | tuple):
        return lambda value: [_WRITERS[type(item)](item) for item in value]
    if issubclass(kind, datetime):
        return _write_moment
    return _write_amount if issubclass(kind, Decimal) else lambda value: value


def _struct_writer(kind: type[Struct]) -> Callable[[Any], object]:
    """Return a compiled writer for a Struct. Most members are None, and a loop over them would be slow."""
    lines, scope = ["data = {}"], dict[str, object](UNSET=UNSET, type=type, writers=_WRITERS)
    for number, (attribute, name, always, form) in enumerate(_members(kind)):
        written = "member" if form is None else f"form{number}(member)"
        if form is wire_form:
            written = "writers[type(member)](member)"
        elif form is not None:
            scope[f"form{number}"] = form
        lines += [
            f"member = value.{attribute}",
            f"if member is not UNSET{'' if always else ' and member is not None'}:",
            f"    data[{name!r}] = {written}",
        ]
    return compile_function("value", [*lines, "return data"], scope)


@lru_cache
def _write_moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_amount(value: Decimal) -> Decimal:
    if not value.same_quantum(_TENTH):
        return value
    # `quantize` would depend on the program's decimal context.
    return Decimal((value.is_signed(), (*value.as_tuple().digits, 0), -2))


#: The types with another form on the wire, and the types that can contain them.
_OTHERWISE = (
    inspect.StructType,
    inspect.DateTimeType,
    inspect.DecimalType,
    inspect.DictType,
    inspect.AnyType,
    inspect.CustomType,
)


def _members(form: type[Struct]) -> tuple[_Member, ...]:
    """Return how each member is written."""
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
    """Return a moment as a day without a time if it is the first moment of that day."""
    text = wire_form(value)
    return text.removesuffix("T00:00:00.000Z") if isinstance(text, str) else text


def encode(value: object, *, decimal_strings: bool = False) -> bytes:
    """Return *value* as the bytes of a response."""
    return (_write_texts if decimal_strings else write_json)(wire_form(value))


def media_type(operation: Operation[object, object]) -> str:
    """Return the media type of a successful response."""
    return "application/octet-stream" if operation.accept == "*/*" else operation.accept.partition(";")[0]


def phrase(status: int) -> str:
    """Return the reason phrase of *status*. A fault may use a status without one."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else f"Status {status}"


def errors(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Return the body with a list of errors."""
    details = {"details": rejected.details} if rejected.details else {}
    return {"errors": [{"code": rejected.code, "message": message, **details}]}


def cause(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Return the body with a general error and its cause, which is the default shape of an API."""
    data = {"data": ", ".join(rejected.details)} if rejected.details else {}
    entry = {"code": rejected.code, "description": message, **data}
    return {"message": message, "error": rejected.code, "status": rejected.status, "cause": [entry]}


#: The shapes that a policy can select for all APIs.
SHAPES: Mapping[str, Shape] = {
    "cause": cause,
    "errors": errors,
    "flat": lambda rejected, message: {"code": rejected.code, "message": message},
}


def structs_in(types: Iterable[type]) -> Iterable[inspect.StructType]:
    """Return *types* and all Structs inside them, each once."""
    parts = (part.type for kind in types for part in walk(inspect.type_info(kind)))
    return {part.cls: part for part in parts if isinstance(part, inspect.StructType)}.values()


def echo(body: Struct, form: type[A], **members: object) -> A:
    """Return a response of type *form* with *members*, and with the values of members that it shares with *body*."""
    shared = msgspec.to_builtins(body, builtin_types=(Decimal, datetime))
    response = msgspec.convert({**shared, **dict.fromkeys(members), "id": members.get("id", "")}, form)
    return msgspec.structs.replace(response, **members)
