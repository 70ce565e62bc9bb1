"""Everything that a call can raise.

::

    PaymentsError
    ├── RequestInvalid (ValueError)  rejected here, nothing sent
    ├── NotSent                      no byte reached the platform; doing it again is safe
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
    ├── RefreshFailed                no valid token could be had for now; nothing was done, trying again is safe
    ├── PaginationStalled            the platform's paging went in a circle
    ├── Incomplete                   a walk ended with fewer rows than the platform counts
    ├── NotWhole                     a window of a reconciliation could not be certified
    ├── RecordConflict               the name of a journaled write was used for another request; nothing was sent
    ├── InProgress                   another call or process works on the journaled write
    ├── Deferred                     a journaled write that recovery will finish: neither done nor given up
    ├── JournalUnavailable           the journal does not keep the record, and it is not sent without
    └── ClientClosed                 the client was closed, or belongs to another event loop or process

A failed write has exactly one of three outcomes, and each needs a different reaction: `NotSent` (do it again),
`APIError` (the request was rejected; if ``settled`` is true, the platform says that it has had no effect: fix the
request) or `OutcomeUnknown` (send the same body again with the same ``idempotency_key``, within 23 hours; if the key is
``None``, the error's ``advice`` says what to do).

Every error pickles, and none holds a credential.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from traceback import walk_tb
from typing import Self, TypeVar, cast

from msgspec import Struct

from paymentsdk._resume_point import ResumePoint

E = TypeVar("E", bound=Exception)

__all__: list[str] = []  # Public at the top level, which is where to import them from.


def visible(text: str) -> str:
    """Return *text* with an escape, as Python writes it, for every character that is not printable.

    Otherwise, text of others could begin a new line in a log, or send commands to a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def install_extra(name: str) -> str:
    """Return how to get the extra *name*; no index has the package, so only the reader knows where it is."""
    return f"install the extra `{name}`: pip install '<path or URL of paymentsdk>[{name}]'"


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """One entry of an error response."""

    code: str | None = None
    """The platform's code for this entry, as text (`"130"`, `"property_value"`)."""
    message: str | None = None
    """What the platform says about it."""
    meaning: str | None = None
    """What the contract says the code means; `None` for a code that it does not list."""
    details: tuple[str, ...] = ()
    """Further lines; the Orders API names the offending field here."""


class PaymentsError(Exception):
    """Base of everything that this package raises on purpose."""

    operation: str | None = None
    """Name of the operation (`"orders.create"`), or `None` outside a call."""
    attempts: int = 0
    """How many requests were sent or tried."""
    account: str | None = None
    """The seller of the call, as `client.account` was given it; `None` for the client itself and outside a call."""
    idempotency_key: str | None = None
    """The key of a keyed write, the same for all its attempts; else `None`."""
    request_id: str | None = None
    """The platform's `X-Request-Id` of the response to the last attempt, if one came."""
    resume_point: ResumePoint | None = None
    """On an error that ended a walk: pass it to `search(start=)` to go on from there. To store it, keep both of its
    numbers."""

    def __reduce__(self) -> tuple[object, ...]:
        # Not by way of its `__init__`: somebody's subclass may have another one, and a walk raises copies.
        return _made, (type(self), self.args), _state(self)

    def __copy__(self) -> Self:
        # Not by way of `copyreg`: where Dask is imported, exceptions are copied with their tracebacks.
        twin = _made(type(self), self.args)
        twin.__setstate__(_state(self))
        return twin


def _made(cls: type[E], args: tuple[object, ...]) -> E:
    """Return an error of *cls* that knows its *args* alone."""
    return cls.__new__(cls, *args)


def _state(error: PaymentsError) -> dict[str, object] | None:
    """Return all else that *error* knows."""
    state = error.__getstate__()
    if isinstance(state, tuple):  # The class has slots. An exception takes one dict.
        return {**(state[0] or {}), **state[1]}
    return cast("dict[str, object] | None", state)


