"""A connection to PostgreSQL by psycopg, which the first connection imports: the extra ``postgres``.

Statements use `psycopg.pq`, the library's own layer above libpq: its cursors take twice as long as all other work that
a statement needs in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from select import POLLIN, POLLOUT, poll
from struct import Struct
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from paymentsdk._database import Columns, DatabaseError, Kind, Row, Values
from paymentsdk._postgres import Postgres, Table

#: Not an import statement: type checkers also run without the extra.
psycopg: Any = import_module("psycopg")
_FAILED = (psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE)
_SQLSTATE, _MESSAGE = psycopg.pq.DiagnosticField.SQLSTATE, psycopg.pq.DiagnosticField.MESSAGE_PRIMARY
_TEXT, _BINARY = 0, 1
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
#: A statement that waits for a locked row also delays the works that wait behind it.
_LOCK_TIMEOUT = "set_config('lock_timeout', '250ms', true)"
#: A server may be configured not to force commits to its disk; stronger settings stay as they are.
_DURABLE = "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')"
#: It reads a table of the catalog: a session sees tables that others have created only once it locks a table.
_COMMENT = "SELECT coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class WHERE oid = to_regclass(%s)"
#: Seconds to tell the server that a statement is cancelled.
_CANCEL = 1.0


def connect(driver: Postgres, deadline: float) -> _Connection:
    """Return a new connection on which the table of *driver* can be used.

    Raises:
        DatabaseError: The address cannot be read, or the table is another program's.
        psycopg.Error: The server is away, or rejects the connection.
    """
    seconds = max(1, round(deadline - time.monotonic()))
    try:
        server = psycopg.connect(**address_of(driver.dsn), autocommit=True, connect_timeout=seconds)
    except psycopg.Error as error:  # Breaks a reference cycle, which would keep the socket (CONTRIBUTING: cycles).
        raise error.with_traceback(None) from None
    connection = _Connection(server, driver, deadline)
    try:
        connection.prepare(driver.table)
    except BaseException:
        connection.close()
        raise
    return connection


def address_of(dsn: str) -> dict[str, Any]:
    """Return the parameters of a connection. Unknown parts of the query are settings of the session.

    Raises:
        DatabaseError: *dsn* cannot be read. The error does not show *dsn*; the library's error shows a part of it.
    """
    parameter_names = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    query: list[tuple[str, str]] = []
    try:
        url = urlsplit(str.__str__(dsn))
        query = parse_qsl(url.query, keep_blank_values=True)
        login, at, hosts = url.netloc.rpartition("@")  # A password may contain an @ that is not encoded.
        login = ":".join(quote(unquote(part), safe="") for part in login.split(":", 1))
        parameters = urlencode([(name, value) for name, value in query if name in parameter_names], quote_via=quote)
        conninfo = f"postgresql://{login}{at}{hosts}{url.path}?{parameters}"
        address: dict[str, Any] = {"application_name": "paymentsdk", **psycopg.conninfo.conninfo_to_dict(conninfo)}
    except (psycopg.Error, ValueError):
        address = {"port": "unknown"}
    if not all(port.isdigit() for port in str(address.get("port", 0)).split(",")):
        raise DatabaseError("its address cannot be read; encode special characters of the password, such as / as %2F")
    address["client_encoding"] = "UTF8"
    settings = [f"-c {name}={value}" for name, value in query if name not in parameter_names]
    if settings:
        address["options"] = " ".join([address.get("options", ""), *settings])
    return address


class Link:
    """Sends statements on the connection of libpq, and waits for their results until a deadline."""

    def __init__(self, pgconn: Any, deadline: float) -> None:  # noqa: ANN401 - see psycopg above
        self.deadline = deadline
        self.backend: int = pgconn.backend_pid
        self._pgconn = pgconn
        self._poll = poll()
        self._poll.register(pgconn.socket, POLLIN)

    def execute(self, text: bytes) -> None:
        """Run several statements without values."""
        self._pgconn.send_query(text)
        self.rows()

    def fetch(self, text: bytes, values: Sequence[object]) -> list[Row]:
        """Run a statement and return its rows."""
        encoded, types, formats = zip(*map(_encoded, values), strict=True) if values else ((), (), ())
        self._pgconn.send_query_params(text, encoded, types, formats, _BINARY)
        return self.rows()

    def prepare(self, name: bytes, text: bytes) -> None:
        """Prepare a statement."""
        self._pgconn.send_prepare(name, text)
        self.rows()

    def fetch_prepared(self, name: bytes, value: bytes) -> list[Row]:
        """Run a statement that was prepared, with one value; return its rows."""
        self._pgconn.send_query_prepared(name, [value], None, _BINARY)
        return self.rows()

    def rows(self) -> list[Row]:
        """Return the rows of the last statement that was sent.

        Raises:
            TimeoutError: The deadline has passed.
            psycopg.Error: The server rejects a statement, or the connection is lost.
        """
        rows = list[Row]()
        error: Any = None
        for result in self._results():
            if result.status in _FAILED:
                text = result.error_field(_MESSAGE) or result.error_message or b""
                error = psycopg.OperationalError(text.decode(errors="replace"))
                error.sqlstate = (result.error_field(_SQLSTATE) or b"").decode()
            rows = _rows(result)
        if error is not None:
            raise error
        return rows

    def _results(self) -> Iterator[Any]:
        pgconn = self._pgconn
        while pgconn.flush():  # The server may wait until its responses are read.
            if self._wait(POLLIN | POLLOUT) & POLLIN:
                pgconn.consume_input()
        while True:
            while pgconn.is_busy():
                self._wait(POLLIN)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return
            yield result

    def _wait(self, events: int) -> int:
        self._poll.modify(self._pgconn.socket, events)
        ready = self._poll.poll(max(0.0, 1000 * (self.deadline - time.monotonic())))
        if not ready:
            raise TimeoutError
        return ready[0][1]


def _rows(result: Any) -> list[Row]:  # noqa: ANN401 - see psycopg above
    columns = [(column, _READERS.get(result.ftype(column), bytes.decode)) for column in range(result.nfields)]
    rows = list[Row]()
    for row in range(result.ntuples):
        values = [(result.get_value(row, column), read) for column, read in columns]
        rows.append(tuple([None if value is None else read(value) for value, read in values]))
    return rows


def _encoded(value: object) -> tuple[bytes | None, int, int]:
    """Return *value* as libpq takes it, the number of its type (0: the server infers it), and its format."""
    match value:
        case None:
            return None, 0, _TEXT
        case bytes():
            return value, 17, _BINARY
        case str():  # The binary format would end the text at a zero byte.
            return value.encode(), 25, _BINARY
        case bool():
            return str(value).encode(), 16, _TEXT
        case float():
            return repr(value).encode(), 701, _TEXT
        case _:
            return str(value).encode(), 20, _TEXT


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_FLOAT = Struct("!d")
#: Readers of PostgreSQL's types in binary form, by the numbers of the types. All other types are read as text.
_READERS: dict[int, Callable[[bytes], object]] = {
    16: any,  # A boolean is one byte, 0 or 1.
    17: bytes,
    20: _integer,
    21: _integer,
    23: _integer,
    701: lambda value: _FLOAT.unpack(value)[0],
}


class _Connection:
    def __init__(self, server: Any, driver: Postgres, deadline: float) -> None:  # noqa: ANN401 - see psycopg above
        self.has_wiped = False
        self._is_open = False
        self._server = server
        self._link = Link(server.pgconn, deadline)
        self._driver = driver
        self._words = {"table": driver.table.name, "position": '"position"'}
        self._words |= {"locked": "FOR UPDATE", "skip_locked": "FOR UPDATE SKIP LOCKED"}
        self._commit = f"set_config('synchronous_commit', {_DURABLE if driver.is_durable else repr('off')}, true)"
        #: Prepared statements by the arguments of `each`; `None` if a pooler may give the next transaction another
        #: connection to the server.
        self._prepared: dict[tuple[str, bool], bytes] | None = None

    def prepare(self, table: Table) -> None:
        """Make *table* unless it exists.

        Raises:
            DatabaseError: The table is another program's, or of another version.
        """
        [(backend,)] = self.fetch("SELECT pg_backend_pid()")
        if backend == self._link.backend and self._driver.now is None:  # A pooler reports a number of its own.
            self._prepared = {}
        comment = self.fetch(_COMMENT, table.name)
        if comment != [(table.version,)]:
            # Two processes that create the table together would collide in the catalog, and a third one could see the
            # table without its comment. Each statement must see the commits of others that held the lock before.
            self._begin("BEGIN ISOLATION LEVEL READ COMMITTED")
            self.fetch("SELECT pg_advisory_xact_lock(hashtext(%s))", table.name)
            if not (comment := self.fetch(_COMMENT, table.name)):
                for statement in (*table.statements, f"COMMENT ON TABLE {table.name} IS '{table.version}'"):
                    self.fetch(statement)
                comment = [(table.version,)]
            self.commit()  # After an error, the connection is closed, which rolls the transaction back.
        if comment != [(table.version,)]:
            whose = comment[0][0] or "of another program"
            raise DatabaseError(f"the table {table.name} is {whose!r}, not {table.version!r}")

    def fetch(self, statement: str, *values: object) -> list[Row]:
        return self._link.fetch(self._text(statement), values)

    def each(self, statement: str, columns: Columns, rows: Sequence[Values], *, durable: bool = True) -> list[Row]:
        # One JSON value for all rows: the library takes as long for each further value as for all the rest.
        encoded = msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in rows])
        if self._prepared is None:
            return self._link.fetch(self._each(statement, columns, durable=durable), [encoded.decode()])
        name = self._prepared.get((statement, durable))
        if name is None:
            name = b"paymentsdk_%d" % len(self._prepared)
            self._link.prepare(name, self._each(statement, columns, durable=durable))
            self._prepared[statement, durable] = name
        return self._link.fetch_prepared(name, encoded)

    def _each(self, statement: str, columns: Columns, *, durable: bool) -> bytes:
        types = ", ".join(f"{name} {'text' if kind == 'bytea' else kind}" for name, kind in columns.items())
        decoded = (f"decode({name}, 'base64') AS {name}" if kind == "bytea" else name for name, kind in columns.items())
        commit = self._commit if durable else "set_config('synchronous_commit', 'off', true)"
        settings = f"(SELECT {self._now()} AS now, {_LOCK_TIMEOUT}, {commit}) AS settings"
        source = (
            f"(SELECT {', '.join(decoded)}, now FROM {settings}, json_to_recordset(%s::json) AS given ({types})) AS new"
        )
        return self._text(statement, rows=source)

    def begin(self, kind: Kind, deadline: float) -> None:
        self._link.deadline = deadline
        if kind is Kind.WRITES:
            self._begin("BEGIN")

    def commit(self) -> None:
        if self._is_open:
            self._link.execute(b"COMMIT")
            self._is_open = False

    def roll_back(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(psycopg.Error, TimeoutError):
                self._link.execute(b"ROLLBACK")

    def rest(self) -> None:
        """Do nothing: PostgreSQL needs no housekeeping here."""

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._server.cancel_safe(timeout=_CANCEL)  # The last statement may still wait for a lock.
        self._server.close()

    def _begin(self, begin: str) -> None:
        # These timeouts end the transaction, and so the locks, of a process that is stopped or whose machine is gone.
        longest = f"{1000 * self._driver.timeout + 1000:.0f}"
        ends = (f"set_config('{name}', '{longest}', true)" for name in ("statement_timeout", _IDLE))
        self._link.execute(f"{begin}; SELECT {_LOCK_TIMEOUT}, {self._commit}, {', '.join(ends)}".encode())
        self._is_open = True

    def _text(self, statement: str, **words: str) -> bytes:
        """Return *statement* as the server reads it: with the words of the driver, and numbered values."""
        text, *parts = statement.format(now=self._now(), **self._words, **words).split("%s")
        return "".join([text, *(f"${number}{part}" for number, part in enumerate(parts, 1))]).encode()

    def _now(self) -> str:
        return _CLOCK if self._driver.now is None else f"{self._driver.now()!r}::float8"


_IDLE = "idle_in_transaction_session_timeout"
