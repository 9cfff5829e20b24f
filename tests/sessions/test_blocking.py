"""Endpoints that block. Rule numbers are Limit-Stream's."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from afflux.sessions import BlockingChan, Monitor, SessionTypeError, session_type

SUM = session_type(
    {
        "name": "sum",
        "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "int", 3], ["send", "int", 4], ["end"]],
        "types": {},
    }
)


class Ends:
    """Implements ``BlockingSteps``: writes what it sends to one queue, and reads another."""

    def __init__(self, machine: Any, sent: deque[Any], arrived: deque[Any]) -> None:
        self.monitor = Monitor(machine)
        self.sent = sent
        self.arrived = arrived
        self.ended = False

    def send(self, value: Any) -> None:
        self.sent.append(self.monitor.send(value))

    def choose(self, branch: int) -> None:
        if not self.sent.maxlen or len(self.sent) < self.sent.maxlen:
            self.monitor.choose(branch, explicit=True)
            self.sent.append(branch)
        else:
            raise TimeoutError

    def recv(self) -> Any:
        return self.monitor.received(self._next()).value

    def offer(self) -> int:
        branch = int(self._next())
        self.monitor.chosen(branch - 1)
        return branch

    def end(self) -> None:
        self.ended = True

    def _next(self) -> Any:
        if not self.arrived:
            raise TimeoutError
        return self.arrived.popleft()


def chans(most: int | None = None) -> tuple[BlockingChan[Any], BlockingChan[Any], Ends]:
    up, down = deque[Any](maxlen=most), deque[Any]()
    ends = Ends(SUM.client, up, down)
    return BlockingChan(SUM.server, Ends(SUM.server, down, up)), BlockingChan(SUM.client, ends), ends


def test_a_session() -> None:
    server, client, ends = chans()
    assert (client.kind, client.expected) == ("send", "send int")
    asked = client.send(1).choose(1).send(2).choose(2).send(3)
    total, branch = 0, 0
    while branch != 2:
        number, server = server.recv()
        total += number
        branch, server = server.offer()
    number, server = server.recv()
    server.send(total + number).end()
    answer, last = asked.recv()
    last.end()
    assert answer == 6
    assert ends.ended


def test_a_step_that_was_not_taken_can_be_taken_again() -> None:
    server, client, _ = chans(1)
    with pytest.raises(SessionTypeError, match="not str 'x'"):
        client.send("x")
    choice = client.send(1)
    with pytest.raises(TimeoutError):
        choice.choose(2)
    _, offer = server.recv()
    with pytest.raises(TimeoutError):
        offer.offer()
    choice.choose(2)
    assert offer.offer()[0] == 2
    with pytest.raises(TimeoutError):
        chans()[0].recv()


def test_SI_27_a_used_endpoint_is_refused() -> None:
    _, client, _ = chans()
    client.send(1)
    with pytest.raises(SessionTypeError, match="this endpoint was used"):
        client.send(1)
