"""Writes the pages of docs/reference and docs/api from the declarations that the code runs on.

::

    python -m docs.generate            write the pages
    python -m docs.generate --check    exit with 1, and the names of the pages, if one is not what would be written
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
from docs.upgrade import upgrade
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
Every operation of the platform, as `paymentsdk.OPERATIONS` declares it; the numbers are the sections of
[the contract](contract.md). See [Responses](responses.md) for what comes back, [Errors and codes](errors.md) for error
responses, and [Why a failed write has three outcomes](../explanation/why-three-outcomes.md) for what is sent again.

Import the classes of the parts of a body from the same module as the class of the body."""

ABOUT_RESPONSES = """\
Every field can be `None`, except the `id` or access token without which a value has no meaning. Fields that the
platform adds later are ignored; values that it adds to a list of values are kept as they come. Amounts are exact
`Decimal`s, moments are `datetime`s with a zone."""

ABOUT_CODES = """\
`error.code` is the text in the second column, `error.meaning` the text in the third. A code that is not listed here is
kept as it came. A 5xx raises `ServerError` after a read; after a write the outcome is unknown, as it is where a code
says that something is in progress.

A code that *settles* says, with this status, that no attempt at the write has taken effect, also where one before is
in doubt; after every other response such a write stays an `OutcomeUnknown`. All codes of a body are compared; one that
settles is enough, unless another says that something is in progress."""

ABOUT_RETRIES = f"""\
What may follow an attempt that failed, within the limits of `RetryPolicy` and `Timeout`. A 3xx and a 403 are never
tried again. "If unsettled": a keyed write is sent again, with its key and the same bytes, at most {MAX_UNSETTLED} times
after a 4xx that does not settle it, where an attempt is in doubt, or where the response says that something is in
progress (409, 423 and 425, but for a code that settles, says `_already_`, or is `{KEY_ALREADY_USED}`); then its outcome
is unknown."""

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

EVENTS = """Stream what happens from now on, as server-sent events: documents under the names of their lists, \
`requests`, `clock`, and `changed`. The `what` of `changed` is `policies`, `faults`, or, after a restore or when \
there were more events than could be sent, `everything`."""

ABOUT_CONTROL = f"""\
How a test, a script or a person controls a running sandbox over HTTP. Paths are below `{PREFIX}`. Bodies and
responses are JSON, amounts in responses are strings; an error is `{{"code": ..., "message": ...}}`. A list with `limit`
holds the newest 100 rows, or as many as `limit` says; `tenant` picks the rows of one seller, by their user id. A row of
orders, merchant orders or invoices has the document under `order`, `merchant_order` or `invoice`. Requests that a
browser sends for a web page from elsewhere are rejected.

The same can be done in Python ([Test your code](../how-to/test-your-code.md)), and with
`paymentsdk sandbox control`, which lists the names of the requests: `paymentsdk sandbox control pay-order ORD...`.
`GET openapi.json` describes all of it for generators of clients, with every response and the notifications."""

ABOUT_POLICIES = """\
A policy decides, for the sandbox, a point that the contract leaves open or contradicts itself in. Set one with
`Sandbox(policies={"cancel_from": "any"})`, `paymentsdk sandbox --policy cancel_from=any`, or, while it runs,
`paymentsdk sandbox policies cancel_from=any`. With `--db FILE`, a policy that is set while it runs stays in the file; a
policy that is given at a start holds for that start only, and wins over the one in the file."""

ABOUT_FAULTS = """\
A fault is a rule that makes requests go wrong. In Python a rule is in force until the block ends:
`with sandbox.faults.add(FaultRule(effect="hang", operation="orders.create", times=1)): ...`. On the command line:
`paymentsdk sandbox faults add hang operation=orders.create times=1`."""

ABOUT_TRANSPORTS = """\
Every rule of `paymentsdk.testing.transport_conformance`, which checks them on a transport
([how to run it](../how-to/own-transport.md#prove-it)). `Http11Transport` keeps all of them; `AiohttpTransport` all but
those in `AIOHTTP_DEVIATIONS` there, each with its reason. On a session of yours, connections are those of the session:
aiohttp sends a GET, PUT or DELETE once more when a connection ends, and nobody watches idle connections."""

ABOUT_REJECTIONS = """\
Ways to make the sandbox reject a request with each documented code: by the condition that leads to it by itself, or by
a magic value in the request. A fault can also give every code:
`FaultRule(effect="refuse", operation="orders.create", status=404, code="pos_not_found")`.

The token of the payer decides how a wallet payment ends: with a token that begins with `reject` it is rejected, with
`pending` it stays pending (in binary mode it is rejected), with any other it is approved."""


def operations() -> str:
    """Write what can be asked, and what goes out."""
    rows = (
        [f"[{code(o.name)}](#{o.name.replace('.', '')})", code(f"{o.method} {o.path}"), o.summary, o.retry.value]
        for o in OPERATIONS.values()
    )
    parts = ["# Operations", ABOUT_OPERATIONS, table(["Operation", "Request", "", "Sent again as"], rows)]
    for operation in OPERATIONS.values():
        parts += [f"## {operation.name}", described(operation), *tables(operation)]
    return "\n\n".join(parts)


