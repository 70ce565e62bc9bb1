"""Every night: hold the book of yesterday against the platform, for all sellers, on a Dask cluster.

`python nightly.py BOOK OUT`: BOOK is a CSV file, or the address of a PostgreSQL database with the table `sale`.
"""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paymentsdk import FlowControl, PaymentsClient
from paymentsdk.reconcile import Book, DaskExecutor, Report, reconcile

NAMES = {"reference": "name", "paid": "amount", "account": "shop"}


def connect() -> PaymentsClient:
    """Make a client of all sellers; each worker calls it as well."""
    tokens: dict[str, str] = json.loads(Path(os.environ["SELLERS"]).read_bytes())
    return PaymentsClient.from_env(accounts=tokens, flow=FlowControl(adaptive=True))


async def compare(source: str, out: Path) -> Report:
    """Reconcile yesterday, and write the report for finance."""
    is_database = source.startswith("postgresql://")
    book = Book.query(source, "SELECT * FROM sale", names=NAMES) if is_database else Book.csv(source, names=NAMES)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = (midnight - timedelta(days=1), midnight)
    sellers = json.loads(await asyncio.to_thread(Path(os.environ["SELLERS"]).read_bytes))
    executor = DaskExecutor(connect, os.environ["SCHEDULER"])
    async with connect() as client:
        report = await reconcile(book, client, created=yesterday, out=out, accounts=sellers, executor=executor)
    report.write_html(out / "report.html")
    return report


if __name__ == "__main__":
    report = asyncio.run(compare(sys.argv[1], Path(sys.argv[2])))
    print(json.dumps({outcome.value: number for outcome, number in report.counts.items()}))  # noqa: T201
    print(*report.failed, file=sys.stderr)  # noqa: T201
    sys.exit(0 if report.is_same else 1)
