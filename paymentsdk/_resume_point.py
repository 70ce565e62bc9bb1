"""The place where an interrupted walk goes on; pages and errors have it."""

from typing import Self


class ResumePoint(int):
    """The place where a walk goes on: the offset of a row, and the number of rows of the search at that moment.

    A resume point is an ``int``. Pass it to ``search(start=)``. If the search has fewer rows by then, later rows have
    moved up by at most the difference, and the walk begins that much earlier. To store a resume point, keep both
    numbers.
    """

    total: int | None
    """The number of rows. `None` if the platform did not say."""

    def __new__(cls, offset: int, total: int | None = None) -> Self:
        point = super().__new__(cls, offset)
        point.total = total
        return point

    def __repr__(self) -> str:
        return f"ResumePoint({int(self)}, total={self.total})"

    def __str__(self) -> str:
        return str(int(self))
