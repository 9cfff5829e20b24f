"""Name the states, inputs and actions of the RSocket family's transition tables.

Each member has tables of its own (``states.py`` of its package) over this vocabulary; the functions that carry out the
actions are in engine.py, handshake.py, liveness.py, endings.py and leases.py (connections) and steps.py (streams).
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ConnectionAction",
    "ConnectionInput",
    "ConnectionState",
    "StreamAction",
    "StreamInput",
    "StreamState",
]


class ConnectionState(IntEnum):
    """The states of a connection."""

    START = 0
    SETUP_SENT = 1
    WAIT_FIRST = 2
    DECIDING = 3
    OPEN = 4
    DRAINING = 5
    CLOSED = 6
    SUSPENDED = 7
    "The session waits for a new transport."
    RESUME_SENT = 8
    "A client on a new transport: it sends nothing else before the answer (R-45)."
    RESUMING = 9
    "A new connection at a server asks to resume a session: the engine of the session decides."
    AWAIT_OK = 10
    "A client that wants its SETUP acknowledged: it sends nothing else before the answer."


class ConnectionInput(IntEnum):
    """The inputs of a connection."""

    SETUP = 0
    RESUME = 1
    RESUME_OK = 2
    LEASE = 3
    KEEPALIVE = 4
    METADATA_PUSH = 5
    ERROR_SETUP = 6
    ERROR_CLOSE = 7
    ERROR_OTHER = 8
    EXT = 9
    REQUEST = 10
    STREAM_FRAME = 11
    APP_START = 12
    APP_ACCEPT = 13
    APP_REFUSE = 14
    APP_DRAIN = 15
    APP_CLOSE = 16
    LAST_STREAM_ENDED = 17
    SILENT = 18
    LOST = 19
    ERROR_RESUME = 20
    "ERROR[REJECTED_RESUME]."
    SUSPEND = 21
    "The transport is lost, and the session can be resumed."
    APP_RESUME = 22
    "There is a new transport (client); the positions in RESUME fit (server)."
    APP_HAND_OVER = 23
    "The new transport goes to the session that RESUME asked for."
    SESSION_OVER = 24
    "The session was not resumed in time."
    ERROR_UNHEARD = 25
    "ERROR[REJECTED_RESUME] to a client that has received nothing from its server yet."
    APP_ANEW = 26
    "There is a new transport, for a client that starts a new session."
    APP_AWAIT = 27
    "The client's SETUP wants an acknowledgement."
    SETUP_OK = 28
    "The acknowledgement of SETUP."
    ENTRIES = 29
    "EXT with a chain of extension entries."


class ConnectionAction(IntEnum):
    """The actions of the engine for a connection."""

    IGNORE = 0
    "Drop the frame and charge 10 glitch tokens."
    SEND_SETUP = 1
    JUDGE_SETUP = 2
    "Check a SETUP; the result is APP_ACCEPT, APP_REFUSE or a wait for the application."
    ESTABLISH = 3
    "Report Established, then apply the same input again."
    REFUSE_FIRST = 4
    "The first frame is not a SETUP: ERROR[INVALID_SETUP]."
    REFUSE_RESUME = 5
    REFUSE_SETUP = 6
    SETUP_FAILED = 7
    "The peer refused this side."
    FAIL = 8
    "The peer closed the connection with an error."
    ABORT = 9
    "Close immediately: ERROR[CONNECTION_ERROR]."
    ECHO = 10
    PUSH = 11
    PEER_DRAINS = 12
    DRAIN = 13
    FINISH = 14
    "Close: every stream has ended."
    REQUEST = 15
    "Pass a request to the streams."
    REJECT = 16
    "Reject a request while draining: ERROR[REJECTED]."
    STREAM_FRAME = 17
    EXTENSION = 18
    EXPIRE = 19
    LOSE = 20
    NOTHING = 21
    "No-op: already in this state."
    LEASE = 22
    "Apply the peer's lease."
    SUSPEND = 23
    "Retain streams and sent frames; wait for a new transport."
    SEND_RESUME = 24
    RESUMED = 25
    "RESUME_OK: check its position, repeat the frames that the peer has not received."
    RESUME_BROKEN = 26
    "Any frame other than the answer: ERROR[CONNECTION_ERROR], and try once more."
    JUDGE_RESUME = 27
    "Check a RESUME and find its session."
    SEND_RESUME_OK = 28
    "Answer, and repeat the frames that the peer has not received."
    HAND_OVER = 29
    FORGET_SESSION = 30
    "Fail the streams that have sent anything, keep the others, and start a new session on the next transport."
    ACKNOWLEDGED = 31
    "SETUP_OK: check what it accepts, and send what was queued."
    NO_OK = 32
    "Anything else than SETUP_OK: ERROR[CONNECTION_ERROR]."
    ENTRIES = 33
    "Apply the extension entries of an EXT."


class StreamState(IntEnum):
    """The states of a stream. OUT is the half that this side sends, IN the half that it receives."""

    IDLE = 0
    OPEN = 1
    OUT_DONE = 2
    IN_DONE = 3
    CLOSED = 4


class StreamInput(IntEnum):
    """The inputs of a stream."""

    ITEM = 0
    ITEM_LAST = 1
    COMPLETE = 2
    EMPTY = 3
    ITEM_EXCESS = 4
    REQUEST = 5
    REQUEST_N = 6
    REQUEST_N_ZERO = 7
    CANCEL = 8
    ERROR = 9
    TOO_BIG = 10
    "Reassembly reached a limit."
    MALFORMED = 11
    "A fragment had metadata after data (R-34)."
    APP_OPEN = 12
    APP_OPEN_LAST = 13
    APP_ITEM = 14
    APP_COMPLETE = 15
    APP_FAIL = 16
    APP_CANCEL = 17


class StreamAction(IntEnum):
    """The actions of the engine for a stream."""

    IGNORE = 0
    "Drop the frame and charge 10 glitch tokens."
    RACE = 1
    "Drop the frame without charge: it may be a legal race."
    OPEN = 2
    DELIVER = 3
    COMPLETE_IN = 4
    EXCESS = 5
    GRANT = 6
    ZERO = 7
    "A credit of zero: ERROR[INVALID]."
    STOP_OUT = 8
    "Stop sending: the peer accepts no more items."
    END_CANCELED = 9
    "End the stream: the peer canceled all of it."
    END_FAILED = 10
    REFUSE_BIG = 11
    REFUSE_MALFORMED = 12
    SEND = 13
    SEND_COMPLETE = 14
    SEND_ERROR = 15
    SEND_CANCEL = 16
    NOTHING = 17
    "No-op: the application's call came after the stream's state had changed."
    COMPLETE_BOTH = 18
    "End both directions: the peer completed."
    SEND_COMPLETE_BOTH = 19
    "End both directions: this side completes."
    STOP_IN = 20
    "Drop the items that still arrive: the protocol has no frame that stops them."
