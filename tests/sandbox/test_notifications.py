"""Notifications: what is notified of what, to whom, in which form, how signed, how often, and what faults do to it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import Order
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import FaultRule, ManifestSigner, Rejected, Sandbox, Template, Webhook, WebhookRequest
from paymentsdk.webhooks import InvalidSignature
from paymentsdk.webhooks import Webhook as Verifier

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


@dataclass
class Receiver:
    """A web server that keeps what it gets, and responds as it is told: 204 by default."""

    url: str = ""
    requests: list = field(default_factory=list)
    responses: list = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(Received(request.headers, await request.read(), request.query, request.path))
        respond = self.responses.pop(0) if self.responses else web.Response(status=204)
        return await respond(request) if callable(respond) else respond

    async def hang(self, request: web.Request) -> web.Response:
        """Respond when the test is over."""
        await self.over.wait()
        return web.Response()

    async def got(self, count: int) -> None:
        """Wait for so many requests."""
        async with asyncio.timeout(20):
            while len(self.requests) < count:  # noqa: ASYNC110 - nobody sets an event
                await asyncio.sleep(0.001)

    @property
    def types(self) -> list[str]:
        """What the notifications say has happened."""
        return [received.json["type"] for received in self.requests]


@dataclass
class Received:
    """A request that a receiver has got."""

    headers: dict
    body: bytes
    query: dict
    path: str

    @property
    def json(self):
        return json.loads(self.body)


@pytest.fixture
async def receiver():
    """A receiver on this machine."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield receiver
    receiver.over.set()
    await runner.cleanup()


@dataclass
class Shop:
    """A seller, whose orders a receiver is notified of."""

    sandbox: Sandbox
    client: PaymentsClient
    receiver: Receiver
    make: Callable
    until: Callable

    def webhook(self, **members: object) -> Webhook:
        """Register the receiver."""
        return self.sandbox.webhooks.add(WebhookRequest(**{"url": self.receiver.url, **members}))

    async def create(self) -> Order:
        """Create an order, and wait until its notification is sent."""
        order = await self.client.orders.create(self.make())
        await self.settled()
        return order

    async def prefer(self, **members: object) -> str:
        """Create a preference of one lamp, and return its id."""
        item = PreferenceItemRequest(title="Lamp", quantity=1, unit_price=Decimal(10))
        return (await self.client.preferences.create(PreferenceRequest(items=[item], **members))).id

    def statuses(self) -> list[str]:
        """How the deliveries stand, oldest first."""
        return [delivery.status for delivery in reversed(self.sandbox.webhooks.deliveries())]

    async def settled(self) -> None:
        """Wait until no delivery that is due waits any more."""
        deliveries, now = self.sandbox.webhooks.deliveries, self.sandbox.clock.now()
        await self.until(lambda: not any(row.status == "waiting" and row.due <= now for row in deliveries()))


@pytest.fixture
def shop(sandbox, client, receiver, order, until):
    """A seller whose clock stands still."""
    return Shop(sandbox, client, receiver, order, until)


# --- what is notified of -----------------------------------------------------------------------------------------


async def test_each_state_of_an_order_is_notified_of(shop):
    """Created, paid, refunded; canceled; expired: once each, with the id of the order."""
    shop.webhook()
    paid, canceled, expired = [await shop.create() for _ in range(3)]
    shop.sandbox.buyer.pay(paid)
    await shop.client.orders.refund(paid.id)
    await shop.client.orders.cancel(canceled.id)
    shop.sandbox.clock.advance("PT20M")
    await shop.settled()

    notifications = {(received.json["data"]["id"], received.json["type"]) for received in shop.receiver.requests}
    assert {
        *((order.id, "orders.created") for order in (paid, canceled, expired)),
        (paid.id, "orders.paid"),
        (paid.id, "orders.refunded"),
        (canceled.id, "orders.canceled"),
        (expired.id, "orders.expired"),
    } == notifications
    assert 7 == len(shop.receiver.requests)


