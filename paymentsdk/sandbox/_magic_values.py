"""Magic values: a request that says which response it wants.

A string that begins with ``refuse-`` in the member that the ``magic`` of a handler names asks for the rejection whose
code follows, with everything but letters and digits written as ``_``: an order with the ``external_reference``
``refuse-pos_not_found`` is rejected with ``pos_not_found``, a customer with the email ``refuse-129@example.com`` with
129. ``refuse-cancel-resource_locked`` in the reference of an order lets it be created, and refuses to cancel it; so do
``refuse-get-...`` and ``refuse-refund-...``.
"""

from __future__ import annotations

import re
from typing import TypeVar

from msgspec import Struct

from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ErrorCode
from paymentsdk.sandbox._responses import Rejected

B = TypeVar("B")

_DEMAND = re.compile(r"refuse-(?P<slug>[A-Za-z0-9_-]+?)(?:@.*)?\Z", re.DOTALL)


class MagicValue(Struct, frozen=True):
    """Where an operation looks for a magic value."""

    member: str
    """The member of its request; of the request that made the thing, if it is *later*."""
    later: bool = False
    """What it is asked to do is done to a thing that exists, which was told at its creation."""
    ending: str = ""
    """What the value ends with, to be one of the member."""


def requested_error(operation: Operation[B, object], text: object, *, later: bool = False) -> Rejected | None:
    """Return the rejection that *text* asks for: the magic member of a request, or of its thing if it is *later*."""
    match = _DEMAND.match(text) if isinstance(text, str) else None
    prefix = _prefix(operation) if later else ""
    if match is None or not match["slug"].startswith(prefix):
        return None
    slug = match["slug"].removeprefix(prefix)
    found = next((error for error in operation.errors if _slug(error) == slug), None)
    return None if found is None else Rejected(found.status, found.code)


def value_for(operation: Operation[B, object], error: ErrorCode, magic: MagicValue) -> str:
    """Return the magic value that leads to *error*."""
    return f"refuse-{_prefix(operation) if magic.later else ''}{_slug(error)}{magic.ending}"


def _prefix(operation: Operation[B, object]) -> str:
    return operation.name.partition(".")[2] + "-"


def _slug(error: ErrorCode) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", error.code)
