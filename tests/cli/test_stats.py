"""``serve --stats``: what is printed, by a real server whose clients do known things."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux.cli.stats import COLUMNS, printing, scaled, stats_lines
from tests.cli.running import Server, here

NEVER = 3600.0


class Handler:
    """Three items and then nothing; an error; silence."""

    async def request(self, payload: afflux.Payload) -> bytes:
        if payload.data == b"fail":
            raise KeyError("a bug")
        return payload.data

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for number in range(1000):
            yield b"%d" % number

    async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for item in items:
            yield item.data


def parts(text: str) -> list[str]:
    """The parts of the last block of lines, without the time."""
    blocks = re.split(r"^\d\d:\d\d:\d\d ", text, flags=re.MULTILINE)
    return re.split(r" \| |\n +", blocks[-1].strip())


async def test_the_parts_tell_what_has_happened(capsys: pytest.CaptureFixture[str]) -> None:
    limits = afflux.Limits.server(connections=2)
    async with (
        afflux.serve("tcp://127.0.0.1:0", Handler(), limits=limits) as server,
        printing(server, NEVER) as stats,
        afflux.connect(server.uri) as peer,
        afflux.connect(server.uri) as other,
    ):
        await other.request(b"x")
        with pytest.raises(afflux.ApplicationError):
            await peer.request(b"fail")
        async with peer.channel([b"1", b"2", b"3"]) as items:
            assert len([item async for item in items]) == 3
        async with peer.stream(b"", credit=0) as items:
            items.request(3)
            assert [await anext(items) for _ in range(3)]
            async with afflux.connect(server.uri) as refused:
                with pytest.raises(afflux.Error):
                    await refused.request(b"x")
            await stats.print()
            first = capsys.readouterr().err
            await stats.print()
            second = capsys.readouterr().err
    assert all(len(line) <= COLUMNS for line in (first + second).splitlines())
    found = parts(first)
    assert found[:2] == ["2 connected", "1 live"]
    units = {part.split(" ", 1)[1].lstrip("kM") for part in found[2:8]}
    assert units == {"requests/s", "streams/s", "items/s out", "items/s in", "B/s out", "B/s in"}
    assert found[8:] == ["credit 0", "1 failed", "1 refused: connections 1"]
    assert parts(second) == [
        *("2 connected", "1 live", "0 requests/s", "0 B/s out", "0 B/s in", "credit 0", "1 stalled: credit 1")
    ]
    traffic = server.traffic()
    assert (traffic.connections, traffic.requests, traffic.streams, traffic.failed) == (2, 2, 2, 1)
    assert (traffic.items_sent, traffic.items_received, traffic.rejected) == (6, 2, 0)


async def test_a_client_that_wants_everything_has_unlimited_credit(capsys: pytest.CaptureFixture[str]) -> None:
    class Silent:
        async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.Event().wait()

    async with (
        afflux.serve("tcp://127.0.0.1:0", Silent()) as server,
        printing(server, NEVER) as stats,
        afflux.connect(server.uri) as peer,
    ):
        async with peer.stream(b"", credit=0) as items:
            items.request(0x7FFFFFFF)
            items.request(0x7FFFFFFF)
            await anext(items)
            await stats.print()
            await stats.print()
            assert parts(capsys.readouterr().err)[-1] == "credit unlimited"  # a producer with nothing to send
        with pytest.raises(afflux.Rejected):
            await peer.request(b"x")
        await stats.print()
        assert parts(capsys.readouterr().err)[-1] == "1 requests rejected"


def test_the_command_prints_a_line_at_an_interval_and_one_at_the_end() -> None:
    line = r"\d\d:\d\d:\d\d 0 connected \| 0 live \| 0 requests/s \| 0 B/s out \| 0 B/s in\n"
    with Server("--demo", "--stats", "100ms") as server:
        assert server.process.stderr is not None
        assert re.fullmatch(line, server.process.stderr.readline())
        code, out, errors = server.stop(signal.SIGINT)
    assert (code, out) == (130, "")
    assert re.fullmatch(f"({line})+", errors)


def test_workers_print_lines_of_their_own() -> None:
    with Server("--demo", "--stats", "0.1", "--workers", "2") as server:
        assert server.process.stderr is not None
        seen = set()
        while len(seen) < 2:
            found = re.match(r"\d\d:\d\d:\d\d \[(\d+)\] 0 connected", server.process.stderr.readline())
            assert found is not None
            seen.add(found[1])


def test_an_interval_is_a_tenth_of_a_second_or_more() -> None:
    ran = here("serve", "tcp://127.0.0.1:0", "--demo", "--stats", "0")
    assert ran.code == 2 and "--stats" in ran.errors


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7.46, "7.5"),
        (9.96, "10"),
        (45.2, "45"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (45_678, "46k"),
        (3_100_000, "3.1M"),
        (10**30, "1000000000000E"),
    ],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert scaled(number) == text


def test_the_unit_of_bytes_has_the_prefix() -> None:
    assert scaled(1234, "B/s out") == "1.2 kB/s out"
    assert scaled(1234, "items/s") == "1.2k items/s"


def test_lines_are_at_most_80_columns_and_a_long_part_has_its_own() -> None:
    lines = stats_lines("12:00:00 ", ["x" * 30, "y" * 30, "z" * 90, "end"])
    assert lines == [f"12:00:00 {'x' * 30} | {'y' * 30}", f"{' ' * 9}{'z' * 90}", f"{' ' * 9}end"]
