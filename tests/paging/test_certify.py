"""`search(certify=True)`: a walk that ends has proved that it is whole; any other raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import MappingProxyType
from urllib.parse import parse_qsl, urlsplit

import pytest

from paymentsdk import Incomplete, Pager, PaymentsClient, PaymentsError, Request, RequestInvalid, Response, RetryPolicy
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.reconcile.model import CREATED, drawn, snapshot, survivors
from tests.reconcile.platform import NOW
from tests.reconcile.served import Served, client_of

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
#: A window that has ended, and the platform's time.
WINDOW = {"date_created_from": BEGIN, "date_created_to": BEGIN + timedelta(days=1)}
LATER = BEGIN + timedelta(days=2)


class Rows:
    """Pages of ids, as they come: one list for each page, and a total for each.

    Args:
        pages: These.
        now: The platform's time.
        dates: When some of the rows were made, in place of the first moment of the window.
    """

    def __init__(
        self,
        *pages: tuple[list[object], int | None],
        now: datetime | None = LATER,
        dates: Mapping[object, str | None] = MappingProxyType({}),
    ) -> None:
        self.pages = pages
        self.dates = dates
        self.headers = {} if now is None else {"Date": format_datetime(now, usegmt=True)}
        self.offsets: list[int] = []

    def __call__(self, request: Request) -> Response:
        self.offsets.append(int(dict(parse_qsl(urlsplit(request.url).query))["offset"]))
        ids, total = self.pages[min(len(self.offsets), len(self.pages)) - 1]
        rows = [{"id": row_id, "date_created": self.dates.get(row_id, BEGIN.isoformat())} for row_id in ids]
        is_results = "merchant_orders" not in request.url
        response = {"results": rows, "paging": {"total": total}} if is_results else {"elements": rows, "total": total}
        return Response(200, self.headers, json.dumps(response).encode())


def certified(rows: Rows, **filters: object) -> Pager:
    """A certified walk over *rows*."""
    clock, once = FakeClock(), RetryPolicy(attempts=1)
    client = PaymentsClient("t", base_url="https://x", transport=MemoryTransport(rows), clock=clock, retry=once)
    return client.merchant_orders.search(certify=True, **{**WINDOW, **filters})


async def test_a_walk_that_saw_every_row_ends() -> None:
    """As many distinct rows as the first page counts: none is missing, though the total fell meanwhile."""
    assert [1, 2, 3, 4] == [row.id for row in await certified(Rows(([1, 2], 4), ([3, 4], 4))).collect()]
    # Row 1 has vanished: the walk goes back by one row, and sees the others.
    rows = Rows(([1, 2], 4), ([3, 4], 3), ([2, 3], 3), ([4], 3))
    assert {1, 2, 3, 4} == {row.id for row in await certified(rows).collect()}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (Rows(([1, 2], 4), ([2, 3], 4), ([], 4)), "3 of 4 rows were seen: as many rows"),
        (Rows(*[([1, 2], 3), ([3], 4)] * 9), "as many rows as the total says were never seen"),
        (Rows(([1, None], 2)), "as many rows as the total says were never seen"),
        (Rows(([1, 2], None), ([], None)), "no total"),
        (Rows(([1, 2], 1_000)), "no total from 1000 on is believed: search a smaller window"),
        (Rows(([1, 2], 4), ([3, 4], 4), now=BEGIN + timedelta(days=1, minutes=14)), "rows can still join"),
        (Rows(([1, 2], 4), ([3, 4], 4), now=None), "rows can still join"),
        # Row 3 has vanished, and row 5 has joined: the filter shows all of its hour.
        (
            Rows(([1, 2], 4), ([4, 5], 4), dates={5: LATER.isoformat()}),
            "of another date than was asked for: .*reconcile.walk finds out",
        ),
        # Or row 5 has no date, and may have been made just now.
        (Rows(([1, 2], 4), ([4, 5], 4), dates={5: None}), "a row has no date"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_walk_that_proves_nothing_raises(rows: Rows, reason: str) -> None:
    """Whatever leaves a doubt raises `Incomplete` with the reason, and a point from which another walk can prove it."""
    with pytest.raises(Incomplete, match=reason) as caught:
        await certified(rows).collect()

    assert 0 == caught.value.resume_point
    assert "merchant_orders.search" == caught.value.operation


async def test_no_row_is_given_before_the_proof() -> None:
    """A walk that cannot be certified returns nothing; one that can returns all rows as one page, also after drift."""
    with pytest.raises(Incomplete):
        await certified(Rows(([1, 2], 4), ([2, 3], 4), ([], 4))).first()
    rows = Rows(([1, 2], 4), ([2, 3], 4), ([], 4), ([1, 2], 4), ([3, 4], 4))

    [page] = [page async for page in certified(rows).pages()]

    assert ([1, 2, 3, 4], 4, None) == ([row.id for row in page.items], page.total, page.resume_point)


async def test_a_single_page_is_certified_while_rows_can_join() -> None:
    """A page with as many rows as its total speaks of one moment, whatever joins later."""
    rows = Rows(([1, 2], 2), now=BEGIN, dates={2: None})

    assert [1, 2] == [row.id for row in await certified(rows).collect()]


async def test_a_single_page_with_a_total_that_is_not_believed() -> None:
    """A platform that stops counting at 1,000, and gives as many rows on a page, does not say that these are all."""
    with pytest.raises(Incomplete, match="no total from 1000 on is believed"):
        await certified(Rows(([*range(1_000)], 1_000))).collect()

    assert 999 == len(await certified(Rows(([*range(999)], 999))).collect())


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ({"status": "closed"}, "$query.status"),
        ({"last_updated_from": BEGIN}, "$query.last_updated_from"),
        ({"date_created_to": None}, "$query.date_created_to"),
        ({"start": 10}, "start"),
    ],
    ids=str,
)
def test_what_can_change_is_rejected(filters: dict, path: str) -> None:
    """An order becomes `closed` when it is paid: of a search by that, no count proves anything."""
    with pytest.raises(RequestInvalid) as caught:
        certified(Rows(), **filters)

    assert path == caught.value.path


@pytest.mark.parametrize(("hours", "pages"), [((0, 9), 1), ((31, 40), 2), ((22, 32), 2)], ids=str)
async def test_rows_of_another_time_certify_nothing(hours: tuple[int, int], pages: int) -> None:
    """Hours 20 to 30 were asked for: a response to another query has as many rows as its total says, too."""
    dates = {hour: (BEGIN + timedelta(hours=hour)).isoformat() for hour in range(*hours)}
    step = -(-len(dates) // pages)
    rows = Rows(*(([*dates][i : i + step], len(dates)) for i in range(0, len(dates), step)), dates=dates)
    begin, end = (BEGIN + timedelta(hours=hour) for hour in (20, 30))

    with pytest.raises(Incomplete, match=r"than was asked for: .*paymentsdk\.reconcile\.walk") as caught:
        await certified(rows, date_created_from=begin, date_created_to=end).collect()

    assert 0 == caught.value.resume_point
    # Control: it is their dates that give them away, and nothing else.
    undated = Rows(([*dates], len(dates)), dates=dict.fromkeys(dates))
    assert [*dates] == [row.id for row in await certified(undated).collect()]


async def test_rows_of_the_first_and_the_last_millisecond_are_certified() -> None:
    """Whether a platform counts the ends of a window as part of it or not, and however it rounds."""
    end = WINDOW["date_created_to"] + timedelta(microseconds=999)
    rows = Rows(([1, 2], 2), dates={1: BEGIN.isoformat(), 2: end.isoformat()})

    assert 2 == len(await certified(rows, date_created_from=BEGIN + timedelta(microseconds=999)).collect())


async def test_dates_without_a_zone_may_be_of_any() -> None:
    """They are read as UTC: up to 14 hours before or after a window they contradict nothing, and beyond it they do."""

    async def walk(hours: int) -> int:
        begin = BEGIN - timedelta(hours=hours)
        dates = {1: f"{begin:%Y-%m-%dT%X}", 2: f"{WINDOW['date_created_to'] + timedelta(hours=hours):%Y-%m-%dT%X}"}
        transport = MemoryTransport(Rows(([1], 2), ([2], 2), dates=dates))
        client = PaymentsClient("t", base_url="https://x", transport=transport, clock=FakeClock())
        return len(await client.merchant_orders.search(certify=True, **WINDOW).collect())

    assert 2 == await walk(14)
    with pytest.raises(Incomplete, match="than was asked for"):
        await walk(15)


@pytest.mark.parametrize(
    ("reference", "is_certified"), [("table-8", False), ("TABLE-7", True), ("table-7", True), ("", True), (None, True)]
)
async def test_rows_of_another_reference_certify_nothing(reference: str | None, is_certified: bool) -> None:
    """What never changes about a row, and is searched for, has to be what the row shows, if it shows it."""
    row = {"id": 1, "date_created": BEGIN.isoformat(), "external_reference": reference}
    body = json.dumps({"elements": [row], "total": 1}).encode()
    client = PaymentsClient("t", base_url="https://x", transport=MemoryTransport(lambda _: Response(200, {}, body)))
    walk = client.merchant_orders.search(certify=True, external_reference="table-7", **WINDOW)

    if is_certified:
        assert 1 == len(await walk.collect())
    else:
        with pytest.raises(Incomplete, match="a row has external_reference 'table-8', which was not asked for"):
            await walk.collect()


@pytest.mark.parametrize("noun", ["invoices", "plans"])
async def test_searches_without_a_window_are_certified_as_one_page(noun: str) -> None:
    """They have no dates to search by: what does not fit on a page is certain of nothing."""

    async def walk(rows: Rows) -> list[object]:
        client = PaymentsClient("t", base_url="https://x", transport=MemoryTransport(rows), clock=FakeClock())
        return [row.id for row in await getattr(client, noun).search(certify=True).collect()]

    assert ["1", "2"] == [str(row_id) for row_id in await walk(Rows((["1", "2"], 2)))]
    with pytest.raises(Incomplete, match="does not fit on one page"):
        await walk(Rows((["1", "2"], 4), (["3", "4"], 4)))


@pytest.mark.parametrize(("cap", "prefetch"), [("none", 4), ("clamped", 1)])
async def test_no_walk_over_rows_that_drift_is_short_in_silence(cap: str, prefetch: int) -> None:
    """A walk over rows that drift has every row that stayed, or raises; without a certificate, many are short."""
    end = NOW - 3_600_000

    async def lost(seed: int, *, certify: bool) -> int | None:
        platform = drawn(seed, cap=cap)
        before = {row_id: row for row_id, row in snapshot(platform).items() if (row.created or 0) < end}
        async with client_of(Served(platform)) as client:
            days = [datetime.fromtimestamp(moment / 1_000, UTC) for moment in (CREATED.begin - 1, end + 1)]
            try:
                rows = await client.merchant_orders.search(
                    date_created_from=days[0], date_created_to=days[1], certify=certify, prefetch=prefetch
                ).collect()
            except PaymentsError:  # Where an offset is rejected, the rejection itself.
                return None
        return len(survivors(before, platform) - {row.id for row in rows})

    proved = [await lost(seed, certify=True) for seed in range(6)]
    assert {0, None} >= set(proved)
    assert cap != "none" or 0 in proved
    # Control.
    assert any([await lost(seed, certify=False) for seed in range(6)])
