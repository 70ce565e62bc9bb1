"""What a handler works with, and how a noun of the API declares its handlers: as one value, which its tests look at.

A string that begins with ``refuse-`` in the member that the ``magic`` of a handler names asks for the rejection whose
code follows, with everything but letters and digits written as ``_``: an order with the ``external_reference``
``refuse-pos_not_found`` is rejected with ``pos_not_found``, a customer with the email ``refuse-129@example.com`` with
129. ``refuse-cancel-resource_locked`` in the reference of an order lets it be created, and refuses to cancel it; so do
``refuse-get-...`` and ``refuse-refund-...``.
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
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import GRANTS, Condition, Documents, Entry, EntryKind, Grant, Table, Tenant
from paymentsdk.sandbox._signers import Webhook
from paymentsdk.sandbox._store import Due, Store
from paymentsdk.sandbox._wire import Rejected, Shape, cause, encode

D = TypeVar("D", bound=Struct)
B = TypeVar("B", covariant=True)
T = TypeVar("T")
R = TypeVar("R")
GrantKind: TypeAlias = Literal["access", "refresh", "code"]

_SERVER_ERRORS = 500
_DEMAND = re.compile(r"refuse-(?P<slug>[A-Za-z0-9_-]+?)(?:@.*)?\Z", re.DOTALL)
#: What leads to a code by itself, whatever the operation.
CAUSES: Mapping[str, str] = {
    "unauthorized": "no bearer token, or one that is unknown, revoked or has expired",
    "invalid_token": "no bearer token, or one that is unknown, revoked or has expired",
    "empty_required_header": "no X-Idempotency-Key",
    "invalid_idempotency_key_length": "an X-Idempotency-Key of more characters than `max_key_length`",
    "idempotency_key_already_used": "a key of the last 24 hours with another request",
    "resource_locked": "the policy concurrent_twin=locked, and a key that is in flight",
}
SCOPES = "offline_access read write"
#: The contract gives refresh tokens no end; this is longer than any test will wait.
LIFETIMES: Mapping[GrantKind, timedelta] = {
    "access": timedelta(seconds=DEFAULT_LIFETIME),
    "refresh": timedelta(days=3650),
    "code": timedelta(minutes=10),
}


class ParsedRequest(Struct, Generic[B], frozen=True, kw_only=True):
    """What a handler gets: a request whose parts were read as their types say, and checked."""

    body: B
    """The body; `None` for none."""
    path: Mapping[str, str]
    """The values in the path."""
    query: Mapping[str, object]
    """The filters, read as their types say; those that were not given are not there."""
    grant: Grant | None = None
    """The token that it came with; `None` at the token endpoint."""
    content: bytes = b""
    """The body as it came."""
    drift: int = 0
    """Rows that appeared (or vanished, below zero) before the page that is asked for."""
    effects: tuple[str, ...] = ()
    """The faults that hit the request: some happen to rows before they are read."""


class Sorting(TypedDict, total=False):
    """In which order documents come; see `Store.find`."""

    order: str
    descending: bool
    shuffle: int | None


class FindOptions(Sorting, total=False):
    """Which of the documents come, and in which order; see `Store.find`."""

    limit: int
    offset: int


class SellerContext(Struct, frozen=True, kw_only=True):
    """One seller's part of the sandbox, at one moment: what a handler does to it is committed as a whole."""

    tenant: Tenant
    """The seller."""
    now: datetime
    """The moment, by the clock of the seller."""
    policies: Policies
    """Those that hold for the seller."""
    ids: Ids
    """Makes identifiers: `token(length)`, `number(digits)`, `uuid()`, `sortable(prefix, now)`."""
    base_url: str
    """Where links lead: the sandbox as buyers reach it."""
    store: Store
    """Where documents are kept. The methods below read and write it for this seller alone."""
    publish: Callable[[str, int, Struct], None]
    """Sends a change to those who watch, such as the dashboard: the name of the table, the seller, the document."""
    jobs: Collection[str] = ()
    """The names of what `schedule` can bring about."""
    webhooks: Sequence[Webhook] = ()
    """Those that the seller has registered."""
    key: str | None = None
    """The idempotency key of the request, if it has one."""
    ahead: timedelta = timedelta()
    """How far the clock of the seller is ahead of the clock of the sandbox, by which things fall due."""

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

    def find(self, table: Table[D], conditions: Sequence[Condition] = (), **options: Unpack[FindOptions]) -> list[D]:
        """Return the seller's documents that meet all *conditions*.

        Args:
            table: What is searched.
            conditions: Columns, how they are compared, and with what.
            **options: ``order``, a column (that of their making by default); ``descending``; ``limit`` and ``offset``;
                ``shuffle``, a number that decides how equal ones come.

        Raises:
            KeyError: There is no such column.
            TypeError: A number is to be below or above another: columns are compared as text, but for moments.
        """
        return self.store.find(self.store.prepare(table), self.tenant.user_id, conditions, **options)

    def number(self, table: Table[D], digits: int) -> int:
        """Return a number of *digits* digits for a new document of *table*."""
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
        self.store.schedule(Due(at=at - self.ahead, kind=kind, tenant=self.tenant.user_id, id=id))


class Rows(NamedTuple, Generic[D]):
    """What a page of a search has."""

    items: list[D]
    """The rows."""
    total: int
    """How many rows the search has."""
    offset: int
    """Where the page begins, as it was asked for."""
    limit: int
    """The most rows that it may have."""


