"""A book and a platform with planted differences, and what a reconciliation has to say about each order."""

from __future__ import annotations

import json
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import parse_qsl, unquote, urlsplit

from paymentsdk import Request, Response
from paymentsdk.reconcile import BookRow, Outcome
from tests.reconcile.platform import DAY, NOW, moment_of
from tests.reconcile.served import answer, asked_moment

#: Ten days, of which the last hours have not settled.
BEGIN, END = NOW - 10 * DAY, NOW
CREATED = (moment_of(BEGIN), moment_of(END))
PAGE = 100
MINUTE = 60_000


@dataclass
class Shown:
    """A merchant order."""

    id: int
    created: int
    reference: str | None
    paid: Decimal
    refunded: Decimal = Decimal(0)
    currency: str = "EUR"
    total: Decimal | None = None
    status: str = "paid"
    updated: int = 0

    def as_json(self) -> str:
        """As the platform sends it."""
        return json.dumps(
            {
                "id": self.id,
                "status": "opened" if self.status == "payment_required" else "closed",
                "order_status": self.status,
                "external_reference": self.reference,
                "date_created": moment_of(self.created).isoformat(timespec="milliseconds"),
                "last_updated": moment_of(self.updated or self.created).isoformat(timespec="milliseconds"),
                "total_amount": float(self.paid if self.total is None else self.total),
                "paid_amount": float(self.paid),
                "refunded_amount": float(self.refunded) if isinstance(self.refunded, Decimal) else self.refunded,
                "payments": [{"id": self.id, "currency_id": self.currency}],
            }
        )


@dataclass
class Seller:
    """The orders of a seller on the platform."""

    shown: list[Shown] = field(default_factory=list)
    by_id: dict[str, dict] = field(default_factory=dict)

    def freeze(self) -> None:
        """Sort them, once all are there."""
        self.shown.sort(key=lambda order: order.created)
        self.dates = [order.created for order in self.shown]
        self.by_reference: dict[str, list[Shown]] = {}
        for row in self.shown:
            self.by_reference.setdefault(row.reference or "", []).append(row)


