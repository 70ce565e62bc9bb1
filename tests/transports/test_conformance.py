"""The public suite: our transports pass it, and one that lacks any of their defences does not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import netrc
import os
import ssl
import warnings
from collections.abc import Callable
from typing import TypeAlias, Unpack

import aiohttp
import pytest
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from msgspec import structs

from paymentsdk import Request, Response, SendFailed
from paymentsdk.testing import transport_conformance
from paymentsdk.testing.transport_conformance import CASES, Case, MakeTransport, _case
from paymentsdk.transports.aiohttp import (
    AiohttpTransport,
    ConnectorOptions,
    _failures,
    _messages,
    _over_pool,
    _over_session,
    _pool,
    _transport,
)
from paymentsdk.transports.pyreqwest import PyreqwestTransport
from tests.conftest import misfit

RULES = {case.name: case for case in CASES}

#: What pyreqwest cannot do: it does not take back what is under way. Its docstring says so.
NOT_PYREQWEST = ["cancellation_takes_the_connection_along", "closing_takes_the_connections_along"]


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


@pytest.mark.parametrize("way", ["pool", "session", "injected"])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_aiohttp_conforms(case: Case, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default transport keeps every rule, whichever way it takes, and on a session that was set without care."""
    if way == "session":
        monkeypatch.setattr(_transport, "_KNOWN", ("0.",))
    await case.run(injected if way == "injected" else made(AiohttpTransport))


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in NOT_PYREQWEST], ids=str)
async def test_pyreqwest_conforms(case: Case) -> None:
    """The transport on pyreqwest keeps every rule that its docstring does not except."""
    await case.run(PyreqwestTransport)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on a rule whose breach is that nothing ever happens."""
    monkeypatch.setattr(_case, "_LONGEST", 1.0)


@pytest.mark.parametrize("name", NOT_PYREQWEST)
async def test_pyreqwest_takes_nothing_back(name: str, soon: None) -> None:
    """What the docstring excepts is still so; once this fails, the exception has to go."""
    with pytest.raises(AssertionError, match="not done after 1 s"):
        await RULES[name].run(PyreqwestTransport)


def test_every_rule_is_written_down() -> None:
    """Each case has a name of its own and says what it holds transports to."""
    assert len(CASES) == len(RULES)
    assert all(case.rule and str(case) == case.name for case in CASES)
    assert "CASES" in transport_conformance.__all__


# --- parts that are not as careful as ours ----------------------------------------------------------------------------

Spoil: TypeAlias = Callable[[pytest.MonkeyPatch], object]


def asks(**options: object) -> Spoil:
    """Ask aiohttp for something else."""
    request = aiohttp.ClientSession.request
    return has(aiohttp.ClientSession, request=lambda *given, **asked: request(*given, **{**asked, **options}))


#: The files of the transport. One that imports a part looks it up in itself.
FILES = (_failures, _messages, _over_pool, _over_session, _pool, _transport)


def has(*owners: object, **parts: object) -> Spoil:
    """Have other parts in place of some: those of the owners, or else wherever the transport looks them up."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        for name, part in parts.items():
            found = [owner for owner in owners or FILES if hasattr(owner, name)]
            assert found, f"nothing has the part {name}"
            for owner in found:
                # It would fail for that alone, and prove nothing.
                assert not (why := misfit(getattr(owner, name), part)), f"{name} cannot be called alike: {why}"
                patch.setattr(owner, name, part)

    return spoil


Body: TypeAlias = aiohttp.StreamReader


async def read_all(status: int, headers: object, content: Body, most: int) -> bytes:
    """Read a body as most programs do."""
    return await content.read()


async def read_unpacked(status: int, headers: object, content: Body, most: int) -> bytes:
    """Read a body as most programs do, which is what aiohttp does unless it is asked not to."""
    import zlib

    return zlib.decompressobj(31).decompress(await content.read())


async def read_too_little(status: int, headers: object, content: Body, most: int, read=_messages.read_body) -> bytes:
    """Be off by one."""
    return await read(status, headers, content, most - 1)


async def read_much(status: int, headers: object, content: Body, most: int) -> bytes:
    """Have a limit, but one's own."""
    size = 0
    while size < 2**24 and (chunk := await content.readany()):
        size += len(chunk)
    return b"x" * size


