"""Writes the page about the way from 0.1 to 0.2: what became of each name that is not public where it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from docs.api import public_modules
from docs.describe import code, names_of, table

#: The public names of 0.1.
BEFORE = Path(__file__).with_name("public_names_0.1.txt")
#: Names that became others, and are not found by their last part.
RENAMED = {
    "paymentsdk.Attempt": "paymentsdk.events.AttemptEnded",
    "paymentsdk.resources.common.AnswerStruct": "paymentsdk.resources.common.ResponseStruct",
    "paymentsdk.resources.common.ByName": "every request and response takes its fields by name",
    **{
        f"paymentsdk.resources.oauth.{name}": "gone: see `Token.access_token` for what to split it into"
        for name in ("AccessTokenKind", "AccessTokenParts", "parse_access_token")
    },
    "paymentsdk.sandbox.Happening": "paymentsdk.sandbox.ClockEvent",
    "paymentsdk.sandbox.Refused": "paymentsdk.sandbox.Rejected",
    "paymentsdk.sandbox.SandboxClock": "paymentsdk.sandbox.Clock",
    "paymentsdk.sandbox.SandboxThread": "`Sandbox.in_thread()`",
    "paymentsdk.sandbox.book.Call": "paymentsdk.sandbox.ParsedRequest",
    "paymentsdk.transports.pyreqwest.PyreqwestTransport": "paymentsdk.Http11Transport",
}

ABOUT = """\
0.2 makes each object public in one place, and renames private words into the field's. Most programs change an import
or two; a type checker finds every one. What 0.2 adds is in the [changelog](../changelog.md).

## Look at these first

- **Plain `http` to another machine is rejected**: pass `allow_http=True`, or set `PAYMENTSDK_ALLOW_HTTP=1`, where you
  mean it. This machine is always allowed.
- **A walk that ends early raises `Incomplete`** with a `resume_point`; in 0.1 it ended as if it were whole.
- **`RefreshFailed` is new**: a token that could not be refreshed for now. `ReauthorizationRequired` is left for a grant
  that is spent. Catch `RefreshFailed` and try again.
- **A 4xx that does not settle a write in doubt is an `OutcomeUnknown`**, where 0.1 raised an `APIError`:
  `APIError.settled` tells whether the write has certainly not taken effect.
- **`observer=` is `observers=`**, a list of functions that get typed events (`paymentsdk.events`). 0.3 takes
  `observer=` no longer.
- **`search(limit=, offset=)` is `search(page_size=, start=)`**. `limit` was the size of a page; it now raises
  `RequestInvalid`. `--limit N` of the command line is another thing: at most N rows in all.
- **Structs take their fields by name only**: `Party(1)` is a `TypeError`. By position, an amount could become a
  reference.
- **The policy `refund_answer` of the sandbox is `refund_response`.** In what its control API lists of a request,
  `answer` is `response`.
- **A status in a response is a union with `str`** for type checkers: a `match` over it needs a last case.

## Names

What was public in 0.1 under another path:"""

#: What is where it was, and is asked for in another way.
CHANGED = {
    "paymentsdk.events.Attempt": "`paymentsdk.events.AttemptEnded`, with more fields; 0.2 has both names",
    "paymentsdk.client.ClientOptions.observer": "`observers`; 0.2 has both",
    "paymentsdk.client.ClientOptions.max_order_expiration": "nothing: the platform rejects a longer expiration",
    **{
        f"paymentsdk.resources.{search}.{old}": f"`{new}`"
        for search in ("invoices.InvoiceSearch", "plans.PlanSearch", "merchant_orders.MerchantOrderSearch")
        for old, new in (("limit", "page_size"), ("offset", "start"))
    },
}

ABOUT_PRIVATE = """\
## Names that are private now

They were parts of the sandbox and of the command line that no program needs. What they did is done through `Sandbox`,
its `buyer`, `clock` and `faults`, and the [control API](../reference/control-api.md). If you used one of them, say what
for: a public way is missing."""


def upgrade() -> str:
    """Write the page."""
    now = {f"{module.__name__}.{name}" for module in public_modules() for name in names_of(module)}
    gone = [name for name in BEFORE.read_text(encoding="utf-8").split() if name not in now]
    moved = {name: new for name in gone if (new := moved_to(name, now))}
    rows = ([code(name), code(new) if new in now else new] for name, new in moved.items())
    return "\n\n".join([
        "# Upgrade from 0.1 to 0.2",
        ABOUT,
        table(["0.1", "0.2"], rows),
        "## Arguments and fields",
        table(["0.1", "0.2"], ([code(name), new] for name, new in CHANGED.items())),
        ABOUT_PRIVATE,
        table(["Module of 0.1", "Names"], private(name for name in gone if name not in moved)),
    ])  # fmt: skip


def moved_to(name: str, now: set[str]) -> str | None:
    """Return where a name is now: in a package above the module that it was in, or under another name."""
    module, _, last = name.rpartition(".")
    found = (f"{module.rsplit('.', parts)[0]}.{last}" for parts in range(module.count(".") + 1))
    return next((RENAMED.get(one, one) for one in found if one in RENAMED or one in now), None)


def private(names: Iterator[str]) -> Iterator[list[str]]:
    """Yield the names of each module."""
    for module, inside in groupby(names, lambda name: name.rpartition(".")[0]):
        yield [code(module), ", ".join(code(name.rpartition(".")[2]) for name in inside)]
