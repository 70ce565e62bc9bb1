"""Checkout preferences (4.3), created here and paid at their ``init_point``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast
from urllib.parse import urlsplit

from paymentsdk.resources import preferences
from paymentsdk.resources.common import require
from paymentsdk.resources.merchant_orders import MerchantOrderStatus
from paymentsdk.resources.preferences import Preference, PreferenceRequest
from paymentsdk.sandbox._handlers import merchant_orders
from paymentsdk.sandbox._handlers._sales import METHODS, currency_of, find_sponsor, total
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun, ParsedRequest, SellerContext
from paymentsdk.sandbox._records import PREFERENCES, MerchantOrderRecord, preference_link
from paymentsdk.sandbox._wire import Rejected, echo, read_json, wire_form

#: The codes of members that have their own (spec: Errors, Preference creation).
_CODES: Mapping[str, str] = {
    **{
        member: code
        for member in PreferenceRequest.__struct_fields__
        if (code := f"invalid_{member}") in preferences.CREATE.meanings
    },
    "date_of_expiration": "invalid_date",
}
#: Optional moments and strings of a response.
_MOMENTS = ("expiration_date_from", "expiration_date_to", "date_of_expiration")
_UNSET = ("auto_return", "notification_url", "statement_descriptor", "additional_info", "external_reference", *_MOMENTS)


def create(context: SellerContext, request: ParsedRequest[PreferenceRequest]) -> object:
    """Create a preference that waits for its buyer."""
    body = request.body
    if not context.tenant.compliant:
        raise Rejected(400, "collector_does_not_comply_with_current_regulation")
    sponsor = find_sponsor(context, body.sponsor_id, code="invalid_sponsor_id", place="sponsor_id")
    if sponsor is not None and sponsor.country != context.tenant.country:
        raise Rejected(400, "sponsor_id site must be the same as collector_id", details=("sponsor_id",))
    _check_rules(body)
    preference_id = f"{context.tenant.user_id}-{context.ids.uuid()}"
    init_point = preference_link(context.base_url, preference_id)
    preference = echo(
        body,
        Preference,
        id=preference_id,
        init_point=init_point,
        sandbox_init_point=init_point,
        collector_id=context.tenant.user_id,
        client_id=context.tenant.client_id,
        operation_type=preferences.OperationType(body.operation_type or preferences.OperationType.REGULAR_PAYMENT),
        marketplace=body.marketplace or context.tenant.marketplace or "NONE",
        date_created=context.now,
    )
    context.put(PREFERENCES, preference)
    context.record(
        "preference_created",
        id=preference_id,
        order_id=preference_id,
        currency=currency_of(body.items, context.tenant.currency),
        external_reference=preference.external_reference,
    )
    written = cast("dict[str, object]", wire_form(preference))
    sent = cast("dict[str, object]", read_json(request.content))
    echoed = {name: _as_sent(sent[name], written[name]) for name in ("items", "payer") if name in written}
    if context.policies.unset_strings == "empty":
        written = dict.fromkeys(_UNSET, "") | written
    return written | echoed


def _as_sent(sent: object, written: object) -> object:
    """Return the *written* part of the request, with each moment in the form in which it was *sent*."""
    if isinstance(sent, dict) and isinstance(written, dict):
        return {name: _as_sent(sent.get(name), member) for name, member in written.items()}
    if isinstance(sent, list) and isinstance(written, list):
        return [*map(_as_sent, sent, written)]
    return sent if isinstance(sent, str) else written


def _check_rules(body: PreferenceRequest) -> None:
    """Reject what the checks of the body's type cannot know."""
    most, urls = most_installments(body), body.back_urls
    for name in urls.__struct_fields__ if urls else ():
        require(_is_url(getattr(urls, name)), f"$.back_urls.{name}", "is not an address")
    # The type's own check ignores items without a quantity. The buyer pays for one of each.
    require((body.marketplace_fee or 0) <= total(body.items), "$.marketplace_fee", "is above the total")
    require(default_installments(body) <= most, "$.payment_methods.default_installments", f"is above the limit, {most}")
    currencies = {item.currency_id for item in body.items} - {None, ""}
    require(len(currencies) <= 1, "$.items", "have more than one currency")


def _is_url(text: str | None) -> bool:
    """Return whether *text* can be opened. Unclosed brackets and invalid ports cannot."""
    try:
        return text is None or urlsplit(text).port != 0
    except ValueError:
        return False


def open_checkout(context: SellerContext, preference: Preference) -> MerchantOrderRecord:
    """Return the merchant order of a preference, as the checkout page shows it. Create it if necessary.

    Raises:
        Rejected: The preference is unpaid and outside its dates.
    """
    begin, end = preference.expiration_date_from, preference.expiration_date_to
    opened = merchant_orders.of_source(context, preference.id)
    # A paid preference can be seen after its dates, and a payment in review can still be decided.
    order = opened.merchant_order if opened else None
    waits = order is None or (order.status == MerchantOrderStatus.OPENED and not merchant_orders.in_review(order))
    if preference.expires and waits and not _within(begin, context.now, end):
        raise Rejected(409, "preference_expired", "the preference cannot be paid at this moment")
    return opened or merchant_orders.open_preference(context, preference)


def offered(preference: Preference) -> tuple[str, ...]:
    """Return the kinds of payment methods that the shop has not excluded, either by kind or by method."""
    wishes = preference.payment_methods or preferences.PaymentMethods()
    lists = (wishes.excluded_payment_types, wishes.excluded_payment_methods)
    excluded = {entry.id for entries in lists for entry in entries or ()}
    return tuple(kind for kind, method in METHODS.items() if not excluded & {kind, method})


def most_installments(preference: Preference | PreferenceRequest) -> int:
    """Return the most installments that the shop allows."""
    return (preference.payment_methods and preference.payment_methods.installments) or preferences.MOST_INSTALLMENTS


def default_installments(preference: Preference | PreferenceRequest) -> int:
    """Return the number of installments that is selected first."""
    return (preference.payment_methods and preference.payment_methods.default_installments) or 1


def _within(begin: datetime | None, now: datetime, end: datetime | None) -> bool:
    # The end is exclusive: the page says "before", and orders, tokens and keys also end at their exact moment.
    return (begin is None or begin <= now) and (end is None or now < end)


NOUN = Noun(
    handlers=[Handler(operation=preferences.CREATE, handle=create, magic=MagicValue("external_reference"))],
    member_codes=_CODES,
    # Only the items can be missing: no other member is required.
    rule_codes={"required": "invalid_items"},
    other_code="bad_request",
    schemas={
        ("Preference", name): {"anyOf": [{"type": "string", "format": "date-time"}, {"const": ""}]} for name in _MOMENTS
    },
    causes={
        **{code: f"an invalid `{member}`" for member, code in _CODES.items()},
        "bad_request": "any other invalid field",
        "invalid_access_token": "no valid token, under the policy denied_preference_status=400",
        "collector_does_not_comply_with_current_regulation": "a tenant made with compliant=false",
        "invalid_sponsor_id": "a sponsor_id that is not a positive number",
        "sponsor_id site must be the same as collector_id": "a sponsor from another country",
        "invalid_items": "invalid items, or items in more than one currency",
        "invalid_payment_methods": "invalid payment_methods, or default_installments above installments",
        "invalid_marketplace_fee": "an invalid marketplace_fee, or one above the total amount",
    },
)
