"""The rules that every token store keeps, as a suite that you can run.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.token_store_conformance import CASES

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case, tmp_path):
        await case.run(lambda: MyStore(tmp_path / "tokens"))

Within one case, all stores keep the pair of one seller in one place: they stand for several processes. Rules of
`LockingTokenStore` or `PreparingTokenStore` are skipped for a store without their methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Protocol, TypeAlias

from msgspec import structs

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._auth.token_store import LockingTokenStore, PreparingTokenStore, TokenPair, TokenStore
from paymentsdk.errors import ReauthorizationRequired
from paymentsdk.testing._expectation import NamedRule, check_rule, expect, named

__all__ = ["CASES", "Case", "MakeStore"]

#: Makes a store for the one seller of the case.
MakeStore: TypeAlias = Callable[[], TokenStore]

_NOW = 1_700_000_000.0
#: Invented tokens.
_ACCESS, _GRANT, _BARE = "APP_USR-access-1-77", "TG-refresh-1", "TEST-bare"
_PAIR = TokenPair(access_token=_ACCESS, refresh_token=_GRANT, expires_at=_NOW + 600.25, issued_at=_NOW - 0.5)
#: Turns of the loop, and the seconds that they take: a task that ignores the lock would get inside meanwhile.
_TURNS, _MOMENT = 10, 0.01


class Case(NamedRule, frozen=True):
    """One rule of a token store."""

    needs: type[object]
    """The protocol of the rule: `TokenStore`, `LockingTokenStore` or `PreparingTokenStore`."""

    def applies_to(self, store: TokenStore) -> bool:
        """Return whether *store* has the methods that the rule needs."""
        return self.needs is TokenStore or isinstance(store, self.needs)

    async def run(self, make_store: MakeStore) -> None:
        """Check the rule, unless the store does not have its protocol.

        Raises:
            AssertionError: The store breaks the rule.
        """
        if self.applies_to(make_store()):
            await check_rule(self.rule, self.check(make_store))


def _pair(number: int) -> TokenPair:
    return structs.replace(
        _PAIR, access_token=f"APP_USR-access-{number}-77", refresh_token=f"TG-refresh-{number}", issued_at=_NOW + number
    )


CASES: list[Case] = []


class _Store(LockingTokenStore, PreparingTokenStore, Protocol):
    """All methods: a case runs only with stores that have the methods it needs."""


_Check: TypeAlias = Callable[[Callable[[], _Store]], Awaitable[None]]


def _case(needs: type[object]) -> Callable[[_Check], _Check]:
    def add(check: _Check) -> _Check:
        CASES.append(Case(*named(check), check, needs))
        return check

    return add


@_case(TokenStore)
async def _an_empty_store_has_no_pair(make_store: Callable[[], _Store]) -> None:
    """Before the first `save`, `load` returns ``None``."""
    expect(await make_store().load() is None, "an empty store has returned a pair")


@_case(TokenStore)
async def _a_pair_is_kept_whole(make_store: Callable[[], _Store]) -> None:
    """Another process loads all four fields as they were saved, even if some are ``None``, or long."""
    long = structs.replace(_PAIR, access_token=_ACCESS * 200, refresh_token=_GRANT * 200)
    for pair in (_PAIR, TokenPair(access_token=_BARE), long):
        await make_store().save(pair)
        loaded = await make_store().load()
        expect(loaded == pair, "the loaded pair is not the saved pair")


@_case(TokenStore)
async def _the_last_pair_counts(make_store: Callable[[], _Store]) -> None:
    """A saved pair replaces the previous pair, for every process, even if its times are older."""
    stores = [make_store() for _ in range(2)]
    for number in (0, 1, 3, 2):
        pair = structs.replace(_pair(number), expires_at=_NOW + number)
        await stores[number % 2].save(pair)
        for store in (*stores, make_store()):
            expect(await store.load() == pair, f"the loaded pair is not the saved pair number {number}")


@_case(TokenStore)
async def _pairs_of_many_are_not_mixed(make_store: Callable[[], _Store]) -> None:
    """If several processes save at the same moment, `load` returns a complete pair of one of them."""
    pairs = [_pair(number) for number in range(8)]
    await make_store().save(pairs[0])

    async def load() -> None:
        expect(await make_store().load() in pairs, "no pair, or a mixed pair, while another process saves")

    await asyncio.gather(*(work for pair in pairs for work in (make_store().save(pair), load())))
    await load()


@_case(TokenStore)
async def _a_store_shows_no_token(make_store: Callable[[], _Store]) -> None:
    """The ``repr`` of the store shows no token of the pair, and no part of a token."""
    store = make_store()
    await store.save(_PAIR)
    text = f"{store!r} {await make_store().load()!r}"
    expect("access-1" not in text and "refresh-1" not in text, "it shows a token")


@_case(LockingTokenStore)
async def _one_at_a_time_holds_the_pair(make_store: Callable[[], _Store]) -> None:
    """Only one user of the pair is inside the lock, in one process or several. The others wait, and get their turn."""
    same, inside, most, turns = make_store(), 0, 0, 0
    stores = (same, same, make_store(), make_store())

    async def hold(store: LockingTokenStore) -> None:
        nonlocal inside, most, turns
        async with store.lock():
            inside += 1
            most = max(most, inside)
            for _ in range(_TURNS):
                await asyncio.sleep(_MOMENT / _TURNS)
            turns += 1
            inside -= 1

    await asyncio.gather(*map(hold, stores))
    expect(most == 1, f"{most} were inside at once")
    expect(turns == len(stores), f"{turns} of {len(stores)} had their turn")


@_case(LockingTokenStore)
async def _a_lock_is_let_go(make_store: Callable[[], _Store]) -> None:
    """A user that fails or is cancelled inside the lock, or stops waiting for it, does not block the others."""
    first, second, inside = make_store(), make_store(), asyncio.Event()

    async def hold(store: LockingTokenStore) -> None:
        async with store.lock():
            inside.set()
            await asyncio.Event().wait()

    with suppress(LookupError):
        async with first.lock():
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(hold(second))
                await asyncio.sleep(_MOMENT)
                waiting.cancel()
            expect(not inside.is_set(), "two were inside at once")
            raise LookupError  # Stands for any error.
    async with asyncio.TaskGroup() as group:
        holding = group.create_task(hold(first))
        await inside.wait()
        holding.cancel()
    async with second.lock():
        pass


@_case(LockingTokenStore)
async def _the_holder_reads_and_writes(make_store: Callable[[], _Store]) -> None:
    """The holder of the lock can load and save the pair, and the others can load it."""
    store = make_store()
    async with store.lock():
        await store.save(_PAIR)
        for reader in (store, make_store()):
            expect(await reader.load() == _PAIR, "the loaded pair is not the pair that the holder has saved")


@_case(LockingTokenStore)
async def _a_refresh_token_is_spent_once(make_store: Callable[[], _Store]) -> None:
    """Processes that need a new token at the same moment ask the platform once, and all get the new token."""
    await make_store().save(structs.replace(_PAIR, expires_at=_NOW))
    spent: list[str] = []

    async def exchange(refresh_token: str) -> TokenPair:
        spent.append(refresh_token)
        await asyncio.sleep(_MOMENT)
        if spent.count(refresh_token) > 1:
            raise ReauthorizationRequired(401, "invalid_grant", "it was spent before")
        return _pair(2)

    tokens = [RefreshingToken(store=make_store()) for _ in range(4)]
    results = await asyncio.gather(*(token.renew(None, exchange, _NOW) for token in tokens), return_exceptions=True)
    expect(spent == ["TG-refresh-1"], f"{len(spent)} refresh tokens were sent")
    expect(results == [_pair(2).access_token] * 4, "not all have the new token")
    expect(await make_store().load() == _pair(2), "the new pair was not saved")


@_case(PreparingTokenStore)
async def _preparing_leaves_the_pair(make_store: Callable[[], _Store]) -> None:
    """`prepare` writes, but changes neither an existing pair nor an empty store."""
    await make_store().prepare()
    expect(await make_store().load() is None, "prepare has made a pair")
    await make_store().save(_PAIR)
    for _ in range(2):
        await make_store().prepare()
        expect(await make_store().load() == _PAIR, "the loaded pair is not the saved pair")


@_case(PreparingTokenStore)
async def _the_holder_prepares(make_store: Callable[[], _Store]) -> None:
    """The holder of the lock can prepare, and then save the new pair."""
    store = make_store()
    await store.save(_PAIR)
    async with store.lock() if isinstance(store, LockingTokenStore) else nullcontext():
        await store.prepare()
        await store.save(_pair(2))
    expect(await make_store().load() == _pair(2), "the loaded pair is not the pair that the holder has saved")
