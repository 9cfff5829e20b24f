"""``dissector`` of every protocol: the vectors at every split, what is cut off, and errors where a byte is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from afflux.core import dissector as core
from afflux.core.dissector import Dissector
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.registry import PROTOCOLS, frames_of
from afflux.protocols.rsio import frames as rsio

FILES = {
    "rsocket": "rsocket",
    "reactivesocket": "reactivesocket",
    "jmux": "jmux",
    "rsio": "reactive-streams-io",
    "rsocket-draft": "rsocket-draft",
    "limit": "limit-stream",
}
BUILT = list(PROTOCOLS)
TO_CLIENT = ("server-to-client", "publisher-to-subscriber")


def vectors(protocol: str) -> list[dict[str, Any]]:
    text = (Path(__file__).parents[1] / "vectors" / f"{FILES[protocol]}.json").read_text()
    found: list[dict[str, Any]] = json.loads(text)
    return [vector for vector in found if {"frame", "message"} & vector["decoded"].keys()]


def made(protocol: str, client: bool = True, **options: Any) -> Dissector:
    make = PROTOCOLS[protocol].dissector
    assert make is not None
    return make(client, options.get("payload", "none"))


def fed(dissector: Dissector, pieces: Iterable[bytes]) -> list[dict[str, Any]]:
    return [record for piece in pieces for record in dissector.feed(piece)] + dissector.end()


def stream(protocol: str, vector: dict[str, Any]) -> bytes:
    """The bytes of a vector as they stand on TCP."""
    data = bytes.fromhex(vector["hex"])
    framing = PROTOCOLS[protocol].framing
    if framing is None or "frame_length" in vector["decoded"]:
        return data
    return framing.join(data)


def side(protocol: str, client: bool) -> tuple[bytes, list[str]]:
    """All that one side says in the vectors, and what it is called."""
    ways = [(vector["direction"], vector) for vector in vectors(protocol)]
    chosen = [vector for way, vector in ways if way == "either" or (way in TO_CLIENT) is not client]
    if protocol == "jmux":
        chosen.sort(key=lambda vector: "Header" not in vector["decoded"]["message"])
    names = [vector["decoded"].get("frame") or vector["decoded"]["message"] for vector in chosen]
    return b"".join(stream(protocol, vector) for vector in chosen), names


def test_every_protocol_has_one() -> None:
    assert set(BUILT) == set(FILES)
    for name in BUILT:
        assert isinstance(made(name), Dissector)
    for method, arguments in (("read", (b"", 0)), ("name", (b"",))):
        with pytest.raises(NotImplementedError):
            getattr(Dissector(True, "none"), method)(*arguments)


@pytest.mark.parametrize("protocol", BUILT)
@pytest.mark.parametrize("client", [True, False])
def test_the_vectors_one_behind_the_other(protocol: str, client: bool) -> None:
    data, names = side(protocol, client)
    records = fed(made(protocol, client), [data])
    assert [record["type"] for record in records] == names
    assert {record["protocol"] for record in records} == {protocol}
    assert {record["dir"] for record in records} == {">" if client else "<"}
    assert [record["error"] for record in records] == [None] * len(names)
    width = 0 if PROTOCOLS[protocol].framing is None else PROTOCOLS[protocol].framing.width  # type: ignore[union-attr]
    assert records[0]["offset"] == width
    for earlier, later in pairwise(records):
        assert later["offset"] == earlier["offset"] + earlier["length"] + width
    assert records[-1]["offset"] + records[-1]["length"] == len(data)


@pytest.mark.parametrize("protocol", BUILT)
@pytest.mark.parametrize("client", [True, False])
def test_byte_by_byte_they_are_the_same(protocol: str, client: bool) -> None:
    data, _ = side(protocol, client)
    whole = fed(made(protocol, client, payload="hex"), [data])
    assert fed(made(protocol, client, payload="hex"), [data[at : at + 1] for at in range(len(data))]) == whole


@pytest.mark.parametrize("protocol", BUILT)
def test_each_alone_is_the_same(protocol: str) -> None:
    for client in (True, False):
        data, names = side(protocol, client)
        whole, alone = fed(made(protocol, client), [data]), made(protocol, client)
        for record, name in zip(whole, names, strict=True):
            frame = data[record["offset"] : record["offset"] + record["length"]]
            again = alone.bare(frame)
            assert (again["type"], again["length"], again["error"]) == (name, len(frame), None)
            assert again["fields"] == record["fields"]


@pytest.mark.repetitive
@pytest.mark.parametrize("protocol", BUILT)
def test_a_cut_off_frame_is_reported(protocol: str) -> None:
    data, names = side(protocol, True)
    ends = {record["offset"] + record["length"] for record in fed(made(protocol), [data])} | {0}
    for cut in range(len(data)):
        records = fed(made(protocol), [data[:cut]])
        assert [bool(record["error"]) for record in records[:-1]] == [False] * len(records[:-1])
        if cut in ends:
            assert not records or records[-1]["error"] is None
        else:
            assert "bytes are missing" in records[-1]["error"]["reason"]
            assert len(records) <= len(names)


@pytest.mark.parametrize("protocol", BUILT)
@example(pieces=[b"J", b"\0"], client=False)
@given(pieces=st.lists(st.binary(max_size=40), max_size=8), client=st.booleans())
def test_garbage_is_reported_and_nothing_raises(protocol: str, pieces: list[bytes], client: bool) -> None:
    one, other = made(protocol, client), made(protocol, client)
    assert fed(one, pieces) == fed(other, [b"".join(pieces)])
    assert one.over == other.over
    alone = made(protocol, client)
    for record in map(alone.bare, pieces):
        json.dumps(record, ensure_ascii=False).encode()


# -- lengths ------------------------------------------------------------------------------------------------------


def test_a_length_that_does_not_count_itself() -> None:
    """Rule numbers are ReactiveSocket's. What follows cannot be delimited."""
    found = made("reactivesocket")
    (record,) = found.feed(b"\x00\x00\x00\x03" + bytes(20))
    assert (record["error"]["rule"], record["offset"], record["length"]) == ("R-2", 0, None)
    assert "a length of 3 is less than the 4 bytes" in record["error"]["reason"]
    assert (found.over, found.feed(bytes(20)), found.end()) == (True, [], [])


