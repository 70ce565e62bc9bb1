"""The sandbox as a server: in this event loop, or in a thread of its own."""

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
from paymentsdk.sandbox._deliveries import Sender
from paymentsdk.sandbox._handlers.beyond import READS
from paymentsdk.sandbox._platform import NOT_STARTED, Job, OwnHandlers, Platform
from paymentsdk.sandbox._records import TENANTS, Tenant
from paymentsdk.sandbox._seed import SeedFile

#: Seconds that requests have to end when the server stops; hangs and drips are ended before.
_GRACE = 0.5
#: Seconds that a connection stays without a whole request: before the first, between two, and in the headers of one.
#: Clients keep idle connections for less: none sends where it is just being closed.
_IDLE = 60.0
_LARGEST_PORT = 65_535
#: What clients do wrong below HTTP: for programs that read this log, and not for the terminal.
_log = logging.getLogger("paymentsdk.sandbox.http")
_log.addHandler(logging.NullHandler())


def _without_content(record: logging.LogRecord) -> bool:
    """Say that a request was no HTTP, and not what was in it: any of its lines may be a token."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = None
    return True


_log.addFilter(_without_content)


class Sandbox(Platform):
    """The platform on localhost, with a seller to begin with.

    ::

        async with Sandbox() as sandbox:
            async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
                order = await client.orders.create(...)
                sandbox.buyer.pay(order)

    It is a `Platform`: more sellers, plans, the ledger, policies and snapshots are there. Everything but ``start`` and
    ``stop`` may be used from any thread. A stopped sandbox cannot be started again, and
    any use that needs its books raises ``RuntimeError``.

    Args:
        host: The address to listen on; an address that other machines can reach also needs ``public``.
        port: The port; 0 for any that is free.
        db: The file that keeps everything across restarts and kills, except faults, snapshots and the list of requests.
            Without it, everything is in memory.
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
            `ParsedRequest`, and returns the body of the response, or raises `Rejected`. Idempotency, faults, the checks
            of the request and the OpenAPI document come with it. One with the name of an operation of the platform
            takes its place.
        jobs: By name, what happens to a thing of yours when its moment has come, as `SellerContext.schedule` said: a
            function that takes a `SellerContext` of that moment and the id of the thing, and returns the kind of the
            `ClockEvent`, or ``None`` if nothing happened. If it raises, or schedules itself at its own moment for ever,
            every request fails until it does not. What a file has of jobs that are not given does not happen. One with
            the name of a job of the platform takes its place.
        authenticate: For clients that sign their requests: a function that takes each request as it came, and returns
            the access token that its signature stands for, or ``None`` if it has none; it raises `Rejected` if the
            signature is wrong.
        allow_hosts: The hosts besides this machine that notifications may be delivered to, by name or address.
        tenant: What ``create_tenant`` makes the first seller with, such as ``{"access_token": "TEST-ci"}``. With an
            ``access_token``, the seller who has it in ``db`` is the first one.
        seed_file: A file in TOML with sellers, their plans and webhooks, policies, faults and the clock. Arguments win
            over it. In a ``db`` that has sellers, its ``tenants`` are not made again.
        stubs: A file in TOML with endpoints beyond the contract: ``[[stubs]]`` with ``path``, ``method``, ``status``,
            ``headers`` and ``body``.
        beyond: ``"reads"`` serves the reads of `paymentsdk.beyond`, which the contract does not have; ``/openapi.json``
            marks them as ``x-beyond-contract``. By default, none is served.

    Raises:
        ValueError: ``seed_file`` or ``stubs`` has an unknown key or a value that may not be there; the host is empty,
            or not this machine's own and ``public`` was not set; the port is not 0 to 65,535; ``public_url`` is not an
            http or https address; the clock cannot stand at ``frozen_at``; a policy is unknown or has a value that it
            may not have, as may an option of ``tenant``; ``beyond`` is another word; two operations have one method and
            path; a handler, a job or ``authenticate`` is no function, or is a coroutine function.
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
            tenant={**start.first, **(tenant or {})},
        )
        frozen_at = frozen_at or start.clock.frozen_at
        if frozen or start.clock.frozen or frozen_at is not None:
            with self.store.opening():  # If it fails nobody will have it: its file must not stay locked.
                self.clock.freeze(frozen_at)
        with self.store.opening():
            self._app = make_app(
                self, live_tokens=live_tokens, allowed_hosts=names, find_token=authenticate, stubs=stubs
            )
        self._runner: web.AppRunner | None = None
        self.buyer: Buyer = Buyer(self)
        self.webhooks.hosts = frozenset(allow_hosts)
        self._sender: asyncio.Task[None] | None = None
        self._tenant: Tenant | None = None

    async def start(self) -> Self:
        """Listen. The seller is made only now, since the link of their plan contains the address of this server.

        Raises:
            RuntimeError: It was started already, or has stopped.
            OSError: The port cannot be used, or the file cannot be written.
            ValueError: The first seller in the file has other options than ``tenant``.
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
        self._sender = asyncio.create_task(Sender(self).run())
        return self

    async def _close(self, runner: web.AppRunner) -> None:
        try:
            await runner.cleanup()
        finally:  # Whoever was cancelled here does not stop it again.
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
                # In a child that was forked meanwhile the thread is its parent's, and nobody would respond.
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
        """A token of the first seller, made without OAuth; a new one if the last was revoked or has expired."""
        return self.default_tenant().access_token

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
    def platform(self) -> Platform:
        """Itself, as what it is besides a server."""
        return self

    def default_tenant(self) -> Tenant:
        """Return the first seller, with grants that can be used; once it has stopped, as they were at the start."""
        return self.tenant if self._runner is None else super().default_tenant()

    def load(self, content: bytes) -> None:
        """Make everything as it was when `save` returned *content*, the first seller included.

        Raises:
            ValueError: *content* is no snapshot, is damaged, or another version of the sandbox made it.
        """
        super().load(content)
        self._tenant = super().default_tenant()

    def with_valid_grants(self, tenant: Tenant) -> Tenant:
        """Return *tenant* as they are now, with grants that can be used; once it has stopped, as they were."""
        return tenant if self._runner is None else super().with_valid_grants(tenant)


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
