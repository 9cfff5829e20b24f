"""Describe ReactiveSocket of 2015 as a member of the family: its layout, rule numbers, requests, frames and quirks.

1. Items of a channel's requester are REQUEST_CHANNEL frames, those of a responder RESPONSE; neither has a flag that
   marks an item: a completion with content is both, one without is only the end (R-28 to R-30).
2. By the text of 2015 the responder's completion ends both directions of a channel (R-34, D-16).
3. A subscription is a stream that does not complete (R-35).
4. The protocol has no resumption and no frame that announces an end: a side that drains sends CONNECTION_ERROR when its
   last stream has ended.

The family's parts implement these rules as well: the peer's ids come in any order (R-12), own ids are used again only
after they have wrapped (R-13), the first item of a channel needs no credit (R-32), no stream has a timeout (R-41), and
a connection that is silent for its lifetime is closed (D-12).
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from struct import Struct
from typing import Any, Final

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.events import Ignored
from afflux.core.limits import Limits
from afflux.protocols.family import arrivals, liveness
from afflux.protocols.family.actions import ACTIONS
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.layout import Layout
from afflux.protocols.family.member import Member, Opening, Quirks, Role
from afflux.protocols.family.rules import Rules
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams
from afflux.protocols.reactivesocket import codes, frames, states
from afflux.protocols.reactivesocket.codes import LAST_SETUP_CODE, Code, on_wire
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.frames import FLAG_COMPLETE, FLAG_INITIAL_N

__all__ = ["LAYOUT", "member_of"]

_I = ConnectionInput
_RESPONSE: Final = frames.Response.TYPE << 16
_CHANNEL: Final = frames.RequestChannel.TYPE << 16

LAYOUT: Final = Layout(
    Struct(">HHII"),
    prefix=4,
    inclusive=True,
    order="word",
    shift=16,
    metadata=4,
    flags=(frames.FLAG_METADATA, frames.FLAG_FOLLOWS, FLAG_COMPLETE),
    request=frames.RequestResponse.TYPE,
    grant=frames.RequestN.TYPE,
    answers=(_RESPONSE | FLAG_COMPLETE, _RESPONSE),  # with C or without
    reserved=0x80000000,
    last_id=0xFFFFFFFF,
)

RULES: Final = Rules(
    credit="R-39",
    demand="D-7",
    drain="3.1",
    extension="R-9",
    first="R-15",
    lease="R-46",
    leasing="R-16",
    length="R-2",
    order="R-43",
    parity="R-12",
    refused="R-15",
    senseless="R-36",
    silence="3.1",
    single="R-28",
    stray="R-36",
    unleased="D-15",
    verb="2.3",
    zero="R-26",
    reserved="R-4",
    halves="R-34",
)

_UNDERSTOOD: Final = frozenset(
    (
        "message/x.rsocket.composite-metadata.v0",
        "application/octet-stream",
        "application/json",
        "application/cbor",
        "text/plain",
    )
)
"MIME types that a server accepts without a decision of the application (R-20): afflux has codecs for them."


class _Quirks(Quirks):
    """The functions of ReactiveSocket, for peers of one dialect."""

    __slots__ = ("_dialect",)

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def decode(self, block: bytes, start: int, end: int) -> Any:
        return self._dialect.decode(block, start, end)

    def classify(self, connection: Connection, frame: Any) -> ConnectionInput:
        if isinstance(frame, frames.RequestChannel):
            return _I.REQUEST if self._opens(connection.stream_table, frame) else _I.STREAM_FRAME
        if frame.stream:
            return _I.STREAM_FRAME
        return _I.ERROR_SETUP if 0 < frame.code <= LAST_SETUP_CODE else _I.ERROR_OTHER

    def _opens(self, streams: Streams, frame: frames.RequestChannel) -> bool:
        """Whether a REQUEST_CHANNEL opens a channel: it has an N (R-31). Java's later frames of a channel have an N
        too, even those that cross the end of their channel."""
        id = frame.stream
        if frame.initial_n is None or not self._dialect.java_compat:
            return frame.initial_n is not None
        past = streams.late.remembers(id) or (id <= streams.newest and not frame.initial_n)
        return not (past or id in streams.live or id in streams.reassembly.partials)

    def malformed(self, connection: Connection, block: bytes, start: int, violation: Violation) -> None:
        if connection.state is ConnectionState.WAIT_FIRST:
            raise Violation(violation.reason, rule=violation.rule, code=Code.INVALID_SETUP) from None
        connection.current.charge(10, violation.stream, violation.rule, violation.reason)  # R-6, FG-15, FG-16

    def encode_setup(self, setup: Any) -> bytes:
        return self._dialect.encode_setup(setup)

    def error(self, stream: int, code: int, text: bytes) -> bytes:
        code = on_wire(code, self._dialect.later_codes)
        return frames.ErrorFrame(stream=stream, code=code, data=text).encode(prefixed=True)

    def completion(self, stream: Stream) -> bytes:
        if stream.requester:
            return self._dialect.complete_channel(stream.id)
        if stream.endless and self._dialect.sub_complete == "error":  # R-35, D-9
            return self.error(stream.id, Code.APPLICATION_ERROR, b"a subscription does not complete")
        return LAYOUT.head(stream.id, _RESPONSE | FLAG_COMPLETE, b"", None, LAYOUT.size)

    def keepalive(self, respond: bool, position: int, data: bytes) -> bytes:
        return frames.Keepalive(respond=respond, data=data).encode(prefixed=True)

    def proposal(self, setup: Any, limits: Limits) -> Any:
        # without leases, requests may follow SETUP immediately (R-17, D-14)
        if setup is None:
            return frames.Setup()
        if not setup.keepalive_ms:
            raise LocalProtocolError("keepalive is above 0", rule="R-24")
        return setup

    def refusal(self, connection: Connection, setup: Any) -> Violation | None:
        if setup.version:
            text = f"version {setup.version} is not supported; supported: 0"
            return Violation(text, rule="R-19", code=Code.INVALID_SETUP)
        if setup.strict and not connection.handshake.decide and not _understood(setup):
            text = "strict: the MIME types or the payload are not supported"
            return Violation(text, rule="HS-18", code=Code.UNSUPPORTED_SETUP)
        return None

    def lifetime(self, setup: Any, limits: Limits, client: bool) -> float:
        if setup.lifetime_ms:
            return super().lifetime(setup, limits, client)
        return inf if client else limits.peer_lifetime_s[1]

    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> Any:
        if stream or not 0 <= type <= 0xFFFFFFFF:
            text = f"an extension has no stream, and a type of 0 to {0xFFFFFFFF}, not {type} on stream {stream}"
            raise LocalProtocolError(text, stream=stream, rule="R-8")
        return frames.Ext(ignore=ignore, extended_type=type, body=body)

    def continues(self, streams: Streams, frame: Any) -> bool:
        if not self._dialect.fragment_requests:
            return False
        partial = streams.reassembly.partials.get(frame.stream)
        if partial is not None and type(partial.request) is type(frame):
            arrivals.fragment(streams, frame, not frame.follows)
            return True
        if not streams.late.swallow(frame.stream, not frame.follows):
            return False
        # FG-01: the rest of a refused request; each of its frames would be a request of its own
        if frame.follows and LAYOUT.prefix + frame.encoded_size < streams.limits.fragment_min_bytes:
            arrivals.unknown(streams, frame.stream, frame.NAME, True)
        else:
            streams.current.events.append(Ignored(frame.stream, "FG-01", "the rest of a request that was refused", 0))
        return True


def _understood(setup: Any) -> bool:
    """Whether a server supports a SETUP without a decision of the application: then its payload is not read."""
    bare = not setup.metadata and not setup.data
    return bare and setup.metadata_mime in _UNDERSTOOD and setup.data_mime in _UNDERSTOOD


def _on_response(streams: Streams, frame: Any) -> None:
    """Apply RESPONSE: an item or the end of a stream that this side requested."""
    arrivals.on_item(streams, frame, _is_item(frame), frame.stream & 1 != streams.peer_parity)


def _on_channel(streams: Streams, frame: Any) -> None:
    """Apply a REQUEST_CHANNEL that does not open a channel: an item or the end of the peer's half."""
    arrivals.on_item(streams, frame, _is_item(frame), frame.stream & 1 == streams.peer_parity)


