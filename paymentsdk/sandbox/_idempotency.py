"""Idempotency keys to the letter (spec: Limits; wire-facts: Requests).

A key belongs to a seller and to one request: an operation, its path and its body. In the 24 hours after its first use
the same request gets the saved response again, byte for byte; another one gets 409. With the policy ``key_scope=path``
it is one request at each path. The response is saved in the transaction of the effect. A rejected request had no effect
and is not remembered: it may be normalized and sent again with its key.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from paymentsdk._operation.operation import Operation
from paymentsdk.sandbox._context import SellerContext
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._responses import Rejected, read_json
from paymentsdk.sandbox._store import SavedResponse

#: What one request at a time may hold: a seller, a key, and the place where the key holds (empty for everywhere).
Claim: TypeAlias = tuple[int, str, str]

#: For how long the contract remembers a key (spec: Limits).
_CONTRACT_HOURS = 24
#: Numbers stay what they are: as floats, two large amounts could look the same, and as text, an amount and its text.
_WRITE = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def checked_key(operation: Operation[object, object], key: str | None, policies: Policies) -> str | None:
    """Return the key of a request; ``None`` where the operation takes none.

    Raises:
        Rejected: It is missing, or too long.
    """
    if not operation.keyed:
        return None
    if not key:
        raise Rejected(400, "empty_required_header", details=(operation.key_header,))
    if not all("!" <= character <= "~" for character in key):
        raise Rejected(
            400, "bad_request", details=(f"{operation.key_header}: has a character that is not visible ASCII",)
        )
    if len(key) > policies.max_key_length:
        code = "invalid_idempotency_key_length"
        details = (f"{operation.key_header}: has more than {policies.max_key_length} characters",)
        raise Rejected(400, code if code in operation.meanings else "bad_request", details=details)
    return key


def place_of(operation: Operation[object, object], path: Mapping[str, str]) -> str:
    """Return where a key was sent: the path with its values. Operations that take keys have a path each."""
    return operation.path.format_map(path)


def claim_of(tenant: int, key: str, place: str, policies: Policies) -> Claim:
    """Return what a request with *key* claims."""
    return tenant, key, place if policies.key_scope == "path" else ""


def fingerprint(operation: Operation[object, object], path: Mapping[str, str], body: bytes) -> str:
    """Return what makes two requests the same: operation, path and body, whatever the spaces and the order in it."""
    request = [operation.name, sorted(path.items())]
    try:
        text = _WRITE([*request, read_json(body.strip() or b"{}")])
    except (ValueError, ArithmeticError, RecursionError):
        text = _WRITE([*request, "no JSON", body])  # No saved response has this one: it will be rejected.
    return hashlib.sha256(text).hexdigest()


def replay(context: SellerContext, key: str, place: str, sent: str) -> SavedResponse | None:
    """Return the saved response for *key*; ``None`` if the request, of the fingerprint *sent*, is the first with it.

    Raises:
        Rejected: The key went with another request.
    """
    remembered = [
        saved
        for saved in context.store.saved_responses(context.tenant.user_id, key)
        if saved.at + timedelta(hours=context.policies.key_hours) > context.now
        and (context.policies.key_scope == "seller" or saved.place == place)
    ]
    same = next((saved for saved in remembered if saved.fingerprint == sent), None)
    if remembered and same is None:
        raise Rejected(409, "idempotency_key_already_used")
    return same


def forgotten(context: SellerContext) -> datetime:
    """Return the moment up to which the responses of keys need not be kept."""
    # A policy of fewer hours may be taken back: what the contract remembers is there until then.
    return context.now - timedelta(hours=max(context.policies.key_hours, _CONTRACT_HOURS))


class InFlight:
    """The keys of the requests that are in progress, for the twins that arrive meanwhile."""

    def __init__(self) -> None:
        self._claims: dict[Claim, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, claim: Claim | None, policies: Policies) -> AsyncIterator[bool]:
        """Keep *claim* in flight, once no other request does, and say whether one has; ``None`` claims nothing.

        Raises:
            Rejected: One does, and the policy ``concurrent_twin`` says to reject the second.
        """
        if claim is None:
            yield False
            return
        waited = False
        while (done := self._claims.get(claim)) is not None:
            if policies.concurrent_twin != "wait":
                status = 409 if policies.concurrent_twin == "conflict" else 423
                raise Rejected(status, "resource_locked", "another request with this key is in progress")
            waited = await done.wait()
        done = self._claims[claim] = asyncio.Event()
        try:
            yield waited
        finally:
            del self._claims[claim]
            done.set()
