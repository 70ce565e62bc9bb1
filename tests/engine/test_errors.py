"""Errors are as good as successes: they say what is known, what to do next, and travel between processes."""

from __future__ import annotations

import copy
import copyreg
import pickle
from datetime import UTC, datetime

import pytest

from paymentsdk import ResumePoint, errors
from paymentsdk.errors import (
    APIError,
    Deferred,
    ErrorDetail,
    Incomplete,
    NoAnswer,
    NotWhole,
    OutcomeUnknown,
    PaymentsError,
    RequestInvalid,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)
WINDOW = "2026-01-31T00:00:00.000+00:00 to 2026-01-31T00:00:00.000+00:00"
REFUSAL = APIError(
    402,
    "failed",
    "no funds",
    meaning="the payment failed",
    details=[ErrorDetail(code="failed", details=("card",))],
    request_id="r-1",
    retry_after=7.0,
    raw=b"{}",
)


def classes(cls: type[PaymentsError] = PaymentsError) -> list[type[PaymentsError]]:
    """Every error of the package, from the base down."""
    ours = [sub for sub in cls.__subclasses__() if sub.__module__ == cls.__module__]
    return [cls, *(below for sub in ours for below in classes(sub))]


def made(cls: type[PaymentsError]) -> PaymentsError:
    """An error of *cls* with every attribute set."""
    if issubclass(cls, APIError):
        error = cls(429, "slow", "too fast", meaning="m", details=REFUSAL.details, retry_after=1.5, raw=b"raw")
    elif cls is RequestInvalid:
        error = cls("$.items[0].title", "is too long")
    elif cls is Incomplete:
        error = cls(60, 100, ResumePoint(60, total=100))
    elif cls is NotWhole:
        error = cls((NOW, NOW), 3, 4, "it has too many rows")
    elif cls is Deferred:
        error = cls("table-7/1", "connection refused")
    else:
        error = cls("the reason")
    if isinstance(error, NoAnswer):
        error.first_reason, error.last_error, error.first_sent_at = "reset", REFUSAL, NOW
    error.operation, error.attempts, error.idempotency_key = "orders.create", 3, "k-1"
    error.request_id, error.resume_point, error.account = "r-1", ResumePoint(60, total=100), "shop-1"
    return error


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_travels_whole(cls: type[PaymentsError]) -> None:
    """Pickled and copied, an error is what it was: class, text and every attribute."""
    error = made(cls)

    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(error), str(error), error.args) == (type(twin), str(twin), twin.args)
        assert state(error) == state(twin)
        assert (60, 100) == (twin.resume_point, twin.resume_point.total)


class SlottedError(errors.NotSent):
    """An error that somebody makes of ours, with a slot."""

    __slots__ = ("shop",)

    def __init__(self, reason: str, shop: str) -> None:
        super().__init__(reason)
        self.shop = shop


def test_an_error_travels_with_its_slots() -> None:
    """What a subclass keeps in slots is as much a part of it as what it keeps elsewhere."""
    error = SlottedError("no connection", "till-1")
    error.attempts = 2

    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert ("till-1", "no connection", 2, str(error)) == (twin.shop, twin.reason, twin.attempts, str(twin))


def state(error: PaymentsError) -> dict[str, object]:
    """All attributes, with the errors among them as texts."""
    return {name: str(value) if isinstance(value, Exception) else value for name, value in vars(error).items()}


def traces_of_a_copy() -> tuple[object, ...]:
    """What a copy of an error that was raised knows of where that was."""
    try:
        raise made(OutcomeUnknown)
    except OutcomeUnknown as error:
        twin = copy.copy(error)
    return twin.__traceback__, twin.__context__, twin.__cause__


def test_a_copy_has_no_traceback_where_a_library_copies_exceptions_with_theirs(monkeypatch) -> None:
    """As where Dask is imported: it registers the exceptions that it finds."""
    monkeypatch.setitem(copyreg.dispatch_table, OutcomeUnknown, lambda error: (lambda: error, ()))

    assert (None, None, None) == traces_of_a_copy()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (made(OutcomeUnknown),
         ("outcome unknown after 3 attempt(s): the reason (at first: reset); send it again with idempotency_key='k-1', "
          "within 23 hours of the first time")),
        (OutcomeUnknown("the reason"), "outcome unknown after 0 attempt(s): the reason; look before you send it again"),
        (made(Incomplete), "incomplete: the page at offset 60 of 100 is empty; 60 rows were seen"),
        (made(NotWhole), f"not whole: {WINDOW} of account shop-1, 3 of 4 rows seen: it has too many rows"),
        (REFUSAL, "402 failed no funds (the payment failed) [retry after 7 s] [request r-1]"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_error_says_what_to_do(error: PaymentsError, text: str) -> None:
    """The text has what is known and what comes next; for a write in doubt that is the key."""
    assert text == str(error)


@pytest.mark.parametrize("key", ["k-1", None])
def test_the_advice_is_what_the_text_says(key: str | None) -> None:
    """Whoever reads the advice alone is told of the key as well, and never to look where nothing can be looked up."""
    error = OutcomeUnknown("the reason")
    error.in_doubt, error.idempotency_key = "send it again", key

    assert (key is not None) == ("idempotency_key='k-1'" in error.advice)
    assert str(error).endswith(f"; {error.advice}")


@pytest.mark.control("paymentsdk.errors.visible", lambda text: text)
@pytest.mark.parametrize(
    "error",
    [
        APIError(400, "bad\x1b[2J", "no\nCRITICAL forged", request_id="1\x1b]0;mine\x07"),
        APIError(400, message="\u202etxet\u2028 and \x9b2J"),
    ],
)
def test_an_error_is_one_line_of_text(error: PaymentsError) -> None:
    """What a platform, or the buyer of a shop, wrote forges no line of a log, and tells a terminal nothing."""
    assert str(error).isprintable()
    assert "\\x1b" in str(error) or "\\x9b" in str(error)
