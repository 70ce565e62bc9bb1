"""Laws of queries and paths: what goes in is what the platform reads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import OPERATIONS, PaymentsClient, PaymentsError, Response
from paymentsdk.errors import RequestInvalid
from paymentsdk.testing import MemoryTransport

MERCHANT_ORDERS = OPERATIONS["merchant_orders.search"].query_encoder
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
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


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3))
def test_what_utf_8_cannot_hold(text: str) -> None:
    """A half of a character is rejected with the name of its filter."""
    with pytest.raises(RequestInvalid, match=r"\$query\.status"):
        MERCHANT_ORDERS.encode({"status": text})
