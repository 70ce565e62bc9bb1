"""Token stores keep the rules of `token_store_conformance`, and a store that breaks one is found out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from paymentsdk import FileTokenStore, PostgresTokenStore, SQLiteTokenStore, TokenPair, TokenStore
from paymentsdk.testing.token_store_conformance import CASES, Case


class Shared:
    """What stores in memory share."""

    def __init__(self) -> None:
        self.pair: TokenPair | None = None
        self.turn = asyncio.Lock()


class PlainStore:
    """A store of two methods, as an application would write it."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    async def load(self) -> TokenPair | None:
        """See `TokenStore`."""
        return self.shared.pair

    async def save(self, pair: TokenPair) -> None:
        """See `TokenStore`."""
        self.shared.pair = pair


class WholeStore(PlainStore):
    """A store of all methods, each of which a test can break."""

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """See `LockingTokenStore`."""
        async with self.shared.turn:
            yield

    async def prepare(self) -> None:
        """See `PreparingTokenStore`."""


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_plain_store_conforms(case: Case) -> None:
    """Two methods are a store: the rules of the others are not for it."""
    shared = Shared()

    assert (case.needs is TokenStore) == case.applies_to(PlainStore(shared))
    await case.run(lambda: PlainStore(shared))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_file_conforms(case: Case, tmp_path: Path) -> None:
    """`FileTokenStore` keeps every rule."""
    assert case.applies_to(FileTokenStore(tmp_path / "seller.json"))
    await case.run(lambda: FileTokenStore(tmp_path / "seller.json"))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_sqlite_conforms(case: Case, tmp_path: Path) -> None:
    """`SQLiteTokenStore` keeps every rule."""
    assert case.applies_to(SQLiteTokenStore(tmp_path / "tokens.db", "shop-1"))
    await case.run(lambda: SQLiteTokenStore(tmp_path / "tokens.db", "shop-1"))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_postgres_conforms(case: Case, dsn: str) -> None:
    """`PostgresTokenStore` keeps every rule."""
    assert case.applies_to(PostgresTokenStore(dsn, "shop-1"))
    await case.run(lambda: PostgresTokenStore(dsn, "shop-1"))


def breaking(name: str) -> Callable[[Callable[..., object]], type[WholeStore]]:
    """Make a store of which one method is another."""
    return lambda method: type("Broken", (WholeStore,), {name: method})


@breaking("save")
async def forgets_when(self: WholeStore, pair: TokenPair) -> None:
    """Keeps the tokens alone."""
    self.shared.pair = structs.replace(pair, issued_at=None)


@breaking("__repr__")
def shows_its_pair(self: WholeStore) -> str:
    """Helps whoever reads the log."""
    return f"Broken({self.shared.pair and self.shared.pair.access_token!s})"


@breaking("lock")
@asynccontextmanager
async def locks_nobody_out(self: WholeStore) -> AsyncIterator[None]:
    """Lets everybody in."""
    yield


@breaking("lock")
@asynccontextmanager
async def keeps_its_lock_when_cancelled(self: WholeStore) -> AsyncIterator[None]:
    """Lets go of it only where something ends that can be caught as an `Exception`."""
    await self.shared.turn.acquire()
    try:
        yield
    except Exception:
        self.shared.turn.release()
        raise
    self.shared.turn.release()


@breaking("load")
async def reads_under_its_lock(self: WholeStore) -> TokenPair | None:
    """Waits for its own holder."""
    async with self.shared.turn:
        return self.shared.pair


@breaking("lock")
@asynccontextmanager
async def locks_alone(self: WholeStore) -> AsyncIterator[None]:
    """Locks within one process."""
    self.own = getattr(self, "own", None) or asyncio.Lock()
    async with self.own:
        yield


@breaking("prepare")
async def writes_an_empty_pair(self: WholeStore) -> None:
    """Leaves a pair where there was none."""
    self.shared.pair = self.shared.pair or TokenPair(access_token="")


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("a_pair_is_kept_whole", forgets_when),
        ("a_store_shows_no_token", shows_its_pair),
        ("one_at_a_time_holds_the_pair", locks_nobody_out),
        ("a_lock_is_let_go", keeps_its_lock_when_cancelled),
        ("the_holder_reads_and_writes", reads_under_its_lock),
        ("a_refresh_token_is_spent_once", locks_alone),
        ("preparing_leaves_the_pair", writes_an_empty_pair),
    ],
)
async def test_a_store_that_breaks_a_rule_is_found_out(
    name: str, broken: type[WholeStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case of the rule that a store breaks says so."""
    monkeypatch.setattr("paymentsdk.testing._expectation.LONGEST", 0.1)
    (case,) = (case for case in CASES if case.name == name)
    shared = Shared()

    with pytest.raises(AssertionError):
        await case.run(lambda: broken(shared))
