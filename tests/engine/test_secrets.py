"""Credentials show up nowhere: canaries in every place that takes one, and a search of all that a person may see."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from traceback import TracebackException

import msgspec
import pytest

from paymentsdk import (
    FileTokenStore,
    Headers,
    MemoryTokenStore,
    PaymentsClient,
    PaymentsError,
    RefreshingToken,
    Request,
    RequestInvalid,
    Response,
    Result,
    SendFailed,
    StaticToken,
    TokenPair,
)
from paymentsdk.journal import Record
from paymentsdk.resources.oauth import Token, TokenRequest
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest
from paymentsdk.testing import MemoryTransport
from tests.observing import of_attempts

TESTS = str(Path(__file__).parents[1])
ACCESS, REFRESH, SECRET, CODE, VERIFIER, PAYER, NEXT_ACCESS, NEXT_REFRESH = CANARIES = tuple(
    f"{name}-canary-{number:04}"
    for number, name in enumerate(("access", "refresh", "secret", "code", "verifier", "payer", "next", "nextrefresh"))
)
PAIR = TokenPair(access_token=ACCESS, refresh_token=REFRESH)
ENDED = TokenPair(access_token=ACCESS, refresh_token=REFRESH, expires_at=0.0)
TOKENS = json.dumps({"access_token": NEXT_ACCESS, "refresh_token": NEXT_REFRESH}).encode()
PAYMENT = WalletPaymentRequest(
    wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5)),
    payer=WalletPayerRequest(token=PAYER, type_token="wallet"),
)
OVERPRECISE = WalletPaymentRequest(
    wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5), description=5), payer=PAYMENT.payer
)


@pytest.mark.parametrize("wrong", [{"retry": 5}, {"bogus": 1}])
def test_a_credential_next_to_a_rejected_option_is_hidden(
    wrong: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No frame of a copy, of a resource or of `from_env` shows the credentials that came with a wrong option."""
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "https://x")
    client, headers = PaymentsClient(base_url="https://x"), {"X-Api-Key": SECRET}
    for make in (
        lambda: client.with_options(access_token=ACCESS, headers=headers, **wrong),
        lambda: client.orders.with_options(access_token=ACCESS, headers=headers, **wrong),
        lambda: PaymentsClient.from_env(headers=headers, **wrong),
    ):
        with pytest.raises((RequestInvalid, TypeError)) as refused:
            make()
        traceback = TracebackException.from_exception(refused.value, capture_locals=True)
        frames = [frame for frame in traceback.stack if not frame.filename.startswith(TESTS)]
        assert_clean("".join(str(frame.locals) for frame in frames), str(refused.value))


def assert_clean(*texts: object) -> None:
    """Find no canary in what *texts* hold, however they are written."""
    for text in texts:
        content = text if isinstance(text, str) else repr(text)
        assert [] == [canary for canary in CANARIES if canary in content], content


def shown_with_variables(error: BaseException) -> str:
    """What a debugger, or a service that collects errors, shows: every frame but the tests' own, with its variables."""
    trace = TracebackException.from_exception(error, capture_locals=True)
    pending = [trace]
    while pending:
        part = pending.pop()
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(TESTS)]
        pending += filter(None, [part.__cause__, part.__context__, *(part.exceptions or ())])
    return "".join(trace.format())


def pickled(value: object) -> bytes:
    """The pickle of *value*, or nothing if it rejects."""
    try:
        return pickle.dumps(value)
    except TypeError:
        return b""


# --- things -----------------------------------------------------------------------------------------------------------

#: As `journal.records()` returns it, with its body unsealed.
RECORD = Record(
    key="once1-1",
    name="ride-7",
    operation="wallet_payments.create",
    base_url="http://x",
    seller="77",
    path="/v1/wallet_payments",
    body=msgspec.json.encode(PAYMENT),
    digest=b"",
    sensitive=True,
    begun=0.0,
    not_after=1.0,
)
THINGS = [
    PAIR,
    TokenRequest(client_id="app-1", client_secret=SECRET, grant_type="refresh_token", refresh_token=REFRESH),
    TokenRequest(
        client_id="a", client_secret=SECRET, grant_type="authorization_code", code=CODE, code_verifier=VERIFIER
    ),
    Token(access_token=NEXT_ACCESS, refresh_token=NEXT_REFRESH),
    PAYMENT,
    PAYMENT.payer,
    StaticToken(ACCESS),
    RefreshingToken(PAIR),
    RefreshingToken(store=MemoryTokenStore(PAIR)),
    MemoryTokenStore(PAIR),
    FileTokenStore("tokens.json"),
    Headers({"Authorization": f"Bearer {ACCESS}", "cookie": ACCESS}),
    Request("POST", "http://x", {"authorization": f"Bearer {ACCESS}"}, PAYER.encode()),
    Response(200, {"Set-Cookie": ACCESS}, TOKENS),
    Result(value=PAIR, status=200, headers={"Set-Cookie": ACCESS}, attempts=1, elapsed=0.0, anomalies=(), raw=TOKENS),
    MemoryTransport(),
    RECORD,
]


