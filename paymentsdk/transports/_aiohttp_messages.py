"""Checks of requests, proxies and responses for aiohttp, and the meaning of its errors."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache, partial
from http import HTTPStatus

import aiohttp
from aiohttp.hdrs import CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING
from aiohttp.http import HttpProcessingError
from yarl import URL

from paymentsdk._futures import retrieve_exception
from paymentsdk._secrets import masked
from paymentsdk._validate import check_proxy, is_loopback
from paymentsdk.errors import RequestInvalid, describe
from paymentsdk.transports._pool import HOST_BEGINS, flaw_of, words_of_system
from paymentsdk.transports.base import Request, SendFailed, too_long

#: The status codes of a response; aiohttp skips the interim ones below, except 101.
_FINAL = range(200, 600)
#: Characters of a proxy's user and password (RFC 7617 leaves the encoding open; aiohttp uses this one).
_LATIN1 = re.compile("[\x00-\xff]*")


# --- requests ---------------------------------------------------------------------------------------------------------


def checked_url(request: Request) -> URL:
    """Return the URL of *request* if HTTP can express it: aiohttp would drop some parts, and send the rest.

    Raises:
        SendFailed: HTTP cannot express it.
    """
    flaw, url = flaw_of(request), request.url
    if flaw is None:
        try:
            path = url.find("/", HOST_BEGINS)
            if path < 0 or "?" in url or "#" in url:
                return _parsed(url)
            # Most URLs differ from the last one only in their path, and parsing a URL takes longer than all checks.
            return _parsed(url[:path]).with_path(url[path:], encoded=True)
        except ValueError:
            flaw = "the URL is malformed"
    raise SendFailed(flaw, sent=False, permanent=True)


@lru_cache(maxsize=64)
def _parsed(url: str) -> URL:
    parsed = URL(url, encoded=True)
    parsed.port  # noqa: B018 - yarl only parses the port when it is read
    return parsed


def proxy_of(proxy: str | None) -> tuple[URL | None, dict[str, str]]:
    """Return the URL of a *proxy* without its user and password, and the header field with them, if it has them.

    aiohttp would show a login in the URL when it warns of an unclosed connection.

    Raises:
        RequestInvalid: This is not the URL of a proxy, or its login cannot be sent.
    """
    check_proxy(proxy)
    url = None if proxy is None else URL(proxy)
    if url is None or (url.raw_user, url.raw_password) == (None, None):
        return url, {}
    user, password = masked(url.user or ""), masked(url.password or "")
    if ":" in user or not _LATIN1.fullmatch(user + password):
        raise RequestInvalid("proxy", "has a user or a password that cannot be written as HTTP")
    return url.with_user(None), {
        "Proxy-Authorization": "Basic " + b64encode(f"{user}:{password}".encode("latin1")).decode()
    }


def check_proxied(url: URL, proxy: URL) -> None:
    """Check that a request to *url* may go through *proxy*.

    Raises:
        SendFailed: It is plain http to this machine, which is allowed because no other machine can read it.
    """
    if url.scheme == "http" and is_loopback(url.host or "") and not is_loopback(proxy.host or ""):
        reason = "plain http to this machine would show the token to a proxy on another: use https, or no proxy"
        raise SendFailed(reason, sent=False, permanent=True)


# --- responses --------------------------------------------------------------------------------------------------------


async def read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body, if it is complete and has at most *most* bytes.

    Raises:
        SendFailed: The body is not, or the response cannot be used. A response that is cut off raises aiohttp's error.
    """
    headers, content = response.headers, response.content
    length, is_chunked = headers.get(CONTENT_LENGTH), TRANSFER_ENCODING in headers
    if is_chunked or CONTENT_ENCODING in headers or response.status not in _FINAL:
        _check_head(response)
    if length is not None and int(length) > most:
        raise too_long(most)
    is_framed = is_chunked or length is not None
    if not (content.is_eof() and is_framed):
        return await _read_rest(response, most, is_framed=is_framed)
    body = content.read_nowait()  # A small body comes together with the head.
    if len(body) > most:
        raise too_long(most)
    return body


async def _read_rest(response: aiohttp.ClientResponse, most: int, *, is_framed: bool) -> bytes:
    content, protocol = response.content, response.connection and response.connection.protocol
    closed, cut_off = None if protocol is None else protocol.closed, partial(_cut_off, content)
    if closed is None:
        cut_off()
    else:
        closed.remove_done_callback(retrieve_exception)  # One callback is enough.
        closed.add_done_callback(retrieve_exception)
        closed.add_done_callback(cut_off)
    body = bytearray()
    try:
        # Limited whatever the header says, unlike `response.read()`.
        while chunk := await content.readany():
            body += chunk
            if len(body) > most:
                raise too_long(most)
    finally:
        if closed is not None:
            closed.remove_done_callback(cut_off)
    if not is_framed and protocol is not None and isinstance(protocol.exception(), aiohttp.ClientOSError):
        # Only the end of the connection ends this body, and aiohttp treats a reset as the end.
        raise SendFailed("the response is cut off or malformed")
    return bytes(body)


