"""What comes out of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk.transports.base import header

R = TypeVar("R")


class Result(Struct, Generic[R], frozen=True, kw_only=True):
    """The value of a call, and how it was obtained.

    A result cannot be pickled, as its body and headers may repeat credentials; its `value` can, unless it holds some.
    """

    value: R
    """The decoded response."""
    status: int
    """The HTTP status code, 200 to 299."""
    headers: Mapping[str, str]
    """The header fields of the response."""
    attempts: int
    """How many requests the call took."""
    elapsed: float
    """Seconds from the call to the response."""
    anomalies: tuple[Anomaly, ...]
    """What in the response did not follow the contract; empty nearly always."""
    raw: bytes
    """The body as it came."""
    idempotency_key: str | None = None
    """The key that the write was sent with; `None` for an operation without one."""

    @property
    def request_id(self) -> str | None:
        """The platform's ``X-Request-Id``; the platform's support will ask for it."""
        return header(self.headers, "X-Request-Id")

    def __repr__(self) -> str:
        return f"Result({self.value!r}, status={self.status}, attempts={self.attempts}, anomalies={self.anomalies!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in ("value", "status", "attempts", "anomalies")]

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Result may hold credentials and cannot be pickled: pickle its value")
