"""Requests and responses of the benches: complete, realistic, and as large as in real traffic.

Each response has every member that the contract names for its resource. The other SDKs get responses of their own
services for a call of similar size (a payment intent, a chat completion). :func:`sizes` returns the sizes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from paymentsdk.resources.orders import (
    ItemRequest,
    Order,
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    TransactionsRequest,
)

TOKEN = "APP_USR-4934588586838432-100912-8f1c0a7d5b3e9f2a6c4d8e0b1a3f5c7d-241983636"  # noqa: S105 - made up
#: The encoder and decoder of every client that is written by hand, so that all do the same work.
READING = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
WRITING = {**READING, "Content-Type": "application/json"}
ENCODE = msgspec.json.Encoder(decimal_format="string").encode
DECODE = msgspec.json.Decoder(Order).decode
#: The place for the id from the path.
ASKED = "ASKED_ID"
REFERENCE = "store-0042_till-7_20260131-000917"
_QR_DATA = "00020101021243650016COM.PLATFORM02013063638f1192a-5fd1-4180-a180-8bcae3556bc35204000053039865802BR6304A13B"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def order_ids() -> Iterator[str]:
    """Yield order ids without end: 4,096 different ids, too many for a cache of URLs."""
    tails = itertools.islice(itertools.product(_CROCKFORD, repeat=3), 4096)
    return itertools.cycle([f"ORD01HRYFWNYRE1MR1E60MW3X0{''.join(tail)}"[:29] for tail in tails])


def peer_ids(prefix: str) -> Iterator[str]:
    """Yield as many different ids in the form of another service."""
    return (prefix + order_id[3:] for order_id in order_ids())


def order_request() -> OrderRequest:
    """Return an order with two items, as a till sends it."""
    return OrderRequest(
        external_reference=REFERENCE,
        total_amount=Decimal("62.40"),
        description="Coffee beans and a grinder",
        expiration_time="PT10M",
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=Decimal("62.40"))]),
        config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id="STORE42POS007", mode="dynamic")),
        items=[
            ItemRequest(
                title="Coffee beans", unit_price=Decimal("12.45"), quantity=2, unit_measure="kg", external_code="CB-1"
            ),
            ItemRequest(
                title="Hand grinder", unit_price=Decimal("37.50"), quantity=1, unit_measure="unit", external_code="HG-9"
            ),
        ],
    )


def order(order_id: str = ASKED) -> bytes:
    """Return a paid order."""
    return _json(
        _order(order_id)
        | {
            "status": "processed",
            "status_detail": "accredited",
            "transactions": {
                "payments": [
                    {
                        "id": "PAY01HRYFXQ53Q3JPEC48MYWMR0TE",
                        "amount": "62.40",
                        "paid_amount": "62.40",
                        "status": "processed",
                        "status_detail": "accredited",
                        "reference_id": "10009182737",
                        "payment_method": {"id": "master", "type": "credit_card", "installments": 1},
                    }
                ]
            },
        }
    )


def created_order(order_id: str = "ORD01HRYFWNYRE1MR1E60MW3X0T2P") -> bytes:
    """Return the response to :func:`order_request`."""
    payment = {
        "id": "PAY01HRYFXQ53Q3JPEC48MYWMR0TE",
        "amount": "62.40",
        "status": "created",
        "status_detail": "ready_to_process",
    }
    return _json(
        _order(order_id)
        | {
            "status": "created",
            "status_detail": "created",
            "transactions": {"payments": [payment]},
            "type_response": {"qr_data": _QR_DATA},
        }
    )


def _order(order_id: str) -> dict[str, object]:
    return {
        "id": order_id,
        "user_id": "241983636",
        "type": "qr",
        "total_amount": "62.40",
        "external_reference": REFERENCE,
        "description": "Coffee beans and a grinder",
        "expiration_time": "PT10M",
        "processing_mode": "automatic",
        "country_code": "BRA",
        "currency": "BRL",
        "created_date": "2026-01-31T14:05:09.123Z",
        "last_updated_date": "2026-01-31T14:06:41.870Z",
        "config": {"qr": {"external_pos_id": "STORE42POS007", "mode": "dynamic"}},
        "items": [
            {
                "title": "Coffee beans",
                "unit_price": "12.45",
                "quantity": 2,
                "unit_measure": "kg",
                "external_code": "CB-1",
            },
            {
                "title": "Hand grinder",
                "unit_price": "37.50",
                "quantity": 1,
                "unit_measure": "unit",
                "external_code": "HG-9",
            },
        ],
        "integration_data": {
            "application_id": "4934588586838432",
            "platform_id": "dev_platform",
            "integrator_id": "dev_till",
        },
    }


def merchant_orders(count: int = 100, offset: int = 0, total: int | None = None) -> bytes:
    """Return a page of merchant orders, each with its item, payment and shipment."""
    total = count if total is None else total
    rows = [_merchant_order(offset + i) for i in range(count)]
    return _json({"elements": rows, "next_offset": min(offset + count, total), "total": total})


def _merchant_order(i: int) -> dict[str, object]:
    amount = 1000 + i % 997 + (i % 100) / 100
    return {
        "id": 4_945_357_000 + i,
        "status": "closed",
        "order_status": "paid",
        "external_reference": f"store-0042_{i:08d}",
        "preference_id": f"241983636-b8a7c6d5-0f1e-4a2b-9c3d-{i:012d}",
        "application_id": "4934588586838432",
        "site_id": "MLB",
        "marketplace": "NONE",
        "date_created": f"2026-01-{1 + i % 28:02d}T10:17:26.000-04:00",
        "last_updated": f"2026-01-{1 + i % 28:02d}T10:21:39.512-04:00",
        "shipping_cost": 15.5,
        "total_amount": round(amount, 2),
        "paid_amount": round(amount + 15.5, 2),
        "refunded_amount": 0,
        "additional_info": "",
        "collector": {"id": 241983636},
        "payer": {"id": 88_000_000 + i},
        "items": [
            {
                "id": f"SKU-{i % 500}",
                "category_id": "home",
                "currency_id": "BRL",
                "description": "Hand grinder with steel burrs",
                "picture_url": f"https://shop.example/pictures/{i % 500}.jpg",
                "title": "Hand grinder",
                "quantity": 1 + i % 3,
                "unit_price": round(amount, 2),
            }
        ],
        "payments": [
            {
                "id": 15_400_000_000 + i,
                "transaction_amount": round(amount, 2),
                "total_paid_amount": round(amount + 15.5, 2),
                "shipping_cost": 15.5,
                "currency_id": "BRL",
                "status": "approved",
                "status_detail": "accredited",
                "date_approved": f"2026-01-{1 + i % 28:02d}T10:21:37.000-04:00",
                "date_created": f"2026-01-{1 + i % 28:02d}T10:21:35.000-04:00",
                "last_modified": f"2026-01-{1 + i % 28:02d}T10:21:37.000-04:00",
                "amount_refunded": 0,
            }
        ],
        "shipments": [_shipment(i)],
    }


def _shipment(i: int) -> dict[str, object]:
    return {
        "id": 41_000_000_000 + i,
        "shipment_type": "shipping",
        "shipping_mode": "custom",
        "status": "ready_to_ship",
        "items": [
            {"id": f"SKU-{i % 500}", "description": "Hand grinder", "quantity": 1, "dimensions": "30.0x20.0x10.0,950.0"}
        ],
        "date_created": "2026-01-12T10:22:01.000-04:00",
        "last_modified": "2026-01-12T11:02:44.000-04:00",
        "date_first_printed": "2026-01-12T11:02:44.000-04:00",
        "service_id": 182,
        "sender_id": 241983636,
        "receiver_id": 88_000_000 + i,
        "receiver_address": {
            "id": 1_170_000_000 + i,
            "address_line": f"Rua das Flores {i % 3000}",
            "city": {"name": "Curitiba"},
            "state": {"id": "BR-PR", "name": "Paraná"},
            "country": {"id": "BR", "name": "Brasil"},
            "latitude": -25.4284,
            "longitude": -49.2733,
            "comment": "Apartment 12",
            "contact": "A. Buyer",
            "phone": "41999990000",
            "zip_code": "80020090",
            "street_name": "Rua das Flores",
            "street_number": str(i % 3000),
        },
        "shipping_option": {
            "id": 664_000_000 + i,
            "cost": 15.5,
            "currency_id": "BRL",
            "shipping_method_id": 100009,
            "estimated_delivery": {"date": "2026-01-19T00:00:00.000-03:00"},
            "name": "Normal",
            "list_cost": 21.9,
            "speed": {"handling": 24, "shipping": 120},
        },
    }


def invoices(count: int = 100, offset: int = 0, total: int | None = None) -> bytes:
    """Return a page of invoices."""
    total = count if total is None else total
    rows = [_invoice(offset + i) for i in range(count)]
    return _json({"paging": {"offset": offset, "limit": count, "total": total}, "results": rows})


def _invoice(i: int) -> dict[str, object]:
    return {
        "id": 6_114_264_375 + i,
        "type": "scheduled",
        "date_created": "2026-01-01T11:12:25.892-04:00",
        "last_modified": "2026-01-01T11:12:25.892-04:00",
        "preapproval_id": f"2c938084726fca480172750000{i % 10**6:06d}",
        "reason": "Coffee, one bag a month",
        "external_reference": f"subscription-{i % 5000:05d}",
        "currency_id": "BRL",
        "transaction_amount": 49.9,
        "debit_date": "2026-01-02T00:00:00.000-04:00",
        "retry_attempt": i % 4,
        "status": "processed",
        "summarized": "done",
        "payment": {"id": 19_951_521_071 + i, "status": "approved", "status_detail": "accredited"},
    }


def payment_intent(intent_id: str = ASKED) -> bytes:
    """Return a response for stripe's client: a payment intent that has succeeded."""
    return _json(
        {
            "id": intent_id,
            "object": "payment_intent",
            "amount": 6240,
            "amount_capturable": 0,
            "amount_details": {"tip": {}},
            "amount_received": 6240,
            "application": None,
            "application_fee_amount": None,
            "automatic_payment_methods": {"allow_redirects": "always", "enabled": True},
            "canceled_at": None,
            "cancellation_reason": None,
            "capture_method": "automatic_async",
            "client_secret": f"{intent_id}_secret_YrKJUKribcBjcG8HVhfZluoGH",
            "confirmation_method": "automatic",
            "created": 1769868309,
            "currency": "brl",
            "customer": "cus_9s6XGDTHzA66Po",
            "description": "Coffee beans and a grinder",
            "last_payment_error": None,
            "latest_charge": "ch_3MtwBwLkdIwHu7ix28a3tqPa",
            "livemode": False,
            "metadata": {"external_reference": REFERENCE, "pos": "STORE42POS007"},
            "next_action": None,
            "payment_method": "pm_1MtwBwLkdIwHu7ixA1KmVJfg",
            "payment_method_options": {"card": {"installments": None, "mandate_options": None, "network": None}},
            "payment_method_types": ["card", "link"],
            "receipt_email": None,
            "setup_future_usage": None,
            "shipping": None,
            "statement_descriptor": "COFFEE",
            "status": "succeeded",
        }
    )


