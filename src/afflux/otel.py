"""Report calls and servers to OpenTelemetry: spans with W3C context, and metrics. Needs the extra ``otel``.

::

    router = afflux.Router(middleware=[Tracing(), Metrics(observer())])     # spans and metrics of every call
    async with watch(server): ...                                           # connections, live streams, stalls

Names are those of the semantic conventions for RPC and messaging (1.45), and ``afflux.…`` where they have none. Routes
are the registered ones, never the text of a peer. Does not configure exporters: that is done by the SDK.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from afflux.aio.current import mime_types, takes_entries
from afflux.calls import entries, entries_of
from afflux.calls.arguments import wrong
from afflux.core.errors import Invalid, LocalProtocolError, MissingExtra
from afflux.core.payload import Payload
from afflux.middleware.base import Call, Middleware, Next, NextItems
from afflux.middleware.metrics import OTHER, Observation, Routes, outcome_of
from afflux.observing import CAUSES, EVERY, Sample, Watched, distinct, watched
from afflux.transports.address import parse

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from afflux.aio.server import Server

__all__ = ["Tracing", "observer", "watch"]

_SCOPE: Final = "afflux"
_UNKNOWN: Final = "_OTHER"
"The convention's name for methods that are not registered."
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"Bounds of durations in seconds, which the conventions recommend."
_LONGEST: Final = 128
"Characters of a route's text in a span."
_BYTES: Final = (bytes, bytearray, memoryview)
_QUIET: Final = ("ok", "canceled")
"Outcomes that are no errors."


class Tracing(Middleware):
    """Make a span for every call, and pass its W3C context to the peer.

    At a server the span continues the trace of the request's ``TraceContext`` entry. At a wrapped peer it is a child of
    the current span, and the entry is added to requests with composite metadata; metadata that is plain bytes is sent
    unchanged. The span is current while the handler or the call runs. A span of a stream ends with the stream.

    Args:
        tracer_provider: the provider of the SDK; the global one if None.
        routes: routes to distinguish where no router provides them: at a peer and around a plain handler.

    Raises:
        MissingExtra: the OpenTelemetry API is not installed.
        TypeError: ``tracer_provider`` is not a provider.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, routes: Iterable[str] = ()) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise MissingExtra("OpenTelemetry", "otel") from None
        if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
            raise wrong("tracer_provider=", tracer_provider, "a TracerProvider of OpenTelemetry")
        self._trace = trace
        self._no_context = Context()
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        self._routes = Routes(routes)

    async def request(self, call: Call, next: Next) -> Payload | None:
        """Trace one request."""
        span = self._begin(call)
        try:
            with self._current(span):
                return await next(self._sent(call, span))
        except BaseException as error:
            self._fail(span, error)
            raise
        finally:
            span.end()

    async def fire(self, call: Call, next: Next) -> None:
        """Trace one fire."""
        await self.request(call, next)

    async def push(self, call: Call, next: Next) -> None:
        """Trace one push. Its metadata is sent unchanged."""
        await self.request(call, next)

    async def stream(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Trace one stream. The span is current while an item is awaited, and not while the consumer works."""
        span, count = self._begin(call), 0
        try:
            items = aiter(next(self._sent(call, span)))
            while True:
                with self._current(span):
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                count += 1
                yield item
        except BaseException as error:
            self._fail(span, error)
            raise
        finally:
            span.set_attribute("afflux.stream.items", count)
            span.end()

    def channel(self, call: Call, next: NextItems) -> AsyncIterator[Payload]:
        """Trace one channel."""
        return self.stream(call, next)

    # -- inside -------------------------------------------------------------------------------------------------

    def _current(self, span: Span) -> Any:
        return self._trace.use_span(span, record_exception=False, set_status_on_exception=False)

    def _begin(self, call: Call) -> Span:
        route, protocol = self._routes.label(call), getattr(call.peer, "protocol", "")
        kind = self._trace.SpanKind
        attributes = _method(protocol, call.verb, route) | _where(getattr(call.peer, "uri", ""))
        if route == OTHER and call.route is not None:
            attributes["rpc.method_original"] = call.route[:_LONGEST]
        if host := getattr(call.peer, "host", ""):
            attributes["network.peer.address"] = host
        name = protocol if route == OTHER else attributes["rpc.method"]
        return self._tracer.start_span(
            str(name),
            None if call.outbound else self._parent(call),
            kind.CLIENT if call.outbound else kind.SERVER,
            attributes,
        )

    def _parent(self, call: Call) -> Context:
        """Return the context of an inbound call: that of its trace context, otherwise an empty one."""
        mime, found = mime_types()[0], None
        if call.verb != "push" and mime != "":
            with suppress(Invalid):
                found = entries(call.payload, mime).trace
        carrier = {} if found is None else {"traceparent": found.traceparent, "tracestate": found.tracestate}
        return self._propagator.extract(carrier, self._no_context)

    def _sent(self, call: Call, span: Span) -> Call:
        """Return an outbound call with the context of its span."""
        given = call.options.get("metadata")
        if not call.outbound or call.verb == "push" or call.payload.metadata is not None or isinstance(given, _BYTES):
            return call
        if call.peer is None or not takes_entries(call.peer):
            return call
        from afflux.protocols.rsocket.metadata import TraceContext

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        parent = carrier.get("traceparent")
        if parent is None:  # not recorded
            return call
        try:
            entry = TraceContext(parent, carrier.get("tracestate", ""))
        except LocalProtocolError:  # a state that is too long for an entry
            entry = TraceContext(parent)
        return call.replace(options={**call.options, "metadata": [*entries_of(given), entry]})

    def _fail(self, span: Span, error: BaseException) -> None:
        if isinstance(error, GeneratorExit | CancelledError) or not isinstance(error, Exception):
            span.set_attribute("error.type", "canceled")
            return
        outcome, code = outcome_of(error)
        span.set_attributes(_failure(outcome))
        if code is not None:
            span.set_attribute("afflux.code", code)
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR, str(error))


def observer(meter_provider: MeterProvider | None = None) -> Callable[[Observation], None]:
    """Return an observer for ``afflux.middleware.Metrics``, which records every call that has ended.

    It has histograms of durations, ``rpc.server.call.duration`` and ``rpc.client.call.duration``, and counters of the
    items of streams and channels, ``messaging.client.sent.messages`` at a server and
    ``messaging.client.consumed.messages`` at a peer.

    Args:
        meter_provider: the provider of the SDK; the global one if None.

    Raises:
        MissingExtra: the OpenTelemetry API is not installed.
        TypeError: ``meter_provider`` is not a provider.
    """
    meter = _provider(meter_provider).get_meter(_SCOPE)
    durations = {
        outbound: meter.create_histogram(
            f"rpc.{side}.call.duration", "s", "Duration of calls", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        for outbound, side in ((False, "server"), (True, "client"))
    }
    items = {
        outbound: meter.create_counter(f"messaging.client.{what}.messages", "{message}", f"Items {what} on streams")
        for outbound, what in ((False, "sent"), (True, "consumed"))
    }

    def record(seen: Observation) -> None:
        failure = {} if seen.outcome in _QUIET else _failure(seen.outcome)
        durations[seen.outbound].record(seen.seconds, _method(seen.protocol, seen.verb, seen.route) | failure)
        if seen.items and seen.verb in ("stream", "channel"):
            attributes = {
                "messaging.system": seen.protocol,
                "messaging.operation.name": "receive" if seen.outbound else "send",
                "messaging.destination.template": _UNKNOWN if seen.route == OTHER else seen.route,
            }
            items[seen.outbound].add(seen.items, attributes)

    return record


@asynccontextmanager
async def watch(
    server: Server, *, every: float = EVERY, meter_provider: MeterProvider | None = None
) -> AsyncIterator[Watched]:
    """Report the state of a server that has started, as observable instruments: ``async with watch(server)``.

    Connections and refused ones, live and stalled streams by ``afflux.stream.stall.cause``, items and bytes in both
    directions, handlers that failed, requests that were rejected.

    Args:
        server: the server.
        every: seconds between two samples; ``await result.refresh()`` samples at once.
        meter_provider: the provider of the SDK; the global one if None.

    Raises:
        MissingExtra: the OpenTelemetry API is not installed.
        TypeError: ``server`` is not a server, or ``meter_provider`` is not a provider.
        ValueError: ``every`` is not above 0.
    """
    provider = _provider(meter_provider)
    servers = _watching.get(provider)
    if servers is None:
        servers = _watching[provider] = []
        _instruments(provider, servers)
    async with watched(server, every) as found:
        servers.append(found)
        try:
            yield found
        finally:
            servers.remove(found)


_watching: WeakKeyDictionary[Any, list[Watched]] = WeakKeyDictionary()
"The servers that each provider reports."
_Values = Callable[[Sample], Iterable[tuple[int, Mapping[str, str]]]]


def _instruments(provider: MeterProvider, servers: list[Watched]) -> None:
    """Create the observable instruments of a provider, once: each reports all its servers."""
    meter, observation = provider.get_meter(_SCOPE), _metrics().Observation

    def add(create: Any, name: str, unit: str, values: _Values) -> None:
        def collect(_: object) -> Iterable[Any]:
            sums: Counter[tuple[tuple[str, str | int], ...]] = Counter()
            for one in distinct(servers):
                for value, attributes in values(one.last):
                    sums[(*_where(one.uri).items(), *attributes.items())] += value
            for series, value in sums.items():  # servers of one address are one series
                yield observation(value, dict(series))

        create(f"afflux.{name}", [collect], unit)

    now, total = meter.create_observable_up_down_counter, meter.create_observable_counter
    add(now, "server.connections", "{connection}", lambda one: [(one.connections, {})])
    add(now, "stream.live", "{stream}", lambda one: [(one.live, {})])
    add(now, "stream.stalled", "{stream}", _stalls)
    add(total, "server.connections.refused", "{connection}", _refusals)
    add(total, "server.items", "{item}", lambda one: _ways(one.traffic.items_sent, one.traffic.items_received))
    add(total, "server.io", "By", lambda one: _ways(one.traffic.bytes_sent, one.traffic.bytes_received))
    add(total, "server.requests.failed", "{request}", lambda one: [(one.traffic.failed, {})])
    add(total, "server.requests.rejected", "{request}", lambda one: [(one.traffic.rejected, {})])


def _stalls(one: Sample) -> Iterable[tuple[int, Mapping[str, str]]]:
    return [(one.stalled[cause], {"afflux.stream.stall.cause": cause}) for cause in CAUSES]


def _refusals(one: Sample) -> Iterable[tuple[int, Mapping[str, str]]]:
    return [(count, {"afflux.limit": name}) for name, count in one.refused.items()]


def _ways(sent: int, received: int) -> Iterable[tuple[int, Mapping[str, str]]]:
    return [(sent, {"network.io.direction": "transmit"}), (received, {"network.io.direction": "receive"})]


def _provider(given: MeterProvider | None) -> MeterProvider:
    provider: MeterProvider = _metrics().get_meter_provider() if given is None else given
    if not callable(getattr(provider, "get_meter", None)):
        raise wrong("meter_provider=", given, "a MeterProvider of OpenTelemetry")
    return provider


def _metrics() -> Any:
    try:
        from opentelemetry import metrics
    except ImportError:
        raise MissingExtra("OpenTelemetry", "otel") from None
    return metrics


def _method(protocol: str, verb: str, route: str) -> dict[str, str | int]:
    """Return the attributes of a call. The method of a call without a route is its verb."""
    method = _UNKNOWN if route == OTHER else route or verb
    return {"rpc.system.name": protocol, "rpc.method": method, "afflux.verb": verb}


def _failure(outcome: str) -> dict[str, str | int]:
    return {"rpc.response.status_code": outcome, "error.type": outcome}


@lru_cache(maxsize=64)
def _where_of(uri: str) -> tuple[tuple[str, str | int], ...]:
    address = parse(uri)
    port = () if address.port is None else (("server.port", address.port),)
    return (("server.address", address.host or address.path), *port)


def _where(uri: str) -> dict[str, str | int]:
    """Return the attributes of an address."""
    return dict(_where_of(uri)) if uri else {}
