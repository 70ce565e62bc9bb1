"""The last requests as an HTTP archive (HAR 1.2)."""

from __future__ import annotations

from datetime import datetime

import aiohttp
import pytest

from paymentsdk.sandbox import FaultRule

#: The members that HAR 1.2 requires of requests and of responses.
HTTP = ("httpVersion", "cookies", "headers", "headersSize", "bodySize")


async def test_the_archive_has_all_required_members_and_no_credential(plain, sandbox, data):
    """Of a success, a request for a token, a response that was lost, and a path that nothing has."""
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.cancel"))
    info = sandbox.describe()
    token = {name: getattr(info, name) for name in ("client_id", "client_secret", "refresh_token")}
    order_response = await plain("POST", "/v1/orders", data(), key="key-1")
    granted = await plain("POST", "/oauth/token", {"grant_type": "refresh_token", **token}, token=None)
    await plain("GET", f"/preapproval_plan/search?q=a%20b&access_token={info.access_token}")
    with pytest.raises(aiohttp.ClientError):
        await plain("POST", f"/v1/orders/{order_response.json['id']}/cancel", key="key-3")
    await plain("GET", "/v2/orders")

    response = await plain("GET", "/_sandbox/requests.har")
    archive = response.json["log"]

    assert "1.2" == archive["version"]
    for entry in archive["entries"]:
        assert entry.keys() > {"startedDateTime", "time", "cache", "timings"}
        assert entry["request"].keys() >= {"method", "url", "queryString", *HTTP}
        assert entry["response"].keys() >= {"status", "statusText", "redirectURL", "content", *HTTP}
    assert [201, 200, 200, 0, 404] == [entry["response"]["status"] for entry in archive["entries"]]
    first, _, search, dropped, _ = archive["entries"]
    assert f"{sandbox.base_url}/v1/orders" == first["request"]["url"]
    assert {"name": "X-Idempotency-Key", "value": "key-1"} in first["request"]["headers"]
    content = first["response"]["content"]
    assert ("application/json", order_response.raw.decode()) == (content["mimeType"], content["text"])
    assert (len(order_response.raw), True) == (content["size"], 0 < first["time"] < 60_000)
    assert ["a b", "***"] == [pair["value"] for pair in search["request"]["queryString"]]
    assert ("orders.cancel", ["lose_response_after_commit"]) == (dropped["_operation"], dropped["_faults"])
    assert datetime.fromisoformat(first["startedDateTime"]) <= sandbox.clock.now()
    secrets = [*token.values(), info.access_token, granted.json["access_token"]]
    assert [] == [secret for secret in secrets[1:] if secret in response.raw.decode()]


async def test_a_body_that_was_cut_has_no_size(plain, client, sandbox):
    """Of a long response the beginning is kept: nobody knows its size any more."""
    sandbox.provision(orders=30)
    await plain("GET", "/merchant_orders/search")

    [entry] = (await plain("GET", "/_sandbox/requests.har")).json["log"]["entries"]

    assert (-1, "…") == (entry["response"]["content"]["size"], entry["response"]["content"]["text"][-1])
