"""What the contract leaves open or says in two ways, as policies.

Each policy has a default, its allowed values, and a text that says what it decides. A sandbox takes them as
``Sandbox(policies={"cancel_from": "any"})``. A seller may have their own values.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from paymentsdk._texts import texts
from paymentsdk.resources.common import parse_duration

# These ends keep moments within the calendar, and offsets within the integers of a database.
_LONGEST_WAIT = timedelta(days=2_000_000)
#: The policies that are durations, each with an example.
_DURATIONS = {
    "invoice_retries": "durations such as P1D,P3D,P5D",
    "notification_retries": "durations such as PT10S,PT1M",
    "notification_timeout": "a duration such as PT15S",
}
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Policies(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value for each policy."""

    cancel_from: Literal["created", "any"] = "created"
    """States from which an order can be canceled (4.12); the contract does not say. Under `any`, canceling a paid order
    returns the rest of its payment. This is not a refund: `refunded_amount` does not change."""
    max_order_expiration: Literal["PT3600H", "PT3H"] = "PT3600H"
    """Longest expiration_time of an order (4.10). The contract gives both values."""
    partial_refund_status: Literal["refunded", "processed"] = "refunded"
    """Status of an order after a partial refund."""
    partial_refund_detail: Literal["partially_refunded", "refunded", "accredited"] = "partially_refunded"
    """Status detail of an order after a partial refund."""
    refund_response: Literal["partial", "full"] = "partial"
    """Response of a refund: the changed fields, or the whole order."""
    refund_seconds: Seconds = 0
    """Seconds for which a refund is `processing` and the order unchanged; 0 settles it immediately."""
    refund_outcome: Literal["processed", "failed"] = "processed"
    """Outcome of a refund of an order. A `failed` refund moves no money, does not change the order, and can be
    repeated."""
    max_key_length: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Most characters of an X-Idempotency-Key. The contract gives no limit, and some platforms accept 128. The client
    sends at most 64, which is safe everywhere."""
    concurrent_twin: Literal["conflict", "locked"] = "conflict"
    """Status of the response to a request whose key is in flight: 409 or 423. The code is `resource_locked`."""
    error_shape: Literal["per_api", "cause", "errors", "flat"] = "per_api"
    """Shape of error bodies: the shape of each API, or one shape for all."""
    page_size: Count = 30
    """Rows of a page without a requested limit."""
    max_page_size: Count = 100
    """Most rows of a page. A larger requested limit is lowered to it."""
    max_offset: Count = 1000000
    """Largest offset of a search; see `beyond_max_offset`."""
    beyond_max_offset: Literal["refuse", "empty", "clamp"] = "refuse"
    """Response to a search beyond `max_offset`: 400, a page without rows, or the page at `max_offset`."""
    max_total: Count = 1000000
    """Largest `total` of a search, even if there are more rows."""
    last_next_offset: Literal["total", "zero", "null"] = "total"
    """next_offset on the last page of merchant orders."""
    empty_elements: Literal["list", "null"] = "list"
    """`elements` of a merchant order page without rows."""
    street_names: Literal["languages", "text"] = "languages"
    """`street_name` of a shipment's address: an object of languages, as in the contract, or a string."""
    search_order: Literal["newest", "oldest"] = "newest"
    """Which merchant orders and invoices come first."""
    window_edge: Literal["inclusive", "exclusive", "half_open"] = "inclusive"
    """Ends that date ranges and the 90 days include: `inclusive` both, `exclusive` neither, `half_open` the first."""
    search_sort: Literal["date_created", "last_updated"] = "date_created"
    """Sort column of merchant orders. Under `last_updated`, rows can move during a walk."""
    equal_moments: Literal["stable", "shuffled"] = "stable"
    """Order of merchant orders with equal timestamps: by creation if `stable`, new in each response if `shuffled`."""
    date_filter_grain: Literal["millisecond", "second", "minute", "hour"] = "millisecond"
    """Precision of the date filters of merchant orders; see `date_filter_compares`."""
    date_filter_compares: Literal["grains", "bounds"] = "grains"
    """Use of `date_filter_grain`. `grains` truncates both sides before it compares. `bounds` truncates only the bound,
    so that rows in the last grain can be lost."""
    invoice_filters: Literal["optional", "one_required"] = "optional"
    """Whether an invoice search needs at least one of its four identifiers."""
    invoice_retries: str = "P1D,P3D,P5D"
    """Waits between attempts to collect, from days to seconds. If empty, there is only one attempt."""
    customer_required: Literal["email", "five"] = "email"
    """Required members of a customer: `email`; or `five`: email, both names, phone and identification."""
    test_emails: Literal["any", "test_payer"] = "any"
    """Allowed emails of customers: any, or only test_payer_ and 1 to 10 digits (code 128)."""
    wallet_amount: Literal["required", "optional"] = "required"
    """Whether a wallet payment needs a transaction_amount. The default amount is 0."""
    unset_strings: Literal["left_out", "empty"] = "left_out"
    """Unset strings, dates and URLs of a preference: `left_out` of the response, or `empty`, as `""`."""
    discount_promise: Literal["unchecked", "required"] = "required"
    """Whether the discount code of a wallet payment must have been promised (4.4)."""
    sponsors: Literal["any", "known"] = "any"
    """Whether a sponsor must be a seller of this sandbox."""
    denied_preference_status: Literal[400, 401] = 400
    """Status of a preference with an invalid token: 400 in the table of codes, 401 elsewhere in the contract."""
    access_tokens_after_refresh: Literal["valid", "revoked"] = "valid"
    """Whether a refresh invalidates the old access token: `revoked` does immediately; `valid` lets it expire."""
    refresh_tokens: Literal["rotate", "keep"] = "rotate"
    """Whether a refresh invalidates the old refresh token: `rotate` does, `keep` does not."""
    token_body: Literal["json", "either"] = "json"  # noqa: S105 - no password
    """Allowed bodies of a request for a token: only `json`, or `either` JSON or a form
    (`application/x-www-form-urlencoded`), as some clients send. The value applies to all sellers, since the seller is
    unknown before the body is read."""
    delivery: Literal["auto", "manual"] = "auto"
    """`x-beyond-contract`: when notifications are sent: `auto` immediately, `manual` only when you redeliver them."""
    notification_retries: str = ""
    """`x-beyond-contract`: waits between attempts to deliver a notification, from weeks to seconds, such as
    `PT10S,PT1M`. If empty, there is only one attempt."""
    notification_timeout: Annotated[str, Meta(min_length=1)] = "PT15S"
    """`x-beyond-contract`: longest wait for the response to an attempt, by the clock of the machine."""
    notification_order: Literal["per_resource", "any"] = "per_resource"
    """`x-beyond-contract`: whether a notification waits until earlier ones about the same order, payment or merchant
    order are delivered or have failed."""
    notification_url: Literal["ignore", "deliver"] = "ignore"
    """`x-beyond-contract`: whether notifications are sent to the `notification_url` of a preference, about the topics
    `payments` and `merchant_orders`."""
    notification_signer: Literal["none", "standard"] = "none"
    """`x-beyond-contract`: how notifications to a `notification_url` are signed. The secret of `standard` is `whsec_`
    and the base64 of the client secret."""
    notification_template: Literal["hint", "standard", "cloudevents"] = "hint"
    """`x-beyond-contract`: the template of notifications to a `notification_url`."""

    def __post_init__(self) -> None:
        for name, example in _DURATIONS.items():
            try:
                possible = all(wait <= _LONGEST_WAIT for wait in durations(getattr(self, name)))
            except ValueError:
                possible = False
            if not possible:  # Checked here, since a later error would stop the clock.
                raise ValueError(f"{name} must be {example}")

    def merged(self, changes: Mapping[str, object]) -> "Policies":
        """Return a copy with *changes* applied.

        Raises:
            ValueError: A name is unknown, or a value is not allowed.
        """
        try:
            return msgspec.convert({**msgspec.structs.asdict(self), **changes}, Policies, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{error}; `paymentsdk sandbox policies` lists the policies and their values") from None


def durations(text: str) -> tuple[timedelta, ...]:
    """Return the durations in *text*, which are separated by commas."""
    return tuple(map(parse_duration, text.split(","))) if text else ()


class Policy(Struct, frozen=True, kw_only=True):
    """The description of a policy."""

    name: str
    """The name."""
    value: object
    """The current value; of `describe_policies`, the default."""
    default: object
    """The default value."""
    allowed: tuple[object, ...]
    """The allowed values; empty if any number or text of its form is allowed."""
    description: str
    """What the policy decides."""


@cache
def describe_policies() -> tuple[Policy, ...]:
    """Return every policy with its default."""
    hints = get_type_hints(Policies)
    descriptions = texts(__name__).get(Policies.__name__, {})
    return tuple(
        Policy(
            name=field.name,
            value=field.default,
            default=field.default,
            # Empty if any number or text of its form is allowed.
            allowed=get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else (),
            description=descriptions.get(field.name, ""),
        )
        for field in msgspec.structs.fields(Policies)
    )
