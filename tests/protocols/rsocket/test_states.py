"""Every cell of the tables, against grids written from the specification by hand, and the engine against both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, Canceled, Invalid, Rejected, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import ConnectionInput, ConnectionState, StreamAction, StreamInput, StreamState
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.states import CLIENT, REQUESTER, RESPONDER, SERVER

from .playbook import TOKEN, Playbook, position, requester, responder, resume, resume_ok, setup


def test_what_costs_nothing_changes_nothing() -> None:
    for table in (REQUESTER, RESPONDER):
        for state, _, step in table.cells():
            if step.action in (StreamAction.IGNORE, StreamAction.RACE, StreamAction.NOTHING):
                assert step.next == state


# -- the engine does what the cell says -----------------------------------------------------------------------

P = frames.PayloadFrame
FRAMES: dict[StreamInput, Any] = {
    StreamInput.ITEM: P(stream=1, next=True, data=b"x"),
    StreamInput.ITEM_LAST: P(stream=1, next=True, complete=True, data=b"x"),
    StreamInput.COMPLETE: P(stream=1, complete=True, data=b""),
    StreamInput.EMPTY: P(stream=1, data=b"x"),
    StreamInput.REQUEST: frames.RequestStream(stream=1, initial_n=1, data=b""),
    StreamInput.REQUEST_N: frames.RequestN(stream=1, n=1),
    StreamInput.REQUEST_N_ZERO: bytes.fromhex("00000a 00000001 2000 00000000"),
    StreamInput.CANCEL: frames.Cancel(stream=1),
    StreamInput.ERROR: frames.ErrorFrame(stream=1, code=0x201, data=b""),
}
VERBS: dict[StreamInput, Callable[[Any], Any]] = {
    StreamInput.APP_ITEM: lambda engine: engine.send(1, [b"x"]),
    StreamInput.APP_COMPLETE: lambda engine: engine.complete(1),
    StreamInput.APP_FAIL: lambda engine: engine.fail(1, Rejected("x")),
    StreamInput.APP_CANCEL: lambda engine: engine.cancel(1),
}


def channel(role: str, state: StreamState) -> Playbook:
    """An engine whose channel 1 is in ``state``, with credit both ways."""
    if role == "requester":
        play = requester()
        play.engine.open("channel", b"", credit=5)
        play >> frames.RequestN(stream=1, n=5)
    else:
        play = responder() >> frames.RequestChannel(stream=1, initial_n=5, data=b"")
        play.engine.request(1, 6)
    forget(play)
    if state in (StreamState.OUT_DONE, StreamState.CLOSED):
        play.do(VERBS[StreamInput.APP_COMPLETE])
    if state in (StreamState.IN_DONE, StreamState.CLOSED):
        forget(play)
        play >> FRAMES[StreamInput.COMPLETE]
    forget(play)
    return play


def forget(play: Playbook) -> None:
    play.collect([])
    play.events.clear()
    play.sent.clear()


@pytest.mark.parametrize("role", ["requester", "responder"])
@pytest.mark.parametrize("state", [StreamState.OPEN, StreamState.OUT_DONE, StreamState.IN_DONE, StreamState.CLOSED])
@pytest.mark.parametrize("input", [*FRAMES, *VERBS])
def test_the_engine_keeps_to_the_table(role: str, state: StreamState, input: StreamInput) -> None:
    table = REQUESTER if role == "requester" else RESPONDER
    play = channel(role, state)
    streams = play.engine.stream_table
    if state == StreamState.CLOSED:
        play.engine.release(1)
    if input in FRAMES:
        if input == StreamInput.REQUEST and role == "requester":
            return  # the id has the wrong parity there: test_requests_that_make_no_sense
        play >> FRAMES[input]
    else:
        play.do(VERBS[input])
    step = table.step(state, input)
    live = streams.live.get(1)
    if input == StreamInput.REQUEST and state == StreamState.CLOSED:
        assert live is not None  # the id is free again: SI-04
        return
    assert (live.state if live else StreamState.CLOSED) == step.next
    assert not play.engine.closed
    if step.action == StreamAction.IGNORE and state != StreamState.CLOSED:
        assert [event.price for event in play.events] == [10]


def test_every_input_is_classified() -> None:
    """Inputs that no frame and no verb of the test above stands for, each with the test that reaches it."""
    elsewhere = {
        StreamInput.ITEM_EXCESS: "test_items_beyond_credit",
        StreamInput.TOO_BIG: "test_payloads_at_and_above_the_limit",
        StreamInput.MALFORMED: "test_metadata_after_data",
        StreamInput.APP_OPEN: "channel()",
        StreamInput.APP_OPEN_LAST: "test_channel_opens_complete",
    }
    assert set(FRAMES) | set(VERBS) | set(elsewhere) == set(StreamInput)
    of_the_draft = {ConnectionInput.APP_AWAIT, ConnectionInput.SETUP_OK, ConnectionInput.ENTRIES}
    own = set(ConnectionInput) - of_the_draft
    assert set(CONNECTION_FRAMES) | set(CONNECTION_VERBS) | set(CONNECTION_ELSEWHERE) == own


_S = ConnectionState

# -- the engine does what the cell of a connection says -------------------------------------------------------

CONNECTION_FRAMES: dict[ConnectionInput, frames.Frame] = {
    ConnectionInput.SETUP: setup(token=b"another one here"),
    ConnectionInput.RESUME: resume(server=0, client=0, token=TOKEN),
    ConnectionInput.RESUME_OK: resume_ok(0),
    ConnectionInput.LEASE: frames.Lease(stream=0, ttl_ms=1000, requests=1),
    ConnectionInput.KEEPALIVE: position(0),
    ConnectionInput.METADATA_PUSH: frames.MetadataPush(stream=0, metadata=b"m"),
    ConnectionInput.ERROR_SETUP: frames.ErrorFrame(stream=0, code=0x003, data=b""),
    ConnectionInput.ERROR_CLOSE: frames.ErrorFrame(stream=0, code=0x102, data=b""),
    ConnectionInput.ERROR_OTHER: frames.ErrorFrame(stream=0, code=0x101, data=b""),
    ConnectionInput.ERROR_RESUME: frames.ErrorFrame(stream=0, code=0x004, data=b""),
    ConnectionInput.EXT: frames.Ext(stream=0, ignore=True, extended_type=1, body=b""),
    ConnectionInput.REQUEST: frames.RequestFnf(stream=2, data=b""),
    ConnectionInput.STREAM_FRAME: frames.Cancel(stream=9),
}
CONNECTION_VERBS: dict[ConnectionInput, Callable[[Any], Any]] = {
    ConnectionInput.APP_DRAIN: lambda engine: engine.close(0.0, drain=True),
    ConnectionInput.APP_CLOSE: lambda engine: engine.close(0.0),
    ConnectionInput.LOST: lambda engine: engine.receive_eof(0.0),
    ConnectionInput.SILENT: lambda engine: engine.tick(90.5),
}
CONNECTION_ELSEWHERE = {
    ConnectionInput.APP_START: "every client",
    ConnectionInput.APP_ACCEPT: "test_nothing_runs_before_the_decision",
    ConnectionInput.APP_REFUSE: "test_the_application_refuses",
    ConnectionInput.LAST_STREAM_ENDED: "test_drain_waits_for_streams",
    ConnectionInput.SUSPEND: "LOST and SILENT, with resumption",
    ConnectionInput.APP_RESUME: "test_a_client_comes_back_and_repeats_what_is_missing",
    ConnectionInput.APP_HAND_OVER: "test_a_server_goes_on_and_repeats_what_is_missing",
    ConnectionInput.SESSION_OVER: "test_no_client_comes_back_to_the_server",
    ConnectionInput.ERROR_UNHEARD: "test_a_client_that_was_cut_before_its_setup_arrived_begins_anew",
    ConnectionInput.APP_ANEW: "test_a_client_that_was_cut_before_its_setup_arrived_begins_anew",
}


def connection(role: str, state: ConnectionState) -> Playbook:
    """A resumable end in ``state``, with a live stream so that draining goes on."""
    engine = Engine("client", setup=setup(token=TOKEN)) if role == "client" else None
    play = Playbook(engine or Engine("server", sessions=Sessions(Limits.server()), decide=state == _S.DECIDING))
    if role == "server" and state not in (_S.WAIT_FIRST, _S.RESUMING):
        play >> setup(token=TOKEN)
    elif state == _S.RESUMING:
        sessions = play.engine.resuming.sessions
        owner = Playbook(Engine("server", sessions=sessions)) >> setup(token=TOKEN)
        assert owner.engine is sessions.find(TOKEN)  # type: ignore[union-attr] # it was given
        play >> resume(server=0, client=0)
    elif role == "client" and state != _S.SETUP_SENT:
        forget(play)
        play >> position(0)
    forget(play)
    if state in (_S.OPEN, _S.DRAINING, _S.SUSPENDED, _S.RESUME_SENT, _S.SETUP_SENT):
        play.do(lambda engine: engine.open("stream", b"", credit=1))
    if state == _S.DRAINING:
        forget(play)
        play.do(lambda engine: engine.close(0.0, drain=True))
    if state in (_S.SUSPENDED, _S.RESUME_SENT):
        forget(play)
        play.eof()
    if state == _S.RESUME_SENT:
        forget(play)
        play.do(lambda engine: engine.resumption.reconnect(0.0))
    elif state == _S.CLOSED:
        forget(play)
        play.do(lambda engine: engine.close(0.0))
    forget(play)
    assert play.engine.state == state
    return play


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("input", [*CONNECTION_FRAMES, *CONNECTION_VERBS])
def test_the_engine_keeps_to_the_table_of_connections(role: str, input: ConnectionInput) -> None:
    """But for what is judged, and for a transport that is lost, which suspends what can be resumed."""
    table = CLIENT if role == "client" else SERVER
    survive = (ConnectionState.SETUP_SENT, ConnectionState.OPEN, ConnectionState.DRAINING)
    for state in table.states:
        if state == ConnectionState.START:
            continue  # no engine stays there
        play = connection(role, state)
        wanted = table.step(state, input).next
        if input in (ConnectionInput.LOST, ConnectionInput.SILENT) and state in survive:
            wanted = ConnectionState.SUSPENDED
        elif state == ConnectionState.SETUP_SENT and wanted == ConnectionState.OPEN:
            wanted = table.step(wanted, input).next  # it accepts, and is treated again
        elif state == ConnectionState.WAIT_FIRST and input == ConnectionInput.SETUP:
            wanted = ConnectionState.OPEN  # accepted at once
        elif state == ConnectionState.WAIT_FIRST and input == ConnectionInput.RESUME:
            wanted = ConnectionState.CLOSED  # no such session
        if input in CONNECTION_FRAMES:
            play.engine.receive(CONNECTION_FRAMES[input].encode(prefixed=True), 0.0)
        else:
            CONNECTION_VERBS[input](play.engine)
        assert play.engine.state == wanted, (state, input)
        assert play.engine.closed == (wanted == ConnectionState.CLOSED)
        assert play.engine.resumption.suspended == (wanted == ConnectionState.SUSPENDED)
        assert play.engine.resumption.resumable == (wanted in (*survive, ConnectionState.RESUME_SENT))


CODES = (0, 1, 2, 3, 4, 5, 0x100, 0x101, 0x102, 0x103, 0x200, 0x201, 0x202, 0x203, 0x204, 0x205, 0x300, 0x301)
RESERVED = (0xFFFFFFFE, 0xFFFFFFFF)


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("code", [*CODES, *RESERVED])
def test_every_code_on_stream_0_in_every_state_of_a_connection(role: str, code: int) -> None:
    """3.1, 3.2: an open connection ignores codes 1 to 4 and ends with any other but CONNECTION_CLOSE, the reserved
    codes 0 and 0xFFFFFFFF included."""
    frame = b"\0\0\x0a" + bytes(4) + (0x0B << 10).to_bytes(2, "big") + code.to_bytes(4, "big")
    ignored = 1 <= code <= 4
    opened = _S.OPEN if ignored else _S.DRAINING if code == 0x102 else _S.CLOSED
    wanted = {
        _S.WAIT_FIRST: _S.CLOSED,
        _S.SETUP_SENT: _S.DRAINING if code == 0x102 else _S.CLOSED,
        _S.OPEN: opened,
        _S.DRAINING: _S.DRAINING if ignored or code == 0x102 else _S.CLOSED,
        _S.RESUME_SENT: _S.CLOSED if code == 4 else _S.SUSPENDED,
    }
    for state in (CLIENT if role == "client" else SERVER).states:
        if state == _S.START:
            continue  # no engine stays there
        play = connection(role, state)
        live = len(play.engine.resumption.opened)
        events = play.engine.receive(frame, 0.0)
        assert play.engine.state == wanted.get(state, state), state
        prices = [event.price for event in events if isinstance(event, ev.Ignored)]
        assert prices == ([10] if ignored and state in (_S.OPEN, _S.DRAINING) else []), state
        if wanted.get(state, state) == _S.CLOSED != state:
            assert isinstance(events[-1], ev.Closed)
            assert sum(isinstance(event, ev.Failed) for event in events) == live, state


@pytest.mark.parametrize("code", [*CODES, *RESERVED])
def test_every_code_ends_the_stream_it_comes_on(code: int) -> None:
    """3.4, 3.5: whatever the code, ERROR ends its stream and no other, and says what came."""
    kinds = {0x201: ApplicationError, 0x202: Rejected, 0x203: Canceled, 0x204: Invalid}
    kind = kinds.get(code, ApplicationError if 0x301 <= code <= 0xFFFFFFFE else RemoteProtocolError)
    frame = b"\0\0\x0a" + (1).to_bytes(4, "big") + (0x0B << 10).to_bytes(2, "big") + code.to_bytes(4, "big")
    for role in ("requester", "responder"):
        for state in (StreamState.OPEN, StreamState.OUT_DONE, StreamState.IN_DONE):
            play = channel(role, state) >> frame << (ev.Failed, {"error.type": kind, "error.code": code})
            play.quiet()
            assert not play.engine.closed
