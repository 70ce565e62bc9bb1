"""In-person QR orders: the Orders API (4.10 to 4.13)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Unpack

import msgspec
from msgspec import Meta, field, structs

from paymentsdk import money
from paymentsdk._contract.identity import Addition, Echo
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import KEY_LIFETIME, ErrorCode, RetryClass
from paymentsdk._validate import check_seconds
from paymentsdk.errors import NoAnswer, NotSent, RateLimited, RefreshFailed, RequestInvalid, ServerError
from paymentsdk.resources.common import (
    KEY_IN_FLIGHT,
    KEY_USED,
    UNAUTHORIZED,
    Amount,
    KeyedWriteOptions,
    Moment,
    Open,
    OpenEnum,
    PositiveAmount,
    RequestStruct,
    RequiredId,
    Resource,
    ResponseStruct,
    comparable,
    parse_duration,
    require,
    require_within_total,
    same_reference,
    settling,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from paymentsdk._call.engine import Engine
    from paymentsdk.journal._record import Record, Resolution

    _OtherRecords: TypeAlias = Callable[..., Awaitable[list[Record]]]

SHORTEST_EXPIRATION = timedelta(seconds=30)
#: The longer of the two maxima in the spec. On a platform with the shorter one, three hours, the platform rejects more.
LONGEST_EXPIRATION = timedelta(hours=3600)
DEFAULT_EXPIRATION = timedelta(minutes=15)


class OrderStatus(OpenEnum):
    """State of an order."""

    CREATED = "created"
    PROCESSED = "processed"
    CANCELED = "canceled"
    REFUNDED = "refunded"
    EXPIRED = "expired"


class OrderStatusDetail(OpenEnum):
    """The reason for the state of an order."""

    CREATED = "created"
    ACCREDITED = "accredited"
    CANCELED = "canceled"
    REFUNDED = "refunded"
    PARTIALLY_REFUNDED = "partially_refunded"
    EXPIRED = "expired"


class PaymentStatus(OpenEnum):
    """State of the payment of an order."""

    CREATED = "created"
    PROCESSED = "processed"
    CANCELED = "canceled"
    REFUNDED = "refunded"
    EXPIRED = "expired"


class PaymentStatusDetail(OpenEnum):
    """The reason for the state of a payment."""

    READY_TO_PROCESS = "ready_to_process"
    CREATED = "created"
    IN_REVIEW = "in_review"
    ACCREDITED = "accredited"
    CANCELED_BY_API = "canceled_by_api"
    REFUNDED = "refunded"
    EXPIRED = "expired"


class RefundStatus(OpenEnum):
    """State of a refund."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    FAILED = "failed"


class QRMode(OpenEnum):
    """How the buyer finds the order: the fixed code of the point of sale, a code for this order, or either."""

    STATIC = "static"
    DYNAMIC = "dynamic"
    HYBRID = "hybrid"


if TYPE_CHECKING:
    #: A mode in a request: its text, or the constant.
    QRModeName: TypeAlias = QRMode | Literal["static", "dynamic", "hybrid"]
else:
    # msgspec takes no union of the two; it accepts a constant because a constant is a text.
    QRModeName = Literal[tuple(mode.value for mode in QRMode)]


class OrderRequestStruct(RequestStruct, forbid_unknown_fields=True):
    """Base of requests to the Orders API, which rejects unknown fields."""


class QRConfigRequest(OrderRequestStruct):
    """The point of sale, and the kind of its code."""

    external_pos_id: Annotated[str, Meta(min_length=1)] | None = None
    """The seller's own id for the point of sale, not empty; an unknown one is rejected with `pos_not_found`."""
    mode: QRModeName | None = None
    """How the buyer finds the order: `static`, `dynamic` or `hybrid`; by default the platform takes `static`."""


class OrderConfigRequest(OrderRequestStruct):
    """Where the order is paid."""

    qr: QRConfigRequest
    """Required: the point of sale, and the kind of its code."""


class PaymentRequest(OrderRequestStruct):
    """The payment of an order."""

    amount: PositiveAmount
    """Required: the amount, in the currency of the seller's account; above zero, two decimals or none."""


class CashWithdrawalRequest(OrderRequestStruct):
    """Cash that the buyer receives at the till; the seller must be authorized for that."""

    amount: PositiveAmount
    """Required: the amount, in the currency of the seller's account; above zero, two decimals or none."""


