"""TOML files that a sandbox starts with. Errors name the file, the line and the key.

A seed file has sellers with their plans and webhooks, policies, faults and the clock.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import field, inspect
from msgspec.structs import fields

from paymentsdk._codec.encode import choices
from paymentsdk._codec.type_walk import walk
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import Moment
from paymentsdk.sandbox._faults import FaultRule
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import Tenant
from paymentsdk.sandbox._signers import WebhookRequest
from paymentsdk.sandbox._tenants import TenantRequest
from paymentsdk.sandbox._wire import ControlStruct, read_command

T = TypeVar("T")
_PART = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


class InvalidFile(ValueError):  # noqa: N818 - named like `RequestInvalid`
    """A file cannot be used. The text names the file, the line and the key."""


class ClockSeed(ControlStruct):
    """The clock at the start."""

    frozen_at: Moment | None = None
    """The moment to freeze the clock at, with its offset."""
    frozen: bool = False
    """Whether to freeze the clock at the current moment."""


class TenantSeed(TenantRequest):
    """A seller to create, with plans and webhooks."""

    plans: tuple[PlanRequest, ...] = ()
    """Plans in addition to the first plan of each seller."""
    webhooks: tuple[WebhookRequest, ...] = ()
    """Where notifications about the seller are sent."""

    def options(self) -> dict[str, Any]:
        """Return the options of `Sandbox.create_tenant` for the seller."""
        options = {option.name: option.default for option in fields(TenantRequest)}
        return {name: value for name in options if (value := getattr(self, name)) not in (options[name], {})}


class Seed(ControlStruct):
    """A seed file."""

    policies: dict[str, object] = field(default_factory=dict)
    """Policies for all sellers without their own."""
    clock: ClockSeed = field(default_factory=ClockSeed)
    """The clock at the start."""
    tenants: tuple[TenantSeed, ...] = ()
    """The sellers. The first entry describes the sandbox's first seller."""
    faults: tuple[FaultRule, ...] = ()
    """The faults in force at the start."""


class SeedFile:
    """A seed file, read and checked.

    Args:
        path: The path of the file; `None` for an empty seed.

    Raises:
        InvalidFile: The file is not TOML, or has an unknown key or an invalid value.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path or ""
        self.seed: Seed = read_file(Seed, path) if path else Seed()
        """The content of the file."""
        policies = [("$", self.seed.policies)]
        policies += [(f"$.tenants[{number}]", tenant.policies) for number, tenant in enumerate(self.seed.tenants)]
        for place, changes in policies:
            for name, value in changes.items():
                with blaming(self._path, f"{place}.policies.{name}", Policies.__struct_fields__):
                    Policies().merged({name: value})

    def plant(self, platform: Platform, first: Tenant, *, is_new: bool) -> None:
        """Add the faults and, in a new store, create all sellers in one transaction. *first* exists already.

        Raises:
            InvalidFile: A value does not fit the sandbox, such as a fault of an unknown operation.
        """
        for number, rule in enumerate(self.seed.faults):
            with blaming(self._path, f"$.faults[{number}]"):
                platform.faults.add(rule)
        with platform.store.transaction():
            for number, request in enumerate(self.seed.tenants if is_new else ()):
                with blaming(self._path, f"$.tenants[{number}]"):
                    tenant = platform.create_tenant(**request.options()) if number else first
                    for plan in request.plans:
                        platform.create_plan(plan, tenant)
                for place, webhook in enumerate(request.webhooks):
                    with blaming(self._path, f"$.tenants[{number}].webhooks[{place}]"):
                        platform.webhooks.add(webhook, tenant)


def read_file(form: type[T], path: str) -> T:
    """Return the content of the TOML file *path* as *form*.

    Raises:
        InvalidFile: The file is not TOML, or has an unknown key or an invalid value.
        OSError: The file cannot be read.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # An error of TOML, with its line, or of UTF-8.
        raise InvalidFile(f"{path}: {error}") from None
    try:
        return read_command(form, msgspec.json.encode(tables))
    except RequestInvalid as error:
        place = re.sub(r"\[[^]]+\]", "[]", error.path)
        names = (
            [member.encode_name for member in kind.type.fields]
            for kind in walk(inspect.type_info(form), "$")
            if kind.path == place and isinstance(kind.type, inspect.StructType)
        )
        values = choices(form, error.path) if error.reason.startswith("Invalid enum value") else ()
        hint = f"; it is one of {', '.join(map(str, values))}" if values else ""
        raise _invalid(path, error.path, error.reason + hint, next(names, ())) from None


@contextmanager
def blaming(path: str, place: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Raise rejections inside the block as an `InvalidFile` at *place* of the file *path*.

    If *names* are given, the last part of *place* must be one of them.
    """
    place, _, name = place.rpartition(".") if names else (place, "", "")
    if name and name not in names:
        raise _invalid(path, place, f"Object contains unknown field `{name}`", names)
    try:
        yield
    except RequestInvalid as error:
        raise _invalid(path, place + error.path.removeprefix("$"), error.reason) from None
    except ValueError as error:
        raise _invalid(path, f"{place}.{name}" if name else place, str(error)) from None


def _invalid(path: str, place: str, reason: str, names: Sequence[str] = ()) -> InvalidFile:
    """Return the error about *place* in the file *path*; *names* are the keys that are allowed there."""
    key = place.removeprefix("$").removeprefix(".")
    if unknown := _UNKNOWN.match(reason):
        place += f".{unknown[1]}"
        similar = get_close_matches(unknown[1], names, 1)
        hint = f'did you mean "{similar[0]}"?' if similar else f"its keys are {', '.join(names)}"
        reason = f'{key or "the file"} has no key "{unknown[1]}"; {hint}'
    else:
        reason = f"{key or 'the file'}: {reason}"
    parts = [int(number) if number else name for name, number in _PART.findall(place)]
    line = _line_of(Path(path).read_text(encoding="utf-8"), parts)
    return InvalidFile(f"{path}, line {line}: {reason}")


def _line_of(text: str, parts: Sequence[str | int]) -> int:
    """Return the line where a part of the document begins. For a missing part, the line of its parent."""
    lines = text.splitlines(keepends=True)

    def read(end: int) -> tuple[int, object]:
        """Return the content of the first *end* lines, or of fewer if a value continues, and the number of lines."""
        while True:
            try:
                return end, tomllib.loads("".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                end -= 1

    whole = read(len(lines))[1]
    while not _has(whole, parts):
        parts = parts[:-1]
    last = bisect_left(range(len(lines) + 1), 1, key=lambda end: _has(read(end)[1], parts))
    return read(max(last - 1, 0))[0] + 1


def _has(document: object, parts: Sequence[str | int]) -> bool:
    with suppress(KeyError, IndexError, TypeError):
        reduce(getitem, parts, cast("Any", document))
        return True
    return False
