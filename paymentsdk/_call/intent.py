"""The intent of a call: one request, checked and fixed. Everything that raises `RequestInvalid` happens here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from paymentsdk._call.settings import check_key
from paymentsdk._codec.encode import PathValue, fill_path
from paymentsdk._contract.operation import Operation
from paymentsdk._headers import Headers, check_headers, masked_values, merge
from paymentsdk._secrets import HiddenRepr
from paymentsdk._validate import plain_moment
from paymentsdk.errors import RequestInvalid
from paymentsdk.transports.base import Request

if TYPE_CHECKING:
    from uuid import UUID

    from paymentsdk._call.settings import Settings
    from paymentsdk._clock import Clock

B = TypeVar("B")
R = TypeVar("R")


class Intent(HiddenRepr, Struct, Generic[B, R], frozen=True, eq=False, gc=False):
    """One request that a caller wants to take effect once, in any number of attempts."""

    operation: Operation[B, R]
    target: str
    """The path with the query, as appended to the base URL."""
    path: Mapping[str, object]
    """The values of the placeholders in the path."""
    offset: object
    """The offset of the requested page. `None` if no page is requested."""
    body: B | None
    content: bytes
    """The encoded body."""
    headers: Mapping[str, str] | None
    """The header fields of only this request."""
    key: str | None
    """The idempotency key of all attempts."""
    has_own_key: bool = False
    """Whether the key is the caller's own. Then an earlier call may have sent it."""
    first_sent_at: float | None = None
    """When an earlier call sent the key, in seconds since the epoch. `None` if the caller does not say."""

    def request(
        self,
        settings: Settings,
        token: str | None,
        added: Mapping[str, str] | None,
        timeout: float,
        connect_timeout: float,
        *,
        fresh: bool,
        attempt: int,
    ) -> Request:
        """Return the request of one attempt. *added* are the header fields that observers add."""
        operation = self.operation
        headers = common_headers(operation, settings, token)
        if self.content:
            headers["Content-Type"] = operation.content_type
        if self.key is not None:
            headers[operation.key_header] = self.key
        if self.headers is not None:
            merge(headers, self.headers)
        if added:
            merge(headers, added)
        return Request(  # By position: msgspec needs as long to look up names as a call needs for all its checks.
            operation.method,
            settings.base_url + self.target,
            headers,
            self.content,
            timeout,
            connect_timeout,
            operation.wants_fresh_connection or fresh,
            operation.max_response,
            operation.name,
            attempt,
            settings.account,
        )


def make_intent(  # noqa: PLR0917 - the names are free for placeholders
    operation: Operation[B, R],
    body: B | None,
    settings: Settings,
    clock: Clock,
    target: str | None = None,
    derives_key: bool = False,  # noqa: FBT001, FBT002 - as all before the slash: a placeholder may have the name
    /,
    *,
    query: Mapping[str, object] | None = None,
    idempotency_key: str | UUID | None = None,
    first_sent_at: datetime | None = None,
    headers: Mapping[str, str] | None = None,
    **path: PathValue,
) -> Intent[B, R]:
    """Check what the caller passes, and return the request that all attempts send.

    Args:
        operation: The operation to carry out.
        body: The request body, which is encoded here.
        settings: The settings of the client, which may have a key.
        clock: Makes the random key.
        target: The path with the query of a kept request, which was checked before it was kept.
        derives_key: Whether a journal will derive the key. Then no random key is made.
        query: The filters of a search.
        idempotency_key: The caller's own key. Random by default.
        first_sent_at: When an earlier call sent the key.
        headers: Further header fields.
        **path: The values of the placeholders in the path.

    Raises:
        RequestInvalid: Something breaks a rule.
    """
    headers = masked_values(headers) if headers else headers
    if not isinstance(operation, Operation):
        raise RequestInvalid("operation", "expected an Operation, such as OPERATIONS['orders.get']")
    _ = operation.decoder  # Made at its first use: a result type that cannot be decoded must fail before a write.
    if target is None:
        target = operation.path
        if path or operation.path_names:
            target = fill_path(operation.path, operation.path_names, path)
        if (query or operation.query) and (filters := operation.query_encoder.encode(query or {})):
            target += f"?{filters}"
    if idempotency_key is not None and not operation.keyed:
        raise RequestInvalid("idempotency_key", f"{operation.name} takes no idempotency key")
    own_key = settings.idempotency_key if idempotency_key is None and operation.keyed else idempotency_key
    has_own_key = own_key is not None
    sent_before = None
    if first_sent_at is not None:
        if not has_own_key:
            raise RequestInvalid("first_sent_at", "needs the idempotency_key that was sent then")
        sent_before = _timestamp(first_sent_at, clock)
    final_key = None
    if own_key is not None:
        final_key = check_key(own_key)
    elif operation.keyed and not derives_key:
        final_key = clock.key()
    return Intent(
        operation,
        target,
        path,
        query.get("offset") if query else None,
        body,
        encode(operation, body),
        check_headers(headers, reserved=operation.reserved_headers) if headers else None,
        final_key,
        has_own_key,
        sent_before,
    )


def common_headers(operation: Operation[B, R], settings: Settings, token: str | None) -> Headers:
    """Return the header fields that all requests of *operation* have."""
    headers = Headers(settings.headers)
    if operation.own_headers:
        merge(headers, operation.own_headers)
    if token is not None:
        headers["Authorization"] = "Bearer " + token
    return headers


def encode(operation: Operation[B, R], body: B | None) -> bytes:
    """Return the bytes of the *body* of a request.

    Raises:
        RequestInvalid: The body breaks a rule or is missing, or the operation takes no body.
    """
    encoder = operation.encoder
    if body is None:
        if encoder is not None and operation.body_required:
            raise RequestInvalid("$", f"{operation.name} needs a body")
        return b""
    if encoder is None:
        raise RequestInvalid("$", f"{operation.name} takes no body")
    return encoder.encode(body)


def _timestamp(first_sent_at: datetime, clock: Clock) -> float:
    """Return *first_sent_at* in seconds since the epoch. Up to an hour ahead is fine: the clocks of machines differ."""
    moment = plain_moment(first_sent_at)
    if moment is None or moment.utcoffset() is None:
        raise RequestInvalid("first_sent_at", "must be a datetime with its offset, such as datetime.now(UTC)")
    timestamp = max(0.0, moment.timestamp())  # A time before 1970 is a placeholder.
    if timestamp > clock.now() + 3600:
        raise RequestInvalid("first_sent_at", "must not lie in the future")
    return timestamp
