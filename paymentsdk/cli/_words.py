"""Words for people."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return *number* with its noun: ``1 order``, ``2,000 orders``; *many* is of those that add no ``s``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
