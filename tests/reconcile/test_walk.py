"""A walk over the orders of several sellers: every row once, in files, and the same after a crash."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paymentsdk import BadRequest, NotWhole, Request, RequestInvalid, Response
from paymentsdk.reconcile import WalkReport, walk
from tests.reconcile.model import CREATED, snapshot, survivors
from tests.reconcile.platform import CAP, DAY, NOW, Platform
from tests.reconcile.served import WEEK, Autumn, Served, client_of, client_of_sellers, quiet, sellers_of, written

ROOT = Path(__file__).parents[2]


async def walked(handler: object, out: Path, **options: object) -> WalkReport:
    """Walk the week of one seller."""
    async with client_of(handler) as client:
        return await walk(client, **{"created": WEEK, "out": out, "max_window": CAP, **options})


@pytest.mark.parametrize(
    ("drift", "ends"), [("still", "inclusive"), ("replace", "exclusive"), ("vanish and touch", "half-open")]
)
async def test_every_row_is_written_once(tmp_path: Path, drift: str, ends: str) -> None:
    """Calls that overlap, rows that drift: every row that stayed is in the files, and no row twice."""
    platform = Platform(7, order="ties", drift=drift, ends=ends)
    platform.fill(120, CREATED.begin - 1_000, NOW)
    before = snapshot(platform)

    report = await walked(Served(platform), tmp_path)

    ids = [row for _, row in written(report)]
    assert len(ids) == len(set(ids)) == report.rows
    assert set() == survivors(before, platform) - set(ids)
    assert (timedelta(milliseconds=1), platform.calls) == (report.grain, report.calls)


async def test_the_ends_of_the_time_are_exact(tmp_path: Path) -> None:
    """A row belongs to the time if its date does: also where the time begins and ends within a millisecond."""
    platform = quiet(1, rows=0)
    first, last = (platform.add(CREATED.begin + at).id for at in (1, 3))
    for at in (0, 4):
        platform.add(CREATED.begin + at)
    begin, end = (WEEK[0] + timedelta(microseconds=at) for at in (1, 3_001))

    report = await walked(Served(platform), tmp_path, created=(begin, end), lag=timedelta(0))

    assert ([first, last], 5) == ([row for _, row in written(report)], report.calls)


async def test_the_hour_that_comes_twice_is_walked_twice(tmp_path: Path) -> None:
    """When clocks go back, the time ends where its end says, and not an hour before."""
    platform = quiet(1)
    zone = Autumn()
    begin = WEEK[0].astimezone(zone)
    end = (WEEK[0] + timedelta(days=3)).astimezone(zone).replace(fold=1)
    assert timedelta(days=3, hours=1) == end - WEEK[0]
    last = platform.add(CREATED.begin + 3 * DAY + 1_800_000).id

    most = {"lag": timedelta(days=1), "max_window": 100_000, "in_flight": 64}
    report = await walked(Served(platform), tmp_path, created=(begin, end), **most)

    assert last in [row for _, row in written(report)]


async def test_calls_in_flight_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are walked at the same time, no more of them than was asked for. Those of a moment share their files."""
    served = Served(quiet(1))
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1.0)

    report = await walked(served, tmp_path, in_flight=3)

    assert 3 == served.most_in_flight
    assert 4 >= len(report.parts) < report.windows


async def test_a_platform_that_takes_no_large_pages(tmp_path: Path) -> None:
    """A limit that is rejected is left out, also in a run that goes on; a query that is rejected without one raises."""
    served = Served(quiet(1))

    async def strict(request: Request) -> Response:
        return Response(400, {}, b"{}") if "limit" in request.url else await served(request)

    assert len(served.platform.rows) == (await walked(strict, tmp_path)).rows
    assert len(served.platform.rows) == (await walked(strict, tmp_path)).rows
    urls: list[str] = []
    sellers = {
        "a": lambda request: Response(400, {}, b"{}"),
        "b": lambda request: urls.append(request.url) or served(request),
    }
    async with client_of_sellers(sellers) as client:
        report = await walk(client, created=WEEK, out=tmp_path / "other", accounts=sellers, max_window=CAP)
    assert [BadRequest] == [type(error) for error in report.failed.values()]
    assert "limit=" in urls[-1]


# --- what is not whole, and what is odd -------------------------------------------------------------------------------


def hides_one(rows: list[dict]) -> None:
    """One row never comes, though every total counts it."""
    rows[:] = [row for row in rows if row["id"] != 5]


