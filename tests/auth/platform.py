"""A platform in memory: access tokens that end, refresh tokens that are good once, and responses that take time."""

from __future__ import annotations

import asyncio
import json

from paymentsdk import Request, Response, TokenPair
from paymentsdk.testing import FakeClock

#: What the clocks of these tests begin with.
START = 1_700_000_000.0
ORDER = Response(200, {}, b'{"id":"ORD1"}')
DAY = 86_400.0


class Platform:
    """A platform that issues tokens.

    A refresh token that comes twice is rejected, as one that is spent.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.generation = 1
        self.lifetime = 180 * int(DAY)
        #: Whether the access token of this generation is accepted; `None` for all that were issued.
        self.accepts_only: int | None = None
        #: Seconds that the response to a refresh takes.
        self.latency = 0.0
        #: What the next refreshes end in, in place of a new pair.
        self.trouble: list[Response | Exception] = []
        #: The refresh tokens, and the access tokens of the calls, in the order that they came in.
        self.refreshes: list[str] = []
        self.calls: list[str] = []
        #: What calls are answered.
        self.responses: list[Response | Exception] = []

    def pair(self, generation: int = 1, expires_at: float | None = None, issued_at: float | None = None) -> TokenPair:
        """The pair of a generation."""
        times = {} if issued_at is None else {"issued_at": issued_at}
        return TokenPair(
            access_token=f"APP_USR-access-{generation}",
            refresh_token=f"TG-refresh-{generation}",
            expires_at=expires_at,
            **times,
        )

    async def __call__(self, request: Request) -> Response:
        if request.url.endswith("/oauth/token"):
            return await self._refresh(json.loads(request.body)["refresh_token"])
        token = request.headers["Authorization"].removeprefix("Bearer APP_USR-access-")
        self.calls.append(token)
        if self.accepts_only is not None and token != str(self.accepts_only):
            return Response(401)
        end = self.responses.pop(0) if self.responses else ORDER
        if isinstance(end, Exception):
            raise end
        return end

    async def _refresh(self, refresh_token: str) -> Response:
        self.refreshes.append(refresh_token)
        fresh = refresh_token == f"TG-refresh-{self.generation}"
        end = self.trouble.pop(0) if self.trouble else None
        if end is None and fresh:
            self.generation += 1  # It is spent as soon as it has come in.
        await self._pass(self.latency)
        if isinstance(end, Exception):
            raise end
        if end is not None:
            return end
        if not fresh:
            return Response(400, {}, b'{"error":"invalid_grant"}')
        pair = self.pair(self.generation)
        body = {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": self.lifetime}
        return Response(200, {}, json.dumps(body).encode())

    async def _pass(self, seconds: float) -> None:
        """Return when the clock was moved that far."""
        passed = asyncio.Event()
        self.clock.call_at(self.clock.monotonic() + seconds, passed.set)
        if seconds:
            await passed.wait()
