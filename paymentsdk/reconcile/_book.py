"""The book of a reconciliation: the user's own list of orders, from a file, a database or Python."""

from __future__ import annotations

import asyncio
import csv
import glob
import re
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypedDict

import msgspec
from msgspec import Struct

from paymentsdk._database import DatabaseError
from paymentsdk._futures import in_thread
from paymentsdk._paging.export import DECIMALS, DIGITS
from paymentsdk._postgres import is_dsn
from paymentsdk._secrets import masked
from paymentsdk._validate import check_no_login, check_utf8, plain_moment
from paymentsdk.errors import RequestInvalid, import_extra
from paymentsdk.journal import Record
from paymentsdk.reconcile._merchant_orders import AMOUNTS, arrow, duckdb, parquet
from paymentsdk.resources import orders

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Rows that are in memory at the same time, and rows per batch that a database sends.
_BATCH = 10_000
#: Each state that is compared, and the words for it in books, orders and merchant orders.
_SYNONYMS = {
    "created": ("created", "pending", "processing", "action_required", "failed"),
    "open": ("opened", "payment_required"),
    "paid": ("processed", "closed", "paid", "approved", "partially_refunded"),
    "refunded": ("refunded", "reverted"),
    "expired": ("expired",),
    "canceled": ("canceled", "cancelled"),
}
STATES = {word: state for state, words in _SYNONYMS.items() for word in words}
#: Types of PostgreSQL whose values are read as text, which DuckDB then converts.
_AS_TEXT = ("numeric", "timestamptz", "timestamp", "date", "uuid")
#: The login name in an error of PostgreSQL.
_LOGIN_NAME = re.compile('(user|role) "[^"]*"')
#: Half of a surrogate pair, as in an emoji that was cut.
_HALF = re.compile("[\ud800-\udfff]")
#: The most bytes of a reference or an id in a URL: servers accept URLs of about 8 KB.
_LONGEST_KEY = 8_000
_WHOLE_NUMBER = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?"


class _Type(NamedTuple):
    """The rules by which a column is read."""

    name: str
    """The type in DuckDB."""
    accepts: str
    """A regular expression for the accepted types."""
    rule: str
    """The rule in words, for errors."""
    form: str = ""
    """A regular expression that text must match."""
    condition: str = "true"
    """A condition in SQL that text must fulfil."""


_TEXT = _Type(
    "VARCHAR",
    rf"VARCHAR|UUID|ENUM.*|{_WHOLE_NUMBER}",
    "must be a string or a whole number, without a null character and no longer than a URL takes",
    condition=f"NOT contains({{0}}, chr(0)) AND strlen(url_encode({{0}})) <= {_LONGEST_KEY}",
)
_AMOUNT = _Type(
    f"DECIMAL({DIGITS},{DECIMALS})",
    rf"VARCHAR|DECIMAL\([0-9]+,([0-9]|1[0-8])\)|{_WHOLE_NUMBER}",
    "must be a decimal, a whole number or a string such as 24.90, with up to 18 places (floats are not exact)",
    rf"-?[0-9]{{1,{DIGITS - DECIMALS}}}([.][0-9]{{1,{DECIMALS}}})?",
)
_MOMENT = _Type(
    "TIMESTAMP WITH TIME ZONE",
    "VARCHAR|TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ_NS",
    "must be a moment with a time zone such as 2026-11-22T18:00:00Z",
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}(:?[0-9]{2})?)",
)
_STATUS = _Type("VARCHAR", "VARCHAR|ENUM.*", f"must be one of {', '.join(sorted(STATES))}", "|".join(STATES))
COLUMNS = {
    **dict.fromkeys(("account", "reference", "order_id", "currency"), _TEXT),
    **dict.fromkeys(AMOUNTS, _AMOUNT),
    "status": _STATUS,
    "created": _MOMENT,
}


class BookRow(TypedDict, total=False):
    """An order of a book. `reference` is required; values that are absent or `None` are not compared."""

    account: str | None
    """The seller, as `client.account` accepts it; absent for a client of one seller."""
    reference: str | int
    """The external reference, by which the order is found."""
    order_id: str | None
    """The id that `orders.create` returned. It is used to look up an order that the search does not show."""
    currency: str | None
    """The currency of the amounts."""
    total: Decimal | int | str | None
    """The total amount of the order."""
    paid: Decimal | int | str | None
    """The paid amount; 0 for an unpaid order."""
    refunded: Decimal | int | str | None
    """The refunded amount; 0 without a refund."""
    status: str | None
    """The state: `created`, `processed`, `refunded`, `canceled` or `expired`, or a state of merchant orders."""
    created: datetime | str | None
    """The time of creation, with a time zone. An order without it belongs to every period."""


class _Files(NamedTuple):
    """Parquet files, which DuckDB reads itself."""

    path: str
    names: Mapping[str, str]


