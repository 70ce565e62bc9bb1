"""The checkpoint of a run: its finished windows, and the files with their rows. Only the driver writes it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paymentsdk._paging.proof import Window
from paymentsdk.errors import RequestInvalid

#: A row of `windows` is a `DoneWindow`, with its `is_final` as `kept`; a file in `parts` has the same flag.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (question TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS grains (account TEXT PRIMARY KEY, grain INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, kept INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    account TEXT NOT NULL, "begin" INTEGER NOT NULL, "end" INTEGER NOT NULL, kept INTEGER NOT NULL, at INTEGER NOT NULL,
    rows INTEGER NOT NULL, undated INTEGER NOT NULL, seen INTEGER NOT NULL, total INTEGER, reason TEXT,
    PRIMARY KEY (account, "begin")
) WITHOUT ROWID;
"""
_SUMS = """
SELECT
    COUNT(*), IFNULL(SUM(rows), 0), IFNULL(SUM(undated), 0), IFNULL(SUM("end" - "begin"), 0), MIN(at),
    MIN(CASE WHEN reason IS NULL THEN "begin" END)
FROM windows WHERE account IN accounts
"""


class DoneWindow(NamedTuple):
    """A finished window, as a row of the checkpoint."""

    account: str
    begin: int
    end: int
    is_final: bool
    """Whether a resumed run relies on the window; otherwise, it walks the window again."""

    at: int
    """The time at which its first row was read, in milliseconds since 1970."""

    rows: int
    undated: int
    """The number of rows without a date."""

    seen: int
    total: int | None
    reason: str | None
    """Why the window is not whole; ``None`` if it is."""


class Sums(NamedTuple):
    """The sums over all finished windows of a run."""

    windows: int
    rows: int
    undated: int
    width: int
    """The milliseconds that the windows span together."""

    since: int | None
    """The time at which the first window was walked, in milliseconds since 1970; `None` before the first."""

    whole_from: int | None
    """The begin of the earliest whole window; `None` without a whole window."""


class Checkpoint:
    """The file ``ledger.sqlite`` of a run, and the directory of its parts.

    Args:
        directory: The directory of the run; created if missing.
        question: The arguments of the run, as JSON. The accounts may differ from earlier runs; sums are of these alone.

    Raises:
        RequestInvalid: The directory holds a run with other arguments, or other files, or another process works on it.
        OSError: The directory cannot be created. Methods raise it if the file cannot be written, for example because
            the disk is full.
    """

    def __init__(self, directory: Path, question: str) -> None:
        self.directory = directory
        self.parts = directory / "parts"
        self.parts.mkdir(parents=True, exist_ok=True)
        path = directory / "ledger.sqlite"
        # A run deletes unknown files in these directories, so they must be its own.
        if not path.exists() and (any(self.parts.iterdir()) or (directory / "changes").exists()):
            reason = f"{directory} has `parts` or `changes`, but no ledger.sqlite of a run: use another directory"
            raise RequestInvalid("out", reason)
        try:
            # The driver commits from several threads, but one at a time.
            self._file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._open(question)
            except BaseException:
                self._file.close()
                raise
        except sqlite3.DatabaseError as error:
            raise RequestInvalid("out", f"cannot be used: {error}") from None

    def _open(self, question: str) -> None:
        # The lock lasts until the process ends or is killed. Two drivers would delete each other's parts as orphans.
        self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")
        begun = self._file.execute("SELECT question FROM run").fetchone()
        [first_question] = begun or [question]
        if _without_names(first_question) != _without_names(question):
            raise RequestInvalid("out", f"holds a run with other arguments; take another directory: {first_question}")
        self._file.execute("CREATE TEMP TABLE accounts (account TEXT PRIMARY KEY)")
        with self._transaction():
            names = [(name,) for name in json.loads(question)["accounts"]]
            self._file.executemany("INSERT INTO accounts VALUES (?)", names)
            if begun is None:
                self._file.execute("INSERT INTO run VALUES (?)", (question,))
            self._file.execute("DELETE FROM windows WHERE NOT kept")
            self._file.execute("DELETE FROM parts WHERE NOT kept")
        self._drop_orphans()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._file:  # It commits or rolls back. In some locales, Python 3.11 does not send BEGIN by itself.
                self._file.execute("BEGIN")
                yield
        except sqlite3.OperationalError as error:
            raise OSError(f"the ledger cannot be written: {error}") from None

    def _drop_orphans(self) -> None:
        """Delete files that the checkpoint does not name: a killed process has written them, or they were discarded."""
        names = set(self.names())
        for path in self.parts.iterdir():
            if path.name not in names:
                path.unlink()

    def save_grains(self, grains: Mapping[str, int]) -> None:
        """Save the proved grains of date filters, by account."""
        with self._transaction():
            self._file.executemany("INSERT INTO grains VALUES (?, ?)", grains.items())

    def grains(self) -> dict[str, int]:
        """Return the saved grains, by account."""
        return dict(self._file.execute("SELECT account, grain FROM grains"))

    def commit(self, windows: Iterable[DoneWindow], parts: Sequence[tuple[str, bool]]) -> None:
        """Add windows and the files with their rows. The files must exist already."""
        with self._transaction():
            self._file.executemany("INSERT INTO parts VALUES (?, ?)", parts)
            self._file.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", windows)

    def done(self, account: str) -> list[Window]:
        """Return the finished windows of *account*."""
        rows = self._file.execute('SELECT "begin", "end" FROM windows WHERE account = ?', (account,))
        return [Window(begin, end) for begin, end in rows]

    def doubtful(self) -> list[DoneWindow]:
        """Return the windows that are not whole, in order."""
        rows = self._file.execute(
            'SELECT * FROM windows WHERE reason IS NOT NULL AND account IN accounts ORDER BY account, "begin"'
        )
        return [DoneWindow(*row) for row in rows]

    def names(self) -> list[str]:
        """Return the names of the files with the rows."""
        return [name for (name,) in self._file.execute("SELECT name FROM parts ORDER BY name")]

    def sums(self) -> Sums:
        """Return the sums over all finished windows."""
        return Sums(*self._file.execute(_SUMS).fetchone())

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        self._file.close()


def _without_names(question: str) -> dict[str, object]:
    """Return *question* with a flag instead of the account names: whether accounts are named at all."""
    members = json.loads(question)
    return {**members, "accounts": members["accounts"] != [""]}
