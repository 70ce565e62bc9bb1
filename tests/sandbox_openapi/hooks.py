"""What schemathesis does besides: a buyer who pays every second order, so that refunds have something to give back."""

from __future__ import annotations

from itertools import count

import requests
import schemathesis

_numbers = count()


@schemathesis.hook
def after_call(context, case, response):
    """Pay an order that was created."""
    if response.request.method == "POST" and response.request.path_url == "/v1/orders" and response.status_code == 201:
        if next(_numbers) % 2:
            base_url = response.request.url.removesuffix("/v1/orders")
            paid = requests.post(f"{base_url}/_sandbox/orders/{response.json()['id']}/pay", json={}, timeout=10)
            paid.raise_for_status()
