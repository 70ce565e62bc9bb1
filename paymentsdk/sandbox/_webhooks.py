"""Webhooks and their deliveries.

`notify` applies the faults, and stores a delivery for each webhook with the topic in the transaction of the change.
When it is due, the job `_deliver` hands it to the task `Webhooks.send`, which makes the attempt. `_settle` stores the
result and the time of the next attempt. Attempts that a killed process has not settled are repeated.

The task makes several attempts at a time for each webhook. It connects only to this machine and to named hosts, follows
no redirects, and reads no bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Literal

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from paymentsdk._contract.error_response import retry_after
from paymentsdk._headers import Headers
from paymentsdk.resources.common import Moment
from paymentsdk.sandbox import _signers
from paymentsdk.sandbox._faults import NOTIFICATIONS
from paymentsdk.sandbox._noun import SellerContext
from paymentsdk.sandbox._policies import durations
from paymentsdk.sandbox._records import TENANTS, Table, Tenant
from paymentsdk.sandbox._signers import Topic, Webhook, WebhookRequest
from paymentsdk.sandbox._store import Store
from paymentsdk.sandbox._wire import Rejected, wire_form

#: The job that sends a delivery.
DELIVER = "notification.deliver"
#: The actions of notifications, by the kind of ledger entry. Other entries, such as failed refunds, notify nobody. A
#: rejected payment has no entry.
ACTIONS: Mapping[str, str] = {
    "order_created": "created", "payment": "paid", "refund": "refunded", "order_canceled": "canceled",
    "order_expired": "expired",
}  # fmt: skip
#: A receiver cannot request a longer pause.
_LONGEST_PAUSE = timedelta(days=1)
#: Seconds between two checks for due deliveries, once there has been a webhook.
_TICK = 0.25
#: Most attempts in flight for each webhook, and for the addresses in the preferences of each seller.
_MOST_AT_ONCE = 16
#: Most characters of an error that are stored. The receiver may have written them.
_LONGEST_ERROR = 300
#: Seconds that an idle connection stays open: less than at receivers, so that none closes it during a request.
_KEPT_SECONDS = 2.0
_log = logging.getLogger("paymentsdk.sandbox")


class Delivery(Struct, frozen=True, kw_only=True):
    """The attempts to deliver one notification to one webhook."""

    id: str
    """The id."""
    event: str
    """The id of the notification, the same for all webhooks and all attempts."""
    tenant: int
    """The seller."""
    webhook: str
    """The id of the webhook; empty for the `notification_url` of a preference."""
    url: str
    """The address that it is sent to."""
    topic: Topic
    """`orders`, `payments` or `merchant_orders`."""
    action: str
    """`created`, `paid`, `refunded`, `canceled` or `expired`."""
    resource: str
    """The id of the order, payment or merchant order."""
    at: Moment
    """When the change happened, by the clock of the sandbox."""
    due: Moment | None
    """When the next attempt is due, by the clock of the sandbox; `None` for never."""
    status: Literal["waiting", "held", "delivered", "failed", "lost"]
    """`waiting` for an attempt or its response; `held` by the policy `delivery=manual`; `delivered`; `failed` after the
    last attempt; `lost` by a fault."""
    attempts: int = 0
    """How many attempts have ended."""
    response_status: int | None = None
    """The status of the last response; `None` without one."""
    error: str | None = None
    """Why the last attempt got no response."""
    faults: tuple[str, ...] = ()
    """The effects of faults. A wrong signature, a stale timestamp or a truncated body hits only the first attempt."""

    @property
    def line(self) -> str | None:
        """The line of deliveries about the same thing that it waits in; `None` if it does not wait."""
        name = self.id if "reordered" in self.faults else f"{self.webhook or self.url} {self.topic} {self.resource}"
        return name if self.status == "waiting" else None


WEBHOOKS = Table("webhooks", Webhook, key=lambda webhook: webhook.id)
DELIVERIES = Table("deliveries", Delivery, key=lambda delivery: delivery.id, columns={"line": lambda d: d.line})


def notify(context: SellerContext, topic: Topic, action: str, resource: str, url: str | None = None) -> None:
    """Store a delivery about *resource* for each of the seller's webhooks with this topic, and for *url* if given.

    A context without the job, as for orders of the past, notifies nobody.
    """
    hooks = context.store.every(WEBHOOKS, context.tenant.user_id) if DELIVER in context.jobs else []
    targets = [(hook.id, hook.url) for hook in hooks if topic in hook.topics and not hook.disabled]
    targets += [("", url)] if url else []
    if not targets:
        return
    event = context.ids.sortable("EVT", context.now)
    for webhook, address in targets:
        hit = context.faults.match(f"{NOTIFICATIONS}{topic}", context.tenant.user_id)
        effects, pause = hit.effects, sum(rule.seconds for rule in hit.rules if rule.effect in {"delayed", "reordered"})
        is_sent = "lost" not in effects and context.policies.delivery == "auto"
        for _ in range(2 if "duplicated" in effects else 1):
            delivery = Delivery(
                id=context.ids.sortable("DLV", context.now),
                event=event,
                tenant=context.tenant.user_id,
                webhook=webhook,
                url=address,
                topic=topic,
                action=action,
                resource=resource,
                at=context.now,
                due=context.now + timedelta(seconds=pause) if is_sent else None,
                status="lost" if "lost" in effects else "waiting" if is_sent else "held",
                faults=effects,
            )
            _wait(context, delivery)


def _wait(context: SellerContext, delivery: Delivery) -> Delivery:
    """Store a delivery, and schedule it if it is due at a moment."""
    if delivery.due:
        context.schedule(delivery.due, DELIVER, delivery.id)
    return context.put(DELIVERIES, delivery)


class Webhooks:
    """The webhooks of the sellers and their deliveries. At first there are no webhooks.

    Args:
        store: The store of webhooks and deliveries.
        context_of: Returns the context of a seller; by default, of the first seller.
    """

    def __init__(self, store: Store, context_of: Callable[[Tenant | None], SellerContext]) -> None:
        self._store = store
        self._context_of = context_of
        self.jobs: Mapping[str, Callable[[SellerContext, str], None]] = {DELIVER: self._deliver}
        self.hosts: frozenset[str] = frozenset()
        """Hosts besides this machine that notifications may be sent to."""
        self.wake: Callable[[], object] = lambda: None
        """Makes `send` look for due deliveries, from any thread."""
        self._ready: deque[tuple[SellerContext, Delivery]] = deque()
        self._in_flight: set[str] = set()
        self._slots: dict[tuple[int, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MOST_AT_ONCE))

    def load(self) -> None:
        """Schedule the waiting deliveries again: a killed process may have taken their jobs."""
        for delivery in self._store.find(DELIVERIES, None, [("line", "<>", "")]):
            context = self._context_of(self._store.get(TENANTS, str(delivery.tenant)))
            context.schedule(delivery.due or context.now, DELIVER, delivery.id)
        self.wake()

    # --- for a test ----------------------------------------------------------------------------------------------

    def add(self, request: WebhookRequest, tenant: Tenant | None = None) -> Webhook:
        """Register a webhook of *tenant* (by default, of the first seller) for everything that happens from now on.

        Raises:
            RequestInvalid: A field is invalid. The error names it.
            ValueError: A field has an invalid value.
        """
        with self._store.transaction():
            context = self._context_of(tenant)
            secret = request.secret or _signers.new_secret(request.signer, context.ids.token())
            names = {"id": context.ids.sortable("WHK", context.now), "tenant": context.tenant.user_id}
            webhook = msgspec.convert({**msgspec.to_builtins(request), **names, "secret": secret}, Webhook)
            _signers.make_message(webhook, dict.fromkeys(_signers.PLACEHOLDERS, ""), self.hosts)
            return context.put(WEBHOOKS, webhook)

    def list(self, tenant: Tenant | None = None) -> tuple[Webhook, ...]:
        """Return the webhooks of *tenant* (by default, of all sellers), oldest first."""
        return tuple(self._store.find(WEBHOOKS, tenant.user_id if tenant else None))

    def remove(self, webhook: Webhook) -> None:
        """Remove a webhook. Nothing more is sent to it. A second removal has no effect."""
        with self._store.transaction():
            self._store.remove(WEBHOOKS, webhook.id, webhook.tenant)

    def deliveries(self, tenant: Tenant | None = None, *, limit: int = 100) -> tuple[Delivery, ...]:
        """Return the deliveries of *tenant* (by default, of all sellers), newest first."""
        seller = tenant.user_id if tenant else None
        return tuple(self._store.find(DELIVERIES, seller, descending=True, limit=limit))

    def redeliver(self, delivery: str) -> Delivery:
        """Send the delivery with this id again, now. A disabled webhook is enabled again.

        Raises:
            Rejected: The delivery does not exist.
        """
        with self._store.transaction():
            stored = self._store.get(DELIVERIES, delivery)
            if stored is None:
                raise Rejected(404, "not_found", f"there is no delivery {delivery!r}")
            context = self._context_of(self._store.get(TENANTS, str(stored.tenant)))
            if (webhook := context.get(WEBHOOKS, stored.webhook)) and webhook.disabled:
                context.put(WEBHOOKS, replace(webhook, disabled=False))
            return _wait(context, replace(stored, status="waiting", due=context.now))

    # --- for the server ------------------------------------------------------------------------------------------

    async def send(self, catch_up: Callable[[], Awaitable[object]]) -> None:
        """Send due deliveries until it is cancelled, even without requests, once there is a webhook or a delivery.

        Args:
            catch_up: Runs the due jobs.
        """
        woken = asyncio.Event()
        self.wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        if not (self.list() or self.deliveries(limit=1)):
            await woken.wait()
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
        session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
        async with session, asyncio.TaskGroup() as attempts:
            while True:
                woken.clear()
                try:
                    await catch_up()
                except Exception:  # noqa: BLE001 - a failed job or a full disk: requests report it, too
                    _log.exception("no notification was sent")
                while self._ready:
                    context, delivery = self._ready.popleft()
                    if delivery.id not in self._in_flight:
                        self._in_flight.add(delivery.id)
                        attempts.create_task(self._attempt(session, context, delivery))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):  # Not `wait_for`, which may lose a cancellation.
                        await woken.wait()

    def _deliver(self, context: SellerContext, delivery_id: str) -> None:
        """Hand a delivery to `send` if it is due and first in its line. The job may run twice, or too late."""
        delivery = context.get(DELIVERIES, delivery_id)
        if delivery is None or delivery.due is None or delivery.due > context.now:
            return
        if context.policies.notification_order == "any" or self._first(context, delivery.line) == delivery:
            self._store.after_commit(lambda: self._ready.append((context, delivery)))
            self._store.after_commit(self.wake)

    async def _attempt(self, session: aiohttp.ClientSession, context: SellerContext, delivery: Delivery) -> None:
        status, error, pause, limit = None, None, timedelta(), context.policies.notification_timeout
        async with self._slots[delivery.tenant, delivery.webhook]:
            try:
                url, headers, body = self._message(context, delivery)
                timeout = aiohttp.ClientTimeout(durations(limit)[0].total_seconds() or 0.001)  # 0 would be no limit.
                response = await session.post(url, data=body, headers=headers, allow_redirects=False, timeout=timeout)
                response.release()  # Closes the connection, unless the whole response has arrived.
                status, pause = response.status, timedelta(seconds=retry_after(Headers(response.headers)) or 0)
            except Exception as failure:  # noqa: BLE001 - no receiver may end the other attempts
                error = str(failure)[:_LONGEST_ERROR] or f"no response within {limit}"  # A timeout has no text.
        self._in_flight.discard(delivery.id)
        outcome = replace(delivery, attempts=delivery.attempts + 1, response_status=status, error=error)
        while True:
            try:
                with self._store.transaction():
                    return self._settle(self._context_of(context.tenant), outcome, pause)
            except Exception:  # noqa: BLE001 - a full disk: requests report it, too
                _log.exception("the result of a delivery was not stored")
            await asyncio.sleep(_TICK)

    def _message(self, context: SellerContext, delivery: Delivery) -> tuple[URL, Mapping[str, str], bytes]:
        """Return the URL, the headers and the body of an attempt.

        Raises:
            ValueError: The webhook is gone, or its address is not allowed.
        """
        webhook, key = context.get(WEBHOOKS, delivery.webhook), context.tenant.client_secret
        if not delivery.webhook:
            signer, template = context.policies.notification_signer, context.policies.notification_template
            url, secret = delivery.url, _signers.new_secret(signer, key)
            webhook = Webhook(id="", tenant=delivery.tenant, url=url, secret=secret, signer=signer, template=template)
        if webhook is None or webhook.disabled:
            raise ValueError("the webhook was removed or is disabled")
        values = {
            "id": delivery.resource, "topic": delivery.topic, "action": delivery.action, "event": delivery.event,
            "user_id": str(delivery.tenant), "application_id": context.tenant.client_id,
            "at": str(wire_form(delivery.at)), "request_id": f"{delivery.id}-{delivery.attempts + 1}",
        }  # fmt: skip
        return _signers.make_message(webhook, values, self.hosts, () if delivery.attempts else delivery.faults)

    def _first(self, context: SellerContext, line: str | None) -> Delivery | None:
        return next(iter(context.find(DELIVERIES, [("line", "=", line)], limit=1)), None)

    def _settle(self, context: SellerContext, delivery: Delivery, pause: timedelta) -> None:
        """Store the result of an attempt and the time of the next. A webhook that responds with 410 is disabled."""
        if context.get(DELIVERIES, delivery.id) is None:  # A snapshot was restored meanwhile.
            return
        waits, attempts = durations(context.policies.notification_retries), delivery.attempts
        status, due = "failed", None
        if HTTPStatus.OK <= (delivery.response_status or 0) < HTTPStatus.MULTIPLE_CHOICES:
            status = "delivered"
        elif delivery.response_status == HTTPStatus.GONE:
            if webhook := context.get(WEBHOOKS, delivery.webhook):
                context.put(WEBHOOKS, replace(webhook, disabled=True))
        elif attempts <= len(waits):
            status, due = "waiting", context.now + max(waits[attempts - 1], min(pause, _LONGEST_PAUSE))
        _wait(context, replace(delivery, status=status, due=due))
        if due is None and (first := self._first(context, delivery.line)) and first.due:
            context.schedule(max(context.now, first.due), DELIVER, first.id)
