"""What in an answer did not follow the contract, as a report of bounded length."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

#: Reports that one answer may have: a page can have some in each of a hundred thousand rows.
MOST_REPORTS = 100


class Anomaly(Struct, frozen=True):
    """A member of an answer that did not follow the contract.

    An answer has at most 100 of them, and one more that counts the rest: its *value* is their number. Entries of lists
    that are missing from the answer are never among the rest.

    Attributes:
        path: Its place (``$.results[3].debit_date``).
        value: The member as it came, read from JSON.
        reason: What was wrong, and what was done about it.
        dropped: Whether it could not be mended, and is missing from the answer.
    """

    path: str
    value: object
    reason: str
    dropped: bool = False


class Reports:
    """The anomalies of an answer: the first hundred, all entries that are missing, and the number of the others."""

    __slots__ = ("_first", "_kept", "_lost", "_rest")

    def __init__(self, found: Iterable[Anomaly] = ()) -> None:
        self._kept: list[Anomaly] = []
        self._lost: list[Anomaly] = []
        self._rest = 0
        #: The first of the rest, and of those that are missing, if there are such: nobody may take it for mended.
        self._first: Anomaly | None = None
        self.add(found)

    def add(self, found: Iterable[Anomaly]) -> None:
        """Take further ones."""
        for anomaly in found:
            if len(self._kept) < MOST_REPORTS:
                self._kept.append(anomaly)
            elif anomaly.dropped and anomaly.path.endswith("]"):
                # A walk counts them, since the platform does.
                self._lost.append(anomaly)
            else:
                self._rest += 1
                if self._first is None or (anomaly.dropped and not self._first.dropped):
                    self._first = anomaly

    def all(self) -> tuple[Anomaly, ...]:
        """Return them."""
        if self._first is None:
            return (*self._kept, *self._lost)
        reason = f"and {self._rest} more did not follow the contract, such as this one"
        rest = Anomaly(self._first.path, self._rest, reason, dropped=self._first.dropped)
        return (*self._kept, rest, *self._lost)
