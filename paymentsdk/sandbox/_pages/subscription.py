"""The page at a plan's ``init_point``: what is charged how often, and a button that subscribes."""

from __future__ import annotations

from collections.abc import Iterator

from paymentsdk.resources.plans import AutoRecurring, Plan
from paymentsdk.sandbox._pages.markup import Markup, breakable, render
from paymentsdk.sandbox._pages.sale import money, shop_address
from paymentsdk.sandbox._pages.views import Way, framed, message
from paymentsdk.sandbox._records import AUTHORIZED, CANCELED, FINISHED, Subscription


def offer(plan: Plan, *, action: str, token: str) -> Markup:
    """Return the page with the form: what the plan is for, and what it costs."""
    recurring = plan.auto_recurring or AutoRecurring()
    heading = plan.reason or "Subscription"
    content = render(
        "subscription.html",
        seller=f"Seller {plan.collector_id}",
        heading=heading,
        total=breakable(money(recurring.currency_id or "", recurring.transaction_amount)),
        often=", ".join(_often(recurring)),
        action=action,
        token=token,
    )
    return framed(heading, content)


def _often(recurring: AutoRecurring) -> Iterator[str]:
    unit, frequency = (recurring.frequency_type or "months").removesuffix("s"), recurring.frequency or 1
    yield f"every {unit}" if frequency == 1 else f"every {frequency} {unit}s"
    if recurring.repetitions:
        yield "once" if recurring.repetitions == 1 else f"{recurring.repetitions} times"
    if trial := recurring.free_trial:
        unit, frequency = (trial.frequency_type or "months").removesuffix("s"), trial.frequency or 1
        yield f"after a free {unit}" if frequency == 1 else f"after {frequency} free {unit}s"


def subscribed(plan: Plan, subscription: Subscription) -> Markup:
    """Return the page that says what it has come to, with the way back to the shop where the plan has one."""
    url = shop_address(plan.back_url)
    ways: list[Way] = [(url, "Back to the shop")] if url else []
    state = _STATES[subscription.status]
    return message("Subscribed", f"The subscription is {subscription.id}. {state} No money moves.", ways)


_STATES = {
    AUTHORIZED: "Its invoices are collected as the sandbox's clock moves on.",
    FINISHED: "It has had all of its invoices.",
    CANCELED: "It has ended.",
}
