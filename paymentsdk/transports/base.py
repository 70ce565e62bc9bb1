"""What crosses the seam between the engine and a transport.

A transport moves one request and brings back one response. It does not retry, follow, log or decide: the engine does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from paymentsdk._headers import Headers

__all__: list[str] = []  # Public at the top level, which is where to import them from.


class Request(Struct, frozen=True):
    """One attempt, ready to be sent."""

    method: str
    """The HTTP method, in capitals."""
    url: str
    """The absolute URL, already percent-encoded; a transport sends it as it is."""
    headers: Mapping[str, str] = {}
    """The header fields. They hold the bearer token, so `repr` leaves credentials out."""
    body: bytes = b""
    """The exact bytes of the body; empty for none."""
    timeout: float = 30.0
    """Seconds that this attempt may take, from the wait for a connection to the last byte of the response. The caller
    enforces it, by cancelling `send`."""
    connect_timeout: float | None = None
    """Seconds of these that the wait for a connection may take, be it for a place in the pool or for a new one. The
    transport enforces it, by the wall clock, too: timers stand still while a machine is suspended. `None` for no
    separate bound."""
    fresh: bool = False
    """Use a connection that no earlier request has used. Set where a resend is not safe, since the server can close
    a kept-alive connection at the very moment it is used."""
    max_response: int = 8 * 1024 * 1024
    """The most bytes that the body of the response may have."""
    operation: str | None = None
    """The name of the operation (`"orders.create"`); `None` for a request that the engine has not made. This and
    what follows are for wrappers: none of it is sent."""
    attempt: int = 1
    """Which attempt of its call this is, counted from 1."""
    account: str | None = None
    """The name of the account whose token it carries; `None` for none."""

    def __repr__(self) -> str:
        # Bodies hold payer tokens and client secrets; their size is all that a log needs.
        return f"Request({self.method} {self.url}, headers={Headers(self.headers)!r}, body=<{len(self.body)} bytes>)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("method", self.method), ("url", self.url), ("headers", Headers(self.headers))]

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Request holds credentials and cannot be pickled")


class Response(Struct, frozen=True):
    """One response, read whole."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str] = {}
    """The header fields, under any spelling of their names."""
    body: bytes = b""
    """The body's bytes after transfer decoding."""
    reused: bool | None = None
    """Whether its connection had carried a request before; `None` where the transport does not say."""

    def __repr__(self) -> str:
        # The body of a token response is a token.
        return f"Response({self.status}, body=<{len(self.body)} bytes>)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("status", self.status)]

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Response may hold credentials and cannot be pickled")


#: Classes of header fields that find a name in any case by themselves; our transports add theirs.
CASELESS: set[type] = set()


def header(headers: Mapping[str, str], name: str) -> str | None:
    """Return the field *name*, in whatever case it came; bytes that are not valid text are replaced by `?`."""
    try:
        value = headers.get(name)
        if value is None and type(headers) not in CASELESS:
            size, lower = len(name), name.lower()
            for field in headers:
                # Most differ in their length already: an observer has every response searched.
                if len(field) == size and field.lower() == lower:
                    value = headers[field]
                    break
    except (AttributeError, TypeError):
        # A transport of one's own has returned something else than a mapping of texts. Its response may still be an
        # order, which must not be lost for that.
        return None
    if value is None:
        return None
    text = str(value)  # Such a transport may return a number.
    # A byte that is no UTF-8 comes as half a character, which no log could write.
    return text if text.isascii() else text.encode(errors="replace").decode()


class SendFailed(Exception):  # noqa: N818 - a fixed public name
    """A transport could not bring back a response.

    Args:
        reason: What went wrong, in words that hold no credential.
        sent: ``False`` only when it is certain that no byte of the request left this machine.
        permanent: Another attempt would fail in the same way (a certificate that does not verify, a response over the
            size limit).
    """

    def __init__(self, reason: str, sent: bool = True, *, permanent: bool = False) -> None:  # noqa: FBT001, FBT002 - fixed
        super().__init__(reason, sent)
        self.reason = reason
        self.sent = sent
        self.permanent = permanent

    def __str__(self) -> str:
        return self.reason


class PoolFull(SendFailed):
    """All connections of the pool were in use for as long as the request may wait; nothing was sent."""


#: Marks a `CancelledError`: it came while the request waited for a place in the pool, so nothing was sent.
UNSENT = "_paymentsdk_unsent"


def too_long(most: int) -> SendFailed:
    """Return the failure of a request whose response has more than *most* bytes."""
    return SendFailed(f"the response has more than {most} bytes", permanent=True)


class Transport(Protocol):
    """Carries requests. Any object with these two methods will do."""

    async def send(self, request: Request) -> Response:
        """Send *request* once and return the response, whatever its status.

        Raises:
            SendFailed: With ``sent=False`` when nothing left the machine, with ``sent=True`` in every other case.
            ClientClosed: The transport is closed, or belongs to another event loop or process; nothing was sent.
                Cancellation passes through; nothing else is raised.
        """
        ...

    async def aclose(self) -> None:
        """Let go of every connection. Closing twice is allowed."""
        ...


#: A request that was written: its response, which fails with what `Transport.send` raises, and what gives its
#: connection back, once. Called before the response has come, that breaks the connection off.
Exchange: TypeAlias = tuple[Awaitable[Response], Callable[[], object]]


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport that can write a request at once, with a head that it has prepared.

    Both methods may decline with `None`: then the request goes through `send`. No `repr` and no pickle shows a head.
    Where a subclass overrides `send` alone, all its requests go through that.
    """

    def prepare(self, request: Request, key_header: str | None) -> object | None:
        """Return the head that all requests have in common, for `begin`.

        Args:
            request: Has the base URL, and the header fields with the token.
            key_header: The name of the header field of the idempotency key; `None` if none is sent.
        """
        ...

    def begin(
        self, head: object, target: str, key: str | None, body: bytes, loop: asyncio.AbstractEventLoop
    ) -> Exchange | None:
        """Write a request on a connection that is idle, for the caller to await on *loop*.

        Args:
            head: What `prepare` has returned.
            target: The path below the base URL, in ASCII, with nothing in it that has to be quoted.
            key: The value of the `key_header`, 1 to 64 visible ASCII characters.
            body: The bytes of the body.
            loop: The running event loop.
        """
        ...


@runtime_checkable
class DiscardingTransport(Transport, Protocol):
    """A transport that can be told to stop using a connection. `discard` is optional: clients work without it.

    The client looks for it once, when it is made. A wrapper around such a transport has to have the method as well,
    and hand on the very response that the inner transport returned.
    """

    def discard(self, response: Response) -> None:
        """Start no further request on the connection that *response* came over.

        Called when *response* is not the response to its request, or is an error response to a write that the contract
        does not document: the responses that follow on that connection may belong to other requests as well. It is
        called before the next step of whoever has sent the request, unless a wrapper waits in between. Fail a request
        that has started on the connection meanwhile, as sent: it would take the next response for its own.

        A response that the transport does not know is ignored. Must not wait and should not raise: what it raises is
        dropped, as the outcome of the call does not depend on it. To find the connection, return from `send` an
        instance of a subclass of `Response` with one more field; a `Response` is neither hashable nor weakly
        referenceable.
        """
        ...
