"""pytest fixtures: the platform on localhost, with a new seller for every test.

========================  =====================================================================================
``paymentsdk_tenant``     a new seller for this test: address, token, buyer, faults, ledger
``paymentsdk_client``     a client that acts for this seller, for asynchronous tests
``paymentsdk_webhooks``   a receiver that collects the notifications about this seller
``paymentsdk_clock``      a clock that stands still until the test moves it, with its own server
``paymentsdk_sandbox``    the server that all tests of the session share
========================  =====================================================================================

They work in synchronous tests, with pytest-asyncio, with anyio on asyncio, and with pytest-xdist, where each worker
has its own server. The plugin imports and starts nothing before a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datetime import timedelta

    from paymentsdk import PaymentsClient, Request, Response
    from paymentsdk.resources.plans import Plan
    from paymentsdk.sandbox import Buyer, Clock, ClockEvent, Entry, FaultRule, PlanRequest, Sandbox, Tenant
    from paymentsdk.sandbox._faults import AddedFault
    from paymentsdk.webhooks import InvalidSignature, Notification

__all__ = [
    "SandboxTenant",
    "SandboxWebhooks",
    "paymentsdk_client",
    "paymentsdk_clock",
    "paymentsdk_sandbox",
    "paymentsdk_tenant",
    "paymentsdk_webhooks",
]


class SandboxTenant:
    """The seller of one test. No other test uses it.

    All methods are synchronous. Asynchronous tests may use them as well.
    """

    def __init__(self, sandbox: Sandbox, account: Tenant) -> None:
        from paymentsdk.sandbox import Buyer

        self.sandbox = sandbox
        self.account = account
        """The seller with all identifiers and credentials: ``user_id``, ``client_id``, ``external_pos_id``,
        ``plan_id``, ..."""
        self.base_url: str = sandbox.base_url
        """The address of the server."""
        self.buyer: Buyer = Buyer(sandbox, tenant=account.user_id)
        """Scans and pays at this seller's points of sale, and subscribes to their plan unless another is named."""

    @property
    def access_token(self) -> str:
        """The seller's token. It is replaced once it is revoked or has expired; ``paymentsdk_client`` keeps its own.

        A test that moves the clock by more than 180 days continues with
        ``paymentsdk_client.with_options(access_token=paymentsdk_tenant.access_token)``.
        """
        return self.sandbox.describe(self.account).access_token

    def __repr__(self) -> str:
        return f"SandboxTenant({self.account.user_id} at {self.base_url})"

    def add_fault(self, rule: FaultRule) -> AddedFault:
        """Add *rule* for this seller alone, until ``remove()``, the end of a ``with`` block or the end of the test.

        Raises:
            ValueError: A detail is of the wrong type or out of bounds.
        """
        from msgspec.structs import replace

        return self.sandbox.faults.add(replace(rule, tenant=self.account.user_id))

    def create_plan(self, request: PlanRequest) -> Plan:
        """Create another plan of this seller. ``buyer.subscribe(plan.id)`` subscribes to it.

        Raises:
            ValueError: A member of *request* has an invalid value.
        """
        return self.sandbox.create_plan(request, self.account)

    def advance(self, duration: timedelta | str) -> tuple[ClockEvent, ...]:
        """Move the clock of this seller alone by *duration*, such as ``PT15M``, and return what became due meanwhile.

        Other tests are not affected. The clock runs on from there; ``paymentsdk_clock`` stops it.

        Raises:
            ValueError: *duration* is negative, longer than ten years, or is not an ISO 8601 duration.
            TypeError: *duration* is neither a string nor a ``timedelta``.
        """
        return self.sandbox.advance(self.account, duration)

    def ledger(self) -> list[Entry]:
        """Return every effect on this seller so far, oldest first."""
        return self.sandbox.ledger(self.account.user_id)


