"""`PostgresJournal` on a real server: it dies, connections are cut, and what may have been committed is read back."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing

import asyncpg
import pytest
from msgspec import structs

from paymentsdk import JournalUnavailable, RequestInvalid
from paymentsdk.journal import Action, PostgresJournal, Record, RecordState, Resolution, StoredResponse
from tests.conftest import PATIENCE
from tests.postgres import Server, Wire, free_port, wire_to

DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, b'{"id":"ORD1"}'))
REFUSED = Resolution(state=RecordState.REFUSED, reason="no funds", response=StoredResponse(402, {}, b"{}"))
TOKEN = b"payer-token-0123456789"


async def read(dsn: str, statement: str) -> object:
    """Return what the server says."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


# --- connections that are cut in the middle of a commit ---------------------------------------------------------------


def never_passing(trouble: Callable[..., object]) -> Callable[..., object]:
    """Take no error for one that passes."""
    return lambda self, error: trouble(self, ValueError("lasting"))


def lost_begins(original: Callable[..., object]) -> Callable[..., object]:
    """Take a row of the owner's own for that of another call."""

    def begin(row: Record | None, new: Record, *, now: float, lease: float) -> object:
        return original(row, structs.replace(new, owner=f"{new.owner}-again"), now=now, lease=lease)

    return begin


def cut_at(wire: Wire, word: bytes, when: str) -> None:
    """Cut *wire* once: at a request with *word* in it, or at the response to that."""
    is_past = False

    def request(data: bytes) -> bool:
        nonlocal is_past
        is_past = is_past or word in data
        return is_past and when == "before" and not wire.cuts

    wire.cut_request = request
    wire.cut_response = lambda data: is_past and not wire.cuts


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[PostgresJournal], PostgresJournal]]:
    """Have a journal closed in the end, also if the test fails."""
    async with AsyncExitStack() as stack:

        def opened(journal: PostgresJournal) -> PostgresJournal:
            stack.push_async_callback(journal.aclose)
            return journal

        yield opened


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[PostgresJournal]:
    """A journal."""
    async with aclosing(PostgresJournal(dsn)) as journal:
        yield journal


@pytest.fixture(params=["before", "after"])
async def cut(request: pytest.FixtureRequest, postgres: Server) -> AsyncIterator[tuple[Wire, Callable[[bytes], None]]]:
    """A wire, and what has it cut before the server hears of a word, or after it has done what was asked."""
    async with wire_to(postgres) as wire:
        yield wire, lambda word: cut_at(wire, word, request.param)


@pytest.mark.control("paymentsdk._postgres.Postgres.trouble", around=never_passing, raises=JournalUnavailable)
@pytest.mark.control("paymentsdk.journal._table.states.begin_record", around=lost_begins)
async def test_a_begin_whose_commit_was_cut_is_read_back(
    cut, dsn: str, record: Callable[..., Record], opened: Callable[[PostgresJournal], PostgresJournal]
) -> None:
    """Whether the server has kept it or not when the connection is lost: the caller is told to send, and it is kept.

    So it is for a new record, and for one that is resumed.
    """
    wire, cut_at_word = cut
    time = [1_000.0]
    journal = opened(PostgresJournal(wire.dsn(dsn), now=lambda: time[0]))
    await journal.begin(record("dead"), lease=60)
    time[0] += 60

    for name, word, expected, state in (
        ("new", b"new", Action.SEND, RecordState.PENDING),
        ("dead", b"COMMIT", Action.RESUME, RecordState.SENT),
    ):
        wire.cuts = 0
        cut_at_word(word)
        action, row = await journal.begin(record(name, owner="q/1"), lease=60)
        assert 1 == wire.cuts
        assert (expected, "q/1", state) == (action, row.owner, row.state)
        assert row == await journal.get(row.key)
    assert 2 == await read(dsn, "SELECT count(*) FROM paymentsdk_record")


@pytest.mark.control("paymentsdk._postgres.Postgres.trouble", around=never_passing, raises=JournalUnavailable)
async def test_a_resolution_whose_commit_was_cut_is_read_back(
    cut, dsn: str, record: Callable[..., Record], opened: Callable[[PostgresJournal], PostgresJournal]
) -> None:
    """The caller is told the row as it is: with its resolution, by its owner, and by somebody who only saw it done."""
    wire, cut_at_word = cut
    journal = opened(PostgresJournal(wire.dsn(dsn)))
    for name, resolution, owner, word in (
        ("refused", REFUSED, "p/1", b"no funds"),
        ("done", DONE, "anybody/1", b"COMMIT"),
    ):
        _, row = await journal.begin(record(name), lease=60)
        wire.cuts = 0
        cut_at_word(word)
        row = await journal.resolve(row.key, resolution, owner=owner)
        assert 1 == wire.cuts
        assert (resolution.state, "") == (row.state, row.owner)
        assert row == await journal.get(row.key)


