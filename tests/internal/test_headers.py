"""Moments and pauses in the header fields of responses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from paymentsdk._contract.error_response import retry_after
from paymentsdk._headers import http_date

# --- Retry-After ------------------------------------------------------------------------------------------------------


DATE = "Fri, 31 Jan 2026 12:00:00 GMT"


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"Retry-After": "7"}, 7.0),
    ({"retry-after": " 0120 "}, 120.0),
    ({"Retry-After": "9" * 400}, 999_999_999.0),
    ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT", "Date": DATE}, 30.0),
    ({"Retry-After": "Fri, 31 Jan 2026 11:00:00 GMT", "Date": DATE}, 0.0),
    ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT"}, None),
    ({"Retry-After": "Fri, 31 Jan 2026 12:00:30 GMT", "Date": "yesterday"}, None),
    ({"Retry-After": "soon", "Date": DATE}, None),
    ({"Retry-After": "1.5", "Date": DATE}, None),
    ({"Retry-After": "1e9", "Date": DATE}, None),
    ({"Retry-After": "٣", "Date": DATE}, None),
    ({}, None),
])  # fmt: skip
def test_retry_after_is_digits_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """Digits, or an HTTP date relative to the response's own Date; anything else was not said."""
    assert seconds == retry_after(headers)


# --- dates ------------------------------------------------------------------------------------------------------------


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(("text", "moment"), [
    ("Sat, 31 Jan 2026 12:00:00 GMT", NOON),
    ("Sat, 31 Jan 2026 09:00:00 -0300", NOON),
    ("Sat, 31 Jan 2026 12:00:00", NOON),
    ("Saturday, 31-Jan-26 12:00:00 GMT", NOON),
    ("Sat, 31 Jan 2026 12:00:00 +99999999999999", None),
    ("yesterday", None),
    (None, None),
])  # fmt: skip
def test_a_date_is_a_moment_or_none(text: str | None, moment: datetime | None) -> None:
    """Whatever zone it has; without one it is in UTC, as all dates of HTTP are."""
    assert moment == http_date(text)
