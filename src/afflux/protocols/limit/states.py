"""Define the legal steps of Limit-Stream as tables: connections (client, server) and sessions.

The engine acts on these tables, the tests check every cell, and the reference page draws them. connection.py and
sessions.py implement each action under its name. The steps of a session type are in steps.py: the table SESSION has
what is common to all types.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.machine import Row, Table, same

__all__ = [
    "CLIENT",
    "SERVER",
    "SESSION",
    "ConnectionAction",
    "ConnectionInput",
    "ConnectionState",
    "SessionAction",
    "SessionInput",
    "SessionState",
]


class ConnectionState(IntEnum):
    """State of a connection."""

    START = 0
    "No session was opened."
    DECIDING = 1
    "A server whose application decides about the client; input waits."
    OPEN = 2
    "A session is live."
    DRAINING = 3
    "As OPEN; the connection closes when the session has ended."
    IDLE = 4
    "The session has ended, and nothing of it can follow."
    ENDED = 5
    "The session has ended; the peer's END may follow (R-29)."
    FAILED = 6
    "The session has failed; messages of the peer that were in flight may follow."
    CLOSED = 7


class ConnectionInput(IntEnum):
    """Input of a connection."""

    SETUP = 0
    SETUP_BAD = 1
    "SETUP with a number, or without the name of a channel."
    SETUP_UNKNOWN = 2
    "SETUP of a channel that this server does not have or permit."
    MESSAGE = 3
    "PAYLOAD or CHOOSE."
    END = 4
    END_LATE = 5
    "END of the former session, before any message of the live one."
    ERROR = 6
    "ERROR about a message."
    ERROR_LATE = 7
    "ERROR about a message of a former session."
    ERROR_0 = 8
    "ERROR about the connection."
    BROKEN = 9
    "A violation of any other kind."
    APP_OPEN = 10
    APP_ACCEPT = 11
    APP_REFUSE = 12
    APP_DRAIN = 13
    APP_CLOSE = 14
    SESSION_OVER = 15
    "The session has ended; this side sent the last message, or END has arrived."
    SESSION_COMPLETE = 16
    "The session has ended with a message of the peer."
    SESSION_FAILED = 17
    SILENT = 18
    "No SETUP in time, or no decision."
    LOST = 19


class ConnectionAction(IntEnum):
    """What the engine does for a step of a connection."""

    VIOLATE = 0
    "Send ERROR on 0, fail the session, close."
    INVALID = 1
    "Send ERROR[INVALID_SETUP], close."
    REJECT = 2
    "Send ERROR[REJECTED_SETUP], close."
    JUDGE = 3
    "A server has its client's SETUP: accept it, or ask the application."
    BEGIN = 4
    "Begin the session that the client has opened."
    SETUP = 5
    "Send SETUP, and begin the session."
    STEP = 6
    "A step of the session."
    DISCARD = 7
    "Drop what was in flight; count the number of a message."
    FORGET = 8
    "END of the former session has arrived: no other is expected."
    DRAIN = 9
    PEER_FAILED = 10
    "The peer has ended the connection with an error."
    CLOSE = 11
    "Fail the session, close."
    GIVE_UP = 12
    "The peer was silent: close without a frame."
    LOSE = 13
    NOTHING = 14
    "No-op: already in this state, or nothing to do."


_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)
_OVER = (_S.IDLE, _S.ENDED, _S.FAILED)
_ALL = (_S.START, *_LIVE, *_OVER)
_ENDS = (_I.SESSION_OVER, _I.SESSION_COMPLETE, _I.SESSION_FAILED)

_COMMON = [
    Row(_LIVE, (_I.MESSAGE, _I.END, _I.ERROR), _A.STEP, same, "3.2"),
    Row(_LIVE, _I.END_LATE, _A.FORGET, same, "R-29"),
    Row(_LIVE, _I.ERROR_LATE, _A.DISCARD, same, "D-14"),
    Row((_S.IDLE, _S.ENDED), (_I.ERROR, _I.ERROR_LATE), _A.DISCARD, same, "D-14"),
    Row((_S.IDLE, _S.ENDED), _I.MESSAGE, _A.VIOLATE, _S.CLOSED, "SI-25"),
    Row(_S.IDLE, (_I.END, _I.END_LATE), _A.VIOLATE, _S.CLOSED, "SI-25"),
    Row(_S.ENDED, (_I.END, _I.END_LATE), _A.NOTHING, _S.IDLE, "R-29"),
    Row(_S.FAILED, (_I.MESSAGE, _I.END, _I.END_LATE, _I.ERROR, _I.ERROR_LATE), _A.DISCARD, same, "3.1"),
    Row(_ALL, _I.BROKEN, _A.VIOLATE, _S.CLOSED, "R-8"),
    Row((*_LIVE, *_OVER), _I.ERROR_0, _A.PEER_FAILED, _S.CLOSED, "3.1"),
    Row(_S.OPEN, _I.SESSION_OVER, _A.NOTHING, _S.IDLE, "3.1"),
    Row(_S.OPEN, _I.SESSION_COMPLETE, _A.NOTHING, _S.ENDED, "R-29"),
    Row(_S.OPEN, _I.SESSION_FAILED, _A.NOTHING, _S.FAILED, "3.2"),
    Row(_S.DRAINING, _ENDS, _A.CLOSE, _S.CLOSED, "3.1"),
    Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
    Row((_S.START, *_OVER), _I.APP_DRAIN, _A.CLOSE, _S.CLOSED, "3.1"),
    Row(_ALL, _I.APP_CLOSE, _A.CLOSE, _S.CLOSED, "3.1"),
    Row(_ALL, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
]

CLIENT = Table(
    "connection, client",
    states=(_S.START, *_LIVE, *_OVER, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row((_S.START, *_OVER), _I.APP_OPEN, _A.SETUP, _S.OPEN, "R-25"),
        Row(_ALL, (_I.SETUP, _I.SETUP_BAD, _I.SETUP_UNKNOWN), _A.VIOLATE, _S.CLOSED, "3.1"),
        Row(
            _S.START,
            (_I.MESSAGE, _I.END, _I.END_LATE, _I.ERROR, _I.ERROR_LATE),
            _A.VIOLATE,
            _S.CLOSED,
            "3.1",
        ),
        Row(_S.START, _I.ERROR_0, _A.PEER_FAILED, _S.CLOSED, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.NOTHING, "3.1"),
)
"Section 3.1 of the specification."

SERVER = Table(
    "connection, server",
    states=(_S.START, _S.DECIDING, *_LIVE, *_OVER, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.SETUP, _A.JUDGE, _S.DECIDING, "3.1"),
        Row(_S.DECIDING, _I.APP_ACCEPT, _A.BEGIN, _S.OPEN, "R-25"),
        Row(_OVER, _I.SETUP, _A.BEGIN, _S.OPEN, "R-25"),
        Row((_S.START, *_OVER), _I.SETUP_UNKNOWN, _A.REJECT, _S.CLOSED, "3.1"),
        Row((_S.START, *_OVER), _I.SETUP_BAD, _A.INVALID, _S.CLOSED, "3.1"),
        Row(_LIVE, (_I.SETUP, _I.SETUP_BAD, _I.SETUP_UNKNOWN), _A.VIOLATE, _S.CLOSED, "R-25"),
        Row(
            _S.START,
            (_I.MESSAGE, _I.END, _I.END_LATE, _I.ERROR, _I.ERROR_LATE, _I.ERROR_0),
            _A.INVALID,
            _S.CLOSED,
            "HS-02",
        ),
        Row(_S.START, _I.SILENT, _A.GIVE_UP, _S.CLOSED, "HS-01"),
        Row(
            _S.DECIDING,
            (_I.APP_REFUSE, _I.APP_DRAIN, _I.APP_CLOSE, _I.SILENT, _I.BROKEN),
            _A.REJECT,
            _S.CLOSED,
            "3.1",
        ),
        Row(_S.DECIDING, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.NOTHING, "3.1"),
)
"Rows of section 3.1. DECIDING (the application decides) and DRAINING (it drains) are additions of afflux."


class SessionState(IntEnum):
    """State of a session at one side: which side takes the next step."""

    START = 0
    SENDING = 1
    "This side: its type is ``send`` or ``choose``."
    RECEIVING = 2
    "The peer: this side's type is ``recv`` or ``offer``."
    FREE = 3
    "Either side: the session is not checked."
    ENDED = 4
    FAILED = 5


class SessionInput(IntEnum):
    """Input of a session."""

    PAYLOAD = 0
    CHOOSE = 1
    END = 2
    ERROR = 3
    APP_PAYLOAD = 4
    APP_CHOOSE = 5
    APP_COMPLETE = 6
    "The application has nothing more to send."
    APP_ABORT = 7
    TO_SEND = 8
    "The type expects a step of this side next."
    TO_RECEIVE = 9
    "The type expects a step of the peer next."
    TO_BOTH = 10
    TO_END = 11
    "The type has ended with a message of this side, or with none at the client."
    TO_END_PEER = 12
    "The type has ended with a message of the peer, or with none at the server."
    LOST = 13
    "The connection has ended."


class SessionAction(IntEnum):
    """What the engine does for a step of a session."""

    VIOLATE = 0
    "The peer has taken a step that is not its turn: the connection ends."
    DELIVER = 1
    "Check the value, and deliver it."
    BRANCH = 2
    "Check the branch, and deliver the choice."
    SEND = 3
    "Check the value, and send it."
    PICK = 4
    "Check the branch, and send CHOOSE unless the next value implies it."
    REFUSE = 5
    "It is not this side's turn: an error of the application, nothing is sent."
    FLUSH = 6
    "Send what waited for this side's turn."
    END = 7
    "Send END."
    COMPLETE = 8
    "Report that the session has ended."
    ABORT = 9
    "Send ERROR[APPLICATION_ERROR]."
    FAIL = 10
    "Report the peer's error, or the end of the connection."
    NOTHING = 11


_T, _N, _D = SessionState, SessionInput, SessionAction
_ACTIVE = (_T.SENDING, _T.RECEIVING, _T.FREE)

SESSION = Table(
    "session",
    states=SessionState,
    inputs=SessionInput,
    start=_T.START,
    rows=[
        Row((_T.START, _T.RECEIVING), _N.TO_SEND, _D.FLUSH, _T.SENDING, "3.2"),
        Row((_T.START, _T.SENDING), _N.TO_RECEIVE, _D.NOTHING, _T.RECEIVING, "3.2"),
        Row(_T.START, _N.TO_BOTH, _D.NOTHING, _T.FREE, "D-15"),
        Row((_T.START, _T.SENDING), _N.TO_END, _D.END, _T.ENDED, "R-29"),
        Row((_T.START, _T.RECEIVING), _N.TO_END_PEER, _D.COMPLETE, _T.ENDED, "R-29"),
        Row((_T.RECEIVING, _T.FREE), _N.PAYLOAD, _D.DELIVER, same, "3.2"),
        Row((_T.RECEIVING, _T.FREE), _N.CHOOSE, _D.BRANCH, same, "3.2"),
        Row(_T.SENDING, (_N.PAYLOAD, _N.CHOOSE), _D.VIOLATE, same, "SI-25"),
        Row((_T.SENDING, _T.RECEIVING), _N.END, _D.VIOLATE, same, "SI-25"),
        Row(_T.FREE, _N.END, _D.COMPLETE, _T.ENDED, "R-29"),
        Row(_ACTIVE, (_N.ERROR, _N.LOST), _D.FAIL, _T.FAILED, "3.2"),
        Row((_T.SENDING, _T.FREE), _N.APP_PAYLOAD, _D.SEND, same, "3.2"),
        Row((_T.SENDING, _T.FREE), _N.APP_CHOOSE, _D.PICK, same, "R-27"),
        Row(_T.RECEIVING, (_N.APP_PAYLOAD, _N.APP_CHOOSE), _D.REFUSE, same, "3.2"),
        Row(_T.SENDING, _N.APP_COMPLETE, _D.REFUSE, same, "3.2"),
        Row(_T.FREE, _N.APP_COMPLETE, _D.END, _T.ENDED, "R-29"),
        Row(_ACTIVE, _N.APP_ABORT, _D.ABORT, _T.FAILED, "3.2"),
    ],
    otherwise=(_D.NOTHING, "3.2"),
)
"Section 3.2 of the specification. steps.py has the type, which decides what follows each step."
