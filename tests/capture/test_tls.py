"""TLS decrypted with a key log: OpenSSL made every byte, and tshark decrypts the same."""

from __future__ import annotations

import io
import os
import random
import re
import ssl
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import Capture, Decoder, Secrets
from afflux.capture.ciphers import SUITES, needed
from afflux.core.errors import MissingExtra
from afflux.core.limits import Limits
from afflux.protocols.registry import named, recognizable
from tests.capture.test_decoding import ANSWER, ASK, CLIENT, ITEMS, REQUESTS, SERVER, SETUP, Decoded, message, without
from tests.capture.test_oracles import followed_by_tshark, needs_tshark
from tests.capture.tlspeers import TlsTalk
from tests.capture.writing import Packet, Talk, block, enhanced, interface, pcap, section
from tests.cli.test_decode import BOTH
from tests.examples import share
from tests.transports.certificates import Certificates

LINES = 1_000_000 if os.environ.get("AFFLUX_EXHAUSTIVE") else 100_000
"Lines of a long key log."

pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])


class Peers:
    """Makes connections whose secrets are in one key log."""

    def __init__(self, folder: Path) -> None:
        self.files = Certificates(folder)
        self.keys = folder / "keys.log"

    def talk(self, version: ssl.TLSVersion = V13, **options: Any) -> TlsTalk:
        return TlsTalk(self.files, self.keys, version, **options)

    def secrets(self, limits: Limits | None = None) -> Secrets:
        found = Secrets(limits or Limits.server())
        with self.keys.open("rb") as file:
            found.read(file)
        return found


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return Peers(tmp_path_factory.mktemp("tls"))


class Opened(list[dict[str, Any]]):
    """The records of a capture that is decrypted, and its decoder."""

    def __init__(
        self, packets: list[Packet], secrets: Secrets | None, *, chunk: int = 0x8_0000, **options: Any
    ) -> None:
        capture = Capture(io.BytesIO(pcap(packets)), secrets=secrets, chunk=chunk)
        self.decoder = Decoder(capture, recognizable(), **options)
        super().__init__(self.decoder)
        (self.kind,) = self.decoder.tally

    @property
    def security(self) -> str:
        (one,) = self.decoder.opened()
        return str(one.security)


def spoken(peers: Peers, version: ssl.TLSVersion, **options: Any) -> TlsTalk:
    """A conversation of RSocket in TLS."""
    talk = peers.talk(version, **options)
    talk.send(True, CLIENT)
    talk.send(False, SERVER)
    talk.close()
    return talk


PLAIN = Decoded(Talk().whole(CLIENT, SERVER))


# -- what is decrypted -----------------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("protocol", sorted(BOTH))
def test_every_protocol_is_decoded_as_if_there_were_no_tls(
    peers: Peers, version: ssl.TLSVersion, protocol: str
) -> None:
    ours, theirs = (b"".join(side) for side in BOTH[protocol][:2])
    ports = {7_000: named(protocol)}
    talk = peers.talk(version)
    talk.send(True, ours)
    talk.send(False, theirs)
    found = Opened(talk.close(), peers.secrets(), ports=ports, payload="text")
    expected = Decoded(Talk().whole(ours, theirs), ports=ports, payload="text")
    assert found.kind == f"{protocol} in TLS"
    assert without(found, "ts", "conn") == without(expected, "ts", "conn")


@VERSIONS
@pytest.mark.parametrize("size", [1, 90, 1_448, 60_000])
@pytest.mark.parametrize("chunk", [2_000, 0x8_0000])
def test_records_in_any_segments(peers: Peers, version: ssl.TLSVersion, size: int, chunk: int) -> None:
    """Each frame has the time of the packet that completed its record."""
    talk = spoken(peers, version, size=size)
    found = Opened(talk.packets, peers.secrets(), chunk=chunk)
    assert without(found, "ts", "conn") == without(PLAIN, "ts", "conn")
    for client in (True, False):
        host = b"\x0a\0\0" + (b"\1" if client else b"\2")
        full = [one.time for one in talk.packets if one.data[26:30] == host and len(one.data) > 54]
        times = {made["ts"] for made in found if made["dir"] == (">" if client else "<")}
        (ts,) = times  # all frames of one side are in one record
        assert ts in {f"2026-09-21T14:13:{time // 10**9 % 60:02}.{time // 1000 % 10**6:06}Z" for time in full}


