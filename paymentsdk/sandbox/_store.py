"""The data of the sandbox in SQLite. Each request is one transaction, which takes effect as a whole or not at all.

A document is a Struct. Its row in the table of its noun has the JSON, and the columns that searches use.
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
CREATE TABLE ledger (seq INTEGER PRIMARY KEY, tenant INTEGER, entry BLOB);
CREATE INDEX ledger_tenant ON ledger (tenant);
CREATE TRIGGER ledger_is_kept BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER ledger_is_whole BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TABLE saved_responses (tenant INTEGER, key TEXT, at INTEGER, request BLOB, body BLOB,
    PRIMARY KEY (tenant, key));
CREATE INDEX saved_responses_at ON saved_responses (tenant, at);
CREATE TABLE due (seq INTEGER PRIMARY KEY, at INTEGER, tenant INTEGER, kind TEXT, id TEXT);
CREATE INDEX due_at ON due (at, seq);
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB);
"""

#: The version of the tables. It rises when the tables change, or when old documents cannot be read any more.
SCHEMA = 7
#: Most documents that are kept decoded.
_MOST_CACHED = 1_000
#: SQLite's name for a database without a file.
_IN_MEMORY = ":memory:"
# Handlers may put moments of any class into their documents.
_encode = msgspec.json.Encoder(enc_hook=plain).encode
_SAVE_RESPONSE = "INSERT OR REPLACE INTO saved_responses VALUES (?, ?, ?, ?, ?)"


def check_file(connection: sqlite3.Connection) -> bool:
    """Reject the database of another program or schema, or a damaged one, before anything is written to it.

    Returns:
        Whether it is the database of a sandbox. Otherwise it is empty.
    """
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if names and not {"ledger", "due", "settings"} <= names:
        raise sqlite3.DatabaseError("it is the database of another program")
    [(schema,)] = connection.execute("PRAGMA user_version")
    if names and schema != SCHEMA:
        age, hint = ("an older", "") if schema < SCHEMA else ("a newer", ", or update paymentsdk")
        raise sqlite3.DatabaseError(
            f"it comes from {age} version of the sandbox (schema {schema}); this version reads only schema {SCHEMA}: "
            f"move it away, or name another file{hint}"
        )
    [(damage,)] = connection.execute("PRAGMA quick_check(1)")
    if damage != "ok":
        raise sqlite3.DatabaseError(f"it is damaged ({damage.splitlines()[-1]}): start with another file")
    return bool(names)


def read_kept(stored: bytes, decode: Callable[[bytes], T]) -> T:
    """Return the result of *decode* for *stored* bytes.

    Raises:
        sqlite3.DatabaseError: The bytes are damaged. SQLite does not check the content of its rows.
    """
    try:
        return decode(stored)
    except (ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"it is damaged ({error}): start with another file") from None


@contextmanager
def naming(path: str | None) -> Iterator[None]:
    """Raise SQLite's errors inside the block as an ``OSError`` that names the file *path*."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        reason = "another sandbox uses it" if code == sqlite3.SQLITE_BUSY else str(error)
        if code & 0xFF == sqlite3.SQLITE_IOERR:  # Also if the log's index does not fit.
            reason += ": the disk may be full"
        os_error = OSError(f"cannot use {path!r} as the database of a sandbox: {reason}")
        os_error.errno = errno.ENOSPC if is_full(error) else errno.EIO
        raise os_error from None


def is_full(error: object) -> bool:
    """Return whether *error* says that the disk is full."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == errno.ENOSPC


class SavedResponse(NamedTuple):
    """The response to the first request with an idempotency key."""

    request: bytes
    """The operation, the path and the body."""
    body: bytes


class Due(Struct, frozen=True, kw_only=True):
    """A job for a moment, by the clock of the sandbox."""

    at: datetime
    kind: str
    tenant: int
    id: str


