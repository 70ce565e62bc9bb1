"""Merchant orders (4.7): the items, payments and shipments of a sale, in one place."""

from __future__ import annotations

from decimal import Decimal
from typing import TypedDict, Unpack

from paymentsdk._contract.operation import MIB, Operation, PageShape
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._paging.cursor import Position
from paymentsdk._paging.pager import Pager, WalkOptions
from paymentsdk.resources.common import Id, Moment, Open, OpenEnum, Resource, ResponseStruct


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
    """The user id of the party; `None` if not sent."""


class MerchantOrderItem(ResponseStruct):
    """A line of an order."""

    id: Id | None = None
    """The seller's own id for the item; `None` if not sent."""
    category_id: str | None = None
    """The id of the item's category; `None` if not sent."""
    currency_id: str | None = None
    """The currency of `unit_price`, such as `ARS`; `None` if not sent."""
    description: str | None = None
    """More about the item than its title; `None` if not sent."""
    picture_url: str | None = None
    """The URL of a picture of the item; `None` if not sent."""
    title: str | None = None
    """The name that the buyer sees; `None` if not sent."""
    quantity: int | None = None
    """How many were ordered; `None` if not sent."""
    unit_price: Decimal | None = None
    """The price of one, in `currency_id`; `None` if not sent."""


class MerchantOrderPayment(ResponseStruct):
    """A payment of an order. There may be several, some of them rejected."""

    id: Id | None = None
    """The id of the payment; `None` if not sent."""
    transaction_amount: Decimal | None = None
    """The amount of the payment without the shipment, in `currency_id`; `None` if not sent."""
    total_paid_amount: Decimal | None = None
    """The amount of the payment with the shipment, in `currency_id`; `None` if not sent."""
    shipping_cost: Decimal | None = None
    """The part of it that pays the shipment, in `currency_id`; `None` if not sent."""
    currency_id: str | None = None
    """The currency of its amounts, such as `ARS`; `None` if not sent."""
    status: str | None = None
    """Such as `approved`, `rejected` or `refunded`; the contract lists no values."""
    status_detail: str | None = None
    """The reason for this status, such as `accredited`; the contract lists no values."""
    date_approved: Moment | None = None
    """Timestamp of the approval, with its offset; `None` if it was not approved, or if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_modified: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    amount_refunded: Decimal | None = None
    """How much of it was refunded so far, in `currency_id`; `None` if not sent."""


class ShipmentItem(ResponseStruct):
    """A line of a shipment. ``dimensions`` is text such as ``10x20x30,500``."""

    id: Id | None = None
    """The seller's own id for the item; `None` if not sent."""
    description: str | None = None
    """The description of the item; `None` if not sent."""
    quantity: int | None = None
    """How many are shipped; `None` if not sent."""
    dimensions: str | None = None
    """Text such as `10x20x30,500` (centimetres, grams)."""


class City(ResponseStruct):
    """A city."""

    id: Id | None = None
    """The platform's id of the city; `None` if not sent."""
    name: str | None = None
    """The name of the city; `None` if not sent."""


class State(ResponseStruct):
    """A state or province."""

    id: Id | None = None
    """The state or province, such as `AR-C`."""
    name: str | None = None
    """The name of the state or province; `None` if not sent."""


class Country(ResponseStruct):
    """A country."""

    id: Id | None = None
    """The country, such as `AR`."""
    name: str | None = None
    """The name of the country; `None` if not sent."""


class StreetName(ResponseStruct):
    """The name of a street in each of the platform's languages."""

    en: str | None = None
    """The name in English; `None` if not sent."""
    pt: str | None = None
    """The name in Portuguese; `None` if not sent."""
    es: str | None = None
    """The name in Spanish; `None` if not sent."""


