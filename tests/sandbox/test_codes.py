"""Every documented code can be produced, and is: by a magic value where there is one, by a rule everywhere."""

from __future__ import annotations

import msgspec
import pytest

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import FaultRule

#: The operations whose requests can have a magic value.
WITH_TEXT = [
    operation for operation in OPERATIONS.values() if operation.body or operation.query or operation.path_names
]

#: How many codes of an operation nothing leads to but a magic value or a rule.
ARTIFICIAL = {"oauth.token": 3, "preferences.create": 3, "customers.create": 24, "orders.create": 3}
ARTIFICIAL |= dict.fromkeys(("invoices.search", "plans.get", "plans.search", "merchant_orders.search"), 1)
ARTIFICIAL |= dict.fromkeys(("wallet_payments.create", "orders.get", "orders.cancel", "orders.refund"), 1)


async def send(plain, operation, body: object = None, *, query: str = "", path: str = "", key: str = "k"):
    """Send a request of *operation* that would do, but for what the test changes."""
    body = body if body is not None else operation.example
    path = path or operation.path.format_map(dict.fromkeys(operation.path_names, "ORD" + "0" * 26))
    return await plain(operation.method, path + query, body, key=key if operation.keyed else None)


def changed(example: object, member: str, value: str) -> object:
    """Return *example* with *value* as its *member*."""
    body = msgspec.to_builtins(example)
    node = body
    *parents, last = member.split(".")
    for name in parents:
        node = node[name]
    node[last] = value
    return body


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_a_rule_produces_every_code(plain, sandbox, operation):
    """Status and code, in the shape that the client reads. The table of codes says in words what else leads to one."""
    body = operation.example
    if not operation.authenticated:
        body = {**body, "client_id": sandbox.client_id, "client_secret": sandbox.client_secret}
    for error in operation.errors:
        rule = FaultRule(effect="refuse", operation=operation.name, status=error.status, code=error.code)
        with sandbox.faults.add(rule):
            response = await send(plain, operation, body)

        assert (error.status, error.code) == (response.status, response.code)
        assert error.meaning in response.raw.decode()
    assert (await send(plain, operation, body)).status < 500
    rows = [row for row in (await plain("GET", "/_sandbox/codes")).json if row["operation"] == operation.name]
    artificial = [row["code"] for row in rows if all("refuse" in way for way in row["ways"])]
    assert ARTIFICIAL.get(operation.name, 0) == len(artificial)


@pytest.mark.parametrize("operation", WITH_TEXT, ids=lambda operation: operation.name)
async def test_a_magic_value_produces_every_code_of_its_operation(plain, client, sandbox, order, operation):
    """The table of codes names it, and its member; operations on an order read the order's own reference."""
    rows = [row for row in (await plain("GET", "/_sandbox/codes")).json if row["operation"] == operation.name]
    for row in rows:
        ways = [way.split(": ") for way in row["ways"] if ": refuse-" in way]
        assert ways, f"give the Handler of {operation.name} in paymentsdk/sandbox/_handlers a `magic`"
        [(member, value)] = ways
        request = {"key": value}
        if "order_id" in operation.path_names:
            new_order = await client.orders.create(order(external_reference=value))
            request["path"] = operation.path.format(order_id=new_order.id)
        elif member in operation.path_names:
            request["path"] = operation.path.format(**{member: value})
        elif operation.query:
            request["query"] = f"?{member}={value}"
        else:
            request["body"] = changed(operation.example, member, value)
        if not operation.authenticated:
            request["body"] |= {"client_id": sandbox.client_id, "client_secret": sandbox.client_secret}
        response = await send(plain, operation, **request)
        assert (row["status"], row["code"]) == (response.status, response.code)
    assert len(operation.errors) == len(rows)


async def test_other_values_are_not_magic(client, order):
    """Only the codes of the operation itself; what is meant for a later operation does not stop this one."""
    for text in ("refuse", "refuse-", "refuse-nothing", "xrefuse-generic", "refuse-cancel-generic"):
        assert await client.orders.create(order(external_reference=text))


async def test_the_shape_of_errors_is_a_policy(start, plain_to):
    """One shape for all, or each API its own; the client reads every one of them."""
    members = {}
    for shape in ("per_api", "cause", "errors", "flat"):
        plain = plain_to(await start(policies={"error_shape": shape}))
        members[shape] = [
            (await plain("POST", "/v1/orders", {}, token="x")).json.keys(),
            (await plain("POST", "/v1/customers", {})).json.keys(),
            (await plain("POST", "/oauth/token", {})).json.keys(),
        ]

    cause = {"message", "error", "status", "cause"}
    assert [{"errors"}, cause, cause | {"code"}] == members["per_api"]
    assert [cause] * 3 == members["cause"]
    assert [{"errors"}] * 3 == members["errors"]
    assert [{"code", "message"}] * 3 == members["flat"]
