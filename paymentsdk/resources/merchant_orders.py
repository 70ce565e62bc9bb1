"""Merchant orders (4.7): what was ordered, paid and shipped, in one place."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from paymentsdk._operation.operation import MIB, Operation, PageShape
from paymentsdk._operation.rules import ErrorCode, RetryClass
from paymentsdk._paging.pager import Pager, Position, WalkOptions
from paymentsdk.resources.common import Id, Moment, Open, OpenEnum, Resource, ResponseStruct

__all__ = [
    "SEARCH",
    "City",
    "Country",
    "EstimatedDelivery",
    "MerchantOrder",
    "MerchantOrderFilters",
    "MerchantOrderItem",
    "MerchantOrderPage",
    "MerchantOrderPayment",
    "MerchantOrderQuery",
    "MerchantOrderSearch",
    "MerchantOrderState",
    "MerchantOrderStatus",
    "MerchantOrders",
    "Party",
    "ReceiverAddress",
    "Shipment",
    "ShipmentItem",
    "ShippingOption",
    "Speed",
    "State",
    "StreetName",
]


class MerchantOrderStatus(OpenEnum):
    """Whether the payments of an order cover it: ``opened`` before an approved payment, ``closed`` after."""

    OPENED = "opened"
    CLOSED = "closed"
    EXPIRED = "expired"


class MerchantOrderState(OpenEnum):
    """The outcome of an order's payments: the values of ``order_status``."""

    PAYMENT_REQUIRED = "payment_required"
    PAID = "paid"
    REVERTED = "reverted"
    EXPIRED = "expired"


class Party(ResponseStruct):
    """A party to an order: the collector, or the payer."""

    id: Id | None = None


class MerchantOrderItem(ResponseStruct):
    """A line of an order.

    Attributes:
        id: The seller's own id for it.
        category_id: Its category.
        currency_id: The currency of the price.
        description: More about it.
        picture_url: A picture of it.
        title: What the buyer is shown.
        quantity: How many.
        unit_price: The price of one.
    """

    id: Id | None = None
    category_id: str | None = None
    currency_id: str | None = None
    description: str | None = None
    picture_url: str | None = None
    title: str | None = None
    quantity: int | None = None
    unit_price: Decimal | None = None


class MerchantOrderPayment(ResponseStruct):
    """A payment of an order. There may be several, some of them rejected.

    Attributes:
        id: The payment.
        transaction_amount: Its amount, without the shipment.
        total_paid_amount: Its amount, with the shipment.
        shipping_cost: The part of it that pays the shipment.
        currency_id: The currency of its amounts.
        status: Its state, such as ``approved``.
        status_detail: What led to this state.
        date_approved: When it was approved.
        date_created: When it was made.
        last_modified: When it was last changed.
        amount_refunded: How much of it was refunded.
    """

    id: Id | None = None
    transaction_amount: Decimal | None = None
    total_paid_amount: Decimal | None = None
    shipping_cost: Decimal | None = None
    currency_id: str | None = None
    status: str | None = None
    status_detail: str | None = None
    date_approved: Moment | None = None
    date_created: Moment | None = None
    last_modified: Moment | None = None
    amount_refunded: Decimal | None = None


class ShipmentItem(ResponseStruct):
    """A line of a shipment. ``dimensions`` is text such as ``10x20x30,500``."""

    id: Id | None = None
    description: str | None = None
    quantity: int | None = None
    dimensions: str | None = None


class City(ResponseStruct):
    """A city."""

    id: Id | None = None
    name: str | None = None


class State(ResponseStruct):
    """A state or province."""

    id: Id | None = None
    name: str | None = None


class Country(ResponseStruct):
    """A country."""

    id: Id | None = None
    name: str | None = None


class StreetName(ResponseStruct):
    """The name of a street in each of the platform's languages."""

    en: str | None = None
    pt: str | None = None
    es: str | None = None


class ReceiverAddress(ResponseStruct):
    """Where a shipment goes. The platform sends ``street_name`` as a text or in several languages."""

    id: Id | None = None
    address_line: str | None = None
    city: City | None = None
    state: State | None = None
    country: Country | None = None
    latitude: float | None = None
    longitude: float | None = None
    comment: str | None = None
    contact: str | None = None
    phone: Id | None = None
    zip_code: Id | None = None
    street_name: str | StreetName | None = None
    street_number: Id | None = None


class EstimatedDelivery(ResponseStruct):
    """When a shipment is expected to arrive."""

    date: Moment | None = None


class Speed(ResponseStruct):
    """How long a shipment takes to be handled and to be carried. The contract does not name the unit."""

    handling: float | None = None
    shipping: float | None = None


class ShippingOption(ResponseStruct):
    """How a shipment is carried, and at what price.

    Attributes:
        id: The option.
        cost: What the buyer pays.
        currency_id: The currency of both prices.
        shipping_method_id: The method.
        estimated_delivery: When it is expected to arrive.
        name: What the buyer is shown.
        list_cost: The price without a discount.
        speed: How long it takes.
    """

    id: Id | None = None
    cost: Decimal | None = None
    currency_id: str | None = None
    shipping_method_id: Id | None = None
    estimated_delivery: EstimatedDelivery | None = None
    name: str | None = None
    list_cost: Decimal | None = None
    speed: Speed | None = None


