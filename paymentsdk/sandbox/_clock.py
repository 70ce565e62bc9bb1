"""Time and chance: the clock of the sandbox, live, frozen or moved, and identifiers made from a seed."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from uuid import UUID

from msgspec import Struct

from paymentsdk._codec.timestamps import plain
from paymentsdk._validate import plain_duration, plain_moment
from paymentsdk.resources.common import Moment, parse_duration

_NOTHING, _MILLISECOND = timedelta(0), timedelta(milliseconds=1)
#: Far enough for every rule, and near enough to calculate everything that becomes due.
LONGEST_ADVANCE = timedelta(days=3660)
#: Within these bounds, every rule can add and subtract durations, and due moments can be calculated.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)

#: Crockford's alphabet, without letters that look like digits.
_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class ClockEvent(Struct, frozen=True, kw_only=True):
    """Something that became due."""

    at: Moment
    """The moment, by the clock of the seller."""
    kind: str
    """What happened: `order.expired`, `refund.processed`, `refund.failed`, `invoice.processed` or `invoice.recycling`,
    or the result of your own job."""
    tenant: int
    """The seller."""
    id: str
    """The id of the order, invoice or other thing."""


class ClockState(Struct, frozen=True, kw_only=True):
    """The state of the clock: how far it is ahead of the machine's clock, or the moment that it is frozen at."""

    ahead: timedelta = _NOTHING
    frozen_at: Moment | None = None


class TenantClocks(Struct, frozen=True):
    """The clocks of sellers that a test has moved."""

    ahead: dict[int, timedelta] = {}
    """How far each seller is ahead of the clock of the sandbox."""


class Clock:
    """The clock of the sandbox, in whole milliseconds like the contract.

    Args:
        state: The first state.
        move: Sets the clock to the result of a function while other threads wait, and returns what became due.
        wall: Returns nanoseconds since 1970 by the machine's clock.
    """

    def __init__(
        self,
        state: ClockState,
        move: Callable[[Callable[[], ClockState]], tuple[ClockEvent, ...]],
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.state: ClockState = state
        self._move = move
        self._wall = wall
        #: The last millisecond and its moment, since a request reads the clock several times.
        self._last = 0, EARLIEST

    @property
    def frozen(self) -> bool:
        """Whether the clock stands still."""
        return self.state.frozen_at is not None

    def now(self) -> datetime:
        """Return the current moment in UTC. Every rule uses it."""
        state = self.state  # Read once, since another thread may set it.
        return state.frozen_at or self._machine() + state.ahead

    def freeze(self, at: datetime | None = None) -> tuple[ClockEvent, ...]:
        """Stop the clock, now or at the moment *at*.

        Due jobs run at their own moments, in time order. A moment in the past undoes nothing.

        Returns:
            What became due.

        Raises:
            ValueError: *at* has no time zone, is more than ten years ahead, or is not between the years 1970 and 3000.
            TypeError: *at* is not a ``datetime``.
        """
        return self._move(lambda: self.state_frozen(at))

    def state_frozen(self, at: datetime | None = None) -> ClockState:
        """Return the state of the clock after `freeze`."""
        now = self.now()
        moment = now if at is None else _possible(at)
        # The limit is only for moves forward. Nothing becomes due on a move back.
        if moment - now > LONGEST_ADVANCE:
            raise ValueError("the clock moves at most ten years in one step")
        return ClockState(frozen_at=moment)

    def resume(self) -> None:
        """Let the clock run from its current moment."""
        self._move(lambda: ClockState(ahead=self.now() - self._machine()))

    def advance(self, duration: timedelta | str) -> tuple[ClockEvent, ...]:
        """Move forward by *duration*: a ``timedelta``, or text such as ``PT15M``. A frozen clock stays frozen.

        Due jobs run at their own moments, in time order.

        Returns:
            What became due.

        Raises:
            ValueError: *duration* is negative, longer than ten years, leads beyond the year 3000, or is not an ISO 8601
                duration.
            TypeError: *duration* is neither a string nor a ``timedelta``.
        """
        return self._move(lambda: self.state_advanced(duration))

    def state_advanced(self, duration: timedelta | str) -> ClockState:
        """Return the state of the clock after `advance`."""
        length = read_advance(duration, self.now())
        state = self.state
        if state.frozen_at is not None:
            return ClockState(frozen_at=state.frozen_at + length)
        return ClockState(ahead=state.ahead + length)

    def _machine(self) -> datetime:
        milliseconds, last = self._wall() // 1_000_000, self._last
        if milliseconds != last[0]:
            self._last = last = milliseconds, EARLIEST + timedelta(milliseconds=milliseconds)
        return last[1]


def read_advance(duration: timedelta | str, now: datetime) -> timedelta:
    """Return how far to move a clock that stands at *now*.

    Raises:
        ValueError: *duration* is negative, longer than ten years, leads beyond the year 3000, or is not an ISO 8601
            duration.
        TypeError: *duration* is neither a string nor a ``timedelta``.
    """
    try:
        length = plain_duration(parse_duration(duration) if isinstance(duration, str) else duration)
    except ValueError as error:
        raise ValueError(f"{duration!r} {error}") from None
    if length is None:
        raise TypeError(f"a duration is a timedelta, or a string such as PT15M, not {duration!r}")
    if length < _NOTHING:
        raise ValueError("time does not go backwards; restore a snapshot instead")
    if length > LONGEST_ADVANCE:
        raise ValueError("the clock moves at most ten years in one step")
    _possible(now + length)
    # Like all moments here, in whole milliseconds.
    return length // _MILLISECOND * _MILLISECOND


def _possible(value: datetime) -> datetime:
    """Return *value* as a moment of the clock, or raise an error if the clock cannot stand there."""
    moment = plain_moment(value)
    if moment is None:
        raise TypeError(f"a moment is a datetime with its time zone, not {value!r}")
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("the clock runs from the year 1970 to 3000")
    moment = plain(moment).astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class SeededRandom(Random):
    """Random numbers that repeat with the same seed. No secrecy is needed, since nothing in a sandbox has value."""


class Ids:
    """Makes identifiers.

    Args:
        seed: The source of all identifiers. A stored sandbox uses another seed at every start.
    """

    def __init__(self, seed: int | str) -> None:
        self._random = SeededRandom(seed)

    def sortable(self, prefix: str, now: datetime) -> str:
        """Return *prefix* (``ORD``, ``PAY``, ``REF``) and 26 characters that sort by time."""
        return f"{prefix}{_written(now)}{self._random.getrandbits(64):016X}"

    def number(self, digits: int = 10) -> int:
        """Return a number of *digits* digits."""
        return self._random.randrange(10 ** (digits - 1), 10**digits)

    def token(self, length: int = 32) -> str:
        """Return *length* hexadecimal digits."""
        return f"{self._random.getrandbits(4 * length):0{length}x}"

    def uuid(self) -> str:
        """Return a random UUID."""
        return str(UUID(int=self._random.getrandbits(128), version=4))


@lru_cache(4)
def _written(moment: datetime) -> str:
    milliseconds = int(moment.timestamp() * 1000)
    return "".join(_BASE32[milliseconds >> place & 31] for place in range(45, -1, -5))
