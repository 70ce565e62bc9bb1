"""Faults as data: which requests they hit, and what happens to those.

``EFFECTS`` lists the details of each effect; all effects pick their requests in the same way. What happens before the
commit is done by `_inject_faults` in `_app.py`, what happens after it by `_with_faults` and `_send` there. What happens
to the rows of a search is done while it is handled: `page_drift` by `cut_page` in `_noun.py`, and `row_inserted`,
`row_deleted` and `row_changed` by `_inject_row_fault` in `_handlers/merchant_orders.py`.
"""

import fnmatch
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from paymentsdk.sandbox._clock import SeededRandom

Effect: TypeAlias = Literal[
    "fail_before_commit",
    "lose_response_after_commit",
    "delay_before_commit",
    "delay_after_commit",
    "refuse",
    "rate_limit",
    "reset",
    "hang",
    "truncate",
    "malformed",
    "wrong_content_type",
    "drip",
    "html",
    "page_drift",
    "row_inserted",
    "row_deleted",
    "row_changed",
    "lost",
    "duplicated",
    "delayed",
    "reordered",
    "wrong_signature",
    "stale_timestamp",
    "truncated",
]
#: What the name of an attempt to deliver a notification begins with; its topic follows.
NOTIFICATIONS = "notifications."
_DELIVERY = f"{NOTIFICATIONS}*"


class EffectInfo(Struct, frozen=True):
    """An effect, for people."""

    words: str
    """What happens, in a few words."""
    members: tuple[str, ...] = ()
    """The details of a rule that only some effects take, and this one does."""
    operation: str = "*"
    """Where it can happen."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what it can happen to, if that is no operation but an attempt to deliver a notification."""
        topics = ("orders", "payments", "merchant_orders")
        return tuple(f"{NOTIFICATIONS}{topic}" for topic in topics) if self.operation == _DELIVERY else ()


_WALK = "merchant_orders.search"
EFFECTS: Mapping[Effect, EffectInfo] = {
    "lose_response_after_commit": EffectInfo("It is handled, but the response is lost"),
    "fail_before_commit": EffectInfo("It fails, and nothing is done", ("status", "code")),
    "refuse": EffectInfo("It is rejected", ("status", "code")),
    "rate_limit": EffectInfo("Too many requests", ("code", "retry_after")),
    "delay_before_commit": EffectInfo("It is done late", ("seconds",)),
    "delay_after_commit": EffectInfo("The response is late", ("seconds",)),
    "reset": EffectInfo("The connection breaks, and nothing is done"),
    "hang": EffectInfo("No response comes, and nothing is done"),
    "truncate": EffectInfo("Half of the response comes"),
    "malformed": EffectInfo("The response is not JSON"),
    "wrong_content_type": EffectInfo("The response says that it is not JSON"),
    "drip": EffectInfo("The response comes byte by byte", ("seconds",)),
    "html": EffectInfo("A gateway responds in HTML", ("status",)),
    "page_drift": EffectInfo("Rows appear or vanish between two pages", ("rows",)),
    "row_inserted": EffectInfo("A merchant order is made before the page is read", operation=_WALK),
    "row_deleted": EffectInfo("A merchant order vanishes before the page is read", operation=_WALK),
    "row_changed": EffectInfo("A merchant order changes before the page is read", operation=_WALK),
    "lost": EffectInfo("A notification is lost", operation=_DELIVERY),
    "duplicated": EffectInfo("A notification comes twice", operation=_DELIVERY),
    "delayed": EffectInfo("A notification comes late", ("seconds",), _DELIVERY),
    "reordered": EffectInfo("Later notifications overtake it", ("seconds",), _DELIVERY),
    "wrong_signature": EffectInfo("A notification has a wrong signature", operation=_DELIVERY),
    "stale_timestamp": EffectInfo("A notification was signed an hour ago", operation=_DELIVERY),
    "truncated": EffectInfo("Half of the body of a notification comes", operation=_DELIVERY),
}