def _is_item(frame: Any) -> bool:
    # D-8: the answer of a request is always an item, see ``bare_ends``
    return bool(frame.data) or frame.metadata is not None or not frame.complete


def _on_push(connection: Connection, frame: Any) -> None:
    if frame.metadata is None:
        connection.current.charge(10, 0, "R-51", "METADATA_PUSH without metadata")
    else:
        liveness.on_push(connection, frame)


def _roles(dialect: Dialect) -> tuple[Role, Role]:
    asks, serves = states.REQUESTER, states.RESPONDER
    if dialect.channel_half_close:
        asks, serves = states.HALF_REQUESTER, states.HALF_RESPONDER
    item, extra = _CHANNEL, b""
    if dialect.java_compat:  # Java reads an N in every REQUEST_CHANNEL
        item, extra = _CHANNEL | FLAG_INITIAL_N, bytes(4)
    return (
        Role(asks, requester=True, takes=_RESPONSE, item=item, extra=extra),
        Role(serves, requester=False, takes=_CHANNEL, item=_RESPONSE),
    )


def _openings(dialect: Dialect, channel: tuple[int, bytes]) -> dict[str, Opening]:
    cut = dialect.fragment_requests
    word = _CHANNEL | FLAG_INITIAL_N
    return {
        "request": Opening(frames.RequestResponse, "request", frames.RequestResponse.TYPE << 16, cut=cut),
        "fire": Opening(frames.RequestFnf, "fire", frames.RequestFnf.TYPE << 16, cut=cut),
        "stream": Opening(frames.RequestStream, "stream", frames.RequestStream.TYPE << 16, credited=True, cut=cut),
        "subscribe": Opening(
            frames.RequestSub, "stream", frames.RequestSub.TYPE << 16, credited=True, cut=cut, endless=True
        ),
        "channel": Opening(frames.RequestChannel, "channel", word, credited=True, later=channel),
    }


