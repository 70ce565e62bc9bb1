"""A small world in which a journaled call can go wrong: two processes, one journal, the platform, and their clocks.

The calls are those of the package; whatever they wait for is a `Step`, which the world takes, fails, delays, or never
takes, since the process has died. Time is true time: what each process believes is another matter.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from email.utils import formatdate
from types import SimpleNamespace
from typing import NamedTuple

from msgspec import Struct, structs

from paymentsdk import InProgress, JournalUnavailable, RecordConflict
from paymentsdk._contract.rules import KEY_LIFETIME
from paymentsdk.journal import Action, Record, RecordState, Resolution, StoredResponse, derive_key
from paymentsdk.journal import _record as states
from paymentsdk.journal._platform_clock import PlatformClock
from paymentsdk.journal._run import JournaledCall, Outcome

HOUR = 3600.0
ATTEMPT = 30.0
LEASE = 90.0
BASE = "http://platform.test"
REMEMBERED = 24 * HOUR
EPOCH = 1_700_000_000.0
#: An intent of an operation that no read looks up.
NO_INTENT = SimpleNamespace(operation=SimpleNamespace(look_up=None))

Fact = tuple[str, str]
"""The seller that it was meant for, and the name."""


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


class Step:
    """Something that a process waits for."""

    def __init__(self, kind: str, act: Callable[[], object]) -> None:
        self.kind = kind
        self.act = act

    def __await__(self) -> Generator[Step, object, object]:
        return (yield self)


class Effect(NamedTuple):
    """Something that the platform did."""

    fact: Fact
    seller: str
    at: float


class Flight(Struct, eq=False):
    """A request on its way: it arrives within the time of its attempt, or never."""

    fact: Fact
    seller: str
    key: str
    body: bytes
    started: float
    status: int | None = None


class Platform:
    """Remembers the keys of each seller for 24 hours, and nothing that it rejected."""

    def __init__(self) -> None:
        self.refuses = False
        self.turned: int | None = None
        self.effects: list[Effect] = []
        self._keys: dict[tuple[str, str], tuple[float, bytes]] = {}

    def receive(self, flight: Flight, now: float) -> int:
        """Take a request and return its status."""
        if self.turned is not None:
            return self.turned  # It does not look the key up, or an effect of this very key is the reason.
        remembered = self._keys.get((flight.seller, flight.key))
        if remembered is not None and now < remembered[0] + REMEMBERED:
            return 200 if remembered[1] == flight.body else 409
        if self.refuses:
            return 400
        self._keys[flight.seller, flight.key] = now, flight.body
        self.effects.append(Effect(flight.fact, flight.seller, now))
        return 200


class Faults(Struct):
    """Rules that are switched off in the world itself; the others are functions of the package that a test replaces."""

    forgets_bytes: bool = False
    """Encode a record again in place of keeping its bytes."""
    fails_open: bool = False
    """Send although the record could not be kept."""
    trusts_clocks: bool = False
    """Take this machine's clock for the platform's and the database's."""
    believes_rejections: bool = False
    """Take every rejection for final, whatever came before it."""
    trusts_lost_writes: bool = False
    """Take what a call has written for kept, although the journal did not take it."""
    claims_all: bool = False
    """Recover for sellers that the process has no credentials of."""


def tell(clock: PlatformClock, timestamp: float) -> None:
    """Tell *clock* the platform's time by the `Date` of a response, in whole seconds."""
    clock.observe({"Date": formatdate(timestamp, usegmt=True)})


class Process:
    """One life of a client."""

    def __init__(self, world: World, name: str, life: int) -> None:
        self.world, self.name, self.life = world, name, life
        self.id = f"{name}{life}"
        self.tasks: list[Task] = []
        self.seller = "seller-1"
        self.skew = 0.0
        self.version = 1
        self.dead = False
        self.clock = PlatformClock(self)

    def now(self) -> float:
        """What its clock shows."""
        return self.world.time + self.skew

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self.world.time

    def believe(self) -> None:
        """Learn the platform's time from a response; or not."""
        if self.world.faults.trusts_clocks:
            tell(self.clock, self.now())
        else:
            tell(self.clock, self.world.time)

    async def learn_time(self) -> None:
        """Read the platform's time, unless a response has told it lately."""
        if not self.clock.is_fresh(self.clock.moment()):
            await Step("probe", self.believe)