def test_the_reserved_bit_of_a_length_is_masked() -> None:
    """ReactiveSocket R-4."""
    (record,) = made("reactivesocket").feed(bytes.fromhex("8000000c 000a0000 00000002"))
    assert (record["type"], record["stream"], record["length"]) == ("CANCEL", 2, 8)


def test_a_frame_that_is_too_large_is_passed_over() -> None:
    found = made("reactivesocket")
    size = core.LARGEST + 1
    (record,) = found.feed((size + 4).to_bytes(4, "big") + bytes(10))
    assert (record["length"], record["offset"]) == (size, 4)
    assert f"a frame of {size} bytes" in record["error"]["reason"]
    rest, chunk = size - 10, bytes(0x10_0000)
    while rest > len(chunk):
        assert found.feed(chunk) == []
        rest -= len(chunk)
    (record,) = found.feed(bytes(rest) + bytes.fromhex("0000000c 000a0000 00000002"))
    assert (record["type"], record["offset"], record["error"]) == ("CANCEL", 4 + size + 4, None)


def test_the_end_of_one_that_is_too_large() -> None:
    found = made("reactivesocket")
    found.feed((core.LARGEST + 5).to_bytes(4, "big"))
    (record,) = found.end()
    assert record["error"]["reason"] == f"cut off: {core.LARGEST + 1} bytes are missing"


@pytest.mark.repetitive
def test_the_largest_one_is_shown() -> None:
    data = (core.LARGEST + 4).to_bytes(4, "big") + bytes.fromhex("00050000 00000002") + bytes(core.LARGEST - 8)
    (record,) = fed(made("reactivesocket"), [data[:100], data[100:]])
    assert (record["type"], record["data_len"], record["error"]) == ("REQUEST_FNF", core.LARGEST - 8, None)


# Rule numbers are Jmux's.
# -- jmux ---------------------------------------------------------------------------------------------------------

HELLO = bytes.fromhex("4a6d757801008000")


