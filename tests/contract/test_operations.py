"""Every operation, through the real client, against the sandbox: what one side says, the other understands whole."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pytest

from paymentsdk import OPERATIONS, Operation, PaymentsClient
from paymentsdk.sandbox import Sandbox
from tests.contract.calls import arguments_of, body_of
from tests.contract.conftest import READINGS


def declaration(operation: Operation) -> list[object]:
    """Return the fields of *operation*; an operation in it stands for itself by its name."""
    values = [getattr(operation, each.name) for each in fields(operation)]
    return [value.name if isinstance(value, Operation) else value for value in values]


def test_an_operation_can_be_sent_to_another_process():
    """As well after its use as before: it is the same declaration there, and reads and writes alike."""
    for operation in [*OPERATIONS.values(), OPERATIONS["orders.create"]]:
        assert [operation.decoder, operation.query_encoder, operation.encoder, operation.meanings]

        for copied in (copy.deepcopy(operation), pickle.loads(pickle.dumps(operation))):
            assert declaration(operation) == declaration(copied)
    body = msgspec.convert(operation.example, operation.body, strict=False)
    assert operation.encoder.encode(body) == copied.encoder.encode(body)


def differing(sent: object, value: object, path: str = "$") -> list[str]:
    """Return the paths at which the client read another *value* than the sandbox *sent*."""
    match sent:
        case dict():
            members = value if isinstance(value, dict) else {}
            return [at for name in sent for at in differing(sent[name], members.get(name), f"{path}.{name}")]
        case list():
            items = value if isinstance(value, list | tuple) and len(value) == len(sent) else [None] * len(sent)
            return [at for i, item in enumerate(sent) for at in differing(item, items[i], f"{path}[{i}]")]
    match value:
        case datetime():
            sent = datetime.fromisoformat(sent)
            sent = sent if sent.tzinfo else sent.replace(tzinfo=UTC)  # A day alone.
        case date():
            sent = date.fromisoformat(sent[:10])
        case Decimal():
            sent = Decimal(str(sent))
    return [] if sent == value else [path]


@pytest.mark.parametrize("policies", READINGS, indirect=True)
async def test_an_example_is_carried_out_and_its_response_understood(sandbox, client):
    """The documented status, a request id, no anomaly, no false mismatch, and not a member lost on the way."""
    for name, operation in OPERATIONS.items():
        result = await client.call(operation, **await arguments_of(name, sandbox, client))

        assert (name, operation.status, 1, ()) == (name, result.status, result.attempts, result.anomalies)
        assert result.headers["X-Request-Id"].startswith("req-")
        assert "application/json" == result.headers["Content-Type"]
        value = msgspec.to_builtins(result.value, builtin_types=(date, datetime, Decimal))
        assert [] == differing(msgspec.json.decode(result.raw), value), name


async def test_a_keyed_write_sent_twice_is_one(sandbox, client):
    """The second response is the first one byte for byte, and the ledger has not grown."""
    for name, operation in OPERATIONS.items():
        if operation.keyed:
            arguments = {**await arguments_of(name, sandbox, client), "idempotency_key": name}

            first = await client.call(operation, **arguments)
            effects = sandbox.ledger()
            second = await client.call(operation, **arguments)

            assert (first.status, first.raw) == (second.status, second.raw)
            assert effects == sandbox.ledger()


ROWS = 11


async def invoices_of(sandbox: Sandbox, client: PaymentsClient) -> None:
    """Each subscription has an invoice that is collected at once, and the one after it."""
    for _ in range(ROWS):
        sandbox.buyer.subscribe()


async def merchant_orders_of(sandbox: Sandbox, client: PaymentsClient) -> None:
    """Each paid order is one."""
    for number in range(ROWS):
        members = {"external_reference": f"ticket-{number}"}
        sandbox.buyer.pay((await client.orders.create(body_of("orders.create", **members))).id)


@pytest.mark.parametrize(
    ("noun", "make", "prefetch"), [("invoices", invoices_of, 1), ("merchant_orders", merchant_orders_of, 3)]
)
async def test_a_search_is_walked_whole(noun, make, prefetch, sandbox, client):
    """Every row once, in order, whatever size of page is asked for, capped or left open; resumed, the rest of them."""
    await make(sandbox, client)
    sandbox.platform.change_policies({"page_size": 4, "max_page_size": 5})
    search = getattr(client, noun).search

    whole = [row.id async for row in search(prefetch=prefetch)]

    assert ROWS <= len(whole) == len(set(whole))
    assert whole == [row.id async for row in search(page_size=3, prefetch=prefetch)]
    assert whole == [row.id async for row in search(page_size=50, prefetch=prefetch)], "the sandbox gives 5 at most"
    assert whole[7:] == [row.id async for row in search(start=7, prefetch=prefetch)]
    assert whole[:2] == [row.id for row in await search(prefetch=prefetch).collect(limit=2)]
    assert [] == [row.id async for row in search(start=len(whole), prefetch=prefetch)]
