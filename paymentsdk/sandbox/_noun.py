"""What the sandbox does for one noun of the API, as one value; its tests look at whatever it names.

A string that begins with ``refuse-`` in the member that the ``magic`` of a handler names asks for the rejection whose
code follows, with everything but letters and digits written as ``_``: an order with the ``external_reference``
``refuse-pos_not_found`` is rejected with ``pos_not_found``, a customer with the email ``refuse-129@example.com`` with
129. ``refuse-cancel-resource_locked`` in the reference of an order lets it be created, and refuses to cancel it; so do
``refuse-get-...`` and ``refuse-refund-...``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Struct

from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ANY_CODE, ErrorCode
from paymentsdk.errors import RequestInvalid
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._responses import Rejected, Shape, cause

B = TypeVar("B")
R = TypeVar("R")

_SERVER_ERRORS = 500
_DEMAND = re.compile(r"refuse-(?P<slug>[A-Za-z0-9_-]+?)(?:@.*)?\Z", re.DOTALL)


class MagicValue(Struct, frozen=True):
    """Where an operation looks for a magic value."""

    member: str
    """The member of its request; of the request that made the thing, if it is *later*."""
    later: bool = False
    """What it is asked to do is done to a thing that exists, which was told at its creation."""
    ending: str = ""
    """What the value ends with, to be one of the member."""

    def value_for(self, operation: Operation[B, object], error: ErrorCode) -> str:
        """Return the magic value that leads to *error*."""
        return f"refuse-{_prefix(operation) if self.later else ''}{_slug(error)}{self.ending}"


def requested_error(operation: Operation[B, object], text: object, *, later: bool = False) -> Rejected | None:
    """Return the rejection that *text* asks for: the magic member of a request, or of its thing if it is *later*."""
    match = _DEMAND.match(text) if isinstance(text, str) else None
    prefix = _prefix(operation) if later else ""
    if match is None or not match["slug"].startswith(prefix):
        return None
    slug = match["slug"].removeprefix(prefix)
    found = next((error for error in operation.errors if _slug(error) == slug), None)
    return None if found is None else Rejected(found.status, found.code)


def _prefix(operation: Operation[B, object]) -> str:
    return operation.name.partition(".")[2] + "-"


def _slug(error: ErrorCode) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", error.code)


def _general_code(operation: Operation[B, object], status: int, preferred: str = "bad_request") -> str:
    documented = [one.code for one in operation.errors if one.status == status and one.code != ANY_CODE]
    undocumented = "generic" if status >= _SERVER_ERRORS else "bad_request"
    return next((code for code in ("bad_request", preferred, *documented) if code in documented), undocumented)


def _only_code(operation: Operation[object, object], _: RequestInvalid) -> str:
    return _general_code(operation, 400)


@dataclass(frozen=True, kw_only=True)
class Handler(Generic[B, R]):
    """How one operation is handled."""

    operation: Operation[B, R]
    handle: Callable[[SellerContext, Call[B]], object]
    """Returns the body of the response: a Struct, or plain data where a Struct cannot say it. Raises ``Rejected``."""
    magic: MagicValue | None = None
    """Where a magic value is looked for; ``None`` where no member of the request could hold one."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """What leads to a documented code by itself."""


@dataclass(frozen=True, kw_only=True)
class Noun:
    """Everything that the sandbox declares about one noun, such as ``orders``."""

    handlers: Sequence[Handler[Any, Any]]
    causes: Mapping[str, str] = field(default_factory=dict)
    """What leads to a code by itself, for every operation of the noun that documents the code."""
    code_of: Callable[[Operation[object, object], RequestInvalid], str] = _only_code
    """Which code a broken rule leads to; by default, an operation has one code for whatever is wrong."""
    shape: Shape = cause
    """Writes the body of an error response."""
    schemas: Mapping[tuple[str, str], Mapping[str, object]] = field(default_factory=dict)
    """Rules that no type says, as JSON Schema: by the operation, or the Struct, and the name of the member."""
    required: Callable[[Policies], Mapping[str, Sequence[str]]] | None = None
    """Members that policies ask for, by the name of their Struct."""
    jobs: Mapping[str, Callable[[SellerContext, str], str | None]] = field(default_factory=dict)
    """What happens to the thing of an id when its moment has come; each says what it did, or ``None`` for nothing."""

    @property
    def name(self) -> str:
        """What the names of its operations begin with."""
        return self.handlers[0].operation.name.partition(".")[0]

    def reject(self, operation: Operation[object, object], error: RequestInvalid) -> Rejected:
        """Return the documented error of *operation* for a broken rule, naming the place."""
        place = error.path.removeprefix("$").lstrip(".") or "body"
        return Rejected(400, self.code_of(operation, error), details=(f"{place}: {error.reason}",))

    def general_code(self, operation: Operation[object, object], status: int) -> str:
        """Return the code of *status* that says the least about a request: documented ones before others."""
        # What is wrong in no place and no way has the code for everything else.
        return _general_code(operation, status, self.code_of(operation, RequestInvalid("$", "")))
