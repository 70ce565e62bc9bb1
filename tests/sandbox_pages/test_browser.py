"""The pages in a real browser: they work by mouse and by keyboard, on a phone, in the dark, and without scripts."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import quote

import pytest
from aiohttp import web

from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.sandbox._pages import headers, markup, routes

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

#: Lets a test turn to another tab, and come back.
SEE = """
window.see = (seen) => {
  Object.defineProperty(document, "hidden", { value: !seen, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


async def open_dashboard(tab, sandbox) -> None:
    """Open the dashboard, and wait until it listens."""
    await tab.open(f"{sandbox.base_url}/_sandbox/")
    await tab.until("document.querySelector('#link').textContent.trim() === 'Connected'")


async def text_of(tab, selector: str) -> str:
    """The text of an element."""
    return await tab.run(f"document.querySelector({json.dumps(selector)}).textContent.trim()")


# --- the dashboard -----------------------------------------------------------------------------------------------


async def test_an_order_appears_and_is_paid(tab, sandbox, shop) -> None:
    """Its card comes with its code and goes when it is paid, though nobody loads the page again."""
    await open_dashboard(tab, sandbox)
    assert "No order waits" in await text_of(tab, "#no-open h3")

    order = await shop.order("1250.00", description="Breakfast")
    await tab.until("document.querySelector('.card .code svg path') !== null")
    card = await text_of(tab, ".card")
    for said in ("Waiting", "ticket-1", "Breakfast", "ARS\N{NO-BREAK SPACE}1,250.00", "Expires in 15:00", order.id):
        assert said in card

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


#: What the button of an example says: what it pays.
PAY = "Pay ARS\N{NO-BREAK SPACE}50.00"


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
    other = await shop.order(expiration_time="PT2H")
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

    assert "expired" == (await shop.client.orders.get(other.id)).status
    await tab.click("#freeze")
    await tab.until("document.querySelector('#clock-state').textContent === 'Live'")
    assert not sandbox.clock.frozen


async def test_a_duration_that_is_none_is_rejected_in_words(tab, sandbox) -> None:
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

    assert "page_size is a whole number from 1 to 1000000, not 0" == await text_of(tab, ".problem")
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

    await tab.until("window.asked?.includes('150 days, for every seller')")
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
    wanted = {"operation": "orders.create", "code": "pos_not_found", "tenant": sandbox.tenant.user_id}
    assert FaultRule(effect="refuse", times=1, **wanted) == added.rule

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


async def test_how_to_connect_is_there_to_copy(tab, sandbox) -> None:
    """The lines are those that the command line prints; a shell that runs them has what `from_env` reads."""
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    await tab.send("Browser.grantPermissions", permissions=permissions, **tab.context)
    await open_dashboard(tab, sandbox)

    await tab.click("#copy-exports button")

    await tab.until("document.querySelector('#copy-exports button').textContent === 'Copied'")
    lines = (await tab.run("navigator.clipboard.readText()")).splitlines()
    assert f"export PAYMENTSDK_BASE_URL={sandbox.base_url}" == lines[0]
    assert f"export PAYMENTSDK_ACCESS_TOKEN={sandbox.access_token}" == lines[1]
    assert "POS001" == await text_of(tab, "#point-of-sale")


async def test_policies_are_explained_to_people(tab, sandbox) -> None:
    """Code is code, and no text leads to a contract that the reader does not have."""
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('#policies label').length > 5")

    words = await tab.run("document.querySelector('#policies').textContent")
    assert "`" not in words
    assert "spec" not in words
    assert "any" == await text_of(tab, "#policies dd code")


async def test_what_changed_elsewhere_is_loaded(tab, sandbox) -> None:
    """After a restore, or a change by another program, the page shows what is."""
    await open_dashboard(tab, sandbox)

    sandbox.faults.add(FaultRule(effect="hang"))

    await tab.until("document.querySelectorAll('#faults li').length === 1")


async def test_what_did_not_change_is_left_alone(tab, sandbox, shop) -> None:
    """A request that somebody reads stays open, and who stands in a field stays there."""
    await shop.preference()
    await open_dashboard(tab, sandbox)
    await tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    await tab.until("document.querySelector('.requests .detail') !== null")
    await tab.run("document.querySelector('#policy-page_size').focus()")

    await tab.run("document.querySelector('#link').firstElementChild.textContent = 'Loading'")
    sandbox.faults.add(FaultRule(effect="hang"))
    # Everything has been loaded anew when the page says so.
    await tab.until("document.querySelector('#link').textContent.trim() === 'Connected'")

    assert "policy-page_size" == await tab.run("document.activeElement.id")
    assert await tab.run("document.querySelector('.requests details').open")


async def test_that_no_program_has_called_is_said_once_it_is_known(tab, sandbox, shop) -> None:
    """A page that is still loading does not say so, and one with requests does not either."""
    await open_dashboard(tab, sandbox)
    page = "fetch(location.href, {headers: {Accept: 'text/html'}}).then((page) => page.text())"
    assert 'id="no-requests" hidden' in await tab.run(page)
    await tab.until("!document.querySelector('#no-requests').hidden")

    await shop.preference()

    await tab.until("document.querySelector('#no-requests').hidden")


async def test_a_wrong_address_is_seen(tab, sandbox, visitor) -> None:
    """A program that calls what nobody has appears among the requests, with a line for a shell to try it again."""
    await open_dashboard(tab, sandbox)

    await visitor.get("/v2/orders?access_token=TEST-1", Accept="*/*")

    await tab.until("document.querySelector('.requests .path')?.textContent === '/v2/orders?access_token=***'")
    assert "404" == await text_of(tab, ".requests .state")
    await tab.click(".requests summary")
    await tab.until("document.querySelector('.requests .detail')?.textContent.includes('no operation')")


async def test_a_policy_is_changed(tab, sandbox) -> None:
    """It holds at once, the page says what it usually is, and the focus stays."""
    await open_dashboard(tab, sandbox)
    await tab.click("[aria-labelledby=policies-title] summary")

    await tab.run("document.querySelector('#policy-cancel_from').value = 'any'")
    await tab.run("document.querySelector('#policy-cancel_from').dispatchEvent(new Event('change'))")

    await tab.until("document.querySelector('#policy-count').textContent.startsWith('1 of')")
    assert "any" == sandbox.policies.cancel_from
    assert "policy-cancel_from" == await tab.run("document.activeElement.id")
    assert "(usually created)" in await text_of(tab, "label[for=policy-cancel_from]")


async def test_a_request_is_looked_at_and_copied(tab, sandbox, shop) -> None:
    """Its body and its response are there with their numbers as they were, and both snippets go to the clipboard."""
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    await tab.send("Browser.grantPermissions", permissions=permissions, **tab.context)
    await shop.preference()
    await open_dashboard(tab, sandbox)
    await tab.click(".requests summary")
    await tab.until("document.querySelector('.requests .detail') !== null")
    assert '"unit_price": 60.25' in await text_of(tab, ".requests pre")

    for place, start in ((1, "curl -X POST"), (2, "import asyncio")):
        await tab.click(f".requests .row button:nth-child({place})")
        await tab.until(f"document.querySelector('.requests .row button:nth-child({place})').textContent === 'Copied'")
        assert (await tab.run("navigator.clipboard.readText()")).startswith(start)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("a=two words&b[c]=1", "a=two words&b[c]=1"),
        ("a=1]&b=2", "a=1]&b=2"),
        ("{'a': 'two words'}", "{'a': 'two words'}"),
        ('{"a":{ }, "b" :[]}', '{\n  "a": {},\n  "b": []\n}'),
    ],
)
async def test_only_json_is_laid_out(tab, sandbox, visitor, body: str, shown: str) -> None:
    """Whoever sends something else by mistake sees what it was, to the last space."""
    await open_dashboard(tab, sandbox)
    await visitor.post("/v1/orders", body.encode(), Authorization=f"Bearer {sandbox.access_token}")

    await tab.click(".requests summary")

    await tab.until("document.querySelector('.requests .detail') !== null")
    assert shown == await text_of(tab, ".requests pre")
    assert [] == tab.problems


async def test_without_a_clipboard_the_snippet_is_shown(tab, sandbox, shop) -> None:
    """It can be marked and copied by hand; once, however often the button is pressed."""
    await shop.order()
    await open_dashboard(tab, sandbox)
    await tab.run("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    await tab.click(".requests summary")
    await tab.click(".requests .row button")

    await tab.until("document.querySelector('.requests .row + pre')?.textContent.startsWith('curl')")
    first = await text_of(tab, ".requests .row + pre")

    await tab.click(".requests .row button")

    await tab.until(f"document.querySelector('.requests .row + pre').textContent !== {json.dumps(first)}")
    assert 1 == await tab.run(
        "[...document.querySelectorAll('pre')].filter((one) => one.textContent.startsWith('curl')).length"
    )


@pytest.mark.parametrize("shape", ["per_api", "cause", "errors", "flat"])
async def test_an_example_that_is_rejected_says_why(tab, sandbox, shape) -> None:
    """In the words of the sandbox, whatever shape its rejections have."""
    sandbox.platform.change_policies({"error_shape": shape})
    sandbox.faults.add(FaultRule(effect="refuse", code="unsupported_site"))
    await open_dashboard(tab, sandbox)

    await tab.click("[data-example]")

    await tab.until("document.querySelector('#news').textContent.includes('country')")


async def test_an_example_that_a_gateway_responds_to_says_so(tab, sandbox) -> None:
    """What is no JSON has no words of its own: the status is said."""
    await open_dashboard(tab, sandbox)
    await tab.run("""
        const real = window.fetch;
        const page = () => new Response("<h1>502</h1>", { status: 502 });
        window.fetch = (path, options) => (path === "/v1/orders" ? page() : real(path, options));
    """)

    await tab.click("[data-example]")

    await tab.until("document.querySelector('#news').textContent === 'The order was answered with 502.'")


async def test_an_order_that_changes_while_the_orders_are_loaded_is_shown_as_it_is(tab, sandbox, shop) -> None:
    """What is loaded can be older than what was just heard of: the newer one stays."""
    order = await shop.order()
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.card').length === 1")
    # The list is made before the order is paid, and comes after everybody has heard of that.
    await tab.run("""
        const real = window.fetch;
        window.fetch = async (path, options) => {
          const answer = await real(path, options);
          if (path.startsWith("/_sandbox/orders?")) await new Promise((go) => { window.letGo = go; });
          return answer;
        };
    """)
    sandbox.platform.snapshot()
    sandbox.platform.restore()
    await tab.until("window.letGo !== undefined")

    sandbox.buyer.pay(order)
    await tab.until("document.querySelectorAll('.card').length === 0")
    await tab.run("window.letGo()")
    later = await shop.order(external_reference="later")
    await tab.until("document.querySelectorAll('.card').length > 0")

    shown = await tab.run("[...document.querySelectorAll('.card .id')].map((one) => one.textContent)")
    assert [later.id] == shown


async def test_a_text_from_right_to_left_is_written_so(tab, sandbox, shop) -> None:
    """As on the buyer's page: what ends a Hebrew sentence stands at its left end, also on a page in English."""
    await shop.order(description="\N{HEBREW LETTER ALEF} 2!")
    await shop.preference(items=[{"title": "\N{HEBREW LETTER BET} 2!", "quantity": 1, "unit_price": "1.00"}])
    await open_dashboard(tab, sandbox)

    for selector in (".card .what p:nth-of-type(2) *", "#checkout-rows a *"):
        await tab.until(f"document.querySelector('{selector}') !== null")
        assert "rtl" == await tab.run(f"getComputedStyle(document.querySelector('{selector}')).direction")


async def test_what_is_not_shown_of_many_orders_is_counted(tab, sandbox, shop) -> None:
    """Twelve cards and fifty rows, and how many more there are; the newest 500 are counted, and the page says so."""
    for _ in range(4):
        paid = await asyncio.gather(*(shop.order() for _ in range(20)))
        for order in paid:
            sandbox.buyer.pay(order)
    await asyncio.gather(*(shop.order() for _ in range(14)))
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#counts').textContent === '14 waiting, 80 settled'")
    assert "2 older ones wait as well." == await text_of(tab, "#more-open")
    assert "30 older ones are settled as well." == await text_of(tab, "#more-settled")

    await tab.open("about:blank")  # A page that is open draws itself anew for each of those that follow.
    for _ in range(20):
        await asyncio.gather(*(shop.order() for _ in range(20)))
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#counts').textContent === '414 waiting, 80 settled'")

    await asyncio.gather(*(shop.order() for _ in range(7)))

    await tab.until("document.querySelector('#counts').textContent.startsWith('Among the newest 500: ')")


async def test_what_happens_takes_nobody_the_focus(tab, sandbox, shop) -> None:
    """Rows that come and change leave whoever stands in another, or in the changed one itself, where they are."""
    sandbox.buyer.pay(await shop.order())
    await shop.preference()
    for effect in ("delay_before_commit", "delay_after_commit"):
        sandbox.faults.add(FaultRule(effect=effect, operation="orders.create", seconds=0.001))
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('#settled-rows a, #checkout-rows a, #faults button').length === 4")

    for number, selector in enumerate(("#settled-rows a", "#checkout-rows a", "#faults button"), 1):
        await tab.run(f"document.querySelector('{selector}').focus()")
        sandbox.buyer.pay(await shop.order())
        await shop.preference()
        rows = f"document.querySelectorAll('#settled-rows > *, #checkout-rows > *').length === {2 + 2 * number}"
        await tab.until(f"{rows} && document.querySelector('#faults').textContent.includes('hit {number}')")
        assert await tab.run(f"document.activeElement.matches('{selector}')"), selector

    await tab.click("#clear-faults")
    await tab.until("document.activeElement.id === 'faults-title'")


async def test_the_clock_is_right_after_the_machine_has_slept(tab, sandbox) -> None:
    """It goes on by the clock of the machine, as that of the sandbox does: a browser's stopwatch sleeps as well."""
    sandbox.clock.freeze(datetime(2026, 1, 31, 12, tzinfo=UTC))
    sandbox.clock.resume()
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#clock').textContent.startsWith('12:00:')")

    await tab.run("(() => { const real = Date.now; Date.now = () => real() + 8 * 3600000; })()")

    await tab.until("document.querySelector('#clock').textContent.startsWith('20:00:')")


async def test_a_tab_that_nobody_sees_leaves_its_connection_to_others(tab, sandbox, shop) -> None:
    """It stops to listen, and shows what it has missed as soon as somebody looks at it again."""
    await open_dashboard(tab, sandbox)
    await tab.run("""
        window.left = 0;
        const close = EventSource.prototype.close;
        EventSource.prototype.close = function () { window.left += 1; close.call(this); };
    """)
    await tab.run(SEE)
    await tab.run("see(false)")
    assert 1 == await tab.run("window.left")
    await shop.order()

    await tab.run("see(true)")

    await tab.until("document.querySelectorAll('.card').length === 1")


async def test_requests_of_a_sandbox_that_was_started_anew_are_its_own(tab, sandbox, visitor) -> None:
    """Whoever was away meanwhile sees them, though the new ones have the names of the old."""
    await visitor.get("/before")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.requests .path')?.textContent === '/before'")
    await tab.run(SEE)
    await tab.run("see(false)")
    [before] = sandbox.platform.feed.requests
    await sandbox.stop()

    async with Sandbox(port=int(sandbox.base_url.rpartition(":")[2])) as anew:
        await visitor.get("/after")
        assert [before.request_id] == [line.request_id for line in anew.platform.feed.requests]
        await tab.run("see(true)")

        await tab.until("document.querySelector('.requests .path').textContent === '/after'")


async def test_a_request_that_somebody_reads_stays_open_while_they_are_away(tab, sandbox, visitor) -> None:
    """Those that came meanwhile are put above it."""
    await visitor.get("/first")
    await open_dashboard(tab, sandbox)
    await tab.click(".requests summary")
    await tab.until("document.querySelector('.requests .detail') !== null")
    await tab.run(SEE)
    await tab.run("see(false)")
    await visitor.get("/second")

    await tab.run("see(true)")

    await tab.until("document.querySelectorAll('.requests summary').length === 2")
    assert await tab.run("document.querySelectorAll('.requests details')[1].open")
    assert "SUMMARY" == await tab.run("document.activeElement.tagName")


async def test_whoever_stands_in_a_request_that_is_gone_stands_in_the_one_in_its_place(tab, sandbox, visitor) -> None:
    """The oldest of a hundred makes room for the next: the list keeps the focus, and nothing breaks."""
    for number in range(100):
        await visitor.get(f"/{number}")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.requests summary').length === 100")
    await tab.click("#older button")
    await tab.run("[...document.querySelectorAll('.requests summary')].at(-1).focus()")

    await visitor.get("/next")

    await tab.until("document.querySelector('.requests .path').textContent === '/next'")
    assert "/1" == await tab.run("document.activeElement.querySelector('.path')?.textContent")
    assert [] == tab.problems


async def test_a_seller_of_an_earlier_sandbox_is_none_of_the_new_one(tab, sandbox) -> None:
    """With one seller, no order needs to say whose it is."""
    await open_dashboard(tab, sandbox)
    await tab.click("[data-example]")
    await tab.until("document.querySelectorAll('.card').length === 1")
    await sandbox.stop()
    await tab.until("document.querySelector('#link').textContent.trim() === 'Not connected'")

    async with Sandbox(port=int(sandbox.base_url.rpartition(":")[2])):
        await tab.until("document.querySelector('#link').textContent.trim() === 'Connected'")
        await tab.click("[data-example]")
        await tab.until("document.querySelectorAll('.card').length === 1")

        assert not await text_of(tab, ".card [data-slot=seller]")


async def test_a_checkout_link_appears(tab, sandbox, shop) -> None:
    """A new preference is listed with the way to its checkout, and so is an old one."""
    old = await shop.preference()
    await open_dashboard(tab, sandbox)
    new = await shop.preference(items=[{"title": "Bulb", "quantity": 1, "unit_price": "5"}])

    await tab.until("document.querySelectorAll('#checkout-rows a').length === 2")

    found = await tab.run("JSON.stringify([...document.querySelectorAll('#checkout-rows a')].map((one) => one.href))")
    assert [new.init_point, old.init_point] == json.loads(found)


async def test_a_checkout_link_has_a_name(tab, sandbox, shop) -> None:
    """That of the buyer's page, also where a program sends an empty title: a link without text cannot be pressed."""
    for item in ({"title": ""}, {"title": "", "description": "A lamp"}, {"title": "", "id": "7"}):
        await shop.preference(items=[{**item, "quantity": 1, "unit_price": "5"}])
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('#checkout-rows a').length === 3")

    names = await tab.run("[...document.querySelectorAll('#checkout-rows a')].map((one) => one.textContent.trim())")
    assert ["Item 7", "A lamp", "Item"] == names


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


async def test_a_checkout_that_cannot_be_paid_says_why(tab, sandbox, shop) -> None:
    """Where the sandbox rejects, its words are said, and the button stays."""
    await shop.preference()
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#checkout-rows button') !== null")
    await tab.run('window.fetch = async () => new Response(\'{"message": "it is too late"}\', {status: 409})')

    await tab.click("#checkout-rows button")

    await tab.until("document.querySelector('#news').textContent === 'it is too late'")
    assert 1 == await tab.run("document.querySelectorAll('#checkout-rows button').length")


async def test_without_segno_the_text_of_the_code_is_shown(tab, sandbox, shop, monkeypatch) -> None:
    """With one line that says how to get codes."""
    monkeypatch.setitem(sys.modules, "segno", None)
    order = await shop.order()
    await open_dashboard(tab, sandbox)

    await tab.until("document.querySelector('.card .code code') !== null")

    assert f"{order.type_response.qr_data}install the extra qr of paymentsdk" == await text_of(tab, ".card .code")


async def test_a_sandbox_that_ends_is_noticed(tab, sandbox) -> None:
    """The page says that it has lost the connection, and so does a button that needs it."""
    await open_dashboard(tab, sandbox)

    await sandbox.stop()

    await tab.until("document.querySelector('#link').textContent.trim() === 'Not connected'")
    await tab.click("[data-example]")
    await tab.until("document.querySelector('#news').textContent === 'The sandbox does not respond.'")


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


# --- how it looks ------------------------------------------------------------------------------------------------


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
    assert [] == [line for line in lines if not re.match(r" ?ARS|less|paid|given|back|\d{3}\b", line)]


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
        seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
        assert [] == [role for role, name in seen if role in NAMED - {"main"} and not name.strip()], path
        assert 1 == [role for role, _ in seen].count("main"), path
        assert 1 == [role for role, _ in seen].count("banner"), path
        assert 1 == await tab.run("document.querySelectorAll('h1').length"), path
        assert "en" == await tab.run("document.documentElement.lang")


async def test_each_control_of_an_order_says_of_which(tab, sandbox, shop) -> None:
    """Twelve cards have the same words: to whoever hears them, the reference belongs to each button and to the link."""
    await shop.order(external_reference="ticket-9")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('.card') !== null")

    nodes = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
    controls = [node for node in nodes if node["role"]["value"] in {"button", "link"}]
    said = {node["name"]["value"]: node.get("description", {}).get("value") for node in controls}

    assert {"ticket-9"} == {said[words] for words in (PAY, "Reject", "Payment page")}


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
    assert "Not from there" == await text_of(tab, "h1")

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


async def test_the_policy_stops_a_script_that_escaping_missed(tab, sandbox, shop, evil_copy, monkeypatch) -> None:
    """The second line of defence holds alone; without it, the script runs: the negative control of both."""
    checkout = await evil_order_and_preference(shop, evil_copy)
    monkeypatch.setattr(markup, "escape", lambda text: text)
    await tab.open(checkout)
    assert not await tab.run(BROKEN)
    assert any("Content Security Policy" in problem for problem in tab.problems)

    monkeypatch.setattr(routes.headers, "FORM", dict.fromkeys(headers.FORM, ""))
    await tab.open(f"{checkout}?again")

    assert await tab.run(BROKEN)
