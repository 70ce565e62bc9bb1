"""Writes the pages of docs/reference and docs/api from the declarations that the code runs on.

::

    python -m docs.generate            write the pages
    python -m docs.generate --check    exit with 1 and the names of the pages that are not up to date
"""

from __future__ import annotations

import inspect as python
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import StructMeta

from docs import api
from docs.contract import contract
from docs.describe import attributes, code, members, opening, table
from docs.records import records
from paymentsdk import OPERATIONS, Operation, PaymentsClient, errors
from paymentsdk._codec.type_walk import rows_of
from paymentsdk._contract.error_response import TERMINAL
from paymentsdk._contract.rules import (
    KEY_ALREADY_USED,
    MAX_UNSETTLED,
    TABLE,
    Failure,
    RetryClass,
    Verdict,
    says_in_progress,
)
from paymentsdk.errors import error_class
from paymentsdk.sandbox import FaultRule, _commands, _handlers, describe_policies
from paymentsdk.sandbox._control import PREFIX
from paymentsdk.sandbox._faults import EFFECTS
from paymentsdk.testing.transport_conformance import CASES

DOCS = Path(__file__).parent
NOTE = "<!-- Written by `python -m docs.generate`. Change the declarations, not this page. -->"


ABOUT_OPERATIONS = """\
This page lists every operation in `paymentsdk.OPERATIONS`. A number such as (4.10) is a section of
[the contract](contract.md). See [Responses](responses.md) for the fields of responses and
[Errors and codes](errors.md) for error responses.
[Why a failed write has three outcomes](../explanation/why-three-outcomes.md) explains retries.

Import the classes of the parts of a body from the same module as the class of the body."""

ABOUT_RESPONSES = """\
Every field can be `None`, except the `id` or access token without which the object has no meaning. The client ignores
fields that the platform adds later. It keeps new values of a field as they come. Amounts are exact `Decimal`s.
Timestamps are `datetime`s with a zone."""

ABOUT_CODES = """\
`error.code` is the text in the second column, and `error.meaning` the text in the third. The client keeps unlisted
codes as they come. A 5xx raises `ServerError` after a read. It raises `OutcomeUnknown` after a write. A code that says
that something is in progress raises `OutcomeUnknown`, too.

A code that *settles* proves, with this status, that no attempt at the write has taken effect, even if an earlier
attempt is in doubt. After any other response, a write in doubt stays an `OutcomeUnknown`. The client compares all codes
of a body. One code that settles is enough, unless another code says that something is in progress."""

ABOUT_RETRIES = f"""\
The table says what the client does after a failed attempt, within the limits of `RetryPolicy` and `Timeout`. It never
retries a 3xx or a 403.

"If unsettled" concerns a keyed write after a 4xx that does not settle it. The client retries the write with its key and
the same bytes in two cases: an attempt is in doubt, or the response says that something is in progress. A 409, 423 or
425 says so, unless its code settles the write, contains `_already_`, or is `{KEY_ALREADY_USED}`.
After {MAX_UNSETTLED} such retries the outcome is unknown."""

FAILURES = {
    Failure.NOT_SENT: "Not sent",
    Failure.NO_TRUSTED_RESPONSE: "No response",
    Failure.SERVER: "5xx, 408, 424",
    Failure.RATE_LIMITED: "429",
    Failure.CONFLICT: "409, 423, 425",
    Failure.CLIENT_ERROR: "Other 4xx",
    Failure.UNAUTHORIZED: "401",
}
VERDICTS = {
    Verdict.RETRY: "again",
    Verdict.ONCE: "again, once",
    Verdict.REFRESH: "new token, once",
    Verdict.IF_UNSETTLED: "if unsettled",
    Verdict.IF_ASKED: "with `retry_unkeyed`",
    Verdict.STOP: "no",
}

EVENTS = """Stream new events as server-sent events: documents under the names of their lists, `requests`, `clock`, \
and `changed`. The `what` of `changed` is `policies`, `faults` or `everything`. `everything` comes after a restore, or \
if there were more events than could be sent."""

