"""Keeps web pages from elsewhere away from the control API: none of them may pay an order.

Every browser says in ``Origin``, ``Sec-Fetch-Site`` or ``Host`` where a request comes from. Programs pass under any
host name, such as that of a container: DNS rebinding needs a browser, and each of them sends one of ``_BROWSER``.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from paymentsdk.sandbox._responses import Rejected

#: Over http only a page on this machine is told apart by ``Sec-Fetch-Site``, and a GET has no ``Origin``.
_BROWSER = ("Origin", "Sec-Fetch-Site", "Accept-Language")


def check_origin(headers: Mapping[str, str], allowed_hosts: frozenset[str]) -> None:
    """Reject a request that a page from elsewhere sent.

    Args:
        headers: The headers, under the names below.
        allowed_hosts: Names besides those of this machine that the sandbox is known by.

    Raises:
        Rejected: It comes from another site, or asks for this machine under a foreign name (DNS rebinding).
    """
    host = headers.get("Host", "")
    name = _parts("//" + host).hostname
    if _is_browser(headers) and name not in {"localhost", *allowed_hosts} and not _is_address(name):
        words = f"a browser cannot use the sandbox under the host name {name}: start it with --public-url http://{host}"
        raise Rejected(403, "forbidden", words)
    if headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        raise Rejected(403, "forbidden", "the control API takes no requests from other sites")
    origin = headers.get("Origin")
    if origin is not None and _parts(origin).netloc != host:
        raise Rejected(403, "forbidden", "the control API takes no requests from other sites")


def _is_browser(headers: Mapping[str, str]) -> bool:
    # A script can set the last two, but leave none of them out.
    return any(name in headers for name in _BROWSER) or headers.get("User-Agent", "").startswith("Mozilla/")


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
