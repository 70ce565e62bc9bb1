"""Makes the tables of docs/reference from the declarations that the code runs on: a function for each block."""

from __future__ import annotations

import inspect as python
from collections.abc import Callable, Iterable, Iterator

from msgspec import StructMeta, structs

from docs.describe import code, members, opening, table
from paymentsdk import OPERATIONS, ErrorCode, Operation, PaymentsClient, errors
from paymentsdk._codec.type_walk import rows_of
from paymentsdk._contract.error_response import TERMINAL
from paymentsdk._contract.rules import KEY_ALREADY_USED, TABLE, Failure, RetryClass, Verdict, says_in_progress
from paymentsdk.errors import error_class
from paymentsdk.journal import Record, RecordState, begin_record
from paymentsdk.journal._record import OPEN, WITHOUT_TRACE
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


# --- operations -------------------------------------------------------------------------------------------------------


def operations() -> str:
    """List all operations, then describe each."""
    rows = (
        [o.section, f"[{code(name)}](#{name.replace('.', '')})", code(f"{o.method} {o.path}"), o.summary, o.retry.value]
        for name, o in OPERATIONS.items()
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
        rows = ([row[0], row[1], row[3]] for row in members(query) if row[0] not in {"`offset`", "`limit`"})
        yield table(["Filter", "Type", "Meaning"], rows)


def responses() -> str:
    """Describe the responses of all operations."""
    parts = []
    for result in dict.fromkeys(map(response_of, OPERATIONS.values())):
        rows = ([row[0], row[1], row[3]] for row in members(result))
        about = f"`{result.__module__}.{result.__name__}`: {opening(result.__doc__)}"
        parts += [f"## {result.__name__}", about, table(["Field", "Type", "Meaning"], rows)]
    return "\n\n".join(parts)


# --- errors -----------------------------------------------------------------------------------------------------------


def exceptions() -> str:
    """Show the tree of exceptions."""
    tree = python.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\nA failed")[0]
    return f"```text\n{python.cleandoc(tree)}\n```"


def codes() -> str:
    """List the documented codes, with the operations that return them."""
    raised: dict[ErrorCode, list[Operation[object, object]]] = {}
    for operation in OPERATIONS.values():
        for error in operation.errors:
            raised.setdefault(error, []).append(operation)
    rows = (
        [
            str(error.status),
            code(error.code),
            error.meaning,
            ", ".join(code(operation.name) for operation in operations),
            raised_as(error, operations),
            ("with a random key" if error.code == KEY_ALREADY_USED else "yes") if error.settles else "",
        ]
        for error, operations in raised.items()
    )
    return table(["Status", "Code", "Meaning", "Operation", "Raised as", "Settles"], rows)


def raised_as(error: ErrorCode, operations: Iterable[Operation[object, object]]) -> str:
    """Name the classes that a code is raised as."""
    usual = code(error_class(error.status, error.code).__name__)
    if error.code in TERMINAL:
        return f"{usual}; for a refresh token {code(errors.ReauthorizationRequired.__name__)}"
    if error.status < 500 and not says_in_progress(error.code):  # noqa: PLR2004
        return usual
    unknown = code(errors.OutcomeUnknown.__name__)
    return " or ".join(dict.fromkeys(unknown if operation.writes else usual for operation in operations))


def retries() -> str:
    """List what is sent again, by kind of operation and of failure."""
    rows = ([rule.value, *(VERDICTS[TABLE[rule][failure]] for failure in FAILURES)] for rule in RetryClass)
    return table(["Operation", *FAILURES.values()], rows)


# --- the journal ------------------------------------------------------------------------------------------------------


def record_states() -> str:
    """List the states of a record."""
    # The platform has forgotten such a write, so recovery could repeat a write that the caller gave up.
    durable = WITHOUT_TRACE | {RecordState.REFUSED}
    rows = (
        [code(state.value), *("yes" if state in states else "" for states in (OPEN, durable)), *actions(state)]
        for state in RecordState
    )
    head = ["State", "Open", "Durable before the caller learns it", "A call with a key", "A call without a key"]
    return table(head, rows)


def actions(state: RecordState) -> Iterator[str]:
    """Yield what a call does, with and without a key, that finds a record in *state* without a living owner."""
    for keyed in (True, False):
        row = Record(
            key="key", name="", operation="", base_url="", seller="", path="", body=b"", begun=0.0, not_after=600.0,
            digest=b"", keyed=keyed, state=state, owner="", lease_until=0.0, updated=0.0,
        )  # fmt: skip
        call = structs.replace(row, state=RecordState.PENDING, owner="caller")
        yield begin_record(row, call, now=1.0, lease=60.0)[0].value


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
        magic = "This operation has no magic values."
        if place := handler.magic:
            magic = f"Magic values go into {code(place.member)}{' of the order when it is created' * place.later}."
        rows = (
            [str(error.status), code(error.code), noun.cause_of(error.code) or "", code(value) if value else ""]
            for error in operation.errors
            for value in (handler.magic_value(error),)
        )
        head = ["Status", "Code", "Condition", "Magic value"]
        parts += [f"## Errors of {operation.name}", magic, table(head, rows)]
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
        *(operations, responses, exceptions, codes, retries, record_states),
        *(control_requests, control_bodies, policies, fault_rule, effects, rejections, transports),
    )
}
