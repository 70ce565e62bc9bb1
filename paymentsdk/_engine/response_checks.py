"""What a response is checked for before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.type_walk import can_hold_secrets
from paymentsdk._operation.identity import Comparison
from paymentsdk._operation.operation import Operation, PageShape
from paymentsdk._secrets import scrub, secrets_in
from paymentsdk.transports.base import Headers, Response, header

B = TypeVar("B")
R = TypeVar("R")

_MATCH = Comparison()


def credentials(token: str | None, signature: Sequence[str], body: object) -> list[str]:
    """Return the credentials that a request was sent with."""
    found = [*signature] if token is None else [token]
    return [*found, *secrets_in(body)] if can_hold_secrets(body) else found


def mask_request_id(response: Response, token: str | None, signature: Sequence[str], body: object) -> Response:
    """Return *response* with no credential in its request id, which goes to logs, errors and metrics."""
    echoed = header(response.headers, "X-Request-Id")
    if echoed is None or (token is not None and token not in echoed and not can_hold_secrets(body)):
        return response  # Nearly always.
    held = credentials(token, signature, body)
    for secret in held:
        if secret in echoed:
            break
    else:
        return response
    masked = scrub(echoed.encode(), held).decode()
    rest = {name: value for name, value in response.headers.items() if name.lower() != "x-request-id"}
    return structs.replace(response, headers=Headers({**rest, "X-Request-Id": masked}))


def unexpected_type(operation: Operation[B, R], response: Response) -> str | None:
    """Say why bytes that are taken as they come cannot be those that were asked for; `None` if they can.

    JSON shows by itself what it is: there, a type that is missing or wrong means nothing.
    """
    if operation.result is not bytes or operation.accept == "*/*":
        return None
    kind = (header(response.headers, "Content-Type") or "").partition(";")[0].strip().lower()
    if not kind or kind == operation.accept.partition(";")[0].strip().lower():
        return None
    return f"the response is {kind}, and not {operation.accept}"


def compare(
    operation: Operation[B, R],
    body: B | None,
    path: Mapping[str, str],
    offset: object,
    *,
    value: R,
    raw: bytes,
    anomalies: tuple[Anomaly, ...],
) -> Comparison:
    """Say whether *value* can be the response to the request with *body*, *path* and *offset*, and what tells it."""
    identity = operation.identity
    if identity is None:
        if operation.page is None:
            return _MATCH
        return Comparison(mismatch=_page_mismatch(operation.page, offset, value, anomalies))
    compared = identity.compare(body, path, value)
    if compared.mismatch is not None or not operation.writes:
        return compared
    return identity.verify(compared, value, raw, anomalies)


def _page_mismatch(page: PageShape, offset: object, value: object, anomalies: Sequence[Anomaly]) -> str | None:
    """Say why *value* cannot be the *page* at *offset*, or `None`."""
    asked = offset if isinstance(offset, int) else 0
    shown = page.read(value)
    if shown.items is None:
        # An offset that does not grow says that there are no more rows.
        if shown.total is None and (shown.next_offset is None or shown.next_offset > asked):
            return "the response is not a page: it has neither rows nor a total"
        # To a walk, a page without rows would be the end.
        if _is_dropped(anomalies, page.places(value)):
            return "the response is not a page: its rows cannot be read"
    return None if shown.offset in (None, asked) else f"the response is the page at offset {shown.offset}"


def _is_dropped(anomalies: Sequence[Anomaly], places: tuple[str, ...]) -> bool:
    """Whether what stood at one of *places*, or around it, could not be read."""
    dropped = tuple(f"{anomaly.path}." for anomaly in anomalies if anomaly.dropped)
    return any(f"{place}.".startswith(dropped) for place in places)
