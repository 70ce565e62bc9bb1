"""What a caller says of a walk, and what goes out of it with the filters."""

# Without `from __future__ import annotations`: since Python 3.14, the names in the text of an inherited annotation are
# looked up where the heir stands, in the module of the resource.
from typing import Annotated, TypedDict

from msgspec import Meta

MOST_PREFETCH = 64
#: The most rows that a page can be asked for.
MOST_ROWS = 1_000_000
#: The last row that can be asked for: up to here every JSON reader counts exactly.
LARGEST_OFFSET = 2**53


class WalkOptions(TypedDict, total=False):
    """How a search is walked."""

    page_size: int | None
    """Rows to ask for per page, 1 to 1,000,000; the platform's own number by default. It may give fewer."""
    start: int | None
    """The offset of the first row, 0 to 2**53, such as the `resume_point` of an earlier walk."""
    prefetch: int
    """Pages in flight or waiting, 1 to 64. With 1, the default, a page is fetched when the one before is used up."""
    overlap: int
    """Rows to read again at every page, and before *start*; fewer than the rows of a page, and 0 by default. It
    finds rows that slide over a page's edge when as many vanish as appear; without it, a walk notices only a total
    that falls."""
    certify: bool
    """Raise `Incomplete` in place of the end unless the platform's own count proves that every row has come; `False` by
    default. A search with a window of creation needs an end of it, 15 minutes ago or earlier, and no filter by what can
    change, such as `status`. Any other search is certified only if all its rows are on one page. Of 1,000 rows or more,
    nothing is certain."""


class Position(TypedDict, total=False):
    """Where a page begins, and how many rows it may have, as the query says it."""

    offset: Annotated[int, Meta(ge=0)]
    limit: Annotated[int, Meta(ge=1)]