ABOUT_CONTROL = f"""\
Control a running sandbox over HTTP, from a test, a script or by hand. Paths are below `{PREFIX}`. Bodies and responses
are JSON, and amounts in responses are strings. An error is `{{"code": ..., "message": ...}}`. A list returns the newest
100 rows; `limit` changes the number. `tenant` selects the rows of one seller by their user id. A row of orders,
merchant orders or invoices has the document under `order`, `merchant_order` or `invoice`. The sandbox rejects requests
that a browser sends for a web page from elsewhere.

You can also send these requests [in Python](../how-to/test-your-code.md) or on the command line:
`paymentsdk sandbox control pay-order ORD...`. `paymentsdk sandbox control --help` lists their names.
`GET openapi.json` describes every request, response and notification for generators of clients."""

ABOUT_POLICIES = """\
A policy decides a point that the contract leaves open, or on which it contradicts itself. Set a policy with
`Sandbox(policies={"cancel_from": "any"})` or `paymentsdk sandbox --policy cancel_from=any`. For a running sandbox, use
`paymentsdk sandbox policies cancel_from=any`.

`--db FILE` keeps policies that you set on a running sandbox. A policy that you pass at the start applies until the
sandbox stops, and overrides the policy in the file."""

ABOUT_FAULTS = """\
A fault is a rule that makes requests go wrong. In Python a rule is in force until the block ends:
`with sandbox.faults.add(FaultRule(effect="hang", operation="orders.create", times=1)): ...`. On the command line:
`paymentsdk sandbox faults add hang operation=orders.create times=1`."""

ABOUT_TRANSPORTS = """\
`paymentsdk.testing.transport_conformance` checks these rules on a transport;
see [how to run it](../how-to/own-transport.md#prove-it). `Http11Transport` keeps all rules. `AiohttpTransport` keeps
all rules except `AIOHTTP_DEVIATIONS`, each with its reason.

If you pass your own aiohttp session, the session makes the connections. aiohttp then resends a GET, PUT or DELETE when
a connection ends, and does not watch idle connections."""

PARTS_OF_TRANSPORTS = {"_connections": "Connections", "_requests": "Requests and secrets", "_responses": "Responses"}

ABOUT_REJECTIONS = """\
The sandbox rejects a request with a documented code if the code's condition holds, or if the request has a magic value.
A fault can return every code:
`FaultRule(effect="refuse", operation="orders.create", status=404, code="pos_not_found")`.

The payer's token decides the result of a wallet payment. A token that begins with `reject` rejects the payment. A token
that begins with `pending` leaves it pending, or rejects it in binary mode. Any other token approves it."""


def operations() -> str:
    """Write the page of operations and their requests."""
    rows = (
        [f"[{code(o.name)}](#{o.name.replace('.', '')})", code(f"{o.method} {o.path}"), o.summary, o.retry.value]
        for o in OPERATIONS.values()
    )
    parts = ["# Operations", ABOUT_OPERATIONS, table(["Operation", "Request", "", "Retried as"], rows)]
    for operation in OPERATIONS.values():
        parts += [f"## {operation.name}", described(operation), *tables(operation)]
    return "\n\n".join(parts)


def described(operation: Operation[object, object]) -> str:
    """Describe the call and the response of an operation in a few lines."""
    response = response_of(operation)
    statuses = " or ".join(map(str, (operation.status, *operation.other_statuses)))
    link = f"[{code(response.__name__)}](responses.md#{response.__name__.lower()})"
    lines = [
        f"{operation.summary} ({operation.section}).",
        "",
        *(f"- Method: {code(method)}" for method in methods_of(operation)),
        f"- Request: {code(f'{operation.method} {operation.path}')}",
        f"- Response: {statuses}, {'pages of ' if operation.page else ''}{link}",
    ]
    if operation.identity is not None:
        lines.append(f"- Compared with the request: {', '.join(map(code, operation.identity.members))}")
    if operation.keyed:
        lines.append("- Takes `idempotency_key`")
    lines += [f"- May carry {code(name)}: {meaning}" for name, meaning in operation.headers.items()]
    if not operation.authenticated:
        lines.append("- Carries no token")
    return "\n".join(lines)


