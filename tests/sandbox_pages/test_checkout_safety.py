"""The pages of buyers: who may open and send them, what the browser is told, and text from elsewhere in them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from paymentsdk.resources import orders, preferences
from paymentsdk.sandbox import Sandbox
from tests.sandbox_pages.test_browser_checkout import BROKEN, evil_order_and_preference
from tests.sandbox_pages.test_checkout import path_of

# --- who may, and what the browser is told ---------------------------------------------------------------------


#: Another site, its kind, another port of this machine, a page without an origin, no address, another name.
FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Host": "evil.example", "Accept-Language": "en"},
]


@pytest.mark.control("paymentsdk.sandbox._pages.routes.check_origin", lambda headers, allowed: None)
async def test_a_form_from_elsewhere_pays_nothing(shop, visitor) -> None:
    """A browser says where a form comes from, or that it does not say; its user may follow a link from anywhere."""
    order = await shop.order()
    for headers in FOREIGN:
        await visitor.post(f"/qr/{order.id}", {}, **headers)

        assert 403 == visitor.status
    assert "created" == (await shop.client.orders.get(order.id)).status
    await visitor.get(f"/qr/{order.id}", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert 200 == visitor.status
    await visitor.get(f"/qr/{order.id}", **FOREIGN[-1])  # DNS rebinding would make our pages theirs.
    assert 403 == visitor.status


async def test_a_form_with_other_values_is_rejected(shop, visitor) -> None:
    """What the page does not offer is not taken."""
    order = await shop.order()
    forms = [{"payment_method": "cash"}, {"outcome": "stolen"}]
    for form in (*forms, *({"installments": number} for number in ("0", "37", "three"))):
        await visitor.post(f"/qr/{order.id}", form)

        assert 400 == visitor.status
    assert "created" == (await shop.client.orders.get(order.id)).status


#: The body, the type and the status of what is no form.
NO_FORMS = [
    (b"{}", "application/json", 415),
    (b"a=b", "application/x-www-form-urlencoded; charset=unheard-of", 400),
    (b"a=%ff%fe&b=\xff", "application/x-www-form-urlencoded", 400),
    (b"a=" + b"b" * (2**20 - 1), "application/x-www-form-urlencoded", 413),
]


async def test_what_is_no_form_is_rejected(shop, visitor) -> None:
    """With a page and a status that say so; nothing makes the server fail."""
    order = await shop.order()
    for body, kind, status in NO_FORMS:
        await visitor.post(f"/qr/{order.id}", body, **{"Content-Type": kind})

        assert (status, True) == (visitor.status, "text/html" in visitor.headers["Content-Type"])


async def test_the_browser_is_told_to_keep_and_run_nothing(shop, visitor) -> None:
    """Buyer's pages run no script, are not framed, not kept, and send their form nowhere else."""
    await visitor.get(f"/qr/{(await shop.order()).id}")

    rules = dict(rule.strip().split(" ", 1) for rule in visitor.headers["Content-Security-Policy"].split(";"))
    assert "'none'" == rules["default-src"]
    assert "'none'" == rules["frame-ancestors"]
    assert "'self'" == rules["form-action"]
    assert "script-src" not in rules
    assert "unsafe" not in visitor.headers["Content-Security-Policy"]
    assert "no-store" == visitor.headers["Cache-Control"]
    assert "nosniff" == visitor.headers["X-Content-Type-Options"]
    assert "<script" not in visitor.page
    assert "style=" not in visitor.page


# --- text from elsewhere -----------------------------------------------------------------------------------------


async def evil_things(shop, evil_copy):
    """Return the addresses of an order and a preference whose every text is an attack."""
    item = {**evil_copy(orders.CREATE.example["items"][0]), "unit_measure": "<script>a"[:10], "unit_price": "25.00"}
    order = await shop.order(items=[{**item, "external_code": "<script>1</script>"}], description=evil_copy("")[:150])
    evil = evil_copy(dict(preferences.CREATE.example)) | {"auto_return": "approved", "additional_info": evil_copy("")}
    evil |= {"back_urls": {"success": 'https://shop.example.com/"><script>'}, "statement_descriptor": evil_copy("")}
    evil["items"][0]["unit_price"] = "1.00"
    return f"/qr/{order.id}", path_of(await shop.preference(**evil))


@pytest.mark.control("paymentsdk.sandbox._pages.views.escape", lambda s, quote=True: s)
async def test_text_is_shown_as_text(shop, visitor, evil_copy) -> None:
    """A script in any member of an order or a preference is shown, letter by letter, and is no script."""
    for path in await evil_things(shop, evil_copy):
        page = await visitor.get(path)
        assert "<script" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;" in page
        assert "<script" not in await visitor.send_form()
        assert "<script" not in await visitor.get(path)


async def test_the_policy_stops_a_script_that_escaping_missed(tab, sandbox, shop, evil_copy, monkeypatch) -> None:
    """The second line of defence holds alone; without it, the script runs: the negative control of both."""
    checkout = await evil_order_and_preference(shop, evil_copy)
    monkeypatch.setattr("paymentsdk.sandbox._pages.views.escape", lambda text: text)
    await tab.open(checkout)
    assert not await tab.run(BROKEN)
    assert any("Content Security Policy" in problem for problem in tab.problems)

    monkeypatch.setattr("paymentsdk.sandbox._pages.routes.FORM", {})
    await tab.open(f"{checkout}?again")

    assert await tab.run(BROKEN)


def test_every_placeholder_of_an_attribute_is_in_quotes() -> None:
    """Escaping protects a value only between quotes: no template leaves them out."""
    files = list(Path(inspect.getfile(Sandbox)).parent.glob("_pages/templates/*"))
    assert files
    for file in files:
        outside_quotes = re.sub(r'"[^"]*"', '""', file.read_text(encoding="utf-8"))
        assert "=$" not in outside_quotes, file.name
