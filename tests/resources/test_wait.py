"""`orders.wait` reads an order until it has ended, on the clock of the client."""

from __future__ import annotations

import json

import pytest

from paymentsdk import (
    NoAnswer,
    NotFound,
    PaymentsClient,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    ServerError,
)
from paymentsdk.testing import FakeClock, MemoryTransport

ORDER = "ORD01J67CQQH5904WDBVZEM4JMEP3"


class Platform:
    """Responds with one status of the order after the other, and then with the last one."""

    def __init__(self, *responses: str | int | Exception | None) -> None:
        self.clock = FakeClock()
        self._responses = [*responses]
        self.client = PaymentsClient(
            "TEST",
            base_url="http://127.0.0.1:8787",
            clock=self.clock,
            transport=MemoryTransport(self.respond),
            retry=RetryPolicy(attempts=1),
        )

    def respond(self, request: Request) -> Response:
        """Respond to a read."""
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        if isinstance(response, Exception):
            raise response
        if isinstance(response, int):
            return Response(response, {}, b'{"errors":[{"code":"generic","message":"no"}]}')
        return Response(200, {}, json.dumps({"id": ORDER, "status": response} if response else {"id": ORDER}).encode())


@pytest.mark.parametrize("status", ["processed", "canceled", "a_new_one"])
async def test_an_order_that_has_ended_is_returned(status: str) -> None:
    """The pauses double up to 15 seconds; a status that the contract does not name is no reason to go on."""
    platform = Platform(*["created"] * 4, "processing", "action_required", None, status)

    order = await platform.client.orders.wait(ORDER)

    assert order.status == status
    assert platform.clock.slept == [1, 2, 4, 8, 15, 15, 15]


async def test_after_the_time_the_last_order_is_returned() -> None:
    """The order is read once more at the end of the time, however short it is."""
    platform = Platform("created")

    assert (await platform.client.orders.wait(ORDER, within=10)).status == "created"
    assert platform.clock.slept == [1, 2, 4, 3]


async def test_the_caller_says_what_to_wait_for() -> None:
    """`until` replaces the states that end it."""
    platform = Platform("created", "processed", "refunded")

    order = await platform.client.orders.wait(ORDER, until=lambda order: order.status == "refunded")

    assert order.status == "refunded"


async def test_reads_without_a_response_are_repeated() -> None:
    """What says nothing about the order ends no wait."""
    lost = SendFailed("connection reset", sent=True)
    platform = Platform(500, SendFailed("connection refused", sent=False), lost, "created", 503, lost, 429, "processed")

    assert (await platform.client.orders.wait(ORDER)).status == "processed"


async def test_what_was_read_is_returned_though_later_reads_fail() -> None:
    """At the end of the time, the last order that could be read says more than an error."""
    assert (await Platform("created", 500).client.orders.wait(ORDER, within=30)).status == "created"


@pytest.mark.parametrize(
    ("response", "error"), [(500, ServerError), (SendFailed("connection reset", sent=True), NoAnswer)]
)
async def test_without_any_order_the_last_error_is_raised(response: int | Exception, error: type[Exception]) -> None:
    """Nothing is known of the order then."""
    platform = Platform(response)

    with pytest.raises(error):
        await platform.client.orders.wait(ORDER, within=30)
    assert sum(platform.clock.slept) == 30


async def test_a_rejection_ends_it() -> None:
    """An order that is not there will not be paid; nor is a time that makes no sense waited for."""
    platform = Platform(404)

    with pytest.raises(NotFound):
        await platform.client.orders.wait(ORDER)
    for within in (0, -1, 86_401):
        with pytest.raises(RequestInvalid, match="within"):
            await platform.client.orders.wait(ORDER, within=within)
    assert platform.clock.slept == []
