"""The control API, and who may use it."""

from __future__ import annotations

import json

import aiohttp
import pytest

from paymentsdk.sandbox import FaultRule

IMPOSSIBLE = [
    ("POST", "orders/nothing/pay", None, 404),
    ("POST", "preferences/1-2/pay", None, 404),
    ("POST", "merchant_orders/1/refund", None, 404),
    ("POST", "invoices/1/payment", {"status": "refunded"}, 404),
    ("POST", "subscriptions/1/cancel", None, 404),
    ("POST", "tenants/5/authorize", None, 404),
    ("POST", f"tenants/{'9' * 5_000}/authorize", None, 404),
    ("POST", "plans", {"tenant": 5, "reason": "r", "auto_recurring": {"transaction_amount": 1}}, 404),
    ("POST", "restore", {"name": "nothing"}, 404),
    ("DELETE", "faults/5", None, 404),
    ("POST", "scan", {"code": "nothing"}, 404),
    ("POST", "clock/freeze", {"at": "2026-01-01T00:00:00"}, 400),
    ("POST", "tenants", {"colour": "red"}, 400),
    ("PATCH", "policies", b"[]", 400),
    ("GET", "orders?tenant=x", None, 400),
    ("GET", "nothing", None, 404),
    ("PUT", "clock", None, 405),
]


async def test_what_cannot_be_done_is_rejected(plain):
    """In JSON, with a code and a sentence."""
    for method, path, body, status in IMPOSSIBLE:
        answer = await plain(method, f"/_sandbox/{path}", body)

        assert (status, True) == (answer.status, bool(answer.json["message"])), path


@pytest.mark.parametrize("mode", ["static", "dynamic", "hybrid"])
async def test_a_code_is_scanned(client, plain, sandbox, order, mode):
    """The order's own code, where it has one; that of a point of sale: its newest order that waits, if not dynamic."""
    config = {"qr": {"external_pos_id": "POS001", "mode": mode}}
    first = await client.orders.create(order(config=config))
    second = await client.orders.create(order(config=config))

    async def scan(code: str) -> str | int:
        answer = await plain("POST", "/_sandbox/scan", {"code": code})
        return answer.json["id"] if answer.status == 200 else answer.status

    if mode != "static":
        assert first.id == await scan(first.type_response.qr_data)
    assert first.id == await scan(first.id)
    assert first.id == await scan(f"{sandbox.base_url}/qr/{first.id}?attempt=rejected")
    assert (404 if mode == "dynamic" else second.id) == await scan("POS001")
    sandbox.buyer.pay(second)
    assert (404 if mode == "dynamic" else first.id) == await scan("POS001")
    sandbox.buyer.pay(first)
    assert 404 == await scan("POS001")


async def test_sellers_are_made(plain, connect, sandbox):
    """With everything that a program needs to act for them; they are listed; they consent again."""
    seller = (await plain("POST", "/_sandbox/tenants", {"country": "BR", "external_pos_ids": ["T1", "T2"]})).json
    code = (await plain("POST", f"/_sandbox/tenants/{seller['user_id']}/authorize")).json["code"]
    body = {"client_id": seller["client_id"], "client_secret": seller["client_secret"]}
    body |= {"grant_type": "authorization_code", "code": code}

    assert (sandbox.base_url, "BRL", "T1") == (seller["base_url"], seller["currency"], seller["external_pos_id"])
    assert 200 == (await plain("GET", f"/preapproval_plan/{seller['plan_id']}", token=seller["access_token"])).status
    assert 200 == (await plain("POST", "/oauth/token", body, token=None)).status
    assert 2 == len((await plain("GET", "/_sandbox/tenants")).json)


