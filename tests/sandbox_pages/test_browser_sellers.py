"""The dashboard in a real browser: which seller is shown, merchant orders, the ledger, and which requests are shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.sandbox import FaultRule, WebhookRequest
from tests.sandbox_pages.browser_steps import open_dashboard, script, text_of
from tests.sandbox_pages.conftest import Shop

#: The texts of all panels that have rows of sellers.
ROWS = script("rows.js")


async def choose(tab, selector: str, value: object) -> None:
    """Choose an entry of a list."""
    find = f"document.querySelector('{selector}')"
    await tab.until(f"[...{find}.options].some((one) => one.value === '{value}' && !one.disabled)")
    await tab.run(f"(() => {{ {find}.value = '{value}'; {find}.dispatchEvent(new Event('change')); }})()")


@pytest.fixture
async def second_seller(sandbox):
    """A second seller, who has an order that was paid, one that waits, a preference, a delivery and a fault."""
    second_seller = sandbox.create_tenant(policies={"page_size": 7})
    sandbox.webhooks.add(WebhookRequest(url=f"{sandbox.base_url}/nothing/here"), tenant=second_seller)
    async with PaymentsClient(second_seller.access_token, base_url=sandbox.base_url) as client:
        shop = Shop(client)
        sandbox.buyer.pay(await shop.order("11.00", external_reference="other-paid"))
        await shop.order("12.00", external_reference="other-waits")
        await shop.preference(external_reference="other-link")
    sandbox.faults.add(FaultRule(effect="hang", operation="plans.search", tenant=second_seller.user_id))
    return second_seller


async def test_all_panels_show_the_chosen_seller(tab, sandbox, shop, second_seller) -> None:
    """Orders, links, deliveries, merchant orders, the ledger, requests, faults, and the token to connect with."""
    sandbox.buyer.pay(await shop.order(external_reference="first-paid"))
    await shop.preference(external_reference="first-link")
    await open_dashboard(tab, sandbox)
    await tab.until(f"{ROWS}.includes('other-link') && {ROWS}.includes('first-link')")
    await tab.until(f"{ROWS}.includes('Seller {second_seller.user_id}')")

    await choose(tab, "#seller", second_seller.user_id)
    await tab.until(f"!{ROWS}.includes('first-')")
    await tab.until(f"{ROWS}.includes('{second_seller.access_token}')")
    rows = await tab.run(ROWS)
    for words in ("other-paid", "other-waits", "other-link", "plans.search", "orders.paid", "Payment"):
        assert words in rows
    assert sandbox.access_token not in rows
    assert str(second_seller.user_id) == await tab.run("document.querySelector('#fault-tenant').value")
    await tab.until("document.querySelector('label[for=policy-page_size]').textContent.includes('chosen seller: 7')")

    await choose(tab, "#seller", sandbox.tenant.user_id)
    await tab.until(f"{ROWS}.includes('first-link') && !{ROWS}.includes('other-')")
    assert "plans.search" not in await tab.run(ROWS)
    assert [] == tab.problems


async def test_the_clock_of_the_chosen_seller_is_moved_alone(tab, sandbox, second_seller) -> None:
    """The panel shows their clock, and an order of theirs expires."""
    await open_dashboard(tab, sandbox)
    await choose(tab, "#seller", second_seller.user_id)
    await tab.until("document.querySelectorAll('.card').length === 1")

    await tab.click("[data-advance=PT15M]")

    await tab.until("document.querySelector('#settled-rows').textContent.includes('Expired')")
    assert timedelta(minutes=15) == sandbox.now(second_seller) - sandbox.clock.now()
    assert f"{sandbox.now(second_seller):%H:%M:%S}" == await text_of(tab, "#clock")
    sandbox.advance(second_seller, "PT1H")  # As a test does.
    await tab.until(f"document.querySelector('#clock').textContent === '{sandbox.now(second_seller):%H:%M:%S}'")
    await choose(tab, "#seller", "")
    await tab.until(f"document.querySelector('#clock').textContent === '{sandbox.clock.now():%H:%M:%S}'")
