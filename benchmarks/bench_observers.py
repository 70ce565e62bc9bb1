"""Measures observed calls: with an observer that does nothing, and with the spans and metrics of OpenTelemetry.

The bench reads and creates an order over a transport that responds immediately. *OpenTelemetry alone* is the call of an
unobserved client with two spans around it, written by hand. The spans have the same names, attributes and trace
context. So this is the lower bound for any client with two spans per call. A processor drops the spans: the cost of an
exporter is not included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from opentelemetry import context, trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from benchmarks import harness
from benchmarks.at_once import BASE_URL, Call, Way, race
from benchmarks.bench_retry import OURS, Subject
from benchmarks.harness import Options, Result
from paymentsdk.events import Event
from paymentsdk.telemetry import OpenTelemetryObserver

ALONE = "OpenTelemetry alone, two spans"
SPANS = "two spans"


def _nothing(event: Event) -> None:
    """Do nothing with it."""


def _alone(subject: Subject, tracers: TracerProvider) -> Call:
    """Return the unobserved call in two spans, written by hand."""
    call, operation = subject.through_call(subject.client()), subject.operation
    tracer, inject = tracers.get_tracer("by hand", "1"), TraceContextTextMapPropagator().inject
    name, url = f"{operation.method} {operation.path}", BASE_URL + operation.path.format(**subject.path)
    status = 201 if subject.writes else 200

    async def in_spans() -> object:
        span_of_call = tracer.start_span(operation.name, attributes={"paymentsdk.operation": operation.name})
        left_to = context.attach(trace.set_span_in_context(span_of_call))
        attributes: dict[str, str | int] = {
            "http.request.method": operation.method,
            "url.template": operation.path,
            "server.address": "127.0.0.1",
            "server.port": 80,
            "url.full": url,
            "paymentsdk.operation": operation.name,
        }
        span_of_attempt = tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        left_to_outer = context.attach(trace.set_span_in_context(span_of_attempt))
        headers: dict[str, str] = {}
        inject(headers)
        value = await call()
        context.detach(left_to_outer)
        span_of_attempt.set_attributes({
            "http.response.status_code": status,
            "paymentsdk.request_id": "4d2e1c6a9b7f40d8a3c5e7f1b2d4a6c8",
        })  # fmt: skip
        span_of_attempt.end()
        context.detach(left_to)
        ended: dict[str, str | int] = {"paymentsdk.outcome": "succeeded", "paymentsdk.attempts": 1}
        if operation.keyed:
            ended["paymentsdk.idempotency_key"] = "0123456789abcdef0123456789abcdef"
        span_of_call.set_attributes(ended)
        span_of_call.end()
        return value

    return in_spans


def _ways(subject: Subject) -> Iterator[Way]:
    tracers = TracerProvider()
    tracers.add_span_processor(SpanProcessor())
    spans = OpenTelemetryObserver(tracer_provider=tracers, meter_provider=NoOpMeterProvider())
    observer = OpenTelemetryObserver(tracer_provider=tracers, meter_provider=MeterProvider([InMemoryMetricReader()]))
    yield Way(name=OURS, against=OURS, call=subject.through_call(subject.client()))
    observed = subject.through_call(subject.client(observers=[_nothing]))
    yield Way(name="an observer that does nothing", against=OURS, call=observed)
    yield Way(name=ALONE, against=OURS, call=_alone(subject, tracers))
    yield Way(name=SPANS, against=OURS, call=subject.through_call(subject.client(observers=[spans])))
    yield Way(
        name="two spans and metrics", against=OURS, call=subject.through_call(subject.client(observers=[observer]))
    )


def run(options: Options) -> Result:
    """Measure every way to observe the read and the creation of an order."""
    rows = []
    with harness.on_core(harness.cores()[0]), asyncio.Runner() as runner:
        for name in ("GET", "POST"):
            rows += race(list(_ways(Subject(name))), name, runner, options)
    return harness.result("bench_observers", rows, options)


def main() -> None:
    """Measure, print and keep the results."""
    arguments = harness.parser(__doc__).parse_args()
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
