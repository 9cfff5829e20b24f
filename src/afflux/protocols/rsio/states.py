"""Define the legal steps of reactive-streams-io as tables: connections (client, server) and both sides of an id.

The engine acts on these tables, the tests check every cell, and the reference page draws them. connection.py,
subscriptions.py and publications.py implement each step under the action's name, without further decisions.

Section 3.4, the parser, is inbound.py: input that it cannot parse is BROKEN here, whatever the state of an id.
"""

from __future__ import annotations

from enum import IntEnum

from afflux.core.machine import Row, Table, same


class ConnectionState(IntEnum):
    """State of a connection."""

    START = 0
    WAIT = 1
    "The peer's hello has not arrived."
    DECIDING = 2
    "A server whose application decides about the client; input waits."
    OPEN = 3
    DRAINING = 4
    "As OPEN, but new subscriptions are refused; goodbye follows the last one."
    CLOSING = 5
    "goodbye was sent: nothing more is sent (R-44)."
    CLOSED = 6
    LEAVING = 7
    "A client drains, and the server's hello has not arrived."
    FINISHING = 8
    "As CLOSING, after draining: goodbye is queued after the output of the last subscriptions."


class ConnectionInput(IntEnum):
    """Input of a connection."""

    HELLO = 0
    HELLO_OTHER = 1
    "A hello of an unsupported version."
    HELLO_WRONG = 2
    "A client got a client's hello, or a server a server's."
    SIGNAL = 3
    "A message of a subscription."
    GOODBYE = 4
    GOODBYE_ACK = 5
    BROKEN = 6
    "A violation that concerns the connection."
    APP_START = 7
    APP_ACCEPT = 8
    APP_REFUSE = 9
    APP_DRAIN = 10
    APP_CLOSE = 11
    LAST_ENDED = 12
    "The last live subscription has ended."
    SILENT = 13
    "No hello in time."
    REPLY_LATE = 14
    "No answer to goodbye in time."
    LOST = 15


class ConnectionAction(IntEnum):
    """What the engine does for a step of a connection."""

    FATAL = 0
    "Send goodbye with the reason, end all subscriptions, wait for the answer."
    SAY_HELLO = 1
    JUDGE = 2
    "A server has its client's hello: accept it, or ask the application."
    ESTABLISH = 3
    "Intersect the extensions; report that the connection may be used."
    OTHER_VERSION = 4
    "Send goodbye; what was sent counts as discarded."
    SIGNAL = 5
    REPLY = 6
    "Answer goodbye, end all subscriptions, close."
    ACKNOWLEDGED = 7
    DROP = 8
    "Parse it, because the next message cannot be found otherwise, without effect."
    STOP_READING = 9
    "Stop parsing: the input cannot be parsed."
    REFUSE = 10
    DRAIN = 11
    CLOSE = 12
    "Send goodbye and end all subscriptions."
    FINISH = 13
    "Everything has ended: send goodbye."
    EXPIRE = 14
    GIVE_UP = 15
    "The peer was silent: close without a message."
    LOSE = 16
    NOTHING = 17
    "No-op: already in this state."


_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_USED = (_S.OPEN, _S.DRAINING)
_GOODBYE_SENT = (_S.CLOSING, _S.FINISHING)
"This side has sent goodbye."

