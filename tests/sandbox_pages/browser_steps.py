"""What tests in a browser do again and again."""

from __future__ import annotations

import json
from pathlib import Path

PAY = "Pay ARS\N{NO-BREAK SPACE}50.00"


async def open_dashboard(tab, sandbox) -> None:
    """Open the dashboard, and wait until it listens."""
    await tab.open(f"{sandbox.base_url}/_sandbox/")
    await tab.until("document.querySelector('#link').textContent.trim() === 'Connected'")


async def text_of(tab, selector: str) -> str:
    """The text of an element."""
    return await tab.run(f"document.querySelector({json.dumps(selector)}).textContent.trim()")


def script(name: str) -> str:
    """Return an expression of JavaScript from `scripts`."""
    return Path(__file__).parent.joinpath("scripts", name).read_text(encoding="utf-8").strip()
