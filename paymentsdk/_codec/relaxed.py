"""Rows with malformed members, decoded in C but for these members.

What is malformed in one row is so in most. So rows are decoded as a Struct like theirs in which the members that were
malformed may be anything, and each of these is repaired. A row that this does not fit is repaired member by member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from types import GenericAlias
from typing import NamedTuple, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, Struct, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, Reports
from paymentsdk._codec.codegen import Check, compile_function

#: How the decoder names the first member of a row that it does not take, or what is below it; or one that is missing.
_PLACE = re.compile(r"(?:required field `(\w+)` - at )?`\$\[(?:\d+|\.\.\.)\](?:`|\.(\w+))")


class Member(NamedTuple):
    """A member of a row."""

    name: str
    """Its name in the Struct."""
    restore: Callable[..., object]
    """Returns its value, from what came and the place of the row, and reports what was wrong."""
    is_free: bool
    """Whether it holds free-form data."""


class RowType:
    """The rows of one kind.

    Args:
        cls: Their Struct.
        members: Its members, by their names in JSON.
        repair: Repairs a row, given as its bytes, member by member; `None` if nothing is left of it.
    """

    def __init__(self, cls: type[Struct], members: Mapping[str, Member], repair: Callable[..., object]) -> None:
        self.cls = cls
        self.members = members
        self.repair = repair

    def unusable(self, row: Struct) -> set[str]:
        """Return the members of *row*, or of one like it, with amounts that cannot be used."""
        values = {on_wire: getattr(row, member.name) for on_wire, member in self.members.items()}
        return {on_wire for on_wire, value in values.items() if value is not None and self._checks[on_wire](value)}

    @cached_property
    def _checks(self) -> Mapping[str, Check]:
        return {f.encode_name: amounts.compile_check(f.type) for f in structs.fields(self.cls)}


class RelaxedRows:
    """Decodes rows of one page, and repairs them where they need it.

    Args:
        kind: What the rows are.
        path: The place of the list.
        reports: Where to report what was repaired.
    """

    def __init__(self, kind: RowType, path: str, reports: Reports) -> None:
        self._kind = kind
        self._path = path
        self._report = reports.add
        # The relaxed decoder reads numbers as an amount needs them, not as free-form data has them.
        self._malformed = frozenset(on_wire for on_wire, member in kind.members.items() if member.is_free)

    def decode(self, first: int, piece: Sequence[Raw]) -> Sequence[object]:
        """Return the rows of *piece*, of which the first has the number *first*, without those that are no rows."""
        rows = self._read(piece)
        if rows is None and len(piece) == 1:
            row = self._kind.repair(bytes(piece[0]), (self._path, first), self._report)
            return [] if row is None else [row]
        if rows is None:
            return [row for number, raw in enumerate(piece, first) for row in self.decode(number, [raw])]
        return _relaxed(self._kind, self._malformed).restore(rows, self._path, first, self._report)

    def _read(self, piece: Sequence[Raw]) -> Sequence[Struct] | None:
        """Decode *piece* but for the members that are malformed; `None` if something else is."""
        body = b"[" + b",".join(piece) + b"]"
        while True:
            relaxed = _relaxed(self._kind, self._malformed)
            try:
                rows = relaxed.decode(body)
            except MALFORMED as error:
                found = _PLACE.search(str(error))
                malformed = {(found[1] or found[2] or "") if found else ""}
            else:
                unusable = next(filter(relaxed.unusable, rows), None)
                if unusable is None:
                    return rows
                malformed = self._kind.unusable(unusable) - self._malformed
            if not malformed or malformed & self._malformed or not malformed <= self._kind.members.keys():
                return None
            self._malformed |= malformed


class _Relaxed(NamedTuple):
    """How rows are read in which some members may be anything."""

    decode: Callable[[bytes], list[Struct]]
    unusable: Check
    """Says whether such a row has an amount that cannot be used, in another member."""
    restore: Callable[..., list[object]]
    """Makes the rows of such rows, the place of their list, the number of the first, and what takes reports."""


@lru_cache(maxsize=64)
def _relaxed(kind: RowType, malformed: frozenset[str]) -> _Relaxed:
    """Compile how rows of *kind* are read in which what is *malformed* may be anything."""
    members: list[tuple[str, object, object] | tuple[str, object]] = []
    values: list[str] = []
    scope: dict[str, object] = {"cls": kind.cls}
    for field in structs.fields(kind.cls):
        value = f"row.{field.name}"
        if field.encode_name in malformed:
            members.append((field.name, object, UNSET))
            scope[f"restore_{field.name}"] = kind.members[field.encode_name].restore
            value = f"restore_{field.name}({value}, place, report)"
        elif field.required:
            members.append((field.name, field.type))
        elif field.default_factory is not NODEFAULT:
            members.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            members.append((field.name, field.type, field.default))
        values.append(f"{field.name}={value}")
    names = dict(zip(kind.cls.__struct_fields__, kind.cls.__struct_encode_fields__, strict=True))
    relaxed = msgspec.defstruct(
        "Relaxed", cast("list[tuple[str, type]]", members), rename=names, kw_only=True, gc=False
    )
    lines = [
        "found = []",
        "for number, row in enumerate(rows, first):",
        "    place = path, number",
        f"    found.append(cls({', '.join(values)}))",
        "return found",
    ]
    rows = cast("type[list[Struct]]", GenericAlias(list, (relaxed,)))
    return _Relaxed(
        msgspec.json.Decoder(rows, float_hook=amounts.read_number).decode,
        amounts.compile_check(relaxed),
        cast("Callable[..., list[object]]", compile_function("rows, path, first, report", lines, scope)),
    )
