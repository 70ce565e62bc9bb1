"""The page of a plan: one button, one subscription."""

from __future__ import annotations

import pytest

from paymentsdk.resources.plans import AutoRecurring, FreeTrial, Plan, PlanStatus
from paymentsdk.sandbox._handlers.plans import PlanRequest, RecurringRequest, make
from paymentsdk.sandbox._pages.views import offer
from paymentsdk.sandbox._records import SUBSCRIPTIONS


async def make_plan(sandbox, reason: str = "Gym", **members: object) -> str:
    """Make a plan of the first seller, and return the path of its page."""
    recurring = RecurringRequest(transaction_amount=30, frequency=2, repetitions=6)
    request = PlanRequest(reason=reason, auto_recurring=recurring, **members)
    with sandbox.platform.store.transaction():
        plan = make(sandbox.platform.context(sandbox.tenant), request)
    return plan.init_point.removeprefix(sandbox.base_url)


def subscriptions(sandbox) -> int:
    """Return how many there are."""
    return sandbox.platform.store.count(SUBSCRIPTIONS, None)


async def subscribe(visitor, path: str, **changes: str) -> str:
    """Send the form of the page."""
    return await visitor.post(path, changes)


async def test_a_plan_is_subscribed_to_at_its_init_point(sandbox, visitor) -> None:
    """The page says what is charged how often; its button subscribes, and loading the response again does not."""
    path = await make_plan(sandbox, back_url="https://shop.example.com/gym")
    page = await visitor.get(path)
    for said in ("Gym", "30.00", "every 2 months, 6 times", f"Seller {sandbox.tenant.user_id}"):
        assert said in page
    assert 0 == subscriptions(sandbox)

    response = await subscribe(visitor, path)
    again = await visitor.get(visitor.url.removeprefix(sandbox.base_url))

    assert 200 == visitor.status
    assert "Subscribed" in response
    assert "Its invoices are collected as the sandbox&#x27;s clock moves on." in response
    assert response == again
    assert 'href="https://shop.example.com/gym"' in response
    assert 1 == subscriptions(sandbox)


async def test_the_page_says_what_has_become_of_it(sandbox, visitor) -> None:
    """Whoever comes back to the response sees that all invoices were made, or that somebody has ended it."""
    path = await make_plan(sandbox)
    await visitor.get(path)
    await subscribe(visitor, path)
    response = visitor.url.removeprefix(sandbox.base_url)

    sandbox.clock.advance("P400D")
    assert "It has had all of its invoices." in await visitor.get(response)
    sandbox.buyer.unsubscribe(sandbox.platform.store.find(SUBSCRIPTIONS, None)[0])
    assert "It has ended." in await visitor.get(response)


@pytest.mark.parametrize(
    ("frequency", "unit", "repetitions", "trial", "said"),
    [
        (1, "months", None, None, "every month"),
        (1, "months", 1, (1, "months"), "every month, once, after a free month"),
        (2, "months", 6, (3, "months"), "every 2 months, 6 times, after 3 free months"),
        (1, "days", None, (7, "days"), "every day, after 7 free days"),
        (15, "days", 2, (1, "days"), "every 15 days, 2 times, after a free day"),
        (None, None, None, (None, None), "every month, after a free month"),
    ],
)
def test_how_often_is_said_as_people_say_it(frequency, unit, repetitions, trial, said) -> None:
    """One month is no "1 months", and what costs nothing is free."""
    free = FreeTrial(frequency=trial[0], frequency_type=trial[1]) if trial else None
    recurring = AutoRecurring(frequency=frequency, frequency_type=unit, repetitions=repetitions, free_trial=free)

    page = offer(Plan(id="p", auto_recurring=recurring), action="/")

    assert f'<p class="quiet small">{said}</p>' in page


@pytest.mark.parametrize("back_url", ["javascript:alert(1)", "shop"])
async def test_a_shop_is_led_back_to_by_its_address_only(sandbox, visitor, back_url) -> None:
    """Whatever else stands in the plan is no link."""
    path = await make_plan(sandbox, back_url=back_url)
    await visitor.get(path)

    assert back_url not in await subscribe(visitor, path)


async def test_what_a_seller_writes_is_text(sandbox, visitor, evil_copy) -> None:
    """The reason of a plan is not run."""
    path = await make_plan(sandbox, reason=evil_copy("x"))

    page = await visitor.get(path)

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


async def test_a_form_from_elsewhere_subscribes_nobody(sandbox, visitor) -> None:
    """A browser says that another site has sent it."""
    path = await make_plan(sandbox)

    await visitor.post(path, {}, **{"Sec-Fetch-Site": "cross-site"})

    assert 403 == visitor.status
    assert 0 == subscriptions(sandbox)


async def test_there_is_no_page_of_what_cannot_be_subscribed_to(sandbox, visitor) -> None:
    """404 for a plan that nobody made, 409 for one that is not active."""
    await visitor.get("/subscriptions/nothing")
    assert 404 == visitor.status
    await visitor.get(await make_plan(sandbox, status=PlanStatus.INACTIVE))
    assert 409 == visitor.status
