"""What a dashboard watches: documents as they change, and the last requests, without credentials."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from paymentsdk._operation.operation import MIB, Operation
from paymentsdk._secrets import MASK
from paymentsdk.sandbox._records import Tenant
from paymentsdk.sandbox._wire import read_json, structs_in, write_json

#: Requests that are kept, and events that a watcher may be behind before it has to look at everything anew.
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
    """Hands events to every watcher; it may be used from any thread."""

    def __init__(self) -> None:
        self.requests: deque[RequestLine] = deque(maxlen=KEPT_REQUESTS)
        self._long_bodies: dict[str, str] = {}
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


def _beginning(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _put(queue: Queue, event: Event | None) -> None:
    if queue.full():
        # Ten years of invoices come at once. Whoever has missed one of them has to look at everything anew.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event(kind="changed", tenant=None, document=Changed("everything")))
    queue.put_nowait(event)


#: A credential only in a request for a token: elsewhere a ``code`` is that of a rejection.
_OF_GRANT = frozenset({"code"})
#: A credential only under this very name, or as a part of one (``payer[token]``). Other parameters are known by how
#: their names end, and one that ends like this may say of what kind a token is (``type_token``).
_WHOLE = frozenset({"token"})

#: A parameter. A match begins where a name can, and gives back nothing that it took (``++``): otherwise a body of one
#: long word would be read anew from each of its letters.
_PARAMETER = re.compile(r"(?<![^&?=\s\"])([^&?=\s\"]++)=(\"[^&\"]*+\"?|[^&\s\"]*+)")

#: What a form looks like. With quotes or braces it may as well be JSON behind a byte order mark, which begins no JSON.
_FORM = re.compile(r"""\s*+(?!\[)(?:[^\s=&{"'\0]++=[^\s&{"'\0]*+&?)++\s*+""")
#: How JSON begins that holds texts, where what looks like a parameter is none.
_OPENING = ("{", "[", '"')


def redact_body(body: bytes, secrets: frozenset[str], *, grant: bool) -> str:
    """Return *body* as text with a mask for every credential; just as it came, unless it may hold one.

    Args:
        body: What was sent, JSON or not.
        secrets: The names of credentials, in lower case; see `secrets_of`.
        grant: Whether it asks for a token.
    """
    if not grant:
        secrets -= _OF_GRANT
    text = body.decode(errors="replace")
    # In text of two bytes or more for each letter, as its beginning tells, no name is found.
    if grant or b"\0" in body[:8] or _telling(secrets).search(body):
        with suppress(ValueError, ArithmeticError, RecursionError):
            if isinstance(value := read_json(body), dict | list):
                return write_json(_without(secrets, value)).decode()
        if text and not _FORM.fullmatch(text):
            return MASK  # Where its secrets begin and end, nobody knows.
    elif text.lstrip().startswith(_OPENING):
        return text
    # The contract wants JSON; a client that sends a form, as OAuth has it elsewhere, sends its secrets all the same.
    return redact_parameters(text, secrets)


def redact_parameters(text: str, secrets: frozenset[str]) -> str:
    """Return *text*, such as an address, with a mask for the value of each parameter that is one of *secrets*."""
    return _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if _is_secret(secrets, found[1]) else found[0], text)


def _is_secret(secrets: frozenset[str], name: str) -> bool:
    """Whether a parameter of this *name*, such as `client_secret` or `payer[token]`, is or holds one of *secrets*."""
    return _naming(secrets).search(unquote(name)) is not None


@cache
def _naming(names: frozenset[str]) -> re.Pattern[str]:
    """Return what finds one of *names* in the name of a parameter, or in a part of it, in any case."""
    endings, whole = "|".join(names - _WHOLE), "|".join(_WHOLE)
    return re.compile(rf"(?:{endings}|(?<![^\[\].])(?:{whole}))(?![^\[\].])", re.IGNORECASE)


def secrets_of(operations: Iterable[Operation[object, object]]) -> frozenset[str]:
    """Return the names of all that one of *operations*, or a seller, declares a credential, in lower case."""
    kinds = {kind for one in operations for kind in (one.body, one.result) if kind is not None}
    return frozenset[str]().union(*map(_declared_in, {Tenant, *kinds}))


@cache
def _declared_in(kind: type) -> frozenset[str]:
    """Return the names of the credentials that a value of *kind* may hold, in lower case."""
    return frozenset(
        field.encode_name.lower()
        for struct in structs_in([kind])
        for field in struct.fields
        if field.name in getattr(struct.cls, "__secrets__", ())
    )


@cache
def _telling(names: frozenset[str]) -> re.Pattern[bytes]:
    """Return what finds one of *names* in quotes, in any case, or a letter as an escape, which may be a part of one.

    Single quotes count as well: a program that forgot to make JSON of a dict sends them.
    """
    return re.compile(rf"""["'](?:{"|".join(names)})["']|\\u00[4567]""".encode(), re.IGNORECASE)


def _without(secrets: Container[str], value: object) -> object:
    """Return *value*, read from JSON, with a mask in the place of every member of *secrets*, whatever that holds."""
    match value:
        case dict():
            members = cast("dict[str, object]", value)
            return {
                name: MASK if name.lower() in secrets else _without(secrets, inner) for name, inner in members.items()
            }
        case list():
            return [_without(secrets, inner) for inner in cast("list[object]", value)]
        case _:
            return value
