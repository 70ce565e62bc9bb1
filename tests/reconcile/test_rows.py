"""Single rows that cannot be read or compared, or that the book has twice: the report says so, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from paymentsdk import Request, RequestInvalid, Response
from paymentsdk.reconcile import Book, Outcome, Report, reconcile
from paymentsdk.testing import MemoryTransport
from tests.reconcile.planted import BEGIN, CREATED, World
from tests.reconcile.platform import DAY
from tests.reconcile.test_reconcile import client_of, found, reconciled


async def rejecting(world: World, out: Path, status: int, *parts: str, body: bytes = b"{}") -> Report:
    """Reconcile the book of *world* with a platform that rejects the calls with one of *parts* in their URL."""

    async def platform(request: Request) -> Response:
        if any(part in request.url for part in parts):
            return Response(status, {}, body)
        return await world(request)

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        return await reconcile(Book.rows(world.book), client, created=CREATED, out=out)


# --- a look-up that is rejected ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "status"),
    [
        ("external_reference=order-300", 400),
        ("external_reference=order-300", 500),
        ("/v1/orders/ORD-none-order-300", 403),
        ("/v1/orders/ORD-none-order-300", 404),
    ],
)
async def test_a_look_up_that_is_rejected_leaves_the_others_alone(tmp_path: Path, part: str, status: int) -> None:
    """That row could not be read, and says why. The next run asks for it again."""
    world = World(60, sellers=1, grain=10**9)
    for i in (300, 301):
        world.plant_missing("shop-0", f"order-{i}", BEGIN + 9)
    world.freeze()
    is_answer = status == 404 and "orders" in part and "reference" not in part

    first = await rejecting(world, tmp_path, status, part)

    missing = {("shop-0", f"order-{i}"): Outcome.MISSING for i in (300, 301)}
    assert (missing if is_answer else {**missing, ("shop-0", "order-300"): Outcome.NOT_READ}) == found(first)
    reasons = [difference.reason for difference in first.differences(Outcome.NOT_READ)]
    assert all(reason and (status == 200 or str(status) in reason) for reason in reasons)
    assert not first.is_same
    assert {} == first.failed
    assert missing == found(await reconciled(world, tmp_path))


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


@pytest.mark.parametrize(("place", "has_id"), [("walked", False), ("another day", True), ("by id alone", True)])
async def test_an_order_that_the_book_has_twice_is_named(tmp_path: Path, place: str, *, has_id: bool) -> None:
    """Its money is counted once, and the row names the other line."""
    world = World(9, sellers=1, grain=10**9)
    paid = world._book("shop-0", "A-1", BEGIN + DAY)
    if place != "by id alone":
        world._show("shop-0", "A-1", BEGIN + DAY if place == "walked" else BEGIN - DAY, paid)
    if has_id or place == "by id alone":
        world.book[-1]["order_id"] = order_id = world._order("shop-0", "A-1", "processed", paid)
        world.sellers["shop-0"].by_id[order_id]["total_amount"] = str(paid)
    twice(world)
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {Outcome.MATCH: 10, Outcome.TWICE_IN_BOOK: 1} == report.counts
    [difference] = report.differences()
    assert ("A-1", True) == (
        difference.reference,
        difference.reason in {f"book[{i}] is about the same order" for i in (9, 10)},
    )
    assert not report.is_same


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ({"paid": Decimal(1)}, Outcome.NOT_PAID_OR_MISSING),
        ({"total": Decimal(1)}, Outcome.NOT_PAID_OR_MISSING),
        ({"currency": "USD"}, Outcome.NOT_PAID_OR_MISSING),
        ({"account": "shop-1"}, Outcome.NOT_PAID_OR_MISSING),
        ({"created": CREATED[0] + timedelta(days=2)}, Outcome.NOT_PAID_OR_MISSING),
        ({"order_id": "ORD-none"}, Outcome.MISSING),
        ({"reference": "A-2"}, Outcome.NOT_PAID_OR_MISSING),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_a_line_that_differs_is_about_another_order(tmp_path: Path, line: dict, outcome: Outcome) -> None:
    """By its amounts, its seller, its date or its id: money that is missing is not called a mistake of the book."""
    world = World(0)
    paid = world._book("shop-0", "A-1", BEGIN + DAY, order_id="ORD-1")
    world._show("shop-0", "A-1", BEGIN + DAY, paid)
    twice(world, **{"order_id": None, **line})
    world.freeze()

    report = await reconciled(world, tmp_path)

    assert {Outcome.MATCH: 1, outcome: 1} == report.counts


async def test_as_many_orders_as_lines_are_no_mistake(tmp_path: Path) -> None:
    """A table that pays the same twice a day."""
    world = World(0)
    paid = world._book("shop-0", "A-1", BEGIN + DAY)
    twice(world)
    for _ in range(2):
        world._show("shop-0", "A-1", BEGIN + DAY, paid)
    world.freeze()

    assert {Outcome.MATCH: 2} == (await reconciled(world, tmp_path)).counts


# --- amounts that cannot be compared ----------------------------------------------------------------------------------


async def amended(world: World, out: Path, amend: Callable[[dict], object]) -> Report:
    """Reconcile the book of *world* with a platform that changes each row that it shows."""

    async def platform(request: Request) -> Response:
        response = await world(request)
        body = json.loads(response.body)
        for row in body.get("elements", ()):
            amend(row)
        text = json.dumps(body).replace('"1e400"', "1e400")
        return Response(response.status, response.headers, text.encode())

    async with client_of(world, transport=MemoryTransport(platform)) as client:
        return await reconcile(Book.rows(world.book), client, created=CREATED, out=out)


@pytest.mark.parametrize(
    ("is_walked", "name", "value"),
    [
        (True, "total", None),
        (True, "paid", None),
        (True, "paid", "abc"),
        (False, "refunded", "10,00"),
        (False, "total", ["1"]),
    ],
)
async def test_an_amount_that_cannot_be_read_is_no_match(
    tmp_path: Path, value: object, name: str, *, is_walked: bool
) -> None:
    """It is named. An absent total is not known, and absent payments and refunds are 0."""
    world = World(0)
    (world.plant_match if is_walked else world.plant_other_date)("shop-0", "A-1", BEGIN + DAY)
    world.freeze()

    report = await amended(world, tmp_path, lambda row: row.update({f"{name}_amount": value}))

    if value is None and name != "total":
        assert [Outcome.PAID_AMOUNT if name == "paid" else Outcome.MATCH] == [*report.counts]
        return
    assert {Outcome.NOT_COMPARED: 1} == report.counts
    [difference] = report.differences()
    assert f"the platform has no readable amount for: {name}" == difference.reason
    assert getattr(difference, name) is None
    assert not report.is_same


async def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its files do not name the amounts that could not be read: there are none in windows that are whole."""
    world, settled = World(60, grain=10**9), (CREATED[0], CREATED[1] - timedelta(hours=1))
    first = await reconciled(world, tmp_path, created=settled)
    for path in (tmp_path / "parts").iterdir():
        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.drop_columns(["unread"]), path)

    second = await reconciled(world, tmp_path, created=settled)

    assert {Outcome.MATCH: 60} == first.counts == second.counts
    assert second.calls < first.calls


