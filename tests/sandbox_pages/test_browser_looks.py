"""How the pages look in a real browser: on a phone, in the dark, and to whoever cannot see them."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from paymentsdk.sandbox import FaultRule
from tests.sandbox_pages.browser_steps import PAY, open_dashboard

#: What a computer and a phone show, by day and by night.
SCREENS = {"wide": (1280, False), "wide-dark": (1280, True), "phone": (360, False), "phone-dark": (360, True)}

#: Texts whose contrast with what is behind them is below what WCAG asks for at level AA.
FAINT = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = numbers(colour).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const shown = element.checkVisibility() && element.getClientRects().length && !element.closest(":disabled");
    if (!walker.currentNode.data.trim() || !shown) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(style.color), light(behind(element))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const enough = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < enough) faint.push(`${walker.currentNode.data.trim()}: ${contrast.toFixed(2)}`);
  }
  return faint.join("; ");
})()"""


#: Times that are broken within, and amounts that stick out of their place.
BROKEN_UP = """(() => {
  const texts = [...document.querySelectorAll("time span, .amount, td .money")].filter((one) => one.checkVisibility());
  const right = (one) => one.getBoundingClientRect().right;
  const torn = (one) => one.matches("time span") && one.getClientRects().length > 1;
  const sticksOut = (one) => right(one) > right(one.closest(".what, td, li")) + 1;
  return texts.filter((one) => torn(one) || sticksOut(one)).map((one) => one.textContent).join("; ");
})()"""


async def every_page(sandbox, shop) -> list[str]:
    """The addresses of pages of every kind, with long words and large amounts on them."""
    items = [{"title": "W" * 150, "unit_price": "123456789.00", "quantity": 3, "unit_measure": "kilogramme"[:10]}]
    discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "360000000.00"}]}
    order = await shop.order("370370367.00", items=items, description="V" * 150, discounts=discounts)
    await shop.order("123456789012345678.00")
    paid = await shop.order("123456789012345678.00", external_reference="r" * 64)
    sandbox.buyer.pay(paid)
    await shop.client.orders.refund(paid.id)
    preference = await shop.preference(payer={"email": "x" * 80 + "@example.com"}, external_reference="y" * 90)
    checkout = preference.init_point.removeprefix(sandbox.base_url)
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit"))
    return ["/_sandbox/", f"/qr/{order.id}", f"/qr/{paid.id}", f"/qr/{order.id}?attempt=rejected", checkout, "/qr/none"]


@pytest.mark.parametrize(("width", "dark"), SCREENS.values(), ids=SCREENS)
async def test_every_page_fits_and_can_be_read(tab, sandbox, shop, width: int, dark: bool) -> None:
    """On a computer and a phone, by day and by night: nothing sticks out, and the contrast is that of WCAG AA."""
    await tab.look(width, 800, dark=dark)
    for path in await every_page(sandbox, shop):
        if path == "/_sandbox/":
            await open_dashboard(tab, sandbox)
            await tab.until("document.querySelectorAll('#settled-rows tr, .card, #policies label').length > 5")
            await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        else:
            await tab.open(sandbox.base_url + path)
        assert width == await tab.run("document.documentElement.scrollWidth"), path
        assert "" == await tab.run(BROKEN_UP), path
        assert "" == await tab.run(FAINT), path


async def test_on_a_phone_the_orders_come_first(tab, sandbox, shop) -> None:
    """Clock and faults come next, policies scroll in a box, and what hit a request has a row of its own."""
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", times=1))
    await shop.order()
    await tab.look(390, 800)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.requests .marks') !== null")

    top = "document.querySelector('{}').getBoundingClientRect().top"
    tops = [
        await tab.run(top.format(selector)) for selector in ("#orders", "#clock", "#faults", "#exports", "#policies")
    ]
    assert sorted(tops) == tops
    await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert 700 > await tab.run("document.querySelector('#policies').getBoundingClientRect().height")
    bottom = await tab.run("document.querySelector('.requests .marks').previousSibling.getBoundingClientRect().bottom")
    assert bottom <= await tab.run(top.format(".requests .marks"))