class _Changes(Struct):
    """The changes of a transaction, or of several that share a commit."""

    rows: dict[str, list[Sequence[object]]] = {}
    """The rows that wait to be inserted, by statement. They keep their order: each table has one such statement."""
    callbacks: list[Callable[[], object]] = []
    """What is called after the commit."""
    begun: bool = False
    """Whether some of them are in SQLite, not committed."""
    error: BaseException | None = None
    """The error of the commit, after which the changes are lost."""

    def add(self, ended: "_Changes") -> None:
        """Add the changes of a transaction that has *ended*."""
        for statement, rows in ended.rows.items():
            self.rows.setdefault(statement, []).extend(rows)
        self.callbacks += ended.callbacks


class _Closed:
    """Replaces the connection of a closed store."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError("the sandbox has stopped; use it before it stops, or start another")


class Store:
    """The documents, the ledger, the idempotency keys and the due jobs.

    It is usable from any thread; one transaction runs at a time.

    Args:
        tables: The kinds of documents.
        path: The file that keeps the data. By default, it is in memory.

    Raises:
        OSError: The file cannot be opened, is not the database of a sandbox, or another sandbox uses it.
    """

    def __init__(self, tables: Sequence[Table[Struct]], path: str | None = None) -> None:
        self._lock = threading.RLock()
        self._running: _Changes | None = None
        """The changes of the running transaction."""
        self._shared = _Changes()
        """The changes of ended transactions that wait for their commit. None of them is in SQLite."""
        self._joined: _Changes | None = None
        """What the last shared transaction waits for, also if another thread commits that."""
        self._next_due = -math.inf
        """No job is due before this moment, in microseconds since 1970."""
        self._cache: dict[tuple[str, str, int | None], Struct] = {}
        """Documents of cached tables as this connection sees them, by table, key, and the seller of the lookup."""
        self._lists: dict[tuple[str, int], list[Any]] = {}
        """All documents of a seller in a table, as `every` returned them."""
        self._oldest_saved: dict[int, float] = {}
        """No response of a seller was saved before this moment, in microseconds since 1970."""
        self._own: set[str] = set()
        """The tables of `Documents` that certainly exist."""
        if path == "":  # Probably an unset variable: in memory, everything would be lost silently.
            raise OSError("cannot use '' as the database of a sandbox: it names no file")
        # SQLite reads `file:...` as a URI, where `?mode=memory` keeps nothing. An absolute path is never a URI.
        self._path = path = None if path is None or path == _IN_MEMORY else str(check_path("db", path))
        self.links: str = ""
        """The address that the links of documents lead to, even if they were stored under another address."""
        with naming(path):
            self._connection = sqlite3.connect(
                path or _IN_MEMORY, isolation_level=None, check_same_thread=False, timeout=0.5
            )
        # Closes the file of a sandbox that was never started, too.
        self._close = weakref.finalize(self, self._connection.close)
        with self.opening():
            is_new = not check_file(self._connection)
            if path:
                # With a write-ahead log, the operating system has the commit before the response is sent, so that a
                # killed process loses nothing. The exclusive lock keeps a second sandbox out.
                self._connection.executescript(
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                )
            # One transaction makes all tables, since a file with some of them would be rejected later. A file of an
            # earlier version gets the new tables. A second sandbox on the same file fails here.
            schema = (_TABLES if is_new else "") + "".join(table.create for table in tables)
            self._connection.executescript(f"BEGIN EXCLUSIVE;{schema}PRAGMA user_version = {SCHEMA};COMMIT;")

    def close(self) -> None:
        """Close the file. Later uses raise a ``RuntimeError`` that says so."""
        with self._lock:
            try:
                self._commit_shared()
            finally:
                self._forget()
                self._close()
                self._connection = cast("sqlite3.Connection", _Closed())

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Close the file if a start fails inside the block, with an ``OSError`` if the file is the reason."""
        try:
            with naming(self._path):
                yield
        except BaseException:
            self.close()
            raise

    def locked(self) -> AbstractContextManager[object]:
        """Return the lock that keeps all other threads out, also between two transactions."""
        return self._lock

    @contextmanager
    def transaction(self, *, shared: bool = False) -> Iterator[None]:
        """Commit all changes of the block, or none if it raises. A nested transaction is a part of the outer one.

        Amounts are not rounded inside, whatever the decimal context of the program.

        Args:
            shared: Whether the commit may come later, together with others. Wait for `committed` before you reveal
                anything that was done or read inside.
        """
        with self._lock:
            if self._running:
                yield
                return
            if not shared:
                self._commit_shared()
            running = self._running = _Changes()
            try:
                with localcontext(money.EXACTLY):
                    yield
                # A transaction that has read what it wrote is in SQLite already, so its commit cannot wait.
                if shared and running.rows and not running.begun:
                    self._shared.add(running)
                else:
                    self._commit(running)
            except BaseException:
                if running.rows or running.begun:
                    self._roll_back()
                raise
            finally:
                self._running = None
                if shared:
                    self._joined = self._shared

    def _commit(self, changes: _Changes) -> None:
        """Insert the rows of *changes*, commit them with all that was written before, and call the callbacks."""
        self._insert_rows(changes)
        if changes.begun:
            self._connection.execute("COMMIT")
        for callback in changes.callbacks:
            callback()

    def _insert_rows(self, changes: _Changes) -> None:
        """Insert the rows that wait: many at once are faster. After a failed insert, *changes* cannot be committed."""
        try:
            if changes.rows:
                self._begin(changes)
            for statement, rows in changes.rows.items():
                self._connection.executemany(statement, rows)
            changes.rows.clear()
        except BaseException:
            self._roll_back()
            raise

    def _begin(self, changes: _Changes) -> None:
        """Begin a transaction of SQLite, if *changes* have none yet."""
        if not changes.begun:
            self._connection.execute("BEGIN IMMEDIATE")
            changes.begun = True
        elif not self._connection.in_transaction:  # A handler goes on after an error: its second half must not stay.
            raise sqlite3.OperationalError("the transaction was rolled back")

    def _roll_back(self) -> None:
        """Undo what is not committed, and discard what is cached of it."""
        self._forget()
        if self._connection.in_transaction:  # A full disk rolls back by itself.
            self._connection.execute("ROLLBACK")

    def _forget(self) -> None:
        """Discard everything that is cached about rows."""
        self._own.clear()
        self._cache.clear()
        self._lists.clear()
        self._oldest_saved.clear()
        self._next_due = -math.inf

    def _commit_shared(self) -> None:
        """Commit the shared transactions that have ended. If that fails, each `committed` raises the error, too."""
        shared = self._shared
        if shared.rows:
            self._shared = _Changes()
            try:
                self._commit(shared)
            except BaseException as error:
                shared.error = error
                self._roll_back()
                raise

    async def committed(self) -> None:
        """Return once the ended shared transactions are committed: one commit for all requests in flight.

        Raises:
            sqlite3.Error: The commit failed, and all their changes are lost.
        """
        shared, self._joined = self._joined or self._shared, None
        if shared.rows:
            await asyncio.sleep(0)  # Lets other ready requests join the commit.
        with self._lock:  # Another thread may be committing.
            if self._shared is shared:
                self._commit_shared()
        if shared.error:
            raise shared.error

    def after_commit(self, callback: Callable[[], object]) -> None:
        """Call *callback* once the transaction is committed; never if it fails."""
        with self._lock:
            if self._running:
                self._running.callbacks.append(callback)
            else:
                callback()

    def get(self, table: Table[D], key: str, tenant: int | None = None) -> D | None:
        """Return the document *key*; with *tenant*, only if it belongs to that seller.

        Outside a transaction, a document that is cached may still be lost: wait for `committed` before you reveal it.
        """
        with self._lock:
            document = self._cache.get((table.name, key, tenant))
            if document is None:
                query = f"SELECT document FROM {table.name} WHERE key = ? AND tenant = ifnull(?, tenant)"
                if rows := self._read(query, (key, tenant)):
                    document = self._decoded(table, rows[0][0])
                    self._cached(table, key, tenant, document)
            return cast("D | None", document)

    def _cached(self, table: Table[D], key: str, tenant: int | None, document: D) -> None:
        if table.cached:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[table.name, key, tenant] = document

    def _decoded(self, table: Table[D], stored: bytes) -> D:
        document = read_kept(stored, table.decode)
        return table.rebase_links(document, self.links) if table.rebase_links else document

    def owner(self, table: Table[D], key: str) -> int | None:
        """Return the user id of the seller whose document *key* is."""
        rows = self._read(f"SELECT tenant FROM {table.name} WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def unused(self, table: Table[D], number: Callable[[], int]) -> int:
        """Return the first *number* that is not a document's key, for any seller: a new document would replace it."""
        while self.owner(table, str(candidate := number())) is not None:
            pass
        return candidate

    def put(self, table: Table[D], tenant: int, document: D) -> None:
        """Store *document*. It replaces an older one with the same key."""
        key = table.key(document)
        with self._lock:
            # A text that SQLite does not take must fail here, not in the commit that others share.
            insert = self._write if isinstance(table, Documents) else self._insert
            insert(table.put, (tenant, key, *table.values(document), _encode(document)))
            self._cache.pop((table.name, key, None), None)
            self._lists.pop((table.name, tenant), None)
            self._cached(table, key, tenant, document)

    def prepare(self, table: Table[D]) -> Table[D]:
        """Return *table*. A table of `Documents` is created at its first use, since it is unknown before."""
        if isinstance(table, Documents) and table.name not in self._own:
            for statement in filter(None, table.create.split(";")):
                self._write(statement, ())
            self._own.add(table.name)
        return table

    def remove(self, table: Table[D], key: str, tenant: int) -> bool:
        """Remove the document *key*, and return whether it existed."""
        statement = f"DELETE FROM {table.name} WHERE key = ? AND tenant = ? RETURNING key"
        with self._lock:
            self._cache.pop((table.name, key, None), None)
            self._cache.pop((table.name, key, tenant), None)
            self._lists.pop((table.name, tenant), None)
            return bool(self._write(statement, (key, tenant)))

    def every(self, table: Table[D], tenant: int) -> list[D]:
        """Return all documents of a seller. They are kept decoded, for small tables that each request reads."""
        with self._lock:
            documents = self._lists.get((table.name, tenant))
            if documents is None:
                documents = self._lists[table.name, tenant] = self.find(table, tenant)
            return documents

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

        Documents with equal *order* come in creation order; *shuffle* selects another order for each number.
        """
        clause, values = table.where(tenant, conditions)
        direction = "DESC" if descending else "ASC"
        # Knuth's multiplier spreads neighbors; the number determines their places.
        ties = f"seq {direction}" if shuffle is None else f"(seq + {int(shuffle)}) * 2654435761 % 4294967296"
        if order == "seq":
            sort = ties
        else:
            table.check_column(order)
            sort = f"{order} {direction}, {ties}"
        rows = self._read(
            # The inner query may need only an index; documents are read for the selected rows alone.
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
        """Append a line to the ledger. Lines never change."""
        self._insert("INSERT INTO ledger (tenant, entry) VALUES (?, ?)", (tenant, line))

    def ledger(self, tenant: int | None = None, limit: int | None = None) -> list[bytes]:
        """Return the lines of the ledger, or the newest *limit* of them, oldest first, as JSON."""
        query = "SELECT entry FROM ledger WHERE tenant = ifnull(?, tenant) ORDER BY seq DESC LIMIT ifnull(?, -1)"
        return [line for (line,) in reversed(self._read(query, (tenant, limit)))]

    def saved_response(self, tenant: int, key: str, *, after: datetime = EPOCH) -> SavedResponse | None:
        """Return the response to the idempotency key *key*, if it was saved *after* a moment."""
        # The plus keeps SQLite from an index on `at`: the key is more selective.
        query = "SELECT request, body FROM saved_responses WHERE tenant = ? AND key = ? AND +at > ?"
        with self._lock:
            # Most keys are new. Inserting all that waits at each lookup would cost more than the search.
            settle = any(row[:2] == (tenant, key) for row in self._shared.rows.get(_SAVE_RESPONSE, ()))
            rows = self._read(query, (tenant, key, as_column(after)), settle=settle)
        return SavedResponse._make(rows[0]) if rows else None

    def save_response(self, tenant: int, key: str, saved: SavedResponse, *, at: datetime, forgotten: datetime) -> None:
        """Save the response to *key* at a moment. It replaces an older one.

        The seller's oldest responses are deleted if they were saved at or before *forgotten*.
        """
        moment, until = (at - EPOCH) // MICROSECOND, (forgotten - EPOCH) // MICROSECOND
        with self._lock:
            first = self._oldest_saved.get(tenant, -math.inf)
            if first <= until:
                # Deleting two per insert keeps the table close to the number of remembered keys.
                oldest = "SELECT rowid FROM saved_responses WHERE tenant = ? AND at <= ? ORDER BY at LIMIT 2"
                self._write(f"DELETE FROM saved_responses WHERE rowid IN ({oldest})", (tenant, until))
                [(left,)] = self._read("SELECT min(at) FROM saved_responses WHERE tenant = ?", (tenant,))
                first = math.inf if left is None else left
            self._insert(_SAVE_RESPONSE, (tenant, key, moment, *saved))
            self._oldest_saved[tenant] = min(first, moment)

    def schedule(self, due: Due) -> None:
        """Schedule a job."""
        at = (due.at - EPOCH) // MICROSECOND
        statement = "INSERT INTO due (at, tenant, kind, id) VALUES (?, ?, ?, ?)"
        with self._lock:
            # As in `put`, a text that SQLite does not take must fail here.
            insert = self._insert if due.id.isascii() else self._write
            insert(statement, (at, due.tenant, due.kind, due.id))
            self._next_due = min(self._next_due, at)

    def is_due(self, until: datetime) -> bool:
        """Return whether a job may be due up to *until*."""
        return (until - EPOCH) // MICROSECOND >= self._next_due

    def bring_forward(self, tenant: int, duration: timedelta) -> None:
        """Move all jobs of a seller forward by *duration*."""
        sooner = duration // MICROSECOND
        with self._lock:
            self._write("UPDATE due SET at = at - ? WHERE tenant = ?", (sooner, tenant))
            self._next_due -= sooner

    def take_due(self, until: datetime) -> Due | None:
        """Remove and return the first job that is due up to *until*."""
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
        """Return the value stored under *name*, which has the type of *otherwise*; by default, *otherwise*."""
        rows = self._read("SELECT value FROM settings WHERE name = ?", (name,))
        return read_kept(rows[0][0], msgspec.json.Decoder(type(otherwise)).decode) if rows else otherwise

    def keep_setting(self, name: str, value: object) -> None:
        """Store *value* under *name*."""
        self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, msgspec.json.encode(value)))

    def copy(self) -> sqlite3.Connection:
        """Return a copy of all data, in memory, for `restore`. The caller closes it."""
        with self._lock:
            if self._running:  # SQLite would wait for its end for ever.
                raise RuntimeError("a snapshot cannot be made inside a handler, whose work is not done")
            self._commit_shared()
            backup = self._connection.backup  # Raises if the store is closed.
            copy = sqlite3.connect(_IN_MEMORY, check_same_thread=False)
            backup(copy)
            return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Restore all data from *copy*."""
        with self._lock:
            self._settle()
            copy.backup(self._connection)
            self._forget()

    def _read(self, statement: str, values: Sequence[object], *, settle: bool = True) -> list[Any]:
        """Return the rows of a statement. It finds no rows that wait if *settle* is false.

        The lock keeps it out of another thread's transaction.
        """
        with self._lock:
            if settle:
                self._settle()
            return self._connection.execute(statement, values).fetchall()

    def _write(self, statement: str, values: Sequence[object]) -> list[Any]:
        """Run a statement that writes, and return its rows. The first one begins the transaction."""
        with self._lock:
            self._settle()
            if self._running:
                self._begin(self._running)
            return self._connection.execute(statement, values).fetchall()

    def _settle(self) -> None:
        """Commit what has ended, since a read must not see changes that may still be lost, and insert what waits."""
        self._commit_shared()
        if self._running:
            self._insert_rows(self._running)

    def _insert(self, statement: str, row: Sequence[object]) -> None:
        """Insert *row* at the commit, or before the next statement that may look for it."""
        with self._lock:
            if self._running:
                self._running.rows.setdefault(statement, []).append(row)
            else:
                self._write(statement, row)