def cut_page(
    policies: Policies, request: ParsedRequest[None], total: int, rows: Callable[[int, int], list[D]]
) -> Rows[D]:
    """Return the page that *request* asks for, with the pages and offsets that *policies* allow.

    Args:
        policies: Those that hold for the seller.
        request: The search.
        total: How many rows there are; by a fault, the search may say that there are more or fewer.
        rows: Returns the rows from a position on, so many at most. Rows may have appeared or vanished since the first
            page: the page then really begins elsewhere than where it was asked for.

    Raises:
        RequestInvalid: The offset is beyond `max_offset`, and the policy says to reject it.
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
    """Return the page that *request* asks for with its `offset` and `limit`, as policies and faults have it.

    Args:
        context: Whose documents.
        documents: What is searched.
        request: The search.
        **equal: Columns of *documents*, and what they must be equal to; `None` for a filter that was not given.
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
    """Return the page that *request* asks for of what meets *conditions*, in the order of *sorting*."""

    def rows(start: int, most: int) -> list[D]:
        return context.find(table, conditions, limit=most, offset=start, **sorting)

    return cut_page(context.policies, request, context.count(table, conditions), rows)


def make_grant(
    context: SellerContext, kind: GrantKind, scope: str, *, oauth: bool = True, access_token: str | None = None
) -> Grant:
    """Give the seller's application a new grant, and keep it."""
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
    """Say whether a grant of the seller can still be used."""
    grant = context.get(GRANTS, secret)
    return grant is not None and not (grant.spent or grant.revoked) and grant.expires_at > context.now


class MagicValue(Struct, frozen=True):
    """Where an operation looks for a magic value."""

    member: str
    """The member of its request; of the request that made the thing, if it is *later*."""
    later: bool = False
    """Whether the operation is about a thing that exists, and the value was sent when that was created."""
    ending: str = ""
    """What the value ends with, to be one of the member."""


def requested_error(operation: Operation[T, object], text: object, *, later: bool = False) -> Rejected | None:
    """Return the rejection that *text* asks for: the magic member of a request, or of its thing if it is *later*."""
    match = _DEMAND.match(text) if isinstance(text, str) else None
    prefix = _prefix(operation) if later else ""
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
    """Returns the body of the response: a Struct, or plain data where a Struct cannot say it. Raises ``Rejected``."""
    magic: MagicValue | None = None
    """Where a magic value is looked for; ``None`` where no member of the request could hold one."""

    def magic_value(self, error: ErrorCode) -> str | None:
        """Return the magic value that leads to *error*; ``None`` where the operation has no member to hold it."""
        if self.magic is None:
            return None
        return f"refuse-{_prefix(self.operation) if self.magic.later else ''}{_slug(error)}{self.magic.ending}"


@dataclass(frozen=True, kw_only=True)
class Noun:
    """Everything that the sandbox declares about one noun, such as ``orders``."""

    handlers: Sequence[Handler[Any, Any]]
    causes: Mapping[str, str] = field(default_factory=dict)
    """What leads to a code by itself, for every operation of the noun that documents the code."""
    member_codes: Mapping[str, str] = field(default_factory=dict)
    """Which code a broken rule leads to, by the member that it is about, such as ``phone.number``, or ``body``."""
    rule_codes: Mapping[str, str] = field(default_factory=dict)
    """Which code it leads to, by its id (`RequestInvalid.rule`), where the member has no code of its own."""
    other_code: str | None = None
    """The code for whatever else is wrong; by default, the one that says the least."""
    shape: Shape = cause
    """Writes the body of an error response."""
    schemas: Mapping[tuple[str, str], Mapping[str, object]] = field(default_factory=dict)
    """Rules that no type says, as JSON Schema: by the operation, or the Struct, and the name of the member."""
    required: Callable[[Policies], Mapping[str, Sequence[str]]] | None = None
    """Members that policies ask for, by the name of their Struct."""
    in_header_only: bool = False
    """Whether a token in the query is rejected, also beside a good one in the header; elsewhere it is ignored."""
    jobs: Mapping[str, Callable[[SellerContext, str], str | None]] = field(default_factory=dict)
    """What happens to the thing of an id when its moment has come; each says what it did, or ``None`` for nothing."""
    searched: Table[Any] | None = None
    """What its search looks at. Each filter is a column of it, or an end of a range of one of its dates."""
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
        """What the names of its operations begin with."""
        return self.handlers[0].operation.name.partition(".")[0]

    def cause_of(self, code: str) -> str | None:
        """Return what leads to *code* by itself; ``None`` where nothing that a sandbox could know does."""
        return {**CAUSES, **self.causes}.get(code)

    def reject(self, operation: Operation[object, object], error: RequestInvalid) -> Rejected:
        """Return the documented error of *operation* for a broken rule, naming the place."""
        place = error.path.removeprefix("$").lstrip(".") or "body"
        of_member = (code for member, code in self.member_codes.items() if place.startswith(member))
        specific = next(of_member, self.rule_codes.get(error.rule))
        code = specific if specific in operation.meanings else self.other_code
        code = code or _general_code(operation, 400)
        return Rejected(400, code, details=(f"{place}: {error.reason}",))

    def general_code(self, operation: Operation[object, object], status: int) -> str:
        """Return the code of *status* that says the least about a request: documented ones before others."""
        return _general_code(operation, status, self.other_code)
