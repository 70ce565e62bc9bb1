"""No order of deaths, rejections, lost leases, wrong clocks and restored backups breaks a promise of the journal.

The calls of the package run in a small world (`journal_world.py`). Hypothesis steers it, and finds no broken promise.
With each rule switched off in turn, random moves find the counterexample that the rule is there for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec import structs

from paymentsdk.journal import Record, RecordState, Resolution, resolve_record
from paymentsdk.journal import _record as states
from paymentsdk.journal._record import barred
from tests.internal import journal_world as world
from tests.internal.journal_world import HOUR, BrokenPromiseError, Faults, World, WorldCall

T = TypeVar("T")
Choose = Callable[[Sequence[T]], T]

#: What may happen in the world.
MOVES: Mapping[str, Callable[[World, Choose], None]] = {
    "call": lambda world, choose: world.call(choose("AB"), choose(world.names), defer=choose((False, False, True))),
    "go_on": lambda world, choose: world.step(choose("AB"), "answered", choose((0, 1, 2))),
    "hurry": lambda world, choose: world.hurry(choose("AB"), choose((0, 1, 2))),
    "recover": lambda world, choose: world.recover(choose("AB")),
    "wait": lambda world, choose: world.advance(choose((10.0, 50.0, 100.0, 700.0, 13 * HOUR))),
    "lose": lambda world, choose: world.step(choose("AB"), "lost", choose((0, 1, 2))),
    "time_out": lambda world, choose: world.step(choose("AB"), "timed out", choose((0, 1, 2))),
    "fail_to_send": lambda world, choose: world.step(choose("AB"), "unsent", choose((0, 1, 2))),
    "deliver": lambda world, choose: world.deliver(),
    "kill": lambda world, choose: world.kill(choose("AB")),
    "cancel": lambda world, choose: world.cancel(choose("AB")),
    "refuse": lambda world, choose: world.refuse(),
    "turn": lambda world, choose: world.turn(choose((422, 401, None))),
    "fill_the_disk": lambda world, choose: world.fill_the_disk(),
    "set_clock": lambda world, choose: world.set_clock(choose("AB"), choose((-48, -26, 0, 26, 48)) * HOUR),
    "mislead": lambda world, choose: world.mislead(choose("AB"), choose((-9000, -3, 3, 13)) * HOUR),
    "change_credentials": lambda world, choose: world.change_credentials(
        choose("AB"), choose(("seller-1", "seller-2"))
    ),
    "upgrade": lambda world, choose: world.upgrade(choose("AB")),
    "save": lambda world, choose: world.save(),
    "restore": lambda world, choose: world.restore(),
}


class Journaling(RuleBasedStateMachine):
    """The world, steered by Hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(data=st.data(), move=st.sampled_from(sorted(MOVES)))
    def move(self, data: st.DataObject, move: str) -> None:
        MOVES[move](self.world, lambda choices: data.draw(st.sampled_from(choices)))

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            self.world.close()


