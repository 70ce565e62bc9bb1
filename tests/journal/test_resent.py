"""What a recovery sends is the request that was kept, and no other: its key stands for that one alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypedDict

import pytest
from msgspec import structs

from paymentsdk import Operation, OutcomeUnknown, PaymentsClient, RetryClass
from paymentsdk.journal import Record, RecordState
from paymentsdk.resources.common import RequestStruct, ResponseStruct
from tests.journal.conftest import Start
from tests.journal.platform import ONCE, URL, Platform


class Amount(RequestStruct):
    """What is transferred."""

    amount: int


class Transfer(ResponseStruct):
    """What comes of it."""

    id: str | None = None


class Filters(TypedDict, total=False):
    """The query of a transfer."""

    currency: str


TRANSFER = Operation(
    name="transfers.create",
    method="POST",
    path="/v1/wallets/{wallet}/transfers",
    retry=RetryClass.KEYED,
    body=Amount,
    result=Transfer,
    query=Filters,
    status=201,
)


class Wallets(PaymentsClient):
    """A client with an operation of its own."""

    own_operations = (TRANSFER,)


@pytest.fixture
def start(start: Start) -> Start:
    """Start a process with the one journal."""
    return partial(start, kind=Wallets, retry=ONCE)


async def lose(
    platform: Platform, client: Wallets, operation: Operation[Amount, Transfer] = TRANSFER, once: str = "t/1"
) -> None:
    """Make a transfer whose response is lost."""
    options = {"once": once, "not_after": timedelta(hours=1), "headers": {"X-Till": "7"}}
    platform.lose = True
    with pytest.raises(OutcomeUnknown):
        await client.call(operation, operation.body(amount=5), query={"currency": "ARS"}, wallet="w-7", **options)
    platform.lose = False


async def test_recovery_sends_the_very_request_that_was_kept(start, platform: Platform) -> None:
    """Its method and address with the query, its own header fields, its bytes and its key: all as the first time."""
    async with start() as client:
        await lose(platform, client)
        summary = await client.recover()

    assert ({RecordState.DONE: 1}, ()) == (dict(summary.resolved), summary.problems)
    first, again = ((request.method, request.url, request.body, request.headers) for request in platform.posts)
    assert first == again
    assert f"{URL}/v1/wallets/w-7/transfers?currency=ARS" == first[1]


CHANGES = {
    "another amount": lambda row: structs.replace(row, body=b'{"amount":6}'),
    "another query": lambda row: structs.replace(row, path=row.path.replace("ARS", "BRL")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_recovery_sends_no_other_request_under_a_key(
    start, platform: Platform, change: Callable[[Record], Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that was changed, or that belongs to another version of the operation, is left to a person."""
    async with start() as client:
        await lose(platform, client)
        read = client.journal.records

        async def changed(*arguments: object, **more: object) -> list[Record]:
            return [change(row) for row in await read(*arguments, **more)]

        monkeypatch.setattr(client.journal, "records", changed)
        summary = await client.recover()

    assert (["t/1"], 1, {}) == ([row.name for row in summary.left], len(summary.problems), dict(summary.resolved))
    assert "no request of transfers.create" in summary.problems[0]
    assert 1 == len(platform.posts)


async def test_an_unreadable_stored_response_is_not_a_defect(start, platform: Platform) -> None:
    """Where an operation returns something else than at its first call, the caller learns that the write is done."""

    class Receipt(ResponseStruct):
        number: int

    async with start() as client:
        arguments = {"wallet": "w-7", "once": "t/1", "not_after": timedelta(hours=1)}
        await client.call(TRANSFER, Amount(amount=5), **arguments)
        with pytest.raises(OutcomeUnknown, match="it is done; its response cannot be read"):
            await client.call(TRANSFER.returning(Receipt), Amount(amount=5), **arguments)

    assert 1 == len(platform.posts)


async def test_a_rule_that_fails_costs_no_other_record_its_recovery(start, platform: Platform, monkeypatch) -> None:
    """The check of an operation of one's own may raise anything: its record is left and told of; others are sent."""
    rules: list[Exception] = []

    class Checked(Amount):
        def __post_init__(self) -> None:
            if rules:
                raise rules[0]

    checked = replace(TRANSFER, name="transfers.checked", body=Checked)
    monkeypatch.setattr(Wallets, "own_operations", (TRANSFER, checked))
    async with start() as client:
        await lose(platform, client, checked)
        await lose(platform, client, once="t/2")
        rules.append(KeyError("a-secret"))
        summary = await client.recover()

    assert ({RecordState.DONE: 1}, ["t/1"]) == (dict(summary.resolved), [row.name for row in summary.left])
    assert 1 == len(summary.problems)
    assert "t/1: KeyError (test_resent.py" in summary.problems[0]
    assert "a-secret" not in summary.problems[0]
