"""The documents of the sandbox, each with the columns that searches use.

In SQLite, a kind of document is a `Table`. Its rows have the JSON and these columns.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar
from zlib import crc32

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources.common import Id, Moment
from paymentsdk.resources.customers import Customer
from paymentsdk.resources.invoices import Invoice
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import Order, TypeResponse
from paymentsdk.resources.plans import Plan
from paymentsdk.resources.preferences import Preference
from paymentsdk.resources.release_reports import ReleaseReport
from paymentsdk.sandbox._wire import encode

D = TypeVar("D", bound=Struct)
Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "holds"]
#: A column, a comparison and a value. ``holds`` finds the value as a part of the column's text.
Condition: TypeAlias = tuple[str, Comparison, object]

_WORD = re.compile(r"[a-z][a-z0-9_]{0,40}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Table(Generic[D]):
    """A kind of document.

    Args:
        name: The name of the table.
        form: The Struct.
        key: Returns the identifier of a document, which is unique per seller.
        columns: The columns for searches, taken from the document.
        dates: The columns that searches sort by and bound. Searches do not find a document whose dates are None; either
            all of its dates are None or none is.
        unindexed: The columns that no search uses alone. An index makes every write slower.
        rebase_links: Returns the document with links to the given address.
        cached: Whether documents are kept decoded, since many requests read them. Nothing changes them in place.
    """

    def __init__(
        self,
        name: str,
        form: type[D],
        *,
        key: Callable[[D], str],
        columns: Mapping[str, Callable[[D], object]] | None = None,
        dates: Sequence[str] = (),
        unindexed: Collection[str] = (),
        rebase_links: Callable[[D, str], D] | None = None,
        cached: bool = False,
    ) -> None:
        self.name = name
        self.form = form
        self.cached = cached
        self.rebase_links = rebase_links
        self.key = key
        self.columns: Mapping[str, Callable[[D], object]] = columns or {}
        self.dates = dates
        names = ("tenant", "key", *self.columns, "document")
        changes = ", ".join(f"{column} = excluded.{column}" for column in names[2:])
        # The names in these statements are this module's own. Every value is bound.
        self.put: str = (
            f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT (key, tenant) DO UPDATE SET {changes}"
        )
        fields = ", ".join(["seq INTEGER PRIMARY KEY", "tenant INTEGER", "key TEXT", *self.columns, "document BLOB"])
        self.create: str = (
            f"CREATE TABLE IF NOT EXISTS {name} ({fields}, UNIQUE (key, tenant));"
            f"CREATE INDEX IF NOT EXISTS {name}_tenant ON {name} (tenant, seq);"
        )
        for column in (name for name in self.columns if name not in unindexed):
            # An index that contains the sort order finds a page without scanning or sorting all documents. With all
            # dates, it covers a search by them.
            order = ["seq", *(date for date in dates if date != column)] if column in dates else [*dates[:1], "seq"]
            index = f"{name}_{column} ON {name} (tenant, {', '.join([column, *order])})"
            # No search finds rows without a value.
            self.create += f"CREATE INDEX IF NOT EXISTS {index} WHERE {column} IS NOT NULL;"

    @cached_property
    def decode(self) -> Callable[[bytes], D]:
        """The function that reads a document. It is made at first use: making one takes a millisecond."""
        return msgspec.json.Decoder(self.form).decode

    def values(self, document: D) -> list[object]:
        """Return the columns of *document* in the form that SQLite stores."""
        return [as_column(value(document)) for value in self.columns.values()]

    def check_column(self, name: str) -> None:
        """Reject an unknown column: a column's name becomes a part of a statement."""
        if name not in self.columns:
            raise KeyError(name)

    def where(self, tenant: int | None, conditions: Sequence[Condition]) -> tuple[str, list[object]]:
        """Return the WHERE clause for *conditions*, and its values."""
        parts: list[str] = [] if tenant is None else ["tenant = ?"]
        values: list[object] = [] if tenant is None else [tenant]
        for column, comparison, value in conditions:
            self.check_column(column.lstrip("+"))
            if comparison not in {"=", "<>", "holds"} and not isinstance(value, datetime | str):
                raise TypeError(f"{column} is compared as text, which orders numbers such as {value!r} differently")
            parts.append(f"instr({column}, ?)" if comparison == "holds" else f"{column} {comparison} ?")
            values.append(as_column(value))
        return (" WHERE " + " AND ".join(parts)) if parts else "", values


