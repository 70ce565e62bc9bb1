"""What handlers work with, and how a noun of the API declares its handlers, as one value that tests can read.

A handler's ``magic`` names a member of the request. A string there that begins with ``refuse-`` asks for a rejection
with the code that follows, where every character except letters and digits is written as ``_``. An order with the
``external_reference`` ``refuse-pos_not_found`` is rejected with ``pos_not_found``, and a customer with the email
``refuse-129@example.com`` with 129. ``refuse-cancel-resource_locked`` as the reference of an order rejects its
cancellation, not its creation. ``refuse-get-...`` and ``refuse-refund-...`` work in the same way.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack

from msgspec import Struct

from paymentsdk import money
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ANY_CODE, ErrorCode
from paymentsdk._paging.cursor import Position
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.oauth import DEFAULT_LIFETIME
from paymentsdk.sandbox._clock import Ids
from paymentsdk.sandbox._faults import Faults
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import GRANTS, Condition, Documents, Entry, EntryKind, Grant, Table, Tenant
from paymentsdk.sandbox._store import Due, Store
from paymentsdk.sandbox._wire import Rejected, Shape, cause, encode

D = TypeVar("D", bound=Struct)
B = TypeVar("B", covariant=True)
T = TypeVar("T")
R = TypeVar("R")
GrantKind: TypeAlias = Literal["access", "refresh", "code"]

_SERVER_ERRORS = 500
_DEMAND = re.compile(r"refuse-(?P<slug>[A-Za-z0-9_-]+?)(?:@.*)?\Z", re.DOTALL)
#: What leads to a code, for every operation that documents the code.
CAUSES: Mapping[str, str] = {
    "unauthorized": "no bearer token, or one that is unknown, revoked or has expired",
    "invalid_token": "no bearer token, or one that is unknown, revoked or has expired",
    "empty_required_header": "no X-Idempotency-Key",
    "invalid_idempotency_key_length": "an X-Idempotency-Key of more characters than `max_key_length`",
    "idempotency_key_already_used": "a key of the last 24 hours with another request",
    "resource_locked": "the policy concurrent_twin=locked, and a key that is in flight",
}
SCOPES = "offline_access read write"
#: Refresh tokens do not expire in the contract; ten years are longer than any test.
LIFETIMES: Mapping[GrantKind, timedelta] = {
    "access": timedelta(seconds=DEFAULT_LIFETIME),
    "refresh": timedelta(days=3650),
    "code": timedelta(minutes=10),
}


class ParsedRequest(Struct, Generic[B], frozen=True, kw_only=True):
    """A request whose parts were decoded as their types and checked."""

    body: B
    """The body; `None` without one."""
    path: Mapping[str, str]
    """The values in the path."""
    query: Mapping[str, object]
    """The filters, decoded as their types. Missing filters are left out."""
    grant: Grant | None = None
    """The token of the request; `None` at the token endpoint."""
    content: bytes = b""
    """The body as it arrived."""
    drift: int = 0
    """Rows that appeared before the requested page; below zero, rows that vanished."""
    effects: tuple[str, ...] = ()
    """The effects of the faults that hit the request. Some change rows before they are read."""


class Sorting(TypedDict, total=False):
    """The order of documents; see `Store.find`."""

    order: str
    descending: bool
    shuffle: int | None


class FindOptions(Sorting, total=False):
    """The order and the range of documents; see `Store.find`."""

    limit: int
    offset: int


class SellerContext(Struct, frozen=True, kw_only=True):
    """One seller's part of the sandbox at one moment. All changes of a handler are committed together."""

    tenant: Tenant
    """The seller."""
    now: datetime
    """The moment, by the clock of the seller."""
    policies: Policies
    """The policies that apply to the seller."""
    ids: Ids
    """Makes identifiers: `token(length)`, `number(digits)`, `uuid()`, `sortable(prefix, now)`."""
    base_url: str
    """The address that links lead to: the sandbox as buyers reach it."""
    store: Store
    """The store of all documents. The methods below read and write it for this seller only."""
    faults: Faults
    """The faults in force."""
    publish: Callable[[str, int, Struct], None]
    """Sends a change to watchers such as the dashboard: the name of the table, the seller, the document."""
    jobs: Collection[str] = ()
    """The names of the jobs that `schedule` accepts."""
    key: str | None = None
    """The idempotency key of the request, if it has one."""
    ahead: timedelta = timedelta()
    """How far the clock of the seller is ahead of the clock of the sandbox, by which things fall due."""

    def get(self, table: Table[D], key: str) -> D | None:
        """Return the seller's document *key*."""
        return self.store.get(self.store.prepare(table), key, self.tenant.user_id)

    def require(self, table: Table[D], key: str) -> D:
        """Return the seller's document *key*, or raise `LookupError`."""
        document = self.get(table, key)
        if document is None:
            raise LookupError(f"{table.name} {key}")
        return document

    def put(self, table: Table[D], document: D) -> D:
        """Store *document*, and publish it to watchers after the commit."""
        self.store.put(self.store.prepare(table), self.tenant.user_id, document)
        self.store.after_commit(lambda: self.publish(table.name, self.tenant.user_id, document))
        return document

    def remove(self, table: Documents[D], key: str) -> bool:
        """Remove the seller's document *key*, and return whether it existed."""
        self.store.prepare(table)
        return self.store.remove(table, key, self.tenant.user_id)

    def find(self, table: Table[D], conditions: Sequence[Condition] = (), **options: Unpack[FindOptions]) -> list[D]:
        """Return the seller's documents that meet all *conditions*.

        Args:
            table: The table to search.
            conditions: Columns, comparisons and values.
            **options: ``order``, a column (creation order by default); ``descending``; ``limit`` and ``offset``;
                ``shuffle``, a number that determines the order of equal documents.

        Raises:
            KeyError: The column does not exist.
            TypeError: A number is compared with ``<`` or ``>``. Columns except moments are compared as text.
        """
        return self.store.find(self.store.prepare(table), self.tenant.user_id, conditions, **options)

    def number(self, table: Table[D], digits: int) -> int:
        """Return an unused number of *digits* digits for a new document of *table*."""
        return self.store.unused(self.store.prepare(table), lambda: self.ids.number(digits))

    def count(self, table: Table[D], conditions: Sequence[Condition] = ()) -> int:
        """Return how many of the seller's documents meet all *conditions*; see `find`."""
        return self.store.count(self.store.prepare(table), self.tenant.user_id, conditions)

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
        """Write a line of the ledger; *currency* is the seller's by default."""
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
        """Make the job *kind* (`Sandbox(jobs=)`) run for the thing *id* at a moment.

        Raises:
            ValueError: The job does not exist.
        """
        if kind not in self.jobs:
            raise ValueError(f"there is no job {kind!r}; there are {', '.join(self.jobs)}")
        self.store.schedule(Due(at=at - self.ahead, kind=kind, tenant=self.tenant.user_id, id=id))


