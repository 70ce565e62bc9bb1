"""A request that had a response, as something to run again: a line for a shell, or a program for the SDK.

The lines of the feed hold no credentials, so neither do these: the token comes from ``PAYMENTSDK_ACCESS_TOKEN``.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from secrets import token_hex
from typing import TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from yarl import URL

from paymentsdk._secrets import MASK
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._wire import AnyOperation

#: Columns of a line of a program.
WIDTH = 100
#: Operations whose method takes other arguments than the body and the path; ``client.call`` takes these.
_OTHER_ARGUMENTS = frozenset({"oauth.token", "orders.refund"})
#: What the methods call the position of a page.
_POSITION = {"limit": "page_size", "offset": "start"}
#: The names that a program imports, by their module.
_Imports: TypeAlias = defaultdict[str, set[str]]


def curl(line: RequestLine, base_url: str, operations: Mapping[str, AnyOperation] = OPERATIONS) -> str:
    """Return the request as a command for a shell. A keyed write gets a new key: it is done again."""
    operation = operations.get(line.operation or "")
    # With `-X HEAD` curl would wait for the body that no such response has; without `-g` it takes brackets and braces
    # in the address for a list, and sends a request for each of its entries. Dots in a path it would take for folders.
    method = "--head" if line.method == "HEAD" else f"-X {_word(line.method)}"
    dots = " --path-as-is" if "/." in line.path else ""
    parts = [f"curl {method} -g{dots} {_word(base_url + line.path)}"]
    if operation is None or operation.authenticated:
        parts.append('-H "Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"')
    if operation is not None and operation.keyed:
        parts.append(f"-H '{operation.key_header}: {token_hex(16)}'")
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
        body = operation.encoder.decode(line.body.encode()) if operation.encoder and line.body else None
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, RequestInvalid) else "It is not JSON."
        return f"# The SDK rejects this body before it is sent.\n# {reason}\n"
    imports: _Imports = defaultdict(set, {"paymentsdk": {"PaymentsClient"}})
    method = "call" if operation.name in _OTHER_ARGUMENTS else operation.name
    call = _laid_out(f"client.{method}(", [*_arguments(operation, body, line.path, imports)], ")", 8)
    token = 'os.environ["PAYMENTSDK_ACCESS_TOKEN"], ' if operation.authenticated else ""
    steps = [f"print(await {call})"] if operation.page is None else [f"async for row in {call}:", "    print(row)"]
    lines = [
        "import asyncio",
        *(["import os"] if operation.authenticated else []),
        *_import_lines(imports),
        "",
        "",
        "async def main() -> None:",
        f"    async with PaymentsClient({token}base_url={_quoted(base_url)}) as client:",
        *(f"        {step}" for step in steps),
        "",
        "",
        "asyncio.run(main())",
    ]
    return "\n".join(lines) + "\n"


def _arguments(operation: AnyOperation, body: object, path: str, imports: _Imports) -> Iterator[str]:
    """Yield what the call is given, and add what that needs to *imports*."""
    if named := operation.name in _OTHER_ARGUMENTS:
        imports["paymentsdk"].add("OPERATIONS")
        yield f'OPERATIONS["{operation.name}"]'
    if body is not None:
        yield _expression(body, 12, imports)
    ids = re.match(re.sub(r"{(\w+)}", r"(?P<\1>[^/?]+)", operation.path), path)
    for name, value in ids.groupdict().items() if ids else ():
        # A method takes its one id first; `client.call` wants its name.
        yield f"{name}={_quoted(unquote(value))}" if named else _quoted(unquote(value))
    if operation.query is None:
        return
    known = operation.query.__annotations__
    query: dict[str, object] = {name: text for name, text in URL(path).query.items() if name in known and text}
    with suppress(msgspec.ValidationError):
        query = msgspec.convert(query, operation.query, strict=False)
    for name, value in query.items():
        yield f"{_POSITION.get(name, name)}={_expression(value, 12, imports)}"


def _expression(value: object, column: int, imports: _Imports) -> str:
    """Return the expression that makes *value* and begins at *column*, with a mask in place of each credential."""
    match value:
        case Struct():
            imports[type(value).__module__].add(type(value).__name__)
            parts = [f"{name}={_expression(member, column + 4, imports)}" for name, member in _given(value)]
            return _laid_out(f"{type(value).__name__}(", parts, ")", column)
        case list() | tuple():
            return _laid_out("[", [_expression(one, column + 4, imports) for one in value], "]", column)
        case Decimal():
            imports["decimal"].add("Decimal")
            return f'Decimal("{value}")'
        case date():
            imports["datetime"].add(type(value).__name__)
            return f'{type(value).__name__}.fromisoformat("{value.isoformat()}")'
        case str():
            return _quoted(value)
        case _:
            return repr(value)


def _import_lines(imports: _Imports) -> Iterator[str]:
    for module, names in sorted(imports.items()):
        if module == "paymentsdk":  # The first of ours: those of the standard library come before it.
            yield ""
        line = f"from {module} import {', '.join(sorted(names))}"
        yield line if len(line) <= WIDTH else _laid_out(f"from {module} import (", sorted(names), ")", 0)


def _given(value: Struct) -> Iterator[tuple[str, object]]:
    """Yield the members that differ from what they are when they are not given."""
    hidden: frozenset[str] = getattr(value, "__secrets__", frozenset())
    for field in msgspec.structs.fields(value):
        member = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if member != default:
            yield field.name, MASK if field.name in hidden else member


def _quoted(text: str) -> str:
    """Return *text* as a literal, in double quotes unless it holds some itself."""
    literal = repr(text)
    return literal if '"' in literal else f'"{literal[1:-1]}"'


def _laid_out(opening: str, parts: list[str], closing: str, column: int) -> str:
    """Return what begins at *column* on one line, or with each of its *parts* on one of its own if it is too long."""
    flat = opening + ", ".join(parts) + closing
    if "\n" not in flat and column + len(flat) <= WIDTH:
        return flat
    rows = (f"{' ' * (column + 4)}{part},\n" for part in parts)
    return f"{opening}\n{''.join(rows)}{' ' * column}{closing}"
