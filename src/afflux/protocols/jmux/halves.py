"""Define the parts of a session that its messages do not show, as tables.

The state of a session on the wire is in states.py. In addition each session has an outbound half (the application's
output), an inbound half (the input it still wants), an acknowledgement, and at the server a handler. Each is one table,
checked by the same tests.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.machine import Row, Table


class PartAction(IntEnum):
    """What the engine does for a step of a part."""

    NOTHING = 0
    STEP = 1
    "Only the state changes."
    OPEN = 2
    "The first Data leaves: it opens the session."
    AWAIT = 3
    "Start the timeout for the Acknowledgment."
    REPORT_GIVEN = 4
    REPORT_MISSING = 5


class OutboundState(IntEnum):
    """State of the application's output on a session."""

    NEW = 0
    "No message of the session has left: the peer cannot have seen it."
    NEW_HUNGRY = 1
    "As NEW, and the application waits for ration."
    OPEN = 2
    HUNGRY = 3
    "The application has more to write than the ration allows, and waits."
    NEW_FINISHED = 4
    "As NEW, and the application has finished."
    FINISHING = 5
    "The application has finished: eof leaves with the last byte."
    DONE = 6
    "Nothing more can be sent: eof has left, or nothing more is wanted."


class OutboundInput(IntEnum):
    """Input of the outbound half."""

    HUNGER = 0
    SATED = 1
    FINISH = 2
    LEFT = 3
    "A Data without eof leaves."
    LAST_LEFT = 4
    "The Data with eof leaves."
    UNWANTED = 5


_O, _P, _A = OutboundState, OutboundInput, PartAction
UNWRITTEN = (_O.NEW, _O.NEW_FINISHED, _O.NEW_HUNGRY)
"Nothing of the session has been sent."
FINISHED = (_O.FINISHING, _O.NEW_FINISHED)
"The application writes nothing more, and eof has not left."

OUTBOUND = Table(
    "outbound half of a session",
    states=OutboundState,
    inputs=OutboundInput,
    start=_O.NEW,
    rows=[
        Row((_O.NEW, _O.NEW_HUNGRY), _P.HUNGER, _A.STEP, _O.NEW_HUNGRY, "R-33"),
        Row((_O.OPEN, _O.HUNGRY), _P.HUNGER, _A.STEP, _O.HUNGRY, "R-33"),
        Row((_O.NEW, _O.NEW_HUNGRY), _P.SATED, _A.STEP, _O.NEW, "R-33"),
        Row((_O.OPEN, _O.HUNGRY), _P.SATED, _A.STEP, _O.OPEN, "R-33"),
        Row((_O.NEW, _O.NEW_HUNGRY), _P.FINISH, _A.STEP, _O.NEW_FINISHED, "3.3"),
        Row((_O.OPEN, _O.HUNGRY), _P.FINISH, _A.STEP, _O.FINISHING, "3.3"),
        Row(_O.NEW, _P.LEFT, _A.OPEN, _O.OPEN, "R-17"),
        Row(_O.NEW_HUNGRY, _P.LEFT, _A.OPEN, _O.HUNGRY, "R-17"),
        Row(_O.NEW_FINISHED, _P.LEFT, _A.OPEN, _O.FINISHING, "R-17"),
        Row(_O.NEW_FINISHED, _P.LAST_LEFT, _A.OPEN, _O.DONE, "R-17"),
        Row(_O.FINISHING, _P.LAST_LEFT, _A.STEP, _O.DONE, "3.3"),
        Row(tuple(state for state in _O if state is not _O.DONE), _P.UNWANTED, _A.STEP, _O.DONE, "R-27"),
    ],
    otherwise=(_A.NOTHING, "3.3"),
)
"Steps of the application's output. A server begins in OPEN: the client has opened the session."


class InboundState(IntEnum):
    """State of the input that the application still wants of a session."""

    OPEN = 0
    UNWANTED = 1
    "What still arrives is not delivered."
    DONE = 2
    "The peer's eof has come."