class SandboxWebhooks:
    """The verified notifications about the seller of one test."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        """The verified notifications, in the order in which they arrived."""
        self.rejected: list[InvalidSignature] = []
        """The reasons of requests that were answered with 401."""

    def wait(self, number: int = 1, within: float = 10.0) -> list[Notification]:
        """Return all notifications once there are *number* of them. A repeated notification counts each time.

        Raises:
            TimeoutError: Fewer have arrived after *within* seconds.
        """
        from time import monotonic, sleep

        end = monotonic() + within
        while len(self.notifications) < number:
            if monotonic() > end:
                raise TimeoutError(f"{len(self.notifications)} of {number} notifications came within {within:g} s")
            sleep(0.005)
        return [*self.notifications]


@pytest.fixture(scope="session")
def paymentsdk_sandbox() -> Iterator[Sandbox]:
    """The sandbox that all tests of this session share, in its own thread, on a free port of 127.0.0.1.

    With pytest-xdist, each worker has its own. All tests share its running clock. A test that moves time uses
    ``paymentsdk_clock``, or moves only the time of its seller with ``paymentsdk_tenant.advance``. A test that must not
    see the data of others uses ``paymentsdk_tenant``.
    """
    from paymentsdk.sandbox import Sandbox

    with Sandbox().in_thread() as sandbox:
        yield sandbox


@pytest.fixture
def _paymentsdk_server(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The session's server. A test with ``paymentsdk_clock`` gets its own server, with a frozen clock."""
    if "paymentsdk_clock" not in request.fixturenames:
        yield request.getfixturevalue("paymentsdk_sandbox")
        return
    from paymentsdk.sandbox import Sandbox

    with Sandbox(frozen=True).in_thread() as sandbox:
        yield sandbox


@pytest.fixture
def paymentsdk_tenant(_paymentsdk_server: Sandbox) -> Iterator[SandboxTenant]:
    """A new seller for this test, with its own token, point of sale, plan and ledger.

    ``paymentsdk_tenant.base_url`` and ``.access_token`` are for a client; ``.account`` has the other credentials and
    identifiers. ``.buyer`` scans and pays. ``.add_fault(FaultRule(...))`` makes requests of this seller fail.
    ``.create_plan(PlanRequest(...))`` creates a plan, ``.ledger()`` returns what really happened, and ``.sandbox`` is
    the server. Everything is synchronous.
    """
    tenant = SandboxTenant(_paymentsdk_server, _paymentsdk_server.create_tenant())
    yield tenant
    _paymentsdk_server.faults.clear(tenant.account.user_id)


@pytest.fixture
def paymentsdk_webhooks(paymentsdk_tenant: SandboxTenant) -> Iterator[SandboxWebhooks]:
    """A receiver of the notifications about the seller of ``paymentsdk_tenant``, on a free port of 127.0.0.1.

    ``paymentsdk_webhooks.wait(2)`` waits for two notifications; ``.notifications`` has those that arrived so far. A
    rule such as ``FaultRule(effect="lost", operation="notifications.*")`` loses them.
    """
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    from paymentsdk.sandbox import WebhookRequest
    from paymentsdk.webhooks import InvalidSignature, Webhook

    received, webhooks = SandboxWebhooks(), paymentsdk_tenant.sandbox.webhooks

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = 204
            try:
                received.notifications.append(Webhook.standard(registered.secret).verify(dict(self.headers), body))
            except InvalidSignature as error:
                received.rejected.append(error)
                status = 401
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        request = WebhookRequest(url=url, topics=("orders", "payments", "merchant_orders"))
        registered = webhooks.add(request, paymentsdk_tenant.account)
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield received
        finally:
            webhooks.remove(registered)
            server.shutdown()


@pytest.fixture
def paymentsdk_client(paymentsdk_tenant: SandboxTenant) -> PaymentsClient:
    """A ``PaymentsClient`` that acts for the seller of ``paymentsdk_tenant``, for an asynchronous test.

    The client belongs to the event loop of its first call. You need not close it: each request has its own connection,
    which is closed after the response.
    """
    from paymentsdk import PaymentsClient

    transport = _OneConnectionEach()
    return PaymentsClient(paymentsdk_tenant.access_token, base_url=paymentsdk_tenant.base_url, transport=transport)


class _OneConnectionEach:
    """A transport that closes its connection after each request, so that nobody has to close the transport."""

    async def send(self, request: Request) -> Response:
        from paymentsdk import AiohttpTransport

        transport = AiohttpTransport()
        try:
            return await transport.send(request)
        finally:
            await transport.aclose()

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


@pytest.fixture
def paymentsdk_clock(request: pytest.FixtureRequest, _paymentsdk_server: Sandbox) -> Clock:
    """The clock of this test. It stands still until ``paymentsdk_clock.advance("PT15M")`` moves it.

    All sellers of a server share its time. A test with this fixture therefore has its own server, which its
    ``paymentsdk_tenant`` and ``paymentsdk_client`` use, too. Other tests are not affected.
    """
    # `fixturenames` contains the test's fixtures, theirs, and those that were requested by name so far.
    if "paymentsdk_sandbox" in request.fixturenames:
        pytest.fail(
            "a test with `paymentsdk_clock` has a server of its own, and cannot use the session's as well: "
            "name `paymentsdk_clock` among its arguments, and in the test and its fixtures "
            "use `paymentsdk_tenant.sandbox` instead of `paymentsdk_sandbox`",
            pytrace=False,
        )
    return _paymentsdk_server.clock
