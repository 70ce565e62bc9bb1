"""The whole life of a call, top to bottom. Read `Call.run` first; every method below is a step of it.

    intent.py               check what the caller gives, choose the key, encode the body
    plan.py                 or all of this and the first attempt at once, where nothing stands in its way
    for each attempt:
        credential.py       take the token, or wait until there is one (`_auth/refresh.py`)
        flow.py             wait for a permit, if the seller is at a limit
        transports/         send
    response.py             is it the response to this request, and as the contract says?
    after a failure:
        failures.py         what it means; and, if it was the last one, which error is true
        retry.py            may the call be tried again, and when? (`_contract/rules.py` has the table)

What an observer is told on the way is in events.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import UNSET, UnsetType, structs

from paymentsdk._auth.refresh import RefreshingToken
from paymentsdk._call import events, failures
from paymentsdk._call.deadline import cancelled_again, connect_timeout
from paymentsdk._call.failures import AttemptFailed, History
from paymentsdk._call.limiter import NO_PERMIT, Permit
from paymentsdk._call.response import Result, check_response
from paymentsdk._call.retry import Retries, key_lasts, should_refresh_token
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import LARGE
from paymentsdk._contract.rules import KEY_LIFETIME, SINGLE_USE, Failure, classify_status
from paymentsdk._headers import Headers, merge
from paymentsdk._secrets import HiddenRepr
from paymentsdk.errors import ClientClosed, OutcomeUnknown, PaymentsError, RequestInvalid, describe
from paymentsdk.events import Throttled
from paymentsdk.transports.base import Request, Response

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Signer
    from paymentsdk._call.credential import Credential
    from paymentsdk._call.deadline import Deadline
    from paymentsdk._call.flow import Flow
    from paymentsdk._call.intent import Intent
    from paymentsdk._call.limiter import Service
    from paymentsdk._call.runtime import Runtime
    from paymentsdk._call.settings import Settings
    from paymentsdk._contract.operation import Operation
    from paymentsdk.journal._call import MaySend

B = TypeVar("B")
R = TypeVar("R")

_OK, _REDIRECTION = 200, 300
#: What a failure with a response means for its seller; any other was served.
_SERVICE: Mapping[Failure, Service] = {Failure.RATE_LIMITED: "limited", Failure.SERVER: "failed"}


class Call(HiddenRepr, Generic[B, R]):
    """One run of an intent: its deadline, its credential, and what its attempts have come to so far."""

    def __init__(
        self,
        state: Runtime,
        settings: Settings,
        seller_key: Hashable,
        credential: Credential,
        *,
        intent: Intent[B, R],
        started: float,
    ) -> None:
        self.state = state
        self.settings = settings
        #: Whose budgets and permits it takes.
        self.seller_key = seller_key
        self.credential = credential
        self.intent = intent
        self.operation: Operation[B, R] = intent.operation
        #: When the call began, on the monotonic clock.
        self.started = started
        #: Begun by `run`, or by the inline attempt.
        self.deadline: Deadline
        #: When the attempt under way began, on the monotonic clock.
        self.sending = started
        #: When the attempt under way was sent, in seconds since the epoch.
        self.sent_at = 0.0
        #: What the failures have shown; `None` for most calls.
        self.history: History | None = None
        if intent.first_sent_at is not None:
            self.history = History.of_earlier_call(intent.first_sent_at, state.clock)
        #: The journal: asked before each attempt, with its seconds; says why there may be none.
        self.may_send: MaySend | None = None
        #: Seconds in which the first byte of the attempt has to be sent: then its key, or its record, is too old.
        self.send_within = inf
        #: The number of the call, if it is observed: unique in the process.
        self.number = 0
        #: How many requests were sent or tried.
        self.attempts = 0
        #: Seconds that the attempt under way, and those before it, have waited for a permit.
        self.queued, self.queued_before = 0.0, 0.0
        #: Send on a fresh connection: an earlier one has brought a response to another request.
        self.fresh = False
        #: The response that ended the call, if it failed with one.
        self.last_response: Response | None = None
        #: How the inline attempt ended, if one was made.
        self.first: Response | BaseException | UnsetType = UNSET

    async def run(self) -> Result[R]:
        """Make the attempts, and return what came of them or raise the one error that tells the truth."""
        state = self.state
        if self.first is UNSET:
            self.sending = state.clock.monotonic()
            self.deadline = state.deadlines.add(self.settings.timeout, self.sending)
        try:
            try:
                result = await self._attempt()
            except AttemptFailed as failure:
                return await self._retry(self._note(failure))
            if state.budgets.remaining:  # Nearly always all of them are full, and none is kept.
                state.budgets.deposit(self.seller_key, self.operation.retry)
        except AttemptFailed as last:
            outcome = self._outcome(last.with_traceback(None))
        except asyncio.CancelledError as cancelled:
            if not self.deadline.uncancel():
                state.deadlines.remove(self.deadline)
                await cancelled_again(cancelled, self._warn_of_doubt())
                raise
            outcome = self._outcome(AttemptFailed(Failure.NOT_SENT, self.deadline.ran_out))
        except BaseException as error:  # The program ends, or its event loop is gone, or there is a defect.
            if (note := self._warn_of_doubt()) is not None:
                error.add_note(note)
            raise
        else:
            return result
        finally:
            state.deadlines.remove(self.deadline)
        # Outside the handlers, so that no traceback drags the failed attempts along, with their frames and responses.
        try:
            raise outcome
        finally:
            del outcome, self.deadline  # By its traceback, the error would hold itself, and the task that it ends.

    # --- for each attempt ----------------------------------------------------------------------------------------

    async def _attempt(self) -> Result[R]:
        """Get a permit, sign, send, judge the response; once more with a refreshed token if the first is rejected."""
        state, operation, credential = self.state, self.operation, self.credential
        is_bearer = operation.authenticated and credential.signer is None
        if self.first is UNSET and is_bearer and not credential.use_token(state.clock.now()):
            await self._wait_for_token()
        while True:
            flow = state.flow
            permit, request = Permit(self.seller_key, self.started), None
            if self.first is UNSET:
                permit, request = await self._permitted_request(flow)
            try:
                response = self._first_response() if request is None else await state.transport.send(request)
                # In here, since a transport of one's own may return something that is no Response.
                accepted = _OK <= response.status < _REDIRECTION
                response = credential.mask_request_id(response, self.intent.body)
            except BaseException as error:
                flow.release(permit)
                failure = self._classify_error(error)
                if failure is None:
                    raise
            else:
                state.observe_platform_time(response)
                if self.deadline.expired:
                    self.deadline.uncancel()  # The response came at the moment that our deadline cancelled the wait.
                if accepted:
                    flow.release(permit, "served")
                    return await self._accept(response)
                failure = self._classify_response(response)
                # One that nobody can read means what its status says.
                kind = failure.kind if failure.error is not None else classify_status(response.status)
                flow.release(permit, _SERVICE.get(kind, "served"), failure.retry_after)
                can_refresh = operation.authenticated and credential.can_refresh
                if can_refresh and should_refresh_token(operation.retry, failure):
                    await self._replace_token(failure)
                    continue
            raise failure

    def _first_response(self) -> Response:
        """Return the response to the attempt that was made already, or raise the error that it ended with."""
        outcome, self.first = self.first, UNSET
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            return cast("Response", outcome)
        finally:
            del outcome  # The error would hold itself, by its traceback and this frame.

    async def _permitted_request(self, flow: Flow) -> tuple[Permit, Request]:
        """Wait for a permit, and return the signed request of the attempt that begins with it."""
        operation, credential = self.operation, self.credential
        # Requests for tokens wait for no permit: those that wait for the token may have it.
        permit = flow.try_acquire(self.seller_key) if operation.authenticated else NO_PERMIT
        permit = permit or await self._wait_for_permit(flow)
        try:
            if self.history is not None or self.may_send is not None:
                await self._ensure_may_send()
            self.attempts += 1
            self.queued_before, self.queued = self.queued_before + self.queued, permit.waited
            # Noted now and not after a failure: the machine may sleep while it waits for the response.
            self.sent_at = self.state.clock.now()
            request = self._request()
            if credential.signer is not None and operation.authenticated:
                request = await self._signed(request, credential.signer)
        except BaseException:
            flow.release(permit)
            raise
        return permit, request

    async def _attempt_again(self) -> Result[R]:
        """Make a further attempt, if there may be one, with the time of its own."""
        try:
            self._ensure_open()
            if self.deadline.cancelled_by_others():
                raise asyncio.CancelledError  # The transport has swallowed it; nothing more is sent for this task.
            self.sending = self.state.deadlines.restart(self.deadline)
            return await self._attempt()
        except AttemptFailed as failure:
            self._note(failure)
            raise

    def _ensure_open(self) -> None:
        """Send nothing more for a client that is closed."""
        if self.state.closed:
            closed = ClientClosed("the client was closed")
            raise failures.not_attempted(str(closed), closed)

    async def _ensure_may_send(self) -> None:
        """Send nothing more with a key that may be forgotten, nor what the journal does not permit."""
        if self.intent.key is not None and self.history is not None:
            self.send_within = key_lasts(self.history, self.state.clock)
            if self.send_within <= 0:  # The machine may have slept through the pause, or the refresh, and longer.
                raise failures.not_attempted(f"it was first sent {KEY_LIFETIME / 3600:g} hours ago")
        left = self.deadline.when - self.state.clock.monotonic()
        if self.may_send is not None and (reason := await self.may_send(left)) is not None:
            raise failures.not_attempted(reason)

    async def _wait_for_permit(self, flow: Flow) -> Permit:
        """Wait for the seller's limits to allow one request; the time of the attempt begins after that."""
        self.state.deadlines.reset(self.deadline, self.deadline.total)
        since, reason = self.state.clock.monotonic(), ""
        try:
            permit = await flow.acquire(self.seller_key, self.settings.priority, self.deadline.total - since)
        except asyncio.CancelledError:
            if not self.deadline.uncancel():
                raise
            permit, reason = None, f"{self.deadline.ran_out} while it waited for its turn"
        except Exception as error:
            # A share of one's own may raise anything: an attempt that is in doubt must not be hidden by that.
            raise failures.not_attempted(f"waiting for its turn raised {describe(error)}") from error
        waited = self.state.clock.monotonic() - since
        if self.settings.observers:
            events.notify_of_call(self, Throttled, number=self.attempts + 1, waited=waited, admitted=permit is not None)
        self._ensure_open()
        if permit is None:
            self.queued_before += waited
            if not reason and waited >= flow.max_wait:
                reason = f"it waited for its turn for {flow.max_wait:g} s (flow.max_wait)"
            raise failures.not_attempted(reason or "its slot in the rate of flow.share comes too late")
        self.sending = self.state.deadlines.restart(self.deadline)
        return permit

    async def _wait_for_token(self) -> None:
        """Obtain the first token, if the client has a way to get one."""
        failure = await self._refresh(was_rejected=False)
        if failure is not None and failure.timed_out and self.state.clock.monotonic() < self.deadline.total:
            # It took longer than an attempt may. If it was early, the live token will do.
            self.sending = self.state.deadlines.restart(self.deadline)
            if self.credential.use_token(self.state.clock.now()):
                failure = None
        if failure is not None:
            raise failure
        self._ensure_open()  # The client may have been closed during the wait.

    async def _replace_token(self, rejection: AttemptFailed) -> None:
        """Obtain another token than the rejected one; where there can be none, *rejection* stands."""
        self.credential.refreshed = True
        self._record(rejection)
        failure = await self._refresh(was_rejected=True)
        if failure is None and self.credential.token is not None:
            self._ensure_open()
            return
        if failure is not None and not isinstance(failure.cause, RequestInvalid):
            raise failure
        if failure is not None and rejection.error is not None:
            events.refresh_failed(self.operation.name, failure.reason)
            rejection.error.add_note(f"the token could not be refreshed: {failure.reason}")
        raise rejection

    async def _refresh(self, *, was_rejected: bool) -> AttemptFailed | None:
        """Obtain another token, or return why that failed."""
        state, auth = self.state, self.settings.auth
        if isinstance(auth, RefreshingToken):
            state.refreshing.add(auth)
        try:
            failure = await self.credential.refresh(self.deadline, state.clock.now(), was_rejected=was_rejected)
        finally:
            events.notify_if_token_revoked(self)
        if failure is None:
            self.sending = state.clock.monotonic()  # The attempt has what is left of its time.
        return failure

    async def _signed(self, request: Request, signer: Signer) -> Request:
        """Return *request* with its signature, which is a step of the attempt like any other."""
        try:
            signed = await self.credential.sign(request, signer, self.deadline, self.sent_at, self.operation.key_header)
            await self._ensure_may_send()  # To sign it may have taken long.
        except BaseException as error:
            failure = error if isinstance(error, AttemptFailed) else failures.interrupted(Failure.NOT_SENT, error)
            failure.attempted = True  # Observers were told that it begins.
            self._record(failure)
            self.attempts -= 1
            raise
        left = self.deadline.when - self.state.clock.monotonic()
        within = connect_timeout(self.settings.timeout, min(left, self.send_within))
        return structs.replace(signed, timeout=left, connect_timeout=within)

    def _request(self) -> Request:
        operation, settings, intent = self.operation, self.settings, self.intent
        headers = Headers(settings.headers)
        if operation.own_headers:
            merge(headers, operation.own_headers)
        if self.credential.token is not None:
            headers["Authorization"] = "Bearer " + self.credential.token
        if intent.content:
            headers["Content-Type"] = operation.content_type
        if intent.key is not None:
            headers[operation.key_header] = intent.key
        if intent.headers is not None:
            merge(headers, intent.headers)
        if settings.observers and (added := events.added_headers(self)):
            merge(headers, added)
        left = self.deadline.when - self.sending
        within = left if self.send_within == inf else min(left, self.send_within)  # Nearly always the first.
        return Request(  # By position: to look names up takes msgspec as long as all checks of a call.
            operation.method,
            settings.base_url + intent.target,
            headers,
            intent.content,
            left,
            connect_timeout(settings.timeout, within),
            operation.wants_fresh_connection or self.fresh,
            operation.max_response,
            operation.name,
            self.attempts,
            settings.account,
        )

    # --- the response --------------------------------------------------------------------------------------------

    async def _accept(self, response: Response) -> Result[R]:
        """Turn a 2xx into a result, if it is one that can be trusted."""
        state, operation, body = self.state, self.operation, response.body
        strict = self.settings.strict and operation.retry not in SINGLE_USE
        try:
            if len(body) < LARGE or operation.writes:
                value, anomalies = operation.decoder.decode(body)
            elif (exact := operation.decoder.exact(body)) is not None:
                value, anomalies = exact, ()
            else:
                value, anomalies = await self._repair_in_thread(response)
            comparison = check_response(self.intent, value, response, anomalies)
            anomalies, reason = comparison.anomalies, comparison.mismatch
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the caller the key of what was done
            failure = failures.not_decoded(response, error)
        else:
            if anomalies:
                events.anomalies_found(operation.name, anomalies)
                if strict:
                    reason = f"the response breaks the contract at {anomalies[0].path}: {anomalies[0].reason}"
            if reason is None:
                return self._result(response, value, anomalies)
            # With `strict`, the next response would break the contract in the same way.
            failure = AttemptFailed(Failure.NO_TRUSTED_RESPONSE, reason, permanent=bool(anomalies) and strict)
        failure.response = response
        self.fresh = True
        state.discard(response)
        raise failure

    async def _repair_in_thread(self, response: Response) -> tuple[R, tuple[Anomaly, ...]]:
        """Repair a large page while others have their turns; the call may be cancelled meanwhile."""
        self.state.deadlines.reset(self.deadline, inf)  # The response is here: what is left cannot hang.
        thread = ThreadPoolExecutor(1)  # All threads of the event loop's own executor may be busy.
        try:
            repair = self.operation.decoder.repair
            return await asyncio.get_running_loop().run_in_executor(thread, repair, response.body)
        except asyncio.CancelledError as error:
            events.report(self, response, failures.interrupted(Failure.NO_TRUSTED_RESPONSE, error))
            raise
        finally:
            thread.shutdown(wait=False)

    def _result(self, response: Response, value: R, anomalies: tuple[Anomaly, ...]) -> Result[R]:
        elapsed = self.state.clock.monotonic() - self.started
        if self.settings.observers or events.debug_enabled():  # Nearly always nobody listens.
            events.report(self, response)
        return Result(
            value=value,
            status=response.status,
            headers=response.headers,
            attempts=self.attempts,
            elapsed=elapsed,
            anomalies=anomalies,
            raw=response.body,
            idempotency_key=self.intent.key,
        )

    # --- after a failure -----------------------------------------------------------------------------------------

    def _classify_error(self, error: BaseException) -> AttemptFailed | None:
        """Find out what it means that no response came; ``None`` if *error* has nothing to do with the request."""
        ran_out = self.deadline.ran_out if self.deadline.uncancel() else None
        failure = failures.no_response(error, ran_out, cancelled=self.deadline.task.cancelling() > 0)
        if failure is None:
            self._record(failures.interrupted(failures.cut_off(error), error))
        return failure

    def _classify_response(self, response: Response) -> AttemptFailed:
        """Find out what a response outside 2xx means."""
        operation, secrets = self.operation, self.credential.secrets(self.intent.body)
        random_key = not self.intent.has_own_key and self.may_send is None  # A record derives its key.
        failure = failures.error_response(operation, response, secrets, random_key=random_key)
        if (error := failure.error) and operation.writes and not operation.documents(error.status, error.code):
            # An error response names no request: one that the contract does not know may be the response to another.
            self.state.discard(response)
        return failure

    def _note(self, failure: AttemptFailed) -> AttemptFailed:
        """Note the *failure* of an attempt: from here to the next one, only the deadline of the whole call holds."""
        self._record(failure)
        self.state.deadlines.reset(self.deadline, self.deadline.total)
        return failure

    def _record(self, failure: AttemptFailed) -> None:
        """Take *failure* into account, and tell the observers and the log of it; once."""
        if not failure.recorded:
            failure.recorded = True
            self._ensure_history().record(failure, self.sending, self.sent_at)
            events.report(self, failure.response, failure)

    def _ensure_history(self) -> History:
        if self.history is None:
            self.history = History()
        return self.history

    async def _retry(self, first: AttemptFailed) -> Result[R]:
        """Go on after the *first* failure, until an attempt succeeds or no further one is allowed."""
        state, history, deadline = self.state, self._ensure_history(), self.deadline.total
        rule, policy = self.operation.retry, self.settings.retry
        retries = Retries(rule, policy, state.budgets, self.seller_key, history, state.clock, deadline, first)
        return await retries.run(self._attempt_again, state.flow.pause)

    def _warn_of_doubt(self) -> str | None:
        """Warn of a write that is cut off in doubt; before any wait, as a loop that stops may have no further turn."""
        if not (self.operation.writes and self._ensure_history().ambiguous_attempts):
            return None
        events.warn_outcome_unknown(self, "cancelled when it may have been sent")
        return f"{self.operation.name} may have been sent, with idempotency_key={self.intent.key!r}"

    def _outcome(self, last: AttemptFailed) -> PaymentsError:
        """Return the one error that tells the truth about the call."""
        history, own_key, journaled = self._ensure_history(), self.intent.has_own_key, self.may_send is not None
        was_sent = journaled and self.attempts > 0
        error = failures.final_error(self.operation, last, history, own_key=own_key, journaled=was_sent)
        error.attempts, error.idempotency_key = self.attempts, self.intent.key
        if journaled:  # Else a kept error would keep it, by its traceback and this call.
            self.last_response = last.response
        if isinstance(error, OutcomeUnknown):
            events.warn_outcome_unknown(self, last.reason)
        return error
