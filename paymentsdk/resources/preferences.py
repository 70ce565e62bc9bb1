"""Checkout preferences (4.3): the items and payment options of a checkout, with the extra fields of every industry.

A part that has the same members in the request and in the response is one Struct, without ``Request`` in its name.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Unpack

from msgspec import Meta

from paymentsdk import money
from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._validate import plain_moment
from paymentsdk.resources.common import (
    Amount,
    Day,
    Id,
    Metadata,
    Moment,
    Open,
    OpenEnum,
    RequestDay,
    RequestStruct,
    RequiredId,
    Resource,
    ResponseStruct,
    WriteOptions,
    read_days,
    require,
    require_within_total,
    same_id,
    same_reference,
)

MOST_INSTALLMENTS = 36

Installments = Annotated[int, Meta(ge=1, le=MOST_INSTALLMENTS)]
URL = Annotated[str, Meta(pattern=r"\Ahttps?://[!-~]+\Z(?#must be an http or https address, in ASCII)")]


class OperationType(OpenEnum):
    """The purpose of a preference: a payment, or a request for money."""

    REGULAR_PAYMENT = "regular_payment"
    MONEY_TRANSFER = "money_transfer"


class AuthenticationType(OpenEnum):
    """How a buyer logs in to the seller's shop."""

    GMAIL = "Gmail"
    FACEBOOK = "Facebook"
    NATIVE_WEB = "Native web"
    OTHER = "Other"


if TYPE_CHECKING:
    #: An authentication type in a request: its text, or the constant.
    AuthenticationTypeName: TypeAlias = AuthenticationType | Literal["Gmail", "Facebook", "Native web", "Other"]
else:
    # msgspec takes no union of the two; it accepts a constant because a constant is a text.
    AuthenticationTypeName = Literal[tuple(kind.value for kind in AuthenticationType)]


class Passenger(RequestStruct):
    """A person who travels or stays (tourism, hospitality)."""

    first_name: str | None = None
    """Given name; optional."""
    last_name: str | None = None
    """Family name; optional."""
    identification_type: str | None = None
    """The kind of the identity document, such as `CPF`; optional."""
    identification_number: Id | None = None
    """The number of the document, as a string or a number; optional."""


class Route(RequestStruct):
    """A journey: its start and end, its times, and the company (tourism)."""

    departure: str | None = None
    """The place where it begins; optional."""
    destination: str | None = None
    """The place where it ends; optional."""
    departure_date_time: RequestDay | None = None
    """When it begins: a date, or a timestamp with its offset."""
    arrival_date_time: RequestDay | None = None
    """When it ends: a date, or a timestamp with its offset."""
    company: str | None = None
    """The company that carries the passenger; optional."""

    def __post_init__(self) -> None:
        read_days(self, "departure_date_time", "arrival_date_time")


class CategoryDescriptor(RequestStruct):
    """The journey or the stay that an item stands for (tourism, hospitality)."""

    passenger: Passenger | None = None
    """The person who travels or stays; optional."""
    route: Route | None = None
    """Where the journey begins and ends, and when (only tourism); optional."""


class PreferenceItemRequest(RequestStruct):
    """An item for sale."""

    id: Id | None = None
    """The seller's own id for the item; optional."""
    title: str | None = None
    """The name that the buyer sees; optional."""
    description: str | None = None
    """The description of the item; optional."""
    picture_url: str | None = None
    """The URL of a picture of the item; optional."""
    category_id: str | None = None
    """The id of the item's category; optional."""
    quantity: Annotated[int, Meta(ge=1)] | None = None
    """How many, 1 or more; optional."""
    currency_id: str | None = None
    """The currency of `unit_price`, such as `ARS`; optional."""
    unit_price: Amount | None = None
    """The price of one, in `currency_id`: zero or more, two decimals or none; optional."""
    type: str | None = None
    """The kind of item (apparel); optional."""
    warranty: bool | None = None
    """Whether it has a warranty (electro, home and deco)."""
    event_date: RequestDay | None = None
    """When it takes place (entertainment, government, hospitality): a date, or a timestamp with its offset."""
    category_descriptor: CategoryDescriptor | None = None
    """Who travels or stays, and the route (tourism, hospitality)."""

    def __post_init__(self) -> None:
        read_days(self, "event_date")


