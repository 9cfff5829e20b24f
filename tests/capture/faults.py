"""Conversations of every protocol, and captures of them with faults whose truth is known. Contains no tests.

A fault changes the packets of a connection, never the bytes that its ends sent. What each capture still contains is
counted, so that a test can compare what is decoded with the truth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from afflux.protocols.jmux import frames as jmux
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.registry import named
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as rsocket
from afflux.protocols.rsocket_draft import frames as draft
from tests.capture import writing
from tests.capture.writing import ACK, PSH, Packet, Talk, ethernet, fragments
from tests.cli.test_decode import BOTH
from tests.strategies.draft import draft_frames_of
from tests.strategies.frames import frames_of

__all__ = ["PROTOCOLS", "Conversation", "Faulty", "conversations", "faulty", "truth"]


@dataclass(frozen=True)
class Conversation:
    """The bytes that both sides sent: whether the client did, and the bytes of some frames."""

    protocol: str
    turns: list[tuple[bool, bytes]]

    def sent(self, client: bool) -> bytes:
        return b"".join(data for side, data in self.turns if side is client)

    @property
    def opening(self) -> int:
        """How many turns select the protocol."""
        return 1 if self.protocol != "jmux" else 2


def _prefixed(frame: bytes) -> bytes:
    return len(frame).to_bytes(3, "big") + frame


def _stateless(kinds: Iterable[Any], first: bytes, encode: Callable[[Any], bytes], of: Any = frames_of) -> Any:
    """Any frames of a protocol whose frames can be read without the earlier ones."""
    frame = st.one_of([of(kind) for kind in kinds]).map(encode)
    return first, frame, frame


def _jmux() -> Any:
    data = st.builds(
        lambda session, data, flags: jmux.Data(session=session, data=data, **flags).encode(),
        st.integers(0, 127),
        st.binary(min_size=1, max_size=300),
        st.fixed_dictionaries({"open": st.booleans(), "eof": st.booleans()}),
    )
    ping = st.integers(0, 99).map(lambda cookie: jmux.Ping(cookie=cookie).encode())
    return b"", data | ping, data | ping


def _rsio() -> Any:
    ids = st.integers(1, 9)
    client = st.one_of(
        st.builds(
            lambda n, d: rsio.Subscribe(publisher="p", subscriber=n, initial_demand=d).encode(), ids, st.integers(0, 99)
        ),
        st.builds(lambda n, d: rsio.Request(subscriber=n, demand=d).encode(), ids, st.integers(1, 99)),
        st.builds(lambda n: rsio.Cancel(subscriber=n).encode(), ids),
    )
    server = st.one_of(
        st.builds(
            lambda n, data: rsio.OnNext(subscriber=n, element=data, element_size=0).encode(),
            ids,
            st.binary(max_size=300),
        ),
        st.builds(lambda n: rsio.OnComplete(subscriber=n).encode(), ids),
    )
    return rsio.ClientHello().encode(), client, server


def _made(protocol: str) -> Any:
    match protocol:
        case "rsocket":
            kinds = [kind for kind in rsocket.FRAMES.values() if kind is not rsocket.Setup]
            return _stateless(kinds, _prefixed(rsocket.Setup().encode()), lambda frame: _prefixed(frame.encode()))
        case "rsocket-draft":
            kinds = [kind for kind in draft.FRAMES.values() if kind is not draft.Setup]
            return _stateless(
                kinds, _prefixed(draft.Setup().encode()), lambda frame: _prefixed(frame.encode()), draft_frames_of
            )
        case "reactivesocket":
            kinds = [kind for kind in old.FRAMES.values() if kind is not old.Setup]
            return _stateless(kinds, old.Setup().encode(prefixed=True), lambda frame: frame.encode(prefixed=True))
        case "limit":
            kinds = [kind for kind in limit.FRAMES.values() if kind is not limit.Setup]
            first = limit.Setup(metadata=b"sum").encode(prefixed=True)
            return _stateless(kinds, first, lambda frame: frame.encode(prefixed=True))
        case "jmux":
            return _jmux()
        case _:
            return _rsio()


PROTOCOLS = ("rsocket", "rsocket-draft", "reactivesocket", "jmux", "rsio", "limit")


@st.composite
def conversations(draw: st.DrawFn, protocol: str) -> Conversation:
    """Random frames of both sides, after those that select the protocol."""
    first, client, server = _made(protocol)
    ours, theirs = BOTH[protocol][:2] if protocol in BOTH else ([], [])
    turns = [(True, first or ours[0])]
    if protocol in ("jmux", "rsio"):
        turns.append((False, theirs[0]))
    for _ in range(draw(st.integers(1, 12))):
        side = draw(st.booleans())
        turns.append((side, draw(client if side else server)))
    return Conversation(protocol, turns)


def truth(conversation: Conversation, client: bool) -> list[dict[str, Any]]:
    """The records of all that one side sent."""
    make = named(conversation.protocol).dissector
    assert make is not None
    dissector = make(client, "hex")
    return [*dissector.feed(conversation.sent(client)), *dissector.end()]


# -- faults ----------------------------------------------------------------------------------------------------------


@dataclass
class Faulty:
    """A capture with faults."""

    file: bytes
    conversation: Conversation
    captured: dict[bool, set[int]]
    "The positions of the bytes of each side that a packet has."
    cut: bool
    "Packets were cut, so that a gap may contain bytes that another packet has."
    faults: list[str] = field(default_factory=list)

    def lost(self, client: bool) -> set[int]:
        """The positions of the bytes that no packet has."""
        return set(range(len(self.conversation.sent(client)))) - self.captured[client]

    def __repr__(self) -> str:
        lost = {side: sorted(self.lost(side))[:5] for side in (True, False)}
        return f"{self.conversation.protocol}: {', '.join(self.faults) or 'no faults'}; lost {lost}"


@dataclass
class _Segment:
    """A part of what one side sent."""

    client: bool
    at: int
    data: bytes
    true: bool = True
    "The bytes are those that were sent."


class _Injector:
    """Turns a conversation into packets with faults."""

    def __init__(self, conversation: Conversation, noise: random.Random) -> None:
        self.conversation = conversation
        self.noise = noise
        self.faults: list[str] = []
        six = noise.random() < 0.3
        ends = (writing.CLIENT6, writing.SERVER6) if six else (writing.CLIENT, writing.SERVER)
        initial = (noise.choice([5, 2**32 - 300, 2**31 - 100]), noise.getrandbits(32))
        vlans = noise.choice([(), (), ((0x8100, 5),), ((0x88A8, 1), (0x8100, 2))])
        self.talk = Talk(*ends, initial=initial, vlans=vlans)
        self.faults += ["IPv6"] * six + ["VLAN"] * bool(vlans)
        self.segments = self._segments(noise.choice([3, 40, 200, 1_448]))

    def _segments(self, size: int) -> list[_Segment]:
        places = {True: 0, False: 0}
        made = []
        for client, data in self.conversation.turns:
            for n in range(0, len(data), size):
                piece = data[n : n + size]
                made.append(_Segment(client, places[client], piece))
                places[client] += len(piece)
        return made

    @property
    def _after_opening(self) -> int:
        """The number of the first segment after those that select the protocol."""
        left = {True: 0, False: 0}
        for client, data in self.conversation.turns[: self.conversation.opening]:
            left[client] += len(data)
        number = 0
        for n, one in enumerate(self.segments):
            if one.at < left[one.client]:
                number = n + 1
        return number

    def lose(self) -> None:
        first = self._after_opening
        if first < len(self.segments):
            del self.segments[self.noise.randrange(first, len(self.segments))]
            self.faults.append("loss")

    def repeat(self, true: bool = True) -> None:
        """A copy of bytes that were sent before, with other limits; it may differ. The first copy counts."""
        noise = self.noise
        number = noise.randrange(len(self.segments))
        one = self.segments[number]
        sent = self.conversation.sent(one.client)
        begin = max(0, one.at - noise.choice([0, 0, 7]))
        end = min(len(sent), one.at + len(one.data) + noise.choice([0, 0, 9])) if true else one.at + len(one.data)
        begin = begin if true else one.at
        data = sent[begin:end] if true else bytes(byte ^ 0x55 for byte in sent[begin:end])
        self.segments.insert(noise.randrange(number, len(self.segments)) + 1, _Segment(one.client, begin, data, true))
        self.faults.append("copy" if true else "another copy")

    def swap(self) -> None:
        first = self._after_opening
        if first + 1 < len(self.segments):
            n = self.noise.randrange(first, len(self.segments) - 1)
            if self.segments[n].true and self.segments[n + 1].true:
                self.segments[n : n + 2] = self.segments[n : n + 2][::-1]
                self.faults.append("order")

    def packets(self) -> list[Packet]:
        talk, noise = self.talk, self.noise
        found = talk.open()
        split = noise.random() < 0.25
        self.faults += ["fragments"] * split
        for one in self.segments:
            packet = talk.packet(one.client, one.at, one.data, ACK | PSH)
            head = 14 + 4 * len(talk.vlans)
            if split and noise.random() < 0.5:
                pieces = fragments(packet.data[head:], 8 * noise.randrange(3, 12), noise.getrandbits(16))
                frames = [ethernet(piece, talk.vlans) for piece in pieces]
                if noise.random() < 0.5:
                    frames.reverse()
                found += [replace(packet, data=frame) for frame in frames]
            else:
                found.append(packet)
            talk.sent[one.client][:] = self.conversation.sent(one.client)[
                : max(len(talk.sent[one.client]), one.at + len(one.data))
            ]
        for side in (True, False):
            talk.sent[side][:] = self.conversation.sent(side)
        return found + talk.close()

    def file(self, packets: list[Packet]) -> bytes:
        noise = self.noise
        order = noise.choice("<>")
        if noise.random() < 0.5:
            nano = noise.random() < 0.5
            self.faults.append(f"pcap {order}{' ns' * nano}")
            return writing.pcap(packets, order=order, nano=nano)
        self.faults.append(f"pcapng {order}")
        return writing.pcapng(packets, order=order)


@st.composite
def faulty(draw: st.DrawFn, conversation: Conversation, *, loses: bool) -> Faulty:
    """A capture of a conversation with random faults; with ``loses`` some of its bytes are in no packet."""
    made = _Injector(conversation, random.Random(draw(st.integers(0, 2**32))))
    noise = made.noise
    if loses:
        for _ in range(draw(st.integers(1, 2))):
            made.lose()
    for _ in range(draw(st.integers(0, 3))):
        made.swap()
    for _ in range(draw(st.integers(0, 3))):
        made.repeat(true=noise.random() < 0.6)
    snap = noise.choice([54 + 60, 54 + 200]) if loses and noise.random() < 0.3 else 0x4_0000
    head = (74 if ":" in made.talk.client[0] else 54) + 4 * len(made.talk.vlans)
    packets = made.packets()
    cut = snap < 0x4_0000 and "fragments" not in made.faults
    captured: dict[bool, set[int]] = {True: set(), False: set()}
    for one in made.segments:
        size = min(len(one.data), snap - head) if cut else len(one.data)
        captured[one.client] |= set(range(one.at, one.at + size)) if one.true else set()
    if cut:
        opening = 3 + made._after_opening
        packets = [*packets[:opening], *(one.cut(snap) if len(one.data) > snap else one for one in packets[opening:])]
        made.faults.append(f"snap length {snap}")
        for n, one in enumerate(made.segments):
            if 3 + n < opening and one.true:
                captured[one.client] |= set(range(one.at, one.at + len(one.data)))
    return Faulty(made.file(packets), conversation, captured, cut, made.faults)
