"""What aiohttp's errors mean: which of them say that nothing was sent, and in which words."""

from __future__ import annotations

import os
from ssl import SSLCertVerificationError, SSLError
from typing import NamedTuple

import aiohttp
from aiohttp.http import HttpProcessingError

from paymentsdk.transports.base import SendFailed


class _Meaning(NamedTuple):
    kind: type[Exception]
    reason: str
    sent: bool = False
    permanent: bool = False


#: The first that fits counts. A certificate error is a connect error too: it stands before it.
_MEANINGS = (
    _Meaning(aiohttp.ClientConnectorCertificateError, "the server's certificate does not verify", permanent=True),
    _Meaning(aiohttp.ServerFingerprintMismatch, "the server's certificate has another fingerprint", permanent=True),
    _Meaning(aiohttp.ClientConnectorSSLError, "the TLS handshake failed"),
    _Meaning(aiohttp.ClientConnectorDNSError, "the host name was not resolved"),
    _Meaning(aiohttp.ClientProxyConnectionError, "no connection to the proxy"),
    _Meaning(aiohttp.ClientConnectorError, "no connection to the server"),
    _Meaning(aiohttp.ConnectionTimeoutError, "no connection in time"),
    _Meaning(aiohttp.ClientHttpProxyError, "the proxy refused to connect"),
    _Meaning(aiohttp.InvalidURL, "the URL, or that of the proxy, has no host", permanent=True),
    _Meaning(aiohttp.NonHttpUrlClientError, "the URL is not an http or https URL", permanent=True),
    _Meaning(aiohttp.ServerDisconnectedError, "the server closed the connection without a response", sent=True),
    _Meaning(aiohttp.ClientPayloadError, "the response is cut off or malformed", sent=True),
    # aiohttp gives it the status 400, but nobody has sent that.
    _Meaning(aiohttp.ClientResponseError, "the response is not valid HTTP", sent=True),
    _Meaning(HttpProcessingError, "the response is not valid HTTP", sent=True),
    _Meaning(aiohttp.ClientOSError, "the connection broke", sent=True),
)


def failure_of(error: Exception) -> SendFailed:
    """Say what *error* means, without a trace of it: the text of aiohttp's errors can hold the token."""
    if isinstance(error, SendFailed):
        return error.with_traceback(None)
    for meaning in _MEANINGS:
        if isinstance(error, meaning.kind):
            reason = meaning.reason + _place(error) + _detail(error)
            return SendFailed(reason, meaning.sent, permanent=meaning.permanent)
    return SendFailed(f"aiohttp raised {type(error).__name__}")


def raised_by_session(error: Exception, *, but_not: str) -> bool:
    """Whether a session itself raised *error*: not the module *but_not*, which has called it, nor what it has called.

    It calls traces, middlewares and connections, and their errors say nothing about what was sent.
    """
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_globals["__name__"] == but_not:
        entry = entry.tb_next
    if entry is None or entry.tb_next is not None or isinstance(error, aiohttp.ClientError):
        return False
    return str(entry.tb_frame.f_globals["__name__"]).startswith("aiohttp.")


def _place(error: Exception) -> str:
    """Return whom there was no connection to: a wrong address is the first thing to look for."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return ""
    try:
        host = f"[{error.host}]" if ":" in error.host else error.host
    except AttributeError:  # One that a middleware has made knows of no connection.
        return ""
    return f" ({host}:{error.port})"


def _detail(error: Exception) -> str:
    """Return what the system says about it, in words that cannot hold anything of ours."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f" (status {error.status})"
    cause = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, SSLError):
        words = cause.verify_message if isinstance(cause, SSLCertVerificationError) else cause.reason
        return f": {words}" if words else ""
    number = cause.errno if isinstance(cause, OSError) else None
    return f": {os.strerror(number)}" if number and number > 0 else ""
