"""The types that a user of the client sees. Type checkers read this file; nobody runs it.

A line that a type checker has to reject says so with ``type: ignore``: an ignore that nothing needs is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import assert_type

import paymentsdk
from paymentsdk import (
    OPERATIONS,
    Anomaly,
    Page,
    Pager,
    PaymentsClient,
    Request,
    Response,
    Result,
    ResumePoint,
    Transport,
)
from paymentsdk.resources import orders
from paymentsdk.resources.customers import Customer, CustomerRequest
from paymentsdk.resources.invoices import Invoice
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.oauth import Token
from paymentsdk.resources.orders import Order, OrderRequest
from paymentsdk.resources.plans import Plan
from paymentsdk.resources.preferences import Preference, PreferenceRequest
from paymentsdk.resources.release_reports import ReleaseReport
from paymentsdk.resources.wallet_payments import WalletPayment, WalletPaymentRequest
from paymentsdk.testing import MemoryTransport


async def every_method_has_its_own_response(
    client: PaymentsClient,
    order: OrderRequest,
    preference: PreferenceRequest,
    wallet_payment: WalletPaymentRequest,
    customer: CustomerRequest,
) -> None:
    assert_type(await client.oauth.exchange_code("TG-1"), Token)
    assert_type(await client.oauth.refresh("TG-1"), Token)
    assert_type(await client.preferences.create(preference), Preference)
    assert_type(await client.wallet_payments.create(wallet_payment, idempotency_key="a", session_id="b"), WalletPayment)
    assert_type(await client.plans.get("1"), Plan)
    assert_type(client.plans.search(), Pager[Plan])
    assert_type(client.invoices.search(), Pager[Invoice])
    assert_type(client.merchant_orders.search(status="closed"), Pager[MerchantOrder])
    assert_type(await client.customers.create(customer), Customer)
    assert_type(await client.release_reports.disable_schedule(), ReleaseReport)
    assert_type(await client.orders.create(order, idempotency_key="a"), Order)
    assert_type(await client.orders.get("ORD1"), Order)
    assert_type(await client.orders.cancel("ORD1", idempotency_key="a"), Order)
    assert_type(await client.orders.refund("ORD1"), Order)
    assert_type(await client.orders.refund("ORD1", payment_id="PAY1", amount=Decimal("5.00")), Order)


async def a_pager_keeps_the_type_of_its_items(client: PaymentsClient) -> None:
    pager = client.merchant_orders.search(status="closed", page_size=50, start=100, prefetch=4)
    async for merchant_order in pager:
        assert_type(merchant_order, MerchantOrder)
    async for page in pager.pages():
        assert_type(page, Page[MerchantOrder])
        assert_type(page.total, int | None)
    assert_type(await pager.first(), MerchantOrder | None)
    assert_type(await pager.collect(limit=10), list[MerchantOrder])


async def a_call_keeps_the_type_of_its_operation(client: PaymentsClient, order: OrderRequest) -> None:
    result = await client.call(orders.CREATE, order)
    assert_type(result, Result[Order])
    assert_type(result.value, Order)
    assert_type(result.request_id, str | None)
    assert_type(await client.call(orders.GET, order_id="ORD1"), Result[Order])
    assert_type(orders.GET.decode(b"{}"), tuple[Order, tuple[Anomaly, ...]])
    assert_type(OPERATIONS["orders.create"].name, str)


class Recorder:
    """A transport by its two methods alone."""

    async def send(self, request: Request) -> Response:
        assert_type(request.headers, Mapping[str, str])
        return Response(200, {}, b"{}")

    async def aclose(self) -> None: ...


class Deaf:
    """No transport: it takes no request."""

    async def send(self) -> Response:
        return Response(200)

    async def aclose(self) -> None: ...


def any_object_with_two_methods_is_a_transport() -> None:
    transports: list[Transport] = [Recorder(), MemoryTransport(lambda request: Response(200, {}, b"{}"))]
    PaymentsClient("TEST-1", base_url="http://127.0.0.1:8787", transport=transports[0])
    PaymentsClient("TEST-1", base_url="http://127.0.0.1:8787", transport=Deaf())  # type: ignore[arg-type]


async def what_is_wrong_is_rejected(client: PaymentsClient, order: OrderRequest, response: Order) -> None:
    PaymentsClient("TEST-1")  # type: ignore[call-arg]
    PaymentsClient("TEST-1", "http://127.0.0.1:8787")  # type: ignore[call-arg]
    await client.orders.get()  # type: ignore[call-arg]
    await client.orders.get(1)  # type: ignore[arg-type]
    await client.orders.create({"total_amount": "24.90"})  # type: ignore[arg-type]
    await client.orders.create(order, "a-key")  # type: ignore[call-arg]
    await client.orders.refund("ORD1", payment_id="PAY1", amount=5.0)  # type: ignore[arg-type]
    await client.customers.create(order)  # type: ignore[arg-type]
    client.merchant_orders.search(colour="red")  # type: ignore[call-arg]
    client.orders.search()  # type: ignore[attr-defined]
    await client.call(orders.CREATE, b"{}")  # type: ignore[misc]
    OrderRequest()  # type: ignore[call-arg]
    response.id = "ORD2"  # type: ignore[misc]
    assert_type(await client.orders.get("ORD1"), Preference)  # type: ignore[assert-type]


def errors_are_told_apart(error: paymentsdk.PaymentsError) -> None:
    assert_type(error.idempotency_key, str | None)
    assert_type(error.attempts, int)
    match error:
        case paymentsdk.RequestInvalid():
            assert_type(error.path, str)
        case paymentsdk.OutcomeUnknown():
            assert_type(error.last_error, paymentsdk.PaymentsError | None)
        case paymentsdk.RateLimited():
            assert_type(error.retry_after, float | None)
        case paymentsdk.APIError():
            assert_type(error.status, int)
            assert_type(error.details, tuple[paymentsdk.ErrorDetail, ...])
        case _:
            assert_type(error.resume_point, ResumePoint | None)
