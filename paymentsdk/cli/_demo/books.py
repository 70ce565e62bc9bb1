"""Two books about the same money, where they differ, and what the whole job came to; nothing here knows a client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from paymentsdk.cli._output import counted

#: Differences of a kind that are printed; all of them are in the JSON.
SHOWN = 5


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


class Step(Struct, frozen=True):
    """A part of the job: how many things were done, and how many seconds it took."""

    name: str
    done: int
    seconds: float


class Report(Struct, frozen=True):
    """What the job came to."""

    clean: bool
    """Whether everything agrees."""
    steps: Sequence[Step]
    """Its parts, in their order."""
    faults: Mapping[str, int]
    """How often each kind of fault fired."""
    calls: int
    """Calls that the client made."""
    requests: int
    """Requests that it sent for them, with those that were sent again."""
    ledger: Comparison
    """What the client believes, compared with what the sandbox recorded."""
    search: Comparison
    """What the client believes, compared with what a walk over the merchant orders showed."""


def lines(report: Report) -> Iterator[str]:
    """Yield *report* for people."""
    yield f"{'':32}{'done':>6}{'seconds':>9}{'per second':>12}"
    for step in report.steps:
        rate = f"{step.done / step.seconds:,.0f}" if step.done > 1 else ""
        yield f"{step.name:32}{step.done:>6,}{step.seconds:>9.2f}{rate:>12}".rstrip()
    yield ""
    yield f"{'faults that fired':32}{sum(report.faults.values()):>6,}"
    for effect, fired in report.faults.items():
        yield f"  {effect:30}{fired:>6,}"
    yield f"{'calls':32}{report.calls:>6,}"
    yield f"{'requests sent for them':32}{report.requests:>6,}"
    yield ""
    for name, one in (("ledger", report.ledger), ("searches", report.search)):
        yield f"client and {name} agree on {counted(one.agreed, 'entry', 'entries')}: {_differing(one)}"
        yield from (f"  double: {entry}" for entry in one.double[:SHOWN])
        yield from (f"  lost: {entry}" for entry in one.lost[:SHOWN])
    yield ""
    yield f"{'passed' if report.clean else 'failed'}: {_differing(report.ledger, report.search)}"


def _differing(*comparisons: Comparison) -> str:
    double = sum(len(one.double) for one in comparisons)
    lost = sum(len(one.lost) for one in comparisons)
    return f"{double:,} double, {lost:,} lost"
