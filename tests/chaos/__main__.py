"""Clients that are killed, on one journal, against a sandbox that fails: `python -m tests.chaos [--seed N]`.

Orders, refunds of paid orders, and preferences, which take no key; some orders the platform rejects.

Once on a `SQLiteJournal` and once on a `PostgresJournal`, with token stores of the same kind. First clients die at each
step of a call, of a refresh and of a recovery: see steps.py. Then several processes call the same names on one journal.
Requests and responses are lost, late and rejected; tokens end, and backups of their store are restored; the disk of the
journal is full again and again, and connections to its server are cut, in the middle of a statement or a commit where
there is one; the processes die by SIGKILL, and so do the sandbox and the server of the journal; what starts anew
recovers. In the end the journal, what callers were told and what was sent are held against the sandbox's ledger: see
verdicts.py. Two kinds of controls end the run as failed if they do not fire: evidence that breaks each rule, and
clients that ignore the journal, which have to make orders twice.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct, structs

from paymentsdk.journal import Record, RecordState
from tests import postgres
from tests.chaos.tokens import Tokens, control
from tests.chaos.verdicts import Evidence, controls, judge, left_open
from tests.chaos.worker import LEFT, Plan, journal_at
from tests.postgres import Server

PROCESSES = 3
SELLERS = 3
#: By this much the leases of the dead are ended between two rounds.
LEASES = 150.0
#: Seconds in which a client has called something, unless the sandbox or the database is away.
LONGEST_START = 8.0
#: Seconds for which the sandbox is down: longer than all attempts of a call take where each is refused.
DOWN = 1.5
#: Recoveries after the first two, at most: what is open after them is stuck.
MOST_RECOVERIES = 4
TWO_DAYS = 48 * 3600.0
#: Seconds between two connections to the database that are cut.
CUT = 0.4
#: Has every thirtieth statement on the journal's table fail as on a full disk; no rollback takes back the count.
FULL_DISK = (
    "CREATE SEQUENCE statements",
    """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('statements') % 30 = 0 THEN RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full'; END IF;
        RETURN NULL;
    END $$""",
    """CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON paymentsdk_record
        FOR EACH STATEMENT EXECUTE FUNCTION full_disk()""",
)
FULL_DISKS = "SELECT last_value / 30 FROM statements"
FREE_DISK = "DROP FUNCTION full_disk CASCADE"
#: Cuts one connection of a client, one in the middle of a statement or a commit if there is one.
CUT_ONE = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity WHERE application_name = 'paymentsdk' ORDER BY state <> 'active', random() LIMIT 1
) AS one
"""
FAULTS: tuple[dict[str, object], ...] = (
    {"effect": "lose_response_after_commit", "probability": 0.06},
    {"effect": "fail_before_commit", "probability": 0.04},
    {"effect": "fail_before_commit", "probability": 0.03, "status": 503},
    {"effect": "fail_before_commit", "probability": 0.02, "status": 423},
    {"effect": "refuse", "probability": 0.02},
    # As of a token that has just expired: another attempt may have one that has not.
    {"effect": "refuse", "probability": 0.02, "status": 401},
    {"effect": "rate_limit", "probability": 0.02, "retry_after": 0},
    {"effect": "reset", "probability": 0.04},
    # Longer than an attempt: the next one finds the key in flight.
    {"effect": "delay_before_commit", "probability": 0.04, "seconds": 1.3},
    {"effect": "delay_after_commit", "probability": 0.02, "seconds": 1.3},
    {"effect": "truncate", "probability": 0.02},
    {"effect": "malformed", "probability": 0.02},
    {"effect": "html", "probability": 0.02},
)

OPERATIONS = ("orders.create", "orders.refund", "preferences.create")
#: The entries of the ledger that are effects, and what follows the reference of the order in the name of the write.
EFFECTS = {"order_created": "", "preference_created": "", "refund": "/refund"}


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

    async def fail(
        self, operations: Sequence[str] = OPERATIONS, faults: Sequence[Mapping[str, object]] = FAULTS
    ) -> None:
        """Have it fail from now on."""
        for number, (operation, fault) in enumerate(itertools.product(operations, faults)):
            rule = {"operation": operation, "seed": self._seed * 100 + number, **fault}
            await self.call("POST", "faults", rule)

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """Make a request to its control API."""
        return await asyncio.to_thread(control, self.base_url, method, path, body)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill *process*, and wait for it."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def encoded(plan: Plan) -> str:
    """Return *plan* as a process takes it."""
    return msgspec.json.encode(plan, enc_hook=str).decode()


