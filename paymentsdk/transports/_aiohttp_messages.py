"""What goes to aiohttp and comes from it: which requests, proxies and responses are none, and what errors mean."""

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
from paymentsdk._validate import is_loopback
from paymentsdk.errors import describe
from paymentsdk.transports._pool import HOST_BEGINS, words_of_system
from paymentsdk.transports.base import PoolFull, Request, SendFailed, too_long

#: The status codes of a response; aiohttp passes over the interim ones below, except 101.
_FINAL = range(200, 600)
#: What no part of a request may hold: control characters, though a tab may stand in the value of a header field, and
#: what UTF-8 cannot write.
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
#: What may stand in any of them.
_PRINTABLE = bytes(range(ord(" "), ord("~") + 1))
#: What user and password of a proxy may consist of (RFC 7617 leaves the encoding open; aiohttp takes this one).
_LATIN1 = re.compile("[\x00-\xff]*")


# --- requests ---------------------------------------------------------------------------------------------------------


def checked_url(request: Request) -> URL:
    """Return the URL of *request*, which can be put into HTTP: aiohttp would leave some of it out, and send the rest.

    Raises:
        SendFailed: It cannot.
    """
    headers = request.headers
    text = "".join((request.method, request.url, *headers, *headers.values()))
    # The second says the same as `isprintable`, in two thirds of its time.
    is_printable = text.isascii() and not text.encode().translate(None, _PRINTABLE)
    # In the first line a space ends what it stands in. yarl would leave a tab out, and it is another path then.
    has_space = " " in request.url or " " in request.method
    if has_space or (not is_printable and (_UNSENDABLE.search(text) or "\t" in request.url)):
        flaw = "the method, the URL or a header has a character in it that cannot be sent"
    else:
        try:
            path = request.url.find("/", HOST_BEGINS)
            if path < 0 or "?" in request.url or "#" in request.url:
                return _parsed(request.url)
            # Most URLs differ from the last one in their path alone, and to parse one takes longer than all checks.
            return _parsed(request.url[:path]).with_path(request.url[path:], encoded=True)
        except ValueError:
            flaw = "the URL is malformed"
    raise SendFailed(flaw, sent=False, permanent=True)


@lru_cache(maxsize=64)
def _parsed(url: str) -> URL:
    parsed = URL(url, encoded=True)
    parsed.port  # noqa: B018 - it is read when it is asked for
    return parsed


def proxy_for(url: URL, proxy: str) -> tuple[URL, dict[str, str] | None]:
    """Return *proxy*, and the header field that tells it user and password.

    Raises:
        SendFailed: It is none that a request may go through.
    """
    address, login = _without_login(proxy)
    # Plain http to this machine is allowed because nobody else can read it.
    if url.scheme == "http" and is_loopback(url.host or "") and not is_loopback(address.host or ""):
        reason = "plain http to this machine would show the token to a proxy on another: use https, or no proxy"
        raise SendFailed(reason, sent=False, permanent=True)
    return address, login


def _without_login(proxy: str) -> tuple[URL, dict[str, str] | None]:
    """Return *proxy* without its user and password, and the header field that tells it both, if there are any.

    In the URL, aiohttp would show them in its warning of a connection that nobody has closed.
    """
    url = URL(proxy)
    if (url.raw_user, url.raw_password) == (None, None):
        return url, None
    user, password = url.user or "", url.password or ""
    if ":" in user or not _LATIN1.fullmatch(user + password):
        raise SendFailed("the proxy's user or password cannot be written as HTTP", sent=False, permanent=True)
    login = b64encode(f"{user}:{password}".encode("latin1")).decode()
    return url.with_user(None), {"Proxy-Authorization": "Basic " + login}


# --- responses --------------------------------------------------------------------------------------------------------


