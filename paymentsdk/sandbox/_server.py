"""The sandbox as a server, in the running event loop or in its own thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from ipaddress import ip_address
from typing import Literal, Self

from aiohttp import web
from aiohttp.http import HttpProcessingError
from yarl import URL

from paymentsdk._validate import check_within, is_http, is_loopback
from paymentsdk.sandbox._app import Authenticate, make_app
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._control import STOPPING
from paymentsdk.sandbox._handlers.beyond import READS
from paymentsdk.sandbox._platform import NOT_STARTED, Job, OwnHandlers, Platform
from paymentsdk.sandbox._records import TENANTS, Tenant
from paymentsdk.sandbox._seed import SeedFile

#: Seconds that requests have to end when the server stops. Hanging and dripping responses are ended first.
_GRACE = 0.5
#: Seconds that a connection stays open without a complete request: before the first, between two, or in the headers.
#: Clients close idle connections earlier, so that they do not send on a connection that is being closed.
_IDLE = 60.0
_LARGEST_PORT = 65_535
#: Broken HTTP from clients. It is for programs that read this log, not for the terminal.
_log = logging.getLogger("paymentsdk.sandbox.http")
_log.addHandler(logging.NullHandler())


def _without_content(record: logging.LogRecord) -> bool:
    """Log that a request was not HTTP, without its content: any of its lines may be a token."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = None
    return True


_log.addFilter(_without_content)


