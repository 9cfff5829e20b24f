"""The adapter for OpenTelemetry, against the SDK: spans in memory, metrics of a reader in memory."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes, network_attributes, rpc_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics, rpc_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

import afflux
from afflux.middleware import Metrics
from afflux.observing import CAUSES
from afflux.otel import Tracing, observer, watch

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = afflux.TraceContext(f"00-{TRACE}-00f067aa0ba902b7-01", "vendor=value")


class Spans:
    """A tracer provider, and the spans that have ended."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, kind: SpanKind) -> ReadableSpan:
        (found,) = [span for span in self.all() if span.kind is kind]
        return found


class Readings:
    """A meter provider, and the values of its instruments."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def all(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found.setdefault(metric.name, []).extend(metric.data.data_points)
        return found


def routed(spans: Spans, *more: afflux.Middleware) -> afflux.Router:
    router = afflux.Router(middleware=[Tracing(spans.provider), *more])

    @router.request("prices.{symbol}")
    async def price(payload: afflux.Payload, symbol: str) -> str:
        found = trace.get_current_span().get_span_context()
        return f"{found.trace_id:032x} {found.span_id:016x}"

    @router.request("fails")
    async def fails(payload: afflux.Payload) -> str:
        raise afflux.ApplicationError(0x301, "out of stock")

    @router.stream("ticks")
    async def ticks(payload: afflux.Payload) -> AsyncIterator[str]:
        for _ in range(3):
            yield f"{trace.get_current_span().get_span_context().span_id:016x}"
            await asyncio.sleep(0)

    @router.channel("echo")
    async def echo(items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data

    return router


async def test_a_trace_goes_through_client_server_and_handler() -> None:
    spans = Spans()
    async with afflux.serve("tcp://127.0.0.1:0", routed(spans)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(spans.provider, routes=["prices.{symbol}"]))
        with spans.provider.get_tracer("program").start_as_current_span("outer") as outer:
            answer = await peer.request(route="prices.ACME", metadata=[("text/plain", b"kept")])
    client, inner = spans.one(SpanKind.CLIENT), spans.one(SpanKind.SERVER)
    assert (client.name, inner.name) == ("prices.{symbol}", "prices.{symbol}")
    assert answer.text == f"{inner.context.trace_id:032x} {inner.context.span_id:016x}"
    assert client.parent is not None and client.parent.span_id == outer.get_span_context().span_id
    assert inner.parent is not None and inner.parent.span_id == client.context.span_id and inner.parent.is_remote
    assert inner.context.trace_id == client.context.trace_id == outer.get_span_context().trace_id
    port = int(server.uri.rpartition(":")[2])
    assert dict(client.attributes or {}) == {
        rpc_attributes.RPC_SYSTEM_NAME: "rsocket",
        rpc_attributes.RPC_METHOD: "prices.{symbol}",
        "afflux.verb": "request",
        server_attributes.SERVER_ADDRESS: "127.0.0.1",
        server_attributes.SERVER_PORT: port,
    }
    assert dict(inner.attributes or {}) == dict(client.attributes or {}) | {
        network_attributes.NETWORK_PEER_ADDRESS: "127.0.0.1"
    }
    assert client.status.status_code is inner.status.status_code is StatusCode.UNSET


async def test_the_context_of_a_peer_without_the_adapter_is_continued() -> None:
    spans = Spans()
    async with afflux.serve("mem://here", routed(spans)) as server, afflux.connect(server.uri) as peer:
        with spans.provider.get_tracer("program").start_as_current_span("elsewhere"):
            first = await peer.request(route="prices.A", metadata=PARENT)
            await peer.request(route="prices.B")
    one, other = [span for span in spans.all() if span.kind is SpanKind.SERVER]
    assert first.text.startswith(TRACE)
    assert one.parent is not None and f"{one.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert one.context.trace_state.to_header() == "vendor=value"
    assert other.parent is None and other.context.trace_id != one.context.trace_id


async def test_a_stream_is_one_span_that_is_current_in_its_handler() -> None:
    spans = Spans()
    async with afflux.serve("tcp://127.0.0.1:0", routed(spans)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(spans.provider, routes=["ticks", "echo"]))
        found = []
        async for item in peer.stream(route="ticks", metadata=("text/plain", b"x")):
            found.append(item.text)
            assert not trace.get_current_span().get_span_context().is_valid
        async with peer.channel([b"1", b"2"], route="echo") as items:
            assert [item.data async for item in items] == [b"1", b"2"]
    inner = {span.name: span for span in spans.all() if span.kind is SpanKind.SERVER}
    outer = {span.name: span for span in spans.all() if span.kind is SpanKind.CLIENT}
    assert found == [f"{inner['ticks'].context.span_id:016x}"] * 3
    for name, count in (("ticks", 3), ("echo", 2)):
        parent = inner[name].parent
        assert parent is not None and parent.span_id == outer[name].context.span_id
        for span in (inner[name], outer[name]):
            assert span.attributes is not None and span.attributes["afflux.stream.items"] == count
            assert span.status.status_code is StatusCode.UNSET


async def test_a_stream_that_is_left_early_is_canceled_on_both_sides() -> None:
    spans = Spans()
    async with afflux.serve("tcp://127.0.0.1:0", routed(spans)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(spans.provider, routes=["ticks"]))
        async with peer.stream(route="ticks", credit=1) as items:
            await anext(items)
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        span = spans.one(kind)
        assert span.attributes is not None and span.attributes[error_attributes.ERROR_TYPE] == "canceled"
        assert span.status.status_code is StatusCode.UNSET


async def test_an_error_is_recorded_on_both_sides() -> None:
    spans = Spans()
    async with afflux.serve("tcp://127.0.0.1:0", routed(spans)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(spans.provider))
        with pytest.raises(afflux.ApplicationError):
            await peer.request(route="fails")
    for span in spans.all():
        assert span.attributes is not None
        assert span.attributes[error_attributes.ERROR_TYPE] == "APPLICATION_ERROR"
        assert span.attributes[rpc_attributes.RPC_RESPONSE_STATUS_CODE] == "APPLICATION_ERROR"
        assert span.attributes["afflux.code"] == 0x301
        assert span.status.status_code is StatusCode.ERROR and "out of stock" in str(span.status.description)
        assert [event.name for event in span.events] == ["exception"]
    client = spans.one(SpanKind.CLIENT)  # its routes are not listed
    assert client.name == "rsocket" and client.attributes is not None
    assert client.attributes[rpc_attributes.RPC_METHOD] == "_OTHER"
    assert client.attributes[rpc_attributes.RPC_METHOD_ORIGINAL] == "fails"


async def test_fire_and_push_are_traced_and_a_push_is_unchanged() -> None:
    spans, pushed = Spans(), asyncio.Queue[bytes]()

    class Sink:
        async def fire(self, payload: afflux.Payload) -> None:
            pass

        async def push(self, metadata: bytes) -> None:
            await pushed.put(metadata)

    tracing = Tracing(spans.provider)
    async with (
        afflux.serve("tcp://127.0.0.1:0", afflux.wrap(Sink(), tracing)) as server,
        afflux.connect(server.uri) as plain,
    ):
        peer = afflux.wrap(plain, tracing)
        await peer.fire(b"x")
        await peer.push(b"about")
        assert await pushed.get() == b"about"
    assert sorted((span.name, span.kind.name) for span in spans.all()) == [
        *(("fire", "CLIENT"), ("fire", "SERVER"), ("push", "CLIENT"), ("push", "SERVER"))
    ]
    fires = {span.kind: span for span in spans.all() if span.name == "fire"}
    parent = fires[SpanKind.SERVER].parent
    assert parent is not None and parent.span_id == fires[SpanKind.CLIENT].context.span_id


async def test_metadata_that_cannot_hold_an_entry_is_sent_unchanged() -> None:
    spans = Spans()

    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

    tracing = Tracing(spans.provider)
    for uri, options in (
        ("tcp://127.0.0.1:0", {"metadata_mime": "text/plain"}),
        ("jmux+tcp://127.0.0.1:0", {}),
        ("tcp://127.0.0.1:0", {}),
    ):
        async with (
            afflux.serve(uri, afflux.wrap(Echo(), tracing)) as server,
            afflux.connect(server.uri, **options) as plain,
        ):
            peer = afflux.wrap(plain, tracing)
            if not options:
                assert (await peer.request(b"x")).data == b"x"
            if "jmux" not in uri:
                assert (await peer.request(b"x", metadata=b"plain")).metadata == b"plain"
                assert (await peer.request(afflux.Payload(b"x", b"own"))).metadata == b"own"
    assert len(spans.all()) == 2 * 7 - 2


async def test_a_context_that_is_invalid_or_not_sampled_harms_nothing() -> None:
    silent = Spans(sampler=ALWAYS_OFF)
    async with afflux.serve("tcp://127.0.0.1:0", routed(silent)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(silent.provider))
        await peer.request(route="prices.A")
        await peer.request(route="prices.A", metadata=[(afflux.TraceContext.MIME, b"\3xyz")])
        with pytest.raises(afflux.Error):
            await plain.request(b"x", metadata=b"\xff\xff")
    assert silent.all() == []


async def test_a_state_too_long_for_an_entry_is_left_out() -> None:
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

    spans = Spans()
    state = TraceState([(f"key{number}", "v" * 100) for number in range(8)])
    outer = NonRecordingSpan(SpanContext(7, 9, is_remote=False, trace_flags=TraceFlags(1), trace_state=state))
    async with afflux.serve("tcp://127.0.0.1:0", routed(spans)) as server, afflux.connect(server.uri) as plain:
        peer = afflux.wrap(plain, Tracing(spans.provider))
        with use_span(outer):
            await peer.request(route="prices.A")
    assert spans.one(SpanKind.SERVER).context.trace_id == 7
    assert not spans.one(SpanKind.SERVER).context.trace_state


async def test_calls_are_recorded_by_the_conventions() -> None:
    spans, readings = Spans(), Readings()
    metrics = Metrics(observer(readings.provider), routes=["prices.{symbol}", "ticks", "fails"])
    async with (
        afflux.serve("tcp://127.0.0.1:0", routed(spans, metrics)) as server,
        afflux.connect(server.uri) as plain,
    ):
        peer = afflux.wrap(plain, metrics)
        await peer.request(route="prices.ACME")
        await peer.request(route="prices.OTHER")
        with pytest.raises(afflux.ApplicationError):
            await peer.request(route="fails")
        for number in range(50):
            with pytest.raises(afflux.Rejected):
                await peer.request(route=f"invented.{number}")
        assert len([item async for item in peer.stream(route="ticks")]) == 3
    found = readings.all()
    assert set(found) == {
        rpc_metrics.RPC_SERVER_CALL_DURATION,
        rpc_metrics.RPC_CLIENT_CALL_DURATION,
        messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES,
        messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES,
    }
    for name in (rpc_metrics.RPC_SERVER_CALL_DURATION, rpc_metrics.RPC_CLIENT_CALL_DURATION):
        counts = {
            (
                point.attributes[rpc_attributes.RPC_METHOD],
                point.attributes.get(error_attributes.ERROR_TYPE),
            ): point.count
            for point in found[name]
        }
        assert counts == {
            ("prices.{symbol}", None): 2,
            ("fails", "APPLICATION_ERROR"): 1,
            ("_OTHER", "REJECTED"): 50,
            ("ticks", None): 1,
        }
        assert found[name][0].explicit_bounds[0] == 0.005
    (sent,) = found[messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES]
    (consumed,) = found[messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES]
    assert (sent.value, consumed.value) == (3, 3)
    assert dict(sent.attributes) == {
        messaging_attributes.MESSAGING_SYSTEM: "rsocket",
        messaging_attributes.MESSAGING_OPERATION_NAME: "send",
        messaging_attributes.MESSAGING_DESTINATION_TEMPLATE: "ticks",
    }
    assert consumed.attributes[messaging_attributes.MESSAGING_OPERATION_NAME] == "receive"


async def test_a_watched_server_reports_stalls_with_their_cause() -> None:
    spans, readings = Spans(), Readings()
    limits = afflux.Limits.server(connections=1)
    async with (
        afflux.serve("tcp://127.0.0.1:0", routed(spans), limits=limits) as server,
        watch(server, meter_provider=readings.provider) as watched,
        afflux.connect(server.uri) as peer,
        peer.stream(route="ticks", credit=0) as items,
    ):
        items.request(1)
        await anext(items)
        async with afflux.connect(server.uri) as refused:
            with pytest.raises(afflux.Error):
                await refused.request(b"x")
        await watched.refresh()
        await watched.refresh()
        async with (
            afflux.serve("mem://second", routed(spans)) as second,
            watch(second, meter_provider=readings.provider),
        ):
            found = readings.all()
    place = {"server.address": "127.0.0.1", "server.port": int(server.uri.rpartition(":")[2])}
    here = {
        name: {
            tuple(sorted(set(point.attributes.items()) - set(place.items()))): point.value
            for point in points
            if place.items() <= dict(point.attributes).items()
        }
        for name, points in found.items()
    }
    assert here["afflux.server.connections"] == {(): 1}
    assert here["afflux.stream.live"] == {(): 1}
    assert here["afflux.stream.stalled"] == {
        (("afflux.stream.stall.cause", cause),): int(cause == "credit") for cause in CAUSES
    }
    assert here["afflux.server.connections.refused"] == {(("afflux.limit", "connections"),): 1}
    direction = "network.io.direction"
    assert here["afflux.server.items"] == {((direction, "transmit"),): 1, ((direction, "receive"),): 0}
    assert (
        here["afflux.server.io"][((direction, "transmit"),)] > 0 < here["afflux.server.io"][((direction, "receive"),)]
    )
    assert here["afflux.server.requests.failed"] == here["afflux.server.requests.rejected"] == {(): 0}
    assert [point.value for point in found["afflux.server.connections"]] == [1, 0]
    assert "afflux.server.connections" not in readings.all()  # neither server is watched any more


async def test_a_server_that_is_watched_twice_counts_once() -> None:
    readings = Readings()
    first, second = (functools.partial(watch, meter_provider=readings.provider) for _ in range(2))
    async with afflux.serve("mem://twice", routed(Spans())) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"", route="prices.EUR")
        async with first(server), second(server):
            assert [point.value for point in readings.all()["afflux.server.connections"]] == [1]


async def test_an_interval_above_zero_is_needed() -> None:
    async with afflux.serve("mem://there", routed(Spans())) as server:
        with pytest.raises(ValueError, match="every=0"):
            async with watch(server, every=0, meter_provider=Readings().provider):
                pass


async def test_samples_come_by_themselves() -> None:
    async with (
        afflux.serve("mem://there", routed(Spans())) as server,
        watch(server, every=0.001, meter_provider=Readings().provider) as watched,
    ):
        first = watched.last
        async with asyncio.timeout(30):
            while watched.last is first:
                await asyncio.sleep(0)


async def test_without_the_api_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for call in (Tracing, observer):
        with pytest.raises(afflux.MissingExtra, match=r"afflux\[otel\]"):
            call()
    async with afflux.serve("mem://there", object_with_request()) as server:
        with pytest.raises(afflux.MissingExtra, match=r"afflux\[otel\]"):
            async with watch(server):
                pass


def object_with_request() -> Any:
    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

    return Echo()
