"""Clients generated from both documents: an order is made and read with one, and paid with the other."""

import os
from uuid import uuid4

from api import AuthenticatedClient
from api.api.orders import orders_create, orders_get
from api.models import OrderRequest
from control import Client
from control.api.sandbox import pay_order, webhooks

address, token = os.environ["BASE_URL"], os.environ["ACCESS_TOKEN"]
client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True)
control = Client(base_url=address, raise_on_unexpected_status=True)
request = OrderRequest.from_dict(
    {
        "type": "qr",
        "external_reference": "table-7",
        "total_amount": "24.90",
        "config": {"qr": {"external_pos_id": os.environ["PAYMENTSDK_EXTERNAL_POS_ID"], "mode": "dynamic"}},
        "transactions": {"payments": [{"amount": "24.90"}]},
    }
)

order = orders_create.sync(client=client, body=request, x_idempotency_key=str(uuid4()))
paid = pay_order.sync(order.id, client=control)
status = orders_get.sync(order.id, client=client).status
print(paid.id == order.id, status, webhooks.sync(client=control, tenant=int(token.rpartition("-")[2])))  # noqa: T201
