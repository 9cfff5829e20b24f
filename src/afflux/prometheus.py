"""Report calls and servers to Prometheus. Needs the extra ``prometheus``.

::

    router = afflux.Router(middleware=[Metrics(observer())])     # calls: how many, how long, how they ended
    async with watch(server): ...                                # connections, live streams, stalls
    prometheus_client.start_http_server(9000)                    # for Prometheus to scrape

Labels have few values: routes are the registered ones, never the text of a peer. Does not open ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from afflux.calls.arguments import wrong
from afflux.core.errors import MissingExtra
from afflux.middleware.metrics import Observation
from afflux.observing import CAUSES, EVERY, Sample, Watched, distinct, watched

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from afflux.aio.server import Server

__all__ = ["observer", "watch"]

_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"Bounds of durations, in seconds."
_CALL: Final = ("side", "protocol", "verb", "route")

_observers: WeakKeyDictionary[CollectorRegistry, Callable[[Observation], None]] = WeakKeyDictionary()
_collectors: WeakKeyDictionary[CollectorRegistry, _Servers] = WeakKeyDictionary()


def observer(registry: CollectorRegistry | None = None) -> Callable[[Observation], None]:
    """Return the observer of a registry for ``afflux.middleware.Metrics``, which records every call that has ended.

    It has the counters ``afflux_calls_total`` and ``afflux_items_total`` (items of streams and channels), and the
    histogram ``afflux_call_seconds``. Labels are ``side`` (server or client), ``protocol``, ``verb``, ``route``, and of
    calls ``outcome``.

    Args:
        registry: the default registry if None. All calls with one registry return the same observer.

    Raises:
        MissingExtra: prometheus-client is not installed.
        TypeError: ``registry`` is not a CollectorRegistry.
    """
    client = _client()
    registry = _registry(client, registry)
    if registry in _observers:
        return _observers[registry]
    calls = client.Counter("afflux_calls", "Calls that have ended.", (*_CALL, "outcome"), registry=registry)
    items = client.Counter("afflux_items", "Items of streams and channels that have ended.", _CALL, registry=registry)
    took = client.Histogram("afflux_call_seconds", "Durations of calls.", _CALL, registry=registry, buckets=_BUCKETS)

    def record(seen: Observation) -> None:
        labels = ("client" if seen.outbound else "server", seen.protocol, seen.verb, seen.route)
        calls.labels(*labels, seen.outcome).inc()
        took.labels(*labels).observe(seen.seconds)
        if seen.verb in ("stream", "channel"):
            items.labels(*labels).inc(seen.items)

    _observers[registry] = record
    return record


@asynccontextmanager
async def watch(
    server: Server, *, every: float = EVERY, registry: CollectorRegistry | None = None
) -> AsyncIterator[Watched]:
    """Report the state of a server that has started: ``async with watch(server)``.

    Gauges: ``afflux_server_connections``, ``afflux_server_streams``, ``afflux_server_streams_stalled`` by ``cause``.
    Counters: ``afflux_server_refused_total`` by ``limit``, ``afflux_server_items_total`` and
    ``afflux_server_bytes_total`` by ``direction``, ``afflux_server_failed_total``, ``afflux_server_rejected_total``.
    The label ``server`` is the address. Servers of one address, which share its port, are one series: their sum.

    Args:
        server: the server.
        every: seconds between two samples; ``await result.refresh()`` samples at once.
        registry: the default registry if None.

    Raises:
        MissingExtra: prometheus-client is not installed.
        TypeError: ``server`` is not a server, or ``registry`` is not a CollectorRegistry.
        ValueError: ``every`` is not above 0.
    """
    client = _client()
    registry = _registry(client, registry)
    if (servers := _collectors.get(registry)) is None:
        servers = _collectors[registry] = _Servers()
        registry.register(servers)
    async with watched(server, every) as found:
        servers.watched.append(found)
        try:
            yield found
        finally:
            servers.watched.remove(found)


_Values = Callable[[Sample], Iterable[tuple[str, int]]]


class _Servers:
    """Collects the last samples of the servers of one registry, in the thread of a scrape."""

    def __init__(self) -> None:
        self.watched: list[Watched] = []

    def describe(self) -> Iterable[Any]:
        """Return nothing: the registry need not collect before there is a server."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        yield self._family(gauge, "connections", "Connected clients.", "", lambda one: [("", one.connections)])
        yield self._family(gauge, "streams", "Live streams.", "", lambda one: [("", one.live)])
        stalls = "Live streams that moved nothing between two samples, by what they wait for."
        yield self._family(gauge, "streams_stalled", stalls, "cause", _stalls)
        yield self._family(counter, "refused", "Refused connections.", "limit", lambda one: one.refused.items())
        items = "Items of streams and channels, of live ones too."
        yield self._family(
            counter, "items", items, "direction", lambda one: _ways(one.traffic.items_sent, one.traffic.items_received)
        )
        yield self._family(
            counter,
            "bytes",
            "Bytes of the transports.",
            "direction",
            lambda one: _ways(one.traffic.bytes_sent, one.traffic.bytes_received),
        )
        yield self._family(counter, "failed", "Handlers that raised.", "", lambda one: [("", one.traffic.failed)])
        yield self._family(counter, "rejected", "Rejected requests.", "", lambda one: [("", one.traffic.rejected)])

    def _family(self, kind: Any, name: str, text: str, label: str, values: _Values) -> Any:
        family = kind(f"afflux_server_{name}", text, labels=["server", label] if label else ["server"])
        sums: Counter[tuple[str, ...]] = Counter()
        for one in distinct(self.watched):
            for value, number in values(one.last):
                sums[(one.uri, value) if label else (one.uri,)] += number
        for labels, number in sums.items():
            family.add_metric(labels, number)
        return family


def _stalls(one: Sample) -> Iterable[tuple[str, int]]:
    return [(cause, one.stalled[cause]) for cause in CAUSES]


def _ways(sent: int, received: int) -> Iterable[tuple[str, int]]:
    return (("sent", sent), ("received", received))


def _registry(client: Any, given: CollectorRegistry | None) -> CollectorRegistry:
    if not isinstance(given, client.CollectorRegistry | None):
        raise wrong("registry=", given, "a CollectorRegistry of prometheus_client")
    registry: CollectorRegistry = client.REGISTRY if given is None else given
    return registry


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise MissingExtra("Prometheus", "prometheus") from None
    return prometheus_client