class PayerPhone(RequestStruct):
    """A phone number."""

    area_code: Id | None = None
    """Area code, as a string or a number; optional."""
    number: Id | None = None
    """Number without the area code, as a string or a number; optional."""


class PayerIdentification(RequestStruct):
    """An identity document, with the field names of the preference or of the industries."""

    type: str | None = None
    """The kind of the document, such as `CPF`; optional."""
    number: Id | None = None
    """The number of the document, as a string or a number; optional."""
    identification_type: str | None = None
    """The kind of the document, as the industries name it; optional."""
    identification_number: Id | None = None
    """The number of the document, as the industries name it; optional."""


class PayerAddress(RequestStruct):
    """An address."""

    zip_code: Id | None = None
    """The postcode, as a string or a number; optional."""
    street_name: str | None = None
    """The street without the number; optional."""
    street_number: Id | None = None
    """The house number, as a string or a number; optional."""


class PayerRequest(RequestStruct):
    """The buyer. Everything that the seller knows improves the rate of approvals."""

    name: str | None = None
    """Given name; `first_name` in the tables of the industries."""
    surname: str | None = None
    """Family name; `last_name` in the tables of the industries."""
    first_name: str | None = None
    """Given name, as the industries name it; optional."""
    last_name: str | None = None
    """Family name, as the industries name it; optional."""
    email: str | None = None
    """The email address of the buyer; optional."""
    phone: PayerPhone | None = None
    """The phone number of the buyer, with its area code; optional."""
    identification: PayerIdentification | None = None
    """The identity document of the buyer; optional."""
    address: PayerAddress | None = None
    """The address where the buyer lives; optional."""
    date_created: RequestDay | None = None
    """When they became a customer of the seller: a date, or a timestamp with its offset."""
    authentication_type: AuthenticationTypeName | None = None
    """How they log in to the seller's shop: `Gmail`, `Facebook`, `Native web` or `Other`; optional."""
    registration_date: RequestDay | None = None
    """When they registered with the seller's shop: a date, or a timestamp with its offset."""
    is_prime_user: bool | None = None
    """Whether they are a member of the seller's programme."""
    is_first_purchase_online: bool | None = None
    """Whether they never bought online before."""
    last_purchase: RequestDay | None = None
    """When they last bought: a date, or a timestamp with its offset."""

    def __post_init__(self) -> None:
        read_days(self, "date_created", "registration_date", "last_purchase")


class Excluded(RequestStruct):
    """A payment method, or a kind of methods, that the buyer is not offered."""

    id: str | None = None
    """The id of the method or the kind, such as `visa` or `ticket`."""


class PaymentMethodsRequest(RequestStruct):
    """How the buyer may pay. ``installments`` is 1 to 36, ``default_installments`` 1 or more."""

    excluded_payment_methods: list[Excluded] | None = None
    """The methods that the buyer is not offered."""
    excluded_payment_types: list[Excluded] | None = None
    """The kinds of methods that the buyer is not offered, such as `ticket`."""
    default_payment_method_id: str | None = None
    """The id of the method that is offered first; optional."""
    installments: Installments | None = None
    """The most installments that the buyer may choose, 1 to 36."""
    default_installments: Annotated[int, Meta(ge=1)] | None = None
    """The number of installments that is offered first, 1 or more."""


class FreeMethod(RequestStruct):
    """A shipping method that costs the buyer nothing."""

    id: Id | None = None
    """The id of the shipping method."""


class PreferenceReceiverAddress(RequestStruct):
    """The destination of a shipment."""

    zip_code: Id | None = None
    """The postcode, as a string or a number; optional."""
    street_name: str | None = None
    """The street without the number; optional."""
    city_name: str | None = None
    """The name of the city; optional."""
    state_name: str | None = None
    """The name of the state or province; optional."""
    street_number: Id | None = None
    """The house number, as a string or a number; optional."""
    country_name: str | None = None
    """The name of the country; optional."""


