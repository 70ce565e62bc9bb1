"""The dashboard in a real browser: how to connect, policies, requests, and what happens meanwhile or elsewhere."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

from paymentsdk.sandbox import FaultRule, Sandbox
from tests.sandbox_pages.browser_steps import open_dashboard, text_of

#: Lets a test turn to another tab, and come back.
SEE = """
window.see = (seen) => {
  Object.defineProperty(document, "hidden", { value: !seen, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


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

    assert await tab.until("document.querySelectorAll('#faults li').length === 1")


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
    assert "(default: created)" in await text_of(tab, "label[for=policy-cancel_from]")


async def test_a_request_is_looked_at_and_copied(tab, sandbox, shop) -> None:
    """Its body and its response are there with their numbers as they were, and its command goes to the clipboard."""
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    await tab.send("Browser.grantPermissions", permissions=permissions, **tab.context)
    await shop.preference()
    await open_dashboard(tab, sandbox)
    await tab.click(".requests summary")
    await tab.until("document.querySelector('.requests .detail') !== null")
    assert '"unit_price": 60.25' in await text_of(tab, ".requests pre")

    await tab.click(".requests .row button")
    await tab.until("document.querySelector('.requests .row button').textContent === 'Copied'")
    assert (await tab.run("navigator.clipboard.readText()")).startswith("curl -X POST")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a=two words&b[c]=1", "a=two words&b[c]=1"),
        ("a=1]&b=2", "a=1]&b=2"),
        ("{'a': 'two words'}", "{'a': 'two words'}"),
        ('{"a":{ }, "b" :[]}', '{\n  "a": {},\n  "b": []\n}'),
    ],
)
async def test_only_json_is_laid_out(tab, sandbox, visitor, body: str, expected: str) -> None:
    """Whoever sends something else by mistake sees what it was, to the last space."""
    await open_dashboard(tab, sandbox)
    await visitor.post("/v1/orders", body.encode(), Authorization=f"Bearer {sandbox.access_token}")

    await tab.click(".requests summary")

    await tab.until("document.querySelector('.requests .detail') !== null")
    assert expected == await text_of(tab, ".requests pre")
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


async def test_what_cannot_be_copied_is_not_said_to_be(tab, sandbox, shop) -> None:
    """Of a request that is not kept any more nothing goes to the clipboard: the reason would be run in a shell."""
    await shop.order()
    await open_dashboard(tab, sandbox)
    await tab.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    await tab.click(".requests summary")
    sandbox.platform.feed._lines.clear()  # as 200 later requests do

    await tab.click(".requests .row button")

    assert await tab.until("document.querySelector('#news').textContent.includes('no longer in the list')")
    assert await tab.run("window.copied === undefined")


@pytest.mark.parametrize("shape", ["per_api", "cause", "errors", "flat"])
async def test_an_example_that_is_rejected_says_why(tab, sandbox, shape) -> None:
    """In the words of the sandbox, whatever shape its rejections have."""
    sandbox.platform.change_policies({"error_shape": shape})
    sandbox.faults.add(FaultRule(effect="refuse", code="unsupported_site"))
    await open_dashboard(tab, sandbox)

    await tab.click("[data-example]")

    assert await tab.until("document.querySelector('#news').textContent.includes('country')")


async def test_an_example_that_a_gateway_responds_to_says_so(tab, sandbox) -> None:
    """What is no JSON has no words of its own: the status is said."""
    await open_dashboard(tab, sandbox)
    await tab.run("""
        const real = window.fetch;
        const page = () => new Response("<h1>502</h1>", { status: 502 });
        window.fetch = (path, options) => (path === "/v1/orders" ? page() : real(path, options));
    """)

    await tab.click("[data-example]")

    assert await tab.until("document.querySelector('#news').textContent === 'The response to the order was 502.'")


async def test_an_order_that_changes_while_the_orders_are_loaded_is_shown_as_it_is(tab, sandbox, shop) -> None:
    """What is loaded can be older than what has just come as an event: the newer one stays."""
    order = await shop.order()
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.card').length === 1")
    # The list is made before the order is paid, and comes after the event of that.
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

    ids = await tab.run("[...document.querySelectorAll('.card .id')].map((one) => one.textContent)")
    assert [later.id] == ids


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
    assert "2 older orders are waiting, too." == await text_of(tab, "#more-open")
    assert "30 older orders are settled, too." == await text_of(tab, "#more-settled")

    await tab.open("about:blank")  # A page that is open draws itself anew for each of those that follow.
    for _ in range(20):
        await asyncio.gather(*(shop.order() for _ in range(20)))
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelector('#counts').textContent === '414 waiting, 80 settled'")

    await asyncio.gather(*(shop.order() for _ in range(7)))

    await tab.until("document.querySelector('#counts').textContent.startsWith('Among the newest 500: ')")


async def test_events_do_not_move_the_focus(tab, sandbox, shop) -> None:
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

    assert await tab.until("document.querySelector('#clock').textContent.startsWith('20:00:')")


async def test_a_hidden_tab_leaves_its_connection_to_others(tab, sandbox, shop) -> None:
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


async def test_requests_of_a_restarted_sandbox_are_its_own(tab, sandbox, visitor) -> None:
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


async def test_orders_of_a_restarted_sandbox_are_its_own(tab, connect) -> None:
    """With a seed and a clock that stands still the new ones have the ids of the old: what they cost is theirs."""
    options = {"seed": 7, "frozen_at": datetime(2026, 1, 31, tzinfo=UTC)}
    async with Sandbox(**options) as sandbox, connect(sandbox) as shop:
        before = await shop.order("50.00", mode="static")
        await open_dashboard(tab, sandbox)
        await tab.until("document.querySelector('.card .code p') !== null")
        await tab.run(SEE)
        await tab.run("see(false)")

    async with Sandbox(port=int(sandbox.base_url.rpartition(":")[2]), **options) as anew, connect(anew) as shop:
        assert before.id == (await shop.order("99.00", description="Dinner")).id
        await tab.run("see(true)")
        await tab.until("document.querySelector('.card .code svg path') !== null")

        assert "Pay ARS\N{NO-BREAK SPACE}99.00" == await text_of(tab, "[data-act=approved]")
        assert "Dinner" in await text_of(tab, ".card")


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


async def test_the_focus_moves_to_the_request_in_the_same_place(tab, sandbox, visitor) -> None:
    """The oldest of two hundred makes room for the next: the list keeps the focus, and nothing breaks."""
    for number in range(200):
        await visitor.get(f"/{number}")
    await open_dashboard(tab, sandbox)
    await tab.until("document.querySelectorAll('.requests summary').length === 200")
    await tab.click("#older button")
    await tab.run("[...document.querySelectorAll('.requests summary')].at(-1).focus()")

    await visitor.get("/next")

    await tab.until("document.querySelector('.requests .path').textContent === '/next'")
    assert "/1" == await tab.run("document.activeElement.querySelector('.path')?.textContent")
    assert [] == tab.problems


async def test_a_seller_of_an_earlier_sandbox_is_unknown_in_a_new_one(tab, sandbox) -> None:
    """With one seller, no order needs to say whose it is."""
    await open_dashboard(tab, sandbox)
    await tab.click("[data-example]")
    await tab.until("document.querySelectorAll('.card').length === 1")
    await sandbox.stop()
    await tab.until("document.querySelector('#link').textContent.trim() === 'Not connected'")

    async with Sandbox(port=int(sandbox.base_url.rpartition(":")[2])):
        await tab.until("document.querySelector('#link').textContent.trim() === 'Connected'")
        await tab.until("document.querySelectorAll('.card').length === 0")
        await tab.click("[data-example]")
        await tab.until("document.querySelectorAll('.card').length === 1")

        assert not await text_of(tab, ".card [data-slot=seller]")
