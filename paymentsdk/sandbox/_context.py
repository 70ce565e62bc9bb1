"""What a behaviour works with: one seller's documents, the moment, and the means to leave traces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from paymentsdk import money
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import Entry, EntryKind, Grant, Tenant
from paymentsdk.sandbox._responses import encode
from paymentsdk.sandbox._store import Due, Store
from paymentsdk.sandbox._table import Condition, Documents, Table

if TYPE_CHECKING:
    from paymentsdk.sandbox._ids import Ids

D = TypeVar("D", bound=Struct)
B = TypeVar("B", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Call(Generic[B]):
    """A request that was read."""

    body: B
    """The body, checked; `None` for none."""
    path: Mapping[str, str]
    """The values in the path."""
    query: Mapping[str, object]
    """The filters, read as their types say; those that were not given are not there."""
    grant: Grant | None = None
    """The token that it came with; `None` at the token endpoint."""
    sent: bytes = b""
    """The bytes of the body, for what is echoed as it came."""
    drift: int = 0
    """Rows that appeared (or vanished, below zero) before the page that is asked for."""
    effects: tuple[str, ...] = ()
    """The faults that hit the request: some happen to rows before they are read."""


@dataclass(frozen=True, kw_only=True)
class SellerContext:
    """One seller's part of the sandbox, at one moment: what a handler does to it is committed as a whole."""

    tenant: Tenant
    """The seller."""
    now: datetime
    """The moment, by the clock of the sandbox."""
    policies: Policies
    """Those that hold for the seller."""
    ids: Ids
    """Makes identifiers: `token(length)`, `number(digits)`, `uuid()`, `sortable(prefix, now)`."""
    base_url: str
    """Where links lead: the sandbox as buyers reach it."""
    store: Store = field(repr=False)
    """Where documents are kept. The methods below read and write it for this seller alone."""
    publish: Callable[[str, int, Struct], None] = field(repr=False)
    """Tells those who watch, such as the dashboard: the name of the table, the seller, the document."""
    jobs: Collection[str] = field(default=(), repr=False)
    """The names of what `schedule` can bring about."""
    key: str | None = None
    """The idempotency key of the request, if it has one."""

    def get(self, table: Table[D], key: str) -> D | None:
        """Return the seller's document *key*."""
        return self.store.get(self.store.prepare(table), key, self.tenant.user_id)

    def require(self, table: Table[D], key: str) -> D:
        """Return the seller's document *key*, which is there."""
        document = self.get(table, key)
        if document is None:
            raise LookupError(f"{table.name} {key}")
        return document

    def put(self, table: Table[D], document: D) -> D:
        """Keep *document*, and let those who watch know of it."""
        self.store.put(self.store.prepare(table), self.tenant.user_id, document)
        self.store.after_commit(lambda: self.publish(table.name, self.tenant.user_id, document))
        return document

    def remove(self, table: Documents[D], key: str) -> bool:
        """Forget the seller's document *key*; say whether there was one."""
        self.store.prepare(table)
        return self.store.remove(table, key, self.tenant.user_id)

    def find(
        self,
        table: Table[D],
        conditions: Sequence[Condition] = (),
        *,
        order: str = "seq",
        descending: bool = False,
        limit: int = -1,
        offset: int = 0,
        total: int | None = None,
        shuffle: int | None = None,
    ) -> list[D]:
        """Return the seller's documents that meet all *conditions*; see `Store.find`."""
        return self.store.find(
            self.store.prepare(table),
            self.tenant.user_id,
            conditions,
            order=order,
            descending=descending,
            limit=limit,
            offset=offset,
            total=total,
            shuffle=shuffle,
        )

    def number(self, table: Table[D], digits: int) -> int:
        """Return a number of *digits* digits for a new document of *table*."""
        return self.store.unused(table, lambda: self.ids.number(digits))

    def count(self, table: Table[D], conditions: Sequence[Condition] = (), *, since: Condition | None = None) -> int:
        """Return how many of the seller's documents meet all *conditions* and *since*; see `Store.count`."""
        return self.store.count(self.store.prepare(table), self.tenant.user_id, conditions, since=since)

    def record(
        self,
        kind: EntryKind | str,
        *,
        id: str,  # noqa: A002 - the ledger's own word
        order_id: str,
        amount: Decimal = money.ZERO,
        currency: str | None = None,
        external_reference: str | None = None,
    ) -> None:
        """Write a line of the ledger; its *currency* is the seller's by default."""
        entry = Entry(
            at=self.now,
            tenant=self.tenant.user_id,
            kind=kind,
            amount=amount,
            currency=currency or self.tenant.currency,
            id=id,
            order_id=order_id,
            external_reference=external_reference,
            idempotency_key=self.key,
        )
        self.store.append(self.tenant.user_id, encode(entry, decimal_strings=True))

    def schedule(self, at: datetime, kind: str, id: str) -> None:  # noqa: A002 - as in `record`
        """Have the job *kind* (`Sandbox(jobs=)`) happen to the thing *id* at a moment.

        Raises:
            ValueError: There is no such job.
        """
        if kind not in self.jobs:
            raise ValueError(f"there is no job {kind!r}; there are {', '.join(self.jobs)}")
        self.store.schedule(Due(at=at, kind=kind, tenant=self.tenant.user_id, id=id))