#: The account of a write, the reference that it creates, and the id of the order that it changes.
Subject: TypeAlias = tuple[str, str | None, str | None]
#: Rows that Python code reads.
_Rows: TypeAlias = Iterable[Mapping[str, object]]
_Source: TypeAlias = Callable[[], _Rows | AsyncIterable[Mapping[str, object]]]


class Book:
    """The orders that you know of, which a reconciliation compares with those of the platform.

    The columns are `account, reference, order_id, currency, total, paid, refunded, status, created`; see `BookRow`.
    Only `reference` is required, and `account` with a client of several sellers. Missing columns and null values are
    not compared. Further columns are ignored, but a column that differs only in case, such as `Paid`, is rejected.
    Amounts are decimals, whole numbers or strings such as `24.90`, never floats. Moments have a time zone. If your
    columns have other names, pass *names*: `Book.csv(path, names={"reference": "order_no"})`.

    The book is read when a reconciliation begins.
    """

    def __init__(self, source: _Files | _Source) -> None:
        self._source = source

    @classmethod
    def parquet(cls, path: str | PathLike[str], *, names: Mapping[str, str] | None = None) -> Self:
        """Return the book in a Parquet file, or in all files that match a pattern such as `book/*.parquet`."""
        return cls(_Files(check_no_login("path", path), _checked(names)))

    @classmethod
    def csv(
        cls, path: str | PathLike[str], *, names: Mapping[str, str] | None = None, decimal_comma: bool = False
    ) -> Self:
        """Return the book in a CSV file in UTF-8, with commas, and with the column names in the first line.

        An empty field is null. With *decimal_comma*, fields are separated by semicolons and amounts look like `24,90`.
        An amount with a point is then rejected, because the point may separate thousands.
        """
        read = partial(_lines, check_no_login("path", path), _checked(names), ";" if decimal_comma else ",")
        return cls(lambda: _with_points(read()) if decimal_comma else read())

    @classmethod
    def rows(cls, rows: Iterable[BookRow] | AsyncIterable[BookRow]) -> Self:
        """Return a book of *rows*. An iterator can serve one reconciliation only, because it is read once."""
        return cls(lambda: rows)

    @classmethod
    def query(cls, dsn: str, query: str, *, names: Mapping[str, str] | None = None) -> Self:
        """Return the book that *query* selects in a PostgreSQL database. Needs the extra `postgres`.

        The rows come through a server-side cursor, so they need not fit into memory. *dsn* is
        `postgresql://user:password@host:port/database`; it is never shown. Amounts are `numeric` or whole numbers, and
        moments are `timestamptz`.

        Raises:
            RequestInvalid: *dsn* is not a PostgreSQL address, or *names* has a key that is not a column of a book.
        """
        if not is_dsn(dsn):
            raise RequestInvalid("dsn", "must be postgresql://user:password@host:port/database")
        return cls(partial(_selected, masked(dsn), query, _checked(names)))

    async def load(self, database: DuckDBPyConnection, directory: Path) -> tuple[str, ...]:
        """Create the table `book` in *database*, with files in *directory*, and return the columns of the book.

        Raises:
            RequestInvalid: A column is missing or of the wrong type, or a row has an invalid value. The error names it.
            OSError: The book cannot be read.
        """
        source = self._source
        if isinstance(source, _Files):
            return await asyncio.to_thread(_load, database, source)
        path, rows = directory / "book.parquet", source()
        if isinstance(rows, AsyncIterable):
            columns = await _write_as_they_come(rows, path)
        else:
            is_over = Event()
            try:
                columns = await asyncio.to_thread(_write, rows, path, is_over)
            finally:  # Ends the thread if the run was cancelled.
                is_over.set()
        await asyncio.to_thread(_load, database, _Files(str(path), {}))
        return tuple(name for name in COLUMNS if name in columns)


def _checked(names: Mapping[str, str] | None) -> Mapping[str, str]:
    for name in names or {}:
        if name not in COLUMNS:
            raise RequestInvalid(f"names[{name!r}]", f"is no column of a book: {', '.join(COLUMNS)}")
    return dict(names or {})


# --- rows that Python code reads --------------------------------------------------------------------------------------


