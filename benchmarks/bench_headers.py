"""Measures the look-up of present and missing header fields of a response.

The client looks up the request id of each response, and not every platform sends a request id. The bench compares the
header fields of both transports with a plain dict, as your own transport may return. The best round counts.

    python -m benchmarks.bench_headers
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from multidict import CIMultiDict, CIMultiDictProxy

from paymentsdk import AiohttpTransport, Http11Transport
from paymentsdk.transports._http11_connection import ResponseHeaders
from paymentsdk.transports.base import header

_FIELDS = {
    "Server": "nginx",
    "Date": "Sat, 31 Jan 2026 14:05:09 GMT",
    "Content-Type": "application/json",
    "Content-Length": "1084",
    "Connection": "keep-alive",
    "Vary": "Accept-Encoding",
    "X-Request-Id": "4d2e1c6a9b7f40d8a3c5e7f1b2d4a6c8",
}
_HEAD = "\r\n".join(["HTTP/1.1 200 OK", *map(": ".join, _FIELDS.items()), "", ""]).encode()
HEADERS: dict[str, Mapping[str, str]] = {
    AiohttpTransport.__name__: CIMultiDictProxy(CIMultiDict(_FIELDS)),
    Http11Transport.__name__: ResponseHeaders(_HEAD, _HEAD.lower()),
    "a plain dict": _FIELDS,
}
#: As long as the first name: a plain dict is searched for names of the same length.
NAMES = {"present": "x-request-id", "absent": "x-other-name"}


def seconds(headers: Mapping[str, str], name: str, number: int) -> float:
    """Return the CPU time of one look-up."""
    began = time.process_time()
    for _ in range(number):
        header(headers, name)
    return (time.process_time() - began) / number


def main() -> None:
    """Measure, and print a line for each class of header fields."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--number", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    best = {(kind, name): float("inf") for kind in HEADERS for name in NAMES}
    for _ in range(chosen.rounds):
        for (kind, name), shortest in best.items():
            best[kind, name] = min(shortest, seconds(HEADERS[kind], NAMES[name], chosen.number))
    for kind in HEADERS:
        print(f"{kind:20}" + "".join(f"{name:>10}{best[kind, name] * 1e6:6.2f} us" for name in NAMES))


if __name__ == "__main__":
    main()
