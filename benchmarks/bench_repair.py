"""What a page costs that is crooked in every row: four members of each row, next to the same page as it should be.

Both are decoded in turn, in one process, and the ratio of the CPU time of the best rounds is shown. *Longest step* is
the most CPU time between two turns of the event loop, for the crooked page.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks import payloads
from paymentsdk import OPERATIONS

PAGES = {
    "merchant_orders.search": (
        payloads.merchant_orders,
        "elements",
        {"external_reference": 5, "total_amount": "abc", "date_created": "", "site_id": {}},
    ),
    "invoices.search": (
        payloads.invoices,
        "results",
        {"reason": 5, "transaction_amount": {}, "date_created": "", "summarized": 7},
    ),
}


def seconds(operation: str, body: bytes) -> float:
    """Return the CPU time of decoding *body*."""
    began = time.process_time()
    OPERATIONS[operation].decode(body)
    return time.process_time() - began


def longest_step(operation: str, body: bytes) -> float:
    """Return the most CPU time between two slices."""
    longest, steps = 0.0, OPERATIONS[operation].decoder.steps(body)
    while True:
        began = time.process_time()
        try:
            next(steps)
        except StopIteration:  # It holds the page: to free that is not a part of the step.
            return max(longest, time.process_time() - began)
        longest = max(longest, time.process_time() - began)


def main() -> None:
    """Measure, and print a line for each page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=10)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    for operation, (make, member, odd) in PAGES.items():
        count = chosen.megabytes * 10_000_000 // len(make(1_000, 0)) * 100
        sound = make(count, 0)
        page = json.loads(sound)
        for row in page[member]:
            row.update(odd)
        crooked = json.dumps(page).encode()
        del page  # A collection of garbage would go through it.
        times = [(seconds(operation, sound), seconds(operation, crooked)) for _ in range(chosen.rounds)]
        best = [min(column) for column in zip(*times, strict=True)]
        step = longest_step(operation, crooked)
        print(
            f"{operation}: {count} rows, {best[0] * 1e3:.0f} ms sound, {best[1] * 1e3:.0f} ms crooked, "
            f"ratio {best[1] / best[0]:.1f}, longest step {step * 1e3:.1f} ms"
        )


if __name__ == "__main__":
    main()