class TransactionsRequest(OrderRequestStruct):
    """The single payment of the order, and the cash that is withdrawn with it."""

    payments: Annotated[list[PaymentRequest], Meta(min_length=1, max_length=1)]
    """Required: exactly one payment."""
    cash_withdrawal: CashWithdrawalRequest | None = None
    """Part of the `total_amount` of the order; optional. The contract does not name the field."""


class CategoryRequest(OrderRequestStruct):
    """A category that gives discounts to an item."""

    id: str
    """Required: the platform's id of the category."""


class ItemRequest(OrderRequestStruct):
    """A line of the order."""

    title: Annotated[str, Meta(min_length=1, max_length=150)]
    """Required: the text that the buyer sees; 1 to 150 characters."""
    unit_price: Amount
    """Required: the price of one, in the currency of the seller's account; zero or more, two decimals or none."""
    quantity: Annotated[int, Meta(ge=1)]
    """Required: how many, 1 or more."""
    unit_measure: Annotated[str, Meta(min_length=1, max_length=10)]
    """Required: the unit that `quantity` counts, such as `unit` or `kg`; 1 to 10 characters."""
    external_code: Annotated[str, Meta(max_length=30)] | None = None
    """The integrator's own code for it; at most 30 characters."""
    external_categories: list[CategoryRequest] | None = None
    """Categories that give it discounts; cannot be combined with `discounts` of the order."""


class DiscountRequest(OrderRequestStruct):
    """The total for a buyer who pays with one kind of method."""

    new_total_amount: PositiveAmount
    """Required: the total with a method of this `type`, in the currency of the seller's account: above zero, not above
    the total of the order; two decimals or none."""
    type: Literal["debit_card", "credit_card", "account_money", "prepaid_card"]
    """Required: the kind of method: `debit_card`, `credit_card`, `account_money` or `prepaid_card`."""


class DiscountsRequest(OrderRequestStruct):
    """Totals by kind of method."""

    payment_methods: Annotated[list[DiscountRequest], Meta(max_length=4)]
    """Required: the totals by kind of method, at most 4."""


class SponsorRequest(OrderRequestStruct):
    """The integrator's own account."""

    id: str
    """Required: the user id of the account; an invalid one is rejected with `sponsor_id_not_valid`."""


class IntegrationDataRequest(OrderRequestStruct):
    """The integration that creates the order; the platform assigns the ids."""

    platform_id: str | None = None
    """The product that the integration runs on, if there is one."""
    integrator_id: Annotated[str, Meta(pattern=r"\Adev_(?#must begin with dev_)")] | None = None
    """The id of the integrator, assigned by the platform; begins with `dev_`."""
    sponsor: SponsorRequest | None = None
    """The integrator's own account on the platform; optional."""


_REFERENCE = r"\A[A-Za-z0-9_-]*\Z(?#must consist of ASCII letters, digits, - and _)"


class OrderRequest(OrderRequestStruct):
    """An order to create (4.10).

    Raises:
        RequestInvalid: A rule between the fields is broken. Rules of single fields are checked by the call.
    """

    external_reference: Annotated[str, Meta(min_length=1, max_length=64, pattern=_REFERENCE)]
    """Required: the integrator's own name for the order: 1 to 64 ASCII letters, digits, `-` and `_`; no personal
    data."""
    total_amount: PositiveAmount
    """Required: the amount of the payment plus the cash withdrawal, in the currency of the seller's account; above
    zero, two decimals or none."""
    transactions: TransactionsRequest
    """Required: exactly one payment, and the cash that is withdrawn with it."""
    config: OrderConfigRequest | None = None
    """The point of sale and the mode of the code; by default the platform takes `static`."""
    description: Annotated[str, Meta(max_length=150)] | None = None
    """The purpose of the order: at most 150 characters, without personal data."""
    expiration_time: str | None = None
    """An ISO 8601 duration such as `PT5M`, sent as given; at least 30 seconds and at most 3600 hours (some platforms
    take at most 3 hours). By default the platform takes 15 minutes."""
    marketplace_fee: Amount | None = None
    """The marketplace's share: zero or more, not above the total, two decimals or none. It needs a token obtained
    through OAuth."""
    items: list[ItemRequest] | None = None
    """The lines of the order; optional."""
    discounts: DiscountsRequest | None = None
    """Totals by kind of method; cannot be combined with `external_categories` of an item."""
    integration_data: IntegrationDataRequest | None = None
    """The integration that creates the order: ids that the platform assigns; optional."""
    # A factory, since a plain default would not be sent.
    type: Literal["qr"] = field(default_factory=lambda: "qr")
    """Always sent: `qr`, the default and the only value."""

    def __post_init__(self) -> None:
        if self.expiration_time is not None:
            check_expiration(self.expiration_time, LONGEST_EXPIRATION)
        # The call rejects wrong types, and more than one payment, with their path.
        if isinstance(self.transactions, TransactionsRequest):
            _check_sum(self.transactions, self.total_amount)
        if self.marketplace_fee is not None:
            require_within_total(self.marketplace_fee, self.total_amount, "$.marketplace_fee")
        if self.discounts is not None:
            _check_totals(self.discounts, self.total_amount)
            for i, item in enumerate(self.items if isinstance(self.items, list) else ()):
                require(
                    not getattr(item, "external_categories", None),
                    f"$.items[{i}].external_categories",
                    "cannot be combined with discounts",
                )


