"""The whole life of a call, top to bottom.

    encode the body once -> choose the key once -> for each attempt: permit, sign, send, judge the answer -> decode
    -> Result, or one error that tells the truth

Read :meth:`Caller.call` first; everything below it is a step of it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import structs

from paymentsdk._auth.schemes import Credentials, RefreshingToken, check_token
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import LARGE, Undecodable
from paymentsdk._codec.encode import fill_path
from paymentsdk._engine import events as report
from paymentsdk._engine.retry import (
    KEY_LIFETIME,
    AttemptFailed,
    History,
    key_expired,
    retry,
    should_refresh_token,
)
from paymentsdk._engine.settings import Settings, Timeout, check_first_sent_at, check_headers, check_key, merged
from paymentsdk._engine.state import ClientState, Intent, Result
from paymentsdk._operation.error_response import parse_error_response
from paymentsdk._operation.identity import Comparison
from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import Failure, RetryClass, classify_status, is_in_progress, settles
from paymentsdk._secrets import can_hold_secrets, masked, scrub, secrets_in
from paymentsdk.errors import (
    ClientClosed,
    NoAnswer,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    ReauthorizationRequired,
    RefreshFailed,
    RequestInvalid,
    describe,
    visible,
)
from paymentsdk.transports.base import Headers, Request, Response, SendFailed, header

if TYPE_CHECKING:
    from paymentsdk._operation.operation import Limits

B = TypeVar("B")
R = TypeVar("R")

#: A grant is good once: the token that was made of it is taken even from an answer that breaks the contract.
_GOOD_ONCE = frozenset({RetryClass.TOKEN_CODE, RetryClass.TOKEN_REFRESH})
_MATCH = Comparison()


class Caller(ABC):
    """Makes calls: the engine behind every method of a client."""

    def __init__(self, shared: ClientState, settings: Settings) -> None:
        self._state = shared
        self._settings = settings
        self._headers = Headers(settings.headers)
        self._last_token: str | None = None

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
            ReauthorizationRequired: The token is refused and the grant to renew it is spent.
            ClientClosed: The client is closed, or belongs to another event loop or process.
        """
        shared = self._state
        try:
            loop = shared.ensure_open()
            intent = self._intend(
                operation,
                body,
                path=path,
                query=query,
                idempotency_key=idempotency_key,
                first_sent_at=first_sent_at,
                headers=headers,
                loop=loop,
            )
        except (ClientClosed, RequestInvalid) as error:
            error.operation = getattr(operation, "name", None)
            raise
        try:
            try:
                result = await self._attempt(intent)
            except AttemptFailed as first:
                return await self._try_again(intent, first)
            if shared.budgets:  # Nearly always all of them are full, and none is kept.
                shared.budgets.give_back(self._settings.seller, operation.retry)
            return result  # noqa: TRY300 - the finally holds for both ways
        except AttemptFailed as last:
            outcome = self._outcome(intent, last)
        except asyncio.CancelledError as cancelled:
            if not intent.watch.uncancel():
                await self._log_cancelled(intent, cancelled)
                raise
            outcome = self._outcome(intent, AttemptFailed(Failure.NOT_SENT, _ran_out(intent, self._settings.timeout)))
        finally:
            shared.deadlines.remove(intent.watch)
        # Outside the handlers, so that no traceback drags the failed attempts along, with their frames and answers.
        raise outcome

    # --- once for all attempts -----------------------------------------------------------------------------------

    def _intend(
        self,
        operation: Operation[B, R],
        body: B | None,
        *,
        path: Mapping[str, str],
        query: Mapping[str, object] | None,
        idempotency_key: str | None,
        first_sent_at: datetime | None,
        headers: Mapping[str, str] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> Intent[B, R]:
        """Check everything that can be checked here, and fix what all attempts have in common."""
        if not isinstance(operation, Operation):
            raise RequestInvalid("operation", "expected an Operation, such as OPERATIONS['orders.get']")
        operation.decoder  # noqa: B018 - made at its first use: that nothing can decode the result shows before a write
        settings = self._settings
        where = operation.path
        if path or operation.path_names:
            where = fill_path(where, operation.path_names, path)
        if query:
            filters = operation.query_encoder.encode(query)
            where += f"?{filters}" if filters else ""
        key = self._key(operation, idempotency_key)
        history = self._history(operation, idempotency_key, first_sent_at)
        started = self._state.clock.monotonic()
        total = settings.timeout.total
        deadline = inf if total is None else started + total
        return Intent(
            operation=operation,
            body=body,
            path=path,
            content=_content(operation, body, settings.limits),
            url=settings.base_url + where,
            headers=check_headers(headers) if headers else None,
            key=key,
            offset=query.get("offset") if query else None,
            started=started,
            sending=started,
            deadline=deadline,
            # When nothing can be refused any more: it has to be released.
            watch=self._state.deadlines.add(self._end_of_attempt(deadline, started), loop),
            history=history,
        )

    def _key(self, operation: Operation[B, R], given: str | None) -> str | None:
        if not operation.keyed:
            if given is not None:
                raise RequestInvalid("idempotency_key", f"{operation.name} takes none")
            return None
        key = given if given is not None else self._settings.idempotency_key
        return self._state.clock.key() if key is None else check_key(key)

    def _history(self, operation: Operation[B, R], given: str | None, first_sent_at: datetime | None) -> History:
        supplied = operation.keyed and (given is not None or self._settings.idempotency_key is not None)
        history = History(caller_supplied_key=supplied)
        if first_sent_at is not None:
            if not supplied:
                raise RequestInvalid("first_sent_at", "goes with the idempotency_key that was sent then")
            clock = self._state.clock
            history.sent_before(check_first_sent_at(first_sent_at, clock.now()), clock)
        return history

    # --- for each attempt ----------------------------------------------------------------------------------------

    async def _attempt(self, intent: Intent[B, R]) -> Result[R]:
        """Sign, send, and judge what comes back. A token that is refused is renewed, and the request sent once more."""
        if intent.history.attempts:
            self._begin_again(intent)
        if intent.operation.authenticated:
            self._sign(intent)
            if intent.token is None:
                await self._wait_for_token(intent)
                self._check_open(intent)  # The client may have been closed during the wait.
        while True:
            if intent.history.first_sent is not None and key_expired(intent.history, self._state.clock):
                # The machine may have slept through the pause, or the renewal, and longer.
                reason = f"it was first sent {KEY_LIFETIME / 3600:g} hours ago"
                raise self._failed(intent, AttemptFailed(Failure.NOT_SENT, reason, permanent=True, begun=False))
            intent.history.attempts += 1
            # Noted now and not after a failure: the machine may sleep while it waits for the answer.
            intent.sending_wall = self._state.clock.now()
            request = self._request(intent)
            try:
                response = await self._state.transport.send(request)
                # In here, since a transport of one's own may return something that is no Response.
                accepted = 200 <= response.status < 300  # noqa: PLR2004
                response = _masked(intent, response)
            except BaseException as error:
                failure = self._unanswered(intent, error)
                if failure is None:
                    raise
            else:
                if intent.watch.expired:
                    intent.watch.uncancel()  # The answer came at the very moment that our deadline cancelled the wait.
                if accepted:
                    return await self._accept(intent, response)
                failure = self._refused(intent, response)
                if intent.token is not None and should_refresh_token(intent.operation.retry, failure, intent.history):
                    await self._replace_token(intent, failure)
                    self._check_open(intent)
                    continue
            raise self._failed(intent, failure)

    def _begin_again(self, intent: Intent[B, R]) -> None:
        """Give a further attempt its time, if there may be one."""
        self._check_open(intent)
        if intent.watch.cancelled_by_others():
            raise asyncio.CancelledError  # The transport has swallowed it; nothing more is sent for this task.
        self._arm_again(intent)

    def _check_open(self, intent: Intent[B, R]) -> None:
        """Send nothing more for a client that is closed."""
        if self._state.closed:
            raise self._failed(intent, _not_sent(ClientClosed("the client was closed"), begun=False))

    def _end_of_attempt(self, deadline: float, now: float) -> float:
        limit = self._settings.timeout.attempt
        if limit is None or now + limit > deadline:
            return deadline
        return now + limit

    def _arm_again(self, intent: Intent[B, R]) -> None:
        """Set the watch on the call to the end of a further attempt."""
        intent.sending = self._state.clock.monotonic()
        self._state.deadlines.reset(intent.watch, self._end_of_attempt(intent.deadline, intent.sending))

    def _sign(self, intent: Intent[B, R]) -> None:
        """Give *intent* the token of the client, or ``None`` if one has to be waited for."""
        try:
            intent.token = self._checked(self._settings.auth.token(self._state.clock.now()))
        except Exception as error:  # noqa: BLE001 - another's source of tokens must not hide that an attempt is in doubt
            raise self._failed(intent, _no_token(error)) from None

    def _checked(self, token: str | None) -> str | None:
        """Return *token* if it can stand in a header; the one that was looked at last is not looked at again.

        Raises:
            RequestInvalid: It cannot.
        """
        if token is not None and token is not self._last_token:
            check_token(token)
            self._last_token = token
        return token

    async def _wait_for_token(self, intent: Intent[B, R]) -> None:
        """Give *intent* its first token, or ``None`` if the client has no way to get one."""
        failure = await self._renew(intent)
        if failure is None:
            return
        if failure.timed_out and self._state.clock.monotonic() < intent.deadline:
            # It took longer than an attempt may. If it was early, the live token will do.
            self._arm_again(intent)
            self._sign(intent)
            if intent.token is not None:
                return
        raise self._failed(intent, failure)

    async def _replace_token(self, intent: Intent[B, R], refusal: AttemptFailed) -> None:
        """Give *intent* another token than the one that was refused; where there can be none, *refusal* stands."""
        intent.history.renewed = True
        self._report(intent, refusal)
        failure = await self._renew(intent)
        if failure is None and intent.token is not None:
            return
        if failure is not None and not isinstance(failure.cause, RequestInvalid):
            raise self._failed(intent, failure)
        if failure is not None and refusal.error is not None:
            report.renewal_failed(intent, failure.reason)
            refusal.error.add_note(f"the token could not be renewed: {failure.reason}")
        raise refusal

    async def _renew(self, intent: Intent[B, R]) -> AttemptFailed | None:
        """Give *intent* another token (``None`` if the client has no way to get one), or return why that failed."""
        auth = self._settings.auth
        if isinstance(auth, RefreshingToken):
            self._state.renewing.add(auth)
        try:
            intent.token = self._checked(
                await auth.renew(masked(intent.token), self._exchange, self._state.clock.now())
            )
            if intent.watch.expired or intent.watch.cancelled_by_others():
                raise asyncio.CancelledError  # noqa: TRY301 - the source of tokens has swallowed it
        except (asyncio.CancelledError, Exception) as error:
            # The source of tokens may have made our cancellation an error of its own.
            if not intent.watch.uncancel():
                if isinstance(error, asyncio.CancelledError):
                    raise
                return _no_token(error)
            reason = _ran_out(intent, self._settings.timeout) + " while the token was renewed"
            # Of a request that was refused, "not sent" would be wrong.
            cause = RefreshFailed(reason) if intent.history.renewed else None
            return AttemptFailed(Failure.NOT_SENT, reason, cause=cause, timed_out=True, permanent=True, begun=False)
        intent.sending = self._state.clock.monotonic()  # The attempt has what is left of its time.
        return None

    def _request(self, intent: Intent[B, R]) -> Request:
        headers = Headers(self._headers)
        if intent.token is not None:
            headers["Authorization"] = "Bearer " + intent.token
        if intent.content:
            headers["Content-Type"] = "application/json"
        if intent.key is not None:
            headers["X-Idempotency-Key"] = intent.key
        if intent.headers is not None:
            headers = Headers(merged(headers, intent.headers))
        operation = intent.operation
        left = intent.watch.when - intent.sending
        connect = self._settings.timeout.connect
        if connect is None or connect >= left:
            # The wait for a connection has to end first: what is cut off after it may have been sent.
            connect = 0.9 * left
        return Request(
            method=operation.method,
            url=intent.url,
            headers=headers,
            body=intent.content,
            timeout=left,
            connect_timeout=connect,
            fresh=operation.wants_fresh_connection or intent.fresh,
            max_response=operation.max_response,
            operation=operation.name,
            attempt=intent.history.attempts,
            account=self._settings.account,
        )

    def _unanswered(self, intent: Intent[B, R], error: BaseException) -> AttemptFailed | None:
        """Find out what it means that no answer came; ``None`` if *error* has nothing to do with the request."""
        expired = intent.watch.uncancel()
        match error:
            case SendFailed():
                kind = Failure.NO_TRUSTED_RESPONSE if error.sent else Failure.NOT_SENT
                # The transport may have made our cancellation a failure of its own.
                return AttemptFailed(kind, error.reason, permanent=error.permanent, timed_out=expired)
            case asyncio.CancelledError() if expired:
                reason = _ran_out(intent, self._settings.timeout)
                return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, timed_out=True)
            case ClientClosed():
                return _not_sent(error)
            case TypeError() | AttributeError() if error.__traceback__ and error.__traceback__.tb_next is None:
                # It was raised by the wait itself, or by what came of it, and would be again: sent once is enough.
                whose = type(self._state.transport).__name__
                reason = f"{whose}.send must be async, take a Request, and return a Response"
                return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, permanent=True)
            case Exception():
                reason = f"the transport raised {describe(error)}"
                return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, timed_out=expired)
            case _:
                why = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
                cut_off = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, why)
                intent.history.record(cut_off)
                self._report(intent, cut_off)
                return None

    async def _accept(self, intent: Intent[B, R], response: Response) -> Result[R]:
        """Turn a 2xx into a result, if it is one that can be trusted."""
        operation = intent.operation
        strict = self._settings.strict and operation.retry not in _GOOD_ONCE
        try:
            value, anomalies = await self._decode(intent, response.body)
            compared = _compare(intent, response, value, anomalies)
            if compared.added:
                compared = self._compare_added(intent, compared)
            why = compared.mismatch
            if compared.anomalies:
                anomalies += compared.anomalies
            if response.status != operation.status and response.status not in operation.other_statuses:
                reason = f"the contract has {operation.status} for a success"
                anomalies += (Anomaly("$status", response.status, reason),)
        except Undecodable as error:
            failure = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, f"HTTP {response.status}, but {error}")
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the caller the key of what was done
            reason = f"HTTP {response.status}, but reading it raised {describe(error)}"
            failure = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason)
        else:
            if anomalies:
                report.anomalies_found(operation.name, anomalies)
                if strict:
                    why = f"the answer breaks the contract at {anomalies[0].path}: {anomalies[0].reason}"
            if why is None:
                if compared.listed and intent.key is not None:
                    self._state.additions.tell(intent.url, compared.listed, intent.key)
                return self._result(intent, response, value, anomalies)
            # With `strict`, the next answer would break the contract in the same way.
            failure = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, why, permanent=bool(anomalies) and strict)
        failure.response = response
        intent.fresh = True
        self._state.discard(response)
        raise self._failed(intent, failure)

    async def _decode(self, intent: Intent[B, R], body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Decode *body*; between the slices of a large page, other tasks have a turn."""
        decoder = intent.operation.decoder
        if len(body) < LARGE or intent.operation.writes:
            return decoder.decode(body)
        self._state.deadlines.reset(intent.watch, inf)  # The answer is here: what is left cannot hang.
        steps = decoder.steps(body)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as done:
            return cast("tuple[R, tuple[Anomaly, ...]]", done.value)

    def _compare_added(self, intent: Intent[B, R], compared: Comparison) -> Comparison:
        """Doubt a response that adds only what another call was told of: it may be a copy of that call's response.

        If the platform says the same again, on a fresh connection, it is believed, and the doubt goes with it.
        """
        key = intent.key or ""
        owner = self._state.additions.told(intent.url, compared.added, key)
        if owner is None:
            return compared
        what = f"{', '.join(compared.added)} was also in the response to the call with idempotency_key={owner!r}"
        if not set(compared.added) & set(intent.disputed):
            intent.disputed = compared.added
            return Comparison(mismatch=f"the response is about another call: {what}")
        found = Anomaly("$", list(compared.added), f"{what}; this call has idempotency_key={key!r}")
        return structs.replace(compared, anomalies=(*compared.anomalies, found))

    def _result(self, intent: Intent[B, R], response: Response, value: R, anomalies: tuple[Anomaly, ...]) -> Result[R]:
        elapsed = self._elapsed(intent)
        observer = self._settings.observer
        if observer is not None or report.logs_successes():  # Asked here as well: nearly always nobody listens.
            report.attempt_ended(intent, observer, self._elapsed_of_attempt(intent), response)
        return Result(
            value=value,
            status=response.status,
            headers=response.headers,
            attempts=intent.history.attempts,
            elapsed=elapsed,
            anomalies=anomalies,
            raw=response.body,
            idempotency_key=intent.key,
        )

    def _refused(self, intent: Intent[B, R], response: Response) -> AttemptFailed:
        try:
            error = parse_error_response(intent.operation, response, _secrets(intent))
        except Exception as defect:  # noqa: BLE001 - a transport of one's own may return a body that is no bytes
            reason = f"HTTP {response.status}, but reading it raised {describe(defect)}"
            return AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason)
        if intent.operation.writes and not intent.operation.documents(error.status, error.code):
            # An error response names no request: one that the contract does not know may be the response to another.
            self._state.discard(response)
        operation, kind = intent.operation, classify_status(response.status, error.code)
        random_key = not intent.history.caller_supplied_key
        settled = operation.writes and settles(operation.errors, response.status, error.codes, random_key=random_key)
        in_progress = operation.keyed and not settled and is_in_progress(kind, error.codes)
        return AttemptFailed(kind, str(error), error=error, response=response, settled=settled, in_progress=in_progress)

    def _failed(self, intent: Intent[B, R], failure: AttemptFailed) -> AttemptFailed:
        """Take *failure* into account, and give the call its whole deadline back for what comes next."""
        if failure.kind is not Failure.NOT_SENT:
            intent.history.sent(intent.sending, intent.sending_wall)
        intent.history.record(failure)
        self._state.deadlines.reset(intent.watch, intent.deadline)
        self._report(intent, failure)
        return failure

    def _report(self, intent: Intent[B, R], failure: AttemptFailed) -> None:
        report.attempt_ended(
            intent, self._settings.observer, self._elapsed_of_attempt(intent), failure.response, failure
        )

    def _elapsed(self, intent: Intent[B, R]) -> float:
        return self._state.clock.monotonic() - intent.started

    def _elapsed_of_attempt(self, intent: Intent[B, R]) -> float:
        return self._state.clock.monotonic() - intent.sending

    # --- after a failure -----------------------------------------------------------------------------------------

    async def _try_again(self, intent: Intent[B, R], first: AttemptFailed) -> Result[R]:
        return await retry(
            partial(self._attempt, intent),
            first,
            rule=intent.operation.retry,
            policy=self._settings.retry,
            budgets=self._state.budgets,
            seller=self._settings.seller,
            history=intent.history,
            clock=self._state.clock,
            sleep=self._state.pause,
            deadline=intent.deadline,
        )

    async def _log_cancelled(self, intent: Intent[B, R], cancelled: asyncio.CancelledError) -> None:
        """Tell of a cancelled write that is in doubt, with its key, and wait one turn for anyio to cancel once more.

        A cancel scope of anyio cancels at every wait, and knows its own cancellation by the message of the error. That
        message may be lost by now: a transport may raise an error of its own for a cancellation, or swallow it, or our
        deadline may have come first. What the scope raises in this turn has the message.

        Raises:
            asyncio.CancelledError: Such a one, in place of *cancelled*.
        """
        self._state.deadlines.remove(intent.watch)
        operation, note = intent.operation, None
        if operation.writes and intent.history.ambiguous_attempts:
            # Before the wait: a loop that is being stopped may have no further turn.
            report.outcome_unknown(intent, "cancelled after it was sent", self._elapsed(intent))
            note = f"{operation.name} was sent, with idempotency_key={intent.key!r}"
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as again:
            cancelled = again
            raise again from None
        finally:
            if note is not None:
                cancelled.add_note(note)
            del cancelled  # It would hold itself, by its traceback and this frame, and all of the call with it.

    def _outcome(self, intent: Intent[B, R], last: AttemptFailed) -> PaymentsError:
        """Return the one error that tells the truth about the call."""
        history = intent.history
        # Whatever it was raised from, its traceback begins here: the frames below hold credentials.
        error = _final_error(intent.operation, last, history).with_traceback(None)
        error.operation = intent.operation.name
        error.attempts = history.attempts
        error.idempotency_key = intent.key
        if last.response is not None:
            error.request_id = header(last.response.headers, "X-Request-Id")
        if isinstance(error, NoAnswer):
            error.first_reason = history.first_ambiguity or last.reason
            error.last_error = last.error if last.error is not None else last.cause
            if history.first_sent is not None:
                _, wall = history.first_sent
                error.first_sent_at = datetime.fromtimestamp(wall, UTC)
        if isinstance(error, OutcomeUnknown):
            error.in_doubt = intent.operation.in_doubt
            report.outcome_unknown(intent, last.reason, self._elapsed(intent))
        return error


def _secrets(intent: Intent[B, R]) -> list[str]:
    """Return the credentials that the request was sent with."""
    body = secrets_in(intent.body) if can_hold_secrets(type(intent.body)) else ()
    return [*body, *([intent.token] if intent.token else ())]


def _masked(intent: Intent[B, R], response: Response) -> Response:
    """Return *response* with no credential in its request id, which goes to logs, errors and metrics."""
    echoed = header(response.headers, "X-Request-Id")
    if echoed is None:
        return response
    secrets = _secrets(intent)
    if not any(secret in echoed for secret in secrets):
        return response
    masked = scrub(echoed.encode(), secrets).decode()
    rest = {name: value for name, value in response.headers.items() if name.lower() != "x-request-id"}
    return structs.replace(response, headers=Headers({**rest, "X-Request-Id": masked}))


def _final_error(operation: Operation[B, R], last: AttemptFailed, history: History) -> PaymentsError:
    """Return what a caller has to know. See the three outcomes in :mod:`paymentsdk.errors`."""
    doubtful = history.ambiguous_attempts > 0 and not last.settled
    # It is no refusal: whoever sent the caller elsewhere may have acted on the request before.
    redirected = last.error is not None and last.error.status < 400  # noqa: PLR2004
    if operation.writes and (doubtful or redirected):
        return OutcomeUnknown(_reason(last))
    if last.error is not None:
        last.error.settled = operation.writes and (last.settled or not history.caller_supplied_key)
        return last.error
    # No other refusal of a renewal: a caller would take it for what the platform says of the request.
    if isinstance(last.cause, ReauthorizationRequired):
        last.cause.settled = operation.writes and not history.caller_supplied_key
    if isinstance(last.cause, RequestInvalid | ReauthorizationRequired | RefreshFailed | ClientClosed):
        return last.cause
    # Of a read; "not sent" would be wrong if an earlier attempt was.
    return (
        NotSent(last.reason)
        if last.kind is Failure.NOT_SENT and not history.ambiguous_attempts
        else NoAnswer(last.reason)
    )


def _reason(last: AttemptFailed) -> str:
    """Say why a write stays in doubt; for a 4xx in a form that a program can read."""
    error = last.error
    if error is None or error.status < 400 or last.kind is Failure.SERVER:  # noqa: PLR2004
        return last.reason
    return f"platform_error:{visible(error.code or str(error.status))}"


def _compare(intent: Intent[B, R], response: Response, value: R, anomalies: tuple[Anomaly, ...]) -> Comparison:
    """Say whether *value* can be the response to this request, and what tells it."""
    operation = intent.operation
    identity = operation.identity
    if identity is None:
        return _MATCH if operation.page is None else Comparison(mismatch=_page_mismatch(intent, value, anomalies))
    compared = identity.compare(intent.body, intent.path, value)
    if compared.mismatch is not None or not operation.writes:
        return compared
    return identity.verify(compared, value, response.body, anomalies)


def _page_mismatch(intent: Intent[B, R], value: R, anomalies: tuple[Anomaly, ...]) -> str | None:
    """Say why *value* cannot be the page that was asked for, or ``None``."""
    page = intent.operation.page
    if page is None:
        return None
    asked = intent.offset if isinstance(intent.offset, int) else 0
    shown = page.read(value)
    if shown.items is None:
        # An offset that does not grow says that there are no more rows.
        if shown.total is None and (shown.next_offset is None or shown.next_offset > asked):
            return "the answer is not a page: it has neither rows nor a total"
        # To a walk, a page without rows would be the end.
        if _is_dropped(anomalies, page.places(value)):
            return "the answer is not a page: its rows cannot be read"
    return None if shown.offset in (None, asked) else f"the answer is the page at offset {shown.offset}"


def _is_dropped(anomalies: tuple[Anomaly, ...], places: tuple[str, ...]) -> bool:
    """Whether what stood at one of *places*, or around it, could not be read."""
    dropped = tuple(f"{anomaly.path}." for anomaly in anomalies if anomaly.dropped)
    return any(f"{place}.".startswith(dropped) for place in places)


def _not_sent(error: ClientClosed, *, begun: bool = True) -> AttemptFailed:
    return AttemptFailed(Failure.NOT_SENT, str(error), cause=error, permanent=True, begun=begun)


def _no_token(error: Exception) -> AttemptFailed:
    reason = describe(error)
    cause = error.with_traceback(None) if isinstance(error, PaymentsError) else None
    if not isinstance(cause, RequestInvalid | ReauthorizationRequired | RefreshFailed | ClientClosed):
        cause = RefreshFailed(reason, cause)
    return AttemptFailed(Failure.NOT_SENT, f"no token: {reason}", cause=cause, permanent=True, begun=False)


def _ran_out(intent: Intent[B, R], timeout: Timeout) -> str:
    """Say which bound it was that ended the wait."""
    which = "attempt" if intent.watch.when < intent.deadline else "total"
    return f"the time ran out (timeout.{which}={getattr(timeout, which):g} s)"


def _content(operation: Operation[B, R], body: B | None, limits: Limits) -> bytes:
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
