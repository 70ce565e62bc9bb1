"""Measures the peak memory of an export of a search into a file. A server returns pages of 1,000 rows from memory.

`python -m benchmarks.export_memory parquet 1000000` prints seconds, and MiB at the peak.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from paymentsdk import PaymentsClient, Request, Response
from paymentsdk.testing import MemoryTransport

PAGE = 1000
MOMENT = "2026-01-31T06:30:00.000-03:00"
PAYMENT = '{"id": 77, "transaction_amount": 24.90, "currency_id": "ARS", "status": "approved", "date_approved": "%s"}'
ITEM = '{"id": "1", "title": "A thing", "quantity": 1, "unit_price": 24.90, "currency_id": "ARS"}'
ORDER = f"""{{"id": %d, "external_reference": "A-%d", "status": "closed", "order_status": "paid", "payer": {{"id": 5}},
"date_created": "{MOMENT}", "last_updated": "{MOMENT}", "total_amount": 24.90, "paid_amount": 24.90, "risk": 0.25,
"items": [{ITEM}], "payments": [{PAYMENT % MOMENT}]}}"""


async def export(path: Path, rows: int) -> None:
    """Export a search of so many rows to *path*."""

    def respond(request: Request) -> Response:
        transport.requests.clear()
        offset = int(dict(parse_qsl(urlsplit(request.url).query)).get("offset", 0))
        elements = ",".join(ORDER % (i, i) for i in range(offset, min(offset + PAGE, rows)))
        return Response(
            200, {}, f'{{"total": {rows}, "next_offset": {offset + PAGE}, "elements": [{elements}]}}'.encode()
        )

    transport = MemoryTransport(respond)
    async with PaymentsClient("TEST-1", base_url="http://127.0.0.1:1", transport=transport) as client:
        await client.merchant_orders.search().export(path)


def main() -> None:
    """Measure and print a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suffix", choices=("parquet", "csv", "jsonl"))
    parser.add_argument("rows", type=int)
    options = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(export(Path(directory, f"orders.{options.suffix}"), options.rows))
    seconds, kilobytes = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{options.rows:,} rows: {seconds:.1f} s, {kilobytes / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