_ON_ZERO: Final = {  # on another stream they are ignored (R-26, R-36, D-6)
    frames.Setup: _I.SETUP,
    frames.Lease: _I.LEASE,
    frames.Keepalive: _I.KEEPALIVE,
    frames.MetadataPush: _I.METADATA_PUSH,
}


@lru_cache(maxsize=64)
def member_of(dialect: Dialect) -> Member:
    """Describe ReactiveSocket, for peers of one dialect."""
    requester, responder = _roles(dialect)
    return Member(
        layout=LAYOUT,
        frames=frames,
        codes=codes,
        rules=RULES,
        client=states.CLIENT,
        server=states.SERVER,
        requester=requester,
        responder=responder,
        client_parity=int(dialect.client_parity == "odd"),  # R-11, D-2
        openings=_openings(dialect, (requester.item, requester.extra)),
        inputs={
            frames.Ext: _I.EXT,
            frames.RequestResponse: _I.REQUEST,
            frames.RequestFnf: _I.REQUEST,
            frames.RequestStream: _I.REQUEST,
            frames.RequestSub: _I.REQUEST,
            frames.RequestN: _I.STREAM_FRAME,
            frames.Cancel: _I.STREAM_FRAME,
            frames.Response: _I.STREAM_FRAME,
        },
        on_zero=_ON_ZERO,
        on_stream={
            frames.Response: _on_response,
            frames.RequestChannel: _on_channel,
            frames.RequestN: arrivals.on_request_n,
            frames.Cancel: arrivals.on_cancel,
            frames.ErrorFrame: arrivals.on_error,
        },
        actions={**ACTIONS, ConnectionAction.PUSH: _on_push},
        first_codes={frames.Setup.TYPE: Code.REJECTED_SETUP},
        bare_ends=True,
        plain_ends=not dialect.java_compat,  # I-1
        quirks=_Quirks(dialect),
    )
