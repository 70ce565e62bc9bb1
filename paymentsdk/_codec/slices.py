"""A response that has to be repaired, or a huge one: read in slices, between which the event loop has turns.

The rows of a page are found without reading them, and decoded some at a time, straight from bytes, so that one
malformed row costs no other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from paymentsdk._codec.anomaly import MALFORMED, DecodingError, Reports, kind_of
from paymentsdk._codec.repair import Relaxed, StructRepair, begins, struct_repair
from paymentsdk._codec.type_walk import rows_of

#: Bytes of rows that are decoded in one piece: a few hundred microseconds, and a few milliseconds if all are malformed.
SLICE = 32_768
#: Entries of which a piece has no more, however short they are: what is no row is still told.
MOST_ENTRIES = 1_000
#: Bytes from which on a row is huge: to repair what is in it takes seconds, if it has 10 MB.
HUGE_ROW = 262_144
#: Bytes of the list in which entries are looked for at once, and behind them those in which rows are told apart.
_PART, _NEAR = 262_144, 65_536
_BETWEEN_ROWS, _COMMA = re.compile(rb"(?<=\})\s*,(?=\s*\{)"), re.compile(rb",")
#: Commas that are looked at for one between two entries.
_MOST_CUTS = 8

_entries = msgspec.json.Decoder(list[Raw]).decode


class BodyRepair:
    """Reads whole responses of one type, and repairs them where they need it.

    Args:
        kind: The type, a Struct.
    """

    def __init__(self, kind: type[Struct]) -> None:
        self._rows = rows_of(kind)
        self._struct = StructRepair(kind, frozenset(self._rows[1:2]) if self._rows else frozenset())

    def read(self, body: bytes, reports: Reports) -> object:
        """Read *body*.

        Raises:
            DecodingError: Nothing in it can be trusted.
        """
        relaxed, found = self._decode(body)
        return relaxed.restore([found], ["$"], reports.add)[0]

    async def read_in_turns(self, body: bytes, reports: Reports) -> object:
        """Do what `read` does, the rows in slices of some milliseconds, between which other tasks have turns."""
        relaxed, found = self._decode(body)
        listed = getattr(found, self._rows[0]) if self._rows else UNSET
        if self._rows is None or listed is UNSET or not begins(listed, b"["):
            return relaxed.restore([found], ["$"], reports.add)[0]
        name, on_wire, row = self._rows
        structs.force_setattr(found, name, Raw(b"[]"))
        [value] = relaxed.restore([found], ["$"], reports.add)
        rows = await _read_rows(struct_repair(row), bytes(listed), f"$.{on_wire}", reports)
        return structs.replace(cast(Struct, value), **{name: type(getattr(value, name))(rows)})

    def _decode(self, body: bytes) -> tuple[Relaxed, Struct]:
        try:
            decoded = self._struct.decode([body])
        except MALFORMED:
            msgspec.json.decode(body)  # It says where, and counts from the beginning of the body.
            raise
        if decoded is None:
            raise DecodingError(f"the body holds {kind_of(msgspec.json.decode(body))}, not an object")
        relaxed, rows = decoded
        if len(rows) != 1:
            raise DecodingError(f"the body is not JSON: it holds {len(rows)} values")
        return relaxed, rows[0]


async def _read_rows(repair: StructRepair, listed: bytes, place: str, reports: Reports) -> list[object]:
    """Read the rows of the list at *place*; others go on between the slices, and while a huge row is read."""
    rows: list[object] = []
    first = 0
    for entries in _parts(listed):
        await asyncio.sleep(0)
        for piece in _pieces(entries):
            read = partial(repair.read, piece, place, reports.add, first)
            # A piece ends with what makes it large.
            rows += await asyncio.to_thread(read) if len(memoryview(piece[-1])) > HUGE_ROW else read()
            first += len(piece)
            await asyncio.sleep(0)
    return rows


def _parts(listed: bytes) -> Iterator[list[Raw]]:
    """Yield the entries of a list, some hundred kilobytes of them at a time.

    A part of the list is cut off at a comma. If it is a list by itself, that comma is between two entries.
    """
    begin = 1
    while len(listed) - begin > _PART:
        near = begin + _PART
        commas = chain(_BETWEEN_ROWS.finditer(listed, near, near + _NEAR), _COMMA.finditer(listed, near))
        for comma in islice(commas, _MOST_CUTS):
            try:
                entries = _entries(b"[" + listed[begin : comma.start()] + b"]")
            except MALFORMED:
                continue
            begin = comma.end()
            yield entries
            break
        else:
            break
    yield _entries(b"[" + listed[begin:])


def _pieces(entries: list[Raw]) -> Iterator[list[Raw]]:
    """Yield *entries* in pieces of some `SLICE` bytes or fewer."""
    first = size = 0
    for i, entry in enumerate(entries, 1):
        size += len(memoryview(entry))
        if size >= SLICE or i - first == MOST_ENTRIES or i == len(entries):
            yield entries[first:i]
            first, size = i, 0
