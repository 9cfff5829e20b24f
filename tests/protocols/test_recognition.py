"""First bytes: every protocol is recognized from its published ones, however they are split, and from no other's."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afflux.core.recognition import LOOK, Recognition, recognize
from afflux.protocols.registry import AUTO, PROTOCOLS, any_protocol, recognizable
from afflux.protocols.rsocket.frames import Resume, Setup

from .generic.every import WIRES
from .generic.wires import Wire, id_of

FIRST = {"SETUP", "RESUME", "ClientConnectionHeader", "clientHello"}
"What a client may say first, as the vectors name it."
TAKEN_AS = {"rsocket-draft": "rsocket"}
"A protocol that is never guessed, and the one that its clients are taken for."
NOT_FRAMED = {"reactivesocket"}
"Vectors with their length."


def whole(wire: Wire, data: bytes) -> bytes:
    framing = PROTOCOLS[wire.name].framing
    return data if framing is None or wire.name in NOT_FRAMED else framing.join(data)


def firsts(wire: Wire) -> list[tuple[str, bytes]]:
    """The published first messages of clients, as they stand on a byte stream, and what this project's client says."""
    found = [("ours", wire.hello("server"))]
    for id, data, meaning in wire.vectors.every():
        name = meaning.get("frame", meaning.get("message", "ClientConnectionHeader" if "version" in meaning else ""))
        if name in FIRST:
            found.append((id, whole(wire, data)))
    assert len(found) > 1, f"the vectors of {wire.name} have no first message"
    return found


MESSAGES = [(wire, id, data) for wire in WIRES for id, data in firsts(wire)]
every_first = pytest.mark.parametrize(
    ("wire", "data"),
    [(wire, data) for wire, _, data in MESSAGES],
    ids=[f"{wire.name}-{id}" for wire, id, _ in MESSAGES],
)


def result(data: bytes, *, client: bool = True, message: bool = False) -> Recognition:
    return recognize(recognizable(), data, client=client, message=message)


def name_of(found: Recognition) -> str | None:
    return None if found.protocol is None else found.protocol.name


def names_of(found: Recognition) -> set[str]:
    return {entry.name for entry in found.candidates}


@every_first
def test_it_is_recognized_at_every_split(wire: Wire, data: bytes) -> None:
    """More bytes are asked for until one protocol is recognized; what follows never changes it."""
    expected = TAKEN_AS.get(wire.name, wire.name)
    if wire.name == "rsocket-draft" and data[7] >> 2 == Resume.TYPE:
        pytest.skip("a client of the draft never sends it")
    decided = False
    for cut in range(len(data) + 1):
        found = result(data[:cut])
        decided = decided or found.protocol is not None
        assert (name_of(found), found.more) == ((expected, False) if decided else (None, True)), cut
        if decided:
            assert wire.name in names_of(found)
    assert decided
    assert name_of(result(data + bytes(100))) == name_of(result(data + b"\xff" * 100)) == expected


@every_first
def test_it_is_recognized_as_a_message(wire: Wire, data: bytes) -> None:
    framing = PROTOCOLS[wire.name].framing
    message = data if framing is None else data[framing.width :]
    assert name_of(result(message, message=True)) == TAKEN_AS.get(wire.name, wire.name)


@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_a_server_is_recognized_where_its_bytes_decide(wire: Wire) -> None:
    """The protocol is always among the candidates."""
    found = result(wire.hello("client"), client=False)
    assert wire.name in names_of(found)
    assert name_of(found) == TAKEN_AS.get(wire.name, wire.name) or len(found.candidates) > 1


def test_the_draft_is_never_guessed() -> None:
    """The extensible draft's R-1 and D-2: SETUP_OK is the draft's alone, and still names only a candidate."""
    setup = Setup(keepalive_ms=1, lifetime_ms=1).encode(prefixed=True)
    assert (name_of(result(setup)), names_of(result(setup))) == ("rsocket", {"rsocket", "rsocket-draft"})
    found = result(bytes.fromhex("000006 00000000 3c00"), client=False)
    assert (found.protocol, names_of(found), found.more) == (None, {"rsocket-draft"}, False)


def test_resume_is_of_one_protocol() -> None:
    resume = Resume(token=bytes(16), last_received_server_position=0, first_available_client_position=0)
    assert names_of(result(resume.encode(prefixed=True))) == {"rsocket"}


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        bytes.fromhex("16030102000100"),
        b"SSH-2.0-",
        b"JPEG",
        bytes.fromhex("00000a 00000001 1000 00000000"),  # REQUEST_RESPONSE
        bytes.fromhex("00000a 00000000 2c00 00000101"),  # ERROR
        bytes.fromhex("0000000c 00040000 00000002"),  # of ReactiveSocket
        bytes.fromhex("0000000c 00010000 00000002"),  # SETUP on a stream
        bytes.fromhex("0101"),
        bytes.fromhex("0200"),
        bytes(64),
        b"\xff" * 64,
    ],
)
def test_what_no_client_says_first(data: bytes) -> None:
    assert result(data) == Recognition(None, (), more=False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("00000a 00000000 2c00 00000101", {"rsocket", "rsocket-draft"}),  # ERROR
        ("000006 00000001 2840", {"rsocket", "rsocket-draft"}),  # PAYLOAD
        ("000006 00000002 1000", {"rsocket", "rsocket-draft"}),  # REQUEST_RESPONSE
        ("000006 00000002 2840", set()),  # PAYLOAD on a stream of its own
        ("000006 80000001 2840", set()),
        ("0000000c 000b0000 00000002", {"reactivesocket"}),
        ("0000000c 000e0000 00000002", set()),
        ("0200", {"rsio"}),
        ("4a6d757801000000", {"jmux"}),
    ],
)
def test_what_a_server_says_first(text: str, names: set[str]) -> None:
    data = bytes.fromhex(text)
    assert {name for name in names_of(result(data, client=False)) if name != "limit"} == names
    assert result(data[:1], client=False).more


@given(data=st.binary(max_size=LOOK * 2), client=st.booleans(), message=st.booleans())
@example(data=bytes.fromhex("010000 00000000 0400"), client=True, message=False)
def test_a_decision_is_final(data: bytes, client: bool, message: bool) -> None:
    """Of any bytes: one protocol that may be guessed at most, and the same for every longer part."""
    before: Recognition | None = None
    for cut in range(len(data) + 1):
        found = result(data[:cut], client=client, message=message)
        assert found.more or before is None or message or names_of(before) <= names_of(found)
        if client:
            assert len([entry for entry in found.candidates if not entry.unguessed]) <= 1
        if not found.more and before is None and not message:
            before = found
    assert not result(data + bytes(LOOK + 4), client=client).more


def test_the_entry_of_all() -> None:
    entry = any_protocol()
    assert (entry.name, entry.recognize) == (AUTO, None)
    assert {"request", "fire", "stream", "channel", "push", "subscribe"} <= set(entry.verbs)
    assert "session" in entry.features
    assert "store" not in entry.features
    with pytest.raises(Exception, match="auto is not a protocol"):
        entry.make("server")
