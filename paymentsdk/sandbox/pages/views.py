"""The pages of a buyer, as HTML that needs no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paymentsdk.sandbox.pages.markup import Markup, join, render
from paymentsdk.sandbox.pages.sale import Line, Method, Outcome, Sale, money

__all__ = ["Way", "checkout", "message", "outcome"]

_NONE = Markup()
#: Seconds that a buyer has to read the outcome before they are taken back, where the shop asked for that.
RETURN_SECONDS = 8

#: A link: where to, and its words.
Way = tuple[str, str]


def checkout(sale: Sale, *, action: str, token: str) -> Markup:
    """Return the page with the form: what is sold, the ways to pay, and how it is to come out."""
    until = "" if sale.until is None else f"To be paid before {sale.until:%H:%M:%S} UTC on {sale.until:%Y-%m-%d}."
    differ = any(method.total != sale.total for method in sale.methods)
    content = render(
        "checkout.html",
        **_common(sale),
        until=until,
        action=action,
        token=token,
        methods=join(_method(sale, method) for method in sale.methods),
        installments=join(_option(number, chosen=number == sale.installment) for number in sale.installments),
        pay="Pay" if differ else f"Pay {money(sale.currency, sale.total)}",
    )
    return _framed(sale.heading, content)


def _method(sale: Sale, method: Method) -> Markup:
    saved = sale.total - method.total
    totals = (money(sale.currency, method.total), money(sale.currency, saved))
    saves = render("saves.html", total=totals[0], saved=totals[1]) if saved else _NONE
    chosen = sale.method or sale.methods[0].type
    return render("method.html", type=method.type, name=method.name, checked=_flag("checked", method.type == chosen), saves=saves)


def _option(number: int, *, chosen: bool) -> Markup:
    words = "In one payment" if number == 1 else f"In {number} payments"
    return render("option.html", value=str(number), words=words, selected=_flag("selected", chosen))


def _flag(name: str, on: bool) -> Markup:
    return Markup(f" {name}") if on else _NONE


def outcome(sale: Sale, outcome: Outcome, ways: Iterable[Way], *, return_to: str | None = None) -> Markup:
    """Return the page that says what it has come to, with the *ways* on from there."""
    content = render(
        "outcome.html",
        **_common(sale),
        tone=outcome.tone,
        word=outcome.word,
        text=outcome.text,
        ways=_ways(ways),
    )
    return _framed(f"{outcome.word}: {sale.heading}", content, return_to=return_to)


def message(title: str, text: str, ways: Iterable[Way] = ()) -> Markup:
    """Return a page that says one thing."""
    return _framed(title, render("message.html", title=title, text=text, ways=_ways(ways)))


def _common(sale: Sale) -> Mapping[str, str]:
    return {
        "seller": sale.seller,
        "heading": sale.heading,
        "total": money(sale.currency, sale.total),
        "lines": render("lines.html", lines=join(_line(sale, line) for line in sale.lines)) if sale.lines else _NONE,
        "facts": join(render("fact.html", name=name, value=value) for name, value in sale.facts),
    }


def _line(sale: Sale, line: Line) -> Markup:
    return render("line.html", what=line.what, more=line.more, amount=money(sale.currency, line.amount))


def _ways(ways: Iterable[Way]) -> Markup:
    return join(
        render("way.html", url=url, words=words, main=Markup(" main") if first else _NONE)
        for first, (url, words) in zip((True, *[False] * 9), ways, strict=False)
    )


def _framed(title: str, content: Markup, *, return_to: str | None = None) -> Markup:
    again = _NONE if return_to is None else render("return.html", seconds=str(RETURN_SECONDS), url=return_to)
    return render("frame.html", title=title, content=content, extra=again)
