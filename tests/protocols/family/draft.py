"""A third member of the RSocket family, for tests: what the extensible draft would add, in small.

1. An acknowledged setup: the server answers SETUP with SETUP_OK, and the client sends nothing before it came.
2. Extension entries on payloads: a PAYLOAD with X has a chain of them before its data.

Everything else is RSocket's. The member is a value: its tables, frames, quirks and actions differ, the engine does not.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from afflux.core.events import Extended
from afflux.core.machine import Row, Table, same
from afflux.protocols.family import arrivals, handshake
from afflux.protocols.family.actions import ACTIONS
from afflux.protocols.family.engine import DEFAULT_MTU, Engine
from afflux.protocols.family.member import Member
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsocket import codes, frames
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.member import LAYOUT, RULES
from afflux.protocols.rsocket.member import MEMBER as RSOCKET

_S, _I, _A = ConnectionState, ConnectionInput, ConnectionAction
_LIVE = (_S.OPEN, _S.DRAINING)
FLAG_X: Final = 0x200

SETUP_OK: Final = bytes(4) + (0x0F << 10).to_bytes(2, "big")


def entry(id: int, body: bytes, *, more: bool = False) -> bytes:
    """An extension entry: the id, its flags (another follows, may be ignored), a length and a body."""
    return bytes([0x80 | id, 0x40 | 0x80 * more]) + len(body).to_bytes(3, "big") + body


def _split(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The chain of entries at the beginning, and the rest."""
    found = []
    while True:
        id, flags, end = data[0] & 0x7F, data[1], 5 + int.from_bytes(data[2:5], "big")
        found.append((id, data[5:end]))
        data = data[end:]
        if not flags & 0x80:
            return found, data


class SetupOk(SimpleNamespace):
    """SETUP_OK. To the tables it is the server's answer, as RESUME_OK is."""

    OPEN_ENDED = True
    NAME = "SETUP_OK"


class Entries(SimpleNamespace):
    """A PAYLOAD with its extension entries."""

    OPEN_ENDED = True
    NAME = "PAYLOAD"


class _Quirks(type(RSOCKET.quirks)):  # type: ignore[misc]  # RSocket's own, which has no public name
    def decode(self, block: bytes, start: int, end: int) -> Any:
        word = int.from_bytes(block[start + 4 : start + 6], "big")
        if word >> 10 == 0x0F:
            return SetupOk(stream=0)
        frame = frames.decode(block, start, end)
        if not (isinstance(frame, frames.PayloadFrame) and word & FLAG_X):
            return frame
        found, rest = _split(frame.data)
        return Entries(
            stream=frame.stream,
            entries=found,
            follows=frame.follows,
            complete=frame.complete,
            next=frame.next,
            metadata=frame.metadata,
            data=rest,
        )


def _on_entries(streams: Any, frame: Any) -> None:
    """The entries of an item are events before it."""
    for id, body in frame.entries:
        streams.current.events.append(Extended(frame.stream, id, body))
    arrivals.on_item(streams, frame, frame.next)


def _establish(connection: Any, argument: Any) -> None:
    """The setup is acknowledged: the server sends SETUP_OK, the client what it had queued."""
    if connection.client:
        connection.outbound.paused = False
    else:
        connection.outbound.control(len(SETUP_OK).to_bytes(3, "big") + SETUP_OK)
    handshake.establish(connection, argument)


