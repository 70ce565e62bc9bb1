"""The parts that several resources share: bases of Structs, open enums, ids, moments, durations, rejections."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias, TypedDict, TypeVar, Unpack, dataclass_transform
from uuid import UUID

import msgspec
from msgspec import Meta, Struct, StructMeta, field

from paymentsdk._call.engine import Caller, Engine, engine_of
from paymentsdk._call.settings import CallOptions
from paymentsdk._codec.encode import PathValue
from paymentsdk._codec.timestamps import read_day
from paymentsdk._contract.operation import Operation, PageShape
from paymentsdk._contract.rules import ErrorCode
from paymentsdk.errors import RequestInvalid, visible

__all__ = [
    "Amount",
    "Day",
    "Id",
    "KeyedWriteOptions",
    "KeywordOnlyMeta",
    "Metadata",
    "Moment",
    "Open",
    "OpenEnum",
    "Paging",
    "PositiveAmount",
    "RequestDay",
    "RequestStruct",
    "RequiredId",
    "Resource",
    "ResponseStruct",
    "WriteOptions",
]


class OpenEnum(StrEnum):
    """The named values of a field whose list may grow.

    A value that the contract does not name is kept as received, so that a running service continues. It becomes a
    member of the class that equals its text. Compare with ``==``: only named values are the same object each time.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str) or not value:
            return None  # An empty text means that the field is unset.
        member = str.__new__(cls, value)
        member._name_ = visible(value)  # `repr` shows the name without escapes.
        member._value_ = value
        return member


if TYPE_CHECKING:
    E = TypeVar("E", bound=OpenEnum)
    #: A field of a response whose values are those of an `OpenEnum`, or any other text. To type checkers it is a union
    #: with ``str``: a ``match`` over the named values alone is not exhaustive, since the platform may send others. At
    #: run time the value is always of the enum, since msgspec takes no union of an enum with ``str``.
    Open: TypeAlias = E | str
else:

    class Open:
        """A field of a response with an enum's value, or a value that the contract does not name (yet)."""

        def __class_getitem__(cls, kind: type[OpenEnum]) -> type[OpenEnum]:
            return kind


class KeywordOnlyMeta(StructMeta):
    """Makes Structs with keyword-only fields: given by position, an amount could become a reference.

    A metaclass, since msgspec does not pass this option on to subclasses.
    """

    if not TYPE_CHECKING:  # Type checkers use the `kw_only_default` below.

        def __new__(cls, *arguments: object, kw_only: bool = True, **options: object) -> Self:
            """Make a class, keyword-only by default."""
            return super().__new__(cls, *arguments, kw_only=kw_only, **options)