async def life(plan: Plan, seconds: float | None, *, after: int = 1, worker: str = "tests.chaos.worker") -> int:
    """Run a client to its end, or for so many seconds since line *after* of what it says; return how it ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", worker, encoded(plan)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_START):
                for _ in range(after):
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
        # Some as they recover, most as they call: a machine may be too slow to come to that by itself.
        code = await life(plan, chance.uniform(0.0, 1.5), after=chance.choice((1, 2, 2)))
        if code != -signal.SIGKILL:
            raise SystemExit(f"a client ended by itself: {code}")
        kills["clients"] += 1


async def ask(dsn: str, statement: str) -> int:
    """Run a statement, and return what it says."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement) or 0
    finally:
        await connection.close()


async def cut_connections(dsn: str, faults: Counter[str]) -> None:
    """Cut connections of clients, until this is cancelled."""
    import asyncpg

    while True:
        await asyncio.sleep(CUT)
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # The server is away.
            faults["connections cut"] += await ask(dsn, CUT_ONE)


@asynccontextmanager
async def trouble(plan: Plan, faults: Counter[str]) -> AsyncIterator[Plan]:
    """Have the disk of the journal full again and again, and the connections to its server cut; return the plan."""
    if "://" not in plan.journal:
        yield structs.replace(plan, disk_fills=True)
        return
    faults["connections cut"] = 0
    for statement in FULL_DISK:
        await ask(plan.journal, statement)
    cutting = asyncio.create_task(cut_connections(plan.journal, faults))
    try:
        yield plan
    finally:
        cutting.cancel()
        with suppress(asyncio.CancelledError):
            await cutting
    faults["disk full"] = await ask(plan.journal, FULL_DISKS)
    await ask(plan.journal, FREE_DISK)


