"""Declare the connection tables of the draft (3.1, 3.2). The tables of streams are RSocket's."""

from __future__ import annotations

from afflux.core.machine import Row, Table, same
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.family.tables import ConnectionRules, deciding, established, returning, suspended
from afflux.protocols.rsocket.states import REQUESTER, RESPONDER

__all__ = ["CLIENT", "REQUESTER", "RESPONDER", "SERVER"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)

_RULES = ConnectionRules(keepalive="R-29", extension="R-10", suspend="R-40", over="D-15")
_COMMON = [
    *established(_RULES),
    *suspended(_RULES),
    Row(_LIVE, _I.ENTRIES, _A.ENTRIES, same, "3.1"),
    Row(_S.OPEN, _I.ERROR_CLOSE, _A.PEER_DRAINS, _S.DRAINING, "3.1"),
    Row(_S.DRAINING, _I.ERROR_CLOSE, _A.NOTHING, same, "3.1"),
]

_ACCEPTING = (
    _I.SETUP_OK,
    _I.ENTRIES,
    _I.LEASE,
    _I.KEEPALIVE,
    _I.METADATA_PUSH,
    _I.ERROR_CLOSE,
    _I.EXT,
    _I.REQUEST,
    _I.STREAM_FRAME,
)
_REFUSALS = (_I.ERROR_SETUP, _I.ERROR_RESUME, _I.ERROR_OTHER)
_NOT_OK = (
    _I.SETUP,
    _I.RESUME,
    _I.RESUME_OK,
    _I.ENTRIES,
    _I.LEASE,
    _I.KEEPALIVE,
    _I.METADATA_PUSH,
    _I.EXT,
    _I.REQUEST,
    _I.STREAM_FRAME,
)

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.SETUP_SENT, _S.AWAIT_OK, _S.OPEN, _S.DRAINING, _S.SUSPENDED, _S.RESUME_SENT, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.APP_START, _A.SEND_SETUP, _S.SETUP_SENT, "R-24"),
        Row(_S.SETUP_SENT, _I.APP_AWAIT, _A.NOTHING, _S.AWAIT_OK, "R-23"),
        Row(_S.SETUP_SENT, _ACCEPTING, _A.ESTABLISH, _S.OPEN, "3.1"),
        Row(_S.SETUP_SENT, _REFUSALS, _A.SETUP_FAILED, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
        Row(_S.SETUP_SENT, _I.SILENT, _A.EXPIRE, _S.CLOSED, "3.1"),
        Row(_S.AWAIT_OK, _I.SETUP_OK, _A.ACKNOWLEDGED, _S.OPEN, "3.1"),
        Row(_S.AWAIT_OK, (*_REFUSALS, _I.ERROR_CLOSE), _A.SETUP_FAILED, _S.CLOSED, "3.1"),
        Row(_S.AWAIT_OK, (*_NOT_OK, _I.SILENT), _A.NO_OK, _S.CLOSED, "R-23"),
        Row(_S.AWAIT_OK, _I.APP_DRAIN, _A.DRAIN, same, "3.1"),
        Row((_S.SETUP_SENT, _S.AWAIT_OK), _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row((_S.SETUP_SENT, _S.AWAIT_OK), _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.1"),
        Row((_S.SETUP_SENT, _S.AWAIT_OK), _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        Row(_S.SUSPENDED, _I.APP_RESUME, _A.SEND_RESUME, _S.RESUME_SENT, "R-38"),
        Row(_S.RESUME_SENT, _I.SETUP_OK, _A.RESUMED, _S.OPEN, "R-40"),
        Row(_S.RESUME_SENT, _I.ERROR_RESUME, _A.SETUP_FAILED, _S.CLOSED, "3.1"),
        *returning(_RULES),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "3.1"),
)
"Section 3.1 of the specification."

SERVER = Table(
    "connection, server",
    states=(_S.WAIT_FIRST, _S.DECIDING, _S.RESUMING, _S.OPEN, _S.DRAINING, _S.SUSPENDED, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.WAIT_FIRST,
    rows=[
        Row(_S.WAIT_FIRST, _I.SETUP, _A.JUDGE_SETUP, _S.DECIDING, "3.2"),
        Row(_S.WAIT_FIRST, _I.RESUME, _A.JUDGE_RESUME, _S.RESUMING, "3.2"),
        Row(_S.RESUMING, _I.APP_HAND_OVER, _A.HAND_OVER, _S.CLOSED, "3.2"),
        Row(_S.RESUMING, (_I.APP_REFUSE, _I.APP_CLOSE, _I.APP_DRAIN), _A.REFUSE_RESUME, _S.CLOSED, "3.2"),
        Row(_S.RESUMING, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.2"),
        Row(_S.RESUMING, (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.2"),
        Row(
            _S.WAIT_FIRST,
            (
                _I.SETUP_OK,
                _I.ENTRIES,
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
            "3.2",
        ),
        Row(_S.SUSPENDED, _I.APP_RESUME, _A.SEND_RESUME_OK, _S.OPEN, "R-40"),
        *deciding(_RULES),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "3.2"),
)
"Section 3.2 of the specification. In DECIDING and RESUMING the application decides."
