"""A past request as a shell command that sends it again.

The feed has no credentials, so the command reads the token from ``PAYMENTSDK_ACCESS_TOKEN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex
from shlex import quote

from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._wire import AnyOperation


def curl(line: RequestLine, base_url: str, operations: Mapping[str, AnyOperation]) -> str:
    """Return the request as a shell command. A keyed write gets a new key, so that it is executed again."""
    operation = operations.get(line.operation or "")
    # With `-X HEAD`, curl would wait for a body that never comes. Without `-g`, it would expand brackets and braces in
    # the address into several requests. Without `--path-as-is`, it would resolve dots in the path.
    method = "--head" if line.method == "HEAD" else f"-X {quote(line.method)}"
    dots = " --path-as-is" if "/." in line.path else ""
    parts = [f"curl {method} -g{dots} {quote(base_url + line.path)}"]
    if operation is None or operation.authenticated:
        parts.append('-H "Authorization: Bearer $PAYMENTSDK_ACCESS_TOKEN"')
    if operation is not None and operation.keyed:
        parts.append(f"-H '{operation.key_header}: {token_hex(16)}'")
    if line.body:
        # The sandbox reads a body without Content-Type as JSON, but curl would declare it a form.
        kind = line.content_type or "application/json"
        parts.append(f"-H {quote(f'Content-Type: {kind}')}")
        parts.append(f"--data-raw {quote(line.body)}")
    return " \\\n  ".join(parts)
