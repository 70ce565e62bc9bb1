"""What a dashboard watches: documents as they change, and the last requests, without credentials."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, partial
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._contract.operation import Operation
from paymentsdk._secrets import MASK, MaskedRepr
from paymentsdk.sandbox._records import Tenant
from paymentsdk.sandbox._wire import read_json, structs_in, write_json

#: Requests that are kept, and events that a watcher may be behind before it has to look at everything anew.
KEPT_REQUESTS = 200
MOST_BEHIND = 1_000
#: Characters that are kept of the body of a request, which can be copied to be sent again, and of that of a response.
LONGEST_BODY, LONGEST_RESPONSE = 16_384, 4_096


class RequestLine(Struct, frozen=True, kw_only=True):
    """A request, and the response to it."""

    at: datetime
    """When, by the clock of the sandbox."""
    operation: str | None
    """Its name; `None` for a path that no operation has."""
    method: str
    """The HTTP method."""
    path: str
    """The path with its query."""
    status: int | None
    """The status code of the response; `None` when none was sent."""
    tenant: int | None
    """The seller."""
    request_id: str
    """The `X-Request-Id` of the response."""
    key: str | None = None
    """The idempotency key."""
    content_type: str = ""
    """What the request says that its body is, without parameters; empty if it does not say."""
    body: str = ""
    """The body, credentials masked; of one above 16,384 characters the beginning, and an ellipsis."""
    response: str = ""
    """The body of the response, in the same way, up to 4,096 characters."""
    replayed: bool = False
    """Whether the response was saved before, with its idempotency key."""
    faults: tuple[str, ...] = ()
    """The effects that hit it."""
    milliseconds: float = 0.0
    """How long it took."""


class Changed(Struct, frozen=True):
    """What has changed; ``everything`` after a restore, or when a watcher has missed events."""

    what: Literal["policies", "faults", "everything"]


class Event(Struct, frozen=True, kw_only=True):
    """Something to show: ``kind`` is the table of the document, ``requests``, ``clock`` or ``changed``."""

    kind: str
    tenant: int | None
    document: Struct


#: The events that a watcher has not seen yet; `None` is the last.
Queue: TypeAlias = "asyncio.Queue[Event | None]"


class Feed:
    """Hands events to every watcher; it may be used from any thread."""

    def __init__(self) -> None:
        self._lines: deque[Callable[[], RequestLine]] = deque(maxlen=KEPT_REQUESTS)
        self._watchers: dict[Queue, asyncio.AbstractEventLoop] = {}

    @property
    def requests(self) -> list[RequestLine]:
        """The last requests, oldest first."""
        return [_shortened(line()) for line in list(self._lines)]

    def log(self, line: RequestLine, with_bodies: Callable[[], RequestLine] | None = None, size: int = 0) -> None:
        """Keep *line*, and hand it to every watcher.

        Args:
            line: The request, without its bodies.
            with_bodies: Returns it with its bodies, whole. Called when somebody looks: masking takes time.
            size: How many bytes the body of the request has: a large one is not kept.
        """
        if with_bodies and (size > LONGEST_BODY or self._watchers):
            line, with_bodies = _shortened(with_bodies()), None
        self._lines.append(with_bodies or partial(_shortened, line))
        self.publish(Event(kind="requests", tenant=line.tenant, document=line))

    def publish(self, event: Event | None) -> None:
        """Hand *event* to every watcher; `None` says that there will be no more."""
        # A copy, which is made at once: a watcher may come or go meanwhile.
        for queue, loop in list(self._watchers.items()):
            loop.call_soon_threadsafe(_put, queue, event)

    @contextmanager
    def watch(self) -> Iterator[Queue]:
        """Give a queue of every event from now on."""
        queue: Queue = asyncio.Queue(MOST_BEHIND)
        self._watchers[queue] = asyncio.get_running_loop()
        try:
            yield queue
        finally:
            del self._watchers[queue]


def _shortened(line: RequestLine) -> RequestLine:
    if len(line.body) <= LONGEST_BODY and len(line.response) <= LONGEST_RESPONSE:
        return line
    body, response = _beginning(line.body, LONGEST_BODY), _beginning(line.response, LONGEST_RESPONSE)
    return replace(line, body=body, response=response)


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _put(queue: Queue, event: Event | None) -> None:
    if queue.full():
        # Ten years of invoices come at once. Whoever has missed one of them has to look at everything anew.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event(kind="changed", tenant=None, document=Changed("everything")))
    queue.put_nowait(event)


#: Where the types of the contract are.
_CONTRACT = "paymentsdk.resources."
#: A credential only in a request for a token: elsewhere a ``code`` is that of a rejection.
_OF_GRANT = frozenset({"code"})

#: The name of a parameter: also behind a second question mark, or where a program has forgotten the first.
_NAME = re.compile(r"(?<![^?;])([^?;=/]++)=")


def redact_body(body: bytes, secrets: frozenset[str], *, grant: bool) -> str:
    """Return *body* as text with a mask for every credential; just as it came, unless it may hold one.

    If it may, and is no JSON, all of it is masked: where its credentials begin and end, nobody knows.

    Args:
        body: What was sent, JSON or not.
        secrets: The names of credentials, in lower case; see `secrets_of`.
        grant: Whether it asks for a token.
    """
    if not body:
        return ""
    if not grant:
        secrets -= _OF_GRANT
    text = body.decode(errors="replace")
    # In text of two bytes or more for each letter, as its beginning tells, no name is found.
    if not (grant or "\0" in text[:8] or _names(text, secrets)):
        return text
    with suppress(ValueError, ArithmeticError, RecursionError):
        if isinstance(value := read_json(body), dict | list):
            return write_json(_without(secrets, value)).decode()
    return text and MASK


def redact_query(path: str, secrets: frozenset[str]) -> str:
    """Return *path* with a mask for the value of each parameter behind it that is one of *secrets*."""
    return "&".join(_masked(part, secrets) for part in path.split("&")) if "=" in path else path


def _masked(part: str, secrets: frozenset[str]) -> str:
    """Mask what follows the first name of *part* that is one of *secrets*, to its end."""
    for match in _NAME.finditer(part):
        if match.end() < len(part) and _names(match[1], secrets):
            return f"{part[: match.end()]}{MASK}"
    return part


def _names(text: str, secrets: frozenset[str]) -> bool:
    """Whether *text* has one of *secrets*, as a word or in one, or may: a letter of it can be an escape.

    That of a form is read, and of JSON may be any.
    """
    lower = unquote(text).lower()
    return "\\u00" in lower or any(name in lower for name in secrets)


def secrets_of(operations: Iterable[Operation[object, object]]) -> frozenset[str]:
    """Return the names of all that one of *operations*, or a seller, declares a credential, in lower case."""
    kinds = {kind for operation in operations for kind in (operation.body, operation.result) if kind is not None}
    # To walk through the types of the contract takes longer than the rest of a start.
    masked = [kind for kind in MaskedRepr.__subclasses__() if kind.__module__.startswith(_CONTRACT)]
    walked: list[type] = [kind for kind in kinds if not kind.__module__.startswith(_CONTRACT)]
    names = [*map(_declared_by, (Tenant, *masked)), *(_declared_in(kind) for kind in walked)]
    return frozenset[str]().union(*names)


@cache
def _declared_in(kind: type) -> frozenset[str]:
    """Return the names of the credentials that a value of *kind* may hold, in lower case."""
    return frozenset[str]().union(*(_declared_by(struct.cls) for struct in structs_in([kind])))


def _declared_by(struct: object) -> frozenset[str]:
    secrets: frozenset[str] = getattr(struct, "__secrets__", frozenset())
    names: tuple[str, ...] = getattr(struct, "__struct_fields__", ())
    sent: tuple[str, ...] = getattr(struct, "__struct_encode_fields__", ())
    return frozenset(text.lower() for name, text in zip(names, sent, strict=True) if name in secrets)


def _without(secrets: Container[str], value: object) -> object:
    """Return *value*, read from JSON, with a mask in the place of every member of *secrets*, whatever that holds."""
    match value:
        case dict():
            members = cast("dict[str, object]", value)
            return {
                name: MASK if name.lower() in secrets else _without(secrets, member) for name, member in members.items()
            }
        case list():
            return [_without(secrets, member) for member in cast("list[object]", value)]
        case _:
            return value