async def test_a_state_is_told_once(tab, sandbox, shop) -> None:
    """An order whose status and detail are one word shows it once."""
    await shop.order()
    sandbox.clock.advance("P1D")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#settled-rows .wire') !== null")

    assert "expired" == await tab.run("document.querySelector('#settled-rows .wire').textContent")


async def test_torn_texts_are_found(tab, sandbox, shop) -> None:
    """Negative control: where times may break and amounts may not, the check says which."""
    paid = await shop.order("123456789012345678.00")
    sandbox.buyer.pay(paid)
    sandbox.clock.advance("P1D")
    await shop.order("123456789012345678.00")
    await tab.look(360, 800)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.card, #settled-rows tr').length === 2")
    assert "" == await tab.run(BROKEN_UP)

    await tab.run(
        "document.querySelectorAll('.amount').forEach((one) => "
        "{ one.textContent = one.textContent; one.style.whiteSpace = 'nowrap'; })"
    )
    assert "123,456" in await tab.run(BROKEN_UP)
    await tab.run("document.querySelector('.amount').remove()")
    await tab.run(
        "document.querySelectorAll('time span').forEach((one) => "
        "{ one.style.whiteSpace = 'normal'; one.parentNode.parentNode.style.display = 'block'; "
        "one.parentNode.parentNode.style.width = '3em'; one.style.wordBreak = 'break-all'; })"
    )
    assert ":" in await tab.run(BROKEN_UP)


#: The lines of the texts in some places, as they are seen.
LINES = """((places) => {
  const seen = [];
  for (const place of document.querySelectorAll(places)) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    let top = null;
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      for (let at = 0; at < text.length; at += 1) {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        const now = range.getBoundingClientRect().top;
        if (top === null || now > top + 1) seen.push("");
        top = now;
        seen.push(seen.pop() + text.data[at]);
      }
    }
  }
  return seen;
})"""


async def lines_of(tab, places: str) -> list[str]:
    """The lines of the texts in *places*, of which none is too long for the screen."""
    assert await tab.run("document.documentElement.scrollWidth === screen.width")
    return await tab.run(f"{LINES}({json.dumps(places)})")


async def test_a_large_amount_is_not_torn(tab, sandbox, shop) -> None:
    """On a phone it takes several lines, and each begins with three digits: nobody takes a part for the whole."""
    items = [{"title": "A house", "unit_price": "123456789012.00", "quantity": 2, "unit_measure": "unit"}]
    order = await shop.order("246913578024.00", items=items)
    await tab.look(320, 800)
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")

    lines = await lines_of(tab, ".total, .lines .money, .lines small, form .main")

    assert len(lines) > 5
    assert [] == [line for line in lines if not re.match(r"Pay|ARS|2 |\d{3}\b", line)]


async def test_nor_is_what_is_saved_paid_or_given_back(tab, sandbox, shop) -> None:
    """An amount is large in every place where it stands: beside a method, among the facts, and on the dashboard."""
    cheaper = {"payment_methods": [{"type": "account_money", "new_total_amount": "123456789012345678.00"}]}
    order = await shop.order("246913578024680246.00", discounts=cheaper)
    await tab.look(320, 800)
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    lines = await lines_of(tab, ".saves")
    sandbox.buyer.pay(order)
    [payment] = order.transactions.payments
    await shop.client.orders.refund(order.id, payment_id=payment.id, amount=Decimal("23456789012345678.00"))
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    lines += await lines_of(tab, ".facts dd:nth-of-type(3), .facts dd:nth-of-type(5)")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.notes') !== null")
    lines += await lines_of(tab, "#settled-rows .notes")

    assert len(lines) > 8
    assert [] == [line for line in lines if not re.match(r" ?ARS|less|paid|refunded|\d{3}\b", line)]


