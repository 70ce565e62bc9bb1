"""Spans and metrics in OpenTelemetry's in-memory exporters, from calls over a transport in memory or a socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from paymentsdk import (
    Http11Transport,
    NotFound,
    OutcomeUnknown,
    PaymentsClient,
    Request,
    Response,
    RetryPolicy,
    SendFailed,
)
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.telemetry import OpenTelemetryObserver
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import order

TOKEN = "APP_USR-9001-112304-0123456789abcdef-77"
ORDER = Response(200, {"X-Request-Id": "req-1"}, b'{"id":"ORD1"}')


class Exported:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def observer(self, **options: object) -> OpenTelemetryObserver:
        return OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans, in the order of their beginnings."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)

    def metrics(self) -> dict[str, list[SimpleNamespace]]:
        """The points of each metric: attributes, and a value, or a count and a sum."""
        points: dict[str, list[SimpleNamespace]] = {}
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points[metric.name] = [
                        SimpleNamespace(
                            labels=dict(point.attributes),
                            value=getattr(point, "value", None),
                            count=getattr(point, "count", None),
                            sum=getattr(point, "sum", None),
                        )
                        for point in metric.data.data_points
                    ]
        return points


@pytest.fixture
def exported() -> Iterator[Exported]:
    """Exporters, and that no span is left the current one."""
    exported = Exported()
    yield exported
    assert not trace.get_current_span().get_span_context().is_valid


def make(observer: OpenTelemetryObserver, transport: MemoryTransport, **settings: object) -> PaymentsClient:
    """Make a client that is observed."""
    defaults = {"base_url": "https://platform.test:8443", "clock": FakeClock(), "access_token": TOKEN}
    return PaymentsClient(
        transport=transport, observers=[observer], **{**defaults, "retry": RetryPolicy(base_delay=0), **settings}
    )


async def test_a_call_is_a_span_and_each_attempt_a_child(exported: Exported) -> None:
    """With the names of the conventions for HTTP clients, and the trace context on each attempt."""
    transport = MemoryTransport([Response(503), ORDER])
    client = make(exported.observer(), transport, access_token=None, accounts={"shop-1": TOKEN})

    await client.account("shop-1").orders.get("ORD1")

    call, first, second = exported.spans
    assert ("orders.get", "GET /v1/orders/{order_id}", "GET /v1/orders/{order_id}") == (
        call.name,
        first.name,
        second.name,
    )
    assert (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.CLIENT) == (call.kind, first.kind, second.kind)
    assert {call.context.span_id} == {span.parent.span_id for span in (first, second)}
    about = {
        "http.request.method": "GET",
        "server.address": "platform.test",
        "server.port": 8443,
        "url.template": "/v1/orders/{order_id}",
        "url.full": "https://platform.test:8443/v1/orders/ORD1",
        "paymentsdk.operation": "orders.get",
        "paymentsdk.account": "shop-1",
    }
    assert {**about, "http.response.status_code": 503, "error.type": "503"} == dict(first.attributes)
    assert {
        **about,
        "http.response.status_code": 200,
        "http.request.resend_count": 1,
        "paymentsdk.request_id": "req-1",
    } == dict(second.attributes)
    assert (StatusCode.ERROR, StatusCode.UNSET) == (first.status.status_code, second.status.status_code)
    assert ("succeeded", 2) == (call.attributes["paymentsdk.outcome"], call.attributes["paymentsdk.attempts"])
    sent = [request.headers["traceparent"].split("-")[1:3] for request in transport.requests]
    assert [[f"{s.context.trace_id:032x}", f"{s.context.span_id:016x}"] for s in (first, second)] == sent


@pytest.mark.parametrize(
    ("response", "error", "outcome", "kind"),
    [
        (SendFailed("reset"), "OutcomeUnknown", "unknown", "no_trusted_response"),
        (Response(404, {}, b"{}"), "NotFound", "refused", "404"),
        (Response(301), "OutcomeUnknown", "unknown", "forbidden"),
    ],
)
async def test_a_failure_is_an_error_of_its_kind(exported: Exported, response, error, outcome, kind) -> None:
    """`error.type` has few values: a status code, a kind of failure, or the class of an exception."""
    client = make(exported.observer(), MemoryTransport([response]), retry=RetryPolicy(attempts=1))

    with pytest.raises((OutcomeUnknown, NotFound)):
        await client.orders.create(order())

    call, attempt = exported.spans
    assert kind == attempt.attributes["error.type"]
    assert (error, outcome) == (call.attributes["error.type"], call.attributes["paymentsdk.outcome"])
    assert StatusCode.ERROR is call.status.status_code is attempt.status.status_code
    [duration] = exported.metrics()["http.client.request.duration"]
    assert kind == duration.labels["error.type"]
    assert call.attributes["paymentsdk.idempotency_key"]


async def test_metrics_of_calls(exported: Exported) -> None:
    """Durations, retries, and what is left of a budget; nothing is under way in the end."""
    clock = FakeClock()

    def response(request: Request) -> Response:
        clock.advance(0.25)
        return Response(503) if len(transport.requests) == 1 else ORDER

    transport = MemoryTransport(response)
    await make(exported.observer(), transport, clock=clock).orders.get("ORD1")

    metrics = exported.metrics()
    durations = metrics["http.client.request.duration"]
    assert [(1, 0.25), (1, 0.25)] == [(point.count, point.sum) for point in durations]
    assert [503, 200] == [point.labels["http.response.status_code"] for point in durations]
    assert [(1, 0.5)] == [(point.count, point.sum) for point in metrics["paymentsdk.call.duration"]]
    assert [1] == [point.value for point in metrics["paymentsdk.retries"]]
    assert [0] == [point.value for point in metrics["http.client.active_requests"]]
    assert [1.0] == [point.value for point in metrics["paymentsdk.retry_budget"]]
    assert "paymentsdk.queue.duration" not in metrics
    assert not any("paymentsdk.account" in point.labels for points in metrics.values() for point in points)


async def test_open_records_are_measured(exported: Exported, tmp_path: Path) -> None:
    """What a recovery leaves open, by state, and what was resolved."""
    journal, retry = SQLiteJournal(tmp_path / "journal.db"), RetryPolicy(attempts=1)
    async with (
        Sandbox() as sandbox,
        PaymentsClient(
            sandbox.access_token,
            base_url=sandbox.base_url,
            journal=journal,
            observers=[exported.observer()],
            retry=retry,
        ) as client,
    ):
        lost = FaultRule(effect="lose_response_after_commit", operation="orders.create")
        with sandbox.faults.add(lost):
            with pytest.raises(OutcomeUnknown):
                await client.orders.create(order(), once="table-7/1")
            await client.recover()
        open_before = {p.labels["paymentsdk.record.state"]: p.value for p in exported.metrics()[OPEN_RECORDS]}
        await client.recover()

    metrics = exported.metrics()
    assert {"pending": 0, "sent": 0, "unknown": 1, "deferred": 0} == open_before
    assert {0} == {point.value for point in metrics[OPEN_RECORDS]}
    resolved = {
        (point.labels["paymentsdk.record.state"], point.labels["paymentsdk.recovered"]): point.value
        for point in metrics["paymentsdk.journal.records_resolved"]
    }
    assert {("unknown", False): 1, ("unknown", True): 1, ("done", True): 1} == resolved


OPEN_RECORDS = "paymentsdk.journal.open_records"


async def test_open_connections_are_measured(exported: Exported) -> None:
    """Those of the pool, in use or idle; none once the client is closed."""
    transport = Http11Transport()
    observer = exported.observer(transport=transport)

    def count() -> int:
        [point] = exported.metrics()["http.client.open_connections"]
        return point.value

    async with Sandbox() as sandbox:
        assert 0 == count()
        async with PaymentsClient(
            sandbox.access_token, base_url=sandbox.base_url, transport=transport, observers=[observer]
        ) as client:
            await asyncio.gather(*(client.merchant_orders.search().first() for _ in range(3)))
            assert 3 == count()
        await asyncio.sleep(0)
        assert 0 == count()


async def test_apm_tools_see_the_requests_of_the_default_transport(exported: Exported) -> None:
    """Whatever instruments aiohttp sees each attempt, below the span of the attempt."""
    AioHttpClientInstrumentor().instrument(tracer_provider=exported.tracers)
    try:
        async with (
            Sandbox() as sandbox,
            PaymentsClient(
                sandbox.access_token,
                base_url=sandbox.base_url,
                observers=[exported.observer()],
                retry=RetryPolicy(base_delay=0),
            ) as client,
        ):
            failing = FaultRule(effect="fail_before_commit", operation="merchant_orders.search", times=1)
            with sandbox.faults.add(failing):
                await client.merchant_orders.search().first()
    finally:
        AioHttpClientInstrumentor().uninstrument()

    attempts = {span.context.span_id for span in exported.spans if "url.template" in span.attributes}
    spans = [span for span in exported.spans if "aiohttp" in span.instrumentation_scope.name]
    assert 2 == len(attempts) == len(spans)
    assert attempts == {span.parent.span_id for span in spans}


async def test_no_secret_is_exported(exported: Exported) -> None:
    """Neither the token, nor a query, nor a body, whatever the platform sends."""
    body = b'{"error":"bad_request","message":"no %s here"}' % TOKEN.encode()
    client = make(exported.observer(), MemoryTransport([Response(400, {}, body)] * 2))

    with pytest.raises(Exception, match="bad_request"):
        await client.plans.search(q="payer@example.com").first()

    text = "".join(span.to_json() for span in exported.spans) + str(exported.metrics())
    assert "plans.search" in text
    assert TOKEN not in text
    assert "payer@example.com" not in text


def test_without_the_extra_the_error_names_it() -> None:
    """Importing the module says what to install; the package itself does not need it."""
    program = "import sys; sys.modules['opentelemetry'] = None; import paymentsdk.client; import paymentsdk.telemetry"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "install the extra `otel`: pip install '<path or URL of paymentsdk>[otel]'" in process.stderr
