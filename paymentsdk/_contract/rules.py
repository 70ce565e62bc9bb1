"""What a failure means, and what may follow it: every rule of retries and verdicts, as data and pure functions.

`TABLE` says for each class of operation and each kind of failure what may happen next. `settles` says what a rejection
proves. Nothing else decides these two, and the reference prints them from here (docs/reference/errors.md).

The rules for a write:

- An attempt without a response, with one that cannot be trusted, a 5xx, a 408, a 424, or "in progress" on a keyed write
  leaves the write *in doubt*: it may have taken effect.
- While nothing is in doubt, every other 4xx ends the call. The exceptions are a 429, a 401 with a token that can be
  refreshed, and a conflict of a keyed write that is "in progress": the client sends the same key again, twice at most.
- A rejection that ends the call is `settled` only if the platform itself rejected the request: see `settles`.
- Once a write is in doubt, a response is final only if it has a code that settles with this status, and none that says
  "in progress". A gateway, a load balancer or an expired token knows nothing of an earlier attempt.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType

from msgspec import Struct

from paymentsdk.errors import APIError, RequestInvalid

#: Stands for any code, and for none.
ANY_CODE = "*"
#: The one code about the key and not about the request.
KEY_ALREADY_USED = "idempotency_key_already_used"
#: Seconds after which a key is not sent any more: the platform remembers it for 24 hours, and clocks differ.
KEY_LIFETIME = 23 * 3600.0
#: How often a keyed write is sent again after a 4xx that does not settle it.
MAX_UNSETTLED = 2
#: Not those of `http`: to import them takes longer than to import this file.
_BAD_REQUEST, _CONFLICT, _SERVER_ERROR = 400, 409, 500


class RetryClass(Enum):
    """When an operation may be sent again; the rows of the table in `rules`.

    `REPEATABLE` is for every write that needs no key, since doing it twice changes no more than once; also for a PUT.
    """

    READ = "read"
    KEYED = "keyed write"
    REPEATABLE = "repeatable write"
    UNKEYED = "write with no key"
    TOKEN_CODE = "authorization code"  # noqa: S105 - the name of a class of operations
    TOKEN_REFRESH = "refresh token"  # noqa: S105 - as above


#: A grant can be used once: the token that was made of it is taken even from a response that breaks the contract.
SINGLE_USE = frozenset({RetryClass.TOKEN_CODE, RetryClass.TOKEN_REFRESH})


class Failure(Enum):
    """How an attempt can fail: what an `ErrorCode` may say that a response means. `TABLE` has a column for each."""

    NOT_SENT = "not_sent"
    """No byte of the request left the machine."""
    NO_TRUSTED_RESPONSE = "no_trusted_response"
    """Sent, and no response that can be trusted."""
    SERVER = "server_error"
    """5xx, 408 and 424: a response that does not say what happened."""
    RATE_LIMITED = "rate_limited"
    """429: rejected unprocessed, for now. Even a write without a key is sent again."""
    CONFLICT = "conflict"
    """409, 423 and 425: something else holds the thing, perhaps an own earlier attempt."""
    CLIENT_ERROR = "client_error"
    """Every other 4xx."""
    UNAUTHORIZED = "unauthorized"
    """401: the token or the signature is rejected; sent again once with another, if there can be one."""
    FORBIDDEN = "forbidden"
    """403 and 3xx: not about this request but about the way to the platform."""


#: The reason of an attempt whose call was cancelled meanwhile.
CANCELLED = "cancelled"


class Verdict(Enum):
    """What may follow a failure."""

    RETRY = auto()
    ONCE = auto()
    """Again, but only one time in the life of the call."""
    REFRESH = auto()
    """At once, one time in the life of the call, with a refreshed token."""
    IF_UNSETTLED = auto()
    """Again if the write is in doubt and the response does not settle it, at most `MAX_UNSETTLED` times.

    One that says that a write with this key is in progress leaves it in doubt, too: `History.record` has counted it
    before this is asked."""
    IF_ASKED = auto()
    """Again only if the policy asks for it."""
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


#: What a status means, where not all of its hundred do.
_MEANINGS = {
    401: Failure.UNAUTHORIZED,
    403: Failure.FORBIDDEN,
    **dict.fromkeys((408, 424), Failure.SERVER),
    **dict.fromkeys((409, 423, 425), Failure.CONFLICT),
    429: Failure.RATE_LIMITED,
}


def classify_status(status: int, code: str | None = None) -> Failure:
    """Return the kind of failure that a status outside 2xx is, with the platform's *code* if it gave one."""
    if (status, code) == (_BAD_REQUEST, "invalid_access_token"):
        # What preferences say of a token that all other operations respond to with a 401.
        return Failure.UNAUTHORIZED
    if status < _BAD_REQUEST:
        return Failure.FORBIDDEN
    return _MEANINGS.get(status, Failure.CLIENT_ERROR if status < _SERVER_ERROR else Failure.SERVER)


