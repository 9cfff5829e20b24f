"""Define the legal steps of Jmux as tables: connections and sessions, each for client and server; and the message that
each first byte begins when it comes from the client or from the server.

The engine acts on these tables, the tests check every cell, and the reference page draws them. connection.py, client.py
and server.py implement each step under the action's name.

Messages that only one side may send are in both tables: at the other side they are a violation.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from afflux.core.machine import Row, Table, members, same
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.frames import ACK_REQUIRED, CLOSE, EOF, OPEN


class ConnectionState(IntEnum):
    """State of a connection."""

    START = 0
    WAIT_HEADER = 1
    OPEN = 2
    DRAINING = 3
    "This side closes when its sessions have ended."
    HALF_CLOSED = 4
    "The client has ended its half; the server finishes its responses."
    CLOSED = 5
    LEAVING = 6
    "A client drains, and the server's header has not arrived."


class ConnectionInput(IntEnum):
    """Input of a connection."""

    HEADER = 0
    BAD_HEADER = 1
    NO_OPERATION = 2
    PING = 3
    PING_ACK = 4
    SHUTDOWN = 5
    ERROR = 6
    SESSION = 7
    "A message about a session."
    APP_START = 8
    APP_DRAIN = 9
    APP_CLOSE = 10
    SESSIONS_ENDED = 11
    EOF = 12
    "The peer has ended its half."
    SILENT = 13
    "No header in time, or no PingAck."
    IDLE = 14


class ConnectionAction(IntEnum):
    """What the engine does for a step of a connection."""

    VIOLATION = 0
    "Error with a detail, then close."
    NOTHING = 1
    SEND_HEADER = 2
    ESTABLISH = 3
    ANSWER_HEADER = 4
    "The server's header, then the connection may be used."
    BREAK_OFF = 5
    "The header is invalid: Error, at the server after its own header."
    SKIP = 6
    ANSWER_PING = 7
    PEER_ALIVE = 8
    PEER_SHUT_DOWN = 9
    PEER_FAILED = 10
    SESSION = 11
    DRAIN = 12
    SHUT_DOWN = 13
    "A server closes: Shutdown, or an Abort for each session that may have been processed."
    FINISH = 14
    "All sessions have ended: Shutdown, then close."
    HALF_CLOSE = 15
    LOSE = 16
    LEAVE = 17
    "All sessions have ended: close without a message."
    CLOSE = 18
    "The application closes, and the peer needs no reason."


_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_BOTH = (_S.OPEN, _S.DRAINING)
_WIRE = (_I.HEADER, _I.BAD_HEADER, _I.NO_OPERATION, _I.PING, _I.PING_ACK, _I.SHUTDOWN, _I.ERROR, _I.SESSION)
_LOCAL = (_I.APP_START, _I.APP_DRAIN, _I.APP_CLOSE, _I.SESSIONS_ENDED, _I.EOF, _I.SILENT, _I.IDLE)

_COMMON = [
    Row(_S.WAIT_HEADER, _I.BAD_HEADER, _A.BREAK_OFF, _S.CLOSED, "R-3"),
    Row(_S.WAIT_HEADER, (_I.SILENT, _I.EOF), _A.LOSE, _S.CLOSED, "R-8"),
    Row(_S.WAIT_HEADER, _I.APP_CLOSE, _A.CLOSE, _S.CLOSED, "3.1"),
    Row(_BOTH, _I.NO_OPERATION, _A.SKIP, same, "R-12"),
    Row(_BOTH, _I.PING, _A.ANSWER_PING, same, "R-13"),  # also immediately after the header
    Row(_BOTH, _I.PING_ACK, _A.PEER_ALIVE, same, "R-14"),
    Row(_BOTH, _I.ERROR, _A.PEER_FAILED, _S.CLOSED, "R-7"),
    Row(_BOTH, _I.SESSION, _A.SESSION, same, "3.1"),
    Row(_BOTH, _I.SILENT, _A.LOSE, _S.CLOSED, "D-3"),
    Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
    Row(_S.DRAINING, (_I.APP_DRAIN, _I.APP_START, _I.IDLE), _A.NOTHING, same, "3.1"),
    Row(_S.OPEN, (_I.SESSIONS_ENDED, _I.APP_START), _A.NOTHING, same, "3.1"),
    Row(_S.WAIT_HEADER, (_I.APP_START, _I.SESSIONS_ENDED, _I.IDLE), _A.NOTHING, same, "3.1"),
    Row(_S.CLOSED, (*_WIRE, *_LOCAL), _A.NOTHING, same, "R-7"),
]

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.WAIT_HEADER, _S.LEAVING, _S.OPEN, _S.DRAINING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.APP_START, _A.SEND_HEADER, _S.WAIT_HEADER, "R-1"),
        Row(_S.START, _LOCAL[1:], _A.NOTHING, same, "R-1"),
        Row(_S.WAIT_HEADER, _I.HEADER, _A.ESTABLISH, _S.OPEN, "R-4"),
        Row(_S.WAIT_HEADER, _I.APP_DRAIN, _A.DRAIN, _S.LEAVING, "3.1"),
        Row(_S.LEAVING, _I.HEADER, _A.ESTABLISH, _S.DRAINING, "R-4"),
        Row(_S.LEAVING, _I.BAD_HEADER, _A.BREAK_OFF, _S.CLOSED, "R-3"),
        Row(_S.LEAVING, (_I.SILENT, _I.EOF), _A.LOSE, _S.CLOSED, "R-8"),
        Row(_S.LEAVING, (_I.APP_CLOSE, _I.SESSIONS_ENDED), _A.CLOSE, _S.CLOSED, "3.1"),
        Row(_S.LEAVING, (_I.APP_START, _I.APP_DRAIN, _I.IDLE), _A.NOTHING, same, "3.1"),
        Row(_BOTH, _I.APP_CLOSE, _A.CLOSE, _S.CLOSED, "3.1"),
        Row(_S.DRAINING, _I.SESSIONS_ENDED, _A.LEAVE, _S.CLOSED, "3.1"),
        Row(_BOTH, _I.SHUTDOWN, _A.PEER_SHUT_DOWN, _S.CLOSED, "R-7"),
        Row(_BOTH, _I.EOF, _A.LOSE, _S.CLOSED, "3.1"),
        Row(_S.OPEN, _I.IDLE, _A.NOTHING, same, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.VIOLATION, "3"),
)
"Section 3.1. The application requests DRAINING."

SERVER = Table(
    "connection, server",
    states=(_S.WAIT_HEADER, _S.OPEN, _S.DRAINING, _S.HALF_CLOSED, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.WAIT_HEADER,
    rows=[
        Row(_S.WAIT_HEADER, _I.HEADER, _A.ANSWER_HEADER, _S.OPEN, "R-2"),
        Row(_S.WAIT_HEADER, _I.APP_DRAIN, _A.CLOSE, _S.CLOSED, "3.2"),
        Row(_BOTH, _I.APP_CLOSE, _A.SHUT_DOWN, _S.CLOSED, "3.2"),
        Row(_S.DRAINING, _I.SESSIONS_ENDED, _A.FINISH, _S.CLOSED, "3.2"),
        Row(_BOTH, _I.SHUTDOWN, _A.VIOLATION, same, "R-31"),
        Row(_BOTH, _I.EOF, _A.HALF_CLOSE, _S.HALF_CLOSED, "3.2"),
        Row(_S.OPEN, _I.IDLE, _A.SHUT_DOWN, _S.CLOSED, "D-3"),
        Row(_S.HALF_CLOSED, _WIRE, _A.NOTHING, same, "3.2"),
        Row(_S.HALF_CLOSED, (_I.APP_START, _I.APP_DRAIN, _I.IDLE), _A.NOTHING, same, "3.2"),
        Row(_S.HALF_CLOSED, _I.SESSIONS_ENDED, _A.LEAVE, _S.CLOSED, "3.2"),
        Row(_S.HALF_CLOSED, (_I.EOF, _I.SILENT), _A.LOSE, _S.CLOSED, "3.2"),
        Row(_S.HALF_CLOSED, _I.APP_CLOSE, _A.SHUT_DOWN, _S.CLOSED, "3.2"),
        *_COMMON,
    ],
    otherwise=(_A.VIOLATION, "3"),
)
"Rows of section 3.2."


class SessionState(IntEnum):
    """State of a session. OUT is what this side sends, IN is what it receives."""

    FREE = 0
    "No session, or one that has ended; NONE in section 3.4."
    OPEN = 1
    OUT_FIN = 2
    IN_FIN = 3
    BOTH_FIN = 4
    ABORTED = 5
    "This side has sent Abort, and the peer has not ended the session."
    ACK_DUE = 6
    "Client: the server has ended the session and waits for an Acknowledgment."
    CLOSED = 7
    "Server: both sides are done; the id may be opened again."
    CLOSED_EARLY = 8
    "Server: done before the client."
    ABORTED_FIN = 9
    "Server: as ABORTED, and the client had finished: the id may be opened again."


class SessionInput(IntEnum):
    """Input of a session."""

    DATA_OPEN = 0
    DATA_OPEN_EOF = 1
    DATA = 2
    DATA_EOF = 3
    DATA_EOF_CLOSE = 4
    DATA_EOF_CLOSE_ACK = 5
    "Data with eof and close while an Acknowledgment is owed, or requested by this message."
    CLOSE = 6
    CLOSE_ACK = 7
    "Close while an Acknowledgment is owed."
    ABORT = 8
    INCREMENT = 9
    ACKNOWLEDGMENT = 10
    APP_OPEN = 11
    APP_OPEN_EOF = 12
    APP_DATA = 13
    APP_EOF = 14
    APP_EOF_DROP = 15
    "Finish, and drop the rest of the request."
    APP_DROP = 16
    "Drop the rest of the request, after finishing."
    APP_ABORT = 17
    APP_ACK = 18
    "The response was processed, and an Acknowledgment is owed."


class SessionAction(IntEnum):
    """What the engine does for a step of a session."""

    VIOLATION = 0
    NOTHING = 1
    OPEN = 2
    DELIVER = 3
    DELIVER_LAST = 4
    DELIVER_EARLY = 5
    "The end of a response before the request has ended: Abort answers, the response stays valid."
    STOP = 6
    "Close before the request has ended: Abort answers, the response stays valid."
    CLOSE_BACK = 7
    "The end of a request after the response: Close."
    FREE = 8
    INCREASE = 9
    IGNORE = 10
    "Too late to matter."
    ABORT_BACK = 11
    "Abort answers, and the session has failed."
    DISCARD = 12
    ENDED = 13
    "The answer to this side's ending."
    ACKNOWLEDGED = 14
    SEND = 15
    SEND_EOF = 16
    SEND_EOF_CLOSE = 17
    SEND_CLOSE = 18
    SEND_ABORT = 19
    SEND_ACK = 20


SENDING = tuple(action for action in SessionAction if action.name.startswith("SEND"))
"The actions of the application's calls."


_T, _N, _D = SessionState, SessionInput, SessionAction
_Row = Row[SessionState, SessionInput, SessionAction]
_SessionTable = Table[SessionState, SessionInput, SessionAction]
_OPENS = (_N.DATA_OPEN, _N.DATA_OPEN_EOF)
_PLAIN = (_N.DATA, _N.DATA_EOF)
_CLOSING = (_N.DATA_EOF_CLOSE, _N.DATA_EOF_CLOSE_ACK)
_CLOSES = (_N.CLOSE, _N.CLOSE_ACK)
_APP = tuple(input for input in _N if input.name.startswith("APP_"))
_C = (_T.FREE, _T.OPEN, _T.OUT_FIN, _T.IN_FIN, _T.BOTH_FIN, _T.ABORTED, _T.ACK_DUE)
_LIVE = (_T.OPEN, _T.OUT_FIN, _T.IN_FIN, _T.BOTH_FIN)


def _session_table(name: str, states: tuple[SessionState, ...], rows: list[_Row], rule: str) -> _SessionTable:
    """Return a table. The application's calls for which ``rows`` has no row come too late, or have no meaning: no-op
    rows."""
    acted = {(state, input) for row in rows for state in members(row.states) for input in members(row.inputs)}
    for wish in _APP:
        idle = tuple(state for state in states if (state, wish) not in acted)
        rows.append(Row(idle, wish, _D.NOTHING, same, "3"))
    start, otherwise = _T.FREE, (_D.VIOLATION, rule)
    return Table(name, states=states, inputs=SessionInput, start=start, rows=rows, otherwise=otherwise)


CLIENT_SESSION = _session_table(
    "session, client",
    _C,
    [
        Row(_T.FREE, _N.APP_OPEN, _D.SEND, _T.OPEN, "3.3"),
        Row(_T.FREE, _N.APP_OPEN_EOF, _D.SEND, _T.OUT_FIN, "3.3"),
        Row((_T.OPEN, _T.IN_FIN), _N.APP_DATA, _D.SEND, same, "R-33"),
        Row(_T.OPEN, _N.APP_EOF, _D.SEND_EOF, _T.OUT_FIN, "3.3"),
        Row(_T.IN_FIN, _N.APP_EOF, _D.SEND_EOF, _T.BOTH_FIN, "3.3"),
        Row(_LIVE, _N.APP_ABORT, _D.SEND_ABORT, _T.ABORTED, "3.3"),
        Row(_T.ACK_DUE, _N.APP_ABORT, _D.SEND_ABORT, _T.FREE, "3.3"),
        Row((_T.IN_FIN, _T.BOTH_FIN), _N.APP_ACK, _D.SEND_ACK, same, "R-43"),
        Row(_T.ACK_DUE, _N.APP_ACK, _D.SEND_ACK, _T.FREE, "R-43"),
        Row((_T.OPEN, _T.OUT_FIN), _N.DATA, _D.DELIVER, same, "R-34"),
        Row(_T.OPEN, _N.DATA_EOF, _D.DELIVER_LAST, _T.IN_FIN, "3.3"),
        Row(_T.OUT_FIN, _N.DATA_EOF, _D.DELIVER_LAST, _T.BOTH_FIN, "3.3"),
        Row(_T.OUT_FIN, _N.DATA_EOF_CLOSE, _D.DELIVER_LAST, _T.FREE, "R-24"),
        Row(_T.OUT_FIN, _N.DATA_EOF_CLOSE_ACK, _D.DELIVER_LAST, _T.ACK_DUE, "R-23"),
        Row(_T.OPEN, _CLOSING, _D.DELIVER_EARLY, _T.FREE, "R-27"),
        Row(_T.IN_FIN, _CLOSES, _D.STOP, _T.FREE, "R-27"),
        Row(_T.BOTH_FIN, _N.CLOSE, _D.FREE, _T.FREE, "R-22"),
        Row(_T.BOTH_FIN, _N.CLOSE_ACK, _D.NOTHING, _T.ACK_DUE, "R-23"),
        Row((_T.OPEN, _T.IN_FIN), _N.INCREMENT, _D.INCREASE, same, "R-34"),
        Row((_T.OUT_FIN, _T.BOTH_FIN), _N.INCREMENT, _D.IGNORE, same, "D-9"),
        Row(_LIVE, _N.ABORT, _D.ABORT_BACK, _T.FREE, "R-28"),
        Row(_T.ABORTED, (*_PLAIN, _N.INCREMENT), _D.DISCARD, same, "D-15"),
        Row(_T.ABORTED, (*_CLOSING, *_CLOSES, _N.ABORT), _D.ENDED, _T.FREE, "R-29"),
        Row(_C, _OPENS, _D.VIOLATION, same, "R-17"),
        Row(_C, _N.ACKNOWLEDGMENT, _D.VIOLATION, same, "R-42"),
        Row((_T.FREE, _T.IN_FIN, _T.BOTH_FIN, _T.ACK_DUE), (*_PLAIN, *_CLOSING), _D.VIOLATION, same, "R-20"),
        Row((_T.FREE, _T.OPEN, _T.OUT_FIN, _T.ACK_DUE), _CLOSES, _D.VIOLATION, same, "R-26"),
        Row((_T.FREE, _T.ACK_DUE), _N.INCREMENT, _D.VIOLATION, same, "R-39"),
    ],
    "3.3",
)
"Rows of section 3.3."

_E = (_T.FREE, _T.OPEN, _T.OUT_FIN, _T.IN_FIN, _T.CLOSED, _T.CLOSED_EARLY, _T.ABORTED, _T.ABORTED_FIN)
_REUSABLE = (_T.FREE, _T.CLOSED, _T.ABORTED_FIN)
_ABORTED = (_T.ABORTED, _T.ABORTED_FIN)
_TERMINATED = (_T.CLOSED, _T.CLOSED_EARLY, *_ABORTED)

SERVER_SESSION = _session_table(
    "session, server",
    _E,
    [
        Row(_REUSABLE, _N.DATA_OPEN, _D.OPEN, _T.OPEN, "R-45"),
        Row(_REUSABLE, _N.DATA_OPEN_EOF, _D.OPEN, _T.IN_FIN, "R-45"),
        Row((_T.OPEN, _T.OUT_FIN), _N.DATA, _D.DELIVER, same, "R-34"),
        Row(_T.OPEN, _N.DATA_EOF, _D.DELIVER_LAST, _T.IN_FIN, "3.4"),
        Row(_T.OUT_FIN, _N.DATA_EOF, _D.CLOSE_BACK, _T.CLOSED, "R-25"),
        Row((_T.OPEN, _T.IN_FIN), _N.APP_DATA, _D.SEND, same, "R-33"),
        Row(_T.OPEN, _N.APP_EOF, _D.SEND_EOF, _T.OUT_FIN, "3.4"),
        Row(_T.IN_FIN, (_N.APP_EOF, _N.APP_EOF_DROP), _D.SEND_EOF_CLOSE, _T.CLOSED, "R-25"),
        Row(_T.OPEN, _N.APP_EOF_DROP, _D.SEND_EOF_CLOSE, _T.CLOSED_EARLY, "3.4"),
        Row(_T.OUT_FIN, (_N.APP_DROP, _N.APP_ABORT), _D.SEND_CLOSE, _T.CLOSED_EARLY, "3.4"),
        Row(_T.OPEN, _N.APP_ABORT, _D.SEND_ABORT, _T.ABORTED, "R-30"),
        Row(_T.IN_FIN, _N.APP_ABORT, _D.SEND_ABORT, _T.ABORTED_FIN, "R-30"),
        Row((_T.OPEN, _T.IN_FIN, _T.OUT_FIN), _N.ABORT, _D.ABORT_BACK, _T.FREE, "R-28"),
        Row((_T.OPEN, _T.IN_FIN), _N.INCREMENT, _D.INCREASE, same, "R-34"),
        Row((_T.OUT_FIN, *_TERMINATED), _N.INCREMENT, _D.IGNORE, same, "D-9"),
        Row((_T.OUT_FIN, _T.CLOSED, _T.CLOSED_EARLY), _N.ACKNOWLEDGMENT, _D.ACKNOWLEDGED, same, "R-44"),
        Row(_T.CLOSED_EARLY, _N.DATA, _D.DISCARD, same, "R-20"),
        Row(_T.CLOSED_EARLY, _N.DATA_EOF, _D.DISCARD, _T.CLOSED, "R-20"),
        Row(_T.ABORTED, _N.DATA, _D.DISCARD, same, "D-15"),
        Row(_T.ABORTED, _N.DATA_EOF, _D.DISCARD, _T.ABORTED_FIN, "D-15"),
        Row(_T.ABORTED_FIN, _PLAIN, _D.DISCARD, same, "D-15"),
        Row(_TERMINATED, _N.ABORT, _D.ENDED, _T.FREE, "R-45"),
        Row((_T.OPEN, _T.OUT_FIN, _T.IN_FIN, _T.CLOSED_EARLY, _T.ABORTED), _OPENS, _D.VIOLATION, same, "R-19"),
        Row((_T.FREE, _T.IN_FIN, _T.CLOSED), _PLAIN, _D.VIOLATION, same, "R-20"),
        Row(_E, _CLOSING, _D.VIOLATION, same, "R-17"),
        Row(_E, _CLOSES, _D.VIOLATION, same, "R-17"),
        Row(_T.FREE, _N.INCREMENT, _D.VIOLATION, same, "R-39"),
        Row((_T.FREE, _T.OPEN, _T.IN_FIN, *_ABORTED), _N.ACKNOWLEDGMENT, _D.VIOLATION, same, "R-42"),
    ],
    "3.4",
)
"Rows of section 3.4. FREE is NONE there, ABORTED_FIN is ABORTED(f)."


# -- first bytes ----------------------------------------------------------------------------------------------

_Meaning = ConnectionInput | SessionInput | tuple[str, str]
"What a first byte begins; or the rule that it breaks, and how."

_INPUTS: dict[type[frames.JmuxFrame] | None, _Meaning] = {
    frames.NoOperation: _I.NO_OPERATION,
    frames.Shutdown: _I.SHUTDOWN,
    frames.Ping: _I.PING,
    frames.PingAck: _I.PING_ACK,
    frames.ErrorMessage: _I.ERROR,
    frames.IncrementRation: _N.INCREMENT,
    frames.Abort: _N.ABORT,
    frames.Close: _N.CLOSE,
    frames.Acknowledgment: _N.ACKNOWLEDGMENT,
}
"The input of each message but Data."


@cache  # 30 KiB, mostly text: one for all connections
def inputs_from(client: bool, lenient_partial: bool = False) -> tuple[_Meaning, ...]:
    """Return what each first byte begins when it comes from the client or from the server.

    ``lenient_partial`` lets a client send partial, as the Java original does (D-12).
    """
    return tuple(_meaning(first, client, lenient_partial) for first in range(256))


def _meaning(first: int, client: bool, lenient_partial: bool) -> _Meaning:
    kind = frames.kind_of(first)
    if kind is frames.Data:
        return _data(first, client)
    if kind is frames.Abort and first & 0x02 and client and not lenient_partial:
        return "D-12", "only the server sends partial"
    return _INPUTS.get(kind, ("R-9", f"no message begins with 0x{first:02X}"))


def _data(first: int, client: bool) -> _Meaning:
    if client and first & (CLOSE | ACK_REQUIRED):
        return "R-17", "only the server sets close and ackRequired"
    if not client and first & OPEN:
        return "R-17", "only the client opens sessions"
    if first & (CLOSE | ACK_REQUIRED) and not first & EOF:
        return "R-18", "close and ackRequired need eof"
    if first & OPEN:
        return _N.DATA_OPEN_EOF if first & EOF else _N.DATA_OPEN
    if first & CLOSE:
        return _N.DATA_EOF_CLOSE_ACK if first & ACK_REQUIRED else _N.DATA_EOF_CLOSE
    return _N.DATA_EOF if first & EOF else _N.DATA