class Rows(NamedTuple, Generic[D]):
    """The rows of a page, and its place in the search."""

    items: list[D]
    """The rows."""
    total: int
    """How many rows the search has."""
    offset: int
    """The requested offset of the page."""
    limit: int
    """The most rows that the page may have."""


def cut_page(
    policies: Policies, request: ParsedRequest[None], total: int, rows: Callable[[int, int], list[D]]
) -> Rows[D]:
    """Return the page that *request* asks for, within the page sizes and offsets that *policies* allow.

    Args:
        policies: The policies that apply to the seller.
        request: The search.
        total: The number of rows. A fault can make the search report more or fewer.
        rows: Returns at most so many rows from a position. If rows appeared or vanished since the first page, the
            position differs from the requested offset.

    Raises:
        RequestInvalid: The offset is above `max_offset`, and the policy rejects it.
    """
    numbers = {name: value for name, value in request.query.items() if isinstance(value, int)}
    offset, limit = numbers.get("offset", 0), numbers.get("limit", policies.page_size)
    drift = request.drift if offset else 0
    limit, start = min(limit, policies.max_page_size), max(offset - drift, 0)
    if offset > policies.max_offset:
        match policies.beyond_max_offset:
            case "refuse":
                raise RequestInvalid("$.offset", f"is above {policies.max_offset}")
            case "empty":
                limit = 0
            case "clamp":
                start = policies.max_offset
    return Rows(rows(start, limit), min(max(total + drift, 0), policies.max_total), offset, limit)


