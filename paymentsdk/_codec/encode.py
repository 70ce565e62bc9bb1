"""A request's query and path as text, checked before sending, and the errors of a rejected request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from operator import index
from typing import SupportsIndex, TypeAlias, cast
from uuid import UUID

import msgspec
from msgspec import ValidationError, inspect

from paymentsdk._codec.amounts import MOST_PLACES, is_sound
from paymentsdk._codec.timestamps import timestamp
from paymentsdk._codec.type_walk import MOMENTS, below, walk
from paymentsdk._validate import plain_moment
from paymentsdk.errors import RequestInvalid

#: Not compiled here, at every import: only a rejected body needs these two patterns and `_RULES`.
_RULE = r"\(\?#(?P<rule>[^)]*)\)"
_PLACE = r"(?s)(?P<reason>.*) - at `(?P<path>[^`]*)`\Z"
#: A value in a path: an id as text, a whole number (also of another library), or a UUID.
PathValue: TypeAlias = str | SupportsIndex | UUID
_SAFE_IN_PATH = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*\Z")


#: Each rule by the beginning of msgspec's message, which is always in English. Only this file parses the messages.
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
    """Convert msgspec's *error*, and move the place out of its text.

    If a value of an enum in *body* is wrong, the text lists the allowed values.
    """
    match = re.match(_PLACE, str(error))
    path, reason = (match["path"], match["reason"]) if match else ("$", str(error))
    cause = error.__cause__
    if isinstance(cause, RequestInvalid):
        # A rule across members: msgspec knows the Struct, and the rule knows the member.
        return RequestInvalid(path + cause.path.removeprefix("$"), cause.reason, cause.rule)
    rule = next((rule for beginning, rule in _RULES.items() if re.match(beginning, reason)), "value")
    if reason.startswith("Expected `str` matching regex"):
        reason = rule_of(reason) or reason
    if body is not None and reason.startswith("Invalid enum value") and (values := choices(body, path)):
        reason += f": must be one of {', '.join(map(str, values))}"
    return RequestInvalid(path, reason, rule)


def choices(body: type, path: str) -> tuple[object, ...]:
    """Return the allowed values at *path* of a *body*; an empty tuple if any value of its type is allowed."""
    place = re.sub(r"\[[^]]*\]", "[]", path.removeprefix("$"))
    members = (member for member in walk(inspect.type_info(body)) if member.path.replace("{}", "[]") == place)
    return next((values for member in members if (values := getattr(member.type, "values", ()))), ())


def rule_of(pattern: str) -> str | None:
    """Return the rule of *pattern* in words: patterns of members have it in a comment, `(?#must begin with dev_)`."""
    match = re.search(_RULE, pattern)
    return match and match["rule"]


class QueryEncoder:
    """Checks and encodes the filters of one search."""

    def __init__(self, filters: type | None) -> None:
        self._filters = filters
        self._names = frozenset(getattr(filters, "__annotations__", ()))

    def encode(self, filters: Mapping[str, object]) -> str:
        """Return *filters* as a query string, without filters that are `None`.

        A filter is a text, a boolean, a number, a moment with its offset, a date, a time, a UUID, or an Enum of one of
        them. Numbers are written without an exponent.

        Raises:
            RequestInvalid: A filter is unknown or empty, or its value is of the wrong type or out of bounds.
        """
        if not isinstance(filters, Mapping):
            raise RequestInvalid("$query", f"must be a mapping of filters, not {type(filters).__name__}")
        values = {name: _plain(value) for name, value in filters.items() if value is not None}
        for name in values:
            if name not in self._names:
                names = ", ".join(sorted(self._names)) or "none"
                raise RequestInvalid(f"$query.{name}", f"is not a filter of this search; its filters are: {names}")
        # First, since msgspec rejects a text that is invalid in UTF-8 without naming its place.
        text = "&".join(f"{name}={_quoted(name, value)}" for name, value in values.items())
        if self._filters is not None:  # Also without filters, since one may be required.
            try:
                msgspec.convert(values, self._filters, builtin_types=MOMENTS)
            except ValidationError as error:
                failure = request_invalid(error)
                raise RequestInvalid(failure.path.replace("$", "$query", 1), failure.reason, failure.rule) from None
        return text


def _plain(value: object) -> object:
    """Convert a moment or a whole number of another library to a type that msgspec knows, and a UUID to text."""
    if isinstance(value, datetime):
        return plain_moment(value) or value
    if not isinstance(value, str | int) and (text := _id_text(value)) is not None:
        return text if isinstance(value, UUID) else int(text)
    return value


def _id_text(value: object) -> str | None:
    """Return a whole number, such as a numpy number, or a UUID as text; `None` for anything else, such as a bool."""
    try:
        return None if isinstance(value, bool) else str(value if isinstance(value, UUID) else index(cast("int", value)))
    except (TypeError, ValueError):  # Not a whole number, or a number with thousands of digits.
        return None


def _quoted(name: str, value: object) -> str:
    from urllib.parse import quote  # only searches need it

    try:
        text = quote(query_text(value), safe="")
    except RequestInvalid as error:
        raise below(f"$query.{name}", error) from None
    except UnicodeEncodeError:
        raise RequestInvalid(f"$query.{name}", "has a character that UTF-8 cannot hold") from None
    if not text:
        raise RequestInvalid(f"$query.{name}", "is empty, which finds everything: leave it out")
    return text


def query_text(value: object) -> str:
    """Return *value* as text for a query."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return timestamp(value)
        case str():
            return str.__str__(value)  # `str(value)` of an Enum returns its name.
        case int():
            return int.__repr__(value)
        case Enum():
            return query_text(value.value)
        case float():
            return query_text(Decimal(float.__repr__(value)))
        case Decimal():
            if not is_sound(value):
                raise RequestInvalid("", f"must be a finite number of at most {MOST_PLACES} digits, not {value}")
            return f"{value:f}"
        case date():
            return date.isoformat(value)
        case time():
            return time.isoformat(value)
        case _:
            if (text := _id_text(value)) is not None:
                return text
            raise RequestInvalid("", f"expected a text, number, date, UUID or Enum, got {type(value).__name__}", "type")


def fill_path(template: str, names: tuple[str, ...], values: dict[str, PathValue]) -> str:
    """Put *values* into the placeholders of *template*; whole numbers and UUIDs are converted to text.

    Raises:
        RequestInvalid: A value is missing or unknown, or would change the path that it is put into (`..`, `/`, `?`).
    """
    for name in values:
        if name not in names:  # For example a misspelt option.
            raise RequestInvalid(name, "is not an argument of this operation")
    for name in names:
        if name not in values:
            raise RequestInvalid(f"$path.{name}", "is missing: the path has to be complete")
        value = values[name]
        if not isinstance(value, str):
            if (text := _id_text(value)) is None:
                reason = f"expected a text, a whole number or a UUID, got {type(value).__name__}"
                raise RequestInvalid(f"$path.{name}", reason)
            values[name] = value = text
        # Nearly every id has only letters and digits, and that check is faster.
        if not (value.isalnum() and value.isascii()) and not _SAFE_IN_PATH.match(value):
            raise RequestInvalid(f"$path.{name}", "an id has only letters, digits, '-', '_', '.' and '~'")
        template = template.replace("{" + name + "}", value)
    return template
