"""Declare the transition tables of ReactiveSocket: connections (client, server), streams (requester, responder).

States, inputs and actions are those of family/states.py. A stream with items in one direction is half closed from its
start. In a channel, by the text of 2015, the responder's completion ends both directions (D-16), and the requester has
no frame to report a failure (D-13). With ``channel_half_close`` each direction of a channel ends on its own.
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
from afflux.protocols.family.tables import ConnectionRules, HalfRules, deciding, established, halves

__all__ = ["CLIENT", "HALF_REQUESTER", "HALF_RESPONDER", "REQUESTER", "RESPONDER", "SERVER"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)

_RULES = ConnectionRules(keepalive="R-25", extension="R-9", reject="3.4")
_COMMON = [*established(_RULES), Row(_LIVE, _I.LEASE, _A.LEASE, same, "3.1")]

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.APP_START, _A.SEND_SETUP, _S.SETUP_SENT, "R-14"),
        Row(
            _S.SETUP_SENT,
            (_I.LEASE, _I.KEEPALIVE, _I.METADATA_PUSH, _I.REQUEST, _I.STREAM_FRAME),
            _A.ESTABLISH,
            _S.OPEN,
            "3.1",
        ),
        Row(_S.SETUP_SENT, _I.EXT, _A.EXTENSION, same, "R-9"),
        Row(_S.SETUP_SENT, _I.ERROR_SETUP, _A.SETUP_FAILED, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.ERROR_OTHER, _A.FAIL, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
        Row(_S.SETUP_SENT, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.1"),
        Row(_S.SETUP_SENT, _I.SILENT, _A.EXPIRE, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "R-36"),
)
"Section 3.1 of the specification; R-22 and R-23 where it is silent."

SERVER = Table(
    "connection, server",
    states=(_S.WAIT_FIRST, _S.DECIDING, _S.OPEN, _S.DRAINING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.WAIT_FIRST,
    rows=[
        Row(_S.WAIT_FIRST, _I.SETUP, _A.JUDGE_SETUP, _S.DECIDING, "3.2"),
        Row(
            _S.WAIT_FIRST,
            (
                _I.LEASE,
                _I.KEEPALIVE,
                _I.METADATA_PUSH,
                _I.ERROR_SETUP,
                _I.ERROR_OTHER,
                _I.EXT,
                _I.REQUEST,
                _I.STREAM_FRAME,
            ),
            _A.REFUSE_FIRST,
            _S.CLOSED,
            "R-15",
        ),
        *deciding(_RULES),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "R-36"),
)
"""Section 3.2 of the specification. In DECIDING the application decides; nothing is answered before it has decided
(R-18), and nothing is buffered before SETUP (D-14)."""

_T, _N, _D = StreamState, StreamInput, StreamAction
_LAST = (_N.ITEM_LAST, _N.COMPLETE)
_CREDIT = (_N.REQUEST_N, _N.REQUEST_N_ZERO)


def _late(*wishes: StreamInput) -> Row[StreamState, StreamInput, StreamAction]:
    """Return the row of application calls for a stream that has ended."""
    return Row(_T.CLOSED, wishes, _D.NOTHING, same, "R-36")


def _receiving(states: tuple[StreamState, ...], any: tuple[StreamState, ...]) -> list[Row]:  # type: ignore[type-arg]
    """Return the rows of a side that receives in ``states``; its stream is live in ``any``."""
    return [
        Row(states, _N.ITEM, _D.DELIVER, same, "3.3"),
        Row(states, _N.ITEM_EXCESS, _D.EXCESS, _T.CLOSED, "R-39"),
        Row(any, _N.TOO_BIG, _D.REFUSE_BIG, _T.CLOSED, "R-45"),
        Row(any, _N.MALFORMED, _D.REFUSE_MALFORMED, _T.CLOSED, "R-43"),  # D-5
    ]


_ASKING = (_T.OPEN, _T.OUT_DONE)

REQUESTER = Table(
    "stream, requester",
    states=(_T.IDLE, _T.OPEN, _T.OUT_DONE, _T.CLOSED),
    inputs=StreamInput,
    start=_T.IDLE,
    rows=[
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, "3.3"),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.OUT_DONE, "3.3"),
        *_receiving(_ASKING, _ASKING),
        Row(_T.OPEN, _LAST, _D.COMPLETE_BOTH, _T.CLOSED, "R-34"),
        Row(_T.OUT_DONE, _LAST, _D.COMPLETE_IN, _T.CLOSED, "R-34"),
        Row(_ASKING, _N.ERROR, _D.END_FAILED, _T.CLOSED, "3.3"),
        Row(_T.OPEN, _N.REQUEST_N, _D.GRANT, same, "3.3"),
        Row(_T.OPEN, _N.REQUEST_N_ZERO, _D.RACE, same, "R-37"),
        Row(_T.OUT_DONE, _CREDIT, _D.RACE, same, "R-36"),
        Row(_T.OPEN, _N.APP_ITEM, _D.SEND, same, "R-39"),
        Row(_T.OPEN, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.OUT_DONE, "3.3"),
        Row(_T.OUT_DONE, (_N.APP_ITEM, _N.APP_COMPLETE), _D.NOTHING, same, "R-33"),
        Row(_ASKING, _N.APP_FAIL, _D.SEND_CANCEL, _T.CLOSED, "D-13"),
        Row(_ASKING, _N.APP_CANCEL, _D.SEND_CANCEL, _T.CLOSED, "3.3"),
        _late(_N.APP_ITEM, _N.APP_COMPLETE, _N.APP_FAIL, _N.APP_CANCEL),
    ],
    otherwise=(_D.IGNORE, "R-36"),
)
"Section 3.3 of the specification."

_SERVING = (_T.OPEN, _T.IN_DONE)

RESPONDER = Table(
    "stream, responder",
    states=(_T.IDLE, _T.OPEN, _T.IN_DONE, _T.CLOSED),
    inputs=StreamInput,
    start=_T.IDLE,
    rows=[
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, "3.4"),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.IN_DONE, "3.4"),
        *_receiving((_T.OPEN,), _SERVING),
        Row(_T.OPEN, _LAST, _D.COMPLETE_IN, _T.IN_DONE, "3.4"),
        Row(_SERVING, _N.REQUEST_N, _D.GRANT, same, "3.4"),
        Row(_SERVING, _N.REQUEST_N_ZERO, _D.RACE, same, "R-37"),
        Row(_SERVING, _N.CANCEL, _D.END_CANCELED, _T.CLOSED, "R-40"),
        Row(_SERVING, _N.APP_ITEM, _D.SEND, same, "R-39"),
        Row(_T.OPEN, _N.APP_COMPLETE, _D.SEND_COMPLETE_BOTH, _T.CLOSED, "R-34"),
        Row(_T.IN_DONE, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.CLOSED, "R-34"),
        Row(_SERVING, _N.APP_FAIL, _D.SEND_ERROR, _T.CLOSED, "3.4"),
        Row(_T.OPEN, _N.APP_CANCEL, _D.STOP_IN, _T.IN_DONE, "D-16"),
        Row(_T.IN_DONE, _N.APP_CANCEL, _D.NOTHING, same, "D-16"),
        _late(_N.APP_ITEM, _N.APP_COMPLETE, _N.APP_FAIL, _N.APP_CANCEL),
    ],
    otherwise=(_D.IGNORE, "R-36"),
)
"Section 3.4 of the specification."

HALF_REQUESTER, HALF_RESPONDER = halves(
    HalfRules(
        requester=("3.3", "3.3"),
        responder=("3.4", "3.4"),
        item="3.3",
        credit="R-39",
        grant="R-38",
        zero_grant="R-37",
        end="D-16",
        cancel="D-16",
        after="R-33",
        stray="R-36",
        too_big="R-45",
        malformed="R-43",
    ),
    zero=(_D.RACE, same),
    note=", half close",
)
"The tables with ``channel_half_close`` (D-16)."
