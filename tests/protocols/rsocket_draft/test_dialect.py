"""Peers with another numbering or other lengths (section 6): the bytes of each switch, and conversations with all."""

from __future__ import annotations

from typing import Any

import pytest

import afflux
from afflux.core import events as ev
from afflux.core.errors import AddressError, Violation
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads, resumable
from afflux.protocols.rsocket_draft.dialect import Dialect
from afflux.protocols.rsocket_draft.frames import Setup, SetupOk
from afflux.protocols.rsocket_draft.payloads import Position, Session, Times
from afflux.transports.address import parse

from .pair import KEEPALIVE, LIMITS, RESUME, TOKEN, exchange, greet, plain, resumed, said

ALWAYS = Dialect(always_length=True)
ONE = Dialect(one_based=True)
PLAIN = Dialect(plain_lengths=True)
CODE = Dialect().with_code(0x10)
ALL = Dialect(always_length=True, one_based=True, plain_lengths=True).with_code(0x3E)
DIALECTS = {"always-length": ALWAYS, "one-based": ONE, "plain-lengths": PLAIN, "setup-ok": CODE, "all": ALL}
each = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
OWN = Entry("own", b"1", True)
LEASE = payloads.lease_entry([payloads.CONCURRENCY, "mine"], ack=True)
_P = frames.PayloadFrame
FRAMES: list[Any] = [
    Setup(extensions=(KEEPALIVE, RESUME, LEASE, OWN), data_mime="x/y", metadata=b"m", data=b"d"),
    SetupOk(extensions=(Entry(0), payloads.lease_entry([1], ignorable=False), OWN), data=b"d"),
    SetupOk(extensions=(payloads.lease_entry(["mine"], ignorable=False),)),
    SetupOk(),
    frames.RequestResponse(stream=1, extensions=(OWN, Entry(0x7F, b"", True)), metadata=b"m", data=b"d"),
    frames.RequestFnf(stream=1, data=b"d"),
    frames.RequestStream(stream=1, initial_n=5, extensions=(Entry(1, flags=8),)),
    frames.RequestChannel(stream=1, initial_n=5, extensions=(Entry("resume", flags=8), OWN), data=b"d"),
    frames.RequestN(stream=1, n=5, extensions=(OWN,)),
    frames.Cancel(stream=1, extensions=(OWN,)),
    _P(stream=1, next=True, extensions=(OWN,), data_mime="application/json", metadata_mime="a/b", data=b"d"),
    _P(stream=1, next=True, data_mime="a/b", data=b"d"),
    _P(stream=1, next=True, data=b"d"),
    frames.ErrorFrame(stream=1, code=0x201, data=b"no"),
    frames.ExtChain(extensions=(payloads.ping_entry(b"k", respond=True), payloads.list_entry([Position(1, 2)]))),
    frames.ExtChain(extensions=(payloads.grant_entry(payloads.Permits(5, 6)),)),
    frames.Ext(stream=0, extended_type=2, body=b"x"),
    frames.Keepalive(stream=0, respond=True, data=b"k"),
]


def body(frame: Any, dialect: Dialect) -> bytes:
    """A frame as the dialect has it, without its length, which is right."""
    data = dialect.outward(frame.encode(prefixed=True))
    assert int.from_bytes(data[:3], "big") == len(data) - 3
    return data[3:]


@each
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.NAME)
def test_what_is_written_is_read(frame: Any, dialect: Dialect) -> None:
    data = body(frame, dialect)
    assert dialect.decode(data, 0, len(data)) == frame
    inside = b"..." + data + b".."
    assert dialect.decode(inside, 3, 3 + len(data)) == frame


@each
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.NAME)
def test_a_frame_that_is_cut_short(frame: Any, dialect: Dialect) -> None:
    """Each beginning is refused or is another frame; nothing else is raised."""
    data = body(frame, dialect)
    for size in range(len(data)):
        try:
            dialect.decode(data[:size], 0, size)
        except Violation:
            continue
        assert size >= 6


def test_I_1_every_entry_has_a_length() -> None:
    cancel = frames.Cancel(stream=1, extensions=(Entry(1, flags=8),))
    data = body(cancel, ALWAYS)
    assert data.hex() == "000000012600" + "8108000000"
    assert ALWAYS.decode(data, 0, len(data)) == cancel
    must = frames.Cancel(stream=1, extensions=(Entry("must", b"x"),))
    data = bytes.fromhex("000000012600" + "03" + b"must".hex() + "00" + "000001" + "78")
    assert ALWAYS.decode(data, 0, len(data)) == must


def test_I_2_numbers_begin_with_one() -> None:
    ping = frames.ExtChain(extensions=(Entry(0, b"k", True, flags=8),))
    assert body(ping, ONE).hex() == "00000000fc80" + "81480000016b"
    leases = Setup(extensions=(payloads.lease_entry([0, 1, 2], ack=True),))
    assert body(leases, ONE).endswith(bytes.fromhex("8360000003818283"))
    last = frames.Cancel(stream=1, extensions=(Entry(0x7F, b"", True),))
    assert body(last, ONE).endswith(bytes.fromhex("8040000000"))


