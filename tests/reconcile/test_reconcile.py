"""A book held against a platform: what was planted is found, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from paymentsdk import NoAnswer, OutcomeUnknown, PaymentsClient, Request, RequestInvalid, Response, RetryPolicy
from paymentsdk.journal import SQLiteJournal
from paymentsdk.reconcile import Book, Outcome, Progress, Report, reconcile
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.reconcile.planted import BEGIN, CREATED, END, MINUTE, World
from tests.reconcile.platform import DAY


def client_of(world: World, **options: object) -> PaymentsClient:
    """A client of all sellers of *world*."""
    return PaymentsClient(
        base_url="https://x",
        accounts="TEST-{}-123".format,
        clock=FakeClock(),
        retry=RetryPolicy(attempts=1),
        **{"transport": MemoryTransport(world), **options},
    )


async def reconciled(world: World, out: Path, book: Book | None = None, **options: object) -> Report:
    """Reconcile the book of *world*."""
    async with client_of(world) as client:
        return await reconcile(book or Book.rows(world.book), client, **{"created": CREATED, "out": out, **options})


def order_request(reference: str) -> OrderRequest:
    """An order over 5."""
    amount = Decimal("5.00")
    return OrderRequest(
        external_reference=reference,
        total_amount=amount,
        transactions=TransactionsRequest(payments=[PaymentRequest(amount=amount)]),
    )


def left_behind(out: Path) -> list[Path]:
    """Databases of comparisons that are over."""
    return [*out.glob("paymentsdk-comparison-*")]


def found(report: Report) -> dict[tuple[str, str | None], Outcome]:
    """The outcome of each order that is no match."""
    return {(difference.account, difference.reference): difference.outcome for difference in report.differences()}


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_planted_is_found_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """Amounts, currencies, refunds, doubles, what is missing, extra, unpaid, expired, late or recent: each by name."""
    world = World(1_200, seed=seed, grain=3)

    report = await reconciled(world, tmp_path)

    assert world.expected == found(report)
    assert world.counts == report.counts
    names = [outcome.value for outcome in report.counts]
    assert sorted(names) == names  # Those of one number are printed in this order.
    assert not report.is_same
    assert () == report.not_whole
    assert report.as_of is not None


REUSED = {
    "agree": ([(-1, 10), (1, 10)], [(-1, 10), (1, 10)], []),
    "never paid": ([(-1, 10), (1, 10)], [(-1, 10)], [(Outcome.NOT_PAID_OR_MISSING, 1)]),
    "another amount": ([(-2, 30), (-1, 10), (1, 20)], [(-2, 30), (-1, 10), (1, 19)], [(Outcome.PAID_AMOUNT, 1)]),
    "paid twice": ([(-1, 10), (1, 10)], [(-1, 10), (1, 10), (1, 10)], [(Outcome.DOUBLE, 1)]),
    "paid again another day": ([(-1, 10)], [(-1, 10), (1, 10)], [(Outcome.DOUBLE, -1)]),
    "paid twice, and one older than the search": ([(-99, 10), (1, 10)], [(1, 10), (1, 10)], [(Outcome.DOUBLE, 1)]),
    "never paid, and one just older than the search": (
        [(-81, 10), (1, 10)],
        [(-80, 10)],
        [(Outcome.NOT_PAID_OR_MISSING, 1)],
    ),
    "another day's never paid": ([(-1, 10), (1, 10)], [(1, 10)], []),
    "another day's paid twice": ([(-1, 10), (1, 10)], [(-1, 10), (-1, 10), (1, 10)], []),
    "another day's other amount": ([(-1, 10), (1, 10)], [(-1, 11), (1, 10)], []),
    "made earlier by the book": ([(-1, 10)], [(1, 10)], []),
    "made earlier by the book, another amount": ([(-1, 10)], [(1, 11)], [(Outcome.PAID_AMOUNT, -1)]),
    "one of several made earlier by the book": ([(-1, 20), (1, 10), (1, 30)], [(1, 10), (1, 20), (1, 30)], []),
    "paid later than the book has it, and opened then": ([(-1, 10), (1, 10)], [(-1, 0), (1, 10), (1, 10)], []),
    "opened, and paid another day": ([(1, 10)], [(1, 0), (-1, 10)], []),
    "opened twice, and paid another day": ([(1, 10), (1, 20)], [(1, 0), (1, 20), (-1, 10)], []),
    "opened, and another day's never paid": ([(-1, 10)], [(1, 0)], []),
    "opened, and another day's paid with another amount": ([(-1, 10)], [(-1, 11), (1, 0)], []),
    "opened twice, and another day's never paid": ([(-1, 10), (-1, 20)], [(1, 0), (1, 0)], []),
    "opened again": ([(-1, 10), (1, 10)], [(-1, 10), (1, 10), (2, 0)], []),
}


@pytest.mark.parametrize("says_total", [True, False], ids=["with a total", "without"])
@pytest.mark.parametrize("case", REUSED)
async def test_a_reference_that_orders_of_other_days_have(tmp_path: Path, case: str, *, says_total: bool) -> None:
    """An order of another day stands for none of the time that was asked for, and hides none that was paid twice."""
    world = World(0)
    book, orders, expected = REUSED[case]
    for day, paid in book:
        world._book(
            "shop-0", "table-7", BEGIN + day * DAY + DAY // 2, paid=Decimal(paid), total=paid if says_total else None
        )
    for day, paid in orders:
        status = "paid" if paid else "payment_required"
        world._show("shop-0", "table-7", BEGIN + day * DAY + DAY // 2, Decimal(paid), status=status)
    world.freeze()

    report = await reconciled(world, tmp_path)

    days = [(difference.outcome, (difference.book_created - CREATED[0]).days) for difference in report.differences()]
    assert expected == days
    assert sum(0 < day for day, _ in book) == report.counts[Outcome.MATCH] + sum(0 < day for _, day in expected)


async def test_rows_of_a_reference_that_say_little(tmp_path: Path) -> None:
    """What no row says sets none apart: of several, the one that was not paid is found by its amount."""
    world = World(0)
    for paid in (15, 20, 25):
        world.book.append({"account": "shop-0", "reference": "A-1", "paid": paid, "created": CREATED[0]})
    for paid in (15, 25):
        world._show("shop-0", "A-1", BEGIN, Decimal(paid))
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert [(Outcome.NOT_PAID_OR_MISSING, 20)] == [
        (difference.outcome, difference.book_paid) for difference in report.differences()
    ]


async def test_an_order_without_a_time_stands_back_for_none_that_has_one(tmp_path: Path) -> None:
    """A payment is that of the order that the book has as paid, also where the book does not say when it was made."""
    world = World(0)
    for paid, created in ((0, CREATED[0]), (31, None)):
        world.book.append({"account": "shop-0", "reference": "A-1", "paid": paid, "created": created})
    world._show("shop-0", "A-1", BEGIN, Decimal(30))
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert [(Outcome.PAID_AMOUNT, 31)] == [
        (difference.outcome, difference.book_paid) for difference in report.differences()
    ]


@pytest.mark.parametrize("day", [1, -1], ids=["paid in this time", "paid at another time"])
async def test_an_order_is_not_missing_because_another_of_its_reference_was_paid(tmp_path: Path, day: int) -> None:
    """An order that expired, and one that was paid in its place: the first is looked up by its own id."""
    world = World(0)
    paid = world._book("shop-0", "A-1", BEGIN + day * DAY, order_id="ORD-paid-A-1")
    world._show("shop-0", "A-1", BEGIN + day * DAY, paid)
    expired = world._order("shop-0", "A-1", "expired", Decimal(0))
    world._book("shop-0", "A-1", BEGIN + DAY, order_id=expired, total=None, paid=Decimal(0), status="expired")
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {} == found(report)
    assert 1 + (day > 0) == report.counts[Outcome.MATCH]


@pytest.mark.parametrize("day", [1, -1], ids=["walked", "looked up"])
async def test_an_unknown_state_falls_back_to_the_status(tmp_path: Path, day: int) -> None:
    """Of an order that the walk meets, and of one that only its reference finds."""
    world = World(0)
    for reference, status in (("A-1", "partially_reverted"), ("A-2", "payment_required")):
        paid = world._book("shop-0", reference, BEGIN + DAY, status="created", total=None)
        world._show("shop-0", reference, BEGIN + day * DAY, paid, status=status)
    world.freeze()

    assert {("shop-0", "A-1"): Outcome.STATUS} == found(await reconciled(world, tmp_path))


# --- where it cannot be sure ------------------------------------------------------------------------------------------


async def test_nothing_is_missing_in_a_window_that_is_not_whole(tmp_path: Path) -> None:
    """Where a search hides an order, also from its reference, the window is named, and the order is not."""
    world = World(300, grain=10**9)
    hidden = world.sellers["shop-0"].shown[4]
    world.hidden = hidden.id
    [row] = (row for row in world.book if row["reference"] == hidden.reference)
    row["order_id"] = "ORD-hidden"

    report = await reconciled(world, tmp_path)

    assert {("shop-0", hidden.reference): Outcome.NOT_WHOLE} == found(report)
    # The look-up is the last that is asked for.
    assert [world.now // 1_000] == [difference.read_at.timestamp() for difference in report.differences()]
    assert {"shop-0"} == {gap.account for gap in report.not_whole}
    assert 299 == report.counts[Outcome.MATCH]


async def test_an_amount_that_cannot_be_read_is_not_nothing(tmp_path: Path) -> None:
    """It is not compared, and its window is not whole and says why; an absent amount is nothing."""
    world = World(60, grain=10**9)
    rows = world.sellers["shop-0"].shown
    rows[2].refunded = "much"
    rows[5].refunded = None
    rows[7].paid = Decimal("1e-30")

    report = await reconciled(world, tmp_path)

    reasons = " ".join(gap.reason for gap in report.not_whole)
    assert f"refunded_amount of {rows[2].id} cannot be stored as an amount" in reasons
    assert f"paid_amount of {rows[7].id} cannot be stored as an amount" in reasons
    assert {("shop-0", rows[i].reference): Outcome.NOT_COMPARED for i in (2, 7)} == found(report)
    assert ["refunded", "total, paid"] == [
        next(
            difference.reason for difference in report.differences() if difference.reference == rows[i].reference
        ).rpartition(": ")[2]
        for i in (2, 7)
    ]


@pytest.mark.parametrize("times", [99, 101, 200])
async def test_amounts_whose_sum_no_file_can_hold(tmp_path: Path, times: int) -> None:
    """Orders of more than 18 digits are named, as those are that cannot be read; a sum of more than 20 is not told."""
    world, paid = World(0), 10**18 - 1000
    for reference, amount in (("A-1", 10**18), ("A-2", paid)):
        world._book("shop-0", reference, BEGIN, total=None)
        for _ in range(times):
            world._show("shop-0", reference, BEGIN, Decimal(amount), total=Decimal(1))
    world.freeze()

    report = await reconciled(world, tmp_path)

    [double] = (difference for difference in report.differences(Outcome.DOUBLE) if difference.reference == "A-2")
    assert times == len(double.merchant_order_ids.split())
    assert (times, 0) == (double.total, double.refunded)
    assert double.paid == (times * paid if times == 99 else None)
    assert "cannot be stored as an amount: 1E+18" in " ".join(gap.reason for gap in report.not_whole)


async def test_a_search_that_finds_more_than_it_was_asked_for(tmp_path: Path) -> None:
    """Orders of longer references, and an id that belongs to another order, stand for nothing."""
    world = World(30, sellers=1, grain=10**9)
    for reference in ("order-9990", "ORDER-998-a", None):
        world._show("shop-0", reference, world._outside(), Decimal(3))
    world.plant_absent("shop-0", "order-999", BEGIN + 9)
    world.plant_absent("shop-0", "order-998", BEGIN + 9)
    world.book[-1]["order_id"] = world._order("shop-0", "order-1", "processed", Decimal(1))
    world.freeze()
    longer = [row for row in world.sellers["shop-0"].shown if row.created < BEGIN]
    world.sellers["shop-0"].by_reference = dict.fromkeys(("order-999", "order-998"), longer)

    report = await reconciled(world, tmp_path)

    missing = {("shop-0", "order-999"): Outcome.NOT_PAID_OR_MISSING, ("shop-0", "order-998"): Outcome.MISSING}
    assert missing == found(report)
    # What the platform does not say is no amount of nothing.
    contents = {
        (difference.total, difference.paid, difference.refunded, difference.merchant_order_ids)
        for difference in report.differences()
    }
    assert {(None, None, None, None)} == contents
    assert all(difference.read_at for difference in report.differences(Outcome.MISSING))


@pytest.mark.parametrize(
    ("mistakes", "outcome"), [(1, Outcome.MATCH), (10**9, Outcome.NOT_WHOLE)], ids=["once", "each"]
)
async def test_a_look_up_that_is_answered_with_orders_of_other_references(
    tmp_path: Path, mistakes: int, outcome: Outcome
) -> None:
    """It is the response to another query, so it is asked for again: no order is said to be missing because of it."""
    world = World(30, sellers=1, grain=10**9)
    world.plant_other_date("shop-0", "order-999", BEGIN + 9)
    world.freeze()
    mistaken = []

    async def platform(request: Request) -> Response:
        if "external_reference=order-999" in request.url and len(mistaken) < mistakes:
            mistaken.append(request.url)
            request = Request(
                request.method, request.url.replace("order-999", "order-7"), request.headers, request.body
            )
        return await world(request)

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path)

    assert outcome in report.counts
    assert found(report) == ({} if outcome == Outcome.MATCH else {("shop-0", "order-999"): outcome})
    assert 1 <= len(mistaken) <= 5


async def test_a_look_up_of_more_orders_than_are_believed_is_made_once(tmp_path: Path) -> None:
    """A reference that a whole month has: no page shows all of its orders, however often it is asked for."""
    world, calls = World(0), []
    for i in range(120):
        world._show("shop-0", "kiosk", BEGIN - DAY - i, Decimal(5))
    world.plant_absent("shop-0", "kiosk", BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        calls.append(request.url)
        return await world(request)

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path, max_window=100)

    assert {("shop-0", "kiosk"): Outcome.NOT_WHOLE} == found(report)
    assert 1 == sum("external_reference" in url for url in calls)


@pytest.mark.parametrize("first", [5, 15])
async def test_of_two_look_ups_that_show_an_order_the_later_counts(tmp_path: Path, first: int) -> None:
    """It was paid in between: the one before says that it was not, or with another amount."""
    world, searches = World(0), []
    row = world._show("shop-0", "A-1", BEGIN - DAY, Decimal(first))
    for name in ("one", "other"):
        world._book(
            "shop-0", "A-1", BEGIN + 9, order_id=world._order("shop-0", name, "expired", Decimal(0)), total=None
        )
        world.book[-1]["paid"] = Decimal(10)
    world.freeze()

    async def platform(request: Request) -> Response:
        response = await world(request)
        if "external_reference" in request.url:
            searches.append(request.url)
            row.paid = Decimal(10)
            world.now += 5_000
        return response

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path, in_flight=1)

    assert 2 == len(searches)
    assert {Outcome.MATCH: 1, Outcome.MISSING: 1} == report.counts


async def test_a_look_up_with_an_unreadable_amount_compares_the_rest(tmp_path: Path) -> None:
    """In the search and in the order itself: it would count as nothing."""
    world = World(0)
    for reference in ("a", "b", "c"):
        world.plant_other_date("shop-0", reference, BEGIN + 9)
    world.sellers["shop-0"].shown[0].refunded = "much"
    del world.sellers["shop-0"].shown[1:]
    world.book[0]["order_id"] = "ORD-a"
    world.book[1]["order_id"] = world._order("shop-0", "b", "processed", "some")
    world.book[2]["order_id"] = world._order("shop-0", "c", "processed", Decimal("1e-30"))
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {("shop-0", reference): Outcome.NOT_COMPARED for reference in "abc"} == found(report)
    amounts = {
        difference.reference: (difference.paid is None, difference.refunded is None)
        for difference in report.differences()
    }
    assert {"a": (False, True), "b": (True, False), "c": (True, False)} == amounts
    assert all(difference.read_at for difference in report.differences())


async def test_an_order_that_was_paid_is_not_unpaid_because_a_checkout_was_left(tmp_path: Path) -> None:
    """Of a reference with a merchant order that nobody has paid, the order itself says what was paid."""
    world = World(0)
    world._show("shop-0", "A-1", BEGIN + DAY, Decimal(0), status="payment_required")
    order_id = world._order("shop-0", "A-1", "processed", Decimal(9))
    world._book("shop-0", "A-1", BEGIN + DAY, order_id=order_id, paid=Decimal(9), total=None)
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert ({}, 1) == (found(report), report.counts[Outcome.MATCH])


@pytest.mark.parametrize(("minutes", "outcome"), [(16, Outcome.PAID_AMOUNT), (14, Outcome.TOO_RECENT)])
async def test_a_payment_younger_than_the_lag_may_be_shown_later(
    tmp_path: Path, minutes: int, outcome: Outcome
) -> None:
    """Also where the search shows a checkout of its reference that was left."""
    world = World(0)
    world._show("shop-0", "A-1", BEGIN + DAY, Decimal(0), status="payment_required")
    world._book("shop-0", "A-1", END - minutes * MINUTE, total=None)
    world.freeze()

    assert {("shop-0", "A-1"): outcome} == found(await reconciled(world, tmp_path))


async def test_a_payment_that_a_look_up_could_not_see_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """A checkout that was left is shown, and the search counts an order of its reference that it does not show."""
    world = World(0)
    world._show("shop-0", "A-1", BEGIN + DAY, Decimal(0), status="payment_required")
    paid = world._book("shop-0", "A-1", BEGIN + DAY, total=None)
    world.hidden = world._show("shop-0", "A-1", BEGIN - DAY, paid).id
    world.freeze()

    assert {("shop-0", "A-1"): Outcome.NOT_WHOLE} == found(await reconciled(world, tmp_path))


@pytest.mark.parametrize("status", ["created", "expired", "canceled"])
async def test_an_order_is_not_missing_because_the_next_of_its_reference_was_paid(tmp_path: Path, status: str) -> None:
    """A buyer who comes late is sold the same ticket again: the first order is asked for by its id, and is there."""
    world = World(0)
    world.sell_again("shop-0", "ticket-7", status, BEGIN + DAY)

    report = await reconciled(world, tmp_path)

    assert ({}, 2) == (found(report), report.counts[Outcome.MATCH])


async def test_a_paid_order_that_the_book_has_twice_is_no_match(tmp_path: Path) -> None:
    """Its payment stands for one line of the book: two of them would count the money twice."""
    world = World(0)
    world.sell_again("shop-0", "ticket-7", "expired", BEGIN + DAY)
    world.book.append(world.book[-1])

    report = await reconciled(world, tmp_path)

    twice = [(difference.order_id, difference.outcome) for difference in report.differences()]
    assert [("ORD-paid-ticket-7", Outcome.TWICE_IN_BOOK)] == twice


@pytest.mark.parametrize(
    ("code", "outcome"), [("invalid_path_param", Outcome.MISSING), ("bad_request", Outcome.NOT_READ)]
)
async def test_only_an_impossible_id_belongs_to_no_order(tmp_path: Path, code: str, outcome: Outcome) -> None:
    """Any other 400, such as a gateway's, says nothing of the order."""
    world = World(0)
    world.plant_missing("shop-0", "A-1", BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        if "/v1/orders/" in request.url:
            return Response(400, {}, json.dumps({"errors": [{"code": code, "message": "no"}]}).encode())
        return await world(request)

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path)

    assert {("shop-0", "A-1"): outcome} == found(report)


