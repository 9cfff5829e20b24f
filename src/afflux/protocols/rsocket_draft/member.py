"""Describe the draft as a member of the family: RSocket's member, with its own frames, tables and actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Final

from afflux.core.errors import LocalProtocolError, Unsupported, Violation
from afflux.core.limits import Limits
from afflux.protocols.family.actions import ACTIONS
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.member import Member, Quirks
from afflux.protocols.family.rules import Rules
from afflux.protocols.family.states import ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.family.stream import Stream
from afflux.protocols.rsocket import member as v1
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import COMPLETE, FLAG_FOLLOWS
from afflux.protocols.rsocket_draft import extending, frames, negotiation, payloads, resumption
from afflux.protocols.rsocket_draft.dialect import Dialect
from afflux.protocols.rsocket_draft.entries import NotUnderstood
from afflux.protocols.rsocket_draft.frames import Setup
from afflux.protocols.rsocket_draft.preludes import Preludes
from afflux.protocols.rsocket_draft.states import CLIENT, SERVER

__all__ = ["LAYOUT", "MEMBER", "member_of"]

_I, _A = ConnectionInput, ConnectionAction
_HEADER: Final = 6
_VERSION_1: Final = b"\0\1\0\0"
"The version of a SETUP of RSocket 1.0, after its header."

LAYOUT: Final = v1.layout(Preludes())
"RSocket's, with entries before the payload (R-5, R-7)."

RULES: Final = Rules(
    credit="RSocket R-27",
    demand="RSocket D-5",
    drain="RSocket R-20",
    extension="R-10",
    first="3.2",
    lease="R-32",
    leasing="R-30",
    length="RSocket R-7",
    order="RSocket R-34",
    parity="RSocket D-12",
    refused="3.2",
    resume="3.2",
    senseless="3.1",
    silence="3.1",
    single="RSocket R-23",
    stray="RSocket R-31",
    unleased="R-30",
    verb="2.2",
    zero="RSocket R-32",
)


def _grant(*, stream: int, ttl_ms: int, requests: int, metadata: bytes = b"") -> frames.ExtChain:
    """A lease is an entry of EXT (R-31)."""
    if metadata:
        raise Unsupported("a lease of the draft has no metadata")
    return frames.ExtChain(stream=stream, extensions=(payloads.grant_entry(payloads.Permits(ttl_ms, requests)),))


class _Frames:
    """The frames that the family's parts send."""

    Cancel = frames.Cancel
    Lease: ClassVar[Callable[..., frames.ExtChain]] = staticmethod(_grant)
    MetadataPush = frames.MetadataPush
    RequestN = frames.RequestN


class _Quirks(Quirks):
    """The functions of the draft."""

    __slots__ = ("_dialect",)

    LEAST_EXTENSION: ClassVar[int] = 1

    def __init__(self, dialect: Dialect | None) -> None:
        self._dialect = dialect

    def decode(self, block: bytes, start: int, end: int) -> Any:
        if self._dialect is not None:
            return self._dialect.decode(block, start, end)
        return frames.decode(block, start, end)

    def classify(self, connection: Connection, frame: Any) -> ConnectionInput:
        if type(frame) is Setup:
            return _I.RESUME if resumption.is_resuming(frame) else _I.SETUP
        return v1.input_of_error(frame)

    def malformed(self, connection: Connection, block: bytes, start: int, violation: Violation) -> None:
        """Charge, refuse or raise a frame that cannot be read, by its type and point (3.3, D-7)."""
        type = LAYOUT.type_of(block, start - LAYOUT.prefix)
        if connection.state is ConnectionState.WAIT_FIRST:
            code: int = Code.REJECTED_RESUME if type == frames.Resume.TYPE else Code.INVALID_SETUP
            if isinstance(violation, NotUnderstood) and type == Setup.TYPE:
                code = Code.UNSUPPORTED_SETUP
            elif type == Setup.TYPE and block.startswith(_VERSION_1, start + _HEADER):
                raise Violation(negotiation.OF_1_0, rule="R-3", code=code)
            raise Violation(violation.reason, rule=violation.rule, code=code)
        if violation.code == Code.INVALID and violation.stream and connection.is_open:
            follows = block[start + 5] & FLAG_FOLLOWS != 0 and type not in (frames.RequestN.TYPE, frames.Cancel.TYPE)
            extending.refuse_frame(connection, frames.FRAMES[type].NAME, violation.stream, follows, violation)
        elif getattr(violation, "ignorable", False):
            connection.current.charge(1, violation.stream, violation.rule, violation.reason)
        else:
            code = Code.CONNECTION_ERROR
            raise Violation(violation.reason, rule=violation.rule, code=code)

    def error(self, stream: int, code: int, text: bytes) -> bytes:
        return frames.ErrorFrame(stream=stream, code=code, data=text).encode(prefixed=True)

    def completion(self, stream: Stream) -> bytes:
        return LAYOUT.head(stream.id, COMPLETE, b"", None, LAYOUT.size)

    def keepalive(self, respond: bool, position: int, data: bytes) -> bytes:
        """A keepalive is an entry of EXT (R-27, R-28)."""
        return frames.ExtChain(extensions=(payloads.ping_entry(data, respond=respond),)).encode(prefixed=True)

    def proposal(self, setup: Any, limits: Limits) -> Setup:
        return negotiation.proposal(setup, limits)

    def refusal(self, connection: Connection, setup: Any) -> Violation | None:
        return negotiation.refusal_of(connection, setup)

    def lifetime(self, setup: Any, limits: Limits, client: bool) -> float:
        if client or not setup.lifetime_ms:
            return float("inf")  # without the extension there are no timers; D-18
        return super().lifetime(setup, limits, client)

    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> frames.Ext:
        if not 0 < type <= 0x7FFFFFFF:
            raise LocalProtocolError(f"an extended type is 1 to {0x7FFFFFFF}, not {type}", stream=stream, rule="R-10")
        return frames.Ext(stream=stream, ignore=ignore, extended_type=type, body=body)


MEMBER: Final = replace(
    v1.MEMBER,
    layout=LAYOUT,
    frames=_Frames,
    rules=RULES,
    client=CLIENT,
    server=SERVER,
    openings=v1.openings(frames),
    inputs=v1.inputs(frames),
    on_zero={
        frames.SetupOk: _I.SETUP_OK,
        frames.ExtChain: _I.ENTRIES,
        frames.Resume: _I.RESUME,
        frames.ResumeOk: _I.RESUME_OK,
        frames.Lease: _I.LEASE,
        frames.Keepalive: _I.KEEPALIVE,
        frames.MetadataPush: _I.METADATA_PUSH,
    },
    on_stream=v1.on_stream(frames),
    actions={
        **ACTIONS,
        **resumption.ACTIONS,
        _A.ESTABLISH: negotiation.establish,
        _A.ACKNOWLEDGED: negotiation.acknowledged,
        _A.NO_OK: negotiation.no_ok,
        _A.ENTRIES: extending.on_entries,
        _A.ECHO: extending.on_legacy_keepalive,
        _A.REQUEST: extending.on_request,
        _A.REJECT: extending.on_reject,
        _A.STREAM_FRAME: extending.on_stream_frame,
    },
    quirks=_Quirks(None),
)


@cache
def member_of(dialect: Dialect | None) -> Member:
    """Describe the draft, for peers of one dialect; None for the specification's own."""
    return MEMBER if dialect is None else replace(MEMBER, quirks=_Quirks(dialect))