class ErrorCode(Struct, frozen=True):
    """A documented rejection."""

    status: int
    """The status code, 400 to 599."""
    code: str
    """The platform's code, as text (`"101"`, `"property_value"`); `"*"` for any code, and for none."""
    meaning: str
    """What the contract says that it means."""
    settles: bool = False
    """A response with this status and code says that no attempt at the write has taken effect, also where an earlier
    one is in doubt. Set it only for what the platform itself says about the request, and what an effect of an earlier
    attempt cannot cause. `idempotency_key_already_used` settles for a random key only, whatever is set here."""
    kind: Failure | None = None
    """What it means, and so what may follow; by default what its status means. `RATE_LIMITED` is for whatever was not
    processed and may be sent again, such as a 400 with `try_later` or a 425."""
    raises: type[APIError] | None = None
    """The class of the error: a subclass of `APIError` that is made in the same way; by default that of its status."""

    def __post_init__(self) -> None:
        if type(self.status) is not int or self.status not in _REJECTIONS:
            raise RequestInvalid("status", f"{self.status!r} is no status of a rejection, 400 to 599")
        if self.kind in (Failure.NOT_SENT, Failure.NO_TRUSTED_RESPONSE):
            raise RequestInvalid("kind", f"{self.kind.name} is not what a response can mean")
        if self.kind is not None and self.code == ANY_CODE and self.status in _ANYBODY:
            raise RequestInvalid("kind", f"needs a code: a gateway sends {self.status} as well")
        if self.settles and not can_settle(self.status, self.code):
            raise RequestInvalid("settles", f"{self.status} {self.code} can never settle a write")
        if self.settles and self.kind in _NEVER_SETTLE_KIND:
            raise RequestInvalid("settles", f"{self.kind.name} says nothing of an earlier attempt at the write")


_REJECTIONS = range(400, 600)
#: What a gateway says without having asked the platform: with no code of its own it says nothing of the request.
_ANYBODY = frozenset({408, 424, *range(500, 600)})
#: The request was not processed, whoever says so.
_UNPROCESSED = frozenset({401, 429})
#: What only a proxy sends, and what leaves open what happened: it settles no write, whatever is declared.
_NEVER_SETTLE_ANY = frozenset({402, 407, 408, 423, 424, 425, 444, 460, 463, 464, 494, 495, 496, 497, 499})
#: What a gateway says as well, or what says nothing of an earlier attempt.
_NEVER_SETTLE_STATUS = _NEVER_SETTLE_ANY | _UNPROCESSED | {403}
#: The request was turned away before it was looked at: later it may be accepted.
TURNED_AWAY = frozenset({Failure.RATE_LIMITED, Failure.UNAUTHORIZED, Failure.FORBIDDEN})
_NEVER_SETTLE_KIND = TURNED_AWAY | {Failure.SERVER}
_NEVER_SETTLE_CODE = frozenset({"bad_request", "bad-request", ANY_CODE})


