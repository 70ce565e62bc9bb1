"""The soak fails for whatever grows, and for nothing else."""

from __future__ import annotations

import pytest

from benchmarks import soak
from benchmarks.soak import Sample, growth

FLAT = Sample(memory=60_000, objects=50_000, tasks=1, threads=2, descriptors=30)


def test_what_goes_up_and_down_is_flat() -> None:
    """Pools and caches breathe: connections that are closed and opened again, some objects more or less."""
    samples = [
        FLAT._replace(memory=60_000 + 500 * (i % 3), objects=50_000 + 200 * (i % 2), descriptors=30 + i % 5)
        for i in range(15)
    ]

    assert [] == growth(samples)


@pytest.mark.parametrize(
    ("name", "at_each_portion"),
    [("memory", 700), ("objects", 100), ("tasks", 1), ("threads", 1), ("descriptors", 2)],
)
def test_what_goes_up_is_said(name: str, at_each_portion: int) -> None:
    """Each by its name; a leak of an object in a hundred calls is enough."""
    samples = [FLAT._replace(**{name: getattr(FLAT, name) + at_each_portion * i}) for i in range(15)]

    assert [name] == [line.split()[0] for line in growth(samples)]


async def test_a_count_sees_what_is_there() -> None:
    """The tasks and threads of this process, its memory and its descriptors."""
    before = soak.count()
    objects = [[] for _ in range(20_000)]
    after = soak.count()

    assert 1 == after.tasks
    assert after.memory > 10_000
    assert abs(after.objects - before.objects - len(objects)) < 1_000
    assert min(after.threads, after.descriptors) > 0
