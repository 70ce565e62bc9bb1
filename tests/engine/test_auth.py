"""Tokens that last, sources of others, and signers: what is sent with a call, and what is not sent without."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping

import pytest

from paymentsdk import (
    AuthenticationFailed,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    RefreshFailed,
    Request,
    RequestInvalid,
    Response,
    RetryPolicy,
    SendFailed,
    StaticToken,
    Timeout,
)
from paymentsdk.testing import FakeClock
from tests.engine.conftest import CREATED, TOKEN
from tests.engine.issuer import ORDER
from tests.observing import of_attempts

# --- static tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "two words", "line\nfeed", "ünicode", None, 5])
def test_a_token_that_cannot_stand_in_a_header(token: object) -> None:
    """A token that would break its header is rejected where it is given."""
    with pytest.raises(RequestInvalid, match="visible ASCII"):
        StaticToken(token)


# --- sources of others ------------------------------------------------------------------------------------------------


class Vault:
    """A source of tokens that gives what it has, and fails with what it has not."""

    def __init__(self, *tokens: object) -> None:
        self._tokens = list(tokens)

    def token(self, now: float) -> str | None:
        token = self._tokens.pop(0)
        if isinstance(token, Exception):
            raise token
        return token

    async def renew(self, rejected, exchange, now) -> str | None:
        return None


async def test_a_source_that_fails_does_not_hide_a_doubt(play) -> None:
    """Whatever a source of tokens raises after a first attempt is in doubt: the caller gets the key of it."""
    auth, attempts = Vault("APP_USR-access-1", KeyError("the lease has expired: s3cr3t")), []

    played = await play(
        "orders.cancel", SendFailed("reset"), auth=auth, access_token=None, observers=of_attempts(attempts.append)
    )

    assert played.is_unknown()
    assert [1, 0] == [attempt.number for attempt in attempts]
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("no token: KeyError (test_auth.py:")


OTHER = "APP_USR-9001-112305-fedcba9876543210-78"


@pytest.mark.control("paymentsdk._call.credential.certain_user_id", lambda token: None)
@pytest.mark.parametrize("due", [False, True], ids=["at hand", "waited for"])
async def test_a_retry_goes_out_as_the_seller_of_the_first_attempt(play, due: bool) -> None:
    """Under another's token the same key is a second order: somebody has replaced the pair in the store meanwhile."""

    class Overwritten(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return OTHER

    auth = Overwritten(TOKEN, None if due else OTHER)
    played = await play("orders.create", SendFailed("reset"), CREATED, auth=auth, access_token=None)

    assert (1, True) == (len(played.requests), played.is_unknown())
    assert "another seller" in played.error.reason


@pytest.mark.control("paymentsdk._call.credential.certain_user_id", lambda token: None)
async def test_a_refresh_with_the_token_of_another_seller_is_rejected(play) -> None:
    """The rejection stands: nothing was done, and nothing is done as somebody else."""

    class Overwritten(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return OTHER

    played = await play("orders.create", Response(401), CREATED, auth=Overwritten(TOKEN), access_token=None)

    assert (1, AuthenticationFailed) == (len(played.requests), type(played.error))
    assert "another seller" in played.error.__notes__[0]


@pytest.mark.parametrize("token", ["APP_USR-9001-112305-fedcba9876543210-77", "token-of-ones-own-78"])
async def test_a_retry_goes_out_with_a_newer_token_of_the_seller(play, token: str) -> None:
    """Also with one that does not tell whose it is."""
    played = await play("orders.create", SendFailed("reset"), CREATED, auth=Vault(TOKEN, token), access_token=None)

    assert [f"Bearer {TOKEN}", f"Bearer {token}"] == [request.headers["Authorization"] for request in played.requests]


@pytest.mark.parametrize("token", [b"APP_USR-access-1", "two words", "", "line\r\nX-Evil: 1"])
async def test_an_invalid_token_is_not_sent(play, token: object) -> None:
    """What a source gives is looked at before it gets into a header, each time that it is another."""
    played = await play("orders.cancel", ORDER, auth=Vault(token, token), access_token=None)

    assert (RequestInvalid, "access_token", []) == (type(played.error), played.error.path, played.requests)


@pytest.mark.parametrize("renewed", [None, "APP_USR-access-2"], ids=["no other token", "another token"])
async def test_a_rejection_that_says_in_progress_leaves_the_write_in_doubt(play, renewed: str | None) -> None:
    """Whether there is another token or not, and whatever is said to that: an attempt may have taken effect."""

    class Other(Vault):
        async def renew(self, rejected, exchange, now) -> str | None:
            return renewed

    in_progress = Response(401, {}, b'{"errors":[{"code":"refund_in_progress"}]}')
    auth = Other("APP_USR-access-1")
    played = await play("orders.cancel", in_progress, Response(403), auth=auth, access_token=None)

    assert (True, 1 + (renewed is not None)) == (played.is_unknown(), len(played.requests))


# --- signers ----------------------------------------------------------------------------------------------------------


KEY = "X-Idempotency-Key"
SECRET = "signature-0123456789"
UNAUTHORIZED = Response(401, {"Content-Type": "application/json"}, b'{"code":"unauthorized","message":"no"}')
ONCE = RetryPolicy(attempts=1)


class Signs:
    """Signs with what it is given, and keeps what it saw."""

    def __init__(self, *results: Mapping[str, str] | BaseException) -> None:
        self.given = list(results) or [{"X-Signature": SECRET}]
        self.seen: list[tuple[Request, float]] = []

    def sign(self, request: Request, now: float) -> Mapping[str, str]:
        """Return the next of what is given; the last one for ever."""
        self.seen.append((request, now))
        result = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(result, BaseException):
            raise result
        return result


class Waits(Signs):
    """A signer that asks somebody, who does not respond."""

    async def sign(self, request: Request, now: float) -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}


async def test_each_attempt_is_signed_as_it_goes_out(play, jobs, clock: FakeClock) -> None:
    """The signer sees the key, the body and the headers of the attempt, and the time that it is then."""
    signer = Signs({"X-Signature": "one"}, {"X-Signature": "two"})

    played = await play("orders.create", SendFailed("reset"), jobs["orders.create"].response, auth=signer)

    [(first, began), (second, later)] = signer.seen
    assert ["one", "two"] == [request.headers["X-Signature"] for request in played.requests]
    assert [1, 2] == [first.attempt, second.attempt]
    assert first.body == second.body == played.requests[0].body != b""
    assert first.headers[KEY] == second.headers[KEY] == played.requests[1].headers[KEY]
    assert "X-Signature" not in first.headers
    assert later - began == pytest.approx(sum(clock.slept))
    assert [30.0] * 2 == pytest.approx([request.timeout for request in played.requests])
    assert later > began


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({KEY: "another"}, KEY),
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"X-Signature": "two\r\nlines"}, "X-Signature"),
        ("X-Signature: a", "auth.sign"),
    ],
)
async def test_fields_that_are_not_its_own_are_not_sent(play, fields: object, reason: str) -> None:
    """With another key an attempt would be another request; with a line break, two. Nothing goes out, and no value."""
    played = await play("orders.create", UNAUTHORIZED, auth=Signs(fields), retry=ONCE)

    assert [] == played.requests
    assert isinstance(played.error, RequestInvalid)
    assert reason in str(played.error)
    assert "another" not in str(played.error)


