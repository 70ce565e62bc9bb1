"""The errors that a call can raise.

::

    PaymentsError
    ├── RequestInvalid (ValueError)  the request breaks a rule; nothing was sent
    ├── NotSent                      no byte reached the platform; retrying is safe
    ├── NoAnswer                     sent, but no response that can be trusted
    │   └── OutcomeUnknown           ... to a write: the money may have moved
    ├── APIError                     the platform rejected the request
    │   ├── BadRequest               400, 422
    │   ├── AuthenticationFailed     401
    │   ├── PermissionDenied         403
    │   ├── NotFound                 404
    │   ├── Conflict                 409
    │   │   └── IdempotencyConflict  the key was used with another request
    │   ├── RateLimited              429
    │   ├── ServerError              5xx
    │   └── ReauthorizationRequired  the refresh token is spent: a person must authorize again
    ├── RefreshFailed                could not get a valid token; nothing was done, retrying is safe
    ├── PaginationStalled            the platform's paging went in a circle
    ├── Incomplete                   a walk ended with fewer rows than the platform counts
    ├── NotWhole                     a window of a reconciliation could not be certified
    ├── RecordConflict               the name of a journaled write was used for another request; nothing was sent
    ├── InProgress                   another call or process works on the journaled write
    ├── Deferred                     recovery will finish the journaled write: it is neither done nor given up
    ├── JournalUnavailable           the journal cannot keep the record, so no record is sent
    └── ClientClosed                 the client was closed, or belongs to another event loop or process

A failed write has exactly one of three outcomes, and each needs a different reaction:

- `NotSent`: do it again.
- `APIError`: the request was rejected. If ``settled`` is true, the platform says that it has had no effect:
  fix the request.
- `OutcomeUnknown`: send the same body again with the same ``idempotency_key``, within 23 hours. If the key is ``None``,
  the error's ``advice`` says what to do.

Every error can be pickled. No error holds a credential.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from traceback import walk_tb
from types import ModuleType
from typing import Self, TypeVar, cast

from msgspec import Struct

from paymentsdk._resume_point import ResumePoint

E = TypeVar("E", bound=Exception)

__all__: list[str] = []  # Public at the top level, which is where to import them from.


def visible(text: str) -> str:
    """Return *text* with a Python escape for every character that is not printable.

    Otherwise, text from others could begin a new line in a log, or send commands to a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def install_extra(name: str) -> str:
    """Return how to install the extra *name*; the package is not on PyPI, so only the reader knows its place."""
    return f"install the extra `{name}`: pip install '<path or URL of paymentsdk>[{name}]'"


def import_extra(module: str, extra: str, need: str) -> ModuleType:
    """Return the *module*, which comes with the extra named *extra*.

    Raises:
        ImportError: It is not installed. The text is *need*, such as ``a Parquet file needs pyarrow``, and how to
            install the extra.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(f"{need}: {install_extra(extra)}") from None


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """One entry of an error response."""

    code: str | None = None
    """The platform's code for this entry, as text (`"130"`, `"property_value"`)."""
    message: str | None = None
    """The platform's text for this entry."""
    meaning: str | None = None
    """The meaning of the code in the contract; `None` for a code that the contract does not list."""
    details: tuple[str, ...] = ()
    """Further lines; the Orders API names the offending field here."""


class PaymentsError(Exception):
    """Base of all errors that this package raises on purpose."""

    operation: str | None = None
    """Name of the operation (`"orders.create"`), or `None` outside a call."""
    attempts: int = 0
    """How many requests were sent or tried."""
    account: str | None = None
    """The account of the call, as given to `client.account`; `None` for the client itself and outside a call."""
    idempotency_key: str | None = None
    """The key of a keyed write, the same for all its attempts; otherwise `None`."""
    request_id: str | None = None
    """The platform's `X-Request-Id` of the response to the last attempt; `None` without a response."""
    resume_point: ResumePoint | None = None
    """On an error that ended a walk: pass it to `search(start=)` to continue there. To store it, keep both of its
    numbers."""

    def __reduce__(self) -> tuple[object, ...]:
        # Not by `__init__`: a subclass elsewhere may have other parameters, and a walk raises copies.
        return _made, (type(self), self.args), _state(self)

    def __copy__(self) -> Self:
        # Not by `copyreg`: if Dask is imported, it copies exceptions with their tracebacks.
        twin = _made(type(self), self.args)
        twin.__setstate__(_state(self))
        return twin