async def test_an_unchanged_order_sends_no_notification(shop):
    """A rejected payment, a payment in review, a refund that fails; and no invoice has a topic."""
    shop.webhook(topics=("orders", "payments", "merchant_orders"))
    shop.sandbox.change_policies({"refund_outcome": "failed"})
    order = await shop.create()
    shop.sandbox.buyer.reject(order)
    shop.sandbox.buyer.pay(order, outcome="in_review")
    shop.sandbox.buyer.pay(order)
    await shop.client.orders.refund(order.id)
    shop.sandbox.buyer.subscribe()
    shop.sandbox.clock.advance("P40D")
    await shop.settled()

    assert ["orders.created", "orders.paid"] == shop.receiver.types


async def test_a_preference_has_the_older_topics(shop):
    """Its merchant order is created, paid, refunded, its payment paid and refunded; a rejected one is nothing."""
    shop.webhook(topics=("payments", "merchant_orders"))
    preference = await shop.prefer()
    shop.sandbox.buyer.pay_preference(preference, outcome="rejected")
    merchant_order = shop.sandbox.buyer.pay_preference(preference)
    shop.sandbox.buyer.refund_merchant_order(merchant_order.id)
    await shop.settled()

    of_order, payment = [("merchant_orders", str(merchant_order.id))], str(merchant_order.payments[-1].id)
    notifications = [
        (*received.json["type"].split("."), received.json["data"]["id"]) for received in shop.receiver.requests
    ]
    assert {
        *((topic, action, name) for topic, name in of_order for action in ("created", "paid", "refunded")),
        ("payments", "paid", payment),
        ("payments", "refunded", payment),
    } == set(notifications)
    assert 5 == len(notifications)


async def test_a_notification_url_is_ignored_unless_a_policy_says_otherwise(shop):
    """Then it gets a hint about the payment and the merchant order, without a signature."""
    ignored, delivered = [await shop.prefer(notification_url=shop.receiver.url) for _ in range(2)]
    shop.sandbox.buyer.pay_preference(ignored)

    assert [] == shop.statuses()

    shop.sandbox.change_policies({"notification_url": "deliver"})
    merchant_order = shop.sandbox.buyer.pay_preference(delivered)
    await shop.settled()

    hints = [received.json for received in shop.receiver.requests]
    assert 3 == len(hints)
    assert {"topic": "payments", "id": str(merchant_order.payments[0].id)} in hints
    assert not [name for name in shop.receiver.requests[0].headers if "signature" in name.lower()]


async def test_another_seller_and_another_topic_get_nothing(shop):
    """A webhook is one seller's, and gets the topics that it asks for."""
    shop.sandbox.webhooks.add(WebhookRequest(url=shop.receiver.url), shop.sandbox.create_tenant())
    shop.webhook(topics=("payments",))
    shop.sandbox.buyer.pay(await shop.create())

    assert [] == shop.statuses()


# --- the form ----------------------------------------------------------------------------------------------------


def standard_signature(received: Received, key: bytes = KEY) -> str:
    """What Standard Webhooks 1.0 signs a request with."""
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def signatures(receiver: Receiver) -> list[str]:
    """The signatures of the first request."""
    return receiver.requests[0].headers["webhook-signature"].split(" ")


async def test_a_standard_webhook_is_signed(shop):
    """Over id, timestamp and body, with each of the secrets; the timestamp is the machine's, not the sandbox's."""
    shop.sandbox.clock.advance("P30D")
    shop.webhook(secret=f"{SECRET} whsec_{base64.b64encode(KEY * 2).decode()}")
    order = await shop.create()

    [received] = shop.receiver.requests
    assert [standard_signature(received), standard_signature(received, KEY * 2)] == signatures(shop.receiver)
    assert abs(time.time() - int(received.headers["webhook-timestamp"])) < 60
    assert {
        "type": "orders.created",
        "timestamp": order.created_date.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": {"topic": "orders", "id": order.id, "user_id": str(shop.sandbox.tenant.user_id)},
    } == received.json


