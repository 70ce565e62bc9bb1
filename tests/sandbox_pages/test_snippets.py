"""A request of the log as something to run again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
import shutil

import aiohttp
import msgspec
import pytest

from paymentsdk.resources import OPERATIONS
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
async def test_the_command_of_a_form_sends_a_form(visitor, sandbox) -> None:
    """What was rejected for its content type is rejected again, and no payment is made by looking into it."""
    body = msgspec.json.encode(OPERATIONS["wallet_payments.create"].example)
    form = {"Content-Type": "application/x-www-form-urlencoded", "X-Idempotency-Key": "k"}
    await visitor.post("/v1/advanced_payments", body, Authorization=f"Bearer {sandbox.access_token}", **form)
    [first] = sandbox.platform.feed.requests

    command = await visitor.get(f"/_sandbox/requests/{first.request_id}/curl")
    await output_of("sh", "-c", f"{command} --silent", token=sandbox.access_token)

    second = sandbox.platform.feed.requests[-1]
    assert [400, 400] == [first.status, second.status]
    assert first.response == second.response


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/merchant_orders/search?external_reference={a,b}"),
        ("GET", "/v1/plans[1-3]"),
        ("GET", "/v1/orders/../plans/./x"),
        ("GET", "//v1/orders"),
        ("HEAD", "/v1/orders"),
    ],
)
async def test_the_command_makes_one_request(sandbox, visitor, method: str, path: str) -> None:
    """What curl would take for a list or a folder is sent as it is, and no body is waited for that never comes."""
    command = await command_of(sandbox, visitor, method, path)

    await output_of("sh", "-c", f"{command} --silent --max-time 10", token=sandbox.access_token)

    assert [(method, path)] * 2 == [(sent.method, sent.path) for sent in sandbox.platform.feed.requests]


#: Bodies that are typed into a terminal: Ctrl-C, a line of their own, the end of what is pasted, a rubout.
TYPED = ["{'\x03\ntouch mine\n'}", "\x1b[201~\n`id`!", "\x9b201~", "\x7f\x15", "\r\\'$HOME", "\u202e", "a\xa0b"]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash, which this machine does not have")
@pytest.mark.control("paymentsdk.sandbox._pages.snippets._word", shlex.quote)
@pytest.mark.parametrize("body", TYPED)
async def test_what_is_pasted_presses_no_key(sandbox, visitor, body: str) -> None:
    """Any page can post a body here: in a command that is pasted into a terminal, it is a text, and the very same."""
    command = await command_of(sandbox, visitor, "POST", "/v1/orders", body)
    assert command.replace("\n", "").isprintable()

    sent = await output_of("bash", "-c", 'curl() { printf "%s" "${@: -1}"; }; ' + command, token="")

    assert body == sent


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
async def test_a_command_has_the_key_of_an_operation_of_ones_own() -> None:
    """In the header that it declares, so that the sandbox does it again."""
    operation = dataclasses.replace(
        OPERATIONS["wallet_payments.create"], name="my.create", path="/my", key_header="My-Key"
    )
    handlers = {operation: lambda context, request: {"id": context.key}}
    body = msgspec.json.encode(operation.example).decode()
    async with Sandbox(handlers=handlers) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.access_token}", "My-Key": "k"}
        async with aiohttp.ClientSession(sandbox.base_url) as session:
            await session.post("/my", data=body, headers={**headers, "Content-Type": "application/json"})
            [first] = sandbox.feed.requests
            command = await (await session.get(f"/_sandbox/requests/{first.request_id}/curl")).text()
        await output_of("sh", "-c", f"{command} --silent", token=sandbox.access_token)
        [_, again] = sandbox.feed.requests

    assert (201, True) == (again.status, bool(again.key))


def items(count: int) -> list[dict[str, object]]:
    """Return items of an order, of some 150 characters each."""
    text = "x" * 90
    return [{"title": f"{n} {text}", "unit_price": "1.00", "quantity": 1, "unit_measure": "u"} for n in range(count)]


async def test_a_long_body_is_copied_whole(shop, sandbox, visitor) -> None:
    """The command sends all of it."""
    await shop.order(items=items(80))
    [line] = sandbox.feed.requests

    command = await visitor.get(f"/_sandbox/requests/{line.request_id}/curl")
    _, data = shlex.split(command.replace("\\\n", ""))[-2:]

    assert items(80) == msgspec.json.decode(data)["items"]
    assert line.body == data


async def test_a_body_that_is_not_kept_whole_is_no_rejection(shop, sandbox, visitor) -> None:
    """The line says so, and does nothing in a shell."""
    await shop.order(items=items(160))
    [line] = sandbox.feed.requests

    text = await visitor.get(f"/_sandbox/requests/{line.request_id}/curl")
    assert "# The body has more than 16,384 characters: its end is not kept.\n" == text


async def test_no_credential_is_in_them(sandbox, visitor) -> None:
    """The token comes from the environment, and what the log has masked stays masked."""
    grant = {"client_id": "1", "client_secret": "SECRET", "grant_type": "authorization_code", "code": "SECRET"}
    granted = await command_of(sandbox, visitor, "POST", "/oauth/token", msgspec.json.encode(grant).decode())
    created = await command_of(sandbox, visitor, "POST", "/v1/orders", "{}")

    assert '"client_secret":"***"' in granted
    assert "SECRET" not in granted
    assert "Authorization" not in granted
    assert '"Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"' in created


async def test_an_address_without_an_operation_is_said(sandbox, visitor) -> None:
    """It can be called by curl all the same."""
    command = await command_of(sandbox, visitor, "GET", "/nothing?a=b&c='d'")

    assert f"{sandbox.base_url}/nothing?a=b&c='d'" in shlex.split(command.replace("\\\n", ""))
