"""What the journal says, what callers were told, and what the ledger of the sandbox shows: where they disagree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from paymentsdk.journal import Record, RecordState

Line = Mapping[str, Any]
#: Seconds by which an attempt may seem late: a `Date` has no fractions, and takes its time to arrive.
SLACK = 2.5
DAY = 86_400.0
#: After these there may be no effect.
WITHOUT_EFFECT = frozenset({RecordState.REFUSED, RecordState.NOT_SENT, RecordState.EXPIRED})
OPEN = frozenset({RecordState.PENDING, RecordState.SENT, RecordState.UNKNOWN, RecordState.DEFERRED})


class Evidence(Struct, frozen=True, kw_only=True):
    """What is left of a run."""

    sellers: Sequence[int]
    """The platform's user ids; the name of a record begins with the place of its seller here."""
    ledger: Sequence[Line]
    """What took effect."""
    told: Sequence[Line]
    sent: Sequence[Line]
    rows: Sequence[Record]
    now: float
    """The platform's time after the last recovery."""
    refreshed: Sequence[Line]
    """What the platform issued for refresh tokens."""
    refreshes: Sequence[Line]
    """What asked it to."""
    rejected: Collection[tuple[int, str]]
    """The access tokens that the platform has rejected, each with its user."""
    ending: Collection[tuple[int, str]]
    """Those that were to end within seconds."""
    kills: int
    """Deaths that may have cost a refresh each."""
    faults: Mapping[str, int]
    """How often what else went wrong, by its name."""

    @property
    def ended(self) -> Collection[tuple[int, str]]:
        """The tokens that have to be refreshed, each once."""
        return {*self.rejected, *self.ending}

    @property
    def effects(self) -> Mapping[str, Sequence[Line]]:
        """What took effect under each name."""
        effects: dict[str, list[Line]] = defaultdict(list)
        for entry in self.ledger:
            effects[entry["external_reference"]].append(entry)
        return effects


def judge(evidence: Evidence) -> Mapping[str, Sequence[str]]:
    """Return by rule where it was broken."""
    return {rule: check(evidence) for rule, check in RULES.items()}


def _double(evidence: Evidence) -> list[str]:
    return [name for name, entries in evidence.effects.items() if len(entries) > 1]


def _lost(evidence: Evidence) -> list[str]:
    ids = {name: {entry["id"] for entry in entries} for name, entries in evidence.effects.items()}
    told_names = {
        line["name"]
        for line in evidence.told
        if line.get("told") == "done" and line["id"] not in ids.get(line["name"], ())
    }
    kept_names = {row.name for row in evidence.rows if row.state is RecordState.DONE and row.name not in ids}
    return sorted(told_names | kept_names)


def _wrong(evidence: Evidence) -> list[str]:
    rows = {row.name: row.state for row in evidence.rows if row.state in WITHOUT_EFFECT}
    refused = {line["name"]: "told" for line in evidence.told if line.get("told") == "refused"}
    return [f"{name}: {state}" for name, state in {**refused, **rows}.items() if name in evidence.effects]


def _final(evidence: Evidence) -> list[str]:
    """A rejection that a caller was told of as final, and whose record is not closed with it."""
    refused = {row.name for row in evidence.rows if row.state is RecordState.REFUSED}
    return sorted({line["name"] for line in evidence.told if line.get("told") == "refused"} - refused)


def _foreign(evidence: Evidence) -> list[str]:
    def seller(name: str) -> int:
        return evidence.sellers[int(name.partition("-")[0][1:])]

    return [name for name, entries in evidence.effects.items() for entry in entries if entry["tenant"] != seller(name)]


def _late(evidence: Evidence) -> list[str]:
    # A process whose clock is off by whole days may have begun it, and what was not sent may have been begun anew.
    ends = {row.key: row.not_after - round((row.begun - evidence.now) / DAY) * DAY for row in evidence.rows}
    return [
        f"{line['key']}: {line['at'] - ends[line['key']]:.1f} s"
        for line in evidence.sent
        if line["at"] > ends.get(line["key"], line["at"]) + SLACK
    ]


def _bytes(evidence: Evidence) -> list[str]:
    digests = {(line["key"], line["digest"]) for line in evidence.sent}
    return [key for key, count in Counter(key for key, _ in digests).items() if count > 1]


def _unkept(evidence: Evidence) -> list[str]:
    return sorted({line["key"] for line in evidence.sent} - {row.key for row in evidence.rows})


