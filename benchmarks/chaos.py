"""Kill clients, the sandbox and the database for as long as you like: `python -m benchmarks.chaos --minutes 60`.

It repeats `python -m tests.chaos` with different seeds on both journals. It ends at the first run that breaks a rule,
and prints the seed. `--write` writes the table of the results into docs/explanation/exactly-once.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.__main__ import Outcome, on_both, say, without_a_journal

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "exactly-once.md"
_MARKERS = re.compile(r"(<!-- table: chaos -->\n).*?(<!-- end of table -->)", re.DOTALL)
#: The rules of tests/chaos/verdicts.py, in words.
_RULES = {
    "double": "broken: took effect twice",
    "lost": "broken: told or kept as done, without an effect",
    "wrong": "broken: an effect after a rejection, `not_sent` or `expired`",
    "foreign": "broken: took effect for another seller",
    "late": "broken: attempts after `not_after`",
    "bytes": "broken: a key sent with other bytes",
    "unkept": "broken: sent without a record",
    "stuck": "broken: open, although recovery could settle it",
    "refreshed": "broken: a second new token for one that has ended",
    "asked": "broken: more refreshes than ended tokens and deaths explain",
    "surprised": "broken: an error that none of these calls can come to",
    "quiet": "faults that never came",
}
#: The ways in which tokens became invalid.
_ENDED = ("rejected", "ending", "refreshed")
#: The shown results of calls.
_TOLD = {"done": "done", "refused": "rejected", "NotSent": "`NotSent`", "OutcomeUnknown": "`OutcomeUnknown`"}
#: Seconds of one seed.
RUN = 90.0


def table(outcomes: Sequence[Outcome], seeds: Sequence[int], minutes: float, doubles: int) -> str:
    """Return the totals of all runs for each journal."""
    stores = list(dict.fromkeys(outcome.store for outcome in outcomes))
    of = {store: [outcome for outcome in outcomes if outcome.store == store] for store in stores}
    kills = {store: sum((outcome.kills for outcome in runs), Counter[str]()) for store, runs in of.items()}
    names = list(dict.fromkeys(name for counted in kills.values() for name in counted))
    lines = [("", stores), ("---", ["--:"] * len(stores))]
    lines += [(f"killed: {name}", [f"{kills[store][name]:,}" for store in stores]) for name in names]
    faults = {store: sum((Counter(outcome.faults) for outcome in runs), Counter[str]()) for store, runs in of.items()}
    lines += [
        (name, [f"{faults[store][name]:,}" for store in stores])
        for name in dict.fromkeys(name for counted in faults.values() for name in counted)
    ]
    counts = [
        (f"tokens: {name}", [sum(outcome.ended[name] for outcome in of[store]) for store in stores]) for name in _ENDED
    ]
    counts += [
        (f"callers told: {word}", [sum(outcome.told[name] for outcome in of[store]) for store in stores])
        for name, word in _TOLD.items()
    ]
    counts += [("attempts", [sum(outcome.attempts for outcome in of[store]) for store in stores])]
    counts += [("effects", [sum(outcome.effects for outcome in of[store]) for store in stores])]
    counts += [
        (_RULES.get(rule, f"broken: {rule}"), [sum(outcome.broken[rule] for outcome in of[store]) for store in stores])
        for rule in outcomes[0].broken
    ]
    lines += [(name, [f"{count:,}" for count in row]) for name, row in counts]
    rows = "\n".join(f"| {' | '.join([name, *cells])} |" for name, cells in lines)
    runs = f"{len(seeds)} run{'s' * (len(seeds) > 1)} from seed {seeds[0]} on, {minutes:.0f} minutes"
    return f"\n{rows}\n\n{runs}. The control, clients without the journal, made {doubles:,} orders twice.\n\n"


async def run(seed: int, minutes: float, sellers: int) -> tuple[list[Outcome], str]:
    """Run until the time is over or a rule is broken; return the totals and the table."""
    began, outcomes, seeds, doubles = time.monotonic(), list[Outcome](), list[int](), 0
    while not seeds or time.monotonic() < began + minutes * 60:
        seeds.append(seed + len(seeds))
        say(f"seed {seeds[-1]}")
        with tempfile.TemporaryDirectory() as folder:
            on_stores = await on_both(seeds[-1], RUN, Path(folder), count=sellers)
            doubles += await without_a_journal(seeds[-1], RUN / 6, Path(folder))
        outcomes += on_stores
        if any(outcome.problems for outcome in on_stores):
            break
    return outcomes, table(outcomes, seeds, (time.monotonic() - began) / 60, doubles)


def main() -> None:
    """Run and print, and write the page with `--write`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--minutes", type=float, default=30.0, help="start no run after this time (default: 30)")
    parser.add_argument("--sellers", type=int, default=200, help="sellers; one has two local names (default: 200)")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    outcomes, text = asyncio.run(run(options.seed, options.minutes, options.sellers))
    say(text)
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        say(problem)
    if options.write and not problems:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_MARKERS.sub(lambda match: match[1] + text + match[2], page), encoding="utf-8")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
