"""Subclasses of moments, durations, numbers and texts, as in other libraries, work like plain values.

pandas, pendulum and numpy change arithmetic, comparison and text in their subclasses. The subclasses here do the same.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from inspect import isawaitable
from pathlib import Path
from typing import NoReturn, Self

import pytest

from paymentsdk import OPERATIONS, PaymentsClient, Request, RequestInvalid, Response, RetryPolicy, Timeout
from paymentsdk.journal import RecordState, SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import FakeClock, MemoryTransport

NOW = datetime(2026, 11, 22, 9, 30, 0, 125_000, UTC)


def strange(*arguments: object, **options: object) -> NoReturn:
    """A changed method of a subclass: it fails, or returns an unexpected value."""
    raise TypeError("unsupported operand type(s)")


class Moment(datetime):
    """A moment as in pendulum: differences are not timedeltas, and texts differ."""

    __sub__ = __rsub__ = __add__ = __radd__ = strange
    astimezone = isoformat = __str__ = __format__ = strange

    def date(self) -> NoReturn:
        return strange()

    time = combine = replace = date


class Duration(timedelta):
    """A duration as in pendulum: its days have another meaning."""

    __sub__ = __rsub__ = __add__ = __radd__ = __floordiv__ = __mod__ = __truediv__ = __mul__ = strange
    __lt__ = __le__ = __gt__ = __ge__ = strange

    @property
    def days(self) -> int:
        """Return the days without the weeks."""
        return super().days % 7


class NotATime(datetime):
    """An instance of `datetime` that is no moment, as `pandas.NaT`."""

    def __new__(cls) -> Self:
        return super().__new__(cls, 1, 1, 1)

    year = month = day = hour = minute = second = microsecond = float("nan")
    tzinfo = None

    def utcoffset(self) -> NoReturn:
        raise ValueError("NaTType does not support utcoffset")

    date = time = timestamp = isoformat = astimezone = toordinal = replace = utcoffset

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None
    __lt__ = __le__ = __gt__ = __ge__ = __eq__


class Cents(Decimal):
    """An amount with a different text."""

    __str__ = __format__ = __repr__ = strange


class Float(float):
    """A number as in numpy."""

    __str__ = __repr__ = __format__ = strange


class Number(IntEnum):
    """A number with a name."""

    TWO = 2
    TEN = 10


class Word(StrEnum):
    """A text with a name."""

    TABLE = "table-7"


class Name(str):
    """A text with a different `str()`."""

    __slots__ = ()
    __str__ = __repr__ = __format__ = strange


class Mixed(str, Enum):  # noqa: UP042 - that is what is tried
    """An enum as before `StrEnum`: its `str()` is its name."""

    TABLE = "table-7"


DAY = timedelta(days=1)
TOKEN = "TEST-1-112412-x-111"
#: The values for a door: a plain value, and subclasses with the same meaning.
MOMENTS = NOW, [Moment(*NOW.timetuple()[:6], NOW.microsecond, UTC)]
SOON = NOW + DAY / 24
LATER = SOON, [Moment(*SOON.timetuple()[:6], SOON.microsecond, UTC)]
LENGTHS = timedelta(minutes=5), [Duration(minutes=5)]
AMOUNTS = Decimal("10.50"), [Cents("10.50")]
SECONDS = 2.5, [Float(2.5)]
COUNTS = 10, [Number.TEN]
WORDS = "table-7", [Word.TABLE, Name("table-7"), Mixed.TABLE]


class Platform:
    """An empty platform that accepts all requests, and keeps them."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    def __call__(self, request: Request) -> Response:
        self.sent.append((request.method, request.url, request.body, request.headers.get("X-Idempotency-Key")))
        if request.method == "POST":
            return Response(201, {}, json.dumps({"init_point": "x", **json.loads(request.body), "id": "1"}).encode())
        page = b'{"elements":[],"results":[],"paging":{"total":0},"total":0}'
        body = page if "search" in request.url else b'{"id":"table-7"}'
        return Response(200, {"Date": "Sun, 22 Nov 2026 09:30:00 GMT"}, body)