async def test_an_amount_is_written_in_digits(plain):
    """What Python would read as a number, and the platform would not, is rejected with the place."""
    body = {"items": [{"title": "t", "quantity": 1, "unit_price": 60}]}
    name = (await plain("POST", "/checkout/preferences", body)).json["id"]
    paid = (await plain("POST", f"/_sandbox/preferences/{name}/pay")).json
    rule = "an amount is written in digits, with two decimals or none"
    for amount in ("5_0", " 50", "\u0665\u0660", "50.0"):
        plan = {"reason": "r", "auto_recurring": {"transaction_amount": amount}}
        refund = await plain("POST", f"/_sandbox/merchant_orders/{paid['id']}/refund", {"amount": amount})
        new_plan = await plain("POST", "/_sandbox/plans", plan)

        assert [(400, "bad_request")] * 2 == [(answer.status, answer.code) for answer in (refund, new_plan)]
        assert f"$.amount: {rule}" == refund.json["message"]
        assert f"$.auto_recurring.transaction_amount: {rule}" == new_plan.json["message"]
    for amount in (b'"50.00"', b"50.0"):  # Text as in a response, or a JSON number.
        text = b'{"reason": "r", "auto_recurring": {"transaction_amount": %s}}' % amount
        new_plan = (await plain("POST", "/_sandbox/plans", text)).json
        assert 50 == float(new_plan["auto_recurring"]["transaction_amount"])


async def test_the_clock_is_moved(plain, client, order):
    """Frozen, advanced with a report of what happened, resumed."""
    frozen = (await plain("POST", "/_sandbox/clock/freeze", {"at": "2026-01-31T00:00:00Z"})).json
    new_order = await client.orders.create(order())
    moved = (await plain("POST", "/_sandbox/clock/advance", {"duration": "PT15M"})).json
    now = (await plain("GET", "/_sandbox/clock")).json
    resumed = (await plain("POST", "/_sandbox/clock/resume")).json

    assert {"now": "2026-01-31T00:00:00.000Z", "frozen": True, "ahead": "P0D", "happened": []} == frozen
    assert "2026-01-31T00:15:00.000Z" == moved["now"]
    assert [("order.expired", new_order.id)] == [(event["kind"], event["id"]) for event in moved["happened"]]
    assert now["frozen"]
    assert not resumed["frozen"]


async def test_faults_are_made_listed_and_removed(plain):
    """With the number of requests that each has seen and hit."""
    rule = {"effect": "fail_before_commit", "operation": "plans.*", "times": 1}
    first = (await plain("POST", "/_sandbox/faults", rule)).json
    second = (await plain("POST", "/_sandbox/faults", {"effect": "hang", "tenant": 5})).json
    statuses = [(await plain("GET", "/preapproval_plan/search")).status for _ in range(2)]
    listed = (await plain("GET", "/_sandbox/faults")).json
    await plain("DELETE", f"/_sandbox/faults/{first['id']}")
    remaining = (await plain("GET", "/_sandbox/faults")).json
    await plain("DELETE", "/_sandbox/faults")

    assert [500, 200] == statuses
    assert [(2, 1), (0, 0)] == [(entry["seen"], entry["hits"]) for entry in listed]
    assert [second["id"]] == [entry["id"] for entry in remaining]
    assert [] == (await plain("GET", "/_sandbox/faults")).json


async def test_snapshots_bring_back_everything(plain, client, sandbox, order):
    """Orders, keys, tokens, the ledger and the clock."""
    new_order = await client.orders.create(order(), idempotency_key="k")
    await plain("POST", "/_sandbox/snapshot", {"name": "before"})
    sandbox.buyer.pay(new_order)
    sandbox.clock.advance("P1D")
    second_order = await client.orders.create(order())

    restored = await plain("POST", "/_sandbox/restore", {"name": "before"})

    assert (200, "created") == (restored.status, (await client.orders.get(new_order.id)).status)
    assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]
    assert 404 == (await plain("GET", f"/v1/orders/{second_order.id}")).status
    assert new_order == await client.orders.create(order(), idempotency_key="k")
    assert new_order.created_date == sandbox.clock.now()


