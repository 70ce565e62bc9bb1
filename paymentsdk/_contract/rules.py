"""The meaning of a failure, and the next step: every rule of retries and verdicts, as data and pure functions.

`TABLE` says what may happen next for each class of operation and each kind of failure. `settles` says what a rejection
proves. Nothing else decides these two, and the reference prints them from here (docs/reference/errors.md).

The rules for a write:

- A write is *in doubt* if it may have taken effect. An attempt leaves it in doubt with no response, a response that
  cannot be trusted, a 5xx, a 408, a 424, or, if the write has a key, "in progress".
- While the write is not in doubt, every other 4xx ends the call. The exceptions are a 429, a 401 with a token that can
  be refreshed, and an "in progress" conflict of a keyed write: the client sends the same key again, at most twice.
- A rejection that ends the call is `settled` only if the platform itself rejected the request: see `settles`.
- Once a write is in doubt, a response is final only if it has a code that settles with this status, and no code that
  says "in progress". A gateway, a load balancer or an expired token knows nothing of an earlier attempt.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType

from msgspec import Struct

from paymentsdk.errors import APIError, RequestInvalid

#: Stands for any code, and for a response without a code.
ANY_CODE = "*"
#: The only code that is about the key and not about the request.
KEY_ALREADY_USED = "idempotency_key_already_used"
#: Seconds after which a key is no longer sent: the platform remembers it for 24 hours, and clocks differ.
KEY_LIFETIME = 23 * 3600.0
#: How often a keyed write is sent again after a 4xx that does not settle it.
MAX_UNSETTLED = 2
#: Not from `http`, which takes longer to import than this file.
_BAD_REQUEST, _CONFLICT, _SERVER_ERROR = 400, 409, 500


class RetryClass(Enum):
    """When an operation may be sent again; the rows of the table in `rules`.

    `REPEATABLE` is for every write that needs no key, since repeating it changes nothing more. Also for a PUT.
    """

    READ = "read"
    KEYED = "keyed write"
    REPEATABLE = "repeatable write"
    UNKEYED = "write with no key"
    TOKEN_CODE = "authorization code"  # noqa: S105 - the name of a class of operations
    TOKEN_REFRESH = "refresh token"  # noqa: S105 - as above


#: A grant can be used only once, so its token is accepted even from a response that breaks the contract.
SINGLE_USE = frozenset({RetryClass.TOKEN_CODE, RetryClass.TOKEN_REFRESH})


class Failure(Enum):
    """How an attempt can fail. An `ErrorCode` gives a response one of these meanings. `TABLE` has a column for each."""

    NOT_SENT = "not_sent"
    """No byte of the request left the machine."""
    NO_TRUSTED_RESPONSE = "no_trusted_response"
    """The request was sent, and no response came that can be trusted."""
    SERVER = "server_error"
    """5xx, 408 and 424: the response does not say what happened."""
    RATE_LIMITED = "rate_limited"
    """429: rejected for now, without processing. Even a write without a key is sent again."""
    CONFLICT = "conflict"
    """409, 423 and 425: another request uses the object, perhaps an earlier attempt of this call."""
    CLIENT_ERROR = "client_error"
    """Every other 4xx."""
    UNAUTHORIZED = "unauthorized"
    """401: the token or the signature is rejected. The request is sent again once, if there is another token."""
    FORBIDDEN = "forbidden"
    """403 and 3xx: the rejection is about the way to the platform, not about this request."""


#: The reason of an attempt whose call was cancelled during it.
CANCELLED = "cancelled"


class Verdict(Enum):
    """What may follow a failure."""

    RETRY = auto()
    ONCE = auto()
    """Again, but only once per call."""
    REFRESH = auto()
    """Immediately with a refreshed token, once per call."""
    IF_UNSETTLED = auto()
    """Again if the write is in doubt and the response does not settle it, at most `MAX_UNSETTLED` times.

    A response that says that a write with this key is in progress leaves it in doubt, too: `History.record` has counted
    it before."""
    IF_ASKED = auto()
    """Again only if the policy allows it."""
    STOP = auto()


Row = Mapping[Failure, Verdict]


def _row(*verdicts: Verdict) -> Row:
    return MappingProxyType(dict(zip(Failure, verdicts, strict=True)))


_RETRY, _ONCE, _REFRESH = Verdict.RETRY, Verdict.ONCE, Verdict.REFRESH
_UNSETTLED, _ASKED, _STOP = Verdict.IF_UNSETTLED, Verdict.IF_ASKED, Verdict.STOP
TABLE: Mapping[RetryClass, Row] = MappingProxyType(
    {
        #                              not sent no response 5xx/408/424 429  409/423/425 other 4xx   401       403, 3xx
        RetryClass.READ:          _row(_RETRY,  _RETRY,     _RETRY,  _RETRY, _STOP,      _STOP,      _REFRESH, _STOP),
        RetryClass.KEYED:         _row(_RETRY,  _RETRY,     _RETRY,  _RETRY, _UNSETTLED, _UNSETTLED, _REFRESH, _STOP),
        RetryClass.REPEATABLE:    _row(_RETRY,  _RETRY,     _RETRY,  _RETRY, _STOP,      _STOP,      _REFRESH, _STOP),
        RetryClass.UNKEYED:       _row(_RETRY,  _ASKED,     _STOP,   _RETRY, _STOP,      _STOP,      _REFRESH, _STOP),
        RetryClass.TOKEN_CODE:    _row(_RETRY,  _STOP,      _STOP,   _RETRY, _STOP,      _STOP,      _STOP,    _STOP),
        RetryClass.TOKEN_REFRESH: _row(_RETRY,  _ONCE,      _ONCE,   _RETRY, _STOP,      _STOP,      _STOP,    _STOP),
    }
)  # fmt: skip


#: The meanings of single statuses that differ from the rest of their hundred.
_MEANINGS = {
    401: Failure.UNAUTHORIZED,
    403: Failure.FORBIDDEN,
    **dict.fromkeys((408, 424), Failure.SERVER),
    **dict.fromkeys((409, 423, 425), Failure.CONFLICT),
    429: Failure.RATE_LIMITED,
}


def classify_status(status: int, code: str | None = None) -> Failure:
    """Return the kind of failure of a status outside 2xx, with the platform's *code* if it sent one."""
    if (status, code) == (_BAD_REQUEST, "invalid_access_token"):
        # Preferences send this for a token that all other operations reject with a 401.
        return Failure.UNAUTHORIZED
    if status < _BAD_REQUEST:
        return Failure.FORBIDDEN
    return _MEANINGS.get(status, Failure.CLIENT_ERROR if status < _SERVER_ERROR else Failure.SERVER)


