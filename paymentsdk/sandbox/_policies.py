"""What the contract leaves open, or says twice, as policies.

Each has a default, the values that it may have, and a sentence about what it decides. A sandbox takes them as
``Sandbox(policies={"cancel_from": "any"})``; a tenant may have its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from paymentsdk.resources.common import parse_duration
from paymentsdk.sandbox._values import describe_mismatch

__all__ = ["Policies", "Policy"]

# The ends keep moments within the calendar, and offsets within what a database counts.
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Policies(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value for every policy."""

    cancel_from: Annotated[
        Literal["created", "any"],
        Meta(
            description="States an order can be canceled from. `any` gives back what is left of paid money, but is not "
            "a refund: `refunded_amount` stays as it was (spec: States, `any`)."
        ),
    ] = "created"
    max_order_expiration: Annotated[
        Literal["PT3600H", "PT3H"], Meta(description="Longest expiration_time of an order (spec: Limits gives both).")
    ] = "PT3600H"
    partial_refund_status: Annotated[
        Literal["refunded", "processed"], Meta(description="Status of an order after a part of it was refunded.")
    ] = "refunded"
    partial_refund_detail: Annotated[
        Literal["partially_refunded", "refunded", "accredited"],
        Meta(description="Status detail of an order after a part of it was refunded."),
    ] = "partially_refunded"
    refund_answer: Annotated[
        Literal["partial", "full"],
        Meta(description="What a refund answers: the members that changed, or the whole order."),
    ] = "partial"
    refund_seconds: Annotated[
        Seconds, Meta(description="Seconds a refund stays `processing`, the order unchanged; 0 settles it at once.")
    ] = 0
    refund_outcome: Annotated[
        Literal["processed", "failed"],
        Meta(
            description="How a refund of an order ends. A `failed` refund moves no money, leaves the order as it was, "
            "and can be tried again."
        ),
    ] = "processed"
    max_key_length: Annotated[
        Annotated[int, Meta(ge=1, le=4096)], Meta(description="Most characters of an X-Idempotency-Key.")
    ] = 128
    key_hours: Annotated[Count, Meta(description="Hours an idempotency key is remembered (spec: Limits).")] = 24
    key_scope: Annotated[
        Literal["seller", "path"],
        Meta(
            description="Where a key counts as used: `seller`, at every path of the seller, so that another request "
            "with it is a 409; `path`, at its own path only, so that a key that slips into another call is new there."
        ),
    ] = "seller"
    concurrent_twin: Annotated[
        Literal["conflict", "locked", "wait"],
        Meta(
            description="Answer to a request whose key is in flight: 409, 423 `resource_locked`, or, once it is there, "
            "the answer to the first request."
        ),
    ] = "conflict"
    error_shape: Annotated[
        Literal["per_api", "cause", "errors", "flat"],
        Meta(description="Shape of error bodies: each API its own, or one for all."),
    ] = "per_api"
    numbers_as_text: Annotated[
        Literal["refuse", "accept"],
        Meta(description='Whether `"10.50"` is taken where an amount is a JSON number.'),
    ] = "refuse"
    page_size: Annotated[Count, Meta(description="Rows of a page when no limit is asked for.")] = 30
    max_page_size: Annotated[Count, Meta(description="Most rows of a page, whatever limit is asked for.")] = 100
    max_offset: Annotated[Count, Meta(description="Largest offset of a search; see `beyond_max_offset`.")] = 1_000_000
    beyond_max_offset: Annotated[
        Literal["refuse", "empty", "clamp"],
        Meta(description="A search beyond `max_offset`: 400; a page without rows; or the page at `max_offset`."),
    ] = "refuse"
    max_total: Annotated[
        Count, Meta(description="The most rows that the total of a search says, however many there are.")
    ] = 1_000_000
    last_next_offset: Annotated[
        Literal["total", "zero", "null"], Meta(description="next_offset on the last page of merchant orders.")
    ] = "total"
    empty_elements: Annotated[
        Literal["list", "null"], Meta(description="`elements` of a merchant order page without rows.")
    ] = "list"
    search_order: Annotated[
        Literal["newest", "oldest"], Meta(description="Which merchant orders and invoices come first.")
    ] = "newest"
    window_edge: Annotated[
        Literal["inclusive", "exclusive", "half_open"],
        Meta(description="Whether date ranges, and the 90 days, include the moments at their ends, or only the first."),
    ] = "inclusive"
    search_sort: Annotated[
        Literal["date_created", "last_updated"],
        Meta(description="What merchant orders are sorted by; under `last_updated` rows move while they are walked."),
    ] = "date_created"
    equal_moments: Annotated[
        Literal["stable", "shuffled"],
        Meta(description="Order of merchant orders of the same moment: that of their making, or another each time."),
    ] = "stable"
    date_filter_grain: Annotated[
        Literal["millisecond", "second", "minute", "hour"],
        Meta(description="Grain of the date filters of merchant orders; see `date_filter_compares`."),
    ] = "millisecond"
    date_filter_compares: Annotated[
        Literal["grains", "bounds"],
        Meta(
            description="Under a coarse grain: `grains`, the grain that a row is in with that of the bound; `bounds`, "
            "the row's own moment with the beginning of the bound's grain, so that a part of the last one is lost."
        ),
    ] = "grains"
    invoice_filters: Annotated[
        Literal["optional", "one_required"],
        Meta(description="Whether an invoice search without any of its four identifiers is refused."),
    ] = "optional"
    invoice_retries: Annotated[
        str,
        Meta(
            pattern=r"\A(P[0-9DTHMS]+(,P[0-9DTHMS]+)*)?\Z",
            description="Waits between attempts to collect, from days to seconds; if empty, there is one attempt.",
        ),
    ] = "P1D,P3D,P5D"
    invoice_after_last_retry: Annotated[
        Literal["processed", "canceled"], Meta(description="Status of an invoice that no attempt could collect.")
    ] = "processed"
    customer_required: Annotated[
        Literal["email", "five"],
        Meta(description="Members a customer needs: email; or with it both names, phone and identification."),
    ] = "email"
    test_emails: Annotated[
        Literal["any", "test_payer"],
        Meta(description="Emails of customers: any, or only test_payer_ and 1 to 10 digits (code 128)."),
    ] = "any"
    wallet_amount: Annotated[
        Literal["required", "optional"],
        Meta(description="Whether a wallet payment needs a transaction_amount; without one the amount is 0."),
    ] = "required"
    discount_promise: Annotated[
        Literal["unchecked", "required"],
        Meta(description="Whether the discount code of a wallet payment must have been promised (spec: 4.4)."),
    ] = "required"
    sponsors: Annotated[
        Literal["any", "known"], Meta(description="Whether a sponsor must be a seller of this sandbox.")
    ] = "any"
    denied_preference_status: Annotated[
        Literal[400, 401],
        Meta(description="Status of a preference with an invalid token: 400 in the table of codes, 401 elsewhere."),
    ] = 400
    access_tokens_after_refresh: Annotated[
        Literal["valid", "revoked"],
        Meta(description="Whether an access token lives on once the refresh token that came with it was used."),
    ] = "valid"
    refresh_tokens: Annotated[
        Literal["rotate", "keep"], Meta(description="Whether a refresh token is spent by its first use.")
    ] = "rotate"

    def __post_init__(self) -> None:
        try:
            _ = self.retry_waits
        except ValueError as error:
            # Found later, it would keep the clock from going on.
            raise ValueError(f"invoice_retries {error}") from None

    def merged(self, changes: Mapping[str, object]) -> Policies:
        """Return a copy with *changes*.

        Raises:
            ValueError: A name is unknown, or a value is not one of those it may have.
        """
        try:
            return msgspec.convert({**msgspec.structs.asdict(self), **changes}, Policies, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(
                describe_mismatch(Policies, changes, one="policy", many="policies") or str(error)
            ) from None

    @property
    def longest_expiration(self) -> timedelta:
        """``max_order_expiration`` as a duration."""
        return parse_duration(self.max_order_expiration)

    @property
    def retry_waits(self) -> tuple[timedelta, ...]:
        """``invoice_retries`` as durations."""
        return tuple(parse_duration(text) for text in self.invoice_retries.split(",") if text)


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
def describe() -> tuple[Policy, ...]:
    """Return every policy with its default."""
    hints = get_type_hints(Policies, include_extras=True)
    return tuple(
        Policy(
            name=field.name,
            value=field.default,
            allowed=get_args(inner) if get_origin(inner) is Literal else (),
            description=" ".join(meta.description for meta in metas if meta.description),
        )
        for field in msgspec.structs.fields(Policies)
        for inner, *metas in [get_args(hints[field.name])]
    )