def _made(cls: type[E], args: tuple[object, ...]) -> E:
    """Return an error of *cls* that has only its *args*."""
    return cls.__new__(cls, *args)


def _state(error: PaymentsError) -> dict[str, object] | None:
    """Return the attributes of *error*."""
    state = error.__getstate__()
    if isinstance(state, tuple):  # The class has slots. An exception takes one dict.
        return {**(state[0] or {}), **state[1]}
    return cast("dict[str, object] | None", state)


class RequestInvalid(PaymentsError, ValueError):
    """The request breaks a rule of the contract; nothing was sent."""

    rule: str
    """The kind of rule, for programs: ``"required"``, ``"unknown"``, ``"type"``, ``"object"``, ``"choice"``,
    ``"pattern"``, ``"min_length"``, ``"max_length"``, ``"min_items"``, ``"max_items"``, ``"min"``, ``"max"``,
    ``"sum"``, ``"syntax"``, or ``"value"`` for any other. These do not change; *reason* is for people, and may."""

    def __init__(self, path: str, reason: str, rule: str = "value") -> None:
        super().__init__(path, reason)
        self.path = path
        """The place that breaks the rule: from the root of the body (``$.items[0].title``), in the query
        (``$query.limit``) or the path (``$path.order_id``), or an argument (``idempotency_key``)."""
        self.reason = reason
        """The rule."""
        self.rule = rule

    def __str__(self) -> str:
        return visible(f"{self.path}: {self.reason}")


