"""Clients that are killed, on one journal, against a sandbox that fails: `python -m tests.chaos [--seed N]`.

Several processes call the same names on one journal. Requests and responses are lost, late and refused; the processes
die by SIGKILL, and so does the sandbox; what starts anew recovers. Then the journal, what callers were told and what
was sent are held against the sandbox's ledger: see verdicts.py. Two kinds of controls end the run as failed if they do
not fire: evidence that breaks each rule, and clients that ignore the journal, which have to make orders twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from paymentsdk.journal import RecordState, SQLiteJournal
from tests.chaos.verdicts import Evidence, controls, judge
from tests.chaos.worker import Plan

PROCESSES = 3
#: By this much the leases of the dead are ended between two rounds.
LEASES = 150.0
TWO_DAYS = 48 * 3600.0
FAULTS: tuple[dict[str, object], ...] = (
    {"effect": "lose_response_after_commit", "probability": 0.06},
    {"effect": "fail_before_commit", "probability": 0.04},
    {"effect": "fail_before_commit", "probability": 0.03, "status": 503},
    {"effect": "fail_before_commit", "probability": 0.02, "status": 423},
    {"effect": "refuse", "probability": 0.02},
    {"effect": "rate_limit", "probability": 0.02, "retry_after": 0},
    {"effect": "reset", "probability": 0.04},
    # Longer than an attempt: the next one finds the key in flight.
    {"effect": "delay_before_commit", "probability": 0.04, "seconds": 1.3},
    {"effect": "delay_after_commit", "probability": 0.02, "seconds": 1.3},
    {"effect": "truncate", "probability": 0.02},
    {"effect": "malformed", "probability": 0.02},
    {"effect": "html", "probability": 0.02},
)


class Platform:
    """A sandbox in a process of its own, which keeps what it does in a file."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._process: asyncio.subprocess.Process | None = None
        self.base_url = ""

    async def start(self) -> None:
        """Start it, or start it again at its address."""
        port = self.base_url.rpartition(":")[2] or "0"
        twin = ("conflict", "locked")[self._seed % 2]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "paymentsdk", "sandbox", "--port", port, "--json"),
            *(
                "--db",
                str(self._folder / "sandbox.db"),
                "--seed",
                str(self._seed),
                "--policy",
                f"concurrent_twin={twin}",
            ),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.base_url = json.loads(await self._process.stdout.readline())["base_url"]

    async def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            await end(self._process)
            self._process = None

    async def fail(self) -> None:
        """Have it fail from now on."""
        for number, fault in enumerate(FAULTS):
            rule = {"operation": "orders.create", "seed": self._seed * 100 + number, **fault}
            await self.call("POST", "faults", rule)

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """Make a request to its control API."""

        def call() -> bytes:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"{self.base_url}/_sandbox/{path}", data, headers, method=method)
            with urllib.request.urlopen(asked, timeout=10) as response:
                return response.read()

        return await asyncio.to_thread(call)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill *process*, and wait for it."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


