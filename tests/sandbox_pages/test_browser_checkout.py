"""Checkout links and buyers in a real browser, and what other sites and other people's texts cannot do there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from aiohttp import web

from tests.sandbox_pages.browser_steps import open_dashboard, text_of


async def test_a_checkout_link_is_paid(tab, sandbox, shop) -> None:
    """It says what it asks for and what it has come to; one press has the buyer pay, and the focus stays near."""
    preference = await shop.preference(shipments={"cost": "10"})
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#checkout-rows button') !== null")
    assert "ARS\N{NO-BREAK SPACE}130.50" == await text_of(tab, "#checkout-rows .money")

    await tab.click("#checkout-rows button")

    await tab.until("document.querySelector('#checkout-rows .state')?.textContent === 'Paid'")
    [paid] = await shop.client.merchant_orders.search(preference_id=preference.id).collect()
    assert "closed" == paid.status
    assert "checkouts" == await tab.run("document.activeElement.id")
    sandbox.buyer.refund_merchant_order(paid.id)
    await tab.until("document.querySelector('#checkout-rows .state')?.textContent === 'Refunded'")


async def test_a_sandbox_that_ends_is_noticed(tab, sandbox) -> None:
    """The page says that it has lost the connection, and so does a button that needs it."""
    await open_dashboard(tab, sandbox)

    await sandbox.stop()

    await tab.until("document.querySelector('#link').textContent.trim() === 'Not connected'")
    await tab.click("[data-example]")
    assert await tab.until("document.querySelector('#news').textContent === 'The sandbox does not respond.'")


# --- the buyer ---------------------------------------------------------------------------------------------------


async def test_a_buyer_pays_without_scripts(tab, sandbox, shop) -> None:
    """Choose a method, choose installments, press the button: that is all."""
    order = await shop.order()
    await tab.look(360, 800, scripts=False)
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    assert not await tab.run("document.querySelector('.installments').checkVisibility()")

    await tab.click("input[value=credit_card]")
    await tab.until("document.querySelector('.installments').checkVisibility()")
    await tab.run("document.querySelector('#installments').value = '6'")
    await tab.click("form button.main")

    await tab.until("location.search === '?attempt=approved' && document.readyState === 'complete'")
    assert "Paid" == await text_of(tab, ".state")
    [payment] = (await shop.client.orders.get(order.id)).transactions.payments
    assert 6 == payment.payment_method.installments
    assert [] == tab.problems


async def test_a_buyer_pays_by_keyboard(tab, sandbox, shop) -> None:
    """Tab to the methods, arrow to another, Tab to the button, Enter."""
    order = await shop.order()
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    for key in ("Tab", "Tab", "ArrowDown", "Tab"):
        await tab.press(key)
        assert "none" != await tab.run("getComputedStyle(document.activeElement).outlineStyle")

    await tab.press("Enter")

    await tab.until("location.search === '?attempt=approved'")
    [payment] = (await shop.client.orders.get(order.id)).transactions.payments
    assert "debit_card" == payment.payment_method.type


# --- pages from elsewhere, and texts from elsewhere --------------------------------------------------------------


@pytest.fixture
async def elsewhere(sandbox) -> AsyncIterator[str]:
    """The address of another site, whose pages say what `?` says."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(
            text=f"<!doctype html><title>elsewhere</title>{request.query['html']}", content_type="text/html"
        )

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    # Another name of this machine is another site.
    yield f"http://localhost:{runner.addresses[0][1]}/?html="
    await runner.cleanup()


async def test_another_site_cannot_pay(tab, sandbox, shop, elsewhere) -> None:
    """Neither by a form that sends itself, nor by a request to the control API, nor by a page of ours in a frame."""
    order = await shop.order()
    page = f"{sandbox.base_url}/qr/{order.id}"
    await tab.open(elsewhere + quote(f"<form method=post action={page}></form>"))
    await tab.run("document.forms[0].submit()")
    await tab.until(f"location.href === '{page}' && document.readyState === 'complete'")
    assert "Not allowed" == await text_of(tab, "h1")

    await tab.open(elsewhere + "x")
    await tab.run(f"fetch('{sandbox.base_url}/_sandbox/orders/{order.id}/pay', {{method: 'POST', mode: 'no-cors'}})")
    await tab.open(elsewhere + quote(f"<iframe src={page}></iframe>"))

    assert any("frame-ancestors" in problem for problem in tab.problems)
    assert "created" == (await shop.client.orders.get(order.id)).status


async def evil_order_and_preference(shop, evil_copy) -> str:
    """Make an order and a preference of attacks, and return the address of the checkout."""
    attack = evil_copy("")
    item = {"title": attack, "unit_price": "50.00", "quantity": 1, "unit_measure": attack[:10]}
    await shop.order(description=attack, items=[item])
    items = [{"id": attack, "title": attack, "description": attack, "quantity": 1, "unit_price": "1.00"}]
    payer = {"first_name": attack, "last_name": attack, "email": attack}
    members = {"external_reference": attack, "additional_info": attack, "statement_descriptor": attack}
    preference = await shop.preference(items=items, payer=payer, **members)
    return preference.init_point


BROKEN = "document.documentElement.dataset.broken === 'yes'"


async def test_a_script_in_a_text_does_not_run(tab, sandbox, shop, evil_copy) -> None:
    """Not on the dashboard, which shows it in orders, links and requests, and not in the checkout."""
    checkout = await evil_order_and_preference(shop, evil_copy)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.card, #checkout-rows a').length === 2")
    await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    await tab.until("document.querySelectorAll('.requests pre').length === 4")
    assert "<script>" in await text_of(tab, ".card")
    assert not await tab.run(BROKEN)

    await tab.open(checkout)

    assert "<script>" in await text_of(tab, "h1")
    assert not await tab.run(BROKEN)
    assert [] == tab.problems