def _cut_off(content: aiohttp.StreamReader, _: object = None) -> None:
    """Make *content* fail unless it is complete. aiohttp keeps the reader waiting after a malformed response."""
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError())


def _check_head(response: aiohttp.ClientResponse) -> None:
    """Reject heads that aiohttp's parser accepts but that cannot be trusted."""
    headers, status = response.headers, response.status
    packing = headers.get(CONTENT_ENCODING, "identity")
    codings = [name.lower() for name in headers.getall(TRANSFER_ENCODING, ())]
    for is_so, permanent, reason in (
        (status == HTTPStatus.SWITCHING_PROTOCOLS, True, "the server switched to another protocol"),
        (status not in _FINAL, False, "the response is not valid HTTP"),
        (codings and CONTENT_LENGTH in headers, False, "the response has both a length and chunks"),
        # aiohttp would return the chunks unchanged, with their sizes.
        (codings not in ([], ["chunked"]), False, "the response has a transfer coding other than chunked"),
        (packing.lower() != "identity", True, "the response is compressed, which was not asked for"),
    ):
        if is_so:
            raise SendFailed(reason, permanent=permanent)


# --- errors -----------------------------------------------------------------------------------------------------------


#: aiohttp's exceptions: whether the request may have been sent, whether another attempt would fail the same way, and
#: the reason. The first match counts; a certificate error is a connect error, too.
_FAILURES = (
    (aiohttp.ClientConnectorCertificateError, False, True, "the server's certificate does not verify"),
    (aiohttp.ServerFingerprintMismatch, False, True, "the server's certificate has another fingerprint"),
    (aiohttp.ClientConnectorSSLError, False, False, "the TLS handshake failed"),
    (aiohttp.ClientConnectorDNSError, False, False, "the host name was not resolved"),
    (aiohttp.ClientProxyConnectionError, False, False, "no connection to the proxy"),
    (aiohttp.ClientConnectorError, False, False, "no connection to the server"),
    (aiohttp.ConnectionTimeoutError, False, False, "no connection in time"),
    (aiohttp.ClientHttpProxyError, False, False, "the proxy refused to connect"),
    (aiohttp.InvalidURL, False, True, "the URL or the proxy's URL has no host"),
    (aiohttp.NonHttpUrlClientError, False, True, "the URL is not an http or https URL"),
    (aiohttp.ServerDisconnectedError, True, False, "the server closed the connection without a response"),
    (aiohttp.ClientPayloadError, True, False, "the response is cut off or malformed"),
    # aiohttp sets the status 400, but no server has sent it.
    ((aiohttp.ClientResponseError, HttpProcessingError), True, False, "the response is not valid HTTP"),
    (aiohttp.ClientOSError, True, False, "the connection broke"),
)


#: aiohttp may have sent these methods before, on a kept connection that broke; then it raises a connect error.
_RESENT = frozenset({"PUT", "DELETE"})
_NO_CONNECTION = (aiohttp.ClientConnectionError, aiohttp.ClientHttpProxyError)


def send_failed(error: Exception, method: str, *, sent: bool | None) -> SendFailed:
    """Return the meaning of *error*, without its traceback: the text of aiohttp's errors can hold the token.

    *sent* tells whether the request had a connection. With `None` only the error tells, and it is about the last try.
    """
    if isinstance(error, SendFailed):
        return SendFailed(error.reason, error.sent, permanent=error.permanent)
    may_be_sent, permanent, reason = _meaning(error)
    if sent is None:
        sent = may_be_sent or (method in _RESENT and isinstance(error, _NO_CONNECTION))
    return SendFailed(reason, sent, permanent=permanent)


def _meaning(error: Exception) -> tuple[bool, bool, str]:
    for kinds, may_be_sent, permanent, reason in _FAILURES:
        if isinstance(error, kinds):
            return may_be_sent, permanent, reason + _detail(error)
    return True, False, f"aiohttp raised {describe(error)}"


def _detail(error: Exception) -> str:
    """Return the address of a failed connection, and the system's reason."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f" (status {error.status})"
    words = words_of_system(getattr(error, "certificate_error", getattr(error, "os_error", error)))
    host = getattr(error, "host", None)  # An error of a middleware has no connection.
    if not isinstance(error, aiohttp.ClientConnectorError) or host is None:
        return words
    return f" ({f'[{host}]' if ':' in host else host}:{error.port}){words}"
