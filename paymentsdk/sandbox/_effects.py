"""What each effect of a fault does, and the members of a rule that it listens to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Effect: TypeAlias = Literal[
    "fail_before_commit",
    "lose_response_after_commit",
    "delay_before_commit",
    "delay_after_commit",
    "refuse",
    "rate_limit",
    "reset",
    "hang",
    "truncate",
    "malformed",
    "wrong_content_type",
    "drip",
    "html",
    "page_drift",
    "row_inserted",
    "row_deleted",
    "row_changed",
]


class EffectInfo(Struct, frozen=True):
    """An effect, for people."""

    words: str
    """What happens, in a few words."""
    members: tuple[str, ...] = ()
    """The details of a rule that only some effects take, and this one does."""
    operation: str = "*"
    """Where it can happen."""


_WALK = "merchant_orders.search"
EFFECTS: Mapping[Effect, EffectInfo] = {
    "lose_response_after_commit": EffectInfo("It is done, but the response is lost"),
    "fail_before_commit": EffectInfo("It fails, and nothing is done", ("status", "code")),
    "refuse": EffectInfo("It is rejected", ("status", "code")),
    "rate_limit": EffectInfo("Too many requests", ("code", "retry_after")),
    "delay_before_commit": EffectInfo("It is done late", ("seconds",)),
    "delay_after_commit": EffectInfo("The response is late", ("seconds",)),
    "reset": EffectInfo("The connection breaks, and nothing is done"),
    "hang": EffectInfo("No response comes, and nothing is done"),
    "truncate": EffectInfo("Half of the response comes"),
    "malformed": EffectInfo("The response is not JSON"),
    "wrong_content_type": EffectInfo("The response says that it is not JSON"),
    "drip": EffectInfo("The response comes byte by byte", ("seconds",)),
    "html": EffectInfo("A gateway responds in HTML", ("status",)),
    "page_drift": EffectInfo("Rows appear or vanish between two pages", ("rows",)),
    "row_inserted": EffectInfo("A merchant order is made before the page is read", operation=_WALK),
    "row_deleted": EffectInfo("A merchant order vanishes before the page is read", operation=_WALK),
    "row_changed": EffectInfo("A merchant order changes before the page is read", operation=_WALK),
}

#: The members of a rule that every effect listens to: which requests it hits.
COMMON: Mapping[str, str] = {
    "operation": "its name, such as orders.create; or orders.*",
    "tenant": "only the seller with this user id",
    "nth": "only the request with this number",
    "times": "how many are hit before the fault is spent",
    "probability": "the share of them that is hit, from 0 to 1",
    "seed": "a number that always hits the same requests",
}