async def test_what_the_signer_says_of_a_request_is_said_to_the_caller(play) -> None:
    """An error of this package passes as it is; whatever else it raises is a `RefreshFailed`, and nothing was sent."""
    sealed = await play("orders.get", UNAUTHORIZED, auth=Signs(RequestInvalid("vault", "is sealed")))
    unsigned = await play("orders.get", UNAUTHORIZED, auth=Signs(KeyError("no-such-secret")))

    assert [[], []] == [sealed.requests, unsigned.requests]
    assert isinstance(sealed.error, RequestInvalid)
    assert "vault: is sealed" in str(sealed.error)
    assert isinstance(unsigned.error, NotSent | RefreshFailed)
    assert "could not be signed" in str(unsigned.error)


async def test_a_signature_that_fails_later_leaves_the_doubt(play) -> None:
    """The second attempt was not sent; the first may have taken effect, and its key is on the error."""
    signer = Signs({"X-Signature": "one"}, KeyError("x"))

    played = await play("orders.create", SendFailed("reset"), auth=signer)

    assert 1 == len(played.requests)
    assert isinstance(played.error, OutcomeUnknown)
    assert played.requests[0].headers[KEY] == played.error.idempotency_key
    assert 2 == played.error.attempts
    assert "reset" in str(played.error)
    assert "could not be signed" in str(played.error)


async def test_a_signer_that_hangs_is_ended_by_the_deadline(make_client, clock: FakeClock) -> None:
    """The time of an attempt includes its signature; without one, nothing was sent."""
    client = make_client(UNAUTHORIZED, auth=Waits(), timeout=Timeout(total=60, attempt=5), retry=ONCE)
    call = asyncio.ensure_future(client.orders.get("ORD1"))
    await asyncio.sleep(0)
    clock.advance(5.1)

    with pytest.raises(NotSent, match=r"the time ran out \(timeout.attempt=5 s\) while the request was signed"):
        await call


@pytest.mark.parametrize("step", [UNAUTHORIZED, SendFailed("reset")])
async def test_no_error_shows_a_signature(play, step: Response | SendFailed) -> None:
    """Not in its text, nor in a frame of its traceback."""
    played = await play("orders.get", step, auth=Signs(), retry=ONCE)

    assert isinstance(played.error, PaymentsError)
    text = "".join(traceback.TracebackException.from_exception(played.error, capture_locals=True).format())
    assert SECRET not in text


async def test_an_error_response_that_repeats_a_signature_is_masked(play) -> None:
    """A platform may say which signature it has rejected."""
    body = b'{"code":"unauthorized","message":"bad signature ' + SECRET.encode() + b'"}'

    played = await play("orders.get", Response(401, {}, body), auth=Signs(), retry=ONCE)

    assert isinstance(played.error, AuthenticationFailed)
    assert "***" in str(played.error.message)
    assert SECRET not in f"{played.error} {played.error.message} {played.error.raw!r}"
