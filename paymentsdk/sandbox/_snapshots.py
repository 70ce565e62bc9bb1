"""The files that keep a sandbox: which of them can be used, and snapshots beside them, or in memory."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: What a snapshot may be called: it is a part of the name of a file.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Of the tables. A change of them, or of a document that older ones cannot be read as, is another schema.
SCHEMA = 6


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


class Snapshots:
    """The snapshots of one sandbox.

    Args:
        path: The file of the sandbox; in memory without one.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._in_memory: dict[str, bytes] = {}

    @contextmanager
    def new(self, name: str) -> Iterator[sqlite3.Connection]:
        """Give an empty database, which takes the place of the snapshot *name* unless something fails inside.

        Raises:
            ValueError: No file can be called so.
            OSError: The file cannot be written.
        """
        path = self._file(name)
        if path is None:
            with closing(sqlite3.connect(":memory:")) as connection:
                yield connection
                self._in_memory[name] = connection.serialize()
            return
        # A crash or a full disk leaves the earlier one of this name as it is.
        unfinished = path.with_name(f"{path.name}.unfinished")
        _remove(unfinished)
        try:
            with naming(str(path)), closing(sqlite3.connect(unfinished)) as connection:
                # What is not finished need not outlive a crash.
                connection.execute("PRAGMA synchronous = OFF")
                yield connection
                connection.execute("PRAGMA journal_mode = DELETE")  # All of it is in the file, and nothing beside it.
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            _remove(unfinished)

    @contextmanager
    def kept(self, name: str) -> Iterator[sqlite3.Connection]:
        """Give the snapshot *name*, to read it.

        Raises:
            ValueError: No file can be called so.
            KeyError: There is none.
            OSError: Something that SQLite does inside fails.
        """
        path = self._file(name)
        if path is not None and not path.exists():
            raise KeyError(name)
        with naming(str(path)), closing(sqlite3.connect(path or ":memory:")) as connection:
            if path is None:
                connection.deserialize(self._in_memory[name])
            yield connection

    def _file(self, name: str) -> Path | None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a snapshot is called by 1 to 64 letters, digits, _ or -, not {name!r}")
        return None if self._path is None else Path(f"{self._path}.{name}.snapshot")


def _remove(path: Path) -> None:
    """Remove a database, and what SQLite leaves beside it on a full disk or in a crash."""
    for left in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + left).unlink(missing_ok=True)
