"""`SQLiteJournal` on real files: processes that die, full disks, other people's files, and secrets that are wiped."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager
from itertools import product
from pathlib import Path

import pytest

from paymentsdk import JournalUnavailable
from paymentsdk.journal import Action, Record, RecordState, Resolution, SQLiteJournal, StoredResponse, derive_key
from tests.journal.dies import FATES, Ledger, client_of
from tests.journal.platform import URL

ROOT = Path(__file__).parents[2]
DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, b'{"id":"ORD1"}'))
REFUSED = Resolution(state=RecordState.REFUSED, reason="no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal.db"


# --- processes that die -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What processes have left that were killed before and after each of their commits."""
    folder = tmp_path_factory.mktemp("dead")
    command = [sys.executable, "-m", "tests.journal.dies", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=50)
    assert int((folder / "deaths").read_text()) >= 13
    return folder


async def recovered(folder: Path) -> dict[str, Record | None]:
    """Recover what a dead process has left, and return its rows. By now the platform accepts everything."""
    async with client_of(Ledger(folder, accepts=True), 1_100.0) as client:
        await client.recover()
    async with aclosing(SQLiteJournal(folder / "journal.db")) as journal:
        return {name: await journal.get(make_key(name)) for name in FATES}


def make_key(name: str) -> str:
    """The key of a record of the process that dies."""
    return derive_key(URL, "77", "orders.create", name)


def check(folder: Path, rows: dict[str, Record | None]) -> None:
    """Compare what was told, what is kept, and what took effect."""
    keys = Ledger(folder).keys()
    outcomes = (
        dict(line.split() for line in (folder / "told").read_text().splitlines()) if (folder / "told").exists() else {}
    )
    assert len(keys) == len(set(keys)), "two effects of one record"
    for name, row in rows.items():
        has_effect = make_key(name) in keys
        assert not has_effect or row is not None, "an effect without a record"
        assert row is None or (row.state is RecordState.DONE) == has_effect, f"{name} is kept as {row.state.value}"
        if name in outcomes:
            assert (outcomes[name] == "done") == has_effect, f"{name} was told {outcomes[name]}"


async def test_a_death_at_any_commit_doubles_and_loses_nothing(dead: Path) -> None:
    """Killed before or after each of its commits, a process leaves nothing that recovery does not settle."""
    for commit in product(("before", "after"), range(1, 8)):
        folder = dead / f"{commit[0]}-{commit[1]}"
        check(folder, await recovered(folder))


async def test_without_commits_an_effect_has_no_record(dead: Path) -> None:
    """The control: where nothing is durable before it is sent, the comparison says so."""
    rows = await recovered(dead / "never-3")
    with pytest.raises(AssertionError, match="an effect without a record"):
        check(dead / "never-3", rows)


def opening(path: Path) -> None:
    """Make a file by opening it, whether it is there or not."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def with_control(test: Callable[..., object]) -> Callable[..., object]:
    """Add the control, where it can fire: SQLite 3.51 notices that the process has dropped its locks."""
    control = pytest.mark.control(
        "paymentsdk._sqlite.make_private", opening, raises=(JournalUnavailable, AssertionError)
    )
    return control(test) if sqlite3.sqlite_version_info < (3, 51) else test


@with_control
async def test_two_journals_of_one_process_outlive_another_process(path: Path, record: Callable[..., Record]) -> None:
    """The second takes no locks from the first: else whoever closes the file removes a log that is still written to.

    A record that was kept there after that would be gone.
    """
    journals = [SQLiteJournal(path) for _ in range(2)]
    for number, journal in enumerate(journals):
        await journal.begin(record(f"{number}"), lease=60)
    passing = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); list(file.execute('SELECT 1 FROM record'))"
    command = [sys.executable, "-c", f"{passing}; file.close()", str(path)]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=50)

    await journals[0].begin(record("last"), lease=60)
    journals.append(SQLiteJournal(path))
    rows = [await journal.get(record("last").key) for journal in journals]
    await asyncio.gather(*(journal.aclose() for journal in journals))

    assert ["last"] * 3 == [row and row.name for row in rows]


# --- durable, together ------------------------------------------------------------------------------------------------


@contextmanager
def noted_commits(monkeypatch: pytest.MonkeyPatch, note: Callable[[sqlite3.Connection], object]) -> Iterator[None]:
    """Call *note* before each commit."""

    def noted(database: sqlite3.Connection) -> None:
        note(database)
        database.execute("COMMIT")

    with monkeypatch.context() as patch:
        patch.setattr("paymentsdk._sqlite.commit", noted)
        yield


async def test_what_waits_is_committed_together(
    path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred records at the same time take a few commits, not a hundred."""
    commits = []
    async with aclosing(SQLiteJournal(path)) as journal:
        with noted_commits(monkeypatch, commits.append):
            answers = await asyncio.gather(*(journal.begin(record(f"{i}", f"p/{i}"), lease=60) for i in range(100)))

    assert [Action.SEND] * 100 == [action for action, _ in answers]
    assert len(commits) <= 10


