"""What a client is set up with."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args

from msgspec import Struct

from paymentsdk._auth.schemes import Seller
from paymentsdk._engine.retry import RetryPolicy
from paymentsdk._operation.operation import Limits
from paymentsdk._validate import check_seconds
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from paymentsdk._auth.accounts import Accounts
    from paymentsdk._auth.schemes import AuthScheme, Credentials
    from paymentsdk.events import Attempt, Observer

#: `"interactive"`: somebody waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]
#: The header that the id of the buyer's device goes with (4.4), unless a client is told its real name.
SESSION_HEADER = "X-Platform-Session-Id"
_KEY = re.compile(r"[!-~]{1,64}\Z")


class Timeout(Struct, frozen=True):
    """How long things may take, in seconds: above 0 and at most 86,400, or ``None`` for no bound."""

    total: float | None = 60.0
    """The whole call, 60 s by default, as a true deadline: the wait for a connection, every attempt to its last byte,
    the pauses between them, and the wait for a token that is refreshed."""
    attempt: float | None = 30.0
    """One attempt, to the last byte of its response; 30 s by default."""
    connect: float | None = 5.0
    """The wait for a connection, from the pool or a new one; 5 s by default. When it runs out, nothing has been
    sent."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                check_seconds(f"timeout.{name}", value)


class RefreshTimeout(Timeout, frozen=True):
    """That of a token refresh, which the caller knows as `refresh_timeout`: `total`, and half of it an attempt."""


def bound_of(timeout: Timeout, *, attempt: bool) -> str:
    """Say which bound ran out, as the caller has set it: that of an *attempt*, or that of the whole call."""
    if isinstance(timeout, RefreshTimeout):
        return f"{'half of ' * attempt}refresh_timeout={timeout.total:g} s"
    name = "attempt" if attempt else "total"
    return f"timeout.{name}={getattr(timeout, name):g} s"


def end_of_attempt(timeout: Timeout, now: float, deadline: float) -> float:
    """Return when an attempt that begins *now* has to end: the call ends at the *deadline*."""
    limit = timeout.attempt
    return deadline if limit is None or now + limit > deadline else now + limit


def connect_timeout(timeout: Timeout, left: float) -> float:
    """Return how long an attempt that has *left* seconds may wait for a connection.

    That has to end before the attempt does: what is cut off after it may have been sent.
    """
    connect = timeout.connect
    return 0.9 * left if connect is None or connect >= left else connect


class CallOptions(TypedDict, total=False):
    """What a copy of a client, or of one of its resources, may do in another way; `None` changes nothing."""

    access_token: str | None
    """Another seller's token, in place of the client's. The copy belongs to no `account`, as with `auth`."""
    auth: AuthScheme | None
    """Another source of tokens, such as `RefreshingToken`, or a `Signer`; excludes `access_token`."""
    timeout: Timeout | None
    """Other bounds of the calls: a `Timeout`, in seconds, that replaces the client's as a whole."""
    retry: RetryPolicy | None
    """Another `RetryPolicy`: how many attempts a call has, and how long it waits between them."""
    idempotency_key: str | None
    """The key of every keyed write of the copy, unless the call gives its own. Two different writes with one key are a
    conflict: use such a copy for one intent."""
    headers: Mapping[str, str] | None
    """Header fields to send in addition to those of the client; one of the same name replaces its value."""
    strict: bool | None
    """`True` rejects a response that breaks the contract, `False` repairs it."""
    observers: Iterable[Observer] | None
    """Functions to call with the events of the copy, instead of those of the client; see `PaymentsClient`."""
    observer: Callable[[Attempt], None] | None
    """The former name of `observers`, for one function that is called after every attempt alone."""
    priority: Priority | None
    """`"batch"` for calls that nobody waits for: where calls wait for their turn, they go after all others;
    `"interactive"`, the default."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a client is set up with, and what a copy of it may change. See `PaymentsClient`."""

    base_url: str
    auth: AuthScheme
    credentials: Credentials | None
    timeout: Timeout
    refresh_timeout: float
    retry: RetryPolicy
    limits: Limits
    session_header: str
    headers: Mapping[str, str]
    idempotency_key: str | None
    strict: bool
    observers: tuple[Observer, ...] = ()
    accounts: Accounts | None = None
    account: str | None = None
    priority: Priority = "interactive"

    @property
    def seller(self) -> Hashable:
        """Whom the calls are for: the name of the account, or what identifies its auth scheme."""
        return Seller(self.auth) if self.account is None else self.account


def check_priority(priority: str) -> None:
    """Reject what is no `Priority`.

    Raises:
        RequestInvalid: It is something else.
    """
    if priority not in get_args(Priority):
        raise RequestInvalid("priority", 'must be "interactive" or "batch"')


def check_key(key: str) -> str:
    """Return *key* as a plain text if it can be an idempotency key.

    Raises:
        RequestInvalid: It is not 1 to 64 visible ASCII characters.
    """
    if not isinstance(key, str) or not _KEY.match(key):
        raise RequestInvalid("idempotency_key", "must be 1 to 64 visible ASCII characters")
    return str.__str__(key)  # Not `str(key)`: that of an Enum is its name, and not the text that was checked.


def check_first_sent_at(moment: datetime, now: float) -> datetime:
    """Return *moment* if a key can have been sent then. It may be up to an hour ahead: the clocks of machines differ.

    Raises:
        RequestInvalid: It is no datetime with an offset, or lies in the future.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise RequestInvalid("first_sent_at", "must be a datetime with its offset, such as datetime.now(UTC)")
    if moment.timestamp() > now + 3600:
        raise RequestInvalid("first_sent_at", "must not lie in the future")
    return moment
