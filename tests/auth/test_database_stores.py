"""`SQLiteTokenStore` and `PostgresTokenStore`: across processes that die, and what else a database brings along."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from paymentsdk import PostgresTokenStore, RefreshFailed, RequestInvalid, SQLiteTokenStore, TokenPair, TokenStore
from tests.auth.refreshes import pair, run, store_at
from tests.conftest import PATIENCE
from tests.flow.test_rate_share import sessions
from tests.postgres import Server, free_port, wire_to

ROOT = Path(__file__).parents[2]
SECRET = "secret-password"
FORTY = threading.Semaphore(40)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or an empty schema of the server."""
    return str(tmp_path / "tokens.db") if request.param == "sqlite" else request.getfixturevalue("dsn")


def start(address: str, folder: Path, *dies: str) -> subprocess.Popen[str]:
    """Start a process that needs a token."""
    command = [sys.executable, "-m", "tests.auth.refreshes", address, str(folder), *dies]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def refreshed(address: str, folder: Path, *deaths: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Have processes refresh the first pair, some of which die; return what they got, and how they ended."""
    await store_at(address).save(pair(1))
    (folder / "issued").touch()
    processes = [start(address, folder, *dies) for dies in deaths]
    outputs = [await asyncio.to_thread(process.communicate) for process in processes]
    return [out for out, _ in outputs if out], [process.returncode for process in processes]


async def test_processes_refresh_once(address: str, tmp_path: Path) -> None:
    """Of two processes that need a token at the same moment, one asks the platform; both get the new token."""
    got, _ = await refreshed(address, tmp_path, (), ())

    assert ["access-2"] * 2 == got
    assert ["refresh-1"] == (tmp_path / "asked").read_text().split()
    assert pair(2) == await store_at(address).load()


@pytest.mark.parametrize(("dies", "then"), [("before", "access-2"), ("after", "must authorize again")])
async def test_a_death_costs_one_attempt(address: str, tmp_path: Path, dies: str, then: str) -> None:
    """The refresh of a killed process is made by the next one, which waits for no lease.

    If the platform had issued a pair that nobody saved, a person is needed.
    """
    assert ([], [-signal.SIGKILL]) == await refreshed(address, tmp_path, (dies,))

    assert then == await run(address, tmp_path, "")
    assert ["refresh-1"] * 2 == (tmp_path / "asked").read_text().split()


async def test_sellers_are_apart(address: str) -> None:
    """Each seller has a row and a lock of its own."""
    stores = [type(store_at(address))(address, name) for name in ("shop-1", "shop-2")]
    await stores[0].save(pair(1))

    assert None is await stores[1].load()
    async with asyncio.timeout(20), stores[0].lock(), stores[1].lock():
        await stores[1].save(pair(2))
    assert [pair(1), pair(2)] == [await store.load() for store in stores]


async def test_a_pair_is_kept_sealed(address: str, tmp_path: Path) -> None:
    """With `seal`, no byte of a token is in the database; `unseal` brings it back."""
    sealed: list[bytes] = []

    def seal(content: bytes) -> bytes:
        sealed.append(bytes(byte ^ 0x5A for byte in content))
        return sealed[-1]

    store = type(store_at(address))(
        address, "shop-1", seal=seal, unseal=lambda data: bytes(byte ^ 0x5A for byte in data)
    )
    await store.save(pair(1))

    assert pair(1) == await store.load()
    assert b"access-1" not in sealed[0]
    if not address.startswith("postgresql:"):
        assert b"access-1" not in (tmp_path / "tokens.db").read_bytes()


def found(folder: Path) -> list[Path]:
    """All that is in *folder*."""
    return list(folder.rglob("*"))


async def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    """The file and the locks are for their owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        store = SQLiteTokenStore(tmp_path / "tokens.db", "shop-1")
        await store.save(pair(1))
        async with store.lock():
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found(tmp_path)}
    finally:
        os.umask(before)

    assert {0o600, 0o700} == set(modes.values())
    assert 3 == len(modes)


async def damaged_file(tmp_path: Path, dsn: str) -> TokenStore:
    """A file that is none of SQLite."""
    (tmp_path / "tokens.db").write_bytes(b"no database at all, " * 9)
    return SQLiteTokenStore(tmp_path / "tokens.db", "shop-1")


