"""The two signatures of notifications: the sandbox signs with them, and `paymentsdk.webhooks` verifies them."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from hmac import digest

from paymentsdk._secrets import masked
from paymentsdk.errors import RequestInvalid

#: The header fields of Standard Webhooks 1.0: id, timestamp and signatures.
STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
#: The beginning of a secret of Standard Webhooks.
PREFIX = "whsec_"
_KEY_SIZES = range(24, 65)
#: The form of a manifest, with its placeholders. No text that remains around an empty part looks like a placeholder.
MANIFEST = r"\A([^{}]|\{(id|id:lower|request_id|ts)\})+\Z(?#may contain only {id}, {id:lower}, {request_id} and {ts})"
_PLACEHOLDER = re.compile(r"\{([^}]+)\}")


def standard_key(path: str, secret: object) -> bytes:
    """Return the key in a secret of Standard Webhooks.

    Raises:
        RequestInvalid: The secret is invalid. The error names *path*.
    """
    encoded = masked(secret.removeprefix(PREFIX)) if isinstance(secret, str) else ""
    try:
        key = masked(b64decode(encoded))
    except ValueError:
        key = b""
    if len(key) not in _KEY_SIZES or b64encode(key).decode() != encoded:
        raise RequestInvalid(path, f"must be {PREFIX} and the base64 of 24 to 64 bytes")
    return key


def sign_standard(key: bytes, event: str, timestamp: str, body: bytes) -> str:
    """Return the signature of Standard Webhooks, with its version."""
    signature = masked(digest(key, b"%b.%b.%b" % (event.encode(), timestamp.encode(), body), "sha256"))
    return masked(f"v1,{b64encode(signature).decode()}")


def manifest_text(manifest: str, resource: str, request_id: str, timestamp: str) -> tuple[str, frozenset[str]]:
    """Return the signed text of a manifest, and the names of the values in it. Parts with an empty value are left out.

    A part of the manifest ends with its ``;``.
    """
    values = {"id": resource, "id:lower": resource.lower(), "request_id": request_id, "ts": timestamp}
    parts = re.findall(r"[^;]*;|[^;]+", manifest)
    text = "".join(part for part in parts if all(values[name] for name in _PLACEHOLDER.findall(part)))
    signed = frozenset(name.partition(":")[0] for name in _PLACEHOLDER.findall(text))
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text), signed