class NotSent(PaymentsError):
    """No byte of the request reached the platform; retrying is safe.

    Earlier attempts may have reached it, if the platform rejected them unprocessed, with a 429 or a 401.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """Why the request was not sent."""

    def __str__(self) -> str:
        return f"not sent: {self.reason}"


class NoAnswer(PaymentsError):
    """The request was sent, but no response came that can be trusted."""

    first_reason: str | None = None
    """The reason of the first attempt in doubt; the same as *reason* if there was only one."""
    last_error: PaymentsError | None = None
    """The error of the last attempt: an `APIError`, or the error that prevented the attempt, such as `ClientClosed`;
    `None` without a response."""
    first_sent_at: datetime | None = None
    """When the first attempt left, UTC."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """Why the last attempt has no trusted response. After a 4xx that does not settle a write:
        ``platform_error:<code>``, or its status if it has no code."""

    def __str__(self) -> str:
        return f"no response: {self._reasons()}"

    def _reasons(self) -> str:
        """Return the last reason, and the first if it differs."""
        first = self.first_reason
        return self.reason if first in (None, self.reason) else f"{self.reason} (at first: {first})"


class OutcomeUnknown(NoAnswer):
    """A write was sent, but its outcome is unknown: the money may have moved.

    Send the same body again with the same ``idempotency_key`` within 23 hours of ``first_sent_at``: the platform
    responds with the result of the first time. If the write takes no key (``idempotency_key`` is ``None``), the
    reaction depends on the operation. Do not send a write with a name (``once``) again by its key: that would bypass
    its record and ``not_after``. Call again with the name, or recover.
    """

    in_doubt: str = "look before you send it again"
    """The advice for a write that takes no key."""
    once: str | None = None
    """The name of a journaled write; otherwise `None`."""

    @property
    def advice(self) -> str:
        """The next step, with the name or the key, if there is one. The text of the error ends with it."""
        if self.idempotency_key is None:
            return self.in_doubt if self.once is None else f"its name does not resend it; without it, {self.in_doubt}"
        if self.once is None:
            return f"send it again with idempotency_key={self.idempotency_key!r}, within 23 hours of the first time"
        again = f"while its record is open, call again with once={self.once!r}, or recover()"
        return f"{again}; `paymentsdk journal show` prints its state"

    def __str__(self) -> str:
        return f"outcome unknown after {self.attempts} attempt(s): {self._reasons()}; {self.advice}"


class APIError(PaymentsError):
    """The platform rejected the request."""

    codes: tuple[str, ...] = ()
    """All codes in the body, `code` first; at most 100 of each list in it."""
    settled: bool = False
    """Whether the platform's rejection is final: no attempt at the write has taken effect.

    After a read it is true if the response is a 4xx other than 408, 424 and 429. After a write it is true in these
    cases, if no attempt is in doubt:

    - a 401 or a 429;
    - a pair of status and code that the operation declares;
    - any other code in a 400, 403, 404, 405, 410, 413, 415 or 422, unless it only repeats the status (`"not_found"`);
    - a 409 whose code names a state (`*_already_*`), or is `idempotency_key_already_used` for a random key.

    It is false after a write for a response without a code (HTML, an empty body), a 402, 408, 423, 424, 425, a code
    that says "in progress", any other 409, a status that only proxies send (444, 460, 499), and a response that holds
    an object (`data.id`, or `id` at the root). If you gave the key, or an attempt is in doubt, only a code that is
    declared with `settles` makes it true.

    If it is false after a write, read the object from the platform, or send the write again with its key.
    """

    def __init__(
        self,
        status: int,
        code: str | None = None,
        message: str = "",
        *,
        meaning: str | None = None,
        details: Sequence[ErrorDetail] = (),
        request_id: str | None = None,
        retry_after: float | None = None,
        raw: bytes = b"",
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        """The HTTP status; 0 if nothing was sent because the store has no tokens (`ReauthorizationRequired`)."""
        self.code = code
        """The platform's code (``"property_value"``, ``"invalid_grant"``, ``"101"``); ``None`` if the body has none."""
        self.message = message
        """The platform's message, never empty."""
        self.meaning = meaning
        """The meaning of the code in the contract, or ``None``."""
        self.details: tuple[ErrorDetail, ...] = tuple(details)
        """The entries of the response, in its order; at most 100, each text at most 500 characters."""
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds that the platform asked to wait, or ``None``."""
        self.raw = raw
        """The first 2,048 bytes of the body."""

    def __str__(self) -> str:
        parts = [str(self.status or ""), self.code, self.message]
        if self.meaning and self.meaning != self.message:
            parts.append(f"({self.meaning})")
        if self.retry_after is not None:
            parts.append(f"[retry after {self.retry_after:g} s]")
        if self.request_id:
            parts.append(f"[request {self.request_id}]")
        return visible(" ".join(part for part in parts if part))


class BadRequest(APIError):
    """400 or 422: the request breaks a rule that only the platform could check."""


class AuthenticationFailed(APIError):
    """401: the token is invalid, and a new token did not help, or the token cannot be refreshed.

    A refresh that failed raises `RefreshFailed`.
    """


class PermissionDenied(APIError):
    """403: the token may not do this. Some platforms also send it for an invalid token, which is not refreshed then."""


class NotFound(APIError):
    """404: the seller has no such object."""


class Conflict(APIError):
    """409: the state of the object does not allow it."""


class IdempotencyConflict(Conflict):
    """409 ``idempotency_key_already_used``: the key was used for a different request in the last 24 hours."""


class RateLimited(APIError):
    """429: too many requests; ``retry_after`` says when to come back, if the platform said so."""


class ServerError(APIError):
    """5xx: the platform failed. Raised for reads only: after a write, a 5xx leaves the outcome unknown."""


class ReauthorizationRequired(APIError):
    """The access token cannot be refreshed; retrying does not help.

    Usually the refresh token is spent or its grant revoked, and a person must authorize again. With the code
    ``invalid_client``, the platform does not know the application: fix ``client_id`` or ``client_secret``, and start
    again with the same refresh token. With the status 0, nothing was sent: the store has no tokens for the seller.
    """


class RefreshFailed(PaymentsError):
    """The access token has expired or was rejected, and could not be refreshed for now.

    For example, the token endpoint timed out or responded with 5xx, or the token store failed. This call did nothing,
    so retrying is safe, and no new authorization is needed. A write with an earlier attempt in doubt raises
    `OutcomeUnknown` instead, with this error as its ``last_error``.
    """

    reason: str
    """Why, in words, without credentials."""
    cause: PaymentsError | None
    """The error of the refresh (an `APIError`, `NotSent`, `OutcomeUnknown`, ...). ``None`` if the error is not one of
    this package, such as an error of a token store, or if the call's deadline ended its wait for the refresh."""

    def __init__(self, reason: str, cause: PaymentsError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause

    def __str__(self) -> str:
        return f"the token could not be refreshed: {self.reason}; nothing was done, trying again is safe"


class PaginationStalled(PaymentsError):
    """The platform's paging went in a circle; continuing would loop for ever or repeat rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """The reason."""

    def __str__(self) -> str:
        place = "" if self.resume_point is None else f" at offset {self.resume_point}"
        return f"paging stalled{place}: {self.reason}"


class Incomplete(PaymentsError):
    """A walk reached an empty page before the total: later rows are missing.

    The total comes from the empty page itself or, if it gives none, from the last page before it that does. Some
    platforms respond so beyond a largest offset, others only for a moment. The walk has returned every row before the
    empty page. Walk again from ``resume_point``. If that page stays empty, search with narrower filters, such as one
    day at a time, so that each search has fewer rows.

    A walk by page number or cursor raises it at its end, if it has seen fewer rows than the total of every page says;
    ``reason`` is then "no page follows". It returns no rows of that last page.

    A walk with ``certify=True`` raises it whenever it cannot prove that it has returned every row; ``reason`` says why.
    """

    seen: int
    """Rows that this walk returned, from where it started; rows without an id may count twice. With ``certify=True``,
    the number of distinct rows that it has seen."""

    total: int
    """The total of the search, from the last page that gives a total; 0 if no page does."""

    reason: str
    """Why rows are missing, or why the walk could not be certified; empty if a page before the total was empty."""

    def __init__(self, seen: int, total: int, resume_point: ResumePoint, reason: str = "") -> None:
        super().__init__(seen, total, resume_point, reason)
        self.seen = seen
        self.total = total
        self.resume_point: ResumePoint | None = resume_point
        self.reason = reason

    def __str__(self) -> str:
        if self.reason:
            return f"incomplete: {self.seen} of {self.total} rows were seen: {self.reason}"
        return (
            f"incomplete: the page at offset {self.resume_point} of {self.total} is empty; {self.seen} rows were seen"
        )


class RecordConflict(PaymentsError):
    """The name of a journaled write (``once=``) belongs to a request with other bytes; nothing was sent.

    A name stands for one business fact, such as a sale. A record that is refused, not_sent or expired had no effect:
    give the corrected request a new name. In any other state, the same sale needs the bytes of its record, even if the
    program now encodes it in another way: ``client.recover()`` finishes the record. With a new name, the same sale
    would create a second order.
    """

    def __init__(self, once: str) -> None:
        super().__init__(once)
        self.once = once
        """The name."""

    def __str__(self) -> str:
        return (
            f"the record {self.once!r} holds another request, and nothing was sent. `paymentsdk journal show` prints "
            f"its state. If that is refused, not_sent or expired, the kept request had no effect: use a new name, such "
            f"as {self.once}/2, for the corrected one. In any other state, do not rename the same sale: "
            "client.recover() finishes the kept request. A new sale takes a new name"
        )


class InProgress(PaymentsError):
    """Another call or process works on the journaled write; this call has sent nothing more.

    Call again later with the same name and the same request: then it returns the outcome.
    """

    def __init__(self, once: str) -> None:
        super().__init__(once)
        self.once = once
        """The name."""

    def __str__(self) -> str:
        return f"the record {self.once!r} is in progress elsewhere: call again with the same name to learn its outcome"


class Deferred(PaymentsError):
    """Recovery will finish the journaled write (``defer=True``): it is neither done nor given up.

    This is not a ``NotSent``: recovery sends the write until ``not_after``, so do not do it in another way meanwhile.
    To learn the outcome, call again with the same name and with ``defer=True``. Without ``defer=True``, a write that
    still cannot be sent is given up.
    """

    def __init__(self, once: str, reason: str) -> None:
        super().__init__(once, reason)
        self.once = once
        """The name."""
        self.reason = reason
        """Why this call could not finish it."""

    def __str__(self) -> str:
        return visible(
            f"the record {self.once!r} is left to recovery ({self.reason}): "
            "call again with the same name to learn its outcome"
        )


class JournalUnavailable(PaymentsError):
    """The journal cannot keep the record, or does not respond: no record is sent without it.

    A write that raises it has sent nothing. It is unknown whether its record was kept: if it was, recovery sends it
    before its ``not_after``. Repair the journal (disk, database) and call again with the same name; the platform does
    the write once. If a recovery raises it, the records that it has finished stay finished: recover again.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """The reason, from the journal."""

    def __str__(self) -> str:
        # A recovery may have sent other records before, so this does not say that nothing was sent.
        reason = f"the journal is not available, and no record is sent without it: {self.reason}"
        return visible(f"{reason}; retry; for a write, use the same name")


class NotWhole(PaymentsError):
    """A window of a reconciliation could not be certified: it is unknown whether all of its rows were seen.

    Rows may be missing from this window, but from no other. Run the walk again with the same ``out``: it continues with
    the windows that are not whole.
    """

    window: tuple[datetime, datetime]
    """The first moment of the window, and the first moment after it."""

    seen: int
    """The number of distinct rows that were seen."""

    total: int | None
    """The number of rows in the window, according to the platform; ``None`` if the platform gives no number."""

    reason: str
    """Why the walk gave up."""

    def __init__(self, window: tuple[datetime, datetime], seen: int, total: int | None, reason: str = "") -> None:
        super().__init__(window, seen, total, reason)
        self.window = window
        self.seen = seen
        self.total = total
        self.reason = reason

    def __str__(self) -> str:
        begin, end = (moment.isoformat(timespec="milliseconds") for moment in self.window)
        whose = f" of account {self.account}" if self.account else ""
        reason = f": {self.reason}" if self.reason else ""
        total = "an unknown number of" if self.total is None else self.total
        return visible(f"not whole: {begin} to {end}{whose}, {self.seen} of {total} rows seen{reason}")


class ClientClosed(PaymentsError):
    """The client was closed, or is used from an event loop or a process that its connections do not belong to."""


_BY_STATUS: dict[int, type[APIError]] = {
    400: BadRequest,
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    422: BadRequest,
    429: RateLimited,
}

_SERVER_ERROR = 500
#: The attribute that marks an error; see `tellable`.
_TELLABLE = "_paymentsdk_tellable"
#: Codes of a rejection whose class is more specific than the class of their status.
_BY_CODE: dict[str, type[APIError]] = {"idempotency_key_already_used": IdempotencyConflict}


def error_class(status: int, code: str | None) -> type[APIError]:
    """Return the class for a response of *status* with *code*."""
    if status >= _SERVER_ERROR:  # A 5xx with any code is not a rejection.
        return ServerError
    return _BY_CODE.get(code or "") or _BY_STATUS.get(status, APIError)


def tellable(error: E) -> E:
    """Return *error*, of a class outside this package, marked as an error whose text holds no credential."""
    setattr(error, _TELLABLE, True)
    return error


def describe(error: BaseException) -> str:
    """Return a description of *error* without credentials.

    The text of a foreign error may hold anything, so its type, the system's text for its number, and the line that
    raised it replace the text. For a file that is missing or may not be used, the name of the file is added: without
    it, the reader could not fix the problem.
    """
    if isinstance(error, NoAnswer | NotSent):
        return error.reason
    if getattr(error, _TELLABLE, False):
        return visible(str(error))
    if isinstance(error, PaymentsError):
        return str(error)
    file, reason, place = "", "", ""
    if frames := list(walk_tb(error.__traceback__)):  # An error of a future may never have been raised.
        frame, line = frames[-1]
        code = frame.f_code
        place = f" ({code.co_filename.rpartition(os.sep)[2]}:{line} in {code.co_name})"
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        reason = f": {error.strerror}"  # The system's own text.
    if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError) and isinstance(error.filename, str):
        file = f" {error.filename!r}"
    return f"{type(error).__name__}{file}{reason}{place}"