class ReceiverAddress(ResponseStruct):
    """The destination of a shipment. The platform sends ``street_name`` as a text or in several languages."""

    id: Id | None = None
    """The platform's id of the address; `None` if not sent."""
    address_line: str | None = None
    """Street and number in one line; `None` if not sent."""
    city: City | None = None
    """The city, with its name; `None` if not sent."""
    state: State | None = None
    """The state or province, with its id and name; `None` if not sent."""
    country: Country | None = None
    """The country, with its id and name; `None` if not sent."""
    latitude: float | None = None
    """In degrees, -90 to 90; north is positive; `None` if not sent."""
    longitude: float | None = None
    """In degrees, -180 to 180; east is positive; `None` if not sent."""
    comment: str | None = None
    """The buyer's comment for the carrier."""
    contact: str | None = None
    """The name of the person who receives the shipment; `None` if not sent."""
    phone: Id | None = None
    """The phone number of that person; `None` if not sent."""
    zip_code: Id | None = None
    """The postcode, as a string or a number; `None` if not sent."""
    street_name: str | StreetName | None = None
    """The street: a text, or a name in each language."""
    street_number: Id | None = None
    """The house number, as a string or a number; `None` if not sent."""


class EstimatedDelivery(ResponseStruct):
    """When a shipment is expected to arrive."""

    date: Moment | None = None
    """Timestamp at which it is expected, with its offset; `None` if not sent."""


class Speed(ResponseStruct):
    """The time to handle and to carry a shipment. The contract does not name the unit."""

    handling: float | None = None
    """Time until it is handed over, in the platform's unit (hours in the sandbox); `None` if not sent."""
    shipping: float | None = None
    """Time from then to the receiver, in the same unit; `None` if not sent."""


class ShippingOption(ResponseStruct):
    """The method and the price of a shipment."""

    id: Id | None = None
    """The id of the option; `None` if not sent."""
    cost: Decimal | None = None
    """The buyer's price for the shipment, in `currency_id`; `None` if not sent."""
    currency_id: str | None = None
    """The currency of both prices, such as `ARS`; `None` if not sent."""
    shipping_method_id: Id | None = None
    """The id of the method of shipping; `None` if not sent."""
    estimated_delivery: EstimatedDelivery | None = None
    """When it is expected to arrive; `None` if not sent."""
    name: str | None = None
    """The name that the buyer sees, such as `Express`; `None` if not sent."""
    list_cost: Decimal | None = None
    """The price without a discount, in `currency_id`; `None` if not sent."""
    speed: Speed | None = None
    """How long handling and shipping take; `None` if not sent."""


class Shipment(ResponseStruct):
    """A shipment of an order."""

    id: Id | None = None
    """The id of the shipment; `None` if not sent."""
    shipment_type: str | None = None
    """The kind of shipment, such as `shipping`."""
    shipping_mode: str | None = None
    """Who ships, as in `shipments.mode` of the preference; the contract lists no values."""
    status: str | None = None
    """The state of the shipment, such as `pending`; the contract names no values."""
    items: tuple[ShipmentItem, ...] | None = None
    """The items in the shipment; `None` if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_modified: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    date_first_printed: Moment | None = None
    """Timestamp of the first printing of its label, with its offset; `None` before, or if not sent."""
    service_id: Id | None = None
    """The id of the carrier's service; `None` if not sent."""
    sender_id: Id | None = None
    """The user id of the seller; `None` if not sent."""
    receiver_id: Id | None = None
    """The user id of the buyer; `None` if not sent."""
    receiver_address: ReceiverAddress | None = None
    """The destination of the shipment; `None` if not sent."""
    shipping_option: ShippingOption | None = None
    """The method and the price of the shipment; `None` if not sent."""


