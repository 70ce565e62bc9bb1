"""`search(certify=True)`: all rows of one search, once `proof.py` has proved that there are no others.

The rows of a window of creation that has ended can only become fewer, if nothing else that is searched for can change.
Where rows can still join, only a single page that has all of them proves anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from paymentsdk._codec.encode import query_text
from paymentsdk._codec.timestamps import in_utc
from paymentsdk._headers import http_date
from paymentsdk._paging.cursor import dropped_entries
from paymentsdk._paging.proof import (
    EPOCH,
    FARTHEST_ZONE,
    MILLISECOND,
    Examination,
    Rules,
    Snapshot,
    Window,
    milliseconds,
    uncertainty,
)
from paymentsdk._resume_point import ResumePoint
from paymentsdk._validate import plain_moment
from paymentsdk.errors import Incomplete, RequestInvalid
from paymentsdk.transports.base import header

if TYPE_CHECKING:
    from paymentsdk._call.response import Result
    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk._contract.operation import PageShape

#: How often a search is walked before it is given up.
TRIES = 5
#: Later than any row, or longer ago.
_EVER = 10**15


def check_filters(shape: PageShape, filters: Mapping[str, object]) -> None:
    """Reject filters under which rows can join the search, or leave it and come back.

    Raises:
        RequestInvalid: A filter can change, or the window of creation has no end; or the search is by cursor.
    """
    if shape.cursor is not None:
        raise RequestInvalid("certify", "cannot be kept in a search by cursor: walk it without")
    if shape.created_until is None:
        return  # Only a single page is certified, whatever was searched for.
    for name, value in filters.items():
        if value is not None and name not in shape.immutable and name != shape.created_until:
            known = ", ".join(sorted({*shape.immutable, shape.created_until}))
            raise RequestInvalid(f"$query.{name}", f"can change, so nothing is certain; what cannot: {known}")
    if filters.get(shape.created_until) is None:
        raise RequestInvalid(f"$query.{shape.created_until}", "is needed: without it, rows join while they are read")


class CertifiedSearch:
    """One search, and its rows as they come.

    Args:
        shape: Names the filter that ends a window of creation, and the filters by what never changes about a row.
        filters: What is searched for.
        fetch: Fetches the page at an offset.
    """

    def __init__(
        self, shape: PageShape, filters: Mapping[str, object], fetch: Callable[[int], Awaitable[Result[object]]]
    ) -> None:
        self._shape = shape
        self._fetch = fetch
        #: The member of a row that says when it was made.
        self._date = (shape.created_until or "").removesuffix("_to")
        self._since = plain_moment(filters.get(f"{self._date}_from"))
        self._until = plain_moment(filters.get(shape.created_until or ""))
        #: What every row has to show, if it shows it.
        self._fixed = {name: filters[name] for name in shape.immutable & filters.keys()}
        self._rows: list[object] = []
        self.anomalies: list[Anomaly] = []

    async def rows(self) -> list[object]:
        """Return all rows.

        Raises:
            Incomplete: The platform's count does not prove that these are all.
        """
        window = Window(
            0 if self._since is None else milliseconds(in_utc(self._since)),
            _EVER if self._until is None else milliseconds(in_utc(self._until)) + 1,
        )
        rules = Rules(tries=TRIES, horizon=_EVER, splits=False)
        verdict = await Examination(window, rules, self._ask).verdict()
        if verdict.reason is not None:
            total = verdict.total
            raise Incomplete(len(verdict.places), total or 0, ResumePoint(0, total), verdict.reason)
        return [self._rows[place] for place in verdict.places]

    async def _ask(self, offsets: Sequence[int]) -> list[Snapshot]:
        return [self._snapshot(offset, await self._fetch(offset)) for offset in offsets]

    def _snapshot(self, offset: int, result: Result[object]) -> Snapshot:
        page = self._shape.read(result.value)
        rows = page.items or ()
        ids = [getattr(row, "id", None) for row in rows]
        places = range(len(self._rows), len(self._rows) + len(rows))
        self._rows += rows
        self.anomalies += result.anomalies
        now = http_date(header(result.headers, "Date"))
        received = len(rows) + dropped_entries(result.anomalies, self._shape.places(result.value)[0])
        return Snapshot(
            ids=tuple([str(row_id) if isinstance(row_id, int | str) and row_id != "" else None for row_id in ids]),
            places=places,
            total=page.total,
            now=0 if now is None else milliseconds(now),
            received=received,
            objection=self._objection(rows, result.anomalies, is_whole=offset == 0 and received == page.total),
        )

    def _objection(self, rows: Sequence[object], anomalies: Sequence[Anomaly], *, is_whole: bool) -> str | None:
        """Return what *rows* show that was not asked for, or lack; `None` if nothing speaks against them."""
        uncertain = uncertainty(anomalies, self._date)
        for row in rows:
            for name, value in self._fixed.items():
                shown = getattr(row, name, None)
                # Capitals are told apart by some platforms, and numbers have no zeros in front.
                if shown and _comparable(shown) != _comparable(value):
                    return f"a row has {name} {shown!r}, which was not asked for: the response is to another query"
            date = getattr(row, self._date, None) if self._date else None
            if not isinstance(date, datetime) or date.year == 1:  # The year 1 is the platform's word for no date.
                if self._date and not is_whole:
                    return "a row has no date, so it may be younger than its window, and others can join"
                continue
            slack, moment = MILLISECOND + (uncertain if date.tzinfo else FARTHEST_ZONE), in_utc(date)
            begin, end = in_utc(self._since or EPOCH) - slack, in_utc(self._until or moment) + slack
            if not begin <= moment <= end:
                return (
                    f"a row has {self._date} {date.isoformat()}, which was not asked for: the response is to another "
                    "query, or the date filter is not exact, which paymentsdk.reconcile.walk finds out"
                )
        return None


def _comparable(value: object) -> str:
    return query_text(value).casefold().lstrip("0")
