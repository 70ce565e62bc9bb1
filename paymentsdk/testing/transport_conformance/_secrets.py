"""Secrets that a failure must not show: it ends up in logs, in debuggers, and in other processes."""

from __future__ import annotations

import contextlib
import logging
import pickle
import traceback
from collections.abc import Iterator
from io import StringIO

from paymentsdk.testing._expectation import expect
from paymentsdk.testing._fault_server import FaultServer, http, once, refused_port
from paymentsdk.testing.transport_conformance._case import MakeTransport, case, opened, send
from paymentsdk.transports.base import Request, SendFailed

_BEARER = "APP_USR-1-010203-canary-7"
_CARD = "card-token-canary"
_GRANT = "TG-refresh-canary"
_FIELDS = {"Authorization": f"Bearer {_BEARER}", "Content-Type": "application/json"}
_BODY = f'{{"token": "{_CARD}"}}'.encode()


def _told(error: BaseException) -> str:
    """Return all that *error* tells: its text, its traceback with the locals of every frame, its pickle."""
    lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    pickled = pickle.dumps(error) if isinstance(error, SendFailed) else b""
    return "\n".join([str(error), repr(error), *lines, pickled.decode("latin-1")])


async def _silent(make: MakeTransport, request: Request) -> None:
    """Send *request*, which fails or runs out of time, and search what is told for the canaries."""
    async with opened(make) as transport:
        try:
            await send(transport, request)
        except Exception as error:  # noqa: BLE001 - which it may be is for other cases
            told = _told(error)
        else:
            raise AssertionError("a failure was expected")
    _search(told, "told")


def _search(text: str, what: str) -> None:
    for canary in (_BEARER, _CARD, _GRANT):
        expect(canary not in text, f"a credential is {what}:\n{text}")


@case
async def failures_hold_no_credentials(make: MakeTransport) -> None:
    """No failure shows the token, the body or the response: not in its text, traceback, locals, context or pickle."""
    grant = f'{{"refresh_token": "{_GRANT}"'.encode()
    responses = (
        b"",
        grant + b"\r\n\r\n",
        http(200, grant, length=99),
        http(200, grant, length=10**9),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + grant + b"\r\n",
    )
    for response in responses:
        async with FaultServer(once(response)) as server:
            await _silent(make, Request("POST", server.url(), _FIELDS, _BODY, timeout=5.0))
    with refused_port() as port:
        await _silent(make, Request("POST", f"http://127.0.0.1:{port}/", _FIELDS, _BODY))
        await _silent(make, Request("POST", f"http://127.0.0.1:{port}/", {**_FIELDS, "X-One": "1\n2"}, _BODY))


@case
async def cancellation_holds_no_credentials(make: MakeTransport) -> None:
    """A cancellation does not show the token in the locals of the frames that it has passed."""
    async with FaultServer(once(then="wait")) as server:
        await _silent(make, Request("POST", server.url(), _FIELDS, _BODY, timeout=0.1))


@contextlib.contextmanager
def _logged() -> Iterator[StringIO]:
    """Collect what is logged, at any level that its logger has not been given itself."""
    root, text = logging.getLogger(), StringIO()
    level, handler = root.level, logging.StreamHandler(text)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@case
async def logs_hold_no_credentials(make: MakeTransport) -> None:
    """Neither token nor body, of the request or of the response, is logged at any level, whether it fails or not."""
    responses = (http(200, f'{{"refresh_token": "{_GRANT}"}}'.encode()), b"garbage\r\n\r\n", b"")
    with _logged() as text:
        for response in responses:
            async with FaultServer(once(response)) as server, opened(make) as transport:
                with contextlib.suppress(SendFailed):
                    await send(transport, Request("POST", server.url(), _FIELDS, _BODY, timeout=5.0))
    _search(text.getvalue(), "logged")