# Type checkers do not see the options that msgspec passes on to subclasses.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class RequestStruct(Struct, metaclass=KeywordOnlyMeta, frozen=True, omit_defaults=True):
    """Base of requests. Unset members are not sent; constraints are checked before anything is sent."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class ResponseStruct(Struct, metaclass=KeywordOnlyMeta, frozen=True, gc=False):
    """Base of responses. A member that the platform did not send, or sent as null, is ``None``."""


#: An identifier. The contract says number or string for each; the platform sends either.
Id: TypeAlias = int | str
#: The id of a created object: a response without it is useless.
RequiredId: TypeAlias = Annotated[str, Meta(min_length=1)]
#: A moment with its offset.
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
#: A day in a response: the platform sends a date or a moment. A date alone becomes its first moment, UTC.
Day: TypeAlias = Annotated[datetime, Meta(tz=True, extra={"day": True})]
#: The JSON Schema of a day in requests and responses.
DAY_SCHEMA: dict[str, object] = {"type": "string", "anyOf": [{"format": "date"}, {"format": "date-time"}]}
if TYPE_CHECKING:
    #: A day in a request: a date alone, or a moment with its offset. A datetime is a date, too.
    RequestDay: TypeAlias = date
else:
    # msgspec has no type for a date or a moment: the day is checked when it is sent, or earlier, by `read_days`.
    RequestDay = Annotated[object, Meta(extra={"day": True}, extra_json_schema=DAY_SCHEMA)]
#: An amount in a request, zero or more, with two decimals or none.
Amount: TypeAlias = Decimal
#: An amount in a request, above zero.
PositiveAmount: TypeAlias = Annotated[Decimal, Meta(extra={"above": 0}, extra_json_schema={"exclusiveMinimum": 0})]
#: Free-form data of the integrator, returned as it was sent. A JSON Schema has to say that any value is allowed.
Metadata: TypeAlias = dict[str, Annotated[object, Meta(extra_json_schema={"description": "Any JSON value."})]]


class Paging(ResponseStruct):
    """The position of a page (4.2, 4.6). All three are counted in rows."""

    offset: int | None = None
    """The first row of the page, from 0; `None` if not sent."""
    limit: int | None = None
    """The most rows on a page of this search; `None` if not sent."""
    total: int | None = None
    """The number of rows of the search, over all pages; `None` if not sent."""


#: The shape of searches that respond with ``{paging, results}``.
RESULTS = PageShape(items="results", total="paging.total", offset="paging.offset")

_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<weeks>[0-9]{1,6})W)?(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,6})H)?(?:(?P<minutes>[0-9]{1,6})M)?(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?\Z"
)


@lru_cache(maxsize=256)
def parse_duration(text: str) -> timedelta:
    """Read an ISO 8601 duration of weeks, days, hours, minutes and seconds (``PT5M``, ``P1DT12H``).

    Raises:
        ValueError: The text is not such a duration, or counts in months or years, whose length varies.
    """
    match = _DURATION.match(text)
    if match is None:
        raise ValueError("is not an ISO 8601 duration of weeks to seconds, such as PT5M or P30D")
    return timedelta(**{unit: float(value) for unit, value in match.groupdict().items() if value})


def require(condition: object, path: str, reason: str, rule: str = "value") -> None:
    """Reject a request Struct that breaks a rule across its fields.

    Raises:
        RequestInvalid: *condition* is false.
    """
    if not condition:
        raise RequestInvalid(path, reason, rule)


def comparable(first: object, second: object) -> bool:
    """Return whether two amounts can be compared; a float or NaN is rejected later, with its own path."""
    return isinstance(first, Decimal) and isinstance(second, Decimal) and first.is_finite() and second.is_finite()


def require_within_total(amount: Decimal, total: Decimal, path: str) -> None:
    """Reject a request Struct whose *amount* is above the *total* that contains it.

    Raises:
        RequestInvalid: *amount* is above *total*.
    """
    if comparable(amount, total):
        require(amount <= total, path, "is above the total amount")


def same_reference(requested: str | None, echoed: str) -> bool | None:
    """Return whether *echoed* can be the *requested* reference; `None` if it is empty."""
    if not echoed:
        return None
    if echoed == requested:
        return True
    # The platform may send a reference of digits as a number, which has no leading zeros.
    return requested is not None and requested.isdecimal() and echoed == (requested.lstrip("0") or "0")


def same_id(requested: Id | None, echoed: Id) -> bool | None:
    """Return whether *echoed* can be the *requested* id: either may be a number or a string."""
    return same_reference(None if requested is None else str(requested), str(echoed))


def read_days(request: Struct, *names: str) -> None:
    """Convert the days of a request that were given as text.

    Raises:
        RequestInvalid: A text is neither a date nor a moment with its offset.
    """
    for name in names:
        day = getattr(request, name)
        if day is None or isinstance(day, date):
            continue
        try:
            read = read_day(day)
        except ValueError:
            reason = "is neither a date such as 2026-01-31 nor a moment with its offset"
            raise RequestInvalid(f"$.{name}", reason) from None
        msgspec.structs.force_setattr(request, name, read)


B = TypeVar("B")
R = TypeVar("R")


class WriteOptions(TypedDict, total=False):
    """The keyword arguments of a write that takes no idempotency key."""

    once: str | None
    """Names the business fact that the write states, such as `"table-7/1"`, in the client's journal: 1 to 200 printable
    characters. The record is durable before the first byte is sent. Using the name again returns the first response as
    it was kept (see `Result.kept_at`). An order may be paid or expired by now, so read it again."""
    not_after: datetime | timedelta | None
    """For a journaled write: the moment, or the time from now, after which nothing is sent any more, at most 23 hours.
    The default is the time until an order expires, 15 minutes for a cancel and a wallet payment, 23 hours for a refund,
    and the total timeout for other writes. Except for an order's expiration, it is at least 90 seconds, and at least
    one and a half times the lease (twice `timeout.attempt`, at least 60 seconds). With less time, a record of a crashed
    process is left to a person."""
    defer: bool
    """For a journaled write that could not be sent: leave it to recovery, and raise `Deferred`; `False` by default. A
    client that never had a token, or a response of the platform, keeps nothing, and raises `RefreshFailed` or
    `NotSent`."""


class KeyedWriteOptions(WriteOptions, total=False):
    """The keyword arguments of a write that takes an idempotency key."""

    idempotency_key: str | UUID | None
    """A UUID, or 1 to 64 visible ASCII characters. The platform does one thing per key, for 24 hours. By default, a
    random key is made for this call and used for all its attempts. Cannot be combined with `once`."""
    first_sent_at: datetime | None
    """When `idempotency_key` was sent for the first time, a datetime with its offset, if it was sent before. Then
    nothing is sent more than 23 hours later, and a response that settles nothing is an `OutcomeUnknown`."""


class Resource:
    """Base of a namespace of the client: it makes calls, and has no state of its own.

    A subclass calls with `self._engine.call(OPERATION, ...)`, walks with `Pager(self._engine, SEARCH, ...)`, and passes
    the options of a write on with `self._write(OPERATION, body, options)`.

    Every method raises the errors of `PaymentsClient.call`; its own `Raises:` section only adds details.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine | Caller) -> None:
        self._engine: Engine = engine_of(engine)

    def with_options(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy that calls with other options: ``await client.orders.with_options(timeout=t).get(id)``.

        Args:
            **options: ``access_token`` or ``auth``, ``headers``, ``idempotency_key``, ``observers``, ``priority``,
                ``retry``, ``strict`` and ``timeout``. See `CallOptions`.

        Raises:
            RequestInvalid: An option is invalid.
        """
        return self._copy(self._engine.copy(self._engine.settings.changed(options)))

    def _copy(self, engine: Engine) -> Self:
        clone: Self = copy.copy(self)
        clone._engine = engine
        return clone

    def _read(self, operation: Operation[B, R], body: B | None = None, **path: PathValue) -> Awaitable[R]:
        """Carry out an operation without options, and return its value."""
        return self._engine.value(operation, body, path)

    def _write(
        self,
        operation: Operation[B, R],
        body: B | None,
        options: WriteOptions,
        *,
        headers: Mapping[str, str] | None = None,
        **path: PathValue,
    ) -> Awaitable[R]:
        """Carry out a write with the options of its method, and return its value."""
        if not options and headers is None:
            return self._engine.value(operation, body, path)
        # An unknown option is taken for a placeholder, and rejected: a misspelt key must not become a random one.
        return self._engine.general_value(operation, body, {"headers": headers, **options, **path})


def settling(status: int, code: str, meaning: str) -> ErrorCode:
    """Return a rejection which proves that no attempt at the write has taken effect."""
    return ErrorCode(status, code, meaning, settles=True)


UNAUTHORIZED = ErrorCode(401, "unauthorized", "the access token is invalid or has expired")
KEY_USED = settling(409, "idempotency_key_already_used", "the key went with another request in the last 24 hours")
KEY_IN_FLIGHT = ErrorCode(423, "resource_locked", "another request with the key is in progress")
#: The contract gives only the status. A write that can be sent again has its own text.
INTERNAL_ERROR = ErrorCode(500, "internal_error", "internal error; try again")
