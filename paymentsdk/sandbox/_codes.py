"""The documented codes, and the ways to each: for people, and for the test that wants one for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ErrorCode
from paymentsdk.sandbox._handlers import HANDLERS, noun_of

B = TypeVar("B")

#: What leads to a code by itself, whatever the operation. Codes without a cause have none that a sandbox could know.
CAUSES: Mapping[str, str] = {
    "unauthorized": "no bearer token, or one that is unknown, revoked or has expired",
    "invalid_token": "no bearer token, or one that is unknown, revoked or has expired",
    "empty_required_header": "no X-Idempotency-Key",
    "invalid_idempotency_key_length": "an X-Idempotency-Key of more characters than `max_key_length`",
    "idempotency_key_already_used": "a key of the last 24 hours with another request",
    "resource_locked": "the policy concurrent_twin=locked, and a key that is in flight",
}


def magic_value(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return the magic value that leads to *error*; ``None`` where the operation has no member to hold it."""
    magic = HANDLERS[operation.name].magic
    return None if magic is None else magic.value_for(operation, error)


def cause_of(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return what leads to *error* by itself; ``None`` where nothing that a sandbox could know does."""
    causes = {**CAUSES, **noun_of(operation).causes, **HANDLERS[operation.name].causes}
    return causes.get(error.code)


def ways(operation: Operation[B, object], error: ErrorCode) -> tuple[str, ...]:
    """Return every way to be rejected with *error*."""
    magic = HANDLERS[operation.name].magic
    magically = None if magic is None else f"{magic.member}: {magic.value_for(operation, error)}"
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (cause_of(operation, error), magically, rule)))