class _RowFile:
    """A Parquet file with all values as text."""

    def __init__(self, path: Path) -> None:
        self._arrow = arrow()
        self._schema = self._arrow.schema([(name, self._arrow.string()) for name in COLUMNS])
        self._file = parquet().ParquetWriter(path, self._schema)
        self._number = 0
        self.columns: set[str] = set()
        """The columns that its rows have."""

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write further *rows*; reject an invalid value."""
        texts = [_texts(i, row) for i, row in enumerate(rows, self._number)]
        self._number += len(rows)
        self.columns.update(*texts)
        columns = {name: [row.get(name) for row in texts] for name in COLUMNS}
        self._file.write_table(self._arrow.table(columns, self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _write(rows: _Rows, path: Path, is_over: Event) -> set[str]:
    """Write *rows* to a file in batches, until *is_over*, and return their columns."""
    with closing(_RowFile(path)) as file, closing(rows) if isinstance(rows, Generator) else nullcontext():
        iterator = iter(rows)
        while not is_over.is_set() and (batch := list(islice(iterator, _BATCH))):
            file.write(batch)
    return file.columns


async def _write_as_they_come(rows: AsyncIterable[Mapping[str, object]], path: Path) -> set[str]:
    """Write *rows* to a file as the event loop receives them, and return their columns."""
    with closing(_RowFile(path)) as file:
        batch: list[Mapping[str, object]] = []
        async for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                await in_thread(file.write, batch)
                batch = []
        await in_thread(file.write, batch)
    return file.columns


def _texts(i: int, row: Mapping[str, object]) -> dict[str, str]:
    texts = {}
    if not isinstance(row, Mapping):
        raise RequestInvalid(f"book[{i}]", "must be a dict with the columns of a BookRow")
    for name, value in row.items():
        if name not in COLUMNS:
            raise RequestInvalid(f"book[{i}].{name}", f"is no column of a book: {', '.join(COLUMNS)}")
        if value is not None:
            texts[name] = _as_text(f"book[{i}].{name}", COLUMNS[name], value)
    return texts


def _as_text(path: str, kind: _Type, value: object) -> str:
    match value:
        case str() if _HALF.search(value):
            raise RequestInvalid(path, "is not UTF-8, or has half a character")
        case str():
            return str.__str__(value)
        case int() if not isinstance(value, bool) and kind is not _MOMENT:
            return int.__repr__(value)
        case Decimal() if kind is _AMOUNT and value.is_finite():
            return f"{Decimal(value):f}"
        case _ if kind is _MOMENT and (moment := plain_moment(value)) and moment.utcoffset() is not None:
            return moment.astimezone(UTC).isoformat()
    raise RequestInvalid(path, kind.rule)


def _lines(path: str, names: Mapping[str, str], delimiter: str) -> _Rows:
    """Yield the rows of a CSV file. A line with too few or too many fields is an error."""
    line = 1
    try:
        # Bytes that are not UTF-8 become surrogates, which are rejected later with their row and column.
        with Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            rows = csv.reader(file, strict=True, delimiter=delimiter)
            header = next(rows, [])
            places = {name: header.index(column) for name, column in _columns(header, names).items()}
            line = rows.line_num + 1
            for row in rows:
                if row and len(row) != len(header):
                    reason = f"{len(row)} fields, but the first line has {len(header)}"
                    raise RequestInvalid("book", f"cannot be read: {path}, line {line}: {reason}")
                if row:
                    yield {name: row[place] or None for name, place in places.items()}
                line = rows.line_num + 1
    except csv.Error as error:
        raise RequestInvalid("book", f"cannot be read: {path}, line {line}: {error}") from None
    except OSError as error:
        raise RequestInvalid("book", f"cannot be read: {error}") from None


def _with_points(rows: _Rows) -> _Rows:
    """Yield *rows* with points instead of commas in their amounts."""
    for i, row in enumerate(rows):
        amounts = {name: amount for name in AMOUNTS if isinstance(amount := row.get(name), str)}
        for name, amount in amounts.items():
            if "." in amount:
                reason = f"must have a decimal comma and no other separator, such as 1024,90, not {amount[:80]!r}"
                raise RequestInvalid(f"book[{i}].{name}", reason)
        yield {**row, **{name: amount.replace(",", ".") for name, amount in amounts.items()}}


def _selected(dsn: str, query: str, names: Mapping[str, str]) -> _Rows:
    """Yield the rows that *query* selects. Types with values that Python cannot represent come as text."""
    library = import_extra("paymentsdk._psycopg", "postgres", "a book in a database needs psycopg")
    psycopg, text = library.psycopg, import_module("psycopg.types.string").TextLoader
    try:
        with psycopg.connect(**library.address_of(dsn)) as connection:
            connection.execute("SET LOCAL datestyle TO ISO")
            for kind in _AS_TEXT:
                connection.adapters.register_loader(kind, text)
            with connection.cursor("paymentsdk_book") as cursor:
                cursor.itersize = _BATCH
                cursor.execute(query)
                header = [column.name for column in cursor.description]
                places = {name: header.index(column) for name, column in _columns(header, names).items()}
                for row in cursor:
                    yield {name: row[place] for name, place in places.items()}
    except (psycopg.Error, DatabaseError) as error:
        reason = _LOGIN_NAME.sub(r"\1", str(error).partition("\n")[0])
    else:
        return
    # Raised outside of the handler, because the traceback of the first error has the password.
    raise RequestInvalid("book", f"cannot be read: {reason}")


def _columns(header: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a file that belong to a book, by their names in a book."""
    columns, folded = {}, [column.casefold() for column in header]
    for name in COLUMNS:
        column = names.get(name, name)
        if folded.count(column.casefold()) > 1:
            raise RequestInvalid(f"book.{name}", f"comes more than once among the columns, as {column}")
        if column in header:
            columns[name] = column
        elif name in names or name == "reference" or column.casefold() in folded:
            # A column `Paid` must not be ignored like a further column: its amounts would silently not be compared.
            mark = next((mark for mark in (";", "\t") if mark in "".join(header)), None)
            comma = ", or read it with decimal_comma" if mark == ";" else ""
            advice = f"save the file with commas, and amounts such as 10.50{comma}"
            hint = f" (separated by {mark!r}? {advice})" if mark else ""
            raise RequestInvalid(f"book.{name}", f"has no column {column}; there are {', '.join(header)}{hint}")
    return columns


