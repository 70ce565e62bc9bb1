"""Moments go out in a form that every platform reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import PaymentsClient, RequestInvalid, Response
from paymentsdk.testing import MemoryTransport

EMPTY = Response(200, {}, b'{"elements":[],"next_offset":0,"total":0}')


async def sent(moment: datetime) -> str:
    """Return what goes out as *moment*."""
    transport = MemoryTransport(lambda request: EMPTY)
    client = PaymentsClient("token", base_url="http://127.0.0.1", transport=transport)
    await client.merchant_orders.search(last_updated_from=moment).first()
    [request] = transport.requests
    return parse_qs(urlsplit(request.url).query)["last_updated_from"][0]


@given(seconds=st.integers(-86_399, 86_399))
async def test_an_offset_has_hours_and_minutes(seconds: int) -> None:
    """Whatever zone a moment is in, it goes out as the same moment, with an offset of whole minutes."""
    moment = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(seconds=seconds)))

    text = await sent(moment)

    assert moment == datetime.fromisoformat(text)
    assert text.endswith("Z") or len("2026-01-31T12:00:00.000+00:00") == len(text)


async def test_an_offset_of_whole_minutes_stays() -> None:
    """A seller finds the zone that was asked in."""
    zone = timezone(timedelta(hours=-3))

    assert "2026-01-31T12:00:00.000-03:00" == await sent(datetime(2026, 1, 31, 12, tzinfo=zone))
    assert "2026-01-31T12:00:00.000Z" == await sent(datetime(2026, 1, 31, 12, tzinfo=UTC))


async def test_a_moment_before_all_calendars_is_rejected() -> None:
    """In UTC it would be before the year 1."""
    with pytest.raises(RequestInvalid, match="out of range"):
        await sent(datetime.min.replace(tzinfo=timezone(timedelta(hours=1, seconds=30))))