async def test_readers_do_not_block_writers(path: Path, record: Callable[..., Record], patience: float) -> None:
    """To list a long journal takes seconds; the calls of other processes go on meanwhile."""
    reads, go_on = threading.Event(), threading.Event()

    def unseal(body: bytes) -> bytes:
        reads.set()
        assert go_on.wait(patience)
        return body

    reader, writer = SQLiteJournal(path, seal=bytes, unseal=unseal), SQLiteJournal(path, busy_timeout=0.0)
    await reader.begin(record("secret", sensitive=True), lease=60)
    for read in (reader.records([RecordState.PENDING]), reader.get(record("secret").key)):
        reads.clear()
        reading = asyncio.ensure_future(read)
        await asyncio.to_thread(reads.wait, patience)
        try:
            await writer.begin(record(f"while {read.__name__}"), lease=60)
        finally:
            go_on.set()
            await reading
        go_on.clear()
    for journal in (reader, writer):
        await journal.aclose()


async def test_what_is_committed_together_fails_alone(path: Path, record: Callable[..., Record]) -> None:
    """A known name, and a record that another one took over, are no matter of the others."""
    time, journals = [0.0], [SQLiteJournal(path, now=lambda: time[0]) for _ in range(2)]
    for name in ("known", "lost", "kept"):
        await journals[0].begin(record(name), lease=60)
    time[0] = 60.0
    await journals[1].claim(["77"], owner="q/1", lease=60, keys=[record("lost").key])

    (action, _), lost, refused, *new = await asyncio.gather(
        journals[0].begin(record("known", body=b"{}"), lease=60),
        journals[0].resolve(record("lost").key, REFUSED, owner="p/1"),
        journals[0].resolve(record("kept").key, REFUSED, owner="p/1"),
        *(journals[0].begin(record(f"new/{number}"), lease=60) for number in range(5)),
    )
    rows = {row.name: (row.state, row.owner) for row in await journals[1].records(tuple(RecordState))}
    await asyncio.gather(*(journal.aclose() for journal in journals))

    assert (Action.CONFLICT, "q/1", RecordState.REFUSED) == (action, lost.owner, refused.state)
    assert [Action.SEND] * 5 == [action for action, _ in new]
    assert {
        "known": (RecordState.PENDING, "p/1"),
        "lost": (RecordState.SENT, "q/1"),
        "kept": (RecordState.REFUSED, ""),
        **{f"new/{number}": (RecordState.PENDING, "p/1") for number in range(5)},
    } == rows


async def test_many_may_open_a_new_file_at_once(path: Path, record: Callable[..., Record]) -> None:
    """Whoever comes while another one makes the file waits for it."""
    journals = [SQLiteJournal(path) for _ in range(24)]

    answers = await asyncio.gather(
        *(journal.begin(record(f"{i}", f"p/{i}"), lease=60) for i, journal in enumerate(journals))
    )
    await asyncio.gather(*(journal.aclose() for journal in journals))

    assert [Action.SEND] * 24 == [action for action, _ in answers]