@pytest.mark.parametrize("holder", THINGS, ids=lambda holder: type(holder).__name__)
def test_things_do_not_show_what_they_hold(holder: object) -> None:
    """Neither `repr` nor `str` nor formatting nor rich shows a credential, and no pickle takes one along."""
    assert_clean(repr(holder), [holder], {"thing": holder}, str(holder), f"{holder}")
    assert_clean(*getattr(holder, "__rich_repr__", list)())
    if not isinstance(holder, Headers):
        assert_clean(str(pickled(holder)))
    if isinstance(holder, TokenPair | Token | TokenRequest | WalletPaymentRequest | Record):
        with pytest.raises(TypeError, match="credentials"):
            pickle.dumps(holder)
        assert copy.copy(holder) == holder == copy.deepcopy(holder)


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_source_of_tokens_has_no_twin(twin: Callable[[object], object]) -> None:
    """A refresh token is good once: a copy, as `dataclasses.asdict` makes one of a configuration, would spend it."""
    for token in (RefreshingToken(PAIR), StaticToken(ACCESS)):
        with pytest.raises(TypeError, match="cannot be"):
            twin(token)


# --- errors -----------------------------------------------------------------------------------------------------------


async def echo(request: Request) -> Response:
    """A platform that rejects, and repeats all that it was sent."""
    text = f"{dict(request.headers)} {request.body.decode()}"
    body = {"message": text, "cause": [{"code": 1, "description": text, "data": [text, {"was": text}]}]}
    return Response(400, {"X-Request-Id": "1"}, json.dumps(body).encode())


async def page(request: Request) -> Response:
    """A gateway that repeats all that it was sent, in HTML."""
    return Response(400, {}, f"<pre>{dict(request.headers)} {request.body.decode()}</pre>".encode())


async def half(request: Request) -> Response:
    """A platform whose response, a token, breaks off."""
    return Response(200, {}, TOKENS[:-2])


async def odd(request: Request) -> Response:
    """A platform whose tokens come as lists."""
    return Response(200, {}, json.dumps({"access_token": "fine", "refresh_token": [NEXT_REFRESH]}).encode())


ENDS = {
    "echo": echo,
    "page": page,
    "half": half,
    "odd": odd,
    "reset": SendFailed("reset"),
    "unsent": SendFailed("refused", sent=False),
    **{str(status): Response(status) for status in (307, 401, 404, 429, 503)},
}
CALLS = {
    "order": lambda client: client.orders.cancel("ORD1"),
    "search": lambda client: client.merchant_orders.search().collect(),
    "payment": lambda client: client.wallet_payments.create(PAYMENT),
    "invalid payment": lambda client: client.wallet_payments.create(OVERPRECISE),
    "seller": lambda client: client.with_options(access_token=NEXT_ACCESS).orders.cancel("ORD1"),
    "refresh": lambda client: client.with_options(auth=RefreshingToken(ENDED)).orders.cancel("ORD1"),
    "refusal": lambda client: client.with_options(auth=RefreshingToken(PAIR)).orders.cancel("ORD1"),
    "early": lambda client: client.with_options(auth=RefreshingToken(PAIR, early=10**10)).orders.cancel("ORD1"),
    "code": lambda client: client.oauth.exchange_code(CODE, code_verifier=VERIFIER),
    "invalid code": lambda client: client.oauth.exchange_code(CODE, client_secret=SECRET),
    "other application": lambda client: client.oauth.refresh(REFRESH, client_id="other", client_secret=SECRET),
}


@pytest.fixture
def logged(caplog):
    """Everything that is logged, from DEBUG on, with its extras and its tracebacks."""
    caplog.set_level(logging.DEBUG)
    return lambda: f"{caplog.text} {[vars(record) for record in caplog.records]}"


@pytest.fixture
def spied(make_client):
    """Make a client of which every setting is a canary, watched by an observer that raises."""

    def observe(attempt: object) -> None:
        assert_clean(attempt)
        raise LookupError("an observer with a defect")

    def make(*steps: object, **settings: object) -> PaymentsClient:
        if "auth" not in settings:
            settings["access_token"] = ACCESS
        return make_client(*steps, client_secret=SECRET, observers=of_attempts(observe), **settings)

    return make


@pytest.mark.parametrize(
    ("call", "end"),
    [*((call, "echo") for call in CALLS), *(("payment", end) for end in ENDS), ("code", "half"), ("refresh", "odd")],
)
async def test_errors_and_logs_hold_no_credential(spied, logged, call: str, end: str) -> None:
    """No error, part of one, pickle, traceback with variables or line of the log shows what was sent or received."""
    try:
        value = await CALLS[call](spied(ENDS[end]))
    except PaymentsError as error:
        parts = [error, vars(error), getattr(error, "last_error", None), getattr(error, "details", None)]
        assert_clean(str(error), *parts, str(pickle.dumps(error)))
        text = shown_with_variables(error)
        assert "self = " in text
        assert_clean(text)
    else:
        assert_clean(value)
    assert_clean(logged())