class Task(Struct, eq=False):
    """Something that a process does."""

    process: Process
    coroutine: Coroutine[Step, object, object]
    step: Step | None = None
    flight: Flight | None = None


class World:
    """Everything, with the promises that are kept in it.

    Args:
        faults: What is switched off.
        promise: Look for this broken promise alone.
        names: What callers name their records. An order may be sent for 10 minutes, a refund for 23 hours.
    """

    def __init__(
        self, faults: Faults | None = None, promise: str = "", names: Sequence[str] = ("order", "refund")
    ) -> None:
        self.faults = faults if faults is not None else Faults()
        self.promise = promise
        self.names = names
        self.is_over = False
        self.time = EPOCH
        self.platform = Platform()
        self.rows: dict[str, Record] = {}
        self.backup: dict[str, Record] | None = None
        self.restored = False
        self.forgotten: set[Fact] = set()
        #: What was begun by a wrong ``Date``: its time may be over too early, and it may be left to a person.
        self.misdated: set[Fact] = set()
        self.full = False
        self.flights: list[Flight] = []
        self.said: dict[Fact, RecordState] = {}
        self.limits: dict[Fact, float] = {}
        self._numbers = itertools.count(1)
        self.keys = itertools.count(1)
        self.processes = {name: Process(self, name, 1) for name in "AB"}

    # --- what may happen ----------------------------------------------------------------------------------------------

    def call(self, name: str, record: str, *, defer: bool = False) -> None:
        """A caller names a record."""
        process = self.processes[name]
        self._start(process, self._call(process, record, defer=defer))

    def recover(self, name: str) -> None:
        """A process looks for records to finish."""
        process = self.processes[name]
        self._start(process, self._recover(process))

    def kill(self, name: str) -> None:
        """A process dies, and another one starts in its place."""
        old = self.processes[name]
        new = self.processes[name] = Process(self, name, old.life + 1)
        new.seller, new.skew, new.version = old.seller, old.skew, old.version
        old.dead = True
        for task in old.tasks:
            task.coroutine.close()

    def cancel(self, name: str) -> None:
        """The caller of the oldest task gives up."""
        process = self.processes[name]
        if process.tasks:
            self._resume(process.tasks[0], asyncio.CancelledError())

    def refuse(self) -> None:
        """The platform begins to reject, or ends it."""
        self.platform.refuses = not self.platform.refuses

    def turn(self, status: int | None) -> None:
        """The platform begins to reject with 422, or to turn away with 401, whatever it did before; or ends it."""
        self.platform.turned = status

    def fill_the_disk(self) -> None:
        """The journal cannot be written, or can again."""
        self.full = not self.full

    def set_clock(self, name: str, skew: float) -> None:
        """The clock of a process is set wrong, or right."""
        self.processes[name].skew = skew

    def mislead(self, name: str, late: float) -> None:
        """A response has a wrong ``Date``."""
        tell(self.processes[name].clock, self.time - late)

    def change_credentials(self, name: str, seller: str) -> None:
        """The same account name has the credentials of another seller."""
        self.processes[name].seller = seller

    def upgrade(self, name: str) -> None:
        """Another version of the program encodes requests differently."""
        self.processes[name].version += 1

    def advance(self, seconds: float) -> None:
        """Time passes."""
        # Within the day of a key only: of what a backup does not know, nobody can tell the age.
        if self.restored and seconds > HOUR:
            return
        self.time += seconds
        self.flights = [flight for flight in self.flights if self.time <= flight.started + ATTEMPT]

    def save(self) -> None:
        """Somebody makes a backup of the journal."""
        self.backup = dict(self.rows)

    def restore(self) -> None:
        """Somebody restores it, after all processes have ended."""
        if self.backup is not None and self.time < EPOCH + HOUR:
            for name in self.processes:
                self.kill(name)
            self.rows, self.restored = dict(self.backup), True
            # What callers heard since the backup is not in it, nor what took effect: a call that has sent nothing says
            # so, and cannot know of an earlier one. What stays is that nothing takes effect twice.
            self.said.clear()
            self.forgotten = {effect.fact for effect in (*self.platform.effects, *self.flights)}

    def deliver(self) -> None:
        """The oldest request on its way arrives, whether anybody still waits for its response or not."""
        for flight in self.flights:
            if flight.status is None:
                flight.status = self.platform.receive(flight, self.time)
                break
        self.check()

    def hurry(self, name: str, nth: int = 0) -> None:
        """A process goes on to its next attempt."""
        process = self.processes[name]
        for _ in range(4):
            if not process.tasks or process.tasks[nth % len(process.tasks)].step.kind == "attempt":
                break
            self.step(name, "answered", nth)

    def step(self, name: str, fate: str, nth: int = 0) -> None:
        """A process takes its next step."""
        process = self.processes[name]
        if not process.tasks:
            return
        task = process.tasks[nth % len(process.tasks)]
        if task.step is not None and task.step.kind == "attempt":
            self._resume(task, self._attempted(task, fate))
        elif task.step is not None and task.step.kind == "write" and self.full:
            if fate == "lost":  # The disk was full when the commit was to be confirmed.
                task.step.act()
            self._resume(task, JournalUnavailable("disk full"))
        else:
            self._resume(task, _result(task.step))
        self.check()

    # --- how it goes on -----------------------------------------------------------------------------------------------

    def _start(self, process: Process, coroutine: Coroutine[Step, object, object]) -> None:
        if process.dead or len(process.tasks) >= 3:
            coroutine.close()
        else:
            self.later(process, coroutine)

    def _resume(self, task: Task, value: object) -> None:
        try:
            if isinstance(value, BaseException):
                task.step = task.coroutine.throw(value)
            else:
                task.step = task.coroutine.send(value)
        except (StopIteration, JournalUnavailable, asyncio.CancelledError):
            task.process.tasks.remove(task)

    def _attempted(self, task: Task, fate: str) -> object:
        """Return what the process hears of its attempt: a status, or why there is none."""
        flight = task.flight
        task.flight = None
        if flight is None or self.time > flight.started + ATTEMPT:
            return "lost"
        if flight.status is None:
            if fate in {"unsent", "lost"}:
                # Who lives to see its connection break has it broken for both sides. That of a dead process may go on.
                self.flights.remove(flight)
                return fate
            if fate == "timed out":
                return fate  # Earlier than the time of an attempt, by the time of the call: it may go on, too.
            flight.status = self.platform.receive(flight, self.time)
        if fate == "lost":
            return "lost"
        task.process.believe()
        return flight.status

    # --- what the package is given ------------------------------------------------------------------------------------

    def _request(self, process: Process, name: str) -> Record:
        body = self.encoded(name, process.version if self.faults.forgets_bytes else 1)
        now = process.clock.now()
        begun = process.now() if now is None or self.faults.trusts_clocks else now
        fact = (process.seller, name)
        return Record(
            key=derive_key(BASE, process.seller, "orders.create", name),
            name=name,
            operation="orders.create",
            base_url=BASE,
            seller=process.seller,
            path="/v1/orders",
            body=body,
            digest=states.digest("POST", "/v1/orders", name.encode()),
            begun=begun,
            not_after=begun + min(self.window(fact), KEY_LIFETIME),
            is_dated=now is not None,
            owner=f"{process.id}/{next(self._numbers)}",
        )

    @staticmethod
    def window(fact: Fact) -> float:
        """How long a record may be sent: an order of 10 minutes, or the longest."""
        return 600.0 if fact[1] == "order" else 40 * HOUR

    @staticmethod
    def encoded(name: str, version: int) -> bytes:
        """The bytes that a version of the program makes of a request."""
        return f"{name} v{version}".encode()

    def _driver(self, process: Process, *, defer: bool = False) -> WorldCall:
        shared = Shared(self, process)
        return WorldCall(shared, process, NO_INTENT, LEASE, defer, world=self, process=process)

    def later(self, process: Process, write: Coroutine[Step, object, object]) -> None:
        """Make a write that nobody waits for."""
        if process.dead:
            write.close()
        else:
            task = Task(process, write)
            process.tasks.append(task)
            self._resume(task, None)

    async def _call(self, process: Process, name: str, *, defer: bool) -> None:
        new, moment = self._request(process, name), process.clock.moment()
        fact = (new.seller, name)
        try:
            outcome = await self._driver(process, defer=defer).begin(new, moment)
        except (InProgress, RecordConflict):
            return
        self._hear(fact, outcome)

    async def _recover(self, process: Process) -> None:
        await process.learn_time()
        moment = process.clock.moment()
        owner = f"{process.id}/{next(self._numbers)}"
        keys = tuple(self.rows)
        for row in await WorldJournal(self, process).claim((process.seller,), owner=owner, lease=LEASE, keys=keys):
            try:
                await self._driver(process).carry_on(row, moment)
            except InProgress:
                continue

    async def attempts(self, process: Process, call: WorldCall, row: Record) -> Resolution:
        """Make the attempts at *row*."""
        in_doubt, in_flight = row.state is RecordState.SENT, 0.0
        fact = (row.seller, row.name)
        for _ in range(2):
            seller = process.seller
            clock = process.clock
            reason = None if call.covers(ATTEMPT, clock.moment()) else await call.renew(ATTEMPT)
            if reason := reason or call.bars(ATTEMPT, seller, clock.moment()):
                return Resolution(state=_given_up(in_doubt), reason=reason, in_flight=in_flight)
            body = self.encoded(row.name, process.version) if self.faults.forgets_bytes else row.body
            heard = await self._fly(process, Flight(fact, seller, row.key, body, self.time))
            if heard == 200:
                return Resolution(state=RecordState.DONE, response=StoredResponse(200))
            if heard == 400:
                return Resolution(state=RecordState.REFUSED, response=StoredResponse(400), in_flight=in_flight)
            if heard in _TURNED and (self.faults.believes_rejections or (call.begun and not in_doubt)):
                return Resolution(state=_TURNED[heard], response=StoredResponse(heard), in_flight=in_flight)
            in_doubt = in_doubt or heard != "unsent"
            if heard == "timed out":
                in_flight = ATTEMPT
        return Resolution(state=_given_up(in_doubt), reason="no response", in_flight=in_flight)

    async def _fly(self, process: Process, flight: Flight) -> object:
        if self.time >= self.limits.get(flight.fact, EPOCH * 2):
            self.broken("an attempt began after not_after")
        self.flights.append(flight)
        step = Step("attempt", lambda: None)
        for task in process.tasks:
            if task.coroutine.cr_running:
                task.flight = flight
        return await step

    # --- what is promised ---------------------------------------------------------------------------------------------

    def _hear(self, fact: Fact, outcome: Outcome) -> None:
        """A caller hears what became of its record."""
        if outcome.state is RecordState.DONE and not self._effects(fact):
            self.broken("done without an effect")
        self.said[fact] = outcome.state

    def begun(self, record: Record, action: Action) -> None:
        """A caller has begun a record: what it heard before is history, and its time may begin."""
        fact = (record.seller, record.name)
        if action in {Action.SEND, Action.SEND_AGAIN, Action.RESUME}:
            self.said.pop(fact, None)
        if action in {Action.SEND, Action.SEND_AGAIN}:
            (self.misdated.add if abs(record.begun - self.time) > states.TOLERANCE else self.misdated.discard)(fact)
            # With a second for what was asked before it was written.
            self.limits[fact] = self.time + min(self.window(fact), KEY_LIFETIME) + 1

    def broken(self, promise: str) -> None:
        """A promise was broken."""
        if self.promise in promise:
            self.is_over = True
            raise BrokenPromiseError(promise)

    def _effects(self, fact: Fact) -> list[Effect]:
        return [effect for effect in self.platform.effects if effect.fact == fact]

    def check(self) -> None:
        """Look for a broken promise."""
        counts: dict[Fact, int] = defaultdict(int)
        for effect in self.platform.effects:
            counts[effect.fact] += 1
            if effect.seller != effect.fact[0]:
                self.broken("an effect for a foreign seller")
            if counts[effect.fact] > 1:
                self.broken("two effects of one record")
            if self.said.get(effect.fact) in _NO_EFFECT and effect.fact not in self.forgotten:
                self.broken(f"told {self.said[effect.fact].value}, and it took effect")
        rows = {(row.seller, row.name): row for row in self.rows.values()}
        for fact in counts:
            row = rows.get(fact)
            if row is None:
                if not self.restored:
                    self.broken("an effect without a record")
            elif (
                row.state in _NO_EFFECT
                and fact not in self.forgotten
                and not any(process.tasks for process in self.processes.values())
            ):
                self.broken(f"kept as {row.state.value}, and it took effect")
        if any(flight.status == 409 for flight in self.flights):
            self.broken("a record conflicts with itself")

    def close(self) -> None:
        """End every process, and start no other."""
        for process in self.processes.values():
            process.dead = True
            for task in process.tasks:
                task.coroutine.close()

    def settle(self) -> None:
        """Heal everything, let recovery finish, and look for a record that was lost."""
        self.full, self.platform.refuses, self.platform.turned = False, False, None
        if self.is_over:
            return
        for name in self.processes:
            while self.processes[name].tasks:
                self.step(name, "answered")
            self.processes[name].skew = 0.0
        self.advance(2 * LEASE + 1)
        for seller in ("seller-1", "seller-2"):
            self.kill("A")
            self.processes["A"].seller = seller
            self.recover("A")
            while self.processes["A"].tasks:
                self.step("A", "answered")
        self.check()
        for row in self.rows.values():
            if row.state in states.HELD or row.state is RecordState.DEFERRED:
                self.broken(f"nobody finishes what is {row.state.value}")
            if (row.seller, row.name) in self.misdated:
                continue
            if row.state is RecordState.UNKNOWN and self.time < row.not_after and not self.restored:
                self.broken("unknown, although there was time to find out")
            if row.state is RecordState.DONE and not self._effects((row.seller, row.name)):
                self.broken("kept as done, without an effect")


