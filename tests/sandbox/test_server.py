"""The server: where it listens, what it says about itself, and how it begins and ends."""

from __future__ import annotations

import asyncio
import gzip
import socket
from datetime import UTC, datetime
from importlib.util import find_spec
from runpy import run_path
from urllib.request import urlopen

import msgspec
import pytest

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import Sandbox

MAX_BODY = 2**20


async def test_it_says_everything_that_a_program_needs(sandbox):
    """Its members are its attributes, too; no secret is in its repr."""
    info = sandbox.describe()
    names = [field.name for field in msgspec.structs.fields(info)]

    assert {"base_url", "access_token", "external_pos_id", "plan_id"} < {*names}
    assert [getattr(sandbox, name) for name in names] == [getattr(info, name) for name in names]
    for secret in (sandbox.access_token, sandbox.client_secret, sandbox.refresh_token, sandbox.authorization_code):
        assert secret not in repr(info) + repr(sandbox.tenant)


async def test_it_listens_on_this_machine_only(start):
    """Another host has to be asked for in so many words."""
    assert "http://127.0.0.1:" in (await start()).base_url
    for host in ("0.0.0.0", "192.0.2.1", "sandbox.example.com", "::"):
        with pytest.raises(ValueError, match="set `public` to allow that"):
            Sandbox(host=host)
    assert await start(host="0.0.0.0", public=True)


@pytest.mark.parametrize("port", [-1, 65_536, "8787"])
def test_an_impossible_port_is_rejected(port):
    """When it is given, and by its name; the start would raise an OverflowError."""
    with pytest.raises(ValueError, match="port: must be a whole number, 0 to 65,535"):
        Sandbox(port=port)


def test_an_aiohttp_that_is_too_old_is_named(monkeypatch):
    """The error says which version is needed, and which one is there."""
    monkeypatch.delattr("aiohttp.web.RequestKey")
    monkeypatch.setattr("aiohttp.__version__", "3.12.1")

    with pytest.raises(ImportError, match=r"the sandbox needs aiohttp 3.14.4 or later, and 3.12.1 is installed"):
        run_path(find_spec("paymentsdk.sandbox._control").origin)


async def test_links_lead_to_its_public_address(start, connect, plain_to, order):
    """A tunnel's name, or a host that is no address to go to: codes, checkouts and plans are reached from elsewhere."""
    sandbox = await start(public_url="https://shop.example.com/")
    config = {"qr": {"external_pos_id": "POS001", "mode": "dynamic"}}
    async with connect(sandbox) as client:
        new_order = await client.orders.create(order(config=config))
        plan = await client.plans.get(sandbox.plan_id)

    assert f"https://shop.example.com/qr/{new_order.id}" == new_order.type_response.qr_data
    assert f"https://shop.example.com/subscriptions/{plan.id}" == plan.init_point
    assert sandbox.base_url.startswith("http://127.0.0.1:")
    assert new_order.id == sandbox.buyer.scan(new_order.type_response.qr_data).id
    statuses = [
        (await plain_to(sandbox)("GET", "/_sandbox/state", headers={"Host": host, "Accept-Language": "en"})).status
        for host in ("shop.example.com", "elsewhere.example.com")
    ]
    assert [200, 403] == statuses


@pytest.mark.parametrize(("options", "host", "address"), [
    ({}, None, None),
    ({"public_url": "https://shop.example.com:443"}, "shop.example.com", "https://shop.example.com"),
    ({"public_url": "http://shop.example.com:8080"}, "shop.example.com:8080", "http://shop.example.com:8080"),
    ({"host": "0.0.0.0", "public": True}, "sandbox:8787", "http://sandbox:8787"),
])  # fmt: skip
async def test_a_signature_is_checked_for_the_address_that_it_was_made_for(start, plain_to, options, host, address):
    """What a client signs has the address that it went to, also that of a tunnel or a container. It needs no token."""
    signed = []
    sandbox = await start(**options, authenticate=lambda request: signed.append(request.url) or sandbox.access_token)

    headers = {} if host is None else {"Host": host}
    response = await plain_to(sandbox)("GET", "/preapproval_plan/search?q=a%20b", token=None, headers=headers)

    assert (200, [f"{address or sandbox.base_url}/preapproval_plan/search?q=a%20b"]) == (response.status, signed)


@pytest.mark.parametrize(
    "url", ["", "shop.example.com", "ftp://x", "https://", "https://x?", "https://x/a", "https://["]
)
def test_a_public_address_is_one(url):
    """Links that lead nowhere are found at the start."""
    with pytest.raises(ValueError, match="public_url"):
        Sandbox(public_url=url)


async def test_it_is_not_used_before_it_was_started():
    """A sentence instead of a missing attribute; stopping what never ran does no harm."""
    sandbox = Sandbox()
    for name in ("access_token", "base_url"):
        with pytest.raises(RuntimeError, match="not been started"):
            getattr(sandbox, name)
    await sandbox.stop()


