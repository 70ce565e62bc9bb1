"""A write that a killed process has left can still be finished: its time does not end with the lease of the dead."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import Struct, structs

from paymentsdk import OPERATIONS, Operation, OutcomeUnknown, RequestInvalid, RetryClass, Timeout
from tests.journal.platform import ONCE, PAYMENT, World, order


class Note(Struct):
    """A body."""

    text: str = ""


def own(**more: object) -> Operation[Note, Note]:
    """An operation of one's own."""
    return Operation(
        name="notes.create", method="POST", path="/notes", retry=RetryClass.KEYED, body=Note, result=Note, **more
    )


async def window(world: World, operation: Operation, limits: Timeout, body: object = None, **options: object) -> float:
    """Return the seconds for which a write may be sent."""
    world.platform.lose = True
    bodies = {"orders.create": order(), "wallet_payments.create": PAYMENT, "notes.create": Note()}
    path = dict.fromkeys(operation.path_names, "ORD1")
    async with world.connect(timeout=limits, retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call(operation, body or bodies.get(operation.name), once="a", **path, **options)
    [row] = await world.rows()
    return row.not_after - row.begun


USUAL, SLOW = Timeout(), Timeout(attempt=400, total=600)
NAMES = ("orders.create", "wallet_payments.create", "orders.cancel", "orders.refund")
CREATE, WALLET, CANCEL, REFUND = (OPERATIONS[name] for name in NAMES)


@pytest.mark.parametrize(
    ("operation", "limits", "seconds"),
    [
        (WALLET, USUAL, 15 * 60),
        (CANCEL, SLOW, 1.5 * 800),
        (REFUND, USUAL, 23 * 3600),
        (own(), USUAL, 90),
        (own(), Timeout(total=300), 300),
        (own(), SLOW, 1.5 * 800),
        (own(), Timeout(total=None), 23 * 3600),
        (own(resend_window=timedelta(seconds=90)), SLOW, 1.5 * 800),
        (own(resend_window=timedelta(days=9)), USUAL, 23 * 3600),
        (own(resend_window=lambda body: timedelta(seconds=30)), SLOW, 30),
    ],
)
async def test_a_window_leaves_time_after_the_lease(world: World, operation, limits: Timeout, seconds: float) -> None:
    """It is one and a half leases at least, and 23 hours at most; what a function of the body returns holds."""
    assert seconds == await window(world, operation, limits)


async def test_an_explicit_end_wins(world: World) -> None:
    """Also where it is shorter than a lease: a crash then leaves the record to a person."""
    assert 5 == await window(world, WALLET, SLOW, not_after=timedelta(seconds=5))


async def test_an_order_that_expires_early_is_not_sent_later(world: World) -> None:
    """Nobody waits for its code any more."""
    short = structs.replace(order(), expiration_time="PT30S")

    assert 30 == await window(world, CREATE, USUAL, short)


@pytest.mark.parametrize("declared", [timedelta(seconds=89), timedelta(0), timedelta(days=-1), 3600, "PT15M"])
def test_a_window_that_ends_with_the_lease_is_rejected_where_it_is_declared(declared: object) -> None:
    """Recovery could never send it."""
    with pytest.raises(RequestInvalid, match=r"notes\.create\.resend_window: must be a timedelta of 90 s"):
        own(resend_window=declared)
