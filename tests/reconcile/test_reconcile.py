"""A book held against a platform: what was planted is found, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import csv
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from paymentsdk import NoAnswer, OutcomeUnknown, PaymentsClient, Request, RequestInvalid, Response, RetryPolicy
from paymentsdk.journal import SQLiteJournal
from paymentsdk.reconcile import Book, Outcome, Progress, Report, reconcile
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import order as make_order
from tests.reconcile.planted import BEGIN, CREATED, END, MINUTE, PAGE, World
from tests.reconcile.platform import DAY

AMOUNTS = ("book_paid", "paid", "paid_difference", "book_refunded", "refunded", "refunded_difference")


def client_of(world: World, **options: object) -> PaymentsClient:
    """A client of all sellers of *world*."""
    return PaymentsClient(
        base_url="https://x",
        accounts="TEST-{}-123".format,
        retry=RetryPolicy(attempts=1),
        **{"clock": FakeClock(), "transport": MemoryTransport(world), **options},
    )


async def reconciled(world: World, out: Path, book: Book | None = None, **options: object) -> Report:
    """Reconcile the book of *world*."""
    async with client_of(world) as client:
        return await reconcile(book or Book.rows(world.book), client, **{"created": CREATED, "out": out, **options})


def added(report: Report, name: str) -> Counter[tuple[str, str]]:
    """The sums of a column by seller and currency."""
    sums: Counter[tuple[str, str]] = Counter()
    for line in report.sums:
        sums[line.account, line.currency] += getattr(line, name) or 0
    return Counter({key: amount for key, amount in sums.items() if amount})


def assert_sums(world: World, report: Report) -> None:
    """Compare the sums of *report* with those of both sides."""
    paid, refunded, theirs, returned = Counter(), Counter(), Counter(), Counter()
    inside = [row for row in world.book if CREATED[0] <= row["created"] < CREATED[1]]
    for row in inside:
        paid[row["account"], row["currency"]] += row["paid"]
        refunded[row["account"], row["currency"]] += row["refunded"]
    in_question, anywhere = ({(row["account"], row["reference"]) for row in rows} for rows in (inside, world.book))
    for name, seller in world.sellers.items():
        for order in seller.shown:
            key = name, order.reference
            if key in in_question or (key not in anywhere and BEGIN <= order.created < END):
                theirs[name, order.currency] += order.paid
                returned[name, order.currency] += order.refunded
    for expected, name in ((paid, "book_paid"), (refunded, "book_refunded"), (theirs, "paid"), (returned, "refunded")):
        assert +expected == added(report, name)
    for name in AMOUNTS:
        assert sum(added(report, name).values()) == sum(getattr(line, name) or 0 for line in report.totals)


def left_behind(out: Path) -> list[Path]:
    """What comparisons that are over have left."""
    return [*out.glob("paymentsdk-comparison-*"), *out.glob("differences.*.unfinished")]


def found(report: Report) -> dict[tuple[str, str | None], Outcome]:
    """The outcome of each order that is no match."""
    return {(difference.account, difference.reference): difference.outcome for difference in report.differences()}


async def test_what_was_planted_is_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Amounts, currencies, refunds, doubles, what is missing, extra, unpaid, expired, late or recent: each by name.

    Each amount counts once in the sums, under its own seller and currency. Each phase is reported.
    """
    world, steps = World(400, grain=3), list[Progress]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1.0)

    report = await reconciled(world, tmp_path, progress=steps.append)

    assert world.expected == found(report)
    assert world.counts == report.counts
    names = [outcome.value for outcome in report.counts]
    assert sorted(names) == names  # Those of one number are printed in this order.
    assert not report.is_same
    assert () == report.not_whole
    assert report.as_of is not None
    assert_sums(world, report)
    phases = [step.phase for step in steps]
    assert [phase for phase in ("walk", "changes", "look-ups", "comparison") for _ in range(2)] == phases
    assert {1.0} == {step.share for step, after in pairwise([*steps, None]) if not after or after.phase != step.phase}


