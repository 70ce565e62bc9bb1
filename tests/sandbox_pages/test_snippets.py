"""A request of the log as something to run again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
import shutil
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import Sandbox
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._pages.snippets import curl

BASE_URL = "http://127.0.0.1:8787"
IDS = {"{order_id}": "ORD01J67CQQH5904WDBVZEM4JMEP3", "{id}": "plan-1"}


def line(method: str = "POST", path: str = "/v1/orders", *, operation: str | None = "orders.create", body: str = ""):
    """A line of the log."""
    return RequestLine(
        at=datetime(2026, 1, 31, tzinfo=UTC),
        operation=operation,
        method=method,
        path=path,
        status=201,
        tenant=1,
        request_id="req-1",
        body=body,
    )


def line_of(name: str, query: str = "") -> RequestLine:
    """The line of an operation with its own example."""
    operation = OPERATIONS[name]
    path = operation.path
    for placeholder, value in IDS.items():
        path = path.replace(placeholder, value)
    body = msgspec.json.encode(operation.example).decode() if operation.example else ""
    return line(operation.method, path + query, operation=name, body=body)


async def output_of(*command: str, token: str) -> str:
    """Run *command* with the token in its environment, and return what it prints."""
    environment = {**os.environ, "PAYMENTSDK_ACCESS_TOKEN": token}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert 0 == process.returncode, err.decode()
    return out.decode()


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
async def test_the_command_makes_the_same_request(shop, sandbox) -> None:
    """Pasted into a shell, it sends what the first one sent, quotes and all, under a new key."""
    await shop.order(description='It\'s $HOME, `date` and "more" \\')
    [first] = sandbox.platform.feed.requests

    await output_of("sh", "-c", curl(first, sandbox.base_url) + " --silent", token=sandbox.access_token)

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

    await output_of("sh", "-c", curl(first, sandbox.base_url) + " --silent", token=sandbox.access_token)

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
async def test_the_command_makes_one_request(sandbox, method: str, path: str) -> None:
    """What curl would take for a list or a folder is sent as it is, and no body is waited for that never comes."""
    command = f"{curl(line(method, path, operation=None), sandbox.base_url)} --silent --max-time 10"

    await output_of("sh", "-c", command, token=sandbox.access_token)

    assert [(method, path)] == [(sent.method, sent.path) for sent in sandbox.platform.feed.requests]


#: Bodies that are typed into a terminal: Ctrl-C, a line of their own, the end of what is pasted, a rubout.
TYPED = ["{'\x03\ntouch mine\n'}", "\x1b[201~\n`id`!", "\x9b201~", "\x7f\x15", "\r\\'$HOME", "\u202e", "a\xa0b"]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash, which this machine does not have")
@pytest.mark.control("paymentsdk.sandbox._pages.snippets._word", shlex.quote)
@pytest.mark.parametrize("body", TYPED)
async def test_what_is_pasted_presses_no_key(body: str) -> None:
    """Any page can post a body here: in a command that is pasted into a terminal, it is a text, and the very same."""
    command = curl(line(body=body), BASE_URL)
    assert command.replace("\n", "").isprintable()

    sent = await output_of("bash", "-c", 'curl() { printf "%s" "${@: -1}"; }; ' + command, token="")

    assert body == sent


@pytest.mark.control("paymentsdk.sandbox._pages.snippets._word", lambda text: text)
def test_a_method_is_no_command() -> None:
    """A parser in Python takes any word for the method of a request."""
    assert curl(line("`ID`&", operation=None), BASE_URL).startswith("curl -X '`ID`&' ")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, which this machine does not have")
async def test_a_command_has_the_key_of_an_operation_of_ones_own() -> None:
    """In the header that it declares, so that the sandbox does it again."""
    mine = dataclasses.replace(OPERATIONS["wallet_payments.create"], name="my.create", path="/my", key_header="My-Key")
    handlers = {mine: lambda context, request: {"id": context.key}}
    body = msgspec.json.encode(mine.example).decode()
    async with Sandbox(handlers=handlers) as sandbox:
        sandbox.feed.log(line("POST", "/my", operation=mine.name, body=body))
        async with aiohttp.ClientSession() as session:
            command = await (await session.get(f"{sandbox.base_url}/_sandbox/requests/req-1/curl")).text()
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


def test_no_credential_is_in_them() -> None:
    """The token comes from the environment, and what the log has masked stays masked."""
    body = '{"client_id":"1","client_secret":"***","grant_type":"authorization_code","code":"***"}'
    request = line("POST", "/oauth/token", operation="oauth.token", body=body)

    assert '"client_secret":"***"' in curl(request, BASE_URL)
    assert "Authorization" not in curl(request, BASE_URL)
    assert '"Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"' in curl(line_of("orders.create"), BASE_URL)


def test_an_address_without_an_operation_is_said() -> None:
    """It can be called by curl all the same."""
    request = line("GET", "/nothing?a=b&c='d'", operation=None)

    assert f"{BASE_URL}/nothing?a=b&c='d'" in shlex.split(curl(request, BASE_URL).replace("\\\n", ""))
