"""A request of the log as something to run again."""

from __future__ import annotations

import asyncio
import os
import shutil

import msgspec
import pytest

from paymentsdk.sandbox import Sandbox


async def command_of(sandbox: Sandbox, visitor, method: str, path: str, body: str = "") -> str:
    """Send a request as it stands, and return the command that the sandbox makes of it."""
    host, data = sandbox.base_url.removeprefix("http://"), body.encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-Idempotency-Key: k\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return await visitor.get(f"/_sandbox/requests/{sandbox.feed.requests[-1].request_id}/curl")


async def output_of(*command: str, token: str) -> str:
    """Run *command* with the token in its environment, and return what it prints."""
    environment = {**os.environ, "PAYMENTSDK_ACCESS_TOKEN": token}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert 0 == process.returncode, err.decode()
    return out.decode()


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
async def test_the_command_makes_the_same_request(shop, sandbox, visitor) -> None:
    """Pasted into a shell, it sends what the first one sent, quotes and all, under a new key."""
    await shop.order(description='It\'s $HOME, `date` and "more" \\')
    [first] = sandbox.platform.feed.requests

    command = await visitor.get(f"/_sandbox/requests/{first.request_id}/curl")
    await output_of("sh", "-c", f"{command} --silent", token=sandbox.access_token)

    second = sandbox.platform.feed.requests[-1]
    assert (first.body, 201) == (second.body, second.status)
    assert first.key != second.key


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/merchant_orders/search?external_reference={a,b}"),
        ("GET", "/v1/orders/../plans/./x"),
        ("HEAD", "/v1/orders"),
    ],
)
async def test_the_command_makes_one_request(sandbox, visitor, method: str, path: str) -> None:
    """What curl would take for a list or a folder is sent as it is, and no body is waited for that never comes."""
    command = await command_of(sandbox, visitor, method, path)

    await output_of("sh", "-c", f"{command} --silent --max-time 10", token=sandbox.access_token)

    assert [(method, path)] * 2 == [(sent.method, sent.path) for sent in sandbox.platform.feed.requests]


@pytest.mark.parametrize("body", ["x" * 20_000, "{'\x03\ntouch mine\n'}", "\x1b[201~\n`id`!", "\r\\'$HOME", "\u202e"])
async def test_a_body_that_cannot_be_pasted_is_a_comment(sandbox, visitor, body: str) -> None:
    """A long body is not kept whole, and a terminal acts on Ctrl-C, the end of a paste or a line of its own."""
    text = await command_of(sandbox, visitor, "POST", "/v1/orders", body)

    assert "# The body has more than 16,384 characters, or a control character: see GET requests.\n" == text


async def test_no_credential_is_in_them(sandbox, visitor) -> None:
    """The token comes from the environment, and what the log has masked stays masked."""
    grant = {"client_id": "1", "client_secret": "SECRET", "grant_type": "authorization_code", "code": "SECRET"}
    granted = await command_of(sandbox, visitor, "POST", "/oauth/token", msgspec.json.encode(grant).decode())
    created = await command_of(sandbox, visitor, "POST", "/v1/orders", "{}")

    assert '"client_secret":"***"' in granted
    assert "SECRET" not in granted
    assert "Authorization" not in granted
    assert '"Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"' in created
