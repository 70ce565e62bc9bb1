"""What commands print: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from shutil import get_terminal_size
from typing import TextIO

import msgspec
from msgspec import Struct

from paymentsdk.errors import RequestInvalid, visible

#: A row, by the names of its columns.
Row = Mapping[str, object]
_GAP = "  "
#: Seconds between two lines that say how far a command is.
QUIET = 5.0
#: A cell of a table that chooses its columns by itself has at most so many characters.
_LONGEST = 40
#: Names of fields that are in line have at most so many characters.
_LONGEST_NAME = 24
#: The columns that tell most: what it is, how it stands, then amounts and dates.
_FIRST = ("id", "status", "external_reference")
_KINDS = (Decimal, datetime, int | str)


class Output(Struct, frozen=True):
    """What a command came to: as data, and for people."""

    data: object
    lines: Sequence[str]
    code: int = 0
    """The exit code."""


def print_output(output: Output, *, as_json: bool) -> int:
    """Print what a command came to, and return its exit code."""
    if as_json:
        print_json(output.data)
    else:
        print("\n".join(map(visible, output.lines)))
    return output.code


def escape_unencodable() -> None:
    """Make stdout escape what its encoding lacks, as cp1252 lacks emoji, in the form of JSON; stderr escapes anyway."""
    codecs.register_error("paymentsdk.escape", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="paymentsdk.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def in_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads *stream* in a terminal; a program may have no such stream at all."""
    return stream is not None and stream.isatty()


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return *number* with its *noun*: ``1 order``, ``2,000 orders``; its *plural* is needed unless it adds ``s``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def say(*lines: str) -> None:
    """Write *lines* to stderr. Where it takes none, as on a full disk, the exit code has to say it all."""
    try:
        print(*map(visible, lines), sep="\n", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def flush() -> None:
    """Write what is left to stdout, also where there is none: unlike `sys.stdout.flush()`, that is no error."""
    try:
        print(end="", flush=True)
    except OSError:
        discard(sys.stdout)
        raise


def discard(stream: TextIO | None) -> None:
    """Write nothing more to *stream*: what is left would fail once more when Python flushes it at the end."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(data: object, *, numbers: bool = False) -> None:
    """Print *data* as one line of JSON; amounts as *numbers*, or as strings."""
    encoder = msgspec.json.Encoder(decimal_format="number" if numbers else "string")
    print(_harmless(encoder.encode(data).decode()))


def _print_csv(cells: Iterable[str]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(_harmless, cells))
    print(line.getvalue())  # Nowhere, where a program has no stdout.


def _harmless(text: str) -> str:
    """Return *text* as it is, which is what programs want, or so that it cannot steer the terminal that shows it."""
    return visible(text) if in_terminal(sys.stdout) else text


class Rows:
    """Prints rows: as they come, or all of them at the end where they have to be in columns.

    Args:
        kind: The type of a row.
        form: ``table``, ``csv`` or ``json``.
        columns: Those that are asked for; by default all of them, or in a terminal as many as a table has room for.
        numbers: Print amounts in JSON as numbers, or as strings.

    Raises:
        RequestInvalid: A row has no such column.
    """

    def __init__(self, kind: object, form: str, columns: str | None, *, numbers: bool) -> None:
        every = list(_columns_of(kind))
        self._chosen = [name for name in (columns or "").split(",") if name]
        if unknown := [name for name in self._chosen if name not in every]:
            raise RequestInvalid("--columns", f"there is no {unknown[0]}; there are {', '.join(every)}")
        self._names = self._chosen or every
        self._form = form
        self._numbers = numbers
        self._rows: list[Row] = []
        if form == "csv":
            _print_csv(self._names)

    def add(self, row: object) -> None:
        """Print *row*, or keep it for the table."""
        sent = _sent(row)
        cells = {name: _cell(sent, name) for name in self._names}
        if self._form == "json":
            print_json(sent, numbers=self._numbers)
        elif self._form == "csv":  # A list or an object in a cell is JSON.
            _print_csv(_plain(cells[name]) for name in self._names)
        else:
            self._rows.append(cells)

    def add_only(self, value: object) -> None:
        """Print the one object that there is: in a table it has a line for each field."""
        if self._form == "table" and not self._chosen:
            print_output(Output(None, list(fields(dict(_leaves(_sent(value)))))), as_json=False)
        else:
            self.add(value)
            self.end()

    def end(self) -> None:
        """Print the table: all columns, whole; or in a terminal, where none is asked for, as many as have room."""
        if self._form != "table":
            return
        rows = self._rows
        table = {name: [visible(spoken(row[name])) for row in rows] for name in self._names}
        visible_columns = table
        if in_terminal(sys.stdout) and not self._chosen:
            ranked = sorted(table, key=lambda name: _rank(name, [row[name] for row in rows]))
            visible_columns = dict(_fitting({name: table[name] for name in ranked}))
        if rows:
            print(*columns(visible_columns), sep="\n")
        say(counted(len(rows), "row"))
        if hidden := [name for name, cells in table.items() if name not in visible_columns and any(cells)]:
            say(f"more columns (--columns, --csv, --json): {', '.join(hidden)}")


def _columns_of(kind: object) -> Iterable[str]:
    """Return the names of what a Struct holds, with those of the Structs in it (`paging.total`)."""
    from paymentsdk._codec.type_walk import walk

    nodes = (msgspec.inspect.StructType, msgspec.inspect.NoneType)
    leaves = (node for node in walk(msgspec.inspect.type_info(kind)) if not isinstance(node.type, nodes))
    return dict.fromkeys(leaf.path[1:] for leaf in leaves if not {"[", "{"} & {*leaf.path})


def _sent(value: object) -> object:
    """Return *value* as plain data, without the members that the platform did not send."""
    match value:
        case Struct():
            members = zip(value.__struct_encode_fields__, msgspec.structs.astuple(value), strict=True)
            return {name: _sent(member) for name, member in members if member is not None}
        case list() | tuple():
            return [_sent(entry) for entry in value]
        case _:
            return value


def _cell(sent: object, column: str) -> object:
    for name in column.split("."):
        sent = sent.get(name) if isinstance(sent, dict) else None
    return sent


def _leaves(sent: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield what *sent*, which is at *place*, holds at any depth, with its own place (`items[0].title`)."""
    if isinstance(sent, dict):
        for name, member in sent.items():
            yield from _leaves(member, f"{place}.{name}" if place else name)
    elif isinstance(sent, list):
        for number, entry in enumerate(sent):
            yield from _leaves(entry, f"{place}[{number}]")
    else:
        yield place, sent


def columns(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of *table*, columns by their names."""
    widths = [max(map(len, (name, *cells))) for name, cells in table.items()]
    for line in [[*table], *zip(*table.values(), strict=True)]:
        yield _GAP.join(map(str.ljust, line, widths)).rstrip()


def fields(row: Row) -> Iterator[str]:
    """Yield a line for each member of *row* that has a value."""
    texts = {f"{name}:": spoken(value) for name, value in row.items() if value not in (None, "")}
    # Longer names stand out, and leave the others room for their values.
    width = max((len(name) for name in texts if len(name) <= _LONGEST_NAME), default=0)
    for name, value in texts.items():
        yield f"{name:<{width}} {value}"


def spoken(value: object) -> str:
    """Return *value* as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    plain = "" if value is None else msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _rank(name: str, values: Sequence[object]) -> int:
    """Return what sorts the columns that tell most before others."""
    if name in _FIRST:
        return _FIRST.index(name)
    value = next((value for value in values if value is not None), None)
    return len(_FIRST) + next((place for place, kind in enumerate(_KINDS) if isinstance(value, kind)), len(_KINDS))


def _fitting(table: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that have a value, as long as there is room."""
    room = get_terminal_size().columns
    for name, cells in table.items():
        short = [_cut(cell, _LONGEST) for cell in cells]
        width = max(map(len, (name, *short)), default=0)
        if any(cells) and width <= room:
            room -= width + len(_GAP)
            yield name, short


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
