"""Declare the transition tables of RSocket 1.0: connections (client, server), streams (requester, responder).

The engine acts on these tables, the tests visit every cell, and the reference page draws them. States, inputs and
actions are those of family/states.py.

Rows that other members share are those of family/tables.py. Request/response differs only in classification: its first
item is also its last (R-23).
"""

from __future__ import annotations

from afflux.core.machine import Row, Table, same
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamState,
)
from afflux.protocols.family.tables import (
    ConnectionRules,
    HalfRules,
    deciding,
    established,
    halves,
    returning,
    suspended,
)

__all__ = ["CLIENT", "REQUESTER", "RESPONDER", "SERVER"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)

_RULES = ConnectionRules(keepalive="R-19", extension="R-5", drain="R-20", silence="R-22", refused="R-14")
_COMMON = [
    *established(_RULES),
    *suspended(_RULES),
    Row(_LIVE, _I.LEASE, _A.LEASE, same, "R-40"),
    Row(_S.OPEN, _I.ERROR_CLOSE, _A.PEER_DRAINS, _S.DRAINING, "R-20"),
    Row(_S.DRAINING, _I.ERROR_CLOSE, _A.NOTHING, same, "R-20"),
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
        Row(_S.RESUME_SENT, _BROKEN_ANSWERS, _A.RESUME_BROKEN, _S.SUSPENDED, "RE-04"),
        *returning(_RULES),
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
        Row(_S.OPEN, _I.RESUME, _A.ABORT, _S.CLOSED, "R-48"),
        Row(_S.SUSPENDED, _I.APP_RESUME, _A.SEND_RESUME_OK, _S.OPEN, "R-46"),
        *deciding(_RULES),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "R-32"),
)
"Section 3.2 of the specification. In DECIDING and RESUMING the application decides."

REQUESTER, RESPONDER = halves(
    HalfRules(
        requester=("R-24", "3.4"),
        responder=("3.5", "3.5"),
        item="R-27",
        credit="R-27",
        grant="R-26",
        zero_grant="FC-02",
        end="R-28",
        cancel="D-6",
        after="R-29",
        stray="R-31",
        too_big="R-39",
        malformed="R-34",
    ),
    zero=(StreamAction.ZERO, StreamState.CLOSED),
)
"Sections 3.4 and 3.5 of the specification."
