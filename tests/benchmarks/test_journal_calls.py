"""How many steps a journaled call takes: each costs time, and each has to be read."""

from __future__ import annotations

import asyncio

from benchmarks.journal_calls import functions

MOST = 90


def test_a_journaled_create_runs_few_functions() -> None:
    """What is computed once is not computed again, and nothing only hands on."""
    names = asyncio.run(functions())

    assert len(names) <= MOST, "\n".join(names)