# --- into the database ------------------------------------------------------------------------------------------------


def _load(database: DuckDBPyConnection, files: _Files) -> tuple[str, ...]:
    check_utf8("book", files.path)
    # DuckDB reads a path as a pattern. The path of an existing file is escaped, so that no other file is read.
    path = glob.escape(files.path) if Path(files.path).is_file() else files.path
    kinds = {str(row[0]): str(row[1]) for row in _run(database, "DESCRIBE FROM read_parquet(?)", path)}
    columns = _columns(list(kinds), files.names)
    for name, column in columns.items():
        # A column of a data frame without any value has the type "NULL".
        if not re.fullmatch(f'{COLUMNS[name].accepts}|"NULL"', kinds[column]):
            raise RequestInvalid(f"book.{name}", f"{COLUMNS[name].rule}, not {kinds[column]}")
    expressions = [_column(name, columns.get(name, name), kinds.get(columns.get(name, ""))) for name in COLUMNS]
    numbered = "FROM (SELECT *, row_number() OVER () - 1 AS n_ FROM read_parquet(?))"
    _run(database, f"CREATE TABLE book AS SELECT n_ AS n, {', '.join(expressions)} {numbered}", path)
    return tuple(columns)


def _run(database: DuckDBPyConnection, statement: str, path: str) -> list[tuple[object, ...]]:
    try:
        return database.execute(statement, [path]).fetchall()
    except duckdb().Error as error:
        # The error text of `_column` has the row, the column and the value.
        row, name, value = (*str(error).rpartition("book#")[2].split("#", 2), "", "")[:3]
        if name in COLUMNS:
            raise RequestInvalid(f"book[{row}].{name}", f"{COLUMNS[name].rule}, not {value[:80]!r}") from None
        reason = str(error).partition("\n")[0]  # The next lines show the SQL statement.
        raise RequestInvalid("book", f"cannot be read: {reason}") from None


def _column(name: str, column: str, kind: str | None) -> str:
    """Return the SQL expression that reads a column and fails at an invalid value."""
    to = COLUMNS[name]
    if kind is None:
        return "'' AS account" if name == "account" else f"NULL::{to.name} AS {name}"
    value = text = '"' + column.replace('"', '""') + '"'
    wrong = f"error('book#' || n_ || '#{name}#' || coalesce({text}::VARCHAR, 'null'))"
    if kind == "VARCHAR":
        value = text = f"nullif({text}, '')"
    if to is _STATUS:
        text = f"lower({text}::VARCHAR)"
    has_form = to.form and (kind == "VARCHAR" or to is _STATUS)
    if has_form or to is _TEXT or kind != to.name:
        is_formed = f"regexp_full_match({text}, '{to.form}')" if has_form else to.condition.format(f"{text}::VARCHAR")
        cast = f"CASE WHEN {is_formed} THEN TRY_CAST({text} AS {to.name}) END"
        value = f"CASE WHEN {text} IS NOT NULL THEN coalesce({cast}, {wrong}) END"
    if name == "account":
        value = f"coalesce({value}, '')"
    if name == "reference":  # An order without a reference cannot be found.
        value = f"coalesce({value}, {wrong})"
    return f"{value} AS {name}"


# --- open writes ------------------------------------------------------------------------------------------------------


class _Created(Struct):
    """The member of a request for an order or a preference that the comparison needs."""

    external_reference: str | None = None


_read = msgspec.json.Decoder(_Created).decode


def subject_of(record: Record, only: str | None) -> Subject:
    """Return the subject of a write. Books leave out the name of an *only* seller."""
    account = "" if record.account == only else record.account or ""
    if record.operation in (orders.CANCEL.name, orders.REFUND.name):
        return account, None, record.path.split("/")[-2]
    try:
        return account, _read(record.body or b"{}").external_reference, None
    except msgspec.MsgspecError:
        return account, None, None
