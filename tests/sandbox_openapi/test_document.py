"""The OpenAPI document: valid, whole, true to what the sandbox sends, and without a secret."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec import inspect
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from paymentsdk import OPERATIONS, PaymentsClient
from paymentsdk.resources.plans import Plan
from paymentsdk.sandbox import Sandbox
from tests.contract.calls import arguments_of
from tests.resources.members import declared

NAME = "urn:document"


def document(path: str = "/openapi.json", **options: object) -> dict[str, Any]:
    """Return the document that a sandbox with *options* serves."""
    with Sandbox(**options).in_thread() as sandbox, urlopen(sandbox.base_url + path, timeout=10) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def described() -> dict[str, object]:
    """The document as a program reads it."""
    return document()


def check(described: dict[str, object], schema: object, value: object) -> list[str]:
    """What is wrong with *value* by *schema*, or by the schema of this name; formats count."""
    rule = schema if isinstance(schema, dict) else {"$ref": f"#/components/schemas/{schema}"}
    text = msgspec.json.encode(rule).decode().replace('"#/components', f'"{NAME}#/components')
    registry = Registry().with_resource(NAME, Resource(described, DRAFT202012))
    options = {"registry": registry, "format_checker": Draft202012Validator.FORMAT_CHECKER}
    validator = Draft202012Validator(msgspec.json.decode(text), **options)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def test_every_operation_is_in_it_with_its_codes(described):
    """Its path, method, summary, parameters and body; every documented code stands at its status."""
    for name, operation in OPERATIONS.items():
        entry = described["paths"][operation.path][operation.method.lower()]

        assert (name, operation.summary) == (entry["operationId"], entry["summary"])
        expected = {("path", parameter) for parameter in operation.path_names}
        expected |= {("query", parameter) for parameter in getattr(operation.query, "__annotations__", ())}
        expected |= {("header", parameter) for parameter in operation.headers}
        expected |= {("header", "X-Idempotency-Key")} if operation.keyed else set()
        assert expected == {(parameter["in"], parameter["name"]) for parameter in entry["parameters"]}
        assert (operation.body is not None) == ("requestBody" in entry)
        assert ([] if not operation.authenticated else None) == entry.get("security")
        assert str(operation.status) in entry["responses"]
        assert operation.authenticated == ("403" in entry["responses"])
        for error in operation.errors:
            assert f"`{error.code}`: {error.meaning}" in entry["responses"][str(error.status)]["description"]


def test_every_member_of_every_struct_is_in_it(described):
    """Under its name on the wire; the contract requires some that have a default, since the SDK fills them in."""
    schemas = described["components"]["schemas"]
    kinds = {kind for operation in OPERATIONS.values() for kind in (operation.body, operation.result) if kind}
    members = {member for kind in kinds for member in declared(inspect.type_info(kind))}

    assert members <= {(name, member) for name, schema in schemas.items() for member in schema.get("properties", ())}
    assert {"type", "external_reference", "total_amount", "transactions"} == {*schemas["OrderRequest"]["required"]}
    assert ["email"] == schemas["CustomerRequest"]["required"]


def test_every_example_is_valid(described):
    """Each example follows the schema that it stands beside."""
    for operation in (operation for operation in OPERATIONS.values() if operation.body):
        body = described["paths"][operation.path][operation.method.lower()]["requestBody"]
        content = body["content"]["application/json"]

        assert {"$ref": f"#/components/schemas/{operation.body.__name__}"} == content["schema"]
        assert [] == check(described, operation.body.__name__, content["example"])


WRONG = [
    ("OrderRequest", {"total_amount": "0.00"}),
    ("OrderRequest", {"total_amount": "50.0"}),
    ("OrderRequest", {"total_amount": 50}),
    ("OrderRequest", {"external_reference": "a b"}),
    ("OrderRequest", {"notification_url": "https://shop.example.com"}),
    ("PreferenceRequest", {"items": []}),
    ("PreferenceRequest", {"marketplace_fee": -1}),
    ("CustomerRequest", {"email": "ana"}),
    ("WalletPaymentRequest", {"wallet_payment": {"transaction_amount": 0}}),
]


@pytest.mark.parametrize(("schema", "change"), WRONG)
def test_what_the_sandbox_rejects_is_invalid(described, schema, change):
    """The rules of members are in the document, also those that msgspec does not write into it."""
    example = next(
        operation.example for operation in OPERATIONS.values() if operation.body and operation.body.__name__ == schema
    )
    assert [] == check(described, schema, msgspec.to_builtins(example))

    assert check(described, schema, {**msgspec.to_builtins(example), **change})


#: Rules that no type expresses, as the document writes them.
RULES = [
    {"type": "string", "pattern": "^ORD[0-9A-Za-z]{26}$"},
    {"type": "string", "pattern": "^[0-9]+$"},
    {"type": "string", "format": "duration"},
    {"anyOf": [{"anyOf": [{"type": "string", "format": "date-time"}, {"const": ""}]}, {"type": "null"}]},
    {"enum": ["asc", "desc"]},
    {"enum": sorted({*Plan.__struct_fields__} - {"auto_recurring", "payment_methods_allowed"})},
]


def test_policies_are_in_it():
    """The longest key and the members of a customer are those of the sandbox's policies."""
    described = document(policies={"max_key_length": 64, "customer_required": "five"})

    key = described["paths"]["/v1/orders"]["post"]["parameters"][-1]
    assert 64 == key["schema"]["maxLength"]
    schemas = described["components"]["schemas"]
    assert 5 == len(schemas["CustomerRequest"]["required"])
    assert ["transaction_amount"] == schemas["WalletChargeRequest"]["required"]


