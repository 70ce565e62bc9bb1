"""The sender: one task of the server that delivers notifications to webhooks.

It makes several attempts at a time for each webhook. It connects only to this machine and to named hosts, follows no
redirects, and reads no bodies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from functools import partial

import aiohttp
import msgspec

from paymentsdk._contract.error_response import retry_after
from paymentsdk._headers import Headers
from paymentsdk.sandbox._noun import SellerContext
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._policies import durations
from paymentsdk.sandbox._signers import check_url, make_message
from paymentsdk.sandbox._webhooks import Attempt, Delivery
from paymentsdk.sandbox._wire import encode

#: Seconds between two checks for due deliveries, once there has been a webhook.
_TICK = 0.25
#: Most attempts in flight for each webhook, and for the addresses in the preferences of each seller.
_MOST_AT_ONCE = 16
#: Most characters of an error that are stored. The receiver may have written them.
_LONGEST_ERROR = 300
#: Seconds that an idle connection stays open: less than at receivers, so that none closes it during a request.
_KEPT_SECONDS = 2.0
_log = logging.getLogger("paymentsdk.sandbox")


class Sender:
    """Sends the due deliveries of *platform* until it is cancelled."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._in_flight: set[str] = set()
        self._slots: dict[tuple[int, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MOST_AT_ONCE))

    async def run(self) -> None:
        """Wait for the first webhook or delivery. Then send due deliveries, even without requests."""
        webhooks, woken = self._platform.webhooks, asyncio.Event()
        webhooks.wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        if not (webhooks.list() or webhooks.deliveries(limit=1)):
            await woken.wait()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
            timeout=aiohttp.ClientTimeout(),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        async with session, asyncio.TaskGroup() as attempts:
            while True:
                woken.clear()
                try:
                    await self._platform.catch_up()
                except Exception:  # noqa: BLE001 - a failed job or a full disk: requests report it, too
                    _log.exception("no notification was sent")
                while webhooks.ready:
                    context, delivery = webhooks.ready.popleft()
                    if delivery.id not in self._in_flight:
                        self._in_flight.add(delivery.id)
                        attempts.create_task(self._attempt(session, context, delivery))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):  # Not `wait_for`, which may lose a cancellation.
                        await woken.wait()

    async def _attempt(self, session: aiohttp.ClientSession, context: SellerContext, delivery: Delivery) -> None:
        async with self._slots[delivery.tenant, delivery.webhook]:
            attempt = await self._post(session, context, delivery)
        self._in_flight.discard(delivery.id)
        while True:
            try:
                with self._platform.store.transaction():
                    return self._platform.webhooks.settle(self._platform.context(context.tenant), delivery, attempt)
            except Exception:  # noqa: BLE001 - a full disk: requests report it, too
                _log.exception("the result of a delivery was not stored")
            await asyncio.sleep(_TICK)

    async def _post(self, session: aiohttp.ClientSession, context: SellerContext, delivery: Delivery) -> Attempt:
        seconds = durations(context.policies.notification_timeout)[0].total_seconds()
        webhooks, faults = self._platform.webhooks, () if delivery.attempts else delivery.faults
        request = webhooks.request_of(context, delivery)
        if request is None:
            return Attempt(error="the webhook was removed or is disabled")
        values = {
            **msgspec.json.decode(encode(delivery)),
            "id": delivery.resource,
            "user_id": str(delivery.tenant),
            "application_id": context.tenant.client_id,
            "request_id": f"{delivery.id}-{delivery.attempts + 1}",
        }
        try:
            check_url(request.url, webhooks.hosts)
            url, headers, body = make_message(request, values, time.time(), faults)
            async with asyncio.timeout(seconds):
                response = await session.post(url, data=body, headers=headers, allow_redirects=False)
        except TimeoutError:
            return Attempt(error=f"no response within {seconds:g} seconds")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Attempt(error=str(error)[:_LONGEST_ERROR] or type(error).__name__)
        response.release()  # Closes the connection, unless the whole response has arrived.
        return Attempt(response.status, pause=timedelta(seconds=retry_after(Headers(response.headers)) or 0))