async def test_changes_without_an_end_leave_each_row_at_its_own_time(tmp_path: Path) -> None:
    """Where more changes than a page has come between two calls, no moment is claimed for all rows."""
    world = World(900, sellers=1, grain=10**9)
    world.restless = 150

    report = await reconciled(world, tmp_path)

    assert report.as_of is None
    assert {} == found(report)


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
    assert report.not_whole


async def test_changes_of_orders_that_the_search_no_longer_shows_are_not_known(tmp_path: Path) -> None:
    """A run that goes on after 90 days has what it has read before, and speaks of no moment since."""
    world, created = World(60, grain=10**9), (CREATED[0], CREATED[1] - timedelta(hours=1))

    assert (await reconciled(world, tmp_path, created=created)).as_of
    world.now += 85 * DAY
    report = await reconciled(world, tmp_path, created=created)

    assert {Outcome.MATCH: 60} == report.counts
    assert report.is_same
    assert report.as_of is None


@pytest.mark.parametrize(("minutes", "outcome"), [(16, Outcome.NOT_PAID_OR_MISSING), (14, Outcome.TOO_RECENT)])
async def test_only_what_is_younger_than_the_lag_is_too_recent(tmp_path: Path, minutes: int, outcome: Outcome) -> None:
    """However coarse the date filter is: of a seller without orders, it is taken to be exact to a day."""
    world = World(0)
    world.book.append(
        {"account": "shop-0", "reference": "A-1", "paid": 1, "created": CREATED[1] - timedelta(minutes=minutes)}
    )
    world.freeze()

    assert {("shop-0", "A-1"): outcome} == found(await reconciled(world, tmp_path))


