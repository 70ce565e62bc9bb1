"""The buyers' pages as HTML that needs no script, and the dashboard, whose scripts are in static files.

They are made from templates. Every value is escaped unless it is markup.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from decimal import Decimal
from functools import cache
from html import escape
from importlib import resources

from paymentsdk.money import total as sum_of
from paymentsdk.resources.plans import AutoRecurring, Plan
from paymentsdk.sandbox._faults import DELIVERY_NAMES, EFFECTS
from paymentsdk.sandbox._pages.checkout_view import CheckoutView, ViewState, method_name, money, shop_address
from paymentsdk.sandbox._records import AUTHORIZED, CANCELED, FINISHED, Subscription

#: The files of this package.
PAGES = resources.files("paymentsdk.sandbox._pages")
#: Seconds that a buyer sees the outcome before the redirect to the shop.
RETURN_SECONDS = 8
#: The value of `attempt` that shows the form again.
AGAIN = "again"
#: A link: its address and its text.
Way = tuple[str, str]


class Markup(str):
    """Text that is already HTML. Only this module's functions and constants in the code make it."""

    __slots__ = ()


_NONE = Markup()


def render(template: str, **values: str) -> Markup:
    """Return the file *template* of ``templates/`` with *values*, escaped for text and quoted attributes.

    Raises:
        KeyError: The template uses a value that is not given.
    """
    safe = {name: value if isinstance(value, Markup) else escape(value) for name, value in values.items()}
    return Markup(_template(template).substitute(safe))


@cache
def _template(name: str) -> string.Template:
    return string.Template((PAGES / "templates" / name).read_text(encoding="utf-8"))


def join(parts: Iterable[Markup]) -> Markup:
    """Return the concatenated *parts*."""
    return Markup("".join(parts))


def _breakable(text: str) -> Markup:
    """Return *text* with a possible line break after each comma, for long amounts."""
    return Markup(escape(text).replace(",", ",<wbr>"))


def _amount(currency: str | None, amount: Decimal | None) -> Markup:
    return _breakable(money(currency, amount))


def _page(title: str, content: Markup, extra: Markup = _NONE) -> Markup:
    """Return a whole page with *content*, and with *extra* in its head."""
    return render("frame.html", title=title, content=content, extra=extra)


def message(title: str, text: str, links: Iterable[Way] = ()) -> Markup:
    """Return a page with a title, a text and links."""
    return _page(title, render("message.html", title=title, text=text, ways=_ways(links)))


def _ways(links: Iterable[Way]) -> Markup:
    return join(
        render("way.html", url=url, words=words, main=_NONE if place else Markup(" main"))
        for place, (url, words) in enumerate(links)
    )


def _options(options: Iterable[tuple[str, str]], chosen: str | None = None) -> Markup:
    """Return the *options* of a list, each a value and its text."""
    return join(
        render("option.html", value=value, words=words, selected=Markup(" selected") if value == chosen else _NONE)
        for value, words in options
    )


@cache
def dashboard() -> Markup:
    """Return the dashboard. Its form for faults offers all effects, with the details that each takes."""
    takers = {
        f"for_{member}": " ".join(name for name, effect in EFFECTS.items() if member in effect.members)
        for effect in EFFECTS.values()
        for member in effect.members
    }
    effects = (
        render("effect.html", value=name, words=effect.words, operation=effect.operation)
        for name, effect in EFFECTS.items()
    )
    topics = _options((name, name) for name in DELIVERY_NAMES)
    return render("dashboard.html", effects=join(effects), topics=topics, **takers)


# --- a checkout --------------------------------------------------------------------------------------------------


