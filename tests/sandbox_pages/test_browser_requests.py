"""The dashboard in a real browser: how to connect, policies, requests, and what happens meanwhile or elsewhere."""

from __future__ import annotations

from tests.sandbox_pages.browser_steps import open_dashboard, text_of


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
