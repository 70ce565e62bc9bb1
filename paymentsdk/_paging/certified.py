"""`search(certify=True)` returns all rows of a search once `proof.py` has proved that no row is missing.

If a search has a window of creation that has ended, and only filters by values that never change, its rows can only
become fewer. If rows can still join the search, it is certified only by a single page with all of them.
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
    ANOTHER_DATE,
    EPOCH,
    FARTHEST_ZONE,
    Examination,
    Rules,
    Snapshot,
    Window,
    milliseconds,
    span_of,
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

#: Walks over a search before it is given up.
TRIES = 5
#: Milliseconds: a moment later than any row, or an age above that of any row.
_EVER = 10**15


def check_filters(shape: PageShape, filters: Mapping[str, object]) -> None:
    """Reject filters that let rows join the search, or leave it and come back.

    Raises:
        RequestInvalid: A filter is by a value that can change, the window of creation has no end, or the search is by
            cursor.
    """
    if shape.cursor is not None:
        raise RequestInvalid("certify", "is not available for a search by cursor: leave it out")
    if shape.created_until is None:
        return  # Only a single page is certified, so the filters do not matter.
    for name, value in filters.items():
        if value is not None and name not in shape.immutable and name != shape.created_until:
            names = ", ".join(sorted({*shape.immutable, shape.created_until}))
            reason = f"can change, so the search cannot be certified; filters that cannot change: {names}"
            raise RequestInvalid(f"$query.{name}", reason)
    if filters.get(shape.created_until) is None:
        raise RequestInvalid(f"$query.{shape.created_until}", "is needed: without it, rows can join during the walk")


class CertifiedSearch:
    """A search that has to be certified.

    Args:
        shape: Names the filter that ends the window of creation, and the filters by values that never change.
        filters: The filters of the search.
        fetch: Fetches the page at an offset.
    """

    def __init__(
        self, shape: PageShape, filters: Mapping[str, object], fetch: Callable[[int], Awaitable[Result[object]]]
    ) -> None:
        self._shape = shape
        self._fetch = fetch
        #: The member of a row that has its date of creation.
        self._date = (shape.created_until or "").removesuffix("_to")
        self._since = plain_moment(filters.get(f"{self._date}_from"))
        self._until = plain_moment(filters.get(shape.created_until or ""))
        #: The members that every row must have with this value, unless the row leaves them out.
        self._fixed = {name: filters[name] for name in shape.immutable & filters.keys()}
        self._rows: list[object] = []
        self.anomalies: list[Anomaly] = []

    async def rows(self) -> list[object]:
        """Return all rows.

        Raises:
            Incomplete: The platform's totals do not prove that no row is missing.
        """
        window = Window(
            0 if self._since is None else milliseconds(in_utc(self._since)),
            _EVER if self._until is None else milliseconds(in_utc(self._until)) + 1,
        )
        rules = Rules(tries=TRIES, horizon=_EVER, splits=False)
        verdict = await Examination(window, rules, self._ask).verdict()
        if verdict.reason is not None:
            total, reason = verdict.total, verdict.reason
            if reason == ANOTHER_DATE:
                reason += "; paymentsdk.reconcile.walk finds out which"
            raise Incomplete(len(verdict.places), total or 0, ResumePoint(0, total), reason)
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
        # The platform writes a date in year 1 for no date.
        dates = [date for row in rows if isinstance(date := getattr(row, self._date, None), datetime) and date.year > 1]
        objection = self._objection(rows)
        if objection is None and self._date and len(dates) < len(rows) and (offset or received != page.total):
            objection = "a row has no date: it may be younger than its window, so other rows can still join"
        slack = uncertainty(result.anomalies, self._date) if all(date.tzinfo for date in dates) else FARTHEST_ZONE
        return Snapshot(
            ids=tuple([str(row_id) if isinstance(row_id, int | str) and row_id != "" else None for row_id in ids]),
            places=places,
            total=page.total,
            now=0 if now is None else milliseconds(now),
            received=received,
            span=span_of([in_utc(date) - EPOCH for date in dates], slack),
            objection=objection,
        )

    def _objection(self, rows: Sequence[object]) -> str | None:
        """Return why *rows* cannot be rows of this search; `None` if they can."""
        for row in rows:
            for name, value in self._fixed.items():
                member = getattr(row, name, None)
                # Some platforms ignore case, and an id that is a number loses its leading zeros.
                if member and _comparable(member) != _comparable(value):
                    return f"a row has {name} {member!r}, which was not asked for: the response is to another query"
        return None


def _comparable(value: object) -> str:
    return query_text(value).casefold().lstrip("0")