class Documents(Table[D]):
    """Documents of your own handlers: one per seller and key, stored in the transaction of the request.

    Args:
        name: The name of the documents, such as ``"tills"``: a word of small letters, digits and ``_``.
        form: The Struct of a document.
        key: Returns the key of a document, such as ``lambda till: till.id``.
        columns: The columns that `page_of`, and `find` and `count` of a `SellerContext`, may use. Each takes its value
            from a document. Moments are compared as moments, everything else as text: a number can be equal to another,
            but not below or above it.

    Raises:
        ValueError: The name of the documents or of a column is not such a word.
    """

    def __init__(
        self,
        name: str,
        form: type[D],
        *,
        key: Callable[[D], str],
        columns: Mapping[str, Callable[[D], object]] | None = None,
    ) -> None:
        if bad := [word for word in (name, *(columns or {})) if not _WORD.fullmatch(word)]:
            raise ValueError(f"{bad[0]!r} is not a word of small letters, digits and _")
        super().__init__(f"own_{name}", form, key=key, columns=columns)


def as_column(value: object) -> object:
    """Return *value* in the form that SQLite stores: moments as microseconds since 1970."""
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    return None if value is None else str(value)


#: The countries that QR orders are supported in, and their currencies.
CURRENCIES = {"AR": "ARS", "BR": "BRL", "CL": "CLP", "UY": "UYU"}
#: The currency of a seller in any other country.
OTHER_CURRENCY = "USD"
#: The default buyer.
DEFAULT_PAYER = 100_000_001


class Credentials(MaskedRepr, Struct, frozen=True, kw_only=True):
    """What a program needs to act for a seller. ``repr`` hides the credentials."""

    access_token: str
    """A token made without OAuth. A `marketplace_fee` is rejected with it."""
    client_id: str
    """The id of the seller's application."""
    client_secret: str
    """The secret of the application."""
    authorization_code: str
    """An authorization code, valid for one token and for 10 minutes."""
    refresh_token: str
    """A refresh token, valid for one refresh."""
    external_pos_id: str
    """The first point of sale."""
    plan_id: str
    """A plan to subscribe to."""

    __secrets__: ClassVar[frozenset[str]] = frozenset(
        {"client_secret", "access_token", "authorization_code", "refresh_token"}
    )


class Tenant(Credentials, frozen=True, kw_only=True):
    """A seller with an application, and everything that a test needs to act for them."""

    user_id: int
    """The user id of the seller."""
    country: str
    """Two capital letters. The currency and the site follow from it."""
    currency: str
    """The currency of amounts, unless an item of a preference or a plan names another."""
    public_key: str
    """The public key of the application."""
    external_pos_ids: tuple[str, ...]
    """All points of sale."""
    marketplace: str | None
    """The marketplace of the application, if it has one."""
    scope: str
    """What the application may do."""
    redirect_uri: str | None = None
    """The address that codes are sent to. It is checked only if it is set."""
    policies: dict[str, object] = {}
    """The seller's own policies, by name."""
    discount_promises: tuple[str, ...] = ()
    """The discount codes that wallet payments may use."""
    compliant: bool = True
    """Whether the seller's identity is validated."""
    cash_withdrawals: bool = True
    """Whether the seller is authorized for orders with cash withdrawals."""

    @property
    def application_number(self) -> int:
        """The application as a number, as in plans. A pinned application may have a name, which is hashed."""
        return int(self.client_id) if self.client_id.isdecimal() else crc32(self.client_id.encode())


