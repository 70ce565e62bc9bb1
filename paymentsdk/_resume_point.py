"""Where a walk goes on, as its pages and its errors say it."""

from typing import Self


class ResumePoint(int):
    """Where a walk goes on: the offset of a row, and how many rows the search had when the walk came there.

    A resume point is an ``int``; pass it to ``search(start=)``. If the search has fewer rows by then, the rows behind
    have moved up by at most the difference, and the walk begins that much earlier. To store it, keep both numbers.
    """

    total: int | None
    """How many rows there were; `None` if the platform did not say."""

    def __new__(cls, offset: int, total: int | None = None) -> Self:
        point = super().__new__(cls, offset)
        point.total = total
        return point

    def __repr__(self) -> str:
        return f"ResumePoint({int(self)}, total={self.total})"

    def __str__(self) -> str:
        return str(int(self))
