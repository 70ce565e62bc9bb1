"""The public suite: our transports pass it, and one that lacks any of their defences does not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import ssl
import warnings
from collections.abc import Callable
from typing import TypeAlias, Unpack

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from paymentsdk import Request, Response, SendFailed
from paymentsdk.testing import _expectation
from paymentsdk.testing.transport_conformance import AIOHTTP_DEVIATIONS, CASES, Case, MakeTransport
from paymentsdk.transports import _aiohttp_messages
from paymentsdk.transports import aiohttp as default
from paymentsdk.transports._pool import Pool
from paymentsdk.transports.aiohttp import AiohttpTransport, ConnectorOptions
from tests.conftest import misfit
from tests.transports.sending import assert_conforms
from tests.transports.skipping import SkippingLoop
from tests.transports.waiting import wait_for_ever

RULES = {case.name: case for case in CASES}
_RESENT = "aiohttp sends a GET, PUT or DELETE once more when its connection ends"
_UNWATCHED = "nobody watches its idle connections"
_SHARED = "a kept connection may be taken where a fresh one is asked for"
#: The rules that `AiohttpTransport(session=...)` does not keep, each with its reason: the pool is that of the session's
#: owner.
INJECTED_SESSION_DEVIATIONS = {
    **AIOHTTP_DEVIATIONS,
    "closed_before_the_response": _RESENT,
    "cut_off_within_the_head": _RESENT,
    "nothing_is_sent_again": _RESENT,
    "a_failure_gives_its_place_back": _RESENT,
    "a_fresh_connection_is_new": _SHARED,
    "tls_works": _SHARED,
    "a_stray_response_does_no_lasting_harm": _UNWATCHED,
    "bytes_on_an_idle_connection_end_it": _UNWATCHED,
    "bytes_that_nobody_has_read_yet": _UNWATCHED,
    "a_discarded_connection_takes_no_request": "the next requests empty it, but the first of them may go out on the "
    "discarded connection",
    "closing_ends_the_wait_for_a_connection": "it is not closed with the transport",
}


def trusting(ca: bytes | None) -> ssl.SSLContext | bool:
    """Return what aiohttp takes for a certificate authority."""
    return True if ca is None else ssl.create_default_context(cadata=ca.decode())


def made(kind: Callable[..., AiohttpTransport]) -> MakeTransport:
    """Say how a transport of *kind* is made, with a session of its own."""
    return lambda *, ca=None, limit=100: kind(ssl=trusting(ca), limit=limit, drain=0.1)


class OnInjectedSession(AiohttpTransport):
    """The default transport on a session that is set as badly as can be, and is closed by its owner."""

    def __init__(self, connector: aiohttp.TCPConnector) -> None:
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=True,
            auto_decompress=True,
            timeout=aiohttp.ClientTimeout(total=0.001, sock_read=0.001, sock_connect=0.001),
        )
        super().__init__(session=self.session, drain=0.1)

    async def aclose(self) -> None:
        await super().aclose()
        await self.session.close()


def injected(*, ca: bytes | None = None, limit: int = 100) -> AiohttpTransport:
    """Make the default transport on a session of someone else."""
    return OnInjectedSession(aiohttp.TCPConnector(ssl=trusting(ca), limit=limit))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_aiohttp_conforms(case: Case) -> None:
    """The default transport keeps every rule but those that are declared, which it breaks."""
    # The name of a host is looked up in a thread, for which no loop may skip the time.
    with asyncio.Runner(loop_factory=None if case.name == "no_such_host" else SkippingLoop) as runner:
        runner.run(assert_conforms(case, made(AiohttpTransport), AIOHTTP_DEVIATIONS))


@pytest.mark.parametrize("case", CASES[::12], ids=str)
def test_aiohttp_conforms_on_uvloop(case: Case) -> None:
    """It does so on the event loop that many services run on, which reads and closes in its own way."""
    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        runner.run(assert_conforms(case, made(AiohttpTransport), AIOHTTP_DEVIATIONS))


@pytest.mark.parametrize("case", CASES[::4], ids=str)
async def test_aiohttp_on_an_injected_session(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a session that was set without care it keeps every rule but those that are declared, which it breaks."""
    with warnings.catch_warnings():
        if case.name in INJECTED_SESSION_DEVIATIONS:
            warnings.simplefilter("ignore", ResourceWarning)  # A broken rule may well leave something open.
            monkeypatch.setattr(_expectation, "LONGEST", 1.0)  # Some are broken by nothing ever happening.
        await assert_conforms(case, injected, INJECTED_SESSION_DEVIATIONS)
        gc.collect()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on a rule whose breach is that nothing ever happens."""
    monkeypatch.setattr(_expectation, "LONGEST", 1.0)


async def test_an_unknown_deviation_is_rejected() -> None:
    """A declared deviation whose rule is kept is out of date, and says so."""
    stale = {"refused": "it was so once"}
    with pytest.raises(AssertionError, match=r"out of date \(it was so once\)"):
        await RULES["refused"].run(made(AiohttpTransport), stale)


# --- parts that are not as careful as ours ----------------------------------------------------------------------------

Spoil: TypeAlias = Callable[[pytest.MonkeyPatch], object]


def asks(**options: object) -> Spoil:
    """Ask aiohttp for something else."""
    request = aiohttp.ClientSession.request
    return has(
        aiohttp.ClientSession, request=lambda *arguments, **settings: request(*arguments, **{**settings, **options})
    )


#: The files of the transport. One that imports a part looks it up in itself.
FILES = (default, _aiohttp_messages)


def has(*owners: object, **parts: object) -> Spoil:
    """Have other parts in place of some: those of the owners, or else wherever the transport looks them up."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        for name, part in parts.items():
            holders = [owner for owner in owners or FILES if hasattr(owner, name)]
            assert holders, f"nothing has the part {name}"
            for owner in holders:
                # It would fail for that alone, and prove nothing.
                assert not (problem := misfit(getattr(owner, name), part)), f"{name} cannot be called alike: {problem}"
                patch.setattr(owner, name, part)

    return spoil


