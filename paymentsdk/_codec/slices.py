"""A large page, decoded in slices: the event loop has a turn after each, and one malformed row costs no other.

The rows are found without reading them, and decoded some at a time, straight from bytes. Only rows that do not follow
the contract are repaired, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from paymentsdk._codec.anomaly import MALFORMED, Reports
from paymentsdk._codec.relaxed import RelaxedRows

#: Bytes of rows that are decoded in one piece: a few hundred microseconds, and a few milliseconds if all are malformed.
SLICE = 32_768
#: Entries of which a piece has no more, however short they are: what is no row is still told.
MOST_ENTRIES = 1_000

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[Raw]).decode
_write = msgspec.json.encode

#: Decodes a list of rows the exact way; `None` if one does not follow the contract.
ReadRows: TypeAlias = Callable[[bytes], Sequence[object] | None]


class Rows(Struct, frozen=True):
    """The member of a response that has its rows."""

    name: str
    """Its name in the Struct."""
    on_wire: str
    """Its name in JSON."""
    read: ReadRows
    relaxed: Callable[[str, Reports], RelaxedRows]
    """Makes what decodes and repairs the other rows of one page, from the place of the list and the report."""

    def split(self, body: bytes) -> Generator[None, None, tuple[bytes, list[Raw]] | None]:
        """Return *body* without its rows, and the rows; `None` if it is no object with a list of them."""
        try:
            members = _members(body)
            yield
            entries = _entries(members.pop(self.on_wire))
            yield
        except (*MALFORMED, KeyError):
            return None
        around = b",".join(_write(name) + b":" + bytes(value) for name, value in members.items())
        comma = b"," if around else b""
        return b"{" + _write(self.on_wire) + b":[]" + comma + around + b"}", entries

    def decode(self, entries: list[Raw], reports: Reports) -> Generator[None, None, list[object]]:
        """Decode *entries*, with a pause after each slice, and add to *reports* what had to be repaired."""
        rows: list[object] = []
        relaxed = self.relaxed(f"$.{self.on_wire}", reports)
        is_malformed = False
        for first, piece in _pieces(entries):
            # Where one slice is malformed, the next one is as well, as a rule.
            exact = None if is_malformed else self.read(b"[" + b",".join(piece) + b"]")
            before = reports.total
            rows.extend(relaxed.decode(first, piece) if exact is None else exact)
            is_malformed = reports.total > before
            yield
        return rows


def _pieces(entries: list[Raw]) -> Iterator[tuple[int, list[Raw]]]:
    """Yield *entries* in pieces of some `SLICE` bytes or fewer, each with the number of its first."""
    first = size = 0
    for i, entry in enumerate(entries, 1):
        size += len(memoryview(entry))
        if size >= SLICE or i - first == MOST_ENTRIES or i == len(entries):
            yield first, entries[first:i]
            first, size = i, 0
