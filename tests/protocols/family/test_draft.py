"""The family has room for a third member: an acknowledged setup, and extension entries on payloads."""

from __future__ import annotations

from typing import Any

from afflux.core import events as ev
from afflux.core.errors import RemoteProtocolError
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.frames import PayloadFrame

from .draft import FLAG_X, SETUP_OK, engine, entry


def joined() -> tuple[Any, Any]:
    client, server = engine("client"), engine("server")
    assert [type(event) for event in server.receive(client.outgoing(), 0.0)] == [ev.Established]
    assert client.receive(server.outgoing(), 0.0) == [ev.Established(None)]
    return client, server


def test_nothing_leaves_before_the_setup_is_acknowledged() -> None:
    client, server = engine("client"), engine("server")
    first = client.open("request", b"q")
    sent = client.outgoing()
    assert frames.decode(sent, 3).NAME == "SETUP"
    assert client.outgoing() == b""
    assert [type(event) for event in server.receive(sent, 0.0)] == [ev.Established]
    answer = server.outgoing()
    assert answer[3:] == SETUP_OK
    assert client.receive(answer, 0.0) == [ev.Established(None)]
    assert server.receive(client.outgoing(), 0.0) == [ev.Opened(first, "request", Payload(b"q"), 1, False)]
    server.answer([first], [Payload(b"a")])
    assert client.receive(server.outgoing(), 0.0) == [ev.Items(first, [Payload(b"a")], True)]


def test_a_server_that_sends_something_else_first_breaks_a_rule() -> None:
    client = engine("client")
    client.outgoing()
    keepalive = frames.Keepalive(stream=0, respond=True).encode(prefixed=True)
    (closed,) = client.receive(keepalive, 0.0)
    assert isinstance(closed, ev.Closed)
    assert isinstance(closed.error, RemoteProtocolError)
    assert closed.error.code == 0x001


def test_entries_of_an_item_are_events_before_it() -> None:
    client, server = joined()
    stream = client.open("stream", b"s", credit=3)
    server.receive(client.outgoing(), 0.0)
    chain = entry(3, b"address", more=True) + entry(9, b"")
    for data in (chain + b"item", b"plain"):
        item = bytearray(PayloadFrame(stream=stream, next=True, data=data).encode(prefixed=True))
        if data != b"plain":
            item[7] |= FLAG_X >> 8
        events = client.receive(bytes(item), 0.0)
        if len(events) == 3:
            assert events[:2] == [ev.Extended(stream, 3, b"address"), ev.Extended(stream, 9, b"")]
            assert events[2] == ev.Items(stream, [Payload(b"item")])
        else:
            assert events == [ev.Items(stream, [Payload(b"plain")])]
    (status,) = client.streams()
    assert (status.outstanding, status.received, status.granted) == (
        1,
        2,
        3,
    )  # credit counts items, with entries or without


def test_it_has_no_resumption_and_no_leases() -> None:
    for end in joined():
        assert end.resumption is None
        assert end.leases is None
        assert end.close(0.0, drain=True)[-1] == ev.Closed(None)
