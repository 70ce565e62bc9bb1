"""Everything that the sandbox knows, in SQLite: one transaction per request, so that nothing is ever half done.

A document is a Struct, kept as JSON in the table of its noun, with the columns that searches look at beside it.
"""

import asyncio
import errno
import math
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from decimal import localcontext
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import msgspec
from msgspec import Struct

from paymentsdk import money
from paymentsdk._codec.timestamps import plain
from paymentsdk._validate import check_path
from paymentsdk.sandbox._records import EPOCH, MICROSECOND, Condition, Documents, Table, as_column

D = TypeVar("D", bound=Struct)
T = TypeVar("T")

_TABLES = """
CREATE TABLE ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, tenant INTEGER, entry BLOB);
CREATE INDEX ledger_tenant ON ledger (tenant);
CREATE TRIGGER ledger_is_kept BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER ledger_is_whole BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TABLE saved_responses (tenant INTEGER, key TEXT, at INTEGER, fingerprint TEXT, body BLOB,
    PRIMARY KEY (tenant, key));
CREATE INDEX saved_responses_at ON saved_responses (tenant, at);
CREATE TABLE due (seq INTEGER PRIMARY KEY, at INTEGER, tenant INTEGER, kind TEXT, id TEXT);
CREATE INDEX due_at ON due (at, seq);
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB);
"""