async def test_it_is_served_without_a_token_or_a_secret():
    """At /openapi.json, with the address it was asked at; no credential of the sandbox, no path of the machine."""
    async with Sandbox() as sandbox, aiohttp.ClientSession() as session:
        async with session.get(f"{sandbox.base_url}/openapi.json") as response:
            text = await response.text()
        info = sandbox.describe()

    assert (200, "application/json") == (response.status, response.content_type)
    assert [{"url": sandbox.base_url}] == json.loads(text)["servers"]
    secrets = (info.access_token, info.client_secret, info.authorization_code, info.refresh_token)
    paths = (str(Path(__file__).parent), os.path.dirname(os.__file__))  # noqa: PTH120
    assert not [private for private in (*secrets, *paths) if private in text]


async def test_responses_follow_the_document(described):
    """Real responses of every operation, and real rejections, of every shape; also the rules beyond types are in it."""
    assert [] == [rule for rule in RULES if str(rule)[:-1] not in str(described)]  # A text may follow.
    async with Sandbox(seed=1) as sandbox:
        answers = {name: await answer_of(name, sandbox) for name in OPERATIONS}
        rejected = await rejections(sandbox)

    responses = [(OPERATIONS[name].result.__name__, answer) for name, answer in answers.items()]
    responses += [("Error", rejection) for rejection in rejected]
    wrong = [
        (schema, answer, problems) for schema, answer in responses if (problems := check(described, schema, answer))
    ]
    assert not wrong
    # Negative control: a response with a member of another type does not pass.
    assert check(described, "Order", {**answers["orders.create"], "total_amount": 50})
    assert check(described, "Error", {"errors": [{"message": "no code"}]})


async def answer_of(name: str, sandbox: Sandbox) -> object:
    """What the sandbox responds when it carries an operation out."""
    info = sandbox.describe()
    async with PaymentsClient(info.access_token, base_url=info.base_url) as client:
        result = await client.call(OPERATIONS[name], **await arguments_of(name, sandbox, client))
    return msgspec.json.decode(result.raw)


async def rejections(sandbox: Sandbox) -> list[object]:
    """What the sandbox says when it does not."""
    missing = "ORD" + "0" * 26

    async def ask(name: str, body: object = None, **path: str):
        operation = OPERATIONS[name]
        headers = {"Authorization": f"Bearer {sandbox.access_token}", "X-Idempotency-Key": "k"}
        url = sandbox.base_url + operation.path.format(**path)
        async with (
            aiohttp.ClientSession() as session,
            session.request(operation.method, url, json=body, headers=headers) as response,
        ):
            assert response.status >= 400
            return await response.json()

    return [
        await ask("orders.get", order_id=missing),
        await ask("orders.create", {}),
        await ask("preferences.create", {"items": []}),
        await ask("oauth.token", {"grant_type": "password"}),
        await ask("plans.get", id="none"),
    ]


def suits_generators(described: dict[str, Any]) -> bool:
    """Whether nothing stands beside a reference, and no list of values closes a field that the platform sends."""
    status = described["components"]["schemas"]["OrderStatus"]
    is_open = status["type"] == "string" and "created" in status["x-extensible-enum"] and "enum" not in status
    return is_open and not re.findall(r'"\$ref":"[^"]*",', msgspec.json.encode(described).decode())


def test_it_suits_generators(described):
    """Tools make a class of each schema, and read values that are new."""
    assert suits_generators(described)
