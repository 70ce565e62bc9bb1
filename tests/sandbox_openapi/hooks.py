"""What schemathesis does besides: totals that are sums, and a buyer, so that refunds have something to give back."""

from __future__ import annotations

from itertools import count

import requests
import schemathesis
from schemathesis import GenerationMode

_numbers = count()


@schemathesis.hook
def map_case(context, case):
    """Make the total of a valid order the sum of its payments, which no schema can say."""
    if case.operation.label == "POST /v1/orders" and case.meta and case.meta.generation.mode is GenerationMode.POSITIVE:
        case.body["total_amount"] = case.body["transactions"]["payments"][0]["amount"]
    return case


@schemathesis.hook
def after_call(context, case, response):
    """Pay every second order that was created; one that was paid before stays so."""
    created = response.request.method == "POST" and response.request.path_url == "/v1/orders"
    if created and response.status_code == 201 and next(_numbers) % 2:
        base_url = response.request.url.removesuffix("/v1/orders")
        requests.post(f"{base_url}/_sandbox/orders/{response.json()['id']}/pay", json={}, timeout=10)
