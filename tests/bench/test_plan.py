"""What a load may be: choices that can not be are refused before anything is opened."""

from __future__ import annotations

import re
from typing import Any

import pytest

import afflux
from afflux.bench import UNBOUNDED, Plan
from afflux.bench.plan import filler

URI = "tcp://127.0.0.1:7000"


def plan(**choices: Any) -> Plan:
    return Plan(uri=URI, **choices)


def test_what_is_meant_without_a_choice() -> None:
    assert (plan().seconds, plan().streams, plan().flows, plan().bounded) == (10.0, 1, False, True)
    assert (plan(requests=5).seconds, plan(rate=10).streams, plan(rate=10, concurrency=3).streams) == (None, 256, 3)
    assert plan(requests=5, duration=2).seconds == 2
    assert (plan(credit=UNBOUNDED).bounded, plan(credit="auto").bounded) == (False, True)


@pytest.mark.parametrize(
    ("choices", "cuts"),
    [
        ({"verb": "stream"}, True),
        ({"verb": "stream", "take": 5}, False),
        ({"verb": "stream", "ends": True}, False),
        ({"verb": "channel"}, False),
        ({"verb": "request"}, False),
    ],
)
def test_only_a_stream_that_may_go_on_for_ever_is_cut(choices: dict[str, Any], cuts: bool) -> None:
    assert plan(**choices).cuts is cuts


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"verb": "ask"}, "invalid verb 'ask': expected one of request, fire, stream, channel"),
        ({"requests": 0}, "invalid requests 0: expected 1 to"),
        ({"duration": 0.0}, "invalid duration 0.0: expected 0.001 to"),
        ({"connections": 0}, "invalid connections 0: expected 1 to"),
        ({"concurrency": 0}, "invalid concurrency 0: expected 1 to 100,000"),
        ({"rate": 0.0}, "invalid rate 0.0: expected 0.001 to 10,000,000 per second"),
        ({"rate": float("nan")}, "invalid rate nan"),
        ({"warmup": -1.0}, "invalid warmup -1.0"),
        ({"timeout": 0.0}, "invalid timeout 0.0"),
        ({"connect_timeout": 0.0}, "invalid connect_timeout 0.0"),
        ({"items": 0}, "invalid items 0"),
        ({"take": 0}, "invalid take 0"),
        ({"credit": 0}, 'invalid credit 0: expected 1 to 2,147,483,647 items, or "auto"'),
        ({"credit": UNBOUNDED + 1}, "invalid credit"),
        ({"credit": "much"}, "invalid credit"),
        ({"workers": 257, "connections": 300}, "invalid workers 257: expected 1 to 256"),
        ({"connections": 500, "concurrency": 201}, "exceed 100,000 streams per process"),
        ({"workers": 2}, "2 workers require at least as many connections, not 1"),
        ({"workers": 3, "connections": 3, "requests": 2}, "3 workers require at least as many requests, not 2"),
    ],
)
def test_a_choice_that_can_not_be(choices: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        plan(**choices)


def test_an_address_that_can_not_be() -> None:
    with pytest.raises(afflux.AddressError, match="unknown transport"):
        Plan(uri="smtp://127.0.0.1:25")
    with pytest.raises(ValueError, match="mem:// connects within one process"):
        Plan(uri="mem://x", workers=2, connections=2)


def test_at_the_limit_of_streams() -> None:
    assert plan(connections=500, concurrency=200).streams == 200
    assert plan(connections=1000, concurrency=200, workers=2).streams == 200


def test_workers_share_all_of_it() -> None:
    shares = plan(workers=3, connections=8, requests=100, rate=50, concurrency=4).shares()
    assert [share.connections for share in shares] == [3, 3, 2]
    assert [share.requests for share in shares] == [34, 33, 33]
    assert [share.turn for share in shares] == [(0, 3), (1, 3), (2, 3)]
    assert {(share.workers, share.rate, share.streams) for share in shares} == {(1, 50, 4)}
    assert [share.requests for share in plan(workers=2, connections=2).shares()] == [None, None]


def test_warming_up_is_the_same_load_for_another_time() -> None:
    warm = plan(requests=5, warmup=2.0, rate=7).warm()
    assert (warm.requests, warm.seconds, warm.warmup, warm.rate) == (None, 2.0, 0.0, 7)


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(plan(setup=afflux.Bearer("secret")))


def test_data_is_the_same_every_time() -> None:
    assert filler(0) == b""
    assert filler(5) == b"01234"
    assert (len(filler(1000)), filler(1000)) == (1000, filler(1000))


def test_the_payload_has_data_metadata_and_the_route() -> None:
    assert plan(data=b"x").payload() == afflux.Payload(b"x")
    assert afflux.route_of(plan(route="echo", metadata=b"m").payload()) == "echo"
    with pytest.raises(afflux.LocalProtocolError):
        plan(route="x" * 300).payload()
