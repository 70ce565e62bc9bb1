"""The dashboard in a real browser: orders, the clock and faults, by mouse and by keyboard."""

from __future__ import annotations

import pytest

from paymentsdk.sandbox import FaultRule
from tests.sandbox_pages.browser_steps import PAY, open_dashboard, text_of


async def test_an_order_appears_and_is_paid(tab, sandbox, shop) -> None:
    """Its card comes with its code and goes when it is paid, though nobody loads the page again."""
    await open_dashboard(tab, sandbox)
    assert "No order waits" in await text_of(tab, "#no-open h3")

    order = await shop.order("1250.00", description="Breakfast")
    await tab.until("document.querySelector('.card .code svg path') !== null")
    card = await text_of(tab, ".card")
    for text in ("Waiting", "ticket-1", "Breakfast", "ARS\N{NO-BREAK SPACE}1,250.00", "Expires in 15:00", order.id):
        assert text in card

    await tab.click("[data-act=approved]")
    await tab.until("document.querySelectorAll('#settled-rows tr').length === 1")

    row = await text_of(tab, "#settled-rows tr")
    assert "Paid" in row
    assert "processed, accredited" in row
    assert 0 == await tab.run("document.querySelectorAll('.card').length")
    assert "processed" == (await shop.client.orders.get(order.id)).status
    assert "ticket-1: Paid" == await text_of(tab, "#news")
    assert [] == tab.problems


async def test_everything_can_be_done_by_keyboard(tab, sandbox, shop) -> None:
    """From the top of the page to the button and back to the orders; what has the focus can be seen to have it."""
    await shop.order()
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.card') !== null")
    names = []
    for _ in range(6):
        await tab.press("Tab")
        names.append(await tab.run("document.activeElement.textContent.trim()"))
        assert "none" != await tab.run("getComputedStyle(document.activeElement).outlineStyle")
        if names[-1].startswith("Pay"):
            break
    assert ["Skip to the orders", "Create an example", PAY] == names

    await tab.press("Enter")

    await tab.until("document.querySelectorAll('#settled-rows tr').length === 1")
    # The card is gone, and whoever stood in it is not left nowhere.
    assert "orders" == await tab.run("document.activeElement.id")


async def test_the_clock_is_moved(tab, sandbox, shop) -> None:
    """By a step, by a duration, or up to the moment at which an order expires; what happened meanwhile is said."""
    await shop.order()
    second_order = await shop.order(expiration_time="PT2H")
    await open_dashboard(tab, sandbox)
    assert "Frozen" == await text_of(tab, "#clock-state")

    await tab.click("[data-advance=PT15M]")
    await tab.until("document.querySelector('#happened').textContent === 'Meanwhile: 1 \u00d7 order.expired.'")
    await tab.until("document.querySelectorAll('.card').length === 1")
    await tab.until("document.querySelector('.card').textContent.includes('Expires in 1:45:00')")
    await tab.click("[data-act=expire]")
    await tab.until("document.querySelectorAll('#settled-rows tr').length === 2")
    await tab.run("document.querySelector('#duration').value = 'pt1m'")
    await tab.click("#advance button")
    await tab.until("document.querySelector('#happened').textContent === 'Nothing was due meanwhile.'")

    assert "expired" == (await shop.client.orders.get(second_order.id)).status
    await tab.click("#freeze")
    await tab.until("document.querySelector('#clock-state').textContent === 'Live'")
    assert not sandbox.clock.frozen


async def test_a_fault_is_put_in_force_and_taken_out(tab, sandbox, shop) -> None:
    """The rule is what the form says, its hits are counted, and a press removes it."""
    await open_dashboard(tab, sandbox)
    await tab.click("aside details summary")
    await tab.run("document.querySelector('#fault-effect').value = 'refuse'")
    await tab.run("document.querySelector('#fault-effect').dispatchEvent(new Event('change'))")
    await tab.run("document.querySelector('#fault-operation').value = 'orders.create'")
    await tab.run("document.querySelector('#fault-code').value = 'pos_not_found'")
    await tab.run("document.querySelector('#fault-probability').value = '1'")
    await tab.run(f"document.querySelector('#fault-tenant').value = '{sandbox.tenant.user_id}'")
    assert await tab.run("document.querySelector('#fault-seconds').closest('p').hidden")
    await tab.click("#add-fault button")
    await tab.until("document.querySelectorAll('#faults li').length === 1")
    [added] = sandbox.faults.list()
    members = {"operation": "orders.create", "code": "pos_not_found", "tenant": sandbox.tenant.user_id}
    assert FaultRule(effect="refuse", times=1, **members) == added.rule

    with pytest.raises(Exception, match="pos_not_found"):
        await shop.order()
    await tab.until("document.querySelector('#faults li').textContent.includes('hit 1 of 1')")
    await tab.until("document.querySelector('.requests li')?.textContent.includes('refuse')")
    await tab.click("#faults button")

    await tab.until("document.querySelector('#fault-count').textContent === 'None'")
    assert () == sandbox.faults.list()
