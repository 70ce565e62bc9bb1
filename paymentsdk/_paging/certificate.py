"""The proof that a walk has seen every row: for `search(certify=True)`.

Rows of a window of creation that has ended can only become fewer, if nothing else that is searched for can change. So
the distinct rows that were seen are among those that there were at the first page, and if they are as many as its
total, none is missing. Where rows can join, only a single page that has all of them proves anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from paymentsdk._headers import http_date
from paymentsdk._operation.operation import PageShape
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports.base import header

#: How late a row may appear in a window that has ended.
SETTLING_TIME = timedelta(minutes=15)
#: Only a total below this is believed: some platforms stop counting.
MOST_CERTIFIED = 1_000


def check_filters(shape: PageShape, filters: Mapping[str, object]) -> None:
    """Reject filters under which rows can join the search, or leave it and come back.

    Raises:
        RequestInvalid: One can change, or the window of creation has no end.
    """
    if shape.created_until is None:
        return  # Only a single page is certified, whatever was searched for.
    for name, value in filters.items():
        if value is not None and name not in shape.immutable and name != shape.created_until:
            known = ", ".join(sorted({*shape.immutable, shape.created_until}))
            raise RequestInvalid(f"$query.{name}", f"can change, so nothing is certain; what cannot: {known}")
    if filters.get(shape.created_until) is None:
        raise RequestInvalid(f"$query.{shape.created_until}", "is needed: without it, rows join while they are read")


class Certificate:
    """What the pages of one walk prove.

    Args:
        until: When the window of creation ends; ``None`` if the search has none.
    """

    __slots__ = ("_ids", "_total", "_until", "rejection")

    def __init__(self, until: object) -> None:
        self._until = until if isinstance(until, datetime) else None
        self._ids: set[str] = set()
        self._total: int | None = None
        #: Why nothing is proved any more.
        self.rejection: str | None = None

    @property
    def seen(self) -> int:
        """How many distinct rows were seen."""
        return len(self._ids)

    def add(
        self, offset: int, ids: Sequence[object], received: int, total: int | None, headers: Mapping[str, str]
    ) -> None:
        """Take a page into account: the ids of its rows, and how many entries it has, rows or not."""
        is_first = self._total is None
        texts = [str(one) for one in ids if isinstance(one, int | str) and one != ""]
        self._ids.update(texts)
        if total is None:
            self.rejection = "the platform gives no total"
        elif is_first:
            self._total = total
            is_atomic = offset == 0 and total == received == len(self._ids)
            self.rejection = None if is_atomic else self._limits(total, headers)
        elif total > (self._total or 0):
            self.rejection = "the total has risen"
        if len(texts) < received:
            self.rejection = "a row has no id"

    def check(self) -> None:
        """Take the page before for the last."""
        if self.rejection is None and len(self._ids) != self._total:
            self.rejection = "rows have moved, or the platform does not show all that it counts"

    def _limits(self, total: int, headers: Mapping[str, str]) -> str | None:
        """Return why several pages of a search prove nothing."""
        if total >= MOST_CERTIFIED:
            return f"a total of {MOST_CERTIFIED} or more is not believed: search with a smaller window"
        if self._until is None:
            return "it does not fit on one page, and rows can join between two"
        now = http_date(header(headers, "Date"))
        if now is None or self._until + SETTLING_TIME > now:
            return "it does not fit on one page, and its window has not ended 15 minutes ago"
        return None
