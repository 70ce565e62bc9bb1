"""One process of the chaos run: it recovers, then calls names at random until it is killed.

`python -m tests.chaos.worker JSON`. What it tells its callers, and what it sends, it writes down first, in files that
outlive it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random, SystemRandom

import msgspec
from msgspec import Struct, structs

from paymentsdk import (
    AiohttpTransport,
    APIError,
    AuthenticationFailed,
    Deferred,
    Http11Transport,
    InProgress,
    JournalUnavailable,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    PaymentsError,
    PermissionDenied,
    PostgresTokenStore,
    RateLimited,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    Request,
    Response,
    RetryPolicy,
    SQLiteTokenStore,
    Timeout,
)
from paymentsdk._clock import SystemClock
from paymentsdk.journal import Journal, PostgresJournal, SQLiteJournal
from paymentsdk.resources.orders import (
    IntegrationDataRequest,
    Order,
    OrderConfigRequest,
    OrderRequest,
    PaymentRequest,
    QRConfigRequest,
    SponsorRequest,
    TransactionsRequest,
)
from paymentsdk.resources.preferences import Preference, PreferenceItemRequest, PreferenceRequest

TASKS = 6
UNAUTHORIZED = 401
#: What is told where the new pair was lost in a kill.
MUST_AUTHORISE = "the seller must authorize again"
#: What is written down where the caller has left: it was told nothing.
LEFT = "its caller has left"
#: How many callers leave, and the seconds in which they do: most of them while a request is in flight.
IMPATIENT, PATIENCE = 0.15, 0.2
#: What is told where nothing took effect, and the name may be called again.
TURNED_AWAY = "turned away"
#: Seconds in which a hasty record may be sent: so short that faults outlast it.
HASTE = 3.0


class Plan(Struct, frozen=True, kw_only=True):
    """What one process does."""

    base_url: str
    client_id: str
    client_secret: str
    sellers: list[list[str]]
    """The local names of each seller."""
    folder: Path
    journal: str
    """A file, or the address of a database, which has the tokens as well."""
    number: int
    """Of the process among those that run at once."""
    of: int
    seed: int
    names: int
    round: int
    leases_ahead: float = 0.0
    """Seconds by which the clock of the leases is ahead: so they end without waiting for them."""
    wall_ahead: float = 0.0
    """Seconds by which this process believes to be ahead of the others."""
    control: bool = False
    """Ignore the journal, and send with a random key, as clients do."""
    recover_only: bool = False
    refreshes: bool = False
    """Find a token that has ended."""
    disk_fills: bool = False
    """Have the disk of the journal's file full again and again."""


class FillingConnection(sqlite3.Connection):
    """A connection to a disk that is full again and again: it may add so many pages to the journal's file, or none."""

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Set the limit with the setting that a journal alone makes."""
        if statement.startswith("PRAGMA journal_mode"):
            [pages] = super().execute("PRAGMA page_count").fetchone()
            super().execute(f"PRAGMA max_page_count = {pages + SystemRandom().choice((0, 4, 20, 80))}").fetchall()
        return super().execute(statement, *values)


def journal_at(address: str, ahead: float = 0.0, *, fills: bool = False) -> Journal:
    """Return the journal in a file or database, whose leases end so many seconds early."""

    def now() -> float:
        return time.time() + ahead

    if "://" in address:
        return PostgresJournal(address, now=now, timeout=15.0)  # A database that is killed is away for seconds.
    if fills:
        sqlite3.connect = partial(sqlite3.connect, factory=FillingConnection)
    return SQLiteJournal(address, now=now)


def store_at(plan: Plan, place: int) -> PostgresTokenStore | SQLiteTokenStore:
    """Return the store of the seller in this place."""
    if "://" in plan.journal:
        return PostgresTokenStore(plan.journal, f"seller-{place}", timeout=15.0)
    return SQLiteTokenStore(plan.folder / "tokens.db", f"seller-{place}")


class ShiftedClock(SystemClock):
    """The clock of a machine that is wrong."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead

    def now(self) -> float:
        return time.time() + self.ahead