def _check_sum(transactions: TransactionsRequest, total: Decimal) -> None:
    payments, cash = transactions.payments, transactions.cash_withdrawal
    if not isinstance(payments, list) or len(payments) != 1 or not isinstance(payments[0], PaymentRequest):
        return
    amount = payments[0].amount
    if isinstance(cash, CashWithdrawalRequest):
        if not comparable(amount, cash.amount):
            return
        amount = money.total(((1, amount), (1, cash.amount)))
    if amount is not total and comparable(amount, total):
        require(amount == total, "$.total_amount", "is not the sum of the transactions", "sum")


def _check_totals(discounts: DiscountsRequest, total: Decimal) -> None:
    entries = discounts.payment_methods if isinstance(discounts, DiscountsRequest) else ()
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, DiscountRequest):
            require_within_total(entry.new_total_amount, total, f"$.discounts.payment_methods[{i}].new_total_amount")


def check_expiration(text: str, longest: timedelta) -> None:
    """Reject an expiration that the platform rejects.

    Raises:
        RequestInvalid: *text* is not a duration, is below 30 seconds, or is above *longest*.
    """
    if not isinstance(text, str):
        raise RequestInvalid("$.expiration_time", f"expected text such as PT5M, got {type(text).__name__}")
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise RequestInvalid("$.expiration_time", str(error)) from None
    require(duration >= SHORTEST_EXPIRATION, "$.expiration_time", "is below the minimum of 30 seconds (PT30S)")
    if duration > longest:
        hours = longest / timedelta(hours=1)
        raise RequestInvalid("$.expiration_time", f"is above the maximum of {hours:g} hours")


class RefundTransactionRequest(OrderRequestStruct):
    """The payment to refund, and the amount."""

    id: Annotated[str, Meta(min_length=1)]
    """Required: the id of the payment (`order.payment.id`), not empty."""
    amount: PositiveAmount
    """Required: the amount, in the `currency` of the order: above zero, not above the refundable balance; two
    decimals or none."""


class RefundRequest(OrderRequestStruct):
    """A partial refund (4.13); without a body, the whole order is refunded."""

    transactions: Annotated[list[RefundTransactionRequest], Meta(min_length=1, max_length=1)] | None = None
    """Exactly one payment, and the amount of it to refund."""


class QRConfig(ResponseStruct):
    """The point of sale, and the kind of its code."""

    external_pos_id: str | None = None
    """The seller's own id for the point of sale; `None` if not sent."""
    mode: Open[QRMode] | None = None
    """How the buyer finds the order: `static`, `dynamic` or `hybrid`; `None` if not sent."""


class OrderConfig(ResponseStruct):
    """Where the order is paid."""

    qr: QRConfig | None = None
    """The point of sale, and the kind of its code."""


class PaymentMethod(ResponseStruct):
    """The method of a payment."""

    id: str | None = None
    """The method, such as `visa`; `None` if not sent."""
    type: str | None = None
    """The kind of method, such as `credit_card`; `None` if not sent."""
    installments: int | None = None
    """The number of installments, 1 for a single payment; `None` if not sent."""


class PaymentDiscounts(ResponseStruct):
    """The discount that applied to a payment."""

    type: str | None = None
    """The kind of method that the discount was for, such as `debit_card`; `None` if not sent."""


