"""Writes the page about the contract: what the platform promises, section by section, and what it leaves open."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from datetime import timedelta

from docs.describe import code, members, names_of, opening, table
from paymentsdk import OPERATIONS, resources
from paymentsdk._contract.rules import KEY_LIFETIME
from paymentsdk.money import MOST_DIGITS
from paymentsdk.resources.common import OpenEnum
from paymentsdk.resources.oauth import DEFAULT_LIFETIME
from paymentsdk.resources.orders import DEFAULT_EXPIRATION, LONGEST_EXPIRATION, SHORTEST_EXPIRATION

ABOUT = """\
What the platform promises to its clients, in short. Docstrings and other pages name its sections: "(4.10)" is
"Create an order" below. Each operation has its parameters, its request, its response and its error codes on the page of
[operations](operations.md). What the contract does not say is listed under
[What the contract leaves open](../explanation/choices.md), with what the client does."""

SECTIONS = """\
Requests and responses are JSON over HTTPS. Paths are relative to the base URL. Timestamps are ISO 8601 strings."""

AUTHENTICATION = f"""\
Every operation but `oauth.token` needs an access token, in the header `Authorization: Bearer ...`; a token in the query
is rejected. The token names the seller, so no path does. A token that begins with `APP_USR` acts for a seller, one that
begins with `TEST` works in the platform's own sandbox only.