class ErrorCode(Struct, frozen=True):
    """A documented rejection."""

    status: int
    """The status code, 400 to 599."""
    code: str
    """The platform's code, as text (`"101"`, `"property_value"`). `"*"` for any code, and for no code."""
    meaning: str
    """The meaning of the code, from the contract."""
    settles: bool = False
    """Whether this status and code say that no attempt at the write has taken effect, also if an earlier attempt is in
    doubt. Set it only if the platform itself says so about the request, and an earlier attempt cannot have caused the
    rejection. `idempotency_key_already_used` settles only for a random key, whether it is set here or not."""
    kind: Failure | None = None
    """The kind of failure, which decides what may follow. By default the kind of the status. `RATE_LIMITED` is for a
    request that was not processed and may be sent again, such as a 400 with `try_later` or a 425."""
    raises: type[APIError] | None = None
    """The class of the error: a subclass of `APIError` with the same constructor. By default the class of the
    status."""

    def __post_init__(self) -> None:
        if type(self.status) is not int or self.status not in _REJECTIONS:
            raise RequestInvalid("status", f"{self.status!r} is not the status of a rejection, 400 to 599")
        if self.kind in (Failure.NOT_SENT, Failure.NO_TRUSTED_RESPONSE):
            raise RequestInvalid("kind", f"{self.kind.name} is not a meaning of a response")
        if self.kind is not None and self.code == ANY_CODE and self.status in _ANYBODY:
            raise RequestInvalid("kind", f"needs a code: a gateway sends {self.status} as well")
        if self.settles and not can_settle(self.status, self.code):
            raise RequestInvalid("settles", f"{self.status} {self.code} can never settle a write")
        if self.settles and self.kind in _NEVER_SETTLE_KIND:
            raise RequestInvalid("settles", f"{self.kind.name} says nothing about an earlier attempt at the write")


_REJECTIONS = range(400, 600)
#: A gateway sends these without asking the platform. Without a code they say nothing about the request.
_ANYBODY = frozenset({408, 424, *range(500, 600)})
#: The request was not processed, whether a gateway or the platform says so.
_UNPROCESSED = frozenset({401, 429})
#: Only a proxy sends these, or they leave open what happened. They settle no write, whatever is declared.
_NEVER_SETTLE_ANY = frozenset({402, 407, 408, 423, 424, 425, 444, 460, 463, 464, 494, 495, 496, 497, 499})
#: A gateway sends these as well, or they say nothing about an earlier attempt.
_NEVER_SETTLE_STATUS = _NEVER_SETTLE_ANY | _UNPROCESSED | {403}
#: The request was rejected before its contents were checked. It may be accepted later.
TURNED_AWAY = frozenset({Failure.RATE_LIMITED, Failure.UNAUTHORIZED, Failure.FORBIDDEN})
_NEVER_SETTLE_KIND = TURNED_AWAY | {Failure.SERVER}
_NEVER_SETTLE_CODE = frozenset({"bad_request", "bad-request", ANY_CODE})


