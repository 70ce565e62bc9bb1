"""Rows with malformed members, decoded in C but for these members.

What is malformed in one row is so in most. So rows are decoded as a Struct like theirs in which the members that were
malformed stay as they came (`Raw`); each of these is repaired, and what was made of a value is remembered for the page.
A row that this does not fit is repaired member by member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple, TypeAlias, cast

import msgspec
from msgspec import NODEFAULT, Raw, Struct, structs

from paymentsdk._codec.anomaly import MALFORMED, Anomaly, Reports

#: Repairs a row, given as its bytes, at its place; `None` if nothing is left of it.
RepairRow: TypeAlias = Callable[[bytes, str, list[Anomaly]], object]

#: How the decoder names the first member of a row that it does not take, or what is below it; or one that is missing.
_PLACE = re.compile(r"(?:required field `(\w+)` - at )?`\$\[(?:\d+|\.\.\.)\](?:`|\.(\w+))")
_NULL = b"null"
#: What may be handed out for several rows, since nobody can change it.
_IMMUTABLE = (str, int, float, Decimal, date, type(None))
#: Longer values are not remembered, nor are more of them than these.
_LONGEST, _MOST = 64, 4_096


class Member(NamedTuple):
    """A member of a row, by its name in JSON."""

    name: str
    """Its name in the Struct."""
    required: bool
    empty: str | None
    """What stands for it where it is required and has no value."""
    may_be_null: bool
    repair: Callable[[bytes, str, list[Anomaly]], object]
    """Repairs its value, given as bytes."""

    def missing(self, path: str) -> Anomaly:
        """Return the report of it, required and missing in the row at *path*, where *name* is that in JSON."""
        read_as = "None" if self.empty is None else "empty"
        return Anomaly(path, None, f"is missing; read as {read_as}")


class _Known(NamedTuple):
    """What was made of a value."""

    value: object
    anomalies: int
    dropped: bool


class RowType(NamedTuple):
    """The rows of one kind."""

    cls: type[Struct]
    members: Mapping[str, Member]
    """By their names in JSON."""
    unusable: Callable[[Struct], object]
    """Says whether a row has an amount that cannot be used."""
    repair: RepairRow
    """Repairs a row member by member."""


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
        self._reports = reports
        self._malformed: dict[str, Member] = {}
        self._learned: dict[str, Member] = {}
        self._known: dict[tuple[str, bytes], _Known] = {}

    def decode(self, first: int, piece: Sequence[Raw]) -> Iterator[object]:
        """Yield the rows of *piece*, of which the first has the number *first*, without those that are no rows."""
        relaxed = self._read(piece)
        if relaxed is None:
            found = (self._read([raw]) for raw in piece)
            relaxed = [None if one is None else one[0] for one in found]
        for number, (raw, row) in enumerate(zip(piece, relaxed, strict=True), first):
            path = f"{self._path}[{number}]"
            read = self._repaired_whole(raw, path) if row is None else self._restore(row, raw, path)
            if read is not None:
                yield read
        self._malformed |= self._learned

    def _read(self, piece: Sequence[Raw]) -> Sequence[Struct | None] | None:
        """Decode *piece* but for the members that are malformed; `None` if something else is."""
        body = b"[" + b",".join(piece) + b"]"
        while True:
            try:
                return _decoder(self._kind.cls, frozenset(self._malformed))(body)
            except MALFORMED as error:
                found = _PLACE.search(str(error))
                name = (found[1] or found[2] or "") if found else ""
                if name in self._malformed or name not in self._kind.members:
                    return None
                self._malformed[name] = self._kind.members[name]

    def _repaired_whole(self, raw: Raw, path: str) -> object:
        """Return the row *raw*, repaired member by member; `None` if nothing is left of it."""
        anomalies: list[Anomaly] = []
        row = self._kind.repair(bytes(raw), path, anomalies)
        self._reports.add(anomalies)
        return row

    def _restore(self, relaxed: Struct, entry: Raw, path: str) -> object:
        """Return the row *entry*, its malformed members repaired."""
        values = structs.asdict(relaxed)
        anomalies: list[Anomaly] = []
        counted = 0
        for on_wire, member in self._malformed.items():
            raw = bytes(values.pop(member.name))
            known = self._known.get((on_wire, raw))
            if known is not None and self._reports.only_counts(dropped=known.dropped):
                value, counted = known.value, counted + known.anomalies
            elif raw not in {b"", _NULL}:
                value = self._repaired(on_wire, raw, path, anomalies)
            elif not member.required or (raw == _NULL and member.may_be_null):
                value = None
            else:
                value = member.empty
                if self._reports.only_counts(dropped=False):
                    counted += 1
                else:
                    anomalies.append(member.missing(f"{path}.{on_wire}"))
            if value is not None:
                values[member.name] = value
            elif member.required:
                values[member.name] = None if raw == _NULL else member.empty
        row = self._kind.cls(**values)
        if self._kind.unusable(row):
            whole = self._repaired_whole(entry, path)
            # From the next piece on, the members with such amounts are among the malformed ones.
            self._learned |= {
                on_wire: member
                for on_wire, member in self._kind.members.items()
                if repr(getattr(row, member.name)) != repr(getattr(whole, member.name))
            }
            return whole
        self._reports.add(anomalies)
        self._reports.count(counted)
        return row

    def _repaired(self, on_wire: str, raw: bytes, path: str, anomalies: list[Anomaly]) -> object:
        found: list[Anomaly] = []
        value = self._kind.members[on_wire].repair(raw, f"{path}.{on_wire}", found)
        anomalies += found
        is_short = len(raw) <= _LONGEST and len(self._known) < _MOST
        # Entries that are missing are reported one by one.
        if is_short and isinstance(value, _IMMUTABLE) and not any(one.path.endswith("]") for one in found):
            self._known[on_wire, raw] = _Known(value, len(found), any(one.dropped for one in found))
        return value


@lru_cache(maxsize=64)
def _decoder(kind: type[Struct], malformed: frozenset[str]) -> Callable[[bytes], list[Struct | None]]:
    """Compile the decoder of a list of a Struct like *kind*, in which what may be *malformed* is left as it came."""
    members: list[tuple[str, object, object] | tuple[str, object]] = []
    for field in structs.fields(kind):
        if field.encode_name in malformed:
            members.append((field.name, Raw, Raw()))
        elif field.required:
            members.append((field.name, field.type))
        elif field.default_factory is not NODEFAULT:
            members.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            members.append((field.name, field.type, field.default))
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    relaxed = msgspec.defstruct(
        "Relaxed", cast("list[tuple[str, type]]", members), rename=names, kw_only=True, gc=False
    )
    return msgspec.json.Decoder(list[relaxed]).decode  # type: ignore[valid-type]
