"""Files in TOML that a sandbox begins with; what is wrong in one is named with its line and key.

A seed file has sellers with their plans and webhooks, policies, faults and the clock.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
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


class InvalidFile(ValueError):  # noqa: N818 - it says what is wrong, as `RequestInvalid` does
    """A file cannot be used: the text names the file, the line and the key."""


class ClockSeed(ControlStruct):
    """Where the clock stands at first."""

    frozen_at: Moment | None = None
    """The moment that it is frozen at, with its offset."""
    frozen: bool = False
    """Whether it stands still as it is."""


class TenantSeed(TenantRequest):
    """A seller to make, with plans and webhooks."""

    plans: tuple[PlanRequest, ...] = ()
    """Their plans, beside the one that each seller has."""
    webhooks: tuple[WebhookRequest, ...] = ()
    """Where notifications about them are sent."""

    def options(self) -> dict[str, Any]:
        """Return what `Sandbox.create_tenant` makes the seller with."""
        options = {option.name: option.default for option in fields(TenantRequest)}
        return {name: value for name in options if (value := getattr(self, name)) not in (options[name], {})}


class Seed(ControlStruct):
    """A seed file."""

    policies: dict[str, object] = field(default_factory=dict)
    """Policies for every seller who has none of their own."""
    clock: ClockSeed = field(default_factory=ClockSeed)
    """Where the clock stands at first."""
    tenants: tuple[TenantSeed, ...] = ()
    """The sellers; the first is the one that a sandbox always has."""
    faults: tuple[FaultRule, ...] = ()
    """What goes wrong."""

    @property
    def first(self) -> Mapping[str, object]:
        """What the first seller is made with."""
        return self.tenants[0].options() if self.tenants else {}


class SeedFile:
    """A seed file, read and checked.

    Args:
        path: Its name; without one, nothing is in it.

    Raises:
        InvalidFile: It is no TOML, has an unknown key, or a value that may not be there.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path or ""
        self.seed: Seed = read_file(Seed, path) if path else Seed()
        """What is in it."""
        policies = [("$", self.seed.policies)]
        policies += [(f"$.tenants[{number}]", tenant.policies) for number, tenant in enumerate(self.seed.tenants)]
        for place, changes in policies:
            for name, value in changes.items():
                with blaming(self._path, f"{place}.policies.{name}", Policies.__struct_fields__):
                    Policies().merged({name: value})

    def plant(self, platform: Platform, first: Tenant, *, is_new: bool) -> None:
        """Put the faults in force, and in a new store make the sellers, whole or not at all; *first* is there already.

        Raises:
            InvalidFile: A value does not fit what is there, such as a fault of an unknown operation.
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
    """Return the file *path*, in TOML, as *form*.

    Raises:
        InvalidFile: It is no TOML, has an unknown key, or a value that may not be there.
        OSError: It cannot be read.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # Of TOML, with the line; or of UTF-8.
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
    """Raise what is rejected inside as an `InvalidFile` at *place* of the file *path*.

    If *names* are given, the last part of *place* has to be one of them.
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
    """Return the error of the file *path* about *place*; *names* are the keys that may stand there."""
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
    """Return the line that the part of a document begins at, or what it is missing in."""
    lines = text.splitlines(keepends=True)

    def read(end: int) -> tuple[int, object]:
        """Return what the first lines say, and how many they are: *end* or fewer, where a value goes on."""
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


def _has(value: object, parts: Sequence[str | int]) -> bool:
    for part in parts:
        try:
            value = cast("Any", value)[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