async def test_it_is_not_used_after_it_has_stopped(start):
    """A sentence instead of an error of its database; where it was, it still says."""
    sandbox = await start()
    address = sandbox.base_url
    await sandbox.stop()

    for use in (sandbox.ledger, sandbox.buyer.subscribe, lambda: sandbox.clock.advance("PT1M"), sandbox.snapshot):
        with pytest.raises(RuntimeError, match="the sandbox has stopped"):
            use()
    assert address == sandbox.base_url
    with pytest.raises(RuntimeError, match="the sandbox has stopped"):
        await sandbox.start()


async def test_the_same_seed_gives_the_same_identifiers(start, connect, order):
    """Credentials too; another seed gives others, and no seed gives new ones every time."""
    identifiers = []
    for seed in (1, 1, None, None):
        sandbox = await start(seed=seed, frozen=True)
        sandbox.clock.freeze(msgspec.convert("2026-01-01T00:00:00Z", type(sandbox.clock.now())))
        async with connect(sandbox) as client:
            identifiers.append((sandbox.client_secret, (await client.orders.create(order())).id))

    assert identifiers[0] == identifiers[1]
    assert 3 == len(set(identifiers))


def test_it_runs_in_a_thread():
    """For programs without an event loop; the buyer, the clock and the faults work from theirs."""
    with Sandbox(frozen=True).in_thread() as sandbox, urlopen(f"{sandbox.base_url}/_sandbox/health") as response:
        assert 200 == response.status
        sandbox.provision(orders=1)
        assert 2 == len(sandbox.ledger())
        assert () == sandbox.clock.advance("PT1H")
    with pytest.raises(OSError, match=r"refused|reset"):
        urlopen(f"{sandbox.base_url}/_sandbox/health")


async def test_it_starts_once_and_stops_twice(start):
    """A second start would leave a server that nothing stops; the second stop does nothing."""
    sandbox = await start()
    before = sandbox.base_url

    with pytest.raises(RuntimeError, match="was started already"):
        await sandbox.start()

    assert before == sandbox.base_url
    await sandbox.stop()
    await sandbox.stop()
    with socket.socket() as probe:
        assert 0 != probe.connect_ex(("127.0.0.1", int(before.rpartition(":")[2])))


async def test_a_stop_that_is_cancelled_lets_go_of_the_file(start, tmp_path):
    """Another sandbox may use it."""
    path = str(tmp_path / "sandbox.db")
    sandbox = await start(db=path)
    stopping = asyncio.create_task(sandbox.stop())
    await asyncio.sleep(0)
    stopping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await start(db=path)


async def test_unknown_paths_and_methods_are_rejected_in_json(plain):
    """404 with what the matter may be, and 405 with what is allowed."""
    unknown, method = await plain("GET", "/v2/orders"), await plain("PUT", "/v1/orders", {})

    assert (404, "not_found") == (unknown.status, unknown.code)
    assert "nothing is at this path; the base URL of the sandbox has no path" in str(unknown)
    assert (405, "method_not_allowed", "POST") == (method.status, method.code, method.headers["Allow"])


async def test_every_response_has_a_request_id(plain, data):
    """Successes, rejections, unknown paths, the control API: all of them, and no two the same."""
    requests = [("POST", "/v1/orders", data()), ("POST", "/v1/orders", {}), ("GET", "/nothing"), ("PUT", "/v1/orders")]
    requests += [("GET", "/_sandbox/clock"), ("GET", "/_sandbox/nothing")]
    ids = [(await plain(*request, key="k")).headers["X-Request-Id"] for request in requests]

    assert len(ids) == len(set(ids))


async def test_every_response_is_dated_by_the_clock(plain, sandbox, data):
    """In GMT, as HTTP has it: clients count the age of their keys by it, and this clock forgets them."""
    sandbox.clock.freeze(datetime(2026, 1, 31, 23, 59, 30, tzinfo=UTC))
    dates = [(await plain("POST", "/v1/orders", data(), key="k")).headers["Date"]]
    sandbox.clock.advance("PT1M")
    dates += [(await plain("GET", path)).headers["Date"] for path in ("/nothing", "/_sandbox/clock")]

    assert ["Sat, 31 Jan 2026 23:59:30 GMT", *["Sun, 01 Feb 2026 00:00:30 GMT"] * 2] == dates


async def test_every_path_takes_a_trailing_slash(plain, data):
    """As some clients send it."""
    new_order = (await plain("POST", "/v1/orders/", data(), key="a")).json
    requests = [("GET", f"/v1/orders/{new_order['id']}/"), ("POST", f"/v1/orders/{new_order['id']}/cancel/")]
    requests += [("GET", "/merchant_orders/search/"), ("DELETE", "/v1/account/release_report/schedule/")]

    assert [200] * 4 == [(await plain(method, path, key="b")).status for method, path in requests]


