"""How many rows each bucket of time has, kept by SQLite as rows are written.

A search by dates adds up whole buckets: neither its count nor the way to one of its pages looks at every row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, cast

from paymentsdk.sandbox._conditions import Condition

#: A bucket has the moments that differ in these bits of their microseconds: 2.4 hours. The 90 days of a search are 900
#: numbers to add up; of 100,000 rows of one day a tenth is looked at.
_BITS = 33
#: Where a period without a bound begins and ends.
_EVER = 1 << 62


def create_buckets(table: str, dates: Collection[str], kind: str) -> str:
    """Return the statements that keep the buckets of *dates*, for each value of the column *kind*."""
    columns = "tenant INTEGER, date TEXT, bucket INTEGER, kind TEXT, rows INTEGER"
    key = "tenant, date, bucket, kind"
    statements = [f"CREATE TABLE {table}_buckets ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID;"]
    for date in dates:
        less, more = (
            f"INSERT INTO {table}_buckets SELECT {row}.tenant, '{date}', {row}.{date} >> {_BITS}, "
            f"ifnull({row}.{kind}, ''), {change} WHERE {row}.{date} IS NOT NULL "
            f"ON CONFLICT DO UPDATE SET rows = rows + {change};"
            for row, change in (("old", -1), ("new", 1))
        )
        statements += [
            f"CREATE TRIGGER {table}_{date}_made AFTER INSERT ON {table} BEGIN {more} END;",
            f"CREATE TRIGGER {table}_{date}_moved AFTER UPDATE ON {table} BEGIN {less} {more} END;",
        ]
    return "".join(statements)


class Period(NamedTuple):
    """A search by one date and nothing else, but for what buckets tell apart."""

    date: str
    begin: int
    """Its first moment, in microseconds since 1970."""
    end: int
    """The first moment after it."""
    others: Sequence[Condition]

    def conditions(self) -> list[Condition]:
        """Return what holds for its rows."""
        return [(self.date, ">=", self.begin), (self.date, "<", self.end), *self.others]


def period_of(conditions: Sequence[Condition], dates: Collection[str], kind: str | None) -> Period | None:
    """Return the period that *conditions* come to, if it is one and there are buckets by *kind*."""
    if kind is None:
        return None
    begin, end, found = -_EVER, _EVER, set()
    others = []
    for column, how, value in conditions:
        match how:
            case ">" | ">=" if column in dates:
                begin = max(begin, cast(int, value) + (how == ">"))
            case "<" | "<=" if column in dates:
                end = min(end, cast(int, value) + (how == "<="))
            case "=" if column == kind:
                others.append((column, how, value))
                continue
            case _:
                return None
        found.add(column)
    return Period(found.pop(), begin, end, others) if len(found) == 1 else None


class Buckets:
    """Counts and skips the rows of a period.

    Args:
        count: Has the database count the rows that meet conditions.
        whole: Asks it for the buckets of a period within a range that have rows, each with how many, in an order.
    """

    def __init__(
        self,
        count: Callable[[Sequence[Condition]], int],
        whole: Callable[[Period, range, str], Iterable[tuple[int, int]]],
    ) -> None:
        self._count = count
        self._whole = whole

    def number(self, period: Period) -> int:
        """Return how many rows *period* has."""
        if not (inner := _inner(period)):
            return self._count(period.conditions())
        head, tail = period._replace(end=inner.start << _BITS), period._replace(begin=inner.stop << _BITS)
        whole = sum(rows for _, rows in self._whole(period, inner, "ASC"))
        return self._count(head.conditions()) + whole + self._count(tail.conditions())

    def skip(self, period: Period, offset: int, *, descending: bool) -> tuple[Period, int]:
        """Return the rest of *period* from the bucket with the row at *offset* on, and where that row is in it."""
        inner = _inner(period)
        if not inner or not offset:
            return period, offset
        if descending:
            nearest, edge = period._replace(begin=inner.stop << _BITS), inner.start
        else:
            nearest, edge = period._replace(end=inner.start << _BITS), inner.stop
        left = offset - self._count(nearest.conditions())
        if left < 0:
            return period, offset
        for bucket, rows in self._whole(period, inner, "DESC" if descending else "ASC"):
            if left < rows:
                edge = bucket + descending
                break
            left -= rows
        rest = period._replace(end=edge << _BITS) if descending else period._replace(begin=edge << _BITS)
        return rest, left


def _inner(period: Period) -> range:
    """Return the buckets that lie within *period* as a whole."""
    return range(-(-period.begin >> _BITS), period.end >> _BITS)
