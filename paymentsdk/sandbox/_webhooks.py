"""Webhooks and the deliveries to them, without a network.

`notify` keeps a delivery for each webhook that wants the topic, in the transaction of the change. The job `_deliver`,
which the table of what is due runs, puts it in line, applies the faults, and has the `Sender` in `_deliveries.py` make
the attempt. `settle` keeps how the attempt ended, and when the next one is due. Attempts that a killed process has not
settled are made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from paymentsdk.sandbox._faults import NOTIFICATIONS, Faults
from paymentsdk.sandbox._noun import SellerContext
from paymentsdk.sandbox._policies import durations
from paymentsdk.sandbox._records import TENANTS, Table, Tenant
from paymentsdk.sandbox._signers import Topic, Webhook, WebhookRequest, check_webhook, new_secret
from paymentsdk.sandbox._store import Store
from paymentsdk.sandbox._wire import Rejected

#: The job that has a delivery sent.
DELIVER = "notification.deliver"
#: What a notification says has happened, by the line of the ledger. Of other lines, such as a refund that failed, there
#: is none; a rejected payment has no line.
ACTIONS: Mapping[str, str] = {
    "order_created": "created", "payment": "paid", "refund": "refunded", "order_canceled": "canceled",
    "order_expired": "expired",
}  # fmt: skip
#: A receiver cannot ask for a longer pause.
_LONGEST_PAUSE = timedelta(days=1)


class Delivery(Struct, frozen=True, kw_only=True):
    """The attempts to bring one notification to one webhook."""

    id: str
    """Its id."""
    event: str
    """The id of the notification, the same for all webhooks and all attempts."""
    tenant: int
    """The seller."""
    webhook: str
    """The id of the webhook; empty for the `notification_url` of a preference."""
    url: str
    """Where it is sent."""
    topic: Topic
    """`orders`, `payments` or `merchant_orders`."""
    action: str
    """`created`, `paid`, `refunded`, `canceled` or `expired`."""
    resource: str
    """The id of the order, payment or merchant order."""
    at: datetime
    """When the change happened, by the clock of the sandbox."""
    due: datetime | None
    """When the next attempt is due, by the clock of the sandbox; `None` for never."""
    status: Literal["waiting", "held", "delivered", "failed", "lost"]
    """`waiting` for an attempt or its response; `held` by the policy `delivery=manual`; `delivered`; `failed` in its
    last attempt; `lost` by a fault."""
    attempts: int = 0
    """How many attempts have ended."""
    response_status: int | None = None
    """The status of the last response; `None` without one."""
    error: str | None = None
    """Why the last attempt had no response."""
    faults: tuple[str, ...] = ()
    """The effects that hit the first attempt."""
    out_of_line: bool = False
    """Whether other deliveries about the same thing do not wait for it, nor it for them."""

    @property
    def line(self) -> str | None:
        """The line that it waits in, with all that is about the same thing; `None` if it does not wait."""
        if self.status != "waiting":
            return None
        return self.id if self.out_of_line else f"{self.webhook or self.url} {self.topic} {self.resource}"


class Attempt(NamedTuple):
    """How an attempt ended."""

    status: int | None = None
    """The status of the response; `None` without one."""
    error: str | None = None
    """Why there was none."""
    pause: timedelta = timedelta()
    """The pause that the receiver asks for."""


WEBHOOKS = Table("webhooks", Webhook, key=lambda webhook: webhook.id)
DELIVERIES = Table("deliveries", Delivery, key=lambda delivery: delivery.id, columns={"line": lambda d: d.line})


def notify(context: SellerContext, topic: Topic, action: str, resource: str, url: str | None = None) -> None:
    """Note that something has happened to *resource*, for each webhook of the seller and for *url*, if there is one."""
    if not (context.webhooks or url):
        return
    seller = context.tenant.user_id
    hooks = (hook for hook in context.webhooks if hook.tenant == seller and topic in hook.topics and not hook.disabled)
    targets = [*((hook.id, hook.url) for hook in hooks), *([("", url)] if url else [])]
    event = context.ids.sortable("EVT", context.now) if targets else ""
    due: datetime | None = None if context.policies.delivery == "manual" else context.now
    for webhook, address in targets:
        delivery = Delivery(
            id=context.ids.sortable("DLV", context.now),
            event=event,
            tenant=seller,
            webhook=webhook,
            url=address,
            topic=topic,
            action=action,
            resource=resource,
            at=context.now,
            due=due,
            status="waiting" if due else "held",
        )
        _wait(context, delivery)


def _wait(context: SellerContext, delivery: Delivery) -> Delivery:
    """Keep a delivery, and have it sent when it is due."""
    if delivery.due:
        context.schedule(delivery.due, DELIVER, delivery.id)
    return context.put(DELIVERIES, delivery)


class Webhooks:
    """The webhooks of the sellers, and the deliveries to them: none unless you register some.

    Args:
        store: Where they are kept.
        faults: The faults that hit deliveries.
        context_of: Returns the context of a seller, the first one by default.
    """

    def __init__(self, store: Store, faults: Faults, context_of: Callable[[Tenant | None], SellerContext]) -> None:
        self._store = store
        self._faults = faults
        self._context_of = context_of
        self.jobs: Mapping[str, Callable[[SellerContext, str], None]] = {DELIVER: self._deliver}
        self.hosts: frozenset[str] = frozenset()
        """Where notifications may be sent besides this machine."""
        self.registered: tuple[Webhook, ...] = ()
        """All of them, oldest first."""
        self.ready: deque[tuple[SellerContext, Delivery]] = deque()
        """What the sender is to send now, oldest first."""
        self.wake: Callable[[], object] = lambda: None
        """Tells the sender, from any thread, that there is something to do."""
        self._in_flight: set[str] = set()

    def load(self) -> None:
        """Read the webhooks, and make due what waits: an attempt that a killed process has begun is no longer due."""
        self._load_webhooks()
        for delivery in self._store.find(DELIVERIES, None, [("line", "<>", "")]):
            if delivery.due:
                context = self._context_of(self._store.get(TENANTS, str(delivery.tenant)))
                context.schedule(delivery.due, DELIVER, delivery.id)

    def _load_webhooks(self) -> None:
        self.registered = tuple(self._store.find(WEBHOOKS, None))
        self.wake()

    # --- for a test ----------------------------------------------------------------------------------------------

    def add(self, request: WebhookRequest, tenant: Tenant | None = None) -> Webhook:
        """Register a webhook of *tenant* (the first seller by default), which gets what happens from now on.

        Raises:
            RequestInvalid: A field cannot be used; the error names it.
            ValueError: A field has a value that it may not have.
        """
        request = msgspec.convert(asdict(request), WebhookRequest)
        with self._store.transaction():
            context = self._context_of(tenant)
            secret = request.secret or new_secret(request.signer, context.ids.token())
            names = {"id": context.ids.sortable("WHK", context.now), "tenant": context.tenant.user_id}
            webhook = Webhook(**{**asdict(request), **names, "secret": secret})
            check_webhook(webhook, self.hosts)
            return self._keep(context, webhook)

    def _keep(self, context: SellerContext, webhook: Webhook) -> Webhook:
        self._store.after_commit(self._load_webhooks)
        return context.put(WEBHOOKS, webhook)

    def list(self, tenant: Tenant | None = None) -> tuple[Webhook, ...]:
        """Return the webhooks of *tenant* (of all sellers by default), oldest first."""
        return tuple(webhook for webhook in self.registered if tenant is None or webhook.tenant == tenant.user_id)

    def remove(self, webhook: Webhook) -> None:
        """Remove a webhook: nothing more is sent to it. Removing it twice does no harm."""
        with self._store.transaction():
            self._store.after_commit(self._load_webhooks)
            self._store.remove(WEBHOOKS, webhook.id, webhook.tenant)

    def deliveries(self, tenant: Tenant | None = None, *, limit: int = 100) -> tuple[Delivery, ...]:
        """Return the newest deliveries of *tenant* (of all sellers by default), newest first."""
        seller = tenant.user_id if tenant else None
        return tuple(self._store.find(DELIVERIES, seller, descending=True, limit=limit))

    def redeliver(self, delivery: str) -> Delivery:
        """Send the delivery with this id once more, now, out of line; a webhook that is disabled is enabled by it.

        Raises:
            Rejected: There is no such delivery, or an attempt at it is under way.
        """
        with self._store.transaction():
            stored = self._store.get(DELIVERIES, delivery)
            if stored is None:
                raise Rejected(404, "not_found", f"there is no delivery {delivery!r}")
            if delivery in self._in_flight:
                raise Rejected(409, "in_flight", "an attempt is under way: wait for its end")
            context = self._context_of(self._store.get(TENANTS, str(stored.tenant)))
            for webhook in self.registered:
                if webhook.id == stored.webhook and webhook.disabled:
                    self._keep(context, replace(webhook, disabled=False))
            redelivered = _wait(context, replace(stored, status="waiting", due=context.now, out_of_line=True))
            self._continue(context, stored.line)
            return redelivered

    # --- for the sender ------------------------------------------------------------------------------------------

    def request_of(self, context: SellerContext, delivery: Delivery) -> WebhookRequest | None:
        """Return where a delivery goes, in which form, and how it is signed; `None` if the webhook is gone."""
        if delivery.webhook:
            hooks = (hook for hook in self.registered if hook.id == delivery.webhook and not hook.disabled)
            return next(hooks, None)
        signer, template = context.policies.notification_signer, context.policies.notification_template
        secret = new_secret(signer, context.tenant.client_secret)
        return WebhookRequest(url=delivery.url, secret=secret, signer=signer, template=template)

    def _deliver(self, context: SellerContext, delivery_id: str) -> None:
        """Have a delivery sent that is due and first in its line, or postpone it as a fault says."""
        delivery = context.get(DELIVERIES, delivery_id)
        # The job may come twice, or too late.
        if delivery is None or delivery.due is None or delivery.due > context.now or delivery_id in self._in_flight:
            return
        if context.policies.notification_order == "per_resource" and self._first(context, delivery.line) != delivery:
            return
        if not (delivery.attempts or delivery.faults):
            rules = self._faults.match(f"{NOTIFICATIONS}{delivery.topic}", delivery.tenant).rules
            effects = tuple(rule.effect for rule in rules)
            pause = sum(rule.seconds for rule in rules if rule.effect in {"delayed", "reordered"})
            line, due = delivery.line, context.now + timedelta(seconds=pause)
            out_of_line = delivery.out_of_line or "reordered" in effects
            delivery = replace(delivery, faults=effects, due=due, out_of_line=out_of_line)
            if pause:
                _wait(context, delivery)
                self._continue(context, line)
                return
        self._store.after_commit(lambda: self._begin(context, delivery))

    def _begin(self, context: SellerContext, delivery: Delivery) -> None:
        if delivery.id not in self._in_flight:
            self._in_flight.add(delivery.id)
            self.ready.append((context, delivery))
            self.wake()

    def _first(self, context: SellerContext, line: str | None) -> Delivery | None:
        return next(iter(context.find(DELIVERIES, [("line", "=", line)], limit=1)), None)

    def _continue(self, context: SellerContext, line: str | None) -> None:
        """Have the first delivery in a line sent, if it is due."""
        if (first := self._first(context, line)) and first.due:
            context.schedule(max(context.now, first.due), DELIVER, first.id)

    def settle(self, context: SellerContext, delivery: Delivery, attempt: Attempt) -> None:
        """Keep how an attempt ended, and when the next is due; after a 410 the webhook gets nothing more."""
        self._in_flight.discard(delivery.id)
        if context.get(DELIVERIES, delivery.id) is None:  # A snapshot was restored meanwhile.
            return
        waits, line, attempts = durations(context.policies.notification_retries), delivery.line, delivery.attempts + 1
        outcome = {"attempts": attempts, "response_status": attempt.status, "error": attempt.error}
        delivery = replace(delivery, status="failed", due=None, **outcome)
        if "lost" in delivery.faults and attempts == 1:
            delivery = replace(delivery, status="lost")
        elif HTTPStatus.OK <= (attempt.status or 0) < HTTPStatus.MULTIPLE_CHOICES:
            delivery = replace(delivery, status="delivered")
        elif attempt.status == HTTPStatus.GONE:
            for webhook in self.registered:
                if webhook.id == delivery.webhook:
                    self._keep(context, replace(webhook, disabled=True))
        elif attempts <= len(waits):
            pause = max(waits[attempts - 1], min(attempt.pause, _LONGEST_PAUSE))
            delivery = replace(delivery, status="waiting", due=context.now + pause)
        _wait(context, delivery)
        if delivery.due is None:
            self._continue(context, line)
