"""Writes the page about the upgrade from 0.1 to 0.2, with all names that moved, changed or became private."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from docs.api import public_modules
from docs.describe import code, names_of, table

#: The public names of 0.1.
BEFORE = Path(__file__).with_name("public_names_0.1.txt")
#: Changed names that cannot be found by their last part.
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
Most programs change an import or two; a type checker finds every one. The [changelog](../changelog.md) lists what 0.2
adds.

## Check these first

- **Plain `http` to another machine is rejected.** To allow it, pass `allow_http=True` or set `PAYMENTSDK_ALLOW_HTTP=1`.
- **A walk that ends early raises `Incomplete`** with a `resume_point`. In 0.1 it ended silently.
- **`RefreshFailed` is new**: the token could not be refreshed for now, so retry. `ReauthorizationRequired` now means
  only a spent grant.
- **A 4xx that leaves a write in doubt raises `OutcomeUnknown`**, not `APIError`. `APIError.settled` says whether the
  write certainly did not take effect.
- **`observer=` became `observers=`**, a list of functions that receive typed events (`paymentsdk.events`). 0.3 removes
  `observer=`.
- **`search(limit=, offset=)` became `search(page_size=, start=)`**; `limit` raises `RequestInvalid`. On the command
  line, `--limit N` means at most N rows in all.
- **Structs take their fields by name only**: `Party(1)` raises `TypeError`.
- **The sandbox policy `refund_answer` became `refund_response`**, and `answer` in the control API's request list became
  `response`.
- **A status in a response is a union with `str`** for type checkers: a `match` over it needs a last case.

## Names

These names moved to another module:"""

ABOUT_RENAMED = "These names changed:"

#: Names in the same place whose use has changed.
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

Use `Sandbox`, its `buyer`, `clock` and `faults`, or the [control API](../reference/control-api.md). If you miss
something, report it."""


def upgrade() -> str:
    """Write the page."""
    now = {f"{module.__name__}.{name}" for module in public_modules() for name in names_of(module)}
    gone = [name for name in BEFORE.read_text(encoding="utf-8").split() if name not in now]
    moved = {name: new for name in gone if (new := moved_to(name, now))}
    same = {name: new for name, new in moved.items() if split(name)[1] == split(new)[1]}
    renamed = {name: code(new) if new in now else new for name, new in moved.items() if name not in same}
    private = grouped(name for name in gone if name not in moved)
    partly = [row for row in private if any(split(name)[0] == row[0] for name in [*moved, *now])]
    modules = ", ".join(code(module) for module, _ in private if module not in dict(partly))
    return "\n\n".join([
        "# Upgrade from 0.1 to 0.2",
        ABOUT,
        table(["Module of 0.1", "Names", "Module of 0.2"], rows_of_moved(same)),
        ABOUT_RENAMED,
        table(["0.1", "0.2"], ([code(name), new] for name, new in renamed.items())),
        "## Arguments and fields",
        table(["0.1", "0.2"], ([code(name), new] for name, new in CHANGED.items())),
        ABOUT_PRIVATE,
        table(["Module of 0.1", "Names"], ([code(module), names] for module, names in partly)),
        f"All names of these modules are private, too: {modules}.",
    ])  # fmt: skip


def moved_to(name: str, now: set[str]) -> str | None:
    """Return the new path of a name: in a package above its module, or under another name."""
    module, last = split(name)
    paths = (f"{module.rsplit('.', parts)[0]}.{last}" for parts in range(module.count(".") + 1))
    return next((RENAMED.get(path, path) for path in paths if path in RENAMED or path in now), None)


def split(path: str) -> tuple[str, str]:
    """Return the module and the last part of *path*."""
    module, _, last = path.rpartition(".")
    return module, last


def grouped(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return each module with its names."""
    groups = groupby(names, lambda name: split(name)[0])
    return [(module, ", ".join(code(split(name)[1]) for name in inside)) for module, inside in groups]


def rows_of_moved(moved: dict[str, str]) -> Iterator[list[str]]:
    """Yield a row for each pair of a module of 0.1 and a module of 0.2 that names moved to."""
    for new in sorted({split(path)[0] for path in moved.values()}):
        inside = (name for name, path in moved.items() if split(path)[0] == new)
        yield from ([code(module), names, code(new)] for module, names in grouped(inside))