@pytest.mark.parametrize(("options", "signed"), [
    ({}, "id:{id};request-id:{request_id};ts:{ts};"),
    ({"manifest": "id:{id:lower};ts:{ts}", "unit": "milliseconds"}, "id:{lower};ts:{ts}"),
])  # fmt: skip
async def test_a_manifest_is_signed(shop, options, signed):
    """An HMAC over the text; a part whose value is empty is left out of it."""
    text = "id:{id};request-id:{request_id};ts:{ts};"
    signer = ManifestSigner(**{"header": "x-signature", "manifest": text, **options})
    shop.webhook(secret="s3cret", signer=signer)
    order = await shop.create()

    [received] = shop.receiver.requests
    stamp, signature = (part.partition("=")[2] for part in received.headers["x-signature"].split(","))
    request_id = received.headers.get("x-request-id", "")
    signed = signed.format(id=order.id, lower=order.id.lower(), request_id=request_id, ts=stamp)
    assert hmac.digest(b"s3cret", signed.encode(), hashlib.sha256).hex() == signature
    assert abs(time.time() - int(stamp) / (1000 if "unit" in options else 1)) < 60


async def test_a_template_of_your_own_has_json_and_query(shop):
    """Placeholders stand anywhere in a text, also in the name of a member; numbers stay as they are."""
    body = {"n": 1, "list": [{"{id}": "{topic}/{action}"}], "who": "{user_id} {application_id}", "when": "{at}"}
    shop.webhook(
        signer="none", template=Template(body=body, query={"source": "news"}), url=f"{shop.receiver.url}?shop=7"
    )
    order = await shop.create()

    [received] = shop.receiver.requests
    when = shop.sandbox.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    who = f"{shop.sandbox.tenant.user_id} {shop.sandbox.client_id}"
    assert {"n": 1, "list": [{order.id: "orders/created"}], "who": who, "when": when} == received.json
    assert {"shop": "7", "source": "news"} == dict(received.query)


@pytest.mark.parametrize("template", ["standard", "cloudevents", "hint"])
async def test_a_receiver_verifies_and_reads_it(shop, template):
    """With the secret of the registration, `Webhook.standard` says what must be looked at again."""
    verifier = Verifier.standard(shop.webhook(template=template).secret)
    order = await shop.create()

    [received] = shop.receiver.requests
    notification = verifier.verify(received.headers, received.body)
    assert ("orders", order.id) == (notification.topic, notification.id)


UNUSABLE = [
    ({"url": "http://127.0.0.1/\r\nX-Evil: 1"}, "$.url"),
    ({"url": "ftp://127.0.0.1/"}, "$.url"),
    ({"url": "http://user:pass@127.0.0.1/"}, "$.url"),
    ({"url": "http://10.0.0.1/"}, "$.url"),
    ({"url": "http://[::ffff:10.0.0.1]/"}, "$.url"),
    ({"url": "http://shop.localhost/"}, "$.url"),
    ({"topics": []}, "$.topics"),
    ({"topics": ["invoices"]}, "$.topics"),
    ({"secret": "whsec_short"}, "$.secret"),
    ({"secret": "a\r\nX-Evil: 1", "signer": {"header": "x-signature", "manifest": "{ts}"}}, "$.secret"),
    ({"signer": {"header": "x-a\r\nX-Evil", "manifest": "{ts}"}}, "$.signer.header"),
    ({"signer": {"header": "x-signature", "manifest": "{body}"}}, "$.signer.manifest"),
    ({"template": {"content_type": "text/plain\r\nX-Evil: 1"}}, "$.template.content_type"),
    ({"template": {"body": ["{secret}"]}}, "$.template.body"),
    ({"template": {"query": {"a": "{nothing}"}}}, "$.template.query"),
]


async def test_a_registration_that_cannot_be_used_is_rejected(shop, plain):
    """With a sentence that names the field; nothing is registered."""
    path = f"/_sandbox/tenants/{shop.sandbox.tenant.user_id}/webhooks"
    for members, place in UNUSABLE:
        response = await plain("POST", path, {"url": "http://127.0.0.1:1/", **members})

        assert (400, True) == (response.status, response.json["message"].startswith(place)), members
    assert () == shop.sandbox.webhooks.list()


async def test_a_secret_is_made_and_never_shown_by_accident(shop):
    """Each webhook has its own, and the `repr` of none has it."""
    first, second = shop.webhook(), shop.webhook(signer=ManifestSigner(header="x-signature", manifest="{ts}"))

    assert 32 == len(base64.b64decode(first.secret.removeprefix("whsec_")))
    assert first.secret != second.secret
    assert first.secret not in repr(first)
    assert second.secret not in repr(shop.sandbox.webhooks.list())


