"""The store of the sandbox: transactions, documents, indexes, and the identifiers of a seed."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from datetime import UTC, datetime

import pytest
from msgspec import Struct

from paymentsdk.sandbox._records import Table
from paymentsdk.sandbox._store import Store

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Thing(Struct, frozen=True):
    name: str
    colour: str | None = None
    at: datetime | None = NOW


THINGS = Table(
    "things",
    Thing,
    key=lambda document: document.name,
    columns={"colour": lambda document: document.colour, "at": lambda document: document.at},
)


@pytest.fixture
def counted(tmp_path):
    """A store in a file, and the statements that SQLite runs."""
    store, statements = Store([THINGS], str(tmp_path / "sandbox.db")), []
    store._connection.set_trace_callback(statements.append)
    yield store, statements
    store.close()


def put_shared(store: Store, name: str, error: Exception | None = None) -> None:
    """Put a thing in a shared transaction, which fails with *error* if there is one."""
    with store.transaction(shared=True):
        store.put(THINGS, 1, Thing(name))
        store.after_commit(lambda: store.append(1, name.encode()))
        if error:
            raise error


async def test_requests_in_flight_share_a_commit(counted):
    """Each waits for it, and what happens after a commit happens after that one."""
    store, statements = counted

    async def request(number: int) -> bool:
        put_shared(store, str(number))
        before = statements.count("COMMIT")
        await store.committed()
        return before < statements.count("COMMIT")

    assert all(await asyncio.gather(*map(request, range(16))))
    assert 1 == statements.count("COMMIT")
    assert [str(number).encode() for number in range(16)] == store.ledger()


async def test_a_request_that_fails_undoes_nothing_of_others(counted):
    """Whether it is the first, one amid others or the last; and nothing comes after a commit that it does not have."""
    store, statements = counted
    for name, error in (("a", KeyError()), ("b", None), ("c", KeyError()), ("d", None), ("e", KeyError())):
        with suppress(KeyError):
            put_shared(store, name, error)
    await store.committed()

    assert ["b", "d"] == [row.name for row in store.find(THINGS, 1)]
    assert [b"b", b"d"] == store.ledger()
    assert 1 == statements.count("COMMIT")


def test_a_copy_has_what_waits_and_a_restore_ends_it(counted):
    """Changes that wait for their commit come before a snapshot, and none comes after a restore."""
    store, _ = counted
    put_shared(store, "a")
    with closing(store.copy()) as copy:
        put_shared(store, "b")
        store.restore(copy)

    assert ["a"] == [row.name for row in store.find(THINGS, 1)]
    with store.transaction(), pytest.raises(RuntimeError, match="inside a handler"):
        store.copy()
