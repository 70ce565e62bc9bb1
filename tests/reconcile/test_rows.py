"""Single rows that cannot be read or compared, or that the book has twice: the report says so, and no more."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow.parquet
import pytest
from msgspec.structs import replace

from paymentsdk import Request, RequestInvalid, Response
from paymentsdk.reconcile import Book, Outcome, Report, reconcile
from paymentsdk.testing import MemoryTransport
from tests.reconcile.planted import BEGIN, CREATED, World
from tests.reconcile.platform import DAY
from tests.reconcile.test_reconcile import client_of, found, reconciled


async def answered(
    world: World, out: Path, answer: Callable[[Request], Awaitable[Response]], **options: object
) -> Report:
    """Reconcile the book of *world* with a platform that answers otherwise."""
    async with client_of(world, transport=MemoryTransport(answer)) as client:
        return await reconcile(Book.rows(world.book), client, created=CREATED, out=out, **options)


# --- a look-up that is rejected ---------------------------------------------------------------------------------------

REJECTED = {
    "external_reference=order-300": 400,
    "external_reference=order-301": 500,
    "/v1/orders/ORD-none-order-302": 403,
    "/v1/orders/ORD-none-order-303": 404,
}


async def test_a_look_up_that_is_rejected_leaves_the_others_alone(tmp_path: Path) -> None:
    """That row could not be read, and says why. The next run asks for it again; a 404 is an answer."""
    world = World(60, sellers=1, grain=10**9)
    for i in range(300, 305):
        world.plant_missing("shop-0", f"order-{i}", BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        statuses = [status for part, status in REJECTED.items() if part in request.url]
        return Response(statuses[0], {}, b"{}") if statuses else await world(request)

    first = await answered(world, tmp_path, platform)

    missing = {("shop-0", f"order-{i}"): Outcome.MISSING for i in range(300, 305)}
    unread = {difference.reference: difference.reason[:3] for difference in first.differences(Outcome.NOT_READ)}
    assert {"order-300": "400", "order-301": "500", "order-302": "403"} == unread
    assert missing == found(first) | {("shop-0", reference): Outcome.MISSING for reference in unread}
    assert (False, {}) == (first.is_same, first.failed)
    assert missing == found(await reconciled(world, tmp_path))


async def test_an_amount_behind_an_entry_that_is_no_order_is_not_nothing(tmp_path: Path) -> None:
    """The entry has no row, so the amount that cannot be read is in an earlier row than its place in the page."""
    world = World(30, sellers=1, grain=10**9)
    rows = world.sellers["shop-0"].shown
    rows[2].refunded = "much"

    async def platform(request: Request) -> Response:
        response = await world(request)
        return replace(response, body=response.body.replace(b'"elements":[{', b'"elements":["no order",{'))

    assert {("shop-0", rows[2].reference): Outcome.NOT_COMPARED} == found(await answered(world, tmp_path, platform))


async def test_a_reference_of_too_many_orders_is_looked_up_once(tmp_path: Path) -> None:
    """Totals of this size are not trusted, so another call would not help."""
    world, calls = World(1, sellers=1), 0
    world.plant_missing("shop-0", "order-300", BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        nonlocal calls
        if "order-300" not in request.url:
            return await world(request)
        calls += 1
        return Response(200, {}, b'{"elements":[],"total":1000}')

    report = await answered(world, tmp_path, platform)

    assert ({("shop-0", "order-300"): Outcome.NOT_WHOLE}, 1) == (found(report), calls)


@pytest.mark.parametrize(("orders", "answered_one", "unread"), [(10, "", 10), (11, "", 41), (12, "order-305", 11)])
async def test_a_seller_whose_orders_all_stay_silent_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orders: int, answered_one: str, unread: int
) -> None:
    """After ten look-ups in a row without a response, further ones would only take time."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", map(float, count()).__next__)  # All steps are reported.
    shares: list[float] = []
    world = World(60, sellers=2, grain=10**9)
    for i in range(orders):
        world.plant_missing("shop-0", f"order-{300 + i}", BEGIN + 9)
    world.freeze()

    async def platform(request: Request) -> Response:
        if "external_reference" in request.url and (not answered_one or answered_one not in request.url):
            raise ConnectionError
        return await world(request)

    report = await answered(world, tmp_path, platform, progress=lambda step: shares.append(step.share))

    assert 1 == max(shares)
    assert (["shop-0"] if unread > orders else []) == [*report.failed]
    assert unread == report.counts[Outcome.NOT_READ]


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [("reference", "A\0 1", "rows"), ("order_id", "x" * 8_001, "csv"), ("reference", "é" * 1_334, "rows")],
    ids=["null", "long", "long in a URL"],
)
async def test_what_no_url_takes_is_rejected_as_the_book_is_read(
    tmp_path: Path, name: str, value: str, form: str
) -> None:
    """With its row, and before a call is made."""
    world = World(0)
    world.book = [{"reference": "A-0"}, {"reference": "A-1", name: value}]
    book = Book.rows(world.book)
    if form == "csv":
        lines = ["reference,order_id", "A-0,", f"{world.book[1]['reference']},{world.book[1].get('order_id', '')}"]
        (tmp_path / "book.csv").write_text("\n".join(lines), encoding="utf-8")
        book = Book.csv(tmp_path / "book.csv")

    with pytest.raises(RequestInvalid, match=rf"book\[1\]\.{name}: must be .* without a null character") as caught:
        await reconciled(world, tmp_path / "run", book)

    assert 300 > len(str(caught.value))
    assert 0 == world.calls


