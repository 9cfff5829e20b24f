"""The answers of the SQL on docs/how-to/capture-tables.md, about a capture whose truth is known.

The packets, and so the truth, are made here: when each was sent, what it holds, which are missing or repeated. Nothing
of ``afflux.capture`` is asked for it; tshark, another reader, must agree about bytes and packets.

Rule numbers are RSocket's.
"""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.capture.output import write_tables  # noqa: E402
from afflux.capture.schemas import TABLES  # noqa: E402
from afflux.protocols.rsocket import frames as wire  # noqa: E402
from tests.capture.tabling import SETUP, asks, complete, grant, item  # noqa: E402
from tests.capture.test_stalls import windowed  # noqa: E402
from tests.capture.writing import START, Packet, Talk, pcap  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "capture-tables.md"
SECOND, MILLI = 1_000_000_000, 1_000_000
LATENCIES_MS = range(1, 101)
"How long each request of the route echo takes: the 99th percentile, interpolated, is 99.01 ms, and the median 50.5."
SLOW_MS = [20] * 20 + [2_500]
OTHER = ("10.0.0.9", 7_001)


def routed(name: bytes) -> bytes:
    """Composite metadata with a route: bytes of the specification, not of our encoder."""
    return b"\xfe" + (len(name) + 1).to_bytes(3, "big") + bytes([len(name)]) + name


def asked(stream: int, route: bytes, data: bytes = b"ask") -> bytes:
    return wire.RequestResponse(stream=stream, metadata=routed(route), data=data).encode(prefixed=True)


def answered(stream: int, data: bytes = b"answer") -> bytes:
    return wire.PayloadFrame(stream=stream, next=True, complete=True, data=data).encode(prefixed=True)


def failed(stream: int, code: int, text: bytes) -> bytes:
    return wire.ErrorFrame(stream=stream, code=code, data=text).encode(prefixed=True)


@dataclass
class Made:
    """A capture, and what is known of it."""

    packets: list[Packet] = field(default_factory=list)
    echo_starts: list[int] = field(default_factory=list)
    slow: list[Packet] = field(default_factory=list)
    "The request that waits for 2.5 s, and its answer."

    def talk(self, port: int, at: float, server: tuple[str, int] = ("10.0.0.2", 7_000)) -> Talk:
        talk = Talk(("10.0.0.1", port), server)
        talk.time += round(at * SECOND)
        self.packets += talk.open()
        return talk

    def send(self, talk: Talk, client: bool, data: bytes, *, at: int | None = None) -> list[Packet]:
        """Send bytes, at a time in nanoseconds if it is given."""
        if at is not None:
            talk.time = at - MILLI  # a packet comes a millisecond after the one before
        made = talk.send(client, data)
        self.packets += made
        return made

    def close(self, talk: Talk) -> None:
        self.packets += talk.close()

    def pause(self, talk: Talk, seconds: float) -> None:
        talk.time += round(seconds * SECOND)


def latencies(made: Made) -> None:
    """Requests one after another, each answered after a known time."""
    echo, slow = made.talk(1_001, 0), made.talk(1_002, 1)
    made.send(echo, True, SETUP)
    for number, ms in enumerate(LATENCIES_MS):
        begun = START + SECOND + number * 150 * MILLI
        made.echo_starts.append(begun)
        made.send(echo, True, asked(2 * number + 1, b"echo"), at=begun)
        made.send(echo, False, answered(2 * number + 1), at=begun + ms * MILLI)
    made.send(echo, True, failed(0, 0x101, b"bye"))
    made.close(echo)
    made.send(slow, True, SETUP)
    at = START + 2 * SECOND
    for number, ms in enumerate(SLOW_MS):
        pair = [made.send(slow, True, asked(2 * number + 1, b"slow"), at=at)[0]]
        pair.append(made.send(slow, False, answered(2 * number + 1), at=at + ms * MILLI)[0])
        made.slow, at = pair, at + (ms + 50) * MILLI
    made.send(slow, True, failed(0, 0x101, b"bye"))
    made.close(slow)