class Sandbox(Platform):
    """The platform on localhost, with one seller at the start.

    ::

        async with Sandbox() as sandbox:
            async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
                order = await client.orders.create(...)
                sandbox.buyer.pay(order)

    The sandbox is a `Platform`, which has the methods for more sellers, plans, the ledger, policies and snapshots. You
    can use everything except ``start`` and ``stop`` from any thread. A stopped sandbox cannot be started again. Its
    data is closed then: using it raises ``RuntimeError``.

    Args:
        host: The address to listen on. An address that other machines can reach also needs ``public``.
        port: The port; 0 for any free port.
        db: The file that keeps everything across restarts and kills, except faults, snapshots and the list of requests.
            By default, everything is in memory.
        seed: Makes identifiers, credentials and random choices repeatable. An access token also contains the time of
            its creation.
        policies: Values of policies, by name, for as long as the sandbox runs; see `Policies`. They win over policies
            in ``db``, which were changed while an earlier sandbox ran, and do not replace them there.
        frozen_at: Freeze the clock at this moment. It has a time zone, is not before 1970, and is at most ten years
            ahead.
        frozen: Freeze the clock at the current moment.
        public: Allow a host that other machines can reach. They can do everything: the sandbox has no access control.
        public_url: The address of the sandbox for buyers, behind a tunnel or, with a ``host`` such as 0.0.0.0, on
            other machines. Links and QR codes lead there, and pages opened there count as the sandbox's own. By
            default, links and codes lead to ``host``, or to this machine.
        handlers: Your own functions, by operation. A function takes a `SellerContext` and a `ParsedRequest`, and
            returns the body of the response or raises `Rejected`. The sandbox adds idempotency, faults, the checks of
            the request and the OpenAPI document. A function for an operation of the platform replaces the platform's.
        jobs: Your own functions for things that become due, by the name that `SellerContext.schedule` uses. A function
            takes a `SellerContext` of that moment and the id of the thing. It returns the kind of the `ClockEvent`, or
            ``None`` if nothing happened. If it raises, or always schedules itself for the same moment, every request
            fails until that ends. Due jobs in ``db`` whose names are not given are skipped. A function with the name of
            a job of the platform replaces it.
        authenticate: Your own function for clients that sign their requests. It takes each request as it arrived and
            returns the access token that the signature stands for, or ``None`` if there is no signature. It raises
            `Rejected` if the signature is wrong.
        allow_hosts: Hosts that notifications may be delivered to besides this machine, by name or address.
        tenant: The options of ``create_tenant`` for the first seller, such as ``{"access_token": "TEST-ci"}``. With an
            ``access_token``, the seller who has it in ``db`` is the first seller.
        seed_file: A TOML file with sellers, their plans and webhooks, policies, faults and the clock. Arguments win
            over it. Its ``tenants`` are not created again in a ``db`` that has sellers.
        stubs: A TOML file with endpoints beyond the contract: ``[[stubs]]`` with ``path``, ``method``, ``status``,
            ``headers`` and ``body``.
        beyond: ``"reads"`` serves the reads of `paymentsdk.beyond`, which are not in the contract. ``/openapi.json``
            marks them as ``x-beyond-contract``. By default, they are not served.

    Raises:
        ValueError: ``seed_file`` or ``stubs`` has an unknown key or an invalid value; the host is empty, or other
            machines can reach it and ``public`` is not set; the port is not 0 to 65,535; ``public_url`` is not an http
            or https address; the clock cannot stand at ``frozen_at``; a policy or an option of ``tenant`` is unknown or
            has an invalid value; ``beyond`` is another word; two operations have the same method and path; a handler, a
            job or ``authenticate`` is not a function, or is a coroutine function.
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
        public_url: str | None = None,
        handlers: OwnHandlers | None = None,
        jobs: Mapping[str, Job] | None = None,
        authenticate: Authenticate | None = None,
        allow_hosts: Collection[str] = (),
        tenant: Mapping[str, object] | None = None,
        seed_file: str | None = None,
        stubs: str | None = None,
        beyond: Literal["reads"] | None = None,
    ) -> None:
        if beyond not in (None, "reads"):
            raise ValueError(f"beyond is 'reads' or None, not {beyond!r}")
        if not host:
            raise ValueError("the host is '', which is not an address")
        if not public and not is_loopback(host):
            raise ValueError(f"{host} can be reached by other machines: set `public` to allow that")
        self._host, self._port = host, check_within("port", port, 0, _LARGEST_PORT)
        names = frozenset({host} if public_url is None else {host, _public_host(public_url)})
        self._public_url = public_url and public_url.rstrip("/")
        self._seed_file = SeedFile(seed_file)
        start = self._seed_file.seed
        super().__init__(
            db=db,
            seed=seed,
            policies={**start.policies, **(policies or {})},
            handlers={**(READS if beyond else {}), **(handlers or {})},
            jobs=jobs,
            tenant={**(start.tenants[0].options() if start.tenants else {}), **(tenant or {})},
        )
        frozen_at = frozen_at or start.clock.frozen_at
        if frozen or start.clock.frozen or frozen_at is not None:
            with self.store.opening():  # A failure releases the lock on the file.
                self.clock.freeze(frozen_at)
        with self.store.opening():
            self._app = make_app(self, allowed_hosts=names, find_token=authenticate, stubs=stubs)
        self._runner: web.AppRunner | None = None
        self.buyer: Buyer = Buyer(self)
        self.webhooks.hosts = frozenset(allow_hosts)
        self._sender: asyncio.Task[None] | None = None
        self._tenant: Tenant | None = None

    async def start(self) -> Self:
        """Start to listen, and create the first seller. The links of the seller's plan contain the server's address.

        Raises:
            RuntimeError: The sandbox is already started, or has stopped.
            OSError: The port cannot be used, or the file cannot be written.
            ValueError: The options of the first seller in the file differ from ``tenant``.
        """
        if self._runner is not None:
            raise RuntimeError("the sandbox was started already")
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
            self.bind(f"http://{_in_url(self._host)}:{runner.addresses[0][1]}", self._public_url)
            with self.store.opening(), self.store.transaction():
                is_new = not self.store.count(TENANTS, None)
                self._tenant = self._pinned(super().default_tenant())
                self._seed_file.plant(self, self._tenant, is_new=is_new)
        except BaseException:
            await self._close(runner)
            raise
        self._runner = runner
        self._sender = asyncio.create_task(self.webhooks.send(self.catch_up))
        return self

    async def _close(self, runner: web.AppRunner) -> None:
        try:
            await runner.cleanup()
        finally:  # A cancelled caller does not call `stop` again.
            self.close()

    async def stop(self) -> None:
        """Stop listening, end hanging requests, and close the file. Stopping twice does no harm."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self._app[STOPPING].set()
            self.feed.publish(None)
            try:
                if self._sender:
                    self._sender.cancel()
                    await asyncio.wait([self._sender])
            finally:
                await self._close(runner)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run in a thread, for programs without an event loop: ``with Sandbox().in_thread() as sandbox: ...``."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="paymentsdk-sandbox", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result()
            try:
                yield self
            finally:
                # A forked child has no such thread: waiting for its result would never end.
                if thread.is_alive():
                    asyncio.run_coroutine_threadsafe(self.stop(), loop).result()
        finally:
            if thread.is_alive():
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()

    @property
    def tenant(self) -> Tenant:
        """The first seller."""
        if self._tenant is None:
            raise RuntimeError(NOT_STARTED)
        return self._tenant

    @property
    def access_token(self) -> str:
        """An access token of the first seller, made without OAuth. It is replaced once it is revoked or has expired."""
        return self.default_tenant().access_token

    @property
    def client_id(self) -> str:
        """The application id of the first seller."""
        return self.tenant.client_id

    @property
    def client_secret(self) -> str:
        """The secret of the first seller's application."""
        return self.tenant.client_secret

    @property
    def authorization_code(self) -> str:
        """An authorization code of the first seller. It is valid for one token, and for 10 minutes."""
        return self.tenant.authorization_code

    @property
    def refresh_token(self) -> str:
        """A refresh token of the first seller. It is valid once."""
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
    def platform(self) -> Platform:
        """The sandbox without its server."""
        return self

    def default_tenant(self) -> Tenant:
        """Return the first seller, with valid grants. A stopped sandbox returns the seller as of its start."""
        return self.tenant if self._runner is None else super().default_tenant()

    def load(self, content: bytes) -> None:
        """Restore everything from *content*, which `save` returned. The first seller is restored as well.

        Raises:
            ValueError: *content* is not a snapshot, is damaged, or comes from another version of the sandbox.
        """
        super().load(content)
        self._tenant = super().default_tenant()

    def with_valid_grants(self, tenant: Tenant) -> Tenant:
        """Return the current state of *tenant*, with valid grants. A stopped sandbox returns *tenant* unchanged."""
        return tenant if self._runner is None else super().with_valid_grants(tenant)


def _public_host(public_url: str) -> str:
    """Return the host in *public_url*.

    Raises:
        ValueError: *public_url* is not an address.
    """
    url = URL(public_url if is_http(public_url) else "")
    # Links are made by appending a path. With a path in `public_url`, the forms of the pages would lead elsewhere.
    if url.host is None or url != url.origin() or "?" in public_url:
        raise ValueError(f"public_url is an address such as https://sandbox.example.com, not {public_url!r}")
    return url.host


def _in_url(host: str) -> str:
    """Return *host* as it is written in a URL. An address that stands for all addresses becomes a loopback address."""
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host
