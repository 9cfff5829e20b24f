"""Every cell of the tables, against grids written by hand from the specification, and the engine against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.frames import JmuxFrame, NoOperation
from afflux.protocols.jmux.states import (
    CLIENT,
    CLIENT_SESSION,
    SERVER,
    SERVER_SESSION,
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    SessionAction,
    SessionInput,
    SessionState,
    inputs_from,
)

from .playbook import (
    ACK,
    CLOSE,
    HELLO,
    WELCOME,
    Playbook,
    abort,
    bye,
    client,
    data,
    error,
    more,
    opening,
    ping,
    server,
)

# -- the engine does what the cell of a session says ----------------------------------------------------------

_T, _N = SessionState, SessionInput
SAID: dict[SessionInput, JmuxFrame] = {
    _N.DATA_OPEN: opening(),
    _N.DATA_OPEN_EOF: opening(eof=True),
    _N.DATA: data(b"x"),
    _N.DATA_EOF: data(eof=True),
    _N.DATA_EOF_CLOSE: data(eof=True, close=True),
    _N.DATA_EOF_CLOSE_ACK: data(eof=True, close=True, ack=True),
    _N.CLOSE: CLOSE,
    _N.ABORT: abort(),
    _N.INCREMENT: more(1),
    _N.ACKNOWLEDGMENT: ACK,
}
CLIENT_WISHES: dict[SessionInput, Callable[[Engine], Any]] = {
    _N.APP_DATA: lambda engine: engine.byte_sessions.write(1, b"x"),
    _N.APP_EOF: lambda engine: engine.byte_sessions.finish(1),
    _N.APP_ABORT: lambda engine: engine.byte_sessions.abort(1),
    _N.APP_ACK: lambda engine: engine.byte_sessions.acknowledge(1),
}
SERVER_WISHES: dict[SessionInput, Callable[[Engine], Any]] = {
    _N.APP_DATA: lambda engine: engine.byte_sessions.write(1, b"x"),
    _N.APP_EOF: lambda engine: engine.byte_sessions.finish(1),
    _N.APP_EOF_DROP: lambda engine: engine.byte_sessions.finish(1, drop=True),
    _N.APP_DROP: lambda engine: engine.cancel(1),
    _N.APP_ABORT: lambda engine: engine.byte_sessions.abort(1),
}


def client_session(state: SessionState) -> Playbook:
    """A client whose id 0 is in ``state``."""
    play = client(auto_ack=False)
    if state is not _T.FREE:
        play.on(lambda s: s.open_session(b"q")).forget()
    if state in (_T.OUT_FIN, _T.BOTH_FIN, _T.ACK_DUE):
        play.on(lambda s: s.finish(1)).forget()
    if state in (_T.IN_FIN, _T.BOTH_FIN):
        (play >> data(b"a", eof=True, ack=True)).forget()
    if state is _T.ACK_DUE:
        (play >> data(b"a", eof=True, close=True, ack=True)).forget()
    if state is _T.ABORTED:
        play.on(lambda s: s.abort(1)).forget()
    return play


def server_session(state: SessionState) -> Playbook:
    """A server whose id 0 is in ``state``."""
    play = server()
    if state is not _T.FREE:
        ended = state in (_T.IN_FIN, _T.CLOSED, _T.ABORTED_FIN)
        (play >> opening(b"q", eof=ended)).forget()
    if state in (_T.OUT_FIN, _T.CLOSED):
        play.on(lambda s: s.finish(1, ack=True)).forget()
    if state is _T.CLOSED_EARLY:
        play.on(lambda s: s.finish(1, ack=True, drop=True)).forget()
    if state in (_T.ABORTED, _T.ABORTED_FIN):
        play.on(lambda s: s.abort(1)).forget()
    return play


def state_of(play: Playbook) -> SessionState:
    session = play.engine.sessions.by_id[0]
    return _T.FREE if session is None else session.state


@pytest.mark.parametrize("state", CLIENT_SESSION.states)
@pytest.mark.parametrize("input", [*SAID, *CLIENT_WISHES])
def test_the_engine_keeps_to_the_table_of_client_sessions(state: SessionState, input: SessionInput) -> None:
    play = client_session(state)
    assert state_of(play) is state
    step = CLIENT_SESSION.step(state, input)
    if input is _N.CLOSE and state is _T.BOTH_FIN:
        step = CLIENT_SESSION.step(state, _N.CLOSE_ACK)  # the playbook asked for an Acknowledgment
    if input in SAID:
        play >> SAID[input]
    else:
        play.do(CLIENT_WISHES[input])
    if step.action is SessionAction.VIOLATION:
        assert play.engine.closed
        return
    assert not play.engine.closed
    assert state_of(play) is step.next


@pytest.mark.parametrize("state", SERVER_SESSION.states)
@pytest.mark.parametrize("input", [*SAID, *SERVER_WISHES])
def test_the_engine_keeps_to_the_table_of_server_sessions(state: SessionState, input: SessionInput) -> None:
    play = server_session(state)
    assert state_of(play) is state
    step = SERVER_SESSION.step(state, input)
    if input in SAID:
        play >> SAID[input]
    else:
        play.do(SERVER_WISHES[input])
    if step.action is SessionAction.VIOLATION:
        assert play.engine.closed
        return
    assert not play.engine.closed
    assert state_of(play) is step.next


# -- the engine does what the cell of a connection says -------------------------------------------------------

_S, _I = ConnectionState, ConnectionInput


def conn_said(role: str, input: ConnectionInput) -> bytes | None:
    header = (WELCOME if role == "client" else HELLO).encode()
    return {
        _I.HEADER: header,
        _I.BAD_HEADER: b"HTTP/1.1",
        _I.NO_OPERATION: NoOperation().encode(),
        _I.PING: ping(1).encode(),
        _I.SHUTDOWN: bye().encode(),
        _I.ERROR: error().encode(),
        _I.SESSION: (data(b"x") if role == "client" else opening(id=1)).encode(),
    }.get(input)


VERBS: dict[ConnectionInput, Callable[[Engine], Any]] = {
    _I.APP_DRAIN: lambda engine: engine.close(0.0, drain=True),
    _I.APP_CLOSE: lambda engine: engine.close(0.0),
    _I.SILENT: lambda engine: engine.tick(1000.0),
    _I.EOF: lambda engine: engine.receive_eof(0.0),
}
ELSEWHERE = {
    _I.APP_START: "every client",
    _I.SESSIONS_ENDED: "test_connection::test_draining",
    _I.IDLE: "test_connection::test_D_3_an_idle_connection",
    _I.PING_ACK: "test_connection::test_R_14_an_answer_without_a_question",
}


def connection(role: str, state: ConnectionState) -> Playbook:
    """An end in ``state``, with a live session so that draining goes on."""
    if state in (_S.WAIT_HEADER, _S.LEAVING):
        play = Playbook(Engine(role)).forget()  # type: ignore[arg-type] # one of two
        if role == "client":
            play.on(lambda s: s.open_session(b"q"))
        return play.do(lambda engine: engine.close(0.0, drain=True)) if state is _S.LEAVING else play
    play = client() if role == "client" else server()
    if role == "client":
        play.on(lambda s: s.open_session(b"q")).forget()
    else:
        (play >> opening(b"q", eof=True)).forget()
    if state is _S.DRAINING:
        play.do(lambda engine: engine.close(0.0, drain=True)).forget()
    if state is _S.HALF_CLOSED:
        play.eof().forget()
    if state is _S.CLOSED:
        play.do(lambda engine: engine.close(0.0)).forget()
    return play


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("input", [input for input in ConnectionInput if input not in ELSEWHERE])
def test_the_engine_keeps_to_the_table_of_connections(role: str, input: ConnectionInput) -> None:
    table = CLIENT if role == "client" else SERVER
    for state in table.states:
        if state is _S.START:
            continue  # no engine stays there
        play = connection(role, state)
        assert play.engine.shared.state is state
        step = table.step(state, input)
        wanted = step.next
        if state in (_S.WAIT_HEADER, _S.LEAVING) and input < _I.SHUTDOWN and input is not _I.HEADER:
            wanted = _S.CLOSED  # whatever it is, it is no header
        if input is _I.SILENT:
            play.engine.tick(25.0)  # a Ping, if it is time for one
            if play.engine.connection.liveness.pinged is None and state not in (_S.WAIT_HEADER, _S.LEAVING):
                continue
            play.engine.tick(play.engine.deadline or 0.0)
        elif input in VERBS:
            VERBS[input](play.engine)
        else:
            play.engine.receive(conn_said(role, input) or b"", 0.0)
        if step.action is ConnectionAction.VIOLATION:
            wanted = _S.CLOSED
        assert play.engine.shared.state is wanted, (state, input)
        assert play.engine.closed is (wanted is _S.CLOSED)


def test_every_input_is_tried() -> None:
    messages = {input for input in ConnectionInput if conn_said("client", input) is not None}
    assert messages | set(VERBS) | set(ELSEWHERE) == set(ConnectionInput)
    opens = {_N.APP_OPEN, _N.APP_OPEN_EOF}  # every session of a client begins with one
    assert {*SAID, *CLIENT_WISHES, *SERVER_WISHES, *opens, _N.CLOSE_ACK} == set(SessionInput)


# -- first bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [True, False])
@pytest.mark.parametrize("first", range(256))
def test_what_a_first_byte_means(client: bool, first: int) -> None:
    """R-9, R-17, R-18, D-12: written from the table of section 2.2."""
    meaning = inputs_from(client)[first]
    rule = None
    if first & 1 or not (first <= 0x08 or 0x10 <= first <= 0x22 or first in (0x30, 0x40) or 0x80 <= first < 0xA0):
        rule = "R-9"
    elif first == 0x22 and client:
        rule = "D-12"
    elif first >= 0x80:
        o, c, e, a = (first & bit for bit in (0x10, 0x08, 0x04, 0x02))
        if (client and (c or a)) or (not client and o):
            rule = "R-17"
        elif (c or a) and not e:
            rule = "R-18"
    if rule is None:
        assert not isinstance(meaning, tuple)
    else:
        assert isinstance(meaning, tuple)
        assert meaning[0] == rule


def test_D_12_lenient() -> None:
    assert inputs_from(True, lenient_partial=True)[0x22] is SessionInput.ABORT
