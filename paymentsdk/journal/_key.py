"""The idempotency key of a named record: the same in every process, and after every loss of the journal."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256

from paymentsdk.errors import RequestInvalid

#: Begins every key: which derivation made it. Another derivation would have the platform do everything once more.
VERSION = "once1-"
_LONGEST_NAME = 200


def derive_key(base_url: str, seller: str, operation: str, name: str) -> str:
    """Return the idempotency key of a record: 49 visible ASCII characters.

    It depends on these four alone, not on a local alias of the seller, and is part of the format: two processes without
    a common journal, or a journal restored from a backup, send the same key, and the platform does the thing once.

    Args:
        base_url: Scheme, host and path of the platform, without a slash at its end.
        seller: The seller's user id on the platform.
        operation: ``"orders.create"``.
        name: What the caller named the record: 1 to 200 printable characters.

    Raises:
        RequestInvalid: One of them is empty or no text, or *name* is too long or not printable.
    """
    check_name(name)
    hashed = sha256(_scope(base_url, seller, operation) + _field(name))
    return VERSION + urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode()


@lru_cache(maxsize=1024)
def _scope(base_url: str, seller: str, operation: str) -> bytes:
    for field, part in (("base_url", base_url), ("seller", seller), ("operation", operation)):
        if not isinstance(part, str) or not part:
            raise RequestInvalid(field, "must be a string that is not empty")
    return _field(base_url) + _field(seller) + _field(operation)


def _field(part: str) -> bytes:
    encoded = part.encode()
    # The length first: else "ab" + "c" and "a" + "bc" would be one record.
    return len(encoded).to_bytes(4, "big") + encoded


def check_name(name: str) -> None:
    """Reject what cannot name a record.

    Raises:
        RequestInvalid: It is not 1 to 200 printable characters.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise RequestInvalid("once", f"must be 1 to {_LONGEST_NAME} printable characters")