async def nobody_listens(tmp_path: Path, dsn: str) -> TokenStore:
    """The server is away."""
    return PostgresTokenStore(f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/db", "shop-1", timeout=0.2)


async def strict_table(tmp_path: Path, dsn: str) -> TokenStore:
    """Somebody has added a rule to the table: of what breaks it, the server shows the whole row."""
    store, connection = PostgresTokenStore(dsn, "shop-1"), await asyncpg.connect(dsn)
    await store.load()
    await connection.execute("ALTER TABLE paymentsdk_token ADD CHECK (refresh_began IS NULL)")
    await connection.close()
    return store


@pytest.mark.control("paymentsdk._auth.database_stores.tellable", lambda error: error)
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (damaged_file, r"/tokens\.db: file is not a database\Z"),
        (nobody_listens, "PostgreSQL: .*Connection refused"),
        (strict_table, 'PostgreSQL: new row for relation "paymentsdk_token" violates check constraint "[a-z_]+"$'),
    ],
)
async def test_a_call_says_why_the_store_failed(
    tmp_path: Path, dsn: str, make_client, trouble: Callable[..., Awaitable[TokenStore]], reason: str
) -> None:
    """In the words of the database, without a row that it shows, and without a password: a person has to repair it."""
    store = await trouble(tmp_path, dsn)
    client = make_client(TokenPair(access_token="APP_USR-1", refresh_token="spent", expires_at=0.0), store=store)

    with pytest.raises(RefreshFailed) as failed:
        await client.orders.get("ORD1")

    assert re.search(reason, failed.value.reason)
    assert SECRET not in f"{failed.value} {failed.value!r}"


async def test_who_has_lost_the_lock_spends_no_token(postgres: Server, dsn: str) -> None:
    """`prepare` writes on the connection of the lock: if that is lost, the refresh is not sent, and others can."""
    async with wire_to(postgres) as wire:
        store = PostgresTokenStore(wire.dsn(dsn), "shop-1")
        async with store.lock():
            wire.cut()
            async with asyncio.timeout(20), PostgresTokenStore(dsn, "shop-1").lock():
                with pytest.raises(ConnectionError):
                    await store.prepare()
            # What was issued is saved all the same: it is the only pair that works.
            await store.save(pair(2))

    assert pair(2) == await PostgresTokenStore(dsn, "shop-1").load()


@pytest.mark.control("paymentsdk._auth.database_stores._turns", lambda process: FORTY)
async def test_more_sellers_than_connections(dsn: str, *, defence: bool) -> None:
    """Sellers that are refreshed at once take turns: a process does not use up what the server has."""
    inside = most = 0
    crowded, too_many, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(name: str) -> None:
        nonlocal inside, most
        async with PostgresTokenStore(dsn, name).lock():
            inside += 1
            most = max(most, inside)
            if inside >= 8:
                crowded.set()
            if inside > 8:
                too_many.set()
            await leave.wait()
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(hold(f"shop-{number}"))
        await crowded.wait()
        with suppress(TimeoutError):  # One more has some time to come, and in the control as long as it needs.
            await asyncio.wait_for(too_many.wait(), PATIENCE if defence else 0.3)
        leave.set()

    assert 8 == most


# --- the connection to PostgreSQL -------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._auth.database_stores.IDLE", None, raises=TimeoutError)
async def test_an_idle_connection_is_closed(
    dsn: str, monkeypatch: pytest.MonkeyPatch, patience: float, *, defence: bool
) -> None:
    """A pair lives for months: between two refreshes the server is left alone."""
    if not defence:
        monkeypatch.setattr("paymentsdk._auth.database_stores.IDLE", 0.01)
    before = await sessions(dsn)
    await PostgresTokenStore(dsn, "shop-1").save(pair(1))

    async with asyncio.timeout(patience):
        while await sessions(dsn) - before:
            pass

    assert pair(1) == await PostgresTokenStore(dsn, "shop-1").load()


FORKED = """
import asyncio, os, sys
from paymentsdk import PostgresTokenStore, TokenPair

store = PostgresTokenStore(sys.argv[1], "shop-1")
asyncio.run(store.save(TokenPair(access_token="a")))
child = os.fork()
for _ in range(5):
    assert asyncio.run(store.load()).access_token == "a"
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)
"""


async def test_a_forked_process_opens_its_own_connection(dsn: str) -> None:
    """Two that write on one connection would read each other's responses."""
    process = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", FORKED, dsn], check=False, timeout=50)

    assert 0 == process.returncode


@pytest.mark.parametrize("name", ["", None, 7, "a\0b"])
def test_a_seller_has_a_name(tmp_path: Path, name: object) -> None:
    """A store without a name would be that of everybody."""
    with pytest.raises(RequestInvalid, match="name: must be a string"):
        SQLiteTokenStore(tmp_path / "tokens.db", name)
