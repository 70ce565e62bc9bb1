"""Inside the sandbox: what no response shows, and defences that a test has to slow down or count."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from paymentsdk.sandbox import Sandbox, _control, _server
from paymentsdk.sandbox._app import reset_connection
from paymentsdk.sandbox._records import SUBSCRIPTIONS


@pytest.fixture
async def sandbox():
    """A sandbox whose clock stands still."""
    async with Sandbox(seed=7, frozen=True) as sandbox:
        yield sandbox


@pytest.mark.control("paymentsdk.sandbox._app.DisconnectedError", ZeroDivisionError)
@pytest.mark.parametrize("path", ["/_sandbox/scan", "/subscriptions/{plan}"])
async def test_who_goes_away_amid_a_command_or_a_form_is_no_failure(sandbox, until, caplog, monkeypatch, path):
    """Nor is it logged as one: a page that is closed, or a script that is stopped, says nothing of the sandbox."""
    over = []
    monkeypatch.setattr(
        "paymentsdk.sandbox._app.reset_connection", lambda request: over.append(request) or reset_connection(request)
    )
    host = sandbox.base_url.removeprefix("http://")
    _, writer = await asyncio.open_connection(*host.split(":"))
    head = f"POST {path.format(plan=sandbox.plan_id)} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 500\r\n"
    writer.write(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nform".encode())
    writer.close()
    await writer.wait_closed()
    await until(lambda: over or caplog.records)

    assert [] == caplog.records
    assert [] == sandbox.platform.store.find(SUBSCRIPTIONS, None)


async def closed_by_the_server(sandbox: Sandbox, patience: float, *requests: str) -> bool:
    """Send *requests* on one connection, and say whether it ends."""
    host = sandbox.base_url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    for number, request in enumerate(requests):
        if number:  # What was asked before is answered.
            await reader.readuntil(b"\r\n\r\n")
        writer.write(request.replace("\n", "\r\n").encode())
    try:
        async with asyncio.timeout(patience):
            await reader.read()
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return True


_POST = "HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 500\n"
_FORM = "Content-Type: application/x-www-form-urlencoded\n"


@pytest.mark.control("paymentsdk.sandbox._control.READ_TIMEOUT", 3600.0)
@pytest.mark.parametrize(
    "request_",
    [
        f"POST /v1/orders {_POST}\n{{",
        f"POST /_sandbox/scan {_POST}\n{{",
        f"POST /qr/ORD1 {_POST}{_FORM}\nmethod",
    ],
)
async def test_a_body_that_is_never_sent_whole_is_closed(sandbox, monkeypatch, patience, request_):
    """A client that stops sending does not keep a connection for ever; the others are served."""
    if _control.READ_TIMEOUT < 60:
        monkeypatch.setattr(_control, "READ_TIMEOUT", 0.01)

    assert await closed_by_the_server(sandbox, patience, request_)


@pytest.mark.control("paymentsdk.sandbox._server._IDLE", 3600.0)
@pytest.mark.parametrize("before", [[], ["GET /_sandbox/state HTTP/1.1\nHost: 127.0.0.1\n\n"]], ids=["first", "second"])
async def test_headers_that_are_never_sent_whole_are_closed(monkeypatch, patience, before):
    """On many new connections, and on those that had a request before."""
    if _server._IDLE < 100:
        monkeypatch.setattr(_server, "_IDLE", 0.5)
    half = "POST /v1/orders HTTP/1.1\nHost: 127"
    async with Sandbox() as sandbox:
        assert all(await asyncio.gather(*(closed_by_the_server(sandbox, patience, *before, half) for _ in range(40))))