class RequestInvalid(PaymentsError, ValueError):
    """The request breaks a rule of the contract; nothing was sent."""

    rule: str
    """Which rule, for programs: ``"required"``, ``"unknown"``, ``"type"``, ``"object"``, ``"choice"``, ``"pattern"``,
    ``"min_length"``, ``"max_length"``, ``"min_items"``, ``"max_items"``, ``"min"``, ``"max"``, ``"sum"``, ``"syntax"``,
    or ``"value"`` for any other. These do not change; *reason* is for people, and may."""

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
    """No byte of the request reached the platform; doing it again is safe.

    Or only in attempts before the last, which the platform rejected unprocessed, with a 429 or a 401.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """What kept the request from being sent."""

    def __str__(self) -> str:
        return f"not sent: {self.reason}"


class NoAnswer(PaymentsError):
    """The request was sent, and no response came that can be trusted."""

    first_reason: str | None = None
    """What happened at the first attempt that left the outcome in doubt; the same as *reason* if there was only one."""
    last_error: PaymentsError | None = None
    """The error of the last attempt: an `APIError`, or the error that prevented the attempt, such as `ClientClosed`;
    `None` when there was no response."""
    first_sent_at: datetime | None = None
    """When the first attempt left, UTC."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """What happened instead, at the last attempt. Where that was a 4xx which does not settle a write:
        ``platform_error:<code>``, or its status where it has no code."""

    def __str__(self) -> str:
        return f"no response: {self._reasons()}"

    def _reasons(self) -> str:
        """Say what happened last, and at first if that was something else."""
        first = self.first_reason
        return self.reason if first in (None, self.reason) else f"{self.reason} (at first: {first})"


class OutcomeUnknown(NoAnswer):
    """A write was sent and nobody can say whether it took effect: the money may have moved.

    Send the same body again with the same ``idempotency_key`` within 23 hours of ``first_sent_at``: the platform
    responds with what it did the first time. For a write that takes no key (``idempotency_key`` is ``None``), what to
    do depends on the operation. A write with a name (``once``) is not sent again by its key, which would go round its
    record and ``not_after``: call again with the name, or recover.
    """

    in_doubt: str = "look before you send it again"
    """The advice for a write that takes no key."""
    once: str | None = None
    """The name of a journaled write; else `None`."""

    @property
    def advice(self) -> str:
        """What to do now: with the name or the key, if there is one. The text of the error ends with it."""
        if self.idempotency_key is None:
            return self.in_doubt if self.once is None else f"its name sends it no more; without it, {self.in_doubt}"
        if self.once is None:
            return f"send it again with idempotency_key={self.idempotency_key!r}, within 23 hours of the first time"
        again = f"as long as its record is open, call again with once={self.once!r}, or recover()"
        return f"{again}; `paymentsdk journal show` says what is known"

    def __str__(self) -> str:
        return f"outcome unknown after {self.attempts} attempt(s): {self._reasons()}; {self.advice}"


class APIError(PaymentsError):
    """The platform rejected the request."""

    codes: tuple[str, ...] = ()
    """Every code in the body, `code` first; at most 100 of each list in it."""
    settled: bool = False
    """Whether the platform's rejection is final: no attempt at the write has taken effect.

    After a read it is true if its response is a 4xx other than 408, 424 and 429. After a write it is true in these
    cases, if no attempt is in doubt:

    - a 401 or a 429;
    - a pair of status and code that the operation declares;
    - any other code in a 400, 403, 404, 405, 410, 413, 415 or 422, unless it only repeats the status (`"not_found"`);
    - a 409 whose code names a state (`*_already_*`), or is `idempotency_key_already_used` for a random key.

    It is false after a write for a response without a code (HTML, an empty body), a 402, 408, 423, 424, 425, a code
    that says "in progress", any other 409, a status that only proxies send (444, 460, 499), and a response that holds
    an object (`data.id`, or `id` at the root). If you gave the key, or an attempt is in doubt, only a code that is
    declared with `settles` makes it true.

    Where it is false after a write, read what the platform has, or send the write again with its key.
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
        """The HTTP status; 0 if nothing was sent, since the store has no tokens (`ReauthorizationRequired`)."""
        self.code = code
        """The platform's code (``"property_value"``, ``"invalid_grant"``, ``"101"``), or ``None`` when the body named
        none."""
        self.message = message
        """What the platform said, never empty."""
        self.meaning = meaning
        """What the contract says the code means, or ``None``."""
        self.details: tuple[ErrorDetail, ...] = tuple(details)
        """The entries of the response, in its order; at most 100, and no text above 500 characters."""
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
    """401: the token is not valid, and a new one did not help, or there is no way to refresh it.

    A refresh that failed raises `RefreshFailed`.
    """


