"""Makes the tables of docs/reference from the declarations that the code runs on: a function for each block."""

from __future__ import annotations

import inspect as python
import sys
from collections.abc import Callable, Iterable, Iterator

from msgspec import StructMeta

from docs.describe import attributes, code, members, opening, table
from paymentsdk import OPERATIONS, Operation, PaymentsClient, errors
from paymentsdk._codec.type_walk import rows_of
from paymentsdk._contract.error_response import TERMINAL
from paymentsdk._contract.rules import KEY_ALREADY_USED, TABLE, Failure, RetryClass, Verdict, says_in_progress
from paymentsdk.errors import error_class
from paymentsdk.sandbox import FaultRule, _commands, _handlers, describe_policies
from paymentsdk.sandbox._faults import EFFECTS
from paymentsdk.testing.transport_conformance import CASES

FIELDS = ["Field", "Type", "Required", "Meaning"]
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
TRANSPORTS = {"_connections": "Connections", "_requests": "Requests and secrets", "_responses": "Responses"}


def anchor(operation: Operation[object, object]) -> str:
    """Return the anchor of an operation on the page of operations."""
    return f"#{operation.name.replace('.', '')}"


# --- operations -------------------------------------------------------------------------------------------------------


def operations() -> str:
    """List all operations, then describe each."""
    rows = (
        [o.section, f"[{code(o.name)}]({anchor(o)})", code(f"{o.method} {o.path}"), o.summary, o.retry.value]
        for o in OPERATIONS.values()
    )
    parts = [table(["Section", "Operation", "Request", "", "Retried as"], rows)]
    for operation in OPERATIONS.values():
        parts += [f"## {operation.name}", described(operation), *fields_of(operation)]
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
    members = [echo.member for echo in operation.echoes if not echo.fallback]
    if (addition := operation.addition) is not None:
        members += [f"{addition.member}[].{echo.member}" for echo in addition.echoes]
    if members:
        lines.append(f"- Compared with the request: {', '.join(map(code, members))}")
    if operation.keyed:
        lines.append("- Takes `idempotency_key`")
    lines += [f"- May carry {code(name)}: {meaning}" for name, meaning in operation.headers.items()]
    return "\n".join(lines if operation.authenticated else [*lines, "- Carries no token"])