def test_I_5_the_length_of_a_text_is_itself() -> None:
    assert body(frames.Cancel(stream=1, extensions=(OWN,)), PLAIN).endswith(b"\x03own\x40\0\0\x011")
    assert body(frames.PayloadFrame(stream=1, next=True, data_mime="a/b"), PLAIN).endswith(b"\x03a/b")
    empty = bytes.fromhex("000000012600" + "0040000000")
    with pytest.raises(Violation):
        PLAIN.decode(empty, 0, len(empty))


def test_I_6_another_type_of_SETUP_OK() -> None:
    assert body(SetupOk(), CODE).hex() == "000000004000"
    unknown = bytes.fromhex("000000003c00")
    with pytest.raises(Violation, match="0x10 is unknown"):
        CODE.decode(unknown, 0, len(unknown))
    for code in (0x0E, 0x3F):
        with pytest.raises(ValueError, match="a free frame type"):
            Dialect().with_code(code)


@pytest.mark.parametrize(
    "data",
    [
        "00000000fd80" + "8040000000",
        "00000000fc80" + "8040000000" + "00",
        "000000012600" + "80c0000000" * 65,
        "000000003e00" + "03" + b"must".hex() + "00" + "000000",
    ],
    ids=["EXT with metadata", "bytes after EXT", "65 entries", "an unknown entry in SETUP_OK"],
)
def test_what_is_malformed_is_so_in_a_dialect_too(data: str) -> None:
    octets = bytes.fromhex(data)
    with pytest.raises(Violation):
        ALWAYS.decode(octets, 0, len(octets))


def test_an_unknown_entry_that_is_sent_without_a_length_is_empty() -> None:
    assert body(frames.Cancel(stream=1, extensions=(Entry("must"),)), PLAIN).endswith(b"\x04must\0")
    unknown = bytes.fromhex("000000012600") + b"\x04must\0"
    with pytest.raises(Violation, match="not supported"):
        PLAIN.decode(unknown, 0, len(unknown))


# -- conversations --------------------------------------------------------------------------------------------


def pair(dialect: Dialect, *entries: Entry, **options: Any) -> tuple[Engine, Engine]:
    known: dict[str, Any] = {"limits": LIMITS, "extensions": ("own",), "dialect": dialect, "mtu": 200}
    a = Engine("client", setup=Setup(ack=True, extensions=entries), **known)
    b = Engine("server", **known | options)
    greet(a, b)
    return a, b


@each
def test_a_conversation(dialect: Dialect) -> None:
    a, b = pair(dialect, KEEPALIVE, LEASE, lease=afflux.FixedLease(10, 60.0))
    stream = a.open("channel", ExtendedPayload(b"q" * 300, entries=(OWN,)), credit=100, now=0.0)
    _, (opened,) = exchange(a, b)
    assert opened.payload == ExtendedPayload(b"q" * 300, entries=(OWN,))
    sent = [ExtendedPayload(b"%d" % number, entries=(OWN,), data_mime="x/y") for number in range(30)]
    b.send(stream, sent)
    heard, _ = exchange(a, b)
    assert [payload for event in heard for payload in event.payloads] == sent
    a.send_entries(OWN)
    assert exchange(a, b)[1] == [ev.Extended(0, "own", b"1")]
    assert a.tick(1.0) == []
    assert exchange(a, b, 1.0) == ([], [])


@each
def test_resumption(dialect: Dialect) -> None:
    sessions = Sessions(LIMITS)
    entry = payloads.resume_entry(Session(TOKEN, None), ignorable=False)
    keepalive = payloads.keepalive_entry(Times(500, 2500))
    a, b = pair(dialect, keepalive, entry, sessions=sessions)
    stream = a.open("stream", resumable(b""), credit=10)
    exchange(a, b)
    b.send(stream, [b"1"])
    assert plain(a.receive(said(b), 1.0)) == [ev.Items(stream, [afflux.Payload(b"1")])]
    b.send(stream, [b"2"])
    said(b)
    a.receive_eof(2.0)
    b.receive_eof(2.0)
    _, heard, _ = resumed(a, sessions, 3.0, dialect=dialect)
    assert ev.Items(stream, [afflux.Payload(b"2")]) in heard


# -- addresses ------------------------------------------------------------------------------------------------


async def test_options_of_an_address() -> None:
    options = "dialect=always-length,one-based,plain-lengths&setup_ok=0x10"

    class Echo:
        async def request(self, payload: afflux.Payload) -> afflux.Payload:
            return payload

    async with afflux.serve(f"rsocket-draft+tcp://127.0.0.1:0?{options}", Echo()) as server:
        place = server.uri.split("?")[0]
        async with afflux.connect(f"{place}?ack=yes&{options}") as peer:
            assert (await peer.request(b"x")).data == b"x"
        async with afflux.connect(f"{place}?ack=yes") as peer:
            with pytest.raises(afflux.Error):
                await peer.request(b"x")


@pytest.mark.parametrize("option", ["dialect=other", "setup_ok=0x3F", "setup_ok=x"])
def test_options_that_are_refused(option: str) -> None:
    with pytest.raises(AddressError):
        parse(f"rsocket-draft+tcp://h:1?{option}")