def can_settle(status: int, code: str) -> bool:
    """Return whether a rejection may be declared with `settles=True`."""
    return (
        _BAD_REQUEST <= status < _SERVER_ERROR
        and status not in _NEVER_SETTLE_STATUS
        and code not in _NEVER_SETTLE_CODE
        and not says_in_progress(code)
        and not says_already(code)
    )


def declared(errors: Iterable[ErrorCode], status: int, codes: Sequence[str]) -> list[ErrorCode]:
    """Return the declared errors for *status* and *codes*, in the order of the codes; those for any code come last."""
    of_status = [error for error in errors if error.status == status]
    return [error for code in (*codes, ANY_CODE) for error in of_status if error.code == code]


def classify_response(errors: Iterable[ErrorCode], status: int, code: str | None, codes: Sequence[str]) -> Failure:
    """Return the kind of failure of a response outside 2xx: the declared kind, or else the kind of its status."""
    kinds = (error.kind for error in declared(errors, status, codes) if error.kind is not None)
    return next(kinds, None) or classify_status(status, code)


def says_in_progress(code: str) -> bool:
    """Return whether *code* says that a request with the key, or on the object, is under way (`refund_in_progress`)."""
    return code == "resource_locked" or "in_progress" in code


def says_already(code: str) -> bool:
    """Return whether *code* says that it was done before, perhaps by an attempt in doubt (`order_already_canceled`)."""
    return "_already_" in code and code != KEY_ALREADY_USED


class Settles(Enum):
    """Which attempts at a write had no effect, according to a rejection."""

    NONE = auto()
    """Unknown."""
    THIS = auto()
    """The attempt that got this response."""
    ALL = auto()
    """Every attempt with the key, also an attempt in doubt. A read has no effect, so for a read the response is
    final."""


#: The statuses of a plain rejection, each with its phrases. A code that only repeats the phrase may be a gateway's.
_PLAIN = {
    400: "badrequest", 403: "forbidden", 404: "notfound", 405: "methodnotallowed", 410: "gone",
    413: "contenttoolarge payloadtoolarge requestentitytoolarge", 415: "unsupportedmediatype",
    422: "unprocessablecontent unprocessableentity",
}  # fmt: skip


def settles_read(status: int) -> Settles:
    """Return whether a response of *status* to a read is final: a 408, a 424 and a 429 may pass."""
    return Settles.ALL if _BAD_REQUEST <= status < _SERVER_ERROR and status not in {408, 424, 429} else Settles.NONE


def settles(
    errors: Iterable[ErrorCode], status: int, codes: Sequence[str], kind: Failure, *, random_key: bool, has_object: bool
) -> Settles:
    """Return which attempts at a write had no effect, according to a response of *status* with *codes*.

    Args:
        errors: The declared rejections of the operation.
        status: The status code of the response.
        codes: All codes in the body of the response.
        kind: The kind of failure of the response.
        random_key: Whether the key was made at random for this call, so that no other call used it, or there is no key.
        has_object: Whether the body holds an object of the platform, which an attempt may have created.
    """
    is_open = has_object or (KEY_ALREADY_USED in codes and not random_key) or any(map(says_in_progress, codes))
    if is_open or status in _NEVER_SETTLE_ANY or not _BAD_REQUEST <= status < _SERVER_ERROR:
        return Settles.NONE
    pairs = [error for error in declared(errors, status, codes) if error.code != ANY_CODE]
    if any(error.settles for error in pairs):
        return Settles.ALL
    if is_in_progress(kind, codes):
        return Settles.NONE
    is_plain = any(map(_names_state, codes)) if status == _CONFLICT else _has_reason(status, codes)
    return Settles.THIS if pairs or status in _UNPROCESSED or is_plain else Settles.NONE


def _has_reason(status: int, codes: Iterable[str]) -> bool:
    """Return whether *codes* say more than a plain *status* (`"404"`, `"not_found"` and `"404 Not Found"` do not)."""
    words = ("".join(filter(str.isalnum, code.lower())).removeprefix(str(status)) for code in codes)
    return status in _PLAIN and not {"", *_PLAIN[status].split()}.issuperset(words)


def _names_state(code: str) -> bool:
    """Return whether the *code* of a conflict gives a reason: it was done before, or the key is taken."""
    return says_already(code) or code == KEY_ALREADY_USED


def is_in_progress(kind: Failure, codes: Collection[str]) -> bool:
    """Return whether a response leaves open what happens to a write that it does not settle, even a first attempt.

    A keyed write is in doubt then, and is sent again. Any other write is rejected, but not `APIError.settled`. A
    conflict whose code names neither the state of the object (`*_already_*`) nor another request with the key may be
    about an own attempt: a proxy can have sent it twice.
    """
    if any(map(says_in_progress, codes)):
        return True
    return kind is Failure.CONFLICT and not any(map(_names_state, codes))
