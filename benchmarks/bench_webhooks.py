"""Compares the verification of a 1 KiB notification with `standardwebhooks`, the public library of the standard.

Both check the headers, the age and the signature, and decode the body. `Webhook.verify` also returns topic and ids.

    python -m benchmarks.bench_webhooks
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from standardwebhooks.webhooks import Webhook as PublicLibrary

from benchmarks import harness
from benchmarks.harness import Options, Result, Variant
from paymentsdk.webhooks import Webhook

_SIZE = 1024
_SECRET = "whsec_" + b64encode(b"k" * 32).decode()


def _message() -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a signed notification."""
    at = datetime.now(UTC)
    content: dict[str, object] = {"type": "orders.processed", "timestamp": at.isoformat()}
    content["data"] = {"id": "ORD01J67CQQH5904WDBVZEM4JMEP3", "user_id": "77", "note": ""}
    content["data"] = {**content["data"], "note": "x" * (_SIZE - len(msgspec.json.encode(content)))}
    body = msgspec.json.encode(content)
    signature = PublicLibrary(_SECRET).sign("msg_1", at, body.decode())
    timestamp = str(int(at.timestamp()))
    return {"webhook-id": "msg_1", "webhook-timestamp": timestamp, "webhook-signature": signature}, body


def _variant(contestant: str, verify: Callable[[dict[str, str], bytes], object]) -> Variant:
    """Return the variant of *contestant*."""
    headers, body = _message()

    def run(count: int) -> None:
        for _ in range(count):
            verify(headers, body)

    return Variant({"contestant": contestant}, run)


def run(options: Options) -> Result:
    """Measure both in turn."""
    public = PublicLibrary(_SECRET)
    variants = [
        _variant("paymentsdk", Webhook.standard(_SECRET).verify),
        _variant("standardwebhooks", lambda headers, body: public.verify(body, headers)),
    ]
    with harness.on_core(harness.cores()[0]):
        rows = harness.interleave(variants, options)
    return harness.result("bench_webhooks", rows, options)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