@pytest.mark.parametrize("hides", [False, True])
async def test_changes_that_fill_several_pages_are_all_read(tmp_path: Path, hides: bool) -> None:
    """Orders that were refunded after they were walked, more than a page of them; or it is said that one is hidden."""
    world = World(0, sellers=1)
    for i in range(PAGE + 20):
        world.plant_late_refund("shop-0", f"order-{i}", BEGIN + i * MINUTE)
    world.hidden = world.sellers["shop-0"].shown[7].id * hides
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert hides or world.expected == found(report)
    assert hides or () == report.not_whole
    assert hides == any("changes in this period" in gap.reason for gap in report.not_whole) == (report.as_of is None)


REUSED = {
    "agree": ([(-1, 10), (1, 10)], [(-1, 10), (1, 10)], []),
    "never paid": ([(-1, 10), (1, 10)], [(-1, 10)], [(Outcome.NOT_PAID_OR_MISSING, 1)]),
    "another amount": ([(-2, 30), (-1, 10), (1, 20)], [(-2, 30), (-1, 10), (1, 19)], [(Outcome.PAID_AMOUNT, 1)]),
    "paid twice": ([(-1, 10), (1, 10)], [(-1, 10), (1, 10), (1, 10)], [(Outcome.DOUBLE, 1)]),
    "paid again another day": ([(-1, 10)], [(-1, 10), (1, 10)], [(Outcome.DOUBLE, -1)]),
    "paid twice, and one older than the search": ([(-99, 10), (1, 10)], [(1, 10), (1, 10)], [(Outcome.DOUBLE, 1)]),
    "another day's never paid": ([(-1, 10), (1, 10)], [(1, 10)], []),
    "another day's paid twice": ([(-1, 10), (1, 10)], [(-1, 10), (-1, 10), (1, 10)], []),
    "made earlier by the book": ([(-1, 10)], [(1, 10)], []),
    "one of several made earlier by the book": ([(-1, 20), (1, 10), (1, 30)], [(1, 10), (1, 20), (1, 30)], []),
    "paid later than the book has it, and opened then": ([(-1, 10), (1, 10)], [(-1, 0), (1, 10), (1, 10)], []),
    "opened twice, and paid another day": ([(1, 10), (1, 20)], [(1, 0), (1, 20), (-1, 10)], []),
}


