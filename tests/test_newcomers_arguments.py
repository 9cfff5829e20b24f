"""Arguments that cannot work are refused where they are given, with the argument's name and what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import afflux
from afflux import prometheus
from afflux.broker import Broker
from afflux.otel import Tracing, observer, watch
from afflux.testing import Faults


async def otel_watch(server: Any, **options: Any) -> None:
    async with watch(server, **options):
        pass


async def prometheus_watch(server: Any, **options: Any) -> None:
    async with prometheus.watch(server, **options):
        pass


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a delay below 0": (lambda: Faults(delay=-1), ValueError, "delay= is a number of seconds, 0 or more, not -1"),
    "a delay without end": (
        lambda: Faults(jitter=float("inf")),
        ValueError,
        "jitter= is a number of seconds, 0 or more, not inf",
    ),
    "a delay in words": (
        lambda: Faults(delay="1s"),  # type: ignore[arg-type]
        TypeError,
        "delay= is a number of seconds, not '1s'",
    ),
    "no rate": (
        lambda: Faults(rate=0),
        ValueError,
        "rate= is a number of bytes per second, above 0, or None, not 0",
    ),
    "slices below 0": (lambda: Faults(slices=-1), ValueError, "slices= is a number of bytes, 0 or more, not -1"),
    "half a byte": (
        lambda: Faults(cut_after=0.5),  # type: ignore[arg-type]
        TypeError,
        "cut_after= is a whole number of bytes, not 0.5",
    ),
    "routes below 1": (lambda: Broker(routes=-1), ValueError, "routes must be 1 or more, not -1"),
    "no receivers": (lambda: Broker(receivers=0), ValueError, "receivers must be 1 or more, not 0"),
    "credit in words": (
        lambda: Broker(credit="auto"),  # type: ignore[arg-type]
        TypeError,
        "credit is a whole number, 1 or more, not 'auto'",
    ),
    "tracing to a number": (
        lambda: Tracing(5),  # type: ignore[arg-type]
        TypeError,
        "tracer_provider= is a TracerProvider of OpenTelemetry, not 5",
    ),
    "metrics to a number": (
        lambda: observer(5),  # type: ignore[arg-type]
        TypeError,
        "meter_provider= is a MeterProvider of OpenTelemetry, not 5",
    ),
    "a registry that is a number": (
        lambda: prometheus.observer(5),  # type: ignore[arg-type]
        TypeError,
        "registry= is a CollectorRegistry of prometheus_client, not 5",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake(what: str) -> None:
    use, kind, text = MISTAKES[what]
    with pytest.raises(kind) as refused:
        use()
    assert str(refused.value) == text


def test_faults_at_their_bounds() -> None:
    Faults(delay=0, jitter=0.0, rate=0.5, slices=0, cut_after=0, lose_after=0)


@pytest.mark.parametrize("watching", [otel_watch, prometheus_watch])
async def test_watching_what_is_no_server(watching: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"^server is a server of afflux\.serve, .*, not 5$"):
        await watching(5)
    router = afflux.Router()
    router.request()(lambda payload: payload)
    async with afflux.serve("mem://watched", router) as server:
        with pytest.raises(TypeError, match=r"^every= is a number of seconds, not '10s'$"):
            await watching(server, every="10s")


def test_a_misspelled_method_of_a_middleware() -> None:
    with pytest.raises(TypeError, match=r'^Audit\.requests: no verb .* did you mean "request"\?'):

        class Audit(afflux.Middleware):
            async def requests(self, call: afflux.Call, next: Any) -> Any:
                return await next(call)


def test_other_methods_of_a_middleware() -> None:
    """Helpers, other parameters, and a near name beside the verb itself are no mistakes."""

    class Audit(afflux.Middleware):
        streams = 0

        async def request(self, call: afflux.Call, next: Any) -> Any:
            return await self.requested(call, next)

        async def requested(self, call: afflux.Call, next: Any) -> Any:
            return await next(call)

        async def _stream(self, call: afflux.Call, next: Any) -> Any:
            return await next(call)

        def channels(self) -> int:
            return self.streams

        async def measured(self, call: afflux.Call, next: Any) -> Any:
            return await next(call)

    assert Audit().channels() == 0


def test_the_longest_route() -> None:
    router = afflux.Router()
    for route in ("é" * 127 + "r", "r" * 254 + "{symbol}"):

        @router.request(route)
        async def answer(payload: afflux.Payload, symbol: str = "") -> afflux.Payload:
            return payload

    for route in ("é" * 128, "r" * 255 + "{symbol}"):
        with pytest.raises(ValueError, match=r"has 256 bytes: a routing entry has room for 255$"):
            router.request(route)(answer)