class Grant(MaskedRepr, Struct, frozen=True, kw_only=True):
    """A token, a refresh token or an authorization code."""

    secret: str
    """The token itself."""
    kind: str
    """`access`, `refresh` or `code`."""
    user_id: int
    """The user id of the seller who granted it."""
    scope: str
    """What it allows, separated by spaces."""
    expires_at: Moment
    """When it expires."""
    oauth: bool = True
    """Whether it comes from an authorization."""
    spent: bool = False
    """Whether it was used, if it is valid only once."""
    revoked: bool = False
    """Whether it was revoked before it expired."""
    access_token: str | None = None
    """The access token that a refresh token was issued with."""

    __secrets__: ClassVar[frozenset[str]] = frozenset({"secret", "access_token"})


class OrderRecord(Struct, frozen=True, kw_only=True, dict=True):
    """An order, its expiry, and the idempotency key of the refund that is processing."""

    order: Order
    """The order."""
    expires_at: Moment
    """When it expires if it is not paid or canceled."""
    refund_key: str | None = None
    """The key of the refund that is processing."""

    @cached_property
    def body(self) -> Raw:
        """The order as the body of a response. Clients poll orders, and most polls find no change."""
        return Raw(encode(self.order, decimal_strings=True))


class MerchantOrderRecord(Struct, frozen=True, kw_only=True):
    """A merchant order and its source: the id of an order or of a preference."""

    merchant_order: MerchantOrder
    """The merchant order."""
    source: str
    """The id of the order or preference that it belongs to."""
    sponsor_id: Id | None = None
    """The sponsor of the preference."""
    deleted: bool = False
    """Whether a fault hides it from searches."""


#: The states of a subscription: it continues, all invoices of its plan are done, or it was ended.
AUTHORIZED = "authorized"
FINISHED = "finished"
CANCELED = "canceled"


class Subscription(Struct, frozen=True, kw_only=True):
    """A buyer's subscription to a plan."""

    id: str
    """The id, which invoices call `preapproval_id`."""
    plan_id: str
    """The plan."""
    payer_id: int
    """The buyer."""
    external_reference: str | None = None
    """The integrator's name for it."""
    status: str = AUTHORIZED
    """`authorized`, `finished` or `canceled`."""
    rejections: int = 0
    """How many of the next attempts to collect are rejected; -1 for all."""
    invoices: int = 0
    """How many invoices it has had so far."""
    started: Moment
    """When it began."""


class InvoiceRecord(Struct, frozen=True, kw_only=True):
    """An invoice, and its payer."""

    invoice: Invoice
    """The invoice."""
    payer_id: int
    """The payer."""


#: What a line of the ledger is about.
EntryKind: TypeAlias = Literal[
    "order_created",
    "order_canceled",
    "order_expired",
    "payment",
    "cash_withdrawal",
    "refund",
    "refund_failed",
    "wallet_payment",
    "wallet_payment_authorized",
    "wallet_payment_pending",
    "wallet_payment_rejected",
    "invoice_payment",
    "preference_created",
    "customer_created",
    "token_created",
    "schedule_disabled",
]


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the ledger: one effect."""

    at: Moment
    """The moment, by the seller's clock."""
    tenant: int
    """The seller."""
    kind: str
    """What happened: `order_created`, `payment`, ... (`EntryKind`), or a word of your own handler."""
    amount: Decimal
    """The money that moved to the seller; below zero if it moved back, and 0 if none moved."""
    currency: str
    """The currency of the amount."""
    id: str
    """The id of the payment, refund, order or other thing."""
    order_id: str
    """The order, preference, invoice or wallet payment that it belongs to."""
    external_reference: str | None = None
    """The integrator's name for the order, preference, invoice or wallet payment."""
    idempotency_key: str | None = None
    """The idempotency key of the request."""


def order_link(base_url: str, order_id: str) -> str:
    """Return the link in the QR code of an order."""
    return f"{base_url}/qr/{order_id}"