class ShipmentsRequest(RequestStruct):
    """How the items are shipped."""

    mode: str | None = None
    """Who ships; the contract lists no values; optional."""
    local_pickup: bool | None = None
    """Whether the buyer may fetch the items; optional."""
    dimensions: str | None = None
    """Text such as `30x30x30,500` (centimetres, grams)."""
    default_shipping_method: Id | None = None
    """The id of the method that is offered first; optional."""
    free_methods: list[FreeMethod] | None = None
    """The methods that cost the buyer nothing."""
    cost: Amount | None = None
    """The price of the shipment, in the currency of the items: zero or more, two decimals or none; optional."""
    free_shipping: bool | None = None
    """Whether the shipment costs the buyer nothing; optional."""
    express_shipment: bool | None = None
    """Whether the shipment is express; optional."""
    receiver_address: PreferenceReceiverAddress | None = None
    """The destination of the shipment; optional."""


class BackURLsRequest(RequestStruct):
    """Where the buyer goes after the checkout: absolute http or https addresses."""

    success: URL | None = None
    """The URL after a payment that was approved; optional."""
    pending: URL | None = None
    """The URL while the payment is pending; optional."""
    failure: URL | None = None
    """The URL after a payment that was rejected, or given up; optional."""


class DifferentialPricing(RequestStruct):
    """The seller's own terms for installments."""

    id: int | None = None
    """The platform's number of the seller's terms."""


class TrackValues(RequestStruct):
    """How an advertiser identifies a conversion."""

    conversion_id: Id | None = None
    """The advertiser's id of the conversion; optional."""
    conversion_label: str | None = None
    """The advertiser's label of the conversion; optional."""
    pixel_id: Id | None = None
    """The id of the pixel that reports it; optional."""


class Track(RequestStruct):
    """An advertisement that caused the sale; ``type`` is, for example, ``google_ad``."""

    type: str | None = None
    """The advertiser, such as `google_ad`; the contract lists no other value."""
    values: TrackValues | None = None
    """The identifiers that the advertiser asks for; optional."""


class PreferenceRequest(RequestStruct):
    """A preference to create (4.3). Only ``items`` is required.

    Raises:
        RequestInvalid: A rule between the fields is broken. Rules of single fields are checked by the call.
    """

    items: Annotated[list[PreferenceItemRequest], Meta(min_length=1)]
    """Required: the items for sale, one or more."""
    payer: PayerRequest | None = None
    """The buyer; optional."""
    payment_methods: PaymentMethodsRequest | None = None
    """How the buyer may pay, and in how many installments; optional."""
    shipments: ShipmentsRequest | None = None
    """How the items are shipped, and at what price; optional."""
    back_urls: BackURLsRequest | None = None
    """Where the buyer goes after the checkout; optional."""
    notification_url: str | None = None
    """The URL that receives notifications of changes; optional."""
    statement_descriptor: str | None = None
    """The text on the buyer's statement; optional."""
    additional_info: str | None = None
    """Free text of the integrator; optional."""
    auto_return: Literal["approved"] | None = None
    """`approved`, the only value, takes the buyer back without a click; optional."""
    external_reference: str | None = None
    """The integrator's own name for the preference; optional."""
    operation_type: Literal["regular_payment", "money_transfer"] | None = None
    """`regular_payment` (a payment, the platform's default) or `money_transfer` (a request for money)."""
    expires: bool | None = None
    """Whether `expiration_date_from` and `expiration_date_to` apply; optional."""
    expiration_date_from: Moment | None = None
    """Timestamp from which it can be paid, with its offset; before `expiration_date_to`."""
    expiration_date_to: Moment | None = None
    """Timestamp until which it can be paid, with its offset; after `expiration_date_from`."""
    date_of_expiration: Moment | None = None
    """Timestamp until which it can be paid by cash, with its offset; optional."""
    marketplace: str | None = None
    """The marketplace of the sale; optional."""
    marketplace_fee: Amount | None = None
    """The marketplace's share, in the currency of the items: zero or more, two decimals or none, not above the sum of
    quantity times price over the items."""
    differential_pricing: DifferentialPricing | None = None
    """The seller's own terms for installments, by their number; optional."""
    tracks: list[Track] | None = None
    """Advertisements that caused the sale; optional."""
    binary_mode: bool | None = None
    """`True`: the payment ends approved or rejected, and is never pending; optional."""
    sponsor_id: Id | None = None
    """The user id of a sponsor: an active user of the seller's site; optional."""
    metadata: Metadata | None = None
    """The integrator's own data, returned as it was sent; optional."""

    def __post_init__(self) -> None:
        total = _total(self.items)
        if self.marketplace_fee is not None and total is not None:
            require_within_total(self.marketplace_fee, total, "$.marketplace_fee")
        begin, end = plain_moment(self.expiration_date_from), plain_moment(self.expiration_date_to)
        if begin and end and begin.utcoffset() is not None and end.utcoffset() is not None:
            # Datetimes of one zone would be compared by wall clock, which repeats an hour in autumn.
            require(begin.timestamp() < end.timestamp(), "$.expiration_date_to", "is not after expiration_date_from")