def chat_completion(completion_id: str = ASKED) -> bytes:
    """Return a response for openai's client: a short completion."""
    text = "Two bags of coffee beans at 12.45 each and one hand grinder at 37.50 come to 62.40 in all. " * 4
    return _json(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": 1769868309,
            "model": "gpt-4.1-mini-2025-04-14",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text.strip(), "refusal": None, "annotations": []},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 61,
                "completion_tokens": 118,
                "total_tokens": 179,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": 0,
                    "audio_tokens": 0,
                    "accepted_prediction_tokens": 0,
                    "rejected_prediction_tokens": 0,
                },
            },
            "service_tier": "default",
            "system_fingerprint": "fp_44added55e",
            "metadata": {},
            "request_id": "req_c2a3b5d7e9f1",
            "tool_choice": None,
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
        }
    )


def sizes() -> dict[str, int]:
    """Return the size of each response in bytes."""
    return {
        "order": len(order(next(order_ids()))),
        "created order": len(created_order()),
        "payment intent": len(payment_intent(next(peer_ids("pi_")))),
        "chat completion": len(chat_completion(next(peer_ids("chatcmpl-")))),
        "100 merchant orders": len(merchant_orders()),
        "100 invoices": len(invoices()),
    }


def _json(value: object) -> bytes:
    # The standard encoder writes numbers and texts like most servers.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def plain(value: object) -> object:
    """Return a decoded response of any contestant as dicts and lists, for comparison."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    fields = getattr(type(value), "model_fields", None) or getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        names = fields if isinstance(fields, dict) else [field.name for field in fields]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return str(value) if isinstance(value, str) else value
