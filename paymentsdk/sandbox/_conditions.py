"""What a search asks of the columns of documents."""

from __future__ import annotations

from typing import Literal, TypeAlias

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, how it is compared, and with what; ``holds`` looks for a text within the column's.
Condition: TypeAlias = tuple[str, Comparison, object]
