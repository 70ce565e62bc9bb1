"""The address of the platform, and whether credentials may go there."""

from __future__ import annotations

import os
import re

from paymentsdk._validate import ALLOW_HTTP, is_loopback
from paymentsdk.errors import RequestInvalid

_BASE_URL = r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_~]+)(?::[0-9]{1,5})?(?:/[A-Za-z0-9.\-_~%]+)*/?\Z"


def check_base_url(base_url: str, *, allow_http: bool | None) -> str:
    """Return *base_url* without a slash at its end.

    Every call carries a credential, or obtains one. So plain http is for this machine alone, unless *allow_http* says
    otherwise; if that is ``None``, the environment decides.

    Raises:
        RequestInvalid: It is no http or https address, or one of plain http on another machine. The error does not show
            an address that it cannot read: there may be a password in it.
    """
    host = _host(base_url)
    if host is None:
        reason = "must be an http or https address without query, such as https://api.example.com"
        raise RequestInvalid("base_url", reason)
    if allow_http is None:
        allow_http = os.environ.get(ALLOW_HTTP) == "1"
    if not (allow_http or base_url.startswith("https:") or is_loopback(host)):
        reason = (
            f"is plain http, and {host} is another machine: whoever is on the way could read the credentials; use "
            f"https, or, on a network that you trust, allow_http=True or {ALLOW_HTTP}=1"
        )
        raise RequestInvalid("base_url", reason)
    return base_url.rstrip("/")


def _host(base_url: str) -> str | None:
    """Return the host of *base_url* in lower case; ``None`` if that is no address to send requests to."""
    if not isinstance(base_url, str) or not re.match(_BASE_URL, base_url):
        return None
    from ipaddress import ip_address  # only who makes a client needs them
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
        if host and ":" in host:
            ip_address(host)
    except ValueError:  # A port above 65535, or an IPv6 address that is none.
        return None
    return None if port == 0 else host