def _total(items: object) -> Decimal | None:
    """Return the total of *items*, or ``None`` if it is unknown; the call rejects invalid items."""
    lines = []
    for item in items if isinstance(items, list | tuple) else (None,):
        if not isinstance(item, PreferenceItemRequest) or type(item.quantity) is not int:
            return None
        try:
            price = money.exact(item.unit_price)
        except ValueError:
            return None
        if price < 0:
            return None
        lines.append((item.quantity, price))
    return money.total(lines)


class PreferenceItem(ResponseStruct):
    """An item for sale."""

    id: Id | None = None
    """The seller's own id for the item; `None` if not sent."""
    title: str | None = None
    """The name that the buyer sees; `None` if not sent."""
    description: str | None = None
    """The description of the item; `None` if not sent."""
    picture_url: str | None = None
    """The URL of a picture of the item; `None` if not sent."""
    category_id: str | None = None
    """The id of the item's category; `None` if not sent."""
    quantity: int | None = None
    """How many, 1 or more; `None` if not sent."""
    currency_id: str | None = None
    """The currency of `unit_price`, such as `ARS`; `None` if not sent."""
    unit_price: Decimal | None = None
    """The price of one, in `currency_id`; `None` if not sent."""
    type: str | None = None
    """The kind of item (apparel); `None` if not sent."""
    warranty: bool | None = None
    """Whether it has a warranty (electro, home and deco)."""
    event_date: Day | None = None
    """When it takes place (entertainment, government, hospitality): a timestamp with its offset, midnight UTC for a
    date alone."""
    category_descriptor: CategoryDescriptor | None = None
    """Who travels or stays, and the route (tourism, hospitality)."""


class Payer(ResponseStruct):
    """The buyer."""

    name: str | None = None
    """Given name; `first_name` in the tables of the industries."""
    surname: str | None = None
    """Family name; `last_name` in the tables of the industries."""
    first_name: str | None = None
    """Given name, as the industries name it; `None` if not sent."""
    last_name: str | None = None
    """Family name, as the industries name it; `None` if not sent."""
    email: str | None = None
    """The email address of the buyer; `None` if not sent."""
    phone: PayerPhone | None = None
    """The phone number of the buyer, with its area code; `None` if not sent."""
    identification: PayerIdentification | None = None
    """The identity document of the buyer; `None` if not sent."""
    address: PayerAddress | None = None
    """The address where the buyer lives; `None` if not sent."""
    date_created: Day | None = None
    """When they became a customer of the seller: a timestamp with its offset, midnight UTC for a date alone."""
    authentication_type: Open[AuthenticationType] | None = None
    """How they log in to the seller's shop: `Gmail`, `Facebook`, `Native web` or `Other`; `None` if not sent."""
    registration_date: Day | None = None
    """When they registered with the seller's shop: a timestamp with its offset, midnight UTC for a date alone."""
    is_prime_user: bool | None = None
    """Whether they are a member of the seller's programme."""
    is_first_purchase_online: bool | None = None
    """Whether they never bought online before."""
    last_purchase: Day | None = None
    """When they last bought: a timestamp with its offset, midnight UTC for a date alone."""


class PaymentMethods(ResponseStruct):
    """How the buyer may pay."""

    excluded_payment_methods: tuple[Excluded, ...] | None = None
    """The methods that the buyer is not offered."""
    excluded_payment_types: tuple[Excluded, ...] | None = None
    """The kinds of methods that the buyer is not offered, such as `ticket`."""
    default_payment_method_id: str | None = None
    """The id of the method that is offered first; `None` if not sent."""
    installments: int | None = None
    """The most installments that the buyer may choose, 1 to 36; `None` if not sent."""
    default_installments: int | None = None
    """The number of installments that is offered first, 1 or more; `None` if not sent."""


