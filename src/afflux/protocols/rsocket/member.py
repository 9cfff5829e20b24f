"""Describe RSocket 1.0 as a member of the family: its layout, rule numbers, requests, frames and quirks."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.limits import Limits
from afflux.core.recognition import refusal_text
from afflux.protocols.family import arrivals
from afflux.protocols.family.actions import ACTIONS
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.layout import Layout, Prelude
from afflux.protocols.family.member import Member, Opening, Quirks, Role
from afflux.protocols.family.rules import Rules
from afflux.protocols.family.states import ConnectionInput, ConnectionState
from afflux.protocols.family.stream import Stream
from afflux.protocols.family.streams import Streams
from afflux.protocols.rsocket import codes, frames, resumption
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import COMPLETE, NEXT, NEXT_COMPLETE
from afflux.protocols.rsocket.resume import token_refusal
from afflux.protocols.rsocket.states import CLIENT, REQUESTER, RESPONDER, SERVER

__all__ = ["LAYOUT", "MEMBER", "input_of_error", "inputs", "layout", "on_stream", "openings"]

_I = ConnectionInput
_HEADER: Final = 6
_VERSION: Final = Struct(">HH")
_VERSIONED: Final = _HEADER + _VERSION.size
"Bytes of a SETUP up to its version."
_HIGHEST: Final = 0xFF
"A major version above it is part of something else."


def layout(prelude: Prelude | None = None) -> Layout:
    """Return the layout of RSocket's frames, with what may stand between header and payload."""
    return Layout(
        Struct(">BHIH"),
        prefix=3,
        inclusive=False,
        order="id",
        shift=10,
        metadata=3,
        flags=(frames.FLAG_METADATA, frames.FLAG_FOLLOWS, frames.FLAG_COMPLETE),
        request=frames.RequestResponse.TYPE,
        grant=frames.RequestN.TYPE,
        answers=(NEXT_COMPLETE,),
        prelude=prelude,
    )


LAYOUT: Final = layout()

RULES: Final = Rules(
    credit="R-27",
    demand="D-5",
    drain="R-20",
    extension="R-5",
    first="R-11",
    lease="R-41",
    leasing="R-13",
    length="R-7",
    order="R-34",
    parity="D-12",
    refused="R-14",
    resume="R-46",
    senseless="R-32",
    silence="R-22",
    single="R-23",
    stray="R-31",
    unleased="HS-08",
    verb="2.3",
    zero="R-32",
)


class _Quirks(Quirks):
    """The functions of RSocket."""

    __slots__ = ()

    LEAST_EXTENSION: ClassVar[int] = 1

    def decode(self, block: bytes, start: int, end: int) -> Any:
        return frames.decode(block, start, end)

    def classify(self, connection: Connection, frame: Any) -> ConnectionInput:
        input = input_of_error(frame)
        return resumption.classify(connection) if input is _I.ERROR_RESUME else input

    def malformed(self, connection: Connection, block: bytes, start: int, violation: Violation) -> None:
        """Charge or raise a frame that is truncated, or whose lengths are wrong (R-7, FG-14)."""
        if connection.state == ConnectionState.WAIT_FIRST:
            type = LAYOUT.type_of(block, start - LAYOUT.prefix)
            if type == frames.Setup.TYPE and LAYOUT.length_of(block, start - LAYOUT.prefix) >= _VERSIONED:
                violation = _version_refusal(*_VERSION.unpack_from(block, start + _HEADER)) or violation
            code = Code.REJECTED_RESUME if type == frames.Resume.TYPE else Code.INVALID_SETUP
            raise Violation(violation.reason, rule=violation.rule, code=code)
        if block[start + 4] & 0x02:
            connection.current.charge(1, violation.stream, violation.rule, violation.reason)
            return
        raise violation

    def error(self, stream: int, code: int, text: bytes) -> bytes:
        return frames.ErrorFrame(stream=stream, code=code, data=text).encode(prefixed=True)

    def completion(self, stream: Stream) -> bytes:
        return LAYOUT.head(stream.id, COMPLETE, b"", None, LAYOUT.size)

    def keepalive(self, respond: bool, position: int, data: bytes) -> bytes:
        return frames.Keepalive(stream=0, respond=respond, position=position, data=data).encode(prefixed=True)

    def proposal(self, setup: Any, limits: Limits) -> frames.Setup:
        if setup is None:
            return frames.Setup(keepalive_ms=int(limits.keepalive_s * 1000), lifetime_ms=int(limits.lifetime_s * 1000))
        if not setup.keepalive_ms or not setup.lifetime_ms:
            raise LocalProtocolError("keepalive and lifetime are above 0", rule="R-17")
        least = limits.resume_token_bytes[0]
        if setup.token is not None and len(setup.token) < least:
            text = f"a resume token has {least} random bytes or more, not {len(setup.token)}"
            raise LocalProtocolError(text, rule="R-53")
        checked: frames.Setup = setup
        return checked

    def refusal(self, connection: Connection, setup: Any) -> Violation | None:
        if (refusal := _version_refusal(setup.major, setup.minor)) is not None:
            return refusal
        if not setup.keepalive_ms or not setup.lifetime_ms:
            return Violation("keepalive and lifetime are above 0", rule="R-17", code=Code.INVALID_SETUP)
        if setup.token is None:
            return None
        resuming = connection.resuming
        return token_refusal(setup.token, connection.limits, None if resuming is None else resuming.sessions)

    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> frames.Ext:
        if not 0 < type <= 0x7FFFFFFF:
            raise LocalProtocolError(f"an extended type is 1 to {0x7FFFFFFF}, not {type}", stream=stream, rule="D-13")
        return frames.Ext(stream=stream, ignore=ignore, extended_type=type, body=body)