def preference_link(base_url: str, preference_id: str) -> str:
    """Return the link to the checkout of a preference."""
    return f"{base_url}/checkout/{preference_id}"


def plan_link(base_url: str, plan_id: str) -> str:
    """Return the link where buyers subscribe to a plan."""
    return f"{base_url}/subscriptions/{plan_id}"


def _rebased_order(record: OrderRecord, base_url: str) -> OrderRecord:
    link = order_link(base_url, record.order.id)
    if record.order.qr_data in {"", None, link}:
        return record
    return replace(record, order=replace(record.order, type_response=TypeResponse(qr_data=link)))


TENANTS = Table(
    "tenants", Tenant, key=lambda t: str(t.user_id), columns={"client_id": lambda t: t.client_id}, cached=True
)
GRANTS = Table("grants", Grant, key=lambda g: g.secret, cached=True)
ORDERS = Table(
    "orders",
    OrderRecord,
    key=lambda r: r.order.id,
    columns={
        "status": lambda r: r.order.status,
        "external_reference": lambda r: r.order.external_reference,
        "external_pos_id": lambda r: r.order.config and r.order.config.qr and r.order.config.qr.external_pos_id,
        "mode": lambda r: r.order.config and r.order.config.qr and r.order.config.qr.mode,
    },
    unindexed={"status", "mode"},
    rebase_links=_rebased_order,
    cached=True,
)
PREFERENCES = Table(
    "preferences",
    Preference,
    key=lambda p: p.id,
    rebase_links=lambda p, url: replace(
        p, **dict.fromkeys(("init_point", "sandbox_init_point"), preference_link(url, p.id))
    ),
)
PLANS = Table(
    "plans",
    Plan,
    key=lambda plan: plan.id,
    columns={"status": lambda plan: plan.status},
    rebase_links=lambda plan, url: replace(plan, init_point=plan_link(url, plan.id)),
)
SUBSCRIPTIONS = Table(
    "subscriptions",
    Subscription,
    key=lambda s: s.id,
    columns={"plan_id": lambda s: s.plan_id, "status": lambda s: s.status},
)
INVOICES = Table(
    "invoices",
    InvoiceRecord,
    key=lambda r: str(r.invoice.id),
    columns={
        "preapproval_id": lambda r: r.invoice.preapproval_id,
        "payment_id": lambda r: r.invoice.payment and r.invoice.payment.id,
        "payer_id": lambda r: r.payer_id,
        "id": lambda r: r.invoice.id,
        "date_created": lambda r: r.invoice.date_created,
    },
)
MERCHANT_ORDERS = Table(
    "merchant_orders",
    MerchantOrderRecord,
    key=lambda r: str(r.merchant_order.id),
    columns={
        "source": lambda r: r.source,
        "status": lambda r: r.merchant_order.status,
        "preference_id": lambda r: r.merchant_order.preference_id,
        "application_id": lambda r: r.merchant_order.application_id,
        "payer_id": lambda r: r.merchant_order.payer and r.merchant_order.payer.id,
        "sponsor_id": lambda r: r.sponsor_id,
        "external_reference": lambda r: r.merchant_order.external_reference,
        "site_id": lambda r: r.merchant_order.site_id,
        "marketplace": lambda r: r.merchant_order.marketplace,
        "date_created": lambda r: None if r.deleted else r.merchant_order.date_created,
        "last_updated": lambda r: None if r.deleted else r.merchant_order.last_updated,
        "items": lambda r: "".join(f"\n{item.id}\n" for item in r.merchant_order.items or () if item.id is not None),
    },
    dates=("date_created", "last_updated"),
)
CUSTOMERS = Table("customers", Customer, key=lambda c: c.id, columns={"email": lambda c: (c.email or "").lower()})
REPORTS = Table("reports", ReleaseReport, key=lambda r: str(r.user_id))

TABLES = (TENANTS, GRANTS, ORDERS, PREFERENCES, PLANS, SUBSCRIPTIONS, INVOICES, MERCHANT_ORDERS, CUSTOMERS, REPORTS)
