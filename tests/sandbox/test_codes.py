"""Every documented code can be produced, and is: by a magic value where there is one, by a rule everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paymentsdk import ErrorCode
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import FaultRule, Rejected, _app, _noun, _pipeline, _wire
from paymentsdk.sandbox._handlers import HANDLERS, ways
from paymentsdk.sandbox._noun import CAUSES
from paymentsdk.sandbox._pipeline import ReceivedRequest

CODES = [(operation, error) for operation in OPERATIONS.values() for error in operation.errors]
NAMES = [f"{operation.name}-{error.status}-{error.code}" for operation, error in CODES]


async def send(plain, operation, body: object = None, query: str = "", path: str = ""):
    """Send a request of *operation* that would do, but for what the test changes."""
    body = body if body is not None else operation.example
    path = path or operation.path.format_map(dict.fromkeys(operation.path_names, "ORD" + "0" * 26))
    return await plain(operation.method, path + query, body, key="k" if operation.keyed else None)


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
    """Status and code, in the shape that the client reads."""
    body = operation.example
    if not operation.authenticated:
        body = {**body, "client_id": sandbox.client_id, "client_secret": sandbox.client_secret}
    for error in operation.errors:
        rule = FaultRule(effect="refuse", operation=operation.name, status=error.status, code=error.code)
        with sandbox.faults.add(rule):
            response = await send(plain, operation, body)

        assert (error.status, error.code) == (response.status, response.code)
        assert error.meaning in response.raw.decode()


@pytest.mark.parametrize(
    ("operation", "error"),
    [pair for pair in CODES if HANDLERS[pair[0].name].magic],
    ids=[name for name, pair in zip(NAMES, CODES, strict=True) if HANDLERS[pair[0].name].magic],
)
async def test_a_magic_value_produces_every_code_of_its_operation(plain, client, sandbox, order, operation, error):  # noqa: PLR0917 - fixtures
    """In the member that the table names; operations on an order read the order's own reference."""
    handler = HANDLERS[operation.name]
    magic, value = handler.magic, handler.magic_value(error)
    member = magic.member
    if magic.later:
        new_order = await client.orders.create(order(external_reference=value))
        response = await send(plain, operation, path=operation.path.format(order_id=new_order.id))
    elif member in operation.path_names:
        response = await send(plain, operation, path=operation.path.format(**{member: value}))
    elif operation.query:
        response = await send(plain, operation, query=f"?{member}={value}")
    else:
        body = changed(operation.example, member, value)
        if not operation.authenticated:
            body |= {"client_id": sandbox.client_id, "client_secret": sandbox.client_secret}
        response = await send(plain, operation, body)

    assert (error.status, error.code) == (response.status, response.code)


@pytest.mark.parametrize("text", ["refuse", "refuse-", "refuse-nothing", "xrefuse-generic", "refuse-cancel-generic"])
async def test_other_values_are_not_magic(client, order, text):
    """Only the codes of the operation itself; what is meant for a later operation does not stop this one."""
    assert await client.orders.create(order(external_reference=text))


def test_every_code_has_a_way_to_be_produced():
    """The table that people read has a line for each code; without a way, this fails. A way names its member."""
    for operation, error in CODES:
        assert ways(HANDLERS[operation.name], error), (operation.name, error.code)
        handler = HANDLERS[operation.name]
        assert (handler.magic_value(error) is None) == (handler.magic is None)


def test_the_causes_of_all_operations_are_of_documented_codes():
    """Each cause names a documented code: a renamed code must not leave a cause behind."""
    assert set(CAUSES) <= {error.code for _, error in CODES}


def test_a_token_is_rejected_with_the_code_that_the_operation_documents(sandbox):
    """An operation with its own 401 code rejects a bad token with that code."""
    token_error = ErrorCode(401, "token_not_known", "the token is not known")
    operation = replace(OPERATIONS["plans.search"], errors=(token_error,))
    received = ReceivedRequest(operation=operation, authorization="Bearer x")

    with pytest.raises(Rejected) as rejected:
        _pipeline.authenticate(sandbox.platform, received, live_tokens=False)

    assert (401, "token_not_known") == (rejected.value.status, rejected.value.code)


@pytest.mark.parametrize("file", [_wire, _app, _pipeline, _noun])
def test_what_all_operations_share_knows_no_noun(file):
    """Which code a wrong member leads to, and in which shape, stands in the file of the noun, not in a table of all."""
    text = Path(file.__file__).read_text(encoding="utf-8")
    nouns = {name.partition(".")[0] for name in OPERATIONS}
    numbers = {error.code for _, error in CODES if error.code.isdigit()}

    assert [] == [noun for noun in nouns if f'"{noun}' in text]
    assert [] == [number for number in numbers if f'"{number}"' in text]


async def test_the_control_api_shows_the_table(plain):
    """Operation, status, code, and the ways to it."""
    rows = (await plain("GET", "/_sandbox/codes")).json

    assert len(CODES) == len(rows)
    assert all(row["ways"] for row in rows)


async def test_the_table_has_the_codes_of_operations_of_ones_own(start, plain_to):
    """The table lists the codes of your own operations and their causes, for the fault form of the dashboard."""
    spent = ErrorCode(409, "voucher_spent", "nothing is left")
    operation = replace(OPERATIONS["plans.get"], name="vouchers.get", path="/vouchers/{id}", errors=(spent,))
    plain = plain_to(await start(handlers={operation: lambda context, request: {}}))

    *contract_rows, row = (await plain("GET", "/_sandbox/codes")).json

    assert len(CODES) == len(contract_rows)
    assert ("vouchers.get", 409, "voucher_spent") == (row["operation"], row["status"], row["code"])
    assert ['FaultRule(operation="vouchers.get", effect="refuse", status=409, code="voucher_spent")'] == row["ways"]


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


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ([], "body: "),
        ({"type": 5}, "type: "),
        ({"type": "qr", "config": {"qr": {"mode": 5}}}, "config.qr.mode: "),
    ],
    ids=["the body", "a member", "below"],
)
async def test_a_rejection_names_the_place(plain, body, detail):
    """As a path without the `$` of JSON, or the body as a whole."""
    rejected = await plain("POST", "/v1/orders", body, key="k")

    assert 400 == rejected.status
    assert rejected.json["errors"][0]["details"][0].startswith(detail)


async def test_what_leads_to_a_code_is_told(plain):
    """The table lists the causes that all operations share, and those of one noun or one operation."""
    causes = {(row["operation"], row["code"]): row["ways"] for row in (await plain("GET", "/_sandbox/codes")).json}

    assert "no bearer token, or one that is unknown, revoked or has expired" == causes["orders.get", "unauthorized"][0]
    assert "no X-Idempotency-Key" == causes["orders.create", "empty_required_header"][0]
    assert "an unknown client_id, or a wrong client_secret" == causes["oauth.token", "invalid_client"][0]
    assert causes["oauth.token", "bad_request"][0].startswith("code: refuse-bad_request")
