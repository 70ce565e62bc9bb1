"""A platform in memory whose rows drift while they are walked, and which can break each assumption of the proof."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

ORDERS = ("date_created", "last_updated asc", "last_updated desc", "id", "ties", "random")
DRIFTS = ("still", "vanish", "touch", "touch many", "vanish and touch", "replace", "insert", "flicker", "short pages")
ENDS = ("inclusive", "exclusive", "half-open")
CAPS = ("none", "empty beyond", "clamped", "refused", "clamped total", "clamped exactly")
#: The largest offset of a platform that has one, and what its walker takes for it.
CAP = 40
DAY = 86_400_000
NOW = 1_800_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(number: int) -> datetime:
    """The moment that is *number* milliseconds after 1970."""
    return _EPOCH + timedelta(milliseconds=number)


def milliseconds(moment: datetime) -> int:
    """A moment in milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@dataclass
class Row:
    """An order."""

    id: int
    created: int | None
    updated: int
    visible: int = 0


@dataclass
class Platform:
    """Rows of one seller, and how the platform shows them."""

    seed: int
    order: str = "date_created"
    drift: str = "still"
    ends: str = "inclusive"
    cap: str = "none"
    page: int = 10
    #: Assumptions. A0: the bounds are cut down to this many milliseconds, and moved. A3: rows join late.
    grain: int = 1
    shift: int = 0
    #: The dates of rows are cut down, too, so that it shows all of the milliseconds that a range touches.
    cuts_rows: bool = False
    moves_created: bool = False
    joins_late: bool = False
    now: int = NOW
    rows: dict[int, Row] = field(default_factory=dict)
    calls: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.last_id = 0

    def fill(self, count: int, begin: int, end: int, *, bursts: int = 3) -> None:
        """Add *count* rows from *begin* to *end*, half of them in *bursts* of some milliseconds."""
        places = [self.chance.randrange(begin, end) for _ in range(bursts)]
        for i in range(count):
            burst = self.chance.choice(places) + self.chance.randrange(40)
            self.add(min(burst, end - 1) if i % 2 else self.chance.randrange(begin, end))

    def add(self, created: int | None, *, visible: int = 0) -> Row:
        """Add a row."""
        self.last_id += 1
        # Few distinct moments of change, so that many are equal.
        row = Row(self.last_id, created, self.now - self.chance.randrange(5) * 1000, visible)
        self.rows[row.id] = row
        return row

    def show(self, begin: int | None, end: int | None, offset: int, limit: int | None) -> tuple[list[Row], int] | None:
        """Return a page and its total; ``None`` if the offset is rejected."""
        self.calls += 1
        self.now += 20
        self._drift()
        rows = self._ordered(self._selected(begin, end))
        size = min(limit or self.page, self.page)
        total = len(rows)
        if self.drift == "short pages":
            size = self.chance.randrange(1, size + 1)
        if self.drift == "flicker" and self.chance.random() < 0.1 and offset:
            return [], total
        if self.cap == "clamped total":
            total = min(total, CAP + self.page)
        if self.cap == "clamped exactly":
            total, rows = min(total, CAP), rows[:CAP]
        if self.cap in ("empty beyond", "clamped", "refused") and offset >= CAP:
            if self.cap == "refused":
                return None
            offset = CAP - size if self.cap == "clamped" else len(rows)
        # Rows are copied: what was read is as it was then.
        return [replace(row) for row in rows[offset : offset + size]], total

    def _selected(self, begin: int | None, end: int | None) -> list[Row]:
        rows = [row for row in self.rows.values() if row.visible <= self.now]
        if begin is None or end is None:
            return rows
        begin, end = (moment // self.grain * self.grain + self.shift for moment in (begin, end))
        first = begin + (self.ends == "exclusive")
        last = end - (self.ends != "inclusive")
        cut = self.grain if self.cuts_rows else 1
        return [row for row in rows if row.created is not None and first <= row.created // cut * cut <= last]

    def _ordered(self, rows: list[Row]) -> list[Row]:
        if self.order == "random":
            self.chance.shuffle(rows)
        if self.order == "ties":
            self.chance.shuffle(rows)
            rows.sort(key=lambda row: row.updated // 1_000)
        if self.order == "date_created":
            rows.sort(key=lambda row: row.created or 0)
        if self.order.startswith("last_updated"):
            rows.sort(key=lambda row: row.updated, reverse=self.order.endswith("desc"))
        return rows

    def _drift(self) -> None:
        if self.moves_created and self.rows:
            row = self._any()
            row.created = (row.created or 0) - 7 * DAY if self.chance.random() < 0.5 else (row.created or 0) + 7 * DAY
        if self.chance.random() < 0.4 or not self.rows:
            return
        if self.drift in ("vanish", "vanish and touch", "replace"):
            del self.rows[self._any().id]
        if self.drift in ("touch", "vanish and touch", "touch many"):
            for _ in range(5 if self.drift == "touch many" else 1):
                self._any().updated = self.now
        if self.drift in ("insert", "replace"):
            self.add(self.now)
        if self.joins_late:
            self.add(self.now - DAY - self.chance.randrange(5 * DAY))

    def _any(self) -> Row:
        return self.rows[self.chance.choice(list(self.rows))] if self.rows else self.add(self.now)
