"""Whether and when a call is tried again: the rules of `rules.py`, applied to what has happened to it so far."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from paymentsdk._call.failures import AttemptFailed, History
from paymentsdk._clock import Clock
from paymentsdk._contract.rules import KEY_LIFETIME, MAX_UNSETTLED, TABLE, Failure, RetryClass, Settles, Verdict
from paymentsdk._validate import check_bool, check_seconds, check_within

if TYPE_CHECKING:
    from tenacity import RetryCallState

R = TypeVar("R")

_MOST_ATTEMPTS = 20


class RetryPolicy(Struct, frozen=True):
    """When a failed call is tried again. All times are in seconds."""

    attempts: int = 4
    """The most requests that one call sends, 1 to 20; 1 turns retries off. One repetition per call with a refreshed
    token does not count, nor does an attempt that waited in vain for a connection of the pool: with retries, the call
    waits again until its total timeout."""
    base_delay: float = 0.5
    """Before attempt n + 1 the client pauses for a random time from 0 to `min(max_delay, base_delay * 2**(n - 1))`;
    0 to 86,400."""
    max_delay: float = 8.0
    """The upper bound of that time; 0 to 86,400."""
    max_retry_after: float = 30.0
    """The longest pause that the client keeps when the platform asks for one; the random pause comes on top. If the
    platform asks for more, the call fails at once, with that pause in `retry_after` of its error, or of the
    `last_error` of an `OutcomeUnknown`; 0 to 86,400."""
    retry_unkeyed: bool = False
    """When no response came, also send a write again that takes no idempotency key (a preference, a customer). The
    object can then exist twice. After a 5xx, a 408 or a 424 such a write is never sent again."""

    def __post_init__(self) -> None:
        check_within("retry.attempts", self.attempts, 1, _MOST_ATTEMPTS)
        for name in ("base_delay", "max_delay", "max_retry_after"):
            check_seconds(f"retry.{name}", getattr(self, name), zero=True)
        check_bool("retry.retry_unkeyed", self.retry_unkeyed)


def should_retry(rule: RetryClass, failure: AttemptFailed, history: History, policy: RetryPolicy) -> bool:
    """Whether the operation may be sent again after *failure*, which *history* has noted already."""
    if failure.permanent or failure.retry_after > policy.max_retry_after:
        return False
    match TABLE[rule][failure.kind]:
        case Verdict.RETRY:
            return True
        case Verdict.ONCE:
            return history.ambiguous_attempts == 1
        case Verdict.IF_UNSETTLED:
            is_open = history.ambiguous_attempts > 0 and failure.settles is not Settles.ALL
            return is_open and history.unsettled <= MAX_UNSETTLED
        case Verdict.IF_ASKED:
            return policy.retry_unkeyed
        case Verdict.REFRESH | Verdict.STOP:
            return False


def should_refresh_token(rule: RetryClass, failure: AttemptFailed) -> bool:
    """Whether the operation may be sent again with another token.

    That is part of the attempt that failed: it takes no pause and no place in the count.
    """
    return TABLE[rule][failure.kind] is Verdict.REFRESH


def key_lasts(history: History, clock: Clock) -> float:
    """Return the seconds until the platform may have forgotten the key: then it would do the same once more."""
    return KEY_LIFETIME - history.age(clock)


def delay(policy: RetryPolicy, number: int, failure: AttemptFailed, jitter: float) -> float:
    """Return the seconds to wait after attempt *number* (from 1): what was asked for, and full jitter on top of it.

    All who are rejected at the same moment are asked for the same pause. Without the jitter they would come back as
    one.
    """
    return failure.retry_after + jitter * min(policy.max_delay, policy.base_delay * 2.0 ** (number - 1))


#: Which operations spend one retry budget.
GROUP: Mapping[RetryClass, str] = {
    RetryClass.READ: "reads",
    RetryClass.KEYED: "writes",
    RetryClass.REPEATABLE: "writes",
    RetryClass.UNKEYED: "writes",
    RetryClass.TOKEN_CODE: "tokens",
    RetryClass.TOKEN_REFRESH: "tokens",
}


class RetryBudgets:
    """Keep retries from multiplying an outage: a budget for each seller and group of operations.

    A retry costs 5 tokens, one after a timeout 10, one after a 429 or a full pool none. A success gives back what its
    own retry cost, or 1 if it took none, up to 500. While fewer than a third of the attempts fail nobody notices; when
    all fail, retries soon stop. A budget that is full is not kept, nor more than 4,096 others: beyond that number the
    budget that was spent from longest ago is forgotten, and is full again.
    """

    __slots__ = ("remaining",)

    FULL = 500
    COST = 5
    COST_OF_TIMEOUT = 10
    MOST = 4096

    def __init__(self) -> None:
        #: The tokens that are left of each budget that is not full.
        self.remaining: dict[tuple[object, str], int] = {}

    def withdraw(self, seller: object, rule: RetryClass, failure: AttemptFailed) -> int | None:
        """Pay for a retry after *failure*, and return its cost; `None` if the budget is used up."""
        if failure.kind is Failure.RATE_LIMITED or failure.pool_full:
            return 0
        cost = self.COST_OF_TIMEOUT if failure.timed_out else self.COST
        budget = seller, GROUP[rule]
        left = self.remaining.pop(budget, self.FULL)
        self.remaining[budget] = left - cost if left >= cost else left
        if len(self.remaining) > self.MOST:
            del self.remaining[next(iter(self.remaining))]
        return cost if left >= cost else None

    def left(self, seller: object, rule: RetryClass) -> float:
        """Return what is left of a budget: 1.0 for all of it."""
        if not self.remaining:  # Nearly always: an observer is told this of each call, and a seller takes long to hash.
            return 1.0
        return self.remaining.get((seller, GROUP[rule]), self.FULL) / self.FULL

    def deposit(self, seller: object, rule: RetryClass, tokens: int = 1) -> None:
        """Note a success: at the first attempt, or after a retry that cost *tokens*."""
        budget = seller, GROUP[rule]
        if (left := self.remaining.get(budget)) is None:
            return
        if left + tokens < self.FULL:
            self.remaining[budget] = left + tokens
        else:
            del self.remaining[budget]


class Retries(Struct, eq=False):
    """What decides on the retries of one call, and pays for them."""

    rule: RetryClass
    policy: RetryPolicy
    budgets: RetryBudgets
    seller: object
    history: History
    clock: Clock
    deadline: float
    failure: AttemptFailed
    """The latest one."""
    paid: int = 0
    """What the latest retry has cost."""
    queued: int = 0
    """Attempts that found the transport's pool full: nothing was sent, so they do not count."""

    async def run(self, attempt: Callable[[], Awaitable[R]], sleep: Callable[[float], Awaitable[None]]) -> R:
        """Go on after the first failure, until an *attempt* succeeds or no further one is allowed.

        *sleep* is a pause of the flow, which ends early where the client is closed.

        tenacity comes in only now, since most calls succeed at once: it is given the first failure as the outcome of
        its first attempt. Each call has a retryer of its own: one that is shared between tasks mixes up their states.

        Raises:
            AttemptFailed: The last failure.
        """
        try:
            from tenacity import AsyncRetrying, retry_if_exception  # only after a failure
        except (ImportError, AttributeError, OSError):
            # Perhaps no file can be opened any more, or Ctrl-C has ended the first import in the middle, and half of it
            # is there. In place of what came of the call, that would be all it says.
            raise self.failure from None
        pending = [self.failure]

        async def go_on() -> R:
            if pending:
                raise pending.pop()
            return await attempt()

        retry, stop = retry_if_exception(self._should_retry), self._stop_or_pay
        retrying = AsyncRetrying(retry=retry, wait=self._delay, stop=stop, sleep=sleep, reraise=True)
        try:
            result: R = await retrying(go_on)
        finally:
            retrying.iter_state.reset()  # It holds itself by what is in there, and what came of the call by this.
        self.budgets.deposit(self.seller, self.rule, self.paid or 1)
        return result

    def _should_retry(self, error: BaseException) -> bool:
        if not isinstance(error, AttemptFailed):
            return False  # A defect comes out as it is.
        self.failure = error.with_traceback(None)
        self.queued += error.pool_full
        return should_retry(self.rule, error, self.history, self.policy)

    def _delay(self, state: "RetryCallState") -> float:
        return delay(self.policy, self._number(state), self.failure, self.clock.random())

    def _number(self, state: "RetryCallState") -> int:
        return max(1, state.attempt_number - self.queued)

    def _stop_or_pay(self, state: "RetryCallState") -> bool:
        """Whether no further attempt is made; what another costs is paid here."""
        rest = state.upcoming_sleep
        if (
            self._number(state) >= self.policy.attempts
            or self.clock.monotonic() + rest >= self.deadline
            or key_lasts(self.history, self.clock) <= rest
        ):
            return True
        # Last: the budget pays only for a retry that nothing else forbids.
        cost = self.budgets.withdraw(self.seller, self.rule, self.failure)
        self.paid = cost or 0
        return cost is None
