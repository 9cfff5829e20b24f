"""Recorded frames: the first one that breaks a type, with the frames of both sides and of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given
from hypothesis import strategies as st

from afflux.protocols.rsocket import frames as rsocket
from afflux.sessions import Kind, Machine, Monitor, compile_file, loads
from afflux.sessions.monitor import CHOICE
from afflux.sessions.recorded import Report, check_records
from afflux.sessions.types import File
from tests.sessions.trees import SUM, files, values_of

TYPES = loads(SUM + "channel other = send bool -> end")
Record = dict[str, Any]


def frame(name: str, data: str = "", *, metadata: str = "", **more: Any) -> Record:
    """A record of Limit-Stream, as its dissector makes it."""
    return {"type": name, "stream": 0, "error": None, "data": data, "metadata": metadata} | more


SETUP = frame("SETUP", metadata=b"sum".hex())
OTHER = frame("SETUP", metadata=b"other".hex())
END = frame("END")
ERROR = frame("ERROR", b"no".hex())


def value(data: str) -> Record:
    return frame("PAYLOAD", data)


def choice(data: str) -> Record:
    return frame("CHOOSE", data)


CLIENT = [SETUP, value("01"), value("02"), choice("01"), value("90")]
"The client's frames of the specification's example."
SERVER = [value("03"), END]


def limit(client: list[Record] | None, server: list[Record] | None = None, channel: str | None = None) -> Report:
    sides = {True: client, False: server}
    return check_records(TYPES, "limit", {k: v for k, v in sides.items() if v is not None}, channel)


def broken(report: Report) -> tuple[Record, str, str, int | None]:
    assert report.broken is not None
    return dict(report.broken.record), report.broken.expected, report.broken.seen, report.broken.state


def test_frames_that_follow_the_type() -> None:
    assert limit(CLIENT, SERVER) == Report(7, 1)
    assert limit(CLIENT) == Report(5, 1)
    assert limit(None, SERVER, "sum") == Report(2, 1)
    assert limit(CLIENT * 2, SERVER * 2) == Report(14, 2)
    assert limit([*CLIENT, OTHER], [*SERVER, value("c3"), END]) == Report(10, 2)
    assert limit([*CLIENT, OTHER], [SERVER[0], value("c3")]) == Report(8, 2), "END may be missing (Limit-Stream R-29)"
    assert limit([], []) == Report(0, 0)


def test_a_recording_that_ends_early() -> None:
    assert limit(CLIENT[:3], []) == Report(3, 1, open=True)
    assert limit(CLIENT, []) == Report(5, 1, open=True)


def test_a_session_that_fails_is_not_checked_further() -> None:
    assert limit([*CLIENT[:2], ERROR, value("a0")], []) == Report(3, 1, failed=True)
    assert limit(CLIENT[:2], [ERROR]) == Report(3, 1, failed=True)


BRANCHES = "a choice of branches 1 to 2 of the client"
CUT_OFF = frame("PAYLOAD", error={"reason": "cut off"})
BREAKS = [
    (CLIENT[:1], [value("03")], 0, False, "int of the client", "a value of the server", 0),
    ([SETUP, value("a0")], [], 1, True, "int of the client", "a string of the client", 0),
    ([SETUP, choice("00")], [], 1, True, "int of the client", "a choice of the client", 0),
    ([*CLIENT[:2], choice("02")], [], 2, True, BRANCHES, "the choice of branch 3 of the client", 1),
    ([*CLIENT[:2], choice("a0")], [], 2, True, BRANCHES, "a choice with a string of the client", 1),
    ([*CLIENT[:2], value("a0")], [], 2, True, BRANCHES, "a string of the client", 1),
    ([*CLIENT[:2], SETUP], [], 2, True, BRANCHES, "the opening of another session of the client", 1),
    (CLIENT, [value("c3")], 0, False, "int of the server", "a bool of the server", 3),
    (CLIENT, [END], 0, False, "int of the server", "the end of the server", 3),
    (CLIENT, [value("03"), value("03")], 1, False, "the end", "a value of the server", 4),
    ([SETUP, CUT_OFF], [], 1, True, "int of the client", "a malformed frame (cut off) of the client", 0),
    ([CUT_OFF, SETUP], [], 0, True, "whole frames", "a malformed frame (cut off)", None),
    (
        [frame("0x2A", error={"reason": "cut off: 9 bytes"})],
        [],
        0,
        True,
        "whole frames",
        "a malformed frame (cut off: 9 bytes)",
        None,
    ),
    ([value("01")], [], 0, True, "the opening of a session", "a value", None),
    ([frame("SETUP", metadata="78")], [], 0, True, "the channel one of sum, other", "the channel x", None),
]


@pytest.mark.parametrize(("client", "server", "at", "of_client", "expected", "seen", "state"), BREAKS)
def test_the_first_frame_that_breaks_the_type(
    client: list[Record], server: list[Record], at: int, of_client: bool, expected: str, seen: str, state: int | None
) -> None:
    assert broken(limit(client, server)) == ((client if of_client else server)[at], expected, seen, state)


def test_one_side_alone_may_be_in_several_states() -> None:
    types = loads("channel a = choose | recv int -> end | recv bool -> recv string -> end | end")
    client = {True: [frame("SETUP", metadata="61"), value("c3"), value("a0")]}
    assert check_records(types, "limit", client) == Report(3, 1)
    assert check_records(types, "limit", {True: client[True][:1]}) == Report(1, 1)
    report = check_records(types, "limit", {True: [*client[True][:1], value("90")]})
    assert broken(report)[1:] == ("int of the client or bool of the client or the end", "an array of the client", None)


def test_many_expected_steps_are_shortened() -> None:
    types = loads("channel a = choose | recv 1 -> end | recv 2 -> end | recv 3 -> end | recv 4 -> end")
    report = check_records(types, "limit", {True: [frame("SETUP", metadata="61"), END]})
    assert broken(report)[1] == "1 of the client or 2 of the client or 3 of the client or …"


def test_extensions_and_unknown_frames_are_skipped() -> None:
    unknown = frame("0x2A", error={"reason": "unknown"})
    assert limit([frame("EXT"), SETUP, unknown, *CLIENT[1:]], SERVER) == Report(7, 1)


def test_the_channel_can_be_given() -> None:
    with pytest.raises(ValueError, match="unknown channel 'x': there are sum, other"):
        limit(CLIENT, SERVER, "x")
    with pytest.raises(ValueError, match="do not name a channel: choose one of sum, other"):
        limit(None, SERVER)
    assert broken(limit(CLIENT, SERVER, "other"))[1:3] == ("the channel other", "the channel sum")


def rsocket_records(frames: list[Any]) -> list[Record]:
    return [rsocket.record(each, payload="hex") for each in frames]


def item(data: bytes, **more: Any) -> Any:
    return rsocket.PayloadFrame(stream=more.pop("stream", 1), data=data, next=True, **more)


def opening(data: bytes = b"", **more: Any) -> Any:
    return rsocket.RequestChannel(stream=more.pop("stream", 1), initial_n=8, data=data, **more)


def channel(client: list[Any] | None, server: list[Any] | None = None, name: str | None = "sum") -> Report:
    sides = {True: client, False: server}
    return check_records(
        TYPES, "rsocket", {side: rsocket_records(found) for side, found in sides.items() if found is not None}, name
    )


ASKED = [opening(b"\x01"), item(b"\x02"), item(CHOICE + b"\x01"), item(b"\x90", complete=True)]
ANSWERED = [rsocket.RequestN(stream=1, n=8), item(b"\x03", complete=True)]


def test_channels_of_rsocket() -> None:
    assert channel(ASKED, ANSWERED) == Report(8, 1)
    assert channel(ASKED) == Report(6, 1)
    assert channel([opening(), item(b"\x01"), *ASKED[1:]], ANSWERED) == Report(8, 1), "a request without data"
    assert channel(ANSWERED, ASKED) == Report(8, 1), "the server requests"
    assert channel([rsocket.Cancel(stream=3), *ASKED], ANSWERED) == Report(8, 1)
    assert channel(None, ANSWERED) == Report(0, 0)
    early = [*ASKED[:3], item(b"\x90"), rsocket.PayloadFrame(stream=1, complete=True)]
    assert channel(early, []) == Report(6, 1, open=True), "the client has no further steps"
    assert channel([*ASKED[:2], rsocket.Cancel(stream=1)], []) == Report(4, 1, failed=True)


def test_each_channel_is_a_session() -> None:
    second = [opening(b"\x01", stream=3), item(b"\xa0", stream=3)]
    assert channel([*ASKED, opening(b"\x01", stream=3)], ANSWERED) == Report(10, 2, open=True)
    report = channel([*second, *ASKED], ANSWERED)
    assert broken(report)[0]["stream"] == 3


def test_fragments_are_joined() -> None:
    pieces = [opening(b"\xcd", follows=True), rsocket.PayloadFrame(stream=1, data=b"\x01", follows=True)]
    whole = [*pieces, rsocket.PayloadFrame(stream=1, data=b"\x00", next=True), *ASKED[2:]]
    assert channel(whole, ANSWERED) == Report(7, 1)


def test_breaks_in_channels_of_rsocket() -> None:
    assert broken(channel([opening(b"\xa0")], []))[1:] == ("int of the client", "a string of the client", 0)
    assert broken(channel([opening(b"\x01", complete=True)], []))[2] == "the end of the client"
    assert broken(channel([opening(), item(b"")], []))[2] == "the end of the data of the client"
    lone = {True: [*rsocket_records([opening(b"\x01")]), CUT_OFF | {"stream": 1, "flags": []}]}
    report = check_records(TYPES, "rsocket", lone, "sum")
    assert broken(report)[2] == "a malformed frame (cut off) of the client"
    outside = CUT_OFF | {"stream": 0, "type": None}
    for side in (True, False):
        report = check_records(TYPES, "rsocket", {True: rsocket_records(ASKED), False: []} | {side: [outside]}, "sum")
        assert broken(report) == (outside, "whole frames", "a malformed frame (cut off)", None)
    unknown = frame("0x2A", error={"reason": "unknown"}) | {"stream": 0}
    assert check_records(TYPES, "rsocket", {True: [*rsocket_records(ASKED), unknown]}, "sum") == Report(6, 1)


def conversation(machine: Machine, data: st.DataObject, record: Callable[[bool, str, bytes], None]) -> bool:
    """Random legal steps of both sides; returns whether the session ended."""
    monitors = {False: Monitor(machine), True: Monitor(machine.dual())}
    for _ in range(12):
        client = monitors[True].kind in (Kind.SEND, Kind.CHOOSE)
        active, passive = monitors[client], monitors[not client]
        here = active.machine.states[active.state]
        if here.kind is Kind.END:
            break
        if here.type is not None:
            sent = active.send(data.draw(values_of(here.type, dict(machine.types))))
            passive.received(sent)
            record(client, "PAYLOAD", sent)
        else:
            index = active.choose(data.draw(st.integers(1, len(here.next))), explicit=True)
            assert index is not None
            passive.chosen(index)
            record(client, "CHOOSE", bytes((index,)))
    return monitors[True].kind is Kind.END


@given(files(), st.data())
def test_every_conversation_that_monitors_permit_follows_the_type(file: File, data: st.DataObject) -> None:
    types = compile_file(file)
    name = data.draw(st.sampled_from(sorted(types)))
    sides: dict[bool, list[Record]] = {True: [frame("SETUP", metadata=name.encode().hex())], False: []}
    ended = conversation(types[name], data, lambda client, kind, sent: sides[client].append(frame(kind, sent.hex())))
    report = check_records(types, "limit", sides)
    assert (report.broken, report.open) == (None, not ended)
    for side, records in sides.items():
        assert check_records(types, "limit", {side: records}, name).broken is None
    assert check_records(types, "limit", {True: [*sides[True], value("c1")]}).broken is not None
