"""Declare the transition tables of RSocket 1.0: connections (client, server), streams (requester, responder).

The engine acts on these tables, the tests visit every cell, and the reference page draws them. States, inputs and
actions are those of family/states.py.

A stream with items in one direction (request, stream) is half closed from its start: its requester begins in OUT_DONE
and its responder in IN_DONE. So one pair of tables serves all interactions, and a channel is the general case.
Request/response differs only in classification: its first item is also its last (R-23).
"""

from __future__ import annotations

from afflux.core.machine import Row, Table, same
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
    StreamState,
)

__all__ = ["CLIENT", "REQUESTER", "RESPONDER", "SERVER"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)

_COMMON = [
    Row(_LIVE, _I.KEEPALIVE, _A.ECHO, same, "R-19"),
    Row(_LIVE, _I.METADATA_PUSH, _A.PUSH, same, "3.1"),
    Row(_LIVE, _I.ERROR_OTHER, _A.FAIL, _S.CLOSED, "3.1"),
    Row(_LIVE, _I.STREAM_FRAME, _A.STREAM_FRAME, same, "3.1"),
    Row(_LIVE, _I.EXT, _A.EXTENSION, same, "R-5"),
    Row(_S.OPEN, _I.ERROR_CLOSE, _A.PEER_DRAINS, _S.DRAINING, "R-20"),
    Row(_S.DRAINING, _I.ERROR_CLOSE, _A.NOTHING, same, "R-20"),
    Row(_S.OPEN, _I.REQUEST, _A.REQUEST, same, "3.1"),
    Row(_S.DRAINING, _I.REQUEST, _A.REJECT, same, "3.1"),
    Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "R-20"),
    Row(_S.DRAINING, _I.APP_DRAIN, _A.NOTHING, same, "R-20"),
    Row(_LIVE, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
    Row(_S.OPEN, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "R-20"),
    Row(_S.DRAINING, _I.LAST_STREAM_ENDED, _A.FINISH, _S.CLOSED, "R-20"),
    Row(_LIVE, _I.SILENT, _A.EXPIRE, _S.CLOSED, "R-22"),
    Row(_LIVE, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
    Row(_LIVE, _I.LEASE, _A.LEASE, same, "R-40"),
    Row(_LIVE, _I.SUSPEND, _A.SUSPEND, _S.SUSPENDED, "3.1"),
    Row(_S.SUSPENDED, _I.SESSION_OVER, _A.LOSE, _S.CLOSED, "3.1"),
    Row(_S.SUSPENDED, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
    Row(_S.SUSPENDED, _I.APP_DRAIN, _A.DRAIN, same, "R-20"),
    Row(_S.SUSPENDED, (_I.LAST_STREAM_ENDED, _I.LOST, _I.SUSPEND), _A.NOTHING, same, "3.1"),
    Row(_S.CLOSED, tuple(_I), _A.NOTHING, same, "3.1"),
]

_ACCEPTING = (
    _I.LEASE,
    _I.KEEPALIVE,
    _I.METADATA_PUSH,
    _I.ERROR_CLOSE,
    _I.EXT,
    _I.REQUEST,
    _I.STREAM_FRAME,
)

_BROKEN_ANSWERS = (
    _I.SETUP,
    _I.RESUME,
    _I.LEASE,
    _I.KEEPALIVE,
    _I.METADATA_PUSH,
    _I.EXT,
    _I.REQUEST,
    _I.STREAM_FRAME,
)

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.SUSPENDED, _S.RESUME_SENT, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.APP_START, _A.SEND_SETUP, _S.SETUP_SENT, "R-11"),
        Row(_S.SETUP_SENT, _ACCEPTING, _A.ESTABLISH, _S.OPEN, "3.1"),
        Row(_S.SETUP_SENT, (_I.ERROR_SETUP, _I.ERROR_RESUME, _I.ERROR_OTHER), _A.SETUP_FAILED, _S.CLOSED, "R-14"),
        Row(_S.SETUP_SENT, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "R-20"),
        Row(_S.SETUP_SENT, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "R-20"),
        Row(_S.SETUP_SENT, _I.SILENT, _A.EXPIRE, _S.CLOSED, "R-22"),
        Row(_S.SETUP_SENT, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        # Beyond section 3.1, which ends here: the server may have accepted, and only RESUME can determine it.
        Row(_S.SETUP_SENT, _I.SUSPEND, _A.SUSPEND, _S.SUSPENDED, "R-50"),
        Row(_S.SUSPENDED, _I.APP_RESUME, _A.SEND_RESUME, _S.RESUME_SENT, "R-45"),
        Row(_S.RESUME_SENT, _I.RESUME_OK, _A.RESUMED, _S.OPEN, "R-50"),
        Row(_S.RESUME_SENT, _I.ERROR_RESUME, _A.SETUP_FAILED, _S.CLOSED, "RE-24"),
        # Beyond section 3.1 as well: SETUP may not have arrived. The client does not ask again for the ended session.
        Row(_S.RESUME_SENT, _I.ERROR_UNHEARD, _A.FORGET_SESSION, _S.SUSPENDED, "RE-24"),
        Row(_S.SUSPENDED, _I.APP_ANEW, _A.SEND_SETUP, _S.SETUP_SENT, "R-11"),
        Row(_S.RESUME_SENT, (_I.ERROR_SETUP, _I.ERROR_CLOSE, _I.ERROR_OTHER), _A.SUSPEND, _S.SUSPENDED, "3.1"),
        Row(_S.RESUME_SENT, (_I.SUSPEND, _I.LOST, _I.SILENT), _A.SUSPEND, _S.SUSPENDED, "3.1"),
        Row(_S.RESUME_SENT, _BROKEN_ANSWERS, _A.RESUME_BROKEN, _S.SUSPENDED, "RE-04"),
        Row(_S.RESUME_SENT, _I.SESSION_OVER, _A.LOSE, _S.CLOSED, "3.1"),
        Row(_S.RESUME_SENT, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.RESUME_SENT, _I.APP_DRAIN, _A.DRAIN, same, "R-20"),
        Row(_S.RESUME_SENT, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "R-32"),
)
"Section 3.1 of the specification."

SERVER = Table(
    "connection, server",
    states=(_S.WAIT_FIRST, _S.DECIDING, _S.RESUMING, _S.OPEN, _S.DRAINING, _S.SUSPENDED, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.WAIT_FIRST,
    rows=[
        Row(_S.WAIT_FIRST, _I.SETUP, _A.JUDGE_SETUP, _S.DECIDING, "R-11"),
        Row(_S.WAIT_FIRST, _I.RESUME, _A.JUDGE_RESUME, _S.RESUMING, "R-46"),
        Row(_S.RESUMING, _I.APP_HAND_OVER, _A.HAND_OVER, _S.CLOSED, "R-46"),
        Row(_S.RESUMING, (_I.APP_REFUSE, _I.APP_CLOSE, _I.APP_DRAIN), _A.REFUSE_RESUME, _S.CLOSED, "R-47"),
        Row(_S.RESUMING, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.2"),
        Row(_S.RESUMING, (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.2"),
        Row(
            _S.WAIT_FIRST,
            (
                _I.RESUME_OK,
                _I.LEASE,
                _I.KEEPALIVE,
                _I.METADATA_PUSH,
                _I.ERROR_SETUP,
                _I.ERROR_RESUME,
                _I.ERROR_CLOSE,
                _I.ERROR_OTHER,
                _I.EXT,
                _I.REQUEST,
                _I.STREAM_FRAME,
            ),
            _A.REFUSE_FIRST,
            _S.CLOSED,
            "R-11",
        ),
        Row((_S.WAIT_FIRST, _S.DECIDING), (_I.APP_DRAIN, _I.APP_CLOSE), _A.REFUSE_SETUP, _S.CLOSED, "R-14"),
        Row((_S.WAIT_FIRST, _S.DECIDING), _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.2"),
        Row((_S.WAIT_FIRST, _S.DECIDING), (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.2"),
        Row(_S.DECIDING, _I.APP_ACCEPT, _A.ESTABLISH, _S.OPEN, "3.2"),
        Row(_S.DECIDING, _I.APP_REFUSE, _A.REFUSE_SETUP, _S.CLOSED, "R-14"),
        Row(_S.OPEN, _I.RESUME, _A.ABORT, _S.CLOSED, "R-48"),
        Row(_S.SUSPENDED, _I.APP_RESUME, _A.SEND_RESUME_OK, _S.OPEN, "R-46"),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "R-32"),
)
"Section 3.2 of the specification. In DECIDING and RESUMING the application decides."

_T, _N, _D = StreamState, StreamInput, StreamAction
_ANY = (_T.OPEN, _T.OUT_DONE, _T.IN_DONE)
_RECEIVING = (_T.OPEN, _T.OUT_DONE)
_SENDING = (_T.OPEN, _T.IN_DONE)

_BOTH = [
    Row(_RECEIVING, _N.ITEM, _D.DELIVER, same, "R-27"),
    Row(_T.OPEN, (_N.ITEM_LAST, _N.COMPLETE), _D.COMPLETE_IN, _T.IN_DONE, "R-28"),
    Row(_T.OUT_DONE, (_N.ITEM_LAST, _N.COMPLETE), _D.COMPLETE_IN, _T.CLOSED, "R-28"),
    Row(_RECEIVING, _N.ITEM_EXCESS, _D.EXCESS, _T.CLOSED, "R-27"),
    Row(_SENDING, _N.REQUEST_N, _D.GRANT, same, "R-26"),
    Row(_SENDING, _N.REQUEST_N_ZERO, _D.ZERO, _T.CLOSED, "FC-02"),
    Row(_T.OUT_DONE, (_N.REQUEST_N, _N.REQUEST_N_ZERO), _D.RACE, same, "R-31"),
    Row(_ANY, _N.ERROR, _D.END_FAILED, _T.CLOSED, "R-28"),
    Row(_ANY, _N.TOO_BIG, _D.REFUSE_BIG, _T.CLOSED, "R-39"),
    Row(_ANY, _N.MALFORMED, _D.REFUSE_MALFORMED, _T.CLOSED, "R-34"),
    Row(_SENDING, _N.APP_ITEM, _D.SEND, same, "R-27"),
    Row(_T.OPEN, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.OUT_DONE, "R-28"),
    Row(_T.IN_DONE, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.CLOSED, "R-28"),
    Row(_T.OUT_DONE, (_N.APP_ITEM, _N.APP_COMPLETE), _D.NOTHING, same, "R-29"),
    Row(_T.CLOSED, (_N.APP_ITEM, _N.APP_COMPLETE, _N.APP_FAIL, _N.APP_CANCEL), _D.NOTHING, same, "R-31"),
]

REQUESTER = Table(
    "stream, requester",
    states=StreamState,
    inputs=StreamInput,
    start=_T.IDLE,
    rows=[
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, "R-24"),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.OUT_DONE, "3.4"),
        Row(_T.OPEN, _N.CANCEL, _D.STOP_OUT, _T.OUT_DONE, "D-6"),
        Row(_T.IN_DONE, _N.CANCEL, _D.END_CANCELED, _T.CLOSED, "D-6"),
        Row(_T.OUT_DONE, _N.CANCEL, _D.RACE, same, "D-6"),
        Row(_SENDING, _N.APP_FAIL, _D.SEND_ERROR, _T.CLOSED, "R-28"),
        Row(_T.OUT_DONE, _N.APP_FAIL, _D.SEND_CANCEL, _T.CLOSED, "R-28"),
        Row(_ANY, _N.APP_CANCEL, _D.SEND_CANCEL, _T.CLOSED, "R-28"),
        *_BOTH,
    ],
    otherwise=(_D.IGNORE, "R-31"),
)
"Section 3.4 of the specification."

RESPONDER = Table(
    "stream, responder",
    states=StreamState,
    inputs=StreamInput,
    start=_T.IDLE,
    rows=[
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, "3.5"),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.IN_DONE, "3.5"),
        Row(_ANY, _N.CANCEL, _D.END_CANCELED, _T.CLOSED, "R-28"),
        Row(_ANY, _N.APP_FAIL, _D.SEND_ERROR, _T.CLOSED, "R-28"),
        Row(_T.OPEN, _N.APP_CANCEL, _D.SEND_CANCEL, _T.IN_DONE, "D-6"),
        Row(_T.OUT_DONE, _N.APP_CANCEL, _D.SEND_CANCEL, _T.CLOSED, "D-6"),
        Row(_T.IN_DONE, _N.APP_CANCEL, _D.NOTHING, same, "D-6"),
        *_BOTH,
    ],
    otherwise=(_D.IGNORE, "R-31"),
)
"Section 3.5 of the specification."
