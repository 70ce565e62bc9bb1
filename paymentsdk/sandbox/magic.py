"""Magic values: a request that says how it wants to be answered.

A text that begins with ``refuse-`` in the member below asks for the refusal whose code follows, with everything but
letters and digits written as ``_``: an order with the ``external_reference`` ``refuse-pos_not_found`` is refused with
``pos_not_found``, a customer with the email ``refuse-129@example.com`` with 129. ``refuse-cancel-resource_locked`` in
the reference of an order lets it be created, and refuses to cancel it; so do ``refuse-get-...`` and
``refuse-refund-...``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from paymentsdk._core.operation import ErrorCode, Operation
from paymentsdk.resources import (
    customers,
    invoices,
    merchant_orders,
    oauth,
    orders,
    plans,
    preferences,
    wallet_payments,
)
from paymentsdk.sandbox.answers import Refused

__all__ = ["MEMBERS", "NATURAL", "demanded", "natural", "value_for", "ways"]

B = TypeVar("B")

#: The member of each operation that may hold a magic value; the other operations have none that could.
MEMBERS: Mapping[str, str] = {
    oauth.TOKEN.name: "code",
    invoices.SEARCH.name: "preapproval_id",
    preferences.CREATE.name: "external_reference",
    wallet_payments.CREATE.name: "payer.token",
    plans.GET.name: "id",
    plans.SEARCH.name: "q",
    merchant_orders.SEARCH.name: "external_reference",
    customers.CREATE.name: "email",
    orders.CREATE.name: "external_reference",
    orders.GET.name: "external_reference",
    orders.CANCEL.name: "external_reference",
    orders.REFUND.name: "external_reference",
}
#: Operations on an order that exists: the order was told at its creation what they are to answer.
_LATER = {orders.GET.name: "get-", orders.CANCEL.name: "cancel-", orders.REFUND.name: "refund-"}
_DEMAND = re.compile(r"refuse-(?P<slug>[A-Za-z0-9_-]+?)(?:@.*)?\Z", re.DOTALL)

#: What leads to a refusal by itself. Codes that are not listed have no condition that a sandbox could know.
NATURAL: Mapping[tuple[str, str], str] = {
    ("*", "unauthorized"): "no bearer token, or one that is unknown, revoked or has expired",
    ("*", "invalid_token"): "no bearer token, or one that is unknown, revoked or has expired",
    ("*", "empty_required_header"): "no X-Idempotency-Key",
    ("*", "invalid_idempotency_key_length"): "an X-Idempotency-Key of more characters than `max_key_length`",
    ("*", "idempotency_key_already_used"): "a key of the last 24 hours with another request",
    ("*", "resource_locked"): "the policy concurrent_twin=locked, and a key that is in flight",
    ("*", "invalid_path_param"): "an order id that is not ORD and 26 letters and digits",
    ("*", "order_not_found"): "an order id of no order, or of another seller's",
    **{
        (operation.name, "forbidden"): "a token whose scope does not have `write`, or `read` for a GET"
        for operation in (orders.CREATE, orders.GET, orders.CANCEL, orders.REFUND)
    },
    ("*", "unsupported_properties"): "a member that the contract does not have",
    ("*", "property_value"): "a member that breaks a rule",
    ("*", "property_type"): "a member of another type, an amount as a JSON number, malformed JSON",
    ("*", "required_properties"): "a missing member",
    ("*", "minimum_items"): "an empty list of payments",
    ("orders.create", "maximum_items"): "two payments, or five discounts",
    ("orders.create", "invalid_total_amount"): "a total_amount that is not the sum of the payments",
    ("orders.create", "unsupported_site"): "a seller of a country other than AR, BR, CL and UY",
    ("orders.create", "sponsor_id_not_valid"): "an integration_data.sponsor.id that is no number",
    ("orders.create", "marketplace_not_valid"): "a marketplace_fee with a token that was not obtained through OAuth",
    ("orders.create", "invalid_credentials"): "an APP_USR token",
    ("orders.create", "pos_not_found"): "an external_pos_id that the seller does not have",
    ("orders.create", "marketplace_fee_not_allowed"): "a marketplace_fee of a seller without a marketplace",
    ("orders.cancel", "order_already_canceled"): "an order that was canceled",
    ("orders.cancel", "cannot_cancel_order"): "an order that was paid, refunded or has expired",
    (
        "orders.cancel",
        "resource_locked",
    ): "a key that is in flight (concurrent_twin=locked), or a refund that is processing (cancel_from=any)",
    ("orders.refund", "refund_amount_exceeds"): "an amount above what is left of the payment",
    ("orders.refund", "cannot_refund_order"): "an order that was not paid",
    ("orders.refund", "order_already_refunded"): "an order of which nothing is left",
    ("orders.refund", "refund_in_progress"): "a second refund while the first is processing (policy refund_seconds)",
    ("oauth.token", "invalid_client"): "an unknown client_id, or a wrong client_secret",
    (
        "oauth.token",
        "invalid_grant",
    ): "a code or refresh token that is unknown, spent, revoked, expired or another client's",
    ("oauth.token", "invalid_request"): "a parameter that is missing, malformed, unknown or given twice",
    ("oauth.token", "invalid_scope"): "a scope that is malformed, or beyond what was granted",
    ("oauth.token", "unsupported_grant_type"): "any other grant_type",
    ("preferences.create", "bad_request"): "a member other than those below that breaks a rule",
    ("wallet_payments.create", "bad_request"): "no transaction_amount, or a member that breaks a rule",
    ("preferences.create", "invalid_access_token"): "no valid token, under the policy denied_preference_status=400",
    ("preferences.create", "collector_does_not_comply_with_current_regulation"): "a tenant made with compliant=false",
    ("preferences.create", "invalid_sponsor_id"): "a sponsor_id that is no positive number",
    ("preferences.create", "sponsor_id site must be the same as collector_id"): "a sponsor from another country",
    **{
        ("preferences.create", f"invalid_{member}"): f"`{member}` of the wrong form"
        for member in (
            "expiration_date_to",
            "expiration_date_from",
            "back_urls",
            "shipments",
            "binary_mode",
        )
    },
    ("preferences.create", "invalid_items"): "items of the wrong form, or of more than one currency",
    (
        "preferences.create",
        "invalid_payment_methods",
    ): "payment_methods of the wrong form, or default_installments above installments",
    ("preferences.create", "invalid_marketplace_fee"): "a marketplace_fee above the total amount, or of the wrong form",
    ("preferences.create", "invalid_date"): "a date_of_expiration of the wrong form",
    ("plans.get", "not-found"): "an id of no plan, or of another seller's",
    ("plans.search", "bad-request"): "a limit below 1, an offset below 0, a sort that names no member",
    ("invoices.search", "bad-request"): "a limit below 1, an offset below 0, an id that is no number",
    ("merchant_orders.search", "ds_search_query"): "a moment without a zone, a limit below 1, an offset below 0",
    ("customers.create", "101"): "an email that the seller has a customer for",
    ("customers.create", "103"): "a phone, identification or address that is no object",
    ("customers.create", "104"): "a text of more than 255 characters",
    ("customers.create", "106"): "an email of the wrong form",
    ("customers.create", "107"): "a first_name that is no text",
    ("customers.create", "108"): "a last_name that is no text",
    ("customers.create", "109"): "a phone.area_code that is neither text nor a number",
    ("customers.create", "110"): "a phone.number that is neither text nor a number",
    ("customers.create", "111"): "an identification.type that is no text",
    ("customers.create", "112"): "an identification.number that is neither text nor a number",
    ("customers.create", "113"): "an address.zip_code that is neither text nor a number",
    ("customers.create", "114"): "an address.street_name that is no text",
    ("customers.create", "115"): "a date_registered without a zone, or that is none",
    ("customers.create", "116"): "a description that is no text",
    ("customers.create", "117"): "a metadata that is no object",
    ("customers.create", "118"): "a body that is no JSON object",
    ("customers.create", "121"): "a default_card that is neither text nor a number",
    ("customers.create", "125"): "no email, or any other member of the wrong type",
    ("customers.create", "128"): "an email that is none of test_payer_ and digits, under the policy test_emails",
}


def demanded(operation: Operation[B, object], text: object) -> Refused | None:
    """Return the refusal that *text*, the value of the operation's magic member, asks for."""
    match = _DEMAND.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    slug = match["slug"].removeprefix(_LATER.get(operation.name, ""))
    if operation.name in _LATER and slug == match["slug"]:
        return None
    found = next((error for error in operation.errors if _slug(error) == slug), None)
    return None if found is None else Refused(found.status, found.code)


def value_for(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return the magic value that leads to *error*; ``None`` where the operation has no member to hold it."""
    if operation.name not in MEMBERS:
        return None
    domain = "@example.com" if operation.name == customers.CREATE.name else ""
    return f"refuse-{_LATER.get(operation.name, '')}{_slug(error)}{domain}"


def natural(operation: Operation[B, object], error: ErrorCode) -> str | None:
    """Return what leads to *error* by itself; ``None`` where nothing that a sandbox could know does."""
    return NATURAL.get((operation.name, error.code)) or NATURAL.get(("*", error.code))


def ways(operation: Operation[B, object], error: ErrorCode) -> tuple[str, ...]:
    """Return every way to be refused with *error*: for people, and for the test that wants one for each."""
    magic = value_for(operation, error)
    where = MEMBERS.get(operation.name)
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (natural(operation, error), magic and f"{where}: {magic}", rule)))


def _slug(error: ErrorCode) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", error.code)
