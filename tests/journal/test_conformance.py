"""Journals keep the rules of `journal_conformance`, and a journal that breaks one is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs

from paymentsdk import JournalUnavailable
from paymentsdk import journal as states
from paymentsdk.journal import Action, PostgresJournal, Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.testing import journal_conformance

Now = Callable[[], float]
CASES, Case = journal_conformance.CASES, journal_conformance.Case
CLOSED = {RecordState.DONE, RecordState.REFUSED, RecordState.NOT_SENT, RecordState.EXPIRED, RecordState.ABANDONED}


class MemoryJournal:
    """A journal in memory, with each decision in a method of its own, so that a test can break it."""

    def __init__(self, rows: dict[str, Record], now: Now) -> None:
        self._rows, self.now, self.closed = rows, now, False

    @property
    def rows(self) -> dict[str, Record]:
        """The rows, if the journal is open."""
        if self.closed:
            raise JournalUnavailable("it is closed")
        return self._rows

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal`."""
        action, row = states.begin_record(self.rows.get(record.key), record, now=self.now(), lease=lease)
        self.rows[row.key] = row
        return action, row

    async def get(self, key: str) -> Record | None:
        """See `Journal`."""
        return self.rows.get(key)

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """See `Journal`."""
        self.rows[key] = states.renew_lease(self.rows[key], owner=owner, now=self.now(), lease=lease)
        return self.rows[key]

    async def resolve(self, key: str, resolution: Resolution, *, owner: str) -> Record:
        """See `Journal`."""
        self.rows[key] = states.resolve_record(self.rows[key], resolution, owner=owner, now=self.now())
        return self.rows[key]

    async def claim(self, sellers: Collection[str], *, owner: str, lease: float, keys: Collection[str]) -> list[Record]:
        """See `Journal`."""
        claimed = {}
        for key in self.rows.keys() & set(keys):
            options = {"sellers": sellers, "owner": owner, "now": self.now(), "lease": lease}
            claimed[key] = states.claim_record(self.rows[key], **options)
        self.rows.update(claimed)
        return sorted((row for row in claimed.values() if row.owner == owner), key=lambda row: row.begun)

    async def records(self, among: Collection[RecordState], *, limit: int = 1000, **which: Any) -> list[Record]:
        """See `Journal`."""
        return sorted((row for row in self.rows.values() if row.state in among), key=lambda row: row.begun)[:limit]

    async def purge(self, before: float) -> int:
        """See `Journal`."""
        old = [row for row in self.rows.values() if row.state in CLOSED and row.begun < before]
        purged = {row.key: remainder for row in old if (remainder := states.tombstone(row)) != row}
        self.rows.update(purged)
        return len(purged)

    async def aclose(self) -> None:
        """See `Journal`."""
        self.closed = True


async def assert_conforms(case: Case, make_journal: journal_conformance.MakeJournal) -> None:
    """Check a rule: `Case.run` raises an AssertionError where it is broken."""
    await case.run(make_journal)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_journal_in_memory_conforms(case: Case) -> None:
    """The tables of states, and nothing else, make a journal that conforms."""
    rows: dict[str, Record] = {}

    await assert_conforms(case, lambda now: MemoryJournal(rows, now))


SEALS = {"seal": lambda body: body[::-1], "unseal": lambda body: body[::-1]}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_sqlite_conforms(case: Case, tmp_path: Path) -> None:
    """`SQLiteJournal` keeps every rule, with several journals on one file, and with sealed bodies."""
    await assert_conforms(case, lambda now: SQLiteJournal(tmp_path / "journal.db", now=now, **SEALS))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_postgres_conforms(case: Case, dsn: str) -> None:
    """`PostgresJournal` keeps every rule, with several journals on one table, and without a seal."""
    await assert_conforms(case, lambda now: PostgresJournal(dsn, now=now))


def breaking(name: str) -> Callable[[Callable[..., object]], type[MemoryJournal]]:
    """Make a journal of which one method is another."""
    return lambda method: type("Broken", (MemoryJournal,), {name: method})


@breaking("begin")
async def changes_bytes(self, record: Record, *, lease: float) -> tuple[Action, Record]:
    """Keeps other bytes."""
    return await MemoryJournal.begin(self, structs.replace(record, body=record.body.strip(b"\n")), lease=lease)


@breaking("resolve")
async def writes_the_state_alone(self, key: str, resolution: Resolution, *, owner: str) -> Record:
    """Leaves the body where it is."""
    body = self.rows[key].body if key in self.rows else None
    now = await MemoryJournal.resolve(self, key, resolution, owner=owner)
    self.rows[key] = structs.replace(now, body=body)
    return self.rows[key]