def checkout(view: CheckoutView, *, action: str) -> Markup:
    """Return the page with the form: the lines of the sale, the payment methods, and the outcome to simulate."""
    end = view.until and view.until.astimezone(UTC)
    parts = ((str(count), "In one payment" if count == 1 else f"In {count} payments") for count in view.installments)
    differ = any(total != view.total for total in view.methods.values())
    content = render(
        "checkout.html",
        **_common(view),
        until=f"To be paid before {end:%H:%M:%S} UTC on {end:%Y-%m-%d}." if end else "",
        action=action,
        methods=join(_method(view, kind, total) for kind, total in view.methods.items()),
        installments=_options(parts, str(view.installment)),
        pay="Pay" if differ else _breakable(f"Pay {money(view.currency, view.total)}"),
    )
    return _page(view.heading, content)


def _method(view: CheckoutView, kind: str, total: Decimal) -> Markup:
    saved = sum_of([(1, view.total), (-1, total)])
    amounts = {"total": _amount(view.currency, total), "saved": _amount(view.currency, saved)}
    saves = render("saves.html", **amounts) if saved else _NONE
    checked = Markup(" checked") if kind == (view.method or next(iter(view.methods))) else _NONE
    return render("method.html", type=kind, name=method_name(kind), checked=checked, saves=saves)


def outcome(view: CheckoutView, outcome: ViewState, *, here: str) -> Markup:
    """Return the page at *here* that shows the state of the purchase, with links."""
    leaving, extra = "", _NONE
    links = [(f"{here}?attempt={AGAIN}", outcome.again)] if outcome.again else []
    if view.back:
        links.append((view.back, "Back to the shop"))
    if view.back and view.go_back:
        leaving = f" You go back to the shop in {RETURN_SECONDS} seconds."
        extra = render("return.html", seconds=str(RETURN_SECONDS), url=view.back)
        links.append((here, "Stay here"))  # For slow readers.
    words = {"tone": outcome.tone, "word": outcome.word, "text": outcome.text + leaving}
    content = render("outcome.html", **_common(view), **words, ways=_ways(links))
    return _page(f"{outcome.word}: {view.heading}", content, extra)


def _common(view: CheckoutView) -> Mapping[str, str]:
    lines = join(
        render("line.html", what=title, more=_breakable(more), amount=_amount(view.currency, amount))
        for title, more, amount in view.lines
    )
    return {
        "seller": view.seller,
        "heading": view.heading,
        "total": _amount(view.currency, view.total),
        "lines": render("lines.html", lines=lines) if lines else _NONE,
        "facts": join(render("fact.html", name=name, value=_breakable(value)) for name, value in view.facts),
    }


# --- a plan ------------------------------------------------------------------------------------------------------


def offer(plan: Plan, *, action: str) -> Markup:
    """Return the page with the form: the title and the price of a plan."""
    recurring = plan.auto_recurring or AutoRecurring()
    heading = plan.reason or "Subscription"
    content = render(
        "subscription.html",
        seller=f"Seller {plan.collector_id}",
        heading=heading,
        total=_amount(recurring.currency_id, recurring.transaction_amount),
        often=", ".join(_often(recurring)),
        action=action,
    )
    return _page(heading, content)


def _often(recurring: AutoRecurring) -> Iterator[str]:
    unit, frequency = (recurring.frequency_type or "months").removesuffix("s"), recurring.frequency or 1
    yield f"every {unit}" if frequency == 1 else f"every {frequency} {unit}s"
    if recurring.repetitions:
        yield "once" if recurring.repetitions == 1 else f"{recurring.repetitions} times"
    if trial := recurring.free_trial:
        unit, frequency = (trial.frequency_type or "months").removesuffix("s"), trial.frequency or 1
        yield f"after a free {unit}" if frequency == 1 else f"after {frequency} free {unit}s"


_STATES = {
    AUTHORIZED: "Its invoices are collected as the sandbox's clock moves on.",
    FINISHED: "It has had all of its invoices.",
    CANCELED: "It has ended.",
}


def subscribed(plan: Plan, subscription: Subscription) -> Markup:
    """Return the page of a subscription, with a link to the shop if the plan has one."""
    url = shop_address(plan.back_url)
    text = f"The subscription is {subscription.id}. {_STATES[subscription.status]} No money moves."
    return message("Subscribed", text, [(url, "Back to the shop")] if url else [])