def described(operation: Operation[object, object]) -> str:
    """Say in a few lines how an operation is called and answered."""
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
    """Yield how the methods of the client that call an operation are called."""
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
    """Return what an operation responds with; of a search, what a row is."""
    listed = rows_of(operation.result) if operation.page is not None else None
    return operation.result if listed is None else listed[2]


def tables(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the tables of the members that go into the body and the query of an operation."""
    if operation.body is not None:
        optional = "" if operation.body_required else "; can be left out"
        yield f"Body: {code(f'{operation.body.__module__}.{operation.body.__name__}')}{optional}."
        yield table(["Field", "Type", "Required", "Meaning"], members(operation.body))
    if operation.query is not None:
        yield "Filters, beside the options of every search (`WalkOptions`):"
        position = [code("offset"), code("limit")]
        meanings = attributes(filters_of(operation.query))
        rows = (row[:2] for row in members(operation.query) if row[0] not in position)
        yield table(["Filter", "Type", "Meaning"], ([*row, meanings[row[0].strip("`")]] for row in rows))


def filters_of(query: type) -> type:
    """Return the filters in *query*, which say what they mean: of a TypedDict, Python does not keep the bases."""
    filters: type = getattr(sys.modules[query.__module__], query.__name__.replace("Query", "Filters"))
    return filters


def responses() -> str:
    """Write what comes back."""
    parts = ["# Responses", ABOUT_RESPONSES]
    results = dict.fromkeys(map(response_of, OPERATIONS.values()))
    for result in results:
        parts += [f"## {result.__name__}", f"`{result.__module__}.{result.__name__}`: {opening(result.__doc__)}"]
        parts.append(table(["Field", "Type", "Meaning"], ([row[0], row[1], row[3]] for row in members(result))))
    return "\n\n".join(parts)


def errors_and_codes() -> str:
    """Write what can be raised, and every documented code."""
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
        "All exceptions that the package raises for what happens to a call, a walk or a client:",
        "```text\n" + python.cleandoc(tree) + "\n```",
        "The attributes of each: [API](../api/errors.md).",
        "## Documented codes",
        ABOUT_CODES,
        table(["Status", "Code", "Meaning", "Operation", "Raised as", "Settles"], rows),
        "## What is sent again",
        ABOUT_RETRIES,
        table(["Operation", *FAILURES.values()], map(retried, RetryClass)),
    ])  # fmt: skip


def settling(name: str, *, settles: bool) -> str:
    """Say whether a code ends all doubt about a write."""
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
    """Write what the control API of a sandbox takes."""
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
    """Write the policies of a sandbox."""
    rows = (
        [code(switch.name), code(switch.value), ", ".join(code(value) for value in switch.allowed), switch.description]
        for switch in describe_policies()
    )
    return "\n\n".join(["# Policies", ABOUT_POLICIES, table(["Policy", "Default", "Allowed", "What it decides"], rows)])


def faults() -> str:
    """Write what a fault can be."""
    rules = table(["Field", "Type", "Required", "Meaning"], members(FaultRule))
    rows = ([code(name), effect.words, ", ".join(map(code, effect.members))] for name, effect in EFFECTS.items())
    return "\n\n".join(
        ["# Faults: fault injection", ABOUT_FAULTS, rules, "## Effects", table(["Effect", "", "Takes"], rows)]
    )


def rejections() -> str:
    """Write how to be rejected with every code."""
    parts = ["# Rejections and magic values", ABOUT_REJECTIONS]
    for operation in OPERATIONS.values():
        noun, handler = _handlers.noun_of(operation), _handlers.HANDLERS[operation.name]
        magic = handler.magic
        parts.append(f"## Errors of {operation.name}")
        when = " of the order when it is created" if magic and magic.later else ""
        parts.append(f"Magic values go into {code(magic.member)}{when}." if magic else "It takes no magic value.")
        rows = (
            [str(e.status), code(e.code), noun.cause_of(e.code) or "", code(value) if value else ""]
            for e in operation.errors
            for value in (handler.magic_value(e),)
        )
        parts.append(table(["Status", "Code", "By itself", "Magic value"], rows))
    return "\n\n".join(parts)


def transports() -> str:
    """Write what every transport does."""
    rules = "\n".join(f"- `{case.name}`: {' '.join(case.rule.split())}" for case in CASES)
    return f"# What every transport does\n\n{ABOUT_TRANSPORTS}\n\n{rules}"


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
    """Yield the path of each page below docs/, and its text."""
    texts = [*((f"reference/{name}", page()) for name, page in PAGES.items()), ("how-to/upgrade-to-0.2.md", upgrade())]
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
    """Whether a page is what would be written."""
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main(sys.argv[1:])
