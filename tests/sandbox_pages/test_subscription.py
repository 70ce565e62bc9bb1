"""The page of a plan: one button, one subscription."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paymentsdk.resources.plans import PlanStatus
from paymentsdk.sandbox import FreeTrialRequest, PlanRequest, RecurringRequest


def make_plan(sandbox, reason: str = "Gym", recurring: RecurringRequest | None = None, **members: object) -> str:
    """Make a plan of the first seller, and return the path of its page."""
    recurring = recurring or RecurringRequest(transaction_amount=Decimal(30), frequency=2, repetitions=6)
    plan = sandbox.create_plan(PlanRequest(reason=reason, auto_recurring=recurring, **members))
    return plan.init_point.removeprefix(sandbox.base_url)


async def subscriptions(shop) -> int:
    """Return how many there are."""
    return sum([plan.subscribed async for plan in shop.client.plans.search()])


async def subscribe(visitor, path: str, **changes: str) -> str:
    """Send the form of the page."""
    return await visitor.post(path, changes)


async def test_a_plan_is_subscribed_to_at_its_init_point(sandbox, visitor, shop) -> None:
    """The page says what is charged how often; its button subscribes, and loading the response again does not."""
    path = make_plan(sandbox, back_url="https://shop.example.com/gym")
    page = await visitor.get(path)
    for text in ("Gym", "30.00", "every 2 months, 6 times", f"Seller {sandbox.tenant.user_id}"):
        assert text in page
    assert 0 == await subscriptions(shop)

    response = await subscribe(visitor, path)
    again = await visitor.get(visitor.url.removeprefix(sandbox.base_url))

    assert 200 == visitor.status
    assert "Subscribed" in response
    assert "Its invoices are collected as the sandbox&#x27;s clock moves on." in response
    assert response == again
    assert 'href="https://shop.example.com/gym"' in response
    assert 1 == await subscriptions(shop)


async def test_the_page_says_what_has_become_of_it(sandbox, visitor) -> None:
    """Whoever comes back to the response sees that all invoices were made, or that somebody has ended it."""
    path = make_plan(sandbox)
    await visitor.get(path)
    await subscribe(visitor, path)
    response = visitor.url.removeprefix(sandbox.base_url)

    sandbox.clock.advance("P400D")
    assert "It has had all of its invoices." in await visitor.get(response)
    sandbox.buyer.unsubscribe(response.rpartition("=")[2])
    assert "It has ended." in await visitor.get(response)


@pytest.mark.parametrize(
    ("frequency", "repetitions", "trial", "expected"),
    [
        ((1, "months"), 1, (1, "months"), "every month, once, after a free month"),
        ((15, "days"), 2, (3, "days"), "every 15 days, 2 times, after 3 free days"),
    ],
)
async def test_how_often_is_said_as_people_say_it(sandbox, visitor, frequency, repetitions, trial, expected) -> None:  # noqa: PLR0917
    """One month is no "1 months", and what costs nothing is free."""
    every, free = (dict(zip(("frequency", "frequency_type"), time, strict=True)) for time in (frequency, trial))
    free_trial = FreeTrialRequest(**free)
    recurring = RecurringRequest(
        transaction_amount=Decimal(30), repetitions=repetitions, free_trial=free_trial, **every
    )

    page = await visitor.get(make_plan(sandbox, recurring=recurring))

    assert f'<p class="quiet small">{expected}</p>' in page


@pytest.mark.parametrize("back_url", ["javascript:alert(1)", "shop"])
async def test_a_shop_is_led_back_to_by_its_address_only(sandbox, visitor, back_url) -> None:
    """Whatever else stands in the plan is no link."""
    path = make_plan(sandbox, back_url=back_url)
    await visitor.get(path)

    assert back_url not in await subscribe(visitor, path)


async def test_what_a_seller_writes_is_text(sandbox, visitor, evil_copy) -> None:
    """The reason of a plan is not run."""
    path = make_plan(sandbox, reason=evil_copy("x"))

    page = await visitor.get(path)

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


async def test_a_form_from_another_site_makes_no_subscription(sandbox, visitor, shop) -> None:
    """A browser says that another site has sent it."""
    path = make_plan(sandbox)

    await visitor.post(path, {}, **{"Sec-Fetch-Site": "cross-site"})

    assert 403 == visitor.status
    assert 0 == await subscriptions(shop)


async def test_there_is_no_page_of_what_cannot_be_subscribed_to(sandbox, visitor) -> None:
    """404 for a plan that nobody made, 409 for one that is not active."""
    await visitor.get("/subscriptions/nothing")
    assert 404 == visitor.status
    await visitor.get(make_plan(sandbox, status=PlanStatus.INACTIVE))
    assert 409 == visitor.status
