"""What a response is checked for before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.type_walk import can_hold_secrets
from paymentsdk._headers import Headers
from paymentsdk._operation.identity import Comparison
from paymentsdk._operation.operation import Operation, PageShape
from paymentsdk._secrets import scrub
from paymentsdk.transports.base import Response, header

if TYPE_CHECKING:
    from paymentsdk._engine.credential import Credential

B = TypeVar("B")
R = TypeVar("R")

_MATCH = Comparison()
#: What headers have that is no text stays as a transport has it.
_ODD = "surrogateescape"


def mask_request_id(response: Response, credential: Credential, body: object) -> Response:
    """Return *response* with no credential in its request id, which goes to logs, errors and metrics."""
    echoed, token = header(response.headers, "X-Request-Id"), credential.token
    if echoed is None or (token is not None and token.lower() not in echoed.lower() and not can_hold_secrets(body)):
        return response  # Nearly always.
    masked = scrub(echoed.encode(errors=_ODD), credential.secrets(body)).decode(errors=_ODD)
    if masked == echoed:
        return response
    rest = {name: value for name, value in response.headers.items() if name.lower() != "x-request-id"}
    return structs.replace(response, headers=Headers({**rest, "X-Request-Id": masked}))


def check_response(
    operation: Operation[B, R],
    value: R,
    response: Response,
    anomalies: tuple[Anomaly, ...],
    *,
    body: B | None,
    path: Mapping[str, str],
    offset: object,
) -> Comparison:
    """Say whether *value* can be the response to the request with *body*, *path* and *offset*, and what tells it.

    Its anomalies are all that the response has: *anomalies*, and what was found here.
    """
    compared = _MATCH
    if operation.identity is not None:
        compared = operation.identity.compare(body, path, value)
        if compared.mismatch is None and operation.writes:
            compared = operation.identity.verify(compared, value, response.body, anomalies)
    elif operation.page is not None:
        compared = Comparison(mismatch=_page_mismatch(operation.page, offset, value, anomalies))
    why = compared.mismatch
    if operation.result is bytes and why is None:
        why = _unexpected_type(operation, response)
    if compared.anomalies:
        anomalies += compared.anomalies
    if response.status != operation.status and response.status not in operation.other_statuses:
        reason = f"the contract has {operation.status} for a success"
        anomalies += (Anomaly("$status", response.status, reason),)
    if why is compared.mismatch and anomalies is compared.anomalies:
        return compared  # Nearly always.
    return structs.replace(compared, mismatch=why, anomalies=anomalies)


def _unexpected_type(operation: Operation[B, R], response: Response) -> str | None:
    """Say why bytes that are taken as they come cannot be those that were asked for; `None` if they can.

    JSON shows by itself what it is: there, a type that is missing or wrong means nothing.
    """
    if operation.accept == "*/*":
        return None
    kind = (header(response.headers, "Content-Type") or "").partition(";")[0].strip().lower()
    if not kind or kind == operation.accept.partition(";")[0].strip().lower():
        return None
    return f"the response is {kind}, and not {operation.accept}"


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