async def test_faint_text_is_found(tab, sandbox, shop) -> None:
    """Negative control: grey on white is reported, and so is the same grey in a large type when it is too light."""
    order = await shop.order()
    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    await tab.run("document.querySelector('h1').style.color = '#999'")
    await tab.run("document.querySelector('.total').style.color = '#999'")

    assert (await tab.run(FAINT)).startswith("Order ticket-1: 2.8")


#: Roles that a screen reader announces by their name.
NAMED = {"button", "checkbox", "combobox", "link", "main", "radio", "region", "spinbutton", "textbox", "complementary"}


async def test_everything_has_a_name(tab, sandbox, shop) -> None:
    """Each control and each region is announced as what it is; there is one main part and one title of the page."""
    for path in await every_page(sandbox, shop):
        if path == "/_sandbox/":
            await open_dashboard(tab, sandbox)
            await tab.until("document.querySelectorAll('#policies label').length > 5")
            await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        else:
            await tab.open(sandbox.base_url + path)
        nodes = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
        roles = [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]
        ]
        assert [] == [role for role, name in roles if role in NAMED - {"main"} and not name.strip()], path
        assert 1 == [role for role, _ in roles].count("main"), path
        assert 1 == [role for role, _ in roles].count("banner"), path
        assert 1 == await tab.run("document.querySelectorAll('h1').length"), path
        assert "en" == await tab.run("document.documentElement.lang")


async def test_each_control_of_an_order_says_of_which(tab, sandbox, shop) -> None:
    """Twelve cards have the same words: to whoever hears them, the reference belongs to each button and to the link."""
    await shop.order(external_reference="ticket-9")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.card') !== null")

    nodes = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
    controls = [node for node in nodes if node["role"]["value"] in {"button", "link"}]
    descriptions = {node["name"]["value"]: node.get("description", {}).get("value") for node in controls}

    assert {"ticket-9"} == {descriptions[words] for words in (PAY, "Reject", "Payment page")}


#: How far the last digit of an element's amount is to the right of its first one.
RUN = """((selector) => {
  const nodes = [...document.querySelector(selector).childNodes].filter((one) => one.data);
  const place = (node, at) => {
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    return range.getBoundingClientRect().left;
  };
  const [first, last] = [nodes.find((one) => /100/.test(one.data)), nodes.findLast((one) => one.data.includes("9"))];
  return place(last, last.data.lastIndexOf("9")) - place(first, first.data.indexOf("100"));
})"""
#: Letters that run from right to left, and characters that make any letters do so.
TURNING = ["kg", "\u0643\u062c\u0645", "\u202e", "\u2069\u202e", "\u2067\u202e"]


@pytest.mark.parametrize("text", TURNING)
async def test_nothing_turns_an_amount_around(tab, sandbox, shop, text: str) -> None:
    """A program may name a unit, or the currency of a preference, in any letters."""
    item = {"title": "Rice", "unit_price": "100.09", "quantity": 3, "unit_measure": text}
    order = await shop.order("300.27", items=[item])
    preference = await shop.preference(items=[{"title": "Lamp", "unit_price": "100.09", "currency_id": text}])

    await tab.open(f"{sandbox.base_url}/qr/{order.id}")
    assert 20 < await tab.run(f"{RUN}('.lines small')")
    await tab.open(preference.init_point)
    assert 20 < await tab.run(f"{RUN}('.lines .money')")
    assert 20 < await tab.run(f"{RUN}('.total')")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#checkout-rows .money') !== null")
    assert 20 < await tab.run(f"{RUN}('#checkout-rows .money')")


@pytest.mark.parametrize("width", [1280, 360])
async def test_an_amount_leaves_room_for_a_name(tab, sandbox, shop, width: int) -> None:
    """However large it is: the link to a checkout does not become a column of single letters."""
    item = {"title": "An electric kettle", "unit_price": "999999999999999999.99", "quantity": 2**62}
    await shop.preference(items=[item])
    await tab.look(width, 800)
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#checkout-rows a') !== null")

    assert 100 < await tab.run("document.querySelector('#checkout-rows span').getBoundingClientRect().width")
    assert width == await tab.run("document.documentElement.scrollWidth")