#: What a plain rejection, and a token that is turned away, make of a record that nothing is known of.
_TURNED = {422: RecordState.REFUSED, 401: RecordState.NOT_SENT}
_NO_EFFECT = frozenset({RecordState.NOT_SENT, RecordState.REFUSED, RecordState.EXPIRED})


def _result(step: Step) -> object:
    try:
        return step.act()
    except JournalUnavailable as error:
        return error


def _given_up(in_doubt: bool) -> RecordState:
    return RecordState.UNKNOWN if in_doubt else RecordState.NOT_SENT


class Shared:
    """What the calls of a process share."""

    def __init__(self, world: World, process: Process) -> None:
        self.journal = WorldJournal(world, process)
        self.platform_clock = process.clock
        self.unheard: dict[str, str] = {}
        self._world, self._process = world, process

    async def learn_time(self, process: Process) -> None:
        """See `Journaling`."""
        await process.learn_time()

    def write_later(self, key: str, write: Callable[[], Coroutine[Step, object, object]]) -> None:
        """See `Journaling`."""
        self._world.later(self._process, write())


class WorldCall(JournaledCall, kw_only=True):
    """A journaled call whose attempts are those of the world."""

    world: World
    process: Process

    async def _attempts(self, row: Record) -> tuple[Outcome, Resolution]:
        resolution = await self.world.attempts(self.process, self, row)
        return Outcome(resolution.state, row), resolution


