"""What the sandbox does for one noun of the API, as one value; its tests look at whatever it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from paymentsdk._operation.operation import Operation
from paymentsdk.errors import RequestInvalid
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._magic_values import MagicValue
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._responses import Shape, cause

B = TypeVar("B")
R = TypeVar("R")


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
    code_of: Callable[[Operation[object, object], RequestInvalid], str] | None = None
    """Which code a broken rule leads to; without it, an operation has one code for whatever is wrong."""
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
