"""A request as something to run again: a line for a shell, or a program for the SDK. Credentials never show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import inspect
from yarl import URL

from paymentsdk._core.operation import Operation
from paymentsdk._core.secrets import MASK, scrub, secrets_in
from paymentsdk._core.wire import Request, header
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox.pages.expressions import WIDTH, Expression, Group, Writer, laid_out, quoted

__all__ = ["curl", "python", "shown_body"]

#: The header fields that are a part of what is asked for. The others belong to the program that asked.
_KEPT = ("Content-Type", "X-Idempotency-Key", "X-Platform-Session-Id")
#: Operations whose method takes other arguments than the body and the path; ``client.call`` takes these.
_OTHER_ARGUMENTS = frozenset({"oauth.token", "orders.refund"})
#: What the methods call the position of a page.
_POSITION = {"limit": "page_size", "offset": "start"}
#: The platform refuses a token in the query; programs send it there all the same.
_TOKEN_IN_QUERY = re.compile(r"(?<=[?&]access_token=)[^&]+")

AnyOperation: TypeAlias = Operation[object, object]


def curl(request: Request) -> str:
    """Return *request* as a command for a shell. Its token comes from ``PAYMENTSDK_ACCESS_TOKEN``."""
    url = _TOKEN_IN_QUERY.sub(MASK, request.url)
    parts = [f"curl -X {request.method} {shlex.quote(url)}"]
    if header(request.headers, "Authorization") is not None:
        parts.append('-H "Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"')
    for name in _KEPT:
        value = header(request.headers, name)
        if value is not None:
            parts.append(f"-H {shlex.quote(f'{name}: {value}')}")
    if request.body:
        parts.append(f"--data-raw {shlex.quote(shown_body(request))}")
    return " \\\n  ".join(parts)


def python(request: Request) -> str:
    """Return *request* as a program that uses the SDK. Its token comes from ``PAYMENTSDK_ACCESS_TOKEN``."""
    call = _find(request)
    if call is None:
        return "# No operation of the contract has this method and this path.\n"
    body = _decoded(call.operation, request.body)
    if isinstance(body, RequestInvalid):
        return f"# The SDK refuses this body before it is sent.\n# {body}\n"
    writer = Writer()
    arguments = [*_first_arguments(call.operation, body, writer), *_named_arguments(call, request, writer)]
    return _program(str(URL(request.url).origin()), call.operation, arguments, writer)


def shown_body(request: Request) -> str:
    """Return the body of *request* as text, with its credentials masked.

    Nobody can say where the credentials are in a body that breaks the contract: if the contract has some, all of it is
    masked.
    """
    call = _find(request)
    if call is None or call.operation.body is None:
        return _text(request.body)
    body = _decoded(call.operation, request.body)
    if isinstance(body, RequestInvalid):
        return MASK if _has_credentials(inspect.type_info(call.operation.body)) else _text(request.body)
    return _text(scrub(request.body, secrets_in(body)))


def _text(body: bytes) -> str:
    return body.decode(errors="backslashreplace")


# --- what was asked for ------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    operation: AnyOperation
    path: Mapping[str, str]
    query: Mapping[str, str]


def _find(request: Request) -> _Call | None:
    url = URL(request.url)
    for pattern, operation in _patterns():
        match = pattern.match(url.path)
        if match and operation.method == request.method:
            return _Call(operation, match.groupdict(), dict(url.query))
    return None


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], AnyOperation], ...]:
    # Paths without a placeholder first: /preapproval_plan/search is not a plan.
    operations = sorted(OPERATIONS.values(), key=lambda operation: len(operation.path_names))
    return tuple((re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", o.path) + r"/?\Z"), o) for o in operations)


def _decoded(operation: AnyOperation, body: bytes) -> object:
    """Return the body as its Struct, or what is wrong with it; ``None`` if there is none."""
    if operation.encoder is None or not body:
        return None
    try:
        return operation.encoder.decode(body)
    except RequestInvalid as error:
        return error
    except (ValueError, RecursionError):
        return RequestInvalid("$", "is not JSON")


def _has_credentials(info: inspect.Type) -> bool:
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            return bool(getattr(cls, "__secrets__", ())) or any(_has_credentials(field.type) for field in fields)
        case inspect.UnionType(types=types):
            return any(map(_has_credentials, types))
        case _:
            return False


# --- the program -------------------------------------------------------------------------------------------------


def _first_arguments(operation: AnyOperation, body: object, writer: Writer) -> Iterable[tuple[str, Expression]]:
    if operation.name in _OTHER_ARGUMENTS:
        writer.names["paymentsdk"].add("OPERATIONS")
        yield "", f'OPERATIONS["{operation.name}"]'
    if body is not None:
        yield "", writer.write(body)


def _named_arguments(call: _Call, request: Request, writer: Writer) -> Iterable[tuple[str, Expression]]:
    for name, value in call.path.items():
        # The one id that a method takes comes first; `client.call` wants its name.
        yield f"{name}=" if call.operation.name in _OTHER_ARGUMENTS else "", quoted(value)
    for name, value in _filters(call).items():
        yield f"{_POSITION.get(name, name)}=", writer.write(value)
    key = header(request.headers, "X-Idempotency-Key")
    if call.operation.keyed and key is not None:
        yield "idempotency_key=", quoted(key)


def _filters(call: _Call) -> Mapping[str, object]:
    if call.operation.query is None:
        return {}
    try:
        filters: Mapping[str, object] = msgspec.convert(call.query, call.operation.query, strict=False)
    except msgspec.ValidationError:
        return call.query
    return filters


def _program(
    base_url: str, operation: AnyOperation, arguments: list[tuple[str, Expression]], writer: Writer
) -> str:
    writer.names["paymentsdk"].add("PaymentsClient")
    method = "call" if operation.name in _OTHER_ARGUMENTS else operation.name
    call = laid_out(Group(f"client.{method}(", arguments, ")"), 8)
    token = 'os.environ["PAYMENTSDK_ACCESS_TOKEN"], ' if operation.authenticated else ""
    steps = [f"print(await {call})"] if operation.page is None else [f"async for row in {call}:", "    print(row)"]
    lines = [
        "import asyncio",
        *(["import os"] if operation.authenticated else []),
        *_imports(writer),
        "",
        "",
        "async def main() -> None:",
        f"    async with PaymentsClient({token}base_url={quoted(base_url)}) as client:",
        *(f"        {step}" for step in steps),
        "",
        "",
        "asyncio.run(main())",
    ]
    return "\n".join(lines) + "\n"


def _imports(writer: Writer) -> list[str]:
    foreign, ours = [], []
    for module, names in sorted(writer.names.items()):
        line = f"from {module} import {', '.join(sorted(names))}"
        if len(line) > WIDTH:
            line = laid_out(Group(f"from {module} import (", [("", name) for name in sorted(names)], ")"), 0)
        (ours if module.startswith("paymentsdk") else foreign).append(line)
    return [*foreign, "", *ours]