# --- again, and in pieces ---------------------------------------------------------------------------------------------


async def test_a_corrected_book_is_compared_again(tmp_path: Path) -> None:
    """The second run asks only for what has changed and what is absent."""
    world = World(500, grain=10)
    first = await reconciled(world, tmp_path)
    wrong = next(difference for difference in first.differences(Outcome.PAID_AMOUNT) if difference.paid)
    for row in world.book:
        if row["reference"] == wrong.reference:
            row["paid"] = row["total"] = wrong.paid

    second = await reconciled(world, tmp_path)

    assert first.counts[Outcome.PAID_AMOUNT] - 1 == second.counts[Outcome.PAID_AMOUNT]
    assert second.calls < first.calls
    assert not left_behind(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9])
async def test_a_failed_reconciliation_goes_on(tmp_path: Path, share: float) -> None:
    """Whatever it was at, windows that are done are not asked for again."""
    options = {"sellers": 1, "grain": 4}
    world, whole = World(600, **options), (await reconciled(World(600, **options), tmp_path / "whole")).calls
    world.fails_at = int(whole * share)

    with pytest.raises(NoAnswer) if share < 0.5 else contextlib.nullcontext():
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


async def test_rows_that_are_gone_are_not_taken_for_none(tmp_path: Path) -> None:
    """Somebody has deleted files of the run: nothing is compared without them."""
    world, settled = World(60, grain=10**9), (CREATED[0], CREATED[1] - timedelta(hours=1))
    await reconciled(world, tmp_path, created=settled)
    for path in (tmp_path / "parts").iterdir():
        path.unlink()

    with pytest.raises(OSError, match="lacks memory, disk space or a file"):
        await reconciled(world, tmp_path, created=settled)


