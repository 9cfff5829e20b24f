"""Arguments that cannot work are refused where they are given, with the argument's name and what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import afflux
from afflux import prometheus
from afflux.otel import watch
from afflux.testing import Faults


async def otel_watch(server: Any, **options: Any) -> None:
    async with watch(server, **options):
        raise AssertionError("it was accepted")


async def prometheus_watch(server: Any, **options: Any) -> None:
    async with prometheus.watch(server, **options):
        raise AssertionError("it was accepted")


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
