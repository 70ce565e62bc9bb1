"""Two thousand orders by name, over two processes that are killed: `python -m tests.chaos.orders [--seed N]`.

The ordinary day of a shop, on one journal (`--journal sqlite` or `postgresql`), over real sockets. Responses are lost
and late, connections break, the platform fails and turns calls away. The platform rejects one order in ten. The caller
of one in ten leaves while its request is in flight. Both processes call one in twenty. What starts anew recovers, and
calls again what nobody was told of. In the end recovery runs until nothing changes, and a new client calls every name
once more. Then:

- no order exists twice, and every order exists that the platform does not reject;
- every caller of a rejected order hears that rejection, as settled;
- no record is open that recovery could settle; what is left for a person is listed with its reason;
- the other rules of verdicts.py hold.

The control, a shop without names and without a journal, has to make orders twice.
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
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom

import msgspec
from msgspec import structs

from paymentsdk import PaymentsClient, Request, Response
from paymentsdk.resources.orders import Order
from tests import postgres
from tests.chaos import __main__ as chaos
from tests.chaos.tokens import Tokens
from tests.chaos.verdicts import OPEN, Evidence, judge
from tests.chaos.worker import (
    LEFT,
    TASKS,
    Caller,
    Diary,
    NotingTransport,
    Plan,
    client_of,
    number_of,
    order,
    recover,
    rejection,
)

ORDERS = 2_000
NAMES = [f"s0-r0-{number}" for number in range(ORDERS)]
#: Orders of the control.
WITHOUT_NAMES = 300
PROCESSES = 2
#: How often a process calls again what nobody was told of, before it leaves that to recovery.
PASSES = 3
#: Each process is killed so often, and lives for up to so many seconds before.
KILLS, LONGEST_LIFE = 12, 4.0
#: Seconds after which the caller of a request leaves, at most.
PATIENCE = 0.02
#: Of the faults of the longer run, those that are no rejection; and a limit that outlasts every call.
FAULTS = (
    *(fault for fault in chaos.FAULTS if fault["effect"] != "refuse"),
    {"effect": "rate_limit", "probability": 0.005, "retry_after": 60},
)
#: What ends the work on a name: with names, also if the caller has left, since recovery finishes the order.
FINAL = {True: {"done", "refused"}, False: {"done", "refused", LEFT}}
#: The calls whose callers leave, by the name of the order.
LEAVING: dict[str, asyncio.Future[Order]] = {}


class LeavingTransport(NotingTransport):
    """Has a caller leave while its request is in flight: no response that came earlier is read."""

    async def send(self, request: Request) -> Response:
        body = request.body if request.url.endswith("/v1/orders") else b"{}"
        call = LEAVING.pop(msgspec.json.decode(body).get("external_reference"), None)
        if call is None:
            return await super().send(request)
        asyncio.get_running_loop().call_later(SystemRandom().random() * PATIENCE, call.cancel)
        await super().send(request)
        return await asyncio.get_running_loop().create_future()


class Till(Caller):
    """Calls the names of its process until somebody was told of each."""

    def __init__(self, plan: Plan, client: PaymentsClient, diary: Diary) -> None:
        super().__init__(plan, client, diary)
        self._numbers = self._due()

    def _due(self) -> Iterator[int]:
        plan = self._plan
        numbers = [number for number in range(plan.names) if number % plan.of == plan.number or number % 20 == 0]
        if plan.recover_only:
            yield from numbers
            return
        for _ in range(PASSES):
            diary = chaos.lines(plan.folder / "told")
            final = {line["name"] for line in diary if line.get("told") in FINAL[plan.control]}
            yield from (number for number in numbers if self._name(number) not in final)

    async def _call(self, name: str, account: str, *, hasty: bool) -> None:
        self._leave = False  # Callers leave while their request is in flight, not at any time.
        once = None if self._plan.control else name
        call = asyncio.ensure_future(self._client.account(account).orders.create(order(name), once=once))
        if number_of(name) % 10 == 7 and not self._plan.recover_only:
            LEAVING[name] = call
        await self._tell(name, self._until_left(call))

    async def _until_left(self, call: Awaitable[Order]) -> Order:
        try:
            return await call
        except asyncio.CancelledError:
            raise TimeoutError from None


async def work(plan: Plan) -> None:
    """Be one of the processes. The last one recovers nothing, and calls every name."""
    diary, sent = Diary(plan.folder / "told"), Diary(plan.folder / "sent")
    async with client_of(plan, sent, LeavingTransport) as client:
        if not plan.control and not plan.recover_only:
            await recover(client, diary)
        till = Till(plan, client, diary)
        await asyncio.gather(*(till.work() for _ in range(TASKS)))


async def lives(plan: Plan, kills: int) -> int:
    """Run one process after the other until one comes to its end; return how many were killed."""
    chance = Random(f"{plan.seed}/{plan.number}/kills")
    for number in range(kills + 1):
        seconds = chance.uniform(0.0, LONGEST_LIFE) if number < kills else None
        code = await chaos.life(plan, seconds, worker="tests.chaos.orders")
        if code != -signal.SIGKILL:
            break
    if code:
        raise SystemExit(f"a process failed: {code}")
    return number


async def run(folder: Path, seed: int, journal: str, *, control: bool = False) -> tuple[Evidence, Evidence]:
    """Run the day; return what there is to see after recovery, and once every name was called again."""
    platform = chaos.Platform(folder, seed)
    await platform.start()
    try:
        [seller] = await chaos.sellers(platform, 1)
        users = [seller["user_id"]]
        plan = Plan(
            base_url=platform.base_url,
            client_id=seller["client_id"],
            client_secret=seller["client_secret"],
            sellers=[["main"]],
            folder=folder,
            journal=journal,
            seed=seed,
            number=0,
            of=PROCESSES,
            names=WITHOUT_NAMES if control else ORDERS,
            round=0,
            control=control,
        )
        await Tokens(plan, users).authorize(0)
        await platform.fail(("orders.create",), FAULTS)
        processes = [structs.replace(plan, number=number) for number in range(PROCESSES)]
        killed = sum(await asyncio.gather(*(lives(process, KILLS) for process in processes)))
        hits = Counter[str]()
        for fault in json.loads(await platform.call("GET", "faults")):
            hits[fault["rule"]["effect"]] += fault["hits"]
        await platform.call("DELETE", "faults")
        diary = chaos.lines(folder / "told")
        hits["processes killed"], hits["callers left"] = killed, sum(line.get("told") == LEFT for line in diary)
        plan = structs.replace(plan, leases_ahead=chaos.LEASES)

        async def gather() -> Evidence:
            return structs.replace(await chaos.evidence(plan, platform, users, {}, Counter()), faults=hits)

        if control:
            return (evidence := await gather()), evidence
        await chaos.recover(plan)
        before = await gather()
        if await chaos.life(structs.replace(plan, recover_only=True, of=1), None, worker="tests.chaos.orders"):
            raise SystemExit("the last client failed")
        return before, await gather()
    finally:
        await platform.kill()


def check(before: Evidence, after: Evidence) -> list[str]:
    """Say what is wrong."""
    problems = {
        f"{rule}: {case}" for evidence in (before, after) for rule, cases in judge(evidence).items() for case in cases
    }
    answers = {line["name"]: line for line in after.told[len(before.told) :]}
    people = {row.name for row in after.rows if row.state in OPEN}  # Those that recovery could settle are "stuck".
    for name in NAMES:
        effects, answer = after.effects.get(name, ()), answers[name]
        text = f"{answer['told']} {answer.get('why', '')}"
        if (expected := rejection(name)) is not None:
            if not text.startswith(f"refused {expected}"):
                problems.add(f"rejection: {name}: {expected} was told as {text}")
        elif name not in people and (
            len(effects) != 1 or (answer["told"], answer.get("id")) != ("done", effects[0]["id"])
        ):
            problems.add(f"order: {name} exists {len(effects)} times, and was told as {text}")
    return sorted(problems)


def silent(before: Evidence, after: Evidence) -> list[str]:
    """Return what `check` does not see: an order twice, a rejection told as unknown, an order told as rejected."""
    sold, turned_down = NAMES[0], NAMES[3]
    words = {sold: "refused", turned_down: "OutcomeUnknown"}
    broken = {
        "double": structs.replace(after, ledger=[*after.ledger, *after.effects[sold]]),
        **{
            word: structs.replace(after, told=[*after.told, {"name": name, "told": word}])
            for name, word in words.items()
        },
    }
    problems = set(check(before, after))
    return [
        f"control: {name} was not seen" for name, case in broken.items() if problems.issuperset(check(before, case))
    ]


def report(before: Evidence, after: Evidence) -> None:
    """Print what happened."""
    chaos.say(f"faults: {dict(before.faults)}; attempts: {len(before.sent)}")
    chaos.say(f"callers were told: {dict(Counter(line['told'] for line in before.told if 'told' in line))}")
    for when, evidence in (("after recovery", before), ("after every name was called again", after)):
        chaos.say(
            f"{when}: {len(evidence.ledger)} orders; records: {dict(Counter(row.state.value for row in evidence.rows))}"
        )
    for row in after.rows:
        if row.state in OPEN:
            chaos.say(f"for a person: {row.name}: {row.state.value}, {row.reason}")


async def main(seed: int, journal: str) -> bool:
    """Run the day and its control; return whether all is well."""
    began = time.monotonic()
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        path = str(folders[0] / "journal.db")
        if journal == "postgresql":
            path = await stack.enter_context(postgres.running()).new()
        before, after = await run(folders[0], seed, path)
        control, _ = await run(folders[1], seed, str(folders[1] / "journal.db"), control=True)
    report(before, after)
    problems, doubles = [*check(before, after), *silent(before, after)], judge(control)["double"]
    if not doubles:
        problems.append("control: without names no order was made twice")
    for problem in problems:
        chaos.say(problem)
    chaos.say(
        f"{'FAILED' if problems else 'passed'}: seed {seed}, {journal}, {ORDERS} orders: "
        f"{len(judge(after)['double'])} doubled, {len(problems)} problems; {before.faults['processes killed']} kills; "
        f"control: {len(doubles)} of {WITHOUT_NAMES} doubled; {time.monotonic() - began:.0f} s"
    )
    return not problems


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Plan, dec_hook=lambda kind, value: kind(value))))
        sys.exit()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.orders", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--journal", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args()
    sys.exit(not asyncio.run(main(options.seed, options.journal)))
