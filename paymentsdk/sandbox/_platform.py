"""The platform without a network: sellers, their data, the clock and due jobs."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Never, TypeAlias, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from paymentsdk._contract.operation import Operation
from paymentsdk.resources.plans import Plan
from paymentsdk.sandbox._clock import Clock, ClockEvent, ClockState, Ids, TenantClocks, read_advance
from paymentsdk.sandbox._faults import Faults
from paymentsdk.sandbox._feed import Changed, Event, Feed
from paymentsdk.sandbox._handlers import HANDLERS, JOBS, operations_of, plans
from paymentsdk.sandbox._handlers.plans import PlanRequest
from paymentsdk.sandbox._noun import Handler, ParsedRequest, SellerContext, make_grant
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._records import GRANTS, TABLES, TENANTS, Entry, Tenant
from paymentsdk.sandbox._snapshots import Settings, read_snapshot, write_snapshot
from paymentsdk.sandbox._store import Due, Store
from paymentsdk.sandbox._tenants import (
    FIRST_PLAN,
    ProvisionRequest,
    SandboxInfo,
    TenantOptions,
    TenantRequest,
    first_tenant,
    new_tenant,
    pin,
    provision,
    with_valid_grants,
)
from paymentsdk.sandbox._webhooks import DELIVERIES, WEBHOOKS, Webhooks
from paymentsdk.sandbox._wire import Rejected

#: Handles the thing with the given id once it is due. Returns what happened, or `None` for nothing.
Job: TypeAlias = Callable[[SellerContext, str], str | None]
#: Operations of another program, with their handlers.
OwnHandlers: TypeAlias = Mapping[Operation[Never, object], Callable[[SellerContext, ParsedRequest[Never]], object]]

#: The message for a program that reads something that exists only after the start.
NOT_STARTED = "the sandbox has not been started: use `async with Sandbox() as sandbox`"
#: The tables whose documents a dashboard may show. The other documents are credentials.
_SHOWN = frozenset({
    "orders", "preferences", "plans", "subscriptions", "invoices", "merchant_orders", "customers", "deliveries",
})  # fmt: skip

#: Due jobs per commit. In a file, a commit takes longer than an invoice.
_AT_ONCE = 100
#: Due jobs per commit while the event loop waits, which takes a few milliseconds.
_SLICE = 20
#: How often one job may run at one moment. A job that always schedules itself for its own moment would never end.
_MOST_RUNS = 10_000
_NOTHING = timedelta(0)


class Platform:
    """The sandbox without its server, in one process; usable from any thread.

    Args:
        db: The file that keeps everything. By default, everything is in memory.
        seed: Makes identifiers and credentials repeatable.
        policies: The policies of all sellers without their own.
        handlers: The handlers of another program, by operation.
        jobs: The jobs of another program, by name.
        tenant: The options of `create_tenant` for the first seller.

    Raises:
        OSError: The file cannot be used.
        ValueError: A policy or an option is unknown or has an invalid value; a handler or a job is not a function, or
            is a coroutine function.
    """

    def __init__(
        self,
        *,
        db: str | None = None,
        seed: int | None = None,
        policies: Mapping[str, object] | None = None,
        handlers: OwnHandlers | None = None,
        jobs: Mapping[str, Job] | None = None,
        tenant: Mapping[str, object] | None = None,
    ) -> None:
        self._first = dict(tenant or {})
        self._first_request = msgspec.convert(self._first, TenantRequest)
        own_handlers = {
            operation.name: Handler(operation=operation, handle=handle)
            for operation, handle in (handlers or {}).items()
        }
        self.handlers: Mapping[str, Handler[Any, Any]] = {**HANDLERS, **own_handlers}
        self.operations: Mapping[str, Operation[Any, Any]] = operations_of(self.handlers.values())
        self._base_url = ""
        self.feed: Feed = Feed()
        self.faults: Faults = Faults(self.operations, changed=lambda: self._publish_change("faults"))
        """The faults in force."""
        tables = (*TABLES, WEBHOOKS, DELIVERIES)
        self.store: Store = Store(tables, db)  # type: ignore[arg-type]  # each table is read with its own Struct
        self.webhooks: Webhooks = Webhooks(self.store, self.context)
        """The webhooks that notifications are delivered to, and their deliveries."""
        self.jobs: Mapping[str, Job] = {**JOBS, **self.webhooks.jobs, **(jobs or {})}
        with self.store.opening():
            stored: dict[str, object] = self.store.setting("policies", {})
            # Arguments of the start win over policies that an earlier sandbox changed.
            self.policies: Policies = Policies().merged({**stored, **(policies or {})})
            """The policies in force for all sellers without their own."""
            starts = self.store.setting("starts", 0) + 1
            self.store.keep_setting("starts", starts)
            # Every start has another seed, so that identifiers in a kept file never repeat.
            self.ids: Ids = Ids(f"{os.urandom(16).hex() if seed is None else seed}/{starts}")
            self.clock: Clock = Clock(self.store.setting("clock", ClockState()), self._move_clock)
            """The clock of the sandbox. It applies to every seller whose own clock was not moved."""
            self._ahead = self.store.setting("tenant_clocks", TenantClocks()).ahead
            self.webhooks.load()
        self._catching_up = asyncio.Lock()
        self._snapshots: dict[str, bytes] = {}

    def close(self) -> None:
        """Close the file, and discard all snapshots."""
        self.store.close()
        self._snapshots.clear()

    def bind(self, base_url: str, public_url: str | None = None) -> None:
        """Set the address of the server. Links, also stored ones, lead to *public_url* or else to *base_url*."""
        self._base_url = base_url
        self.store.links = public_url or base_url

    @property
    def base_url(self) -> str:
        """The address that the server listens on."""
        if not self._base_url:
            raise RuntimeError(NOT_STARTED)
        return self._base_url

    def set_clock(self, to: Callable[[], ClockState]) -> None:
        """Set the clock to the result of *to*. The next request runs the due jobs before its own work."""
        with self.store.locked():
            self.clock.state = state = to()
            self.store.keep_setting("clock", state)
            self.feed.publish(Event(kind="clock", tenant=None, document=state))

    def _move_clock(self, to: Callable[[], ClockState]) -> tuple[ClockEvent, ...]:
        with self.store.locked():
            self.set_clock(to)
            return tuple(self.run_due())

    def now(self, tenant: Tenant | None = None) -> datetime:
        """Return the current moment in UTC, by the clock of *tenant*; by default, by the clock of the sandbox."""
        return self.clock.now() + self.ahead(tenant)

    def ahead(self, tenant: Tenant | None) -> timedelta:
        """Return how far the clock of *tenant* is ahead of the clock of the sandbox."""
        return self._ahead.get(tenant.user_id, _NOTHING) if tenant else _NOTHING

    def advance(self, tenant: Tenant, duration: timedelta | str) -> tuple[ClockEvent, ...]:
        """Move the clock of *tenant* alone forward by *duration*: a ``timedelta``, or text such as ``PT15M``.

        This seller's due jobs run at their own moments, in time order. Other sellers are not affected.

        Returns:
            The events of this seller.

        Raises:
            ValueError: *duration* is negative, longer than ten years, leads beyond the year 3000, or is not an ISO 8601
                duration.
            TypeError: *duration* is neither a string nor a ``timedelta``.
        """
        with self.store.locked():
            self.set_ahead(tenant, duration)
            return tuple(event for event in self.run_due() if event.tenant == tenant.user_id)

    def set_ahead(self, tenant: Tenant, duration: timedelta | str) -> None:
        """Move the clock of *tenant* forward. The next request runs the due jobs before its own work."""
        with self.store.locked():
            length = read_advance(duration, self.now(tenant))
            ahead = {**self._ahead, tenant.user_id: self.ahead(tenant) + length}
            with self.store.transaction():
                self.store.keep_setting("tenant_clocks", TenantClocks(ahead))
                self.store.bring_forward(tenant.user_id, length)
            self._ahead = ahead
            self.feed.publish(Event(kind="clock", tenant=tenant.user_id, document=self.clock.state))

    def _publish_change(self, subject: Literal["policies", "faults", "everything"]) -> None:
        self.feed.publish(Event(kind="changed", tenant=None, document=Changed(subject)))

    def context(
        self, tenant: Tenant | None = None, *, now: datetime | None = None, key: str | None = None
    ) -> SellerContext:
        """Return the context of *tenant* (by default, of the first seller) at *now*, by the clock of the sandbox.

        By default, it is the context at the current moment.
        """
        tenant = tenant or self.default_tenant()
        ahead = self.ahead(tenant)
        return SellerContext(
            tenant=tenant,
            now=(now or self.clock.now()) + ahead,
            ahead=ahead,
            policies=self.policies_of(tenant),
            ids=self.ids,
            base_url=self.store.links,
            store=self.store,
            faults=self.faults,
            publish=self._publish,
            jobs=self.jobs.keys(),
            key=key,
        )

    def policies_of(self, tenant: Tenant) -> Policies:
        """Return the policies that apply to *tenant*."""
        return self.policies.merged(tenant.policies) if tenant.policies else self.policies

    def _publish(self, table: str, tenant: int, document: Struct) -> None:
        if table in {WEBHOOKS.name, DELIVERIES.name}:
            self.webhooks.wake()
        if table in _SHOWN:
            self.feed.publish(Event(kind=table, tenant=tenant, document=document))

    def run_due(self, until: datetime | None = None) -> Sequence[ClockEvent]:
        """Run all jobs due up to *until* (by default, now), each at its own moment, in time order."""
        # The lock is held to the end: a restore by another thread changes which jobs are due.
        with self.store.locked():
            until = until or self.clock.now()
            if not self.store.is_due(until):
                return ()
            happened: list[ClockEvent] = []
            runs: Counter[Due] = Counter()
            while self._run_some(until, _AT_ONCE, happened, runs):
                pass
            return happened

    async def catch_up(self) -> Sequence[ClockEvent]:
        """Run all jobs that are due now, in time order, with breaks for the event loop.

        A request that arrives during a break waits until all jobs are done. It never sees a part of them.
        """
        if not (self._catching_up.locked() or self.store.is_due(self.clock.now())):
            return ()
        happened: list[ClockEvent] = []
        runs: Counter[Due] = Counter()
        async with self._catching_up:
            # Each round reads the clock again: a restore during a break changes which jobs are due.
            while True:
                if not self._run_some(self.clock.now(), _SLICE, happened, runs):
                    return happened
                await asyncio.sleep(0)

    def _run_some(self, until: datetime, most: int, happened: list[ClockEvent], runs: Counter[Due]) -> bool:
        """Run the next due jobs, count their *runs*, add to *happened*, and return whether more may be due.

        Raises:
            RuntimeError: A job failed, or always schedules itself for its own moment.
        """
        with self.store.transaction():
            for _ in range(most):
                due = self.store.take_due(until)
                if due is None:
                    return False
                runs[due] += 1
                if runs[due] > _MOST_RUNS:
                    raise RuntimeError(f"the job {due.kind} of {due.id} never ends: it is due again at the same moment")
                if event := self._run(due):
                    happened.append(event)
        return True

    def _run(self, due: Due) -> ClockEvent | None:
        tenant, job = self.store.get(TENANTS, str(due.tenant)), self.jobs.get(due.kind)
        if tenant is None or job is None:  # A file can have jobs of another program.
            return None
        context = self.context(tenant, now=due.at)
        try:
            kind = job(context, due.id)
            return ClockEvent(at=context.now, kind=kind, tenant=due.tenant, id=due.id) if kind else None
        except (ValueError, Rejected) as error:  # The current request did not cause it.
            raise RuntimeError(f"the job {due.kind} failed: {error!r}") from error

    def create_tenant(self, **options: Unpack[TenantOptions]) -> Tenant:
        """Create another seller, with an application, tokens, points of sale and a plan.

        Args:
            **options: The fields of `TenantRequest`: ``country``, ``external_pos_ids``, ``marketplace``,
                ``scope``, ``redirect_uri``, ``compliant``, ``cash_withdrawals``, ``discount_promises``, ``policies``,
                ``client_id``, ``client_secret``, ``access_token``.

        Raises:
            ValueError: An option, a policy or an application is unknown or has an invalid value.
        """
        return self._create_tenant(msgspec.convert(options, TenantRequest))

    def _create_tenant(self, request: TenantRequest) -> Tenant:
        with self.store.transaction():
            context = self.context(new_tenant(self.store, self.ids, request))
            plans.make(context, FIRST_PLAN, context.tenant.plan_id)
            if request.access_token is not None:
                pin(context, request.access_token)
            return with_valid_grants(context)

    def create_plan(self, request: PlanRequest, tenant: Tenant | None = None) -> Plan:
        """Create a plan of *tenant* (by default, of the first seller). The platform has no operation for this.

        Raises:
            ValueError: A field of *request* has an invalid value.
        """
        # Struct constructors check nothing, and a plan with billing day 99 could have no subscription.
        msgspec.convert(msgspec.to_builtins(request, builtin_types=(Decimal,)), type(request))
        with self.store.transaction():
            return plans.make(self.context(tenant or self.default_tenant()), request)

    def provision(self, *, orders: int, days: int = 30, tenant: Tenant | None = None) -> None:
        """Create many paid orders in one step, for searches, walks and reconciliation: 100,000 take ten seconds.

        Each order is created and paid as by the API, with its merchant order and its ledger lines. The first one is
        *days* old, and the others follow evenly. References count from `provisioned-1`; amounts are 1.00 to 999.99.

        Args:
            orders: The number of orders, up to 1,000,000.
            days: The age of the oldest order in days, up to 3650. A search returns the last 90 days.
            tenant: The seller of the orders; by default, the first seller.

        Raises:
            ValueError: A number is out of its bounds.
        """
        request = msgspec.convert({"orders": orders, "days": days}, ProvisionRequest)
        for _ in provision(self.context(tenant or self.default_tenant()), request):
            pass

    def default_tenant(self) -> Tenant:
        """Return the first seller, or the seller with the pinned token, with valid grants. Create one if necessary."""
        with self.store.transaction():
            first = first_tenant(self.store, self._first_request)
            return with_valid_grants(self.context(first)) if first else self._create_tenant(self._first_request)

    def _pinned(self, tenant: Tenant) -> Tenant:
        """Return the first seller *tenant* with this start's token, which an earlier sandbox may have revoked.

        Raises:
            ValueError: The seller in the file has other options than this start.
        """
        for name in self._first.keys() - {"access_token"}:
            if getattr(tenant, name) != getattr(self._first_request, name):
                raise ValueError(f"the seller in the file has another {name}; use another file, or the old {name}")
        token = self._first_request.access_token
        return pin(self.context(tenant), token) if token else tenant

    def with_valid_grants(self, tenant: Tenant) -> Tenant:
        """Return the current state of *tenant*, with valid grants."""
        with self.store.transaction():
            return with_valid_grants(self.context(self.find_tenant(tenant.user_id) or tenant))

    def find_tenant(self, user_id: int | str | None) -> Tenant | None:
        """Return the seller with *user_id*; by default, the first seller."""
        return self.default_tenant() if user_id is None else self.store.get(TENANTS, str(user_id))

    def describe(self, tenant: Tenant | None = None) -> SandboxInfo:
        """Return what a program needs to act for *tenant* (by default, for the first seller).

        Credentials that are spent, revoked or expired are replaced with new ones.
        """
        able = self.with_valid_grants(tenant) if tenant else self.default_tenant()
        return msgspec.convert({**asdict(able), "base_url": self.base_url}, SandboxInfo)

    def authorize(self, tenant: Tenant | None = None) -> str:
        """Return a new authorization code of *tenant* (by default, of the first seller), valid for 10 minutes."""
        with self.store.transaction():
            seller = tenant or self.default_tenant()
            return make_grant(self.context(seller), "code", seller.scope).secret

    def promise_discount(self, code: str, tenant: Tenant | None = None) -> Tenant:
        """Allow *code* as a discount for wallet payments of *tenant* (by default, of the first seller) from now on."""
        with self.store.transaction():
            seller = tenant or self.default_tenant()
            seller = self.find_tenant(seller.user_id) or seller
            promises = tuple(dict.fromkeys((*seller.discount_promises, code)))
            return self.context(seller).put(TENANTS, replace(seller, discount_promises=promises))

    def revoke(self, token: str) -> bool:
        """End a token, a refresh token or a code immediately, and return whether it existed."""
        with self.store.transaction():
            grant = self.store.get(GRANTS, token)
            if grant is not None:
                self.store.put(GRANTS, grant.user_id, replace(grant, revoked=True))
        return grant is not None

    def change_policies(self, changes: Mapping[str, object]) -> Policies:
        """Set policies for all sellers without their own. With a file, the change is permanent.

        Raises:
            ValueError: A name is unknown, or a value is not allowed.
        """
        with self.store.locked():
            self.policies = self.policies.merged(changes)
            stored: dict[str, object] = self.store.setting("policies", {})
            self.store.keep_setting("policies", {**stored, **changes})
            self._publish_change("policies")
            return self.policies

    def ledger(self, tenant: int | None = None) -> list[Entry]:
        """Return all ledger entries so far, oldest first: of all sellers, or of the seller with user id *tenant*."""
        self.run_due()
        return [msgspec.json.decode(line, type=Entry) for line in self.store.ledger(tenant)]

    def snapshot(self, name: str = "snapshot") -> None:
        """Save the current state under *name*, with clock, policies and faults.

        Snapshots are in memory and end with the sandbox. An earlier snapshot with this name is replaced. Requests wait
        while everything is copied.
        """
        self._snapshots[name] = self.save()

    def restore(self, name: str = "snapshot") -> None:
        """Restore the state of the snapshot *name*. Faults that were cleared since are in force again.

        Raises:
            KeyError: No snapshot has this name.
        """
        self.load(self._snapshots[name])

    def save(self) -> bytes:
        """Return a snapshot as bytes for a file. `load` restores it, also in another sandbox.

        The bytes contain the credentials of all sellers, and the bodies of requests with an idempotency key. Requests
        wait while everything is copied.
        """
        with self.store.locked():
            documents, settings = self.store.copy(), Settings(self.policies, self.faults.standing())
        with closing(documents):
            return write_snapshot(documents, settings)

    def load(self, content: bytes) -> None:
        """Restore everything from *content*, which `save` returned. After an error, nothing has changed.

        Raises:
            ValueError: *content* is not a snapshot, is damaged, or comes from another version of the sandbox.
        """
        documents, settings = read_snapshot(content)
        with closing(documents), self.store.locked():
            self.store.restore(documents)
            self.clock.state = self.store.setting("clock", ClockState())
            self._ahead = self.store.setting("tenant_clocks", TenantClocks()).ahead
            self.policies = settings.policies
            self.faults.restore(settings.faults)
            self.webhooks.load()
            self._publish_change("everything")
