"""Words for people."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TextIO


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return *number* with its noun: ``1 order``, ``2,000 orders``; *many* is of those that add no ``s``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def in_terminal(stream: TextIO | None) -> bool:
    """Whether somebody reads *stream* in a terminal; a program may have no such stream at all."""
    return stream is not None and stream.isatty()


def wrapped(line: str, further: int | None = None) -> str:
    """Return *line* as wide as the terminal; what follows its first part is indented by *further*, or 4 more than that.

    Without a terminal, as in a file or a pipe, it stays one line: programs look for words that stand together.
    """
    if not in_terminal(sys.stdout):
        return line
    following = " " * (len(line) - len(line.lstrip()) + 4 if further is None else further)
    columns = shutil.get_terminal_size().columns
    parts = textwrap.wrap(
        line, max(columns, 40), subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(parts)