async def read_all(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read a body as most programs do."""
    return await response.content.read()


async def read_what_comes(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Take what came for the whole."""
    body = b""
    with contextlib.suppress(aiohttp.ClientPayloadError):
        while chunk := await response.content.readany():
            body += chunk
    return body


#: Leave it to the event loop to find what the system holds.
unread_goes_unseen = has(unread_on=lambda wire: lambda: None)


def resending(patch: pytest.MonkeyPatch) -> None:
    """Let aiohttp have another connection for the same request."""
    connect = default.Connector.connect

    async def again(connector: default.Connector, *arguments: object, **settings: object) -> Connection:
        connector.pool.attempts[asyncio.current_task()].connection = None
        return await connect(connector, *arguments, **settings)

    patch.setattr(default.Connector, "connect", again)


def careless_with_surplus(patch: pytest.MonkeyPatch) -> None:
    """Keep a connection whatever else has come over it."""
    unread_goes_unseen(patch)
    has(ResponseHandler, should_close=False)(patch)


def seen_as(**changes: bool) -> type[AiohttpTransport]:
    """Say the same of every failure."""

    class Certain(AiohttpTransport):
        async def send(self, request: Request) -> Response:
            try:
                return await super().send(request)
            except SendFailed as error:
                details = {"sent": error.sent, "permanent": error.permanent, **changes}
                failure = SendFailed(error.reason, **details)
            raise failure

    return Certain


class Forgetting(AiohttpTransport):
    """Hears, and does nothing."""

    def discard(self, response: Response) -> None:
        pass


class Telling(AiohttpTransport):
    """Puts what it knows into the reason."""

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except SendFailed as error:
            failure = SendFailed(f"{error}: {dict(request.headers)}", error.sent)
        raise failure


class Logging(AiohttpTransport):
    """Says what it does."""

    async def send(self, request: Request) -> Response:
        logging.getLogger("transport").debug("%s", dict(request.headers))
        return await super().send(request)


class Swallowing(AiohttpTransport):
    """Takes a cancellation for a failure."""

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except asyncio.CancelledError:
            raise SendFailed("cancelled") from None


class Believing(AiohttpTransport):
    """Believes every certificate."""

    def __init__(self, **options: Unpack[ConnectorOptions]) -> None:
        super().__init__(**{**options, "ssl": False})


#: Which rule finds out about what.
CONTROLS: list[tuple[str, type[AiohttpTransport] | Spoil]] = [
    ("closed_before_the_response", seen_as(sent=False)),
    ("refused", seen_as(sent=True)),
    ("cut_off_within_the_body", has(read=read_what_comes)),
    ("a_length_above_the_limit_is_refused_at_once", has(read=read_all)),
    ("waiting_for_a_place_takes_too_long", has(Pool, wait=wait_for_ever)),
    ("failures_hold_no_credentials", Telling),
    ("logs_hold_no_credentials", Logging),
    ("an_expired_certificate_is_refused", Believing),
    ("cookies_are_not_kept", has(aiohttp, DummyCookieJar=aiohttp.CookieJar)),
    ("redirects_are_not_followed", asks(allow_redirects=True)),
    ("a_head_without_end_is_not_taken_in", asks(max_line_size=2**30, max_field_size=2**30, max_headers=2**30)),
    ("nothing_is_sent_again", resending),
    ("a_stray_response_does_no_lasting_harm", careless_with_surplus),
    ("surplus_bytes_end_the_connection_a_second_response", careless_with_surplus),
    ("bytes_on_an_idle_connection_end_it", careless_with_surplus),
    ("bytes_that_nobody_has_read_yet", unread_goes_unseen),
    ("a_discarded_connection_takes_no_request", Forgetting),
    ("cancelled_at_any_moment", Swallowing),
]


@pytest.mark.parametrize(("name", "flaw"), CONTROLS)
def test_a_flaw_is_found(
    name: str, flaw: type[AiohttpTransport] | Spoil, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a defence taken away, the rule that asks for it is broken."""
    kind = AiohttpTransport
    if isinstance(flaw, type):
        kind = flaw
    else:
        flaw(monkeypatch)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # A flawed transport may well leave something open.
        with asyncio.Runner(loop_factory=SkippingLoop) as runner, pytest.raises(AssertionError) as failure:
            runner.run(RULES[name].run(made(kind)))
        gc.collect()

    assert "TypeError" not in str(failure.value)  # A part that cannot be called would fail for that alone.
