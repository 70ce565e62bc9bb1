"""A large page, decoded in slices: the event loop has a turn after each, and one crooked row costs no other.

The rows are found without reading them, and decoded some at a time, straight from bytes. Only rows that do not follow
the contract are repaired, each by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from paymentsdk._codec.anomaly import Anomaly, Reports

if TYPE_CHECKING:
    from msgspec import inspect

#: Bytes of rows that are decoded in one piece: a few hundred microseconds, and a few milliseconds if all are crooked.
SLICE = 32_768
#: What cannot be decoded the exact way.
CROOKED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[Raw]).decode
_write = msgspec.json.encode

#: Where a converter found the first thing that it does not take: a member of the object itself, or below.
_PLACE = re.compile(r"`\$\.(\w+)")
#: Repairs a value as read from JSON, at its place, and reports what was wrong.
Repair: TypeAlias = Callable[[object, str, list[Anomaly]], object]
#: Repairs an entry as read from JSON, at its place; ``None`` if nothing is left of it.
MendEntry: TypeAlias = Callable[[bytes, str, list[Anomaly]], object]


#: Decodes a list of entries the exact way; ``None`` if one does not follow the contract.
ReadRows: TypeAlias = Callable[[bytes], Sequence[object] | None]


class RowRepair:
    """Repairs rows of one kind as :mod:`paymentsdk._codec.decode` does it, most of each in C.

    What is crooked in one row is so in most. The members that were are repaired one by one, and the rest is converted
    at once; a row that this does not fit is walked member by member.

    Args:
        kind: The Struct of a row.
        odd: Says whether a row has an amount that cannot be used.
        members: By the name of each member in JSON, that in the Struct, and its repair.
        whole: Repairs a row member by member.
    """

    def __init__(
        self,
        kind: type[Struct],
        odd: Callable[[Struct], object],
        members: Mapping[str, tuple[str, Repair]],
        whole: Repair,
    ) -> None:
        self._kind = kind
        self._odd = odd
        self._members = members
        self._whole = whole
        #: Free-form data is as the exact way gives it only if its own repair looks at it.
        free = {f.encode_name for f in structs.fields(kind) if _is_free(f.type, set())}
        self._crooked = {name: member for name, member in members.items() if name in free}

    def __call__(self, value: object, path: str, anomalies: list[Anomaly]) -> object:
        while isinstance(value, dict):
            found: list[Anomaly] = []
            try:
                row = self._mend(value, path, found)
            except CROOKED as error:
                if self._learn(str(error)):
                    continue
                break
            if self._odd(row):
                break
            anomalies.extend(found)
            return row
        return self._whole(value, path, anomalies)

    def _mend(self, value: dict[str, object], path: str, anomalies: list[Anomaly]) -> Struct:
        rest, mended = value.copy(), {}
        for on_wire, (name, mend) in self._crooked.items():
            raw = rest.pop(on_wire, None)
            if raw is not None:
                one = mend(raw, f"{path}.{on_wire}", anomalies)
                if one is not None:
                    mended[name] = one
        row = msgspec.convert(rest, self._kind)
        return structs.replace(row, **mended) if mended else row

    def _learn(self, complaint: str) -> bool:
        """Note which member is crooked; ``False`` if nobody knows, or it was known."""
        found = _PLACE.search(complaint)
        name = found[1] if found else ""
        if name in self._crooked or name not in self._members:
            return False
        self._crooked = {one: self._members[one] for one in self._members if one in self._crooked or one == name}
        return True


def _is_free(kind: object, seen: set[object]) -> bool:
    """Whether values of *kind* can hold what no type describes."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        if kind in seen:
            return False
        seen.add(kind)
        return any(_is_free(f.type, seen) for f in structs.fields(kind))
    parts = get_args(kind)
    if get_origin(kind) in (dict, Mapping) or (not parts and kind in (dict, object, Any)):
        return True
    return any(_is_free(part, seen) for part in parts)


class Rows(Struct, frozen=True):
    """The member of an answer that has its rows.

    Attributes:
        name: Its name in the Struct.
        on_wire: Its name in JSON.
        read: Decodes a list of rows the exact way.
        mend: Repairs one row.
    """

    name: str
    on_wire: str
    read: ReadRows
    mend: MendEntry

    def split(self, body: bytes) -> Generator[None, None, tuple[bytes, list[Raw]] | None]:
        """Return *body* without its rows, and the rows; ``None`` if it is no object with a list of them."""
        try:
            members = _members(body)
            yield
            entries = _entries(members.pop(self.on_wire))
            yield
        except (*CROOKED, KeyError):
            return None
        around = b",".join(_write(name) + b":" + bytes(value) for name, value in members.items())
        comma = b"," if around else b""
        return b"{" + _write(self.on_wire) + b":[]" + comma + around + b"}", entries

    def decode(self, entries: list[Raw], reports: Reports) -> Generator[None, None, list[object]]:
        """Decode *entries*, with a pause after each slice, and add to *reports* what had to be mended."""
        rows: list[object] = []
        for first, piece in _pieces(entries):
            exact = self.read(b"[" + b",".join(piece) + b"]")
            rows.extend(self._each(first, piece, reports) if exact is None else exact)
            yield
        return rows

    def _each(self, first: int, piece: list[Raw], reports: Reports) -> Iterator[object]:
        """Yield the rows of *piece* one by one, repaired where they need it."""
        is_crooked = False
        for i, raw in enumerate(piece, first):
            # Where one row is crooked, the next one is as well, as a rule.
            exact = None if is_crooked else self.read(b"[" + bytes(raw) + b"]")
            if exact is not None:
                yield exact[0]
                continue
            found: list[Anomaly] = []
            row = self.mend(bytes(raw), f"$.{self.on_wire}[{i}]", found)
            is_crooked = bool(found)
            if found:
                reports.add(found)
            if row is not None:
                yield row


def _pieces(entries: list[Raw]) -> Iterator[tuple[int, list[Raw]]]:
    """Yield *entries* in pieces of some ``SLICE`` bytes, each with the number of its first."""
    first = size = 0
    for i, entry in enumerate(entries, 1):
        size += len(memoryview(entry))
        if size >= SLICE or i == len(entries):
            yield first, entries[first:i]
            first, size = i, 0


def rows_of(info: inspect.Type) -> tuple[str, str, type[Struct]] | None:
    """Return the member of an answer that lists Structs, by its names here and in JSON; ``None`` if not one does."""
    found = []
    for f in getattr(info, "fields", ()):
        for kind in getattr(f.type, "types", (f.type,)):
            row = getattr(getattr(kind, "item_type", None), "cls", None)
            if isinstance(row, type) and issubclass(row, Struct):
                found.append((f.name, f.encode_name, row))
    return found[0] if len(found) == 1 else None
