"""A page that answers another query proves nothing: a row whose own date contradicts the query says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from paymentsdk import NotWhole, Request, Response
from paymentsdk.reconcile import walk
from tests.reconcile.platform import NOW, Platform, moment_of
from tests.reconcile.served import Served, client_of, written

HOUR = 3_600_000
ROWS = 48
BEGIN = NOW - 10 * 24 * HOUR
CREATED = (moment_of(BEGIN), moment_of(BEGIN + ROWS * HOUR))
#: Calls until the date filter is proved on live rows.
PROOF = 12

Answer = Callable[[Request], object]


def hourly() -> Answer:
    """A platform with an order in each hour of two days, none of whole seconds, and none of them has changed since."""
    platform = Platform(1, page=100)
    for hour in range(ROWS):
        row = platform.add(BEGIN + hour * HOUR + 1_234_567)
        row.updated = row.created
    served = Served(platform)

    async def answer(request: Request) -> Response:
        url = request.url.replace("last_updated", "date_created")
        is_open = "date_created_from" in url and "date_created_to" not in url
        return await served(
            replace(request, url=f"{url}&date_created_to={CREATED[1]:%Y-%m-%dT%XZ}" if is_open else url)
        )

    return answer


def moved(request: Request) -> Request:
    """The same search for a time 12 hours before, or after if there are no orders before."""
    url = urlsplit(request.url)
    query = dict(parse_qsl(url.query))
    dates = {
        name: datetime.fromisoformat(query[name]) for name in query.keys() & {"date_created_from", "date_created_to"}
    }
    hours = timedelta(hours=12 if min(dates.values(), default=CREATED[1]) < CREATED[0] + timedelta(hours=12) else -12)
    query |= {name: (date + hours).isoformat() for name, date in dates.items()}
    return replace(request, url=url._replace(query=urlencode(query)).geturl())


class MixedUp:
    """A replica that answers every third search by date as if it had been for a time 12 hours off."""

    def __init__(self, served: Answer, every: int = 3) -> None:
        self.served, self.every, self.calls, self.mistakes = served, every, 0, 0

    async def __call__(self, request: Request) -> Response:
        self.calls += 1
        is_mixed_up = self.calls > PROOF and not self.calls % self.every
        self.mistakes += is_mixed_up
        return await self.served(moved(request) if is_mixed_up else request)


async def test_a_page_of_another_query_is_asked_for_again(tmp_path: Path) -> None:
    """It has as many rows as its total says, so only their dates tell: no row is lost, and each comes once."""
    handler = MixedUp(hourly())

    async with client_of(handler) as client:
        report = await walk(client, created=CREATED, out=tmp_path, max_window=14)

    assert [("", i + 1) for i in range(ROWS)] == written(report)
    assert timedelta(milliseconds=1) == report.grain
    assert handler.mistakes


async def test_a_platform_that_answers_other_queries_alone_is_not_whole(tmp_path: Path) -> None:
    """After some tries the window is named, with the reason, and not split: that would bring nothing."""
    handler = MixedUp(hourly(), every=1)

    with pytest.raises(NotWhole, match="a page has a row of another date than was asked for") as caught:
        async with client_of(handler) as client:
            await walk(client, created=CREATED, out=tmp_path, max_window=14)

    assert CREATED[0] <= caught.value.window[0] < caught.value.window[1] <= CREATED[1]
    assert 200 > handler.calls
