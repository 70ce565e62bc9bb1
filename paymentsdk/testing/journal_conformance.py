"""The rules that every journal keeps, as a suite that you can run.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.journal_conformance import CASES

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case, tmp_path):
        def make_journal(now):
            return MyJournal(tmp_path / "journal", now=now)

        await case.run(make_journal)

Within one case, all journals of ``make_journal`` share one store: they stand for several processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from paymentsdk.errors import JournalUnavailable
from paymentsdk.journal import Action, RecordState, Resolution, StoredResponse
from paymentsdk.journal import _record as states
from paymentsdk.testing._expectation import NamedRule, check_rule, expect, named
from paymentsdk.testing._processes import LEASE, MakeJournal, Processes, record_of

__all__ = ["CASES", "Case", "MakeJournal"]

_DAY = 86_400.0
_DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {"X-Request-Id": "r-1"}, b'{"id":"ORD1"}'))
#: Records for the rule that no record may be missing.
_MANY = 1_100


class Case(NamedRule, frozen=True):
    """One rule of a journal."""

    async def run(self, make_journal: MakeJournal) -> None:
        """Check the rule.

        Raises:
            AssertionError: The journal breaks the rule.
        """
        processes = Processes(make_journal)
        try:
            await check_rule(self.rule, self.check(processes))
        finally:
            await check_rule("A journal finishes its work, and closes.", processes.close())


CASES: list[Case] = []


def _case(check: Callable[[Processes], Awaitable[None]]) -> Callable[[Processes], Awaitable[None]]:
    CASES.append(Case(*named(check), check))
    return check


@_case
async def _a_record_is_kept_whole(processes: Processes) -> None:
    """Another process reads each field: exact bytes, an empty body, fractions of seconds, names of any 200 letters."""
    await processes.begin(record_of(body=b"\x00\xff not text \r\n"))
    name = ("Tisch 7 \u2013 cafe\u0301, caf\u00e9 \u2615 " * 10)[:200]
    await processes.begin(record_of(name, body=b"", account=None, headers={}, begun=500.123456, not_after=900.654321))
    expect(await processes.journal().get("unknown") is None, "a row of an unknown key")


@_case
async def _credentials_of_a_payer_are_not_kept_for_ever(processes: Processes) -> None:
    """Closing a `sensitive` record wipes its bytes. Recovery does not claim a record without a body."""
    journal, secret = processes.journal(), record_of("secret", sensitive=True)
    await journal.begin(secret, lease=LEASE)
    await journal.begin(record_of("without its bytes", sensitive=True, body=None), lease=LEASE)
    await journal.resolve(secret.key, _DONE, owner="a/1")
    processes.time += LEASE

    row = await processes.journal().get(secret.key)
    expect(row is not None and (row.body, row.headers) == (None, {}), "a closed sensitive record still has its bytes")
    keys = [secret.key, record_of("without its bytes").key]
    claimed = await processes.journal().claim(["77"], owner="b/1", lease=LEASE, keys=keys)
    expect(claimed == [], f"claimed {claimed}, although it has no body to send")


@_case
async def _a_record_is_begun_once(processes: Processes) -> None:
    """If many processes begin one record at the same time, only one of them may send."""
    journals = [processes.journal() for _ in range(4)]

    responses = await asyncio.gather(
        *(journal.begin(record_of(owner=f"{i}/1"), lease=LEASE) for i, journal in enumerate(journals))
    )

    actions = [action for action, _ in responses]
    expect(actions.count(Action.SEND) == 1, f"not one SEND: {actions}")
    expect(actions.count(Action.IN_PROGRESS) == len(journals) - 1, f"not IN_PROGRESS for the others: {actions}")


@_case
async def _its_owner_may_begin_a_record_again(processes: Processes) -> None:
    """An owner that lost the response to `begin` begins again, and gets the same response."""
    for _ in range(2):
        await processes.begin(record_of())


@_case
async def _changes_do_not_undo_each_other(processes: Processes) -> None:
    """Each change applies to the current row. `DONE` stays, even if another write comes at the same moment."""
    first, second = processes.journal(), processes.journal()
    for number in range(12):
        key = (record := record_of(f"n-{number}")).key
        await first.begin(record, lease=LEASE)
        rejected = Resolution(state=RecordState.REFUSED, reason="no")
        works = [
            first.renew(key, owner="a/1", lease=LEASE) if number % 2 else first.resolve(key, rejected, owner="a/1"),
            second.resolve(key, _DONE, owner="somebody/1"),
        ]
        await asyncio.gather(*(works if number % 3 else reversed(works)))
        row = await processes.journal().get(key)
        expect(row is not None and row.state is RecordState.DONE, f"left {row!r}")


@_case
async def _who_gives_up_keeps_nobody_waiting(processes: Processes) -> None:
    """A call that is cancelled at any moment, even in the middle of a change, does not block other calls."""
    for turns in range(6):
        cancelled = asyncio.ensure_future(processes.journal().begin(record_of(f"n-{turns}"), lease=LEASE))
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        action, _ = await processes.journal().begin(record_of(f"after n-{turns}"), lease=LEASE)
        expect(action is Action.SEND, f"{action} for a new record")


@_case
async def _other_bytes_are_a_conflict(processes: Processes) -> None:
    """A second request under the same name is rejected in every state, and changes nothing."""
    row = await processes.begin(record_of())
    for resolution in (RecordState.UNKNOWN, _DONE, _DONE):
        now = await processes.begin(record_of(owner="b/1", body=b"{}"), Action.CONFLICT)
        expect(now == row, "a conflict has changed the row")
        row = await processes.resolve(row.key, resolution)


@_case
async def _a_finished_record_returns_its_response(processes: Processes) -> None:
    """A second call with the name of a finished record gets its state, reason and response."""
    response = StoredResponse(402, {}, b"\x00\xff no text")
    for resolution, action in (
        (_DONE, Action.RETURN),
        (Resolution(state=RecordState.REFUSED, reason="no funds " * 200, response=response), Action.REFUSE),
        (Resolution(state=RecordState.EXPIRED, reason="too late"), Action.EXPIRED),
        (Resolution(state=RecordState.ABANDONED, reason="by Ann"), Action.UNKNOWN),
    ):
        row = await processes.begin(record_of(resolution.state.value))
        await processes.resolve(row.key, resolution)
        await processes.begin(record_of(resolution.state.value, owner="b/1"), action)


@_case
async def _a_lease_keeps_others_away(processes: Processes) -> None:
    """A record belongs to its owner until its lease ends; a renewed lease ends later."""
    row = await processes.begin(record_of(), lease=2 * LEASE)
    for lease in (2 * LEASE, 3 * LEASE):  # The renewed lease may be longer.
        processes.time += lease - 1
        await processes.begin(record_of(owner="b/1"), Action.IN_PROGRESS)
        await processes.renew(row.key, owner="a/1", lease=3 * LEASE)
    expect(await processes.claim("77") == [], "claimed within the lease")
    await processes.begin(record_of(owner="a/2"), Action.IN_PROGRESS)


@_case
async def _a_clock_that_went_back_keeps_nobody_away(processes: Processes) -> None:
    """If the clock has gone back, the lease starts again: its owner holds the row for one lease at most."""
    processes.time += _DAY
    for name in ("by a caller", "by recovery"):
        await processes.begin(record_of(name))
    processes.time -= _DAY
    await processes.begin(record_of("by a caller", owner="b/1"), Action.IN_PROGRESS)
    expect(await processes.claim("77") == [], "claimed a record that may have a living owner")
    processes.time += LEASE

    claimed = await processes.claim("77")
    expect(sorted(claimed) == ["by a caller", "by recovery"], f"claimed {claimed}")


@_case
async def _the_pending_of_the_dead_is_in_doubt(processes: Processes) -> None:
    """A caller or a recovery that takes a record over holds it as `SENT`; the previous owner has lost it."""
    for name in ("by a caller", "by recovery"):
        row = await processes.begin(record_of(name))
        processes.time += LEASE
        if name == "by a caller":
            later = record_of(name, owner="b/1", begun=900.0, not_after=9_000.0)
            await processes.begin(later, Action.RESUME, lease=2 * LEASE)
        else:
            expect(name in await processes.claim("77"), "a record without a living owner was not claimed")
        row = await processes.renew(row.key, owner="a/1", lease=10 * LEASE)
        expect((row.state, row.owner) == (RecordState.SENT, "b/1"), f"held as {row.state} by {row.owner}")


@_case
async def _only_the_owner_settles(processes: Processes) -> None:
    """An owner that has lost a record can only write `DONE`. Any other write returns the row unchanged."""
    row = await processes.begin(record_of())
    processes.time += LEASE
    await processes.claim("77")
    for state in RecordState:
        if state is not RecordState.DONE:
            await processes.resolve(row.key, state, leaves=RecordState.SENT)
    for state in (RecordState.NOT_SENT, RecordState.EXPIRED):  # These cannot follow an attempt in doubt.
        await processes.resolve(row.key, state, owner="b/1", leaves=RecordState.SENT)
    await processes.resolve(row.key, _DONE)


@_case
async def _nothing_replaces_done(processes: Processes) -> None:
    """`DONE` replaces every other state, and stays, with its response."""
    for before in RecordState:
        row = await processes.begin(record_of(before.value))
        await processes.resolve(row.key, before)
        await processes.resolve(row.key, _DONE, owner="somebody/1")
        for after in RecordState:
            await processes.resolve(row.key, Resolution(state=after, reason="later"), leaves=RecordState.DONE)


@_case
async def _what_was_not_sent_can_be_sent_again(processes: Processes) -> None:
    """After `NOT_SENT`, a caller may begin again with new times, and a rejection is final. Recovery ignores it."""
    row = await processes.begin(record_of())
    await processes.resolve(row.key, RecordState.NOT_SENT)
    expect(await processes.claim("77") == [], "recovery claimed a record that was not sent")
    await processes.begin(record_of(owner="b/1", begun=900.0, not_after=1_500.0), Action.SEND_AGAIN)
    await processes.resolve(row.key, RecordState.NOT_SENT, owner="b/1")
    await processes.begin(record_of(owner="c/1", begun=950.0, not_after=1_500.0), Action.SEND_AGAIN)
    await processes.resolve(row.key, Resolution(state=RecordState.REFUSED, reason="no"), owner="c/1")
    expect(await processes.claim("77") == [], "recovery claimed a rejected record")
    await processes.begin(record_of(owner="d/1"), Action.REFUSE)


@_case
async def _a_row_knows_when_it_was_first_kept(processes: Processes) -> None:
    """A row keeps the store time of its first write, and whether it was begun in platform time."""
    row = await processes.begin(record_of(is_dated=False))
    first = row.updated
    for number in range(2):
        processes.time += LEASE
        await processes.resolve(row.key, RecordState.UNKNOWN, owner=row.owner)
        processes.time += LEASE
        row = await processes.begin(record_of(owner=f"b/{number}"), Action.RESUME)
        expect((row.first_kept, row.is_dated) == (first, False), f"it was first kept at {row.first_kept}, not {first}")


@_case
async def _what_is_deferred_was_not_sent(processes: Processes) -> None:
    """Recovery takes a deferred record over as `PENDING`: nothing was sent."""
    row = await processes.begin(record_of())
    await processes.resolve(row.key, RecordState.DEFERRED)
    expect(await processes.claim("77") == [row.name], "the deferred record was not claimed")
    expect(processes.rows[row.key].state is RecordState.PENDING, "taken over as sent")


@_case
async def _no_rejection_is_final_while_a_cut_attempt_may_arrive(processes: Processes) -> None:
    """An aborted attempt frees its row. A rejection of an attempt from before `in_flight_until` leaves ``UNKNOWN``."""
    rejected = Resolution(state=RecordState.REFUSED, reason="no", response=StoredResponse(409))
    row = await processes.begin(record_of())
    await processes.resolve(row.key, Resolution(state=RecordState.UNKNOWN, reason="cut", in_flight=30.25))
    processes.time += 5
    await processes.begin(record_of(owner="b/1"), Action.RESUME)
    await processes.resolve(row.key, Resolution(state=RecordState.UNKNOWN, in_flight=10), owner="b/1")
    processes.time += 25
    expect(await processes.claim("77") == [row.name], "the record of the aborted attempt was not claimed")
    processes.time += 1  # The rejection comes later, but its attempt began earlier.
    await processes.resolve(row.key, rejected, owner="b/1", leaves=RecordState.UNKNOWN)
    expect(await processes.claim("77") == [row.name], "the unknown record was not claimed")
    await processes.resolve(row.key, rejected, owner="b/1")


@_case
async def _a_rejection_is_not_final_while_an_attempt_of_its_own_call_may_arrive(processes: Processes) -> None:
    """A rejection with `in_flight` leaves ``UNKNOWN`` until then. A renewed lease shows when an attempt began."""
    row = await processes.begin(record_of())
    rejected = Resolution(state=RecordState.REFUSED, reason="no", in_flight=10)
    await processes.resolve(row.key, rejected, leaves=RecordState.UNKNOWN)
    await processes.begin(record_of(owner="b/1"), Action.RESUME)
    processes.time += 10
    await processes.renew(row.key, owner="b/1", lease=LEASE)
    await processes.resolve(row.key, Resolution(state=RecordState.REFUSED), owner="b/1")


@_case
async def _recovery_takes_the_open_records_of_its_sellers(processes: Processes) -> None:
    """`claim` returns the records of *keys* that are open, of *sellers*, and can be sent: the oldest first."""
    for i, state in enumerate(RecordState):
        row = await processes.begin(record_of(state.value, begun=900.0 - i))
        if state not in {RecordState.PENDING, RecordState.SENT}:
            await processes.resolve(row.key, state)
    await processes.begin(record_of("of another seller", seller="88"))
    await processes.begin(record_of("without a key", keyed=False))
    processes.time += LEASE

    expect(await processes.claim(owner="c/1") == [], "claimed for no seller")
    expect(await processes.claim("77", owner="c/1", keys=[]) == [], "claimed a record that is not in *keys*")
    expect(await processes.claim("77", keys=[record_of("deferred").key, "unknown"]) == ["deferred"], "not only *keys*")
    claimed = await processes.claim("77", owner="c/1")
    expect(claimed == ["unknown", "sent", "pending"], f"claimed {claimed}")


@_case
async def _who_claims_again_gets_what_it_holds(processes: Processes) -> None:
    """An owner that lost the response to `claim` claims again, and gets the rows that it already holds."""
    for number in range(3):
        await processes.begin(record_of(f"n-{number}", begun=500.0 - number))
    processes.time += LEASE

    claimed = [await processes.claim("77", keys=[*processes.rows][:count]) for count in (2, 3)]

    expect(claimed == [["n-1", "n-0"], ["n-2", "n-1", "n-0"]], f"claimed {claimed}")


@_case
async def _a_list_has_a_limit(processes: Processes) -> None:
    """`records` returns up to *limit* records in these states, the oldest first, including rows of other processes."""
    for number in range(4):
        row = await processes.begin(record_of(f"n-{number}", begun=500.0 - number))
        for _ in processes.journals:
            await processes.records(*RecordState)
        if number % 2:
            await processes.resolve(row.key, RecordState.UNKNOWN)

    listed = await processes.records(RecordState.PENDING, RecordState.UNKNOWN, limit=3)

    expect(listed == ["n-3", "n-2", "n-1"], f"listed {listed}")


@_case
async def _nothing_is_left_out_of_many(processes: Processes) -> None:
    """`records` returns all records if *limit* is higher: recovery relies on it."""
    journal = processes.journal()
    await asyncio.gather(*(journal.begin(record_of(f"n-{number}"), lease=LEASE) for number in range(_MANY)))

    listed = await journal.records([RecordState.PENDING], limit=states.NO_LIMIT)

    expect(len(listed) == _MANY, f"{len(listed)} of {_MANY}")


@_case
async def _what_may_be_meant_is_not_left_out(processes: Processes) -> None:
    """A list by path and bytes has each record with both, and each record of the path without a body."""
    bodies = {"has it": b'{"a":"\x00\xff?%_"}', "is purged": b"{}", "is sealed, or gone": b"[]", "has it not": b"none"}
    for i, (name, body) in enumerate(bodies.items()):
        secret = name == "is sealed, or gone"
        await processes.journal().begin(record_of(name, body=body, sensitive=secret, begun=500.0 + i), lease=LEASE)
    purged = record_of("is purged").key
    await processes.journal().resolve(purged, _DONE, owner="a/1")
    await processes.journal().purge(502.0)

    rows = await processes.journal().records(tuple(RecordState), path="/v1/orders", containing=b'"\x00\xff?%_"')

    listed = [row.name for row in rows if row.name != "has it not"]  # A journal may leave this record out.
    expect(listed == [*bodies][:3], f"listed {listed}")


@_case
async def _a_row_is_claimed_once(processes: Processes) -> None:
    """If many processes claim at the same time, only one of them gets each row."""
    journals = [processes.journal() for _ in range(3)]
    for number in range(6):
        await journals[0].begin(record_of(f"n-{number}"), lease=LEASE)
    processes.time += LEASE

    keys = [record_of(f"n-{number}").key for number in range(6)]
    claims = await asyncio.gather(
        *(journal.claim(["77"], owner=f"{i}/1", lease=LEASE, keys=keys) for i, journal in enumerate(journals))
    )

    names = sorted(row.name for rows in claims for row in rows)
    expect(names == [f"n-{number}" for number in range(6)], f"claimed {names}")


@_case
async def _a_key_is_the_identity(processes: Processes) -> None:
    """Two keys are two records, even with one name of two sellers, or if only upper and lower case differ."""
    record = record_of()
    rivals = (record_of(seller="88", owner="b/1"), structs.replace(record, key=record.key.swapcase(), owner="c/1"))
    rows = [await processes.begin(each) for each in (record, *rivals)]
    await processes.resolve(record.key, _DONE)
    for row in rows[1:]:
        await processes.begin(row)


@_case
async def _retention_leaves_a_tombstone(processes: Processes) -> None:
    """`purge` wipes bytes and responses of old closed records. Their names stay used, and open records stay whole."""
    for state in RecordState:
        row = await processes.begin(record_of(state.value))
        await processes.resolve(row.key, Resolution(state=state, reason="why"))

    expect(await processes.purge(500.0) == 0, "purged a record that is too young")
    expect(await processes.purge(500.1) == len(states.CLOSED), "not every closed record was purged")
    expect(await processes.purge(500.1) == 0, "purged a tombstone again")
    await processes.begin(record_of(RecordState.DONE.value, body=b"{}"), Action.CONFLICT)


async def _expect_raised(kind: type[Exception], call: str, work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{call} has raised {type(error).__name__}, not {kind.__name__}") from error
    raise AssertionError(f"{call} has not raised {kind.__name__}")


@_case
async def _an_unknown_key_is_an_error(processes: Processes) -> None:
    """Renewing or resolving an unknown key raises `LookupError`, and creates no row."""
    journal = processes.journal()
    await _expect_raised(LookupError, "renew", lambda: journal.renew("unknown", owner="a/1", lease=LEASE))
    await _expect_raised(LookupError, "resolve", lambda: journal.resolve("unknown", _DONE, owner="a/1"))
    expect(await journal.get("unknown") is None, "a row was created")


@_case
async def _a_closed_journal_says_so(processes: Processes) -> None:
    """After `aclose`, which may be called twice, each method raises only `JournalUnavailable`."""
    journal, key = processes.journal(), record_of().key
    await journal.begin(record_of(), lease=LEASE)
    await journal.aclose()
    await journal.aclose()
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "begin": lambda: journal.begin(record_of("another"), lease=LEASE),
        "get": lambda: journal.get(key),
        "renew": lambda: journal.renew(key, owner="a/1", lease=LEASE),
        "resolve": lambda: journal.resolve(key, _DONE, owner="a/1"),
        "claim": lambda: journal.claim(["77"], owner="b/1", lease=LEASE, keys=[key]),
        "records": lambda: journal.records([RecordState.PENDING]),
        "purge": lambda: journal.purge(500.0),
    }
    for name, work in works.items():
        await _expect_raised(JournalUnavailable, f"{name} of a closed journal", work)
