"""The dashboard in a real browser: orders, the clock and faults, by mouse and by keyboard."""

from __future__ import annotations

import json
from decimal import Decimal

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


@pytest.mark.parametrize(
    ("qr", "words"),
    [
        ({"mode": "static", "external_pos_id": "POS001"}, "To be paid with the code of the point of sale POS001"),
        ({"mode": "static"}, "No code leads here: the order names no point of sale"),
    ],
)
async def test_a_card_says_what_code_the_buyer_scans(tab, sandbox, shop, qr, words) -> None:
    """That of the point of sale, where the order names one; no such code finds the others."""
    await shop.order(config={"qr": qr})
    await open_dashboard(tab, sandbox)

    await tab.until("document.querySelector('.card .code p') !== null")
    assert words == await text_of(tab, ".card .code p")


async def test_a_rejected_payment_is_told(tab, sandbox, shop) -> None:
    """The order shows nothing of it, so the page says it."""
    await shop.order()
    await open_dashboard(tab, sandbox)

    await tab.click("[data-act=rejected]")

    await tab.until("document.querySelector('#news').textContent === 'ticket-1: the payment was rejected'")
    assert 1 == await tab.run("document.querySelectorAll('.card').length")


@pytest.mark.parametrize(
    "policies",
    [
        {},
        {"partial_refund_detail": "refunded"},
        {"partial_refund_status": "processed", "partial_refund_detail": "accredited"},
    ],
    ids=["default", "refunded", "accredited"],
)
async def test_a_part_that_was_refunded_is_called_so(tab, sandbox, shop, policies) -> None:
    """Whatever the order itself says of it, which is a policy; once the rest is refunded as well, it is refunded."""
    sandbox.change_policies(policies)
    order = sandbox.buyer.pay(await shop.order())
    await open_dashboard(tab, sandbox)

    await shop.client.orders.refund(order.id, payment_id=order.payment.id, amount=Decimal("20.00"))
    await tab.until("document.querySelector('#news').textContent === 'ticket-1: Partly refunded'")
    await shop.client.orders.refund(order.id)
    await tab.until("document.querySelector('#news').textContent === 'ticket-1: Refunded'")

    # The row is drawn after the news is told.
    await tab.until("document.querySelector('#settled-rows tr').textContent.includes('ARS\\u00a050.00 refunded')")
    assert "Refunded" == await text_of(tab, "#settled-rows .state")


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


async def test_an_example_shows_how_it_looks(tab, sandbox) -> None:
    """One press creates an order through the API, as a program would."""
    await open_dashboard(tab, sandbox)

    await tab.click("[data-example]")

    await tab.until("document.querySelectorAll('.card').length === 1")
    await tab.until("document.querySelector('.requests .path')?.textContent === '/v1/orders'")
    assert [] == tab.problems


async def test_no_example_has_the_name_of_another(tab, sandbox, shop) -> None:
    """They go on from the last one, also when more were made than the page keeps."""
    await shop.order(external_reference="example-501")
    await open_dashboard(tab, sandbox)

    for number in (502, 503):
        await tab.click("[data-example]")
        await tab.until(f"document.querySelector('#orders').textContent.includes('example-{number}')")

    assert [] == tab.problems


async def test_the_dashboard_outlives_the_tokens(tab, sandbox) -> None:
    """After the 180 days of a token, one that can be used makes the example, and is shown for programs."""
    await open_dashboard(tab, sandbox)

    sandbox.clock.advance("P181D")

    await tab.until(f"document.querySelector('#exports').textContent.endsWith('={sandbox.access_token}')")
    await tab.click("[data-example]")
    await tab.until("document.querySelectorAll('.card').length === 1")
    assert [] == tab.problems


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


async def test_an_invalid_duration_is_rejected_in_words(tab, sandbox) -> None:
    """What the sandbox says about it stands under the field, belongs to it, and goes when it is repaired."""
    await open_dashboard(tab, sandbox)
    await tab.run("document.querySelector('#duration').value = 'soon'")

    await tab.click("#advance button")

    await tab.until("document.querySelector('#duration + .problem')?.textContent.includes('ISO 8601')")
    assert (await text_of(tab, ".problem")).startswith("'SOON' is not")
    assert await tab.run("document.querySelector('#duration').getAttribute('aria-describedby')") == "duration-problem"
    await tab.run("document.querySelector('#duration').value = 'PT1M'")
    await tab.click("#advance button")
    await tab.until("document.querySelector('.problem') === null")


async def test_a_rejected_change_is_not_announced(tab, sandbox) -> None:
    """A policy that is rejected says so under its input, and nothing says that it was done; one that is taken does."""
    await open_dashboard(tab, sandbox)
    await tab.click("[aria-labelledby=policies-title] summary")
    change = "(value) => { const one = document.querySelector('#policy-page_size'); one.value = value; "
    change += "one.dispatchEvent(new Event('change')); }"

    await tab.run(f"({change})('0')")
    await tab.until("document.querySelector('#policy-page_size + .problem') !== null")

    assert (await text_of(tab, ".problem")).startswith("Expected `int` >= 1 - at `$.page_size`; ")
    assert "" == await text_of(tab, "#news")
    assert 30 == sandbox.policies.page_size
    await tab.run(f"({change})('7')")
    await tab.until("document.querySelector('#news').textContent === 'page_size: 7'")
    assert 7 == sandbox.policies.page_size