#: The members of a rule that every effect listens to: which requests it hits.
COMMON: Mapping[str, str] = {
    "operation": "its name, such as orders.create; or orders.*",
    "tenant": "only the seller with this user id",
    "nth": "only the request with this number",
    "times": "how many are hit before the fault is spent",
    "probability": "the share of them that is hit, from 0 to 1",
    "seed": "a number that always hits the same requests",
}


#: The details that say how an effect comes about; a rule has no others than its own effect takes.
_DETAILS = frozenset(name for effect in EFFECTS.values() for name in effect.members)


class FaultRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: it counts the requests that match ``operation`` and ``tenant``; the other fields pick which it hits.

    Raises:
        ValueError: There is no such effect, or it does not take a detail that is given.
    """

    effect: Effect
    """What happens. Before anything is done: `fail_before_commit` (`status`, by default 500, in the shape of the
    API), `refuse` (`status` and `code`), `rate_limit` (429 with `retry_after`), `reset` (the connection breaks),
    `hang` (no response, ever), `delay_before_commit` (`seconds`). After everything is done and committed:
    `lose_response_after_commit` (the connection breaks), `delay_after_commit`, `truncate` (half of the body),
    `malformed` (a body that is not JSON), `wrong_content_type`, `drip` (one byte in `seconds`, by default 1), `html`
    (`status`, by default 502). `page_drift`: pages after the first find `rows` more rows before them, or fewer if
    `rows` is below zero. Of searches of merchant orders: `row_inserted`, `row_deleted` and `row_changed` do that to
    one of the seller's, at random, before the page is read; what was changed has a new `last_updated`, and moves
    where that is the order. Of attempts to deliver a notification: `lost` (nothing is sent, and no retry), `duplicated`
    (sent twice), `delayed` (by `seconds` of the sandbox's clock), `reordered` (the same, and later ones about the same
    thing do not wait), `wrong_signature`, `stale_timestamp` (of an hour ago), `truncated` (half of the body)."""
    operation: str = "*"
    """The name of the operation; `*` stands for anything (`orders.*`). Must match at least one. Attempts to deliver a
    notification are called `notifications.orders`, `notifications.payments` and `notifications.merchant_orders`."""
    tenant: int | None = None
    """The seller; any by default."""
    nth: Annotated[int, Meta(ge=1)] | None = None
    """Only the request with this number, from 1, among those that match."""
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The share of them that is hit, at random, from 0 to 1; the same ones for the same `seed`."""
    times: Annotated[int, Meta(ge=1)] | None = None
    """How many are hit before the rule is spent; no end by default."""
    seed: int = 0
    """The seed of the random choice."""
    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    """The status of the response."""
    code: str | None = None
    """The code of the response; by default the one that the contract has for the operation and `status`."""
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    """How long; 1 by default."""
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] = 1
    """Seconds for the header Retry-After; 1 by default."""
    rows: Annotated[int, Meta(ge=-10_000, le=10_000)] = -1
    """How many rows; one fewer by default."""

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise ValueError(f"there is no effect {self.effect!r}; there are {', '.join(EFFECTS)}")
        operation = EFFECTS[self.effect].operation
        if operation not in {"*", self.operation, _DELIVERY}:
            raise ValueError(f"{self.effect} can only happen to {operation}: say operation={operation}")
        details = EFFECTS[self.effect].members
        for member in fields(self):
            idle = member.name in _DETAILS and member.name not in details
            if idle and getattr(self, member.name) != member.default:
                takes = ", ".join(details) or "none"
                raise ValueError(f"{self.effect} does not take {member.name}; of the details it takes {takes}")