def _version_refusal(major: int, minor: int) -> Violation | None:
    """Return why the version of a SETUP is refused, None for 1.0.

    The extensible draft has a MIME type in its place, with an octet that is not 0.
    """
    if (major, minor) == (1, 0):
        return None
    text = f"version {major}.{minor} is not supported; supported: 1.0"
    if major > _HIGHEST:
        text = f"{refusal_text('rsocket', 'rsocket-draft')}: the SETUP has no version of RSocket 1.0"
    return Violation(text, rule="R-16", code=Code.INVALID_SETUP)


def input_of_error(frame: Any) -> ConnectionInput:
    """Return the input of an ERROR frame."""
    if frame.stream:
        return _I.STREAM_FRAME
    if frame.code == Code.REJECTED_RESUME:
        return _I.ERROR_RESUME
    if Code.INVALID_SETUP <= frame.code < Code.REJECTED_RESUME:
        return _I.ERROR_SETUP  # the reserved codes, 0 and 0xFFFFFFFF, are "another code" (3.1)
    return _I.ERROR_CLOSE if frame.code == Code.CONNECTION_CLOSE else _I.ERROR_OTHER


# -- the frames of streams, as a module declares them: this one's, or the draft's -----------------------------


def openings(frames: Any) -> dict[str, Opening]:
    """Return the requests, by the application's verb."""
    return {
        "request": _opening("request", frames.RequestResponse),
        "fire": _opening("fire", frames.RequestFnf),
        "stream": _opening("stream", frames.RequestStream, credited=True),
        "channel": _opening("channel", frames.RequestChannel, credited=True),
    }


def _opening(verb: Any, frame: Any, *, credited: bool = False) -> Opening:
    return Opening(frame, verb, frame.TYPE << 10, credited=credited, later=(NEXT, b""))


def inputs(frames: Any) -> dict[type, ConnectionInput]:
    """Return the connection inputs of the frames of streams."""
    return {
        frames.Ext: _I.EXT,
        frames.RequestResponse: _I.REQUEST,
        frames.RequestFnf: _I.REQUEST,
        frames.RequestStream: _I.REQUEST,
        frames.RequestChannel: _I.REQUEST,
        frames.RequestN: _I.STREAM_FRAME,
        frames.Cancel: _I.STREAM_FRAME,
        frames.PayloadFrame: _I.STREAM_FRAME,
    }


def on_stream(frames: Any) -> dict[type, Callable[[Streams, Any], None]]:
    """Return the functions of the frames of streams that are not requests."""
    return {
        frames.PayloadFrame: _on_payload,
        frames.RequestN: arrivals.on_request_n,
        frames.Cancel: arrivals.on_cancel,
        frames.ErrorFrame: arrivals.on_error,
    }


def _on_payload(streams: Streams, frame: Any) -> None:
    """Apply PAYLOAD: its N flag marks an item (R-30)."""
    arrivals.on_item(streams, frame, frame.next)


MEMBER: Final = Member(
    layout=LAYOUT,
    frames=frames,
    codes=codes,
    rules=RULES,
    client=CLIENT,
    server=SERVER,
    requester=Role(REQUESTER, requester=True, takes=NEXT, item=NEXT),
    responder=Role(RESPONDER, requester=False, takes=NEXT, item=NEXT),
    client_parity=1,
    openings=openings(frames),
    inputs=inputs(frames),
    on_zero={
        frames.Setup: _I.SETUP,
        frames.Resume: _I.RESUME,
        frames.ResumeOk: _I.RESUME_OK,
        frames.Lease: _I.LEASE,
        frames.Keepalive: _I.KEEPALIVE,
        frames.MetadataPush: _I.METADATA_PUSH,
    },
    on_stream=on_stream(frames),
    actions={**ACTIONS, **resumption.ACTIONS},
    first_codes={frames.Setup.TYPE: Code.REJECTED_SETUP, frames.Resume.TYPE: Code.REJECTED_RESUME},
    closing_code=Code.CONNECTION_CLOSE,
    quirks=_Quirks(),
)
