"""The rules that every journal keeps, as a suite that you can run on your own.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.journal_conformance import CASES

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case, tmp_path):
        def make_journal(now):
            return MyJournal(tmp_path / "journal", now=now)

        await case.run(make_journal)

Within one case, all journals that ``make_journal`` makes share one store: they stand for several processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct, structs

from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import (
    Action,
    Journal,
    Record,
    RecordState,
    Resolution,
    StoredResponse,
    derive_key,
)
from paymentsdk.journal._states import CLOSED, NO_LIMIT, OPEN, digest
from paymentsdk.testing._expectation import expect

__all__ = ["CASES", "Case", "MakeJournal"]

#: Makes a journal on the store of the case, whose leases count on the clock that it is given.
MakeJournal: TypeAlias = Callable[[Callable[[], float]], Journal]

_LEASE = 60.0
_BODY = b'{"total_amount":"24.90"}'
#: Records of which none may be left out.
_MANY = 1_100
#: Seconds after which nothing comes any more.
_PATIENCE = 30.0


class Case(Struct, frozen=True):
    """One rule of a journal."""

    name: str
    """Its name, in words."""
    rule: str
    """What a journal has to do, in a sentence."""
    check: Callable[[Processes], Awaitable[None]]
    """Raises ``AssertionError`` where it does not."""

    def __str__(self) -> str:
        return self.name

    async def run(self, make_journal: MakeJournal) -> None:
        """Check the rule.

        Raises:
            AssertionError: The journal breaks it.
        """
        processes = Processes(make_journal)
        try:
            await self.check(processes)
        finally:
            await processes.aclose()


class Processes:
    """The processes of a case: two journals on one store, and one clock."""

    def __init__(self, make_journal: MakeJournal) -> None:
        self._make = make_journal
        self._journals: list[Journal] = []
        self.time: float = 1_000.0

    def journal(self) -> Journal:
        """Return the journal of one more process."""
        journal = self._make(lambda: self.time)
        self._journals.append(journal)
        return journal

    async def aclose(self) -> None:
        """Close all of them."""
        for journal in self._journals:
            await journal.aclose()


def _record(name: str = "table-7/1", owner: str = "a/1", body: bytes = _BODY, seller: str = "77") -> Record:
    return Record(
        key=derive_key("http://127.0.0.1", seller, "orders.create", name),
        name=name,
        operation="orders.create",
        base_url="http://127.0.0.1",
        seller=seller,
        account="shop-1",
        path="/v1/orders",
        headers={"X-Platform-Session-Id": "device-1"},
        body=body,
        digest=digest("POST", "/v1/orders", body),
        begun=500.0,
        not_after=1_100.0,
        owner=owner,
    )


def _done(body: bytes = b'{"id":"ORD1"}') -> Resolution:
    return Resolution(state=RecordState.DONE, response=StoredResponse(201, {"X-Request-Id": "r-1"}, body))


CASES: list[Case] = []


def _case(check: Callable[[Processes], Awaitable[None]]) -> Callable[[Processes], Awaitable[None]]:
    name = check.__name__.removeprefix("_").replace("_", " ")
    CASES.append(Case(name, (check.__doc__ or "").strip(), check))
    return check


@_case
async def _a_record_is_kept_whole(processes: Processes) -> None:
    """Another process reads every field of a record, its exact bytes included."""
    record = _record(body=b"\x00\xff not text \r\n")
    _, row = await processes.journal().begin(record, lease=_LEASE)

    kept = await processes.journal().get(record.key)

    expected = structs.replace(record, lease_until=processes.time + _LEASE, updated=processes.time)
    expect(expected == row == kept, f"kept {kept!r} in place of {expected!r}")
    expect(await processes.journal().get("unknown") is None, "a row of an unknown key")


@_case
async def _nothing_of_a_record_is_rounded(processes: Processes) -> None:
    """An empty body, which recovery can send, is not a missing one; times have fractions, names 200 of any letters."""
    record = structs.replace(
        _record(("Tisch 7 \u2013 cafe\u0301, caf\u00e9 \u2615 " * 10)[:200], body=b""),
        account=None,
        headers={},
        begun=1_700_000_000.123456,
        not_after=1_700_000_600.654321,
    )
    await processes.journal().begin(record, lease=_LEASE)

    kept = await processes.journal().get(record.key)

    expect(kept is not None, "the row is gone")
    for name in () if kept is None else ("name", "account", "headers", "body", "begun", "not_after"):
        found, expected = getattr(kept, name), getattr(record, name)
        expect(found == expected, f"kept {found!r} as the {name}, in place of {expected!r}")


@_case
async def _credentials_of_a_payer_are_not_kept_for_ever(processes: Processes) -> None:
    """The body of a `sensitive` record is gone once that is closed; recovery leaves one alone that has no body."""
    journal = processes.journal()
    secret = structs.replace(_record("secret"), sensitive=True)
    await journal.begin(secret, lease=_LEASE)
    await journal.begin(structs.replace(_record("without its bytes"), sensitive=True, body=None), lease=_LEASE)
    await journal.resolve(secret.key, _done(), owner="a/1")
    processes.time += _LEASE

    kept = await processes.journal().get(secret.key)
    expect(kept is not None and kept.body is None, "the body of a closed sensitive record is still there")
    claimed = await processes.journal().claim(["77"], owner="b/1", lease=_LEASE)
    expect(claimed == [], f"claimed {claimed}, which nobody can send: its body is not there")


@_case
async def _a_record_is_begun_once(processes: Processes) -> None:
    """Of many processes that begin one record at the same time, one is told to send."""
    journals = [processes.journal() for _ in range(4)]

    responses = await asyncio.gather(
        *(journal.begin(_record(owner=f"{i}/1"), lease=_LEASE) for i, journal in enumerate(journals))
    )

    actions = [action for action, _ in responses]
    expect(actions.count(Action.SEND) == 1, f"told to send: {actions}")
    expect(actions.count(Action.IN_PROGRESS) == len(journals) - 1, f"told to wait: {actions}")


@_case
async def _its_owner_may_begin_a_record_again(processes: Processes) -> None:
    """Who did not hear that a record was begun, since a connection was lost, begins it again, and is told the same."""
    record = _record()
    first = await processes.journal().begin(record, lease=_LEASE)

    again = await processes.journal().begin(record, lease=_LEASE)

    expect(again == first, f"{again} in place of {first}")


@_case
async def _changes_do_not_undo_each_other(processes: Processes) -> None:
    """Each change is made to the row as it is then: whatever else is written at the same moment, `DONE` stays."""
    first, second = processes.journal(), processes.journal()
    for number in range(12):
        key = (record := _record(f"n-{number}")).key
        await first.begin(record, lease=_LEASE)
        rejected = Resolution(state=RecordState.REFUSED, reason="no")
        works = [
            first.renew(key, owner="a/1", lease=_LEASE) if number % 2 else first.resolve(key, rejected, owner="a/1"),
            second.resolve(key, _done(), owner="somebody/1"),
        ]
        await asyncio.gather(*(works if number % 3 else reversed(works)))
        row = await processes.journal().get(key)
        expect(row is not None and row.state is RecordState.DONE, f"left {row!r}")


@_case
async def _who_gives_up_keeps_nobody_waiting(processes: Processes) -> None:
    """A call that is cancelled at any moment, also in the middle of a change, does not keep the others out."""
    for turns in range(6):
        cancelled = asyncio.ensure_future(processes.journal().begin(_record(f"n-{turns}"), lease=_LEASE))
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        try:
            async with asyncio.timeout(_PATIENCE):
                action, _ = await processes.journal().begin(_record(f"after n-{turns}"), lease=_LEASE)
        except TimeoutError:
            raise AssertionError("a call that was cancelled keeps the others waiting") from None
        expect(action is Action.SEND, f"{action} for a record of another name")


@_case
async def _other_bytes_are_a_conflict(processes: Processes) -> None:
    """A second request under the same name is rejected in every state, and changes nothing."""
    journal = processes.journal()
    _, row = await journal.begin(_record(), lease=_LEASE)
    for resolution in (None, Resolution(state=RecordState.UNKNOWN), _done()):
        if resolution is not None:
            row = await journal.resolve(row.key, resolution, owner="a/1")
        action, now = await journal.begin(_record(owner="b/1", body=b"{}"), lease=_LEASE)
        expect(action is Action.CONFLICT, f"{action} for other bytes of what is {row.state}")
        expect(await journal.get(row.key) == row == now, "a conflict has changed the row")


@_case
async def _a_finished_record_returns_its_response(processes: Processes) -> None:
    """Who names a finished record once more gets its state, reason and response."""
    rejected = Resolution(
        state=RecordState.REFUSED, reason="no funds " * 200, response=StoredResponse(402, {}, b"\x00\xff no text")
    )
    expired = Resolution(state=RecordState.EXPIRED, reason="too late")
    abandoned = Resolution(state=RecordState.ABANDONED, reason="by Ann")
    cases = (
        (_done(), Action.RETURN),
        (rejected, Action.REFUSE),
        (expired, Action.EXPIRED),
        (abandoned, Action.UNKNOWN),
    )
    for resolution, expected in cases:
        name = resolution.state.value
        await processes.journal().begin(_record(name), lease=_LEASE)
        await processes.journal().resolve(_record(name).key, resolution, owner="a/1")
        action, row = await processes.journal().begin(_record(name, owner="b/1"), lease=_LEASE)
        expect(action is expected, f"{action} for what is {name}")
        kept = Resolution(state=row.state, reason=row.reason, response=row.response)
        expect(kept == resolution, f"kept {kept!r}")


@_case
async def _what_others_write_is_read(processes: Processes) -> None:
    """A journal that has read before sees what another process has written since."""
    first, second = processes.journal(), processes.journal()
    for number in range(2):
        record = _record(f"n-{number}")
        for state in (None, RecordState.UNKNOWN, RecordState.DONE):
            if state is None:
                await second.begin(record, lease=_LEASE)
            else:
                await second.resolve(record.key, Resolution(state=state), owner="a/1")
            row = await second.get(record.key)
            expect(await first.get(record.key) == row, f"read something else than {row!r}")
            listed = [one for one in await first.records(tuple(RecordState)) if one.key == record.key]
            expect(listed == [row], f"listed {listed!r} in place of {row!r}")


@_case
async def _a_lease_keeps_others_away(processes: Processes) -> None:
    """Until its lease ends, a record belongs to its owner; a renewed lease ends later."""
    first, second = processes.journal(), processes.journal()
    record = _record()
    await first.begin(record, lease=2 * _LEASE)

    for lease in (2 * _LEASE, 3 * _LEASE):  # As long as the attempts may take.
        processes.time += lease - 1
        action, _ = await second.begin(_record(owner="b/1"), lease=_LEASE)
        expect(action is Action.IN_PROGRESS, f"{action} within the lease")
        await first.renew(record.key, owner="a/1", lease=3 * _LEASE)
    expect(await second.claim(["77"], owner="b/1", lease=_LEASE) == [], "claimed within the lease")
    before = await second.get(record.key)
    action, _ = await first.begin(_record(owner="a/2"), lease=_LEASE)
    expect(action is Action.WAIT, f"{action} in the process of the owner")
    expect(await second.get(record.key) == before, "who has to wait has changed the row")


@_case
async def _the_pending_of_the_dead_is_in_doubt(processes: Processes) -> None:
    """Who takes a record over, as a caller or by recovery, holds it as `SENT`; its owner before has lost it."""
    first, second = processes.journal(), processes.journal()
    for name in ("by a caller", "by recovery"):
        record = _record(name)
        await first.begin(record, lease=_LEASE)
        processes.time += _LEASE
        if name == "by a caller":
            later = structs.replace(_record(name, owner="b/1"), begun=900.0, not_after=9_000.0)
            action, row = await second.begin(later, lease=2 * _LEASE)
            expect(action is Action.RESUME, f"{action} after the lease")
        else:
            claimed = await second.claim(["77"], owner="b/1", lease=2 * _LEASE)
            row = next((row for row in claimed if row.name == name), record)
        held = (row.state, row.owner, row.lease_until)
        expect(held == (RecordState.SENT, "b/1", processes.time + 2 * _LEASE), f"held as {held}")
        expect(row.body == record.body, "other bytes than those of the record")
        times = (row.begun, row.not_after)
        expect(times == (record.begun, record.not_after), f"other times than those of the record: {times}")
        lost = await first.renew(record.key, owner="a/1", lease=10 * _LEASE)
        expect(lost == row, "a lost lease was renewed")


@_case
async def _only_the_owner_settles(processes: Processes) -> None:
    """Who lost a record writes nothing but `DONE`, and is told the row as it is."""
    first, second = processes.journal(), processes.journal()
    record = _record()
    await first.begin(record, lease=_LEASE)
    processes.time += _LEASE
    (row,) = await second.claim(["77"], owner="b/1", lease=_LEASE)

    for state in RecordState:
        if state is not RecordState.DONE:
            now = await first.resolve(record.key, Resolution(state=state), owner="a/1")
            expect(now == row == await second.get(record.key), f"{state} was written by who had lost the record")
    for state in (RecordState.NOT_SENT, RecordState.EXPIRED):
        now = await second.resolve(record.key, Resolution(state=state), owner="b/1")
        expect(now.state is RecordState.SENT, f"{state} was written over what is in doubt")
    now = await first.resolve(record.key, _done(), owner="a/1")
    expect(now.state is RecordState.DONE, "a late success was not written")


@_case
async def _nothing_replaces_done(processes: Processes) -> None:
    """`DONE` replaces every other state, and stays, with its response."""
    journal = processes.journal()
    for before in RecordState:
        record = _record(before.value)
        await journal.begin(record, lease=_LEASE)
        await journal.resolve(record.key, Resolution(state=before), owner="a/1")
        row = await journal.resolve(record.key, _done(), owner="somebody/1")
        if before is not RecordState.DONE:
            expect(row.response == _done().response, f"done did not replace {before}")
        for after in RecordState:
            now = await journal.resolve(record.key, Resolution(state=after, reason="later"), owner="a/1")
            expect(now == row, f"{after} replaced done")


@_case
async def _what_was_not_sent_can_be_sent_again(processes: Processes) -> None:
    """After `NOT_SENT`, a caller begins anew, with the new times; recovery leaves it alone."""
    journal = processes.journal()
    record = _record()
    await journal.begin(record, lease=_LEASE)
    await journal.resolve(record.key, Resolution(state=RecordState.NOT_SENT), owner="a/1")
    expect(await journal.claim(["77"], owner="b/1", lease=_LEASE) == [], "recovery took what was not sent")

    again = structs.replace(record, owner="b/1", begun=900.0, not_after=1_500.0)
    action, _ = await journal.begin(again, lease=_LEASE)

    row = await processes.journal().get(record.key)
    expected = structs.replace(again, lease_until=processes.time + _LEASE, updated=processes.time)
    expect(action is Action.SEND_AGAIN, f"{action} for what was not sent")
    expect(row == expected, f"kept {row!r}")


@_case
async def _what_is_deferred_was_not_sent(processes: Processes) -> None:
    """Recovery takes what is deferred over as `PENDING`: nothing was sent."""
    journal = processes.journal()
    await journal.begin(_record(), lease=_LEASE)
    await journal.resolve(_record().key, Resolution(state=RecordState.DEFERRED), owner="a/1")

    (row,) = await journal.claim(["77"], owner="b/1", lease=_LEASE)

    expect(row.state is RecordState.PENDING, f"taken over as {row.state}")


@_case
async def _recovery_takes_the_open_records_of_its_sellers(processes: Processes) -> None:
    """`claim` returns open records of the given sellers that it can send, the oldest first, to one process each."""
    first, second = processes.journal(), processes.journal()
    for i, state in enumerate(RecordState):
        record = structs.replace(_record(state.value), begun=900.0 - i)
        await first.begin(record, lease=_LEASE)
        if state not in {RecordState.PENDING, RecordState.SENT}:
            await first.resolve(record.key, Resolution(state=state), owner="a/1")
    await first.begin(_record("of another seller", seller="88"), lease=_LEASE)
    await first.begin(structs.replace(_record("without a key"), keyed=False), lease=_LEASE)
    processes.time += _LEASE

    deferred = next(row for row in await first.records([RecordState.DEFERRED]))
    expect(await first.claim(["77"], owner="a/2", lease=_LEASE, keys=[]) == [], "claimed what was not asked for")
    one = await first.claim(["77"], owner="b/1", lease=_LEASE, limit=2, keys=[deferred.key])
    one += [row for row in await first.claim(["77"], owner="b/1", lease=_LEASE, limit=2) if row not in one]
    others = await second.claim(["77"], owner="c/1", lease=_LEASE)

    names = [row.name for row in (*one, *others)]
    expect(names == ["deferred", "unknown", "sent", "pending"], f"claimed {names}")
    expect(await second.claim([], owner="c/1", lease=_LEASE) == [], "claimed for no seller")


@_case
async def _a_claim_has_a_limit(processes: Processes) -> None:
    """`claim` and `records` return up to *limit*, the oldest; of an owner, `claim` returns what it holds already."""
    journal = processes.journal()
    for number in range(4):
        await journal.begin(structs.replace(_record(f"n-{number}"), begun=500.0 - number), lease=_LEASE)
    processes.time += _LEASE

    taken = [await journal.claim(["77"], owner="b/1", lease=_LEASE, limit=limit) for limit in (2, 2, 3)]
    listed = await journal.records([RecordState.PENDING, RecordState.SENT], limit=3)

    names = [[row.name for row in rows] for rows in taken]
    expect(names == [["n-3", "n-2"], ["n-3", "n-2"], ["n-3", "n-2", "n-1"]], f"claimed {names}")
    expect([row.name for row in listed] == ["n-3", "n-2", "n-1"], f"listed {listed}")


@_case
async def _nothing_is_left_out_of_many(processes: Processes) -> None:
    """`records` and `claim` return all there is, where the *limit* is higher: who recovers goes by that."""
    journal = processes.journal()
    await asyncio.gather(*(journal.begin(_record(f"n-{number}"), lease=_LEASE) for number in range(_MANY)))
    processes.time += _LEASE

    listed = await journal.records([RecordState.PENDING], limit=NO_LIMIT)
    claimed = await journal.claim(["77"], owner="b/1", lease=_LEASE, limit=NO_LIMIT)

    expect((len(listed), len(claimed)) == (_MANY, _MANY), f"{len(listed)} and {len(claimed)} of {_MANY}")


@_case
async def _a_row_is_claimed_once(processes: Processes) -> None:
    """Of many processes that claim at the same time, each row goes to one."""
    journals = [processes.journal() for _ in range(3)]
    for number in range(6):
        await journals[0].begin(_record(f"n-{number}"), lease=_LEASE)
    processes.time += _LEASE

    taken = await asyncio.gather(
        *(journal.claim(["77"], owner=f"{i}/1", lease=_LEASE) for i, journal in enumerate(journals))
    )

    names = sorted(row.name for rows in taken for row in rows)
    expect(names == [f"n-{number}" for number in range(6)], f"claimed {names}")


@_case
async def _a_key_is_the_identity(processes: Processes) -> None:
    """Two keys are two records: with one name, of two sellers, and where they differ in upper and lower case alone."""
    journal = processes.journal()
    record = _record()
    others = (_record(seller="88", owner="b/1"), structs.replace(record, key=record.key.swapcase(), owner="c/1"))
    for one in (record, *others):
        action, _ = await journal.begin(one, lease=_LEASE)
        expect(action is Action.SEND, f"{action} for a key that is new")
    await journal.resolve(record.key, _done(), owner="a/1")

    for one in others:
        kept = await journal.get(one.key)
        expect(kept is not None and (kept.key, kept.owner) == (one.key, one.owner), f"kept {kept!r}")


@_case
async def _retention_leaves_a_tombstone(processes: Processes) -> None:
    """`purge` takes bytes and responses of old closed records; their names stay used, and open ones stay whole."""
    journal = processes.journal()
    for state in RecordState:
        record = _record(state.value)
        await journal.begin(record, lease=_LEASE)
        await journal.resolve(record.key, Resolution(state=state, reason="why"), owner="a/1")
    before = {state: await journal.get(_record(state.value).key) for state in RecordState}

    expect(await journal.purge(500.0) == 0, "purged what is not that old")
    expect(await journal.purge(500.1) == len(CLOSED), "not every closed record was purged")
    expect(await journal.purge(500.1) == 0, "purged what it had purged before")

    for state, row in before.items():
        now = await processes.journal().get(_record(state.value).key)
        expect(row is not None, "a row is gone")
        if row is not None and row.state in OPEN:
            expect(now == row, f"{state} was purged")
        elif row is not None:
            expect(now == structs.replace(row, headers={}, body=None, response=None), f"left of {state}: {now!r}")
    action, _ = await journal.begin(_record(RecordState.DONE.value, body=b"{}"), lease=_LEASE)
    expect(action is Action.CONFLICT, f"{action} for other bytes of a purged record")


@_case
async def _an_unknown_key_is_an_error(processes: Processes) -> None:
    """To renew or resolve what was never begun raises `LookupError`, and makes no row."""
    journal = processes.journal()
    for work in (journal.renew("unknown", owner="a/1", lease=_LEASE), journal.resolve("unknown", _done(), owner="a/1")):
        try:
            await work
        except LookupError:
            continue
        raise AssertionError("a row that was never begun was changed")
    expect(await journal.get("unknown") is None, "a row was made")


@_case
async def _a_closed_journal_says_so(processes: Processes) -> None:
    """After `aclose`, which may be called twice, each method raises `JournalUnavailable`, and nothing else."""
    journal, key = processes.journal(), _record().key
    await journal.begin(_record(), lease=_LEASE)
    await journal.aclose()
    await journal.aclose()
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "begin": lambda: journal.begin(_record("another"), lease=_LEASE),
        "get": lambda: journal.get(key),
        "renew": lambda: journal.renew(key, owner="a/1", lease=_LEASE),
        "resolve": lambda: journal.resolve(key, _done(), owner="a/1"),
        "claim": lambda: journal.claim(["77"], owner="b/1", lease=_LEASE),
        "records": lambda: journal.records([RecordState.PENDING]),
        "purge": lambda: journal.purge(500.0),
    }
    for name, work in works.items():
        try:
            await work()
        except JournalUnavailable:
            continue
        except Exception as error:
            raise AssertionError(f"{name} of a closed journal has raised {type(error).__name__}") from error
        raise AssertionError(f"a closed journal has done {name}")
