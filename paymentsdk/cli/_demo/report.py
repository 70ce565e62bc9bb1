"""What the job came to, as a table for people and as data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from paymentsdk.cli._demo.books import Comparison, Entry
from paymentsdk.cli._output import counted

#: Differences that are printed; all of them are in the JSON.
SHOWN = 5


class Step(Struct, frozen=True):
    """A part of the job: how many things were done, and how many seconds it took."""

    name: str
    done: int
    seconds: float


class Report(Struct, frozen=True, kw_only=True):
    """What the job came to."""

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

    @property
    def clean(self) -> bool:
        """Whether everything agrees."""
        return self.ledger.clean and self.search.clean


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
    yield f"client and ledger agree on {_verdict(report.ledger)}"
    yield f"client and searches agree on {_verdict(report.search)}"
    for comparison in (report.ledger, report.search):
        yield from _differences("double", comparison.double)
        yield from _differences("lost", comparison.lost)
    yield ""
    yield f"{'passed' if report.clean else 'failed'}: {_differing(report.ledger, report.search)}"


def _verdict(comparison: Comparison) -> str:
    agreed = counted(comparison.agreed, "entry", "entries")
    return f"{agreed}: {_differing(comparison)}"


def _differing(*comparisons: Comparison) -> str:
    double = sum(len(one.double) for one in comparisons)
    lost = sum(len(one.lost) for one in comparisons)
    return f"{double:,} double, {lost:,} lost"


def _differences(kind: str, entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries[:SHOWN]:
        yield f"  {kind}: {entry}"
    if len(entries) > SHOWN:
        yield f"  {kind}: and {len(entries) - SHOWN:,} more"