# --- what the book has twice ------------------------------------------------------------------------------------------


def twice(world: World, **more: object) -> None:
    """Append a second line of the last."""
    world.book.append({**world.book[-1], **more})


async def test_an_order_that_the_book_has_twice_is_named(tmp_path: Path) -> None:
    """Its money is counted once, and the row names the other line: wherever its order was found."""
    world = World(9, sellers=1, grain=10**9)
    for place in ("walked", "another-day", "by-id-alone"):
        paid = world._book("shop-0", place, BEGIN + DAY)
        if place != "by-id-alone":
            world._show("shop-0", place, BEGIN + DAY if place == "walked" else BEGIN - DAY, paid)
        if place != "walked":
            world.book[-1]["order_id"] = order_id = world._order("shop-0", place, "processed", paid)
            world.sellers["shop-0"].by_id[order_id]["total_amount"] = str(paid)
        twice(world)
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {Outcome.MATCH: 12, Outcome.TWICE_IN_BOOK: 3} == report.counts
    reasons = {difference.reference: difference.reason for difference in report.differences()}
    for line, place in ((9, "walked"), (11, "another-day"), (13, "by-id-alone")):
        assert reasons[place] in {f"book[{i}] is about the same order" for i in (line, line + 1)}
    assert not report.is_same


#: What a second line has otherwise: by its amounts, its seller, its date or its id.
DIFFERENT = {
    "paid": {"paid": Decimal(1)},
    "total": {"total": Decimal(1)},
    "currency": {"currency": "USD"},
    "account": {"account": "shop-1"},
    "created": {"created": CREATED[0] + timedelta(days=2)},
    "id": {"order_id": "ORD-none"},
    "reference": {"reference": "another"},
}


async def test_a_line_that_differs_is_about_another_order(tmp_path: Path) -> None:
    """Money that is missing is not called a mistake of the book; nor are as many orders as lines one."""
    world = World(0)
    for name, line in {**DIFFERENT, "the same": {}}.items():
        paid = world._book("shop-0", name, BEGIN + DAY, order_id=f"ORD-{name}")
        twice(world, **{"order_id": None, **line})
        for _ in range(1 if line else 2):
            world._show("shop-0", name, BEGIN + DAY, paid)
    world.freeze()

    report = await reconciled(world, tmp_path)

    absent = Outcome.NOT_PAID_OR_MISSING
    assert {Outcome.MATCH: 9, absent: 6, Outcome.MISSING: 1} == report.counts
    assert {"another" if name == "reference" else name for name in DIFFERENT} == {
        row.reference for row in report.differences()
    }


# --- amounts that cannot be compared ----------------------------------------------------------------------------------


#: What the platform sends for an amount, and whether its order is walked.
UNREADABLE = {
    "total-1": (None, True),
    "paid-1": (None, True),
    "paid-2": ("abc", False),
    "refunded-1": ("10,00", False),
    "total-2": (["1"], False),
}