A seller authorizes an application, which gets an authorization code. The code is exchanged for an access token and a
refresh token within 10 minutes (4.1). The access token lives {DEFAULT_LIFETIME // 86_400} days, and is then refreshed.
The scopes are `offline_access`, `read` and `write`. A `marketplace_fee` needs a token that was obtained in this way.

How the seller is asked, and at which address, is not part of the contract. To do it: [tokens](../how-to/tokens.md)."""

IDEMPOTENCY = f"""\
A keyed write carries an idempotency key in the header `X-Idempotency-Key`: `wallet_payments.create`, `orders.create`,
`orders.cancel` and `orders.refund`. For 24 hours the platform responds to a repetition with the same key and the same
body with the first response; the same key with another body is a 409 `idempotency_key_already_used`. The client stops
sending a key after {KEY_LIFETIME / 3600:g} hours. The contract gives no length for a key; the client takes 1 to 64
visible ASCII characters. `preferences.create` and `customers.create` take no key: a second request creates a second
preference, and a second customer of one email is rejected (code 101). See
[Retry safely](../how-to/retry-safely.md)."""

PAGINATION = """\
A search takes `offset` and `limit`, and returns one page; for plans the contract does not name the two.
`invoices.search` and `plans.search` return the rows as `results`, and `offset`, `limit` and `total` as `paging`.
`merchant_orders.search` returns `elements`, `total` and `next_offset`, and only orders of the last 90 days. There is no
cursor, the default and the largest page size are not given, and the contract says neither in which order rows come nor
what happens to a page when rows are added. See
[How pagination loses no rows](../explanation/how-paging-does-not-lose-rows.md)."""

STATES_OF_AN_ORDER = [
    ["", "`orders.create`", "`created`", "Its payment is `created`, with the detail `ready_to_process`."],
    ["`created`", "A payment is rejected", "`created`", "The order does not show the rejected payment."],
    ["`created`", "A payment is approved", "`processed`", "The detail is `accredited`."],
    ["`created`", "`orders.cancel`", "`canceled`", "Whether other states can be canceled is left open."],
    ["`created`", "`expiration_time` is over", "`expired`", "Every order expires; when exactly is left open."],
    ["`processed`", "`orders.refund`, whole", "`refunded`", "The refund appears in `transactions.refunds`."],
    [
        "`processed`",
        "`orders.refund`, partial refund",
        "`refunded`",
        "The detail may be `partially_refunded`. Real traffic may leave the status at `processed`.",
    ],
]

OTHER_STATES = """\
Of payments, refunds, invoices, merchant orders and plans the contract lists the [values](#values) alone, not what leads
from one to another. The client expects no particular sequence; the sandbox has one of its own. Tokens have no state."""

ABOUT_VALUES = """\
A new value may appear at any time. It is kept as it came, and is equal to none of the named ones
(see `paymentsdk.resources.common.OpenEnum`)."""

WEBHOOKS = """\
The platform announces changes by webhook, on the topic `orders`: the application subscribes to it in the platform's own
settings. Orders take no `notification_url`; preferences do. The contract says nothing of the payload, the signature,
the repetition or the order of notifications. So you declare the signature, take a notification as a hint to read
the order (`orders.get`), and believe the response: see [Webhooks](../how-to/webhooks.md)."""

AMOUNTS = f"""\
An amount has two decimals or none, and at most {MOST_DIGITS} digits before the point; nothing is rounded. The
operations on orders write it as a string (`"24.90"`), all others as a number (`24.90`). Before anything is sent, each
is checked, and so are the sum of an order and what may not be above a total. What is left of a payment, only the
platform knows."""

ERRORS = """\
Every code, by status: [Errors and codes](errors.md#documented-codes). The shape of an error response is not given; the
client reads all that are known."""

RATES = """\
The contract names no rate limit, and no status code 429. The client handles one all the same: it waits for
`Retry-After`, and holds the seller's other calls.
See [Stay below a rate limit](../how-to/stay-below-a-rate-limit.md)."""

NOT_THERE = [
    ["Capture of a wallet payment", "`capture=false` reserves the amount; no operation captures it."],
    ["Get or search orders by reference", "Orders are found by their id alone; paid ones also as merchant orders."],
    ["Get a preference, a customer or a wallet payment", "The response to the write is all there is."],
    ["Create a plan or a subscription", "Sellers do it on the platform's pages; the sandbox has its own way."],
    ["Chargebacks and disputes", "They show as a status of an invoice's payment (`charged_back`, `in_mediation`)."],
    ["A report of settlements", "`release_reports.disable_schedule` stops them; nothing fetches one."],
    ["Versions", "`/v1/` in a path is all; no negotiation, no dates of deprecation."],
]


def contract() -> str:
    """Write the page."""
    sections = (
        [
            operation.section,
            f"[{code(name)}](operations.md#{name.replace('.', '')})",
            code(f"{operation.method} {operation.path}"),
            operation.summary,
        ]
        for name, operation in sorted(
            OPERATIONS.items(), key=lambda item: [int(part) for part in item[1].section.split(".")]
        )
    )
    return "\n\n".join([
        "# The contract",
        ABOUT,
        "## Sections",
        SECTIONS,
        table(["Section", "Operation", "Request", ""], sections),
        "## Authentication",
        AUTHENTICATION,
        "## Idempotency keys",
        IDEMPOTENCY,
        "## Pagination",
        PAGINATION,
        "## Limits",
        "Of time and number:",
        table(["Limit", "Value"], limits()),
        "### Amounts",
        AMOUNTS,
        table(["Operation", "Field", "Limit", ""], amounts()),
        "### Other fields of requests",
        "Each is checked before anything is sent:",
        table(["Operation", "Field", "Limit"], bounds()),
        "## States of an order",
        table(["From", "On", "To", ""], STATES_OF_AN_ORDER),
        OTHER_STATES,
        "## Values",
        ABOUT_VALUES,
        table(["Type", "What it is", "Values"], values()),
        "## Status codes and errors",
        ERRORS,
        "## Webhooks",
        WEBHOOKS,
        "## Rate limits",
        RATES,
        "## What there is no operation for",
        table(["Wanted", "What there is"], NOT_THERE),
    ])  # fmt: skip


def limits() -> Iterator[list[str]]:
    """Yield the limits that no member has."""
    yield ["Authorization code", "10 minutes, once"]
    yield ["Access token", f"{DEFAULT_LIFETIME // 86_400} days ({DEFAULT_LIFETIME:,} seconds)"]
    yield ["Idempotency key", "24 hours; no length is given (the client takes 1 to 64 visible ASCII characters)"]
    expiration = (
        f"{spoken(SHORTEST_EXPIRATION)} to {spoken(LONGEST_EXPIRATION)}. The contract gives two maxima for the "
        "`expiration_time` of `orders.create`, one in each of two variants: this one, and `PT3H` (3 hours). "
        "The client takes the longer one."
    )
    yield ["Expiration of an order", expiration]
    yield ["... by default", spoken(DEFAULT_EXPIRATION)]
    yield ["Payments of an order", "1"]
    yield ["Search of merchant orders", "the last 90 days"]
    yield ["Cards of a customer", "there is a limit (code 129), whose value the contract does not give"]


def spoken(time: timedelta) -> str:
    """Return a duration in its largest whole unit."""
    seconds = int(time.total_seconds())
    units = ((3600, "hours"), (60, "minutes"), (1, "seconds"))
    return next(f"{seconds // size:,} {name}" for size, name in units if seconds % size == 0)


def amounts() -> Iterator[list[str]]:
    """Yield the amounts in request bodies."""
    for name, operation in OPERATIONS.items():
        for member, kind, _, meaning in members(operation.body) if operation.body else ():
            if kind.startswith("amount"):
                yield [code(name), member, kind.removeprefix("amount").strip() or "0 or more", meaning]


def bounds() -> Iterator[list[str]]:
    """Yield the other members of request bodies that have a length, a range or a pattern."""
    for name, operation in OPERATIONS.items():
        for member, kind, *_ in members(operation.body) if operation.body else ():
            if "," in kind and not kind.startswith("`"):
                yield [code(name), member, kind]


def values() -> Iterator[list[str]]:
    """Yield the enums of all resources."""
    for info in pkgutil.iter_modules(resources.__path__, f"{resources.__name__}."):
        module = importlib.import_module(info.name)
        for name in names_of(module):
            cls = getattr(module, name)
            if inspect.isclass(cls) and issubclass(cls, OpenEnum) and len(cls):
                yield [code(name), opening(cls.__doc__), ", ".join(code(member.value) for member in cls)]