def stalls(made: Made) -> None:
    """A consumer that grants nothing for 1.1 s, twice, and one that does not read for 1.5 s."""
    peer, room, fails = made.talk(1_003, 3), made.talk(1_004, 4), made.talk(1_005, 5)
    made.send(peer, True, SETUP + asks(1, 2))
    made.send(peer, False, item(1) + item(1))
    for _ in range(2):
        made.pause(peer, 1.1)
        made.send(peer, True, grant(1, 1))
        made.send(peer, False, item(1))
    made.send(peer, False, complete(1))
    made.close(peer)
    made.send(room, True, SETUP + asks(1, 100))
    made.send(room, False, item(1))
    made.packets[-1] = windowed(made.packets[-1], 0)
    made.pause(room, 1.5)
    made.packets.append(room.packet(True, len(room.sent[True])))  # it reads again: the window is open
    made.send(room, False, item(1) + complete(1))
    made.close(room)
    made.send(fails, True, SETUP + asked(1, b"fail"))
    made.send(fails, False, failed(1, 0x201, b"out of stock"))
    made.send(fails, True, failed(0, 0x101, b"bye"))
    made.close(fails)


def strangers(made: Made) -> None:
    """HTTP, TLS, and two broken rules."""
    http, tls, ids, never = (made.talk(2_001 + number, 6 + number) for number in range(4))
    made.send(http, True, b"GET /prices HTTP/1.1\r\nHost: example.org\r\n\r\n")
    made.send(http, False, b"HTTP/1.1 404 Not Found\r\n\r\n")
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="example.org").do_handshake()
    made.send(tls, True, hello.read())
    made.send(ids, True, SETUP + asks(2, 1))
    made.send(never, True, SETUP + grant(9, 4))
    for talk in (http, tls, ids, never):
        made.close(talk)


def losses(made: Made) -> None:
    """Another server: 777 bytes come twice, and 500 are not in the capture."""
    talk = made.talk(3_001, 11, OTHER)
    made.send(talk, True, SETUP + asks(1, 10))
    first, *_ = made.send(talk, False, item(1, bytes(777 - len(item(1, b"")))))
    talk.time += MILLI
    made.packets.append(replace(first, time=talk.time))
    lost, *_ = made.send(talk, False, item(1, bytes(500 - len(item(1, b"")))))
    made.packets.remove(lost)
    made.pause(talk, 1.2)  # what comes within a second is not lost
    made.send(talk, False, item(1) + complete(1))
    made.close(talk)


@pytest.fixture(scope="module")
def made() -> Made:
    found = Made()
    for part in (latencies, stalls, strangers, losses):
        part(found)
    found.packets.sort(key=lambda one: one.time)
    return found