@pytest.mark.parametrize("call", CALLS)
async def test_cancellations_hold_no_credential(spied, call: str) -> None:
    """A call that is cancelled, or timed out from outside, leaves no credential in the traceback either."""

    async def forever(request: Request) -> Response:
        await asyncio.Event().wait()

    client = spied(SendFailed("reset"), forever)
    task = asyncio.create_task(within(0, CALLS[call](client)))
    await asyncio.wait([task])

    if not task.cancelled():
        assert_clean(shown_with_variables(task.exception()))
    await stop_renewals()


@pytest.mark.control("paymentsdk.client.masked", lambda token: token)
async def test_what_waits_holds_no_credential(spied) -> None:
    """Nor do the variables of a refresh that is under way, which a debugger shows."""
    started = asyncio.Event()

    async def forever(request: Request) -> Response:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(spied(forever, auth=RefreshingToken(ENDED)).orders.cancel("ORD1"))
    await started.wait()

    try:
        for waiting in asyncio.all_tasks() - {asyncio.current_task()}:
            part = waiting.get_coro()
            while hasattr(part, "cr_frame"):
                assert_clean(repr(part.cr_frame.f_locals))
                part = part.cr_await
    finally:
        task.cancel()
        await stop_renewals()


async def stop_renewals() -> None:
    """End what goes on when nobody waits for it any more."""
    refreshes = [task for task in asyncio.all_tasks() if "RefreshingToken" in repr(task.get_coro())]
    for task in refreshes:
        task.cancel()
    if refreshes:
        await asyncio.wait(refreshes)


async def within(seconds: float, coroutine: object) -> None:
    """Give *coroutine* so many seconds."""
    async with asyncio.timeout(seconds):
        await coroutine


def uncut(error: PaymentsError) -> PaymentsError:
    """Raise *error* itself, with all the frames that it came through."""
    error.with_traceback = lambda traceback: error
    return error


@pytest.mark.control("paymentsdk._call.credential.masked", lambda token: token)
@pytest.mark.control("paymentsdk._call.verdicts._own", uncut)
async def test_a_refresh_that_fails_holds_no_credential(spied) -> None:
    """The token that was rejected, and the error that the refresh ended in, come with no variables of theirs.

    The frames of the refresh are cut off: others' sources of tokens may have anything in them.
    """

    class Open:
        def token(self, now):
            return None

        async def renew(self, rejected, exchange, now):
            return await exchange(REFRESH)

    async def forever(request: Request) -> Response:
        await asyncio.Event().wait()

    for auth, end in ((RefreshingToken(PAIR), forever), (Open(), Response(400, {}, b'{"error":"invalid_grant"}'))):
        task = asyncio.create_task(
            within(0, spied(Response(401) if end is forever else end, end, auth=auth).orders.cancel("ORD1"))
        )
        await asyncio.wait([task])
        await stop_renewals()
        text = shown_with_variables(task.exception())
        assert_clean(text)
        assert "in _exchange" not in text


SETTINGS = [
    {"base_url": "not an address"},
    {"base_url": f"https://user:{SECRET}@host"},
    {"base_url": f"https://host/?token={SECRET}"},
    {"client_id": None},
    {"session": object()},
    {"auth": StaticToken(ACCESS)},
    {"retry": 5},
    {"headers": {"Authorization": f"Bearer {ACCESS}"}},
    {"headers": {"X-Api-Key": f"{SECRET}\n"}},
    {"access_token": f"{ACCESS}\n"},
    {"session_header": "not a header"},
]


@pytest.mark.control("paymentsdk.client.masked", lambda text: text)
def test_settings_that_make_no_sense_hold_no_credential() -> None:
    """A client that cannot be made does not show what it was to be made with."""
    good = {"access_token": ACCESS, "base_url": "https://x", "client_id": "a", "client_secret": SECRET}
    for settings in SETTINGS:
        with pytest.raises(RequestInvalid) as refused:
            PaymentsClient(**{**good, "transport": MemoryTransport(), **settings})
        if "headers" not in settings:  # They are the program's own, and shown as it gave them.
            assert_clean(shown_with_variables(refused.value))
        assert_clean(str(refused.value), str(pickle.dumps(refused.value)))


@pytest.mark.control("paymentsdk._auth.token_store.masked", lambda pair: pair)
@pytest.mark.parametrize("store", [MemoryTokenStore(), FileTokenStore("tokens.json")])
async def test_a_token_instead_of_a_pair_is_not_shown(store: MemoryTokenStore | FileTokenStore) -> None:
    """A store that is given the text of a token rejects it, and shows it in none of the frames that do."""
    with pytest.raises(PaymentsError, match="must be a TokenPair") as refused:
        await store.save(ACCESS)

    assert_clean(shown_with_variables(refused.value))
