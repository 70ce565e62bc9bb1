"""The last requests as an HTTP archive (HAR 1.2), which browsers and other tools open.

The archive has the members of `RequestLine`. Of the headers, it has only those.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from urllib.parse import parse_qsl

from paymentsdk._version import __version__
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._wire import phrase

#: The standard's values for an unknown size, and for a missing response.
_UNKNOWN, _NO_RESPONSE = -1, 0
_SIZES: Mapping[str, object] = {"cookies": [], "headersSize": _UNKNOWN, "bodySize": _UNKNOWN, "httpVersion": "HTTP/1.1"}


def archive(requests: Iterable[RequestLine], base_url: str) -> Mapping[str, object]:
    """Return the archive of *requests* to the sandbox at *base_url*, oldest first. Masked parts stay masked."""
    creator = {"name": "paymentsdk sandbox", "version": __version__}
    return {"log": {"version": "1.2", "creator": creator, "entries": [_entry(line, base_url) for line in requests]}}


def _entry(line: RequestLine, base_url: str) -> Mapping[str, object]:
    return {
        "startedDateTime": line.at - timedelta(milliseconds=line.milliseconds),
        "time": line.milliseconds,
        "request": _request(line, base_url),
        "response": _response(line),
        "cache": {},
        "timings": {"send": 0, "wait": line.milliseconds, "receive": 0},
        # Names with an underscore are extensions of the standard.
        "_operation": line.operation,
        "_tenant": line.tenant,
        "_faults": line.faults,
    }


def _request(line: RequestLine, base_url: str) -> Mapping[str, object]:
    query = parse_qsl(line.path.partition("?")[2], keep_blank_values=True)
    headers = {"Content-Type": line.content_type, "X-Idempotency-Key": line.key}
    body = {"postData": {"mimeType": line.content_type, "text": line.body}} if line.body else {}
    return {
        **_SIZES,
        "method": line.method,
        "url": base_url + line.path,
        "headers": _pairs((name, value) for name, value in headers.items() if value),
        "queryString": _pairs(query),
        **body,
    }


def _response(line: RequestLine) -> Mapping[str, object]:
    size = _UNKNOWN if line.response.endswith("…") else len(line.response.encode())
    kind = "application/json" if line.response.startswith(("{", "[")) else "text/plain"
    return {
        **_SIZES,
        "status": _NO_RESPONSE if line.status is None else line.status,
        "statusText": "" if line.status is None else phrase(line.status),
        "headers": _pairs([("X-Request-Id", line.request_id)]),
        "content": {"size": size, "mimeType": kind, "text": line.response},
        "redirectURL": "",
    }


def _pairs(values: Iterable[tuple[str, str]]) -> list[Mapping[str, str]]:
    return [{"name": name, "value": value} for name, value in values]