# --- attempts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "outcome"), [(299, "delivered"), (300, "failed")])
async def test_any_2xx_is_a_success(shop, status, outcome):
    """By default there is one attempt; a redirect is not followed."""
    shop.webhook()
    shop.receiver.responses = [web.Response(status=status, headers={"Location": "/elsewhere"})]
    await shop.create()

    assert [outcome] == shop.statuses()
    assert ["/hook"] == [received.path for received in shop.receiver.requests]
    assert status == shop.sandbox.webhooks.deliveries()[0].response_status


async def test_retries_wait_as_a_policy_says(shop):
    """By the sandbox's clock: one that stands still delivers when it is advanced. The id stays, the timestamp not."""
    shop.webhook(secret=SECRET)
    shop.sandbox.change_policies({"notification_retries": "PT10S,PT1M"})
    shop.receiver.responses = [web.Response(status=500), web.Response(status=503)]
    await shop.create()
    attempts = [len(shop.receiver.requests)]
    for wait in ("PT9S", "PT1S", "PT59S", "PT1S", "PT10M"):
        shop.sandbox.clock.advance(wait)
        await shop.settled()
        attempts.append(len(shop.receiver.requests))

    assert [1, 1, 2, 2, 3, 3] == attempts
    assert ["delivered"] == shop.statuses()
    assert 1 == len({received.headers["webhook-id"] for received in shop.receiver.requests})
    signed = [received.headers["webhook-signature"] for received in shop.receiver.requests]
    assert signed == [standard_signature(received) for received in shop.receiver.requests]


async def test_what_waits_is_sent_after_a_restart(start, plain_to, data, receiver, tmp_path):
    """By the sandbox that uses the file next."""
    options = {"db": str(tmp_path / "shop.db"), "frozen": True, "policies": {"notification_retries": "PT10S"}}
    receiver.responses = [web.Response(status=500)]
    sandbox = await start(**options)
    sandbox.webhooks.add(WebhookRequest(url=receiver.url))
    await plain_to(sandbox)("POST", "/v1/orders", data(), key="k")
    await receiver.got(1)
    await sandbox.stop()

    (await start(**options)).clock.advance("PT10S")
    await receiver.got(2)

    assert ["orders.created"] * 2 == receiver.types


async def test_a_receiver_can_ask_for_a_longer_pause(shop):
    """Retry-After counts where it is longer than the wait, and a day at most."""
    shop.webhook()
    shop.sandbox.change_policies({"notification_retries": "PT10S,PT10S,PT10S"})
    pauses = ["30", "1", "9999999"]
    shop.receiver.responses = [web.Response(status=429, headers={"Retry-After": pause}) for pause in pauses]
    await shop.create()
    waits = []
    for _ in pauses:
        await shop.settled()
        [delivery] = shop.sandbox.webhooks.deliveries()
        waits.append((delivery.due - shop.sandbox.clock.now()).total_seconds())
        shop.sandbox.clock.freeze(delivery.due)

    assert [30, 10, 86_400] == waits


async def test_a_410_disables_a_webhook(shop):
    """It gets nothing more, until a delivery is sent once more by hand."""
    shop.webhook()
    shop.receiver.responses = [web.Response(status=410)]
    await shop.create()
    await shop.create()

    assert ["failed"] == shop.statuses()
    assert shop.sandbox.webhooks.list()[0].disabled

    shop.sandbox.webhooks.redeliver(shop.sandbox.webhooks.deliveries()[0].id)
    await shop.settled()
    await shop.create()

    assert ["delivered", "delivered"] == shop.statuses()


async def test_a_delivery_is_sent_once_more_by_hand(shop, plain):
    """Over HTTP, with its id; a webhook that was removed gets nothing more."""
    registered = shop.webhook()
    await shop.create()
    [delivery] = (await plain("GET", "/_sandbox/deliveries")).json
    statuses = [
        (await plain("POST", f"/_sandbox/deliveries/{name}/redeliver")).status for name in (delivery["id"], "unknown")
    ]
    await shop.settled()
    listed = (await plain("GET", "/_sandbox/webhooks")).json
    removed = [(await plain("DELETE", f"/_sandbox/webhooks/{registered.id}")).status for _ in range(2)]
    await shop.create()

    assert [200, 404] == statuses
    assert 1 == len({received.headers["webhook-id"] for received in shop.receiver.requests})
    assert [2] == [delivery.attempts for delivery in shop.sandbox.webhooks.deliveries()]
    assert ([registered.id], [200, 404]) == ([row["id"] for row in listed], removed)
    with pytest.raises(Rejected, match="there is no delivery"):
        shop.sandbox.webhooks.redeliver("unknown")


