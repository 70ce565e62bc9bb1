"""The files of the dashboard, and the addresses that only it uses."""

from __future__ import annotations

import re
import sys

import pytest

BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
async def page(visitor) -> str:
    """The dashboard, as a browser gets it."""
    return await visitor.get("/_sandbox/", **BROWSER)


@pytest.fixture
async def static(visitor, page) -> dict[str, str]:
    """The files that the dashboard and its scripts name, as a browser gets them."""
    files, names = {}, re.findall(r'"[^"]*static/([^"/]+)"', page)
    while names:
        name = names.pop()
        if name not in files:
            files[name] = await visitor.get(f"/_sandbox/static/{name}")
            names += re.findall(r'from "./([^"]+)";', files[name])
    return files


async def test_a_browser_gets_a_page_and_a_program_the_state(visitor) -> None:
    """At one address; the way to it is short."""
    assert "<!doctype html>" in await visitor.get("/", **BROWSER)
    assert "<!doctype html>" in await visitor.get("/_sandbox", **BROWSER)
    assert visitor.url.endswith("/_sandbox/")
    assert '"base_url"' in await visitor.get("/_sandbox/", Accept="*/*")


async def test_every_file_is_served_as_what_it_is(visitor, static) -> None:
    """With its type, which the browser may not guess, and the rules of the page; and no other file is served."""
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in static:
        await visitor.get(f"/_sandbox/static/{name}")
        assert 200 == visitor.status, name
        assert f"{kinds[name.rpartition('.')[2]]}; charset=utf-8" == visitor.headers["Content-Type"]
        rules = visitor.headers["Content-Security-Policy"]
        assert "unsafe" not in rules
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(rules.split("; "))
        assert "no-store" == visitor.headers["Cache-Control"]
    assert kinds.keys() == {name.rpartition(".")[2] for name in static}
    for name in ("nothing.js", "..%2Froutes.py", "%2e%2e%2fsale.py"):
        await visitor.get(f"/_sandbox/static/{name}")
        assert 404 == visitor.status


async def test_nothing_comes_from_elsewhere_or_runs_text(page, static) -> None:
    """No file names another host: the pages work without a network. No script writes HTML, and none runs text."""
    foreign = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}")
    running = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function")
    for name, text in {**static, "the page": page}.items():
        assert [] == foreign.findall(text.replace("http://www.w3.org/2000/svg", "")), name
        assert not (name.endswith(".js") and running.search(text)), name


async def test_the_code_of_an_order_is_a_picture(shop, visitor) -> None:
    """SVG with dark modules, a quiet zone of four of them, and no size of its own."""
    order = await shop.order()

    svg = await visitor.get(f"/_sandbox/orders/{order.id}/code.svg")

    assert visitor.headers["Content-Type"].startswith("image/svg+xml")
    assert svg.startswith("<svg xmlns=")
    assert 'stroke="#000"' in svg
    assert "M4 4.5h7" in svg
    assert "width=" not in svg


async def test_a_static_order_has_no_code_of_its_own(shop, visitor) -> None:
    """The buyer scans that of the point of sale."""
    order = await shop.order(mode="static")

    assert "scan the code of the point of sale POS001" in await visitor.get(f"/_sandbox/orders/{order.id}/code.svg")
    assert 404 == visitor.status


async def test_without_segno_the_response_says_how_to_get_it(shop, visitor, monkeypatch) -> None:
    """Codes need the extra `qr`; everything else works without."""
    monkeypatch.setitem(sys.modules, "segno", None)
    order = await shop.order()

    assert "install the extra `qr`: " in await visitor.get(f"/_sandbox/orders/{order.id}/code.svg", Accept="image/*")
    assert 501 == visitor.status


async def test_a_request_can_be_copied(shop, visitor) -> None:
    """By the id that its response had; one that the log has forgotten says so."""
    await shop.order()
    [line] = re.findall(r'"request_id":"([^"]*)"', await visitor.get("/_sandbox/requests"))

    assert "curl -X POST" in await visitor.get(f"/_sandbox/requests/{line}/curl")
    assert "text/plain; charset=utf-8" == visitor.headers["Content-Type"]
    await visitor.get("/_sandbox/requests/req-0/curl")
    assert 404 == visitor.status


@pytest.mark.parametrize("path", ["preferences", "orders/x/code.svg", "requests/req-1/curl"])
async def test_pages_from_elsewhere_see_nothing(visitor, path: str) -> None:
    """What the dashboard reads, another site may not, not even as a picture."""
    await visitor.get(f"/_sandbox/{path}", **{"Sec-Fetch-Site": "cross-site"})

    assert 403 == visitor.status


@pytest.mark.parametrize(("method", "path", "status"), [("get", "/v1/nothing", 404), ("post", "/openapi.json", 405)])
async def test_an_unknown_address_is_a_page_for_people(visitor, method: str, path: str, status: int) -> None:
    """A browser gets a page of its own, and a program JSON."""
    go = {"get": visitor.get, "post": lambda path, **headers: visitor.post(path, {}, **headers)}[method]

    assert "<!doctype html>" in await go(path, **BROWSER)
    assert status == visitor.status
    assert "default-src 'none'" in visitor.headers["Content-Security-Policy"]
    assert (status == 405) == ("Allow" in visitor.headers)
    assert '"status":' in await go(path, Accept="*/*")
    assert status == visitor.status


@pytest.mark.control("paymentsdk.sandbox._app.redact_query", lambda path, secrets: path)
async def test_a_wrong_address_keeps_its_secrets(visitor) -> None:
    """It is among the requests, as one that no operation has, and without the credentials in it."""
    await visitor.get("/v2/orders?access_token=TEST-1", Accept="*/*")

    listing = await visitor.get("/_sandbox/requests")

    assert '"path":"/v2/orders?access_token=***"' in listing
    assert '"operation":null' in listing
    assert '"status":404' in listing
