"""When a failed call is tried again, and who pays for it. What may be tried again at all: `verdicts.next_step`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import Struct

from paymentsdk._call.verdicts import Failed, History, RetryPolicy, Unsent, next_step
from paymentsdk._clock import Clock
from paymentsdk._contract.rules import SINGLE_USE, Failure, RetryClass, Verdict

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tenacity import RetryCallState

R = TypeVar("R")


def delay(policy: RetryPolicy, number: int, failure: Failed, jitter: float) -> float:
    """Return the seconds to wait after attempt *number* (from 1): what was asked for, and full jitter on top of it.

    All who are rejected at the same moment are asked for the same pause. Without the jitter they would come back as
    one.
    """
    return failure.retry_after + jitter * min(policy.max_delay, policy.base_delay * 2.0 ** (number - 1))


def _budget(seller: object, rule: RetryClass) -> tuple[object, str]:
    """Return the budget that retries of a *seller* spend: reads, writes and requests for tokens have one each."""
    group = "reads" if rule is RetryClass.READ else "writes"
    return seller, "tokens" if rule in SINGLE_USE else group


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

    def withdraw(self, seller: object, rule: RetryClass, failure: Failed) -> int | None:
        """Pay for a retry after *failure*, and return its cost; `None` if the budget is used up."""
        if failure.kind is Failure.RATE_LIMITED or _found_pool_full(failure):
            return 0
        cost = self.COST_OF_TIMEOUT if failure.timed_out else self.COST
        budget = _budget(seller, rule)
        left = self.remaining.pop(budget, self.FULL)
        self.remaining[budget] = left - cost if left >= cost else left
        if len(self.remaining) > self.MOST:
            del self.remaining[next(iter(self.remaining))]
        return cost if left >= cost else None

    def left(self, seller: object, rule: RetryClass) -> float:
        """Return what is left of a budget: 1.0 for all of it."""
        if not self.remaining:  # Nearly always: an observer is told this of each call, and a seller takes long to hash.
            return 1.0
        return self.remaining.get(_budget(seller, rule), self.FULL) / self.FULL

    def deposit(self, seller: object, rule: RetryClass, tokens: int = 1) -> None:
        """Note a success: at the first attempt, or after a retry that cost *tokens*."""
        budget = _budget(seller, rule)
        if (left := self.remaining.get(budget)) is None:
            return
        if left + tokens < self.FULL:
            self.remaining[budget] = left + tokens
        else:
            del self.remaining[budget]


class Retries(Struct, Generic[R], eq=False):
    """Decides on the retries of one call, and pays for them."""

    rule: RetryClass
    policy: RetryPolicy
    budgets: RetryBudgets
    seller: object
    history: History
    clock: Clock
    deadline: float
    paid: int = 0
    """What the latest retry has cost."""
    pool_waits: int = 0
    """Attempts that found the transport's pool full: nothing was sent, so they do not count."""

    async def run(
        self,
        failure: Failed,
        attempt: Callable[[], Awaitable[R | Failed]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> R | Failed:
        """Go on after the first *failure*, until an *attempt* succeeds or no further one is allowed.

        tenacity comes in only now, since most calls succeed at once: the first failure is the outcome of its first
        attempt. Each call has a retryer of its own: one that is shared between tasks mixes up their states.
        """
        try:
            from tenacity import AsyncRetrying, retry_if_result  # only after a failure
        except (ImportError, AttributeError, OSError):
            # Perhaps no file can be opened any more, or Ctrl-C has ended the first import in the middle.
            return failure
        first = [failure]

        async def next_outcome() -> R | Failed:
            return first.pop() if first else await attempt()

        again, last = retry_if_result(self._may_retry), _outcome
        retrying = AsyncRetrying(
            retry=again, wait=self._delay, stop=self._stop_or_pay, sleep=sleep, retry_error_callback=last
        )
        try:
            outcome: R | Failed = await retrying(next_outcome)
        finally:
            retrying.iter_state.reset()  # It refers to itself, and to the outcomes of the call.
        if not isinstance(outcome, Failed):
            self.budgets.deposit(self.seller, self.rule, self.paid or 1)
        return outcome

    def _may_retry(self, outcome: R | Failed) -> bool:
        if not isinstance(outcome, Failed):
            return False
        self.pool_waits += _found_pool_full(outcome)
        return next_step(self.rule, outcome, self.history, self.policy) is Verdict.RETRY

    def _delay(self, state: "RetryCallState") -> float:
        return delay(self.policy, self._number(state), _outcome(state), self.clock.random())

    def _number(self, state: "RetryCallState") -> int:
        return max(1, state.attempt_number - self.pool_waits)

    def _stop_or_pay(self, state: "RetryCallState") -> bool:
        """Return whether no further attempt is made; what another costs is paid here."""
        rest = state.upcoming_sleep
        if (
            self._number(state) >= self.policy.attempts
            or self.clock.monotonic() + rest >= self.deadline
            or self.history.key_lasts(self.clock) <= rest
        ):
            return True
        # Last: the budget pays only for a retry that nothing else forbids.
        cost = self.budgets.withdraw(self.seller, self.rule, _outcome(state))
        self.paid = cost or 0
        return cost is None


def _outcome(state: "RetryCallState") -> Failed:
    """Return the failure that tenacity decides about."""
    return cast("Future[Failed]", state.outcome).result()


def _found_pool_full(failure: Failed) -> bool:
    return isinstance(failure, Unsent) and failure.pool_full
