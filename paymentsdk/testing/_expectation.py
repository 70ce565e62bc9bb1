"""The common parts of the conformance suites: names of rules, checks, and texts of failures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from msgspec import Struct

#: The longest time that a rule may take, in seconds.
LONGEST = 60.0


class NamedRule(Struct, frozen=True):
    """A rule of a suite."""

    name: str
    """The name of the rule: words joined by underscores."""
    rule: str
    """The rule, in a sentence or two."""
    check: Callable[..., Awaitable[None]]
    """Raises ``AssertionError`` if the rule is broken."""

    def __str__(self) -> str:
        return self.name


def expect(condition: object, otherwise: str) -> None:
    """Fail with the text *otherwise*, unless *condition* holds.

    Raises:
        AssertionError: *condition* does not hold.
    """
    # Not an `assert`, as python -O removes these.
    if not condition:
        raise AssertionError(otherwise)


def named(check: Callable[..., object]) -> tuple[str, str]:
    """Return the name of the function that checks a rule, and the rule, which is its docstring."""
    return getattr(check, "__name__", "").strip("_"), inspect.getdoc(check) or ""


async def check_rule(rule: str, check: Awaitable[None]) -> None:
    """Await the *check* of a rule.

    Raises:
        AssertionError: The check raises an error, or takes longer than `LONGEST`.
    """
    limit = asyncio.timeout(LONGEST)
    try:
        async with limit:
            await check
    except Exception as error:
        if limit.expired():
            raise AssertionError(f"not done after {LONGEST:g} s. The rule: {rule}") from None
        text = str(error) if isinstance(error, AssertionError) else f"{error!r} was raised"
        raise AssertionError(f"{text}. The rule: {rule}") from error
