"""Build what the transition tables of members share: rows of connections, and the tables of streams.

The rows of a connection are those of an established one, of a server that has not decided, and of a session without a
transport; each member adds its own. The stream tables are those of a protocol in which each direction of a stream ends
on its own (RSocket, 3.4 and 3.5).

A stream with items in one direction (request, stream) is half closed from its start: its requester begins in OUT_DONE
and its responder in IN_DONE. So one pair of tables serves all interactions, and a channel is the general case.
"""

from __future__ import annotations

from typing import NamedTuple

from afflux.core.machine import Row, Same, Table, same
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
    StreamState,
)

__all__ = ["ConnectionRules", "HalfRules", "StreamTable", "deciding", "established", "halves", "returning", "suspended"]

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_ConnectionRow = Row[ConnectionState, ConnectionInput, ConnectionAction]
_LIVE, _UNDECIDED = (_S.OPEN, _S.DRAINING), (_S.WAIT_FIRST, _S.DECIDING)


class ConnectionRules(NamedTuple):
    """The rule numbers that a member cites in its connection tables."""

    keepalive: str
    "A keepalive is answered."
    extension: str
    "An extension frame is applied or ignored."
    reject: str = "3.1"
    "A request to a connection that drains is rejected."
    drain: str = "3.1"
    "A connection that drains ends with its last stream."
    silence: str = "3.1"
    "The connection of a silent peer ends."
    refused: str = "3.2"
    "A server refuses a SETUP."
    suspend: str = "3.1"
    "A session outlives its transport."
    over: str = "3.1"
    "A session that is not resumed in time ends."


def established(rules: ConnectionRules) -> list[_ConnectionRow]:
    """Return the rows of an established connection, and of a closed one."""
    return [
        Row(_LIVE, _I.KEEPALIVE, _A.ECHO, same, rules.keepalive),
        Row(_LIVE, _I.METADATA_PUSH, _A.PUSH, same, "3.1"),
        Row(_LIVE, _I.ERROR_OTHER, _A.FAIL, _S.CLOSED, "3.1"),
        Row(_LIVE, _I.STREAM_FRAME, _A.STREAM_FRAME, same, "3.1"),
        Row(_LIVE, _I.EXT, _A.EXTENSION, same, rules.extension),
        Row(_S.OPEN, _I.REQUEST, _A.REQUEST, same, "3.1"),
        Row(_S.DRAINING, _I.REQUEST, _A.REJECT, same, rules.reject),
        Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, rules.drain),
        Row(_S.DRAINING, _I.APP_DRAIN, _A.NOTHING, same, rules.drain),
        Row(_LIVE, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.OPEN, _I.LAST_STREAM_ENDED, _A.NOTHING, same, rules.drain),
        Row(_S.DRAINING, _I.LAST_STREAM_ENDED, _A.FINISH, _S.CLOSED, rules.drain),
        Row(_LIVE, _I.SILENT, _A.EXPIRE, _S.CLOSED, rules.silence),
        Row(_LIVE, _I.LOST, _A.LOSE, _S.CLOSED, "3.1"),
        Row(_S.CLOSED, tuple(_I), _A.NOTHING, same, "3.1"),
    ]


