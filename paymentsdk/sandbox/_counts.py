"""Counts of searches, kept up to date with what is written: a walk is not counted anew at each of its pages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
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
        ask: Asks the database how many documents of a seller, or of all, meet conditions.
    """

    def __init__(self, ask: Callable[[int | None, Sequence[Condition]], int]) -> None:
        self._ask = ask
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
            count = self._kept[asked] = _Count(tenant, now, self._ask(tenant, now))
        elif since and count.conditions[-1] != since:
            left = self._ask(tenant, [count.conditions[-1], *beyond(since, conditions)])
            count.number, count.conditions = count.number - left, now
        return count.number

    def changed(self, tenant: int, old: Mapping[str, object] | None, new: Mapping[str, object]) -> None:
        """Count a document of *tenant* with the columns *new* in place of one with the columns *old*, if there was."""
        for count in self._kept.values():
            count.number += count.holds(tenant, new) - (old is not None and count.holds(tenant, old))


def beyond(bound: Condition, conditions: Sequence[Condition]) -> list[Condition]:
    """Return what holds for all that meets *conditions* and has a value that a lower *bound* excludes.

    After a plus SQLite looks at no index: it is to go by the bound, beyond which there is little.
    """
    others: list[Condition] = [(f"+{name}", how, value) for name, how, value in conditions]
    return [(bound[0], "<" if bound[1] == ">=" else "<=", bound[2]), *others]