class Diary:
    """Lines that survive the death of the process: each is one write to a file that all processes append to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **line: object) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class NotingTransport:
    """Writes down the key, the bytes and the time of each write before one of our transports sends it."""

    def __init__(self, diary: Diary, transport: AiohttpTransport | Http11Transport) -> None:
        self._diary, self._transport = diary, transport
        self.discard, self.aclose = transport.discard, transport.aclose

    async def send(self, request: Request) -> Response:
        if request.url.endswith("/oauth/token"):
            self._diary.write(refresh=sha256(request.body).hexdigest())
        elif key := request.headers.get("X-Idempotency-Key"):
            self._diary.write(key=key, at=time.time(), digest=sha256(request.body).hexdigest())
        response = await self._transport.send(request)
        rejected = response.status == UNAUTHORIZED or b"invalid_access_token" in response.body  # A preference: 400.
        if rejected and (token := request.headers.get("Authorization")):
            # Of the seller whose user id it ends with. Whoever dies here refreshes nothing.
            self._diary.write(user=int(token.rpartition("-")[2]), rejected=sha256(token.encode()).hexdigest())
        return response


def order(name: str) -> OrderRequest:
    """The order of a name: the same bytes in every process. The platform rejects one in ten."""
    amount = Decimal("10.50")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=amount)])
    request = OrderRequest(external_reference=name, total_amount=amount, transactions=payments)
    match rejection(name):
        case "404 pos_not_found":
            return structs.replace(request, config=OrderConfigRequest(qr=QRConfigRequest(external_pos_id="NOWHERE")))
        case "400 sponsor_id_not_valid":
            return structs.replace(
                request, integration_data=IntegrationDataRequest(sponsor=SponsorRequest(id="nobody"))
            )
        case _:
            return request


def rejection(name: str) -> str | None:
    """Return the status and the code with which the platform rejects the order of a name; `None` if it does not."""
    return {3: "404 pos_not_found", 13: "400 sponsor_id_not_valid"}.get(number_of(name) % 20)


def number_of(name: str) -> int:
    """Return the number in a name."""
    return int(name.rpartition("-")[2])


def preference(name: str) -> PreferenceRequest:
    """The preference of a name, which takes no key."""
    item = PreferenceItemRequest(title="A thing", quantity=1, unit_price=Decimal("10.50"))
    return PreferenceRequest(external_reference=name, items=[item])


def pay(base_url: str, order_id: str) -> None:
    """Have a buyer pay an order."""
    urllib.request.urlopen(f"{base_url}/_sandbox/orders/{order_id}/pay", b"{}", timeout=2).close()


def word(error: PaymentsError) -> str:
    """What a caller is told by *error*."""
    match error:
        case ReauthorizationRequired():
            return MUST_AUTHORISE
        case AuthenticationFailed() | PermissionDenied() | RateLimited() if error.settled:
            return TURNED_AWAY
        case APIError(code="invalid_access_token") if error.settled:
            return TURNED_AWAY
        case APIError() if error.settled:
            return "refused"
        case NotSent() | Deferred() | InProgress() | JournalUnavailable() | OutcomeUnknown() | RefreshFailed():
            return type(error).__name__
        case _:
            return f"other: {type(error).__name__}"


def say(message: str) -> None:
    """Tell the process that kills this one how far it is."""
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def place_of(line: str) -> int:
    """Return the seller whose name is in a line of the diary."""
    return int(json.loads(line)["name"].partition("-")[0][1:])


class Caller:
    """Calls names, and writes down what it is told."""

    def __init__(self, plan: Plan, client: PaymentsClient, diary: Diary) -> None:
        self._plan, self._client, self._told = plan, client, diary
        self._random = Random(f"{plan.seed}/{plan.round}/{plan.number}")
        self._numbers = self._left() if plan.control else self._any()
        self._calls = False
        self._last = ""
        #: Whether some callers leave before they are told anything.
        self._leave = False

    def _any(self) -> Iterator[int]:
        """Yield numbers at random, the same ones in several processes."""
        while True:
            yield self._random.randrange(self._plan.names)

    def _left(self) -> Iterator[int]:
        """Yield the numbers of this process alone that nobody was told to be done: what was under way comes first."""
        text = (self._plan.folder / "told").read_text()
        return (
            number
            for number in range(self._plan.number, 100_000, self._plan.of)
            if f'"name": "{self._name(number)}", "told": "done"' not in text
        )

    def _name(self, number: int) -> str:
        return f"s{number % len(self._plan.sellers)}-r{self._plan.round}-{number}"

    async def work(self) -> None:
        self._leave = True
        for number in self._numbers:
            account = self._random.choice(self._plan.sellers[number % len(self._plan.sellers)])
            await self._call(self._name(number), account, hasty=number % 7 == 0)
            if not self._calls:
                self._calls = True
                say("calls")

    async def call_number(self, number: int) -> str:
        """Call one name, and return what it is told last."""
        await self._call(self._name(number), self._plan.sellers[number % len(self._plan.sellers)][0], hasty=False)
        return self._last

    async def _call(self, name: str, account: str, *, hasty: bool) -> None:
        client = self._client.account(account)
        window = timedelta(seconds=HASTE) if hasty else None
        if self._plan.control:
            await self._tell(name, client.orders.create(order(name)))
            return
        order_id = await self._tell(name, client.orders.create(order(name), once=name, not_after=window))
        number = number_of(name)
        if number % 5 == 1:
            preference_name = f"{name}/preference"
            await self._tell(
                preference_name, client.preferences.create(preference(preference_name), once=preference_name)
            )
        if number % 5 == 2 and order_id is not None:
            # The order may be paid or refunded already: by this process or another.
            with suppress(OSError):
                await asyncio.to_thread(pay, self._plan.base_url, order_id)
            await self._tell(f"{name}/refund", client.orders.refund(order_id, once=f"{name}/refund"))

    async def _tell(self, name: str, call: Awaitable[Order | Preference]) -> str | None:
        """Write down what a call comes to, and return the id of what it made; some callers leave before."""
        leaves = self._leave and self._random.random() < IMPATIENT
        try:
            async with asyncio.timeout(self._random.random() * PATIENCE if leaves else None):
                created = await call
        except TimeoutError:
            self._last = LEFT
            self._told.write(name=name, told=LEFT)
            return None
        except PaymentsError as error:
            self._last = word(error)
            self._told.write(name=name, told=self._last, why=str(error)[:200])
            return None
        self._last = "done"
        refunds = (
            created.transactions.refunds if isinstance(created, Order) and created.transactions is not None else None
        )
        self._told.write(name=name, told="done", id=refunds[-1].id if refunds and "/" in name else created.id)
        return created.id


def client_of(plan: Plan, sent: Diary, transport: type[NotingTransport] = NotingTransport) -> PaymentsClient:
    """Return a client on the journal of the run."""
    return PaymentsClient(
        base_url=plan.base_url,
        client_id=plan.client_id,
        client_secret=plan.client_secret,
        accounts={
            name: RefreshingToken(store=store_at(plan, place)) for place, its in enumerate(plan.sellers) for name in its
        },
        journal=None if plan.control else journal_at(plan.journal, plan.leases_ahead, fills=plan.disk_fills),
        # The processes of a run use either, as it comes.
        transport=transport(sent, AiohttpTransport() if os.getpid() % 2 else Http11Transport()),
        clock=ShiftedClock(plan.wall_ahead),
        retry=RetryPolicy(attempts=3, base_delay=0.05, max_delay=0.3),
        timeout=Timeout(total=4.0, attempt=1.0, connect=1.0),
    )


async def run(plan: Plan) -> None:
    """Recover, and then call until somebody kills this process."""
    diary, sent = Diary(plan.folder / "told"), Diary(plan.folder / "sent")
    async with client_of(plan, sent) as client:
        say("recovers")
        if not plan.control:
            await recover(client, diary)
        if plan.recover_only:
            return
        caller = Caller(plan, client, diary)
        await asyncio.gather(*(caller.work() for _ in range(TASKS)))


async def recover(client: PaymentsClient, diary: Diary) -> None:
    """Recover what others have left, and write down what came of it."""
    try:
        summary = await client.recover()
    except JournalUnavailable as error:
        diary.write(problem=str(error))
        return
    diary.write(recovered={state.value: count for state, count in summary.resolved.items()})
    for problem in summary.problems:
        diary.write(problem=problem)


if __name__ == "__main__":
    asyncio.run(run(msgspec.json.decode(sys.argv[1], type=Plan, dec_hook=lambda kind, value: kind(value))))