async def test_a_server_that_does_not_respond_is_given_up(
    postgres: Server, dsn: str, record: Callable[..., Record]
) -> None:
    """Where nothing comes back, the call ends after `timeout`, and nothing may be sent."""
    async with wire_to(postgres) as wire:
        journal = PostgresJournal(wire.dsn(dsn), timeout=0.5)
        await journal.begin(record("first"), lease=60)
        wire.mute = True

        with pytest.raises(JournalUnavailable, match="took too long"):
            await journal.begin(record(), lease=60)

        wire.mute = False
        assert Action.SEND is (await journal.begin(record("later"), lease=60))[0]
        await journal.aclose()


@pytest.mark.control("paymentsdk.journal._table._LOCKED_IF_FREE", " {locked}", raises=JournalUnavailable)
async def test_a_row_that_somebody_has_locked_holds_no_other_up(
    dsn: str, record: Callable[..., Record], opened: Callable[[PostgresJournal], PostgresJournal]
) -> None:
    """Recovery comes back to it, and a call waits for it alone: a stopped machine may have it for hours."""
    now = [1_000.0]
    records = [record("locked"), record("free")]
    options = {"owner": "q/1", "lease": 60, "keys": [row.key for row in records]}
    journal, waiting = (opened(PostgresJournal(dsn, timeout=limit, now=lambda: now[0])) for limit in (0.3, PATIENCE))
    for row in records:
        await journal.begin(row, lease=60)
    now[0] += 60
    async with AsyncExitStack() as closing:
        locker = await asyncpg.connect(dsn)
        closing.push_async_callback(locker.close)
        async with locker.transaction():
            await locker.execute("SELECT FROM paymentsdk_record WHERE key = $1 FOR UPDATE", records[0].key)
            assert ["free"] == [row.name for row in await journal.claim(["77"], **options)]
            renewal = asyncio.ensure_future(waiting.renew(records[0].key, owner="p/1", lease=60))
            new = [(await waiting.begin(record(f"new/{number}"), lease=60))[1] for number in range(2)]
            settled = [await waiting.resolve(row.key, REFUSED, owner="p/1") for row in new]
            assert not renewal.done()
        assert RecordState.PENDING is (await renewal).state
        now[0] += 60
        assert {"free", "locked"} == {row.name for row in await journal.claim(["77"], **options)}

    assert {RecordState.REFUSED} == {row.state for row in settled}


# --- a server that dies -----------------------------------------------------------------------------------------------


async def test_a_server_that_is_killed_under_load_loses_nothing(
    postgres: Server, dsn: str, record: Callable[..., Record], until
) -> None:
    """Killed and restarted on its disk: what was told is there, and everything that waited goes on by itself."""
    states: dict[str, RecordState] = {}
    over = asyncio.Event()
    async with aclosing(PostgresJournal(dsn, timeout=PATIENCE)) as journal:

        async def work(task: int) -> None:
            for number in itertools.count():
                name, owner = f"{task}-{number}", f"{task}/{number}"
                action, row = await journal.begin(record(name, owner), lease=60)
                assert Action.SEND is action
                states[row.key] = row.state
                row = await journal.resolve(row.key, REFUSED, owner=owner)
                states[row.key] = row.state
                if over.is_set():
                    break

        async def kill() -> None:
            await until(lambda: len(states) >= 50)
            await asyncio.to_thread(postgres.stop, "immediate")
            await asyncio.to_thread(postgres.start)
            await until(lambda: len(states) >= 100)
            over.set()

        await asyncio.gather(kill(), *(work(task) for task in range(8)))

        rows = {row.key: row.state for row in await journal.records(tuple(RecordState), limit=100_000)}
        assert states == rows
        assert {RecordState.REFUSED} == set(rows.values())


async def test_without_a_server_nothing_is_sent(record: Callable[..., Record]) -> None:
    """Where nobody listens, each call is rejected, and neither the error nor a `repr` shows the password."""
    journal = PostgresJournal(f"postgresql://me:secret-password@127.0.0.1:{free_port()}/db", timeout=0.2)

    with pytest.raises(JournalUnavailable, match="Connection refused") as rejected:
        await journal.begin(record(), lease=60)
    await journal.aclose()

    assert "secret-password" not in f"{rejected.value!r} {rejected.value} {journal!r} {vars(journal)}"
    assert rejected.value.__context__ is None


