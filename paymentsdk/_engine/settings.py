"""What a client is set up with."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from paymentsdk._auth.schemes import Seller
from paymentsdk._engine.retry import RetryPolicy
from paymentsdk._operation.operation import Limits
from paymentsdk._secrets import masked
from paymentsdk._validate import check_seconds
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._auth.accounts import Accounts
    from paymentsdk._auth.schemes import Auth, Credentials
    from paymentsdk.events import Observer

#: `"interactive"`: somebody waits for it. `"batch"`: sent only while no interactive call of the client waits.
Priority: TypeAlias = Literal["interactive", "batch"]
#: The header that the id of the buyer's device goes with (4.4), unless a client is told its real name.
SESSION_HEADER = "X-Platform-Session-Id"
_KEY = re.compile(r"[!-~]{1,64}\Z")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
#: What the engine or the transport writes itself.
_RESERVED = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "x-idempotency-key",
    }
)
_HEADER_VALUE = re.compile(r"[ -~]{1,1024}\Z")


class Timeout(Struct, frozen=True):
    """How long things may take, in seconds: above 0 and at most 86,400, or ``None`` for no bound."""

    total: float | None = 60.0
    """The whole call, as a true deadline: the wait for a connection, every attempt to its last byte, the pauses
    between them, and the wait for a token that is refreshed."""
    attempt: float | None = 30.0
    """One attempt, to the last byte of its answer."""
    connect: float | None = 5.0
    """The wait for a connection, from the pool or a new one. When it runs out, nothing has been sent."""

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


class Settings(Struct, frozen=True, kw_only=True):
    """What a client is set up with, and what a copy of it may change. See `PaymentsClient`."""

    base_url: str
    auth: Auth
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
        """Whose calls these are: the name of the account, or what identifies its auth scheme."""
        return Seller(self.auth) if self.account is None else self.account


def check_priority(priority: str) -> None:
    """Refuse what is no `Priority`.

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


def merged(fields: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return *fields* and *more*, which replace those of the same name, in whatever case it is written."""
    replaced = {name.lower() for name in more}
    return {**{name: value for name, value in fields.items() if name.lower() not in replaced}, **more}


def masked_values(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of *headers* whose values no traceback shows: one of them may be a credential."""
    return {name: masked(value) for name, value in headers.items()}


def check_headers(headers: Mapping[str, str], path: str = "headers") -> dict[str, str]:
    """Return a copy of *headers* if they can be sent: what the caller does to them later is not looked at.

    *path* is what the caller knows them by.

    Raises:
        RequestInvalid: A name or a value has characters that do not belong in a header, or the name is one that the
            client writes itself. The error shows no value.
    """
    if not isinstance(headers, Mapping):
        raise RequestInvalid(path, f"must be a mapping of names to values, not {type(headers).__name__}")
    fields = dict(headers)
    for name, value in fields.items():
        if not isinstance(name, str) or not _HEADER_NAME.match(name):
            raise RequestInvalid(path, f"{name!r} is not the name of a header")
        if name.lower() in _RESERVED:
            raise RequestInvalid(f"{path}.{name}", "is set by the client itself")
        if not isinstance(value, str) or not _HEADER_VALUE.match(value):
            raise RequestInvalid(f"{path}.{name}", "must be 1 to 1024 printable ASCII characters")
    # As in `check_key`: the text that was checked goes out, and not what a subclass of str formats itself as.
    return {str.__str__(name): str.__str__(value) for name, value in fields.items()}
