"""The documented codes: which of them a request is refused with, and the ways to each, out of what the nouns say.

A key of ``NATURAL`` is an operation, or ``*``, which stands for anything (``orders.*``), and a code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from paymentsdk._core.operation import Operation
from paymentsdk._core.rules import ErrorCode
from paymentsdk.errors import RequestInvalid
from paymentsdk.sandbox import behaviours, magic
from paymentsdk.sandbox.answers import Refused

__all__ = ["NATURAL", "general", "magic_value", "natural", "refuse", "ways"]

B = TypeVar("B")

#: What leads to a refusal by itself. Codes that are not listed have no condition that a sandbox could know.
NATURAL: Mapping[tuple[str, str], str] = {
    ("*", "unauthorized"): "no bearer token, or one that is unknown, revoked or has expired",
    ("*", "invalid_token"): "no bearer token, or one that is unknown, revoked or has expired",
    ("*", "empty_required_header"): "no X-Idempotency-Key",
    ("*", "invalid_idempotency_key_length"): "an X-Idempotency-Key of more characters than `max_key_length`",
    ("*", "idempotency_key_already_used"): "a key of the last 24 hours with another request",
    ("*", "resource_locked"): "the policy concurrent_twin=locked, and a key that is in flight",
    **behaviours.NATURAL,
}


def refuse(operation: Operation[object, object], error: RequestInvalid) -> Refused:
    """Return the documented refusal of *operation* for a broken rule, naming the place."""
    code_of = behaviours.CODE_OF.get(operation.name)
    place = error.path.removeprefix("$").lstrip(".") or "body"
    code = code_of(operation, error) if code_of else general(operation, 400)
    return Refused(400, code, details=(f"{place}: {error.reason}",))


def general(operation: Operation[object, object], status: int) -> str:
    """Return the code of *status* that says the least about a request: documented ones before others."""
    documented = [one.code for one in operation.errors if one.status == status]
    code_of = behaviours.CODE_OF.get(operation.name)
    # What is wrong in no place and no way has the code for everything else.
    rest = [code_of(operation, RequestInvalid("$", ""))] if code_of else []
    undocumented = "generic" if status >= 500 else "bad_request"  # noqa: PLR2004
    return next((code for code in ("bad_request", *rest, *documented) if code in documented), undocumented)


def magic_value(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return the magic value that leads to *error*; ``None`` where the operation has no member to hold it."""
    where = behaviours.MAGIC.get(operation.name)
    return None if where is None else magic.value_for(operation, error, where)


def natural(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return what leads to *error* by itself; ``None`` where nothing that a sandbox could know does."""
    noun = operation.name.partition(".")[0]
    names = (operation.name, f"{noun}.*", "*")
    return next((NATURAL[name, error.code] for name in names if (name, error.code) in NATURAL), None)


def ways(operation: Operation[B, object], error: ErrorCode) -> tuple[str, ...]:
    """Return every way to be refused with *error*: for people, and for the test that wants one for each."""
    where = behaviours.MAGIC.get(operation.name)
    magically = None if where is None else f"{where.member}: {magic.value_for(operation, error, where)}"
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (natural(operation, error), magically, rule)))
