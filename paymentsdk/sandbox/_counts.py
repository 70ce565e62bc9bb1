"""Counts of searches, kept up to date with what is written: a walk is not counted anew at each of its pages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, how it is compared, and with what; ``holds`` looks for a text within the column's.
Condition: TypeAlias = tuple[str, Comparison, object]

#: As SQLite compares.
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "holds": operator.contains,
}
#: How many there are, in SQL.
_NUMBER = "COUNT(*)"
#: Searches of a table whose counts are kept: each costs something at every write.
_MOST = 50


class _Count(Struct):
    """How many documents meet all conditions: those of one seller, or of all."""

    tenant: int | None
    conditions: Sequence[Condition]
    number: int

    def holds(self, tenant: int, row: Mapping[str, object]) -> bool:
        """Whether a document with the columns *row* is one of them; an empty column meets nothing."""
        return self.tenant in (None, tenant) and all(
            row[column] is not None and _COMPARE[comparison](row[column], value)
            for column, comparison, value in self.conditions
        )


class Counts:
    """The counts of one table.

    Args:
        ask: Asks the database for something of the documents of a seller that meet conditions; 0 if none does.
        dates: The columns of which a document has all or none.
    """

    def __init__(self, ask: Callable[[int | None, Sequence[Condition], str], int], dates: Collection[str] = ()) -> None:
        self._ask = ask
        self._dates = dates
        self._kept: dict[object, _Count] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def number(self, tenant: int | None, conditions: Sequence[Condition], since: Condition | None) -> int:
        """Return how many documents meet *conditions* and *since*, a lower bound that moves with the clock."""
        asked = (tenant, *conditions, since and since[:2])
        now = [*conditions, since] if since else conditions
        count = self._kept.get(asked)
        if count is None or (since and count.conditions[-1][2] > since[2]):  # type: ignore[operator]  # two moments
            if len(self._kept) >= _MOST:
                self._kept.clear()
            telling = conditions if since and self._is_idle(tenant, conditions, since) else now
            count = self._kept[asked] = _Count(tenant, now, self._ask(tenant, telling, _NUMBER))
        elif since and count.conditions[-1] != since:
            # After a plus SQLite looks at no index: it is to go by the narrow range.
            others: list[Condition] = [(f"+{name}", how, value) for name, how, value in conditions]
            left = self._ask(tenant, [count.conditions[-1], _beyond(since), *others], _NUMBER)
            count.number, count.conditions = count.number - left, now
        return count.number

    def _is_idle(self, tenant: int | None, conditions: Sequence[Condition], since: Condition) -> bool:
        """Whether *since* excludes nothing that *conditions* leave: SQLite would look at it for each document.

        Those without dates are excluded by another date's condition alone.
        """
        dated = [one for one in conditions if one[0] in self._dates]
        if since[0] not in self._dates or not dated:
            return False
        column, _, bound = since
        is_above = any(one == column and how in {">", ">="} and value > bound for one, how, value in dated)  # type: ignore[operator]  # moments
        return is_above or not self._ask(tenant, [_beyond(since)], "1")

    def changed(self, tenant: int, old: Mapping[str, object] | None, new: Mapping[str, object]) -> None:
        """Count a document of *tenant* with the columns *new* in place of one with the columns *old*, if there was."""
        for count in self._kept.values():
            count.number += count.holds(tenant, new) - (old is not None and count.holds(tenant, old))


def _beyond(bound: Condition) -> Condition:
    """Return what holds for all that a lower *bound* excludes, but for those without a value."""
    return bound[0], "<" if bound[1] == ">=" else "<=", bound[2]