#: Of the tables. A change of them, or of a document that older ones cannot be read as, is another schema.
SCHEMA = 6
#: Documents that are kept decoded.
_MOST_CACHED = 1_000
#: What SQLite calls a database without a file.
_IN_MEMORY = ":memory:"
# Noun handlers may put moments of any class into their documents.
_encode = msgspec.json.Encoder(enc_hook=plain).encode


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
        age, hint = ("an older", "") if schema < SCHEMA else ("a newer", ", or update paymentsdk")
        raise sqlite3.DatabaseError(
            f"{age} version of the sandbox made it (schema {schema}; this one has {SCHEMA}), and none reads the files "
            f"of another: move it away, or name another file{hint}"
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
        os_error = OSError(f"cannot use {path!r} as the database of a sandbox: {reason}")
        os_error.errno = errno.ENOSPC if is_full(error) else errno.EIO
        raise os_error from None


def is_full(error: object) -> bool:
    """Whether *error* says that there is no room on the disk."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC


class SavedResponse(NamedTuple):
    """The response that went with an idempotency key."""

    fingerprint: str
    """What was asked: operation, path and body."""
    body: bytes


class Due(Struct, frozen=True, kw_only=True):
    """Something that is to happen at a moment, by the clock of the sandbox."""

    at: datetime
    kind: str
    tenant: int
    id: str


class _SharedCommit:
    """A commit that requests in flight share."""

    error: Exception | None = None
    """Why it failed, and with it what all of them did."""


class _Closed:
    """Stands where the connection of a store was that has been closed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError("the sandbox has stopped: ask it before it ends, or start another one")


class Store:
    """The documents, the ledger, the idempotency keys and what is due.

    It may be used from any thread; one transaction runs at a time.

    Args:
        tables: The kinds of documents.
        path: The file that keeps it all; in memory without one.

    Raises:
        OSError: The file cannot be opened, is no database of a sandbox, or another sandbox uses it.
    """

    def __init__(self, tables: Sequence[Table[Struct]], path: str | None = None) -> None:
        self._lock = threading.RLock()
        self._inside = False
        self._undo = ""
        """The statement that undoes what the running transaction has written; empty if it has written nothing."""
        self._shared: _SharedCommit | None = None
        """The commit that shared transactions, which have ended, wait for."""
        self._after: list[Callable[[], None]] = []
        self._next_due = -math.inf
        """Nothing is due before it, in microseconds since 1970."""
        self._cache: dict[tuple[str, str, int | None], Struct] = {}
        """Documents of cached tables: by table, key, and the seller that they were asked for."""
        self._own: set[str] = set()
        """The tables of `Documents` that are there for sure."""
        if path == "":  # A variable that is not set, most likely: in memory, all would be lost without a word.
            raise OSError("cannot use '' as the database of a sandbox: it names no file")
        # SQLite takes `file:...` for a URI, and with `?mode=memory` keeps nothing; an absolute path is only a path.
        self._path = path = None if path is None or path == _IN_MEMORY else str(check_path("db", path))
        self.links: str = ""
        """Where the links of documents lead, whatever the address was when they were kept."""
        with naming(path):
            self._connection = sqlite3.connect(
                path or _IN_MEMORY, isolation_level=None, check_same_thread=False, timeout=0.5
            )
        # Also when nobody closes a sandbox that was never started.
        self._close = weakref.finalize(self, self._connection.close)
        with self.opening():
            is_new = not check_file(self._connection)
            if path:
                # With a write-ahead log a commit is in the operating system's hands before the response leaves: a
                # killed process loses nothing. The exclusive lock keeps a second sandbox out.
                self._connection.executescript(
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                )
            # All tables or none: a file with some of them would not be known again. A file of an earlier version gets
            # those that are new. Another sandbox that uses the file is noticed here.
            schema = (_TABLES if is_new else "") + "".join(table.create for table in tables)
            self._connection.executescript(f"BEGIN EXCLUSIVE;{schema}PRAGMA user_version = {SCHEMA};COMMIT;")

    def close(self) -> None:
        """Let go of the file; whoever still asks gets a ``RuntimeError`` that says so."""
        with self._lock:
            self._commit_shared()
            self._close()
            self._connection = cast("sqlite3.Connection", _Closed())

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let go of the file if what a start does inside fails, with an ``OSError`` if the file is the reason."""
        try:
            with naming(self._path):
                yield
        except BaseException:
            self.close()
            raise

    def locked(self) -> AbstractContextManager[object]:
        """Keep every other thread out, also between two transactions."""
        return self._lock

    @contextmanager
    def transaction(self, *, shared: bool = False) -> Iterator[None]:
        """Commit everything that is done inside, or nothing; one inside another is a part of it.

        No amount is rounded inside, whatever decimal context the program has.

        Args:
            shared: Whether the commit may come later, together with others: wait for `committed` before you tell
                anybody what was done or seen inside. In memory, the commit comes at once.
        """
        with self._lock:
            if self._inside:
                yield
                return
            shared = shared and self._path is not None
            if not shared:
                self._commit_shared()
            callbacks = len(self._after)
            self._inside = True
            try:
                with localcontext(money.EXACTLY):
                    yield
                if self._undo and shared and self._shared is None:
                    self._shared = _SharedCommit()
                elif self._undo:
                    self._connection.execute("RELEASE part" if self._shared else "COMMIT")
            except BaseException as error:
                del self._after[callbacks:]
                self._roll_back(self._undo, error)
                raise
            finally:
                self._inside, self._undo = False, ""
            if self._shared is None:
                self._call_back()

    def _roll_back(self, undo: str, error: BaseException) -> None:
        """Undo what a transaction has written, by the statement *undo*, which is empty if it has written nothing."""
        self._forget()
        try:
            if undo:
                self._connection.execute(undo)
        except sqlite3.OperationalError as failure:  # On a full disk SQLite has rolled back by itself, and all of it.
            if self._shared:
                self._shared.error = error if isinstance(error, Exception) else failure
            self._shared = None
            self._after.clear()

    def _forget(self) -> None:
        """Forget what is known of the rows."""
        self._own.clear()
        self._cache.clear()
        self._next_due = -math.inf

    def _commit_shared(self) -> None:
        """Commit the shared transactions that have ended; if that fails, each `committed` says so."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            shared.error = error
            self._after.clear()
            self._roll_back("ROLLBACK", error)
        else:
            self._call_back()

    def _call_back(self) -> None:
        callbacks, self._after = self._after, []
        for callback in callbacks:
            callback()

    async def committed(self) -> None:
        """Return once the shared transactions that have ended are committed; those of all requests in flight at once.

        Raises:
            sqlite3.Error: The commit failed, and nothing of them was kept.
        """
        shared = self._shared
        if shared is None:
            return
        try:
            await asyncio.sleep(0)  # Meanwhile each of the others that are ready takes its turn.
        finally:
            with self._lock:
                if self._shared is shared:
                    self._commit_shared()
        if shared.error:
            raise shared.error

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call *callback* once the transaction is committed; never, if it is not."""
        self._after.append(callback)

    def get(self, table: Table[D], key: str, tenant: int | None = None) -> D | None:
        """Return the document *key*; with a *tenant*, only if it is theirs."""
        place = table.name, key, tenant
        with self._lock:
            document = self._cache.get(place)
            if document is None:
                query = f"SELECT document FROM {table.name} WHERE key = ? AND tenant = ifnull(?, tenant)"
                if rows := self._read(query, (key, tenant)):
                    document = self._decoded(table, rows[0][0])
                    if table.cached and len(self._cache) < _MOST_CACHED:
                        self._cache[place] = document
            return cast("D | None", document)

    def _decoded(self, table: Table[D], stored: bytes) -> D:
        document = read_kept(stored, table.decode)
        return table.rebase_links(document, self.links) if table.rebase_links else document

    def owner(self, table: Table[D], key: str) -> int | None:
        """Return whose document *key* is."""
        rows = self._read(f"SELECT tenant FROM {table.name} WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def unused(self, table: Table[D], number: Callable[[], int]) -> int:
        """Return the first *number* that is the key of no document, whoever's: a new one would take its place."""
        while self.owner(table, str(candidate := number())) is not None:
            pass
        return candidate

    def put(self, table: Table[D], tenant: int, document: D) -> None:
        """Keep *document*, in place of an older one with its key."""
        self._write(table.put, (tenant, table.key(document), *table.values(document), _encode(document)))
        if table.cached:
            self._cache.clear()

    def prepare(self, table: Table[D]) -> Table[D]:
        """Return *table*, and make that of `Documents` at the first look: they are not known before."""
        if isinstance(table, Documents) and table.name not in self._own:
            for statement in filter(None, table.create.split(";")):
                self._write(statement, ())
            self._own.add(table.name)
        return table

    def remove(self, table: Table[D], key: str, tenant: int) -> bool:
        """Forget the document *key*, and say whether there was one."""
        statement = f"DELETE FROM {table.name} WHERE key = ? AND tenant = ? RETURNING key"
        removed = self._write(statement, (key, tenant))
        if table.cached:
            self._cache.clear()
        return bool(removed)

    def find(
        self,
        table: Table[D],
        tenant: int | None,
        conditions: Sequence[Condition] = (),
        *,
        order: str = "seq",
        descending: bool = False,
        limit: int = -1,
        offset: int = 0,
        shuffle: int | None = None,
    ) -> list[D]:
        """Return the documents that meet all *conditions*.

        Equal ones in *order* come in the order of their making; with *shuffle*, in another for each number.
        """
        clause, values = table.where(tenant, conditions)
        direction = "DESC" if descending else "ASC"
        # Knuth's multiplier spreads neighbours; the number decides where they go.
        ties = f"seq {direction}" if shuffle is None else f"(seq + {int(shuffle)}) * 2654435761 % 4294967296"
        if order == "seq":
            sort = ties
        else:
            table.check_column(order)
            sort = f"{order} {direction}, {ties}"
        rows = self._read(
            # Which rows it is, an index may know alone; only theirs are the documents that are read.
            f"SELECT document FROM {table.name} WHERE seq IN "
            f"(SELECT seq FROM {table.name}{clause} ORDER BY {sort} LIMIT ? OFFSET ?) ORDER BY {sort}",
            (*values, limit, offset),
        )
        return [self._decoded(table, document) for (document,) in rows]

    def count(self, table: Table[D], tenant: int | None, conditions: Sequence[Condition] = ()) -> int:
        """Return how many documents meet all *conditions*."""
        clause, values = table.where(tenant, conditions)
        [(number,)] = self._read(f"SELECT COUNT(*) FROM {table.name}{clause}", values)
        return int(number)

    def append(self, tenant: int, line: bytes) -> None:
        """Write a line of the ledger; no line is ever changed."""
        self._write("INSERT INTO ledger (tenant, entry) VALUES (?, ?)", (tenant, line))

    def ledger(self, tenant: int | None = None, limit: int | None = None) -> list[bytes]:
        """Return the lines of the ledger, or the newest *limit* of them, oldest first, as JSON."""
        query = "SELECT entry FROM ledger WHERE tenant = ifnull(?, tenant) ORDER BY seq DESC LIMIT ifnull(?, -1)"
        return [line for (line,) in reversed(self._read(query, (tenant, limit)))]

    def saved_response(self, tenant: int, key: str, *, after: datetime = EPOCH) -> SavedResponse | None:
        """Return the response that the idempotency key *key* has had *after* a moment."""
        # After the plus SQLite looks at no index: it is to go by the key.
        query = "SELECT fingerprint, body FROM saved_responses WHERE tenant = ? AND key = ? AND +at > ?"
        rows = self._read(query, (tenant, key, as_column(after)))
        return SavedResponse._make(rows[0]) if rows else None

    def save_response(self, tenant: int, key: str, saved: SavedResponse, *, at: datetime, forgotten: datetime) -> None:
        """Keep the response that went with *key* at a moment, instead of an older one.

        The seller's oldest responses are dropped, if they were given up to the moment *forgotten*.
        """
        # Two for each that comes: so there are never many more than the keys that are remembered.
        oldest = "SELECT rowid FROM saved_responses WHERE tenant = ? AND at <= ? ORDER BY at LIMIT 2"
        self._write(f"DELETE FROM saved_responses WHERE rowid IN ({oldest})", (tenant, as_column(forgotten)))
        values = (tenant, key, as_column(at), *saved)
        self._write("INSERT OR REPLACE INTO saved_responses VALUES (?, ?, ?, ?, ?)", values)

    def schedule(self, due: Due) -> None:
        """Have something happen at a moment."""
        at = (due.at - EPOCH) // MICROSECOND
        statement = "INSERT INTO due (at, tenant, kind, id) VALUES (?, ?, ?, ?)"
        with self._lock:
            self._write(statement, (at, due.tenant, due.kind, due.id))
            self._next_due = min(self._next_due, at)

    def is_due(self, until: datetime) -> bool:
        """Whether something may be due up to *until*."""
        return (until - EPOCH) // MICROSECOND >= self._next_due

    def bring_forward(self, tenant: int, duration: timedelta) -> None:
        """Have everything of a seller happen sooner by *duration*."""
        sooner = duration // MICROSECOND
        with self._lock:
            self._write("UPDATE due SET at = at - ? WHERE tenant = ?", (sooner, tenant))
            self._next_due -= sooner

    def take_due(self, until: datetime) -> Due | None:
        """Take out the first thing that is due up to *until*."""
        first = "SELECT seq FROM due WHERE at <= ? ORDER BY at, seq LIMIT 1"
        statement = f"DELETE FROM due WHERE seq = ({first}) RETURNING at, tenant, kind, id"
        with self._lock:
            if not self.is_due(until):
                return None
            for at, tenant, kind, name in self._write(statement, (as_column(until),)):
                return Due(at=EPOCH + at * MICROSECOND, tenant=tenant, kind=kind, id=name)
            [(earliest,)] = self._read("SELECT min(at) FROM due", ())
            self._next_due = math.inf if earliest is None else earliest
            return None

    def setting(self, name: str, otherwise: T) -> T:
        """Return what was kept under *name*, which has the type of *otherwise*; that, if nothing was."""
        rows = self._read("SELECT value FROM settings WHERE name = ?", (name,))
        return read_kept(rows[0][0], msgspec.json.Decoder(type(otherwise)).decode) if rows else otherwise

    def keep_setting(self, name: str, value: object) -> None:
        """Keep *value* under *name*."""
        self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, msgspec.json.encode(value)))

    def copy(self) -> sqlite3.Connection:
        """Return a copy of everything, in memory; `restore` takes it, and the caller closes it."""
        with self._lock:
            self._commit_shared()
            backup = self._connection.backup  # Raises once the store is closed.
            copy = sqlite3.connect(_IN_MEMORY, check_same_thread=False)
            backup(copy)
            return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Make everything as it was when the *copy* was made."""
        with self._lock:
            self._commit_shared()
            copy.backup(self._connection)
            self._forget()

    def _read(self, statement: str, values: Sequence[object]) -> list[Any]:
        """Return the rows of a statement; in another thread's transaction it has no part."""
        with self._lock:
            if not self._inside:  # Nobody sees what may be lost.
                self._commit_shared()
            return self._connection.execute(statement, values).fetchall()

    def _write(self, statement: str, values: Sequence[object]) -> list[Any]:
        """Do what `_read` does with a statement that writes: the first one of a transaction begins it."""
        with self._lock:
            if self._inside and not self._undo:
                self._connection.execute("SAVEPOINT part" if self._shared else "BEGIN IMMEDIATE")
                self._undo = "ROLLBACK TO part" if self._shared else "ROLLBACK"
            return self._read(statement, values)
