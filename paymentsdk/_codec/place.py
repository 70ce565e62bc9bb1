"""Places of what was rejected, put together from the inside out."""

from __future__ import annotations

from paymentsdk.errors import RequestInvalid


def below(place: str, error: RequestInvalid) -> RequestInvalid:
    """Return *error* with *place* in front of its own."""
    return RequestInvalid(place + error.path, error.reason, error.rule)