async def test_a_window_that_is_not_whole_is_named(tmp_path: Path) -> None:
    """The error says which window, and everything else is written; a later run walks that window alone."""
    platform = quiet(2, order="random")
    missing = platform.rows[5].created

    with pytest.raises(NotWhole, match=r"of \d+ rows seen") as caught:
        await walked(Served(platform, hides_one), tmp_path)

    begin, end = caught.value.window
    assert begin <= datetime.fromtimestamp(missing / 1_000, UTC) < end
    assert ("merchant_orders.search", True) == (caught.value.operation, caught.value.seen < caught.value.total)
    report = await walked(Served(platform), tmp_path)
    assert [*platform.rows] == [row for _, row in written(report)]
    assert report.calls < 20


class Miscounting(Platform):
    """Its totals are always wrong by *more*."""

    more = 3

    def show(self, *arguments: object) -> tuple[list, int] | None:
        page = super().show(*arguments)
        return page and (page[0], page[1] + self.more)


@pytest.mark.parametrize(("more", "page"), [(1, 10), (700, 50)])
async def test_totals_that_are_always_too_high_cost_a_bounded_number_of_calls(
    tmp_path: Path, more: int, page: int
) -> None:
    """No window is certified, every row is written, and it costs a few times the calls of each row by itself."""
    platform = Miscounting(1, page=page)
    platform.more = more
    platform.fill(120, CREATED.begin, NOW - 3_600_000)

    with pytest.raises(NotWhole, match="as many rows as the total says were never seen") as caught:
        await walked(Served(platform), tmp_path, max_window=1_000)

    assert [*platform.rows] == [row for _, row in written(tmp_path / "parts")]
    assert "rows seen" in caught.value.__notes__[-1]
    assert 20 * 120 > platform.calls


async def test_a_date_filter_that_cannot_be_proved_ends_the_run(tmp_path: Path) -> None:
    """No window would prove anything, so none is walked."""
    served = Served(quiet(1, shift=40 * 86_400_000))

    with pytest.raises(NotWhole, match="finds no row by the date"):
        await walked(served, tmp_path)

    assert 40 > served.platform.calls


async def of_the_first(
    self, names: list[str], created: object, failed: dict, by: str = "date_created"
) -> dict[str, int | None]:
    """Prove it on the rows of one account for all."""
    return dict.fromkeys(names, await self.walk.prove(names[0], created, by) if names else None)


@pytest.mark.control("paymentsdk.reconcile._run.Run.prove", of_the_first, raises=NotWhole)
async def test_the_date_filter_is_proved_for_each_account(tmp_path: Path) -> None:
    """The site of one seller reads bounds in its own zone: its windows are wider, and those of the others are not."""
    shifted = quiet(2, shift=3 * 3_600_000, page=200)
    sellers = {"a": Served(quiet(1)), "b": Served(shifted), "c": Served(quiet(3, rows=0))}
    created = (WEEK[0], WEEK[1] - timedelta(days=1))

    async with client_of_sellers(sellers) as client:
        report = await walk(client, created=created, accounts=sellers, out=tmp_path, max_window=200)

    assert {
        (name, row.id)
        for name, served in sellers.items()
        for row in served.platform.rows.values()
        if CREATED.begin <= row.created < CREATED.end - 86_400_000
    } == {*written(report)}
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as file:
        assert [("a", 1), ("b", 86_400_000)] == file.execute("SELECT * FROM grains ORDER BY account").fetchall()
    assert timedelta(days=1) == report.grain


async def test_the_date_filter_is_proved_with_orders_as_they_are_now(tmp_path: Path) -> None:
    """Those that were looked at first may have changed meanwhile, so others are looked at."""
    served, proofs = Served(quiet(1)), 0

    async def platform(request: Request) -> Response:
        nonlocal proofs
        if "date_created" not in request.url and "offset=0" in request.url:
            proofs += 1
            served.platform.add(NOW - 3_600_000 - proofs)
        response = await served(request)
        is_lost = proofs == 1 and "date_created" in request.url
        return Response(200, response.headers, b'{"elements":[],"total":0}') if is_lost else response

    assert [*served.platform.rows, 151, 152] == [row for _, row in written(await walked(platform, tmp_path))]