@pytest.mark.parametrize(
    ("data", "at", "rule", "reason"),
    [
        (b"GET / HTTP/1.1", 0, "R-9", "no message begins with 0x47"),
        (b"JPEG", 0, "R-3", "a connection begins with Jmux"),
        (b"J", 0, "truncated", "7 bytes are missing"),
        (b"JPEG 2", 0, "truncated", "2 bytes are missing"),
        (HELLO + b"\x01\x00\x00\x00", 8, "R-9", "no message begins with 0x01"),
        (HELLO + HELLO, 8, "R-9", "no message begins with 0x4A"),
    ],
)
def test_behind_a_wrong_first_byte_of_jmux_nothing_is_read(data: bytes, at: int, rule: str, reason: str) -> None:
    (*good, bad) = fed(made("jmux"), [data, b"\x04\x00\x00\x01"] if rule != "truncated" else [data])
    assert [record["error"] for record in good] == [None] * len(good)
    assert (bad["offset"], bad["error"]["rule"]) == (at, rule)
    assert reason in bad["error"]["reason"]


@pytest.mark.parametrize(
    ("client", "text", "rule", "reason"),
    [
        (True, "4a6d757802008000", "R-3", "version 2"),
        (True, "4a6d757801008004", "R-3", "byte 7"),
        (False, "4a6d757801008001", "R-3", "byte 7"),
        (True, "00010000", "R-10", "a reserved byte is not 0"),
        (True, "22000000", "D-12", "only the server sends partial"),
        (True, "8c000000", "R-17", "only the server sets close"),
        (False, "90000000", "R-17", "only the client opens"),
        (False, "88000000", "R-18", "need eof"),
    ],
)
def test_a_wrong_byte_of_jmux(client: bool, text: str, rule: str, reason: str) -> None:
    """The message has its error, and the next one is read."""
    bad, good = fed(made("jmux", client), [bytes.fromhex(text), b"\x04\x00\x00\x01"])
    assert bad["error"]["rule"] == rule
    assert reason in bad["error"]["reason"]
    assert (good["type"], good["n"], good["error"]) == ("Ping", 1, None)


def test_the_rations_of_jmux() -> None:
    """D-14: an increment of 1, shifted by 2·3; the header's in steps of 256; 0 is without end."""
    header, more = fed(
        made("jmux"), [HELLO, jmux.IncrementRation(session=5, increment=1, shift_1=True, shift_2=True).encode()]
    )
    assert (header["type"], header["fields"]["ration"]) == ("ClientConnectionHeader", 0x8000)
    assert (more["stream"], more["n"], more["flags"], more["fields"]) == (5, 1, ["2", "1"], {"ration": 64})
    (endless,) = fed(made("jmux", False), [bytes.fromhex("4a6d757801000000")])
    assert (endless["type"], endless["fields"]["ration"]) == ("ServerConnectionHeader", None)


@pytest.mark.parametrize("protocol", ["jmux", "rsio"])
def test_messages_alone(protocol: str) -> None:
    whole = jmux.Close(session=3).encode() if protocol == "jmux" else rsio.Request(subscriber=3, demand=9).encode()
    assert made(protocol).bare(whole)["error"] is None
    assert made(protocol).bare(b"")["error"]["rule"] == "truncated"
    assert made(protocol).bare(b"")["type"] is None
    assert made(protocol).bare(whole[:-1])["error"]["reason"] == "cut off: 1 bytes are missing"
    assert made(protocol).bare(whole + b"\0")["error"] == {"rule": "trailing", "reason": "1 bytes follow the frame"}


# Rule numbers are rsio's.
# -- rsio ---------------------------------------------------------------------------------------------------------


def said(*messages: rsio.Message) -> list[dict[str, Any]]:
    return fed(made("rsio", False, payload="text"), [b"".join(message.encode() for message in messages)])


def test_sizes_of_elements_are_learnt() -> None:
    """R-38, D-13: from subscribed to the end of the subscription."""
    size, one, packed, done, any_size = said(
        rsio.Subscribed(subscriber=7, element_size=4),
        rsio.OnNext(subscriber=7, element=b"abcd", element_size=4),
        rsio.OnNextPacked(subscriber=7, count=2, elements=b"abcdefgh", element_size=4),
        rsio.OnComplete(subscriber=7),
        rsio.OnNext(subscriber=7, element=b"ab"),
    )
    assert size["fields"] == {"element_size": 4}
    assert (one["data"], one["fields"]) == ("abcd", {"element_size": 4})
    assert (packed["data"], packed["fields"]) == ("abcdefgh", {"count": 2, "element_size": 4})
    assert done["stream"] == 7
    assert (any_size["data"], any_size["fields"]) == ("ab", {})