async def test_the_disk_is_told_at_every_commit(
    path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written ahead, and forced to the disk at each commit."""
    settings = []

    def note(database: sqlite3.Connection) -> None:
        settings.append([database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")])

    async with aclosing(SQLiteJournal(path)) as journal:
        with noted_commits(monkeypatch, note):
            await journal.begin(record(), lease=60)

    assert ["wal", 2] == settings[-1]


# --- it fails closed --------------------------------------------------------------------------------------------------


async def test_a_full_disk_sends_nothing(path: Path, record: Callable[..., Record]) -> None:
    """What cannot be kept is rejected, all of it; what is known is told. With room again the journal goes on."""
    journal = SQLiteJournal(path)
    await journal.begin(record("first"), lease=60)
    done = await journal.resolve(record("first").key, DONE, owner="p/1")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("journal.db-wal").stat().st_size, limits[1]))
    try:
        big = [record(f"{i}", body=bytes(10_000)) for i in range(5)]
        rejected = await asyncio.gather(*(journal.begin(large, lease=60) for large in big), return_exceptions=True)
        known = await journal.begin(record("first", "q/1", body=bytes(10_000), digest=done.digest), lease=60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert [JournalUnavailable] * 5 == [type(error) for error in rejected]
    assert (Action.RETURN, done) == known
    assert [None] * 5 == [await journal.get(large.key) for large in big]
    assert Action.SEND is (await journal.begin(big[0], lease=60))[0]
    await journal.aclose()


async def test_a_commit_that_fails_keeps_nothing(
    path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is rolled back: the next one begins as if it had not been."""

    def fail(database: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with aclosing(SQLiteJournal(path)) as journal:
        await journal.begin(record("first"), lease=60)
        with noted_commits(monkeypatch, fail), pytest.raises(JournalUnavailable, match="disk I/O error"):
            await journal.resolve(record("first").key, REFUSED, owner="p/1")

        assert RecordState.PENDING is (await journal.get(record("first").key)).state
        assert RecordState.REFUSED is (await journal.resolve(record("first").key, REFUSED, owner="p/1")).state


async def test_a_locked_file_sends_nothing(path: Path, record: Callable[..., Record]) -> None:
    """While another process keeps the file to itself, nothing is begun."""
    journal = SQLiteJournal(path, busy_timeout=0.01)
    await journal.begin(record("first"), lease=60)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalUnavailable, match="database is locked"):
            await journal.begin(record(), lease=60)

    assert Action.SEND is (await journal.begin(record(), lease=60))[0]
    await journal.aclose()


@pytest.mark.control("paymentsdk._sqlite._SQLiteConnection._check_in_place", lambda self: None)
async def test_a_file_that_is_gone_is_not_written_to(path: Path, tmp_path: Path, record: Callable[..., Record]) -> None:
    """It is replaced by a backup under a process: nobody would find the records that it writes there."""
    backup, journal = SQLiteJournal(tmp_path / "backup.db"), SQLiteJournal(path)
    await backup.begin(record("old"), lease=60)
    await backup.aclose()
    await journal.begin(record("new"), lease=60)
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    (tmp_path / "backup.db").rename(path)

    unavailable = []
    for name in ("first", "second"):
        try:
            await journal.begin(record(name), lease=60)
        except JournalUnavailable as error:
            unavailable.append(error.reason)
    second = SQLiteJournal(path)
    names = [row.name for row in await second.records(tuple(RecordState))]
    await asyncio.gather(journal.aclose(), second.aclose())

    assert [f"{path}: it was removed or replaced while it was in use"] == unavailable
    assert ["old", "second"] == names


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE TABLE their (own)"], "is the database of another program"),
        (["PRAGMA application_id = 1885436269", "PRAGMA user_version = 2"], "has schema 2"),
    ],
)
async def test_another_file_is_left_alone(
    path: Path, statements: list[str], reason: str, record: Callable[..., Record]
) -> None:
    """The database of another program, or of another version, is rejected and not changed."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    journal = SQLiteJournal(path)

    with pytest.raises(JournalUnavailable, match=reason):
        await journal.begin(record(), lease=60)
    with pytest.raises(JournalUnavailable):
        await journal.count()  # A check of health sees it, too.
    await journal.aclose()

    with closing(sqlite3.connect(path)) as connection:
        assert [] == connection.execute("SELECT name FROM sqlite_schema WHERE name = 'record'").fetchall()


async def test_a_forked_process_opens_its_own(
    path: Path, record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that crosses a fork corrupts a file: the child is rejected."""
    journal = SQLiteJournal(path)
    await journal.begin(record(), lease=60)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(JournalUnavailable, match="belongs to another process"):
            await journal.get(record().key)
    await journal.aclose()


# --- counts -----------------------------------------------------------------------------------------------------------


async def test_records_are_counted_by_state(path: Path, record: Callable[..., Record]) -> None:
    """By default those that are open, also the states without a record."""
    async with aclosing(SQLiteJournal(path)) as journal:
        for name, state in {"a": RecordState.DONE, "b": RecordState.UNKNOWN, "c": RecordState.UNKNOWN}.items():
            row = record(name)
            await journal.begin(row, lease=60.0)
            await journal.resolve(row.key, Resolution(state=state), owner=row.owner)
        await journal.begin(record("d"), lease=60.0)

        still_open = await journal.count()
        assert {"pending": 1, "unknown": 2} == {state.value: number for state, number in still_open.items() if number}
        assert RecordState.SENT in still_open
        assert {RecordState.DONE: 1} == await journal.count({RecordState.DONE})


async def test_a_backup_does_not_block_writers(path: Path, record: Callable[..., Record]) -> None:
    """As long as somebody reads, the log cannot be emptied of what was wiped: writes do not wait for that."""
    journal, old, new = SQLiteJournal(path), record("old"), record("new")
    await journal.begin(old, lease=60)
    await journal.resolve(old.key, REFUSED, owner=old.owner)
    with closing(sqlite3.connect(path, isolation_level=None)) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT * FROM record").fetchall()
        assert await journal.purge(old.begun + 1) == 1

        async with asyncio.timeout(4):
            await journal.begin(new, lease=60)
            await journal.resolve(new.key, REFUSED, owner=new.owner)

    await journal.aclose()