class OrderPayment(ResponseStruct):
    """The payment of an order. Amounts are in the ``currency`` of the order."""

    id: str
    """The id of the payment; a partial refund needs it."""
    amount: Decimal | None = None
    """The amount to pay, in the `currency` of the order; `None` if not sent."""
    status: Open[PaymentStatus] | None = None
    """`created`, `processed`, `canceled`, `refunded` or `expired`; `None` if not sent."""
    status_detail: Open[PaymentStatusDetail] | None = None
    """The reason for this status, see `PaymentStatusDetail`; `ready_to_process` while it waits for the buyer."""
    refunded_amount: Decimal | None = None
    """The amount refunded so far, in the `currency` of the order; `None` before a refund, or if not sent."""
    paid_amount: Decimal | None = None
    """The amount that the buyer has paid, in the `currency` of the order: less than `amount` if a discount applied;
    `None` before, or if not sent."""
    reference_id: str | None = None
    """The platform's reference for the payment; `None` before it is processed, or if not sent."""
    payment_method: PaymentMethod | None = None
    """The method of the payment; `None` before the payment is processed, or if not sent."""
    discounts: PaymentDiscounts | None = None
    """The discount that applied; `None` if not set or not sent."""


class Refund(ResponseStruct):
    """Money that goes back."""

    id: str
    """The id of the refund."""
    transaction_id: str | None = None
    """The id of the refunded payment; `None` if not sent."""
    reference_id: str | None = None
    """The platform's reference for the refund; `None` if not sent."""
    amount: Decimal | None = None
    """The amount that goes back, in the `currency` of the order; `None` if not sent."""
    status: Open[RefundStatus] | None = None
    """`processing` until it is decided, then `processed` or `failed`; a refund that `failed` moved no money."""


class CashWithdrawal(ResponseStruct):
    """Cash that the buyer receives at the till."""

    amount: Decimal | None = None
    """The amount; the buyer pays it on top of the payment, and no refund returns it."""


class Transactions(ResponseStruct):
    """The payment and the refunds of an order."""

    payments: tuple[OrderPayment, ...] | None = None
    """The single payment of the order, see `Order.payment`; `None` if this response has none."""
    refunds: tuple[Refund, ...] | None = None
    """The refunds of the order, the newest last; `None` or empty if this response has none."""
    cash_withdrawal: CashWithdrawal | None = None
    """The cash withdrawal, if there is one: `total_amount` is the amount of the payment plus this."""


class TypeResponse(ResponseStruct):
    """The fields that depend on the type of an order."""

    qr_data: str | None = None
    """The text to show as a QR code; only with the modes `dynamic` and `hybrid`."""


class Category(ResponseStruct):
    """A category of an item."""

    id: str | None = None
    """The platform's id of the category; `None` if not sent."""


class OrderItem(ResponseStruct):
    """A line of an order."""

    title: str | None = None
    """The text that the buyer sees; at most 150 characters; `None` if not sent."""
    unit_price: Decimal | None = None
    """The price of one, in the `currency` of the order; `None` if not sent."""
    quantity: int | None = None
    """How many, 1 or more; `None` if not sent."""
    unit_measure: str | None = None
    """The unit that `quantity` counts; at most 10 characters; `None` if not sent."""
    external_code: str | None = None
    """The integrator's own code for it; `None` if not set or not sent."""
    external_categories: tuple[Category, ...] | None = None
    """Categories that give it discounts; `None` if not set or not sent."""


class Discount(ResponseStruct):
    """The total for a buyer who pays with one kind of method."""

    new_total_amount: Decimal | None = None
    """The total with a method of this `type`, in the `currency` of the order; `None` if not sent."""
    type: str | None = None
    """The kind of method: `debit_card`, `credit_card`, `account_money` or `prepaid_card`."""


class Discounts(ResponseStruct):
    """Totals by kind of method."""

    payment_methods: tuple[Discount, ...] | None = None
    """The totals by kind of method, at most 4."""


class Sponsor(ResponseStruct):
    """The integrator's own account."""

    id: str | None = None
    """The user id of the account; `None` if not sent."""


class IntegrationData(ResponseStruct):
    """The integration that created the order."""

    application_id: str | None = None
    """The id of the application that created the order; `None` if not sent."""
    platform_id: str | None = None
    """The product that the integration runs on, if there is one."""
    integrator_id: str | None = None
    """The id of the integrator, which begins with `dev_`; `None` if not set or not sent."""
    sponsor: Sponsor | None = None
    """The integrator's own account; `None` if not set or not sent."""


