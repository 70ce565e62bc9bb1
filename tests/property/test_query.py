"""Laws of queries and paths: what goes in is what the platform reads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import OPERATIONS, PaymentsClient, PaymentsError, Response
from paymentsdk.errors import RequestInvalid
from paymentsdk.testing import MemoryTransport

MERCHANT_ORDERS = OPERATIONS["merchant_orders.search"].query_encoder
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)) | st.datetimes(  # noqa: DTZ001
    datetime(1970, 1, 2),  # noqa: DTZ001
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["status", "preference_id", "external_reference", "site_id", "marketplace"], TEXTS),
        **dict.fromkeys(["application_id", "payer_id", "items"], st.integers() | TEXTS),
        "limit": st.integers(1, 2**60),
        "offset": st.integers(0, 2**60),
    },
)


@given(FILTERS)
def test_a_query_is_read_as_it_was_meant(filters: dict[str, object]) -> None:
    """Whatever is in a filter, it comes out of the URL as it went in, in its order, and breaks nothing around it."""
    url = f"http://x/search?{MERCHANT_ORDERS.encode(filters)}"

    read = urlsplit(url)
    assert ("x", "/search", "") == (read.netloc, read.path, read.fragment)
    assert [(name, str(value)) for name, value in filters.items()] == parse_qsl(
        read.query, keep_blank_values=True, strict_parsing=bool(filters)
    )
    assert url.isascii()


@given(MOMENTS)
def test_a_moment_keeps_its_instant(moment: datetime) -> None:
    """A moment goes out with an offset and milliseconds: the same instant, to the millisecond."""
    [(_, text)] = parse_qsl(MERCHANT_ORDERS.encode({"date_created_from": moment}))

    read = datetime.fromisoformat(text)
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)
    assert moment.utcoffset() == read.utcoffset()
    assert "." in text


async def sent_to(order_id: str) -> list[str]:
    """Return the addresses that a refund of *order_id* is sent to."""
    transport = MemoryTransport(lambda request: Response(404, {}, b""))
    async with PaymentsClient("TEST-1", base_url="http://127.0.0.1", transport=transport) as client:
        with suppress(PaymentsError):
            await client.call(OPERATIONS["orders.refund"], order_id=order_id)
    return [request.url for request in transport.requests]


@given(st.text(max_size=12))
def test_a_path_has_the_places_that_it_was_given(value: str) -> None:
    """An id either stands in its place of the path, unchanged by any reader, or is rejected."""
    for url in asyncio.run(sent_to(value)):
        assert ["", "v1", "orders", value, "refund"] == urlsplit(url).path.split("/")
        assert value not in ("", ".", "..")


def test_a_plain_id_is_sent() -> None:
    """Negative control: the law above is about requests that are made."""
    assert ["http://127.0.0.1/v1/orders/ORD1/refund"] == asyncio.run(sent_to("ORD1"))


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3))
def test_what_utf_8_cannot_hold(text: str) -> None:
    """A half of a character is rejected with the name of its filter."""
    with pytest.raises(RequestInvalid, match=r"\$query\.status"):
        MERCHANT_ORDERS.encode({"status": text})