async def rounds(plan: Plan, platform: Platform, server: Server | None, seconds: float, kills: Counter[str]) -> Plan:
    """Run several rounds of names, with the leases of the dead ended after each; return the plan of the next."""
    count = max(2, round(seconds / 9))
    for number in range(count):
        plan = structs.replace(plan, round=number, leases_ahead=plan.leases_ahead + LEASES)
        clients = [structs.replace(plan, number=place, wall_ahead=(place - 1) * TWO_DAYS) for place in range(PROCESSES)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(lives(client, seconds / count, kills))
            await asyncio.sleep(seconds / count / 2)
            if number % 2:
                await restart(platform)
                kills["sandbox"] += 1
            elif server is not None:
                await asyncio.to_thread(server.stop, "immediate")
                await asyncio.to_thread(server.start)
                kills["database"] += 1
    return structs.replace(plan, leases_ahead=plan.leases_ahead + LEASES, round=count, disk_fills=False)


async def every_step(plan: Plan, users: list[int], kills: Counter[str]) -> Plan:
    """Have clients die at each step of a call, of one with a token that has ended, and of the recovery of these.

    Returns:
        The plan of what follows.
    """
    series = {
        "steps of a call": structs.replace(plan, round=-1),
        "steps of a call with a refresh": structs.replace(plan, round=-2, refreshes=True),
        "steps of a recovery": structs.replace(plan, round=-3, recover_only=True),
    }
    ahead, few = plan.leases_ahead, plan.sellers[:SELLERS]
    for name, of in series.items():
        ahead += LEASES
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.steps"),
            *(encoded(structs.replace(of, sellers=few, leases_ahead=ahead)), json.dumps(users)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise SystemExit("the series of clients that die at each step failed")
        kills[name] += int(out)
    return structs.replace(plan, leases_ahead=ahead)


async def restart(platform: Platform) -> None:
    """Kill the sandbox under load, and start it on its file after a while in which nobody can connect."""
    await platform.kill()
    await asyncio.sleep(DOWN)
    await platform.start()
    await platform.fail()


async def sellers(platform: Platform, count: int) -> list[dict[str, Any]]:
    """Make sellers of one application."""
    tenants = [json.loads(await platform.call("POST", "tenants", {}))]
    while len(tenants) < count:
        tenants.append(json.loads(await platform.call("POST", "tenants", {"client_id": tenants[0]["client_id"]})))
    return tenants


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what processes wrote to a file; the last line of one that died may be cut."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            yield json.loads(line)


async def evidence(
    plan: Plan, platform: Platform, ids: list[int], kills: Mapping[str, int], faults: Counter[str]
) -> Evidence:
    """Gather what is left of a run."""
    ledger = [json.loads(line) for line in (await platform.call("GET", "ledger")).splitlines()]
    noted, calls = list(lines(plan.folder / "sent")), list(lines(plan.folder / "told"))
    if not plan.control:
        # On PostgreSQL the server has counted them.
        faults.setdefault(
            "disk full", sum("disk is full" in line.get("why", line.get("problem", "")) for line in calls)
        )
        faults["callers left"] = sum(line.get("told") == LEFT for line in calls)
    # The sandbox takes with it what each client has under way, and the database the locks of each. A spent refresh
    # token that a backup brings back is sent once by each process that starts.
    costly = {"sandbox": PROCESSES * 3, "database": PROCESSES * 3, "backups restored": PROCESSES * 3, "disk full": 0}
    costly["callers left"] = 0
    return Evidence(
        sellers=ids,
        ledger=[
            {**entry, "external_reference": entry["external_reference"] + EFFECTS[entry["kind"]]}
            for entry in ledger
            if entry["kind"] in EFFECTS
        ],
        told=calls,
        sent=[line for line in noted if "key" in line],
        refreshed=[entry for entry in ledger if (entry["kind"], entry["order_id"]) == ("token_created", "refresh")],
        refreshes=[line for line in noted if "refresh" in line],
        rejected={(line["user"], line["rejected"]) for line in noted if "rejected" in line},
        ending={(line["user"], line["ending"]) for line in noted if "ending" in line},
        kills=sum(count * costly.get(name, 1) for name, count in (*kills.items(), *faults.items())),
        faults=faults,
        rows=await rows_of(plan),
        now=time.time(),
    )


async def run(
    folder: Path,
    seed: int,
    seconds: float,
    *,
    server: Server | None = None,
    control: bool = False,
    count: int = SELLERS,
) -> tuple[Evidence, Counter[str]]:
    """Run clients, kill them, recover twice at once, and return what there is to see."""
    platform, kills, faults = Platform(folder, seed), Counter[str](), Counter[str]()
    await platform.start()
    try:
        tenants = await sellers(platform, count)
        # Two local names of the first seller: its records are the same under both.
        names = [["main", "also-main"], *([f"shop-{place}"] for place in range(1, count))]
        users = [seller["user_id"] for seller in tenants]
        plan = Plan(
            base_url=platform.base_url,
            client_id=tenants[0]["client_id"],
            client_secret=tenants[0]["client_secret"],
            sellers=names,
            folder=folder,
            journal=str(folder / "journal.db") if server is None else await server.new(),
            seed=seed,
            number=0,
            of=PROCESSES,
            names=600,
            round=0,
            control=control,
        )
        tokens = Tokens(plan, users)
        for place in range(len(users)):
            await tokens.authorize(place)
        if not control:
            plan = await every_step(plan, users, kills)
        await platform.fail()
        ending = asyncio.create_task(tokens.look_after())
        try:
            if control:
                plan = await rounds(plan, platform, server, seconds, kills)
            else:
                async with trouble(plan, faults) as troubled:
                    plan = await rounds(troubled, platform, server, seconds, kills)
        finally:
            ending.cancel()
        with suppress(asyncio.CancelledError):
            await ending
        if not control:
            faults["backups restored"] = tokens.restored
        await platform.call("DELETE", "faults")
        for place in range(len(users)):
            await tokens.authorize(place)
        if not control:
            await recover(plan)
        return await evidence(plan, platform, users, kills, faults), kills
    finally:
        await platform.kill()


async def recover(plan: Plan) -> None:
    """Recover what is left in two processes at once, and then as often as a service would until nothing is left.

    The first may meet requests of the dead, and on a slow machine the next may meet its own.
    """
    plan = structs.replace(plan, recover_only=True)
    codes = await asyncio.gather(*(life(structs.replace(plan, wall_ahead=ahead), None) for ahead in (0.0, TWO_DAYS)))
    for number in range(1, MOST_RECOVERIES + 1):
        still_open = left_open(await rows_of(plan), time.time())
        reasons = Counter(f"{row.state.value}: {row.reason or 'held by one that recovers'}" for row in still_open)
        say(f"  recovery {number} of {MOST_RECOVERIES} after the first two finds open: {dict(reasons)}")
        if not still_open:
            break
        plan = structs.replace(plan, leases_ahead=plan.leases_ahead + LEASES)
        codes.append(await life(plan, None))
    if any(codes):
        raise SystemExit(f"a recovery failed: {codes}")


async def rows_of(plan: Plan) -> list[Record]:
    """Return what the journal has."""
    journal = journal_at(plan.journal)
    try:
        return await journal.records(tuple(RecordState), limit=1_000_000)
    finally:
        await journal.aclose()


def say(line: str) -> None:
    """Print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Outcome(Struct, frozen=True):
    """What a run on one store has come to."""

    store: str
    kills: Counter[str]
    faults: Mapping[str, int]
    """What else went wrong, and how often."""
    attempts: int
    effects: int
    records: Counter[str]
    told: Counter[str]
    """What callers were told."""
    ended: dict[str, int]
    """How many tokens the platform has rejected, how many were about to end, and how many refreshes there were."""
    broken: dict[str, int]
    """How often each rule was broken."""
    problems: list[str]


def outcome(store: str, gathered: Evidence, kills: Counter[str]) -> Outcome:
    """Say what happened, and what is wrong."""
    verdict = judge(gathered)
    problems = [f"{store}, {rule}: {case}" for rule, broken in verdict.items() for case in broken[:5]]
    silent = [rule for rule, broken in controls(gathered).items() if not judge(broken)[rule]]
    return Outcome(
        store,
        kills,
        gathered.faults,
        len(gathered.sent),
        len(gathered.ledger),
        Counter(row.state.value for row in gathered.rows),
        Counter(line["told"] for line in gathered.told if "told" in line),
        {"rejected": len(gathered.rejected), "ending": len(gathered.ending), "refreshed": len(gathered.refreshed)},
        {rule: len(broken) for rule, broken in verdict.items()},
        [*problems, *(f"{store}: the control of {rule!r} did not fire" for rule in silent)],
    )


def report(result: Outcome) -> None:
    """Print what happened."""
    say(f"{result.store}: killed {dict(result.kills)}; attempts: {result.attempts}; effects: {result.effects}")
    say(f"  faults: {dict(result.faults)}")
    say(f"  records: {dict(result.records)}; callers were told: {dict(result.told)}")
    say(f"  tokens: {result.ended}")
    say("  " + ", ".join(f"{number} {rule}" for rule, number in result.broken.items()))


async def on_both(seed: int, seconds: float, folder: Path, *, count: int = SELLERS) -> list[Outcome]:
    """Run on a file, and on a server where PostgreSQL is installed."""
    outcomes = []
    (folder / "file").mkdir()
    outcomes.append(outcome("SQLite", *await run(folder / "file", seed, seconds / 2, count=count)))
    report(outcomes[-1])
    if postgres.BIN is None:
        say("PostgreSQL is not installed here: its part is left out")
        if os.environ.get("PAYMENTSDK_TESTS_NEED_ALL"):
            raise SystemExit("not to be left out here")
        return outcomes
    (folder / "server").mkdir()
    with postgres.running() as server:
        run_on_server = await run(folder / "server", seed, seconds / 2, server=server, count=count)
    outcomes.append(outcome("PostgreSQL", *run_on_server))
    report(outcomes[-1])
    return outcomes


async def without_a_journal(seed: int, seconds: float, folder: Path) -> int:
    """Run clients that ignore the journal, and return how many orders they made twice: of a slow machine, some time."""
    for number in range(4):
        (directory := folder / f"control-{number}").mkdir()
        gathered, kills = await run(directory, seed + number, seconds, control=True)
        doubles = len(judge(gathered)["double"])
        say(f"control, without the journal: killed {dict(kills)}, effects: {len(gathered.ledger)}, {doubles} double")
        if doubles:
            return doubles
    return 0


async def main(seed: int, seconds: float, folder: Path) -> list[str]:
    """Run it and its control, and return what is wrong."""
    say(f"seed {seed}")
    problems = [problem for result in await on_both(seed, seconds * 0.75, folder) for problem in result.problems]
    doubles = await without_a_journal(seed, seconds * 0.25, folder)
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
