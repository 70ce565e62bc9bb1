"""What a dashboard watches: documents as they change, and the last requests, without credentials."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._operation.operation import MIB

#: Requests that are kept, and events that a watcher may be behind before it is told to look at everything anew.
KEPT_REQUESTS = 200
MOST_BEHIND = 1_000
#: Characters of a body that are shown; and of all bodies longer than that, how many are kept to be sent again.
LONGEST_SHOWN = 4_096
MOST_KEPT = 8 * MIB


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
    """The body, credentials masked; of one above 4,096 characters the beginning, and an ellipsis."""
    answer: str = ""
    """The body of the response, in the same way."""
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
    """Hands events to every watcher; it may be told from any thread."""

    def __init__(self) -> None:
        self.requests: deque[RequestLine] = deque(maxlen=KEPT_REQUESTS)
        self._long_bodies: dict[str, str] = {}
        self._lock = threading.Lock()
        self._watchers: dict[Queue, asyncio.AbstractEventLoop] = {}

    def log(self, line: RequestLine) -> None:
        """Keep *line*, and hand it to every watcher; *line* has its bodies whole."""
        shown = replace(line, body=_beginning(line.body), answer=_beginning(line.answer))
        if len(self.requests) == KEPT_REQUESTS:
            self._long_bodies.pop(self.requests[0].request_id, None)
        self.requests.append(shown)
        if len(line.body) > LONGEST_SHOWN:
            self._long_bodies[line.request_id] = line.body
        while sum(map(len, self._long_bodies.values())) > MOST_KEPT:
            del self._long_bodies[next(iter(self._long_bodies))]
        self.publish(Event(kind="requests", tenant=line.tenant, document=shown))

    def body_of(self, line: RequestLine) -> str | None:
        """Return the whole body of a line that is kept; `None` if newer long ones have taken its room."""
        return line.body if len(line.body) <= LONGEST_SHOWN else self._long_bodies.get(line.request_id)

    def publish(self, event: Event | None) -> None:
        """Hand *event* to every watcher; `None` says that there will be no more."""
        if not self._watchers:
            return
        with self._lock:
            watchers = list(self._watchers.items())
        for queue, loop in watchers:
            loop.call_soon_threadsafe(_put, queue, event)

    @contextmanager
    def watch(self) -> Iterator[Queue]:
        """Give a queue of every event from now on."""
        queue: Queue = asyncio.Queue(MOST_BEHIND)
        with self._lock:
            self._watchers[queue] = asyncio.get_running_loop()
        try:
            yield queue
        finally:
            with self._lock:
                del self._watchers[queue]


def _beginning(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _put(queue: Queue, event: Event | None) -> None:
    if queue.full():
        # Ten years of invoices come at once. Whoever has missed one of them has to look at everything anew.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event(kind="changed", tenant=None, document=Changed("everything")))
    queue.put_nowait(event)
