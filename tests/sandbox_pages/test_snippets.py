"""A request of the log as something to run again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shlex
import shutil
import sys
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import Sandbox
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._pages.snippets import curl, python

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


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_program(name: str) -> None:
    """It is Python, it calls the operation, and its lines are of a length that people read."""
    program = python(line_of(name), BASE_URL)

    compile(program, name, "exec")
    assert f"client.{name}(" in program or f'OPERATIONS["{name}"]' in program
    assert 130 > max(map(len, program.splitlines()))


async def test_the_program_makes_the_same_request(shop, sandbox) -> None:
    """Run against the sandbox, it sends what the first one sent: every member, and nothing else."""
    await shop.order(
        "24.90",
        description='A "quoted" text \\ and more',
        expiration_time="PT16M",
        items=[{"title": "O'Brien", "unit_price": "24.90", "quantity": 1, "unit_measure": "unit"}],
    )
    [first] = sandbox.platform.feed.requests

    response = await output_of(sys.executable, "-c", python(first, sandbox.base_url), token=sandbox.access_token)

    assert "Order(id='ORD" in response
    second = sandbox.platform.feed.requests[-1]
    assert msgspec.json.decode(first.body) == msgspec.json.decode(second.body)
    assert (first.operation, first.path, 201) == (second.operation, second.path, second.status)


async def test_a_program_has_a_date_without_a_time_as_one(shop, sandbox) -> None:
    """A day goes out of the program as it came: a moment in its place would be another day elsewhere."""
    body = {"items": [{"title": "A play", "event_date": "2026-12-31"}]}
    await shop.preference(**body)
    [first] = sandbox.platform.feed.requests

    program = python(first, sandbox.base_url)
    response = await output_of(sys.executable, "-c", program, token=sandbox.access_token)

    assert 'event_date=date.fromisoformat("2026-12-31")' in program
    assert "Preference(id=" in response
    assert body == msgspec.json.decode(sandbox.platform.feed.requests[-1].body)


async def test_the_program_of_a_search_finds_the_same(shop, sandbox) -> None:
    """Filters keep their types: text, numbers and moments."""
    sandbox.buyer.pay(await shop.order())
    since = datetime(2020, 1, 1, tzinfo=UTC)
    found = await shop.client.merchant_orders.search(status="closed", date_created_from=since, page_size=5).collect()
    first = sandbox.platform.feed.requests[-1]
    program = python(first, sandbox.base_url)
    assert 'status="closed"' in program
    assert "page_size=5" in program
    assert "datetime.fromisoformat(" in program

    response = await output_of(sys.executable, "-c", program, token=sandbox.access_token)

    assert f"id={found[0].id}" in response


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


@pytest.mark.control("paymentsdk.errors.visible", lambda text: text)
def test_what_the_client_rejects_presses_no_key_either() -> None:
    """The name of a member that nobody knows stands in the program as an escape."""
    program = python(line(body='{"a\\u0003import os;os.abort()#":1}'), BASE_URL)

    assert program.replace("\n", "").isprintable()


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
    """The command and the program send all of it."""
    await shop.order(items=items(80))
    [line] = sandbox.feed.requests
    path = f"/_sandbox/requests/{line.request_id}"

    _, data = shlex.split((await visitor.get(f"{path}/curl")).replace("\\\n", ""))[-2:]
    program = await visitor.get(f"{path}/python")
    await output_of(sys.executable, "-c", program, token=sandbox.access_token)
    again = sandbox.feed.requests[-1].body

    assert items(80) == msgspec.json.decode(data)["items"]
    assert line.body == data
    assert msgspec.json.decode(data) == msgspec.json.decode(again)


async def test_a_body_that_is_not_kept_whole_is_no_rejection(shop, sandbox, visitor) -> None:
    """Of a very long one both say so, in lines that do nothing in a shell or in Python."""
    await shop.order(items=items(160))
    [line] = sandbox.feed.requests

    for language in ("curl", "python"):
        text = await visitor.get(f"/_sandbox/requests/{line.request_id}/{language}")
        assert "# The body has more than 16,384 characters: its end is not kept.\n" == text


def test_no_credential_is_in_them() -> None:
    """The token comes from the environment, and what the log has masked stays masked."""
    body = '{"client_id":"1","client_secret":"***","grant_type":"authorization_code","code":"***"}'
    request = line("POST", "/oauth/token", operation="oauth.token", body=body)

    assert 'client_secret="***"' in python(request, BASE_URL)
    assert "Authorization" not in curl(request, BASE_URL)
    assert '"Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"' in curl(line_of("orders.create"), BASE_URL)


def test_what_the_client_rejects_is_said() -> None:
    """A body that the sandbox rejected has no program: the comment has the place and the rule, a line each."""
    for body in ('{"type":"qr"}', "no JSON", '{"type": "qr\\n1", "external_reference": 5}'):
        program = python(line(body=body), BASE_URL)
        assert "rejects this body" in program
        assert all(row.startswith("#") for row in program.splitlines())


def test_an_address_without_an_operation_is_said() -> None:
    """It can be called by curl all the same."""
    request = line("GET", "/nothing?a=b&c='d'", operation=None)

    assert python(request, BASE_URL).startswith("# No operation")
    assert f"{BASE_URL}/nothing?a=b&c='d'" in shlex.split(curl(request, BASE_URL).replace("\\\n", ""))


def test_a_filter_that_breaks_the_contract_is_kept_as_text() -> None:
    """The program fails where the request failed, and with the reason."""
    program = python(line_of("merchant_orders.search", "?limit=many&unknown=1"), BASE_URL)

    assert 'page_size="many"' in program
    assert "unknown" not in program


def test_long_imports_are_broken_over_lines() -> None:
    """As a formatter would do it."""
    program = python(line_of("orders.create"), BASE_URL)

    assert re.search(r"^from paymentsdk.resources.orders import \(\n    ItemRequest,\n", program, re.MULTILINE)
