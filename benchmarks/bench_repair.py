"""Compares a page that is malformed in every row with the same page that follows the contract.

One process decodes both in turn, and the bench prints the ratio of the CPU times of the best rounds. Four members of
each row are malformed: with the same value in all rows, or with a different value in each row. A third page has rows
without ids. A page of `--rows` rows is as in a search; a page of 10 MB is the largest.

    python -m benchmarks.bench_repair --rows 20000
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable

from benchmarks import payloads
from paymentsdk import OPERATIONS

#: Returns the invalid value for the number of a row; `None` means a missing value.
Malformed = Callable[[int], dict[str, object]]
#: The highest allowed ratio of a malformed page to a valid page.
BAR = 5.0
PAGES: dict[str, tuple[Callable[[int, int], bytes], str, dict[str, Malformed]]] = {
    "merchant_orders.search": (
        payloads.merchant_orders,
        "elements",
        {
            "the same": lambda _: {"external_reference": 5, "total_amount": "abc", "date_created": "", "site_id": {}},
            "different": lambda number: {
                "external_reference": number,
                "total_amount": f"abc {number}",
                "date_created": f"2026-01-31T09:30:00.{number:06}",
                "site_id": {"is": number},
            },
            "no id": lambda _: {"id": None},
        },
    ),
    "invoices.search": (
        payloads.invoices,
        "results",
        {
            "the same": lambda _: {"reason": 5, "transaction_amount": {}, "date_created": "", "summarized": 7},
            "different": lambda number: {
                "reason": number,
                "transaction_amount": {"is": number},
                "date_created": f"2026-01-31T09:30:00.{number:06}",
                "summarized": {"is": number},
            },
            "no id": lambda _: {"id": None},
        },
    ),
}


def seconds(operation: str, body: bytes) -> float:
    """Return the CPU time of decoding *body*."""
    began = time.process_time()
    OPERATIONS[operation].decode(body)
    return time.process_time() - began


def spoilt(page: bytes, member: str, malformed: Malformed) -> bytes:
    """Return *page* with every row *malformed*."""
    content = json.loads(page)
    for number, row in enumerate(content[member]):
        row.update(malformed(number))
        content[member][number] = {name: value for name, value in row.items() if (name, value) != ("id", None)}
    return json.dumps(content).encode()


def main() -> None:
    """Measure, and print a line for each page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    for operation, (make, member, kinds) in PAGES.items():
        sound = make(chosen.rows, 0)
        pages = {"as it should be": sound, **{name: spoilt(sound, member, kind) for name, kind in kinds.items()}}
        gc.collect()
        best = dict.fromkeys(pages, float("inf"))
        for _ in range(chosen.rounds):
            for name, body in pages.items():
                best[name] = min(best[name], seconds(operation, body))
        for name, body in pages.items():
            ratio = best[name] / best["as it should be"]
            print(
                f"{operation:24}{chosen.rows:>8,} rows {len(body) / 1e6:6.1f} MB  {name:16}{best[name] * 1e3:8.1f} ms"
                f"{ratio:6.1f}{' (above the bar)' if ratio > BAR else ''}"
            )


if __name__ == "__main__":
    main()
