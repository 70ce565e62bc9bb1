"""How the pages look in a real browser: on a phone, in the dark, and to whoever cannot see them."""

from __future__ import annotations

import pytest

from paymentsdk.sandbox import FaultRule
from tests.sandbox_pages.browser_steps import open_dashboard, script

#: What a computer shows by day, and a phone by night.
SCREENS = {"wide": (1280, False), "phone-dark": (360, True)}

#: Texts whose contrast with what is behind them is below what WCAG asks for at level AA.
FAINT = script("faint.js")


#: What is too small for a thumb: below 24 pixels, as WCAG 2.2 asks for at level AA.
SMALL = script("small.js")
#: Times that are broken within, and amounts that stick out of their place.
BROKEN_UP = script("broken_up.js")


#: Roles that a screen reader announces by their name.
NAMED = {"button", "checkbox", "combobox", "link", "main", "radio", "region", "spinbutton", "textbox", "complementary"}


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
    """On a computer by day and a phone by night: nothing sticks out, and the contrast is that of WCAG AA.

    Each control and each region is announced as what it is; there is one main part and one title of the page.
    """
    await tab.look(width, 800, dark=dark)
    for path in await every_page(sandbox, shop):
        if path == "/_sandbox/":
            await open_dashboard(tab, sandbox)
            await tab.until("document.querySelectorAll('#settled-rows tr, .card, #policies label').length > 5")
            await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        else:
            await tab.open(sandbox.base_url + path)
        assert width == await tab.run("document.documentElement.scrollWidth"), path
        for problems in (BROKEN_UP, FAINT, SMALL):
            assert "" == await tab.run(problems), path
        if dark:
            continue
        nodes = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
        roles = [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]
        ]
        assert [] == [role for role, name in roles if role in NAMED - {"main"} and not name.strip()], path
        assert (1, 1) == tuple([role for role, _ in roles].count(role) for role in ("main", "banner")), path
        assert 1 == await tab.run("document.querySelectorAll('h1').length"), path
        assert "en" == await tab.run("document.documentElement.lang")
