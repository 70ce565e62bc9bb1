"""The dashboard in a real browser: which seller is shown, merchant orders, the ledger, and which requests are shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.sandbox import FaultRule, WebhookRequest
from tests.sandbox_pages.browser_steps import open_dashboard, text_of
from tests.sandbox_pages.conftest import Shop
from tests.sandbox_pages.test_browser_looks import BROKEN_UP, FAINT, SCREENS

#: The texts of all panels that have rows of sellers.
ROWS = """[...document.querySelectorAll(
  '#open, #settled-rows, #checkout-rows, #delivery-rows, #merchant-orders-rows, #ledger-rows, #faults, ' +
  '#requests, #exports'
)].map((list) => list.innerText).join("\\n")"""
#: What is too small for a thumb: below 24 pixels, as WCAG 2.2 asks for at level AA.
SMALL = """[...document.querySelectorAll("main a, button, summary, input, select")]
  .filter((one) => one.checkVisibility())
  .filter((one) => Math.min(one.getBoundingClientRect().width, one.getBoundingClientRect().height) < 24)
  .map((one) => one.outerHTML).join("; ")"""


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


async def test_a_single_seller_needs_no_choice(tab, sandbox, shop) -> None:
    """Nor is a panel there for merchant orders or for the ledger before anything has happened."""
    await open_dashboard(tab, sandbox)

    assert await tab.run("document.querySelector('#sellers').hidden")
    assert await tab.run("['merchant-orders', 'ledger'].every((id) => document.getElementById(id).hidden)")


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


async def test_what_happens_to_another_seller_is_not_shown(tab, sandbox, shop, second_seller) -> None:
    """No card, no row and no news of it comes, and none is lost when all sellers are shown again."""
    await open_dashboard(tab, sandbox)
    await choose(tab, "#seller", second_seller.user_id)
    await tab.until("document.querySelectorAll('.card').length === 1")

    await shop.order(external_reference="first-new")
    async with PaymentsClient(second_seller.access_token, base_url=sandbox.base_url) as client:
        await Shop(client).order(external_reference="other-new")
    await tab.until(f"{ROWS}.includes('other-new')")
    assert "first-new" not in await tab.run(ROWS)
    assert "other-new: Waiting" == await text_of(tab, "#news")

    await choose(tab, "#seller", "")
    await tab.until(f"{ROWS}.includes('first-new') && {ROWS}.includes('other-new')")


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


async def test_a_new_seller_can_be_chosen(tab, sandbox) -> None:
    """Though nobody loads the page again; an example is theirs then."""
    await open_dashboard(tab, sandbox)
    second_seller = sandbox.create_tenant()

    await choose(tab, "#seller", second_seller.user_id)
    await tab.click("[data-example]")

    await tab.until("document.querySelectorAll('.card').length === 1")
    assert {second_seller.user_id} == {entry.tenant for entry in sandbox.ledger()}


async def test_merchant_orders_and_the_ledger_follow_what_happens(tab, sandbox, shop) -> None:
    """A payment is a merchant order and a line; money that goes back has its sign."""
    await open_dashboard(tab, sandbox)
    order = sandbox.buyer.pay(await shop.order("1250.00", external_reference="table-4"))

    await tab.until("document.querySelector('#merchant-orders-rows').textContent.includes('Paid')")
    await tab.until("document.querySelectorAll('#ledger-rows li').length === 2")
    row = await text_of(tab, "#merchant-orders-rows li")
    assert "table-4" in row
    assert order.id in row
    assert "ARS\N{NO-BREAK SPACE}1,250.00" in row

    await shop.client.orders.refund(order.id)

    await tab.until("document.querySelector('#ledger-rows li').textContent.startsWith('Refund')")
    assert "ARS\N{NO-BREAK SPACE}-1,250.00" in await text_of(tab, "#ledger-rows li")
    await tab.until("document.querySelector('#merchant-orders-rows').textContent.includes('Refunded')")


async def test_requests_are_filtered_by_status(tab, sandbox, shop, visitor) -> None:
    """Those that come later as well; where none has the status, the panel says so."""
    await shop.order()
    await open_dashboard(tab, sandbox)
    await choose(tab, "#statuses", "4")
    await tab.until("document.querySelector('#no-requests').textContent === 'None of the last 1 requests match.'")

    await visitor.get("/v1/nothing", Accept="*/*")
    await shop.order()
    await tab.until("document.querySelector('#requests .path')?.textContent === '/v1/nothing'")
    assert 1 == await tab.run("document.querySelectorAll('#requests li').length")

    await choose(tab, "#statuses", "")
    await tab.until("document.querySelectorAll('#requests li').length === 3")


async def test_requests_are_downloaded(tab, sandbox, shop) -> None:
    """The link leads to the HTTP archive, and a browser saves it as a file."""
    await shop.order()
    await open_dashboard(tab, sandbox)

    link = "document.querySelector('[aria-labelledby=requests-title] a')"
    assert "requests.har" == await tab.run(f"{link}.download")
    assert "1.2" == await tab.run(f"fetch({link}.href).then((r) => r.json()).then((har) => har.log.version)")


async def test_the_form_knows_where_each_fault_can_happen(tab, sandbox) -> None:
    """A fault of notifications is offered their topics, one of a walk its search, and any other the operations."""
    await open_dashboard(tab, sandbox)
    offered = (
        "[...document.querySelector('#fault-operation').options].filter((one) => !one.hidden).map((one) => one.value)"
    )
    await tab.until(f"{offered}.includes('orders.create')")
    assert not [name for name in await tab.run(offered) if name.startswith("notifications.")]

    await choose(tab, "#fault-effect", "row_deleted")
    assert ["merchant_orders.search"] == await tab.run(offered)
    await choose(tab, "#fault-effect", "lost")
    names = [f"notifications.{topic}" for topic in ("*", "orders", "payments", "merchant_orders")]
    assert names == await tab.run(offered)
    await tab.click("[aria-labelledby=faults-title] summary")
    await tab.click("#add-fault button")
    await tab.until("document.querySelector('#faults').textContent.includes('any notification')")
    await choose(tab, "#fault-operation", "notifications.payments")
    await tab.click("#add-fault button")
    await tab.until("document.querySelectorAll('#faults li').length === 2")
    assert ["notifications.*", "notifications.payments"] == [fault.rule.operation for fault in sandbox.faults.list()]

    await choose(tab, "#fault-effect", "hang")
    assert "*" == await tab.run("document.querySelector('#fault-operation').value")


@pytest.mark.usefixtures("second_seller")
@pytest.mark.parametrize(("width", "dark"), SCREENS.values(), ids=SCREENS)
async def test_the_new_panels_fit_and_can_be_pressed(tab, sandbox, shop, width: int, dark: bool) -> None:
    """Also with large amounts and long names; no target is below 24 pixels."""
    sandbox.buyer.pay(await shop.order("123456789012345678.00", external_reference="r" * 64))
    await tab.look(width, 800, dark=dark)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('#ledger-rows li').length > 4")
    await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert width == await tab.run("document.documentElement.scrollWidth")
    assert "" == await tab.run(SMALL)
    assert "" == await tab.run(FAINT)
    assert "" == await tab.run(BROKEN_UP)
