"""Checkout links and buyers in a real browser, and what other sites and other people's texts cannot do there."""

from __future__ import annotations

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


# --- texts from elsewhere --------------------------------------------------------------


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
