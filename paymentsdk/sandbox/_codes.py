"""The documented codes: which of them an invalid request gets, and the ways to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ANY_CODE, ErrorCode
from paymentsdk.errors import RequestInvalid
from paymentsdk.sandbox import _magic_values
from paymentsdk.sandbox._handlers import HANDLERS, noun_of
from paymentsdk.sandbox._responses import Rejected

B = TypeVar("B")
_SERVER_ERRORS = 500

#: What leads to a code by itself, whatever the operation. Codes without a cause have none that a sandbox could know.
CAUSES: Mapping[str, str] = {
    "unauthorized": "no bearer token, or one that is unknown, revoked or has expired",
    "invalid_token": "no bearer token, or one that is unknown, revoked or has expired",
    "empty_required_header": "no X-Idempotency-Key",
    "invalid_idempotency_key_length": "an X-Idempotency-Key of more characters than `max_key_length`",
    "idempotency_key_already_used": "a key of the last 24 hours with another request",
    "resource_locked": "the policy concurrent_twin=locked, and a key that is in flight",
}


def reject(operation: Operation[object, object], error: RequestInvalid) -> Rejected:
    """Return the documented error of *operation* for a broken rule, naming the place."""
    code_of = noun_of(operation).code_of
    place = error.path.removeprefix("$").lstrip(".") or "body"
    code = code_of(operation, error) if code_of else general(operation, 400)
    return Rejected(400, code, details=(f"{place}: {error.reason}",))


def general(operation: Operation[object, object], status: int) -> str:
    """Return the code of *status* that says the least about a request: documented ones before others."""
    documented = [one.code for one in operation.errors if one.status == status and one.code != ANY_CODE]
    code_of = noun_of(operation).code_of
    # What is wrong in no place and no way has the code for everything else.
    rest = [code_of(operation, RequestInvalid("$", ""))] if code_of else []
    undocumented = "generic" if status >= _SERVER_ERRORS else "bad_request"
    return next((code for code in ("bad_request", *rest, *documented) if code in documented), undocumented)


def magic_value(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return the magic value that leads to *error*; ``None`` where the operation has no member to hold it."""
    magic = HANDLERS[operation.name].magic
    return None if magic is None else _magic_values.value_for(operation, error, magic)


def cause_of(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return what leads to *error* by itself; ``None`` where nothing that a sandbox could know does."""
    places = (HANDLERS[operation.name].causes, noun_of(operation).causes, CAUSES)
    return next((causes[error.code] for causes in places if error.code in causes), None)


def ways(operation: Operation[B, object], error: ErrorCode) -> tuple[str, ...]:
    """Return every way to be rejected with *error*: for people, and for the test that wants one for each."""
    magic = HANDLERS[operation.name].magic
    magically = None if magic is None else f"{magic.member}: {_magic_values.value_for(operation, error, magic)}"
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (cause_of(operation, error), magically, rule)))