@pytest.mark.parametrize("dsn", ["payments.db", 7])
def test_another_address_is_rejected(dsn: object) -> None:
    """A path or another address is rejected before anything is connected to, and not shown."""
    with pytest.raises(RequestInvalid, match="dsn: must be postgresql://"):
        PostgresJournal(dsn)


@pytest.mark.parametrize("timeout", [0, "5"])
def test_a_timeout_is_above_0(timeout: object) -> None:
    """Without time nothing could be kept."""
    with pytest.raises(RequestInvalid, match="timeout: must be above 0 and at most 86400 seconds"):
        PostgresJournal("postgresql://127.0.0.1/db", timeout=timeout)


async def test_without_the_extra_the_error_names_it(
    record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not installed the library reads how to."""
    monkeypatch.delitem(sys.modules, "paymentsdk._psycopg", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    journal = PostgresJournal("postgresql://127.0.0.1/db")

    with pytest.raises(JournalUnavailable, match=r"install the extra `postgres`"):
        await journal.begin(record(), lease=60)
    await journal.aclose()


# --- its table --------------------------------------------------------------------------------------------------------


async def test_many_may_make_the_table_at_once(dsn: str, record: Callable[..., Record]) -> None:
    """Whoever comes while another one makes the table waits for it."""
    journals = [PostgresJournal(dsn) for _ in range(12)]

    answers = await asyncio.gather(
        *(journal.begin(record(f"{i}", f"p/{i}"), lease=60) for i, journal in enumerate(journals))
    )
    await asyncio.gather(*(journal.aclose() for journal in journals))

    assert [Action.SEND] * 12 == [action for action, _ in answers]


@pytest.mark.parametrize(
    ("comment", "reason"), [(None, "'of another program'"), ("paymentsdk journal 0", "is 'paymentsdk journal 0', not")]
)
async def test_another_table_is_left_alone(
    journal: PostgresJournal, dsn: str, comment: str | None, reason: str, record: Callable[..., Record]
) -> None:
    """The table of another program, or of another version, is rejected and not changed."""
    await read(dsn, "CREATE TABLE paymentsdk_record (their int)")
    if comment is not None:
        await read(dsn, f"COMMENT ON TABLE paymentsdk_record IS '{comment}'")

    with pytest.raises(JournalUnavailable, match=reason):
        await journal.begin(record(), lease=60)

    assert 0 == await read(dsn, "SELECT count(*) FROM paymentsdk_record")


async def test_what_waits_is_written_together(
    journal: PostgresJournal, dsn: str, record: Callable[..., Record]
) -> None:
    """A hundred records at the same time take a few transactions, not a hundred."""
    await journal.begin(record("first"), lease=60)

    await asyncio.gather(*(journal.begin(record(f"{i}", f"p/{i}"), lease=60) for i in range(100)))

    assert await read(dsn, "SELECT count(DISTINCT xmin::text) FROM paymentsdk_record") <= 10


async def test_one_bad_text_fails_alone(journal: PostgresJournal, dsn: str, record: Callable[..., Record]) -> None:
    """A string that the server cannot keep is rejected; what waits with it is kept."""
    rows = [record("good"), record("bad", owner="\0"), record("as good")]

    answers = await asyncio.gather(*(journal.begin(row, lease=60) for row in rows), return_exceptions=True)

    assert [tuple, JournalUnavailable, tuple] == [type(answer) for answer in answers]


#: Notes with what promise each change of a row is committed.
NOTE_PROMISES = (
    "CREATE TABLE promised (state smallint, promise text)",
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO promised VALUES (NEW.state, current_setting('synchronous_commit')); RETURN NULL;
    END $$""",
    "CREATE TRIGGER note AFTER INSERT OR UPDATE ON paymentsdk_record FOR EACH ROW EXECUTE FUNCTION note()",
)


async def test_a_commit_is_on_the_disk(dsn: str, record: Callable[..., Record]) -> None:
    """A server whose commits may be lost (`synchronous_commit = off`) is told otherwise."""
    async with aclosing(PostgresJournal(dsn)) as journal:
        await journal.get("made")
    for statement in NOTE_PROMISES:
        await read(dsn, statement)
    async with aclosing(PostgresJournal(f"{dsn}&synchronous_commit=off")) as journal:
        await journal.begin(record(), lease=60)
        await journal.renew(record().key, owner="p/1", lease=60)

    assert "on on" == await read(dsn, "SELECT string_agg(promise, ' ') FROM promised")