class InboundInput(IntEnum):
    """Input of the inbound half."""

    UNWANTED = 0
    LAST = 1
    "Data with eof came."


_N, _M = InboundState, InboundInput

INBOUND = Table(
    "inbound half of a session",
    states=InboundState,
    inputs=InboundInput,
    start=_N.OPEN,
    rows=[
        Row(_N.OPEN, _M.UNWANTED, _A.STEP, _N.UNWANTED, "3.4"),
        Row((_N.OPEN, _N.UNWANTED), _M.LAST, _A.STEP, _N.DONE, "3.3"),
    ],
    otherwise=(_A.NOTHING, "3.3"),
)
"Steps of the input that the application still wants."


class AckState(IntEnum):
    """State of the acknowledgement of a response."""

    NONE = 0
    WANTED = 1
    "Server: will be requested with eof."
    ASKED = 2
    "ackRequired has been sent, or has arrived."
    OVERDUE = 3
    "Server: the application was notified that none will come; one that still comes is legal."
    DECLINED = 4
    "Client: the application will not give it; the server is notified when the request has left."
    GIVEN = 5


class AckInput(IntEnum):
    """Input of an acknowledgement."""

    WANT = 0
    ASK = 1
    "The Data with ackRequired leaves, or came."
    GIVE = 2
    "The Acknowledgment came, or is sent."
    MISS = 3
    "None will come, or none came in time."
    DECLINE = 4
    VOID = 5
    "The session was aborted or closed."


_K, _J = AckState, AckInput
OWED = (_K.ASKED, _K.OVERDUE, _K.DECLINED)
"An Acknowledgment was asked for and has not been given."

ACKNOWLEDGEMENT = Table(
    "acknowledgement of a response",
    states=AckState,
    inputs=AckInput,
    start=_K.NONE,
    rows=[
        Row(_K.NONE, _J.WANT, _A.STEP, _K.WANTED, "R-42"),
        Row(_K.NONE, _J.ASK, _A.STEP, _K.ASKED, "R-42"),
        Row(_K.WANTED, _J.ASK, _A.AWAIT, _K.ASKED, "R-42"),
        Row(_K.ASKED, _J.GIVE, _A.REPORT_GIVEN, _K.GIVEN, "R-43"),
        Row((_K.OVERDUE, _K.DECLINED), _J.GIVE, _A.STEP, _K.GIVEN, "R-44"),
        Row(_K.ASKED, _J.MISS, _A.REPORT_MISSING, _K.OVERDUE, "R-45"),
        Row(_K.ASKED, _J.DECLINE, _A.STEP, _K.DECLINED, "D-17"),
        Row(tuple(state for state in _K if state is not _K.NONE), _J.VOID, _A.STEP, _K.NONE, "R-27"),
    ],
    otherwise=(_A.NOTHING, "R-42"),
)
"Steps of the acknowledgement of a response, at both ends."


class HandlerState(IntEnum):
    """Progress of a session in the application of a server."""

    UNKNOWN = 0
    "Not delivered: it is safe to retry the request."
    TOLD = 1
    "The application has the request, or its beginning."
    BEGUN = 2
    "The handler is running: cancellations by the client are counted."
    RETURNED = 3


class HandlerInput(IntEnum):
    """Input of a handler."""

    TELL = 0
    BEGIN = 1
    RETURN = 2


_H, _G = HandlerState, HandlerInput

HANDLER = Table(
    "handler of a session",
    states=HandlerState,
    inputs=HandlerInput,
    start=_H.UNKNOWN,
    rows=[
        Row(_H.UNKNOWN, _G.TELL, _A.STEP, _H.TOLD, "R-30"),
        Row(_H.TOLD, _G.BEGIN, _A.STEP, _H.BEGUN, "FL-07"),
        Row((_H.TOLD, _H.BEGUN), _G.RETURN, _A.STEP, _H.RETURNED, "3.4"),
    ],
    otherwise=(_A.NOTHING, "3.4"),
)
"Steps of a session in the application of a server."
