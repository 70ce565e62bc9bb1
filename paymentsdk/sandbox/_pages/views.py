"""The pages of a buyer, as HTML that needs no script, and the dashboard, whose scripts are beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from functools import cache

from paymentsdk.money import total as sum_of
from paymentsdk.sandbox._faults import EFFECTS
from paymentsdk.sandbox._pages.markup import Markup, breakable, join, render
from paymentsdk.sandbox._pages.sale import Line, Method, Outcome, Sale, money

_NONE = Markup()
_CHECKED = Markup(" checked")
_SELECTED = Markup(" selected")
_MAIN = Markup(" main")
#: Seconds that a buyer has to read the outcome before they are taken back, where the shop asked for that.
RETURN_SECONDS = 8

#: A link: where to, and its words.
Way = tuple[str, str]


@cache
def dashboard() -> Markup:
    """Return the page of those who watch; its form offers the faults that there are, and asks for what each takes."""
    options = (
        render("option.html", value=name, words=effect.words, selected=_NONE) for name, effect in EFFECTS.items()
    )
    takers = {
        f"for_{member}": " ".join(name for name, effect in EFFECTS.items() if member in effect.members)
        for effect in EFFECTS.values()
        for member in effect.members
    }
    return render("dashboard.html", effects=join(options), **takers)


def checkout(sale: Sale, *, action: str, token: str) -> Markup:
    """Return the page with the form: what is sold, the ways to pay, and how it is to come out."""
    end = sale.until and sale.until.astimezone(UTC)
    until = "" if end is None else f"To be paid before {end:%H:%M:%S} UTC on {end:%Y-%m-%d}."
    differ = any(method.total != sale.total for method in sale.methods)
    content = render(
        "checkout.html",
        **_common(sale),
        until=until,
        action=action,
        token=token,
        methods=join(_method(sale, method) for method in sale.methods),
        installments=join(_option(number, chosen=number == sale.installment) for number in sale.installments),
        pay="Pay" if differ else breakable(f"Pay {money(sale.currency, sale.total)}"),
    )
    return framed(sale.heading, content)


def _method(sale: Sale, method: Method) -> Markup:
    saved = sum_of([(1, sale.total), (-1, method.total)])
    total, less = (breakable(money(sale.currency, amount)) for amount in (method.total, saved))
    saves = render("saves.html", total=total, saved=less) if saved else _NONE
    checked = _CHECKED if method.type == (sale.method or sale.methods[0].type) else _NONE
    return render("method.html", type=method.type, name=method.name, checked=checked, saves=saves)


def _option(number: int, *, chosen: bool) -> Markup:
    words = "In one payment" if number == 1 else f"In {number} payments"
    return render("option.html", value=str(number), words=words, selected=_SELECTED if chosen else _NONE)


def outcome(sale: Sale, outcome: Outcome, ways: Iterable[Way], *, go_back: bool = False) -> Markup:
    """Return the page that says what it has come to, with the *ways* on from there.

    With *go_back* it goes on to the shop by itself, and says so.
    """
    leaving = f" You go back to the shop in {RETURN_SECONDS} seconds." if go_back else ""
    content = render(
        "outcome.html",
        **_common(sale),
        tone=outcome.tone,
        word=outcome.word,
        text=outcome.text + leaving,
        ways=_ways(ways),
    )
    return framed(f"{outcome.word}: {sale.heading}", content, then=sale.back if go_back else None)


def message(title: str, text: str, ways: Iterable[Way] = ()) -> Markup:
    """Return a page that says one thing."""
    return framed(title, render("message.html", title=title, text=text, ways=_ways(ways)))


def _common(sale: Sale) -> Mapping[str, str]:
    return {
        "seller": sale.seller,
        "heading": sale.heading,
        "total": breakable(money(sale.currency, sale.total)),
        "lines": render("lines.html", lines=join(_line(sale, line) for line in sale.lines)) if sale.lines else _NONE,
        "facts": join(render("fact.html", name=name, value=breakable(value)) for name, value in sale.facts),
    }


def _line(sale: Sale, line: Line) -> Markup:
    amount = breakable(money(sale.currency, line.amount))
    return render("line.html", what=line.what, more=breakable(line.more), amount=amount)


def _ways(ways: Iterable[Way]) -> Markup:
    return join(
        render("way.html", url=url, words=words, main=_NONE if place else _MAIN)
        for place, (url, words) in enumerate(ways)
    )


def framed(title: str, content: Markup, *, then: str | None = None) -> Markup:
    """Return a whole page around *content*; *then* is where it goes on to by itself."""
    extra = _NONE if then is None else render("return.html", seconds=str(RETURN_SECONDS), url=then)
    return render("frame.html", title=title, content=content, extra=extra)