async def test_a_directory_that_is_named_like_a_pattern(tmp_path: Path) -> None:
    """The relation has the differences of its own run, and not those of one whose name it describes."""
    for name in ("run1", "run[1]"):
        report = await reconciled(World(0), tmp_path / name, Book.rows([{"account": "shop-0", "reference": name}]))

    assert [("run[1]",)] == report.table().select("reference").fetchall()


@pytest.mark.parametrize("name", ["parts/mine.txt", "changes/mine.txt", "comparison-2026/mine.txt", "my.unfinished"])
async def test_files_of_others_are_not_deleted(tmp_path: Path, name: str) -> None:
    """A run deletes what it has left itself: a directory that has such names for something else is not taken."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")

    with contextlib.suppress(RequestInvalid):
        await reconciled(World(9), tmp_path)

    assert path.read_text() == "mine"


async def test_what_a_killed_run_has_left_is_deleted(tmp_path: Path) -> None:
    """The database of its comparison, and a report that it has not finished."""
    unfinished = tmp_path / "differences.parquet.0a1b2c3d.unfinished"
    unfinished.write_text("half of it")
    (tmp_path / "paymentsdk-comparison-abc").mkdir()

    await reconciled(World(9), tmp_path)

    assert ([], False) == (left_behind(tmp_path), unfinished.exists())


async def test_progress_names_the_phase(tmp_path: Path) -> None:
    """Each phase is reported, in order, and ends at 1."""
    steps: list[Progress] = []

    await reconciled(World(600, grain=10), tmp_path, progress=steps.append)

    phases = [step.phase for step in steps]
    assert ["walk", "changes", "look-ups", "comparison"] == sorted(set(phases), key=phases.index)
    assert {1.0} == {step.share for step, after in pairwise([*steps, None]) if not after or after.phase != step.phase}


async def test_progress_is_not_reported_for_each_account(tmp_path: Path) -> None:
    """Up to four times a second, however many sellers there are: each report counts all that is done."""
    steps: list[Progress] = []

    await reconciled(
        World(0, sellers=300),
        tmp_path,
        Book.rows([]),
        accounts=map("shop-{}".format, range(300)),
        progress=steps.append,
    )

    assert len(steps) < 200
    assert ["walk", "changes", "comparison"] == [step.phase for step in steps if step.share == 1]


# --- what comes out ---------------------------------------------------------------------------------------------------


async def test_the_report_as_a_relation_and_a_spreadsheet(tmp_path: Path) -> None:
    """Both have the same differences; nothing of a reference becomes a formula."""
    world = World(0)
    world.plant_extra("shop-0", "=cmd()", BEGIN + 5)
    world.plant_extra("shop-0", "<script>alert(1)</script>", BEGIN + 6)
    world.plant_extra("shop-0", None, BEGIN + 7)
    world.plant_paid_amount("shop-0", "order-1", BEGIN + 8)
    world.freeze()
    report = await reconciled(world, tmp_path)

    report.write_csv(tmp_path / "report.csv")

    assert 4 == len(report.table().fetchall()) == len([*report.differences()])
    lines = [*csv.DictReader((tmp_path / "report.csv").read_text(encoding="utf-8").splitlines())]
    assert {"'=cmd()", "<script>alert(1)</script>", "", "order-1"} == {line["reference"] for line in lines}


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """On a full disk the one of yesterday stays; a private file stays private, a link leads on, a pipe takes it."""
    report = asyncio.run(reconciled(World(300, grain=1), tmp_path / "out"))
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
    assert "order-98" in path.read_text(encoding="utf-8")
    report.write_csv("/dev/null")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="it names no open files")
def test_a_report_goes_to_an_open_file_that_has_no_name(tmp_path: Path) -> None:
    """As `/dev/stdout` of a program whose output somebody collects in one."""
    report = asyncio.run(reconciled(World(300, grain=1), tmp_path / "out"))

    with TemporaryFile(dir=tmp_path) as file:
        report.write_csv(f"/dev/fd/{file.fileno()}")
        file.seek(0)

        assert b"order-98" in file.read()
    assert ["out"] == [path.name for path in tmp_path.iterdir()]


# --- the journal ------------------------------------------------------------------------------------------------------


async def test_open_records_of_the_only_seller_explain_differences(tmp_path: Path) -> None:
    """Also where the client is that of one account, which a book of one seller does not name."""
    world = World(0)
    world.plant_absent("shop-0", "table-7", BEGIN + 9)
    world.plant_absent("shop-0", "table-8", BEGIN + 9)
    world.freeze()
    rows = [{name: value for name, value in row.items() if name != "account"} for row in world.book]
    async with client_of(world, journal=SQLiteJournal(tmp_path / "journal.db")) as client:
        for seller, reference in (("shop-0", "table-7"), ("shop-1", "table-8")):
            with pytest.raises(OutcomeUnknown):
                await client.account(seller).orders.create(order_request(reference), once=f"{reference}/1")
        report = await reconcile(Book.rows(rows), client.account("shop-0"), created=CREATED, out=tmp_path / "out")

    assert {("", "table-7"): Outcome.UNKNOWN, ("", "table-8"): Outcome.NOT_PAID_OR_MISSING} == found(report)


async def test_open_records_explain_differences(tmp_path: Path) -> None:
    """An order whose creation is open is unknown, and the record is handed over; no write is sent."""
    journal = SQLiteJournal(tmp_path / "journal.db")
    world = World(20, sellers=1, grain=10**9)
    world.plant_absent("shop-0", "table-7", BEGIN + 9)
    world.freeze()
    async with client_of(world, journal=journal) as client:
        await client.account("shop-0").merchant_orders.search().first()  # From here on the platform's time is known.
        with pytest.raises(OutcomeUnknown):
            await client.account("shop-0").orders.create(order_request("table-7"), once="table-7/1")
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path / "out")

    assert {("shop-0", "table-7"): Outcome.UNKNOWN} == found(report)
    assert ["table-7/1"] == [record.name for record in report.open_records]
    assert 1 == world.writes


async def test_an_open_cancel_explains_its_own_order_alone(tmp_path: Path) -> None:
    """It names an order and no reference: an order without a reference is extra all the same."""
    world = World(0)
    world.plant_extra("shop-0", None, BEGIN + 9)
    for reference in ("A-1", "A-2"):
        world.plant_missing("shop-0", reference, BEGIN + 9)
    world.freeze()
    async with client_of(world, journal=SQLiteJournal(tmp_path / "journal.db")) as client:
        with pytest.raises(OutcomeUnknown):
            await client.account("shop-0").orders.cancel("ORD-none-A-1", once="A-1/cancel")
        report = await reconcile(Book.rows(world.book), client, created=CREATED, out=tmp_path / "out")

    outcomes = {None: Outcome.EXTRA, "A-1": Outcome.UNKNOWN, "A-2": Outcome.MISSING}
    assert outcomes == {difference.reference: difference.outcome for difference in report.differences()}


async def test_a_record_that_is_closed_while_the_book_is_read_explains_a_difference(tmp_path: Path) -> None:
    """The book has not heard of the refund, and the journal has no open record any more: neither side is wrong."""
    journal = SQLiteJournal(tmp_path / "journal.db")
    async with (
        Sandbox(frozen=True) as sandbox,
        PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, journal=journal) as client,
    ):
        order = await client.orders.create(order_request("table-7"), once="table-7/1")
        sandbox.buyer.pay(order)
        sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.refund", times=1))
        with pytest.raises(OutcomeUnknown):
            await client.with_options(retry=RetryPolicy(attempts=1)).orders.refund(order.id, once="table-7/refund")
        loop = asyncio.get_running_loop()

        def rows() -> Iterator[dict[str, object]]:
            yield {"reference": "table-7", "order_id": order.id, "total": order.total_amount, "refunded": 0}
            asyncio.run_coroutine_threadsafe(client.recover(), loop).result(30)

        begin = sandbox.clock.now() - timedelta(hours=1)
        sandbox.clock.advance("PT20M")
        created = begin, begin + timedelta(hours=1, minutes=1)
        report = await reconcile(Book.rows(rows()), client, created=created, out=tmp_path / "out")

    assert ({("", "table-7"): Outcome.UNKNOWN}, ()) == (found(report), report.open_records)