def is_dated(row: Record, now: float) -> bool:
    """Whether a record ends on the platform's clock: not if a process began it whose own clock is off by days."""
    return abs(row.begun - now) < DAY


def is_over(row: Record, now: float) -> bool:
    """Whether the time of a record is over by the platform's clock, or was by the journal's when it was written."""
    age = row.updated - (row.first_kept or row.updated)
    return row.not_after <= now + SLACK or age >= row.not_after - row.begun - SLACK


def left_open(rows: Sequence[Record], now: float) -> list[Record]:
    """Return the open *rows* that recovery can settle: they take a key, and at *now* there is time left."""
    # Before its end, by as much as an attempt may seem late: a client does not know the platform's time any better.
    return [
        row
        for row in rows
        if row.state in OPEN and row.keyed and not (row.state is RecordState.UNKNOWN and is_over(row, now))
    ]


def _stuck(evidence: Evidence) -> list[str]:
    return [f"{row.name}: {row.state.value}, {row.reason}" for row in left_open(evidence.rows, evidence.now)]


def _refreshed(evidence: Evidence) -> list[str]:
    """More than one new pair for each token that was rejected or had an end."""
    ended = Counter(user for user, _ in evidence.ended)
    issued = Counter(entry["tenant"] for entry in evidence.refreshed)
    return [f"{user}: {count} for {ended[user]}" for user, count in issued.items() if count > ended[user]]


def _asked(evidence: Evidence) -> list[str]:
    """More than one attempt for each token that was rejected or had an end, and one more for each death."""
    allowed = len(evidence.ended) + evidence.kills
    return [f"{len(evidence.refreshes)} of {allowed}"] if len(evidence.refreshes) > allowed else []


def _surprised(evidence: Evidence) -> list[str]:
    """A caller that was told what none of these calls can come to, such as a mistake of its own."""
    return [
        f"{line['name']}: {line['told']}, {line['why']}" for line in evidence.told if "other" in line.get("told", "")
    ]


def _quiet(evidence: Evidence) -> list[str]:
    """A fault that never came: what stands it is not known."""
    return [f"{name} never came" for name, count in evidence.faults.items() if not count]


RULES = {
    "double": _double,
    "lost": _lost,
    "wrong": _wrong,
    "final": _final,
    "foreign": _foreign,
    "late": _late,
    "bytes": _bytes,
    "unkept": _unkept,
    "stuck": _stuck,
    "refreshed": _refreshed,
    "asked": _asked,
    "surprised": _surprised,
    "quiet": _quiet,
}


def controls(evidence: Evidence) -> Mapping[str, Evidence]:
    """Return for each rule the same evidence with one thing changed that breaks it: the rule has to see that."""
    record = next(
        row
        for row in evidence.rows
        if row.state is RecordState.DONE and row.keyed and row.name in evidence.effects and is_dated(row, evidence.now)
    )
    entry = evidence.effects[record.name][0]
    remaining = [line for line in evidence.ledger if line is not entry]
    sent = next(line for line in evidence.sent if line["key"] == record.key)
    rows = [row for row in evidence.rows if row is not record]

    def with_row(state: RecordState) -> Evidence:
        return structs.replace(
            evidence, rows=[*rows, structs.replace(record, state=state, not_after=evidence.now + 60)]
        )

    return {
        "double": structs.replace(evidence, ledger=[*evidence.ledger, entry]),
        "lost": structs.replace(evidence, ledger=remaining),
        "wrong": with_row(RecordState.NOT_SENT),
        "final": structs.replace(evidence, told=[*evidence.told, {"name": record.name, "told": "refused"}]),
        "foreign": structs.replace(evidence, ledger=[*remaining, {**entry, "tenant": 0}]),
        "late": structs.replace(evidence, sent=[*evidence.sent, {**sent, "at": record.not_after + 60}]),
        "bytes": structs.replace(evidence, sent=[*evidence.sent, {**sent, "digest": "other"}]),
        "unkept": structs.replace(evidence, rows=rows),
        "stuck": with_row(RecordState.UNKNOWN),
        "refreshed": structs.replace(evidence, rejected=set(), ending=set()),
        "asked": structs.replace(
            evidence, refreshes=[*evidence.refreshes, *[{}] * (len(evidence.ended) + evidence.kills)]
        ),
        "quiet": structs.replace(evidence, faults={**evidence.faults, "nothing": 0}),
        "surprised": structs.replace(
            evidence, told=[*evidence.told, {"name": record.name, "told": "other: RequestInvalid", "why": "no"}]
        ),
    }