async def test_a_reference_that_orders_of_other_days_have(tmp_path: Path) -> None:
    """An order of another day stands for none of the time that was asked for, and hides none that was paid twice."""
    world = World(0)
    for case, (book, orders, _) in REUSED.items():
        for day, paid in book:
            world._book("shop-0", case, BEGIN + day * DAY + DAY // 2, paid=Decimal(paid), total=paid)
        for day, paid in orders:
            status = "paid" if paid else "payment_required"
            world._show("shop-0", case, BEGIN + day * DAY + DAY // 2, Decimal(paid), status=status)
    world.freeze()

    report = await reconciled(world, tmp_path)

    days: dict[str, list[tuple[Outcome, int]]] = {case: [] for case in REUSED}
    for difference in report.differences():
        days[difference.reference].append((difference.outcome, (difference.book_created - CREATED[0]).days))
    assert {case: expected for case, (*_, expected) in REUSED.items()} == days
    ours = sum(0 < day for book, *_ in REUSED.values() for day, _ in book)
    assert ours == report.counts[Outcome.MATCH] + sum(0 < day for found in days.values() for _, day in found)


# --- where it cannot be sure ------------------------------------------------------------------------------------------


async def test_nothing_is_missing_in_a_window_that_is_not_whole(tmp_path: Path) -> None:
    """Where a search hides an order, also from its reference, the window is named, and the order is not."""
    world = World(90, grain=10**9)
    hidden = world.sellers["shop-0"].shown[4]
    world.hidden = hidden.id
    [row] = (row for row in world.book if row["reference"] == hidden.reference)
    row["order_id"] = "ORD-hidden"
    for name in ("shop-0", "shop-1"):
        world.plant_absent(name, "gone", hidden.created)
    world.freeze()

    report = await reconciled(world, tmp_path)

    unsure = {("shop-0", hidden.reference): Outcome.NOT_WHOLE, ("shop-0", "gone"): Outcome.NOT_WHOLE}
    assert unsure | {("shop-1", "gone"): Outcome.NOT_PAID_OR_MISSING} == found(report)
    # The look-up is the last that is asked for.
    assert [world.now // 1_000] == [row.read_at.timestamp() for row in report.differences() if row.order_id]
    assert {"shop-0"} == {gap.account for gap in report.not_whole}
    assert 89 == report.counts[Outcome.MATCH]


async def test_an_amount_that_cannot_be_read_is_not_nothing(tmp_path: Path) -> None:
    """It is not compared, and its window is not whole and says why; an absent amount is nothing."""
    world = World(60, grain=10**9)
    rows = world.sellers["shop-0"].shown
    rows[2].refunded = "much"
    rows[5].refunded = None
    rows[7].paid = Decimal("1e-30")
    world.late[rows[9].id] = Decimal("1e-30")

    report = await reconciled(world, tmp_path)

    reasons = " ".join(gap.reason for gap in report.not_whole)
    assert f"refunded_amount of {rows[2].id} cannot be stored as an amount" in reasons
    assert f"paid_amount of {rows[7].id} cannot be stored as an amount" in reasons
    assert {("shop-0", rows[i].reference): Outcome.NOT_COMPARED for i in (2, 7, 9)} == found(report)
    assert report.as_of is None
    unread = {difference.reference: difference.reason.rpartition(": ")[2] for difference in report.differences()}
    assert {rows[2].reference: "refunded", rows[7].reference: "total, paid", rows[9].reference: "refunded"} == unread


async def test_a_look_up_that_is_answered_with_orders_of_other_references(tmp_path: Path) -> None:
    """It is the response to another query, so it is asked for again: no order is said to be missing because of it."""
    world = World(30, sellers=1, grain=10**9)
    mistakes = {"order-998": 1, "order-999": 5}  # A look-up is tried five times at most.
    for reference in mistakes:
        world.plant_other_date("shop-0", reference, BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        for reference, remaining in mistakes.items():
            if reference in request.url and remaining:
                mistakes[reference] -= 1
                request = structs.replace(request, url=request.url.replace(reference, "order-7"))
        return await world(request)

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        report = await reconcile(Book.rows(iter(world.book)), client, created=CREATED, out=tmp_path)

    assert {("shop-0", "order-999"): Outcome.NOT_WHOLE} == found(report)


async def test_what_is_younger_than_the_lag_may_be_shown_later(tmp_path: Path) -> None:
    """Also where a checkout was left, and however coarse the date filter is: exact to a day, without any orders."""
    world = World(0)
    for minutes in (14, 16):
        world._show("shop-0", f"left-{minutes}", BEGIN + DAY, Decimal(0), status="payment_required")
        world._book("shop-0", f"left-{minutes}", END - minutes * MINUTE, total=None)
        world._book("shop-1", f"new-{minutes}", END - minutes * MINUTE)
    world.freeze()

    assert found(await reconciled(world, tmp_path)) == {
        ("shop-0", "left-14"): Outcome.TOO_RECENT,
        ("shop-0", "left-16"): Outcome.PAID_AMOUNT,
        ("shop-1", "new-14"): Outcome.TOO_RECENT,
        ("shop-1", "new-16"): Outcome.NOT_PAID_OR_MISSING,
    }


async def test_orders_older_than_the_search_shows(tmp_path: Path) -> None:
    """With an id they are looked up; without one, nothing is claimed."""
    world = World(0)
    world.plant_absent("shop-0", "old", BEGIN - 100 * DAY)
    world.plant_unpaid("shop-0", "old-with-id", BEGIN - 100 * DAY)
    world.book[-1]["order_id"] = world._order("shop-0", "old-with-id", world.book[-1]["status"], Decimal(0))
    world.book[-1]["total"] = None
    world.freeze()

    report = await reconciled(world, tmp_path, created=(CREATED[0] - timedelta(days=101), CREATED[1]))

    assert report.as_of
    assert {("shop-0", "old"): Outcome.TOO_OLD} == found(report)
    assert {outcome.value for outcome in Outcome} == {name.lower() for name in Outcome.__members__}
    assert report.not_whole


# --- again, and in pieces ---------------------------------------------------------------------------------------------


async def test_a_corrected_book_is_compared_again(tmp_path: Path) -> None:
    """The second run asks only for what has changed and what is absent."""
    world = World(200, grain=4)
    first = await reconciled(world, tmp_path)
    wrong = next(difference for difference in first.differences(Outcome.PAID_AMOUNT) if difference.paid)
    for row in world.book:
        if row["reference"] == wrong.reference:
            row["paid"] = row["total"] = wrong.paid

    (tmp_path / "paymentsdk-comparison-killed" / "spill").mkdir(parents=True)
    (tmp_path / "differences.parquet.killed.unfinished").touch()

    second = await reconciled(world, tmp_path)

    assert first.counts[Outcome.PAID_AMOUNT] - 1 == second.counts[Outcome.PAID_AMOUNT]
    assert second.calls < first.calls
    assert not left_behind(tmp_path)


async def test_a_failed_reconciliation_goes_on(tmp_path: Path) -> None:
    """Whatever it was at, windows that are done are not asked for again."""
    options = {"sellers": 1, "grain": 4}
    world, whole = World(200, **options), (await reconciled(World(200, **options), tmp_path / "whole")).calls
    world.fails_at = int(whole * 0.3)
    with pytest.raises(NoAnswer):
        await reconciled(world, tmp_path / "again")
    world.fails_at = int(whole * 0.95)
    assert 1 == (await reconciled(world, tmp_path / "again")).counts[Outcome.NOT_READ]

    report = await reconciled(world, tmp_path / "again")

    assert world.expected == found(report)
    assert report.calls < whole


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Have no file become larger than a few pages."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (14_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_an_oserror_and_loses_nothing(tmp_path: Path) -> None:
    """With room again, the same call goes on."""
    world = World(600, grain=4)
    with no_room(), pytest.raises(OSError, match="too large"):
        await reconciled(world, tmp_path)

    report = await reconciled(world, tmp_path)

    assert world.counts == report.counts


@pytest.mark.parametrize("name", ["parts/mine.txt", "changes/mine.txt", "my.unfinished", "paymentsdk-comparison-mine"])
async def test_files_of_others_are_not_deleted(tmp_path: Path, name: str) -> None:
    """A run deletes what it has left itself: a directory that has such names for something else is not taken."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")

    with contextlib.suppress(RequestInvalid):
        await reconciled(World(9), tmp_path)

    assert path.read_text() == "mine"


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """On a full disk the one of yesterday stays; a private file stays private, a link leads on, a pipe takes it.

    The relation has the same differences; nothing of a reference becomes a formula.
    """
    world = World(300, grain=1)
    for reference in ("=cmd()", "<script>alert(1)</script>", None):
        world.plant_extra("shop-0", reference, BEGIN + 5)
    world.freeze()
    report = asyncio.run(reconciled(world, tmp_path / "out"))
    path, link = tmp_path / "report.csv", tmp_path / "link.csv"
    path.write_text("of yesterday")
    path.chmod(0o600)
    link.symlink_to(path)

    with no_room(), pytest.raises(OSError, match="too large"):
        report.write_csv(link)

    assert path.read_text() == "of yesterday"
    assert [] == [*tmp_path.glob("*.unfinished")]
    report.write_csv(link)
    assert (0o600, True) == (path.stat().st_mode & 0o777, link.is_symlink())
    lines = [*csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    assert len(lines) == len(report.table().fetchall()) == len([*report.differences()])
    assert {"'=cmd()", "<script>alert(1)</script>", "", "order-98"} <= {line["reference"] for line in lines}
    report.write_csv("/dev/null")
    assert Path("/dev/null").is_char_device()


async def test_a_page_shows_sums_and_differences(tmp_path: Path) -> None:
    """By seller and currency, with what could not be read; nothing that a seller wrote is markup."""
    world = World(4, sellers=2, grain=10**9)
    for day, kind in enumerate(("paid_amount", "currency", "late_refund", "double", "missing", "extra")):
        getattr(world, f"plant_{kind}")("shop-0", f"<b>{kind}&", BEGIN + day * DAY)
    world.freeze()

    report = await reconciled(world, tmp_path)

    structs.replace(report, as_of=CREATED[1]).write_html(path := tmp_path / "page.html")
    assert Path(__file__).with_name("page.html").read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
    sums = tuple(structs.replace(line, account="") for line in report.sums)
    structs.replace(report, as_of=None, failed={"shop-9": "<gone>"}, sums=sums).write_html(path)
    for note in ("Not read: shop-9: &lt;gone&gt;</p>", "<p>Each order is as of", "<td>(one seller)</td>"):
        assert note in path.read_text(encoding="utf-8")


async def test_a_book_without_currencies_or_amounts_has_sums_without_them(tmp_path: Path) -> None:
    """What nobody says is no zero."""
    world = World(60, grain=30)
    for row in world.book:
        del row["currency"], row["refunded"]

    report = await reconciled(world, tmp_path, Book.rows(world.book))

    [match] = [line for line in report.totals if line.outcome is Outcome.MATCH]
    assert ("", None, None, None) == (match.currency, *match.amounts[3:])


async def test_a_sum_with_more_than_20_digits_becomes_none(tmp_path: Path) -> None:
    """The largest amounts of a book add up exactly, or to `None`; the comparison does not fail."""
    world = World(60, grain=30)
    row = next(row for row in world.book if CREATED[0] <= row["created"] < CREATED[1])
    largest = {**row, "paid": Decimal(10**18 - 1)}
    world.book = [
        {**largest, "currency": currency, "reference": f"{currency}-{i}"}
        for currency, orders in (("EUR", 90), ("USD", 200))
        for i in range(orders)
    ]

    report = await reconciled(world, tmp_path)

    sums = {line.currency: line.book_paid for line in report.totals if line.orders in {90, 200}}
    assert {"EUR": Decimal(89999999999999999910), "USD": None} == sums


# --- the journal ------------------------------------------------------------------------------------------------------


async def test_open_records_explain_differences(tmp_path: Path) -> None:
    """An order whose creation or refund is open is unknown, and the records are handed over; no write is sent."""
    journal = SQLiteJournal(tmp_path / "journal.db")
    world = World(20, sellers=1, grain=10**9)
    world.plant_absent("shop-0", "table-7", BEGIN + 9)
    world.plant_missing("shop-0", "table-8", BEGIN + 9)
    world.plant_missing("shop-0", "table-9", BEGIN + 9)
    world.freeze()
    async with client_of(world, journal=journal) as client:
        await client.account("shop-0").merchant_orders.search().first()  # From here on the platform's time is known.
        with pytest.raises(OutcomeUnknown):
            await client.account("shop-0").orders.create(make_order("table-7", "5.00"), once="table-7/1")
        with pytest.raises(OutcomeUnknown):
            await client.account("shop-0").orders.refund("ORD-none-table-8", once="table-8/refund")
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path / "out")

    outcomes = {"table-7": Outcome.UNKNOWN, "table-8": Outcome.UNKNOWN, "table-9": Outcome.MISSING}
    assert outcomes == {reference: outcome for (_, reference), outcome in found(report).items()}
    assert ["table-7/1", "table-8/refund"] == [record.name for record in report.open_records]
    assert 2 == world.writes
