"""Steps as items of a channel of a protocol without session types. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import pytest

from afflux.core.payload import Payload
from afflux.sessions import Monitored, Received, SessionTypeError, SessionViolation
from afflux.sessions.machine import loaded

SUM = loaded(
    {
        "name": "sum",
        "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "int", 4], ["end"]],
        "types": {"Done": ["struct"]},
    }
)


def test_R_27_a_session_as_items() -> None:
    server, client = Monitored(SUM), Monitored(SUM.dual())
    sent = [client.value(1), client.choice(1), client.value(2), client.choice(2), client.value(())]
    assert sent == [b"\x01", None, b"\x02", b"\xd4\x00\x01", b"\x90"]
    assert server.first(Payload(b"\x01", b"route"))
    assert not server.first(Payload(b"", b"route"))
    assert [server.received(Payload(item)) for item in sent if item is not None] == [
        Received(None, 1, True),
        Received(1, 2, True),
        Received(2),
        Received(None, (), True),
    ]
    with pytest.raises(SessionTypeError, match="send int"):
        server.end()
    item = server.value(3)
    server.end()
    server.ended()  # the client's half may end after this side's last step
    assert client.received(Payload(item)).value == 3
    client.ended()
    with pytest.raises(SessionViolation, match="received a value"):
        client.received(Payload(item))


def test_the_values_of_a_loop_as_items() -> None:
    """They are read one by one."""
    server, client = Monitored(SUM), Monitored(SUM.dual())
    items = []
    with pytest.raises(SessionTypeError, match="str 'x'"):
        items += client.items([1, 2, "x", 3])
    items += client.items([4])
    assert items == [b"\x01", b"\x02", b"\x04"]
    payloads = [Payload(item) for item in items]
    assert server.values(payloads) is None
    assert [server.received(payload).value for payload in payloads] == [1, 2, 4]


def test_items_that_a_program_writes_itself() -> None:
    client = Monitored(SUM.dual())
    with pytest.raises(SessionTypeError, match="the end of the items"):
        client.completed()
    client.sent(b"\x01")
    client.sent(b"\xd4\x00\x00")  # explicit
    client.sent(b"\x02")
    for item, seen in ((b"\xd4\x00\x07", "branch 8"), (b"\xa0", "a string")):
        with pytest.raises(SessionTypeError, match=seen):
            client.sent(item)
    with pytest.raises(SessionTypeError, match="the end of the items"):
        client.completed()
    client.sent(b"\xd4\x00\x01")
    client.sent(b"\x90")
    client.completed()
    with pytest.raises(SessionViolation, match="received the end"):
        client.ended()
    client.completed()
    client.ended()