_COMMON = [
    Row(_S.START, _I.APP_START, _A.SAY_HELLO, _S.WAIT, "R-9"),
    Row(_S.WAIT, _I.HELLO_OTHER, _A.OTHER_VERSION, _S.CLOSED, "R-12"),
    Row((_S.WAIT, *_USED), _I.GOODBYE, _A.REPLY, _S.CLOSED, "R-42"),
    Row(
        (_S.START, _S.WAIT, _S.OPEN, _S.DRAINING),
        (_I.HELLO_WRONG, _I.GOODBYE_ACK, _I.BROKEN),
        _A.FATAL,
        _S.CLOSING,
        "3.1",
    ),
    Row(_S.START, (_I.HELLO, _I.HELLO_OTHER, _I.SIGNAL, _I.GOODBYE), _A.FATAL, _S.CLOSING, "R-9"),
    Row(_S.WAIT, _I.SIGNAL, _A.FATAL, _S.CLOSING, "R-9"),
    Row(_S.WAIT, _I.SILENT, _A.GIVE_UP, _S.CLOSED, "HS-01"),
    Row(_USED, (_I.HELLO, _I.HELLO_OTHER), _A.FATAL, _S.CLOSING, "R-9"),
    Row(_USED, _I.SIGNAL, _A.SIGNAL, same, "3.2, 3.3"),
    Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
    Row(_S.DRAINING, _I.LAST_ENDED, _A.FINISH, _S.FINISHING, "3.1"),
    Row(_USED, _I.APP_CLOSE, _A.CLOSE, _S.CLOSING, "3.1"),
    Row(
        _GOODBYE_SENT,
        (_I.HELLO, _I.HELLO_OTHER, _I.HELLO_WRONG, _I.SIGNAL),
        _A.DROP,
        same,
        "3.1",
    ),
    Row(_GOODBYE_SENT, _I.BROKEN, _A.STOP_READING, same, "3.4"),
    Row(_GOODBYE_SENT, (_I.GOODBYE, _I.GOODBYE_ACK), _A.ACKNOWLEDGED, _S.CLOSED, "R-43"),
    Row(_GOODBYE_SENT, _I.REPLY_LATE, _A.EXPIRE, _S.CLOSED, "3.1"),
    Row(_GOODBYE_SENT, _I.LOST, _A.EXPIRE, _S.CLOSED, "3.1"),
    Row((_S.START, _S.WAIT, *_USED), _I.LOST, _A.LOSE, _S.CLOSED, "R-45"),
]

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.WAIT, _S.LEAVING, _S.OPEN, _S.DRAINING, _S.CLOSING, _S.FINISHING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.WAIT, _I.HELLO, _A.ESTABLISH, _S.OPEN, "R-15"),
        # Subscriptions may have been sent before the hello, and have to be ended.
        Row((_S.WAIT, _S.LEAVING), _I.APP_CLOSE, _A.CLOSE, _S.CLOSING, "3.1"),
        Row(_S.WAIT, _I.APP_DRAIN, _A.DRAIN, _S.LEAVING, "3.1"),
        Row(_S.LEAVING, _I.HELLO, _A.ESTABLISH, _S.DRAINING, "R-15"),
        Row(_S.LEAVING, _I.HELLO_OTHER, _A.OTHER_VERSION, _S.CLOSED, "R-12"),
        Row(_S.LEAVING, _I.GOODBYE, _A.REPLY, _S.CLOSED, "R-42"),
        Row(_S.LEAVING, (_I.HELLO_WRONG, _I.GOODBYE_ACK, _I.BROKEN, _I.SIGNAL), _A.FATAL, _S.CLOSING, "3.1"),
        Row(_S.LEAVING, _I.SILENT, _A.GIVE_UP, _S.CLOSED, "HS-01"),
        Row(_S.LEAVING, _I.LOST, _A.LOSE, _S.CLOSED, "R-45"),
        *_COMMON,
    ],
    otherwise=(_A.NOTHING, "3.1"),
)
"Section 3.1 of the specification."

SERVER = Table(
    "connection, server",
    states=(_S.START, _S.WAIT, _S.DECIDING, _S.OPEN, _S.DRAINING, _S.CLOSING, _S.FINISHING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.WAIT, _I.HELLO, _A.JUDGE, _S.DECIDING, "R-10"),
        Row((_S.WAIT, _S.DECIDING), (_I.APP_CLOSE, _I.APP_DRAIN, _I.APP_REFUSE), _A.REFUSE, _S.CLOSED, "3.1"),
        Row(_S.DECIDING, _I.APP_ACCEPT, _A.ESTABLISH, _S.OPEN, "R-15"),
        Row(_S.DECIDING, (_I.SILENT, _I.BROKEN), _A.REFUSE, _S.CLOSED, "HS-01"),
        Row(_S.DECIDING, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.NOTHING, "3.1"),
)
"Rows of section 3.1. DECIDING (the application decides) and DRAINING (it drains) are additions of afflux."


class SubscriberState(IntEnum):
    """State of an id at the side that subscribes."""

    FREE = 0
    PENDING = 1
    "subscribe was sent."
    ACTIVE = 2
    CANCELLED = 3
    "cancel was sent; the element size is still needed to parse late messages."
    REUSED = 4
    "subscribe was sent again after a cancel; what still arrives is for the older ones."


class SubscriberInput(IntEnum):
    """Input of an id at the subscriber."""

    SUBSCRIBED = 0
    "subscribed answers the newest subscribe."
    SUBSCRIBED_BIG = 1
    "As SUBSCRIBED, with elements larger than the limit."
    SUBSCRIBED_OLD = 2
    "subscribed answers an older subscribe."
    NEXT = 3
    "Elements within the demand."
    NEXT_EXCESS = 4
    NEXT_BIG = 5
    "Elements that a limit refuses."
    COMPLETE = 6
    ERROR = 7
    OLD_ENDED = 8
    "onComplete or onError of an older subscription, with an answer still outstanding."
    APP_SUBSCRIBE = 9
    APP_REQUEST = 10
    APP_REQUEST_BAD = 11
    "A demand of 0 or less (D-12)."
    APP_CANCEL = 12


