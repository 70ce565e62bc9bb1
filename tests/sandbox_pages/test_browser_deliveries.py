"""The panel with the deliveries of notifications, in a real browser."""

from __future__ import annotations

from paymentsdk.sandbox import FaultRule, WebhookRequest
from tests.sandbox_pages.browser_steps import open_dashboard
from tests.sandbox_pages.test_browser_looks import BROKEN_UP, FAINT

ROWS = "document.querySelectorAll('#delivery-rows li')"


async def test_deliveries_can_be_read_and_sent_once_more(tab, sandbox, shop, until) -> None:
    """Each with its state and why it failed; a button sends it again, and keeps the focus."""
    url = f"{sandbox.base_url}/nothing/here"
    sandbox.webhooks.add(WebhookRequest(url=url))
    await tab.look(390, 800)
    await open_dashboard(tab, sandbox)
    with sandbox.faults.add(FaultRule(effect="lost", times=1)):
        order = await shop.order()
        sandbox.buyer.pay(order)
        await tab.until(f"{ROWS}.length === 2")
        await until(lambda: ["failed", "lost"] == [row.status for row in sandbox.webhooks.deliveries()])
    await tab.until("document.querySelector('#delivery-rows').textContent.includes('Failed')")

    words = await tab.run("document.querySelector('#delivery-rows').innerText")
    assert words.index("orders.paid") < words.index("404") < words.index("orders.created") < words.index("Lost")
    assert 390 == await tab.run("document.documentElement.scrollWidth")
    assert "" == await tab.run(BROKEN_UP)
    assert "" == await tab.run(FAINT)
    names = await tab.run("[...document.querySelectorAll('#delivery-rows button')].map((one) => one.ariaLabel)")
    assert [f"Redeliver orders.{action} of {order.id}" for action in ("paid", "created")] == names

    await tab.click("#delivery-rows li:last-child button")
    await until(lambda: "failed" == sandbox.webhooks.deliveries()[1].status)
    await tab.until("!document.querySelector('#delivery-rows').textContent.includes('Lost')")
    assert await tab.run("document.querySelector('#delivery-rows').contains(document.activeElement)")
