"""The credential of a call: a bearer token that may be refreshed, or a signer."""

from __future__ import annotations

import re
from inspect import isawaitable
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from paymentsdk._auth.schemes import check_token
from paymentsdk._auth.token_store import certain_user_id
from paymentsdk._call import events
from paymentsdk._call.deadline import Expired
from paymentsdk._call.verdicts import Failed, Rejected, Stopped, Unsent, no_token, not_signed
from paymentsdk._codec.type_walk import can_hold_secrets
from paymentsdk._headers import OF_THE_TRANSPORT, Headers, check_headers, masked_values, merged
from paymentsdk._secrets import HiddenRepr, masked, scrub, secrets_in
from paymentsdk.errors import RefreshFailed, RequestInvalid
from paymentsdk.transports.base import Request, Response, header

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Auth, Exchange, Signer
    from paymentsdk._call.deadline import Deadline
    from paymentsdk._call.runtime import Runtime

#: Header bytes that are not text stay as the transport returned them.
_NOT_TEXT = "surrogateescape"
#: The platform's user id is the last part of an access token (4.1).
_USER_ID = re.compile(r"(?:APP_USR|TEST)-.+-([0-9]{1,20})\Z")


def user_id(token: str | None) -> str | None:
    """Return the platform's user id in *token*, or `None` if it has none."""
    match = None if token is None else _USER_ID.match(token)
    return match and match[1]


def _of_one_seller(token: str | None, seller: str | None) -> str | None:
    """Return *seller*, the user id in an earlier token, or else the user id in *token*.

    A call must not change its seller: the same key would create a second order, and the next page would have another
    seller's rows.

    Raises:
        RequestInvalid: *token* belongs to another seller: another pair was put into the store.
    """
    found = None if token is None else certain_user_id(token)
    if None not in (found, seller) and found != seller:
        raise RequestInvalid("access_token", "belongs to another seller than the token before")
    return seller or found


class Bearer:
    """Takes tokens from their source, and checks once for each token that a header can hold it."""

    __slots__ = ("_auth", "_checked", "_one_seller", "_seller", "user_id")

    def __init__(self, auth: Auth, *, one_seller: bool = False) -> None:
        self._auth = auth
        self._checked: str | None = None
        #: The platform's user id in the last token; `None` if it has none.
        self.user_id: str | None = None
        self._one_seller = one_seller
        #: With `one_seller`, the user id in the first token that has one.
        self._seller: str | None = None

    def of_one_seller(self) -> Bearer:
        """Return a bearer with the same source that accepts only tokens of the first seller that a token names."""
        return self if self._one_seller else Bearer(self._auth, one_seller=True)

    def token(self, now: float) -> str | None:
        """Return the token to use at *now*, or `None` if the call must wait for one.

        Raises:
            RequestInvalid: The token cannot be sent.
            Exception: The source of the tokens raised it.
        """
        token = self._auth.token(now)
        return token if token is self._checked else self._check(token)

    async def refresh(self, before: str | None, exchange: Exchange, now: float, *, was_rejected: bool) -> str | None:
        """Return another token if *before* was rejected, or else any token; `None` if the client cannot get one.

        Raises:
            RequestInvalid: The token cannot be sent.
        """
        return self._check(await self._auth.renew(before if was_rejected else None, exchange, now))

    def _check(self, token: str | None) -> str | None:
        if token is None:
            return None
        if token is not self._checked:
            check_token(token)
        if self._one_seller:
            self._seller = _of_one_seller(token, self._seller)
        self._checked, self.user_id = token, user_id(token)
        return token


