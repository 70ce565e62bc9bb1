"""Moments go out in a form that every platform reads."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paymentsdk import Operation, PaymentsClient, RequestInvalid, Response, RetryClass
from paymentsdk.resources.common import RequestDay, RequestStruct
from paymentsdk.testing import MemoryTransport

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EMPTY = Response(200, {}, b'{"elements":[],"next_offset":0,"total":0}')


async def sent(moment: datetime) -> str:
    """Return what goes out as *moment*."""
    transport = MemoryTransport(lambda request: EMPTY)
    client = PaymentsClient("token", base_url="http://127.0.0.1", transport=transport)
    await client.merchant_orders.search(last_updated_from=moment).first()
    [request] = transport.requests
    return parse_qs(urlsplit(request.url).query)["last_updated_from"][0]


@settings(max_examples=30)
@given(seconds=st.integers(-86_399, 86_399))
async def test_an_offset_has_hours_and_minutes(seconds: int) -> None:
    """Whatever zone a moment is in, it goes out as the same moment, with an offset of whole minutes."""
    moment = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(seconds=seconds)))

    text = await sent(moment)

    assert moment == datetime.fromisoformat(text)
    assert text.endswith("Z") or len("2026-01-31T12:00:00.000+00:00") == len(text)


class Text(str):
    """A string of somebody else's, such as that of an array."""

    __slots__ = ()


class Visit(RequestStruct, rename="camel"):
    """A request with a day, as a Struct of somebody else's has it."""

    on_day: RequestDay
    days: list[RequestDay] | None = None


VISIT = Operation(name="visits.create", method="POST", path="/x", retry=RetryClass.KEYED, body=Visit, result=Visit)


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (date(2026, 1, 31), "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
        (Text("2026-01-31"), "2026-01-31"),
        (Text("2026-01-31T12:00:00Z"), "2026-01-31T12:00:00.000Z"),
    ],
)
def test_a_day_of_a_request_is_a_date_or_a_moment(day: object, text: str) -> None:
    """No class has to read it by itself, and what was read from what was sent, as by a recovery, goes out once more."""
    body = VISIT.encoder.encode(Visit(on_day=day, days=[day]))

    assert f'{{"onDay":"{text}","days":["{text}"]}}'.encode() == body
    assert body == VISIT.encoder.encode(VISIT.encoder.decode(body))


@pytest.mark.parametrize(
    "day", [NOON.replace(tzinfo=None), "2026-02-31", "2026-01-31T12:00:00", "today", Text("today"), 5]
)
def test_what_is_no_day_is_rejected_where_it_stands(day: object) -> None:
    """Nobody could say which day it is."""
    with pytest.raises(RequestInvalid) as rejected:
        VISIT.encoder.encode(Visit(on_day=date(2026, 1, 31), days=[day]))
    assert "$.days[0]" == rejected.value.path