def page_of(context: SellerContext, documents: Documents[D], request: ParsedRequest[None], **equal: object) -> Rows[D]:
    """Return the page that *request* asks for by `offset` and `limit`, subject to policies and faults.

    Args:
        context: The seller's context.
        documents: The documents to search.
        request: The search.
        **equal: Columns of *documents* and the values that they must equal; `None` for a filter that was not given.
    """
    return find_page(
        context, documents, request, [(name, "=", value) for name, value in equal.items() if value is not None]
    )


def find_page(
    context: SellerContext,
    table: Table[D],
    request: ParsedRequest[None],
    conditions: Sequence[Condition],
    **sorting: Unpack[Sorting],
) -> Rows[D]:
    """Return the page that *request* asks for of the documents that meet *conditions*, sorted by *sorting*."""

    def rows(start: int, most: int) -> list[D]:
        return context.find(table, conditions, limit=most, offset=start, **sorting)

    return cut_page(context.policies, request, context.count(table, conditions), rows)


def make_grant(
    context: SellerContext, kind: GrantKind, scope: str, *, oauth: bool = True, access_token: str | None = None
) -> Grant:
    """Store a new grant of the seller's application, and return it."""
    tenant = context.tenant
    if kind == "access":
        secret = f"TEST-{tenant.client_id}-{context.now:%m%d%H}-{context.ids.token()}-{tenant.user_id}"
    else:
        secret = f"TG-{context.ids.token(24)}-{tenant.user_id}"
    grant = Grant(
        secret=secret,
        kind=kind,
        user_id=tenant.user_id,
        scope=scope,
        expires_at=context.now + LIFETIMES[kind],
        oauth=oauth,
        access_token=access_token,
    )
    return context.put(GRANTS, grant)


def usable(context: SellerContext, secret: str) -> bool:
    """Return whether a grant of the seller can still be used."""
    grant = context.get(GRANTS, secret)
    return grant is not None and not (grant.spent or grant.revoked) and grant.expires_at > context.now


class MagicValue(Struct, frozen=True):
    """Where an operation reads a magic value."""

    member: str
    """The member of the request; if *later*, of the request that created the thing."""
    later: bool = False
    """Whether the operation is about an existing thing, and the value was sent when that was created."""
    ending: str = ""
    """The end that makes the value valid for its member."""


def requested_error(operation: Operation[T, object], text: object, *, later: bool = False) -> Rejected | None:
    """Return the rejection that the magic value *text* asks for; `None` if it asks for no documented code."""
    match = _DEMAND.match(text) if isinstance(text, str) else None
    prefix = _prefix(operation) if later and match else ""
    if match is None or not match["slug"].startswith(prefix):
        return None
    slug = match["slug"].removeprefix(prefix)
    return next((Rejected(error.status, error.code) for error in operation.errors if _slug(error) == slug), None)


def _prefix(operation: Operation[T, object]) -> str:
    return operation.name.partition(".")[2] + "-"


def _slug(error: ErrorCode) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", error.code)


def _general_code(operation: Operation[T, object], status: int, preferred: str | None = None) -> str:
    documented = [error.code for error in operation.errors if error.status == status and error.code != ANY_CODE]
    undocumented = "generic" if status >= _SERVER_ERRORS else "bad_request"
    return next((code for code in ("bad_request", preferred, *documented) if code in documented), undocumented)