class WorldJournal:
    """The journal as one process sees it."""

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process

    def _now(self) -> float:
        return self.process.now() if self.world.faults.trusts_clocks else self.world.time

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal`."""

        def write() -> tuple[Action, Record]:
            row = self.world.rows.get(record.key)
            action, now = states.begin_record(row, record, now=self._now(), lease=lease)
            self.world.rows[now.key] = now
            self.world.begun(record, action)
            return action, now

        try:
            return await Step("write", write)
        except JournalUnavailable:
            if self.world.faults.fails_open:
                self.world.begun(record, Action.SEND)
                return Action.SEND, structs.replace(record, lease_until=self._now() + lease)
            raise

    async def get(self, key: str) -> Record | None:
        """See `Journal`."""
        return self.world.rows.get(key)

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal`."""
        return await self._change(key, lambda row: states.renew_lease(row, owner=owner, now=self._now(), lease=lease))

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """See `Journal`."""

        def change(row: Record) -> Record:
            return states.resolve_record(row, resolution, owner=owner, now=self._now())

        try:
            return await self._change(key, change)
        except JournalUnavailable:
            if self.world.faults.trusts_lost_writes:
                return change(self.world.rows[key])
            raise

    async def _change(self, key: str, change: Callable[[Record], Record]) -> Record:
        def write() -> Record:
            row = self.world.rows.get(key)
            if row is None:
                raise JournalUnavailable("no such record")
            self.world.rows[key] = change(row)
            return self.world.rows[key]

        return await Step("write", write)

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal`."""

        def write() -> list[Record]:
            rows = [self.world.rows[key] for key in keys]
            of = {row.seller for row in rows} if self.world.faults.claims_all else sellers
            options = {"sellers": of, "owner": owner, "now": self._now(), "lease": lease}
            claimed = {row.key: states.claim_record(row, **options) for row in rows}
            self.world.rows.update(claimed)
            return [row for row in claimed.values() if row.owner == owner]

        return await Step("write", write)
