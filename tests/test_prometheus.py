"""The adapter for Prometheus, scraped over HTTP as Prometheus does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import afflux
from afflux.middleware import Metrics
from afflux.observing import CAUSES
from afflux.prometheus import observer, watch

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextmanager
def exposed(registry: CollectorRegistry) -> Iterator[str]:
    """The address of a registry's metrics."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def scraped(uri: str) -> Values:
    """All samples of an address."""

    def read() -> str:
        with urlopen(uri, timeout=30) as answer:
            return str(answer.read().decode())

    families = text_string_to_metric_families(await asyncio.to_thread(read))
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def routed(*middleware: afflux.Middleware) -> afflux.Router:
    router = afflux.Router(middleware=middleware)

    @router.request("prices.{symbol}")
    async def price(payload: afflux.Payload, symbol: str) -> str:
        if symbol == "BAD":
            raise KeyError("a bug")
        return symbol

    @router.stream("ticks")
    async def ticks(payload: afflux.Payload) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"tick"

    return router


async def test_calls_are_counted_by_registered_route() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(observer(registry), routes=["ticks"])
    with exposed(registry) as uri:
        async with (
            afflux.serve("tcp://127.0.0.1:0", routed(metrics)) as server,
            afflux.connect(server.uri) as plain,
        ):
            peer = afflux.wrap(plain, metrics)
            for symbol in ("A", "B"):
                await peer.request(route=f"prices.{symbol}")
            with pytest.raises(afflux.ApplicationError):
                await peer.request(route="prices.BAD")
            for number in range(50):
                with pytest.raises(afflux.Rejected):
                    await peer.request(route=f"invented.{number}")
            assert len([item async for item in peer.stream(route="ticks")]) == 3
        found = await scraped(uri)
    call = {"side": "server", "protocol": "rsocket", "verb": "request"}
    prices = call | {"route": "prices.{symbol}"}
    assert value(found, "afflux_calls_total", **prices, outcome="ok") == 2
    assert value(found, "afflux_calls_total", **prices, outcome="APPLICATION_ERROR") == 1
    assert value(found, "afflux_calls_total", **call, route="other", outcome="REJECTED") == 50
    assert value(found, "afflux_call_seconds_count", **prices) == 3
    assert 0 < value(found, "afflux_call_seconds_bucket", **prices, le="10.0") <= 3
    for side in ("server", "client"):
        ticks = {"side": side, "protocol": "rsocket", "verb": "stream", "route": "ticks"}
        assert value(found, "afflux_items_total", **ticks) == 3
    routes = {dict(labels).get("route") for _, labels in found}
    assert routes == {"prices.{symbol}", "ticks", "other"}


async def test_a_watched_server_is_scraped_from_another_thread() -> None:
    registry = CollectorRegistry()
    limits = afflux.Limits.server(connections=1)
    with exposed(registry) as uri:
        async with (
            afflux.serve("tcp://127.0.0.1:0", routed(), limits=limits) as server,
            watch(server, registry=registry) as watched,
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
            async with afflux.serve("mem://second", routed()) as second, watch(second, registry=registry):
                found = await scraped(uri)
        after = await scraped(uri)
    place = {"server": server.uri}
    assert value(found, "afflux_server_connections", **place) == 1
    assert value(found, "afflux_server_connections", server="mem://second") == 0
    assert value(found, "afflux_server_streams", **place) == 1
    stalled = {cause: value(found, "afflux_server_streams_stalled", **place, cause=cause) for cause in CAUSES}
    assert stalled == {cause: float(cause == "credit") for cause in CAUSES}
    assert value(found, "afflux_server_refused_total", **place, limit="connections") == 1
    assert value(found, "afflux_server_items_total", **place, direction="sent") == 1
    assert value(found, "afflux_server_bytes_total", **place, direction="received") > 0
    assert value(found, "afflux_server_failed_total", **place) == 0
    assert value(found, "afflux_server_rejected_total", **place) == 0
    assert after == {}


async def test_a_registry_has_one_observer() -> None:
    registry = CollectorRegistry()
    assert observer(registry) is observer(registry)
    assert observer(CollectorRegistry()) is not observer(registry)


async def test_a_server_that_is_watched_twice_has_each_sample_once() -> None:
    """Prometheus refuses a page that has a sample twice. The address is the one that the server has at the end."""
    registry = CollectorRegistry()
    server = afflux.serve("tcp://127.0.0.1:0", routed())
    with exposed(registry) as uri:
        async with watch(server, registry=registry), watch(server, registry=registry) as second, server:
            peer = await afflux.connect(server.uri)
            await peer.request(b"", route="prices.EUR")
            await second.refresh()
            page = await asyncio.to_thread(lambda: urlopen(uri, timeout=30).read().decode())
            await peer.close()
    assert [line for line in page.splitlines() if line.startswith("afflux_server_connections{")] == [
        f'afflux_server_connections{{server="{server.uri}"}} 1.0'
    ]


async def test_servers_of_one_address_are_one_series() -> None:
    """A scrape with a series twice is refused as a whole."""
    registry, uri = CollectorRegistry(), "tcp://127.0.0.1:0"
    async with (
        afflux.serve(uri, routed(), reuse_port=True) as first,
        afflux.serve(first.uri, routed(), reuse_port=True) as second,
        watch(first, registry=registry) as one,
        watch(second, registry=registry) as two,
        afflux.connect(first.uri) as peer,
    ):
        await peer.request(b"", route="prices.EUR")
        await asyncio.gather(one.refresh(), two.refresh())
        lines = generate_latest(registry).decode().splitlines()
    series = [line for line in lines if line.startswith("afflux_server_connections{")]
    assert series == [f'afflux_server_connections{{server="{first.uri}"}} 1.0']
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


async def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Echo:
        async def request(self, payload: Any) -> Any:
            return payload

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(afflux.MissingExtra, match=r"afflux\[prometheus\]"):
        observer()
    async with afflux.serve("mem://there", Echo()) as server:
        with pytest.raises(afflux.MissingExtra, match=r"afflux\[prometheus\]"):
            async with watch(server):
                pass
