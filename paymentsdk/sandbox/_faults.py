"""Faults as data: rules that select requests and say what goes wrong with them.

``EFFECTS`` lists the details of each effect. All effects select requests in the same way. `_app.py` injects the effects
before the commit in `_inject_faults`, and the effects after it in `_with_faults` and `_send`. Effects on the rows of a
search happen while it is handled: `page_drift` in `cut_page` of `_noun.py`, and `row_inserted`, `row_deleted` and
`row_changed` in `_inject_row_fault` of `_handlers/merchant_orders.py`.
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
    # Before the commit, after it, on the rows of a search, and on a notification.
    "fail_before_commit", "delay_before_commit", "refuse", "rate_limit", "reset", "hang",
    "lose_response_after_commit", "delay_after_commit", "truncate", "malformed", "wrong_content_type", "drip", "html",
    "page_drift", "row_inserted", "row_deleted", "row_changed",
    "lost", "duplicated", "delayed", "reordered", "wrong_signature", "stale_timestamp", "truncated",
]  # fmt: skip
#: The names of attempts to deliver a notification begin with this; the topic follows.
NOTIFICATIONS = "notifications."
_DELIVERY = f"{NOTIFICATIONS}*"
#: The names of attempts to deliver a notification.
DELIVERY_NAMES = [f"{NOTIFICATIONS}{topic}" for topic in ("orders", "payments", "merchant_orders")]


class EffectInfo(Struct, frozen=True):
    """The description of an effect."""

    words: str
    """What happens, in a few words."""
    members: tuple[str, ...] = ()
    """The details of a rule that this effect takes, of those that only some effects take."""
    operation: str = "*"
    """The operations that it can happen to."""


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
    "row_inserted": EffectInfo("A merchant order appears before the page is read", operation=_WALK),
    "row_deleted": EffectInfo("A merchant order vanishes before the page is read", operation=_WALK),
    "row_changed": EffectInfo("A merchant order changes before the page is read", operation=_WALK),
    "lost": EffectInfo("A notification is lost, and not sent again", operation=_DELIVERY),
    "duplicated": EffectInfo("A notification comes twice", operation=_DELIVERY),
    "delayed": EffectInfo("A notification comes late", ("seconds",), _DELIVERY),
    "reordered": EffectInfo("A notification comes late, and later ones overtake it", ("seconds",), _DELIVERY),
    "wrong_signature": EffectInfo("A notification has a wrong signature", operation=_DELIVERY),
    "stale_timestamp": EffectInfo("A notification was signed an hour ago", operation=_DELIVERY),
    "truncated": EffectInfo("Half of the body of a notification comes", operation=_DELIVERY),
}

#: The details of effects. A rule has only those that its effect takes. Its other members select requests.
DETAILS = frozenset(name for effect in EFFECTS.values() for name in effect.members)


class FaultRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that makes some requests go wrong.

    It counts the requests that match ``operation`` and ``tenant``; other fields select some of them.

    Raises:
        ValueError: The effect is unknown, or does not take one of the details.
    """

    effect: Effect
    """What happens. `refuse`, `rate_limit`, `reset`, `hang` and `*_before_commit` hit a request before it is handled.
    Other effects on a response come after everything is committed."""
    operation: str = "*"
    """The name of the operation, or a pattern with `*` for any text (`orders.*`). It must match at least one operation.
    Attempts to deliver a notification are called `notifications.orders`, `notifications.payments` and
    `notifications.merchant_orders`."""
    tenant: int | None = None
    """The user id of the seller; any seller by default."""
    nth: Annotated[int, Meta(ge=1)] | None = None
    """Hit only the matching request with this number, counted from 1."""
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The share of matching requests that are hit, from 0 to 1. The choice is random, and repeatable by `seed`."""
    times: Annotated[int, Meta(ge=1)] | None = None
    """Stop after this many hits; never by default."""
    seed: int = 0
    """The seed of the random choice."""
    status: Annotated[int, Meta(ge=400, le=599)] | None = None
    """The status of the response. The default is the status of `code`, or 400; of `fail_before_commit` 500, of `html`
    502."""
    code: str | None = None
    """The code of the response; by default the contract's code for the operation and `status`."""
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    """Seconds of the delay, or per byte of `drip`; 1 by default. Notifications are late by the clock of the sandbox."""
    retry_after: Annotated[int, Meta(ge=0, le=86_400)] = 1
    """Seconds for the header Retry-After; 1 by default."""
    rows: Annotated[int, Meta(ge=-10_000, le=10_000)] = -1
    """Rows that appear before later pages, or vanish if below zero; -1 by default."""

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise ValueError(f"there is no effect {self.effect!r}; there are {', '.join(EFFECTS)}")
        operation = EFFECTS[self.effect].operation
        if operation not in {"*", self.operation, _DELIVERY}:
            raise ValueError(f"{self.effect} can only happen to {operation}; set operation={operation}")
        details = EFFECTS[self.effect].members
        for member in fields(self):
            idle = member.name in DETAILS and member.name not in details
            if idle and getattr(self, member.name) != member.default:
                takes = ", ".join(details) or "none"
                raise ValueError(f"{self.effect} does not take {member.name}; its details: {takes}")


