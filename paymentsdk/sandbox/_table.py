"""What a kind of document is in SQLite: a table with its JSON, and beside it the columns that searches look at."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

D = TypeVar("D", bound=Struct)
Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, how it is compared, and with what; ``holds`` looks for a text within the column's.
Condition: TypeAlias = tuple[str, Comparison, object]

_WORD = re.compile(r"[a-z][a-z0-9_]{0,40}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Table(Generic[D]):
    """A kind of document.

    Args:
        name: What the table is called.
        form: The Struct.
        key: Its identifier; unique among all sellers.
        columns: What searches look at, taken from the document.
        dates: The columns that searches sort by and bound; what has no date is found by none, and has no other either.
        rebase_links: Returns a document with links that lead to the address, where the sandbox is now.
    """

    per_seller = False

    def __init__(
        self,
        name: str,
        form: type[D],
        *,
        key: Callable[[D], str],
        columns: Mapping[str, Callable[[D], object]],
        dates: Sequence[str] = (),
        rebase_links: Callable[[D, str], D] | None = None,
    ) -> None:
        self.name = name
        self.rebase_links = rebase_links
        self.key = key
        self.columns = columns
        self.dates = dates
        self.decode: Callable[[bytes], D] = msgspec.json.Decoder(form).decode
        names = ("tenant", "key", *columns, "document")
        changes = ", ".join(f"{one} = excluded.{one}" for one in names[2:])
        # The names in these statements are this module's own; every value is bound.
        self.put: str = (
            f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT (key) DO UPDATE SET {changes}"
        )
        # With the order in it, an index finds a page without looking at all documents, and nothing has to be sorted.
        order = [*dates[:1], "seq"]
        indexes = {one: [one, *order] for one in columns if one not in dates}
        # With all dates, it tells alone which rows a search by them has.
        indexes |= {one: [one, "seq", *(other for other in dates if other != one)] for one in dates}
        self.create: str = "".join(
            [
                f"CREATE TABLE {name} (seq INTEGER PRIMARY KEY, tenant INTEGER, key TEXT UNIQUE",
                *(f", {one}" for one in columns),
                ", document BLOB);",
                f"CREATE INDEX {name}_tenant ON {name} (tenant, seq);",
                # Whatever is asked of a column, one without a value is not the response.
                *(
                    f"CREATE INDEX {name}_{one} ON {name} (tenant, {', '.join(by)}) WHERE {one} IS NOT NULL;"
                    for one, by in indexes.items()
                ),
            ]
        )

    def values(self, document: D) -> list[object]:
        """Return the columns of *document*, as SQLite keeps them."""
        return [as_column(value(document)) for value in self.columns.values()]

    def stored_key(self, key: str, tenant: int | None) -> str:
        """Return the key among all sellers: two of them may have documents of one key, if those are `per_seller`."""
        return f"{tenant}/{key}" if self.per_seller else key

    def where(self, tenant: int | None, conditions: Sequence[Condition]) -> tuple[str, list[object]]:
        """Return the WHERE clause for *conditions*, whose values are as columns have them, and its values."""
        parts: list[str] = [] if tenant is None else ["tenant = ?"]
        values: list[object] = [] if tenant is None else [tenant]
        for column, comparison, value in conditions:
            if column.lstrip("+") not in self.columns:  # Columns are looked up, never taken from a request.
                raise KeyError(column)
            parts.append(f"instr({column}, ?)" if comparison == "holds" else f"{column} {comparison} ?")
            values.append(value)
        return (" WHERE " + " AND ".join(parts)) if parts else "", values


class Documents(Table[D]):
    """Documents that handlers of your own keep: one for each seller and key, in the transaction of the request.

    Args:
        name: What they are called, such as ``"tills"``: a word of small letters, digits and ``_``.
        form: Their Struct.
        key: Tells documents apart, such as ``lambda till: till.id``.
        columns: What `page_of`, and `find` and `count` of a `SellerContext`, may ask for, by name: each takes the value
            from a document.

    Raises:
        ValueError: The name, or that of a column, cannot be used.
    """

    per_seller = True

    def __init__(
        self,
        name: str,
        form: type[D],
        *,
        key: Callable[[D], str],
        columns: Mapping[str, Callable[[D], object]] | None = None,
    ) -> None:
        if bad := [word for word in (name, *(columns or {})) if not _WORD.fullmatch(word)]:
            raise ValueError(f"{bad[0]!r} is not a word of small letters, digits and _")
        super().__init__(f"own_{name}", form, key=key, columns=columns or {})
        try:
            with closing(sqlite3.connect(":memory:")) as trial:
                trial.executescript(self.create)
        except sqlite3.Error as error:
            raise ValueError(f"the documents {name!r} cannot be kept: {error}") from None


def as_column(value: object) -> object:
    """Return *value* as SQLite keeps it: moments as microseconds since 1970."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    return None if value is None else str(value)


def as_columns(conditions: Sequence[Condition]) -> list[Condition]:
    """Return *conditions* with their values as columns have them."""
    return [(column, comparison, as_column(value)) for column, comparison, value in conditions]