def methods_of(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the calls of the client's methods for an operation, with their parameters."""
    noun, _, verb = operation.name.partition(".")
    resource = getattr(PaymentsClient(base_url="http://127.0.0.1"), noun)
    for name in [verb] if hasattr(resource, verb) else [name for name in vars(type(resource)) if name[0] != "_"]:
        parameters = python.signature(getattr(resource, name)).parameters.values()
        shape = python.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
        yield f"await client.{noun}.{name}{shape}" if operation.page is None else f"client.{noun}.{name}(...)"


def response_of(operation: Operation[object, object]) -> type:
    """Return the type of the response of an operation; for a search, the type of a row."""
    listed = rows_of(operation.result) if operation.page is not None else None
    return operation.result if listed is None else listed[2]


def fields_of(operation: Operation[object, object]) -> Iterator[str]:
    """Yield the tables of the members of the body and the query of an operation."""
    if operation.body is not None:
        optional = "" if operation.body_required else "; can be left out"
        yield f"Body: {code(f'{operation.body.__module__}.{operation.body.__name__}')}{optional}."
        yield table(FIELDS, members(operation.body))
    if (query := operation.query) is not None:
        yield "Filters, in addition to the options of every search (`WalkOptions`):"
        # Python does not keep the bases of a TypedDict, so the documented class is found by its name.
        meanings = attributes(getattr(sys.modules[query.__module__], query.__name__.replace("Query", "Filters")))
        rows = ([name, kind] for name, kind, *_ in members(query) if name not in {"`offset`", "`limit`"})
        yield table(["Filter", "Type", "Meaning"], ([*row, meanings[row[0].strip("`")]] for row in rows))


def responses() -> str:
    """Describe the responses of all operations."""
    parts = []
    for result in dict.fromkeys(map(response_of, OPERATIONS.values())):
        parts += [f"## {result.__name__}", f"`{result.__module__}.{result.__name__}`: {opening(result.__doc__)}"]
        parts.append(table(["Field", "Type", "Meaning"], ([row[0], row[1], row[3]] for row in members(result))))
    return "\n\n".join(parts)


# --- errors -----------------------------------------------------------------------------------------------------------


def exceptions() -> str:
    """Show the tree of exceptions."""
    tree = python.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\nA failed")[0]
    return f"```text\n{python.cleandoc(tree)}\n```"


def codes() -> str:
    """List the documented codes, with the operations that return them."""
    raised: dict[tuple[int, str, str, bool], list[Operation[object, object]]] = {}
    for operation in OPERATIONS.values():
        for error in operation.errors:
            raised.setdefault((error.status, error.code, error.meaning, error.settles), []).append(operation)
    rows = (
        [
            str(status),
            code(name),
            meaning,
            ", ".join(code(operation.name) for operation in operations),
            raised_as(status, name, operations),
            ("with a random key" if name == KEY_ALREADY_USED else "yes") if settles else "",
        ]
        for (status, name, meaning, settles), operations in raised.items()
    )
    return table(["Status", "Code", "Meaning", "Operation", "Raised as", "Settles"], rows)


def raised_as(status: int, name: str, operations: Iterable[Operation[object, object]]) -> str:
    """Name the classes that a code is raised as."""
    usual = code(error_class(status, name).__name__)
    if name in TERMINAL:
        return f"{usual}; for a refresh token {code(errors.ReauthorizationRequired.__name__)}"
    if status < 500 and not says_in_progress(name):  # noqa: PLR2004
        return usual
    unknown = code(errors.OutcomeUnknown.__name__)
    return " or ".join(dict.fromkeys(unknown if operation.writes else usual for operation in operations))


def retries() -> str:
    """List what is sent again, by kind of operation and of failure."""
    rows = ([rule.value, *(VERDICTS[TABLE[rule][failure]] for failure in FAILURES)] for rule in RetryClass)
    return table(["Operation", *FAILURES.values()], rows)


# --- the sandbox ------------------------------------------------------------------------------------------------------


def control_requests() -> str:
    """List the requests of the control API."""
    rows = []
    for (method, path), command in _commands.COMMANDS.items():
        link, parameters = "", "&".join(f"{name}=" for name in command.parameters)
        if isinstance(body := command.body, StructMeta):
            link = f"[{code(body.__name__)}]({'faults.md' if body is FaultRule else f'#{body.__name__.lower()}'})"
        request = f"{method} {path}" + (f"?{parameters}" if parameters else "")
        rows.append([code(request), opening(command.summary), link])
    return table(["Request", "What it does", "Body"], rows)


def control_bodies() -> str:
    """Describe the bodies of these requests."""
    bodies = dict.fromkeys(command.body for command in _commands.COMMANDS.values())
    return "\n\n".join(
        f"## {body.__name__}\n\n{opening(body.__doc__)}\n\n{table(FIELDS, members(body))}"
        for body in bodies
        if isinstance(body, StructMeta) and body is not FaultRule
    )


def policies() -> str:
    """List the policies of a sandbox."""
    rows = (
        [code(switch.name), code(switch.value), ", ".join(map(code, switch.allowed)), switch.description]
        for switch in describe_policies()
    )
    return table(["Policy", "Default", "Allowed", "What it decides"], rows)


def fault_rule() -> str:
    """List the members of a fault."""
    return table(FIELDS, members(FaultRule))


def effects() -> str:
    """List what a fault can do."""
    rows = ([code(name), effect.words, ", ".join(map(code, effect.members))] for name, effect in EFFECTS.items())
    return table(["Effect", "", "Takes"], rows)


def rejections() -> str:
    """List the conditions and magic values of the rejections of each operation."""
    parts = []
    for operation in OPERATIONS.values():
        noun, handler = _handlers.noun_of(operation), _handlers.HANDLERS[operation.name]
        parts.append(f"## Errors of {operation.name}")
        if magic := handler.magic:
            when = " of the order when it is created" if magic.later else ""
            parts.append(f"Magic values go into {code(magic.member)}{when}.")
        else:
            parts.append("This operation has no magic values.")
        rows = (
            [str(error.status), code(error.code), noun.cause_of(error.code) or "", code(value) if value else ""]
            for error in operation.errors
            for value in (handler.magic_value(error),)
        )
        parts.append(table(["Status", "Code", "Condition", "Magic value"], rows))
    return "\n\n".join(parts)


def transports() -> str:
    """List the rules of transports. Names with the same rule share a line."""
    parts = []
    for module, title in TRANSPORTS.items():
        names: dict[str, list[str]] = {}
        for case in CASES:
            if case.check.__module__.endswith(f".{module}"):
                names.setdefault(" ".join(case.rule.split()), []).append(code(case.name))
        parts += [f"## {title}", "\n".join(f"- {', '.join(cases)}: {rule}" for rule, cases in names.items())]
    return "\n\n".join(parts)


BLOCKS: dict[str, Callable[[], str]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(operations, responses, exceptions, codes, retries),
        *(control_requests, control_bodies, policies, fault_rule, effects, rejections, transports),
    )
}
