"""A request that had a response, as something to run again: a line for a shell, or a program for the SDK.

The lines of the feed hold no credentials, so neither do these: the token comes from ``PAYMENTSDK_ACCESS_TOKEN``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from secrets import token_hex
from typing import TypeAlias
from urllib.parse import unquote

import msgspec
from yarl import URL

from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._events import RequestLine
from paymentsdk.sandbox._pages.expressions import WIDTH, Expression, Group, Writer, laid_out, quoted
from paymentsdk.sandbox._parsing import AnyOperation

#: Operations whose method takes other arguments than the body and the path; ``client.call`` takes these.
_OTHER_ARGUMENTS = frozenset({"oauth.token", "orders.refund"})
#: What the methods call the position of a page.
_POSITION = {"limit": "page_size", "offset": "start"}

Arguments: TypeAlias = Iterable[tuple[str, Expression]]


def curl(line: RequestLine, base_url: str) -> str:
    """Return the request as a command for a shell. A keyed write gets a new key: it is done again."""
    operation = OPERATIONS.get(line.operation or "")
    # With `-X HEAD` curl would wait for the body that no such response has; without `-g` it takes brackets and braces
    # in the address for a list, and sends a request for each of its entries. Dots in a path it would take for folders.
    method = "--head" if line.method == "HEAD" else f"-X {_word(line.method)}"
    dots = " --path-as-is" if "/." in line.path else ""
    parts = [f"curl {method} -g{dots} {_word(base_url + line.path)}"]
    if operation is None or operation.authenticated:
        parts.append('-H "Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"')
    if operation is not None and operation.keyed:
        parts.append(f"-H 'X-Idempotency-Key: {token_hex(16)}'")
    if line.body:
        # A body that says nothing of itself is taken for JSON; curl would say that it is a form.
        kind = line.content_type or "application/json"
        parts.append(f"-H {_word(f'Content-Type: {kind}')}")
        parts.append(f"--data-raw {_word(line.body)}")
    return " \\\n  ".join(parts)


def _word(text: str) -> str:
    """Return *text* as one word for a shell, also for one that somebody types into.

    A terminal takes a control character for a key, such as Ctrl-C, whatever quotes it stands in: what follows it would
    be a command. Any page in a browser can have sent the body.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return shlex.quote(text)
    # No quote of its own is in there: a shell that does not know this form must not see it end early.
    return f"$'{''.join(map(_typed, text))}'"


def _typed(character: str) -> str:
    if character.isprintable() and character not in "'\\!":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="replace"))


def python(line: RequestLine, base_url: str) -> str:
    """Return the request as a program that uses the SDK, or as the reason why the SDK does not make it."""
    operation = OPERATIONS.get(line.operation or "")
    if operation is None:
        return "# No operation of the contract has this method and this path.\n"
    try:
        body = _decoded(operation, line.body)
    except RequestInvalid as error:
        return f"# The SDK rejects this body before it is sent.\n# {error}\n"
    writer = Writer()
    arguments = [*_first(operation, body, writer), *_ids(operation, line.path), *_filters(operation, line.path, writer)]
    return _program(base_url, operation, arguments, writer)


def _decoded(operation: AnyOperation, body: str) -> object:
    """Return the body as its Struct; ``None`` if there is none.

    Raises:
        RequestInvalid: It breaks the contract.
    """
    if operation.encoder is None or not body:
        return None
    try:
        return operation.encoder.decode(body.encode())
    except RequestInvalid:
        raise
    except (ValueError, RecursionError):
        raise RequestInvalid("$", "is not JSON") from None


# --- the arguments -----------------------------------------------------------------------------------------------


def _first(operation: AnyOperation, body: object, writer: Writer) -> Arguments:
    if operation.name in _OTHER_ARGUMENTS:
        writer.names["paymentsdk"].add("OPERATIONS")
        yield "", f'OPERATIONS["{operation.name}"]'
    if body is not None:
        yield "", writer.write(body)


def _ids(operation: AnyOperation, path: str) -> Arguments:
    match = re.match(re.sub(r"{(\w+)}", r"(?P<\1>[^/?]+)", operation.path), path)
    for name, value in match.groupdict().items() if match else ():
        # A method takes its one id first; `client.call` wants its name.
        yield f"{name}=" if operation.name in _OTHER_ARGUMENTS else "", quoted(unquote(value))


def _filters(operation: AnyOperation, path: str, writer: Writer) -> Arguments:
    if operation.query is None:
        return
    known = operation.query.__annotations__
    query: dict[str, object] = {name: value for name, value in URL(path).query.items() if name in known and value}
    with suppress(msgspec.ValidationError):
        query = msgspec.convert(query, operation.query, strict=False)
    for name, value in query.items():
        yield f"{_POSITION.get(name, name)}=", writer.write(value)


# --- the program -------------------------------------------------------------------------------------------------


def _program(base_url: str, operation: AnyOperation, arguments: list[tuple[str, Expression]], writer: Writer) -> str:
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
    foreign: list[str] = []
    ours: list[str] = []
    for module, names in sorted(writer.names.items()):
        line = f"from {module} import {', '.join(sorted(names))}"
        if len(line) > WIDTH:
            line = laid_out(Group(f"from {module} import (", [("", name) for name in sorted(names)], ")"), 0)
        (ours if module.startswith("paymentsdk") else foreign).append(line)
    return [*foreign, "", *ours]
