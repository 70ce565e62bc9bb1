"""Two books about the same money, and where they differ. Nothing here knows a client, a sandbox or a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

from msgspec import Struct


class Entry(Struct, frozen=True, order=True):
    """One thing that happened."""

    what: str
    """``"payment"``, ``"refund"``, ..."""
    of: str
    """The id of what it happened to."""
    amount: Decimal = Decimal(0)
    """How much money; zero where none moved."""

    def __str__(self) -> str:
        return f"{self.what} of {self.of}" + (f", {self.amount}" if self.amount else "")


class Comparison(Struct, frozen=True, kw_only=True):
    """Where two books differ."""

    agreed: int
    """How many entries are in both."""
    double: tuple[Entry, ...]
    """What was recorded and is not believed: done twice, or done behind the caller's back."""
    lost: tuple[Entry, ...]
    """What is believed and was not recorded."""

    @property
    def clean(self) -> bool:
        """Whether both books say the same."""
        return not self.double and not self.lost


def compare(believed: Iterable[Entry], recorded: Iterable[Entry]) -> Comparison:
    """Compare what a client believes with what the platform recorded, entry by entry.

    An entry that differs in its amount alone is in both lists: once lost, and once done unasked.
    """
    ours, theirs = Counter(believed), Counter(recorded)
    return Comparison(
        agreed=(ours & theirs).total(),
        double=tuple(sorted((theirs - ours).elements())),
        lost=tuple(sorted((ours - theirs).elements())),
    )
