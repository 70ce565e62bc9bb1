"""When a failed call is retried, and which budget pays for it. `verdicts.next_step` says what may be retried at all."""

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


def _budget(seller: object, rule: RetryClass) -> tuple[object, str]:
    """Return the key of the budget for retries of *seller*: reads, writes and token requests have a budget each."""
    group = "reads" if rule is RetryClass.READ else "writes"
    return seller, "tokens" if rule in SINGLE_USE else group


class RetryBudgets:
    """Keep retries from multiplying an outage: a budget for each seller and group of operations.

    A retry costs 5 tokens. After a timeout it costs 10, after a 429 or a full pool nothing. A success gives back the
    cost of its own retry, or 1 if it needed no retry, up to 500 in total. The budget is not felt while fewer than a
    third of the attempts fail. When all fail, retries soon stop. A full budget is not kept. Of the others, the 4,096
    that were used last are kept. An older one is forgotten, and counts as full again.
    """

    __slots__ = ("remaining",)

    FULL = 500
    COST = 5
    COST_OF_TIMEOUT = 10
    MOST = 4096

    def __init__(self) -> None:
        #: The tokens left in each budget that is not full.
        self.remaining: dict[tuple[object, str], int] = {}

    def withdraw(self, seller: object, rule: RetryClass, failure: Failed) -> int | None:
        """Pay for a retry after *failure*, and return its cost; `None` if the budget is too low."""
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
        """Return the share of a budget that is left: 1.0 for a full budget."""
        if not self.remaining:  # The usual case. Hashing a seller is slow, and each observed call asks this.
            return 1.0
        return self.remaining.get(_budget(seller, rule), self.FULL) / self.FULL

    def deposit(self, seller: object, rule: RetryClass, tokens: int = 1) -> None:
        """Record a success: at the first attempt, or after a retry that cost *tokens*."""
        budget = _budget(seller, rule)
        if (left := self.remaining.get(budget)) is None:
            return
        if left + tokens < self.FULL:
            self.remaining[budget] = left + tokens
        else:
            del self.remaining[budget]


class Retries(Struct, Generic[R], eq=False):
    """Decides on the retries of one call, and pays for them from the budgets."""

    rule: RetryClass
    policy: RetryPolicy
    budgets: RetryBudgets
    seller: object
    history: History
    clock: Clock
    deadline: float
    paid: int = 0
    """The cost of the latest retry."""
    pool_waits: int = 0
    """Attempts that found the transport's pool full. They sent nothing, so they do not count."""

    async def run(
        self, failure: Failed, attempt: Callable[[], Awaitable[R | Failed]], sleep: Callable[[float], Awaitable[None]]
    ) -> R | Failed:
        """Go on after the first *failure*, until an *attempt* succeeds or no further attempt is allowed.

        tenacity is only used from here on, since most calls succeed at the first attempt: *failure* is the outcome of
        its first attempt. Each call has its own retryer, because tasks that share one mix up their states.
        """
        try:
            from tenacity import AsyncRetrying, retry_if_result  # only after a failure
        except (ImportError, AttributeError, OSError):
            # The process may have no free file descriptor, or Ctrl-C may have interrupted the first import.
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
            retrying.iter_state.reset()  # Breaks a reference cycle with the outcomes (CONTRIBUTING: cycles).
        if not isinstance(outcome, Failed):
            self.budgets.deposit(self.seller, self.rule, self.paid or 1)
        return outcome

    def _may_retry(self, outcome: R | Failed) -> bool:
        if not isinstance(outcome, Failed):
            return False
        self.pool_waits += _found_pool_full(outcome)
        return next_step(self.rule, outcome, self.history, self.policy) is Verdict.RETRY

    def _delay(self, state: "RetryCallState") -> float:
        """Return the seconds to wait: the requested pause, plus full jitter.

        All calls that are rejected at the same moment are told the same pause. Without the jitter they would all come
        back at the same time.
        """
        longest = min(self.policy.max_delay, self.policy.base_delay * 2.0 ** (self._number(state) - 1))
        return _outcome(state).retry_after + self.clock.random() * longest

    def _number(self, state: "RetryCallState") -> int:
        return max(1, state.attempt_number - self.pool_waits)

    def _stop_or_pay(self, state: "RetryCallState") -> bool:
        """Return whether to stop; if not, take the cost of the next attempt from the budget."""
        pause = state.upcoming_sleep
        if (
            self._number(state) >= self.policy.attempts
            or self.clock.monotonic() + pause >= self.deadline
            or self.history.key_lasts(self.clock) <= pause
        ):
            return True
        # Last, so that the budget only pays for a retry that nothing else forbids.
        cost = self.budgets.withdraw(self.seller, self.rule, _outcome(state))
        self.paid = cost or 0
        return cost is None


def _outcome(state: "RetryCallState") -> Failed:
    """Return the failure that tenacity decides about."""
    return cast("Future[Failed]", state.outcome).result()


def _found_pool_full(failure: Failed) -> bool:
    return isinstance(failure, Unsent) and failure.pool_full
