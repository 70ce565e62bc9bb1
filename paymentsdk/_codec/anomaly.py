"""What in a response did not follow the contract, as a report of bounded length."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import DecodeError, Struct

#: What a decoder raises for what does not follow the contract, or is not JSON.
MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
#: Reports that one response may have: a page can have some in each of a hundred thousand rows.
MOST_REPORTS = 100
#: Entries of lists that one response may lose. Each is reported, and takes fifty times the room of its two bytes.
MOST_MISSING = 10_000


class DecodingError(ValueError):
    """The body is not JSON, or not of a shape that can hold the result."""


class Anomaly(Struct, frozen=True):
    """A field of a response that did not follow the contract.

    A response has at most 100 of them, and one more that counts the rest: its `value` is their number. Never among the
    rest are entries of lists that are missing from the result, and the first field that the response to a write was to
    be identified by. A response with more than 10,000 missing entries is rejected.
    """

    path: str
    """Its place, such as `$.results[3].debit_date`."""
    value: object
    """The field as it came, read from JSON."""
    reason: str
    """What was wrong, and what was done about it."""
    dropped: bool = False
    """Whether it could not be repaired, and is missing from the result."""


#: A place in a response: `$`, or that of what is around it, and the name of a field or the number of an entry there.
#: Only a place that is reported is spelt out: of most of a hundred thousand, nothing is.
Place: TypeAlias = "str | tuple[Place, str | int]"


def spell(place: Place) -> str:
    """Return *place* as it is reported: `$.results[3].debit_date`."""
    steps: list[str] = []
    while not isinstance(place, str):
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return place + "".join(reversed(steps))


def kind_of(value: object) -> str:
    """Say what a value read from JSON is."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


class Reports:
    """The anomalies of a response: the first hundred, those that nobody may miss, and the number of the others.

    Args:
        essential: Says of which anomaly beyond the hundred the first one has to be reported: see `Identity.unreadable`.
    """

    __slots__ = ("_essential", "_kept", "_missed", "_rest", "_sample")

    def __init__(self, essential: Callable[[Anomaly], bool] | None = None) -> None:
        self._kept: list[Anomaly] = []
        self._missed: list[Anomaly] = []
        self._rest = 0
        #: One of the rest, and whether it is missing: one that is, if any is, so that nobody takes it for repaired.
        self._sample: tuple[Place, bool] = "$", False
        self._essential = essential

    def add(self, place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
        """Take one more; in *reason*, `{}` stands for what *value* is."""
        # A walk counts the entries that are missing, since the platform does.
        is_reported = len(self._kept) < MOST_REPORTS or (dropped and isinstance(place[-1], int))
        if not is_reported and dropped and self._essential is not None:
            is_reported = self._essential(Anomaly(spell(place), value, reason, dropped=dropped))
            self._essential = None if is_reported else self._essential
        if not is_reported:  # Nearly all of many are only counted, so that is cheap.
            if not self._rest or dropped > self._sample[1]:
                self._sample = place, dropped
            self._rest += 1
            return
        anomaly = Anomaly(spell(place), value, reason.replace("{}", kind_of(value)), dropped=dropped)
        (self._kept if len(self._kept) < MOST_REPORTS else self._missed).append(anomaly)
        if self._missed and len(self._kept) + len(self._missed) > MOST_MISSING:
            raise DecodingError(f"more than {MOST_MISSING:,} entries of its lists are none")

    def all(self) -> tuple[Anomaly, ...]:
        """Return them."""
        if not self._rest:
            return (*self._kept, *self._missed)
        place, dropped = self._sample
        reason = f"and {self._rest} more did not follow the contract, such as this one"
        remainder = Anomaly(spell(place), self._rest, reason, dropped=dropped)
        return (*self._kept, remainder, *self._missed)