# --- what a spreadsheet makes of a book -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("1.23457E+12", "a spreadsheet has shortened the reference; format its column as text"),
        (" A-1 ", "the reference has spaces around it; remove them"),
        ("A-1", None),
        ("1E12", None),
    ],
)
async def test_a_reference_that_a_spreadsheet_has_changed_is_recognised(
    tmp_path: Path, reference: str, hint: str | None
) -> None:
    """Only where no order has it: the report says what it looks like, in which row, and what to do."""
    world = World(1, sellers=1, grain=10**9)
    world._book("shop-0", reference, BEGIN + DAY)
    world.plant_match("shop-0", f"{reference}E+1 ", BEGIN + DAY)
    world.freeze()

    [difference] = (await reconciled(world, tmp_path)).differences()

    assert Outcome.NOT_PAID_OR_MISSING == difference.outcome
    assert (None if hint is None else f"book[1]: {hint}") == (
        difference.reason and difference.reason[: len(f"book[1]: {hint}")]
    )


@pytest.mark.parametrize(
    "text",
    ["reference;paid\nA-1;10,50\n", "reference\tpaid\nA-1\t10,50\n"],
)
async def test_a_book_with_semicolons_or_tabs_says_so(tmp_path: Path, text: str) -> None:
    """Spreadsheets of many countries save such files."""
    (tmp_path / "book.csv").write_text(text, encoding="utf-8")

    with pytest.raises(
        RequestInvalid, match=r"separated by '(;|\\t)'\? save the file with commas, and amounts such as 10.50"
    ):
        await reconciled(World(0), tmp_path / "run", Book.csv(tmp_path / "book.csv"))
