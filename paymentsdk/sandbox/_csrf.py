"""Keeps web pages from elsewhere away from the control API: none of them may pay an order.

Every browser says in ``Origin``, ``Sec-Fetch-Site`` or ``Host`` where a request comes from; programs say nothing, and
pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from paymentsdk.sandbox._responses import Refused

__all__ = ["check_origin"]

_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


def check_origin(headers: Mapping[str, str], allowed_hosts: frozenset[str]) -> None:
    """Refuse a request that a page from elsewhere sent.

    Args:
        headers: The headers, under the names below.
        allowed_hosts: Names besides those of this machine that the sandbox is known by.

    Raises:
        Refused: It comes from another site, or asks for this machine under a foreign name (DNS rebinding).
    """
    host = headers.get("Host", "")
    name = _parts("//" + host).hostname
    if name not in _OWN_NAMES | allowed_hosts and not _is_address(name):
        raise Refused(403, "forbidden", "the control API does not answer under this host name")
    if headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        raise Refused(403, "forbidden", "the control API takes no requests from other sites")
    origin = headers.get("Origin")
    if origin is not None and _parts(origin).netloc != host:
        raise Refused(403, "forbidden", "the control API takes no requests from other sites")


def _is_address(name: str | None) -> bool:
    """Whether *name* is a number: whoever rebinds a name to this machine, a browser still says the name."""
    try:
        ip_address(name or "")
    except ValueError:
        return False
    return True


def _parts(url: str) -> SplitResult:
    """Return the parts of *url*; empty ones if it is no address, as with a bracket that nobody closes."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
