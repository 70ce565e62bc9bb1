"""The sandbox as a server: in this event loop, or in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from typing import Self, Unpack

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError
from yarl import URL

from paymentsdk._validate import is_http, is_loopback
from paymentsdk.resources.plans import Plan
from paymentsdk.sandbox._app import Authenticate, make_app
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._clock import Clock
from paymentsdk.sandbox._control import STOPPING
from paymentsdk.sandbox._faults import Faults
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._platform import Job, OwnHandlers, Platform, SandboxInfo
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import Entry, Tenant
from paymentsdk.sandbox._tenants import ProvisionRequest, TenantOptions, TenantRequest

#: Seconds that requests have to end when the server stops; hangs and drips are told to end before.
_GRACE = 0.5
#: Seconds that a connection stays without a whole request: before the first, between two, and in the headers of one.
#: Clients keep idle connections for less: none sends where it is just being closed.
_IDLE = 60.0
#: What clients do wrong below HTTP is heard by whoever listens, and is no news on the terminal.
_log = logging.getLogger("paymentsdk.sandbox.http")
_log.addHandler(logging.NullHandler())


def _without_content(record: logging.LogRecord) -> bool:
    """Say that a request was no HTTP, and not what was in it: any of its lines may be a token."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = None
    return True


_log.addFilter(_without_content)


