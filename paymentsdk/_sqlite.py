"""The driver of SQLite for `_database.py`, with its connection."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from pathlib import Path

from msgspec import Struct

from paymentsdk._database import Columns, Connection, DatabaseError, Kind, Row, Trouble, Values

#: Seconds to wait for other processes before the write-ahead log is emptied another time.
_PATIENCE = 0.1
_MAKING = threading.Lock()


class SQLite(Struct, frozen=True, kw_only=True):
    """A SQLite file, for one purpose."""

    path: Path
    table: str
    create: tuple[str, ...]
    """Statements that make the table in an empty file."""
    settings: tuple[str, ...]
    """Pragmas of each connection."""
    application: int = 0
    """The application id in the header of the file: files with another id are rejected. 0 accepts any file."""
    mark: str = ""
    """If any file is accepted: a comment in the text of the table. A table without it is of another version."""
    version: int = 0
    """The version of the table."""
    is_private: bool = True
    """Whether only the owner can read and write the file (mode 0600)."""
    busy_timeout: float = 5.0
    """Seconds to wait for another process that writes."""
    now: Callable[[], float] = time.time
    """The store time."""

    timeout = inf
    joins = True

    @property
    def place(self) -> str:
        """See `Driver.place`."""
        return str(self.path)

    def connect(self, deadline: float) -> Connection:
        """See `Driver.connect`."""
        if self.is_private:
            make_private(self.path)  # The write-ahead log gets the mode of the file.
        database = sqlite3.connect(self.path, timeout=self.busy_timeout, isolation_level=None)
        try:
            database.text_factory = partial(str, encoding="utf-8", errors="replace")  # One damaged row hides no others.
            database.create_function("store_time", 0, self.now)
            for setting in self.settings:
                self._set(database, f"PRAGMA {setting}")
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return _SQLiteConnection(database, self)

    def trouble(self, error: Exception) -> Trouble:
        """See `Driver.trouble`. SQLite itself waits for other processes, and a full disk fails all works."""
        is_of_value = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError | ValueError | OverflowError)
        return Trouble.VALUE if is_of_value else Trouble.LASTING

    def _set(self, database: sqlite3.Connection, pragma: str) -> None:
        """Run a pragma, with retries: SQLite does not wait for another process that turns the write-ahead log on."""
        end = time.monotonic() + self.busy_timeout
        while True:
            try:
                database.execute(pragma).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.005)
            else:
                return

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the table in an empty file; reject a file of another program or version."""
        if not self.application:  # The file may have tables of other programs.
            for (text,) in database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (self.table,)):
                if self.mark not in text:
                    raise DatabaseError(f"its table {self.table} is of another version: it has no {self.mark!r}")
            for statement in self.create:
                database.execute(statement)
        elif _is_empty(database):
            database.execute("BEGIN IMMEDIATE")  # Only for an empty file: a file with tables may be read-only.
            if _is_empty(database):
                marks = f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}"
                for statement in (*self.create, *marks):
                    database.execute(statement)
            commit(database)
        application, version = _marks(database)
        if self.application and application != self.application:
            raise DatabaseError("it is the database of another program")
        if self.application and version != self.version:
            raise DatabaseError(f"it has schema {version}, this version of paymentsdk reads {self.version}")


def _marks(database: sqlite3.Connection) -> tuple[int, int]:
    """Return the application id of the file, and the version of its tables."""
    names = ("application_id", "user_version")
    application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return application, version


def _is_empty(database: sqlite3.Connection) -> bool:
    return _marks(database) == (0, 0) and not database.execute("SELECT 1 FROM sqlite_schema").fetchone()


def commit(database: sqlite3.Connection) -> None:
    """Commit durably. Tests replace this function to kill the process before and after it."""
    database.execute("COMMIT")


@lru_cache(maxsize=256)
def _in_sqlite(statement: str, table: str, columns: tuple[str, ...] = ()) -> str:
    """Return *statement* in the words of SQLite; ``{rows}`` is one row of *columns*."""
    marks = ", ".join(f"? AS {name}" for name in columns)
    words = {"table": table, "now": "store_time()", "position": "instr", "locked": "", "skip_locked": ""}
    return statement.format(**words, rows=f"(SELECT {marks}) AS new").replace("%s", "?")


class _SQLiteConnection:
    def __init__(self, database: sqlite3.Connection, driver: SQLite) -> None:
        self.has_wiped = False
        self._database = database
        self._driver = driver
        self._opened = driver.path.stat()

    def fetch(self, statement: str, *values: object) -> list[Row]:
        return self._database.execute(_in_sqlite(statement, self._driver.table), values).fetchall()

    def each(self, statement: str, columns: Columns, rows: Sequence[Values], *, durable: bool = True) -> list[Row]:
        text, now = _in_sqlite(statement, self._driver.table, (*columns, "now")), self._driver.now()
        # Not `rowcount`: in some locales, Python 3.11 does not see that an INSERT writes.
        return [result for row in rows for result in self._database.execute(text, (*row, now)).fetchall()]

    def begin(self, kind: Kind, deadline: float) -> None:
        self._check_in_place()
        self._database.execute("BEGIN" if kind is Kind.READS else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        commit(self._database)

    def roll_back(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def rest(self) -> None:
        """Empty the write-ahead log, which holds the wiped bytes, unless another connection uses it."""
        if self.has_wiped:
            # No process can write while this waits for readers, and a backup may read for an hour.
            self._wait_for_others(min(_PATIENCE, self._driver.busy_timeout))
            with suppress(sqlite3.Error):
                self.has_wiped = bool(self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            self._wait_for_others(self._driver.busy_timeout)

    def _wait_for_others(self, seconds: float) -> None:
        """Wait no longer than *seconds* for other processes from now on."""
        self._database.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")

    def close(self) -> None:
        self._database.close()

    def _check_in_place(self) -> None:
        """Reject a file that was removed or replaced: writes to the old file would be lost."""
        try:
            in_place = os.path.samestat(os.stat(self._driver.path), self._opened)  # noqa: PTH116 - `Path.stat` is slower
        except FileNotFoundError:
            in_place = False
        if not in_place:
            raise FileNotFoundError("it was removed or replaced while it was in use")


def make_private(path: Path) -> None:
    """Create the empty file *path* with mode 0600, unless it exists; its folder must exist.

    SQLite would create it with the mode of the umask. An existing file is not opened: closing it again would drop every
    lock that this process has on it. Another process would then believe that the database is not in use, and remove its
    write-ahead log, or roll back a running transaction.
    """
    # One at a time: otherwise the first could close the file after the second has seen it, and SQLite has locked it.
    with _MAKING, suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
