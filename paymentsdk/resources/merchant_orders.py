"""Merchant orders (4.7): what was ordered, paid and shipped, in one place."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from paymentsdk._operation.operation import MIB, Operation, PageShape
from paymentsdk._operation.rules import ErrorCode, RetryClass
from paymentsdk._paging.options import Position, WalkOptions
from paymentsdk._paging.pager import Pager
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
    """Their user id."""


class MerchantOrderItem(ResponseStruct):
    """A line of an order."""

    id: Id | None = None
    """The seller's own id for it."""
    category_id: str | None = None
    """Its category."""
    currency_id: str | None = None
    """The currency of the price."""
    description: str | None = None
    """More about it."""
    picture_url: str | None = None
    """A picture of it."""
    title: str | None = None
    """What the buyer is shown."""
    quantity: int | None = None
    """How many."""
    unit_price: Decimal | None = None
    """The price of one."""


class MerchantOrderPayment(ResponseStruct):
    """A payment of an order. There may be several, some of them rejected."""

    id: Id | None = None
    """The payment."""
    transaction_amount: Decimal | None = None
    """Its amount, without the shipment."""
    total_paid_amount: Decimal | None = None
    """Its amount, with the shipment."""
    shipping_cost: Decimal | None = None
    """The part of it that pays the shipment."""
    currency_id: str | None = None
    """The currency of its amounts."""
    status: str | None = None
    """Its state, such as `approved`."""
    status_detail: str | None = None
    """What led to this state."""
    date_approved: Moment | None = None
    """When it was approved."""
    date_created: Moment | None = None
    """When it was made."""
    last_modified: Moment | None = None
    """When it was last changed."""
    amount_refunded: Decimal | None = None
    """How much of it was refunded."""


class ShipmentItem(ResponseStruct):
    """A line of a shipment. ``dimensions`` is text such as ``10x20x30,500``."""

    id: Id | None = None
    """The seller's own id for it."""
    description: str | None = None
    """What it is."""
    quantity: int | None = None
    """How many."""
    dimensions: str | None = None
    """Text such as `10x20x30,500` (centimetres, grams)."""


class City(ResponseStruct):
    """A city."""

    id: Id | None = None
    """The city, as the platform numbers it."""
    name: str | None = None
    """Its name."""


class State(ResponseStruct):
    """A state or province."""

    id: Id | None = None
    """The state or province, such as `AR-C`."""
    name: str | None = None
    """Its name."""


class Country(ResponseStruct):
    """A country."""

    id: Id | None = None
    """The country, such as `AR`."""
    name: str | None = None
    """Its name."""


class StreetName(ResponseStruct):
    """The name of a street in each of the platform's languages."""

    en: str | None = None
    """In English."""
    pt: str | None = None
    """In Portuguese."""
    es: str | None = None
    """In Spanish."""


class ReceiverAddress(ResponseStruct):
    """Where a shipment goes. The platform sends ``street_name`` as a text or in several languages."""

    id: Id | None = None
    """The address, as the platform numbers it."""
    address_line: str | None = None
    """Street and number in one line."""
    city: City | None = None
    """The city."""
    state: State | None = None
    """The state or province."""
    country: Country | None = None
    """The country."""
    latitude: float | None = None
    """In degrees, north is positive."""
    longitude: float | None = None
    """In degrees, east is positive."""
    comment: str | None = None
    """What the buyer adds for whoever delivers."""
    contact: str | None = None
    """Who receives it."""
    phone: Id | None = None
    """Their phone number."""
    zip_code: Id | None = None
    """The postcode."""
    street_name: str | StreetName | None = None
    """The street: a string, or one in each language."""
    street_number: Id | None = None
    """The number of the house."""


class EstimatedDelivery(ResponseStruct):
    """When a shipment is expected to arrive."""

    date: Moment | None = None
    """The day on which it is expected."""


class Speed(ResponseStruct):
    """How long a shipment takes to be handled and to be carried. The contract does not name the unit."""

    handling: float | None = None
    """Until it is handed over."""
    shipping: float | None = None
    """From then to the receiver."""


