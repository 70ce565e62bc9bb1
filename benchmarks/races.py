"""Race requests with a server that closes and resets its connections at any moment: `python -m benchmarks.races`.

It exits with 1 if an attempt was sent twice, got another attempt's response, or counts as not sent although the server
saw it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.transports.races import KINDS, race


def main() -> int:
    """Run the races over each transport, and print the results of the requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="for each transport (default: 10,000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    breached = 0
    for name in KINDS:
        outcomes = asyncio.run(race(name, options.requests, options.seed))
        print(f"{name}:", ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.counts.most_common()))
        print(*outcomes.breaches[:20], f"{len(outcomes.breaches)} breaches", sep="\n")
        breached += len(outcomes.breaches)
    return 1 if breached else 0


if __name__ == "__main__":
    sys.exit(main())
