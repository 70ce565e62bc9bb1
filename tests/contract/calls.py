"""How each operation is called: its example, and what that needs. Whoever adds an operation is tested with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from paymentsdk import OPERATIONS, PaymentsClient

if TYPE_CHECKING:
    from paymentsdk.sandbox import Sandbox  # The tests with the oldest dependencies have none.

Arguments = Mapping[str, object]


async def paid(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """A paid order, and the body of a partial refund of it."""
    order = await client.orders.create(body_of("orders.create"))
    payment = sandbox.buyer.pay(order.id).transactions.payments[0]
    return {
        "order_id": order.id,
        "body": body_of("orders.refund", transactions=[{"id": payment.id, "amount": "25.00"}]),
    }


async def refunded(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """An order that has members of everything that can happen to one."""
    refund = await paid(sandbox, client)
    await client.call(OPERATIONS["orders.refund"], **refund)
    return {"order_id": refund["order_id"]}


async def granted(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """The example of a grant, with the credentials and the code of this sandbox."""
    info = sandbox.describe()
    secrets = {"client_id": info.client_id, "client_secret": info.client_secret, "code": info.authorization_code}
    return {"body": body_of("oauth.token", **secrets)}


async def planned(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """The plan that every seller begins with."""
    return {"id": sandbox.describe().plan_id}


async def subscribed(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """Nothing; there is an invoice to be found."""
    sandbox.buyer.subscribe()
    return {}


async def bought(sandbox: Sandbox, client: PaymentsClient) -> Arguments:
    """Nothing; there is a merchant order to be found."""
    await paid(sandbox, client)
    return {}


#: What has to be there before an operation, and what it is called with besides its example. For most the example is
#: enough. An operation whose path has an id gets a thing that `create` of its noun has made.
BEFORE: Mapping[str, Callable[[Sandbox, PaymentsClient], Awaitable[Arguments]]] = {
    "oauth.token": granted,
    "invoices.search": subscribed,
    "plans.get": planned,
    "merchant_orders.search": bought,
    "orders.get": refunded,
    "orders.refund": paid,
}


async def arguments_of(name: str, sandbox: Sandbox, client: PaymentsClient) -> dict[str, object]:
    """What `client.call` takes with an operation, so that the sandbox carries it out."""
    arguments: dict[str, object] = {"body": body_of(name)}
    if before := BEFORE.get(name):
        arguments.update(await before(sandbox, client))
    elif ids := OPERATIONS[name].path_names:
        create = f"{name.partition('.')[0]}.create"
        assert create in OPERATIONS, f"say in BEFORE of tests/contract/calls.py what {name} needs"
        thing = (await client.call(OPERATIONS[create], body_of(create))).value
        arguments.update(dict.fromkeys(ids, thing.id))
    return arguments


def body_of(name: str, **members: object) -> object:
    """The example of an operation as its Struct, with *members* changed; ``None`` where it takes no body."""
    operation = OPERATIONS[name]
    return operation.body and msgspec.convert({**operation.example, **members}, operation.body)