class PermissionDenied(APIError):
    """403: the token may not do this. Some platforms also send it for an invalid token, which is not refreshed then."""


class NotFound(APIError):
    """404: no such thing for this seller."""


class Conflict(APIError):
    """409: the state of the thing does not allow it."""


class IdempotencyConflict(Conflict):
    """409 ``idempotency_key_already_used``: the key went with a different request in the last 24 hours."""


class RateLimited(APIError):
    """429: too many requests; ``retry_after`` says when to come back, if the platform said so."""


class ServerError(APIError):
    """5xx: the platform failed. Raised for reads only: after a write nobody knows what a 5xx left behind."""


class ReauthorizationRequired(APIError):
    """The access token cannot be refreshed; trying again does not help.

    As a rule the refresh token is spent or its grant revoked, and a person must authorize once more. With the code
    ``invalid_client``, the platform does not know the application: fix ``client_id`` or ``client_secret``, and start
    again with the same refresh token. With the status 0, nothing was sent: the store has no tokens for the seller.
    """


class RefreshFailed(PaymentsError):
    """The access token has expired or was rejected, and could not be refreshed for now.

    The token endpoint timed out or responded with 5xx, the store of the tokens failed, or the like. This call did
    nothing, so making it again is safe; nobody has to authorize again. A write of which an earlier attempt is in doubt
    raises `OutcomeUnknown` instead, with this error as its ``last_error``.
    """

    reason: str
    """Why, in words, without credentials."""
    cause: PaymentsError | None
    """The error of the refresh (an `APIError`, `NotSent`, `OutcomeUnknown`, ...); ``None`` if it was none of this
    package, such as that of a token store, or if the deadline of the call ended its wait for the refresh."""

    def __init__(self, reason: str, cause: PaymentsError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause

    def __str__(self) -> str:
        return f"the token could not be refreshed: {self.reason}; nothing was done, trying again is safe"


class PaginationStalled(PaymentsError):
    """The platform's paging went in a circle; going on would loop for ever or repeat rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """What showed it."""

    def __str__(self) -> str:
        place = "" if self.resume_point is None else f" at offset {self.resume_point}"
        return f"paging stalled{place}: {self.reason}"


class Incomplete(PaymentsError):
    """A walk came to an empty page before the total: rows are missing behind it.

    The total is that of the empty page itself, or, if it gives none, the last that a page before it has given.
    Some platforms respond so behind a largest offset, others for a moment only. Every row before the empty page has
    come. Walk again from ``resume_point``; if that page stays empty, search with narrower filters, such as one day at a
    time, so that each search has fewer rows.

    A walk by page number or cursor raises it at its end, if it has seen fewer rows than the total of every page says;
    ``reason`` is then "no page follows". It returns no rows of that last page.

    A walk with ``certify=True`` raises it whenever it cannot prove that every row has come; ``reason`` says why not.
    """

    seen: int
    """Rows that this walk returned, from where it started; rows without an id may count twice. With ``certify=True``,
    distinct rows that it has seen."""

    total: int
    """Rows that the search has, as the last page that gives a total says; 0 if none does."""

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
    give the corrected request a new name. In any other state the same sale needs the bytes that were kept for it, also
    if the program now encodes it in another way: ``client.recover()`` finishes the record. With a new name, the same
    sale would make a second order.
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

    Call again with the same name and the same request after a while: then it returns what became of it.
    """

    def __init__(self, once: str) -> None:
        super().__init__(once)
        self.once = once
        """The name."""

    def __str__(self) -> str:
        return f"the record {self.once!r} is in progress elsewhere: call again with the same name to learn its outcome"


class Deferred(PaymentsError):
    """Recovery will finish the journaled write (``defer=True``): it is neither done nor given up.

    It is no ``NotSent``: until ``not_after``, recovery sends it. Do not do it in another way meanwhile; to learn what
    became of it, call again with the same name, and with ``defer=True``: else what still cannot be sent is given up.
    """

    def __init__(self, once: str, reason: str) -> None:
        super().__init__(once, reason)
        self.once = once
        """The name."""
        self.reason = reason
        """What kept this call from finishing it."""

    def __str__(self) -> str:
        return visible(
            f"the record {self.once!r} is left to recovery ({self.reason}): "
            "call again with the same name to learn its outcome"
        )


class JournalUnavailable(PaymentsError):
    """The journal cannot keep the record, or does not respond: no record is sent without it.

    A write that raises it has sent nothing. Whether its record was kept is not known: if it was, recovery sends it
    before its ``not_after``. Repair the journal (disk, database) and call again with the same name; the platform does
    it once. What a recovery that raises it has finished before stays so: recover again.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """What the journal said."""

    def __str__(self) -> str:
        # Also of a recovery, which may have sent other records before.
        reason = f"the journal is not available, and no record is sent without it: {self.reason}"
        return visible(f"{reason}; call again, a write by the same name")


class NotWhole(PaymentsError):
    """A window of a reconciliation could not be certified: nobody knows whether all of its rows were seen.

    Rows may be missing from this window, and from no other. Run the walk again with the same ``out``: it goes on with
    the windows that are not whole.
    """

    window: tuple[datetime, datetime]
    """The first moment of the window, and the first moment behind it."""

    seen: int
    """Distinct rows that were seen."""

    total: int | None
    """Rows that the window has, as the platform says; ``None`` if it says nothing."""

    reason: str
    """Why it was given up."""

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
#: Marks an error; see `tellable`.
_TELLABLE = "_paymentsdk_tellable"
#: Codes of a rejection whose class says more than their status does.
_BY_CODE: dict[str, type[APIError]] = {"idempotency_key_already_used": IdempotencyConflict}


def error_class(status: int, code: str | None) -> type[APIError]:
    """Return the class for a response of *status* with *code*."""
    if status >= _SERVER_ERROR:  # Whatever its code: it is no rejection.
        return ServerError
    return _BY_CODE.get(code or "") or _BY_STATUS.get(status, APIError)


def tellable(error: E) -> E:
    """Return *error*, which is none of this package's classes, marked as one whose text holds no credential."""
    setattr(error, _TELLABLE, True)
    return error


def describe(error: Exception) -> str:
    """Say what *error* was, in words that hold no credential.

    The text of an error that is not ours may hold anything: its type, the system's words for its number, and the line
    that raised it stand for it. Where a file is missing or may not be used, its name is told as well: nobody could fix
    that without it.
    """
    if isinstance(error, NoAnswer | NotSent):
        return error.reason
    if getattr(error, _TELLABLE, False):
        return visible(str(error))
    if isinstance(error, PaymentsError):
        return str(error)
    file, reason, place = "", "", ""
    if frames := list(walk_tb(error.__traceback__)):  # A future may hold an error that was never raised.
        frame, line = frames[-1]
        code = frame.f_code
        place = f" ({code.co_filename.rpartition(os.sep)[2]}:{line} in {code.co_name})"
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        reason = f": {error.strerror}"  # The words of the system, and nobody else's.
    if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError) and isinstance(error.filename, str):
        file = f" {error.filename!r}"
    return f"{type(error).__name__}{file}{reason}{place}"