class SubscriberAction(IntEnum):
    """What the engine does for a step of a subscription."""

    FATAL = 0
    IGNORE = 1
    "Drop it and take a glitch token: the id is unknown."
    DROP = 2
    "Late, and a legal race."
    SUBSCRIBE = 3
    ACTIVATE = 4
    REFUSE_SIZE = 5
    REMEMBER = 6
    "Store the size of elements that may still arrive."
    DELIVER = 7
    EXCESS = 8
    REFUSE_ITEM = 9
    COMPLETE = 10
    FAIL = 11
    FORGET = 12
    "Forget the id: the last possible message has arrived."
    REQUEST = 13
    STOP = 14
    "Cancel, and report the application's mistake."
    CANCEL = 15
    NOTHING = 16


_T, _N, _D = SubscriberState, SubscriberInput, SubscriberAction
_WANTED = (_T.PENDING, _T.ACTIVE, _T.REUSED)
_ANSWERS = (_N.SUBSCRIBED, _N.SUBSCRIBED_BIG, _N.SUBSCRIBED_OLD)
_ITEMS = (_N.NEXT, _N.NEXT_EXCESS, _N.NEXT_BIG)

SUBSCRIBER = Table(
    "id, subscriber",
    states=SubscriberState,
    inputs=SubscriberInput,
    start=_T.FREE,
    rows=[
        Row(_T.FREE, _N.APP_SUBSCRIBE, _D.SUBSCRIBE, _T.PENDING, "3.2"),
        Row(_T.CANCELLED, _N.APP_SUBSCRIBE, _D.SUBSCRIBE, _T.REUSED, "R-33"),
        Row(_T.PENDING, _N.SUBSCRIBED, _D.ACTIVATE, _T.ACTIVE, "R-21"),
        Row(_T.PENDING, _N.SUBSCRIBED_BIG, _D.REFUSE_SIZE, _T.CANCELLED, "R-7"),
        Row(_T.PENDING, _N.ERROR, _D.FAIL, _T.FREE, "R-22"),
        Row(_T.PENDING, (_N.SUBSCRIBED_OLD, *_ITEMS, _N.COMPLETE, _N.OLD_ENDED), _D.FATAL, same, "R-21"),
        Row(_T.ACTIVE, (*_ANSWERS, _N.OLD_ENDED), _D.FATAL, same, "R-21"),
        Row(_T.ACTIVE, _N.NEXT, _D.DELIVER, same, "R-31"),
        Row(_T.ACTIVE, _N.NEXT_EXCESS, _D.EXCESS, _T.CANCELLED, "R-27"),
        Row(_T.ACTIVE, _N.NEXT_BIG, _D.REFUSE_ITEM, _T.CANCELLED, "R-7"),
        Row(_T.ACTIVE, _N.COMPLETE, _D.COMPLETE, _T.FREE, "R-28"),
        Row(_T.ACTIVE, _N.ERROR, _D.FAIL, _T.FREE, "R-28"),
        Row(_T.CANCELLED, _ANSWERS, _D.REMEMBER, same, "R-37"),
        Row(_T.CANCELLED, (*_ITEMS, _N.OLD_ENDED), _D.DROP, same, "R-29"),
        Row(_T.CANCELLED, (_N.COMPLETE, _N.ERROR), _D.FORGET, _T.FREE, "R-37"),
        Row(_T.REUSED, _N.SUBSCRIBED, _D.ACTIVATE, _T.ACTIVE, "R-36"),
        Row(_T.REUSED, _N.SUBSCRIBED_BIG, _D.REFUSE_SIZE, _T.CANCELLED, "R-7"),
        Row(_T.REUSED, _N.SUBSCRIBED_OLD, _D.REMEMBER, same, "R-36"),
        Row(_T.REUSED, (*_ITEMS, _N.COMPLETE, _N.OLD_ENDED), _D.DROP, same, "R-36"),
        # Beyond section 3.2: when all older ones have ended, onError can only be for the newest.
        Row(_T.REUSED, _N.ERROR, _D.FAIL, _T.FREE, "R-22"),
        Row(_WANTED, _N.APP_REQUEST, _D.REQUEST, same, "R-24"),
        Row(_WANTED, _N.APP_REQUEST_BAD, _D.STOP, _T.CANCELLED, "D-12"),
        Row(_WANTED, _N.APP_CANCEL, _D.CANCEL, _T.CANCELLED, "R-29"),
        Row((_T.FREE, _T.CANCELLED), (_N.APP_REQUEST, _N.APP_REQUEST_BAD, _N.APP_CANCEL), _D.NOTHING, same, "R-30"),
        Row(_WANTED, _N.APP_SUBSCRIBE, _D.NOTHING, same, "R-33"),
    ],
    otherwise=(_D.IGNORE, "SI-29"),
)
"Section 3.2 of the specification."


