"""How much of an error response is kept, and what is masked in it."""

from __future__ import annotations

from paymentsdk._contract import error_response as rejection


def test_what_is_nested_too_deeply_is_not_told() -> None:
    """A line of an error that nobody could read is cut, and nothing is raised."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]

    assert ("...", "[1,null]", "text") == tuple(map(rejection._plain, (nested, [1, None], "text")))
