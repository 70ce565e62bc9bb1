"""A rule that every transport keeps, with the code that checks it."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Protocol, TypeAlias, TypedDict, Unpack

from msgspec import Struct

from paymentsdk.testing._expectation import NamedRule, check_rule, expect, named
from paymentsdk.testing._fault_server import FaultServer, Script, turns
from paymentsdk.transports.base import Request, Response, SendFailed, Transport


class MakeTransport(Protocol):
    """Makes the transport under test; called on the running event loop.

    If closing the transport waits for requests in flight, it should wait for only a fraction of a second here.
    """

    def __call__(self, *, ca: bytes | None = None, limit: int = 100) -> Transport:
        """Return a new transport.

        Args:
            ca: A certificate authority to trust, as PEM.
            limit: The most connections at the same time.
        """
        ...


Rule: TypeAlias = Callable[[MakeTransport], Awaitable[None]]


class Case(NamedRule, frozen=True):
    """One rule of a transport."""

    async def run(self, make: MakeTransport, deviations: Mapping[str, str] = {}) -> None:
        """Check the rule on transports that *make* makes.

        Args:
            make: Makes a transport.
            deviations: The names of the rules that these transports do not keep, each with its reason. These rules are
                checked, too: a deviation whose rule is kept is out of date.

        Raises:
            AssertionError: The transports break the rule, as the text says, or a deviation is out of date.
            ValueError: A deviation is not the name of a rule.
        """
        if unknown := deviations.keys() - {case.name for case in CASES}:
            raise ValueError(f"a deviation names no rule of the suite: {', '.join(unknown)}")
        reason = deviations.get(self.name)
        before = asyncio.all_tasks()
        try:
            await check_rule(self.rule, self.check(make))
            await turns()
            leftover = asyncio.all_tasks() - before
            expect(not leftover, f"tasks were left behind: {leftover}")
        except AssertionError:
            if reason is None:
                raise
        else:
            expect(reason is None, f"the rule is kept: the deviation is out of date ({reason})")


#: All rules, in the order of their definition.
CASES: list[Case] = []


def case(rule: Rule) -> Rule:
    """Add *rule* to the suite."""
    CASES.append(Case(*named(rule), rule))
    return rule


class Options(TypedDict, total=False):
    """The optional parts of a request."""

    headers: Mapping[str, str]
    body: bytes
    timeout: float
    connect_timeout: float
    fresh: bool
    max_response: int


class Link(Struct, frozen=True):
    """The transport under test, and the server that it sends to."""

    server: FaultServer
    transport: Transport

    def request(self, target: str = "/", method: str = "GET", **options: Unpack[Options]) -> Request:
        """Return a request for *target* of the server."""
        return Request(method, self.server.url(target), **options)

    async def send(self, target: str = "/", method: str = "GET", **options: Unpack[Options]) -> Response:
        """Send a request for *target* of the server; see `exchange`."""
        return await self.exchange(self.request(target, method, **options))

    async def exchange(self, request: Request) -> Response:
        """Send *request* as the engine does: the caller enforces the timeout.

        Raises:
            TimeoutError: The response took longer than ``request.timeout``.
        """
        async with asyncio.timeout(request.timeout):
            return await self.transport.send(request)

    async def receive(
        self, target: str, expected: bytes, method: str = "GET", *, status: int = 200, **options: Unpack[Options]
    ) -> None:
        """Send a request for *target*, and check that its response has *status* and the body *expected*."""
        response = await self.send(target, method, **options)
        text = f"{response.status} and {len(response.body)} bytes came back to {target}: {response.body[:80]!r}"
        expect((response.status, response.body) == (status, expected), text)

    async def fail(self, request: Request, *, sent: bool) -> SendFailed:
        """Send *request*, which has to fail by itself, and return its error.

        Raises:
            AssertionError: There was a response, no failure in time, or a false ``sent``.
        """
        try:
            response = await self.exchange(request)
        except SendFailed as error:
            expect(error.sent is sent, f"sent is {error.sent}, not {sent} ({error.reason})")
            return error
        except TimeoutError:
            raise AssertionError(f"no failure within {request.timeout:g} s") from None
        raise AssertionError(f"SendFailed was expected, not a response: {response!r} {response.body[:80]!r}")

    async def may_fail(self, request: Request, *bodies: bytes) -> None:
        """Send *request*, and check that it fails as sent, or that its response has one of *bodies*."""
        try:
            response = await self.exchange(request)
        except SendFailed as error:
            expect(error.sent, "the request was sent, but the error says that it was not")
        else:
            expect(response.body in bodies, f"{len(response.body)} bytes came back: {response.body[:80]!r}")


@contextlib.asynccontextmanager
async def linked(
    make: MakeTransport, script: Script, *, tls: SSLContext | None = None, ca: bytes | None = None, limit: int = 100
) -> AsyncIterator[Link]:
    """Run a server that plays *script*, and make a transport; close both at the end."""
    async with FaultServer(script, tls=tls) as server:
        transport = make(ca=ca, limit=limit)
        try:
            yield Link(server, transport)
        finally:
            await transport.aclose()


def served(*scripts: Script, limit: int = 100) -> Callable[[Callable[[Link], Awaitable[None]]], Rule]:
    """Add a rule to the suite that has to hold for a server with each of *scripts*."""

    def add(check: Callable[[Link], Awaitable[None]]) -> Rule:
        @functools.wraps(check)
        async def rule(make: MakeTransport) -> None:
            for script in scripts:
                async with linked(make, script, limit=limit) as link:
                    await check(link)

        return case(rule)

    return add
