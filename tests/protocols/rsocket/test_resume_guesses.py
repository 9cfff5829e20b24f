"""A server whose driver wants to know who asks for sessions that are not there (RE-13)."""

from __future__ import annotations

from afflux import Limits
from afflux.core.events import Closed, Resuming
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket.engine import Engine
from afflux.protocols.rsocket.frames import ErrorFrame, Resume, decode


def test_the_driver_refuses_in_its_own_time() -> None:
    limits = Limits.server()
    engine = Engine("server", limits=limits, sessions=Sessions(limits, asks=True))
    frame = Resume(token=b"?" * 32, last_received_server_position=0, first_available_client_position=0)
    (event,) = engine.receive(frame.encode(prefixed=True), 1.0)
    assert isinstance(event, Resuming) and event.session is None
    assert not engine.outgoing()
    (closed,) = engine.refuse("there is no such session", 2.0)
    assert isinstance(closed, Closed)
    said = decode(engine.outgoing(), 3)
    assert isinstance(said, ErrorFrame) and (said.code, said.data) == (0x004, b"there is no such session")
