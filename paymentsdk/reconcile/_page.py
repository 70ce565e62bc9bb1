"""The differences for people: a CSV file for spreadsheets, and a page that loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from html import escape
from itertools import islice

from paymentsdk.reconcile._outcome import Difference, Outcome

#: Differences of each kind on the page.
_MOST = 1_000
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bad: #b3261e; --good: #1b7f3b }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #7bd88f } }
* { box-sizing: border-box }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem }
h1 { font-size: 1.5rem; margin: .5rem 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem } p { margin: .25rem 0 .75rem }
.verdict { border-left: .3rem solid var(--bad); padding: .4rem .8rem; background: var(--soft) }
.verdict.good { border-color: var(--good) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
th { font-size: .85rem; font-weight: 600 } td { overflow-wrap: anywhere }
td.number { text-align: right; white-space: nowrap }
b { color: var(--bad) } small { opacity: .75 } time { white-space: nowrap }
@media (max-width: 40rem) {
  .rows thead { display: none }
  .rows tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0 }
  .rows td { display: grid; grid-template-columns: 6.5rem 1fr; border: 0; padding: .1rem 0 }
  .rows td::before { content: attr(data-name); font-size: .85rem; opacity: .75 }
  .rows td:empty { display: none }
}
"""


_HEADINGS = {
    Outcome.PAID_AMOUNT: "Another amount was paid",
    Outcome.REFUNDED_AMOUNT: "Another amount was refunded",
    Outcome.TOTAL_AMOUNT: "Another total",
    Outcome.CURRENCY: "Another currency",
    Outcome.STATUS: "Another status",
    Outcome.DOUBLE: "Paid more often than in the book",
    Outcome.MISSING: "The platform has no such order",
    Outcome.NOT_PAID_OR_MISSING: "Not paid, or missing",
    Outcome.EXTRA: "Not in the book",
    Outcome.TOO_RECENT: "Too recent to tell",
    Outcome.UNKNOWN: "A write is open in the journal",
    Outcome.TOO_OLD: "Too old for the search, and without an id",
    Outcome.NOT_WHOLE: "Not found where not all orders could be seen",
}


def csv_fields(difference: Difference) -> list[object]:
    """Return a line of a CSV file. A text that a spreadsheet would take for a formula begins with `'`."""
    return [_field(getattr(difference, name)) for name in Difference.__struct_fields__]


def page(
    *,
    title: str,
    is_good: bool,
    facts: Sequence[tuple[str, str]],
    counts: Counter[Outcome],
    notes: Sequence[tuple[str, Sequence[str]]],
    differences: Callable[[Outcome], Iterable[Difference]],
) -> Iterator[str]:
    """Yield a page: *facts* and *counts* first, then *notes*, and up to 1,000 differences of each outcome.

    Args:
        title: What it is about.
        is_good: Whether there is nothing to look at.
        facts: Names and values.
        counts: How many orders have each outcome.
        notes: Headings and lines.
        differences: Returns those of an outcome.
    """
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>"
    wrong = sum(number for outcome, number in counts.items() if outcome.is_difference)
    words = f"{wrong:,} of {counts.total():,} orders need a look." if wrong else "Nothing differs."
    if not wrong and not is_good:
        words += " Not all orders could be seen."
    yield f'<p class="verdict{" good" if is_good else ""}">{words}</p>\n<table><tbody>'
    yield from (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    yield "</tbody></table>\n<h2>Outcomes</h2><table><tbody>"
    for outcome, number in counts.most_common():
        link = f'<a href="#{outcome.value}">{_HEADINGS[outcome]}</a>' if outcome in _HEADINGS else "Both say the same"
        yield f'<tr><td>{link}</td><td class="number">{number:,}</td></tr>'
    yield "</tbody></table>\n"
    for heading, lines in notes:
        yield f"<h2>{escape(heading)}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>\n"
    for outcome, heading in _HEADINGS.items():
        if not counts[outcome]:
            continue
        yield f'<h2 id="{outcome.value}">{heading} <small>{counts[outcome]:,}</small></h2>'
        yield '<table class="rows"><thead><tr><th>Order</th><th>Book</th><th>Platform</th></tr></thead><tbody>\n'
        yield from map(_row, islice(differences(outcome), _MOST))
        yield "</tbody></table>\n"
        if counts[outcome] > _MOST:
            yield f"<p>The first {_MOST:,} of {counts[outcome]:,}; all are in differences.parquet.</p>"
    yield "</body></html>\n"


def _row(one: Difference) -> str:
    names = dict.fromkeys((one.account, one.order_id, one.merchant_order_ids))
    reference = escape(one.reference) if one.reference else "<i>no reference</i>"
    order = reference + "".join(f"<br><small>{escape(name)}</small>" for name in names if name)
    cells = (("Order", order), ("Book", _side(one, "book_")), ("Platform", _side(one, "")))
    return "<tr>" + "".join(f'<td data-name="{name}"><span>{cell}</span></td>' for name, cell in cells) + "</tr>\n"


#: What a side says, in words, and the outcome that is about it.
_WORDS = {
    "paid": ("paid {}", (Outcome.PAID_AMOUNT, Outcome.DOUBLE)),
    "refunded": ("refunded {}", (Outcome.REFUNDED_AMOUNT,)),
    "total": ("total {}", (Outcome.TOTAL_AMOUNT,)),
    "currency": ("{}", (Outcome.CURRENCY,)),
    "status": ("{}", (Outcome.STATUS,)),
    "created": ("<small><time>{}</time></small>", ()),
}


def _side(one: Difference, side: str) -> str:
    """Return what a side says; what differs stands out."""
    said = []
    for name, (words, outcomes) in _WORDS.items():
        value = getattr(one, side + name)
        if value is not None:
            text = words.format(escape(_words(value)))
            said.append(f"<b>{text}</b>" if one.outcome in outcomes else text)
    return ", ".join(said)


def _words(value: object) -> str:
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return str(value)


def _field(value: object) -> object:
    match value:
        case Decimal():
            return _words(value)
        case datetime():
            return value.isoformat()
        case Outcome():
            return value.value
        case str() if value.startswith(_FORMULA):
            return f"'{value}"
    return value
