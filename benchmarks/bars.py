"""The bars: the promised bounds of the measured numbers, read from bars.toml.

A bar holds only if it holds for every row that it names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from benchmarks.harness import Key, Result, Row, matching, median, ratio


class Bar(Struct, frozen=True, kw_only=True):
    """One promised bound.

    Attributes:
        what: The promise, for people.
        bench: The name of the result.
        of: The rows of the bar: all rows whose key has these members.
        to: The rows to compare with: the same key with these members.
        metric: The metric.
        take: The ``ratio`` of both rows, or only the ``value``.
        most: The highest value that holds.
        least: The lowest value that holds.
        unit: The unit of a value.
    """

    what: str
    bench: str
    of: Sequence[Key]
    to: Key = {}
    metric: str = "cpu_us"
    take: Literal["ratio", "value"] = "ratio"
    most: float | None = None
    least: float | None = None
    unit: str = ""

    @property
    def promise(self) -> str:
        """The bar in words."""
        sign, bound = ("<=", self.most) if self.least is None else (">=", self.least)
        return f"{sign} {bound:g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Return whether *value* keeps the promise."""
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)


class Line(Struct, frozen=True):
    """One line of the summary: the *metric* of the rows *of* a bench."""

    what: str
    bench: str
    of: Key
    metric: str


class Reading(Struct, frozen=True):
    """The measurement for one condition of a bar.

    Attributes:
        where: The condition.
        value: The median over the rounds.
        holds: Whether the value keeps the promise.
    """

    where: str
    value: float
    holds: bool


def readings(bar: Bar, results: Mapping[str, Result]) -> list[Reading]:
    """Return the measurements of *bar* in *results*; empty if the bench was not run for these rows."""
    rows = results[bar.bench].rows if bar.bench in results else []
    every = [_read(bar, row, rows) for key in bar.of for row in matching(rows, key)]
    return [reading for reading in every if reading is not None]


def _read(bar: Bar, row: Row, rows: Sequence[Row]) -> Reading | None:
    """Return the reading of *row*; `None` without a row to compare with, or without the metric."""
    base = matching(rows, {**row.key, **bar.to})
    if not base or bar.metric not in row.samples:
        return None
    value = ratio(row, base[0], bar.metric) if bar.take == "ratio" else median(row.samples[bar.metric])
    return Reading(_where(row, bar), value, bar.holds(value))


def _where(row: Row, bar: Bar) -> str:
    """Return the conditions that distinguish *row* from the other rows of its bar."""
    varying = [
        name
        for name in row.key
        if len({str(key.get(name)) for key in bar.of}) > 1 or all(name not in key for key in bar.of)
    ]
    return ", ".join(f"{name} {row.key[name]}" for name in varying if name not in bar.to)


_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
BARS = msgspec.convert(_DATA["bars"], tuple[Bar, ...])
SUMMARY = msgspec.convert(_DATA["summary"], tuple[Line, ...])
