"""The causes of stalls: captures whose cause is known, and one of real sockets whose reader is slow."""

from __future__ import annotations

import io
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from afflux.capture import Capture, Network, segments
from afflux.protocols.rsocket import frames as wire
from tests.capture.tabling import SETUP, asks, brief, complete, grant, item, tables, told
from tests.capture.writing import ACK, SYN, Packet, Talk, ethernet, pcap, tcp

DUMPCAP = shutil.which("dumpcap")
STALL = ("dir", "cause", "after_type", "after_dir", "resumed_by")
CLIENT = b"\x0a\0\0\x01"
SCALE, MSS = bytes((3, 3, 7)), bytes((2, 4, 5, 0xB4))


def windowed(packet: Packet, window: int) -> Packet:
    """The packet with another window."""
    return replace(packet, data=packet.data[:48] + window.to_bytes(2, "big") + packet.data[50:])


def seconds(found: list[dict[str, object]]) -> list[float]:
    return [round(float(str(row["seconds"])), 1) for row in found]


def test_no_credit_is_the_peer_and_then_the_producer() -> None:
    found = told(
        (0, True, SETUP + asks(1, 1)),
        (0, False, item(1)),
        (1, True, grant(1, 1)),
        (0.5, False, item(1)),
        (0.05, False, complete(1)),
    )
    assert brief(found["stalls"], *STALL) == [
        ("<", "peer", "PAYLOAD", "<", "REQUEST_N"),
        ("<", "producer", "REQUEST_N", ">", "PAYLOAD"),
    ]
    assert seconds(found["stalls"]) == [1.0, 0.5]
    (stream,) = found["streams"]
    assert (stream["stalls"], round(stream["stalled_s"], 1), round(stream["longest_stall_s"], 1)) == (2, 1.5, 1.0)


def test_a_pause_shorter_than_a_stall_is_none() -> None:
    said = [(0, True, SETUP + asks(1)), (0.5, False, item(1) + complete(1))]
    assert "stalls" in told(*said) and "stalls" not in told(*said, stall_s=0.6)


def test_a_sender_that_is_busy_with_other_streams() -> None:
    found = told(
        (0, True, SETUP + asks(1) + asks(3)),
        *[(0.08, False, item(3))] * 4,
        (0.08, False, item(1) + complete(1) + complete(3)),
    )
    assert brief(found["stalls"], "stream", *STALL) == [(1, "<", "local", "REQUEST_STREAM", ">", "PAYLOAD")]


def test_one_item_of_another_stream_does_not_keep_a_sender_busy() -> None:
    found = told(
        (0, True, SETUP + asks(1) + asks(3)),
        (0.08, False, item(3)),
        (0.08, False, item(3)),
        (2.3, False, item(1) + complete(1)),
    )
    assert (1, "producer") in brief(found["stalls"], "stream", "cause")


def test_both_directions_of_a_channel() -> None:
    opening = wire.RequestChannel(stream=1, initial_n=1, data=b"1").encode(prefixed=True)
    found = told(
        (0, True, SETUP + opening),
        (0.3, False, grant(1, 5)),
        (0.4, True, item(1) + complete(1)),
        (0, False, complete(1)),
    )
    assert sorted(brief(found["stalls"], "dir", "cause", "resumed_by")) == [
        ("<", "producer", "PAYLOAD"),
        (">", "peer", "REQUEST_N"),
        (">", "producer", "PAYLOAD"),
    ]


def test_a_stall_that_the_capture_does_not_end() -> None:
    talk = Talk()
    found = tables(pcap([*talk.open(), *talk.send(True, SETUP + asks(1, 9)), *later(talk, 2)]))
    assert brief(found["stalls"], "cause", "resumed_by", "after_type") == [("producer", None, "REQUEST_STREAM")]
    assert brief(found["streams"], "ended") == [("open",)]


def later(talk: Talk, pause: float) -> list[Packet]:
    talk.time += round(pause * 1e9)
    return [talk.packet(True, len(talk.sent[True]))]


# -- the transport -----------------------------------------------------------------------------------------------


def test_a_window_of_zero_is_the_transport() -> None:
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1, 9)), *talk.send(False, item(1))]
    sent[-1] = windowed(sent[-1], 0)  # the client has no room
    sent += later(talk, 1)  # now it has
    sent += [*talk.send(False, item(1) + complete(1)), *talk.close()]
    assert brief(tables(pcap(sent))["stalls"], *STALL) == [("<", "transport", "PAYLOAD", "<", "PAYLOAD")]


def test_a_window_that_is_full_is_the_transport_and_scaled() -> None:
    def stalls(window: int) -> list[tuple[object, ...]]:
        """20 kB are in flight for a second, in a window of this size that is scaled by 7."""
        talk = Talk()
        opened = [handshake(talk, client=True), handshake(talk, client=False), talk.packet(True, 0)]
        asked = talk.send(True, SETUP + asks(1, 9))
        sent = talk.send(False, item(1, bytes(20_000)))[:-1]  # not acknowledged
        rest = [
            windowed(one, window >> 7) if one.data[26:30] == b"\x0a\0\0\x01" else one for one in (*opened[2:], *asked)
        ]
        talk.time += 1_000_000_000
        end = [*talk.send(False, item(1) + complete(1)), *talk.close()]
        return brief(tables(pcap([*opened[:2], *rest, *sent, *end]))["stalls"], *STALL)

    assert stalls(20_480) == [("<", "transport", "PAYLOAD", "<", "PAYLOAD")]
    assert stalls(1_048_576) == [("<", "producer", "PAYLOAD", "<", "PAYLOAD")]