class Order(ResponseStruct):
    """An order as the platform has it. The response to a refund may hold only the fields that changed."""

    id: RequiredId
    """`ORD` and 26 characters; the other operations need it."""
    user_id: str | None = None
    """The user id of the seller, from the access token; `None` if not sent."""
    type: str | None = None
    """Always `qr`, the only type; `None` if not sent."""
    total_amount: Decimal | None = None
    """The sum of the payment and the cash withdrawal, in `currency`; `None` if not sent."""
    external_reference: str | None = None
    """The integrator's own name for the order, as in the request; `None` if not sent."""
    description: str | None = None
    """The purpose of the order; `None` if not set or not sent."""
    expiration_time: str | None = None
    """The time from its creation until it expires: an ISO 8601 duration such as `PT15M`, the platform's default; `None`
    if not sent."""
    processing_mode: str | None = None
    """Always `automatic` for QR orders; `None` if not sent."""
    status: Open[OrderStatus] | None = None
    """`created`, `processed`, `canceled`, `refunded` or `expired`; `None` if not sent."""
    status_detail: Open[OrderStatusDetail] | None = None
    """The reason for this status, see `OrderStatusDetail`; can be `partially_refunded` after a partial refund."""
    currency: str | None = None
    """The currency of the seller's account: `ARS`, `BRL`, `CLP` or `UYU`."""
    country_code: str | None = None
    """The seller's country, in two or three capitals; `None` if not sent."""
    created_date: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    last_updated_date: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    marketplace_fee: Decimal | None = None
    """The marketplace's share, in `currency`; `None` if not set or not sent."""
    config: OrderConfig | None = None
    """The point of sale and the mode of the code."""
    type_response: TypeResponse | None = None
    """Holds the text of its QR code, see `qr_data`; `None` with the mode `static`, or if not sent."""
    transactions: Transactions | None = None
    """Its payment and its refunds; see `payment` and `refunds`."""
    items: tuple[OrderItem, ...] | None = None
    """The lines of the order; `None` if not set or not sent."""
    discounts: Discounts | None = None
    """Totals by kind of method; `None` if not set or not sent."""
    integration_data: IntegrationData | None = None
    """The integration and the application that created the order; `None` if not sent."""

    @property
    def payment(self) -> OrderPayment | None:
        """The single payment of the order; ``None`` if this response has none."""
        payments = self.transactions and self.transactions.payments
        return payments[0] if payments else None

    @property
    def refunds(self) -> tuple[Refund, ...]:
        """The refunds in this response, in every ``status``: done, under way or failed."""
        return (self.transactions and self.transactions.refunds) or ()

    @property
    def qr_data(self) -> str | None:
        """The text to show as a QR code; only with the modes ``dynamic`` and ``hybrid``."""
        return None if self.type_response is None else self.type_response.qr_data


# These settle: the platform rejects the bytes themselves, or reports a state that this write cannot have caused. Not
# `empty_required_header`: a proxy may have dropped the header from this attempt, but not from an earlier one.
_EMPTY_KEY = ErrorCode(400, "empty_required_header", "the X-Idempotency-Key header is missing")
_BAD_PATH = settling(400, "invalid_path_param", "the format of order_id is invalid")
_NOT_FOUND = settling(404, "order_not_found", "order_id matches no order")
_KEY_LENGTH = settling(400, "invalid_idempotency_key_length", "the X-Idempotency-Key is longer than the platform takes")
_NO_BODY = (
    settling(400, "unsupported_properties", "the body has a field that is not supported; detail names it"),
    ErrorCode(400, "bad_request", "a field is unsupported or invalid"),
    settling(400, "property_type", "a field has the wrong type, or the JSON is malformed"),
)
_BODY = (
    *_NO_BODY,
    settling(400, "property_value", "a field breaks a rule; detail names it"),
    settling(400, "required_properties", "a required field is missing; detail names it"),
)
_ALWAYS = (
    UNAUTHORIZED,
    ErrorCode(403, "forbidden", "the token may not do this"),
    ErrorCode(500, "generic", "internal error; check the response and retry"),
)
_THIS_ORDER = Echo("id", of="{order_id}")
_LOCKED = ErrorCode(423, "resource_locked", "another request is changing the order")


def _expires_in(body: OrderRequest | None) -> timedelta:
    """Return the lifetime of the order: after that, a resent order would block the next buyer."""
    text = None if body is None else body.expiration_time
    return DEFAULT_EXPIRATION if text is None else parse_duration(text)


def _is_new(_: object, state: object) -> bool | None:
    """Exclude the response to a cancel or a refund: an order that was just created is in another state."""
    return False if isinstance(state, tuple) and state else state not in _ENDED


#: The platform uses both spellings of `canceled`.
_ENDED = frozenset({OrderStatus.CANCELED, "cancelled", OrderStatus.REFUNDED, OrderStatus.EXPIRED})


# --- how recovery finds out whether a write took effect: see `Operation.look_up` --------------------------------------