class Shipments(ResponseStruct):
    """How the items are shipped."""

    mode: str | None = None
    """Who ships; the contract lists no values; `None` if not sent."""
    local_pickup: bool | None = None
    """Whether the buyer may fetch the items; `None` if not sent."""
    dimensions: str | None = None
    """Text such as `30x30x30,500` (centimetres, grams)."""
    default_shipping_method: Id | None = None
    """The id of the method that is offered first; `None` if not sent."""
    free_methods: tuple[FreeMethod, ...] | None = None
    """The methods that cost the buyer nothing."""
    cost: Decimal | None = None
    """The price of the shipment, in the currency of the items; `None` if not sent."""
    free_shipping: bool | None = None
    """Whether the shipment costs the buyer nothing; `None` if not sent."""
    express_shipment: bool | None = None
    """Whether the shipment is express; `None` if not sent."""
    receiver_address: PreferenceReceiverAddress | None = None
    """The destination of the shipment; `None` if not sent."""


class BackURLs(ResponseStruct):
    """Where the buyer goes after the checkout; a URL that is not set may be empty."""

    success: str | None = None
    """The URL after a payment that was approved; empty or `None` if not set."""
    pending: str | None = None
    """The URL while the payment is pending; empty or `None` if not set."""
    failure: str | None = None
    """The URL after a payment that was rejected, or given up; empty or `None` if not set."""


class Preference(ResponseStruct):
    """A preference as the platform has it: the fields of the request, and the platform's own fields."""

    id: RequiredId
    """The id of the preference: `<collector_id>-<uuid>`."""
    init_point: str | None = None
    """The URL of the checkout where the buyer pays; `None` if not sent."""
    sandbox_init_point: str | None = None
    """The URL of the checkout where a test buyer pays; `None` if not sent."""
    collector_id: Id | None = None
    """The user id of the seller, also their id as a customer; `None` if not sent."""
    client_id: Id | None = None
    """The id of the application that created it; `None` if not sent."""
    operation_type: Open[OperationType] | None = None
    """`regular_payment` (a payment) or `money_transfer` (a request for money); `None` if not sent."""
    items: tuple[PreferenceItem, ...] | None = None
    """The items for sale, one or more; `None` if not sent."""
    payer: Payer | None = None
    """The buyer; `None` if not sent."""
    back_urls: BackURLs | None = None
    """Where the buyer goes after the checkout; `None` if not sent."""
    auto_return: str | None = None
    """`approved` takes the buyer back without a click; empty or `None` if not set."""
    payment_methods: PaymentMethods | None = None
    """How the buyer may pay, and in how many installments; `None` if not sent."""
    marketplace: str | None = None
    """The marketplace of the sale; `None` if not sent."""
    marketplace_fee: Decimal | None = None
    """The marketplace's share, in the currency of the items; `None` if not set or not sent."""
    shipments: Shipments | None = None
    """How the items are shipped, and at what price; `None` if not sent."""
    notification_url: str | None = None
    """The URL that receives notifications of changes; `None` if not sent."""
    statement_descriptor: str | None = None
    """The text on the buyer's statement; `None` if not sent."""
    additional_info: str | None = None
    """Free text of the integrator; `None` if not sent."""
    external_reference: str | None = None
    """The integrator's own name for the preference; `None` if not sent."""
    expires: bool | None = None
    """Whether `expiration_date_from` and `expiration_date_to` apply."""
    expiration_date_from: Moment | None = None
    """Timestamp from which it can be paid, with its offset; `None` if not set or not sent."""
    expiration_date_to: Moment | None = None
    """Timestamp until which it can be paid, with its offset; `None` if not set or not sent."""
    date_of_expiration: Moment | None = None
    """Timestamp until which it can be paid by cash, with its offset; `None` if not set or not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    differential_pricing: DifferentialPricing | None = None
    """The seller's own terms for installments."""
    tracks: tuple[Track, ...] | None = None
    """Advertisements that caused the sale; `None` if not sent."""
    binary_mode: bool | None = None
    """`True`: the payment ends approved or rejected, and is never pending; `None` if not sent."""
    sponsor_id: Id | None = None
    """The user id of a sponsor: an active user of the seller's site; `None` if not sent."""
    metadata: Metadata | None = None
    """The integrator's own data, returned as it was sent; `None` if not sent."""


