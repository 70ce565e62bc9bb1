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
#: One and a half leases: recovery has half of one left after the lease of a dead process has ended.
_LEAST_WINDOW = timedelta(seconds=90)
_NOT_REPEATABLE = frozenset({RetryClass.UNKEYED, RetryClass.TOKEN_CODE, RetryClass.TOKEN_REFRESH})


class PageShape(Struct, frozen=True, kw_only=True):
    """Names the fields of a search response that hold its rows and its position; ``paging.total`` is a nested one.

    A search is walked by the filter ``offset``, counted in rows, unless `page` or `cursor` names another filter.

    Raises:
        RequestInvalid: Two of an offset, `page` and `cursor` are named; one of `cursor` and `next_cursor` is missing;
            only a search by cursor may lack `total`; `created_until` or `immutable` needs a search by offset.
    """

    items: str
    """The rows; a walk recognises a repeated row by its `id`."""
    total: str | None = None
    """How many rows the search has, as far as the platform says; `None`, by cursor alone, if it never does."""
    offset: str | None = None
    """The offset that the platform echoes; `None` if it echoes none."""
    next_offset: str | None = None
    """The offset that the platform proposes; `None` if it proposes none."""
    page: str | None = None
    """The filter that takes the number of a page, from 1, in place of an offset."""
    cursor: str | None = None
    """The filter that takes the cursor of a page, in place of an offset; the first page is asked for without it."""
    next_cursor: str | None = None
    """The cursor of the next page; `None` or an empty text there is the end of the search."""
    size: str = "limit"
    """The filter that takes the number of rows per page."""
    created_until: str | None = None
    """The filter that ends a window of creation, such as `date_created_to`, of a date that rows show as `date_created`;
    ``None`` if the search has none."""

    immutable: frozenset[str] = frozenset()
    """The filters by what never changes about a row. With them alone, a window that has ended gets no further row.
    `search(certify=True)` rejects a response with a row that shows another value in the field of that name."""

    def __post_init__(self) -> None:
        positions = (self.offset or self.next_offset, self.page, self.cursor)
        if sum(position is not None for position in positions) > 1:
            raise RequestInvalid(
                "page", "names two of an offset, a page number and a cursor: a search is walked by one"
            )
        if (self.cursor is None) is not (self.next_cursor is None):
            raise RequestInvalid("page", "needs both of cursor, a filter, and next_cursor, a field of the response")
        if self.total is None and self.cursor is None:
            raise RequestInvalid("page.total", "is needed, unless the search is walked by cursor")
        if (self.page or self.cursor) and (self.created_until or self.immutable):
            raise RequestInvalid("page", "has a window of creation, which is certified in a search by offset alone")

    def position_in(self, query: type | None) -> str | None:
        """Return the filter of *query* that a page is asked for by; ``None`` for a search of one page."""
        return self.page or self.cursor or ("offset" if takes_offset(query) else None)

    def read(self, response: object) -> "PageFields":
        """Return what stands there in *response*."""
        names = (self.items, self.total, self.offset, self.next_offset, self.next_cursor)
        return PageFields._make(None if name is None else reader(name)(response) for name in names)

    def places(self, response: object) -> tuple[str, ...]:
        """Return where the rows and the total of *response* are in its JSON (``$.results``, ``$.paging.total``)."""
        names = (self.items,) if self.total is None else (self.items, self.total)
        return tuple(member_place(name, type(response), "the result") for name in names)


class PageFields(NamedTuple):
    """What a page shows, by the names of its `PageShape`."""

    items: Sequence[object] | None
    total: int | None
    offset: int | None
    next_offset: int | None
    next_cursor: object


def takes_offset(query: type | None) -> bool:
    """Whether a search with the filters *query* can be asked for its second page."""
    return "offset" in getattr(query, "__annotations__", ())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False, match_args=False)