class MerchantOrder(ResponseStruct):
    """An order with its payments and shipments."""

    id: Id
    """The id of the merchant order."""
    status: Open[MerchantOrderStatus] | None = None
    """Whether payments cover it: `opened` before an approved payment, `closed` after, or `expired`; `None` if not
    sent."""
    order_status: Open[MerchantOrderState] | None = None
    """The outcome of its payments: `payment_required`, `paid`, `reverted` or `expired`; `None` if not sent."""
    external_reference: str | None = None
    """The integrator's own name for it; `None` if not set or not sent."""
    preference_id: str | None = None
    """The id of its preference; `None` for a QR order, or if not sent."""
    application_id: Id | None = None
    """The id of the application that created it; `None` if not sent."""
    site_id: str | None = None
    """The platform's site for the seller's country; `None` if not sent."""
    marketplace: str | None = None
    """The marketplace of the sale, or `NONE`; `None` if not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_updated: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    shipping_cost: Decimal | None = None
    """The buyer's price for the shipment, in the currency of the items; `None` if not sent."""
    total_amount: Decimal | None = None
    """The price of its items, in their currency; `None` if not sent."""
    paid_amount: Decimal | None = None
    """The amount paid so far, in the currency of the items; `None` if not sent."""
    refunded_amount: Decimal | None = None
    """The amount refunded so far, in the currency of the items; `None` if not sent."""
    additional_info: str | None = None
    """Free text of the integrator; `None` if not set or not sent."""
    collector: Party | None = None
    """The seller, who is paid; `None` if not sent."""
    payer: Party | None = None
    """The buyer, who pays; `None` before a payment, or if not sent."""
    items: tuple[MerchantOrderItem, ...] | None = None
    """The lines of the order; `None` if not sent."""
    payments: tuple[MerchantOrderPayment, ...] | None = None
    """All its payments, including rejected ones; `None` if not sent."""
    shipments: tuple[Shipment, ...] | None = None
    """Its shipments; `None` or empty if nothing is shipped, or if not sent."""


class MerchantOrderPage(ResponseStruct):
    """A page of merchant orders, as the platform sends it. On the last page ``next_offset`` is 0 or the total."""

    elements: tuple[MerchantOrder, ...] | None = None
    """The orders of this page; `None` or empty if there are no rows."""
    next_offset: int | None = None
    """The offset of the next page; 0 or the total on the last page, `None` on some platforms."""
    total: int | None = None
    """The number of orders in the search, over all pages; `None` if not sent."""


class MerchantOrderFilters(TypedDict, total=False):
    """The filters of a merchant order search (4.7).

    Moments need a time zone. The contract does not say whether a range includes the moments at its ends.
    """

    status: str
    """Whether payments cover the order, such as `closed`."""
    preference_id: str
    """The id of the preference."""
    application_id: Id
    """The id of the application that created the order."""
    payer_id: Id
    """The user id of the buyer."""
    sponsor_id: Id
    """The user id of the sponsor of the preference or the order."""
    external_reference: str
    """The integrator's own name for the order."""
    site_id: str
    """The platform's site for the seller's country."""
    marketplace: str
    """The marketplace of the sale."""
    date_created_from: Moment
    """Created at this moment or later."""
    date_created_to: Moment
    """Created at this moment or earlier."""
    last_updated_from: Moment
    """Last changed at this moment or later."""
    last_updated_to: Moment
    """Last changed at this moment or earlier."""
    items: Id
    """The id of an item in the order."""


class MerchantOrderSearch(MerchantOrderFilters, WalkOptions, total=False):
    """The filters, and the options of the walk."""


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
        # Not the payer, who changes with a payment, nor the items, which the seller can change.
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
        ErrorCode(401, "invalid_caller_id", "the caller in the token is not valid"),
    ),
)


class MerchantOrders(Resource):
    """``client.merchant_orders``: orders with their payments and shipments."""

    def search(self, **search: Unpack[MerchantOrderSearch]) -> Pager[MerchantOrder]:
        """Search the orders of the last 90 days (4.7). Asking for the first row sends the first request.

        A walk without `certify=True` can silently miss rows that share a date.

        Args:
            **search: The fields of `MerchantOrderFilters` and of `WalkOptions`.

        Raises:
            RequestInvalid: A filter is unknown, empty or of the wrong type, or an option is out of bounds.
        """
        return Pager(self._engine, SEARCH, **search)