def always(durable: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Commit all rows in one way."""

    def around(each: Callable[..., object]) -> Callable[..., object]:
        return lambda self, *values, **options: each(self, *values, durable=durable)

    return around


@pytest.mark.control("paymentsdk._psycopg._Connection.each", around=always(durable=True))
@pytest.mark.control("paymentsdk._psycopg._Connection.each", around=always(durable=False))
async def test_only_that_a_record_is_done_may_wait_for_the_disk(
    journal: PostgresJournal, dsn: str, record: Callable[..., Record]
) -> None:
    """Who loses a rejection is told wrong; who loses what is done sends it once more, if it has a key."""
    await journal.begin(record("before", "p/0"), lease=60)
    for statement in NOTE_PROMISES:
        await read(dsn, statement)
    for owner, resolutions in (("p/1", [DONE]), ("p/2", [REFUSED]), ("p/3", [DONE, REFUSED]), ("unkeyed", [DONE])):
        keyed = owner != "unkeyed"
        rows = [record(f"{owner}.{place}", f"{owner}{place}", keyed=keyed) for place in range(len(resolutions))]
        for row in rows:
            await journal.begin(row, lease=60)
        await asyncio.gather(
            *(
                journal.resolve(row.key, resolution, owner=row.owner)
                for row, resolution in zip(rows, resolutions, strict=True)
            )
        )

    noted = await read(dsn, "SELECT string_agg(state || ' ' || promise, ', ' ORDER BY state, promise) FROM promised")
    assert "0 on, 0 on, 0 on, 0 on, 0 on, 5 on, 5 on, 6 off, 6 on, 6 on" == noted


async def test_leases_count_on_the_clock_of_the_database(
    journal: PostgresJournal, dsn: str, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the machines believe, they agree on when a lease ends."""
    monkeypatch.setattr("time.time", lambda: 0.0)
    before = await read(dsn, "SELECT extract(epoch FROM clock_timestamp())::float8")

    _, row = await journal.begin(record(), lease=60)

    after = await read(dsn, "SELECT extract(epoch FROM clock_timestamp())::float8")
    assert before <= row.updated <= after
    assert row.lease_until == row.updated + 60


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_body_with_a_payers_token_is_not_kept_in_clear(dsn: str, record: Callable[..., Record]) -> None:
    """Without a seal it is not kept at all; with one it is kept sealed until its record is done, whoever changes it."""
    secret = record(body=TOKEN, sensitive=True)
    bare, sealing = PostgresJournal(dsn), PostgresJournal(dsn, seal=bytes.swapcase, unseal=bytes.swapcase)
    await bare.begin(secret, lease=60)
    assert None is await read(dsn, "SELECT body FROM paymentsdk_record")
    sealed = record("sealed", body=TOKEN, sensitive=True)
    await sealing.begin(sealed, lease=60)
    assert TOKEN.swapcase() == await read(dsn, "SELECT body FROM paymentsdk_record WHERE body IS NOT NULL")
    await bare.renew(sealed.key, owner=sealed.owner, lease=60)
    assert TOKEN == (await sealing.get(sealed.key)).body

    await sealing.resolve(sealed.key, DONE, owner="p/1")

    assert 0 == await read(dsn, "SELECT count(body) FROM paymentsdk_record")
    for journal in (bare, sealing):
        await journal.aclose()


def purging_all(purge: str) -> str:
    """Purge what was old when it was found, whatever it is now."""
    return purge.replace("WHERE state >= 4 AND begun < %s ", "WHERE begun < %s + 1e9 ")


@pytest.mark.control("paymentsdk.journal._table._PURGE", around=purging_all)
async def test_what_begins_once_more_as_it_is_purged_keeps_its_bytes(
    journal: PostgresJournal, dsn: str, record: Callable[..., Record]
) -> None:
    """It is to be sent: without them nobody could do that again, nor recovery."""
    async with AsyncExitStack() as stack:
        await journal.begin(record("a"), lease=60)
        await journal.resolve(record("a").key, Resolution(state=RecordState.NOT_SENT), owner="p/1")
        caller = await asyncpg.connect(dsn)
        stack.push_async_callback(caller.close)
        looker = await asyncpg.connect(dsn)
        stack.push_async_callback(looker.close)
        begins = caller.transaction()
        await begins.start()
        await caller.execute("UPDATE paymentsdk_record SET state = 0, owner = 'q/1', begun = 1000")
        purging = asyncio.ensure_future(journal.purge(500.0))
        async with asyncio.timeout(PATIENCE):
            while not await looker.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"):
                pass  # The purge does not wait for the row yet.
        await begins.commit()

        assert 0 == await purging
        assert record("a").body == (await journal.get(record("a").key)).body
