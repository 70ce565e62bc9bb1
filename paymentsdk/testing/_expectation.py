"""What the conformance suites have in common: how a rule is named, and how they say what does not hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def expect(condition: object, otherwise: str) -> None:
    """Fail, unless *condition* holds, saying what happened *otherwise*.

    Raises:
        AssertionError: It does not hold.
    """
    # Not an `assert`: this is a module that python -O may run.
    if not condition:
        raise AssertionError(otherwise)


def in_words(check: Callable[..., object]) -> tuple[str, str]:
    """Return the name of what checks a rule, in words, and the rule, which is its docstring."""
    return getattr(check, "__name__", "").strip("_").replace("_", " "), inspect.getdoc(check) or ""
