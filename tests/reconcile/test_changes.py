"""Changes that the search shows late: all that it has shown up to the moment of the report are in the report."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from paymentsdk import PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.reconcile import Book, reconcile
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.reconcile.platform import DAY, NOW, milliseconds, moment_of
from tests.reconcile.served import answer, asked_moment

#: How late a change may be shown.
LAG = 60_000
PAGE = 10
#: Of the orders; the walk is over before they change.
CREATED = (NOW - 3 * DAY, NOW - DAY)


class Late:
    """A seller whose orders are refunded all the time, a cent more each time, which the search shows later.

    Args:
        seed: Of everything.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = NOW
        self.created = [self.chance.randrange(*CREATED) for _ in range(60)]
        #: Of each order the versions that there were: when it was shown, its date, and the cents that were refunded.
        self.versions = [[(0, NOW - DAY, 0)] for _ in self.created]
        for _ in range(30):
            self.refund(NOW - self.chance.randrange(LAG))

    def refund(self, at: int) -> None:
        versions = self.versions[self.chance.randrange(len(self.versions))]
        moment, before, cents = versions[-1]
        if before < at:
            versions.append((min(max(at + self.chance.randrange(LAG), moment + 1), at + LAG), at, cents + 1))

    def refunded(self, i: int, moment: int) -> tuple[int, int]:
        """The date of an order, and what the search shows as refunded at a moment."""
        return [version[1:] for version in self.versions[i] if version[0] <= moment][-1]

    def __call__(self, request: Request) -> Response:
        self.now += 1_000
        if self.chance.random() < 0.3:
            self.refund(self.now - self.chance.randrange(1_000))
        query = dict(parse_qsl(urlsplit(request.url).query))
        by = "last_updated" if "last_updated_from" in query else "date_created"
        begin, end = asked_moment(query.get(f"{by}_from")) or 0, asked_moment(query.get(f"{by}_to")) or 10**15
        rows = []
        for i, created in enumerate(self.created):
            updated, cents = self.refunded(i, self.now)
            if begin <= (updated if by == "last_updated" else created) <= end:
                dates = {"date_created": moment_of(created).isoformat(), "last_updated": moment_of(updated).isoformat()}
                amounts = {"paid_amount": 10, "refunded_amount": cents / 100}
                rows.append({"id": i, "external_reference": f"{i}", "order_status": "paid", **dates, **amounts})
        page = rows[int(query["offset"]) :][:PAGE]
        return answer(self.now, json.dumps({"elements": page, "total": len(rows)}).encode())


def lost(seed: int, out: Path) -> tuple[int, int]:
    """How many orders a report has without a refund that was shown before its moment, and before its last call."""
    seller = Late(seed)
    client = PaymentsClient(
        "TEST-t",
        base_url="https://x",
        transport=MemoryTransport(seller),
        clock=FakeClock(),
        retry=RetryPolicy(attempts=1),
    )
    # All of them differ, so that the report shows what it has of each.
    book = [
        {"reference": f"{i}", "paid": 10, "refunded": 9, "created": moment_of(moment)}
        for i, moment in enumerate(seller.created)
    ]
    created = (moment_of(CREATED[0]), moment_of(CREATED[1]))
    lag = timedelta(milliseconds=LAG)
    report = asyncio.run(reconcile(Book.rows(book), client, created=created, out=out, lag=lag))
    if report.as_of is None:
        return 0, 0
    read = {int(difference.reference or 0): difference.refunded * 100 for difference in report.differences()}
    moments = (milliseconds(report.as_of), seller.now)
    first, last = (sum(read[i] < seller.refunded(i, moment)[1] for i in read) for moment in moments)
    return first, last


def test_what_was_shown_by_the_moment_of_the_report_is_in_it(tmp_path: Path) -> None:
    """A change is shown late, when its time has been read: it may be missing, and the report does not claim it."""
    losses = [lost(seed, tmp_path / f"{seed}") for seed in range(12)]

    assert 0 == sum(first for first, _ in losses)
    # Control: the moment of the last page would claim too much.
    assert any(last for _, last in losses)
