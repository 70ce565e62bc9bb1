"""What in a response did not follow the contract, as a report of bounded length."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import DecodeError, Struct

#: What a decoder raises for what does not follow the contract, or is not JSON.
MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
#: Reports that one response may have: a page can have some in each of a hundred thousand rows.
MOST_REPORTS = 100


class DecodingError(ValueError):
    """The body is not JSON, or not of a shape that can hold the result."""


class Anomaly(Struct, frozen=True):
    """A member of a response that did not follow the contract.

    A response has at most 100 of them, and one more that counts the rest: its `value` is their number. Never among the
    rest are entries of lists that are missing from the result, and the first member that the response to a write was to
    be identified by.
    """

    path: str
    """Its place, such as `$.results[3].debit_date`."""
    value: object
    """The member as it came, read from JSON."""
    reason: str
    """What was wrong, and what was done about it."""
    dropped: bool = False
    """Whether it could not be repaired, and is missing from the result."""


class Reports:
    """The anomalies of a response: the first hundred, those that nobody may miss, and the number of the others.

    Args:
        found: The first of them.
        essential: Says of which anomaly beyond the hundred the first one has to be told: see `Identity.unreadable`.
    """

    __slots__ = ("_essential", "_first", "_kept", "_missed", "_rest")

    def __init__(self, found: Iterable[Anomaly] = (), essential: Callable[[Anomaly], bool] | None = None) -> None:
        self._kept: list[Anomaly] = []
        self._missed: list[Anomaly] = []
        self._rest = 0
        #: The first of the rest, and of those that are missing, if there are such: nobody may take it for repaired.
        self._first: Anomaly | None = None
        self._essential = essential
        self.add(found)

    def add(self, found: Iterable[Anomaly]) -> None:
        """Take further ones."""
        for anomaly in found:
            if len(self._kept) < MOST_REPORTS:
                self._kept.append(anomaly)
            elif not anomaly.dropped:
                self._rest += 1
                self._first = self._first or anomaly
            elif anomaly.path.endswith("]"):
                # A walk counts them, since the platform does.
                self._missed.append(anomaly)
            elif self._essential is not None and self._essential(anomaly):
                self._missed.append(anomaly)
                self._essential = None
            else:
                self._rest += 1
                self._first = self._first if self._first is not None and self._first.dropped else anomaly

    @property
    def total(self) -> int:
        """How many were taken, told or only counted."""
        return len(self._kept) + len(self._missed) + self._rest

    def only_counts(self, *, dropped: bool) -> bool:
        """Whether a further one is only counted, unless it is about an entry of a list."""
        return self._essential is None and self._first is not None and (self._first.dropped or not dropped)

    def count(self, number: int) -> None:
        """Count further ones, of which `only_counts` is true."""
        self._rest += number

    def all(self) -> tuple[Anomaly, ...]:
        """Return them."""
        if self._first is None:
            return (*self._kept, *self._missed)
        reason = f"and {self._rest} more did not follow the contract, such as this one"
        rest = Anomaly(self._first.path, self._rest, reason, dropped=self._first.dropped)
        return (*self._kept, rest, *self._missed)