class Operation(Generic[B, R]):
    """One operation: what goes out, what comes back, and what a failure means.

    Raises:
        RequestInvalid: The path, the retry class or the name of a header is not valid, or a member or a placeholder
            that an `Echo` or `page` names does not exist.
    """

    name: str
    """`"orders.create"`: the namespace and the method of the client."""
    method: str
    """The HTTP method."""
    path: str
    """The path below the base URL, with its placeholders in braces."""
    retry: RetryClass
    """What may be sent again, and when."""
    result: type[R]
    """The type of a decoded response; `bytes` for one that is not JSON, as it came."""
    section: str = ""
    """The section of the spec that defines it; none of an operation of your own."""
    summary: str = ""
    """One line for documents, and for the command line."""
    body: type[B] | None = None
    """The type of the request body: a Struct, or `bytes` for one that is not JSON; `None` when the operation takes
    none."""
    body_required: bool = True
    """Whether the body must be given; `False` where it can be left out."""
    query: type | None = None
    """A `TypedDict` of the filters that go into the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The header fields that a request may carry besides, by name, and what they hold; for documents."""
    fixed_headers: Mapping[str, str] = field(default_factory=dict)
    """The header fields that every request of the operation carries, such as a version of the interface."""
    content_type: str = "application/json"
    """What the body of a request is; say it with `body=bytes`."""
    accept: str = "application/json"
    """What the body of a response is. With `result=bytes` it is `*/*` by default; if you say it, a response that says
    it is something else is not trusted, such as the page of a proxy where a file should be."""
    key_header: str = KEY_HEADER
    """The name of the header with the idempotency key."""
    example: Mapping[str, object] | None = None
    """A body for documents, as plain data."""
    errors: tuple[ErrorCode, ...] = ()
    """The documented rejections."""
    status: int = 200
    """The status of a success as documented. Any 2xx is accepted; one that is not declared is an `Anomaly`."""
    other_statuses: tuple[int, ...] = ()
    """Further statuses of a success that real traffic has."""
    decimal_strings: bool = False
    """Amounts travel as decimal strings instead of JSON numbers."""
    in_doubt: str = OutcomeUnknown.in_doubt
    """What to do when nobody knows the outcome of a write without a key: the contract has no operation to find out."""
    empty_response: bool = False
    """A 2xx without a body is a success, also where `status` is not 204, which never has one. All fields of the result
    need a default then."""
    authenticated: bool = True
    """The call carries a bearer token, or is signed."""
    page: PageShape | None = None
    """The shape of a search response. A search without a filter ``offset`` is of one page."""
    echoes: tuple[Echo, ...] = ()
    """What the response repeats of the request. What is present has to agree. A connection that delivers someone
    else's response is how money gets lost."""
    addition: Addition | None = None
    """The list of the response to which a write adds one entry."""
    resend_window: timedelta | Callable[[B | None], timedelta] | None = None
    """How long after its beginning a journaled write may be sent, unless `not_after=` says so: 90 seconds or more, and
    at least one and a half leases of the call, so that recovery can still send it after a crash. A function of the body
    where that decides: what it returns holds, however short. `None`: the total timeout of the call. Never more than 23
    hours."""
    look_up: Callable[..., Awaitable[object]] | None = None
    """An async function, `look_up(client, record, others)`, that recovery calls once a journaled write in doubt may not
    be sent any more. It reads, and never writes. `None`: the outcome of the write stays unknown.

    *client* calls for the seller: give it to a `Resource`. *record* is the `Record` of the write, with its body, and
    with `begun` and `not_after` in platform time. ``await others(path=..., containing=...)`` returns the other records
    of the seller that may have taken effect, with that path, and with these bytes in the body or without a body. Call
    it after the read: a write that the read shows was kept before it was sent.

    The function returns `None` unless the write certainly took effect. Then it returns the result of the write, or a
    `Resolution` with the state ``DONE`` if there is no result. If it raises, the outcome stays unknown."""
    max_response: int = 8 * MIB
    """The most bytes that a response may have."""
    path_names: tuple[str, ...] = field(init=False)
    """The names of the placeholders."""
    keyed: bool = field(init=False)
    """The operation takes an idempotency key, in the header `key_header`."""
    writes: bool = field(init=False)
    """The operation can change something on the platform."""
    wants_fresh_connection: bool = field(init=False)
    """It cannot be sent again when a kept connection breaks, so it travels on a new one."""

    def __post_init__(self) -> None:
        # It goes behind the base URL as it is: without its slash it would become a part of the host's name, and the
        # token would go to whoever has that.
        if not re.match(_PATH, self.path):
            reason = "must be a path without query that begins with a slash, such as /v1/orders/{order_id}"
            raise RequestInvalid(f"{self.name}.path", reason)
        if not isinstance(self.retry, RetryClass):
            raise RequestInvalid(f"{self.name}.retry", "must be a RetryClass")
        self._check_page()
        if self.may_be_empty:
            self.result()  # A field without a default would make each success an unknown outcome.
        check_name(self.key_header, f"{self.name}.key_header")
        if self.key_header.lower() in RESERVED - {KEY_HEADER.lower()}:
            raise RequestInvalid(
                f"{self.name}.key_header", f"cannot be {self.key_header}: that is set to something else"
            )
        if self.result is bytes and self.accept == _JSON:
            object.__setattr__(self, "accept", "*/*")
        reserved = self.reserved_headers | {"accept"}
        fixed = check_headers(self.fixed_headers, f"{self.name}.fixed_headers", reserved=reserved)
        object.__setattr__(self, "fixed_headers", fixed)
        window = plain_duration(self.resend_window) or self.resend_window
        object.__setattr__(self, "resend_window", window)
        if not (window is None or callable(window) or (isinstance(window, timedelta) and window >= _LEAST_WINDOW)):
            reason = "must be a timedelta of 90 seconds or more: a process that was killed holds its record for 60"
            raise RequestInvalid(f"{self.name}.resend_window", reason)
        # Asked for at every call, and the same at every call.
        derived = {
            "path_names": tuple(re.findall(r"{(\w+)}", self.path)),
            "keyed": self.retry is RetryClass.KEYED,
            "writes": self.retry is not RetryClass.READ,
            "wants_fresh_connection": self.retry in _NOT_REPEATABLE,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        _ = self.identity  # A declaration that cannot work is rejected now.

    def _check_page(self) -> None:
        """Reject a page that names what the search does not have."""
        page = self.page
        if page is None:
            return
        for name in (page.items, page.total, page.offset, page.next_offset, page.next_cursor):
            try:
                _ = name is None or member_place(name, self.result, "the result")
            except RequestInvalid as error:
                raise RequestInvalid(f"{self.name}.page", error.reason) from None
        if not takes_offset(self.query) and (page.offset or page.next_offset):
            reason = "names an offset, but `query` has no filter offset: without both, the search is of one page"
            raise RequestInvalid(f"{self.name}.page", reason)
        filters = getattr(self.query, "__annotations__", {})
        for position in (page.page, page.cursor, page.size if page.size != "limit" else None):
            if position is not None and position not in filters:
                reason = f"names the filter {position!r}, which `query` does not have"
                raise RequestInvalid(f"{self.name}.page", reason)
        if page.position_in(self.query) != "offset" and "offset" in filters:
            reason = "names another position than the filter offset of `query`: a search is walked by one"
            raise RequestInvalid(f"{self.name}.page", reason)

    @cached_property
    def identity(self) -> Identity | None:
        """Compares responses with their requests; `None` if nothing is declared to compare."""
        if not self.echoes and self.addition is None:
            return None
        try:
            return Identity(
                self.echoes, self.addition, body=self.body, result=self.result, placeholders=self.path_names
            )
        except RequestInvalid as error:
            raise RequestInvalid(f"{self.name}.{error.path}", error.reason) from None

    @property
    def may_be_empty(self) -> bool:
        """Whether a response without a body is a success."""
        return self.empty_response or self.status == _NO_CONTENT

    @cached_property
    def own_headers(self) -> Mapping[str, str]:
        """The header fields that its requests have and others do not."""
        accept = {} if self.accept == _JSON else {"Accept": self.accept}
        # In place of what the client may send with all calls under that name, in whatever case.
        key = {self.key_header: ""} if self.keyed and self.key_header != KEY_HEADER else {}
        return {**self.fixed_headers, **accept, **key}

    @cached_property
    def reserved_headers(self) -> frozenset[str]:
        """The header fields, in lower case, that no call may set, since the operation does."""
        return RESERVED | {self.key_header.lower()}

    @cached_property
    def encoder(self) -> "BodyEncoder[B] | None":
        """Checks and encodes the body; made at the first use, since most programs use few operations.

        Raises:
            RequestInvalid: The body has amounts or moments elsewhere than in Structs and lists, where nothing checks
                them.
            TypeError, RecursionError: msgspec does not support the type of the body, or it is recursive.
        """
        from paymentsdk._codec.body import BodyEncoder  # only programs that write need it

        return None if self.body is None else BodyEncoder(self.body, decimal_strings=self.decimal_strings)

    @cached_property
    def query_encoder(self) -> QueryEncoder:
        """Checks and encodes the filters of a search."""
        return QueryEncoder(self.query)

    @cached_property
    def decoder(self) -> ResponseDecoder[R]:
        """Decodes the response.

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
        """What each documented code means."""
        return {error.code: error.meaning for error in self.errors}

    def documents(self, status: int, code: str | None) -> bool:
        """Whether the contract has an error response of *status* with *code*."""
        return any(error.status == status and error.code in (code, ANY_CODE) for error in self.errors)

    def returning(self, result: type[P]) -> "Operation[B, P]":
        """Return the same operation with responses decoded into *result*, such as a Struct of the few fields you need.

        Fields that it does not have are skipped, which costs a fraction of decoding them. For a search, it needs the
        fields that `page` names, and its rows an ``id``.

        Raises:
            RequestInvalid: It lacks a field that `page` or an `Echo` names, or a Struct of it forbids unknown fields.
        """
        operation = replace(cast("Operation[B, P]", self), result=result)
        _ = operation.decoder  # A type that cannot be decoded is rejected now.
        return operation

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Decode a response without a client.

        Returns the value, and one `Anomaly` for each member that had to be repaired or dropped.

        Raises:
            ValueError: The body is not JSON, or not of a shape that holds the result.
        """
        return self.decoder.decode(body)

    def __getstate__(self) -> Mapping[str, object]:
        # What is made at the first use cannot be pickled, and is made anew.
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    def __repr__(self) -> str:
        return f"<Operation {self.name}: {self.method} {self.path}>"