def test_an_id_that_has_another_size_when_it_comes_again() -> None:
    """R-37."""
    records = said(
        rsio.Subscribed(subscriber=7, element_size=4),
        rsio.Subscribed(subscriber=7, element_size=0),
        rsio.OnNext(subscriber=7, element=b"ab"),
        rsio.Subscribed(subscriber=7, element_size=2),
        rsio.OnNext(subscriber=7, element=b"ab", element_size=2),
        rsio.OnError(subscriber=7, error="x"),
        rsio.OnNext(subscriber=7, element=b"abc"),
    )
    assert [record.get("data") for record in records if record["type"] == "onNext"] == ["ab", "ab", "abc"]


def test_packed_elements_of_no_size() -> None:
    """R-39: nobody can say where they end."""
    one, bad = said(
        rsio.OnNext(subscriber=7, element=b"ab"),
        rsio.OnNextPacked(subscriber=7, count=2, elements=b"abcd", element_size=2),
        rsio.Goodbye(reason=""),
    )
    assert one["error"] is None
    assert (bad["type"], bad["offset"], bad["error"]["rule"]) == ("onNextPacked", 5, "R-39")


def test_wrong_bytes_of_rsio() -> None:
    (unknown,) = fed(made("rsio"), [b"\x0f\x01"])
    assert (unknown["type"], unknown["error"]["rule"]) == ("0x0F", "R-17")
    (long,) = fed(made("rsio"), [b"\xff" * 20])
    assert (long["type"], long["error"]["rule"]) == (None, "R-4")
    (name,) = fed(made("rsio"), [b"\x03\x02a\xff\x01\x05"])
    assert (name["error"]["rule"], name["fields"]["publisher"], name["n"]) == ("R-6", "a\ufffd", 5)


def test_what_is_too_long_is_passed_over() -> None:
    """A name of 100,000 bytes is not kept, but for its beginning; what follows it is."""
    data = rsio.Subscribe(publisher="x" * 100_000, subscriber=9, initial_demand=3).encode()
    (record,) = fed(made("rsio"), [data[:50_000], data[50_000:]])
    assert (record["stream"], record["n"], record["length"], record["error"]) == (9, 3, len(data), None)
    assert 1000 < len(record["fields"]["publisher"]) < 100_000


def test_elements_that_are_too_large_are_passed_over() -> None:
    found = made("rsio", False)
    size = 0x800_0000
    head = rsio.Subscribed(subscriber=1, element_size=size).encode() + b"\x07\x01"
    _, record = found.feed(head + bytes(10))
    assert (record["data_len"], record["length"], record["error"]) == (size, size + 2, None)
    assert found.end()[0]["error"]["reason"] == f"cut off: {size - 10} bytes are missing"


def test_sizes_of_many_ids_are_forgotten() -> None:
    """No dump takes all memory: the oldest of 65,536 goes."""
    found = made("rsio", False)
    for id in range(0x1_0001):
        found.feed(rsio.Subscribed(subscriber=id, element_size=2).encode())
    oldest, next_one = (
        found.feed(b"\x07" + rsio.Subscribed(subscriber=id).encode()[1:-1] + b"\x01x")[0] for id in (0, 1)
    )
    assert (oldest["data_len"], next_one["data_len"]) == (1, 2)


# -- bytes that a capture lacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", BUILT)
@pytest.mark.parametrize("client", [True, False])
def test_lost_bytes_at_every_place_lose_one_frame_or_stop(protocol: str, client: bool) -> None:
    """Where the size of the frame is known, the next one is found; otherwise nothing more is shown."""
    data, _ = side(protocol, client)
    whole = fed(made(protocol, client), [data])
    for at in range(len(data)):
        dissector = made(protocol, client)
        found = dissector.feed(data[:at])
        assert dissector.buffered <= at
        found += dissector.lose(3)
        found += fed(dissector, [data[at + 3 :]])
        wrong = [record for record in found if record["error"] and record not in whole]
        assert len(wrong) == (1 if wrong else 0)
        if dissector.over and not any(record["error"] for record in whole):
            assert wrong and wrong[0]["error"]["rule"] == "lost" and found[-1] == wrong[0]
            assert dissector.lose(5) == [] and dissector.feed(data) == []
        elif not dissector.over:
            after = [record for record in whole if record["offset"] >= at + 3 and record["error"] is None]
            assert [record for record in found if record in after] == after