@dataclass(frozen=True, kw_only=True)
class Handler(Generic[T, R]):
    """How one operation is handled."""

    operation: Operation[T, R]
    handle: Callable[[SellerContext, ParsedRequest[T]], object]
    """Returns the body of the response: a Struct, or plain data that no Struct describes. Raises ``Rejected``."""
    magic: MagicValue | None = None
    """Where the magic value is read; ``None`` if no member of the request can hold one."""

    def magic_value(self, error: ErrorCode) -> str | None:
        """Return the magic value that leads to *error*; ``None`` if no member of the operation can hold one."""
        if self.magic is None:
            return None
        return f"refuse-{_prefix(self.operation) if self.magic.later else ''}{_slug(error)}{self.magic.ending}"


@dataclass(frozen=True, kw_only=True)
class Noun:
    """Everything that the sandbox declares about one noun, such as ``orders``."""

    handlers: Sequence[Handler[Any, Any]]
    causes: Mapping[str, str] = field(default_factory=dict)
    """What leads to a code, for every operation of the noun that documents the code."""
    member_codes: Mapping[str, str] = field(default_factory=dict)
    """The code for a broken rule, by the member that the rule is about, such as ``phone.number``, or ``body``."""
    rule_codes: Mapping[str, str] = field(default_factory=dict)
    """The code for a broken rule, by the rule's id (`RequestInvalid.rule`), if its member has no code."""
    other_code: str | None = None
    """The code for everything else; by default, the most general code."""
    shape: Shape = cause
    """Writes the body of an error response."""
    schemas: Mapping[tuple[str, str], Mapping[str, object]] = field(default_factory=dict)
    """Rules that no type expresses, as JSON Schema: by the operation or Struct, and the name of the member."""
    required: Callable[[Policies], Mapping[str, Sequence[str]]] | None = None
    """Members that policies require, by the name of their Struct."""
    in_header_only: bool = False
    """Whether a token in the query is rejected, even with a valid one in the header. By default it is ignored."""
    jobs: Mapping[str, Callable[[SellerContext, str], str | None]] = field(default_factory=dict)
    """The jobs by name. Each handles the thing with the given id once it is due, and returns what happened or ``None``.
    """
    searched: Table[Any] | None = None
    """The table that its search reads. Each filter is a column of it, or an end of a range of one of its dates."""
    other_filters: Sequence[str] = ()
    """The filters that its search applies without a column."""

    def __post_init__(self) -> None:
        table, columns = self.searched, {*self.other_filters, *Position.__annotations__}
        if table is not None:
            columns.update(table.columns, (f"{date}_{end}" for date in table.dates for end in ("from", "to")))
        for operation in (handler.operation for handler in self.handlers if handler.operation.page is not None):
            if ignored := getattr(operation.query, "__annotations__", {}).keys() - columns:
                raise ValueError(f"{operation.name}: the sandbox ignores the filter {min(ignored)}: it has no column")

    @property
    def name(self) -> str:
        """The first part of the names of its operations."""
        return self.handlers[0].operation.name.partition(".")[0]

    def cause_of(self, code: str) -> str | None:
        """Return what leads to *code*; ``None`` if nothing in a sandbox does."""
        return {**CAUSES, **self.causes}.get(code)

    def reject(self, operation: Operation[object, object], error: RequestInvalid) -> Rejected:
        """Return the documented error of *operation* for a broken rule, with the place of the rule."""
        place = error.path.removeprefix("$").lstrip(".") or "body"
        of_member = (code for member, code in self.member_codes.items() if place.startswith(member))
        specific = next(of_member, self.rule_codes.get(error.rule))
        code = specific if specific in operation.meanings else self.other_code
        code = code or _general_code(operation, 400)
        return Rejected(400, code, details=(f"{place}: {error.reason}",))

    def general_code(self, operation: Operation[object, object], status: int) -> str:
        """Return the most general code of *status*: documented codes first."""
        return _general_code(operation, status, self.other_code)
