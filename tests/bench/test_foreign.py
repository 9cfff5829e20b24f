"""Against a server that is not ours: rsocket 0.4.20 of PyPI."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from afflux.bench import UNBOUNDED, Plan, Result, run
from afflux.core.autocredit import Kept

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    pytest.importorskip("rsocket")
    command = [sys.executable, "-m", "tests.bench.foreign"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"tcp://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        process.wait(timeout=60)


def whole(result: Result) -> Result:
    assert (result.tally.failed, result.tally.unfinished) == (0, 0)
    assert result.trip is not None
    return result


async def test_requests(uri: str) -> None:
    result = whole(await run(Plan(uri=uri, requests=200, connections=2, concurrency=8, data=b"x" * 1000)))
    assert (result.tally.succeeded, result.tally.bytes) == (200, 200_000)


async def test_requests_at_a_rate(uri: str) -> None:
    result = whole(await run(Plan(uri=uri, rate=500, requests=100, data=b"x")))
    assert (result.tally.succeeded, result.tally.service.count) == (100, 100)


async def test_fires(uri: str) -> None:
    assert whole(await run(Plan(uri=uri, verb="fire", rate=500, requests=50))).tally.succeeded == 50


@pytest.mark.parametrize("credit", [1, 8, "auto", UNBOUNDED])
async def test_streams(uri: str, credit: Kept) -> None:
    plan = Plan(uri=uri, verb="stream", requests=4, concurrency=2, credit=credit, data=b"100 10")
    result = whole(await run(plan))
    assert (result.tally.succeeded, result.tally.items, result.tally.bytes) == (4, 400, 4000)
    assert result.stall is not None


async def test_streams_that_are_taken_from(uri: str) -> None:
    plan = Plan(uri=uri, verb="stream", requests=3, take=7, credit=4, data=b"1000000 1")
    result = whole(await run(plan))
    assert (result.tally.succeeded, result.tally.items) == (3, 21)


async def test_its_errors_are_reported(uri: str) -> None:
    result = await run(Plan(uri=uri, requests=5, data=b"fail"))
    assert [(failure.kind, failure.code, failure.count) for failure in result.failures] == [
        ("ApplicationError", 0x201, 5)
    ]
    assert result.failures[0].example == "as you wish"
    assert not result.successful
