"""A large page, decoded in slices: the event loop has a turn after each, and one malformed row costs no other.

The rows are found without reading them, and decoded some at a time, straight from bytes. Only rows that do not follow
the contract are repaired, each by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, ValidationError

from paymentsdk._codec.anomaly import MALFORMED, DecodingError, Reports
from paymentsdk._codec.relaxed import RelaxedRows

#: Bytes of rows that are decoded in one piece: a few hundred microseconds, and a few milliseconds if all are malformed.
SLICE = 32_768
#: Entries of which a piece has no more, however short they are: what is no row is still told.
MOST_ENTRIES = 1_000
#: Bytes from which on a row that has to be repaired is huge: what is in it takes 3 s, if it has 10 MB.
HUGE_ROW = 262_144
#: Bytes of the list in which entries are looked for at once, and behind them those in which rows are told apart.
_PART, _NEAR = 262_144, 65_536
_BETWEEN_ROWS, _COMMA = re.compile(rb"(?<=\})\s*,(?=\s*\{)"), re.compile(rb",")
#: Commas that are looked at for one between two entries.
_MOST_CUTS = 8

T = TypeVar("T")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[Raw]).decode
_write = msgspec.json.encode

#: Decodes a list of rows the exact way; `None` if one does not follow the contract.
ReadRows: TypeAlias = Callable[[bytes], Sequence[object] | None]
#: Steps of some milliseconds. What one yields is a longer one: it is called, in a thread where others wait, and what it
#: returns is sent back.
Steps: TypeAlias = Generator[Callable[[], object] | None, object, T]


class Rows(Struct, frozen=True):
    """The member of a response that has its rows."""

    name: str
    """Its name in the Struct."""
    on_wire: str
    """Its name in JSON."""
    read: ReadRows
    relaxed: Callable[[str, Reports], RelaxedRows]
    """Makes what decodes and repairs the other rows of one page, from the place of the list and the report."""

    def split(self, body: bytes) -> tuple[bytes, bytes] | None:
        """Return *body* without its rows, and their list; `None` if it is no object with one.

        Raises:
            DecodingError: It is not JSON.
        """
        try:
            members = _members(body)
            rows = bytes(members.pop(self.on_wire))
        except (ValidationError, KeyError):
            return None
        except MALFORMED as error:
            raise DecodingError(f"the body is not JSON: {error}") from None
        around = b",".join(_write(name) + b":" + bytes(value) for name, value in members.items())
        comma = b"," if around else b""
        return (b"{" + _write(self.on_wire) + b":[]" + comma + around + b"}", rows) if rows[:1] == b"[" else None

    def decode(self, listed: bytes, reports: Reports) -> Steps[list[object]]:
        """Decode the rows that are *listed*, a slice in each step, and add to *reports* what had to be repaired."""
        rows: list[object] = []
        relaxed = self.relaxed(f"$.{self.on_wire}", reports)
        is_malformed = False
        first = 0
        for entries in _parts(listed):
            yield None
            for piece in _pieces(entries):
                body = b"[" + b",".join(piece) + b"]"
                # Where one slice is malformed, the next one is as well, as a rule.
                found = None if is_malformed else self.read(body)
                before = reports.total
                if found is None and len(body) > HUGE_ROW:
                    found = cast("Sequence[object]", (yield partial(relaxed.decode, first, piece)))
                elif found is None:
                    found = relaxed.decode(first, piece)
                rows.extend(found)
                first += len(piece)
                is_malformed = reports.total > before
                yield None
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