class Shipment(ResponseStruct):
    """A shipment of an order."""

    id: Id | None = None
    shipment_type: str | None = None
    shipping_mode: str | None = None
    status: str | None = None
    items: tuple[ShipmentItem, ...] | None = None
    date_created: Moment | None = None
    last_modified: Moment | None = None
    date_first_printed: Moment | None = None
    service_id: Id | None = None
    sender_id: Id | None = None
    receiver_id: Id | None = None
    receiver_address: ReceiverAddress | None = None
    shipping_option: ShippingOption | None = None


class MerchantOrder(ResponseStruct):
    """An order with its payments and shipments.

    Attributes:
        id: The order.
        status: Whether it is covered by payments.
        order_status: The outcome of its payments.
        external_reference: The integrator's own name for it.
        preference_id: The preference that it was paid through.
        application_id: The application that made it.
        site_id: The platform's site.
        marketplace: The marketplace.
        date_created: When it was made.
        last_updated: When it was last changed.
        shipping_cost: What the shipment costs.
        total_amount: What its items cost.
        paid_amount: What was paid.
        refunded_amount: What was refunded.
        additional_info: Free text.
        collector: Who is paid.
        payer: Who pays.
        items: Its lines.
        payments: Its payments.
        shipments: Its shipments.
    """

    id: Id
    status: Open[MerchantOrderStatus] | None = None
    order_status: Open[MerchantOrderState] | None = None
    external_reference: str | None = None
    preference_id: str | None = None
    application_id: Id | None = None
    site_id: str | None = None
    marketplace: str | None = None
    date_created: Moment | None = None
    last_updated: Moment | None = None
    shipping_cost: Decimal | None = None
    total_amount: Decimal | None = None
    paid_amount: Decimal | None = None
    refunded_amount: Decimal | None = None
    additional_info: str | None = None
    collector: Party | None = None
    payer: Party | None = None
    items: tuple[MerchantOrderItem, ...] | None = None
    payments: tuple[MerchantOrderPayment, ...] | None = None
    shipments: tuple[Shipment, ...] | None = None


class MerchantOrderPage(ResponseStruct):
    """A page of merchant orders, as the platform sends it. On the last page ``next_offset`` is 0 or the total."""

    elements: tuple[MerchantOrder, ...] | None = None
    next_offset: int | None = None
    total: int | None = None


class MerchantOrderFilters(TypedDict, total=False):
    """What merchant orders can be searched by (4.7).

    Moments need a time zone. The contract does not say whether a range includes the moments at its ends.

    Attributes:
        status: Whether they are covered by payments, such as ``closed``.
        preference_id: The preference that they were paid through.
        application_id: The application that made them.
        payer_id: The buyer.
        sponsor_id: The sponsor of the preference or the order.
        external_reference: The integrator's own name for them.
        site_id: The platform's site.
        marketplace: The marketplace.
        date_created_from: Made at this moment or later.
        date_created_to: Made at this moment or earlier.
        last_updated_from: Changed last at this moment or later.
        last_updated_to: Changed last at this moment or earlier.
        items: The id of one of their items.
    """

    status: str
    preference_id: str
    application_id: Id
    payer_id: Id
    sponsor_id: Id
    external_reference: str
    site_id: str
    marketplace: str
    date_created_from: Moment
    date_created_to: Moment
    last_updated_from: Moment
    last_updated_to: Moment
    items: Id


class MerchantOrderSearch(MerchantOrderFilters, WalkOptions, total=False):
    """The filters, and how the search is walked."""


class MerchantOrderQuery(MerchantOrderFilters, Position, total=False):
    """The filters and the position of a page."""


SEARCH: Operation[None, MerchantOrderPage] = Operation(
    name="merchant_orders.search",
    method="GET",
    path="/merchant_orders/search",
    section="4.7",
    summary="Search merchant orders of the last 90 days",
    retry=RetryClass.READ,
    query=MerchantOrderQuery,
    result=MerchantOrderPage,
    page=PageShape(
        items="elements",
        total="total",
        next_offset="next_offset",
        created_until="date_created_to",
        # Not the payer, whom a payment brings, nor the items, which their seller can change.
        immutable=frozenset(
            {
                "application_id",
                "date_created_from",
                "external_reference",
                "marketplace",
                "preference_id",
                "site_id",
                "sponsor_id",
            }
        ),
    ),
    max_response=32 * MIB,
    errors=(
        ErrorCode(400, "ds_search_query", "the query is invalid"),
        ErrorCode(401, "invalid_token", "the access token is invalid or has expired"),
        ErrorCode(401, "invalid_caller_id", "the caller that the token names is not valid"),
    ),
)


class MerchantOrders(Resource):
    """``client.merchant_orders``: orders with their payments and shipments."""

    def search(self, **search: Unpack[MerchantOrderSearch]) -> Pager[MerchantOrder]:
        """Search the orders of the last 90 days (4.7). Nothing is sent before the first row is asked for.

        Args:
            **search: The members of :class:`MerchantOrderFilters` and of :class:`~paymentsdk.WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
