"""PgBouncer in transaction mode: journals, rates and token stores work, and leave nothing on its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing

import asyncpg
import pytest

from paymentsdk import PostgresTokenStore, RateShare, TokenPair
from paymentsdk.journal import PostgresJournal, Record, RecordState, Resolution, StoredResponse
from paymentsdk.testing import journal_conformance
from tests.postgres import BOUNCER, Pooler, Server, pooler

DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, b"{}"))
PAIR = TokenPair(access_token="APP_USR-1", refresh_token="TG-1")
#: What a session has that outlasts a transaction.
STATE = """
SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
    (SELECT count(*) FROM pg_prepared_statements WHERE name <> '') AS statements,
    (SELECT array_agg(name) FROM pg_settings
        WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')) AS settings
"""


@pytest.fixture(scope="module")
def postgres(postgres: Server) -> Iterator[Pooler]:
    """A PgBouncer that these tests share, with two connections for each database."""
    if BOUNCER is None:
        pytest.skip("needs PgBouncer, which this machine does not have")
    with pooler(postgres, connections=2) as pool:
        yield pool


@pytest.mark.parametrize("case", journal_conformance.CASES[::9], ids=str)
async def test_a_journal_conforms(case: journal_conformance.Case, dsn: str) -> None:
    """Each method, on a connection that may be another one for each transaction."""
    await case.run(lambda now: PostgresJournal(dsn, now=now))


async def test_nothing_is_left_on_a_connection(dsn: str, record: Callable[..., Record]) -> None:
    """No lock, no setting, no prepared statement: the next transaction may be a stranger's."""
    async with aclosing(PostgresJournal(dsn)) as journal:
        rows = [(await journal.begin(record(f"{number}"), lease=60))[1] for number in range(8)]
        await asyncio.gather(*(journal.resolve(row.key, DONE, owner="p/1") for row in rows))
        await journal.purge(1e12)
    for _ in range(8):
        await RateShare(dsn, 1000.0).reserve(0.0, 60.0)
    store = PostgresTokenStore(dsn, "shop-1")
    async with store.lock():
        await store.prepare()
        await store.save(PAIR)

    strangers = [await asyncpg.connect(dsn, statement_cache_size=0) for _ in range(2)]
    states = []
    for stranger in strangers:
        transaction = stranger.transaction()
        await transaction.start()
        states.append(tuple(await stranger.fetchrow(STATE)))
    for stranger in strangers:
        stranger.terminate()

    assert [(0, 0, None)] * 2 == states
