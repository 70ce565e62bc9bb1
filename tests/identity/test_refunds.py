"""Every refund is told its own entry, however often the responses to others come again."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from paymentsdk import OutcomeUnknown, Request, Response, RetryPolicy
from paymentsdk.testing import MemoryTransport
from tests.identity.writes import partial_refund, says

ONCE = RetryPolicy(attempts=1)
KEY = "X-Idempotency-Key"


def refunded(*ids: str, amount: str = "5.00") -> Response:
    """A response with the refunds *ids*, the newest last."""
    refunds = [{"id": one, "transaction_id": "PAY1", "amount": amount} for one in ids]
    return says({"id": "ORD1", "status": "processed", "transactions": {"refunds": refunds}})


class Shifting:
    """A platform that refunds once per key, behind kept connections that now and then bring a response again."""

    def __init__(self, *, lists_all: bool) -> None:
        self.by_key: dict[str, Response] = {}
        self.ids: list[str] = []
        self.lists_all = lists_all
        self._chance = Random(1)
        self._last: Response | None = None
        self.repeated = 0

    def __call__(self, request: Request) -> Response:
        key = request.headers[KEY]
        if key not in self.by_key:
            self.ids.append(f"REF{len(self.ids)}")
            self.by_key[key] = refunded(*(self.ids if self.lists_all else self.ids[-1:]))
        response, last = self.by_key[key], self._last
        if last is not None and not request.fresh and self._chance.random() < 0.2:
            self.repeated += 1
            return last
        self._last = response
        return response


@pytest.mark.control("paymentsdk._operation.identity.Additions.told", lambda self, url, added, key: None)
@pytest.mark.parametrize("lists_all", [False, True], ids=["the new one alone", "all of the order"])
async def test_no_refund_is_told_of_another_one(client_over, lists_all):
    """1,000 equal partial refunds, a fifth of the responses duplicated: each learns of the refund of its own key."""
    platform = Shifting(lists_all=lists_all)
    client = client_over(MemoryTransport(platform))
    wrong = 0

    for _ in range(1_000 if not lists_all else 200):
        result = await partial_refund("5.00")(client)
        own = json.loads(platform.by_key[result.idempotency_key].body)["transactions"]["refunds"][-1]["id"]
        wrong += result.value.refunds[-1].id != own
        assert () == result.anomalies

    assert platform.repeated > 20
    assert 0 == wrong


async def test_what_the_platform_says_twice_is_believed_with_an_anomaly(client_over):
    """The same refund on a fresh connection is what the platform holds of it: the anomaly names both calls."""
    transport = MemoryTransport([refunded("REF1"), refunded("REF1"), refunded("REF1")])
    client = client_over(transport)

    first = await partial_refund("5.00")(client)
    second = await partial_refund("5.00")(client)

    assert () == first.anomalies
    [anomaly] = second.anomalies
    assert first.idempotency_key in anomaly.reason
    assert second.idempotency_key in anomaly.reason
    assert "REF1" in anomaly.reason
    assert [False, False, True] == [request.fresh for request in transport.requests]
    assert 1 == len(transport.discarded)


async def test_the_same_key_may_be_told_the_same_refund(client_over):
    """A refund that is sent again with its key is the same refund."""
    client = client_over(MemoryTransport([refunded("REF1"), refunded("REF1")])).with_options(idempotency_key="k-1")

    await partial_refund("5.00")(client)
    result = await partial_refund("5.00")(client)

    assert () == result.anomalies


async def test_a_copy_of_the_client_knows_the_refunds_of_the_others(client_over):
    """The memory belongs to the connections, which copies share."""
    client = client_over(MemoryTransport([refunded("REF1"), refunded("REF1")]), retry=ONCE)

    await partial_refund("5.00")(client)

    with pytest.raises(OutcomeUnknown, match="REF1 was also in the response to the call"):
        await partial_refund("5.00")(client.with_options(idempotency_key="another"))


async def test_refunds_of_other_orders_may_have_the_same_ids(client_over):
    """Nothing says that an id of a refund is unique beyond its order."""
    other = says({"id": "ORD2", "transactions": {"refunds": [{"id": "REF1"}]}})
    client = client_over(MemoryTransport([refunded("REF1"), other]))

    await client.orders.refund("ORD1")
    refund = await client.orders.refund("ORD2")

    assert "REF1" == refund.refunds[0].id


async def test_a_full_refund_after_a_partial_one_has_a_new_entry(client_over):
    """A refund of the whole order repeats no amount: an entry that nobody was told of is the new one."""
    client = client_over(MemoryTransport([refunded("REF1"), refunded("REF1"), refunded("REF1", "REF2")]))

    await partial_refund("5.00")(client)
    whole = await client.orders.refund("ORD1")

    assert ["REF1", "REF2"] == [refund.id for refund in whole.refunds]


async def test_concurrent_refunds_each_get_their_own(client_over):
    """Responses that overtake each other are told apart by their amounts."""

    async def answer(request: Request) -> Response:
        amount = json.loads(request.body)["transactions"][0]["amount"]
        await asyncio.sleep(0)
        return refunded(f"REF-{amount}", amount=amount)

    client = client_over(MemoryTransport(answer))

    results = await asyncio.gather(*(partial_refund(f"{n}.00")(client) for n in range(1, 20)))

    assert [f"REF-{n}.00" for n in range(1, 20)] == [result.value.refunds[0].id for result in results]
    assert {()} == {result.anomalies for result in results}


async def test_the_memory_is_bounded(client_over, monkeypatch):
    """A service that runs for months remembers its last refunds, not all."""
    monkeypatch.setattr("paymentsdk._operation.identity.MOST_ADDITIONS", 3)
    ids = ["REF1", "REF2", "REF3", "REF4"]
    client = client_over(MemoryTransport([refunded(one) for one in [*ids, "REF1", "REF4"]]), retry=ONCE)

    for _ in ids:
        await partial_refund("5.00")(client)

    assert () == (await partial_refund("5.00")(client)).anomalies
    with pytest.raises(OutcomeUnknown, match="REF4"):
        await partial_refund("5.00")(client)
