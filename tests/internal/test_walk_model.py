"""The proof that a walk is whole, against a platform that drifts; and what happens when a rule is switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec import structs

from paymentsdk._paging.proof import Count, Examination, Snapshot, Verdict, Window
from tests.reconcile.model import CREATED, RULES, KilledError, at_once, drawn, judged, keeps, snapshot, survivors, walk
from tests.reconcile.platform import CAPS, DAY, DRIFTS, ENDS, NOW, ORDERS, Platform

RUNS = 60
EVERY_SETTING = [("order", ORDERS), ("drift", DRIFTS), ("ends", ENDS), ("cap", CAPS)]


def total(runs: int = RUNS, **options: object) -> Counter:
    """The sum of many runs."""
    return sum((judged(seed, **options) for seed in range(runs)), Counter())


def loses(**options: object) -> bool:
    """Whether one of many runs loses a row."""
    return any(judged(seed, **options)["lost"] for seed in range(100))


# --- the theorem ------------------------------------------------------------------------------------------------------


def test_no_row_is_lost_or_comes_twice_and_no_window_is_falsely_loud():
    """Whatever the order, the drift, the ends of a range and the largest offset: every row comes, and once."""
    # Runs in which each setting comes: fewer would prove less, and nobody would see it.
    assert Counter(runs=RUNS) == +total()
    drawings = [drawn(seed) for seed in range(RUNS)]
    for name, values in EVERY_SETTING:
        assert {*values} == {getattr(drawing, name) for drawing in drawings}


def test_a_single_walk_loses_rows():
    """Control: today's job, one walk over all that is taken as it is, loses rows in most runs."""
    lossy = [seed for seed in range(20) if judged(seed, naively=True)["lost"]]

    assert 10 < len(lossy)


def test_a_range_that_is_not_widened_loses_rows():
    """Control: at ends that are not included, the rows of an end's own millisecond are lost."""
    assert loses(settings={"ends": "exclusive"}, asked=lambda window, grain: (window.begin, window.end))


def test_rows_that_are_not_cut_come_twice():
    """Control: windows that are widened share rows."""
    walks = [walk(drawn(seed)).ids(keeps=lambda window, moment: True) for seed in range(10)]

    assert any(len(ids) > len(set(ids)) for ids in walks)


def test_one_try_that_is_accepted_loses_rows():
    """Control: windows that fail their first walk are loud; taken all the same, they lose rows."""
    once = structs.replace(RULES, tries=1)

    assert any(judged(seed, rules=once)["loud"] for seed in range(RUNS))
    assert loses(rules=once, accepts=True)


# --- A0: the date filter ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"grain": 1_000}, {"grain": 60_000}, {"shift": 3 * 3_600_000}], ids=str)
def test_a_coarse_or_shifted_filter_is_found_out(settings: dict):
    """Bounds that lose their milliseconds, or are read in another zone: the proof finds a grain that holds."""

    def lost(*, proves: bool) -> int:
        platform = Platform(1, page=100, **settings)
        for i in range(120):
            platform.add(NOW - i * 5_000_017)
        before = snapshot(platform)
        walked = walk(platform, structs.replace(RULES, max_window=80), proves=proves, created=created)
        assert not (proves and walked.doubtful)
        return len(survivors(before, platform, created) - set(walked.ids()))

    created = Window(NOW - 7 * DAY, NOW - 5_000_017 + 1)
    assert 0 == lost(proves=True)
    # Control: without the proof, rows are lost, under a certificate where their dates do not give the filter away.
    assert 0 < lost(proves=False)


@pytest.mark.control("paymentsdk._paging.proof.Snapshot.objection_to", lambda self, window, grain: None)
def test_a_filter_that_reaches_further_than_it_was_proved_certifies_nothing():
    """It shows the whole hour in which a window ended: rows of now join, as many vanish, and every count agrees."""
    minutes = 60_000
    created = Window(NOW - DAY, NOW + 10 * minutes)
    for seed in range(30):
        platform = Platform(seed, grain=60 * minutes, cuts_rows=True, drift="replace", now=NOW + 50 * minutes)
        for _ in range(20):
            platform.add(platform.chance.randrange(created.begin, created.end))
        before = snapshot(platform)

        walked = walk(platform, proves=False, created=created)

        whole = [
            row
            for row in survivors(before, platform, created)
            if any(keeps(w, before[row].created) for w in walked.whole)
        ]
        assert {*whole} <= {*walked.ids()}


