"""A connection to PostgreSQL by psycopg, which is imported with the first one: the extra ``postgres``."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from importlib import import_module
from selectors import EVENT_READ, DefaultSelector
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from paymentsdk._database import Columns, DatabaseError, Kind, Row, Values
from paymentsdk._postgres import Postgres, Table

T = TypeVar("T")

#: Not by an import statement: type checkers run without the extra, too.
psycopg: Any = import_module("psycopg")
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
#: Whoever waits for a row that somebody has locked keeps those waiting who come behind it.
_LOCK_TIMEOUT = "set_config('lock_timeout', '250ms', true)"
#: A server may be set up not to force commits to its disk; what it is set up to do beyond that stays.
_DURABLE = "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')"
#: It reads a table of the catalog: only whoever locks one hears of tables that others have made meanwhile.
_COMMENT = "SELECT coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class WHERE oid = to_regclass(%s)"
#: Seconds in which the server is told that a statement was given up.
_CANCEL = 1.0


def connect(driver: Postgres, deadline: float) -> _Connection:
    """Return a new connection on which the table of *driver* can be used.

    Raises:
        DatabaseError: The address cannot be read, or the table is another program's.
        psycopg.Error: The server is away, or rejects the connection.
    """
    seconds = max(1, round(deadline - time.monotonic()))
    try:
        server = psycopg.connect(**_address(driver.dsn), autocommit=True, connect_timeout=seconds)
    except psycopg.Error as error:  # In a cycle of its frames, it would keep the socket open.
        raise error.with_traceback(None) from None
    server.prepare_threshold = None
    connection = _Connection(server, driver, Waits(server.pgconn.socket, deadline))
    try:
        connection.prepare(driver.table)
    except BaseException:
        connection.close()
        raise
    return connection


def _address(dsn: str) -> dict[str, Any]:
    """Return the parameters of a connection. Parts of the query that are no such parameters are settings.

    Raises:
        DatabaseError: It cannot be read. The error does not show it: the library shows the part that it fails at.
    """
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    query: list[tuple[str, str]] = []
    try:
        url = urlsplit(str.__str__(dsn))
        query = parse_qsl(url.query, keep_blank_values=True)
        login, at, hosts = url.netloc.rpartition("@")  # A password may have an @ in it that is not encoded.
        login = ":".join(quote(unquote(part), safe="") for part in login.split(":", 1))
        parameters = urlencode([(name, value) for name, value in query if name in known], quote_via=quote)
        conninfo = f"postgresql://{login}{at}{hosts}{url.path}?{parameters}"
        address: dict[str, Any] = {"application_name": "paymentsdk", **psycopg.conninfo.conninfo_to_dict(conninfo)}
    except (psycopg.Error, ValueError):
        address = {"port": "unknown"}
    if not all(port.isdigit() for port in str(address.get("port", 0)).split(",")):
        raise DatabaseError("its address cannot be read; encode special characters of the password, such as / as %2F")
    settings = [f"-c {name}={value}" for name, value in query if name not in known]
    if settings:
        address["options"] = " ".join([address.get("options", ""), *settings])
    return address


class Waits:
    """Waits for the server until a deadline, in place of a connection of psycopg, which would wait for ever."""

    def __init__(self, socket: int, deadline: float) -> None:
        self.deadline = deadline
        self._socket = socket
        self._selector = DefaultSelector()
        self._selector.register(socket, EVENT_READ)

    def __call__(self, steps: Generator[Any, Any, T], *args: object, **options: object) -> T:
        try:
            events = next(steps)
            while True:
                self._selector.modify(self._socket, events)
                left = self.deadline - time.monotonic()
                ready = self._selector.select(left) if left > 0 else []
                if not ready:
                    raise TimeoutError
                events = steps.send(ready[0][1])
        except StopIteration as end:
            value: T = end.value
            return value

    def close(self) -> None:
        self._selector.close()


class _Connection:
    def __init__(self, server: Any, driver: Postgres, waits: Waits) -> None:  # noqa: ANN401 - see psycopg above
        self.has_wiped = False
        self._is_open = False
        self._server = server
        self._waits = server.wait = waits
        self._cursor = server.cursor(binary=True)
        self._driver = driver
        self._words = {"table": driver.table.name, "position": '"position"'}
        self._words |= {"locked": "FOR UPDATE", "skip_locked": "FOR UPDATE SKIP LOCKED"}
        self._commit = f"set_config('synchronous_commit', {_DURABLE if driver.is_durable else repr('off')}, true)"

    def prepare(self, table: Table) -> None:
        """Make *table* unless it is there.

        Raises:
            DatabaseError: It is another program's, or of another version.
        """
        comment = self.fetch(_COMMENT, table.name)
        if comment != [(table.version,)]:
            # Two that create it at once would collide in the catalog, and who looks on can see a table without its
            # comment. Each statement has to see what others have committed while this one waited for the lock.
            self._begin("BEGIN ISOLATION LEVEL READ COMMITTED")
            self.fetch("SELECT pg_advisory_xact_lock(hashtext(%s))", table.name)
            if not (comment := self.fetch(_COMMENT, table.name)):
                for statement in (*table.statements, f"COMMENT ON TABLE {table.name} IS '{table.version}'"):
                    self.fetch(statement)
                comment = [(table.version,)]
            self.commit()  # A connection that cannot be prepared is closed, and what it has begun is undone.
        if comment != [(table.version,)]:
            whose = comment[0][0] or "of another program"
            raise DatabaseError(f"the table {table.name} is {whose!r}, not {table.version!r}")

    def fetch(self, statement: str, *values: object) -> list[Row]:
        return self._run(statement.format(now=self._now(), **self._words), values)

    def each(self, statement: str, columns: Columns, rows: Sequence[Values], *, durable: bool = True) -> list[Row]:
        # As one value, whatever the number of rows: for each of theirs, the library takes as long as all else does.
        encoded = msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in rows]).decode()
        types = ", ".join(f"{name} {'text' if kind == 'bytea' else kind}" for name, kind in columns.items())
        decoded = (f"decode({name}, 'base64') AS {name}" if kind == "bytea" else name for name, kind in columns.items())
        commit = self._commit if durable else "set_config('synchronous_commit', 'off', true)"
        settings = f"(SELECT {self._now()} AS now, {_LOCK_TIMEOUT}, {commit}) AS settings"
        source = f"(SELECT {', '.join(decoded)}, now FROM {settings}, json_to_recordset(%s) AS given ({types})) AS new"
        return self._run(statement.format(rows=source, **self._words), (encoded,))

    def begin(self, kind: Kind, deadline: float) -> None:
        self._waits.deadline = deadline
        if kind is Kind.WRITES:
            self._begin("BEGIN")

    def commit(self) -> None:
        if self._is_open:
            self._cursor.execute("COMMIT")
            self._is_open = False

    def roll_back(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(psycopg.Error, TimeoutError):
                self._cursor.execute("ROLLBACK")

    def rest(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._server.cancel_safe(timeout=_CANCEL)  # Behind a locked table, what was given up would wait on.
        self._waits.close()
        self._server.close()

    def _begin(self, begin: str) -> None:
        # The locks of a process that is stopped, or whose machine is gone, end with its transaction.
        longest = f"{1000 * self._driver.timeout + 1000:.0f}"
        ends = (f"set_config('{name}', '{longest}', true)" for name in ("statement_timeout", _IDLE))
        self._cursor.execute(f"{begin}; SELECT {_LOCK_TIMEOUT}, {self._commit}, {', '.join(ends)}", binary=False)
        self._is_open = True

    def _run(self, text: str, values: Sequence[object]) -> list[Row]:
        self._cursor.execute(text.encode(), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def _now(self) -> str:
        return _CLOCK if self._driver.now is None else f"{self._driver.now()!r}::float8"


_IDLE = "idle_in_transaction_session_timeout"