@dataclass(eq=False)
class AddedFault(AbstractContextManager["AddedFault"]):
    """A rule in force, until it is removed: the context manager that `Faults.add` returns.

    After a restore, `Faults.list` has the one that counts on.
    """

    id: int
    """Its number."""
    rule: FaultRule
    """The rule."""
    _remove: Callable[["AddedFault"], None] = field(repr=False)
    seen: int = 0
    """How many requests matched."""
    hits: int = 0
    """How many were hit."""

    def remove(self) -> None:
        """Take the rule out of force. Removing it twice does no harm."""
        self._remove(self)

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def state(self) -> "FaultState":
        """The rule, and how far it has come."""
        return FaultState(self.id, self.rule, self.seen, self.hits)

    def picks(self, operation: str, tenant: int | None) -> bool:
        """Count a request, and say whether it is hit."""
        rule = self.rule
        if operation.startswith(NOTIFICATIONS) is not bool(EFFECTS[rule.effect].names):
            return False
        if not fnmatch.fnmatchcase(operation, rule.operation) or rule.tenant not in (None, tenant):
            return False
        self.seen += 1
        # By the number of the request: neither the rest of the rule nor a restore shifts what chance brings.
        drawn = SeededRandom(f"{rule.seed}/{self.seen}").random() < rule.probability
        hit = drawn and (rule.times is None or self.hits < rule.times) and rule.nth in (None, self.seen)
        self.hits += hit
        return hit


class FaultState(Struct, frozen=True):
    """A rule, and how far it has come."""

    id: int
    """Its number."""
    rule: FaultRule
    """The rule."""
    seen: int
    """How many requests it was looked at for."""
    hits: int
    """How many of them it has hit."""


class Hit(Struct, frozen=True):
    """The rules that one request was hit by, in the order of their making."""

    rules: tuple[FaultRule, ...] = ()

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What happens."""
        return tuple([rule.effect for rule in self.rules])

    def of(self, effect: Effect) -> Iterator[FaultRule]:
        """Yield the rules with *effect*."""
        return (rule for rule in self.rules if rule.effect == effect)

    def first(self, effect: Effect) -> FaultRule | None:
        """Return the first rule with *effect*."""
        return next(self.of(effect), None)


class Faults:
    """The rules in force; it may be used from any thread.

    Args:
        operations: The names of those that there are.
        changed: Called when a rule was added or taken out.
    """

    def __init__(self, operations: Collection[str], changed: Callable[[], None] = lambda: None) -> None:
        self._operations = operations
        self._changed = changed
        self._lock = threading.Lock()
        self._rules: dict[int, AddedFault] = {}
        self._made = 0

    def add(self, rule: FaultRule) -> AddedFault:
        """Put *rule* in force. Used as a context manager, the result takes it out again at the end.

        Raises:
            ValueError: No operation has such a name, or a detail is of the wrong type or out of bounds.
        """
        names = EFFECTS[rule.effect].names or self._operations
        if not any(fnmatch.fnmatchcase(name, rule.operation) for name in names):
            raise ValueError(f"no operation is called {rule.operation!r}; there are {', '.join(names)}")
        # Structs check nothing when Python makes them, and a rule of 150 % would hit whatever it can.
        msgspec.convert(msgspec.structs.asdict(rule), FaultRule)
        with self._lock:
            self._made += 1
            added = self._rules[self._made] = AddedFault(self._made, rule, self._remove)
        self._changed()
        return added

    def clear(self, tenant: int | None = None) -> None:
        """Take out every rule, or every rule of *tenant*."""
        with self._lock:
            rules = (added for added in self._rules.values() if tenant not in (None, added.rule.tenant))
            self._rules = {added.id: added for added in rules}
        self._changed()

    def list(self) -> tuple[AddedFault, ...]:
        """Return the rules in force, in the order of their making."""
        with self._lock:
            return tuple(self._rules.values())

    def standing(self) -> tuple[FaultState, ...]:
        """Return the rules in force, as far as they have come."""
        return tuple(added.state for added in self.list())

    def restore(self, standing: Iterable[FaultState]) -> None:
        """Put those rules in force again, and no others."""
        with self._lock:
            self._rules = {
                state.id: AddedFault(state.id, state.rule, self._remove, state.seen, state.hits) for state in standing
            }

    def match(self, operation: str, tenant: int | None) -> Hit:
        """Count a request of *operation* with every rule, and return those that hit it."""
        if not self._rules:
            return Hit()
        with self._lock:
            return Hit(tuple(added.rule for added in self._rules.values() if added.picks(operation, tenant)))

    def _remove(self, added: AddedFault) -> None:
        with self._lock:  # By its number: after a restore it is another object.
            removed = self._rules.pop(added.id, None)
        if removed:
            self._changed()