async def test_the_ledger_is_exported_line_by_line(plain, client, connect, sandbox, order):
    """Of all sellers, or of one; amounts as text."""
    tenant = sandbox.create_tenant()
    new_order = await client.orders.create(order(), idempotency_key="k")
    sandbox.buyer.pay(new_order)
    async with connect(sandbox, tenant) as second_client:
        await second_client.orders.create(order())

    whole = (await plain("GET", "/_sandbox/ledger")).raw.decode().splitlines()
    part = (await plain("GET", f"/_sandbox/ledger?tenant={sandbox.tenant.user_id}")).raw.decode().splitlines()
    created, paid = map(json.loads, part)

    newest = (await plain("GET", "/_sandbox/ledger?limit=2")).raw.decode().splitlines()

    assert (3, 2) == (len(whole), len(part))
    assert whole[1:] == newest
    assert {"kind": "order_created", "amount": "0", "idempotency_key": "k", "order_id": new_order.id} == {
        name: created[name] for name in ("kind", "amount", "idempotency_key", "order_id")
    }
    assert {"kind": "payment", "amount": "50.00", "currency": "ARS", "external_reference": "ticket-1"} == {
        name: paid[name] for name in ("kind", "amount", "currency", "external_reference")
    }


UNUSED = [
    ("DELETE", "faults?tennant=5", "'tennant' is not a parameter of this request; it takes: tenant"),
    ("DELETE", "faults?tenant=", "tenant is not a number"),
    ("DELETE", "faults?tenant=5&tenant=6", "tenant is given more than once"),
    ("GET", "events?tenant=5", "'tenant' is not a parameter of this request; it takes: none"),
]


async def test_an_unused_parameter_is_rejected(plain, sandbox):
    """A misspelt or empty parameter is rejected; it never means "every seller", and nothing is done."""
    sandbox.faults.add(FaultRule(effect="html"))
    for method, path, message in UNUSED:
        answer = await plain(method, f"/_sandbox/{path}")

        assert (400, "bad_request", message) == (answer.status, answer.json["code"], answer.json["message"])
    assert 1 == len(sandbox.faults.list())


FOREIGN = [
    {"Origin": "https://evil.example.com"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example.com", "Accept-Language": "en"},
    {"Host": "evil.example.com", "User-Agent": "Mozilla/5.0"},
    {"Host": "", "Accept-Language": "en"},
    {"Host": "[::1", "Accept-Language": "en"},
    {"Host": "127.0.0.1.evil.example.com", "Accept-Language": "en"},
]


async def test_a_page_from_elsewhere_cannot_pay(client, plain, order):
    """Neither with a form nor with a script, nor under a name of its own (DNS rebinding)."""
    new_order = await client.orders.create(order())
    for headers in FOREIGN:
        for kind in ("text/plain", "application/json"):
            sent = {"Content-Type": kind, **headers}
            answer = await plain("POST", f"/_sandbox/orders/{new_order.id}/pay", b"{}", headers=sent)
            assert (403, "forbidden") == (answer.status, answer.code), headers
    assert "created" == (await client.orders.get(new_order.id)).status


async def test_a_page_from_elsewhere_cannot_look(plain):
    """Reading is guarded as well: there are tokens in it."""
    for path in ("state", "events"):
        for headers in FOREIGN:
            assert 403 == (await plain("GET", f"/_sandbox/{path}", headers=headers)).status


async def test_own_pages_and_programs_may(client, plain, sandbox, order):
    """The negative control: requests of the same origin, and requests that name no origin, are accepted."""
    host = sandbox.base_url.removeprefix("http://")
    port = host.rpartition(":")[2]
    for headers in (
        {},
        {"Origin": sandbox.base_url, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": f"localhost:{port}"},
        {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
        {"Host": "sandbox:8787"},
        {"Host": "sandbox:8787", "User-Agent": "python-requests/2.32"},
    ):
        new_order = await client.orders.create(order())
        assert 200 == (await plain("POST", f"/_sandbox/orders/{new_order.id}/pay", headers=headers)).status


async def test_a_browser_under_another_name_is_told_the_option(plain):
    """A browser that uses a container's name is rejected; the message names the option to start with."""
    answer = await plain("GET", "/_sandbox/state", headers={"Host": "sandbox:8787", "Accept-Language": "en"})

    assert 403 == answer.status
    assert "--public-url http://sandbox:8787" in answer.json["message"]


async def test_a_fault_does_not_touch_the_control_api(plain, sandbox):
    """A fault never hits the control API; otherwise you could not remove the fault."""
    sandbox.faults.add(FaultRule(effect="reset"))

    with pytest.raises(aiohttp.ClientError):
        await plain("GET", "/preapproval_plan/search")
    assert 200 == (await plain("DELETE", "/_sandbox/faults")).status
