"""Receivers, workers and a platform in steps: between any two, a process may be killed, or stopped for long.

`play` plays one run of a seed and says what came of it. The store is a dict here; `test_model.py` also plays the runs
on the tables of the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

LEASE = 60.0
#: States of one order, each once.
STATES = ("created", "processed", "refunded-1", "refunded-2", "refunded")


class Claim(Struct, frozen=True):
    """A look that a worker has taken."""

    owner: str


class Modelled(Struct):
    """The inbox as the rules have it."""

    wanted: int = 0
    seen: int = 0
    claimed: int = 0
    claimed_at: float = 0.0
    owner: str = ""
    ready: float = math.inf
    attempt: int = 0
    dues: set[float] = set()
    fences: list[tuple[str, float]] = []
    ledger: list[tuple[str, float]] = []

    def put(self, event: str, now: float, due: float | None = None) -> bool:
        """Keep that the order must be looked at; return whether somebody has to handle it now."""
        if due is None:
            self.wanted += 1
        else:
            self.dues.add(due)
        if not self.attempt:
            self.ready = min(self.ready, now if due is None else due)
        return False

    def claim(self, owner: str, now: float) -> Claim | None:
        """Take the order if it is due."""
        if self.ready > now:
            return None
        self.owner, self.claimed, self.claimed_at = owner, self.wanted, now
        self.attempt += 1
        self.ready = now + LEASE
        return Claim(owner)

    def is_new(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Look.is_new`."""
        return all(state != fenced and updated >= before for fenced, before in self.fences)

    def work(self, claim: Claim, state: str, updated: float) -> bool:
        """Do the handler's work and its fence; return whether both were committed."""
        if claim.owner != self.owner or not self.is_new(claim, state, updated):
            return False
        self.fences.append((state, updated))
        self.ledger.append((state, updated))
        return True

    def settle(self, claim: Claim, now: float) -> None:
        """Note that the look has ended."""
        if claim.owner != self.owner:
            return
        self.owner, self.attempt, self.seen = "", 0, self.claimed
        self.dues = {due for due in self.dues if due > self.claimed_at}
        self.ready = now if self.wanted > self.seen else min(self.dues, default=math.inf)

    def fail(self, claim: Claim, states: list[str], now: float) -> None:
        """Note that the handler has raised, after it asked for fences of *states*."""
        fenced = {state for state, _ in self.fences}
        if states and fenced.issuperset(states):
            self.settle(claim, now)
        elif claim.owner == self.owner:
            self.owner, self.ready = "", now + 2.0 ** (self.attempt - 1)

    def next_due(self) -> float:
        """Return when the order can be claimed next; infinity for never."""
        return self.ready

    def handled(self) -> list[tuple[str, float]]:
        """Return the work that was committed, in its order."""
        return self.ledger