async def _look_up_order(client: Engine, record: Record, other_records: _OtherRecords) -> Resolution | None:
    """Prove that the order was created: the seller has exactly one merchant order of its reference, and it is paid."""
    from paymentsdk.journal._record import TOLERANCE, RecordState, Resolution  # only recovery needs these
    from paymentsdk.resources.merchant_orders import MerchantOrders

    body = msgspec.json.decode(record.body or b"", type=OrderRequest)
    now = client.runtime.platform_time()
    search = MerchantOrders(client).search(
        external_reference=body.external_reference,
        date_created_from=datetime.fromtimestamp(record.begun - TOLERANCE, UTC),
        date_created_to=datetime.fromtimestamp(int(record.not_after if now is None else now), UTC),
        certify=True,
    )
    merchant_orders = await search.collect()
    for rival in await other_records(path=record.path, containing=msgspec.json.encode(body.external_reference)):
        if rival.body is None:
            return None  # A purged record may have had the same reference.
        if msgspec.json.decode(rival.body, type=OrderRequest).external_reference == body.external_reference:
            return None
    paid = [order for order in merchant_orders if order.paid_amount and order.total_amount == body.total_amount]
    if len(merchant_orders) != 1 or not paid:
        return None
    # The id of a merchant order differs from the id of its order, so there is no response to return.
    return Resolution(state=RecordState.DONE, reason="seen by a read: it was paid")


async def _look_up_cancel(client: Engine, record: Record, _other_records: _OtherRecords) -> Order | None:
    order = await Orders(client).get(_order_id(record))
    return order if order.status == OrderStatus.CANCELED else None


async def _look_up_refund(client: Engine, record: Record, other_records: _OtherRecords) -> Order | None:
    """Prove that a refund was made: of the whole order, or as the only refund of its payment and amount."""
    order, part = await Orders(client).get(_order_id(record)), _refunded_part(record)
    if part is None:
        return order if _is_refunded_whole(order) else None
    if any(_refunded_part(rival) in (None, part) for rival in await other_records(path=record.path)):
        return None
    equal = [refund for refund in order.refunds if (refund.transaction_id, refund.amount) == part]
    if len(equal) != 1 or order.transactions is None:
        return None
    # The new refund is the last one, as in the response to a refund.
    refunds = (*(refund for refund in order.refunds if refund is not equal[0]), *equal)
    return structs.replace(order, transactions=structs.replace(order.transactions, refunds=refunds))


def _order_id(record: Record) -> str:
    return record.path.split("/")[-2]


def _refunded_part(record: Record) -> tuple[str | None, Decimal | None] | None:
    """Return the payment and the amount of a partial refund; `None` for a whole refund, or without a body."""
    parts = msgspec.json.decode(record.body or b"{}", type=RefundRequest).transactions
    return (parts[0].id, parts[0].amount) if parts else None


def _is_refunded_whole(order: Order) -> bool:
    """Return whether the whole payment went back: the status is `refunded` after a partial refund, too."""
    payment = order.payment
    if payment is None or order.status != OrderStatus.REFUNDED:
        return False
    paid = payment.amount if payment.paid_amount is None else payment.paid_amount
    refunded = payment.refunded_amount
    if refunded is None:
        processed = (refund for refund in order.refunds if refund.status == RefundStatus.PROCESSED)
        refunded = money.total((1, refund.amount or money.ZERO) for refund in processed)
    return paid is not None and refunded >= paid