# --- A1: one response is one moment, and its total holds below max_window ---------------------------------------------


def test_a_total_of_max_window_certifies_nothing():
    """A total that is clamped exactly at `max_window` is split; taken for a total, it certifies what is missing."""
    settings = {"cap": "clamped exactly", "drift": "still"}

    assert Counter(runs=10) == +total(10, settings=settings)
    assert loses(settings=settings, rules=structs.replace(RULES, max_window=RULES.max_window + 1))


# --- A2 and A3: rows stay in their window, and none joins -------------------------------------------------------------


# --- resumed ----------------------------------------------------------------------------------------------------------


def test_a_walk_that_is_killed_anywhere_goes_on():
    """Killed after any number of calls, and again: the resumed walk has every row, and has it once."""
    for seed in range(10):
        platform = drawn(seed)
        before = snapshot(platform)
        walked = None
        for calls in (7, 13, 40, 100, 100_000):
            walked = walk(platform, done=walked, most_calls=platform.calls + calls)
        ids = walked.ids()
        assert set() == survivors(before, platform) - set(ids)
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("keeps_young", [False, True])
def test_rows_that_appear_late_are_found_by_a_resumed_walk(keeps_young: bool):
    """Certificates of windows younger than the lag are discarded; kept, they lose what appears late."""
    platform = drawn(3, drift="still", cap="none")
    late = platform.add(NOW - 60_000, visible=NOW + 600_000)
    walked = walk(platform)
    assert late.id not in walked.ids()

    platform.now = NOW + RULES.lag + 10_000
    walked = walk(platform, done=walked, keeps_young=keeps_young)

    assert keeps_young == (late.id not in walked.ids())


# --- the pages --------------------------------------------------------------------------------------------------------


def page(*ids: int, total: int) -> Snapshot:
    """A page with some rows, of a window that has settled."""
    return Snapshot(ids=tuple(map(str, ids)), places=ids, total=total, now=NOW, received=len(ids))


def asked(window: Window, *answers: list[Snapshot]) -> tuple[list[list[int]], Verdict | None]:
    """Which pages of *window* are asked for, and the verdict, unless there are not enough *answers* for one."""
    offsets, remaining = [], iter(answers)

    async def ask(indexes: Sequence[int]) -> list[Snapshot]:
        offsets.append([*indexes])
        if (answer := next(remaining, None)) is None:
            raise KilledError
        return answer

    try:
        return offsets, at_once(Examination(window, structs.replace(RULES, horizon=NOW), ask).verdict())
    except KilledError:
        return offsets, None


@pytest.mark.parametrize(("total", "is_certified"), [(3, True), (4, False)])
def test_a_page_of_a_later_walk_voids_an_earlier_one(total: int, is_certified: bool):
    """Ids of two walks certify the first, unless a page in between has counted more: a row had joined."""
    # The second page hides the third row, also when it is asked for again.
    pages = (page(1, 2, total=3), page(total=3), page(1, 2, total=3), page(total=total), page(2, 3, total=3))

    _, verdict = asked(Window(0, 1), *([answer] for answer in pages))

    assert is_certified == (verdict is not None and verdict.reason is None)


# --- the count --------------------------------------------------------------------------------------------------------


def test_a_total_that_rises_voids_the_walks_before():
    """A row has joined: a walk that began with fewer rows proves nothing any more."""
    count = Count()
    count.begin(2)
    count.see(["1"], 2)
    count.see(["2"], 3)

    assert count.certified() is None


def test_windows_partition_time():
    """However a window is split, its pieces begin where the one before ends."""
    window = Window(0, 1_000_000)
    for rows in (2, 1_000, 50_000, 10**9):
        pieces = window.pieces(RULES, NOW, rows, 100)
        assert (0, 1_000_000) == (pieces[0].begin, pieces[-1].end)
        assert [piece.end for piece in pieces[:-1]] == [piece.begin for piece in pieces[1:]]
    assert [] == Window(5, 6).pieces(RULES, NOW, 50, 20)
    assert CREATED.end == CREATED.pieces(RULES, NOW, 50, 20)[0].end + RULES.lag + 2 * RULES.grain