def handshake(talk: Talk, *, client: bool) -> Packet:
    """A SYN with a window scale and a segment size."""
    source, target = (talk.client, talk.server) if client else (talk.server, talk.client)
    mine, theirs = talk.initial if client else talk.initial[::-1]
    flags, ack = (SYN, 0) if client else (SYN | ACK, theirs + 1)
    talk.time += 1_000_000
    return Packet(ethernet(tcp(source, target, mine, flags=flags, ack=ack, options=MSS + SCALE)), talk.time)


def test_the_options_of_a_syn() -> None:
    talk = Talk()
    plain = talk.packet(True, 0)
    file = pcap([handshake(talk, client=True), handshake(talk, client=False), plain])
    (packets,) = Capture(io.BytesIO(file))
    found = segments(packets, Network(Capture(io.BytesIO(file)).limits))
    assert found.scale.tolist() == [7, 7, -1] and found.mss.tolist() == [1_460, 1_460, -1]
    assert found.window.tolist() == [0xFFFF] * 3


@pytest.mark.parametrize(
    "options", [b"\x03", b"\x03\x01\x07", b"\x00\x03\x03\x07", b"\x03\x04\x07\x00", b"\x02\xff\0\0"]
)
def test_wrong_options_are_none(options: bytes) -> None:
    talk = Talk()
    file = pcap([Packet(ethernet(tcp(talk.client, talk.server, 1, flags=SYN, options=options)))])
    (packets,) = Capture(io.BytesIO(file))
    found = segments(packets, Network(Capture(io.BytesIO(file)).limits))
    assert (found.scale.tolist(), found.mss.tolist()) == ([-1], [-1])


def test_bytes_sent_again_are_the_transport() -> None:
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1, 9)), *talk.send(False, item(1))[:-1]]
    talk.time += 400_000_000
    sent.append(talk.packet(False, 0, bytes(talk.sent[False])))  # no acknowledgement has arrived
    talk.time += 400_000_000
    sent += [talk.packet(True, len(talk.sent[True])), *talk.send(False, item(1) + complete(1)), *talk.close()]
    assert brief(tables(pcap(sent))["stalls"], "cause") == [("transport",)]


def test_bytes_that_come_late_are_the_transport() -> None:
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1, 9)), *talk.send(False, item(1))]
    missing, *_ = talk.send(False, item(1))
    after, *_ = talk.send(False, item(1))
    talk.time += 500_000_000
    late = talk.packet(False, len(item(1)), item(1))
    assert missing.data[54:] == late.data[54:]
    sent += [after, late, *talk.send(False, complete(1)), *talk.close()]
    assert brief(tables(pcap(sent))["stalls"], "cause") == [("transport",)]


@contextmanager
def recorded(port: int, path: Path) -> Iterator[None]:
    """Capture loopback with dumpcap, which may lack the right to open files where the tests have it."""
    words = ["dumpcap", "-q", "-i", "lo", "-B", "64", "-f", f"tcp port {port}", "-w", "-"]
    with path.open("wb") as file, subprocess.Popen(words, stdout=file, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not path.stat().st_size:  # it writes the header when it has begun
                if process.poll() is not None:
                    assert process.stderr is not None
                    pytest.skip("dumpcap cannot capture: " + process.stderr.read()[-200:])
            yield
        finally:
            process.terminate()
            process.communicate()


@pytest.mark.skipif(DUMPCAP is None, reason="dumpcap is not installed: apt-get install tshark")
def test_a_slow_reader_on_loopback_is_the_transport(tmp_path: Path) -> None:
    """A real server writes until its socket is full; its client has granted much, and does not read for a second."""
    count, data = 400, item(1, bytes(10_000))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1_000)
                for _ in range(count):
                    peer.sendall(data)
                peer.sendall(complete(1))
                peer.recv(1)

        with recorded(port, tmp_path / "slow.pcapng"):
            server = threading.Thread(target=serve)
            server.start()
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            client.connect(("127.0.0.1", port))
            with client:
                client.sendall(SETUP + asks(1, 1_000))
                while not stalls_so_far(tmp_path / "slow.pcapng"):  # meanwhile it reads nothing
                    pass
                left = count * len(data) + len(complete(1))
                while left:
                    left -= len(client.recv(1 << 20))
                client.sendall(b"!")
                server.join()
            while client_is_open(tmp_path / "slow.pcapng"):
                pass
    found = tables((tmp_path / "slow.pcapng").read_bytes())
    longest = max(found["stalls"], key=lambda row: float(row["seconds"]))
    assert (longest["cause"], longest["dir"]) == ("transport", "<")
    assert brief(found["streams"], "items_in", "ended") == [(count, "complete")]


def stalls_so_far(path: Path) -> bool:
    """Whether the stream has stood still for 0.1 s in what is written of the capture."""
    return "stalls" in tables(path.read_bytes(), tables=["stalls"])


def client_is_open(path: Path) -> bool:
    """Whether the end of the connection is not in the file yet."""
    rows = tables(path.read_bytes(), tables=["connections"]).get("connections", [])
    return not any(row["closing"] in ("fin", "rst") for row in rows)