@pytest.mark.parametrize(("policy", "expected"), [
    ("per_resource", ["orders.created", "orders.created", "orders.paid"]),
    ("any", ["orders.created", "orders.paid", "orders.created"]),
])  # fmt: skip
async def test_a_notification_waits_for_earlier_ones_about_the_same(shop, policy, expected):
    """Until these are delivered or have failed; others do not wait for them."""
    shop.webhook()
    shop.sandbox.change_policies({"notification_order": policy, "notification_retries": "PT10S"})
    shop.receiver.responses = [web.Response(status=500)]
    order = await shop.create()
    shop.sandbox.buyer.pay(order)
    unrelated = await shop.client.orders.create(shop.make())
    count = [3, 2][policy == "per_resource"]
    await shop.until(lambda: len(shop.receiver.requests) >= count)
    shop.sandbox.clock.advance("PT10S")
    await shop.settled()

    of_order = [row.json["type"] for row in shop.receiver.requests if row.json["data"]["id"] != unrelated.id]
    assert expected == of_order
    assert unrelated.id in [received.json["data"]["id"] for received in shop.receiver.requests[:count]]


@pytest.mark.parametrize("wait", ["PT0.1S", "PT0S"])
async def test_a_receiver_that_never_responds_costs_the_timeout(shop, wait):
    """The attempt fails, by the clock of the machine."""
    shop.webhook()
    shop.sandbox.change_policies({"notification_timeout": wait})
    shop.receiver.responses = [shop.receiver.hang]
    await shop.create()

    assert ["failed"] == shop.statuses()
    assert f"no response within {wait}" == shop.sandbox.webhooks.deliveries()[0].error


async def test_a_receiver_of_one_seller_does_not_hold_up_another_seller(shop, plain):
    """Also of the addresses in preferences: the attempts of each seller are counted apart."""
    shop.sandbox.change_policies({"notification_url": "deliver", "notification_timeout": "PT1H"})
    body = {"items": [{"title": "Lamp", "quantity": 1, "unit_price": 10}], "notification_url": shop.receiver.url}

    async def open_checkout(**options: object) -> None:
        response = await plain("POST", "/checkout/preferences", body, **options)
        shop.sandbox.buyer.open_checkout(response.json["id"])

    shop.receiver.responses = [shop.receiver.hang] * 16
    for _ in range(17):
        await open_checkout()
    await shop.until(lambda: len(shop.receiver.requests) == 16)
    await open_checkout(token=shop.sandbox.describe(shop.sandbox.create_tenant()).access_token)
    await shop.until(lambda: len(shop.receiver.requests) == 17)


# --- where to ----------------------------------------------------------------------------------------------------


async def test_a_named_host_may_be_anywhere(start, connect, shop, monkeypatch):
    """`allow_hosts` names it; its address is not looked at."""
    sandbox = await start(allow_hosts=["shop.example"])
    port = shop.receiver.url.split(":")[2].split("/")[0]
    resolve, hosts = ThreadedResolver.resolve, []

    async def here(self, host, port=0, family=0):
        hosts.append(host)
        return await resolve(self, "127.0.0.1", port, family)

    monkeypatch.setattr(ThreadedResolver, "resolve", here)
    sandbox.webhooks.add(WebhookRequest(url=f"http://shop.example:{port}/"))
    async with connect(sandbox) as client:
        await client.orders.create(shop.make())
    await shop.until(lambda: shop.receiver.requests)

    assert ["shop.example"] == hosts
    assert f"shop.example:{port}" == shop.receiver.requests[0].headers["Host"]


