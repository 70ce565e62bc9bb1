"""Customers (4.8): buyers that a seller knows.

A part that has the same members in the request and in the response is one Struct, without ``Request`` in its name.
"""

from __future__ import annotations

from typing import Annotated, Unpack

from msgspec import Meta

from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk.resources.common import (
    UNAUTHORIZED,
    Day,
    Id,
    Metadata,
    Moment,
    RequestDay,
    RequestStruct,
    RequiredId,
    Resource,
    ResponseStruct,
    WriteOptions,
    read_days,
)

#: One @, and a domain of at least two labels: every mail system accepts this. The platform may require more.
_EMAIL = (
    r"\A[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+\Z"
    r"(?#must be an address such as ana@example.com)"
)


class CustomerPhone(RequestStruct):
    """A phone number."""

    area_code: Id | None = None
    """Area code, as a string or a number; optional."""
    number: Id | None = None
    """Number without the area code, as a string or a number; optional."""


class CustomerIdentification(RequestStruct):
    """An identity document."""

    type: str | None = None
    """The kind of the document, such as `CPF`; optional."""
    number: Id | None = None
    """The number of the document, as a string or a number; optional."""


class CustomerAddress(RequestStruct):
    """An address."""

    id: Id | None = None
    """The platform's id of the address; optional."""
    zip_code: Id | None = None
    """The postcode, as a string or a number; optional."""
    street_name: str | None = None
    """The street without the number; optional."""
    street_number: Id | None = None
    """The house number, as a string or a number; optional."""


class CustomerRequest(RequestStruct):
    """A customer to create (4.8). The contract does not say which fields are required."""

    email: Annotated[str, Meta(pattern=_EMAIL)] | None = None
    """Identifies the customer: the platform has one per email and seller. One `@`, and a domain with a dot."""
    first_name: str | None = None
    """Given name; optional."""
    last_name: str | None = None
    """Family name; optional."""
    phone: CustomerPhone | None = None
    """Phone number, with its area code; optional."""
    identification: CustomerIdentification | None = None
    """Identity document: its kind and number; optional."""
    default_address: Id | None = None
    """The id of the address to use by default; optional."""
    address: CustomerAddress | None = None
    """The address of the customer; optional."""
    date_registered: RequestDay | None = None
    """When they became a customer of the seller: a date, or a timestamp with its offset."""
    description: str | None = None
    """Free text about the customer; optional."""
    default_card: Id | None = None
    """The id of the card to use by default; optional."""
    metadata: Metadata | None = None
    """The integrator's own data, returned as it was sent."""

    def __post_init__(self) -> None:
        read_days(self, "date_registered")


class Customer(ResponseStruct):
    """A customer as the platform has them."""

    id: RequiredId
    """The platform's id of the customer."""
    email: str | None = None
    """The email address, which is unique for each seller; `None` if not sent."""
    first_name: str | None = None
    """Given name; `None` if not sent."""
    last_name: str | None = None
    """Family name; `None` if not sent."""
    phone: CustomerPhone | None = None
    """Phone number; `None` if not sent."""
    identification: CustomerIdentification | None = None
    """Identity document; `None` if not sent."""
    address: CustomerAddress | None = None
    """Address; `None` if not sent."""
    description: str | None = None
    """Free text about the customer; `None` if not set or not sent."""
    date_created: Moment | None = None
    """Timestamp of the creation, with its offset; `None` if not sent."""
    metadata: Metadata | None = None
    """The integrator's own data, as it was sent; `None` if not set or not sent."""
    date_registered: Day | None = None
    """When they became a customer of the seller: a timestamp with its offset, midnight UTC for a date alone."""
    default_address: Id | None = None
    """The id of the address that is used by default; `None` if not set or not sent."""
    default_card: Id | None = None
    """The id of the card that is used by default; `None` if not set or not sent."""
    cards: tuple[Metadata, ...] | None = None
    """Their cards. The fields of a card are not part of the contract."""
    addresses: tuple[Metadata, ...] | None = None
    """Their addresses. The fields are not part of the contract."""
    live_mode: bool | None = None
    """Whether this is a real customer, not a test one."""