class Doors:
    """Calls that take a value of the caller, named after the argument."""

    def __init__(self, out: Path) -> None:
        self.out, self.platform = out, Platform()

    def client(self, **options: object) -> PaymentsClient:
        options = {"access_token": TOKEN, "retry": RetryPolicy(attempts=1), **options}
        clock = FakeClock(NOW.timestamp())
        return PaymentsClient(base_url="https://x", transport=MemoryTransport(self.platform), clock=clock, **options)

    def order(self, reference: str = "r", amount: object = Decimal("10.50"), **more: object) -> OrderRequest:
        parts = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
        return OrderRequest(external_reference=reference, total_amount=amount, transactions=parts, **more)

    def search(self, **search: object) -> Awaitable[object]:
        return self.client().merchant_orders.search(**search).collect()

    def create(self, *, expiration_time: str | None = None, **options: object) -> Awaitable[object]:
        return self.client().orders.create(self.order(expiration_time=expiration_time), **options)

    def keyed(self, order: OrderRequest) -> Awaitable[object]:
        return self.client().orders.create(order, idempotency_key="k")

    async def once(self, **options: object) -> None:
        async with self.client(journal=SQLiteJournal(f"{self.out}-journal")) as client:
            await client.orders.create(self.order(), **{"once": "t/1", **options})
            [record] = await client.journal.records(list(RecordState))
            self.platform.sent = [record.name, record.not_after]  # Its key is random.

    def get(self, order_id: object = "table-7", **options: object) -> Awaitable[object]:
        return self.client(**options).call(OPERATIONS["orders.get"], order_id=order_id)

    def declaration(self, length: object) -> None:
        self.platform.sent.append(replace(OPERATIONS["orders.create"], resend_window=length).resend_window)


DOORS = {
    "date_created_from": (MOMENTS, lambda doors, value: doors.search(date_created_from=value)),
    "first_sent_at": (MOMENTS, lambda doors, value: doors.create(idempotency_key="k", first_sent_at=value)),
    "not_after=moment": (LATER, lambda doors, value: doors.once(not_after=value)),
    "resend_window": (LENGTHS, Doors.declaration),
    "amount": (AMOUNTS, lambda doors, value: doors.keyed(doors.order(amount=value))),
    "timeout": (SECONDS, lambda doors, value: doors.get(timeout=Timeout(total=value, attempt=value))),
    "page_size": (COUNTS, lambda doors, value: doors.search(page_size=value)),
    "order_id": (WORDS, Doors.get),
    "reference": (WORDS, lambda doors, value: doors.keyed(doors.order(value))),
    "once": (WORDS, lambda doors, value: doors.once(once=value)),
}


async def taken(door: Callable[[Doors, object], object], doors: Doors, value: object) -> None:
    """Pass *value* to *door*, and await the result if needed."""
    call = door(doors, value)
    if isawaitable(call):
        await call


async def passed(door: Callable[[Doors, object], object], value: object, out: Path) -> list[object]:
    """Return the requests after *value* was passed to *door*."""
    doors = Doors(out)
    await taken(door, doors, value)
    assert doors.platform.sent
    return doors.platform.sent


@pytest.mark.parametrize("name", DOORS)
async def test_a_subclass_is_taken_for_what_it_is(tmp_path: Path, name: str) -> None:
    """The platform gets the same bytes for a subclass with changed methods as for a plain value."""
    (plain, variants), door = DOORS[name]
    expected = await passed(door, plain, tmp_path / "plain")

    for number, variant in enumerate(variants):
        assert expected == await passed(door, variant, tmp_path / f"{number}")


@pytest.mark.parametrize("name", [name for name, (values, _) in DOORS.items() if values in (MOMENTS, LATER, LENGTHS)])
async def test_what_is_no_moment_is_rejected(tmp_path: Path, name: str) -> None:
    """`pandas.NaT` is an instance of `datetime`, but no moment: nothing is sent."""
    doors = Doors(tmp_path)
    with pytest.raises(RequestInvalid, match=r"must be|expected|is a|no JSON form"):
        await taken(DOORS[name][1], doors, NotATime())

    assert [] == [sent for sent in doors.platform.sent if sent[0] == "POST"]