async def read_what_comes(status: int, headers: object, content: Body, most: int) -> bytes:
    """Take what came for the whole."""
    body = b""
    with contextlib.suppress(aiohttp.ClientPayloadError):
        while chunk := await content.readany():
            body += chunk
    return body


def meaning(**changes: bool) -> Spoil:
    """Say the same of every failure."""
    return has(_MEANINGS=tuple(one._replace(**changes) for one in _failures._MEANINGS))


async def unguarded(transport: AiohttpTransport, request: Request) -> Response:
    """Send without what the transport makes of failures."""
    session = transport._open()
    server = transport._server_of(request)
    if server is None:
        return await _over_session.over_session(session, request, owned=True, proxy=None, trust_env=False)
    return await _over_pool.over_pool(server, request)


def writes(change: Callable[[bytes], bytes], message=_messages.message_of) -> Spoil:
    """Write something else than was asked for."""
    return has(message_of=lambda *asked: change(message(*asked)))


def unchecked(request: Request, server: _pool.Server) -> bytes:
    """Write whatever the fields hold."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return (
        f"{request.method} {request.url[len(server.origin) :]} HTTP/1.1\r\nHost: {server.host}\r\n{fields}\r\n".encode()
    )


def pessimistic(error: Exception, pool: aiohttp.TCPConnector) -> SendFailed:
    """Say of every failure to connect that something may have been sent."""
    return SendFailed("no connection", sent=True)


def without_limits(self: ResponseHandler, *, read=ResponseHandler.set_response_params, **asked: object) -> None:
    """Take in heads of any size."""
    read(self, **asked, max_line_size=2**30, max_field_size=2**30, max_headers=2**30)


class Resending(AiohttpTransport):
    """Sends again what a kept connection has lost."""

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except SendFailed:
            return await super().send(request)


class Chaining(AiohttpTransport):
    """Raises failures the usual way, with their cause."""

    async def send(self, request: Request) -> Response:
        try:
            return await unguarded(self, request)
        except aiohttp.ClientError as error:
            raise SendFailed(str(error)) from error


class Telling(AiohttpTransport):
    """Puts what it knows into the reason."""

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except SendFailed as error:
            failure = SendFailed(f"{error}: {dict(request.headers)}", error.sent)
        raise failure


class Answering(AiohttpTransport):
    """Believes aiohttp that somebody said 400."""

    async def send(self, request: Request) -> Response:
        try:
            return await unguarded(self, request)
        except (aiohttp.ClientResponseError, HttpProcessingError) as error:
            return Response(getattr(error, "status", 400))
        except aiohttp.ClientError:
            raise SendFailed("failed") from None


class Hurrying(AiohttpTransport):
    """Takes the bound on the wait for a connection for one on the answer."""

    async def send(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(request.connect_timeout):
                return await super().send(request)
        except TimeoutError:
            raise SendFailed("no connection in time", sent=False) from None


class Hoarding(AiohttpTransport):
    """Gives the place of a request back when all is well."""

    def __init__(self, *, limit: int, **options: object) -> None:
        super().__init__(limit=limit, **options)
        self._places = asyncio.Semaphore(limit)

    async def send(self, request: Request) -> Response:
        await self._places.acquire()
        response = await super().send(request)
        self._places.release()
        return response


class Logging(AiohttpTransport):
    """Says what it does."""

    async def send(self, request: Request) -> Response:
        logging.getLogger("transport").debug("%s", dict(request.headers))
        return await super().send(request)


class Substituting(AiohttpTransport):
    """Knows better who is calling."""

    async def send(self, request: Request) -> Response:
        found = netrc.netrc(os.environ["NETRC"]).authenticators("127.0.0.1")
        fields = {**request.headers, "Authorization": f"Basic {found[0]}"}
        return await super().send(structs.replace(request, headers=fields))


class Swallowing(AiohttpTransport):
    """Takes a cancellation for a failure."""

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except asyncio.CancelledError:
            raise SendFailed("cancelled") from None


class Shielding(AiohttpTransport):
    """Goes on in the background when it is cancelled."""

    sending = None

    async def send(self, request: Request) -> Response:
        sending = self.sending = asyncio.ensure_future(super().send(request))
        return await asyncio.shield(sending)

    async def aclose(self) -> None:
        await super().aclose()
        self.sending.cancel()
        await asyncio.wait([self.sending])


class Reconnecting(AiohttpTransport):
    """Opens a connection per request."""

    async def send(self, request: Request) -> Response:
        return await super().send(structs.replace(request, fresh=True))


class Reopening(AiohttpTransport):
    """Does not mind that it was closed."""

    async def aclose(self) -> None:
        await super().aclose()
        self._closed, self._session, self._pool, self._last_server = False, None, None, None


class Lingering(AiohttpTransport):
    """Closes nothing until it is asked twice."""

    asked = False

    async def aclose(self) -> None:
        if self.asked:
            await super().aclose()
        self.asked = True


class ClosingOnce(AiohttpTransport):
    """Can be closed once."""

    async def aclose(self) -> None:
        assert not self._closed
        await super().aclose()


class Believing(AiohttpTransport):
    """Believes every certificate."""

    def __init__(self, **options: Unpack[ConnectorOptions]) -> None:
        super().__init__(**{**options, "ssl": False})


#: Which rule finds out about what. Either way can have these flaws.
CONTROLS: list[tuple[str, type[AiohttpTransport] | Spoil]] = [
    ("closed_before_the_answer", meaning(sent=False)),
    ("reset_before_the_answer", meaning(sent=False)),
    ("reset_within_the_request", meaning(sent=False)),
    ("cut_off_within_the_head", meaning(sent=False)),
    ("cut_off_within_the_body", has(read_body=read_what_comes)),
    ("broken_off_without_a_length", has(_broken=lambda content: False)),
    ("cut_off_within_the_chunks", has(read_body=read_what_comes)),
    ("chunks_that_break_on_the_way", has(_ending_with_its_connection=contextlib.nullcontext)),
    ("another_protocol_is_no_answer", has(read_body=read_all)),
    ("an_answer_may_be_as_large_as_allowed", has(read_body=read_too_little)),
    ("a_length_above_the_limit_is_refused_at_once", has(read_body=read_all)),
    ("a_body_without_end_is_not_taken_in", has(read_body=read_much)),
    ("nothing_is_unpacked", has(read_body=read_unpacked)),
    ("packed_and_cut_off_is_no_answer", has(read_body=read_unpacked)),
    ("connections_are_kept", Reconnecting),
    ("connecting_takes_too_long", has(connecting_within=lambda seconds: aiohttp.ClientTimeout())),
    ("waiting_for_a_place_takes_too_long", has(connecting_within=lambda seconds: aiohttp.ClientTimeout())),
    ("an_answer_may_take_longer_than_a_connection", Hurrying),
    ("a_failure_gives_its_place_back", Hoarding),
    ("who_no_longer_waits_is_not_sent", Shielding),
    ("no_answer_at_all", Shielding),
    ("an_answer_that_stops", Shielding),
    ("an_answer_that_drips", Shielding),
    ("cancellation_passes_through", Swallowing),
    ("cancellation_takes_the_connection_along", Shielding),
    ("closing_twice_is_allowed", ClosingOnce),
    ("a_closed_transport_says_so", Reopening),
    ("closing_cancels_nobody", Chaining),
    ("closing_takes_the_connections_along", Lingering),
    ("failures_hold_no_credentials", Chaining),
    ("failures_hold_no_credentials", Telling),
    ("logs_hold_no_credentials", Logging),
    ("the_token_is_the_one_that_was_given", Substituting),
    ("an_unknown_authority_is_refused", meaning(permanent=False)),
    ("another_host_is_refused", has(_MEANINGS=_failures._MEANINGS[1:])),
    ("an_expired_certificate_is_refused", Believing),
    ("a_handshake_that_hangs", has(connecting_within=lambda seconds: aiohttp.ClientTimeout())),
]
#: Flaws that only a session can have: over the pool nothing is done that was not asked for.
OF_A_SESSION: list[tuple[str, type[AiohttpTransport] | Spoil]] = [
    ("a_request_arrives_as_it_is", has(URL=lambda url, encoded: yarl.URL(url))),
    ("nothing_is_added_that_says_who_calls", asks(cookies={"who": "me"})),
    ("cookies_are_not_kept", has(aiohttp, DummyCookieJar=aiohttp.CookieJar)),
    ("a_header_with_a_line_break_is_not_sent", has(flaw_of=lambda request: None)),
    ("every_status_is_an_answer", asks(raise_for_status=True)),
    ("html_is_an_answer", asks(raise_for_status=True)),
    ("redirects_are_not_followed", asks(allow_redirects=True)),
    ("a_head_without_end_is_not_taken_in", asks(max_line_size=2**30, max_field_size=2**30, max_headers=2**30)),
    ("a_fresh_connection_is_new", has(Unlisted=str, _drop_spoiled=lambda session: None)),
    ("nothing_is_sent_again", has(_ONCE={}, _Once=str)),
    ("a_stray_answer_does_no_lasting_harm", has(_drop_spoiled=lambda session: None)),
    ("refused", meaning(sent=True)),
    ("no_such_host", meaning(sent=True)),
    ("connecting_takes_too_long", meaning(sent=True)),
    ("a_handshake_that_fails", meaning(sent=True)),
    ("cancellation_holds_no_credentials", Chaining),
    ("garbage_is_no_answer", Answering),
    ("broken_chunks_are_no_answer", Answering),
    ("two_lengths_are_no_answer", Answering),
]
#: The same, made by hand.
OF_THE_POOL: list[tuple[str, type[AiohttpTransport] | Spoil]] = [
    ("a_request_arrives_as_it_is", writes(lambda message: message.replace(b"%2F", b"/").replace(b"%20", b"+"))),
    (
        "nothing_is_added_that_says_who_calls",
        writes(lambda message: message.replace(b"\r\n", b"\r\nCookie: a=b\r\n", 1)),
    ),
    ("a_header_with_a_line_break_is_not_sent", has(message_of=unchecked)),
    ("a_head_without_end_is_not_taken_in", has(ResponseHandler, set_response_params=without_limits)),
    ("nothing_is_sent_again", Resending),
    ("a_stray_answer_does_no_lasting_harm", has(_pool.Pool, idle=aiohttp.TCPConnector._get)),
    ("refused", has(unsent=pessimistic)),
    ("no_such_host", has(unsent=pessimistic)),
    ("connecting_takes_too_long", has(unsent=pessimistic)),
    ("a_handshake_that_fails", has(unsent=pessimistic)),
    ("garbage_is_no_answer", Answering),
    ("broken_chunks_are_no_answer", Answering),
    ("two_lengths_are_no_answer", Answering),
]

#: Rules that a transport breaks by not working at all.
OBVIOUS = {
    "every_method_goes_out",
    "a_large_body_arrives",
    "an_empty_answer_is_an_answer",
    "the_body_may_come_in_any_form",
    "interim_answers_are_passed_over",
    "connections_are_given_up_when_asked_to",
    "many_at_once_get_their_own_answers",
    "tls_works",
}


FLAWS = [
    *(pytest.param("session", *control, id=f"session-{control[0]}") for control in CONTROLS + OF_A_SESSION),
    *(pytest.param("pool", *control, id=f"pool-{control[0]}") for control in CONTROLS + OF_THE_POOL),
]


@pytest.mark.parametrize(("way", "name", "flaw"), FLAWS)
async def test_a_flaw_is_found(
    way: str, name: str, flaw: type[AiohttpTransport] | Spoil, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a defence taken away, the rule that asks for it is broken."""
    kind = AiohttpTransport
    if isinstance(flaw, type):
        kind = flaw
    else:
        flaw(monkeypatch)
    if way == "session":
        monkeypatch.setattr(_transport, "_KNOWN", ("0.",))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # A flawed transport may well leave something open.
        found = False
        try:
            await RULES[name].run(made(kind))
        except AssertionError:
            found = True
        gc.collect()

    assert found


def test_every_rule_has_a_control() -> None:
    """No rule is in the suite that has never been seen to fail."""
    controlled = {name for name, _ in CONTROLS + OF_A_SESSION + OF_THE_POOL}
    assert OBVIOUS.isdisjoint(controlled)
    assert set(RULES) == OBVIOUS | controlled
