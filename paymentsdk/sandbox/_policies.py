"""What the contract leaves open, or says twice, as policies.

Each has a default, the values that it may have, and below it what it decides. A sandbox takes them as
``Sandbox(policies={"cancel_from": "any"})``; a tenant may have its own.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from paymentsdk._contract.texts import texts
from paymentsdk.resources.common import parse_duration

# The ends keep moments within the calendar, and offsets within what a database counts.
_LONGEST_WAIT = timedelta(days=2_000_000)
#: The policies that are durations, and what they look like.
_DURATIONS = {
    "invoice_retries": "durations such as P1D,P3D,P5D",
    "notification_retries": "durations such as PT10S,PT1M",
    "notification_timeout": "a duration such as PT15S",
}
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Policies(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value for every policy."""

    cancel_from: Literal["created", "any"] = "created"
    """States an order can be canceled from (4.12), which the contract does not show. Under `any`, canceling a paid
    order gives back what is left, but is not a refund: `refunded_amount` stays as it was."""
    max_order_expiration: Literal["PT3600H", "PT3H"] = "PT3600H"
    """Longest expiration_time of an order (4.10); the contract gives both."""
    partial_refund_status: Literal["refunded", "processed"] = "refunded"
    """Status of an order after a part of it was refunded."""
    partial_refund_detail: Literal["partially_refunded", "refunded", "accredited"] = "partially_refunded"
    """Status detail of an order after a part of it was refunded."""
    refund_response: Literal["partial", "full"] = "partial"
    """What a refund responds with: the fields that changed, or the whole order."""
    refund_seconds: Seconds = 0
    """Seconds a refund stays `processing`, the order unchanged; 0 settles it at once."""
    refund_outcome: Literal["processed", "failed"] = "processed"
    """How a refund of an order ends. A `failed` refund moves no money, leaves the order as it was, and can be tried
    again."""
    max_key_length: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Most characters of an X-Idempotency-Key. The contract gives no limit, and some platforms take 128; the client
    sends 64 at most, which are safe everywhere."""
    concurrent_twin: Literal["conflict", "locked"] = "conflict"
    """Status of the response to a request whose key is in flight: 409 or 423; the code is `resource_locked`."""
    error_shape: Literal["per_api", "cause", "errors", "flat"] = "per_api"
    """Shape of error bodies: each API its own, or one for all."""
    page_size: Count = 30
    """Rows of a page when no limit is asked for."""
    max_page_size: Count = 100
    """Most rows of a page, whatever limit is asked for."""
    max_offset: Count = 1000000
    """Largest offset of a search; see `beyond_max_offset`."""
    beyond_max_offset: Literal["refuse", "empty", "clamp"] = "refuse"
    """A search beyond `max_offset`: 400; a page without rows; or the page at `max_offset`."""
    max_total: Count = 1000000
    """Largest `total` that a search reports, however many rows there are."""
    last_next_offset: Literal["total", "zero", "null"] = "total"
    """next_offset on the last page of merchant orders."""
    empty_elements: Literal["list", "null"] = "list"
    """`elements` of a merchant order page without rows."""
    street_names: Literal["languages", "text"] = "languages"
    """`street_name` of a shipment's address: an object of languages, as in the contract, or a string."""
    search_order: Literal["newest", "oldest"] = "newest"
    """Which merchant orders and invoices come first."""
    window_edge: Literal["inclusive", "exclusive", "half_open"] = "inclusive"
    """Which ends date ranges, and the 90 days, include: `inclusive` both, `exclusive` none, `half_open` the first."""
    search_sort: Literal["date_created", "last_updated"] = "date_created"
    """What merchant orders are sorted by; under `last_updated` rows can move during a walk."""
    equal_moments: Literal["stable", "shuffled"] = "stable"
    """Order of merchant orders with the same timestamp: `stable`, by creation; `shuffled`, another in each response."""
    date_filter_grain: Literal["millisecond", "second", "minute", "hour"] = "millisecond"
    """Precision of the date filters of merchant orders; see `date_filter_compares`."""
    date_filter_compares: Literal["grains", "bounds"] = "grains"
    """How `date_filter_grain` is applied. `grains`: both sides are truncated before comparing; `bounds`: only the bound
    is truncated, so that rows in the last grain can be lost."""
    invoice_filters: Literal["optional", "one_required"] = "optional"
    """Whether an invoice search without any of its four identifiers is rejected."""
    invoice_retries: str = "P1D,P3D,P5D"
    """Waits between attempts to collect, from days to seconds; if empty, there is one attempt."""
    customer_required: Literal["email", "five"] = "email"
    """Members a customer needs: email; or with it both names, phone and identification."""
    test_emails: Literal["any", "test_payer"] = "any"
    """Emails of customers: any, or only test_payer_ and 1 to 10 digits (code 128)."""
    wallet_amount: Literal["required", "optional"] = "required"
    """Whether a wallet payment needs a transaction_amount; without one the amount is 0."""
    unset_strings: Literal["left_out", "empty"] = "left_out"
    """Strings, dates and URLs of a preference that nobody has set: `left_out` of the response, or `empty`, as `""`."""
    discount_promise: Literal["unchecked", "required"] = "required"
    """Whether the discount code of a wallet payment must have been promised (4.4)."""
    sponsors: Literal["any", "known"] = "any"
    """Whether a sponsor must be a seller of this sandbox."""
    denied_preference_status: Literal[400, 401] = 400
    """Status of a preference with an invalid token: 400 in the table of codes, 401 elsewhere."""
    access_tokens_after_refresh: Literal["valid", "revoked"] = "valid"
    """Whether a refresh invalidates the old access token: `revoked`, at once; `valid`, not before it expires."""
    refresh_tokens: Literal["rotate", "keep"] = "rotate"
    """Whether a refresh invalidates the old refresh token: `rotate` does, `keep` does not."""
    token_body: Literal["json", "either"] = "json"  # noqa: S105 - no password
    """Body of a request for a token: only `json`; or `either` JSON or a form (`application/x-www-form-urlencoded`), as
    some clients send. It is the same for all sellers: nobody knows the seller before the body is read."""
    delivery: Literal["auto", "manual"] = "auto"
    """`x-beyond-contract`: when notifications are sent: `auto`, at once; `manual`, when you redeliver them."""
    notification_retries: str = ""
    """`x-beyond-contract`: waits between attempts to deliver a notification, from weeks to seconds, such as
    `PT10S,PT1M`; if empty, there is one attempt."""
    notification_timeout: Annotated[str, Meta(min_length=1)] = "PT15S"
    """`x-beyond-contract`: how long an attempt waits for the response, by the clock of the machine."""
    notification_order: Literal["per_resource", "any"] = "per_resource"
    """`x-beyond-contract`: whether a notification waits for earlier ones about the same order, payment or merchant
    order: until they are delivered or have failed."""
    notification_url: Literal["ignore", "deliver"] = "ignore"
    """`x-beyond-contract`: whether the `notification_url` of a preference gets notifications, about the topics
    `payments` and `merchant_orders`."""
    notification_signer: Literal["none", "standard"] = "none"
    """`x-beyond-contract`: how notifications to a `notification_url` are signed. The secret of `standard` is `whsec_`
    and the base64 of the client secret."""
    notification_template: Literal["hint", "standard", "cloudevents"] = "hint"
    """`x-beyond-contract`: what notifications to a `notification_url` say."""

    def __post_init__(self) -> None:
        for name, example in _DURATIONS.items():
            try:
                possible = all(wait <= _LONGEST_WAIT for wait in durations(getattr(self, name)))
            except ValueError:
                possible = False
            if not possible:  # Found later, it would keep the clock from going on.
                raise ValueError(f"{name} must be {example}")

    def merged(self, changes: Mapping[str, object]) -> "Policies":
        """Return a copy with *changes*.

        Raises:
            ValueError: A name is unknown, or a value is not one of those it may have.
        """
        try:
            return msgspec.convert({**msgspec.structs.asdict(self), **changes}, Policies, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{error}; `paymentsdk sandbox policies` lists the policies and their values") from None

    @property
    def longest_expiration(self) -> timedelta:
        """``max_order_expiration`` as a duration."""
        return parse_duration(self.max_order_expiration)

    @property
    def retry_waits(self) -> tuple[timedelta, ...]:
        """``invoice_retries`` as durations."""
        return durations(self.invoice_retries)


def durations(text: str) -> tuple[timedelta, ...]:
    """Return the durations that a policy has, with commas between them."""
    return tuple(map(parse_duration, text.split(","))) if text else ()


class Policy(Struct, frozen=True, kw_only=True):
    """A policy, for people."""

    name: str
    """Its name."""
    value: object
    """Its default."""
    allowed: tuple[object, ...]
    """The values that it may have; empty where any number or text of its form will do."""
    description: str
    """What it decides."""


@cache
def describe_policies() -> tuple[Policy, ...]:
    """Return every policy with its default."""
    hints = get_type_hints(Policies)
    descriptions = texts(__name__).get(Policies.__name__, {})
    return tuple(
        Policy(
            name=field.name,
            value=field.default,
            allowed=_allowed(hints[field.name]),
            description=descriptions.get(field.name, ""),
        )
        for field in msgspec.structs.fields(Policies)
    )


def _allowed(hint: object) -> tuple[Any, ...]:
    """Return the values that a policy may have; empty where any number or text of its form will do."""
    return get_args(hint) if get_origin(hint) is Literal else ()
