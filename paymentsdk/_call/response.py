"""Check a response before it is trusted, and make a `Result` of it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct

from paymentsdk._call.intent import Intent
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import LARGE
from paymentsdk._contract.identity import CERTAIN
from paymentsdk._contract.operation import Operation, PageShape
from paymentsdk._secrets import MaskedRepr
from paymentsdk.transports.base import Response, header

B = TypeVar("B")
R = TypeVar("R")


class Result(MaskedRepr, Struct, Generic[R], frozen=True, kw_only=True):
    """The value of a call, and how it was obtained.

    A result cannot be pickled, as its body and headers may repeat credentials. Its `value` can, unless it holds some.
    """

    value: R
    """The decoded response."""
    status: int
    """The HTTP status code, 200 to 299."""
    headers: Mapping[str, str]
    """The header fields of the response."""
    attempts: int
    """How many requests the call sent."""
    elapsed: float
    """Seconds from the call to the response."""
    anomalies: tuple[Anomaly, ...]
    """Where the response did not follow the contract; usually empty."""
    raw: bytes
    """The body, undecoded."""
    idempotency_key: str | None = None
    """The key that the write was sent with. `None` for an operation without one."""
    kept_at: datetime | None = None
    """When the journal kept this response of an earlier call with the same name (`once=`), by the journal's clock. The
    object may have changed since: read it again. `None` for a response that this call received."""

    @property
    def request_id(self) -> str | None:
        """The platform's ``X-Request-Id``; the platform's support will ask for it."""
        return header(self.headers, "X-Request-Id")

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in ("value", "status", "attempts", "anomalies")]


async def read_response(
    intent: Intent[B, R], response: Response, *, strict: bool
) -> tuple[R, tuple[Anomaly, ...], str | None]:
    """Return the value of *response*, its anomalies, and why it cannot be the response to *intent*, or `None`.

    With *strict*, an anomaly is such a reason, too.

    Raises:
        DecodingError: The response cannot be decoded.
    """
    operation, body = intent.operation, response.body
    decoder = operation.decoder
    anomalies: tuple[Anomaly, ...] = ()
    if (exact := decoder.exact(body)) is not None:  # The usual case.
        value = exact
    elif operation.writes or len(body) < LARGE:
        value, anomalies = decoder.repair(body)
    else:
        from concurrent.futures import ThreadPoolExecutor  # most programs never need it

        thread = ThreadPoolExecutor(1)  # All threads of the event loop's own executor may be busy.
        try:
            value, anomalies = await asyncio.get_running_loop().run_in_executor(thread, decoder.repair, body)
        finally:
            thread.shutdown(wait=False)
    mismatch = None
    if operation.identity is not None:
        comparison = operation.identity.compare(intent.body, intent.path, value)
        is_complete = comparison.agreed >= CERTAIN and not anomalies
        if comparison.mismatch is None and operation.writes and not is_complete:
            comparison = operation.identity.verify(comparison, value, body, anomalies)
        anomalies, mismatch = anomalies + comparison.anomalies, comparison.mismatch
    elif operation.page is not None:
        mismatch = _page_mismatch(operation.page, intent.offset, value, anomalies)
    if operation.result is bytes and mismatch is None:
        mismatch = _unexpected_type(operation, response)
    if response.status != operation.status and response.status not in operation.other_statuses:
        reason = f"the contract has {operation.status} for a success"
        anomalies += (Anomaly("$status", response.status, reason),)
    if strict and anomalies:
        mismatch = f"the response breaks the contract at {anomalies[0].path}: {anomalies[0].reason}"
    return value, anomalies, mismatch


def _unexpected_type(operation: Operation[B, R], response: Response) -> str | None:
    """Return why *response* has the wrong type for a result of bytes; `None` if its type is right.

    A missing or wrong type of JSON does not matter: JSON is recognized by its content.
    """
    if operation.accept == "*/*":
        return None
    kind = (header(response.headers, "Content-Type") or "").partition(";")[0].strip().lower()
    if not kind or kind == operation.accept.partition(";")[0].strip().lower():
        return None
    return f"the response is {kind}, and not {operation.accept}"


def _page_mismatch(page: PageShape, offset: object, value: object, anomalies: Sequence[Anomaly]) -> str | None:
    """Return why *value* cannot be the *page* at *offset*, or `None`."""
    expected_offset = offset if isinstance(offset, int) else 0
    fields = page.read(value)
    if fields.items is None:
        # An offset that does not grow means that there are no more rows.
        if fields.total is None and (fields.next_offset is None or fields.next_offset > expected_offset):
            return "the response is not a page: it has neither rows nor a total"
        # A walk would take a page without rows for the end.
        dropped = tuple(f"{anomaly.path}." for anomaly in anomalies if anomaly.dropped)
        if any(f"{place}.".startswith(dropped) for place in page.places(value)):
            return "the response is not a page: its rows cannot be read"
    return None if fields.offset in (None, expected_offset) else f"the response is the page at offset {fields.offset}"
