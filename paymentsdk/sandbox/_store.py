"""Everything that the sandbox knows, in SQLite: one transaction per request, so that nothing is ever half done.

A document is a Struct, kept as JSON in the table of its noun, with the columns that searches look at beside it.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import localcontext
from typing import Any, Generic, Literal, NoReturn, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from paymentsdk import money

__all__ = ["Comparison", "Condition", "Due", "SavedResponse", "Store", "Table"]

D = TypeVar("D", bound=Struct)

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, how it is compared, and with what; ``holds`` looks for a text within the column's.
Condition: TypeAlias = tuple[str, Comparison, object]

#: Counts that are remembered until something is written: a live clock asks for another window each time.
_MOST_COUNTS = 1000
#: Of the file: another one is made by another version of the sandbox.
SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, tenant INTEGER, entry BLOB);
CREATE INDEX IF NOT EXISTS ledger_tenant ON ledger (tenant);
CREATE TRIGGER IF NOT EXISTS ledger_is_kept BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS ledger_is_whole BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TABLE IF NOT EXISTS saved_responses
    (tenant INTEGER, key TEXT, place TEXT, answer BLOB, PRIMARY KEY (tenant, key, place));
CREATE INDEX IF NOT EXISTS saved_answers_tenant ON saved_responses (tenant);
CREATE TABLE IF NOT EXISTS due (seq INTEGER PRIMARY KEY, at TEXT, tenant INTEGER, kind TEXT, id TEXT);
CREATE INDEX IF NOT EXISTS due_at ON due (at, seq);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB);
"""


class Table(Generic[D]):
    """A kind of document.

    Args:
        name: What the table is called.
        form: The Struct.
        key: Its identifier; unique among all sellers.
        columns: What searches look at, taken from the document.
        order: The column that all searches sort by, if it is not the order of their making.
        covered: Groups of columns, each with an index: a search by them counts and skips without a look at documents.
        rebase_links: Returns a document with links that lead to the address, where the sandbox is now.
    """

    def __init__(
        self,
        name: str,
        form: type[D],
        *,
        key: Callable[[D], str],
        columns: Mapping[str, Callable[[D], object]],
        order: str = "seq",
        covered: Sequence[Sequence[str]] = (),
        rebase_links: Callable[[D, str], D] | None = None,
    ) -> None:
        self.name = name
        self.rebase_links = rebase_links
        self.key = key
        self.columns = columns
        self.covered = covered
        self.decode: Callable[[bytes], D] = msgspec.json.Decoder(form).decode
        names = ("tenant", "key", *columns, "document")
        changes = ", ".join(f"{one} = excluded.{one}" for one in names[2:])
        # The names in these statements are this module's own; every value is bound.
        self.put: str = (
            f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT (key) DO UPDATE SET {changes}"
        )
        # With the order in it, an index finds a page without looking at all documents, and nothing has to be sorted.
        begun = {tuple(group[:2]) for group in covered}
        indexes = {one: ", ".join(dict.fromkeys((one, order, "seq"))) for one in columns if (one, order) not in begun}
        indexes |= {"_".join(group): ", ".join((*group, "seq")) for group in covered}
        self.create: str = "".join(
            [
                f"CREATE TABLE IF NOT EXISTS {name} (seq INTEGER PRIMARY KEY, tenant INTEGER, key TEXT UNIQUE",
                *(f", {one}" for one in columns),
                ", document BLOB);",
                f"CREATE INDEX IF NOT EXISTS {name}_tenant ON {name} (tenant, seq);",
                *(f"CREATE INDEX IF NOT EXISTS {name}_{one} ON {name} (tenant, {by});" for one, by in indexes.items()),
            ]
        )

    def index(self, asked: AbstractSet[str], order: str) -> str:
        """Return the clause that names the index for a search by the columns *asked*, if one covers them in *order*.

        SQLite by itself takes one that is narrower, and looks at every document on its way.
        """
        groups = (group for group in self.covered if group[0] in asked and group[1] == order and asked <= {*group})
        return next((f" INDEXED BY {self.name}_{'_'.join(group)}" for group in groups), "")


class SavedResponse(Struct, frozen=True, kw_only=True):
    """The answer that went with an idempotency key.

    Attributes:
        place: Where the key was sent: the path.
        fingerprint: Of the request: operation, path and body.
        status: The status of the answer.
        body: The very bytes of the answer.
        at: When it was given.
    """

    place: str
    fingerprint: str
    status: int
    body: bytes
    at: datetime