Journaling.TestCase.settings = settings(
    max_examples=20, stateful_step_count=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestAllPromisesHold(Journaling.TestCase):
    """With all rules on, Hypothesis finds no counterexample."""


def assert_no_promise_broken(
    seeds: Collection[int], moves: Sequence[str], faults: Faults, promise: str, names: Sequence[str]
) -> None:
    """Make 50 random moves per seed; where a *promise* is broken, `World.check` raises `BrokenPromiseError`."""
    for seed in seeds:
        chance = random.Random(seed)
        world = World(faults, promise, names)
        try:
            for _ in range(50):
                MOVES[chance.choice(moves)](world, chance.choice)
            world.settle()
        finally:
            world.close()


def test_no_random_walk_breaks_a_promise() -> None:
    """With all rules on, random moves find no counterexample either: those that find one for each rule below.

    `World.check`, after each move, raises `BrokenPromiseError` where one is broken.
    """
    # Time goes on in half of the moves, so that a walk gets somewhere.
    moves = [*MOVES, *["go_on", "hurry", "call"] * 5]

    assert_no_promise_broken(range(100), moves, Faults(), "", ("order", "refund"))


def trust_everything(row: Record, *, owner: str, now: float, lease: float, body: bytes | None = None) -> Record:
    """Take a row over as if nothing had been sent yet."""
    return structs.replace(row, state=RecordState.PENDING, owner=owner, lease_until=now + lease, updated=now)


def trust_the_clock(record: Record, *ages: float) -> str:
    """Take a time before the record's own for one that is good enough."""
    return barred(record, *(max(0.0, age) for age in ages))


def trust_the_platform(record: Record, *ages: float) -> str:
    """Count by the platform's clock alone, where it is known."""
    return barred(record, ages[-1])


def forget_what_is_in_flight(
    row: Record, resolution: Resolution, *, owner: str, now: float, resolve: Callable[..., Record] = resolve_record
) -> Record:
    """Believe a rejection although an attempt that was cut may still arrive."""
    return resolve(row, structs.replace(resolution, in_flight=0.0), owner=owner, now=now)


def send_for_anyone(
    self: WorldCall,
    seconds: float,
    _seller: str,
    moment: tuple[float, float],
    bars: Callable[..., str | None] = WorldCall.bars,
) -> str | None:
    """Take every token for one of the seller."""
    return bars(self, seconds, self.row.seller, moment)


NUMBERS = itertools.count()


def random_key() -> str:
    """Return a key that nobody else has."""
    return f"key-{next(NUMBERS)}"


class Control(NamedTuple):
    """One rule switched off."""

    seed: int
    """The walk that finds it today; the search goes on if other moves have moved it."""
    promise: str
    """What is broken then."""
    needs: str
    """What has to happen for that, besides what is in every world."""
    faults: Faults = Faults()
    replaced: Mapping[str, tuple[object, object]] = MappingProxyType({})
    """What takes the place of a function of the package."""


CONTROLS: Mapping[str, Control] = {
    "2-key-derived": Control(
        0, "two effects of one record", "save restore", replaced={"derive_key": (world, lambda *parts: random_key())}
    ),
    "3-record-belongs-to-a-seller": Control(
        7,
        "an effect for a foreign seller",
        "kill change_credentials",
        Faults(claims_all=True),
        {"bars": (WorldCall, send_for_anyone)},
    ),
    "4-not-after": Control(
        0, "an attempt began after not_after", "kill", replaced={"barred": (states, lambda record, *ages: "")}
    ),
    "4-not-after-and-a-forgotten-key": Control(
        105, "two effects of one record", "kill", replaced={"barred": (states, lambda record, *ages: "")}
    ),
    "5-pending-of-the-dead-is-in-doubt": Control(
        67, "and it took effect", "kill fail_to_send", replaced={"take_over": (states, trust_everything)}
    ),
    "6-durable-before-heard": Control(
        77, "and it took effect", "fail_to_send fill_the_disk", Faults(trusts_lost_writes=True)
    ),
    "9-compare-and-set": Control(
        2, "and it took effect", "refuse", replaced={"may_replace": (states, lambda row, state, *, owner, now: True)}
    ),
    "9-lease-covers-the-attempt": Control(
        1,
        "and it took effect",
        "refuse deliver lose",
        replaced={"covers": (WorldCall, lambda self, seconds, moment: True)},
    ),
    "7-rejection-of-what-is-in-doubt": Control(
        110, "told refused, and it took effect", "turn deliver lose", Faults(believes_rejections=True)
    ),
    "7-rejection-of-what-was-taken-over": Control(
        1317, "kept as refused, and it took effect", "turn kill", Faults(believes_rejections=True)
    ),
    "7-turned-away-while-in-doubt": Control(
        610, "told not_sent, and it took effect", "turn deliver lose", Faults(believes_rejections=True)
    ),
    "8-cut-attempt-cancelled": Control(
        407,
        "and it took effect",
        "cancel refuse deliver",
        replaced={"resolve_record": (states, forget_what_is_in_flight)},
    ),
    "8-cut-attempt-timed-out": Control(
        407,
        "and it took effect",
        "time_out refuse deliver",
        replaced={"resolve_record": (states, forget_what_is_in_flight)},
    ),
    "10-exact-bytes": Control(16, "a record conflicts with itself", "upgrade kill", Faults(forgets_bytes=True)),
    "11-fails-closed": Control(3, "an effect without a record", "fill_the_disk", Faults(fails_open=True)),
    "14-time": Control(
        6,
        "an attempt began after not_after",
        "set_clock kill",
        Faults(trusts_clocks=True),
        {"barred": (states, trust_the_clock)},
    ),
    "14-the-larger-age": Control(
        157, "an attempt began after not_after", "mislead kill", replaced={"barred": (states, trust_the_platform)}
    ),
    "14-the-larger-age-and-a-forgotten-key": Control(
        4108, "two effects of one record", "mislead kill", replaced={"barred": (states, trust_the_platform)}
    ),
}
EVERYWHERE = "call go_on hurry recover wait"


@pytest.mark.parametrize("name", CONTROLS)
def test_each_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule switched off, a broken promise is found: the one that the rule is there for."""
    control = CONTROLS[name]
    for attribute, (module, replacement) in control.replaced.items():
        monkeypatch.setattr(module, attribute, replacement)
    moves = [*EVERYWHERE.split(), *control.needs.split()]

    with pytest.raises(BrokenPromiseError, match=control.promise):
        assert_no_promise_broken([control.seed, *range(20_000)], moves, control.faults, control.promise, ("refund",))
