"""OpenTelemetry spans and metrics of a client's calls. Needs the extra `otel`.

    >>> from paymentsdk.telemetry import OpenTelemetryObserver
    >>> client = PaymentsClient(..., observers=[OpenTelemetryObserver()])

Names and units follow OpenTelemetry's conventions for HTTP clients. Other names begin with `paymentsdk.`. No span and
no metric holds a credential, a query, or a part of a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import Token
from functools import lru_cache
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from paymentsdk.errors import install_extra

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error.msg}: {install_extra('otel')}", name=_error.name) from None

from paymentsdk import events
from paymentsdk._contract.rules import CANCELLED
from paymentsdk._version import __version__
from paymentsdk.journal import RecordResolved, RecordsOpen
from paymentsdk.journal._record import OPEN

__all__ = ["OpenTelemetryObserver"]

_Attributes: TypeAlias = dict[str, str | int | float | bool]
#: Attributes that many spans and metrics share.
_Labels: TypeAlias = Mapping[str, str | int | float | bool]
#: A span, the token that detaches its context, and the labels of its metrics.
_Entered: TypeAlias = tuple[Span, Token[Context], _Labels]

#: Bucket boundaries in seconds, as the conventions advise them for `http.client.request.duration`.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_ERROR = 400
_NO_ERRORS = (events.CallOutcome.SUCCEEDED, events.CallOutcome.CANCELLED)
_NO_LABELS: _Labels = {}
#: The index at which the host of an https URL begins; in an http URL it begins one character earlier.
_HOST = len("https://")
#: The size of each cache of labels: one entry per operation and account.
_MOST_KEPT = 1024


class CountingTransport(Protocol):
    """A transport that counts its connections."""

    @property
    def open_connections(self) -> int:
        """The number of open connections, in use or idle."""
        ...


class OpenTelemetryObserver:
    """An observer that makes a span for each call, a child span for each attempt, and metrics.

    The span of an attempt is of the kind `CLIENT`, and is named by method and route (`GET /v1/orders/{order_id}`). It
    has `http.request.method`, `http.request.resend_count`, `http.response.status_code`, `server.address`,
    `server.port`, `url.full` without the query, `url.template` and `error.type`. The span of a call is named by the
    operation (`orders.get`). Each is the current span while it lasts, so the spans of other instruments, such as
    aiohttp's, become its children. The request of each attempt carries `traceparent`.

    Metrics: `http.client.request.duration`, `http.client.active_requests`, `http.client.open_connections` (with
    *transport*); `paymentsdk.call.duration`, `paymentsdk.queue.duration`, `paymentsdk.retries`,
    `paymentsdk.retry_budget`, `paymentsdk.token.refreshes`, `paymentsdk.token.reauthorizations_due`,
    `paymentsdk.journal.records_resolved`, `paymentsdk.journal.open_records` and `paymentsdk.journal.oldest_open_record`
    (the last two are set after each recovery).

    Several clients may share one observer.

    Args:
        tracer_provider: Makes the spans; the global one by default.
        meter_provider: Makes the metrics; the global one by default.
        transport: The `AiohttpTransport` or `Http11Transport` of the client; its open connections are counted.
        label_accounts: Also label the metrics with the account, which adds a time series for each seller. Spans always
            have the account.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        transport: CountingTransport | None = None,
        label_accounts: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("paymentsdk", __version__, tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        self._label_accounts = label_accounts
        self._entered: dict[tuple[int, int], _Entered] = {}
        #: The operations and accounts whose retry budget was below 1.0 at their last call.
        self._spent: set[tuple[str, str | None]] = set()
        self._make_instruments(metrics.get_meter("paymentsdk", __version__, meter_provider), transport)

    def _make_instruments(self, meter: metrics.Meter, transport: CountingTransport | None) -> None:
        def seconds(name: str, description: str) -> metrics.Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)

        self._requests = seconds("http.client.request.duration", "Duration of attempts")
        self._calls = seconds("paymentsdk.call.duration", "Duration of calls, with their retries and waits")
        self._queue = seconds("paymentsdk.queue.duration", "Time that attempts wait for their turn, if they wait")
        self._active = meter.create_up_down_counter("http.client.active_requests", "{request}", "Attempts under way")
        self._retries = meter.create_counter("paymentsdk.retries", "{attempt}", "Attempts after the first of a call")
        self._budget = meter.create_gauge("paymentsdk.retry_budget", "1", "Remaining share of the retry budget")
        self._refreshes = meter.create_counter("paymentsdk.token.refreshes", "{refresh}", "Tokens that were refreshed")
        self._due = meter.create_counter(
            "paymentsdk.token.reauthorizations_due", "{call}", "Calls that found the refresh token spent"
        )
        self._resolved = meter.create_counter("paymentsdk.journal.records_resolved", "{record}", "Records resolved")
        self._open = meter.create_gauge("paymentsdk.journal.open_records", "{record}", "Records left open")
        self._oldest = meter.create_gauge("paymentsdk.journal.oldest_open_record", "s", "Age of the oldest open record")
        if transport is not None:
            connections = transport

            def count(_: CallbackOptions) -> Iterable[Observation]:
                yield Observation(connections.open_connections)

            meter.create_observable_up_down_counter(
                "http.client.open_connections", [count], "{connection}", "Connections of the pool"
            )

    def __call__(self, event: events.Event) -> None:
        """Turn *event* into spans and metrics."""
        match event:
            case events.AttemptStarted():
                self._attempt_started(event)
            case events.AttemptEnded():
                self._attempt_ended(event)
            case events.CallStarted():
                self._call_started(event)
            case events.CallEnded():
                self._call_ended(event)
            case events.TokenRefreshed():
                self._refreshes.add(1, _about(None, self._label(event)))
            case events.ReauthorizationDue():
                self._due.add(1, _about(None, self._label(event)))
            case RecordResolved():
                about = {"paymentsdk.record.state": event.state.value, "paymentsdk.recovered": event.recovered}
                self._resolved.add(1, {**self._operation(event), **about})
            case RecordsOpen():
                for state in OPEN:
                    self._open.set(event.count.get(state, 0), {"paymentsdk.record.state": state.value})
                self._oldest.set(event.oldest or 0.0)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call_started(self, event: events.CallStarted) -> None:
        span = self._tracer.start_span(event.operation, attributes=_about(event.operation, event.account))
        self._enter(event, 0, span, _NO_LABELS)

    def _call_ended(self, event: events.CallEnded) -> None:
        attributes: _Attributes = {"paymentsdk.outcome": event.outcome.value}
        if event.error is not None:
            attributes["error.type"] = event.error
        operation = self._operation(event)
        self._calls.record(event.elapsed, {**operation, **attributes})
        budget, is_spent = (event.operation, event.account), event.retry_budget < 1.0
        if is_spent or event.attempts > 1 or budget in self._spent:  # Most calls do not change the budget.
            self._budget.set(event.retry_budget, operation)
            (self._spent.add if is_spent else self._spent.discard)(budget)
        span, _ = self._leave(event, 0)
        if span.is_recording():
            attributes["paymentsdk.attempts"] = event.attempts
            if event.idempotency_key is not None:
                attributes["paymentsdk.idempotency_key"] = event.idempotency_key
            span.set_attributes(attributes)
            if event.outcome not in _NO_ERRORS:
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _attempt_started(self, event: events.AttemptStarted) -> None:
        url = event.url
        request = _request(event.method, event.route, url[: url.find("/", _HOST)], self._label(event))
        self._active.add(1, request)
        attributes: _Attributes = {**request, "url.full": url, **_about(event.operation, event.account)}
        if event.queued:
            self._queue.record(event.queued, self._operation(event))
            attributes["paymentsdk.queued"] = event.queued
        if event.number > 1:
            attributes["http.request.resend_count"] = event.number - 1
            self._retries.add(1, self._operation(event))
        span = self._tracer.start_span(f"{event.method} {event.route}", kind=SpanKind.CLIENT, attributes=attributes)
        self._propagator.inject(event.headers, self._enter(event, event.number, span, request))

    def _attempt_ended(self, event: events.AttemptEnded) -> None:
        if not event.number:
            return  # No request was made; `CallEnded` has the reason.
        span, request = self._leave(event, event.number)
        self._active.add(-1, request)
        attributes: _Attributes = {}
        if event.status is not None:
            attributes["http.response.status_code"] = event.status
        cancelled = event.failure == CANCELLED  # The caller has cancelled the call: the platform is not at fault.
        if cancelled:
            attributes["error.type"] = "CancelledError"
        elif event.kind is not None:
            rejected = event.status is not None and event.status >= _ERROR
            attributes["error.type"] = str(event.status) if rejected else event.kind.value
        self._requests.record(event.elapsed, {**request, **attributes})
        if span.is_recording():
            if event.reused is not None:
                attributes["paymentsdk.connection.reused"] = event.reused
            if event.request_id is not None:
                attributes["paymentsdk.request_id"] = event.request_id
            span.set_attributes(attributes)
            if event.kind is not None and not cancelled:
                # The status code already describes a rejection.
                span.set_status(Status(StatusCode.ERROR, event.failure if event.status is None else None))
        span.end()

    # --- calls and attempts -------------------------------------------------------------------------------------------

    def _enter(self, event: events.CallEvent, number: int, span: Span, labels: _Labels) -> Context:
        """Make *span* the current span until `_leave`, and return its context."""
        entered = trace.set_span_in_context(span)
        self._entered[event.call, number] = span, context.attach(entered), labels
        return entered

    def _leave(self, event: events.CallEvent, number: int) -> tuple[Span, _Labels]:
        span, token, labels = self._entered.pop((event.call, number))
        context.detach(token)
        return span, labels

    def _label(self, event: events.Event) -> str | None:
        """Return the account, or `None` unless metrics are labelled with it."""
        return event.account if self._label_accounts else None

    def _operation(self, event: events.CallEvent | RecordResolved) -> _Labels:
        return _about(event.operation, self._label(event))


# Attributes are most of the cost of a span, so they are made once for each operation, server and account.


@lru_cache(maxsize=_MOST_KEPT)
def _about(operation: str | None, account: str | None) -> _Labels:
    """Return the attributes of a call and its attempts, which are also the labels of the metrics."""
    about = {"paymentsdk.operation": operation, "paymentsdk.account": account}
    return {name: value for name, value in about.items() if value is not None}


@lru_cache(maxsize=_MOST_KEPT)
def _request(method: str, route: str, origin: str, account: str | None) -> _Labels:
    """Return the attributes that the span and the metrics of an attempt share."""
    parts = urlsplit(origin)
    return {
        "http.request.method": method,
        "url.template": route,
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        **_about(None, account),
    }
