"""Numbers that pages give for defaults and bounds are those of the code."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path

import pytest

from paymentsdk import AiohttpTransport, FlowControl, Http11Transport, PaymentsClient, RetryPolicy
from paymentsdk._call.limiter import FIRST_CONCURRENCY, HOLD, MIN_CONCURRENCY
from paymentsdk._contract.rules import KEY_LIFETIME
from paymentsdk._paging.pager import REMEMBERED
from paymentsdk.money import MOST_DIGITS
from paymentsdk.resources import OPERATIONS
from paymentsdk.resources.oauth import DEFAULT_LIFETIME
from paymentsdk.resources.orders import DEFAULT_EXPIRATION, LONGEST_EXPIRATION, SHORTEST_EXPIRATION

ROOT = Path(__file__).parents[2]
PERFORMANCE = "docs/explanation/performance-evidence.md"
MIB = 1024 * 1024


def default(function: object, name: str) -> object:
    """Return the default of a parameter."""
    return inspect.signature(function).parameters[name].default


NUMBERS = [
    ("docs/explanation/flow-control.md", f"For {HOLD:g} seconds"),
    ("docs/explanation/flow-control.md", f"after {2 * HOLD:g}, {4 * HOLD:g}, {8 * HOLD:g} and then every second"),
    ("docs/explanation/flow-control.md", f"a bound of {FIRST_CONCURRENCY:g}"),
    ("docs/explanation/flow-control.md", f"down to {MIN_CONCURRENCY:g}"),
    ("docs/explanation/how-paging-does-not-lose-rows.md", f"(the last {REMEMBERED:,})"),
    ("docs/explanation/choices.md", f"up to {RetryPolicy().max_retry_after:g} seconds"),
    ("docs/reference/contract.md", f"{DEFAULT_LIFETIME // 86_400} days ({DEFAULT_LIFETIME:,} seconds)"),
    ("docs/reference/contract.md", f"sending a key after {KEY_LIFETIME / 3600:g} hours"),
    ("docs/reference/contract.md", f"at most {MOST_DIGITS} digits before the point"),
    (
        "docs/reference/contract.md",
        f"{SHORTEST_EXPIRATION.seconds} seconds to {LONGEST_EXPIRATION // timedelta(hours=1):,} hours",
    ),
    ("docs/reference/contract.md", f"{DEFAULT_EXPIRATION // timedelta(minutes=1)} minutes"),
    ("docs/how-to/choose-a-transport.md", f"`limit` ({default(Http11Transport, 'limit')})"),
    ("docs/how-to/choose-a-transport.md", f"`keepalive_timeout` ({default(Http11Transport, 'keepalive_timeout'):g} s)"),
    ("docs/how-to/retry-safely.md", f"the limit of {OPERATIONS['orders.get'].max_response // MIB} MiB"),
    ("docs/how-to/retry-safely.md", f"({OPERATIONS['merchant_orders.search'].max_response // MIB} for a page)"),
    ("docs/how-to/retry-safely.md", f"within {KEY_LIFETIME / 3600:g} hours"),
    ("docs/how-to/run-in-a-service.md", f"up to {default(PaymentsClient.aclose, 'grace'):g} seconds (`grace=`)"),
    ("docs/how-to/run-in-a-service.md", f"{default(AiohttpTransport, 'drain'):g} seconds (`AiohttpTransport(drain"),
    ("docs/how-to/stay-below-a-rate-limit.md", f"{FlowControl().max_wait:g} seconds at most (`FlowControl(max_wait"),
    ("README.md", f"within {KEY_LIFETIME / 3600:g} hours"),
]


def words_of(page: str) -> str:
    """Return the text of a page, with its lines put together."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_a_page_gives_the_number_of_the_code() -> None:
    """Whoever changes a default finds the page that names it."""
    assert [] == [(page, sentence) for page, sentence in NUMBERS if sentence not in words_of(page)]


def measured(contestant: str) -> str:
    """Return the least and the most that a call of *contestant* has cost, beside bare aiohttp."""
    tables = re.findall(
        r"<!-- table: bench_call(?:_tls)? -->.*?<!-- end", (ROOT / PERFORMANCE).read_text(encoding="utf-8"), re.DOTALL
    )
    rows = [row for table in tables for row in re.findall(rf"^\| {contestant} \|(.*)$", table, re.MULTILINE)]
    ratios = [float(ratio) for row in rows for ratio in re.findall(r"\((\d+\.\d+)\)", row)]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times"


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/choose-a-transport.md"])
def test_what_a_call_costs_is_what_was_measured(page: str) -> None:
    """Whoever measures anew finds the pages that sum it up."""
    for contestant in ("paymentsdk", "paymentsdk, http11"):
        assert re.search(measured(contestant).replace(" times", r"( times)?"), words_of(page))


def table_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of the page on performance, by the heads of its columns."""
    text = (ROOT / PERFORMANCE).read_text(encoding="utf-8")
    body = text.partition(f"<!-- table: {name} -->")[2].partition("<!-- end")[0].strip()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def number(table: str, column: str, **cells: str) -> float:
    """Return the number of the row of *table* with these *cells*, without its quartiles."""
    [row] = [row for row in table_of(table) if cells.items() <= row.items()]
    return float(row[column].partition(" ")[0].replace(",", ""))


def test_the_table_of_readme_is_what_was_measured() -> None:
    """Whoever measures anew finds the page, the walk and the sandbox of README.md, rounded."""
    rows = {"answer": "100 merchant orders"}
    ours, json = (number("bench_decode", "CPU, µs", contestant=who, **rows) for who in ("paymentsdk", "json"))
    walk = number("bench_reconcile", "orders per CPU second", what="walk", orders="200,000")
    start, order = (number("bench_sandbox", "time, ms", what=step) for step in ("start", "create, pay, refund"))

    readme = words_of("README.md")
    assert f"{ours / 1000:.2f} ms to decode; `json` takes {json / 1000:.2f} ms" in readme
    assert f"{round(walk, -3):,.0f} orders per CPU second" in readme
    assert f"starts in {start:.1f} ms; creates, pays and refunds an order in {order:.1f} ms" in readme