class Unfenced(Modelled):
    """A control: the same inbox, whose handlers use no fence."""

    def is_new(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Modelled.is_new`."""
        return True

    def work(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Modelled.work`."""
        self.ledger.append((state, updated))
        return True


class EventIds(Unfenced):
    """A control: the usual inbox. An event id that is known is answered alike whether it is done or under way."""

    events: set[str] = set()

    def put(self, event: str, now: float, due: float | None = None) -> bool:
        """See `Modelled.put`."""
        if due is not None or event in self.events:
            return False
        self.events.add(event)
        return True


class Outcome(Struct):
    """What came of a run."""

    lost: int = 0
    """Whether the last state was not handled, though a look after it was promised."""
    twice: int = 0
    """States that were handled more than once."""
    stale: int = 0
    """States that were handled after a later one."""
    handled: int = 0


class Run:
    """One run: the platform, the network between, and processes that may be killed between two steps."""

    def __init__(self, store: Modelled, seed: int) -> None:
        self.store = store
        self.random = Random(seed)
        self.now = 1000.0
        self.history = [(STATES[0], self.now)]
        #: Messages that may still arrive: event and the number of the state that it is about.
        self.network: list[tuple[str, int]] = []
        #: The latest state after which a look was promised.
        self.promised = -1
        self.actors: dict[str, Iterator[None]] = {}
        self.owners = 0

    def play(self) -> Outcome:
        """Play the run, then let what is left end without kills."""
        due = self.now + self.random.uniform(50, 400)
        self.store.put("", self.now, due)
        actors: dict[str, Callable[[], Iterator[None]]] = {
            name: self.worker if name.startswith("worker") else self.receiver
            for name in ("receiver-1", "receiver-2", "worker-1", "worker-2")
        }
        self.actors = {name: make() for name, make in actors.items()}
        for _ in range(self.random.randrange(20, 120)):
            name = self.random.choice([*actors, *actors, "platform", "time", "kill"])
            if name == "platform":
                self.change()
            elif name == "time":
                self.now += self.random.choice([0.1, 1.0, 5.0, LEASE * 1.1])
            elif name == "kill":
                name = self.random.choice([*actors])
                self.actors[name] = actors[name]()
            else:
                next(self.actors[name])
        if due > self.history[-1][1]:
            self.promised = len(self.history) - 1
        self.finish()
        return self.outcome()

    def change(self) -> None:
        """Bring the order into its next state; its message may be lost on the way."""
        if len(self.history) < len(STATES):
            number = len(self.history)
            self.now += 0.01
            self.history.append((STATES[number], self.now))
            if self.random.random() < 0.7:
                self.network.append((f"event-{number}", number))

    def receiver(self) -> Iterator[None]:
        """Take messages, in any order; answer only once they are kept."""
        while True:
            if not self.network:
                yield
                continue
            message = self.random.choice(self.network)
            if self.random.random() < 0.7:
                self.network.remove(message)  # Else it comes once more.
            event, number = message
            yield
            has_to_handle = self.store.put(event, self.now)
            yield
            if has_to_handle:
                state, updated = self.history[-1]
                yield
                self.store.work(Claim(""), state, updated)
                yield
            self.promised = max(self.promised, number)  # Answered: the platform sends it no more.

    def worker(self) -> Iterator[None]:
        """Claim, read, do the work, settle."""
        self.owners += 1
        owner = f"owner-{self.owners}"
        while True:
            claim = self.store.claim(owner, self.now)
            yield
            if claim is None:
                continue
            state, updated = self.history[-1]  # What comes later is not seen.
            yield
            states = []
            is_done = self.random.random() > 0.1  # Else the handler raises before its work.
            if is_done and self.store.is_new(claim, state, updated):
                yield
                states = [state]
                is_done = self.store.work(claim, state, updated)
            yield
            if is_done:
                self.store.settle(claim, self.now)
            else:
                self.store.fail(claim, states, self.now)
            yield

    def finish(self) -> None:
        """Kill all, and let one worker do what is due until nothing is."""
        worker = self.worker()
        for _ in range(500):
            if (ready := self.store.next_due()) == math.inf:
                return
            self.now = max(self.now, ready)
            next(worker)
        raise AssertionError("it never ends")

    def outcome(self) -> Outcome:
        """Compare what was handled with what was promised."""
        handled = self.store.handled()
        states = [state for state, _ in handled]
        times = [updated for _, updated in handled]
        return Outcome(
            lost=int(self.promised == len(self.history) - 1 and self.history[-1][0] not in states),
            twice=len(states) - len(set(states)),
            stale=sum(after < before for before, after in itertools.pairwise(times)),
            handled=len(states),
        )


def play(make: Callable[[], Modelled], runs: int, *, first: int = 0) -> Outcome:
    """Play *runs* and return the sum of what came of them."""
    outcomes = [Run(make(), seed).play() for seed in range(first, first + runs)]
    return Outcome(
        lost=sum(outcome.lost for outcome in outcomes),
        twice=sum(outcome.twice for outcome in outcomes),
        stale=sum(outcome.stale for outcome in outcomes),
        handled=sum(outcome.handled for outcome in outcomes),
    )