@breaking("begin")
async def always_sends(self, record: Record, *, lease: float) -> tuple[Action, Record]:
    """Looks at no row."""
    self.rows[record.key] = structs.replace(record, lease_until=self.now() + lease, updated=self.now())
    return Action.SEND, self.rows[record.key]


@breaking("begin")
async def compares_no_bytes(self, record: Record, *, lease: float) -> tuple[Action, Record]:
    """Takes every request for that of the record."""
    row = self.rows.get(record.key)
    same = structs.replace(record, digest=row.digest if row else record.digest)
    return await MemoryJournal.begin(self, same, lease=lease)


@breaking("renew")
async def renews_nothing(self, key: str, *, owner: str, lease: float) -> Record:
    """Leaves a lease as it is."""
    return self.rows[key]


@breaking("resolve")
async def lets_everybody_settle(self, key: str, resolution: Resolution, *, owner: str) -> Record:
    """Compares no owner."""
    row = self.rows[key]
    return await MemoryJournal.resolve(self, key, resolution, owner=row.owner or owner)


@breaking("claim")
async def claims_for_everybody(self, sellers: Collection[str], **more: Any):
    """Asks for no seller."""
    everybody = {row.seller for row in self.rows.values()}
    return await MemoryJournal.claim(self, everybody, **more)


@breaking("claim")
async def claims_what_another_claims(self, sellers: Collection[str], *, owner: str, lease: float, keys: object):
    """Reads in one transaction, and writes in another."""
    options = {"sellers": sellers, "owner": owner, "now": self.now(), "lease": lease}
    claimed = [states.claim_record(row, **options) for row in self.rows.values()]
    await asyncio.sleep(0)
    return [row for row in claimed if row.owner == owner]


@breaking("purge")
async def purges_names(self, before: float) -> int:
    """Leaves no tombstone."""
    old = [key for key, row in self.rows.items() if row.state in CLOSED and row.begun < before]
    for key in old:
        del self.rows[key]
    return len(old)


@breaking("resolve")
async def resolves_in_two_steps(self, key: str, resolution: Resolution, *, owner: str) -> Record:
    """Reads in one transaction, and writes in another."""
    row = self.rows[key]
    await asyncio.sleep(0)
    self.rows[key] = states.resolve_record(row, resolution, owner=owner, now=self.now())
    return self.rows[key]


class KeepsItsTransaction(MemoryJournal):
    """Begins in a transaction that it ends only if nobody gives up."""

    transactions: ClassVar[dict[int, asyncio.Lock]] = {}

    async def begin(self, record: Record, *, lease: float) -> tuple[Action, Record]:
        """See `Journal`."""
        transaction = self.transactions.setdefault(id(self.rows), asyncio.Lock())
        await transaction.acquire()
        await asyncio.sleep(0)
        transaction.release()
        return await MemoryJournal.begin(self, record, lease=lease)


@breaking("resolve")
async def forgets_what_is_in_flight(self, key: str, resolution: Resolution, *, owner: str) -> Record:
    """Has no column for it."""
    return await MemoryJournal.resolve(self, key, structs.replace(resolution, in_flight=0.0), owner=owner)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("a_record_is_kept_whole", changes_bytes),
        ("credentials_of_a_payer_are_not_kept_for_ever", writes_the_state_alone),
        ("a_record_is_begun_once", always_sends),
        ("changes_do_not_undo_each_other", resolves_in_two_steps),
        ("who_gives_up_keeps_nobody_waiting", KeepsItsTransaction),
        ("other_bytes_are_a_conflict", compares_no_bytes),
        ("a_lease_keeps_others_away", renews_nothing),
        ("only_the_owner_settles", lets_everybody_settle),
        ("no_rejection_is_final_while_a_cut_attempt_may_arrive", forgets_what_is_in_flight),
        ("a_rejection_is_not_final_while_an_attempt_of_its_own_call_may_arrive", forgets_what_is_in_flight),
        ("recovery_takes_the_open_records_of_its_sellers", claims_for_everybody),
        ("a_row_is_claimed_once", claims_what_another_claims),
        ("retention_leaves_a_tombstone", purges_names),
    ],
)
async def test_a_journal_that_breaks_a_rule_is_found_out(
    name: str, broken: type[MemoryJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a rule there is a journal that breaks it, and the case of the rule says so."""
    monkeypatch.setattr("paymentsdk.testing._expectation.LONGEST", 0.1)
    (case,) = (case for case in CASES if case.name == name)
    rows: dict[str, Record] = {}

    with pytest.raises(AssertionError, match=r"\w+ .*\w"):  # In words.
        await case.run(lambda now: broken(rows, now))