async def test_a_coarse_filter_is_proved_and_compensated(tmp_path: Path) -> None:
    """Bounds without milliseconds, or two off: windows are widened by a second, and no row is lost."""
    platform = Platform(1, grain=1_000)
    for i in range(200):
        platform.add(NOW - 3_600_000 - i * 2_500_017)

    report = await walked(Served(platform), tmp_path)

    assert timedelta(seconds=1) == report.grain
    assert 200 == report.rows
    moved = Served(quiet(1, shift=-2, ends="exclusive"))
    assert timedelta(seconds=1) == (await walked(moved, tmp_path / "moved")).grain
    assert timedelta(days=1) == (await walked(Served(quiet(1, rows=0)), tmp_path / "none", max_window=2)).grain


async def test_rows_without_a_date_are_kept_and_counted(tmp_path: Path) -> None:
    """A date that is missing, or of the year 1, is in no window: its row is kept with the window that showed it."""

    def spoil(rows: list[dict]) -> None:
        for row in rows:
            if row["id"] in (3, 4):
                row["date_created"] = None if row["id"] == 3 else "0001-01-01T00:00:00.000+00:00"

    platform = quiet(1, rows=30)
    report = await walked(Served(platform, spoil), tmp_path)

    assert 2 <= report.undated
    assert set(platform.rows) == {row for _, row in written(report)}


@pytest.mark.parametrize("amount", ["1e20", "1e-19"])
async def test_an_amount_that_the_files_cannot_keep_is_named(tmp_path: Path, amount: str) -> None:
    """Also one whose value would fit, had it been written with fewer digits: its window is not whole, the rest is."""

    def spoil(rows: list[dict]) -> None:
        for row in rows:
            if row["id"] == 3:
                row["total_amount"] = amount

    platform = quiet(1, rows=30)
    with pytest.raises(NotWhole, match="total_amount of 3 cannot be stored as an amount"):
        await walked(Served(platform, spoil), tmp_path)

    assert [*platform.rows] == [row for _, row in written(tmp_path / "parts")]


async def test_windows_older_than_the_search_shows_are_named(tmp_path: Path) -> None:
    """The search shows 90 days: of what is older, nothing is claimed."""
    created = (WEEK[1] - timedelta(days=100), WEEK[1])

    with pytest.raises(NotWhole, match="no rows of that age") as caught:
        await walked(Served(quiet(1)), tmp_path, created=created)

    assert created[0] == caught.value.window[0]
    assert timedelta(days=10) <= caught.value.window[1] - created[0] < timedelta(days=10, minutes=5)


# --- resumed ----------------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_goes_on(tmp_path: Path) -> None:
    """Cancelled, a walk leaves no task behind, and what it has is kept."""
    served = Served(quiet(3))

    async def cancels(request: Request) -> Response:
        if served.platform.calls > 10:
            task.cancel()
            await asyncio.Event().wait()
        return await served(request)

    task = asyncio.create_task(walked(cancels, tmp_path))
    with pytest.raises(asyncio.CancelledError):
        await task

    assert {asyncio.current_task()} == asyncio.all_tasks()
    assert [*served.platform.rows] == [row for _, row in written(await walked(served, tmp_path))]


async def test_young_windows_are_walked_again(tmp_path: Path) -> None:
    """A row that appears late in a young window is in the files of the resumed run, and no row is there twice."""
    platform = quiet(4)
    platform.add(NOW - 30_000)
    late = platform.add(NOW - 60_000, visible=NOW + 600_000)
    assert late.id not in {row for _, row in written(await walked(Served(platform), tmp_path))}

    platform.now = NOW + 3_600_000
    report = await walked(Served(platform), tmp_path)

    assert [*platform.rows] == [row for _, row in written(report)]
    assert written(tmp_path / "parts") == written(report)


@pytest.mark.parametrize("theirs", ["CREATE TABLE run (theirs)", None], ids=["table", "folder"])
async def test_a_checkpoint_of_somebody_else_is_rejected(tmp_path: Path, theirs: str | None) -> None:
    """Whatever has the name of the checkpoint: the argument is wrong."""
    path = tmp_path / "ledger.sqlite"
    if theirs is None:
        path.mkdir()
    else:
        with closing(sqlite3.connect(path)) as file:
            file.execute(theirs)

    with pytest.raises(RequestInvalid, match="out: cannot be used: "):
        await walked(Served(quiet(1)), tmp_path)


