"""The two signatures of notifications: the sandbox signs with them, and `paymentsdk.webhooks` verifies them."""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64
from functools import partial
from hmac import digest

from paymentsdk._secrets import masked

#: The header fields of Standard Webhooks 1.0: id, timestamp and signatures.
STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
#: The beginning of a secret of Standard Webhooks.
PREFIX = "whsec_"
#: The form of a secret of Standard Webhooks, in words.
KEY_FORM = f"{PREFIX} and the base64 of 24 to 64 bytes"
_KEY_SIZES = range(24, 65)
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: The placeholders of a manifest.
IN_MANIFEST = ("id", "id:lower", "request_id", "ts")
from_base64 = partial(a2b_base64, strict_mode=True)


def standard_key(secret: str) -> bytes | None:
    """Return the key in a secret of Standard Webhooks; `None` if the secret is invalid."""
    encoded = masked(secret.removeprefix(PREFIX))
    try:
        key = masked(from_base64(encoded))
    except ValueError:
        return None
    return key if len(key) in _KEY_SIZES and b64encode(key).decode() == encoded else None


def standard_digest(key: bytes, event: str, timestamp: str, body: bytes) -> bytes:
    """Return the signature of Standard Webhooks."""
    return masked(digest(key, b"%b.%b.%b" % (event.encode(), timestamp.encode(), body), "sha256"))


def manifest_text(manifest: str, resource: str, request_id: str, timestamp: str) -> tuple[str, frozenset[str]]:
    """Return the signed text of a manifest, and the names of the values in it. Parts with an empty value are left out.

    A part of the manifest ends with its ``;``.
    """
    values = {"id": resource, "id:lower": resource.lower(), "request_id": request_id, "ts": timestamp}
    parts = re.findall(r"[^;]*;|[^;]+", manifest)
    # Filled one by one: what is left of two parts could look like a placeholder.
    parts = [part for part in parts if all(values[name] for name in PLACEHOLDER.findall(part))]
    signed = frozenset(name.partition(":")[0] for part in parts for name in PLACEHOLDER.findall(part))
    return "".join(PLACEHOLDER.sub(lambda match: values[match[1]], part) for part in parts), signed