_COMMON = [
    Row(_LIVE, _I.KEEPALIVE, _A.ECHO, same, "3.1"),
    Row(_LIVE, _I.ERROR_OTHER, _A.FAIL, _S.CLOSED, "3.1"),
    Row(_LIVE, _I.STREAM_FRAME, _A.STREAM_FRAME, same, "3.1"),
    Row(_S.OPEN, _I.REQUEST, _A.REQUEST, same, "3.1"),
    Row(_S.DRAINING, _I.REQUEST, _A.REJECT, same, "3.1"),
    Row(_S.OPEN, _I.APP_DRAIN, _A.DRAIN, _S.DRAINING, "3.1"),
    Row(_S.OPEN, _I.ERROR_CLOSE, _A.PEER_DRAINS, _S.DRAINING, "3.1"),
    Row(_LIVE, _I.APP_CLOSE, _A.ABORT, _S.CLOSED, "3.1"),
    Row(_S.DRAINING, _I.LAST_STREAM_ENDED, _A.FINISH, _S.CLOSED, "3.1"),
    Row(_LIVE, (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.1"),
    Row(_S.OPEN, _I.RESUME_OK, _A.NOTHING, same, "3.1"),
    Row(_S.CLOSED, tuple(_I), _A.NOTHING, same, "3.1"),
]

CLIENT = Table(
    "connection, client",
    states=(_S.START, _S.SETUP_SENT, _S.OPEN, _S.DRAINING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.START,
    rows=[
        Row(_S.START, _I.APP_START, _A.SEND_SETUP, _S.SETUP_SENT, "3.1"),
        Row(_S.SETUP_SENT, _I.RESUME_OK, _A.ESTABLISH, _S.OPEN, "3.1"),
        Row(_S.SETUP_SENT, (_I.ERROR_SETUP, _I.ERROR_OTHER), _A.SETUP_FAILED, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, (_I.STREAM_FRAME, _I.REQUEST, _I.KEEPALIVE), _A.REFUSE_FIRST, _S.CLOSED, "3.1"),
        Row(_S.SETUP_SENT, (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.1"),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "3.1"),
)

SERVER = Table(
    "connection, server",
    states=(_S.WAIT_FIRST, _S.DECIDING, _S.OPEN, _S.DRAINING, _S.CLOSED),
    inputs=ConnectionInput,
    start=_S.WAIT_FIRST,
    rows=[
        Row(_S.WAIT_FIRST, _I.SETUP, _A.JUDGE_SETUP, _S.DECIDING, "3.2"),
        Row(_S.WAIT_FIRST, (_I.STREAM_FRAME, _I.REQUEST, _I.RESUME_OK), _A.REFUSE_FIRST, _S.CLOSED, "3.2"),
        Row((_S.WAIT_FIRST, _S.DECIDING), (_I.SILENT, _I.LOST), _A.LOSE, _S.CLOSED, "3.2"),
        Row(_S.DECIDING, _I.APP_ACCEPT, _A.ESTABLISH, _S.OPEN, "3.2"),
        Row(_S.DECIDING, _I.APP_REFUSE, _A.REFUSE_SETUP, _S.CLOSED, "3.2"),
        *_COMMON,
    ],
    otherwise=(_A.IGNORE, "3.2"),
)

MEMBER: Final = Member(
    layout=LAYOUT,
    frames=frames,
    codes=codes,
    rules=RULES,
    client=CLIENT,
    server=SERVER,
    requester=RSOCKET.requester,
    responder=RSOCKET.responder,
    client_parity=1,
    openings=RSOCKET.openings,
    inputs={**RSOCKET.inputs, Entries: _I.STREAM_FRAME},
    on_zero={**RSOCKET.on_zero, SetupOk: _I.RESUME_OK},
    on_stream={**RSOCKET.on_stream, Entries: _on_entries},
    actions={**ACTIONS, _A.ESTABLISH: _establish},
    first_codes={frames.Setup.TYPE: Code.REJECTED_SETUP},
    closing_code=Code.CONNECTION_CLOSE,
    quirks=_Quirks(),
)


def engine(role: Any, **options: Any) -> Engine:
    """An engine of the draft: the family's, with another member."""
    terms = {"setup": None, "limits": None, "decide": False, "now": 0.0, "lease": None, "extensions": ()} | options
    made = Engine(MEMBER, role, mtu=DEFAULT_MTU, **terms)
    made.outbound.paused = role == "client"  # nothing but SETUP leaves before SETUP_OK
    return made