async def test_a_notification_url_elsewhere_is_not_connected_to(shop):
    """The delivery fails, and says how to allow it."""
    shop.sandbox.change_policies({"notification_url": "deliver"})
    shop.sandbox.buyer.open_checkout(await shop.prefer(notification_url="http://192.0.2.1/"))
    await shop.settled()

    [delivery] = shop.sandbox.webhooks.deliveries()
    assert "failed" == delivery.status
    assert "--allow-host 192.0.2.1" in delivery.error


# --- time --------------------------------------------------------------------------------------------------------


async def test_time_that_goes_on_delivers_by_itself(start, connect, order, receiver, until):
    """No request has to come: an order expires, and a retry is due."""
    sandbox = await start(policies={"notification_retries": "PT0.1S"})
    sandbox.webhooks.add(WebhookRequest(url=receiver.url))
    receiver.responses = [web.Response(status=500)]
    async with connect(sandbox) as client:
        await client.orders.create(order())
        sandbox.clock.advance("PT14M59.8S")
    await until(lambda: "orders.expired" in receiver.types)

    assert ["orders.created", "orders.created", "orders.expired"] == receiver.types


# --- faults ------------------------------------------------------------------------------------------------------


async def test_a_lost_notification_never_comes(shop):
    """Nor is it tried again; the next one comes."""
    shop.webhook()
    shop.sandbox.change_policies({"notification_retries": "PT10S"})
    with shop.sandbox.faults.add(FaultRule(effect="lost", times=1)):
        shop.sandbox.buyer.pay(await shop.create())
        await shop.settled()

    assert ["lost", "delivered"] == shop.statuses()
    assert ["orders.paid"] == shop.receiver.types


@pytest.mark.parametrize(("effect", "types"), [
    ("delayed", ["orders.created", "orders.paid"]), ("reordered", ["orders.paid", "orders.created"]),
])  # fmt: skip
async def test_a_late_notification_is_overtaken_if_it_is_reordered(shop, effect, types):
    """By the sandbox's clock."""
    shop.webhook()
    with shop.sandbox.faults.add(FaultRule(effect=effect, seconds=30, times=1)):
        shop.sandbox.buyer.pay(await shop.create())
        await shop.until(lambda: any(delivery.faults for delivery in shop.sandbox.webhooks.deliveries()))
    shop.sandbox.clock.advance("PT29S")
    if effect == "reordered":
        await shop.settled()
    early_requests = len(shop.receiver.requests)
    shop.sandbox.clock.advance("PT1S")
    await shop.settled()

    assert int(effect == "reordered") == early_requests
    assert types == shop.receiver.types


async def test_a_wrong_signature_is_wrong(shop):
    """Of the standard, for every secret, and of a manifest; the next attempt is right."""
    shop.webhook(secret=f"{SECRET} whsec_{base64.b64encode(KEY * 2).decode()}")
    shop.webhook(secret="s3cret", signer=ManifestSigner(header="x-signature", manifest="id:{id};"))
    with shop.sandbox.faults.add(FaultRule(effect="wrong_signature")):
        order = await shop.create()

    right = hmac.digest(b"s3cret", f"id:{order.id};".encode(), hashlib.sha256).hex()
    for received in shop.receiver.requests:
        if "x-signature" in received.headers:
            assert right not in received.headers["x-signature"]
        else:
            keys = standard_signature(received), standard_signature(received, KEY * 2)
            assert not set(keys) & set(received.headers["webhook-signature"].split(" "))
    assert 2 == len(shop.receiver.requests)


async def test_a_stale_timestamp_is_signed_well(shop):
    """It is an hour old: a receiver with a tolerance rejects it, one without does not."""
    shop.webhook(secret=SECRET)
    with shop.sandbox.faults.add(FaultRule(effect="stale_timestamp")):
        await shop.create()

    [received] = shop.receiver.requests
    assert [standard_signature(received)] == signatures(shop.receiver)
    with pytest.raises(InvalidSignature, match="clock"):
        Verifier.standard(SECRET).verify(received.headers, received.body)


async def test_a_truncated_notification_has_half_of_its_body(shop):
    """And the signature of all of it."""
    shop.webhook(secret=SECRET)
    with shop.sandbox.faults.add(FaultRule(effect="truncated")):
        await shop.create()

    [received] = shop.receiver.requests
    assert [standard_signature(received)] != signatures(shop.receiver)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        _ = received.json
