"""A platform whose access tokens can end, and can be refreshed; stores that are slow, and that fail."""

from __future__ import annotations

import asyncio
import json

from paymentsdk import MemoryTokenStore, Response, RetryPolicy, TokenPair

ORDER = Response(200, {}, b'{"id":"ORD1"}')
ONCE = RetryPolicy(attempts=1)
START = 1_700_000_000.0


class Issuer:
    """A platform whose access tokens can end, and whose refresh tokens are good for one use each."""

    def __init__(self) -> None:
        self.generation = 1
        self.refreshes: list[str] = []
        self.used: list[str] = []
        self.asked = 0
        self.lifetime = 3600
        #: What is said to a token of another generation.
        self.rejection = Response(401)
        #: What the next refreshes end in, in place of a new pair.
        self.trouble: list[Response | Exception] = []

    def pair(self, generation: int = 1, expires_at: float | None = None) -> TokenPair:
        """The pair of a generation."""
        return TokenPair(
            access_token=f"APP_USR-access-{generation}", refresh_token=f"TG-refresh-{generation}", expires_at=expires_at
        )

    async def __call__(self, request) -> Response:
        self.asked += 1
        await asyncio.sleep(0)
        if request.url.endswith("/oauth/token"):
            response = self.renew(json.loads(request.body)["refresh_token"])
            return await response if asyncio.iscoroutine(response) else response
        token = request.headers.get("Authorization", "")
        self.used.append(token)
        return ORDER if token == f"Bearer APP_USR-access-{self.generation}" else self.rejection

    def renew(self, refresh_token: str) -> Response:
        """Give a new pair for a refresh token that was not used before."""
        self.refreshes.append(refresh_token)
        if self.trouble:
            end = self.trouble.pop(0)
            if isinstance(end, Exception):
                raise end
            return end
        if refresh_token != f"TG-refresh-{self.generation}":
            return Response(400, {}, b'{"error":"invalid_grant"}')
        self.generation += 1
        pair = self.pair(self.generation)
        body = {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": self.lifetime}
        return Response(200, {}, json.dumps(body).encode())


def counted(issuer: Issuer):
    """A refresh that takes any refresh token, once, and gives the access token of the generation that holds now."""

    def renew(refresh_token: str) -> Response:
        issuer.refreshes.append(refresh_token)
        if len(issuer.refreshes) > 1:
            return Response(400, {}, b'{"error":"invalid_grant"}')
        body = {"access_token": f"APP_USR-access-{issuer.generation}", "refresh_token": "TG-refresh-next"}
        return Response(200, {}, json.dumps(body).encode())

    return renew


class SlowStore(MemoryTokenStore):
    """Saves in its own time, and fails as often as it is told to."""

    def __init__(self, issuer: Issuer, failures: int = 0) -> None:
        super().__init__()
        self.issuer = issuer
        self.failures = failures
        self.log: list[tuple[str, int]] = []
        self.saving = False

    async def save(self, pair: TokenPair) -> None:
        self.saving = True
        for _ in range(20):
            await asyncio.sleep(0)
        new = sum("access-2" in token for token in self.issuer.used)
        if self.failures:
            self.failures -= 1
            self.log.append(("failed", new))
            raise OSError("no space left on device")
        self.log.append(("saved", new))
        await super().save(pair)


class Unsure(MemoryTokenStore):
    """Saves, and fails to say so as often as it is told to."""

    failures = 1

    async def save(self, pair: TokenPair) -> None:
        await super().save(pair)
        if self.failures:
            self.failures -= 1
            raise ConnectionError
