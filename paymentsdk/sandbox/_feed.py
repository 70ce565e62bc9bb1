"""The events for a dashboard: changed documents and the last requests, without credentials."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Literal, TypeAlias
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._contract.operation import Operation
from paymentsdk._secrets import MASK, MaskedRepr
from paymentsdk.resources.common import Moment
from paymentsdk.sandbox._records import Tenant
from paymentsdk.sandbox._wire import read_json, structs_in, write_json

#: The number of requests that are kept, and the number of events that a watcher may lag before it must reload.
KEPT_REQUESTS = 200
MOST_BEHIND = 1_000
#: Most characters that are kept of a request's body, which can be copied and sent again, and of a response's body.
LONGEST_BODY, LONGEST_RESPONSE = 16_384, 4_096


class RequestLine(Struct, frozen=True, kw_only=True):
    """A request and its response."""

    at: Moment
    """The moment of the request, by the clock of the sandbox."""
    operation: str | None
    """The name of the operation; `None` for a path without one."""
    method: str
    """The HTTP method."""
    path: str
    """The path with its query."""
    status: int | None
    """The status code of the response; `None` if no response was sent."""
    tenant: int | None
    """The seller."""
    request_id: str
    """The `X-Request-Id` of the response."""
    key: str | None = None
    """The idempotency key."""
    content_type: str = ""
    """The Content-Type of the request without parameters; empty if it is missing."""
    body: str = ""
    """The body, with masked credentials. After 16,384 characters, it ends with an ellipsis."""
    response: str = ""
    """The body of the response, also masked. After 4,096 characters, it ends with an ellipsis."""
    replayed: bool = False
    """Whether the response was replayed for an idempotency key."""
    faults: tuple[str, ...] = ()
    """The effects of the faults that hit the request."""
    milliseconds: float = 0.0
    """The duration in milliseconds."""


class Changed(Struct, frozen=True):
    """A change of settings; ``everything`` after a restore, or if a watcher has missed events."""

    what: Literal["policies", "faults", "everything"]


class Event(Struct, frozen=True, kw_only=True):
    """An event to show. ``kind`` is the table of the document, ``requests``, ``clock`` or ``changed``."""

    kind: str
    tenant: int | None
    document: Struct


#: The events that a watcher has not read yet; `None` is the last.
Queue: TypeAlias = "asyncio.Queue[Event | None]"


class Feed:
    """Sends events to all watchers; usable from any thread."""

    def __init__(self) -> None:
        self._lines: deque[Callable[[], RequestLine]] = deque(maxlen=KEPT_REQUESTS)
        self._watchers: dict[Queue, asyncio.AbstractEventLoop] = {}

    @property
    def requests(self) -> list[RequestLine]:
        """The last requests, oldest first."""
        return [_shortened(line()) for line in list(self._lines)]

    def log(self, line: Callable[[], RequestLine], size: int = 0) -> None:
        """Store *line*, and send it to all watchers.

        Args:
            line: Returns the request with its whole bodies. It is called only when somebody looks, since masking takes
                time.
            size: The bytes in the body of the request. A large body is shortened now.
        """
        if size > LONGEST_BODY or self._watchers:
            request = _shortened(line())
            self.publish(Event(kind="requests", tenant=request.tenant, document=request))
            line = partial(_shortened, request)
        self._lines.append(line)

    def publish(self, event: Event | None) -> None:
        """Send *event* to all watchers; `None` ends their queues."""
        # `list` makes a copy in one step, since watchers may come or go in other threads.
        for queue, loop in list(self._watchers.items()):
            loop.call_soon_threadsafe(_put, queue, event)

    @contextmanager
    def watch(self) -> Iterator[Queue]:
        """Yield a queue of all events from now on."""
        queue: Queue = asyncio.Queue(MOST_BEHIND)
        self._watchers[queue] = asyncio.get_running_loop()
        try:
            yield queue
        finally:
            del self._watchers[queue]


def _shortened(line: RequestLine) -> RequestLine:
    body, response = _beginning(line.body, LONGEST_BODY), _beginning(line.response, LONGEST_RESPONSE)
    return replace(line, body=body, response=response)


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _put(queue: Queue, event: Event | None) -> None:
    if queue.full():
        # Ten years of invoices become due in one step. A watcher that has missed events must reload everything.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event(kind="changed", tenant=None, document=Changed("everything")))
    queue.put_nowait(event)


#: The package of the contract's types.
_CONTRACT = "paymentsdk.resources."
#: Names that are credentials only in a request for a token. Elsewhere, ``code`` is the code of a rejection.
_OF_GRANT = frozenset({"code"})

#: The name of a parameter, even after a second question mark or without the first.
_NAME = re.compile(r"(?<![^?;])([^?;=/]++)=")


def redact_body(body: bytes, secrets: frozenset[str], *, grant: bool) -> str:
    """Return *body* as text with masked credentials; unchanged if it cannot contain any.

    A body that may contain credentials and is not JSON is masked completely.

    Args:
        body: The body, JSON or not.
        secrets: The names of credentials in lower case; see `secrets_of`.
        grant: Whether the request asks for a token.
    """
    if not body:
        return ""
    if not grant:
        secrets -= _OF_GRANT
    text = body.decode(errors="replace")
    # In an encoding with two or more bytes per letter, which shows at the beginning, no name would be found.
    if not (grant or "\0" in text[:8] or _names(text, secrets)):
        return text
    with suppress(ValueError, ArithmeticError, RecursionError):
        if isinstance(value := read_json(body), dict | list):
            return write_json(_without(secrets, value)).decode()
    return text and MASK


def redact_query(path: str, secrets: frozenset[str]) -> str:
    """Return *path* with a mask for the value of each query parameter whose name is in *secrets*."""
    return "&".join(_masked(part, secrets) for part in path.split("&")) if "=" in path else path


def _masked(part: str, secrets: frozenset[str]) -> str:
    """Return *part* with a mask from its first name in *secrets* to its end."""
    for match in _NAME.finditer(part):
        if match.end() < len(part) and _names(match[1], secrets):
            return f"{part[: match.end()]}{MASK}"
    return part


def _names(text: str, secrets: frozenset[str]) -> bool:
    """Return whether *text* contains a name in *secrets*, or may contain one in an escape.

    Escapes of forms are decoded first. Any escape of JSON counts.
    """
    lower = unquote(text).lower()
    return "\\u00" in lower or any(name in lower for name in secrets)


def secrets_of(operations: Iterable[Operation[object, object]]) -> frozenset[str]:
    """Return the names, in lower case, of all fields of *operations* and of a seller that are declared secret."""
    kinds = {kind for operation in operations for kind in (operation.body, operation.result) if kind is not None}
    # The contract's types are not walked, which would take longer than the rest of a start.
    masked = [kind for kind in MaskedRepr.__subclasses__() if kind.__module__.startswith(_CONTRACT)]
    walked: list[type] = [kind for kind in kinds if not kind.__module__.startswith(_CONTRACT)]
    names = [*map(_declared_by, (Tenant, *masked)), *(_declared_in(kind) for kind in walked)]
    return frozenset[str]().union(*names)


@cache
def _declared_in(kind: type) -> frozenset[str]:
    """Return the names of the credentials in values of *kind*, in lower case."""
    return frozenset[str]().union(*(_declared_by(struct.cls) for struct in structs_in([kind])))


def _declared_by(struct: object) -> frozenset[str]:
    secrets: frozenset[str] = getattr(struct, "__secrets__", frozenset())
    names: tuple[str, ...] = getattr(struct, "__struct_fields__", ())
    sent: tuple[str, ...] = getattr(struct, "__struct_encode_fields__", ())
    return frozenset(text.lower() for name, text in zip(names, sent, strict=True) if name in secrets)


def _without(secrets: Container[str], value: object) -> object:
    """Return the JSON *value* with a mask for every member whose name is in *secrets*."""
    if isinstance(value, dict):
        return {name: MASK if name.lower() in secrets else _without(secrets, member) for name, member in value.items()}
    return [_without(secrets, member) for member in value] if isinstance(value, list) else value
