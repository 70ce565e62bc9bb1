"""Read a rejection: one reader for every shape of error body. It accepts any bytes and never raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

import msgspec

from paymentsdk._codec.decode import replace_lone_surrogates
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import RetryClass, declared
from paymentsdk._headers import http_date
from paymentsdk._secrets import scrub
from paymentsdk.errors import APIError, ErrorDetail, ReauthorizationRequired, ServerError, error_class
from paymentsdk.transports.base import Response, header

B = TypeVar("B")
R = TypeVar("R")

#: The most bytes of a body that the error keeps.
RAW_LIMIT = 2048
_MESSAGE_LIMIT = 500
#: The most entries of an error, and lines of an entry: a body of 8 MiB can have a million.
_MOST_ENTRIES = 100
#: Members that hold the entries of an error, the most specific first.
_LISTS = ("errors", "cause", "causes", "ErrorCause", "error")
_MESSAGES = ("message", "error_description", "ErrorMessage", "description", "msg", "Message", "Description")
_CODES = ("code", "ErrorCode", "Code")
_OUTER_CODES = ("error", *_CODES)
#: A general code: another code of the same body, such as the sub-error of a grant, gives the reason.
_SAYS_LITTLE = "bad_request"
#: With one of these codes, each further refresh fails, too.
TERMINAL = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})


def parse_error_response(operation: Operation[B, R], response: Response, secrets: Iterable[str] = ()) -> APIError:
    """Return the error in *response*.

    Args:
        operation: The operation of the request. Its table gives the codes their meaning.
        response: A response outside 2xx.
        secrets: Credentials to mask if the response repeats them.
    """
    # A user's transport may return a view of its buffer, and `raw` must be picklable.
    parsed, body = read_scrubbed(bytes(response.body), tuple(secrets))
    members: dict[str, object] = parsed if isinstance(parsed, dict) else {"errors": parsed}
    lists = _lists(members)
    details = tuple(_details(lists[0] if lists else (), operation.meanings))
    code = next((detail.code for detail in details if detail.code), None) or _text(members, *_OUTER_CODES)
    # Every code in the body: a code that settles nothing may come before a code that says "in progress".
    parts = chain([members], *lists, [members.get("details")])
    all_codes = (_text(part, name) for part in parts for name in _OUTER_CODES)
    codes = tuple(dict.fromkeys(filter(None, (code, *all_codes))))
    if code == _SAYS_LITTLE:
        code = next((sub for sub in codes if sub != code and sub in operation.meanings), code)
    classes = (entry.raises for entry in declared(operation.errors, response.status, codes) if entry.raises is not None)
    cls = next(classes, None) or error_class(response.status, code)
    if operation.retry is RetryClass.TOKEN_REFRESH and code in TERMINAL and cls is not ServerError:
        cls = ReauthorizationRequired
    error = cls(
        response.status,
        code,
        _message(parsed, details, body) or _phrase(response.status),
        meaning=operation.meanings.get(code) if code else None,
        details=details,
        request_id=header(response.headers, "X-Request-Id"),
        retry_after=retry_after(response.headers),
        raw=body[:RAW_LIMIT],
    )
    error.codes = codes
    return error


def has_object(response: Response) -> bool:
    """Return whether an error response holds an object of the platform (`data.id`, or an `id` at the root).

    A failed payment still creates its order: the response to its creation is a 402 with that order.
    """
    parsed, _ = read_scrubbed(bytes(response.body), ())
    return isinstance(parsed, dict) and any(_text(part, "id") for part in (parsed, parsed.get("data")))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the platform asks to wait, 0 or more.

    It reads digits, or a date relative to the ``Date`` of the response: this machine's clock may be wrong.
    """
    text = (header(headers, "Retry-After") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text.lstrip("0")[:9] or 0)
    until, sent = http_date(text), http_date(header(headers, "Date"))
    return None if until is None or sent is None else max(0.0, (until - sent).total_seconds())


def read_scrubbed(body: bytes, secrets: Sequence[str]) -> tuple[object, bytes]:
    """Return the value of the JSON in *body* (``None`` without JSON), and the body itself, both without *secrets*."""
    body = scrub(body, secrets)
    try:
        parsed = msgspec.json.decode(replace_lone_surrogates(body)[0])
        # A secret may contain JSON escapes. The new encoding has only the necessary escapes.
        written = msgspec.json.encode(parsed)
        scrubbed = scrub(written, secrets)
        return (parsed, body) if scrubbed == written else (msgspec.json.decode(scrubbed), scrubbed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, body


def _lists(members: Mapping[str, object]) -> list[list[object]]:
    """Return the lists of entries in a body, the most specific first."""
    values = [members.get(name) for name in _LISTS]
    if isinstance(fields := members.get("details"), list):
        # `{code, message, details: [{field, message}]}`: the entries are about fields, the code is outside of them.
        values.append(fields)
    return [_entries(value)[:_MOST_ENTRIES] for value in values if value and isinstance(value, list | dict)]


def _entries(value: list[object] | dict[str, object]) -> list[object]:
    """Return the entries of a list. PHP writes a list with gaps as an object with numbered members."""
    if isinstance(value, list):
        return value
    return [*value.values()] if all(map(str.isdigit, value)) else [value]


def _details(entries: Iterable[object], meanings: Mapping[str, str]) -> Iterable[ErrorDetail]:
    for entry in entries:
        if isinstance(entry, dict):
            code = _text(entry, *_CODES)
            yield ErrorDetail(
                code=code,
                message=_text(entry, *_MESSAGES),
                meaning=meanings.get(code) if code else None,
                details=tuple(islice(_lines(entry), _MOST_ENTRIES)),
            )
        elif isinstance(entry, str | int | float) and not isinstance(entry, bool):
            yield ErrorDetail(message=str(entry)[:_MESSAGE_LIMIT])


def _lines(entry: Mapping[str, object]) -> Iterable[str]:
    """Yield the further lines of an entry: strings unchanged, objects as ``name: text`` pairs."""
    if "field" in entry:
        yield _plain(entry["field"])[:_MESSAGE_LIMIT]
    lines = entry.get("details") or entry.get("data") or ()
    for line in lines if isinstance(lines, list | tuple) else (lines,):
        if isinstance(line, dict):
            yield ", ".join(f"{name}: {_plain(value)}" for name, value in line.items())[:_MESSAGE_LIMIT]
        else:
            yield _plain(line)[:_MESSAGE_LIMIT]


def _plain(value: object) -> str:
    """Return *value* as text: a string unchanged, a nested value as JSON, with a limit on the depth."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "..."


def _message(parsed: object, details: tuple[ErrorDetail, ...], body: bytes) -> str:
    if not isinstance(parsed, dict | list):
        return " ".join(body.decode("utf-8", "replace").split())[:_MESSAGE_LIMIT]
    first = next((detail.message for detail in details if detail.message), None)
    return _text(parsed, *_MESSAGES) or first or _text(parsed, "error") or ""


def _phrase(status: int) -> str:
    from http import HTTPStatus  # only a response without a message needs it

    return next((known.phrase for known in HTTPStatus if known == status), "no message")


def _text(entry: object, *names: str) -> str | None:
    """Return the first of *names* in *entry* that holds a text or a number, otherwise ``None``."""
    if not isinstance(entry, dict):
        return None
    for name in names:
        value = entry.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)[:_MESSAGE_LIMIT]
    return None