@pytest.mark.parametrize(
    ("suite", "shown"),
    [
        ("AES128-GCM-SHA256", "AES-128-GCM"),
        ("AES256-GCM-SHA384", "AES-256-GCM"),
        ("CHACHA20-POLY1305", "ChaCha20-Poly1305"),
        ("AES128-CCM", "AES-128-CCM"),
        ("AES256-CCM", "AES-256-CCM"),
        ("AES128-CCM8", "AES-128-CCM-8"),
        ("AES256-CCM8", "AES-256-CCM-8"),
    ],
)
def test_suites_of_tls_1_2(peers: Peers, suite: str, shown: str) -> None:
    talk = spoken(peers, V12, ciphers=f"ECDHE-ECDSA-{suite}:@SECLEVEL=0")
    assert talk.client.cipher()[0].endswith(suite)  # type: ignore[index]  # the handshake is over
    found = Opened(talk.packets, peers.secrets())
    assert without(found, "ts", "conn") == without(PLAIN, "ts", "conn")
    assert found.security == f"TLS 1.2; {shown}; server name localhost"


def test_the_numbers_of_the_suites() -> None:
    """As OpenSSL has them: no suite without authenticated encryption, no number with the wrong key or hash."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    checked = 0
    for one in context.get_ciphers():
        number, name = one["id"] & 0xFFFF, one["name"]
        if not re.search("GCM|CCM|CHACHA", name) or "ARIA" in name or "CAMELLIA" in name:
            assert number not in SUITES, name
            continue
        suite = SUITES[number]
        assert suite.key == one["strength_bits"] // 8, name
        assert suite.digest == ("sha384" if name.endswith("SHA384") else "sha256"), name
        assert ("CHACHA" in name, "CCM" in name, "CCM8" in name) == (
            suite.cipher == "ChaCha20-Poly1305", "CCM" in suite.cipher, suite.cipher == "AES-CCM-8"
        ), name  # fmt: skip
        checked += 1
    assert checked > 20


@VERSIONS
def test_the_selected_protocol_is_shown(peers: Peers, version: ssl.TLSVersion) -> None:
    talk = spoken(peers, version, protocols=("h2", "http/1.1"))
    assert Opened(talk.packets, peers.secrets()).security.endswith("; server name localhost; ALPN h2")


@VERSIONS
def test_a_resumed_session_has_its_own_client_random(peers: Peers, version: ssl.TLSVersion) -> None:
    first = spoken(peers, version)
    again = spoken(peers, version, session=first.client.session, contexts=first.contexts)
    assert again.client.session_reused
    assert without(Opened(again.packets, peers.secrets()), "ts", "conn") == without(PLAIN, "ts", "conn")


@VERSIONS
def test_a_websocket_in_tls(peers: Peers, version: ssl.TLSVersion) -> None:
    talk = peers.talk(version)
    talk.send(True, ASK % b"")
    talk.send(False, ANSWER % b"")
    talk.send(True, message(SETUP, masked=True) + message(REQUESTS[3], masked=True))
    talk.send(False, b"".join(map(message, ITEMS)))
    found = Opened(talk.close(), peers.secrets())
    assert found.kind == "rsocket in WebSocket in TLS"
    assert [made["type"] for made in found] == ["SETUP", "REQUEST_FNF"] + ["PAYLOAD"] * 40
    assert found[0]["offset"] == len(ASK % b"") + 6


@VERSIONS
def test_other_content_of_tls_is_not_ours(peers: Peers, version: ssl.TLSVersion) -> None:
    talk = peers.talk(version)
    talk.send(True, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    talk.send(False, b"HTTP/1.1 200 OK\r\n\r\n")
    assert Opened(talk.close(), peers.secrets()).kind == "not ours (HTTP) in TLS"
    assert Opened(peers.talk(version).close(), peers.secrets()).kind == "no data"


@VERSIONS
def test_much_data_in_both_directions(peers: Peers, version: ssl.TLSVersion) -> None:
    """Records of 16 KiB in batches that contain parts of them."""
    talk = peers.talk(version, size=1_448)
    talk.send(True, CLIENT[:300])
    frame = ITEMS[39]
    talk.send(False, (len(frame).to_bytes(3, "big") + frame) * 9_000)
    talk.send(True, CLIENT[300:])
    for chunk in (9_000, 0x8_0000):
        found = Opened(talk.packets, peers.secrets(), chunk=chunk)
        assert sum(made["dir"] == "<" for made in found) == 9_000
        assert sum(made["dir"] == ">" for made in found) == 41 and not any(made["error"] for made in found)
        offsets = [made["offset"] for made in found if made["dir"] == "<"]
        assert offsets == [3 + n * (len(frame) + 3) for n in range(9_000)]


def test_the_secrets_of_a_pcapng_file(peers: Peers) -> None:
    talk = spoken(peers, V13)
    keys = peers.keys.read_bytes()
    for order in "<>":
        file = section(order) + interface(order=order)
        file += block(10, struct.pack(order + "II", 0x544C534B, len(keys)) + keys, order)
        file += b"".join(enhanced(one, order=order) for one in talk.packets)
        for chunk in (777, 0x8_0000):
            decoder = Decoder(Capture(io.BytesIO(file), chunk=chunk), recognizable())
            assert len(list(decoder)) == len(PLAIN) and decoder.tally == {"rsocket in TLS": 1}


@needs_tshark
@VERSIONS
def test_tshark_decrypts_the_same_bytes(peers: Peers, version: ssl.TLSVersion, tmp_path: Path) -> None:
    talk = spoken(peers, version)
    path = tmp_path / "capture"
    path.write_bytes(pcap(talk.packets))
    words = ("-d", "tcp.port==7000,tls", "-o", f"tls.keylog_file:{peers.keys}")
    first, _, forth, back = followed_by_tshark(path, 0, *words, layer="tls")
    assert {first: forth}.get("10.0.0.1:40000", back) == CLIENT == talk.sent[True]
    assert {first: forth}.get("10.0.0.2:7000", back) == SERVER == talk.sent[False]


# -- what is not -----------------------------------------------------------------------------------------------------


@VERSIONS
def test_without_its_secret_a_connection_is_encrypted(peers: Peers, version: ssl.TLSVersion) -> None:
    """PC-19."""
    talk = spoken(peers, version)
    other = Secrets(Limits.server())
    other.line(b"CLIENT_RANDOM " + b"00" * 32 + b" " + b"11" * 48)
    found = Opened(talk.packets, other)
    assert (found, found.kind) == (
        [],
        "encrypted (TLS; server name localhost; no secret for its client random in the key log)",
    )
    assert Opened(talk.packets, Secrets(Limits.server())).kind == "encrypted (TLS; server name localhost)"


def changed(peers: Peers, change: Any) -> Secrets:
    """The key log with its lines changed."""
    found = Secrets(Limits.server())
    for line in peers.keys.read_bytes().splitlines():
        found.line(change(line))
    return found


@VERSIONS
def test_with_a_wrong_secret_a_connection_is_encrypted(peers: Peers, version: ssl.TLSVersion) -> None:
    """PC-19."""
    talk = spoken(peers, version)
    wrong = changed(peers, lambda line: line[:-2] + (b"00" if line[-2:] != b"00" else b"01"))
    found = Opened(talk.packets, wrong)
    assert found == []
    assert found.kind.startswith(
        f"encrypted (TLS {'1.2' if version is V12 else '1.3'}; AES-256-GCM; server name localhost; "
        "a TLS record cannot be decrypted"
    )


@pytest.mark.parametrize("label", ["CLIENT_HANDSHAKE", "SERVER_HANDSHAKE", "CLIENT_TRAFFIC", "SERVER_TRAFFIC"])
def test_a_key_log_that_lacks_a_label(peers: Peers, label: str) -> None:
    talk = spoken(peers, V13)
    found = Opened(talk.packets, changed(peers, lambda line: b"" if line.startswith(label.encode()) else line))
    assert (
        found == []
        and f"the key log has no {label}_TRAFFIC_SECRET for its client random".replace(
            "TRAFFIC_TRAFFIC_SECRET", "TRAFFIC_SECRET_0"
        )
        in found.kind
    )


def test_a_secret_of_the_other_version(peers: Peers) -> None:
    for version, label in ((V12, b"CLIENT_TRAFFIC_SECRET_0"), (V13, b"CLIENT_RANDOM")):
        talk = spoken(peers, version)
        random = bytes.fromhex("16") and talk.packets[3].data[54 + 11 : 54 + 43]
        secrets = Secrets(Limits.server())
        secrets.line(label + b" " + random.hex().encode() + b" " + b"ab" * 48)
        assert "the key log has no" in Opened(talk.packets, secrets).kind


def test_suites_and_versions_that_are_not_decrypted(peers: Peers) -> None:
    old = spoken(peers, V12, ciphers="ECDHE-ECDSA-AES128-SHA256")
    assert (
        "TLS 1.2; server name localhost; cipher suite 0xc023 is not decrypted"
        in Opened(old.packets, peers.secrets()).kind
    )


def test_without_the_library_there_is_a_reason_or_an_error(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = spoken(peers, V13)
    secrets = peers.secrets()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "afflux[tls]" in Opened(talk.packets, secrets).kind
    with pytest.raises(MissingExtra, match=r"afflux\[tls\]"):
        needed()


@VERSIONS
def test_missing_bytes_end_their_direction_with_a_reason(peers: Peers, version: ssl.TLSVersion) -> None:
    """The other direction goes on."""
    talk = peers.talk(version, size=1_000)
    talk.send(True, CLIENT)
    for n in range(40):
        talk.send(False, len(ITEMS[n]).to_bytes(3, "big") + ITEMS[n])
    talk.send(True, len(REQUESTS[1]).to_bytes(3, "big") + REQUESTS[1])
    packets = talk.close()
    items = [n for n, one in enumerate(packets) if one.data[26:30] == b"\x0a\0\0\2" and len(one.data) > 54]
    lost = packets.pop(items[-20])
    found = Opened(packets, peers.secrets())
    server = [made for made in found if made["dir"] == "<"]
    assert [made["type"] for made in server[:-1]] == ["PAYLOAD"] * (len(server) - 1) and len(server) > 15
    assert server[-1]["error"] == {
        "rule": "lost",
        "reason": f"{len(lost.data) - 54} bytes of TLS are missing, so what follows cannot be decrypted",
    }
    assert sum(made["dir"] == ">" for made in found) == 42


@VERSIONS
def test_missing_bytes_of_the_handshake(peers: Peers, version: ssl.TLSVersion) -> None:
    """Whichever packet is missing, there is a reason; nothing is guessed."""
    whole = spoken(peers, version, size=500).packets
    for n in range(3, len(whole) - 2):
        packets = whole[:n] + whole[n + 1 :]
        found = Opened(packets, peers.secrets())
        if len(whole[n].data) > 54 and not found:
            assert found.kind.startswith(("encrypted (TLS", "mid-stream", "not ours")), found.kind
        assert without(found, "ts", "conn", "error")[: len(found) - 1] == without(
            [made for made in PLAIN if made["dir"] in {one["dir"] for one in found}], "ts", "conn", "error"
        )[: len(found) - 1] or {made["dir"] for made in found} == {">", "<"}


@VERSIONS
def test_one_direction_only(peers: Peers, version: ssl.TLSVersion) -> None:
    """The keys depend on the hellos of both."""
    whole = spoken(peers, version).packets
    for host in (b"\1", b"\2"):
        found = Opened([one for one in whole if one.data[26:30] == b"\x0a\0\0" + host], peers.secrets())
        assert found == [] and found.kind.startswith("encrypted (TLS")


@VERSIONS
def test_a_start_in_mid_stream(peers: Peers, version: ssl.TLSVersion) -> None:
    talk = spoken(peers, version)
    assert Opened(talk.packets[6:], peers.secrets()).kind in (
        "encrypted (TLS; the handshake is not complete)", "mid-stream, not decoded (looks like TLS)"
    )  # fmt: skip


@given(st.integers(0, 2**32), st.sampled_from([V12, V13]), st.integers(1, 900))
@settings(deadline=None, max_examples=share(0.6))
def test_damaged_tls_is_a_reason_never_an_exception(
    peers: Peers, seed: int, version: ssl.TLSVersion, size: int
) -> None:
    """PC-19, PC-22. What is decoded before the damage is right."""
    noise = random.Random(seed)
    talk = spoken(peers, version, size=size)
    packets = list(talk.packets)
    for _ in range(noise.randrange(3)):
        n = noise.randrange(3, len(packets))
        data = bytearray(packets[n].data)
        data[noise.randrange(34, len(data))] ^= 1 << noise.randrange(8)
        packets[n] = Packet(bytes(data), packets[n].time)
    if noise.randrange(2):
        del packets[noise.randrange(3, len(packets))]
    capture = Capture(io.BytesIO(pcap(packets)), secrets=peers.secrets())
    found = list(Decoder(capture, recognizable()))
    for side in "<>":
        right = [made for made in PLAIN if made["dir"] == side]
        mine = [made for made in found if made["dir"] == side and made["error"] is None]
        assert without(mine, "ts", "conn") == without(right[: len(mine)], "ts", "conn")


# -- the key log -----------------------------------------------------------------------------------------------------


def line(number: int, label: str = "CLIENT_RANDOM") -> bytes:
    return b"%s %064x %096x\n" % (label.encode(), number, number + 1)


def test_lines_of_a_key_log() -> None:
    """Labels that nothing needs and comments are passed over, everything else is counted."""
    found = Secrets(Limits.server())
    text = b"# a comment\n\n" + line(1) + b"EXPORTER_SECRET " + line(1)[14:] + line(2).replace(b"\n", b"\r\n")
    text += b"CLIENT_RANDOM 12 34\nhello\n" + line(3)[:-2] + b"\n" + b"x" * 2_000 + b"\n" + bytes(600) + b"\n"
    found.read(io.BytesIO(text + line(4)[:-1]))
    assert len(found) == 3 and found.ignored == 3 + 4 + 2
    for n in (1, 2, 4):
        assert found.find(n.to_bytes(32, "big")) == {"CLIENT_RANDOM": (n + 1).to_bytes(48, "big")}
    assert found.find(bytes(32)) == {}


@pytest.mark.parametrize(("most", "kept"), [(3 * 562 - 1, 2), (3 * 562, 3), (3 * 562 + 1, 3)])
def test_capture_secret_bytes(most: int, kept: int) -> None:
    """The oldest secrets are dropped: a key log is appended to, and a capture is mostly recent."""
    found = Secrets(Limits.server(capture_secret_bytes=most))
    for n in range(3):
        found.line(line(n))
    assert (len(found), found.dropped) == (kept, 3 - kept)
    assert found.find((2).to_bytes(32, "big")) and bool(found.find(bytes(32))) is (kept == 3)


def test_a_secret_that_is_repeated_takes_no_more_room() -> None:
    found = Secrets(Limits.tiny())
    for n in range(5_000):
        found.line(b"CLIENT_RANDOM %064x %096x" % (7, n))
    assert (len(found), found.dropped) == (1, 0)
    assert found.find((7).to_bytes(32, "big")) == {"CLIENT_RANDOM": (4_999).to_bytes(48, "big")}


class Long:
    """A key log of many lines, made as it is read."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._number = 0

    def readline(self, size: int, /) -> bytes:
        self._number += 1
        return line(self._number, self._label) if self._number <= LINES else b""


@pytest.mark.slow
@pytest.mark.repetitive
def test_a_key_log_takes_bounded_memory() -> None:
    """PC-19: most of it is dropped. It has a million lines if AFFLUX_EXHAUSTIVE is set."""
    found = Secrets(Limits.server())
    tracemalloc.start()
    found.read(Long("SERVER_HANDSHAKE_TRAFFIC_SECRET"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.dropped + len(found) == LINES and len(found) > 25_000
    assert 8 * 2**20 < peak < 18 * 2**20
