"""What the sandbox keeps: threads, restarts, and the file of its database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count

import pytest
from msgspec.structs import replace

from paymentsdk.resources.orders import TypeResponse
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Platform, Sandbox


async def test_a_file_keeps_everything(tmp_path, connect, order):
    """Sellers, orders, keys, the ledger; identifiers do not come again, also with a seed."""
    path = str(tmp_path / "sandbox.db")
    new_orders = []
    for _ in range(2):
        async with Sandbox(db=path, seed=1) as sandbox, connect(sandbox) as client:
            new_orders.append(await client.orders.create(order(), idempotency_key="k"))
            new_orders.append(await client.orders.create(order()))
            assert (await client.orders.get(new_orders[1].id)).id == new_orders[1].id
            seller = sandbox.access_token

    first, second, third, fourth = new_orders
    assert first == third
    assert second.id != fourth.id
    assert 3 == len({new_order.id for new_order in new_orders})
    assert str(first.user_id) in seller


@pytest.mark.control("paymentsdk.sandbox._store.Store._decoded", lambda self, table, stored: table.decode(stored))
async def test_links_follow_the_address_of_a_restart(tmp_path, connect, order):
    """Codes, checkouts and plans of an earlier start lead to where the sandbox is now; nothing else changes."""
    path, dynamic = str(tmp_path / "sandbox.db"), {"qr": {"external_pos_id": "POS001", "mode": "dynamic"}}
    async with Sandbox(db=path, public_url="https://first.example.com") as sandbox, connect(sandbox) as client:
        second_seller = sandbox.create_tenant()
        coded, plain = await client.orders.create(order(config=dynamic)), await client.orders.create(order())
        new_preference = await client.preferences.create(PreferenceRequest(items=[PreferenceItemRequest(title="Lamp")]))
        plan = await client.plans.get(sandbox.plan_id)

    async with (
        Sandbox(db=path) as sandbox,
        connect(sandbox) as client,
        connect(sandbox, second_seller) as second_client,
    ):
        here = sandbox.base_url
        orders = [await client.orders.get(new_order.id) for new_order in (coded, plain)]
        preference = sandbox.buyer.open_checkout(new_preference.id)[0]
        plans = [await client.plans.get(plan.id), await second_client.plans.get(second_seller.plan_id)]

    assert [replace(coded, type_response=TypeResponse(qr_data=f"{here}/qr/{coded.id}")), plain] == orders
    assert (f"{here}/checkout/{new_preference.id}",) * 2 == (preference.init_point, preference.sandbox_init_point)
    assert [f"{here}/subscriptions/{subscription_plan.id}" for subscription_plan in plans] == [
        subscription_plan.init_point for subscription_plan in plans
    ]
    assert replace(plan, init_point=plans[0].init_point) == plans[0]


async def test_a_restart_gives_grants_that_work(tmp_path, connect):
    """A spent code and a spent refresh token are replaced; the access token stays."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        token = sandbox.access_token
        await client.oauth.exchange_code(sandbox.authorization_code)
        await client.oauth.refresh(sandbox.refresh_token)
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        assert token == sandbox.access_token
        assert await client.oauth.exchange_code(sandbox.authorization_code)
        assert await client.oauth.refresh(sandbox.refresh_token)


async def test_one_sandbox_uses_a_file(tmp_path):
    """A second one says so; when the first has ended, it may."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path):
        with pytest.raises(OSError, match="another sandbox uses it"):
            Sandbox(db=path)
    async with Sandbox(db=path):
        pass


def test_a_file_that_is_no_sandbox_is_rejected(tmp_path):
    """Something else in it, a directory that is not there, or the database of another program, which stays as it is.

    A table of the other program may have a name that the sandbox uses.
    """
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_bytes(b"not a database, but a text that is long enough to be looked at")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE orders (a, b, c)")
    before = other.read_bytes()

    for path, words in (
        (text, "cannot use"),
        (tmp_path / "x" / "sandbox.db", "cannot use"),
        (other, "another program"),
    ):
        with pytest.raises(OSError, match=words):
            Sandbox(db=str(path))
    assert before == other.read_bytes()


@pytest.mark.control("paymentsdk.sandbox._store.Store.unused", lambda self, noun, number: number())
async def test_no_number_is_given_twice(sandbox, client, order, monkeypatch):
    """A new seller, merchant order or invoice never takes the place of another, however often chance repeats itself."""
    fours = count()
    monkeypatch.setattr(
        type(sandbox.platform.ids), "number", lambda _, digits=10: 10 ** (digits - 1) + next(fours) // 4
    )

    sellers = {sandbox.create_tenant().user_id for _ in range(5)}
    for _ in range(5):
        sandbox.buyer.pay(await client.orders.create(order()))
        sandbox.buyer.subscribe()
    sold, invoices = await client.merchant_orders.search().collect(), await client.invoices.search().collect()

    assert [5, 5, 5] == [len(sellers), len(sold), len({invoice.preapproval_id for invoice in invoices})]


def test_a_file_has_a_write_ahead_log(tmp_path):
    """Without a journal a kill amid a commit would leave a half of it, and a rollback would undo nothing."""
    with closing(Platform(db=str(tmp_path / "sandbox.db"))) as platform:
        connection = platform.store._connection
        modes = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert ["wal", 1] == modes