CREATE = Operation(
    name="orders.create",
    method="POST",
    path="/v1/orders",
    section="4.10",
    summary="Create an order",
    retry=RetryClass.KEYED,
    body=OrderRequest,
    example={
        "type": "qr",
        "total_amount": "50.00",
        "external_reference": "ticket-0001",
        "description": "Two coffees",
        "expiration_time": "PT16M",
        "config": {"qr": {"external_pos_id": "POS001", "mode": "dynamic"}},
        "transactions": {"payments": [{"amount": "50.00"}]},
        "items": [{"title": "Coffee", "unit_price": "25.00", "quantity": 2, "unit_measure": "unit"}],
    },
    result=Order,
    status=201,
    decimal_strings=True,
    resend_window=_expires_in,
    look_up=_look_up_order,
    echoes=(
        Echo("external_reference", agrees=same_reference, shared=True),
        Echo("total_amount"),
        Echo("transactions.payments[].amount"),
        Echo("status", agrees=_is_new, fallback=True),
        Echo("transactions.refunds", agrees=_is_new, fallback=True),
    ),
    errors=(
        _EMPTY_KEY,
        _KEY_LENGTH,
        *_BODY,
        settling(400, "minimum_items", "a list has fewer entries than required"),
        settling(400, "maximum_items", "a list has more entries than allowed"),
        settling(400, "invalid_total_amount", "total_amount is not the sum of the transactions"),
        settling(400, "unsupported_site", "orders are not supported in the seller's country"),
        settling(400, "sponsor_id_not_valid", "integration_data.sponsor.id is invalid"),
        settling(400, "marketplace_not_valid", "the token was not obtained through OAuth: no marketplace is known"),
        settling(400, "seller_configuration", "the seller is not authorized for cash withdrawals"),
        *_ALWAYS,
        ErrorCode(401, "invalid_credentials", "the access token does not belong to this platform"),
        ErrorCode(402, "failed", "the payment failed"),
        settling(404, "pos_not_found", "external_pos_id is unknown"),
        settling(404, "marketplace_fee_not_allowed", "marketplace_fee was sent but the marketplace was not found"),
        KEY_USED,
        KEY_IN_FLIGHT,
    ),
)
GET: Operation[None, Order] = Operation(
    name="orders.get",
    method="GET",
    path="/v1/orders/{order_id}",
    section="4.11",
    summary="Get an order",
    retry=RetryClass.READ,
    result=Order,
    decimal_strings=True,
    echoes=(_THIS_ORDER,),
    errors=(_BAD_PATH, *_ALWAYS, _NOT_FOUND),
)
CANCEL: Operation[None, Order] = Operation(
    name="orders.cancel",
    method="POST",
    path="/v1/orders/{order_id}/cancel",
    section="4.12",
    summary="Cancel an order",
    retry=RetryClass.KEYED,
    resend_window=timedelta(minutes=15),
    look_up=_look_up_cancel,
    result=Order,
    decimal_strings=True,
    # Every response about the order has its id, but the response to a get or a refund has another state.
    echoes=(_THIS_ORDER, Echo("status", always=("canceled", "cancelled"))),
    errors=(
        _EMPTY_KEY,
        _KEY_LENGTH,
        *_NO_BODY,
        _BAD_PATH,
        *_ALWAYS,
        _NOT_FOUND,
        KEY_USED,
        ErrorCode(409, "order_already_canceled", "the order was canceled before"),
        settling(409, "cannot_cancel_order", "the state of the order does not allow to cancel it"),
        _LOCKED,
    ),
)
REFUND = Operation(
    name="orders.refund",
    method="POST",
    path="/v1/orders/{order_id}/refund",
    section="4.13",
    summary="Refund an order, whole or in part",
    retry=RetryClass.KEYED,
    resend_window=timedelta(seconds=KEY_LIFETIME),
    look_up=_look_up_refund,
    body=RefundRequest,
    body_required=False,
    example={"transactions": [{"id": "PAY01J67CQQH5904WDBVZEM4JMEP3", "amount": "25.00"}]},
    result=Order,
    status=201,
    decimal_strings=True,
    echoes=(_THIS_ORDER,),
    addition=Addition(
        "transactions.refunds",
        echoes=(Echo("transaction_id", of="transactions[].id"), Echo("amount", of="transactions[].amount")),
    ),
    errors=(
        _EMPTY_KEY,
        _KEY_LENGTH,
        *_BODY,
        _BAD_PATH,
        # It settles nothing: the refund in doubt may have taken the rest of the balance.
        ErrorCode(400, "refund_amount_exceeds", "the amount is above the refundable balance of the payment"),
        *_ALWAYS,
        _NOT_FOUND,
        KEY_USED,
        settling(409, "cannot_refund_order", "the state of the order does not allow a refund"),
        ErrorCode(409, "order_already_refunded", "the whole order was refunded before"),
        ErrorCode(409, "refund_in_progress", "another refund of the order is being processed"),
        _LOCKED,
    ),
)


#: States in which the buyer may still pay; `None` is a response without a status. The contract names only `created`.
_OPEN = frozenset({OrderStatus.CREATED, "processing", "action_required", None})
#: The longest pause between two reads of `wait`, in seconds.
_LONGEST_PAUSE = 15.0


def _has_ended(order: Order) -> bool:
    return order.status not in _OPEN