async def read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body, if it is whole, and has at most *most* bytes.

    Raises:
        SendFailed: It is not, or the response cannot be used; or aiohttp's error for one that is cut off.
    """
    headers, content = response.headers, response.content
    length = headers.get(CONTENT_LENGTH)
    is_chunked = TRANSFER_ENCODING in headers
    if is_chunked or CONTENT_ENCODING in headers or response.status not in _FINAL:
        _check_head(response)
    if content.is_eof() and (is_chunked or length is not None):
        body = content.read_nowait()  # It came along with the head, as a small one does.
        if len(body) > most:
            raise too_long(most)
        return body
    if length is not None and length.isdecimal() and int(length) > most:
        raise too_long(most)
    return await _read_rest(response, most, is_framed=is_chunked or length is not None)


async def _read_rest(response: aiohttp.ClientResponse, most: int, *, is_framed: bool) -> bytes:
    content, protocol = response.content, response.connection and response.connection.protocol
    closed, cut_off = None if protocol is None else protocol.closed, partial(_cut_off, content)
    if closed is None:
        cut_off()
    else:
        closed.remove_done_callback(retrieve_exception)  # One will do.
        closed.add_done_callback(retrieve_exception)
        closed.add_done_callback(cut_off)
    body = bytearray()
    try:
        # Bounded whatever the header says, unlike `response.read()`.
        while chunk := await content.readany():
            body += chunk
            if len(body) > most:
                raise too_long(most)
    finally:
        if closed is not None:
            closed.remove_done_callback(cut_off)
    if not is_framed and protocol is not None and isinstance(protocol.exception(), aiohttp.ClientOSError):
        # It had nothing but the end of the connection to end it, and aiohttp takes a reset for that.
        raise SendFailed("the response is cut off or malformed")
    return bytes(body)


def _cut_off(content: aiohttp.StreamReader, _: object = None) -> None:
    """Have *content* fail, unless it is whole. aiohttp leaves a body waiting when it closes a malformed response."""
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError())


def _check_head(response: aiohttp.ClientResponse) -> None:
    """Reject what aiohttp's parser lets pass in a head, and must not be believed."""
    headers, status = response.headers, response.status
    packing = headers.get(CONTENT_ENCODING, "identity")
    codings = [name.lower() for name in headers.getall(TRANSFER_ENCODING, ())]
    for is_so, permanent, reason in (
        (status == HTTPStatus.SWITCHING_PROTOCOLS, True, "the server switched to another protocol"),
        (status not in _FINAL, False, "the response is not valid HTTP"),
        (codings and CONTENT_LENGTH in headers, False, "the response has both a length and chunks"),
        # aiohttp would hand the chunks out as they are, with their sizes.
        (codings not in ([], ["chunked"]), False, "the response has a transfer coding other than chunked"),
        (packing.lower() != "identity", True, "the response is compressed, which was not asked for"),
    ):
        if is_so:
            raise SendFailed(reason, permanent=permanent)


# --- errors -----------------------------------------------------------------------------------------------------------


#: What aiohttp raises: whether the request may have been sent, whether another would fail alike, and why. The first
#: that fits counts, and a certificate error is a connect error, too.
_FAILURES = (
    (aiohttp.ClientConnectorCertificateError, False, True, "the server's certificate does not verify"),
    (aiohttp.ServerFingerprintMismatch, False, True, "the server's certificate has another fingerprint"),
    (aiohttp.ClientConnectorSSLError, False, False, "the TLS handshake failed"),
    (aiohttp.ClientConnectorDNSError, False, False, "the host name was not resolved"),
    (aiohttp.ClientProxyConnectionError, False, False, "no connection to the proxy"),
    (aiohttp.ClientConnectorError, False, False, "no connection to the server"),
    (aiohttp.ConnectionTimeoutError, False, False, "no connection in time"),
    (aiohttp.ClientHttpProxyError, False, False, "the proxy refused to connect"),
    (aiohttp.InvalidURL, False, True, "the URL, or that of the proxy, has no host"),
    (aiohttp.NonHttpUrlClientError, False, True, "the URL is not an http or https URL"),
    (aiohttp.ServerDisconnectedError, True, False, "the server closed the connection without a response"),
    (aiohttp.ClientPayloadError, True, False, "the response is cut off or malformed"),
    # aiohttp gives it the status 400, but nobody has sent that.
    ((aiohttp.ClientResponseError, HttpProcessingError), True, False, "the response is not valid HTTP"),
    (aiohttp.ClientOSError, True, False, "the connection broke"),
)


#: What aiohttp may have sent before on a kept connection that broke, and what it raises where there is no other then.
_RESENT = frozenset({"PUT", "DELETE"})
_NO_CONNECTION = (aiohttp.ClientConnectionError, aiohttp.ClientHttpProxyError)


def send_failed(error: Exception, method: str, *, sent: bool | None) -> SendFailed:
    """Say what *error* of a request means, without a trace of it: the text of aiohttp's errors can hold the token.

    *sent* says whether there was a connection; `None` where nothing but the error tells. It is about the last one then.
    """
    if isinstance(error, SendFailed):
        kind = PoolFull if isinstance(error, PoolFull) else SendFailed
        return kind(error.reason, error.sent, permanent=error.permanent)
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
    """Return whom there was no connection to, and what the system says about it."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f" (status {error.status})"
    words = words_of_system(getattr(error, "certificate_error", getattr(error, "os_error", error)))
    host = getattr(error, "host", None)  # One that a middleware has made knows of no connection.
    if not isinstance(error, aiohttp.ClientConnectorError) or host is None:
        return words
    return f" ({f'[{host}]' if ':' in host else host}:{error.port}){words}"
