"""A request's body, query and path as bytes and text, checked before anything is sent.

A body is encoded once, so that every attempt sends the same bytes. A plain one, of which a compiled function knows that
it breaks no constraint, goes as it is; each other one is decoded again with its own type: this runs all constraints of
all members in C, and gives the place of the first one that is broken. The platform's own decoder in the sandbox is the
same one, so both sides reject the same things with the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, cast, get_origin

import msgspec
from msgspec import Struct, ValidationError
from msgspec.structs import fields

from paymentsdk._codec.timestamps import timestamp
from paymentsdk._codec.type_walk import below
from paymentsdk._secrets import Secret
from paymentsdk.errors import RequestInvalid

B = TypeVar("B")

#: Not compiled here, as at every import: only a body that is rejected needs these two, and `_RULES`.
_RULE = r"\(\?#(?P<rule>[^)]*)\)"
_PLACE = r"(?s)(?P<reason>.*) - at `(?P<path>[^`]*)`\Z"
_SAFE_IN_PATH = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*\Z")


class BodyEncoder(Generic[B]):
    """Checks and encodes the bodies of one operation."""

    def __init__(self, body: type[B], *, decimal_strings: bool) -> None:
        from paymentsdk._codec import wire_form  # only programs that write need it

        self._type = body
        self._class: type = get_origin(body) or body  # A generic Struct with its parameters is no class itself.
        self._on_wire = wire_form.compile_body(body)
        self._is_plain = wire_form.compile_plain(body)
        decimal_format: Literal["string", "number"] = "string" if decimal_strings else "number"
        self._encode = msgspec.json.Encoder(decimal_format=decimal_format, enc_hook=_in_clear).encode
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
            if self._is_plain(body):
                return self._encode(body)
            encoded = self._encode(self._on_wire(body))
            read = self._decode(encoded)
            if read != body:
                _compare(body, read)
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


def _in_clear(value: object) -> str:
    """Return the text of a credential: msgspec itself writes no subclass of `str`."""
    if isinstance(value, Secret):
        return str(value)
    raise TypeError(f"there is no form for {type(value).__name__}")


#: Each rule by how msgspec begins to say that it is broken: in English, and in no other way. Nothing else reads that.
_RULES = {
    r"JSON is malformed": "syntax",
    r"Object missing required field": "required",
    r"Object contains unknown field": "unknown",
    r"Invalid enum value": "choice",
    r"Expected `array` of length (>=|>)": "min_items",
    r"Expected `array` of length (<=|<)": "max_items",
    r"Expected `\w+` of length (>=|>)": "min_length",
    r"Expected `\w+` of length (<=|<)": "max_length",
    r"Expected `str` matching regex": "pattern",
    r"Expected `\w+` (>=|>)": "min",
    r"Expected `\w+` (<=|<)": "max",
    r"Expected `object.*, got ": "object",
    r"Expected .*, got ": "type",
}


def request_invalid(error: ValidationError, body: type | None = None) -> RequestInvalid:
    """Return msgspec's *error* as ours, with the place taken out of its text.

    If it was found in a *body*, it says which values there are, where only some may stand.
    """
    match = re.match(_PLACE, str(error))
    path, reason = (match["path"], match["reason"]) if match else ("$", str(error))
    cause = error.__cause__
    if isinstance(cause, RequestInvalid):
        # A rule across members: msgspec knows where the Struct is, the rule knows which member of it.
        return RequestInvalid(path + cause.path.removeprefix("$"), cause.reason, cause.rule)
    rule = next((rule for beginning, rule in _RULES.items() if re.match(beginning, reason)), "value")
    if reason.startswith("Expected `str` matching regex"):
        reason = rule_of(reason) or reason
    if body is not None and reason.startswith("Invalid enum value"):
        from paymentsdk._codec import wire_form

        if choices := wire_form.choices(body, path):
            reason += f": must be one of {', '.join(map(str, choices))}"
    return RequestInvalid(path, reason, rule)


def rule_of(pattern: str) -> str | None:
    """Return what *pattern* asks for: patterns of members say it in a comment such as `(?#must begin with dev_)`."""
    found = re.search(_RULE, pattern)
    return found and found["rule"]


class QueryEncoder:
    """Checks and encodes the filters of one search."""

    def __init__(self, filters: type | None) -> None:
        self._filters = filters
        self._names = frozenset(getattr(filters, "__annotations__", ()))

    def encode(self, filters: Mapping[str, object]) -> str:
        """Return *filters* as a query string, without those that are `None`.

        Raises:
            RequestInvalid: A filter is unknown or empty, or its value is of the wrong type or out of bounds.
        """
        if not isinstance(filters, Mapping):
            raise RequestInvalid("$query", f"must be a mapping of filters, not {type(filters).__name__}")
        given = {name: value for name, value in filters.items() if value is not None}
        for name, value in given.items():
            if name not in self._names:
                known = ", ".join(sorted(self._names)) or "none"
                raise RequestInvalid(f"$query.{name}", f"is not a filter of this search; its filters are: {known}")
            if value == "":
                raise RequestInvalid(f"$query.{name}", "is empty, which finds everything: leave it out")
        # First of all, since msgspec reads no text that UTF-8 cannot hold, and does not say where it stands.
        text = "&".join(f"{name}={_quoted(name, value)}" for name, value in given.items())
        if given:
            try:
                msgspec.convert(given, self._filters, builtin_types=(datetime,))
            except ValidationError as error:
                found = request_invalid(error)
                raise RequestInvalid(found.path.replace("$", "$query", 1), found.reason, found.rule) from None
        return text


def _quoted(name: str, value: object) -> str:
    from urllib.parse import quote  # only searches need it

    try:
        return quote(_query_text(value), safe="")
    except RequestInvalid as error:
        raise below(f"$query.{name}", error) from None
    except UnicodeEncodeError:
        raise RequestInvalid(f"$query.{name}", "has a character that UTF-8 cannot hold") from None


def _query_text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return timestamp(value)
        case str():
            return str.__str__(value)  # `str(value)` of an Enum is its name.
        case int():
            return int.__repr__(value)
        case _:
            return str(value)


def fill_path(template: str, names: tuple[str, ...], values: Mapping[str, str]) -> str:
    """Put *values* into the placeholders of *template*.

    Raises:
        RequestInvalid: A value is missing, unknown, or would change the path it stands in (`..`, `/`, `?`).
    """
    for name in values:
        if name not in names:  # Such as a misspelt option.
            raise RequestInvalid(name, "is not an argument of this operation")
    for name in names:
        if name not in values:
            raise RequestInvalid(f"$path.{name}", "is missing: the path has to be complete")
        value = values[name]
        if not isinstance(value, str):
            raise RequestInvalid(f"$path.{name}", f"expected an id as text, got {type(value).__name__}")
        # Nearly every id has letters and digits alone, which is seen faster.
        if not (value.isalnum() and value.isascii()) and not _SAFE_IN_PATH.match(value):
            raise RequestInvalid(f"$path.{name}", "an id has only letters, digits, '-', '_', '.' and '~'")
        template = template.replace("{" + name + "}", value)
    return template