def deciding(rules: ConnectionRules) -> list[_ConnectionRow]:
    """Return the rows of a server that has not accepted its peer, without those of the first frame."""
    return [
        Row(_UNDECIDED, (_I.APP_DRAIN, _I.APP_CLOSE), _A.REFUSE_SETUP, _S.CLOSED, rules.refused),
        Row(_UNDECIDED, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.2"),
        Row(_UNDECIDED, (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.2"),
        Row(_S.DECIDING, _I.APP_ACCEPT, _A.ESTABLISH, _S.OPEN, "3.2"),
        Row(_S.DECIDING, _I.APP_REFUSE, _A.REFUSE_SETUP, _S.CLOSED, rules.refused),
    ]


def suspended(rules: ConnectionRules) -> list[_ConnectionRow]:
    """Return the rows of a session that loses its transport, and waits for a new one."""
    return [
        Row(_LIVE, _I.SUSPEND, _A.SUSPEND, _S.SUSPENDED, rules.suspend),
        Row(_S.SUSPENDED, _I.SESSION_OVER, _A.LOSE, _S.CLOSED, rules.over),
        Row(_S.SUSPENDED, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.SUSPENDED, _I.APP_DRAIN, _A.DRAIN, same, rules.drain),
        Row(_S.SUSPENDED, (_I.LAST_STREAM_ENDED, _I.LOST, _I.SUSPEND), _A.NOTHING, same, "3.1"),
    ]


def returning(rules: ConnectionRules) -> list[_ConnectionRow]:
    """Return the rows of a client that asks to resume, without those of the answers."""
    failed = (_I.ERROR_SETUP, _I.ERROR_CLOSE, _I.ERROR_OTHER, _I.SUSPEND, _I.LOST, _I.SILENT)
    return [
        Row(_S.RESUME_SENT, failed, _A.SUSPEND, _S.SUSPENDED, "3.1"),
        Row(_S.RESUME_SENT, _I.SESSION_OVER, _A.LOSE, _S.CLOSED, rules.over),
        Row(_S.RESUME_SENT, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
        Row(_S.RESUME_SENT, _I.APP_DRAIN, _A.DRAIN, same, rules.drain),
        Row(_S.RESUME_SENT, _I.LAST_STREAM_ENDED, _A.NOTHING, same, "3.1"),
    ]


_T, _N, _D = StreamState, StreamInput, StreamAction
_Row = Row[StreamState, StreamInput, StreamAction]
StreamTable = Table[StreamState, StreamInput, StreamAction]

_ANY = (_T.OPEN, _T.OUT_DONE, _T.IN_DONE)
_RECEIVING, _SENDING = (_T.OPEN, _T.OUT_DONE), (_T.OPEN, _T.IN_DONE)
_LAST, _APP_OUT = (_N.ITEM_LAST, _N.COMPLETE), (_N.APP_ITEM, _N.APP_COMPLETE)


class HalfRules(NamedTuple):
    """The rule numbers that a member cites in these tables."""

    requester: tuple[str, str]
    "A requester opens a stream: one that sends items, and one that does not."
    responder: tuple[str, str]
    "A responder receives such a request."
    item: str
    "Items are delivered."
    credit: str
    "No more items than were granted."
    grant: str
    "Grants add up."
    zero_grant: str
    "A grant of zero."
    end: str
    "A half, or the whole stream, ends."
    cancel: str
    "A cancel ends one half of a channel."
    after: str
    "Nothing is sent after the end of a half."
    stray: str
    "Frames that a state does not allow are ignored."
    too_big: str
    "A payload that exceeds a limit is refused."
    malformed: str
    "Metadata comes before data."


def halves(
    rules: HalfRules, *, zero: tuple[StreamAction, StreamState | Same], note: str = ""
) -> tuple[StreamTable, StreamTable]:
    """Return the tables of a requester and of a responder. ``zero`` is the step for a grant of zero; ``note`` is added
    to the tables' names."""
    both = [
        Row(_RECEIVING, _N.ITEM, _D.DELIVER, same, rules.item),
        Row(_T.OPEN, _LAST, _D.COMPLETE_IN, _T.IN_DONE, rules.end),
        Row(_T.OUT_DONE, _LAST, _D.COMPLETE_IN, _T.CLOSED, rules.end),
        Row(_RECEIVING, _N.ITEM_EXCESS, _D.EXCESS, _T.CLOSED, rules.credit),
        Row(_SENDING, _N.REQUEST_N, _D.GRANT, same, rules.grant),
        Row(_SENDING, _N.REQUEST_N_ZERO, *zero, rules.zero_grant),
        Row(_T.OUT_DONE, (_N.REQUEST_N, _N.REQUEST_N_ZERO), _D.RACE, same, rules.stray),
        Row(_ANY, _N.ERROR, _D.END_FAILED, _T.CLOSED, rules.end),
        Row(_ANY, _N.TOO_BIG, _D.REFUSE_BIG, _T.CLOSED, rules.too_big),
        Row(_ANY, _N.MALFORMED, _D.REFUSE_MALFORMED, _T.CLOSED, rules.malformed),
        Row(_SENDING, _N.APP_ITEM, _D.SEND, same, rules.credit),
        Row(_T.OPEN, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.OUT_DONE, rules.end),
        Row(_T.IN_DONE, _N.APP_COMPLETE, _D.SEND_COMPLETE, _T.CLOSED, rules.end),
        Row(_T.OUT_DONE, _APP_OUT, _D.NOTHING, same, rules.after),
        Row(_T.CLOSED, (*_APP_OUT, _N.APP_FAIL, _N.APP_CANCEL), _D.NOTHING, same, rules.stray),
    ]
    requester = [
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, rules.requester[0]),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.OUT_DONE, rules.requester[1]),
        Row(_T.OPEN, _N.CANCEL, _D.STOP_OUT, _T.OUT_DONE, rules.cancel),
        Row(_T.IN_DONE, _N.CANCEL, _D.END_CANCELED, _T.CLOSED, rules.cancel),
        Row(_T.OUT_DONE, _N.CANCEL, _D.RACE, same, rules.cancel),
        Row(_SENDING, _N.APP_FAIL, _D.SEND_ERROR, _T.CLOSED, rules.end),
        Row(_T.OUT_DONE, _N.APP_FAIL, _D.SEND_CANCEL, _T.CLOSED, rules.end),
        Row(_ANY, _N.APP_CANCEL, _D.SEND_CANCEL, _T.CLOSED, rules.end),
    ]
    responder = [
        Row(_T.IDLE, _N.APP_OPEN, _D.OPEN, _T.OPEN, rules.responder[0]),
        Row(_T.IDLE, _N.APP_OPEN_LAST, _D.OPEN, _T.IN_DONE, rules.responder[1]),
        Row(_ANY, _N.CANCEL, _D.END_CANCELED, _T.CLOSED, rules.end),
        Row(_ANY, _N.APP_FAIL, _D.SEND_ERROR, _T.CLOSED, rules.end),
        Row(_T.OPEN, _N.APP_CANCEL, _D.SEND_CANCEL, _T.IN_DONE, rules.cancel),
        Row(_T.OUT_DONE, _N.APP_CANCEL, _D.SEND_CANCEL, _T.CLOSED, rules.cancel),
        Row(_T.IN_DONE, _N.APP_CANCEL, _D.NOTHING, same, rules.cancel),
    ]
    asks = _table(f"stream, requester{note}", requester + both, rules)
    return asks, _table(f"stream, responder{note}", responder + both, rules)


def _table(name: str, rows: list[_Row], rules: HalfRules) -> StreamTable:
    otherwise = (_D.IGNORE, rules.stray)
    return Table(name, states=StreamState, inputs=StreamInput, start=_T.IDLE, rows=rows, otherwise=otherwise)
