"""What the sandbox does for one noun of the API, as one value that cannot be half declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import inspect

from paymentsdk._codec.type_walk import members_at
from paymentsdk._operation.operation import Operation
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._magic_values import MagicValue
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._responses import Shape, cause, structs_in

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
    """Everything that the sandbox declares about one noun, such as ``orders``.

    Raises:
        ValueError: An operation of the noun has no handler, or two; a magic value, a cause, a schema or a required
            member names something that the contract does not have.
    """

    name: str
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

    def __post_init__(self) -> None:
        declared = sorted(one.operation.name for one in self.handlers)
        expected = sorted(name for name in OPERATIONS if name.partition(".")[0] == self.name)
        if declared != expected or (self.name and not expected):
            raise ValueError(f"{self.name} needs one handler for each of {expected}, not for {declared}")
        if problem := next(self._misdeclared(), None):
            raise ValueError(f"{self.name}: {problem}")

    def _misdeclared(self) -> Iterator[str]:
        """Yield each name that stands for nothing in the contract."""
        operations = [one.operation for one in self.handlers]
        for one in self.handlers:
            # A value for later is told at the creation of the thing: by another operation.
            told = operations if one.magic and one.magic.later else [one.operation]
            if one.magic and not any(_takes(operation, one.magic.member) for operation in told):
                yield f"{one.operation.name} takes no {one.magic.member} that could hold a magic value"
            yield from (
                f"{one.operation.name} has no code {code}" for code in one.causes.keys() - one.operation.meanings
            )
        documented = {code for operation in operations for code in operation.meanings}
        yield from (f"no operation has the code {code}" for code in self.causes.keys() - documented)
        required = self.required(Policies()) if self.required else {}
        for of, member in [*self.schemas, *((of, member) for of, members in required.items() for member in members)]:
            if not any(member in _members_of(operation, of) for operation in operations):
                yield f"{of} has no member {member}"


def _takes(operation: Operation[Any, Any], path: str) -> bool:
    """Whether a request of *operation* can hold the member *path*, such as ``payer.token``."""
    if operation.body is None:
        return path in _members_of(operation, operation.name)
    return any(True for _ in members_at(inspect.type_info(operation.body), path))


def _members_of(operation: Operation[Any, Any], of: str) -> set[str]:
    """Return the parameters of *operation*, if it has the name *of*, or the members of its Struct of that name."""
    if of == operation.name:
        return {*operation.path_names, *(operation.query.__annotations__ if operation.query else ())}
    structs = structs_in([operation.body]) if operation.body else ()
    return {one.encode_name for struct in structs if struct.cls.__name__ == of for one in struct.fields}
