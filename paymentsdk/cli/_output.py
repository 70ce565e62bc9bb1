"""The output of commands: tables for people, JSON or CSV for programs."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TextIO

from msgspec import Struct

from paymentsdk._paging.export import as_json, columns_of, sent, text_of
from paymentsdk.errors import JournalUnavailable, RequestInvalid, visible

#: A row, by the names of its columns.
Row = Mapping[str, object]
_GAP = "  "
#: Seconds between two lines about the progress of a command.
_QUIET = 5.0
#: The longest cell of a table without --columns, in characters.
_LONGEST = 40
#: The longest name of a field that is aligned with the others, in characters.
_LONGEST_NAME = 24
#: The most important columns of a table.
_FIRST = ("id", "status", "external_reference", "total_amount", "paid_amount", "transaction_amount", "date_created")


class Output(Struct, frozen=True):
    """The result of a command, as data for programs and as lines for people."""

    data: object
    lines: Sequence[str]
    code: int = 0
    """The exit code."""


def print_output(output: Output, *, as_json: bool) -> int:
    """Print the result of a command at once, and return its exit code."""
    if as_json:
        print_json(output.data)
    else:
        print("\n".join(map(visible, output.lines)))
    flush()
    return output.code


def escape_unencodable() -> None:
    """Make stdout escape characters that its encoding lacks, in the form of JSON. Python's stderr escapes anyway."""
    codecs.register_error("paymentsdk.escape", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="paymentsdk.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def in_terminal(stream: TextIO | None) -> bool:
    """Return whether *stream* is a terminal. A program may have no such stream at all."""
    return stream is not None and stream.isatty()


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return *number* with its *noun*, such as ``2,000 orders``; give the *plural* unless it only adds ``s``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def say(*lines: str) -> None:
    """Write *lines* to stderr. If stderr cannot be written, for example on a full disk, they are dropped."""
    try:
        print(*map(visible, lines), sep="\n", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def sentence(error: Exception) -> str:
    """Return the text of *error*. The text of `JournalUnavailable` speaks of a call, which a command does not make."""
    return f"the journal is not available: {error.reason}" if isinstance(error, JournalUnavailable) else str(error)


class ProgressLines:
    """Writes lines about the progress of a command to stderr, at most every five seconds."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def say(self, line: str, *, at_once: bool = False) -> None:
        """Write *line* if it is due, or *at_once*."""
        if at_once or time.monotonic() - self._said_at >= _QUIET:
            self._said_at = time.monotonic()
            say(line)


def flush() -> None:
    """Flush stdout. Unlike `sys.stdout.flush()`, this also works without a stdout."""
    try:
        print(end="", flush=True)
    except OSError:
        discard(sys.stdout)
        raise


def discard(stream: TextIO | None) -> None:
    """Discard all further output to *stream*. Otherwise Python's flush at the end would fail again."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(data: object, *, decimal_strings: bool = True) -> None:
    """Print *data* as one line of JSON, with amounts as numbers or as *decimal_strings*."""
    print(_harmless(as_json(data, decimal_strings=decimal_strings)))


def _print_csv(cells: Iterable[str]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(_harmless, cells))
    print(line.getvalue())  # Unlike a writer of `sys.stdout`, `print` also works without a stdout.


def _harmless(text: str) -> str:
    """Return *text* unchanged for programs, and without control characters for a terminal."""
    return visible(text) if in_terminal(sys.stdout) else text


class Rows:
    """Prints rows: as they come, or, in a table, all rows at the end.

    Args:
        kind: The type of a row.
        form: ``table``, ``csv`` or ``json``.
        columns: The names of the columns, with commas. By default all, or in a terminal as many as fit into a table.
        decimal_strings: Print amounts in JSON as strings instead of numbers.

    Raises:
        RequestInvalid: *columns* has an unknown name.
    """

    def __init__(self, kind: type, form: str, columns: str | None, *, decimal_strings: bool) -> None:
        every = {column.name: column.read for column in columns_of(kind)}
        self._chosen = [name for name in (columns or "").split(",") if name]
        if unknown := [name for name in self._chosen if name not in every]:
            raise RequestInvalid("--columns", f"there is no column {unknown[0]}; the columns are {', '.join(every)}")
        self._readers = {name: every[name] for name in self._chosen or every}
        self._form = form
        self._decimal_strings = decimal_strings
        self._rows: list[Row] = []
        if form == "csv":
            _print_csv(self._readers)

    def add(self, row: object) -> None:
        """Print *row*, or keep it for the table."""
        if self._form == "json":
            print_json(sent(row), decimal_strings=self._decimal_strings)
        elif self._form == "csv":
            _print_csv(text_of(read(row)) for read in self._readers.values())
        else:
            self._rows.append({name: read(row) for name, read in self._readers.items()})

    def add_only(self, value: object) -> None:
        """Print a single object; a table of it has a line for each field."""
        if self._form == "table" and not self._chosen:
            print_output(Output(None, list(fields(dict(_leaves(sent(value)))))), as_json=False)
        else:
            self.add(value)
            self.end()

    def end(self) -> None:
        """Print the table with all columns, or with as many as fit into a terminal if no columns were chosen."""
        if self._form != "table":
            return
        rows = self._rows
        table = {name: [visible(spoken(row[name])) for row in rows] for name in self._readers}
        visible_columns = table
        if in_terminal(sys.stdout) and not self._chosen:
            ranked = [*(name for name in _FIRST if name in table), *table]
            visible_columns = dict(_fitting({name: table[name] for name in ranked}))
        if rows:
            print(*columns(visible_columns), sep="\n")
        say(counted(len(rows), "row"))
        if hidden := [name for name, cells in table.items() if name not in visible_columns and any(cells)]:
            say(f"more columns (--columns, --csv, --json): {', '.join(hidden)}")


def _leaves(data: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values in *data* at any depth, each with its place (`items[0].title`); *data* itself is at *place*."""
    if isinstance(data, dict):
        for name, member in data.items():
            yield from _leaves(member, f"{place}.{name}" if place else name)
    elif isinstance(data, list):
        for number, entry in enumerate(data):
            yield from _leaves(entry, f"{place}[{number}]")
    else:
        yield place, data


def columns(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of *table*, which has the columns by their names."""
    widths = [max(map(len, (name, *cells))) for name, cells in table.items()]
    for line in [[*table], *zip(*table.values(), strict=True)]:
        yield _GAP.join(map(str.ljust, line, widths)).rstrip()


def table_of(rows: Sequence[Row], empty: str, names: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table of *rows* with the members *names*, by default all, or *empty* without rows."""
    if not rows:
        return [empty]
    return list(columns({name.upper(): [spoken(row[name]) for row in rows] for name in names or rows[0]}))


def fields_of(rows: Iterable[Row]) -> list[str]:
    """Return the `fields` of each of *rows*, with empty lines between the rows."""
    return [line for row in rows for line in ("", *fields(row))][1:]


def fields(row: Row) -> Iterator[str]:
    """Yield a line for each member of *row* that has a value."""
    texts = {f"{name}:": spoken(value) for name, value in row.items() if value not in (None, "")}
    # Names that are longer do not widen the column for the others.
    width = max((len(name) for name in texts if len(name) <= _LONGEST_NAME), default=0)
    for name, value in texts.items():
        yield f"{name:<{width}} {value}"


def spoken(value: object) -> str:
    """Return *value* as text for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return text_of(value)


def _fitting(table: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that have a value and fit into the terminal."""
    room = get_terminal_size().columns
    for name, cells in table.items():
        short = [_cut(cell, _LONGEST) for cell in cells]
        width = max(map(len, (name, *short)), default=0)
        if any(cells) and width <= room:
            room -= width + len(_GAP)
            yield name, short


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
