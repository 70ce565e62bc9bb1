"""A large page, however malformed: repaired in a thread, told in a bounded report, and the same as row by row."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paymentsdk import OPERATIONS, Anomaly, PaymentsClient, Response, Timeout
from paymentsdk.testing import FakeClock, MemoryTransport

SEARCH = OPERATIONS["merchant_orders.search"]
#: What a member may be, followed by the contract or not.
ODD = st.sampled_from(
    ["", None, 5, "5", "abc", [], {}, True, 1.5, "2026-01-31", "2026-01-31T09:30:00", [1], {"a": 1}, "NaN", 1e300]
)
ROWS = st.lists(
    st.sampled_from([None, "text", 5, [], [{"id": 5}]])
    | st.fixed_dictionaries(
        {},
        optional={"id": st.integers(1, 9) | ODD}
        | dict.fromkeys(
            ("status", "total_amount", "date_created", "external_reference", "cancelled", "payments", "payer"), ODD
        ),
    ),
    max_size=5,
)


def page(rows: list[object]) -> bytes:
    """A page of *rows*, with all the members that a page has."""
    return json.dumps({"elements": rows, "next_offset": 0, "total": len(rows)}).encode()


def large(rows: list[object], size: int) -> bytes:
    """A page of at least *size* bytes, made of *rows* again and again."""
    return page(rows * (size // len(page(rows)) + 1))


def malformed(number: int) -> dict[str, object]:
    """A row with four members that do not follow the contract."""
    texts = {"external_reference": "x" * 200, "notification_url": "https://example.com"}
    return {"id": number, **texts, "total_amount": "abc", "date_created": "", "payments": 7, "site_id": 5}


def client(body: bytes, **options: object) -> PaymentsClient:
    """A client that gets *body*, whatever it asks for."""
    transport = MemoryTransport(lambda request: Response(200, {}, body))
    return PaymentsClient("token", base_url="http://127.0.0.1", transport=transport, **options)


# --- what comes out ---------------------------------------------------------------------------------------------------


def number_of(anomalies: tuple[Anomaly, ...]) -> int:
    """How many a report tells of."""
    return sum(anomaly.value if anomaly.reason.startswith("and ") else 1 for anomaly in anomalies)


@pytest.mark.control(
    "paymentsdk._codec.repair._entries",
    lambda listed: msgspec.json.decode(listed, type=list[msgspec.Raw])[1:],
    raises=(AssertionError, ExceptionGroup),
)
@settings(max_examples=8)
@given(rows=ROWS)
def test_a_large_page_is_its_rows_one_by_one(rows: list[object]) -> None:
    """Each row is what it is on a page of its own, and has the anomalies that it has there."""
    rows = [*rows, {"id": 77, "external_reference": "y" * 2_000}]
    alone = [SEARCH.decode(page([row])) for row in rows]

    together, anomalies = SEARCH.decode(large(rows, 70_000))

    times = together.total // len(rows)
    assert [row for value, _ in alone for row in value.elements] * times == list(together.elements)
    reported = [
        (anomaly.path.replace("[0]", f"[{i}]", 1), anomaly.value, anomaly.reason, anomaly.dropped)
        for i, (_, anomalies_of_row) in enumerate(alone)
        for anomaly in anomalies_of_row
    ]
    assert set(map(repr, reported)) <= {
        repr((a.path, a.value, a.reason, a.dropped)) for a in anomalies[: len(reported)]
    }
    assert 0 == together.next_offset
    assert times * sum(number_of(anomalies_of_row) for _, anomalies_of_row in alone) == number_of(anomalies)


def test_rows_that_are_no_rows_are_named_each() -> None:
    """A walk counts the entries that are missing, as the platform does: however many, none is only counted."""
    rows = [row for number in range(300) for row in (malformed(number), None)]

    value, anomalies = SEARCH.decode(page(rows))

    lost = {anomaly.path for anomaly in anomalies if anomaly.dropped and anomaly.path.endswith("]")}
    assert {f"$.elements[{i}]" for i in range(1, 600, 2)} == lost
    assert 300 == len(value.elements)


@pytest.mark.control("paymentsdk._codec.anomaly.MOST_MISSING", 10**9)
def test_a_page_of_nothing_but_missing_rows_is_rejected(monkeypatch, *, defence: bool) -> None:
    """Each is reported, so that millions of them in a few megabytes would fill the memory."""
    if not defence:
        monkeypatch.setattr("paymentsdk._codec.anomaly.MOST_MISSING", 500)
    value, anomalies = SEARCH.decode(page([None] * 500))
    with pytest.raises(ValueError, match="more than 500 entries of its lists are malformed"):
        SEARCH.decode(page([None] * 501))

    assert (0, 500) == (len(value.elements), len(anomalies))


@pytest.mark.parametrize("size", [20_000, 200_000])
@pytest.mark.control("paymentsdk._codec.anomaly.MOST_REPORTS", 10**9)
def test_a_report_is_bounded(size: int) -> None:
    """At most a hundred are told, and one more tells how many there are besides."""
    body = large([malformed(1)], size)
    count = len(json.loads(body)["elements"])

    value, anomalies = SEARCH.decode(body)

    assert count == len(value.elements)
    assert 101 == len(anomalies)
    assert 4 * count - 100 == anomalies[-1].value
    assert f"and {4 * count - 100} more did not follow the contract, such as this one" == anomalies[-1].reason


# --- what it costs the others -----------------------------------------------------------------------------------------


async def turns_during(body: bytes) -> int:
    """Return how many turns another task has while a page is fetched and decoded."""
    turns = 0

    async def ticker() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(ticker())
    await client(body).call(SEARCH)
    ticking.cancel()
    await asyncio.wait([ticking])
    return turns


@pytest.mark.control("paymentsdk._call.response.LARGE", 10**9)
async def test_the_loop_goes_on_while_a_large_page_is_repaired() -> None:
    """Repair takes many times as long as decoding: other tasks have their turns meanwhile."""
    small, large_page = [await turns_during(large([malformed(1)], size)) for size in (50_000, 1_000_000)]

    assert large_page > small


async def test_a_deadline_does_not_end_a_decoding() -> None:
    """The response is complete: time that passes while it is decoded is no time without a response."""
    clock = FakeClock()
    body = large([malformed(1)], 300_000)

    async def hurry() -> None:
        for _ in range(1_000):
            clock.advance(31.0)
            await asyncio.sleep(0)

    slow_client = client(body, clock=clock, timeout=Timeout(total=30.0))
    call = asyncio.create_task(slow_client.call(SEARCH))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hurrying = asyncio.create_task(hurry())
    result = await call
    hurrying.cancel()

    assert 101 == len(result.anomalies)
