"""Moments in the header fields of responses: one reader for the age of records, for walks, and for `Retry-After`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from paymentsdk._headers import http_date

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Sat, 31 Jan 2026 12:00:00 GMT", NOON),
        ("Sat, 31 Jan 2026 09:00:00 -0300", NOON),
        ("Sat, 31 Jan 2026 12:00:00", NOON),
        ("Saturday, 31-Jan-26 12:00:00 GMT", NOON),
        ("Sat, 31 Jan 2026 12:00:00 +99999999999999", None),
        ("yesterday", None),
        (None, None),
    ],
)
def test_a_date_is_a_moment_or_none(text: str | None, moment: datetime | None) -> None:
    """Whatever zone it has; without one it is in UTC, as all dates of HTTP are."""
    assert moment == http_date(text)
