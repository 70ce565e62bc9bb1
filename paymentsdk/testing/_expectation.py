"""What the conformance suites have in common: how a rule is named and checked, and how they say what does not hold."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from msgspec import Struct

#: A rule runs no longer than this, in seconds, whatever it is run on.
LONGEST = 60.0


class NamedRule(Struct, frozen=True):
    """A rule of a suite, without what it is run on."""

    name: str
    """What it is called: words joined by underscores."""
    rule: str
    """What has to hold, in a sentence or two."""
    check: Callable[..., Awaitable[None]]
    """Raises ``AssertionError`` where it does not."""

    def __str__(self) -> str:
        return self.name


def expect(condition: object, otherwise: str) -> None:
    """Fail, unless *condition* holds, saying what happened *otherwise*.

    Raises:
        AssertionError: It does not hold.
    """
    # Not an `assert`: this is a module that python -O may run.
    if not condition:
        raise AssertionError(otherwise)


def named(check: Callable[..., object]) -> tuple[str, str]:
    """Return the name of what checks a rule, and the rule, which is its docstring."""
    return getattr(check, "__name__", "").strip("_"), inspect.getdoc(check) or ""


async def check_rule(rule: str, check: Awaitable[None]) -> None:
    """Await the *check* of a rule.

    Raises:
        AssertionError: It raises anything, or takes longer than `LONGEST`.
    """
    limit = asyncio.timeout(LONGEST)
    try:
        async with limit:
            await check
    except Exception as error:
        if limit.expired():
            raise AssertionError(f"not done after {LONGEST:g} s. The rule: {rule}") from None
        text = str(error) if isinstance(error, AssertionError) else f"{error!r} came out"
        raise AssertionError(f"{text}. The rule: {rule}") from error
