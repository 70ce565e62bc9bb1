"""What commands print: a table for people, JSON or CSV for programs; rich draws tables where stdout is a terminal."""

from __future__ import annotations

import csv
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec import Struct

from paymentsdk.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress

#: Says what is under way, which part of it is done, if that is known, and in words how much.
Tell = Callable[[str, float | None, str], None]
#: A row, by the names of its columns.
Row = Mapping[str, object]
_WIDTH = 80
_GAP = "  "
#: A cell of a table that chooses its columns by itself has at most so many characters.
_LONGEST = 40
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
        print("\n".join(_wrapped(visible(line)) for line in output.lines))
    return output.code


def _wrapped(line: str) -> str:
    """Return *line* as wide as the terminal; a pipe gets it whole: programs look for words that stand together."""
    if not in_terminal(sys.stdout):
        return line
    further = " " * (len(line) - len(line.lstrip()) + 4)
    width = max(get_terminal_size().columns, 40)
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def in_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads *stream* in a terminal; a program may have no such stream at all."""
    return stream is not None and stream.isatty()


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return *number* with its noun: ``1 order``, ``2,000 orders``; *many* is of those that add no ``s``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def discard_stdout() -> None:
    """Write nothing more: what is left would fail once more when Python flushes it at the end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(data: object, *, numbers: bool = False) -> None:
    """Print *data* as one line of JSON; amounts as *numbers*, or as strings."""
    encoder = msgspec.json.Encoder(decimal_format="number" if numbers else "string")
    print(encoder.encode(data).decode())


def csv_writer(names: Sequence[str]) -> Callable[[Row], None]:
    """Print the header of CSV, and return what prints a row; a list or an object in a cell is JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    return lambda row: writer.writerow([_plain(row.get(name)) for name in names])


def print_table(rows: Sequence[Row], names: Sequence[str] = ()) -> Sequence[str]:
    """Print *rows* in columns: those of *names*, or as many as the width of the terminal has room for.

    Returns:
        The names of the columns that had no room.
    """
    every = names or sorted(
        dict.fromkeys(name for row in rows for name in row),
        key=lambda name: _rank(name, [row.get(name) for row in rows]),
    )
    table = {name: [visible(spoken(row.get(name))) for row in rows] for name in every}
    shown = table if names else dict(_fitting(table))
    if not _drawn(shown):
        print("\n".join(columns(shown)))
    return [name for name, cells in table.items() if name not in shown and any(cells)]


def columns(table: Mapping[str, Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Yield the lines of *table*, columns by their names; the last has what is left of *width*."""
    widths = [max(map(len, (name, *cells))) for name, cells in table.items()]
    room = None if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    for line in [[*table], *zip(*table.values(), strict=True)]:
        *most, last = [visible(cell) for cell in line]
        yield _GAP.join([*(map(str.ljust, most, widths)), last if room is None else _cut(last, room)]).rstrip()


def fields(row: Row) -> Iterator[str]:
    """Yield a line for each member of *row* that has a value."""
    told = {name: spoken(value) for name, value in row.items() if value not in (None, "")}
    width = max(map(len, told), default=0) + 2
    for name, value in told.items():
        yield f"{name + ':':<{width}}{value}"


def spoken(value: object) -> str:
    """Return *value* as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return _plain(value)


@contextmanager
def progress(otherwise: Tell, *, shown: bool = True) -> Iterator[Tell]:
    """Draw a bar, if *shown*, where stderr is a terminal and rich is installed; elsewhere, tell *otherwise*."""
    bar = _bar() if shown and in_terminal(sys.stderr) else None
    if bar is None:
        yield otherwise
        return
    # rich hides the cursor: shown again in the same write, it is there whatever ends the program, SIGTERM among that.
    with bar.console:
        bar.start()
        bar.console.show_cursor()
    with bar:
        task = bar.add_task("", words="")

        def tell(what: str, share: float | None, words: str) -> None:
            total = None if share is None else 1.0
            bar.update(task, description=what, completed=share or 0.0, total=total, words=words)

        yield tell


def _bar() -> Progress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    told = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    # Where stdout goes somewhere else, rich would have what is printed to it go to stderr.
    return Progress(*told, console=Console(stderr=True), transient=True, redirect_stdout=False)


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
    room = get_terminal_size((_WIDTH, 24)).columns if in_terminal(sys.stdout) else _WIDTH
    for name, cells in table.items():
        short = [_cut(cell, _LONGEST) for cell in cells]
        width = max(map(len, (name, *short)), default=0)
        if any(cells) and width <= room:
            room -= width + len(_GAP)
            yield name, short


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _drawn(table: Mapping[str, Sequence[str]]) -> bool:
    """Draw *table* with rich, if it is installed and stdout is a terminal."""
    if not in_terminal(sys.stdout):
        return False
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, len(_GAP), 0, 0))
    for name in table:
        drawn.add_column(name, overflow="fold")
    for cells in zip(*table.values(), strict=True):
        drawn.add_row(*map(Text, cells))
    Console().print(drawn)
    return True