async def life(plan: Plan, seconds: float | None) -> int:
    """Run a client to its end, or for so many seconds since it has begun to recover; return how it ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.worker", msgspec.json.encode(plan, enc_hook=str).decode()),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        return await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        return -signal.SIGKILL
    finally:
        await end(process)


async def lives(plan: Plan, seconds: float, kills: Counter[str]) -> None:
    """Run one client after the other for so many seconds in all, each killed at a random moment."""
    chance, stop = Random(f"{plan.seed}/{plan.round}/{plan.number}/kills"), time.monotonic() + seconds
    while time.monotonic() < stop:
        code = await life(plan, chance.uniform(0.0, 2.0))
        if code != -signal.SIGKILL:
            raise SystemExit(f"a client ended by itself: {code}")
        kills["clients"] += 1


async def rounds(plan: Plan, platform: Platform, seconds: float, kills: Counter[str]) -> Plan:
    """Run several rounds of names, with the leases of the dead ended after each; return the plan of the next."""
    count = max(1, round(seconds / 9))
    for number in range(count):
        plan = structs.replace(plan, round=number, leases_ahead=plan.leases_ahead + LEASES)
        clients = [structs.replace(plan, number=place, wall_ahead=(place - 1) * TWO_DAYS) for place in range(PROCESSES)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(lives(client, seconds / count, kills))
            if number % 2:
                await asyncio.sleep(seconds / count / 2)
                await restart(platform)
                kills["sandbox"] += 1
    return structs.replace(plan, leases_ahead=plan.leases_ahead + LEASES, round=count)


async def restart(platform: Platform) -> None:
    """Kill the sandbox under load, and start it on its file."""
    await platform.kill()
    await platform.start()
    await platform.fail()


async def sellers(platform: Platform, count: int) -> list[dict[str, Any]]:
    """Make sellers."""
    return [json.loads(await platform.call("POST", "tenants", {})) for _ in range(count)]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what processes wrote to a file; the last line of one that died may be cut."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            yield json.loads(line)


async def evidence(plan: Plan, platform: Platform, ids: list[int]) -> Evidence:
    """Gather what is left of a run."""
    journal = SQLiteJournal(plan.folder / "journal.db")
    rows = await journal.records(tuple(RecordState), limit=1_000_000)
    await journal.aclose()
    ledger = [json.loads(line) for line in (await platform.call("GET", "ledger")).splitlines()]
    return Evidence(
        sellers=ids,
        ledger=[entry for entry in ledger if entry["kind"] == "order_created"],
        told=list(lines(plan.folder / "told")),
        sent=list(lines(plan.folder / "sent")),
        rows=rows,
        now=time.time(),
    )


async def run(folder: Path, seed: int, seconds: float, *, control: bool) -> tuple[Evidence, Counter[str]]:
    """Run clients, kill them, recover twice at once, and return what there is to see."""
    platform, kills = Platform(folder, seed), Counter[str]()
    await platform.start()
    try:
        made = await sellers(platform, 3)
        # Two local names of the first seller: its records are the same under both.
        names = [["main", "also-main"], ["north"], ["south"]]
        tokens = {name: seller["access_token"] for seller, its in zip(made, names, strict=True) for name in its}
        plan = Plan(
            base_url=platform.base_url,
            accounts=tokens,
            sellers=names,
            folder=folder,
            seed=seed,
            number=0,
            of=PROCESSES,
            names=600,
            round=0,
            control=control,
        )
        await platform.fail()
        plan = await rounds(plan, platform, seconds, kills)
        await platform.call("DELETE", "faults")
        if not control:
            await recover(plan)
        return await evidence(plan, platform, [seller["user_id"] for seller in made]), kills
    finally:
        await platform.kill()


async def recover(plan: Plan) -> None:
    """Recover what is left in two processes at once."""
    last = structs.replace(plan, recover_only=True)
    codes = await asyncio.gather(*(life(structs.replace(last, wall_ahead=ahead), None) for ahead in (0.0, TWO_DAYS)))
    if any(codes):
        raise SystemExit(f"a recovery failed: {codes}")


def say(line: str) -> None:
    """Print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def report(seen: Evidence, kills: Counter[str]) -> list[str]:
    """Print what happened, and return what is wrong."""
    told = Counter(line["told"] for line in seen.told if "told" in line)
    say(f"killed: {dict(kills)}; attempts: {len(seen.sent)}; effects: {len(seen.ledger)}; told: {dict(told)}")
    say(f"records: {dict(Counter(row.state.value for row in seen.rows))}")
    verdict = judge(seen)
    say(", ".join(f"{len(broken)} {rule}" for rule, broken in verdict.items()))
    problems = [f"{rule}: {case}" for rule, broken in verdict.items() for case in broken[:5]]
    silent = [rule for rule, broken in controls(seen).items() if not judge(broken)[rule]]
    return [*problems, *(f"the control of {rule!r} did not fire" for rule in silent)]


async def main(seed: int, seconds: float, folder: Path) -> list[str]:
    """Run it and its control, and return what is wrong."""
    say(f"seed {seed}")
    for name in ("journal", "control"):
        (folder / name).mkdir()
    problems = report(*await run(folder / "journal", seed, seconds * 0.75, control=False))
    seen, kills = await run(folder / "control", seed, seconds * 0.25, control=True)
    doubles = len(judge(seen)["double"])
    say(f"control, without the journal: killed {dict(kills)}, effects: {len(seen.ledger)}, {doubles} double")
    return problems + (["clients that ignore the journal made no order twice"] if not doubles else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--seconds", type=float, default=48.0, help="of killing, the control included (default: 48)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        wrong = asyncio.run(main(options.seed, options.seconds, Path(place)))
    for line in wrong:
        say(line)
    sys.exit(bool(wrong))