@pytest.mark.parametrize("options", [{"created": (WEEK[0], WEEK[1] - timedelta(days=1))}, {"max_window": 30}], ids=str)
async def test_another_question_is_rejected(tmp_path: Path, options: dict) -> None:
    """A directory belongs to one question: mixed, the rows of two would be those of neither."""
    await walked(Served(quiet(1)), tmp_path)

    with pytest.raises(RequestInvalid, match="out: holds a run with other arguments"):
        await walked(Served(quiet(1)), tmp_path, **options)


class Overwritten:
    """A source of tokens that gives those of another seller once it was asked often."""

    calls = 10

    def token(self, now: float) -> str | None:
        """The next one."""
        self.calls -= 1
        return f"TEST-1-112412-x-{111 if self.calls >= 0 else 222}"

    async def renew(self, rejected: str | None, exchange: object, now: float) -> str | None:
        """There is no other."""


@pytest.mark.control("paymentsdk._call.credential.certain_user_id", lambda token: None)
async def test_a_walk_asks_for_all_windows_as_one_seller(tmp_path: Path) -> None:
    """Somebody has put another token into the store meanwhile: the rows of its seller are nobody's in this run."""
    client = client_of(Served(quiet(1))).with_options(auth=Overwritten())

    with pytest.raises(RequestInvalid, match="access_token: belongs to another seller"):
        await walk(client, created=WEEK, out=tmp_path, max_window=CAP)


async def test_two_walks_cannot_share_a_directory(tmp_path: Path, until) -> None:
    """The second is rejected as long as the first works."""
    served = Served(quiet(1))
    first = asyncio.create_task(walked(served, tmp_path))
    await until(lambda: served.platform.calls)

    with pytest.raises(RequestInvalid, match="out: cannot be used: database is locked"):
        await walked(Served(quiet(1)), tmp_path)

    report = await first
    assert report.rows == (await walked(Served(quiet(1)), tmp_path)).rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"created": (datetime(2026, 1, 1), WEEK[1])},  # noqa: DTZ001 - that is what is rejected
        {"created": (WEEK[1], WEEK[0])},
        {"created": (WEEK[0].date(), WEEK[1].date())},
        {"created": (WEEK[0], datetime.max.replace(tzinfo=WEEK[0].tzinfo))},
        {"created": WEEK[:1]},
        {"lag": 900},
        {"accounts": "shop-1"},
        {"lag": timedelta(days=2)},
        {"lag": timedelta(-1)},
        {"max_window": 1},
        {"max_window": 100_001},
        {"in_flight": 0},
        {"in_flight": 65},
        {"created": (datetime(1969, 12, 31, tzinfo=UTC), WEEK[1])},
        {"accounts": []},
        {"out": "https://x"},
        {"out": "\udcff"},
    ],
    ids=str,
)
async def test_arguments_that_make_no_sense_are_rejected(tmp_path: Path, wrong: dict) -> None:
    """Nothing is sent, and nothing is written."""
    served = Served(quiet(1))
    with pytest.raises(RequestInvalid) as caught:
        await walked(served, **{"out": tmp_path / "out", **wrong})

    assert [*wrong] == [caught.value.path]
    assert 0 == served.platform.calls
    assert not (tmp_path / "out").exists()


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What walks have left that were killed twice, and then came to their end."""
    folder = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-m", "tests.reconcile.served", str(folder)], cwd=ROOT, check=True, timeout=50)
    statuses = json.loads((folder / "statuses").read_text())
    assert {"-9": 5, "0": 2} == Counter(map(str, statuses.values())), statuses
    return folder


@pytest.mark.parametrize("place", ["call", "written"])
def test_a_killed_run_has_the_output_of_one_that_was_not(killed: Path, place: str) -> None:
    """Killed at a call, or after a file was written and before it was entered: then run to its end."""
    rows = [(name, row) for name, served in sellers_of(1).items() for row in served.platform.rows]

    assert sorted(rows) == written(killed / place / "parts")


def test_a_window_that_is_entered_before_its_file_loses_rows(killed: Path) -> None:
    """Control: a window that is entered before its rows are written is never walked again."""
    out = killed / "early"

    assert {*entered(out)} - {file.name for file in (out / "parts").iterdir()}


def entered(out: Path) -> list[str]:
    """The files that the checkpoint names."""
    with closing(sqlite3.connect(out / "ledger.sqlite")) as checkpoint:
        return [name for (name,) in checkpoint.execute("SELECT name FROM parts")]
