"""The seller's program, which keeps a book of what it was told, and a till, which sells until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, cast

from paymentsdk import PaymentsClient
from paymentsdk.cli._demo.books import Entry
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources import orders, preferences
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.release_reports import ReleaseReport

if TYPE_CHECKING:
    from paymentsdk.sandbox import Sandbox

#: The number of the first sale of a till: those of the others are smaller.
FIRST = 50_000
#: Sales that it has under way.
AT_ONCE = 4
#: Seconds that have passed for the journal when the next till begins: the leases of the dead one have ended.
LATER = 120.0
NOTHING = Decimal(0)
_CENT = Decimal("0.01")


class Seller:
    """One seller, who works with the platform and trusts nothing but its responses.

    Args:
        client: Calls the platform.
        external_pos_id: The point of sale that orders are paid at.
    """

    def __init__(self, client: PaymentsClient, external_pos_id: str) -> None:
        self.believed: list[Entry] = []
        """What happened, as far as the responses say; each entry as the platform's ledger should have it."""
        self.sold: list[Entry] = []
        """What each sale came to: what a search of merchant orders should show."""
        self.access_token: str = ""
        """What it works with, once it has signed in."""
        self._client = client
        self._external_pos_id = external_pos_id

    async def sign_in(self, code: str) -> None:
        """Exchange *code* for a token and that for another one, and work with the last from now on."""
        first = await self._client.oauth.exchange_code(code)
        token = await self._client.oauth.refresh(first.refresh_token or "")
        for one in (first, token):
            self._note("token_created", one.user_id)
        self.access_token = token.access_token
        self._client = self._client.with_options(access_token=token.access_token)

    async def create_order(self, number: int, *, once: str | None = None) -> orders.Order:
        """Create the order *number*."""
        amount = Decimal(1_000 + number * 137 % 9_000) * _CENT
        qr = orders.QRConfigRequest(external_pos_id=self._external_pos_id, mode="dynamic")
        request = orders.OrderRequest(
            external_reference=f"demo-{number:05}",
            total_amount=amount,
            description="A sale of the demonstration",
            config=orders.OrderConfigRequest(qr=qr),
            transactions=orders.TransactionsRequest(payments=[orders.PaymentRequest(amount=amount)]),
        )
        order = await self._client.orders.create(request, once=once)
        self._note("order_created", order.id)
        return order

    async def sell_once(self, number: int) -> orders.Order:
        """Create the order *number* under a name: once, also if the process that does so is killed."""
        return await self.create_order(number, once=f"demo/{number}")

    async def see_paid(self, order: orders.Order) -> orders.Order:
        """Ask whether *order* was paid, and how much."""
        order = await self._client.orders.get(order.id)
        if payment := order.payment:
            self._note("payment", payment.id, payment.paid_amount)
            self._sold("paid", order.external_reference, payment.paid_amount)
        return order

    async def see_expired(self, order: orders.Order) -> None:
        """Ask whether nobody has paid *order* in time."""
        order = await self._client.orders.get(order.id)
        if order.status == orders.OrderStatus.EXPIRED:
            self._note("order_expired", order.id)

    async def refund(self, order: orders.Order, payment_id: str | None = None, amount: Decimal | None = None) -> None:
        """Give back all of *order*, or a part of its payment."""
        answer = await self._client.orders.refund(order.id, payment_id=payment_id, amount=amount)
        for refund in answer.refunds:
            self._note("refund", refund.id, -(refund.amount or NOTHING))
            self._sold("refunded", order.external_reference, refund.amount)

    async def refund_half(self, order: orders.Order) -> None:
        """Give back a half of *order*, which is paid, rounded to a cent."""
        if payment := order.payment:
            await self.refund(order, payment.id, ((payment.paid_amount or NOTHING) / 2).quantize(_CENT))

    async def cancel(self, order: orders.Order) -> None:
        """Cancel *order*, which nobody has paid."""
        answer = await self._client.orders.cancel(order.id)
        self._note("order_canceled", answer.id)

    async def create_preference(self, reference: str) -> preferences.Preference:
        """Create a preference, which a buyer pays in a browser."""
        item = preferences.PreferenceItemRequest(id="book", title="A book", quantity=2, unit_price=Decimal("12.50"))
        request = preferences.PreferenceRequest(items=[item], external_reference=reference)
        preference = await self._client.preferences.create(request)
        self._note("preference_created", preference.id)
        return preference

    async def see_preference_paid(self, preference: preferences.Preference) -> None:
        """Ask what *preference* has come to."""
        order = await self._client.merchant_orders.search(preference_id=preference.id).first()
        for payment in (order and order.payments) or ():
            self._note("payment", payment.id, payment.total_paid_amount)
            self._sold("paid", preference.external_reference, payment.total_paid_amount)

    async def end_reports(self) -> ReleaseReport:
        """Have the platform make no more release reports."""
        report = await self._client.release_reports.disable_schedule()
        self._note("schedule_disabled", report.id)
        return report

    async def walk_merchant_orders(self) -> list[MerchantOrder]:
        """Return what all sales have come to, as a search shows it."""
        return await self._client.merchant_orders.search(page_size=50, prefetch=4).collect()

    def _note(self, what: str, of: object, amount: Decimal | None = None) -> None:
        self.believed.append(Entry(what, str(of), amount or NOTHING))

    def _sold(self, what: str, reference: str | None, amount: Decimal | None) -> None:
        self.sold.append(Entry(what, str(reference), amount or NOTHING))


def shown(found: Iterable[MerchantOrder]) -> Iterator[Entry]:
    """Yield what a search shows, as a seller keeps it in ``sold``."""
    for order in found:
        reference = str(order.external_reference)
        yield Entry("paid", reference, order.paid_amount or NOTHING)
        if order.refunded_amount:
            yield Entry("refunded", reference, order.refunded_amount)


# --- a till, in a process of its own ------------------------------------------------------------------------------

_PROGRAM = f"import asyncio; from {__name__} import sell; asyncio.run(sell())"


async def sell_and_die(sandbox: Sandbox, token: str, journal: Path, sales: int) -> list[bytes]:
    """Start a till, kill it in the middle of *sales*, and return the ids of those that it has made known."""
    environment = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": token}
    till = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(journal), sandbox.external_pos_id, str(sales)),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    said = cast("asyncio.StreamReader", till.stdout)
    try:
        return [await said.readline() for _ in range(sales // 2)]
    finally:
        till.kill()
        # Reads on: what it has said since was not heard by anybody.
        await till.communicate()


async def sell() -> None:
    """Sell as the arguments say (the journal, the point of sale, the number of sales), and print a line for each."""
    journal, external_pos_id, sales = sys.argv[1:]
    async with PaymentsClient.from_env(journal=SQLiteJournal(journal)) as client:
        sell_once, numbers = Seller(client, external_pos_id).sell_once, range(FIRST, FIRST + int(sales))
        async for sold in client.map(sell_once, numbers, concurrency=AT_ONCE):
            print(sold.value.id, flush=True)
