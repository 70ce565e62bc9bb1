"""What every response of the pages says to the browser: who may frame, fetch, keep and run it. Nobody else."""

from __future__ import annotations

from types import MappingProxyType

_COMMON = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer` a browser would send the form with `Origin: null`, which is no better than none.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_POLICY = "default-src 'none'; img-src 'self'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"

#: Of a page that is a form and runs nothing.
FORM = MappingProxyType({**_COMMON, "Content-Security-Policy": f"{_POLICY}; form-action 'self'"})
#: Of a page that runs its own scripts, which talk to the control API.
SCRIPT = MappingProxyType(
    {
        **_COMMON,
        "Content-Security-Policy": f"{_POLICY}; script-src 'self'; connect-src 'self'; form-action 'none'",
    }
)
