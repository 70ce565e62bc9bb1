"""Customers (4.8): one per seller and email."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from paymentsdk.resources import customers
from paymentsdk.resources.customers import Customer, CustomerRequest
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext
from paymentsdk.sandbox._records import CUSTOMERS
from paymentsdk.sandbox._wire import Rejected, cause, echo

#: The contract has a limit of lengths (code 104), but does not name it.
MAX_TEXT = 255
_TEST_EMAIL = re.compile(r"test_payer_[0-9]{1,10}@")
#: The codes of members that have their own, and what leads to them (spec: Errors, Customer creation).
_CODES: Mapping[str, tuple[str, str]] = {
    "email": ("106", "an invalid email"),
    "first_name": ("107", "a first_name that is not a string"),
    "last_name": ("108", "a last_name that is not a string"),
    "phone.area_code": ("109", "a phone.area_code that is neither a string nor a number"),
    "phone.number": ("110", "a phone.number that is neither a string nor a number"),
    "identification.type": ("111", "an identification.type that is not a string"),
    "identification.number": ("112", "an identification.number that is neither a string nor a number"),
    "address.zip_code": ("113", "an address.zip_code that is neither a string nor a number"),
    "address.street_name": ("114", "an address.street_name that is not a string"),
    "date_registered": ("115", "an invalid date_registered, or one without an offset"),
    "description": ("116", "a description that is not a string"),
    "metadata": ("117", "a metadata that is not an object"),
    "default_card": ("121", "a default_card that is neither a string nor a number"),
}
#: The required members of a customer, by the policy ``customer_required``.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "email": ("email",),
    "five": ("email", "first_name", "last_name", "phone", "identification"),
}


def create(context: SellerContext, request: ParsedRequest[CustomerRequest]) -> Customer:
    """Create a customer. The email must be new for this seller."""
    body = request.body
    missing = tuple(name for name in REQUIRED[context.policies.customer_required] if getattr(body, name) is None)
    if missing:
        raise Rejected(400, "125", details=tuple(f"{name}: is required" for name in missing))
    _check_lengths(body)
    if context.policies.test_emails == "test_payer" and not _TEST_EMAIL.match(body.email or ""):
        raise Rejected(400, "128", details=("email",))
    if context.count(CUSTOMERS, [("email", "=", (body.email or "").lower())]):
        raise Rejected(400, "101", details=("email",))
    customer = echo(
        body,
        Customer,
        id=f"{context.ids.number(9)}-{context.ids.token(16)}",
        date_created=context.now,
        cards=(),
        addresses=(),
        live_mode=False,
    )
    context.put(CUSTOMERS, customer)
    context.record("customer_created", id=customer.id, order_id=customer.id)
    return customer


def _check_lengths(body: Struct, place: str = "") -> None:
    for name in body.__struct_fields__:
        member = getattr(body, name)
        if isinstance(member, Struct):
            _check_lengths(member, f"{place}{name}.")
        elif isinstance(member, str) and len(member) > MAX_TEXT:
            raise Rejected(400, "104", details=(f"{place}{name}: has more than {MAX_TEXT} characters",))


def _shape(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Return the error with its code as a number, below a general error."""
    if not rejected.code.isdigit():
        return cause(rejected, message)
    entry = {"code": int(rejected.code), "description": message, "data": ", ".join(rejected.details) or None}
    return {"message": message, "error": "bad_request", "status": rejected.status, "cause": [entry]}


NOUN = Noun(
    handlers=[Handler(operation=customers.CREATE, handle=create, magic=MagicValue("email", ending="@example.com"))],
    member_codes={"body": "118", **{member: code for member, (code, _) in _CODES.items()}},
    rule_codes={"object": "103"},
    other_code="125",
    shape=_shape,
    required=lambda policies: {CustomerRequest.__name__: REQUIRED[policies.customer_required]},
    causes={
        **dict(_CODES.values()),
        "101": "the email of a customer that the seller already has",
        "103": "a phone, identification or address that is not an object",
        "104": f"a string of more than {MAX_TEXT} characters",
        "118": "a body that is not a JSON object",
        "125": "no email, or any other field of the wrong type",
        "128": "an email other than test_payer_ and digits, under the policy test_emails=test_payer",
    },
)
