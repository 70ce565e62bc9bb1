"""Which rows of a search a page holds."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from paymentsdk.errors import RequestInvalid
from paymentsdk.sandbox._context import Call, SellerContext
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._table import Condition, Documents

D = TypeVar("D", bound=Struct)


class Window(Struct, frozen=True, kw_only=True):
    """A part of the rows."""

    offset: int
    """Where the page begins, as it was asked for and is echoed."""
    limit: int
    """The most rows that it has."""
    total: int
    """How many rows the search says it has."""
    start: int
    """Where the page really begins: rows may have appeared or vanished since the first page."""


def window(policies: Policies, call: Call[None], total: int) -> Window:
    """Return the part of *total* rows that *call* asks for, with the pages and offsets that *policies* allow.

    Raises:
        RequestInvalid: The offset is beyond `max_offset`, and the policy says to reject it.
    """
    offset, limit = _whole(call.query.get("offset"), 0), _whole(call.query.get("limit"), policies.page_size)
    drift = call.drift if offset else 0
    limit, start = min(limit, policies.max_page_size), max(offset - drift, 0)
    if offset > policies.max_offset:
        match policies.beyond_max_offset:
            case "refuse":
                raise RequestInvalid("$.offset", f"is above {policies.max_offset}")
            case "empty":
                limit = 0
            case "clamp":
                start = policies.max_offset
    return Window(offset=offset, limit=limit, total=min(max(total + drift, 0), policies.max_total), start=start)


class Rows(NamedTuple, Generic[D]):
    """What a page of a search has."""

    items: list[D]
    """The rows."""
    total: int
    """How many rows the search has."""
    offset: int
    """Where the page begins, as it was asked for."""
    limit: int
    """The most rows that it may have."""


def page_of(context: SellerContext, documents: Documents[D], call: Call[None], **equal: object) -> Rows[D]:
    """Return the page that *call* asks for with its `offset` and `limit`, as policies and faults have it.

    Args:
        context: Whose documents.
        documents: What is searched.
        call: The search.
        **equal: Columns of *documents*, and what they must be equal to; `None` for a filter that was not given.
    """
    conditions: list[Condition] = [(name, "=", value) for name, value in equal.items() if value is not None]
    part = window(context.policies, call, context.count(documents, conditions))
    rows = context.find(documents, conditions, limit=part.limit, offset=part.start)
    return Rows(rows, part.total, part.offset, part.limit)


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
