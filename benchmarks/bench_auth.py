"""Measures the cost of a token: per valid call, and for a thousand calls whose token has expired.

The first part reads an order over a transport that responds immediately. *added* is the difference to the same call
without a token. In the second part, many concurrent calls use a token that the platform rejects. *refreshes* is the
number of refreshes that follow.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from benchmarks import harness, payloads
from benchmarks.at_once import BASE_URL, AtOnce, Call, Way, race
from benchmarks.harness import Options, Result, Row, Trial
from paymentsdk import PaymentsClient, RefreshingToken, Request, Response, TokenPair
from paymentsdk.resources import orders

NOTHING = "no token"
STORM = 1_000
_ID = next(payloads.order_ids())
_RESPONSE = payloads.order(_ID)
_ANONYMOUS = dataclasses.replace(orders.GET, authenticated=False)


def _pair(**changes: float) -> TokenPair:
    return TokenPair(access_token=payloads.TOKEN, refresh_token="TG-1", **changes)  # noqa: S106


def _client(auth: RefreshingToken | None = None) -> PaymentsClient:
    token = payloads.TOKEN if auth is None else None
    return PaymentsClient(token, base_url=BASE_URL, auth=auth, transport=AtOnce(200, _RESPONSE))


def _get(client: PaymentsClient) -> Call:
    async def call() -> object:
        return (await client.call(orders.GET, order_id=_ID)).value

    return call


def _without_token(client: PaymentsClient) -> Call:
    async def call() -> object:
        return (await client.call(_ANONYMOUS, order_id=_ID)).value

    return call


def _copied(client: PaymentsClient) -> Call:
    async def call() -> object:
        seller = client.with_options(access_token=payloads.TOKEN)
        return (await seller.call(orders.GET, order_id=_ID)).value

    return call


def _locked(client: PaymentsClient) -> Call:
    """Return the call of a program that keeps its own token, as usual: with a lock and a look at the clock."""
    lock, expires_at = asyncio.Lock(), time.time() + 3600

    async def token() -> str:
        async with lock:
            if time.time() > expires_at:
                raise RuntimeError("not within this bench")
            return payloads.TOKEN

    async def call() -> object:
        headers = {"X-Authorization": f"Bearer {await token()}"}
        return (await client.call(_ANONYMOUS, order_id=_ID, headers=headers)).value

    return call


def _ways() -> Iterator[Way]:
    yield Way(name=NOTHING, against=NOTHING, call=_without_token(_client()))
    for name, call in {
        "a token": _get(_client()),
        "a token that can be refreshed": _get(_client(RefreshingToken(_pair()))),
        "the same, and its end is known": _get(_client(RefreshingToken(_pair(expires_at=4e9)))),
        "a copy of the client per call, for another seller": _copied(_client()),
        "a lock and a look at the clock, by hand": _locked(_client()),
    }.items():
        yield Way(name=name, against=NOTHING, call=call)


class Platform:
    """Rejects the old token, accepts the new token, and counts the refreshes."""

    def __init__(self) -> None:
        self.renewals = 0
        self._new = {"access_token": "NEW", "token_type": "bearer", "expires_in": 15_552_000, "refresh_token": "TG-2"}

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0)  # Like a socket, this lets the other calls run first.
        if request.url.endswith("/oauth/token"):
            self.renewals += 1
            await asyncio.sleep(0.001)
            return Response(200, {}, msgspec.json.encode(self._new))
        if request.headers["Authorization"] == "Bearer NEW":
            return Response(200, {}, _RESPONSE)
        return Response(401, {}, b'{"message":"invalid token","error":"unauthorized","status":401}')

    async def aclose(self) -> None:
        pass


def storm(calls: int) -> Mapping[str, float]:
    """Run so many concurrent calls with a rejected token, and check that all succeed."""

    async def all_at_once() -> int:
        platform = Platform()
        async with PaymentsClient(
            base_url=BASE_URL,
            client_id="1",
            client_secret="secret",  # noqa: S106 - made up
            auth=RefreshingToken(_pair()),
            transport=platform,
        ) as client:
            await asyncio.gather(*(client.orders.get(_ID) for _ in range(calls)))
        return platform.renewals

    before = time.process_time()
    renewals = asyncio.run(all_at_once())
    return {"renewals": renewals, "cpu_us": (time.process_time() - before) / calls * harness.MICRO}


def run(options: Options) -> Result:
    """Measure every way, and the concurrent refreshes."""
    calls = 10 if options.quick else STORM
    with harness.on_core(harness.cores()[0]), asyncio.Runner() as runner:
        rows: list[Row] = race(list(_ways()), "GET", runner, options)
        if not options.only:
            key = {"call": f"{calls:,} at once", "way": "a token that has ended", "against": ""}
            rows += harness.take_turns([Trial(key, partial(storm, calls))], options)
    return harness.result("bench_auth", rows, options)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
