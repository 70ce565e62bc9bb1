"""Half-open windows of time, in milliseconds since 1970: what is asked for, what is kept, where one is split.

Windows partition time, so a row is in exactly one, whatever the platform does at the ends of a range: the query asks
one grain more on both sides, and the rows outside the window are left out here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from msgspec import Struct

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
#: Below it, a moment is the platform's word for no date at all: the year 1, in any zone.
NO_DATE = datetime(1, 1, 3, tzinfo=UTC)
#: How often a window is split because it could not be certified, and not because it has too many rows: a platform
#: whose totals are always wrong would otherwise be asked about every millisecond.
MOST_DOUBTS = 5


class Rules(Struct, frozen=True, kw_only=True):
    """What a walk assumes about the platform, and how hard it tries."""

    grain: int = 1
    """Milliseconds: the date filter is known to be exact to this."""

    lag: int = 900_000
    """Milliseconds after which no further row appears in a window that has ended."""

    max_window: int = 1_000
    """Only a total below this is believed."""

    tries: int = 20
    """Walks over a window before it is given up."""

    horizon: int = 90 * 86_400_000
    """Milliseconds: the search does not show older rows."""


class Window(Struct, frozen=True, order=True):
    """A window of ``date_created``."""

    begin: int
    """Its first millisecond."""

    end: int
    """The first millisecond behind it."""

    doubts: int = 0
    """How often it was split because it could not be certified."""

    def asked(self, grain: int) -> tuple[int, int]:
        """Return the range to ask for, of which either end may be included or not."""
        return self.begin - grain, self.end + grain

    def is_settled(self, rules: Rules, now: int) -> bool:
        """Whether no further row can appear in the range that is asked for."""
        return self.end <= settled_until(rules, now)

    def pieces(self, rules: Rules, now: int, total: int) -> list[Window]:
        """Return the windows to walk in place of this one, which has *total* rows; none if it cannot be split.

        What has settled is parted from what has not. Otherwise, the halves are halved at once as often as the total
        says: a call for each level of the tree would bring nothing.
        """
        settled = settled_until(rules, now)
        width, count = self.end - self.begin, 2
        # Not a sliver: a window that ends now has another at every call.
        if self.begin + width // 2 < settled < self.end:
            return self._cut([settled])
        while count * rules.max_window * 3 < total * 4 and width >= 4 * count * rules.grain:
            count *= 2
        if width < 2 * rules.grain:
            return []
        return self._cut([self.begin + width * i // count for i in range(1, count)])

    def halves(self, rules: Rules) -> list[Window]:
        """Return two windows to walk in place of one that could not be certified; none if that was tried enough."""
        width = self.end - self.begin
        if self.doubts >= MOST_DOUBTS or width < 2 * rules.grain:
            return []
        return [Window(w.begin, w.end, self.doubts + 1) for w in self._cut([self.begin + width // 2])]

    def _cut(self, places: list[int]) -> list[Window]:
        ends = [self.begin, *places, self.end]
        return [Window(begin, end, self.doubts) for begin, end in pairwise(ends)]


def settled_until(rules: Rules, now: int) -> int:
    """Return where windows have to end in which no further row can appear, all that is asked for included."""
    return now - rules.lag - rules.grain


def remaining(whole: Window, done: Iterable[Window]) -> list[Window]:
    """Return the windows of *whole* that are not in *done*, which do not overlap."""
    left, begin = [], whole.begin
    for window in sorted(done):
        if begin < window.begin:
            left.append(Window(begin, window.begin))
        begin = max(begin, window.end)
    return [*left, Window(begin, whole.end)] if begin < whole.end else left


def milliseconds(moment: datetime) -> int:
    """Return *moment* in milliseconds since 1970, rounded down."""
    return (moment - EPOCH) // MILLISECOND


def moment_of(number: int) -> datetime:
    """Return the moment that is *number* milliseconds after 1970."""
    return EPOCH + number * MILLISECOND