@dataclass(eq=False)
class AddedFault(AbstractContextManager["AddedFault"]):
    """A rule in force until it is removed. `Faults.add` returns this context manager.

    After a restore this object does not count any more; `Faults.list` returns the new one.
    """

    id: int
    """Its number."""
    rule: FaultRule
    """The rule."""
    _remove: Callable[["AddedFault"], None] = field(repr=False)
    seen: int = 0
    """How many requests have matched."""
    hits: int = 0
    """How many requests were hit."""

    def remove(self) -> None:
        """Remove the rule. A second removal has no effect."""
        self._remove(self)

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def state(self) -> "FaultState":
        """The rule, with its counts."""
        return FaultState(self.id, self.rule, self.seen, self.hits)

    def picks(self, operation: str, tenant: int | None) -> bool:
        """Count a request, and return whether it is hit."""
        rule = self.rule
        if operation.startswith(NOTIFICATIONS) is not (EFFECTS[rule.effect].operation == _DELIVERY):
            return False
        if not fnmatch.fnmatchcase(operation, rule.operation) or rule.tenant not in (None, tenant):
            return False
        self.seen += 1
        # The choice depends only on the seed and the request's number, so that a restore does not change it.
        drawn = SeededRandom(f"{rule.seed}/{self.seen}").random() < rule.probability
        hit = drawn and (rule.times is None or self.hits < rule.times) and rule.nth in (None, self.seen)
        self.hits += hit
        return hit


class FaultState(Struct, frozen=True):
    """A rule, with its counts."""

    id: int
    """Its number."""
    rule: FaultRule
    """The rule."""
    seen: int
    """How many requests have matched."""
    hits: int
    """How many requests were hit."""


class Hit(Struct, frozen=True):
    """The rules that hit one request, in the order of their creation."""

    rules: tuple[FaultRule, ...] = ()

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of the rules."""
        return tuple([rule.effect for rule in self.rules])

    def of(self, effect: Effect) -> Iterator[FaultRule]:
        """Yield the rules with *effect*."""
        return (rule for rule in self.rules if rule.effect == effect)

    def first(self, effect: Effect) -> FaultRule | None:
        """Return the first rule with *effect*."""
        return next(self.of(effect), None)


class Faults:
    """The rules in force; usable from any thread.

    Args:
        operations: The names of all operations.
        changed: Called after a rule was added or removed.
    """

    def __init__(self, operations: Collection[str], changed: Callable[[], None] = lambda: None) -> None:
        self._operations = operations
        self._changed = changed
        self._lock = threading.Lock()
        self._rules: dict[int, AddedFault] = {}
        self._made = 0

    def add(self, rule: FaultRule) -> AddedFault:
        """Put *rule* in force. As a context manager, the result removes the rule at the end.

        Raises:
            ValueError: No operation matches the name, or a detail is of the wrong type or out of bounds.
        """
        names = DELIVERY_NAMES if EFFECTS[rule.effect].operation == _DELIVERY else self._operations
        if not any(fnmatch.fnmatchcase(name, rule.operation) for name in names):
            raise ValueError(f"no operation is called {rule.operation!r}; there are {', '.join(names)}")
        # Struct constructors check nothing, and a rule with a probability of 150 % would be accepted.
        msgspec.convert(msgspec.structs.asdict(rule), FaultRule)
        with self._lock:
            self._made += 1
            added = self._rules[self._made] = AddedFault(self._made, rule, self._remove)
        self._changed()
        return added

    def clear(self, tenant: int | None = None) -> None:
        """Remove all rules, or all rules of *tenant*."""
        with self._lock:
            rules = (added for added in self._rules.values() if tenant not in (None, added.rule.tenant))
            self._rules = {added.id: added for added in rules}
        self._changed()

    def list(self) -> tuple[AddedFault, ...]:
        """Return the rules in force, in the order of their creation."""
        with self._lock:
            return tuple(self._rules.values())

    def standing(self) -> tuple[FaultState, ...]:
        """Return the rules in force, with their counts."""
        return tuple(added.state for added in self.list())

    def restore(self, standing: Iterable[FaultState]) -> None:
        """Replace all rules with *standing*."""
        with self._lock:
            self._rules = {
                state.id: AddedFault(state.id, state.rule, self._remove, state.seen, state.hits) for state in standing
            }

    def match(self, operation: str, tenant: int | None) -> Hit:
        """Count a request of *operation* with every rule, and return the rules that hit it."""
        if not self._rules:
            return Hit()
        with self._lock:
            return Hit(tuple(added.rule for added in self._rules.values() if added.picks(operation, tenant)))

    def _remove(self, added: AddedFault) -> None:
        with self._lock:  # By number, since a restore makes new objects.
            removed = self._rules.pop(added.id, None)
        if removed:
            self._changed()