class Orders(Resource):
    """``client.orders``: in-person QR orders."""

    async def create(self, order: OrderRequest, **options: Unpack[KeyedWriteOptions]) -> Order:
        """Create an order that a buyer pays by scanning a code (4.10).

        Args:
            order: The order to create.
            **options: `idempotency_key`, `first_sent_at`, `once`, `not_after`, `defer`: see `KeyedWriteOptions`. With
                `first_sent_at`, limit the resend to the rest of ``expiration_time``: the order may come too late for
                its buyer. With `once` the journal does that. Using a name again returns the order as it was created,
                even if it was paid or has expired since: call `get` before you show its code.

        Raises:
            RequestInvalid: The order breaks a rule; nothing was sent.
            BadRequest, NotFound, Conflict: The platform rejected the request; see ``CREATE.errors`` for the codes.
            OutcomeUnknown: The order may exist. Send it again with the error's ``idempotency_key``.
        """
        return await self._write(CREATE, order, options)

    async def get(self, order_id: str) -> Order:
        """Return the order with its payment and its refunds (4.11).

        Args:
            order_id: ``ORD`` and 26 characters, as `create` returned it.

        Raises:
            RequestInvalid: *order_id* has a character that no id has; nothing was sent.
            BadRequest: *order_id* does not have the form of an order id.
            NotFound: The seller has no order with this id.
        """
        return await self._read(GET, order_id=order_id)

    async def wait(self, order_id: str, *, until: Callable[[Order], bool] | None = None, within: float = 900) -> Order:
        """Read the order until its buyer has paid or cannot pay any more, and return the last order read.

        The first pause between two reads is 1 second, and pauses double up to 15 seconds. A read without a usable
        response is repeated. Check the `status` of the order: after *within* seconds it may still be ``created``.
        Waiting again is safe.

        Args:
            order_id: As in `get`.
            until: Returns whether the order is in the state that you wait for. By default, its status is neither
                ``created``, ``processing`` nor ``action_required``.
            within: Seconds to wait, above 0 and at most 86,400; then the order is read for the last time.

        Raises:
            RequestInvalid, BadRequest, NotFound: As in `get`, or *within* is out of range.
            NoAnswer, NotSent, RateLimited, RefreshFailed, ServerError: No read within this time had a response.
        """
        clock = self._engine.runtime.clock
        end, pause = clock.monotonic() + check_seconds("within", within), 1.0
        order: Order | None = None
        while True:
            remaining = end - clock.monotonic()
            try:
                order = await self.get(order_id)
            except (NoAnswer, NotSent, RateLimited, RefreshFailed, ServerError):
                if order is None and remaining <= 0:
                    raise
            if order is not None and (remaining <= 0 or (until or _has_ended)(order)):
                return order
            await clock.sleep(max(0.0, min(pause, remaining)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def cancel(self, order_id: str, **options: Unpack[KeyedWriteOptions]) -> Order:
        """Cancel an order that was not paid (4.12).

        Args:
            order_id: The id of the order.
            **options: As in `create`.

        Raises:
            RequestInvalid, BadRequest, NotFound: As in `get`.
            Conflict: The order's state does not allow it, or the key was used for another request.
            OutcomeUnknown: The order may be canceled. Send it again with the error's ``idempotency_key``.
        """
        return await self._write(CANCEL, None, options, order_id=order_id)

    async def refund(
        self,
        order_id: str,
        *,
        payment_id: str | None = None,
        amount: Decimal | None = None,
        **options: Unpack[KeyedWriteOptions],
    ) -> Order:
        """Give money back: the whole order, or *amount* of the payment *payment_id* (4.13).

        The response may be partial: the order's id, its state and the refunds. The new refund is the last of these.
        Check its ``status``: it can still be ``processing``, and a refund that has ``failed`` raises nothing.

        Args:
            order_id: The id of the order.
            payment_id: The payment of a partial refund (``order.payment.id``); requires *amount*.
            amount: The amount of a partial refund: above zero, not above the refundable balance, two decimals or none;
                requires *payment_id*.
            **options: As in `create`. Each partial refund needs its own key, or its own name (`once`). So does a new
                try of a refund that has ``failed``: with the old key, the platform repeats its response.

        Raises:
            RequestInvalid: Only one of *payment_id* and *amount* was given, or a value breaks a rule; nothing was sent.
            BadRequest, Conflict: The amount is above the refundable balance, the order's state does not allow a refund,
                or the key was used for another request.
            NotFound: As in `get`.
            OutcomeUnknown: The money may have gone back. Send it again with the error's ``idempotency_key``.
        """
        body = None
        if payment_id is not None and amount is not None:
            body = RefundRequest(transactions=[RefundTransactionRequest(id=payment_id, amount=amount)])
        elif payment_id is not None or amount is not None:
            raise RequestInvalid(
                "amount" if amount is None else "payment_id",
                "a partial refund takes both payment_id and amount; a refund of the whole order takes neither",
            )
        return await self._write(REFUND, body, options, order_id=order_id)