@pytest.mark.control("paymentsdk.sandbox._wire._check_empty", lambda body: None)
async def test_a_cancel_with_a_body_is_rejected(plain, client, order):
    """A part of an order cannot be canceled: who asks for it must not have the whole canceled."""
    new_order = await client.orders.create(order())
    path = f"/v1/orders/{new_order.id}/cancel"
    bodies = {b"{": "property_type", b"\xff": "property_type", b"[]": "property_type"}
    bodies[b'{"amount":"1.00"}'] = "unsupported_properties"

    for body, code in bodies.items():
        rejected = await plain("POST", path, body, key="k2")
        assert 400 == rejected.status
        assert code == rejected.code

    assert "created" == (await client.orders.get(new_order.id)).status
    assert 200 == (await plain("POST", path, key="k2")).status
    again = await plain("POST", path, body, key="k2")
    assert (409, "idempotency_key_already_used") == (again.status, again.code)


async def test_a_body_must_not_say_that_it_is_something_else(plain, data):
    """JSON under its names, or no name at all."""
    for number, kind in enumerate(("APPLICATION/JSON; charset=utf-8", "application/vnd.api+json", "")):
        headers = {"Content-Type": kind}
        assert 201 == (await plain("POST", "/v1/orders", data(), key=f"{number}", headers=headers)).status
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    rejected = await plain("POST", "/v1/orders", data(), key="k", headers=headers)

    assert (400, "property_type") == (rejected.status, rejected.code)


async def test_no_operation_takes_a_body_that_says_it_is_something_else(plain):
    """With a key and without one; a read has no body, whatever a client says of it."""
    headers = {"Content-Type": "text/plain"}
    for operation in OPERATIONS.values():
        if operation.body or operation.keyed:
            path = operation.path.format_map(dict.fromkeys(operation.path_names, "ORD" + "0" * 26))
            rejected = await plain(operation.method, path, b"{}", key="k", headers=headers)
            assert (400, True) == (rejected.status, b"the content type is 'text/plain'" in rejected.raw)
    assert 200 == (await plain("GET", "/merchant_orders/search", b"{}", headers=headers)).status


async def test_bodies_are_bounded(plain):
    """One MiB and no more; said in the shape of the operation, not by a page of the server's."""
    body = b'{"x": "' + b"a" * MAX_BODY + b'"}'

    answers = [await plain("POST", path, body, key="k") for path in ("/v1/orders", "/_sandbox/scan")]

    assert [(413, "request_too_large")] * 2 == [(answer.status, answer.code) for answer in answers]


async def test_compressed_bodies_are_not_unpacked(plain, data):
    """Neither a good one nor a bomb nor a broken one: they are no JSON."""
    headers = {"Content-Encoding": "gzip"}
    for body in (msgspec.json.encode(data()), b" " * 2_000_000):
        answer = await plain("POST", "/v1/orders", gzip.compress(body), key="k", headers=headers)
        assert (400, "property_type") == (answer.status, answer.code)
    assert 201 == (await plain("POST", "/v1/orders", data(), key="k", headers=headers)).status


async def answer_to(sandbox, content: bytes, *, wait: bool = True) -> bytes:
    """Return what the sandbox responds to *content*; without *wait*, go away at once."""
    reader, writer = await asyncio.open_connection(*sandbox.base_url.removeprefix("http://").split(":"))
    writer.write(content)
    answer = await reader.read() if wait else b""
    writer.close()
    await writer.wait_closed()
    return answer


async def test_who_goes_away_amid_a_body_is_no_failure(sandbox, until, caplog):
    """Nothing is done, nobody gets a response, and nothing is logged."""
    for path in ("/_sandbox/scan", "/v1/orders"):
        head = f"POST {path} HTTP/1.1\r\nHost: {sandbox.base_url[7:]}\r\nContent-Length: 500\r\n\r\n"
        await answer_to(sandbox, f'{head}{{"type":'.encode(), wait=False)
    await until(lambda: sandbox.platform.feed.requests)

    assert [None] == [line.status for line in sandbox.platform.feed.requests]
    assert [] == caplog.records


@pytest.mark.parametrize("line", ["TEST-secret", "GET / HTTP/1.1\r\nAuthorization TEST-secret"])
async def test_nothing_of_what_is_no_http_is_logged(sandbox, caplog, line):
    """It is rejected with 400, and the log says that it came, but not what it was: it may hold a token."""
    caplog.set_level("DEBUG", logger="paymentsdk")
    answer = await answer_to(sandbox, f"{line}\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.0 400 ")
    assert ["Error handling request from 127.0.0.1"] == [record.getMessage() for record in caplog.records]
    assert "secret" not in caplog.text


async def test_what_fails_inside_stays_inside(plain, sandbox, data, monkeypatch, caplog):
    """A 500 says that something failed; the log says what, and the response does not."""

    def fail(*args: object) -> None:
        raise ZeroDivisionError("/secret/path")

    monkeypatch.setattr(sandbox.platform, "run_due", fail)
    answer = await plain("POST", "/v1/orders", data(), key="k")

    assert (500, "generic") == (answer.status, answer.code)
    assert "secret" not in answer.raw.decode()
    assert "ZeroDivisionError" in caplog.text