class AnswerState(IntEnum):
    """State of the last answered subscription of an id; there may be newer ones."""

    SILENT = 0
    "No subscription, or one that has ended on the wire."
    STREAMING = 1
    "Messages may still arrive."


class AnswerInput(IntEnum):
    """Messages for an id, for any of its subscriptions."""

    ANSWERED = 0
    "subscribed."
    ENDED = 1
    "onComplete or onError."


class AnswerAction(IntEnum):
    """What the engine does for an answer."""

    REMEMBER_SIZE = 0
    FORGET_SIZE = 1
    COUNT = 2
    "Count an answer to a subscribe that has no other answer (R-22)."


ANSWERED = Table(
    "answers to an id",
    states=AnswerState,
    inputs=AnswerInput,
    start=AnswerState.SILENT,
    rows=[
        Row(AnswerState.SILENT, AnswerInput.ANSWERED, AnswerAction.REMEMBER_SIZE, AnswerState.STREAMING, "R-37"),
        Row(AnswerState.STREAMING, AnswerInput.ANSWERED, AnswerAction.REMEMBER_SIZE, same, "R-37"),
        Row(AnswerState.STREAMING, AnswerInput.ENDED, AnswerAction.FORGET_SIZE, AnswerState.SILENT, "R-28"),
    ],
    otherwise=(AnswerAction.COUNT, "R-22"),
)
"Which subscription a message is for, when an id is used again after a cancel (R-36)."


class PublisherState(IntEnum):
    """State of an id at the side that publishes."""

    FREE = 0
    ACTIVE = 1


class PublisherInput(IntEnum):
    """Input of an id at the publisher."""

    SUBSCRIBE = 0
    SUBSCRIBE_BAD = 1
    "A subscribe to refuse: unknown name, demand out of range, too many."
    REQUEST = 2
    REQUEST_BAD = 3
    "A demand of 0, or above 2^63-1."
    CANCEL = 4
    APP_ITEM = 5
    APP_ITEM_BAD = 6
    "An element of another size than the fixed one."
    APP_COMPLETE = 7
    APP_FAIL = 8


class PublisherAction(IntEnum):
    """What the engine does for a step of a publication."""

    FATAL = 0
    IGNORE = 1
    "Late, and a legal race."
    OPEN = 2
    "subscribed(size)."
    REFUSE = 3
    "subscribed(0), then onError."
    GRANT = 4
    REFUSE_DEMAND = 5
    "onError that cites rule 3.9."
    CANCELED = 6
    SEND = 7
    WRONG_SIZE = 8
    COMPLETE = 9
    FAIL = 10
    NOTHING = 11


_P, _M, _E = PublisherState, PublisherInput, PublisherAction

PUBLISHER = Table(
    "id, publisher",
    states=PublisherState,
    inputs=PublisherInput,
    start=_P.FREE,
    rows=[
        Row(_P.FREE, _M.SUBSCRIBE, _E.OPEN, _P.ACTIVE, "R-21"),
        Row(_P.FREE, _M.SUBSCRIBE_BAD, _E.REFUSE, same, "R-20"),
        Row(_P.FREE, (_M.REQUEST, _M.REQUEST_BAD, _M.CANCEL), _E.IGNORE, same, "R-30"),
        Row(_P.ACTIVE, (_M.SUBSCRIBE, _M.SUBSCRIBE_BAD), _E.FATAL, same, "R-33"),
        Row(_P.ACTIVE, _M.REQUEST, _E.GRANT, same, "R-24"),
        Row(_P.ACTIVE, _M.REQUEST_BAD, _E.REFUSE_DEMAND, _P.FREE, "R-26"),
        Row(_P.ACTIVE, _M.CANCEL, _E.CANCELED, _P.FREE, "R-29"),
        Row(_P.ACTIVE, _M.APP_ITEM, _E.SEND, same, "R-23"),
        Row(_P.ACTIVE, _M.APP_ITEM_BAD, _E.WRONG_SIZE, _P.FREE, "3.3"),
        Row(_P.ACTIVE, _M.APP_COMPLETE, _E.COMPLETE, _P.FREE, "R-28"),
        Row(_P.ACTIVE, _M.APP_FAIL, _E.FAIL, _P.FREE, "R-28"),
    ],
    otherwise=(_E.NOTHING, "R-28"),
)
"Section 3.3 of the specification."
