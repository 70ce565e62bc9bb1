"""An operation of the platform, declared once, as data.

The client, the sandbox, the OpenAPI document, the command line and the contract tests all read the same declaration.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import ResponseDecoder
from paymentsdk._codec.encode import QueryEncoder
from paymentsdk._contract.identity import Addition, Echo, Identity, member_place, reader
from paymentsdk._contract.rules import ANY_CODE, ErrorCode, RetryClass
from paymentsdk._headers import KEY_HEADER, RESERVED, check_headers, check_name
from paymentsdk._validate import plain_duration
from paymentsdk.errors import OutcomeUnknown, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._codec.body import BodyEncoder

B = TypeVar("B", contravariant=True)
R = TypeVar("R", covariant=True)
P = TypeVar("P")

_PATH = r"(/([A-Za-z0-9._~!$&'()*+,;=:@%-]|{[A-Za-z_][A-Za-z0-9_]*})*)+\Z"

KIB = 1024
MIB = 1024 * KIB


_JSON = "application/json"
_NO_CONTENT = 204
#: One and a half leases: recovery still has half a lease after the lease of a dead process has ended.
_LEAST_WINDOW = timedelta(seconds=90)
_NOT_REPEATABLE = frozenset({RetryClass.UNKEYED, RetryClass.TOKEN_CODE, RetryClass.TOKEN_REFRESH})


class PageShape(Struct, frozen=True, kw_only=True):
    """Names the fields of a search response that hold its rows and its position; a nested field is ``paging.total``.

    A walk uses the filter ``offset``, counted in rows, unless `page` or `cursor` names another filter.

    Raises:
        RequestInvalid: The shape names two of an offset, `page` and `cursor`, or only one of `cursor` and
            `next_cursor`. Or it has no `total` and no cursor. Or it has `created_until` or `immutable`, but no offset.
    """

    items: str
    """The rows; a walk recognises a repeated row by its `id`."""
    total: str | None = None
    """The number of rows of the search. `None`, only with a cursor, if the platform does not say."""
    offset: str | None = None
    """The offset that the platform echoes. `None` if it echoes no offset."""
    next_offset: str | None = None
    """The offset that the platform proposes for the next page. `None` if it proposes no offset."""
    page: str | None = None
    """The filter for the number of a page, from 1, instead of an offset."""
    cursor: str | None = None
    """The filter for the cursor of a page, instead of an offset. The first page is requested without it."""
    next_cursor: str | None = None
    """The cursor of the next page. `None` or an empty text in a response means the end of the search."""
    size: str = "limit"
    """The filter for the number of rows per page."""
    created_until: str | None = None
    """The filter for the end of a window of creation, such as `date_created_to`. Rows show the date as `date_created`.
    ``None`` if the search has no such filter."""

    immutable: frozenset[str] = frozenset()
    """The filters by fields of a row that never change. With only these filters, a window that has ended gets no
    further row. `search(certify=True)` rejects a response if a row has another value in the field of that name."""

    def __post_init__(self) -> None:
        positions = (self.offset or self.next_offset, self.page, self.cursor)
        if sum(position is not None for position in positions) > 1:
            raise RequestInvalid("page", "names two of an offset, a page number and a cursor: name one")
        if (self.cursor is None) is not (self.next_cursor is None):
            raise RequestInvalid("page", "needs both of cursor, a filter, and next_cursor, a field of the response")
        if self.total is None and self.cursor is None:
            raise RequestInvalid("page.total", "is needed, unless the search is walked by cursor")
        if (self.page or self.cursor) and (self.created_until or self.immutable):
            raise RequestInvalid("page", "has a window of creation, which needs a search by offset")

    def position_in(self, query: type | None) -> str | None:
        """Return the filter of *query* that requests a page; ``None`` for a search of one page."""
        return self.page or self.cursor or ("offset" if takes_offset(query) else None)

    def read(self, response: object) -> "PageFields":
        """Return the page's fields in *response*."""
        names = (self.items, self.total, self.offset, self.next_offset, self.next_cursor)
        return PageFields._make(None if name is None else reader(name)(response) for name in names)

    def places(self, response: object) -> tuple[str, ...]:
        """Return the places of the rows and the total in the JSON of *response* (``$.results``, ``$.paging.total``)."""
        names = (self.items,) if self.total is None else (self.items, self.total)
        return tuple(member_place(name, type(response), "the result") for name in names)