class Due(Struct, frozen=True, kw_only=True):
    """Something that is to happen at a moment."""

    at: datetime
    kind: str
    tenant: int
    id: str


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
        self._after: list[Callable[[], None]] = []
        self._counts: dict[tuple[object, ...], int] = {}
        self._counted_at = 0
        self.links: str = ""
        """Where the links of documents lead, whatever the address was when they were kept."""
        if path == "":  # A variable that is not set, most likely: in memory, all would be lost without a word.
            raise OSError("cannot use '' as the database of a sandbox: it names no file")
        try:
            self._connection = sqlite3.connect(
                path or ":memory:", isolation_level=None, check_same_thread=False, timeout=0.5
            )
            # Also when what follows fails, or when nobody closes a sandbox that was never started.
            self._close = weakref.finalize(self, self._connection.close)
            self._check_file()
            if path:
                # With a write-ahead log a commit is in the operating system's hands before the answer leaves: a
                # killed process loses nothing. The exclusive lock keeps a second sandbox out.
                self._connection.executescript(
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                )
            # All tables or none: a file with some of them would not be known again.
            schema = _TABLES + "".join(table.create for table in tables)
            self._connection.executescript(f"BEGIN;{schema}PRAGMA user_version = {SCHEMA};COMMIT;")
        except sqlite3.Error as error:
            taken = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            reason = "another sandbox uses it" if taken else error
            raise OSError(f"cannot use {path!r} as the database of a sandbox: {reason}") from None

    def _check_file(self) -> None:
        """Refuse the database of another program or schema, or a damaged one, before anything is written into it."""
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and not {"ledger", "due", "settings"} <= names:
            raise sqlite3.DatabaseError("it is the database of another program")
        [(schema,)] = self._connection.execute("PRAGMA user_version")
        if names and schema != SCHEMA:
            raise sqlite3.DatabaseError(
                f"its schema is {schema}, and this version of the sandbox has {SCHEMA}: start with another file"
            )
        [(damage,)] = self._connection.execute("PRAGMA quick_check(1)")
        if damage != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({damage.splitlines()[-1]}): start with another file")

    def close(self) -> None:
        """Let go of the file; whoever still asks is told so by a ``RuntimeError``."""
        with self._lock:
            self._close()
            self._connection = cast("sqlite3.Connection", _Closed())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other thread out, also between two transactions."""
        with self._lock:
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that is done inside, or nothing; one inside another is a part of it.

        No amount is rounded inside, whatever decimal context the program has.
        """
        with self._lock:
            if self._inside:
                yield
                return
            self._after.clear()
            self._connection.execute("BEGIN IMMEDIATE")
            # Only now: if it cannot begin, what comes next is no part of it.
            self._inside = True
            try:
                with localcontext(money.EXACTLY):
                    yield
            except BaseException:
                self._counts.clear()
                with suppress(sqlite3.OperationalError):  # On a full disk SQLite has rolled back by itself.
                    self._connection.execute("ROLLBACK")
                raise
            else:
                self._connection.execute("COMMIT")
            finally:
                self._inside = False
            for callback in self._after:
                callback()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call *callback* once the transaction is committed; never, if it is not."""
        self._after.append(callback)

    def get(self, table: Table[D], key: str, tenant: int | None = None) -> D | None:
        """Return the document *key*; with a *tenant*, only if it is theirs."""
        rows = self._rows(f"SELECT document, tenant FROM {table.name} WHERE key = ?", (key,))
        return self._decoded(table, rows[0][0]) if rows and tenant in (None, rows[0][1]) else None

    def _decoded(self, table: Table[D], stored: bytes) -> D:
        document = table.decode(stored)
        return table.rebase_links(document, self.links) if table.rebase_links else document

    def owner(self, table: Table[D], key: str) -> int | None:
        """Return whose document *key* is."""
        rows = self._rows(f"SELECT tenant FROM {table.name} WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def unused(self, table: Table[D], number: Callable[[], int]) -> int:
        """Return the first *number* that is the key of no document, whoever's: a new one would take its place."""
        while self.owner(table, str(found := number())) is not None:
            pass
        return found

    def put(self, table: Table[D], tenant: int, document: D) -> None:
        """Keep *document*, in place of an older one with its key."""
        columns = [_column(value(document)) for value in table.columns.values()]
        self._rows(table.put, (tenant, table.key(document), *columns, msgspec.json.encode(document)))

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
        where, values = _where(table, tenant, conditions)
        index = table.index({column for column, *_ in conditions}, order) if tenant is not None else ""
        way = "DESC" if descending else "ASC"
        # Knuth's multiplier spreads neighbours; the number decides where they go.
        ties = f"seq {way}" if shuffle is None else f"(seq + {int(shuffle)}) * 2654435761 % 4294967296"
        sort = f"{order} {way}, {ties}" if order in table.columns else ties
        rows = self._rows(
            # Which rows it is, an index may know alone; only theirs are the documents that are read.
            f"SELECT document FROM {table.name} WHERE seq IN "
            f"(SELECT seq FROM {table.name}{index}{where} ORDER BY {sort} LIMIT ? OFFSET ?) ORDER BY {sort}",
            (*values, limit, offset),
        )
        return [self._decoded(table, document) for (document,) in rows]

    def count(self, table: Table[D], tenant: int | None, conditions: Sequence[Condition] = ()) -> int:
        """Return how many documents meet all *conditions*."""
        where, values = _where(table, tenant, conditions)
        asked = (table.name, where, *values)
        with self._lock:
            changes = self._connection.total_changes
            if changes != self._counted_at:  # Whatever was written since, and to which table.
                self._counts.clear()
                self._counted_at = changes
            if len(self._counts) > _MOST_COUNTS:
                self._counts.clear()
            if asked not in self._counts:
                [(self._counts[asked],)] = self._rows(f"SELECT COUNT(*) FROM {table.name}{where}", values)
            return self._counts[asked]

    def append(self, tenant: int, line: bytes) -> None:
        """Write a line of the ledger; no line is ever changed."""
        self._rows("INSERT INTO ledger (tenant, entry) VALUES (?, ?)", (tenant, line))

    def ledger(self, tenant: int | None = None) -> list[bytes]:
        """Return the lines of the ledger, oldest first, as JSON."""
        rows = self._rows("SELECT entry FROM ledger WHERE tenant = ifnull(?, tenant) ORDER BY seq", (tenant,))
        return [line for (line,) in rows]

    def saved_responses(self, tenant: int, key: str) -> list[SavedResponse]:
        """Return the answers that went with the idempotency key *key*, at most one for each place."""
        rows = self._rows("SELECT answer FROM saved_responses WHERE tenant = ? AND key = ?", (tenant, key))
        return [msgspec.json.decode(answer, type=SavedResponse) for (answer,) in rows]

    def save_response(self, tenant: int, key: str, answer: SavedResponse, *, forgotten: datetime) -> None:
        """Keep the answer that went with *key*, instead of an older one of its place.

        The seller's oldest answers are dropped, if they were given up to the moment *forgotten*.
        """
        with self._lock:
            # Two for each that comes: so there are never many more than the keys that are remembered.
            oldest = "SELECT rowid, answer FROM saved_responses WHERE tenant = ? ORDER BY rowid LIMIT 2"
            for row, kept in self._rows(oldest, (tenant,)):
                if msgspec.json.decode(kept, type=SavedResponse).at <= forgotten:
                    self._rows("DELETE FROM saved_responses WHERE rowid = ?", (row,))
            self._rows(
                "INSERT OR REPLACE INTO saved_responses VALUES (?, ?, ?, ?)",
                (tenant, key, answer.place, msgspec.json.encode(answer)),
            )

    def schedule(self, due: Due) -> None:
        """Have something happen at a moment."""
        self._rows(
            "INSERT INTO due (at, tenant, kind, id) VALUES (?, ?, ?, ?)",
            (_column(due.at), due.tenant, due.kind, due.id),
        )

    def take_due(self, until: datetime) -> Due | None:
        """Take out the first thing that is due up to *until*."""
        with self._lock:
            rows = self._rows(
                "SELECT seq, at, tenant, kind, id FROM due WHERE at <= ? ORDER BY at, seq LIMIT 1", (_column(until),)
            )
            if not rows:
                return None
            seq, at, tenant, kind, name = rows[0]
            self._rows("DELETE FROM due WHERE seq = ?", (seq,))
        return Due(at=datetime.fromisoformat(at), tenant=tenant, kind=kind, id=name)

    def setting(self, name: str) -> bytes | None:
        """Return what was kept under *name*."""
        rows = self._rows("SELECT value FROM settings WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def keep_setting(self, name: str, value: bytes) -> None:
        """Keep *value* under *name*."""
        self._rows("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def snapshot(self) -> sqlite3.Connection:
        """Return a copy of everything, in memory; close it when it is no longer needed."""
        with self._lock:
            copy = sqlite3.connect(":memory:", check_same_thread=False)
            try:
                self._connection.backup(copy)
            except BaseException:
                copy.close()  # Else Python warns of it whenever it is collected.
                raise
        return copy

    def restore(self, snapshot: sqlite3.Connection) -> None:
        """Make everything as it was when *snapshot* was taken."""
        with self._lock:
            snapshot.backup(self._connection)
            self._counts.clear()

    def _rows(self, statement: str, values: Sequence[object]) -> list[Any]:
        """Run one statement, and return its rows; in another thread's transaction it has no part."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()


def _column(value: object) -> object:
    """Return *value* as SQLite keeps it; moments as text of one zone, so that they sort."""
    if isinstance(value, datetime):
        # The clock counts whole milliseconds, so what is kept has three decimals. A moment that a search asks for may
        # lie between two of them, and has six: it sorts right too, as the `+` of the zone comes before every digit.
        between = value.microsecond % 1000
        return value.astimezone(UTC).isoformat(timespec="microseconds" if between else "milliseconds")
    return None if value is None else str(value)


def _where(table: Table[D], tenant: int | None, conditions: Sequence[Condition]) -> tuple[str, list[object]]:
    """Return the WHERE clause and its values."""
    parts: list[str] = [] if tenant is None else ["tenant = ?"]
    values: list[object] = [] if tenant is None else [tenant]
    for column, comparison, value in conditions:
        if column not in table.columns:  # Columns are looked up, never taken from a request.
            raise KeyError(column)
        parts.append(f"instr({column}, ?)" if comparison == "holds" else f"{column} {comparison} ?")
        values.append(_column(value))
    return (" WHERE " + " AND ".join(parts)) if parts else "", values