def _if_asked(requested: Decimal | None, echoed: Decimal) -> bool | None:
    """Compare numbers if one was requested; otherwise the platform may return its default."""
    return None if requested is None else requested == echoed


def _same_title(requested: str | None, echoed: str) -> bool | None:
    """Compare titles: the platform may trim a title, or cut off its end; return `None` for an empty title."""
    beginning = " ".join(echoed.split()).casefold()
    return " ".join((requested or "").split()).casefold().startswith(beginning) if beginning else None


CREATE: Operation[PreferenceRequest, Preference] = Operation(
    name="preferences.create",
    method="POST",
    path="/checkout/preferences",
    section="4.3",
    summary="Create a checkout preference",
    retry=RetryClass.UNKEYED,
    in_doubt="send it again: a preference costs nothing until a buyer is sent to its link",
    body=PreferenceRequest,
    example={
        "items": [{"id": "sku-1", "title": "Lamp", "quantity": 1, "currency_id": "ARS", "unit_price": 120.5}],
        "payer": {"email": "ana@example.com", "first_name": "Ana", "last_name": "Souza"},
        "back_urls": {"success": "https://shop.example.com/thanks"},
        "auto_return": "approved",
        "external_reference": "basket-42",
    },
    result=Preference,
    status=201,
    other_statuses=(200,),
    echoes=(
        Echo("external_reference", agrees=same_reference, shared=True),
        Echo("items[].id", agrees=same_id),
        Echo("items[].title", agrees=_same_title),
        Echo("items[].quantity", agrees=_if_asked),
        Echo("items[].unit_price", agrees=_if_asked),
    ),
    errors=(
        ErrorCode(400, "collector_does_not_comply_with_current_regulation", "the seller's identity must be validated"),
        # Not in the contract, which has no code for most members: `invalid_items` would blame valid items.
        ErrorCode(400, "bad_request", "a field without a separate code breaks a rule; the cause names it"),
        ErrorCode(400, "invalid_collector_id", "collector_id is invalid"),
        ErrorCode(400, "invalid_sponsor_id", "sponsor_id is not an active user"),
        ErrorCode(400, "invalid_collector_email", "the collector is not the owner of collector_email"),
        ErrorCode(400, "invalid_operation_type", "operation_type is invalid"),
        ErrorCode(400, "invalid_expiration_date_to", "expiration_date_to is invalid"),
        ErrorCode(400, "invalid_expiration_date_from", "expiration_date_from is invalid"),
        ErrorCode(400, "invalid_date", "the expiration date is invalid"),
        ErrorCode(400, "invalid_items", "an item is invalid, for example its unit_price"),
        ErrorCode(400, "invalid_back_urls", "a URL of back_urls has the wrong format"),
        ErrorCode(400, "invalid_payment_methods", "installments must be a number between 1 and 36"),
        ErrorCode(400, "invalid_marketplace_fee", "marketplace_fee must not be above the total amount"),
        ErrorCode(400, "invalid_id", "the preference id was not found"),
        ErrorCode(400, "invalid_access_token", "access denied"),
        ErrorCode(400, "invalid_shipments", "a field of shipments, such as cost, has the wrong type"),
        ErrorCode(400, "invalid_binary_mode", "binary_mode must be a boolean"),
        ErrorCode(
            400,
            "sponsor_id site must be the same as collector_id",
            "the site of sponsor_id must be the site of collector_id",
        ),
    ),
)


class Preferences(Resource):
    """``client.preferences``: checkout preferences."""

    async def create(self, preference: PreferenceRequest, **options: Unpack[WriteOptions]) -> Preference:
        """Create a preference; the buyer pays at its ``init_point`` (4.3).

        The operation takes no idempotency key, so a request whose outcome is in doubt is not sent again.

        Args:
            preference: The preference to create.
            **options: `once`, `not_after`: see `WriteOptions`. An outcome in doubt is reported, never sent again.

        Raises:
            RequestInvalid: The preference breaks a rule; nothing was sent.
            BadRequest: The platform rejected the request; see ``CREATE.errors`` for the codes.
            OutcomeUnknown: The preference may exist. It costs nothing until a buyer is sent to it.
        """
        return await self._write(CREATE, preference, options)