def can_settle(status: int, code: str) -> bool:
    """Whether a rejection may be declared with `settles=True`."""
    return (
        _BAD_REQUEST <= status < _SERVER_ERROR
        and status not in _NEVER_SETTLE_STATUS
        and code not in _NEVER_SETTLE_CODE
        and not says_in_progress(code)
        and not says_already(code)
    )


def declared(errors: Iterable[ErrorCode], status: int, codes: Sequence[str]) -> list[ErrorCode]:
    """Return what is declared of a response of *status* with *codes*, in their order; what holds for any code last."""
    of_status = [error for error in errors if error.status == status]
    return [error for code in (*codes, ANY_CODE) for error in of_status if error.code == code]


def classify_response(errors: Iterable[ErrorCode], status: int, code: str | None, codes: Sequence[str]) -> Failure:
    """Return the kind of failure that a response outside 2xx is: as declared, or else what its status means."""
    kinds = (error.kind for error in declared(errors, status, codes) if error.kind is not None)
    return next(kinds, None) or classify_status(status, code)


def says_in_progress(code: str) -> bool:
    """Whether *code* says that something is under way under the key, or on the thing (`refund_in_progress`)."""
    return code == "resource_locked" or "in_progress" in code


def says_already(code: str) -> bool:
    """Whether *code* says that the thing was done before, perhaps by an attempt in doubt (`order_already_canceled`)."""
    return "_already_" in code and code != KEY_ALREADY_USED


class Settles(Enum):
    """Which attempts at a write had no effect, as far as a rejection says."""

    NONE = auto()
    """It does not say."""
    THIS = auto()
    """The attempt that it is the response to."""
    ALL = auto()
    """Every attempt with the key, also one that is in doubt. After a read, which has no effect: the response stands."""


#: The statuses of a plain rejection, with the words of each. A code that only repeats them may be a gateway's.
_PLAIN = {
    400: "badrequest", 403: "forbidden", 404: "notfound", 405: "methodnotallowed", 410: "gone",
    413: "contenttoolarge payloadtoolarge requestentitytoolarge", 415: "unsupportedmediatype",
    422: "unprocessablecontent unprocessableentity",
}  # fmt: skip


def settles_read(status: int) -> Settles:
    """Return whether a response of *status* to a read stands: a 408, a 424 and a 429 may pass."""
    return Settles.ALL if _BAD_REQUEST <= status < _SERVER_ERROR and status not in {408, 424, 429} else Settles.NONE


def settles(
    errors: Iterable[ErrorCode], status: int, codes: Sequence[str], kind: Failure, *, random_key: bool, has_object: bool
) -> Settles:
    """Return which attempts at a write had no effect, as a response of *status* with *codes* says.

    Args:
        errors: The declared rejections of the operation.
        status: The status code of the response.
        codes: Every code in its body.
        kind: The kind of failure that it is.
        random_key: The key was made at random for this call: nobody else can have used it. Also of a write with no key.
        has_object: The body holds an object of the platform, which may be what an attempt has made.
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
    """Whether *codes* say more than a plain *status*, which `"404"`, `"not_found"` and `"404 Not Found"` do not."""
    words = ("".join(filter(str.isalnum, code.lower())).removeprefix(str(status)) for code in codes)
    return status in _PLAIN and not {"", *_PLAIN[status].split()}.issuperset(words)


def _names_state(code: str) -> bool:
    """Whether the *code* of a conflict says why: the thing was done before, or the key is taken."""
    return says_already(code) or code == KEY_ALREADY_USED


def is_in_progress(kind: Failure, codes: Collection[str]) -> bool:
    """Whether a response that does not settle a write leaves open what becomes of it, though it was the first.

    A keyed write is in doubt then, and is sent again; any other is rejected, but not `APIError.settled`.
    A conflict that names neither a state of the thing (`*_already_*`) nor another request under the key may be about
    an own attempt: a proxy can have sent it twice.
    """
    if any(map(says_in_progress, codes)):
        return True
    return kind is Failure.CONFLICT and not any(map(_names_state, codes))
