"""Streams that survive their transport: cut at every byte of either direction, items exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, Rejected, SetupRefused
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket_draft import Engine, resumable

from .pair import KEEPALIVE, LIMITS, RESUME, client, resumed, server

ITEMS = [b"%d" % number * 3 for number in range(6)]
NEVER = 1 << 40


class Talk:
    """A channel that opted in and a stream that did not, on links of which the first breaks after some bytes."""

    def __init__(self, *, to_server: int = NEVER, to_client: int = NEVER, mtu: int = 64) -> None:
        self.sessions = Sessions(LIMITS)
        self.client = client(KEEPALIVE, RESUME, mtu=mtu)
        self.server = server(sessions=self.sessions, mtu=mtu)
        self.left = {self.client: to_server, self.server: to_client}
        self.passed = {"client": 0, "server": 0}
        self.sent = {"client": 0, "server": 0}
        self.got: dict[str, list[bytes]] = {"client": [], "server": []}
        self.ended: dict[str, Any] = {}
        self.plain: Any = None
        self.opened = False
        self.channel = self.client.open("channel", resumable(b"first" * 30), credit=2)
        self.other = self.client.open("stream", b"plain", credit=8)
        self.now = 0.0

    def run(self) -> Talk:
        for _ in range(2000):
            self.send("client", self.client)
            if self.opened:
                self.send("server", self.server)
            moved = [self.move("client", self.client), self.move("server", self.server)]
            if self.client.closed or not any(moved):
                break
        return self

    def send(self, name: str, engine: Engine) -> None:
        while self.sent[name] < len(ITEMS) and not self.ended.get(name) and engine.credit(self.channel):
            last = self.sent[name] == len(ITEMS) - 1
            engine.send(self.channel, [Payload(ITEMS[self.sent[name]], b"m" * 70)], complete=last)
            self.sent[name] += 1

    def move(self, name: str, engine: Engine) -> bool:
        """Write what one side has to say, as far as its link holds."""
        data = engine.outgoing(64)
        whole, data = len(data), data[: self.left[engine]]
        self.left[engine] -= len(data)
        self.passed[name] += len(data)
        other = self.server if engine is self.client else self.client
        self.hear("server" if name == "client" else "client", other, other.receive(data, self.now) if data else [])
        if len(data) < whole:
            self.cut()
        return bool(whole)

    def cut(self) -> None:
        self.now += 1
        self.hear("client", self.client, self.client.receive_eof(self.now))
        self.hear("server", self.server, self.server.receive_eof(self.now))
        if not self.client.closed:
            self.server, heard_client, heard_server = resumed(self.client, self.sessions, self.now)
            self.hear("server", self.server, heard_server)
            self.hear("client", self.client, heard_client)
        self.left = {self.client: NEVER, self.server: NEVER}

    def hear(self, name: str, engine: Engine, events: list[Any]) -> None:
        for event in ev.singly(events):
            match event:
                case ev.Opened(stream=stream) if stream == self.channel:
                    self.opened = True
                    engine.request(stream, 2)
                case ev.Opened(stream=stream):
                    engine.send(stream, [b"1", b"2"], complete=True)
                case ev.Items(stream=stream, payloads=payloads) if stream == self.channel:
                    self.got[name] += [payload.data for payload in payloads]
                    assert all(payload.metadata == b"m" * 70 for payload in payloads)
                    engine.request(stream, len(payloads))
                    if event.complete:
                        self.ended[name] = None
                case ev.Completed(stream=stream) if stream == self.channel:
                    self.ended[name] = None
                case ev.Failed(stream=stream, error=error) if stream == self.channel:
                    self.ended[name] = error
                case ev.Items(stream=stream, complete=True):
                    self.plain = "done"
                case ev.Failed(error=error) if name == "client":
                    self.plain = error


WHOLE = Talk().run()


def test_the_conversation_without_a_cut() -> None:
    assert WHOLE.got == {"client": ITEMS, "server": ITEMS}
    assert WHOLE.ended == {"client": None, "server": None}
    assert WHOLE.plain == "done"


@pytest.mark.repetitive
@pytest.mark.parametrize("direction", ["client", "server"])
def test_R_41_items_come_exactly_once_wherever_the_link_breaks(direction: str) -> None:
    """R-37, R-39 to R-41, D-11: the channel continues; the stream that did not opt in ends with REJECTED."""
    resumptions = 0
    for size in range(WHOLE.passed[direction]):
        talk = Talk(**{"to_server" if direction == "client" else "to_client": size}).run()
        where = f"{size} of {WHOLE.passed[direction]} bytes from the {direction}"
        if talk.client.closed:  # before SETUP_OK, or before anything that the server could continue
            assert isinstance(talk.ended["client"], ConnectionClosed | SetupRefused), where
            assert not talk.got["client"], where
            continue
        assert talk.got == {"client": ITEMS, "server": ITEMS}, where
        assert talk.ended == {"client": None, "server": None}, where
        if talk.plain != "done":
            assert isinstance(talk.plain, Rejected), where
            assert (talk.plain.code, talk.plain.may_have_been_processed) == (0x202, True), where
        resumptions += 1
    assert resumptions > WHOLE.passed[direction] * 0.7
