"""The picture of the dashboard in README.md.

To draw it anew: ``UPDATE_PICTURE=1 pytest tests/sandbox_pages/test_picture.py``.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from paymentsdk.sandbox import FaultRule

PICTURE = Path(__file__).parents[2] / "docs/dashboard.png"


async def test_the_dashboard_shows_what_the_picture_shows(tab, sandbox, shop) -> None:
    """An order that waits with its code, others that were paid and refunded, the ledger, and a fault in force."""
    orders = [
        await shop.order(amount, external_reference=f"table-{number}")
        for number, amount in enumerate(["18.00", "42.50", "7.25", "63.00"], start=1)
    ]
    for order in orders[:3]:
        sandbox.buyer.pay(order)
    await shop.client.orders.refund(orders[0].id)
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.create", times=1))

    await tab.look(1180, 1180)
    await tab.open(f"{sandbox.base_url}/")
    await tab.until("document.querySelector('.card .code svg path') !== null")
    await tab.until("document.querySelectorAll('#settled-rows tr').length === 3")
    await tab.until("document.querySelectorAll('#ledger-rows li').length === 8")

    if os.environ.get("UPDATE_PICTURE"):
        shot = await tab.send("Page.captureScreenshot", format="png")
        PICTURE.write_bytes(base64.b64decode(shot["data"]))
    assert PICTURE.read_bytes().startswith(b"\x89PNG")
    assert [] == tab.problems