#: The numeric codes of a 400, as the spec lists them.
_REJECTIONS = {
    100: "credentials are required",
    101: "the customer already exists",
    102: "the customer id is missing",
    103: "the parameter must be an object",
    104: "the parameter is too long",
    105: "the customer id is invalid",
    106: "the format of email is invalid",
    107: "first_name is invalid",
    108: "last_name is invalid",
    109: "phone.area_code is invalid",
    110: "phone.number is invalid",
    111: "identification.type is invalid",
    112: "identification.number is invalid",
    113: "address.zip_code is invalid",
    114: "address.street_name is invalid",
    115: "the format of date_registered is invalid",
    116: "description is invalid",
    117: "metadata is invalid",
    118: "the body must be a JSON object",
    119: "a card is required",
    120: "the card was not found",
    121: "the card is invalid",
    122: "the card data is invalid",
    123: "payment_method_id is required",
    124: "issuer_id is required",
    125: "the parameters are invalid",
    126: "the email cannot be updated",
    127: "the payment method of the card cannot be resolved; check payment_method_id and issuer_id",
    128: "the format of email is invalid: a test user has test_payer_, 1 to 10 digits and a domain of test users",
    129: "the customer has reached the maximum number of cards",
    140: "the owner of the card is invalid",
    150: "the users involved are invalid",
    200: "the format of range is invalid",
    201: "the attribute of range must belong to the date entity",
    202: "after is invalid; it must be an ISO 8601 date",
    203: "before is invalid; it must be an ISO 8601 date",
    204: "the format of the filters is invalid",
    205: "the format of the query is invalid",
    206: "the attributes of sort must belong to the customer entity",
    207: "the order must be asc or desc",
    208: "the format of the sort parameter is invalid",
    214: "the zip code is invalid",
}


def _same_email(requested: str | None, echoed: str) -> bool | None:
    return echoed.lower() == (requested or "").lower() if echoed else None


CREATE: Operation[CustomerRequest, Customer] = Operation(
    name="customers.create",
    method="POST",
    path="/v1/customers",
    section="4.8",
    summary="Create a customer",
    retry=RetryClass.UNKEYED,
    in_doubt="send it again: a customer who exists is rejected with the code 101",
    body=CustomerRequest,
    example={
        "email": "ana@example.com",
        "first_name": "Ana",
        "last_name": "Souza",
        "phone": {"area_code": "11", "number": "987654321"},
        "identification": {"type": "CPF", "number": "19119119100"},
        "description": "Prefers mornings",
    },
    result=Customer,
    status=201,
    echoes=(Echo("email", agrees=_same_email),),
    errors=(
        *(ErrorCode(400, str(code), meaning) for code, meaning in _REJECTIONS.items()),
        UNAUTHORIZED,
        ErrorCode(404, "not_found", "an object that the request refers to was not found"),
    ),
)


class Customers(Resource):
    """``client.customers``: buyers that a seller knows."""

    async def create(self, customer: CustomerRequest, **options: Unpack[WriteOptions]) -> Customer:
        """Create a customer (4.8).

        The operation takes no idempotency key, so a request whose outcome is in doubt is not sent again.

        Args:
            customer: The customer to create.
            **options: `once`, `not_after`: see `WriteOptions`. An outcome in doubt is reported, never sent again.

        Raises:
            RequestInvalid: The customer breaks a rule; nothing was sent.
            BadRequest: The platform rejected the request; ``code`` is one of the numbers in ``CREATE.errors``, as text
                (``"101"``: the customer exists).
            NotFound: An object that the request refers to was not found.
            OutcomeUnknown: The customer may exist. Creating it again is then rejected with ``"101"``.
        """
        return await self._write(CREATE, customer, options)