def methods_of(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the calls of the client's methods for an operation, with their parameters."""
    noun, _, verb = operation.name.partition(".")
    resource = getattr(PaymentsClient(base_url="http://127.0.0.1"), noun)
    for name in [verb] if hasattr(resource, verb) else [name for name in vars(type(resource)) if name[0] != "_"]:
        method = getattr(resource, name)
        if operation.page is not None:
            yield f"client.{noun}.{name}(...)"
            continue
        parameters = python.signature(method).parameters.values()
        shape = python.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
        yield f"await client.{noun}.{name}{shape}"


def response_of(operation: Operation[object, object]) -> type:
    """Return the type of the response of an operation; for a search, the type of a row."""
    listed = rows_of(operation.result) if operation.page is not None else None
    return operation.result if listed is None else listed[2]


def tables(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the tables of the members of the body and the query of an operation."""
    if operation.body is not None:
        optional = "" if operation.body_required else "; can be left out"
        yield f"Body: {code(f'{operation.body.__module__}.{operation.body.__name__}')}{optional}."
        yield table(["Field", "Type", "Required", "Meaning"], members(operation.body))
    if operation.query is not None:
        yield "Filters, in addition to the options of every search (`WalkOptions`):"
        position = [code("offset"), code("limit")]
        meanings = attributes(filters_of(operation.query))
        rows = (row[:2] for row in members(operation.query) if row[0] not in position)
        yield table(["Filter", "Type", "Meaning"], ([*row, meanings[row[0].strip("`")]] for row in rows))


def filters_of(query: type) -> type:
    """Return the documented filters in *query*, by name: Python does not keep the bases of a TypedDict."""
    filters: type = getattr(sys.modules[query.__module__], query.__name__.replace("Query", "Filters"))
    return filters


def responses() -> str:
    """Write the page of responses."""
    parts = ["# Responses", ABOUT_RESPONSES]
    results = dict.fromkeys(map(response_of, OPERATIONS.values()))
    for result in results:
        parts += [f"## {result.__name__}", f"`{result.__module__}.{result.__name__}`: {opening(result.__doc__)}"]
        parts.append(table(["Field", "Type", "Meaning"], ([row[0], row[1], row[3]] for row in members(result))))
    return "\n\n".join(parts)


def errors_and_codes() -> str:
    """Write the page of exceptions and documented codes."""
    tree = python.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\nA failed")[0]
    operations_by_code: dict[tuple[int, str, str, bool], list[Operation[object, object]]] = {}
    for operation in OPERATIONS.values():
        for error in operation.errors:
            operations_by_code.setdefault((error.status, error.code, error.meaning, error.settles), []).append(
                operation
            )
    rows = (
        [
            str(status),
            code(name),
            meaning,
            ", ".join(code(o.name) for o in raised),
            raised_as(status, name, raised),
            settling(name, settles=settles),
        ]
        for (status, name, meaning, settles), raised in operations_by_code.items()
    )
    return "\n\n".join([
        "# Errors and codes",
        "The package raises these exceptions for calls, walks and clients:",
        "```text\n" + python.cleandoc(tree) + "\n```",
        "[API](../api/errors.md) lists the attributes of each exception.",
        "## Documented codes",
        ABOUT_CODES,
        table(["Status", "Code", "Meaning", "Operation", "Raised as", "Settles"], rows),
        "## What is sent again",
        ABOUT_RETRIES,
        table(["Operation", *FAILURES.values()], map(retried, RetryClass)),
    ])  # fmt: skip


def settling(name: str, *, settles: bool) -> str:
    """Return the cell that says whether a code settles a write."""
    if not settles:
        return ""
    return "with a random key" if name == KEY_ALREADY_USED else "yes"


def retried(rule: RetryClass) -> list[str]:
    """Return a row of the table of retries."""
    return [rule.value, *(VERDICTS[TABLE[rule][failure]] for failure in FAILURES)]


def raised_as(status: int, name: str, operations: Iterable[Operation[object, object]]) -> str:
    """Name the classes that a code is raised as."""
    usual = code(error_class(status, name).__name__)
    if name in TERMINAL:
        return f"{usual}; for a refresh token {code(errors.ReauthorizationRequired.__name__)}"
    if status < 500 and not says_in_progress(name):  # noqa: PLR2004
        return usual
    unknown = code(errors.OutcomeUnknown.__name__)
    return " or ".join(dict.fromkeys(unknown if operation.writes else usual for operation in operations))


def control() -> str:
    """Write the page of the control API of a sandbox."""
    rows, bodies = [], {}
    for (method, path), command in _commands.COMMANDS.items():
        body, link = command.body, ""
        if body is FaultRule:
            link = f"[{code(FaultRule.__name__)}](faults.md)"
        elif isinstance(body, StructMeta):
            bodies[body.__name__] = body
            link = f"[{code(body.__name__)}](#{body.__name__.lower()})"
        meaning = opening(command.summary)
        parameters = "&".join(f"{name}=" for name in command.parameters)
        rows.append([code(f"{method} {path}" + (f"?{parameters}" if parameters else "")), meaning, link])
    rows.append([code("GET events"), EVENTS, ""])
    parts = ["# Control API of the sandbox", ABOUT_CONTROL, table(["Request", "What it does", "Body"], rows)]
    for name, body in bodies.items():
        parts += [f"## {name}", opening(body.__doc__), table(["Field", "Type", "Required", "Meaning"], members(body))]
    return "\n\n".join(parts)


def policies() -> str:
    """Write the page of the policies of a sandbox."""
    rows = (
        [code(switch.name), code(switch.value), ", ".join(code(value) for value in switch.allowed), switch.description]
        for switch in describe_policies()
    )
    return "\n\n".join(["# Policies", ABOUT_POLICIES, table(["Policy", "Default", "Allowed", "What it decides"], rows)])


def faults() -> str:
    """Write the page of faults."""
    rules = table(["Field", "Type", "Required", "Meaning"], members(FaultRule))
    rows = ([code(name), effect.words, ", ".join(map(code, effect.members))] for name, effect in EFFECTS.items())
    return "\n\n".join(
        ["# Faults: fault injection", ABOUT_FAULTS, rules, "## Effects", table(["Effect", "", "Takes"], rows)]
    )


def rejections() -> str:
    """Write the page of conditions and magic values that lead to a rejection."""
    parts = ["# Rejections and magic values", ABOUT_REJECTIONS]
    for operation in OPERATIONS.values():
        noun, handler = _handlers.noun_of(operation), _handlers.HANDLERS[operation.name]
        magic = handler.magic
        parts.append(f"## Errors of {operation.name}")
        when = " of the order when it is created" if magic and magic.later else ""
        about = f"Magic values go into {code(magic.member)}{when}." if magic else "This operation has no magic values."
        parts.append(about)
        rows = (
            [str(e.status), code(e.code), noun.cause_of(e.code) or "", code(value) if value else ""]
            for e in operation.errors
            for value in (handler.magic_value(e),)
        )
        parts.append(table(["Status", "Code", "Condition", "Magic value"], rows))
    return "\n\n".join(parts)


def transports() -> str:
    """Write the page of the rules of transports. Names with the same rule share a line."""
    parts = ["# What every transport does", ABOUT_TRANSPORTS]
    for module, title in PARTS_OF_TRANSPORTS.items():
        names_by_rule: dict[str, list[str]] = {}
        for case in CASES:
            if case.check.__module__.endswith(f".{module}"):
                names_by_rule.setdefault(" ".join(case.rule.split()), []).append(code(case.name))
        lines = (f"- {', '.join(names)}: {rule}" for rule, names in names_by_rule.items())
        parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "contract.md": contract,
    "operations.md": operations,
    "responses.md": responses,
    "errors.md": errors_and_codes,
    "control-api.md": control,
    "policies.md": policies,
    "faults.md": faults,
    "rejections.md": rejections,
    "transports.md": transports,
    "records.md": records,
}


def written() -> Iterator[tuple[str, str]]:
    """Yield the path of each generated page below docs/, and its text."""
    texts = ((f"reference/{name}", page()) for name, page in PAGES.items())
    for path, text in [*texts, *((f"api/{name}", text) for name, text in api.pages())]:
        title, _, body = text.partition("\n\n")
        yield path, f"{title}\n\n{NOTE}\n\n{body}\n".lstrip()


def main(arguments: list[str]) -> None:
    """Write the pages, or check them."""
    pages = dict(written())
    stale = [path for path, text in pages.items() if not is_current(DOCS / path, text)]
    stale += [path for file in (DOCS / "api").glob("*.md") if (path := file.relative_to(DOCS).as_posix()) not in pages]
    if arguments == ["--check"]:
        if stale:
            sys.exit(f"not up to date, run `python -m docs.generate`: {', '.join(stale)}")
        return
    for path in stale:
        (DOCS / path).parent.mkdir(exist_ok=True)
        if path in pages:
            (DOCS / path).write_text(pages[path], encoding="utf-8")
        else:
            (DOCS / path).unlink()


def is_current(path: Path, text: str) -> bool:
    """Return whether a page is up to date."""
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main(sys.argv[1:])
