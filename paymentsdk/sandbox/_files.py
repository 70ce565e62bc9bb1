"""Files that keep a sandbox: which can be used, and what is wrong with the others."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

#: Of the tables. A change of them, or of a document that older ones cannot be read as, is another schema.
SCHEMA = 4


def check_file(connection: sqlite3.Connection) -> bool:
    """Reject the database of another program or schema, or a damaged one, before anything is written into it.

    Returns:
        Whether it is the database of a sandbox; another one is empty.
    """
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if names and not {"ledger", "due", "settings"} <= names:
        raise sqlite3.DatabaseError("it is the database of another program")
    [(schema,)] = connection.execute("PRAGMA user_version")
    if names and schema != SCHEMA:
        age, way = ("an older", "") if schema < SCHEMA else ("a newer", ", or update paymentsdk")
        raise sqlite3.DatabaseError(
            f"{age} version of the sandbox made it (schema {schema}; this one has {SCHEMA}), and none reads the files "
            f"of another: move it away, or name another file{way}"
        )
    [(damage,)] = connection.execute("PRAGMA quick_check(1)")
    if damage != "ok":
        raise sqlite3.DatabaseError(f"it is damaged ({damage.splitlines()[-1]}): start with another file")
    return bool(names)


def read_kept(stored: bytes, decode: Callable[[bytes], T]) -> T:
    """Return what *decode* makes of what was *stored*.

    Raises:
        sqlite3.DatabaseError: It is damaged: SQLite knows nothing of what is in its rows.
    """
    try:
        return decode(stored)
    except (ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"it is damaged ({error}): start with another file") from None


@contextmanager
def naming(path: str | None) -> Iterator[None]:
    """Raise what SQLite raises inside as an ``OSError`` that names the file *path*."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        reason = "another sandbox uses it" if code == sqlite3.SQLITE_BUSY else str(error)
        if code & 0xFF == sqlite3.SQLITE_IOERR:  # So it calls it when there is no room for the index of the log.
            reason += ": the disk may be full"
        named = OSError(f"cannot use {path!r} as the database of a sandbox: {reason}")
        named.errno = errno.ENOSPC if is_full(error) else errno.EIO
        raise named from None


def is_full(error: object) -> bool:
    """Whether *error* says that there is no room on the disk."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC
