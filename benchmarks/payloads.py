"""Requests and responses of the benches: complete, realistic, and as large as in real traffic.

Each response in payloads.json has every member that the contract names for its resource. The other SDKs get responses
of their own services for a call of similar size (a payment intent, a chat completion).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec

from paymentsdk.resources.orders import (
    ItemRequest,
    Order,
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)

TOKEN = "APP_USR-4934588586838432-100912-8f1c0a7d5b3e9f2a6c4d8e0b1a3f5c7d-241983636"  # noqa: S105 - made up
#: The headers, encoder and decoder of every client that is written by hand, so that all do the same work.
READING = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
WRITING = {**READING, "Content-Type": "application/json"}
ENCODE = msgspec.json.Encoder(decimal_format="string").encode
DECODE = msgspec.json.Decoder(Order).decode
REFERENCE = "store-0042_till-7_20260131-000917"
#: The place of the id from the path in a response.
ASKED = "ASKED_ID"
#: The place of the number of a row in its ids.
NUMBER = "00000000"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: Written like most servers write numbers and texts.
_TEXTS = {
    name: json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for name, content in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}


def order_ids() -> Iterator[str]:
    """Yield order ids without end: 4,096 different ids, too many for a cache of URLs."""
    tails = itertools.islice(itertools.product(_CROCKFORD, repeat=3), 4096)
    return itertools.cycle([f"ORD01HRYFWNYRE1MR1E60MW3X0{''.join(tail)}"[:29] for tail in tails])


def peer_ids(prefix: str) -> Iterator[str]:
    """Yield as many different ids in the form of another service."""
    return (prefix + order_id[3:] for order_id in order_ids())


def order_request() -> OrderRequest:
    """Return an order with two items, as a till sends it."""
    beans = ItemRequest(
        title="Coffee beans", unit_price=Decimal("12.45"), quantity=2, unit_measure="kg", external_code="CB-1"
    )
    grinder = ItemRequest(
        title="Hand grinder", unit_price=Decimal("37.50"), quantity=1, unit_measure="unit", external_code="HG-9"
    )
    return OrderRequest(
        external_reference=REFERENCE,
        total_amount=Decimal("62.40"),
        description="Coffee beans and a grinder",
        expiration_time="PT10M",
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=Decimal("62.40"))]),
        config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id="STORE42POS007", mode="dynamic")),
        items=[beans, grinder],
    )


def response(name: str, asked: str = ASKED) -> bytes:
    """Return the response *name* of payloads.json, with the id *asked*."""
    return _TEXTS[name].replace(ASKED, asked).encode()


def rows(name: str, start: int, end: int) -> str:
    """Return the rows of a page from number *start* up to *end*, with commas between them."""
    parts = _TEXTS[name].split(NUMBER)
    return ",".join([f"{number:08}".join(parts) for number in range(start, end)])


def merchant_orders(count: int = 100, offset: int = 0, total: int | None = None) -> bytes:
    """Return a page of merchant orders, each with its item, payment and shipment."""
    total = count if total is None else total
    elements, end = rows("merchant_order", offset, offset + count), min(offset + count, total)
    return f'{{"elements":[{elements}],"next_offset":{end},"total":{total}}}'.encode()


def invoices(count: int = 100, offset: int = 0) -> bytes:
    """Return a page of invoices."""
    results = rows("invoice", offset, offset + count)
    return f'{{"paging":{{"offset":{offset},"limit":{count},"total":{count}}},"results":[{results}]}}'.encode()


def sizes() -> str:
    """Return the size of each response in bytes, as a note."""
    responses = {
        name: response(name, next(order_ids()))
        for name in ("order", "created_order", "payment_intent", "chat_completion")
    }
    pages = {"100 merchant orders": merchant_orders(), "100 invoices": invoices()}
    sizes = ", ".join(f"{name} {len(body):,}" for name, body in (responses | pages).items())
    return f"bytes per response: {sizes}"