@pytest.fixture(scope="module")
def capture(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "known.pcap"
    path.write_bytes(pcap(made.packets, nano=True))
    return path


@pytest.fixture(scope="module")
def answers(spark: Any, capture: Path) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of each numbered question on the page."""
    out = capture.parent.parent / f"{capture.parent.name}-tables"
    write_tables([str(capture)], str(out))
    for table in TABLES:
        spark.read.parquet(str(out / table)).createOrReplaceTempView(table)
    text = PAGE.read_text(encoding="utf-8")
    queries = re.findall(r'^\*\*(\d+)\. .*?spark\.sql\("""(.*?)"""\)', text, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in queries] == [*range(1, 12)]
    return {int(number): [tuple(row) for row in spark.sql(query).collect()] for number, query in queries}


def size(talked: list[Packet], client: tuple[str, int]) -> int:
    """Bytes of TCP data from an end, without repetitions: headers have 14, 20 and 20 bytes here."""
    host, port = bytes(map(int, client[0].split("."))), client[1].to_bytes(2, "big")
    found = {one.data[38:42]: one.data[54:] for one in talked if (one.data[26:30], one.data[34:36]) == (host, port)}
    return sum(map(len, found.values()))


def test_latency_by_route(answers: dict[int, Any]) -> None:
    slow = sorted(SLOW_MS)
    assert answers[1] == [
        ("echo", 100, 50.5, 99.0),
        ("fail", 1, 2.0, 2.0),  # two packets later, a millisecond each
        ("slow", 21, 20.0, round(slow[19] + 0.8 * (slow[20] - slow[19]), 1)),
    ]


def test_stalls_above_a_second_by_cause(answers: dict[int, Any]) -> None:
    found = {cause: rest for cause, *rest in answers[2]}
    assert found == {"peer": [1, 2, 1.1], "producer": [1, 1, 2.5], "transport": [1, 1, 1.5]}


def test_the_longest_stall_and_its_frames(answers: dict[int, Any], made: Made) -> None:
    before = len(SETUP) + 20 * len(asked(1, b"slow"))
    assert answers[3] == [("slow", 2.5, "producer", "REQUEST_RESPONSE", ">", before + 3, "PAYLOAD")]
    numbers = [made.packets.index(one) + 1 for one in made.slow]
    metadata = len(routed(b"slow"))
    assert answers[4] == [
        (">", "REQUEST_RESPONSE", metadata, len(b"ask"), numbers[0]),
        ("<", "PAYLOAD", None, len(b"answer"), numbers[1]),
    ]


def test_violations_and_strangers(answers: dict[int, Any], made: Made) -> None:
    assert [row[:2] for row in answers[5]] == [("10.0.0.1:2003", "R-8"), ("10.0.0.1:2004", "R-31")]
    assert "stream 2" in answers[5][0][2] and "stream 9" in answers[5][1][2]
    assert answers[6] == [
        ("encrypted (TLS; server name example.org)", 1, size(made.packets, ("10.0.0.1", 2_002))),
        ("not ours (HTTP)", 1, size(made.packets, ("10.0.0.1", 2_001))),
    ]


def test_who_moved_the_most_bytes(answers: dict[int, Any], made: Made) -> None:
    sizes = Counter[tuple[int, int, int]]()
    for port in (*range(1_001, 1_006), *range(2_001, 2_005), 3_001):
        here = [
            one for one in made.packets if port in (one.data[34] << 8 | one.data[35], one.data[36] << 8 | one.data[37])
        ]
        server = OTHER if port == 3_001 else ("10.0.0.2", 7_000)
        ours, theirs = size(here, ("10.0.0.1", port)), size(here, server)
        sizes[port, ours, theirs] = ours + theirs
    assert [(f"10.0.0.1:{port}", ours, theirs) for (port, ours, theirs), _ in sizes.most_common(3)] == [
        row[:3] for row in answers[7]
    ]


def test_credit_of_the_worst_stream_and_errors(answers: dict[int, Any]) -> None:
    assert answers[8] == [(4, 4, 3, 2.2, "complete")]
    assert answers[9] == [("0x101", None, 3), ("0x201", "fail", 1)]


def test_losses_and_repetitions(answers: dict[int, Any], made: Made) -> None:
    other = bytes(map(int, OTHER[0].split(".")))
    apart = [one for one in made.packets if other in (one.data[26:30], one.data[30:34])]
    assert answers[10] == [
        ("10.0.0.9:7001", len(apart), 777, 500),
        ("10.0.0.2:7000", len(made.packets) - len(apart), 0, 0),
    ]


def test_requests_per_second(answers: dict[int, Any], made: Made) -> None:
    per_second = Counter(begun // SECOND for begun in made.echo_starts)
    counts = per_second.values()
    assert answers[11] == [(len(counts), min(counts), round(100 / len(counts)), max(counts))]


def test_tshark_agrees(answers: dict[int, Any], capture: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed: apt-get install tshark")
    fields = (
        "tcp.srcport",
        "tcp.dstport",
        "tcp.len",
        "tcp.analysis.retransmission",
        "tls.handshake.extensions_server_name",
    )
    words = [tshark, "-n", "-o", "tcp.try_heuristic_first:TRUE", "-r", str(capture), "-T", "fields"]
    words += [word for name in fields for word in ("-e", name)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    packets, again, names = Counter[str](), Counter[str](), set[str]()
    for line in ran.stdout.splitlines():
        source, target, length, repeated, name = line.split("\t")
        server = "10.0.0.9:7001" if "7001" in (source, target) else "10.0.0.2:7000"
        packets[server] += 1
        again[server] += int(length) if repeated else 0
        names |= {name} - {""}
    assert {row[0]: (row[1], row[2]) for row in answers[10]} == {name: (packets[name], again[name]) for name in packets}
    assert names == {"example.org"}