class Sandbox:
    """The platform on localhost, with a seller to begin with.

    ::

        async with Sandbox() as sandbox:
            async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
                order = await client.orders.create(...)
                sandbox.buyer.pay(order)

    Everything but ``start`` and ``stop`` may be used from any thread. A stopped sandbox cannot be started again, and
    any use that needs its books raises ``RuntimeError``.

    Args:
        host: The address to listen on; an address that other machines can reach also needs ``public``.
        port: The port; 0 for any that is free.
        db: The file that keeps everything across restarts and kills, except faults and the list of requests; snapshots
            are files beside it. Without it, everything is in memory.
        seed: Makes identifiers, credentials and random choices repeatable; an access token also says when it was made.
        policies: By name, for as long as the sandbox runs; see `Policies`. They win over policies in ``db``,
            which were changed while an earlier sandbox ran, and do not replace them there.
        frozen_at: Freeze the clock at this moment: since 1970, ten years ahead at most, and with a time zone.
        frozen: Freeze the clock as it stands.
        public: Allow a host that other machines can reach. Nothing restricts what they can do.
        live_tokens: Take ``APP_USR`` tokens as if they began with ``TEST``.
        public_url: Where buyers reach the sandbox, behind a tunnel or, with a ``host`` such as 0.0.0.0, from other
            machines: links and QR codes lead there, and pages opened there count as its own. Without it, links and
            codes lead to ``host``, or to this machine.
        handlers: By operation, what your own package does with it: a function that takes a `SellerContext` and a
            `Call`, and returns the body of the response, or raises `Rejected`. Idempotency, faults, the checks of the
            request and the OpenAPI document come with it. One with the name of an operation of the platform takes its
            place.
        jobs: By name, what happens to a thing of yours when its moment has come, as `SellerContext.schedule` said: a
            function that takes a `SellerContext` of that moment and the id of the thing, and returns the kind of the
            `ClockEvent`, or ``None`` if nothing happened. What a file has of jobs that are not given does not happen.
            One with the name of a job of the platform takes its place.
        authenticate: For clients that sign their requests: a function that takes each request as it came, and returns
            the access token that its signature stands for, or ``None`` if it has none; it raises `Rejected` if the
            signature is wrong.

    Raises:
        ValueError: The host is empty, or not this machine's own and ``public`` was not set; ``public_url`` is not an
            http or https address; the clock cannot stand at ``frozen_at``; a policy is unknown or has a value that it
            may not have; two operations have one method and path.
        OSError: The file or the port cannot be used.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        db: str | None = None,
        seed: int | None = None,
        policies: Mapping[str, object] | None = None,
        frozen_at: datetime | None = None,
        frozen: bool = False,
        public: bool = False,
        live_tokens: bool = False,
        public_url: str | None = None,
        handlers: OwnHandlers | None = None,
        jobs: Mapping[str, Job] | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        if not host:
            raise ValueError("the host is '', which is not an address")
        if not public and not is_loopback(host):
            raise ValueError(f"{host} can be reached by other machines: set `public` to allow that")
        self._host, self._port = host, port
        names = frozenset({host} if public_url is None else {host, _public_host(public_url)})
        self.platform: Platform = Platform(db=db, seed=seed, policies=policies, handlers=handlers, jobs=jobs)
        self.platform.public_url = public_url and public_url.rstrip("/")
        if frozen or frozen_at is not None:
            with self.platform.store.opening():  # If it fails nobody will have it: its file must not stay locked.
                self.platform.clock.freeze(frozen_at)
        self._app = make_app(self.platform, live_tokens=live_tokens, allowed_hosts=names, authenticate=authenticate)
        self._runner: web.AppRunner | None = None
        self.buyer: Buyer = Buyer(self.platform)
        self._tenant: Tenant | None = None

    async def start(self) -> Self:
        """Listen. The seller is made only now, since the link of their plan contains the address of this server."""
        runner = web.AppRunner(
            self._app,
            access_log=None,
            shutdown_timeout=_GRACE,
            keepalive_timeout=_IDLE,
            auto_decompress=False,
            logger=_log,
        )
        try:
            await runner.setup()
            await web.TCPSite(runner, self._host, self._port).start()
            self.platform.bind(f"http://{_in_url(self._host)}:{runner.addresses[0][1]}")
            with self.platform.store.opening():
                self._tenant = self.platform.default_tenant()
        except BaseException:
            await self._close(runner)
            raise
        self._runner = runner
        return self

    async def _close(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        self.platform.close()

    async def stop(self) -> None:
        """Stop listening, end hanging requests, and close the file. Stopping twice does no harm."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self._app[STOPPING].set()
            self.platform.feed.publish(None)
            await self._close(runner)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def in_thread(self) -> SandboxThread:
        """Return a context manager that runs this sandbox in a thread, for programs without an event loop."""
        return SandboxThread(self)

    @property
    def tenant(self) -> Tenant:
        """The first seller."""
        if self._tenant is None:
            raise RuntimeError("the sandbox has not been started: use `async with Sandbox() as sandbox`")
        return self._tenant

    @property
    def base_url(self) -> str:
        """The address that it listens on."""
        _ = self.tenant  # Before it was started, nobody knows the port.
        return self.platform.base_url

    @property
    def access_token(self) -> str:
        """A token of the first seller, made without OAuth; a new one if the last was revoked or has expired."""
        return self._able().access_token

    @property
    def client_id(self) -> str:
        """The application of the first seller."""
        return self.tenant.client_id

    @property
    def client_secret(self) -> str:
        """The secret of that application."""
        return self.tenant.client_secret

    @property
    def authorization_code(self) -> str:
        """A code of the first seller: good for one token, within 10 minutes."""
        return self.tenant.authorization_code

    @property
    def refresh_token(self) -> str:
        """A refresh token of the first seller: good once."""
        return self.tenant.refresh_token

    @property
    def external_pos_id(self) -> str:
        """A point of sale of the first seller."""
        return self.tenant.external_pos_id

    @property
    def plan_id(self) -> str:
        """A plan of the first seller."""
        return self.tenant.plan_id

    @property
    def clock(self) -> Clock:
        """The clock that every rule goes by."""
        return self.platform.clock

    @property
    def faults(self) -> Faults:
        """The faults in force."""
        return self.platform.faults

    @property
    def policies(self) -> Policies:
        """The policies in force for every seller who has none of their own."""
        return self.platform.policies

    def create_tenant(self, **options: Unpack[TenantOptions]) -> Tenant:
        """Make another seller, with credentials and a context of their own.

        Args:
            **options: The fields of `TenantRequest`: ``country``, ``external_pos_ids``, ``marketplace``,
                ``scope``, ``redirect_uri``, ``compliant``, ``cash_withdrawals``, ``discount_promises``, ``policies``,
                ``client_id``.

        Raises:
            ValueError: An option, a policy or an application is unknown, or has a value that it may not have.
        """
        return self.platform.create_tenant(msgspec.convert(options, TenantRequest))

    def create_plan(self, request: PlanRequest, tenant: Tenant | None = None) -> Plan:
        """Make a plan of *tenant* (the first seller by default): the platform has no operation that does.

        Raises:
            ValueError: A field of *request* has a value that it may not have.
        """
        return self.platform.create_plan(tenant or self.tenant, request)

    def provision(self, *, orders: int, days: int = 30, tenant: Tenant | None = None) -> None:
        """Make many paid orders at once, for searches, walks and reconciliation to find: 100,000 in ten seconds.

        Each is created and paid as by the API, with its merchant order and its lines of the ledger; the first *days*
        ago, the others evenly since, with references from `provisioned-1` on and amounts from 1.00 to 999.99.

        Args:
            orders: How many, up to 1,000,000.
            days: How far back they reach, up to 3650; a search sees 90.
            tenant: Whose they are; the first seller's by default.

        Raises:
            ValueError: A number is out of its bounds.
        """
        seller = tenant or self.tenant
        asked = {"orders": orders, "days": days, "tenant": seller.user_id}
        for _ in self.platform.provision(msgspec.convert(asked, ProvisionRequest)):
            pass

    def authorize(self, tenant: Tenant | None = None) -> str:
        """Have *tenant* (the first seller by default) consent once more: a new authorization code."""
        return self.platform.authorize(tenant or self.tenant)

    def promise_discount(self, code: str, tenant: Tenant | None = None) -> None:
        """Promise a discount: wallet payments of *tenant* (the first seller by default) may use *code* from now on."""
        self.platform.promise_discount(tenant or self.tenant, code)

    def revoke(self, token: str) -> bool:
        """End a token, a refresh token or a code at once; say whether there was one."""
        return self.platform.revoke(token)

    def ledger(self, tenant: int | None = None) -> list[Entry]:
        """Return every effect so far, oldest first: of all sellers, or of the one with the user id *tenant*."""
        return self.platform.ledger(tenant)

    def describe(self, tenant: Tenant | None = None) -> SandboxInfo:
        """Return what a program needs to know to act for *tenant*; for the first seller by default.

        Credentials that are spent, were revoked or have expired are replaced by new ones.
        """
        return self.platform.describe(self._able(tenant))

    def _able(self, tenant: Tenant | None = None) -> Tenant:
        """Return *tenant*, or the first seller, with grants that can be used; once it has stopped, as they were."""
        if self._runner is None:
            return tenant or self.tenant
        return self.platform.default_tenant() if tenant is None else self.platform.with_valid_grants(tenant)


class SandboxThread:
    """A sandbox in a thread of its own: ``with Sandbox().in_thread() as sandbox: ...``.

    Args:
        sandbox: The sandbox, not started.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="paymentsdk-sandbox", daemon=True)

    def __enter__(self) -> Sandbox:
        self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(self.sandbox.start(), self._loop).result()
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_alive():
            return  # In a child that was forked meanwhile: the thread is its parent's, and here nobody would respond.
        try:
            asyncio.run_coroutine_threadsafe(self.sandbox.stop(), self._loop).result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _public_host(public_url: str) -> str:
    """Return the host in *public_url*.

    Raises:
        ValueError: It is no address.
    """
    url = URL(public_url if is_http(public_url) else "")
    # Links are made by adding to it; and with a path of its own no form of a page would find its way back.
    if url.host is None or url != url.origin() or "?" in public_url:
        raise ValueError(f"public_url is an address such as https://sandbox.example.com, not {public_url!r}")
    return url.host


def _in_url(host: str) -> str:
    """Return *host* as a URL has it; for one that means all addresses, this machine's own."""
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host
