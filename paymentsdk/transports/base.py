"""The interface between the engine and a transport.

A transport sends one request and returns one response. It does not retry, follow, log or decide: the engine does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from paymentsdk._headers import Headers
from paymentsdk._secrets import HiddenRepr

__all__: list[str] = []  # Public at the top level: import them from there.


class Request(HiddenRepr, Struct, frozen=True):
    """One attempt, ready to be sent."""

    method: str
    """The HTTP method, in capitals."""
    url: str
    """The absolute URL, already percent-encoded. A transport sends it unchanged."""
    headers: Mapping[str, str] = {}
    """The header fields. They hold the bearer token, so `repr` leaves credentials out."""
    body: bytes = b""
    """The exact bytes of the body. Empty for no body."""
    timeout: float = 30.0
    """Seconds that this attempt may take, from the wait for a connection to the last byte of the response. The caller
    enforces it by cancelling `send`."""
    connect_timeout: float | None = None
    """The part of these seconds that the wait for a connection may take, from the pool or a new one. The transport
    enforces it, also by the wall clock: timers stop while a machine is suspended. `None` for no separate limit."""
    fresh: bool = False
    """Use a connection that no earlier request has used. Set if a resend is not safe, since the server can close a
    kept-alive connection at the moment when it is used."""
    max_response: int = 8 * 1024 * 1024
    """The most bytes of the response body."""
    operation: str | None = None
    """The name of the operation (`"orders.create"`). `None` for a request that the engine has not made. This field and
    the next two are for wrappers, and are not sent."""
    attempt: int = 1
    """The number of this attempt in its call, counted from 1."""
    account: str | None = None
    """The name of the account whose token it carries. `None` without an account."""

    def __repr__(self) -> str:
        # Bodies hold payer tokens and client secrets; a log only needs their size.
        return f"Request({self.method} {self.url}, headers={Headers(self.headers)!r}, body=<{len(self.body)} bytes>)"


class Response(HiddenRepr, Struct, frozen=True):
    """One complete response."""

    status: int
    """The HTTP status code."""
    headers: Mapping[str, str] = {}
    """The header fields, under any spelling of their names."""
    body: bytes = b""
    """The bytes of the body after transfer decoding."""
    reused: bool | None = None
    """Whether its connection had carried a request before. `None` if the transport does not say."""

    def __repr__(self) -> str:
        # The body of a token response is a token.
        return f"Response({self.status}, body=<{len(self.body)} bytes>)"


#: Mapping classes that find a name in upper or lower case; our transports add theirs.
CASELESS: set[type] = set()


def header(headers: Mapping[str, str], name: str) -> str | None:
    """Return the field *name* in upper or lower case; bytes that are not valid text are replaced by `?`."""
    try:
        value = headers.get(name)
        if value is None and type(headers) not in CASELESS:
            size, lower = len(name), name.lower()
            for field in headers:
                # Most differ in length, which is quick to compare: with an observer, every response is searched.
                if len(field) == size and field.lower() == lower:
                    value = headers[field]
                    break
    except (AttributeError, TypeError):
        # A user's transport has returned something that is not a mapping of strings. Its response may still be an
        # order, which must not be lost.
        return None
    if value is None:
        return None
    text = str(value)  # A user's transport may return a number.
    # A byte that is not UTF-8 arrives as half a surrogate pair, which no log could write.
    return text if text.isascii() else text.encode(errors="replace").decode()


class SendFailed(Exception):  # noqa: N818 - a fixed public name
    """A transport could not return a response.

    Args:
        reason: What went wrong, without any credential.
        sent: ``False`` only if it is certain that no byte of the request left this machine.
        permanent: Whether another attempt would fail in the same way (a certificate that does not verify, a response
            that is too large).
    """

    def __init__(self, reason: str, sent: bool = True, *, permanent: bool = False) -> None:  # noqa: FBT001, FBT002 - fixed
        super().__init__(reason, sent)
        self.reason = reason
        self.sent = sent
        self.permanent = permanent

    def __str__(self) -> str:
        return self.reason


class PoolFull(SendFailed):
    """All connections of the pool stayed in use for as long as the request could wait; nothing was sent."""


#: Marks a `CancelledError` that came while the request waited for a place in the pool, so nothing was sent.
UNSENT = "_paymentsdk_unsent"


def too_long(most: int) -> SendFailed:
    """Return the failure of a request whose response has more than *most* bytes."""
    return SendFailed(f"the response has more than {most} bytes", permanent=True)


class Transport(Protocol):
    """Sends requests: any object with these two methods."""

    async def send(self, request: Request) -> Response:
        """Send *request* once and return the response, whatever its status code.

        Raises:
            SendFailed: No response came: with ``sent=False`` if nothing left the machine, in every other case with
                ``sent=True``.
            ClientClosed: The transport is closed, or belongs to another event loop or process. Nothing was sent. A
                cancellation passes through. No other exception is raised.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections. Closing twice is allowed."""
        ...


#: A request that was written: its response, which fails like `Transport.send`, and a function that gives its connection
#: back, once. Called before the response has come, the function closes the connection.
Exchange: TypeAlias = tuple[Awaitable[Response], Callable[[], object]]


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport that can write a request immediately, with a head that it has prepared.

    Both methods may decline with `None`: then the request goes through `send`. No `repr` and no pickle shows a head. If
    a subclass overrides only `send`, all its requests go through `send`.
    """

    def prepare(self, request: Request, key_header: str | None) -> object | None:
        """Return the head that all requests of an operation share, for `begin`.

        Args:
            request: A request with the base URL, and the header fields with the token.
            key_header: The name of the idempotency key's header field. `None` if no key is sent.
        """
        ...

    def begin(
        self, head: object, target: str, key: str | None, body: bytes, loop: asyncio.AbstractEventLoop
    ) -> Exchange | None:
        """Write a request on an idle connection, and return its `Exchange`; the caller awaits it on *loop*.

        Args:
            head: The return value of `prepare`.
            target: The path below the base URL, in ASCII and already quoted.
            key: The value of the `key_header`, 1 to 64 visible ASCII characters.
            body: The bytes of the body.
            loop: The running event loop.
        """
        ...


@runtime_checkable
class DiscardingTransport(Transport, Protocol):
    """A transport that can be told to stop using a connection. `discard` is optional: clients work without it.

    The client looks for `discard` once, when it is made. A wrapper around such a transport needs the method as well,
    and must pass on the same response object that the inner transport returned.
    """

    def discard(self, response: Response) -> None:
        """Start no further request on the connection of *response*.

        Called if *response* is not the response to its request, or is an undocumented error response to a write: later
        responses on that connection may belong to other requests as well. It is called before the sender's next step,
        unless a wrapper waits in between. If a request has started on the connection meanwhile, fail it as sent: it
        would get the next response, which belongs to another request.

        Ignore a response that the transport does not know. Do not wait, and do not raise: an exception is dropped, as
        the outcome of the call does not depend on it. To find the connection, let `send` return a subclass of
        `Response` with one more field. A `Response` is neither hashable nor weakly referenceable.
        """
        ...