def changed(world: World, members: Callable[[str], dict[str, object]]) -> Callable[[Request], Awaitable[Response]]:
    """A platform that sends some *members* of the order of each reference otherwise."""

    async def platform(request: Request) -> Response:
        response = await world(request)
        body = json.loads(response.body)
        for row in body.get("elements", ()):
            row.update(members(row["external_reference"]))
        return Response(response.status, response.headers, json.dumps(body).encode())

    return platform


async def test_an_amount_that_cannot_be_read_is_no_match(tmp_path: Path) -> None:
    """It is named. An absent total is not known, and absent payments and refunds are 0."""
    world = World(0)
    for reference, (_, is_walked) in UNREADABLE.items():
        (world.plant_match if is_walked else world.plant_other_date)("shop-0", reference, BEGIN + DAY)
    world._book("shop-0", "paid-3", BEGIN + DAY, order_id=world._order("shop-0", "paid-3", "processed", "abc"))
    world.freeze()

    report = await answered(
        world, tmp_path, changed(world, lambda name: {f"{name.partition('-')[0]}_amount": UNREADABLE[name][0]})
    )

    assert {Outcome.NOT_COMPARED: 5, Outcome.PAID_AMOUNT: 1} == report.counts
    for difference in report.differences(Outcome.NOT_COMPARED):
        name = difference.reference.partition("-")[0]
        assert f"the platform has no readable amount for: {name}" == difference.reason
        assert getattr(difference, name) is None
    assert not report.is_same


async def test_a_currency_is_that_of_a_payment_or_an_item(tmp_path: Path) -> None:
    """The first that is named, and that of the first payment before all."""
    euro, dollar = {"currency_id": "EUR"}, {"currency_id": "USD"}
    parts = [[[euro, dollar], [dollar]], [[{}, euro], [dollar]], [None, [{}, euro]], [None, None]]
    members = {f"extra-{i}": {"payments": pair[0], "items": pair[1]} for i, pair in enumerate(parts)}
    world = World(1, sellers=1)
    for reference in members:
        world.plant_extra("shop-0", reference, BEGIN + DAY)
    world.freeze()

    report = await answered(world, tmp_path, changed(world, lambda name: members.get(name, {})))

    assert ["EUR", "EUR", "EUR", None] == [difference.currency for difference in report.differences(Outcome.EXTRA)]


async def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its files do not name the amounts that could not be read: there are none in windows that are whole."""
    world, settled = World(60, grain=10**9), (CREATED[0], CREATED[1] - timedelta(hours=1))
    first = await reconciled(world, tmp_path, created=settled)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
        members = json.loads(*ledger.execute("SELECT question FROM run").fetchone())
    assert ["created", "accounts", "lag", "max_window", "base_url", "seller"] == [*members]
    for path in (tmp_path / "parts").iterdir():
        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.drop_columns(["unread"]), path)

    second = await reconciled(world, tmp_path, created=settled)

    assert {Outcome.MATCH: 60} == first.counts == second.counts
    assert second.calls < first.calls


# --- what a spreadsheet makes of a book -------------------------------------------------------------------------------


#: References as a spreadsheet leaves them, each with the beginning of the hint.
CHANGED = {
    "1.23457E+12": "a spreadsheet has shortened the reference; format its column as text",
    " A-1 ": "the reference has spaces around it; remove them",
    "A-1": None,
    "1E12": None,
}


async def test_a_reference_that_a_spreadsheet_has_changed_is_recognised(tmp_path: Path) -> None:
    """Only where no order has it: the report says what it looks like, in which row, and what to do."""
    world = World(0)
    for reference in CHANGED:
        world._book("shop-0", reference, BEGIN + DAY)
    world.plant_match("shop-0", "A-2E+1 ", BEGIN + DAY)
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {Outcome.MATCH: 1, Outcome.NOT_PAID_OR_MISSING: len(CHANGED)} == report.counts
    for difference in report.differences():
        hint, line = CHANGED[difference.reference], [*CHANGED].index(difference.reference)
        assert (difference.reason or "").startswith(f"book[{line}]: {hint}" if hint else "")
        assert bool(hint) == bool(difference.reason)
