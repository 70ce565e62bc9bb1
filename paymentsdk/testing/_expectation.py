"""How the conformance suites say what does not hold."""

from __future__ import annotations


def expect(condition: object, otherwise: str) -> None:
    """Fail, unless *condition* holds, saying what happened *otherwise*.

    Raises:
        AssertionError: It does not hold.
    """
    # Not an `assert`: this is a module that python -O may run.
    if not condition:
        raise AssertionError(otherwise)
