"""Reports of where a response did not follow the contract, in bounded number."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import DecodeError, Struct

#: The exceptions of a decoder for data that does not follow the contract, or is not JSON.
MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
#: The most reports for one response: a page can have anomalies in each of a hundred thousand rows.
MOST_REPORTS = 100
#: The most list entries that one response may lose. Each is reported, and takes fifty times the space of its two bytes.
MOST_MISSING = 10_000


class DecodingError(ValueError):
    """The body is not JSON, or its shape cannot hold the result."""


class Anomaly(Struct, frozen=True):
    """A field of a response that did not follow the contract.

    A response has at most 100 anomalies, and one more whose `value` is the number of the others. Two kinds are always
    reported themselves: list entries that are missing from the result, and the first unreadable field that should have
    identified the response to a write. A response with more than 10,000 missing entries is rejected.
    """

    path: str
    """Its place, such as `$.results[3].debit_date`."""
    value: object
    """The received value of the field, read from JSON."""
    reason: str
    """What was wrong, and how it was repaired."""
    dropped: bool = False
    """Whether it could not be repaired, and is missing from the result."""


#: A place in a response: `$`, or the place of its container with the name of a field or the number of an entry. It
#: becomes text only if it is reported, as most of a hundred thousand places are not.
Place: TypeAlias = "str | tuple[Place, str | int]"


def spell(place: Place) -> str:
    """Return *place* as anomalies show it: `$.results[3].debit_date`."""
    steps: list[str] = []
    while not isinstance(place, str):
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return place + "".join(reversed(steps))


def kind_of(value: object) -> str:
    """Return the JSON type of *value*, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


class Reports:
    """The anomalies of a response: the first hundred, all that must be reported, and the number of the others.

    Args:
        essential: Tells which anomalies must be reported even beyond the hundred. Only the first is. See
            `Identity.unreadable`.
    """

    __slots__ = ("_essential", "_kept", "_missed", "_rest", "_sample")

    def __init__(self, essential: Callable[[Anomaly], bool] | None = None) -> None:
        self._kept: list[Anomaly] = []
        self._missed: list[Anomaly] = []
        self._rest = 0
        #: An example of the others, and whether it is missing from the result. A missing one is preferred.
        self._sample: tuple[Place, bool] = "$", False
        self._essential = essential

    def add(self, place: Place, value: object, reason: str, *, dropped: bool = False) -> None:
        """Add an anomaly; in *reason*, `{}` stands for the type of *value*."""
        # Missing entries are always reported: a walk counts them, since the platform does.
        is_reported = len(self._kept) < MOST_REPORTS or (dropped and isinstance(place[-1], int))
        if not is_reported and dropped and self._essential is not None:
            is_reported = self._essential(Anomaly(spell(place), value, reason, dropped=dropped))
            self._essential = None if is_reported else self._essential
        if not is_reported:  # This is the fast path when there are many.
            if not self._rest or dropped > self._sample[1]:
                self._sample = place, dropped
            self._rest += 1
            return
        anomaly = Anomaly(spell(place), value, reason.replace("{}", kind_of(value)), dropped=dropped)
        (self._kept if len(self._kept) < MOST_REPORTS else self._missed).append(anomaly)
        if self._missed and len(self._kept) + len(self._missed) > MOST_MISSING:
            raise DecodingError(f"more than {MOST_MISSING:,} entries of its lists are malformed")

    def all(self) -> tuple[Anomaly, ...]:
        """Return all reports."""
        if not self._rest:
            return (*self._kept, *self._missed)
        place, dropped = self._sample
        reason = f"and {self._rest} more did not follow the contract, such as this one"
        remainder = Anomaly(spell(place), self._rest, reason, dropped=dropped)
        return (*self._kept, remainder, *self._missed)
