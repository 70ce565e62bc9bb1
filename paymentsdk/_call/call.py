"""The whole life of a call, in order. Read `Call.run` first: every method below is a step of it.

    engine.py               do all of this and the first attempt inline, if nothing prevents it; or else:
    intent.py               check what the caller passes, choose the key, encode the body
    for each attempt:
        credential.py       take the token, or wait for one (`_auth/refresh.py`)
        flow.py             wait for a permit, if the seller is at a limit
        transports/         send
    response.py             check that it is the response to this request and follows the contract
    after a failure:
        verdicts.py         say what it means, whether the call may be retried, and which error is true in the end
        retry.py            say when to retry, and take the cost from a budget

The events for observers are in events.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from msgspec import field, structs

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._call import events, verdicts
from paymentsdk._call.credential import Credential
from paymentsdk._call.deadline import Deadline, Expired, cancelled_again, connect_timeout
from paymentsdk._call.limiter import NO_PERMIT, Permit
from paymentsdk._call.response import Result, read_response
from paymentsdk._call.retry import Retries
from paymentsdk._call.verdicts import Failed, History, Rejected, Stopped, Unanswered, Unsent, not_attempted
from paymentsdk._codec.decode import LARGE
from paymentsdk._contract.rules import KEY_LIFETIME, SINGLE_USE, Failure, Verdict, classify_status
from paymentsdk.errors import OutcomeUnknown, PaymentsError, describe
from paymentsdk.transports.base import Request, Response

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Signer
    from paymentsdk._call.flow import Flow
    from paymentsdk._call.limiter import Service

B = TypeVar("B")
R = TypeVar("R")

_OK, _REDIRECTION = 200, 300
#: What a failure with a response means for the seller's limiter; every other failure counts as served.
_SERVICE: Mapping[Failure, Service] = {Failure.RATE_LIMITED: "limited", Failure.SERVER: "failed"}


class Gate(Protocol):
    """Decides before each attempt whether it may be sent: the journal does, for a call with a name."""

    in_doubt: bool
    """Whether an earlier call may have sent the request."""

    async def why_not(self, call: Call[Any, Any]) -> str | None:
        """Return why *call* may not begin another attempt, or ``None``; set its `send_within`."""
        ...


class Call(events.ObservedCall[B, R], eq=False, kw_only=True):
    """One run of an intent: its deadline, its credential, and the outcomes of its attempts so far."""

    credential: Credential
    gate: Gate | None = None
    history: History = field(default_factory=History)
    """The failures so far."""
    deadline: Deadline = cast("Deadline", None)
    """Set by `run`, or by the inline attempt."""
    sent_at: float = 0.0
    """When the current attempt was sent, in seconds since the epoch."""
    send_within: float = inf
    """Seconds in which the first byte of the attempt must be sent. After them, its key or its record is too old."""
    fresh: bool = False
    """Whether to use a fresh connection: an earlier one has delivered a response to another request."""
    last: Failed | None = None
    """The latest failure that was reported to the observers and the log."""
    last_response: Response | None = None
    """The response that ended a call behind a gate, if the call failed with a response."""
    first: Awaitable[Response] | None = None
    """Returns the response to the inline attempt or raises its error. `None` without an inline attempt."""

    async def run(self) -> Result[R]:
        """Make the attempts, and return their result or raise the one true error.

        Raises:
            PaymentsError: The error of `final_error`.
        """
        state = self.state
        if self.first is None:
            self.deadline = state.deadlines.add(self.settings.timeout, state.clock.monotonic())
        try:
            outcome = await self._attempt()
            if isinstance(outcome, Failed):
                outcome = await self._retry(outcome)
            elif state.budgets.remaining:  # Usually empty: only budgets that are not full are kept.
                state.budgets.deposit(self.seller_key, self.operation.retry)
        except asyncio.CancelledError as cancelled:
            state.deadlines.remove(self.deadline)
            await cancelled_again(cancelled, self._warn_of_doubt())
            raise
        except BaseException as error:  # The program ends, its event loop is gone, or this is a bug.
            if (note := self._warn_of_doubt()) is not None:
                error.add_note(note)
            raise
        finally:
            state.deadlines.remove(self.deadline)
        if not isinstance(outcome, Failed):
            return outcome
        try:
            raise self._final_error(outcome)
        finally:
            del outcome, self.deadline  # Breaks a reference cycle through the traceback (CONTRIBUTING: cycles).

    # --- for each attempt ----------------------------------------------------------------------------------------

    async def _attempt(self) -> Result[R] | Failed:
        """Make one attempt and record its failure. Until the next attempt only the call's total deadline applies."""
        state, operation, credential, deadline = self.state, self.operation, self.credential, self.deadline
        try:
            needs_token = self.first is None and operation.authenticated and credential.signer is None
            if needs_token and not credential.use_token(state.clock.now()):
                await self._renewed(credential.obtain(state, deadline))
            outcome = await self._send()
            if isinstance(outcome, Rejected) and credential.can_refresh and self._step(outcome) is Verdict.REFRESH:
                self._record(outcome)
                await self._renewed(credential.replace(outcome, operation.name, state, deadline))
                outcome = await self._send()
        except Stopped as stopped:
            outcome = stopped.outcome
        if isinstance(outcome, Failed):
            self._record(outcome)
            state.deadlines.reset(deadline, deadline.total)
        return outcome

    async def _renewed(self, token: Awaitable[None]) -> None:
        """Wait for another *token*, and tell the observers if the seller must authorize again."""
        auth = self.settings.auth
        if isinstance(auth, RefreshingToken):
            self.state.refreshing.add(auth)
        try:
            await token
        finally:
            events.notify_if_token_revoked(self)

    async def _next_attempt(self) -> Result[R] | Failed:
        """Make a further attempt with its own time limit. The pause before it has raised a swallowed cancellation."""
        self.state.deadlines.restart(self.deadline)
        return await self._attempt()

    async def _send(self) -> Result[R] | Failed:
        """Wait for a permit, sign, send, and judge the response."""
        state, body = self.state, self.intent.body
        flow = state.flow
        first, self.first = self.first, None
        permit, request = Permit(self.seller_key, self.started), None
        if first is None:
            permit, request = await self._permitted_request(flow)
        try:
            work = first or state.transport.send(cast("Request", request))
            response = await self.deadline.bound(work, may_be_late=True)
            # Inside the `try`: a user's transport may return something that is not a Response.
            accepted = _OK <= response.status < _REDIRECTION
            response = self.credential.mask_request_id(response, body)
        except BaseException as error:
            flow.release(permit)
            if (outcome := self._judge_error(error)) is None:
                raise
            return outcome
        if state.observe is not None:
            state.observe(response.headers)
        if accepted:
            flow.release(permit, "served")
            return await self._accept(response)
        outcome = self._judge_response(response)
        # If the error body is unreadable, the status code alone decides.
        kind = outcome.kind if isinstance(outcome, Rejected) else classify_status(response.status)
        flow.release(permit, _SERVICE.get(kind, "served"), outcome.retry_after)
        return outcome

    async def _permitted_request(self, flow: Flow) -> tuple[Permit, Request]:
        """Wait for a permit, and return the signed request of the attempt that uses it."""
        operation, credential = self.operation, self.credential
        # Token requests need no permit: calls that wait for the token may hold them all.
        permit = flow.try_acquire(self.seller_key) if operation.authenticated else NO_PERMIT
        permit = permit or await self._wait_for_permit(flow)
        try:
            if self.history.first_sent is not None or self.gate is not None or self.state.closed:
                await self._ensure_may_send()
            # Not after a failure: the machine may be suspended while it waits for the response.
            self.count_attempt(permit.waited)
            self.sent_at = self.state.clock.now()
            left = self.deadline.when - self.sending
            added = events.added_headers(self) if self.settings.observers else None
            within = connect_timeout(self.settings.timeout, min(left, self.send_within))
            request = self.intent.request(
                self.settings, credential.token, added, left, within, fresh=self.fresh, attempt=self.attempts
            )
            if credential.signer is not None and operation.authenticated:
                request = await self._signed(request, credential.signer)
        except BaseException:
            flow.release(permit)
            raise
        return permit, request

    async def _wait_for_permit(self, flow: Flow) -> Permit:
        """Wait until the seller's limits allow one request. The attempt's time limit begins after that.

        Raises:
            Stopped: The call got no permit. The outcome says why.
        """
        state, deadline = self.state, self.deadline
        since = state.clock.monotonic()
        state.deadlines.reset(deadline, min(since + flow.max_wait, deadline.total))
        acquired = flow.acquire(self.seller_key, self.settings.priority, deadline.total - since)
        try:
            permit = await deadline.bound(acquired, lambda late: flow.release(late or NO_PERMIT))
        except Expired as expired:
            if deadline.when < deadline.total:
                raise not_attempted(f"it waited for its turn for {flow.max_wait:g} s (flow.max_wait)") from None
            raise not_attempted(f"{expired} while it waited for its turn") from None
        except Exception as error:
            # A user's share may raise anything, which must not hide that an attempt is in doubt.
            raise not_attempted(f"waiting for its turn raised {describe(error)}") from error
        finally:
            self.count_wait(since)
        if permit is None and flow.closed:
            raise verdicts.client_closed()
        if permit is None:
            raise not_attempted("its slot in the rate of flow.share comes too late")
        state.deadlines.restart(deadline)
        return permit

    async def _ensure_may_send(self) -> None:
        """Raise if the client is closed, the platform may have forgotten the key, or the journal forbids sending."""
        if self.state.closed:
            raise verdicts.client_closed()
        if self.intent.key is not None and self.history.first_sent is not None:
            self.send_within = self.history.key_lasts(self.state.clock)
            if self.send_within <= 0:  # The machine may have been suspended during a pause or a refresh.
                raise not_attempted(f"it was first sent {KEY_LIFETIME / 3600:g} hours ago")
        if self.gate is not None and (reason := await self.gate.why_not(self)) is not None:
            raise not_attempted(reason)

    async def _signed(self, request: Request, signer: Signer) -> Request:
        """Return *request* with its signature. Signing is a step of the attempt."""
        try:
            signed = await self.credential.sign(request, signer, self.deadline, self.sent_at, self.operation.key_header)
            await self._ensure_may_send()  # Signing may have taken long.
        except Stopped as stopped:
            stopped.outcome = structs.replace(stopped.outcome, attempted=True)  # Observers know of it already.
            raise
        except BaseException as error:
            self._record(Unsent(reason=verdicts.interrupted(error)))
            raise
        left = self.deadline.when - self.state.clock.monotonic()
        within = connect_timeout(self.settings.timeout, min(left, self.send_within))
        return structs.replace(signed, timeout=left, connect_timeout=within)

    # --- the response --------------------------------------------------------------------------------------------

    async def _accept(self, response: Response) -> Result[R] | Failed:
        """Return the result of a 2xx response, if the response can be trusted."""
        strict = self.settings.strict and self.operation.retry not in SINGLE_USE
        if not self.operation.writes and len(response.body) >= LARGE:  # It may be repaired in a thread.
            self.state.deadlines.reset(self.deadline, inf)  # The whole response is here, so decoding it cannot hang.
        try:
            value, anomalies, mismatch = await read_response(self.intent, response, strict=strict)
        except asyncio.CancelledError as error:
            events.report(self, response, Unanswered(reason=verdicts.interrupted(error)))
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the caller the key of a write
            failure = verdicts.not_decoded(response, error)
        else:
            if anomalies:
                events.anomalies_found(self.operation.name, anomalies)
            if mismatch is None:
                if self.settings.observers or events.logger.isEnabledFor(DEBUG):  # Usually there is no observer.
                    events.report(self, response)
                return Result(
                    value=value,
                    status=response.status,
                    headers=response.headers,
                    attempts=self.attempts,
                    elapsed=self.state.clock.monotonic() - self.started,
                    anomalies=anomalies,
                    raw=response.body,
                    idempotency_key=self.intent.key,
                )
            # With `strict`, the next response would break the contract the same way.
            failure = Unanswered(reason=mismatch, response=response, permanent=bool(anomalies) and strict)
        self.fresh = True
        self.state.discard(response)
        return failure

    # --- after a failure -----------------------------------------------------------------------------------------

    def _judge_error(self, error: BaseException) -> Failed | None:
        """Return what a missing response means; `None` if *error* has nothing to do with the request."""
        ran_out = str(error) if isinstance(error, Expired) else None
        cause = error.__cause__ if isinstance(error, Expired) and error.__cause__ is not None else error
        outcome = verdicts.no_response(cause, ran_out, cancelled=self.deadline.task.cancelling() > 0)
        if outcome is None:
            self._record(verdicts.cut_off(error))
        return outcome

    def _judge_response(self, response: Response) -> Rejected | Unanswered:
        """Return what a response outside 2xx means."""
        operation, secrets = self.operation, self.credential.secrets(self.intent.body)
        random_key = not self.intent.has_own_key and self.gate is None  # A record derives its key.
        outcome = verdicts.error_response(operation, response, secrets, random_key=random_key)
        if isinstance(outcome, Rejected) and operation.writes:
            error = outcome.error
            if not operation.documents(error.status, error.code):
                # An error body names no request, so an undocumented error may be the response to another request.
                self.state.discard(response)
        return outcome

    def _record(self, failure: Failed) -> None:
        """Add *failure* to the history, and report it once to the observers and the log."""
        if failure is not self.last:
            self.last = failure
            self.history.record(failure, self.sending, self.sent_at)
            events.report(self, failure.response, failure)

    def _step(self, failure: Failed) -> Verdict:
        return verdicts.next_step(self.operation.retry, failure, self.history, self.settings.retry)

    async def _retry(self, first: Failed) -> Result[R] | Failed:
        """Go on after the *first* failure, until an attempt succeeds or no further attempt is allowed."""
        state, deadline, policy = self.state, self.deadline, self.settings.retry
        if self.gate is not None and policy.retry_unkeyed:
            policy = structs.replace(policy, retry_unkeyed=False)  # A record without a key is never sent twice.
        retries: Retries[Result[R]] = Retries(
            self.operation.retry, policy, state.budgets, self.seller_key, self.history, state.clock, deadline.total
        )
        try:
            return await retries.run(first, self._next_attempt, lambda pause: deadline.bound(state.flow.pause(pause)))
        except Expired as expired:
            return Unsent(reason=str(expired))

    def _warn_of_doubt(self) -> str | None:
        """Warn that a write was cut off in doubt, before any wait: a stopping loop may not run this task again."""
        if not (self.operation.writes and self.history.ambiguous_attempts):
            return None
        events.warn_outcome_unknown(self, "cancelled when it may have been sent")
        return f"{self.operation.name} may have been sent, with idempotency_key={self.intent.key!r}"

    def _final_error(self, last: Failed) -> PaymentsError:
        """Return the one true error of the call."""
        own_key, journaled = self.intent.has_own_key, self.gate is not None and self.attempts > 0
        error = verdicts.final_error(self.operation, last, self.history, own_key=own_key, journaled=journaled)
        error.attempts, error.idempotency_key = self.attempts, self.intent.key
        # Breaks a reference cycle through the traceback (CONTRIBUTING: cycles). A journal needs the response.
        self.last, self.last_response = None, None if self.gate is None else last.response
        if isinstance(error, OutcomeUnknown):
            events.warn_outcome_unknown(self, last.reason)
        return error
