"""The address of the platform, and whether credentials may go there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from paymentsdk._validate import ALLOW_HTTP, is_loopback
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PORTS = {"http": 80, "https": 443}
_BASE_URL = r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_~]+)(?::[0-9]{1,5})?(?:/[A-Za-z0-9.\-_~%]+)*/?\Z"


def check_base_url(base_url: str, *, allow_http: bool | None) -> str:
    """Return *base_url* in one form, however it is written: keys of journaled writes are derived from it.

    That is with the host in lower case, without the default port, and without a slash at the end.

    Every call carries a credential, or obtains one. So plain http is for this machine alone, unless *allow_http* says
    otherwise; if that is ``None``, the environment decides.

    Raises:
        RequestInvalid: It is no http or https address, or one of plain http on another machine. The error does not show
            an address that it cannot read: there may be a password in it.
    """
    parts = _parts(base_url)
    if parts is None or not parts.hostname:
        reason = "must be an http or https address without query, such as https://api.example.com"
        raise RequestInvalid("base_url", reason)
    host = parts.hostname
    if allow_http is None:
        allow_http = os.environ.get(ALLOW_HTTP) == "1"
    if not (allow_http or parts.scheme == "https" or is_loopback(host)):
        reason = (
            f"is plain http, and {host} is another machine: whoever is on the way could read the credentials; use "
            f"https, or, on a network that you trust, allow_http=True or {ALLOW_HTTP}=1"
        )
        raise RequestInvalid("base_url", reason)
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path.rstrip('/')}"


def _parts(base_url: str) -> SplitResult | None:
    """Return the parts of *base_url*; ``None`` if that is no address to send requests to."""
    if not isinstance(base_url, str) or not re.match(_BASE_URL, base_url):
        return None
    from ipaddress import ip_address  # only who makes a client needs them
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        if parts.hostname and ":" in parts.hostname:
            ip_address(parts.hostname)
        port = parts.port
    except ValueError:  # A port above 65535, or an IPv6 address that is none.
        return None
    return None if port == 0 else parts
