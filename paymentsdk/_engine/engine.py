"""What a client makes its calls with: it checks what the caller gives, and prepares the call. See `call.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, TypeVar

from paymentsdk._auth.schemes import Credentials
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._codec.encode import fill_path
from paymentsdk._engine.bearer import Bearer
from paymentsdk._engine.call import Call
from paymentsdk._engine.client_state import ClientState
from paymentsdk._engine.result import Result
from paymentsdk._engine.retry import History
from paymentsdk._engine.settings import Settings, check_first_sent_at, check_headers, check_key, end_of_attempt
from paymentsdk._operation.operation import Operation
from paymentsdk.errors import ClientClosed, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._operation.operation import Limits

B = TypeVar("B")
R = TypeVar("R")


class Engine(ABC):
    """Makes calls: settings of one client or copy, and the state that all its copies share."""

    def __init__(self, state: ClientState, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        self._bearer = Bearer(settings.auth)

    @abstractmethod
    async def _exchange(self, refresh_token: str) -> TokenPair:
        """Ask the platform for a new token pair."""

    @property
    def credentials(self) -> Credentials | None:
        """The application at the token endpoint, if the client was given one."""
        return self._settings.credentials

    @property
    def session_header(self) -> str:
        """The name of the header that carries the id of the buyer's device (4.4)."""
        return self._settings.session_header

    async def call(
        self,
        operation: Operation[B, R],
        body: B | None = None,
        *,
        query: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        first_sent_at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        **path: str,
    ) -> Result[R]:
        """Carry out *operation* and return its value with all that is known about it.

        The methods of the resources call it, too; use it for the attempts, the headers or the anomalies.

        Args:
            operation: One of :data:`paymentsdk.OPERATIONS`, or one of your own.
            body: The request body, an instance of ``operation.body``.
            query: The filters of a search.
            idempotency_key: 1 to 64 visible ASCII characters, for operations that take one; random by default.
            first_sent_at: When the key, one of yours, was sent for the first time: a datetime with its offset, at most
                an hour ahead, as an ``OutcomeUnknown`` or your own records say it. A failure that settles nothing is
                then an ``OutcomeUnknown``, and nothing is sent more than 23 hours after that time.
            headers: Further header fields of this call.
            **path: The values of the placeholders in ``operation.path``.

        Raises:
            RequestInvalid: Something breaks a rule; nothing was sent.
            NotSent: No byte reached the platform.
            APIError: The platform refused.
            NoAnswer: A read got no answer that can be trusted.
            OutcomeUnknown: A write may have taken effect.
            RefreshFailed: The token could not be refreshed for now; nothing was done, trying again is safe.
            ReauthorizationRequired: The token is refused and the refresh token is spent.
            ClientClosed: The client is closed, or belongs to another event loop or process.
        """
        try:
            call = self._prepare(
                operation,
                body,
                path=path,
                query=query,
                idempotency_key=idempotency_key,
                first_sent_at=first_sent_at,
                headers=headers,
            )
        except (ClientClosed, RequestInvalid) as error:
            error.operation = getattr(operation, "name", None)
            raise
        return await call.run()

    def _prepare(
        self,
        operation: Operation[B, R],
        body: B | None,
        *,
        path: Mapping[str, str],
        query: Mapping[str, object] | None,
        idempotency_key: str | None,
        first_sent_at: datetime | None,
        headers: Mapping[str, str] | None,
    ) -> Call[B, R]:
        """Check everything that can be checked here, and fix what all attempts have in common."""
        state, settings = self._state, self._settings
        loop = state.ensure_open()
        if not isinstance(operation, Operation):
            raise RequestInvalid("operation", "expected an Operation, such as OPERATIONS['orders.get']")
        # Made at its first use: that nothing can decode the result shows before a write.
        decoder = operation.decoder
        url = settings.base_url + operation.path
        if path or operation.path_names:
            url = settings.base_url + fill_path(operation.path, operation.path_names, path)
        if query and (filters := operation.query_encoder.encode(query)):
            url += f"?{filters}"
        caller_supplied_key = operation.keyed and (idempotency_key is not None or settings.idempotency_key is not None)
        key = self._key(operation, idempotency_key)
        history = None
        if first_sent_at is not None:
            if not caller_supplied_key:
                raise RequestInvalid("first_sent_at", "goes with the idempotency_key that was sent then")
            history = self._history(first_sent_at)
        started = state.clock.monotonic()
        total = settings.timeout.total
        total_deadline = inf if total is None else started + total
        return Call(
            state=state,
            settings=settings,
            bearer=self._bearer,
            exchange=self._exchange,
            operation=operation,
            decoder=decoder,
            body=body,
            path=path,
            content=_encode(operation, body, settings.limits),
            url=url,
            headers=check_headers(headers) if headers else None,
            key=key,
            caller_supplied_key=caller_supplied_key,
            offset=query.get("offset") if query else None,
            history=history,
            started=started,
            sending=started,
            total_deadline=total_deadline,
            # When nothing can be refused any more: it has to be removed.
            deadline=state.deadlines.add(end_of_attempt(settings.timeout, started, total_deadline), loop),
        )

    def _key(self, operation: Operation[B, R], given: str | None) -> str | None:
        """Choose the idempotency key of all attempts."""
        if not operation.keyed:
            if given is not None:
                raise RequestInvalid("idempotency_key", f"{operation.name} takes none")
            return None
        key = given if given is not None else self._settings.idempotency_key
        return self._state.clock.key() if key is None else check_key(key)

    def _history(self, first_sent_at: datetime) -> History:
        """Return the history of a call whose key was sent before."""
        history, clock = History(), self._state.clock
        history.sent_before(check_first_sent_at(first_sent_at, clock.now()), clock)
        return history


def _encode(operation: Operation[B, R], body: B | None, limits: Limits) -> bytes:
    encoder = operation.encoder
    if body is None:
        if encoder is not None and operation.body_required:
            raise RequestInvalid("$", f"{operation.name} needs a body")
        return b""
    if encoder is None:
        raise RequestInvalid("$", f"{operation.name} takes no body")
    content = encoder.encode(body)
    if operation.check is not None:
        operation.check(body, limits)
    return content