class Credential(HiddenRepr, Struct, eq=False):
    """The credential of the attempts of one call."""

    bearer: Bearer
    signer: Signer | None
    """Signs the attempts. `None` if they have a token."""
    exchange: Exchange
    header_secrets: tuple[str, ...] = ()
    """Values that may be credentials, in the header fields that the client or the caller adds."""
    token: str | None = None
    """The bearer token of the attempt. While the call waits for another token, it is still the old one. No variable of
    a function that waits holds it, as tracebacks can show variables."""
    seller: str | None = None
    """The user id in the earlier tokens: no attempt is made for another seller."""
    signature: tuple[str, ...] = ()
    """The values of the header fields that sign the attempt."""
    refreshed: bool = False
    """Whether the call has tried to refresh a rejected token. The next rejection is final."""

    def use_token(self, now: float) -> bool:
        """Take the token to use at *now*; return `False` if the call must wait for one.

        Raises:
            Stopped: The source of the tokens raised an exception, or the token cannot be sent.
        """
        try:
            if (token := self.bearer.token(now)) is None:
                return False
            self._take(token)
        except Exception as error:  # noqa: BLE001 - a user's token source must not hide that an attempt is in doubt
            raise no_token(error) from None
        return True

    def _take(self, token: str | None) -> None:
        """Use *token* from now on, if it belongs to the same seller."""
        if self.token is not None:
            self.seller = _of_one_seller(self.token, self.seller)
        if self.seller is not None:
            _of_one_seller(token, self.seller)
        self.token = token

    @property
    def can_refresh(self) -> bool:
        """Whether another token may follow a rejection."""
        return not self.refreshed and self.token is not None

    def secrets(self, body: object) -> list[str]:
        """Return the secrets of a request with *body*, which must not be shown."""
        secrets = [*self.header_secrets, *(self.signature if self.token is None else [self.token])]
        return [*secrets, *secrets_in(body)] if can_hold_secrets(body) else secrets

    def mask_request_id(self, response: Response, body: object) -> Response:
        """Return *response* with the request's secrets masked in its request id, which logs and errors show."""
        echoed, token = header(response.headers, "X-Request-Id"), self.token
        # A shorter text cannot contain the token in any form.
        if echoed is None or (
            token is not None and len(echoed) < len(token) and not self.header_secrets and not can_hold_secrets(body)
        ):
            return response  # The usual case.
        masked_id = scrub(echoed.encode(errors=_NOT_TEXT), self.secrets(body)).decode(errors=_NOT_TEXT)
        if masked_id == echoed:
            return response
        fields = {name: value for name, value in response.headers.items() if name.lower() != "x-request-id"}
        return structs.replace(response, headers=Headers({**fields, "X-Request-Id": masked_id}))

    async def obtain(self, runtime: Runtime, deadline: Deadline) -> None:
        """Obtain a token if none is at hand. The token stays `None` if the client has no way to get one.

        Raises:
            Stopped: The token could not be obtained.
        """
        clock = runtime.clock
        try:
            await self._refresh(runtime, deadline, was_rejected=False)
        except Stopped as stopped:
            if not stopped.outcome.timed_out or clock.monotonic() >= deadline.total:
                raise
            # The refresh took longer than an attempt may. If it was an early refresh, the current token is still valid.
            runtime.deadlines.restart(deadline)
            if not self.use_token(clock.now()):
                raise

    async def replace(self, rejection: Rejected, operation: str, runtime: Runtime, deadline: Deadline) -> None:
        """Obtain another token after a rejection, once per call.

        Raises:
            Stopped: The client has no other token to use, and the outcome is *rejection*; or the refresh failed.
        """
        self.refreshed = True
        try:
            await self._refresh(runtime, deadline, was_rejected=True)
        except Stopped as stopped:
            failure = stopped.outcome
            if not (isinstance(failure, Unsent) and isinstance(failure.cause, RequestInvalid)):
                raise
            events.refresh_failed(operation, failure.reason)
            rejection.error.add_note(f"the token could not be refreshed: {failure.reason}")
            raise Stopped(rejection) from None
        if self.token is None:
            raise Stopped(rejection)

    async def _refresh(self, runtime: Runtime, deadline: Deadline, *, was_rejected: bool) -> None:
        """Obtain another token, within the time of the attempt. It is `None` if the client has no way to get one."""
        try:
            before = masked(self.token)
            renewed = self.bearer.refresh(before, self.exchange, runtime.clock.now(), was_rejected=was_rejected)
            self._take(await deadline.bound(renewed))
        except Expired as expired:
            raise Stopped(self._timed_out(f"{expired} while the token was refreshed", attempted=False)) from None
        except Exception as error:  # noqa: BLE001 - as in `use_token`
            raise no_token(error) from None

    async def sign(self, request: Request, signer: Signer, deadline: Deadline, now: float, key_header: str) -> Request:
        """Return *request* with the header fields of its signature.

        A field that cannot be sent, or that a signer must not set, is a failure: with another key in *key_header*, an
        attempt would be another request.

        Raises:
            Stopped: The request could not be signed.
        """
        try:
            signed = signer.sign(request, now)
            fields = await deadline.bound(signed) if isawaitable(signed) else signed
            reserved = OF_THE_TRANSPORT | {"content-type", key_header.lower()}
            checked = check_headers(fields, "auth.sign", reserved=reserved)
        except Expired as expired:
            raise Stopped(self._timed_out(f"{expired} while the request was signed", attempted=True)) from None
        except Exception as error:  # noqa: BLE001 - a user's signer must not hide that an attempt is in doubt
            raise not_signed(error) from None
        self.signature = tuple(checked.values())
        return structs.replace(request, headers=merged(request.headers, masked_values(checked)))

    def _timed_out(self, reason: str, *, attempted: bool) -> Failed:
        # "Not sent" would be wrong for a request that was sent and rejected.
        cause = RefreshFailed(reason) if self.refreshed else None
        return Unsent(reason=reason, cause=cause, timed_out=True, permanent=True, attempted=attempted)