class PageFields(NamedTuple):
    """The fields of a page, named as in its `PageShape`."""

    items: Sequence[object] | None
    total: int | None
    offset: int | None
    next_offset: int | None
    next_cursor: object


def takes_offset(query: type | None) -> bool:
    """Return whether a search with the filters *query* can request its second page."""
    return "offset" in getattr(query, "__annotations__", ())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False, match_args=False)
class Operation(Generic[B, R]):
    """One operation: its request, its response, and what a failure means.

    Raises:
        RequestInvalid: The path, the retry class or the name of a header is invalid, or an `Echo` or `page` names a
            member or a placeholder that does not exist.
    """

    name: str
    """`"orders.create"`: the namespace and the method of the client."""
    method: str
    """The HTTP method."""
    path: str
    """The path below the base URL, with its placeholders in braces."""
    retry: RetryClass
    """What may be sent again, and when; see `RetryClass`."""
    result: type[R]
    """The type of a decoded response. `bytes` for a response that is not JSON, which is not decoded."""
    section: str = ""
    """The section of the spec that defines it. Empty for an operation of your own."""
    summary: str = ""
    """One line for documents, and for the command line."""
    body: type[B] | None = None
    """The type of the request body: a Struct, or `bytes` for a body that is not JSON. `None` if the operation takes no
    body."""
    body_required: bool = True
    """Whether the body is required."""
    query: type | None = None
    """A `TypedDict` of the filters that go into the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further header fields that a request may have, with their meaning; for documents."""
    fixed_headers: Mapping[str, str] = field(default_factory=dict)
    """The header fields of every request of the operation, such as a version of the interface."""
    content_type: str = "application/json"
    """The type of the request body. Set it together with `body=bytes`."""
    accept: str = "application/json"
    """The type of the response. With `result=bytes` the default is `*/*`. If you set it, a response of another type is
    not trusted, such as a proxy's page instead of a file."""
    key_header: str = KEY_HEADER
    """The name of the header with the idempotency key."""
    example: Mapping[str, object] | None = None
    """A body for documents, as plain data."""
    errors: tuple[ErrorCode, ...] = ()
    """The documented rejections."""
    status: int = 200
    """The documented status of a success. Any 2xx is accepted, but an undeclared status is an `Anomaly`."""
    other_statuses: tuple[int, ...] = ()
    """Further statuses of a success that the platform sends."""
    decimal_strings: bool = False
    """Whether amounts are sent as decimal strings instead of JSON numbers."""
    in_doubt: str = OutcomeUnknown.in_doubt
    """What to do if the outcome of a write without a key is unknown, and no operation can find it out."""
    empty_response: bool = False
    """Whether a 2xx without a body is a success. A 204 always is. All fields of the result need a default then."""
    authenticated: bool = True
    """Whether the call has a bearer token or a signature."""
    page: PageShape | None = None
    """The shape of a search response. A search without a filter ``offset`` has one page."""
    echoes: tuple[Echo, ...] = ()
    """The members of the response that repeat the request. Those that are present must agree. Otherwise a connection
    that delivers another response would lose money."""
    addition: Addition | None = None
    """The list of the response to which a write adds an entry."""
    resend_window: timedelta | Callable[[B | None], timedelta] | None = None
    """How long after its beginning a journaled write may be sent, unless the call passes `not_after=`. It must be 90
    seconds or more, and at least one and a half leases of the call, so that recovery can still send it after a crash. A
    function computes it from the body, and may return any length. `None`: the total timeout of the call. Never more
    than 23 hours."""
    look_up: Callable[..., Awaitable[object]] | None = None
    """An async function `look_up(client, record, others)`. Recovery calls it when a journaled write in doubt may not be
    sent any more. It reads, and never writes. `None`: the outcome of the write stays unknown.

    *client* calls for the seller: pass it to a `Resource`. *record* is the `Record` of the write, with its body, and
    with `begun` and `not_after` in platform time. ``await others(path=..., containing=...)`` returns the seller's other
    records that may have taken effect, with that path, and with these bytes in the body or without a body. Call it
    after the read: the journal kept every write that the read shows before it was sent.

    The function returns `None` unless the write certainly took effect. Then it returns the result of the write, or a
    `Resolution` with the state ``DONE`` if there is no result. If it raises, the outcome stays unknown."""
    max_response: int = 8 * MIB
    """The most bytes of a response."""
    path_names: tuple[str, ...] = field(init=False)
    """The names of the placeholders."""
    keyed: bool = field(init=False)
    """Whether the operation takes an idempotency key, in the header `key_header`."""
    writes: bool = field(init=False)
    """Whether the operation can change something on the platform."""
    wants_fresh_connection: bool = field(init=False)
    """Whether each attempt uses a new connection: the operation cannot be sent again if a kept connection breaks."""

    def __post_init__(self) -> None:
        try:
            self._check()
        except RequestInvalid as error:
            raise RequestInvalid(f"{self.name}.{error.path}", error.reason) from None

    def _check(self) -> None:
        """Reject a wrong declaration, and set the derived attributes."""
        # The path is appended to the base URL. Without its slash it would become part of the host's name, and the owner
        # of that name would get the token.
        if not re.match(_PATH, self.path):
            reason = "must be a path without query that begins with a slash, such as /v1/orders/{order_id}"
            raise RequestInvalid("path", reason)
        if not isinstance(self.retry, RetryClass):
            raise RequestInvalid("retry", "must be a RetryClass")
        self._check_page()
        if self.may_be_empty:
            self.result()  # Without a default for each field, each success would be an unknown outcome.
        check_name(self.key_header, "key_header")
        if self.key_header.lower() in RESERVED - {KEY_HEADER.lower()}:
            raise RequestInvalid(
                "key_header", f"cannot be {self.key_header}: the operation sets that to something else"
            )
        if self.result is bytes and self.accept == _JSON:
            object.__setattr__(self, "accept", "*/*")
        reserved = self.reserved_headers | {"accept"}
        fixed = check_headers(self.fixed_headers, "fixed_headers", reserved=reserved)
        object.__setattr__(self, "fixed_headers", fixed)
        window = plain_duration(self.resend_window) or self.resend_window
        object.__setattr__(self, "resend_window", window)
        if not (window is None or callable(window) or (isinstance(window, timedelta) and window >= _LEAST_WINDOW)):
            reason = "must be a timedelta of 90 seconds or more: a process that was killed holds its record for 60"
            raise RequestInvalid("resend_window", reason)
        # These are the same at every call, so they are computed once.
        derived = {
            "path_names": tuple(re.findall(r"{(\w+)}", self.path)),
            "keyed": self.retry is RetryClass.KEYED,
            "writes": self.retry is not RetryClass.READ,
            "wants_fresh_connection": self.retry in _NOT_REPEATABLE,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        _ = self.identity  # A wrong declaration is rejected now.

    def _check_page(self) -> None:
        """Reject a page that names something that the search does not have."""
        page = self.page
        if page is None:
            return
        for name in (page.items, page.total, page.offset, page.next_offset, page.next_cursor):
            _ = name is None or member_place(name, self.result, "the result", "page")
        if not takes_offset(self.query) and (page.offset or page.next_offset):
            reason = "names an offset, but `query` has no filter offset: without both, the search has one page"
            raise RequestInvalid("page", reason)
        filters = getattr(self.query, "__annotations__", {})
        for position in (page.page, page.cursor, page.size if page.size != "limit" else None):
            if position is not None and position not in filters:
                reason = f"names the filter {position!r}, which `query` does not have"
                raise RequestInvalid("page", reason)
        if page.position_in(self.query) != "offset" and "offset" in filters:
            reason = "names another position than the filter offset of `query`: name one"
            raise RequestInvalid("page", reason)

    @cached_property
    def identity(self) -> Identity | None:
        """The comparison of responses with their requests; `None` if the operation declares nothing to compare."""
        if not self.echoes and self.addition is None:
            return None
        return Identity(self.echoes, self.addition, body=self.body, result=self.result, placeholders=self.path_names)

    @property
    def may_be_empty(self) -> bool:
        """Whether a response without a body is a success."""
        return self.empty_response or self.status == _NO_CONTENT

    @cached_property
    def own_headers(self) -> Mapping[str, str]:
        """The header fields that the requests of this operation have and other requests do not."""
        accept = {} if self.accept == _JSON else {"Accept": self.accept}
        # These replace the client's own headers with the same names, in upper or lower case.
        key = {self.key_header: ""} if self.keyed and self.key_header != KEY_HEADER else {}
        return {**self.fixed_headers, **accept, **key}

    @cached_property
    def reserved_headers(self) -> frozenset[str]:
        """The header fields that only the operation may set, in lower case."""
        return RESERVED | {self.key_header.lower()}

    @cached_property
    def encoder(self) -> "BodyEncoder[B] | None":
        """The encoder of the body; made at the first use, since most programs use few operations.

        Raises:
            RequestInvalid: The body has amounts or moments outside of Structs and lists, where nothing checks them.
            TypeError, RecursionError: msgspec does not support the type of the body, or the type is recursive.
        """
        from paymentsdk._codec.body import BodyEncoder  # only programs that write need it

        return None if self.body is None else BodyEncoder(self.body, decimal_strings=self.decimal_strings)

    @cached_property
    def query_encoder(self) -> QueryEncoder:
        """The encoder of a search's filters."""
        return QueryEncoder(self.query)

    @cached_property
    def decoder(self) -> ResponseDecoder[R]:
        """The decoder of the response.

        Raises:
            RequestInvalid: A Struct of the result forbids unknown fields.
            TypeError: msgspec does not support the type of the result.
        """
        essential = self.identity.unreadable if self.identity else None
        return ResponseDecoder(
            self.result, empty=self.may_be_empty, documented=self.status == _NO_CONTENT, essential=essential
        )

    @cached_property
    def meanings(self) -> Mapping[str, str]:
        """The meaning of each documented code."""
        return {error.code: error.meaning for error in self.errors}

    def documents(self, status: int, code: str | None) -> bool:
        """Return whether the contract has an error response of *status* with *code*."""
        return any(error.status == status and error.code in (code, ANY_CODE) for error in self.errors)

    def returning(self, result: type[P]) -> "Operation[B, P]":
        """Return the same operation with responses decoded into *result*, such as a Struct of fewer fields.

        Fields that *result* does not have are skipped, which is much faster than decoding them. For a search, *result*
        needs the fields that `page` names, and its rows need an ``id``.

        Raises:
            RequestInvalid: *result* lacks a field that `page` or an `Echo` names, or one of its Structs forbids unknown
                fields.
        """
        operation = replace(cast("Operation[B, P]", self), result=result)
        _ = operation.decoder  # Reject a type that cannot be decoded now.
        return operation

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Decode a response without a client.

        Return the value, and one `Anomaly` for each member that was repaired or dropped.

        Raises:
            ValueError: The body is not JSON, or its shape cannot hold the result.
        """
        return self.decoder.decode(body)

    def __getstate__(self) -> Mapping[str, object]:
        # The attributes that are made at the first use cannot be pickled; they are made again.
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    def __repr__(self) -> str:
        return f"<Operation {self.name}: {self.method} {self.path}>"