class ShippingOption(ResponseStruct):
    """How a shipment is carried, and at what price."""

    id: Id | None = None
    """The option."""
    cost: Decimal | None = None
    """What the buyer pays."""
    currency_id: str | None = None
    """The currency of both prices."""
    shipping_method_id: Id | None = None
    """The method."""
    estimated_delivery: EstimatedDelivery | None = None
    """When it is expected to arrive."""
    name: str | None = None
    """What the buyer is shown."""
    list_cost: Decimal | None = None
    """The price without a discount."""
    speed: Speed | None = None
    """How long it takes."""


class Shipment(ResponseStruct):
    """A shipment of an order."""

    id: Id | None = None
    """The shipment."""
    shipment_type: str | None = None
    """What is sent, such as `shipping`."""
    shipping_mode: str | None = None
    """Who ships."""
    status: str | None = None
    """Its state, such as `pending`; the contract names no values."""
    items: tuple[ShipmentItem, ...] | None = None
    """What is in it."""
    date_created: Moment | None = None
    """When it was made."""
    last_modified: Moment | None = None
    """When it was changed last."""
    date_first_printed: Moment | None = None
    """When its label was printed first; `None` before."""
    service_id: Id | None = None
    """The service of the carrier."""
    sender_id: Id | None = None
    """The seller's user id."""
    receiver_id: Id | None = None
    """The buyer's user id."""
    receiver_address: ReceiverAddress | None = None
    """Where it goes."""
    shipping_option: ShippingOption | None = None
    """How it is carried, and at what price."""


class MerchantOrder(ResponseStruct):
    """An order with its payments and shipments."""

    id: Id
    """The order."""
    status: Open[MerchantOrderStatus] | None = None
    """Whether it is covered by payments."""
    order_status: Open[MerchantOrderState] | None = None
    """The outcome of its payments."""
    external_reference: str | None = None
    """The integrator's own name for it."""
    preference_id: str | None = None
    """The preference that it was paid through."""
    application_id: Id | None = None
    """The application that made it."""
    site_id: str | None = None
    """The platform's site."""
    marketplace: str | None = None
    """The marketplace."""
    date_created: Moment | None = None
    """When it was made."""
    last_updated: Moment | None = None
    """When it was last changed."""
    shipping_cost: Decimal | None = None
    """What the shipment costs."""
    total_amount: Decimal | None = None
    """What its items cost."""
    paid_amount: Decimal | None = None
    """What was paid."""
    refunded_amount: Decimal | None = None
    """What was refunded."""
    additional_info: str | None = None
    """Free text."""
    collector: Party | None = None
    """Who is paid."""
    payer: Party | None = None
    """Who pays."""
    items: tuple[MerchantOrderItem, ...] | None = None
    """Its lines."""
    payments: tuple[MerchantOrderPayment, ...] | None = None
    """Its payments."""
    shipments: tuple[Shipment, ...] | None = None
    """Its shipments."""


class MerchantOrderPage(ResponseStruct):
    """A page of merchant orders, as the platform sends it. On the last page ``next_offset`` is 0 or the total."""

    elements: tuple[MerchantOrder, ...] | None = None
    """The orders of this page."""
    next_offset: int | None = None
    """Where the next page begins; 0 or the total on the last page, `None` on some platforms."""
    total: int | None = None
    """How many orders the search has."""


class MerchantOrderFilters(TypedDict, total=False):
    """What merchant orders can be searched by (4.7).

    Moments need a time zone. The contract does not say whether a range includes the moments at its ends.
    """

    status: str
    """Whether they are covered by payments, such as `closed`."""
    preference_id: str
    """The preference that they were paid through."""
    application_id: Id
    """The application that made them."""
    payer_id: Id
    """The buyer."""
    sponsor_id: Id
    """The sponsor of the preference or the order."""
    external_reference: str
    """The integrator's own name for them."""
    site_id: str
    """The platform's site."""
    marketplace: str
    """The marketplace."""
    date_created_from: Moment
    """Made at this moment or later."""
    date_created_to: Moment
    """Made at this moment or earlier."""
    last_updated_from: Moment
    """Changed last at this moment or later."""
    last_updated_to: Moment
    """Changed last at this moment or earlier."""
    items: Id
    """The id of one of their items."""


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
            **search: The members of `MerchantOrderFilters` and of `WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