@pytest.mark.parametrize("protocol", ["rsocket", "reactivesocket", "rsocket-draft", "limit"])
def test_lost_bytes_may_be_more_than_one_piece_of_a_frame(protocol: str) -> None:
    """The rest of a frame is passed over, whether it arrives or is lost as well."""
    framing = PROTOCOLS[protocol].framing
    assert framing is not None
    frame = framing.join(bytes(100))
    dissector = made(protocol)
    (cut,) = [*dissector.feed(frame[:30]), *dissector.lose(10)]
    assert "10 bytes are missing" in cut["error"]["reason"]
    assert dissector.lose(20) + dissector.feed(frame[60:]) == []
    assert dissector.offset == len(frame) and not dissector.over
    assert [record["offset"] for record in dissector.feed(frame)] == [len(frame) + framing.width]


@pytest.mark.parametrize("protocol", BUILT)
def test_a_dissector_that_is_stopped_gives_the_reason_once(protocol: str) -> None:
    dissector = made(protocol)
    (record,) = dissector.stop("too-much-pending")
    assert record["error"] == {"rule": "limit", "reason": "too-much-pending"}
    assert dissector.stop("again") == dissector.feed(b"x") == dissector.lose(1) == []


def test_a_smaller_bound_skips_larger_frames() -> None:
    dissector = made("rsocket")
    dissector.largest = 50
    small, large = (len(frame).to_bytes(3, "big") + frame for frame in (b"\0\0\0\1\x24\0", bytes(51)))
    found = fed(dissector, [small, large, small])
    assert [record["error"] is None for record in found] == [True, False, True]
    assert "more than 50 are not shown" in found[1]["error"]["reason"]
    assert found[1]["error"]["rule"] == "limit"


def test_the_declared_frames_of_every_protocol() -> None:
    """In the modules ``frames``, connection headers included; another protocol may have none."""
    found = {name: {frame.NAME for frame in frames_of(name)} for name in PROTOCOLS}
    assert {"ClientConnectionHeader", "ServerConnectionHeader", "Data"} <= found["jmux"]
    assert found["rsocket"] >= {"SETUP", "EXT"} and found["limit"] >= {"CHOOSE"} and found["rsio"] >= {"onError"}
    assert [frame.PROTOCOL for frame in frames_of("rsocket-draft")].count("rsocket-draft") == 17
    assert frames_of("no-such-protocol") == ()


def test_the_text_of_an_error_is_a_field() -> None:
    """It is not the error of the frame."""
    found = made("rsio", False).bare(rsio.OnError(subscriber=1, error="failed").encode())
    assert (found["error"], found["fields"]) == (None, {"error": "failed"})


def test_a_caller_may_read_the_first_frames_itself() -> None:
    """The dissector continues behind them, in the middle of the next one."""
    data, _ = side("rsocket", True)
    whole = fed(made("rsocket"), [data])
    edges = [0, *(record["offset"] + record["length"] for record in whole)]
    for number, (start, end) in enumerate(pairwise(edges)):
        for cut in {start, start + 2, start + 3, end - 1}:
            dissector = made("rsocket")
            assert dissector.feed(data[:4]) == [] and dissector.joined(1 << 20) == data[:4]
            need = end - start if cut >= start + 3 else 3
            dissector.passed(start, data[start:cut], need)
            missing = need - (cut - start)
            assert dissector.joined(missing) == data[start:cut] and dissector.joined(missing - 1) is None
            assert fed(dissector, [data[cut:]]) == whole[number:]
        assert made("rsocket").at(data[start + 3 : end], start + 3) == whole[number]
        between = made("rsocket")
        between.passed(end, b"", 0)
        assert fed(between, [data[end:]]) == whole[number + 1 :]


def test_after_an_error_nothing_is_left() -> None:
    dissector = made("rsocket")
    dissector.lose(5)
    assert dissector.over and dissector.joined(1 << 20) is None


def test_the_name_that_a_session_or_a_subscription_asks_for() -> None:
    limit, publisher = PROTOCOLS["limit"].meanings, PROTOCOLS["rsio"].meanings
    assert limit is not None and publisher is not None
    assert limit.route(b"sum", {}) == "sum" and limit.route(None, {}) is None
    assert publisher.route(None, {"publisher": "ticks"}) == "ticks" and publisher.route(None, {}) is None
