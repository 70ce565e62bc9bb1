"""An argument that takes the path of a file rejects the address of a server, since errors show paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paymentsdk import FileTokenStore, PaymentsClient, RateShare, RequestInvalid, SQLiteTokenStore
from paymentsdk.journal import SQLiteJournal
from paymentsdk.reconcile import Book, reconcile, walk
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import MemoryTransport

HOUR = (datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC) + timedelta(hours=1))
ADDRESSES = [
    *("postgresql//u:SECRET@h/x", "postgres//u:SECRET@h/x", "postgresql:u:SECRET@h/x", "postgresql:/u:SECRET@h/x"),
    *("user:SECRET@h/x", "mysql://user:SECRET@h/x", "postgresql+asyncpg//user:SECRET@h/x"),
]
PATHS = ["payments.db", "postgresql/payments.db", "postgres.db", "C:\\me@work\\x.db", "a:b", "m@h.db"]


def client() -> PaymentsClient:
    """Return a client that sends nothing."""
    return PaymentsClient("TEST-token", base_url="http://127.0.0.1", transport=MemoryTransport([]))


async def start(path: str) -> None:
    """Start a sandbox."""
    async with Sandbox(db=path):
        pass


TAKE_A_PATH: dict[str, Callable[[str], object]] = {
    "Book.csv": Book.csv,
    "Book.parquet": Book.parquet,
    "FileTokenStore": FileTokenStore,
    "RateShare": lambda path: RateShare(path, 10),
    "SQLiteJournal": SQLiteJournal,
    "SQLiteTokenStore": lambda path: SQLiteTokenStore(path, "shop"),
    "Sandbox": start,
    "reconcile": lambda path: reconcile(Book.rows([]), client(), created=HOUR, out=path),
    "walk": lambda path: walk(client(), created=HOUR, out=path),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, in which no file may have a password in its name."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not any("SECRET" in str(path) for path in tmp_path.rglob("*"))


async def give(name: str, path: str) -> None:
    """Pass *path* to the function with this name, and wait for its end if needed."""
    used = TAKE_A_PATH[name](path)
    if isinstance(used, Awaitable):
        await used


@pytest.mark.parametrize(
    ("name", "address"), [*((name, ADDRESSES[0]) for name in TAKE_A_PATH), *(("RateShare", each) for each in ADDRESSES)]
)
async def test_an_address_is_no_path(name: str, address: str) -> None:
    """The address is rejected before a file is created, and the error does not show it."""
    with pytest.raises(RequestInvalid, match="looks like the address of a server") as raised:
        await give(name, address)

    assert "SECRET" not in f"{raised.value!r} {raised.value}"


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_a_path(path: str) -> None:
    """Names that only resemble an address are file names."""
    assert repr(path).strip("'") in repr(RateShare(path, 10))
