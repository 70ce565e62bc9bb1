"""What a search asks of the columns of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, how it is compared, and with what; ``holds`` looks for a text within the column's.
Condition: TypeAlias = tuple[str, Comparison, object]


def beyond(bound: Condition, conditions: Sequence[Condition]) -> list[Condition]:
    """Return what holds for all that meets *conditions* and has a value that a lower *bound* excludes.

    After a plus SQLite looks at no index: it is to go by the bound, beyond which there is little.
    """
    others: list[Condition] = [(f"+{name}", how, value) for name, how, value in conditions]
    return [(bound[0], "<" if bound[1] == ">=" else "<=", bound[2]), *others]
