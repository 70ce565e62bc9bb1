"""Writes the page about the contract: the platform's promises, section by section, and the open points."""

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
The contract is the platform's promises to its clients; this page summarizes it. Docstrings and other pages name its
sections: "(4.10)" is "Create an order" below. [Operations](operations.md) describes the parameters, request and
response of each operation. [What the contract leaves open](../explanation/choices.md) lists the points that the
contract does not decide, with the behavior of the client."""

SECTIONS = """\
Requests and responses are JSON over HTTPS. Paths are relative to the base URL. Timestamps are ISO 8601 strings."""

AUTHENTICATION = f"""\
Every operation except `oauth.token` needs an access token in the header `Authorization: Bearer ...`. The platform
rejects a token in the query. The token identifies the seller, so paths do not name the seller. A token that begins with
`APP_USR` acts for a seller. A token that begins with `TEST` works only in the platform's own sandbox.

A seller authorizes an application, and the application gets an authorization code. The application exchanges the code
for an access token and a refresh token within 10 minutes (4.1). The access token is valid for
{DEFAULT_LIFETIME // 86_400} days; then refresh it. The scopes are `offline_access`, `read` and `write`. A
`marketplace_fee` needs a token from this exchange.

The contract does not define the page where the seller authorizes the application, or its address. See
[tokens](../how-to/tokens.md)."""

IDEMPOTENCY = f"""\
A keyed write has an idempotency key in the header `X-Idempotency-Key`. The keyed writes are `wallet_payments.create`,
`orders.create`, `orders.cancel` and `orders.refund`. For 24 hours, a request with the same key and body returns the
first response. A request with the same key and another body is a 409 `idempotency_key_already_used`. The client stops
sending a key after {KEY_LIFETIME / 3600:g} hours. The contract gives no length for a key; the client accepts 1 to 64
visible ASCII characters.

`preferences.create` and `customers.create` take no key. A second request creates a second preference. The platform
rejects a second customer with the same email (code 101). See [Retry safely](../how-to/retry-safely.md)."""

PAGINATION = """\
A search takes `offset` and `limit`, and returns one page. The contract does not name these parameters for plans.
`invoices.search` and `plans.search` return the rows as `results`, and `offset`, `limit` and `total` as `paging`.
`merchant_orders.search` returns `elements`, `total` and `next_offset`, and only orders of the last 90 days.

The contract has no cursor. It does not give the default page size, the largest page size or the order of rows. It does
not say how new rows change the pages. See
[How pagination loses no rows](../explanation/how-paging-does-not-lose-rows.md)."""

STATES_OF_AN_ORDER = [
    ["", "`orders.create`", "`created`", "Its payment is `created`, with the detail `ready_to_process`."],
    ["`created`", "A payment is rejected", "`created`", "The order does not show the rejected payment."],
    ["`created`", "A payment is approved", "`processed`", "The detail is `accredited`."],
    ["`created`", "`orders.cancel`", "`canceled`", "The contract does not say whether other states can be canceled."],
    ["`created`", "`expiration_time` is over", "`expired`", "Every order expires; the exact moment is left open."],
    ["`processed`", "`orders.refund`, whole", "`refunded`", "The refund appears in `transactions.refunds`."],
    [
        "`processed`",
        "`orders.refund`, partial refund",
        "`refunded`",
        "The detail may be `partially_refunded`. Real traffic may leave the status at `processed`.",
    ],
]

OTHER_STATES = """\
The contract lists only the [values](#values) for payments, refunds, invoices, merchant orders and plans. It does not
define the changes between them. The client expects no particular sequence; the sandbox chooses a sequence. Tokens have
no state."""

ABOUT_VALUES = """\
A new value may appear at any time. The client keeps it as it comes; it differs from all named values. See
`paymentsdk.resources.common.OpenEnum`."""

WEBHOOKS = """\
The platform announces changes by webhook on the topic `orders`. The application subscribes in the platform's settings.
Preferences take a `notification_url`; orders do not. The contract does not define the payload, the signature, the
repetition or the order of notifications. So you declare the signature, and use a notification as a hint to read the
order (`orders.get`). Trust only the response. See [Webhooks](../how-to/webhooks.md)."""

AMOUNTS = f"""\
An amount has two decimals or none, and at most {MOST_DIGITS} digits before the point. The client never rounds. The
operations on orders write an amount as a string (`"24.90"`), all others as a number (`24.90`). The client checks every
amount, the sum of an order, and limits such as "not above the total" before it sends anything. Only the platform knows
the refundable balance of a payment."""

ERRORS = """\
[Errors and codes](errors.md#documented-codes) lists every code with its status. The contract does not define the shape
of an error response. The client reads all known shapes."""

RATES = """\
The contract names no rate limit and no status code 429. The client handles a 429 anyway: it waits for `Retry-After`,
and holds the seller's other calls. See [Stay below a rate limit](../how-to/stay-below-a-rate-limit.md)."""

NOT_THERE = [
    ["Capture of a wallet payment", "`capture=false` reserves the amount; no operation captures it."],
    ["Get or search orders by reference", "Get an order by its id. You can search paid orders as merchant orders."],
    ["Get a preference, a customer or a wallet payment", "Keep the response to the write."],
    ["Create a plan or a subscription", "Sellers do it on the platform's pages, tests in the sandbox's control API."],
    ["Chargebacks and disputes", "They appear as the status of an invoice's payment (`charged_back`, `in_mediation`)."],
    ["A report of settlements", "`release_reports.disable_schedule` stops the reports. No operation fetches a report."],
    ["Versions", "Only `/v1/` in a path: no negotiation, no dates of deprecation."],
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
        "Limits of time and number:",
        table(["Limit", "Value"], limits()),
        "### Amounts",
        AMOUNTS,
        table(["Operation", "Field", "Limit", ""], amounts()),
        "### Other fields of requests",
        "The client checks each field before it sends anything:",
        table(["Operation", "Field", "Limit"], bounds()),
        "## States of an order",
        table(["From", "On", "To", ""], STATES_OF_AN_ORDER),
        OTHER_STATES,
        "## Values",
        ABOUT_VALUES,
        table(["Type", "Meaning", "Values"], values()),
        "## Status codes and errors",
        ERRORS,
        "## Webhooks",
        WEBHOOKS,
        "## Rate limits",
        RATES,
        "## What the API does not offer",
        table(["Wanted", "Instead"], NOT_THERE),
    ])  # fmt: skip


def limits() -> Iterator[list[str]]:
    """Yield the limits that do not belong to a member of a body."""
    yield ["Authorization code", "10 minutes, once"]
    yield ["Access token", f"{DEFAULT_LIFETIME // 86_400} days ({DEFAULT_LIFETIME:,} seconds)"]
    yield ["Idempotency key", "24 hours; no given length (the client accepts 1 to 64 visible ASCII characters)"]
    expiration = (
        f"{spoken(SHORTEST_EXPIRATION)} to {spoken(LONGEST_EXPIRATION)}. The contract gives two maxima for the "
        "`expiration_time` of `orders.create`, one for each of two variants: this maximum and `PT3H` "
        "(3 hours). The client accepts the longer maximum."
    )
    yield ["Expiration of an order", expiration]
    yield ["... by default", spoken(DEFAULT_EXPIRATION)]
    yield ["Payments of an order", "1"]
    yield ["Search of merchant orders", "the last 90 days"]
    yield ["Cards of a customer", "a limit exists (code 129); the contract does not give its value"]


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