class World:
    """Sellers, the book about them, and what is to be found.

    Args:
        rows: Orders of the book, about.
        sellers: How many sellers.
        seed: Of everything.
        grain: How many orders there are of each planted kind: 1 in *grain*.
    """

    def __init__(self, rows: int, sellers: int = 3, seed: int = 1, grain: int = 40) -> None:
        self.chance = random.Random(seed)
        self.sellers = {f"shop-{i}": Seller() for i in range(sellers)}
        self.book: list[BookRow] = []
        self.expected: dict[tuple[str, str | None], Outcome] = {}
        self.now = NOW
        self.calls = 0
        self._ids = 10**10
        #: What is refunded as soon as a walk has read the order.
        self.late: dict[int, Decimal] = {}
        #: An order that every total counts, and no page shows.
        self.hidden = 0
        #: A call that fails, once.
        self.fails_at = 0
        self.writes = 0
        kinds = [kind for kind in vars(World) if kind.startswith("plant_")]
        for i in range(rows):
            kind = "plant_match" if i % grain else kinds[i // grain % len(kinds)]
            name = f"shop-{i % sellers}"
            getattr(self, kind)(name, f"order-{i}", self._date(i))
        self.freeze()

    def freeze(self) -> None:
        """Have the sellers show what there is."""
        for seller in self.sellers.values():
            seller.freeze()

    # --- what is planted ----------------------------------------------------------------------------------------------

    def plant_match(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created)

    def plant_refunded(self, name: str, reference: str, created: int) -> None:
        part = self.chance.choice([Decimal("1.10"), None])
        row = self._agree(name, reference, created)
        row.refunded = row.paid if part is None else part
        row.status = "reverted" if part is None else "paid"
        self.book[-1] |= {"refunded": row.refunded, "status": "refunded"}

    def plant_paid_amount(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created).paid += self.chance.choice([Decimal("0.01"), Decimal(-1)])
        self._differs(name, reference, Outcome.PAID_AMOUNT)

    def plant_total(self, name: str, reference: str, created: int) -> None:
        row = self._agree(name, reference, created)
        row.total = row.paid + 1
        self._differs(name, reference, Outcome.TOTAL_AMOUNT)

    def plant_refunded_amount(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created).refunded = Decimal("0.50")
        self._differs(name, reference, Outcome.REFUNDED_AMOUNT)

    def plant_unrefunded(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created)
        self.book[-1]["refunded"] = Decimal("2.00")
        self._differs(name, reference, Outcome.REFUNDED_AMOUNT)

    def plant_currency(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created).currency = "USD"
        self._differs(name, reference, Outcome.CURRENCY)

    def plant_status(self, name: str, reference: str, created: int) -> None:
        self._agree(name, reference, created).status = "reverted"
        self._differs(name, reference, Outcome.STATUS)

    def plant_double(self, name: str, reference: str, created: int) -> None:
        row = self._agree(name, reference, created)
        self._show(name, reference, min(created + self.chance.randrange(DAY), END - 1), row.paid)
        self._differs(name, reference, Outcome.DOUBLE)

    def plant_double_outside(self, name: str, reference: str, created: int) -> None:
        """Both were paid outside of the window, and the walk sees neither."""
        paid = self._book(name, reference, created)
        for _ in range(2):
            self._show(name, reference, self._outside(), paid)
        self._differs(name, reference, Outcome.DOUBLE)

    def plant_twice_in_both(self, name: str, reference: str, created: int) -> None:
        for _ in range(2):
            self._agree(name, reference, created)

    def plant_same_amount_twice(self, name: str, reference: str, created: int) -> None:
        """Orders that only their totals tell apart, in another order on each side, and one that differs by a cent."""
        paid = Decimal("4.10")
        for i, total in enumerate((Decimal(9), Decimal(5))):
            self._book(name, reference, created, paid=paid, total=Decimal(14) - total)
            self._show(name, reference, created - i, paid, total=total)
        self._book(name, reference, created, paid=paid, total=Decimal(20))
        self._show(name, reference, created, paid + Decimal("0.01"), total=Decimal(20))
        self._differs(name, reference, Outcome.PAID_AMOUNT)

    def plant_unpaid_besides(self, name: str, reference: str, created: int) -> None:
        """A checkout that was opened, and one that was paid."""
        self._agree(name, reference, created)
        self._show(name, reference, created + 1, Decimal(0), status="payment_required", total=Decimal(5))

    def plant_missing(self, name: str, reference: str, created: int) -> None:
        self._book(name, reference, created, order_id=f"ORD-none-{reference}")
        self._differs(name, reference, Outcome.MISSING)

    def plant_absent(self, name: str, reference: str, created: int) -> None:
        self._book(name, reference, created)
        self._differs(name, reference, Outcome.NOT_PAID_OR_MISSING)

    def plant_extra(self, name: str, reference: str, created: int) -> None:
        self._show(name, reference, created, Decimal(7))
        self.expected[name, reference] = Outcome.EXTRA

    def plant_unpaid(self, name: str, reference: str, created: int) -> None:
        """Unpaid, expired and canceled orders never enter the search."""
        status = self.chance.choice(["created", "expired", "canceled"])
        order_id = self._order(name, reference, status, Decimal(0)) if self.chance.random() < 0.7 else None
        self._book(name, reference, created, order_id=order_id, paid=Decimal(0), status=status)

    def plant_expired_but_paid_in_book(self, name: str, reference: str, created: int) -> None:
        self._book(name, reference, created, order_id=self._order(name, reference, "expired", Decimal(0)))
        self._differs(name, reference, Outcome.PAID_AMOUNT)

    def plant_opened_only(self, name: str, reference: str, created: int) -> None:
        self._show(name, reference, created, Decimal(0), status="payment_required", total=Decimal(5))
        self._book(name, reference, created)
        self.book[-1]["total"] = None
        self._differs(name, reference, Outcome.PAID_AMOUNT)

    def plant_other_date(self, name: str, reference: str, created: int) -> None:
        """Made in the window, by the book, and outside of it by the platform: only its reference finds it."""
        self._show(name, reference, self._outside(), self._book(name, reference, created))

    def plant_made_before(self, name: str, reference: str, created: int) -> None:
        """Made before the window, and paid in it: it is no extra, and no order of this window's book."""
        self._show(name, reference, BEGIN + self.chance.randrange(DAY), self._book(name, reference, BEGIN - 1))

    def plant_other_day(self, name: str, reference: str, created: int) -> None:
        """Neither side is about this window."""
        self._book(name, reference, BEGIN - DAY)
        self._show(name, f"{reference}-other", self._outside(), Decimal(3))

    def plant_too_recent(self, name: str, reference: str, created: int) -> None:
        self._book(name, reference, NOW - MINUTE - self.chance.randrange(600_000))
        self._differs(name, reference, Outcome.TOO_RECENT)

    def plant_recent_extra(self, name: str, reference: str, created: int) -> None:
        self._show(name, reference, NOW - MINUTE - self.chance.randrange(600_000), Decimal(3))
        self.expected[name, reference] = Outcome.TOO_RECENT

    def plant_late_refund(self, name: str, reference: str, created: int) -> None:
        """Refunded just after the walk has read it; half of the books know."""
        row = self._agree(name, reference, created)
        self.late[row.id] = Decimal("0.75")
        if self.chance.random() < 0.5:
            self.book[-1]["refunded"] = Decimal("0.75")
        else:
            self._differs(name, reference, Outcome.REFUNDED_AMOUNT)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _date(self, i: int) -> int:
        span = END - BEGIN - 9 * 3_600_000
        burst = (i % 30) * span // 30 + self.chance.randrange(60_000)
        return BEGIN + 1_000 + (burst if i % 2 else self.chance.randrange(span))

    def _outside(self) -> int:
        return BEGIN - 1_000 - self.chance.randrange(DAY)

    def _agree(self, name: str, reference: str, created: int) -> Shown:
        order_id = f"ORD-{reference}" if self.chance.random() < 0.5 else None
        return self._show(name, reference, created, self._book(name, reference, created, order_id=order_id))

    def _differs(self, name: str, reference: str, outcome: Outcome) -> None:
        self.expected[name, reference] = outcome

    def _book(self, name: str, reference: str, created: int, **more: object) -> Decimal:
        paid = Decimal(self.chance.randrange(300, 90_000)) / 100
        row = {
            "account": name,
            "reference": reference,
            "order_id": None,
            "currency": "EUR",
            "total": paid,
            "paid": paid,
        }
        row |= {"refunded": Decimal(0), "status": "processed", "created": moment_of(created), **more}
        if row["total"] is not None and row["order_id"] in self.sellers[name].by_id:
            self.sellers[name].by_id[row["order_id"]]["total_amount"] = str(row["total"])
        self.book.append(row)
        return paid

    def _show(self, name: str, reference: str | None, created: int, paid: Decimal, **more: object) -> Shown:
        self._ids += 1  # In no order of time.
        row = Shown(self._ids * 7_919 % 10**10, created, reference, paid, **more)
        self.sellers[name].shown.append(row)
        return row

    def _order(self, name: str, reference: str, status: str, paid: Decimal) -> str:
        order_id = f"ORD-{status}-{reference}"
        self.sellers[name].by_id[order_id] = {
            "id": order_id,
            "status": status,
            "external_reference": reference,
            "currency": "EUR",
            "transactions": {"payments": [{"id": "PAY1", "paid_amount": str(paid)}]},
        }
        return order_id

    # --- the platform -------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counter[Outcome]:
        """How many orders are to have each outcome."""
        counts = Counter(self.expected.values())
        inside = [row for row in self.book if CREATED[0] <= row["created"] < CREATED[1]]
        planted = {(row["account"], row["reference"]) for row in inside}
        counts[Outcome.MATCH] = len(inside) - sum(key in planted for key in self.expected)
        return counts

    async def __call__(self, request: Request) -> Response:
        """Respond to a search, or a look-up by id."""
        self.calls += 1
        self.now += 20
        if self.calls == self.fails_at:
            raise ConnectionError
        if request.method == "POST":
            self.writes += 1
            raise ConnectionError
        seller = self.sellers[request.headers["Authorization"].removeprefix("Bearer TEST-").removesuffix("-123")]
        url = urlsplit(request.url)
        if url.path.startswith("/v1/orders/"):
            order = seller.by_id.get(unquote(url.path.rpartition("/")[2]))
            return answer(self.now, order, 200 if order else 404)
        if url.path != "/merchant_orders/search":
            return answer(self.now, {"paging": {"total": 0}, "results": []})
        query = dict(parse_qsl(url.query))
        rows = self._select(seller, query)
        offset = int(query["offset"])
        page_rows = rows[offset : offset + PAGE]
        page = ",".join(row.as_json() for row in page_rows if row.id != self.hidden)
        if "date_created_from" in query:
            self._refund_late(page_rows)
        return answer(self.now, f'{{"elements":[{page}],"next_offset":0,"total":{len(rows)}}}'.encode())

    def _select(self, seller: Seller, query: dict[str, str]) -> list[Shown]:
        if "external_reference" in query:
            return seller.by_reference.get(query["external_reference"], [])
        if "last_updated_from" in query:
            first = asked_moment(query["last_updated_from"])
            last = asked_moment(query.get("last_updated_to")) or 10**15
            return [order for order in seller.shown if first <= (order.updated or order.created) <= last]
        if "date_created_from" not in query:
            return seller.shown
        first = bisect_left(seller.dates, asked_moment(query["date_created_from"]))
        return seller.shown[first : bisect_right(seller.dates, asked_moment(query["date_created_to"]))]

    def _refund_late(self, rows: list[Shown]) -> None:
        for row in rows:
            if row.id in self.late:
                self.now += 1_000
                row.refunded, row.updated = self.late.pop(row.id), self.now
