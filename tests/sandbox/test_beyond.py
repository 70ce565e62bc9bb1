"""The reads of `paymentsdk.beyond`: operations that the contract does not have, served if a sandbox is asked to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from paymentsdk import OPERATIONS, NotFound, Pager, RequestInvalid, beyond
from paymentsdk.resources.customers import CustomerRequest
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest

PATHS = ["/v1/customers/1", "/checkout/preferences/1", "/merchant_orders/1", "/v1/payments/1", "/v1/payments/search"]
FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
async def served(start):
    """A sandbox that serves them."""
    return await start(beyond="reads")


@pytest.fixture
async def seller(served, connect):
    """The real client, for its first seller."""
    async with connect(served) as client:
        yield client


async def test_a_sandbox_serves_none_unless_it_is_asked_to(start, plain_to):
    """They get the 404 of a path that nobody knows, or 405 if the contract has its path, and no document names them."""
    plain = plain_to(await start())

    nowhere = await plain("GET", "/v1/nowhere")
    for path in PATHS:
        answer = await plain("GET", path)
        assert (answer.status, answer.code) in {(404, nowhere.code), (405, "method_not_allowed")}
    assert 405 == (await plain("GET", "/v1/orders")).status
    documented = (await plain("GET", "/openapi.json")).json["paths"]
    assert set() == documented.keys() & {operation.path for operation in beyond.OPERATIONS.values()} - {
        operation.path for operation in OPERATIONS.values()
    }


async def test_what_the_contract_creates_can_be_read(served, seller):
    """A customer, a preference, its merchant order and its payment, each by the id that the contract has shown."""
    customer = await seller.customers.create(CustomerRequest(email="ana@example.com"))
    item = PreferenceItemRequest(title="A thing", quantity=1, unit_price=Decimal("10.50"))
    preference = await seller.preferences.create(PreferenceRequest(items=[item]))
    served.buyer.pay_preference(preference)
    (merchant_order,) = await seller.merchant_orders.search().collect()
    (payment,) = merchant_order.payments

    assert customer == (await seller.call(beyond.GET_CUSTOMER, customer_id=customer.id)).value
    read = (await seller.call(beyond.GET_PREFERENCE, preference_id=preference.id)).value
    assert (preference.id, preference.items) == (read.id, read.items)
    order = (await seller.call(beyond.GET_MERCHANT_ORDER, merchant_order_id=merchant_order.id)).value
    assert merchant_order == order
    assert payment == (await seller.call(beyond.GET_PAYMENT, payment_id=payment.id)).value


@pytest.mark.parametrize("operation", [candidate for candidate in beyond.OPERATIONS.values() if candidate.path_names])
async def test_what_the_seller_does_not_have_is_not_found(seller, operation):
    """With the code that the operation documents."""
    (name,) = operation.path_names
    with pytest.raises(NotFound) as caught:
        await seller.call(operation, **{name: "1"})

    assert operation.documents(404, caught.value.code)


async def test_payments_are_searched_by_reference_and_status(served, seller):
    """And walked page by page; other sellers' payments are not among them."""
    served.provision(orders=5, days=1)
    served.provision(orders=2, days=1, tenant=served.create_tenant())

    assert 5 == len(await Pager(seller, beyond.SEARCH_PAYMENTS, page_size=2).collect())
    (paid,) = await Pager(seller, beyond.SEARCH_PAYMENTS, external_reference="provisioned-2").collect()
    assert paid == (await seller.call(beyond.GET_PAYMENT, payment_id=paid.id)).value
    assert [] == await Pager(seller, beyond.SEARCH_PAYMENTS, status="rejected").collect()


async def test_orders_are_searched_by_date_reference_and_page(served, seller):
    """Pages are counted from 1; one past the end is empty, and none is longer than the platform's longest."""
    served.provision(orders=5, days=1)
    dates = {"begin_date": FROM, "end_date": TO}

    async def search(**query):
        return (await seller.call(beyond.SEARCH_ORDERS, query=query)).value

    pages = [await search(**dates, page=number, page_size=2) for number in (1, 2, 3, 4)]
    assert [2, 2, 1, 0] == [len(page.data or ()) for page in pages]
    assert {5} == {page.paging.total for page in pages}
    assert 5 == len({order.id for page in pages for order in page.data})
    walked = await Pager(seller, beyond.SEARCH_ORDERS, page_size=2, **dates).collect()
    assert [order.id for page in pages for order in page.data] == [order.id for order in walked]
    (order,) = (await search(**dates, external_reference="provisioned-3")).data
    assert "provisioned-3" == order.external_reference
    moments = [order.created_date + timedelta(days=days) for days in (0, 2)]
    assert [1, 0] == [len((await search(begin_date=moment, end_date=moment)).data) for moment in moments]
    with pytest.raises(RequestInvalid, match="begin_date"):
        await search(end_date=TO)