async def test_a_rejected_fault_is_said_at_its_field(tab, sandbox) -> None:
    """What the form itself lets through is rejected by the sandbox, by name."""
    await open_dashboard(tab, sandbox)
    await tab.click("aside details summary")
    await tab.run("document.querySelector('#add-fault').noValidate = true")
    await tab.run("document.querySelector('#fault-times').value = '0'")

    await tab.click("#add-fault button")

    await tab.until("document.querySelector('#fault-times + .problem')?.textContent.includes('times')")
    assert "" == await text_of(tab, "#news")
    assert () == sandbox.faults.list()


async def test_a_clock_that_cannot_be_asked_is_not_said_to_run(tab, sandbox, monkeypatch) -> None:
    """The sandbox's own words are said, and not that the clock runs."""

    def reject(*_: object) -> None:
        raise ValueError("not now")

    await open_dashboard(tab, sandbox)
    monkeypatch.setattr(sandbox.clock, "resume", reject)

    await tab.click("#freeze")

    await tab.until("document.querySelector('#news').textContent === 'not now'")
    assert "Frozen" == await text_of(tab, "#clock-state")


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_far_expiry_is_asked_about(tab, sandbox, shop, confirmed: bool) -> None:
    """The button says how far it moves the clock, which is everybody's; above a day it asks before it does."""
    await shop.order(expiration_time="PT3600H")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('[data-act=expire]') !== null")
    await tab.run(f"window.confirm = (words) => {{ window.asked = words; return {json.dumps(confirmed)}; }}")
    assert "Advance to its expiry (150 days)" == await text_of(tab, "[data-act=expire]")
    before = sandbox.clock.now()

    await tab.click("[data-act=expire]")

    await tab.until("window.asked?.includes('150 days for every seller')")
    if confirmed:
        await tab.until("document.querySelectorAll('#settled-rows tr').length === 1")
    else:
        assert before == sandbox.clock.now()


async def test_a_moment_of_another_day_has_its_date(tab, sandbox, shop) -> None:
    """A time of day alone is today's; when the day turns, what is shown already gets its date."""
    order = await shop.order()
    sandbox.buyer.pay(order)
    await open_dashboard(tab, sandbox)
    row = "document.querySelector('#settled-rows time')"
    await tab.until(f"{row} !== null")
    day = f"{row}.querySelector('.day').checkVisibility()"
    assert not await tab.run(day)

    sandbox.clock.advance("P1D")

    await tab.until(day)
    assert f"{order.created_date:%Y-%m-%d}" in await tab.run(f"{row}.innerText")
    assert await tab.run("document.querySelector('.requests time .day').checkVisibility()")


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


async def test_a_fault_says_all_that_it_is_and_when_it_is_spent(tab, sandbox, shop) -> None:
    """Which requests it hits, how often, for how long; a rule that can hit no more is marked, and counted apart."""
    seller = sandbox.tenant.user_id
    sandbox.faults.add(FaultRule(effect="delay_after_commit", seconds=0.5, tenant=seller, probability=0.25))
    sandbox.faults.add(FaultRule(effect="html", operation="plans.*", nth=2, status=503))
    sandbox.faults.add(FaultRule(effect="refuse", operation="orders.create", times=1, code="pos_not_found"))
    with pytest.raises(Exception, match="pos_not_found"):
        await shop.order()

    await open_dashboard(tab, sandbox)

    await tab.until("document.querySelectorAll('#faults li').length === 3")
    rows = await tab.run("JSON.stringify([...document.querySelectorAll('#faults li')].map((one) => one.innerText))")
    late, gateway, rejected = json.loads(rows)
    assert f"any operation, seller {seller}, 25 % of them, 0.5 s, hit " in late
    assert "plans.*, only request 2, status 503, hit 0" in gateway
    assert "orders.create, pos_not_found, hit 1 of 1" in rejected
    assert ["Spent" in row for row in (late, gateway, rejected)] == [False, False, True]
    assert "2 in force, 1 spent" == await text_of(tab, "#fault-count")


@pytest.mark.parametrize(
    ("share", "words"), [(0.00004, "0.004 %"), (0.07, "7 %"), (0.125, "12.5 %"), (0.99996, "99.996 %")]
)
async def test_a_share_is_shown_as_it_is(tab, sandbox, share, words) -> None:
    """However small or large: what hits some requests says neither none nor all of them."""
    sandbox.faults.add(FaultRule(effect="hang", probability=share))
    await open_dashboard(tab, sandbox)

    await tab.until("document.querySelectorAll('#faults li').length === 1")
    assert f"any operation, {words} of them" in await text_of(tab, "#faults li")


async def test_amounts_are_compared_to_the_cent(tab, sandbox, shop) -> None:
    """A cent that is left of an amount beyond the numbers of a script is left; `50` and `50.00` are one amount."""
    largest = await shop.order("999999999999999999.99")
    sandbox.buyer.pay(largest)
    remainder = Decimal("999999999999999999.98")
    await shop.client.orders.refund(largest.id, payment_id=largest.payment.id, amount=remainder)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('#settled-rows tr').length === 1")
    assert "Partly refunded" == await text_of(tab, "#settled-rows .state")

    sandbox.buyer.pay(await shop.order("50.00", transactions={"payments": [{"amount": "50"}]}))
    await tab.until("document.querySelectorAll('#settled-rows tr').length === 2")
    assert "ARS\N{NO-BREAK SPACE}50.00" == await text_of(tab, "#settled-rows tr td:nth-child(3)")
