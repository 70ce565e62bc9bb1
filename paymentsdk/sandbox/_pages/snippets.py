"""A request that had a response, as a line for a shell that sends it again.

The feed holds no credentials, so the line holds none: the token comes from ``PAYMENTSDK_ACCESS_TOKEN``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from secrets import token_hex

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._wire import AnyOperation


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
