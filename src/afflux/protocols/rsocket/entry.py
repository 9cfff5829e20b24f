"""Declare RSocket 1.0: its entry in the table of protocols, and its engine factory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import FIVE_VERBS, SHARED_OPTIONS, ProtocolEntry
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.family.recognition import answer_begins, connection_begins, setup_begins
from afflux.protocols.family.terms import proposal
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.dissector import dissector
from afflux.protocols.rsocket.frames import ErrorFrame, Setup
from afflux.protocols.rsocket.meanings import MEANINGS

if TYPE_CHECKING:
    from afflux.protocols.rsocket.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Build an engine for one connection.

    Raises:
        LocalProtocolError: the setup is invalid.
    """
    from afflux.protocols.rsocket.engine import DEFAULT_MTU, Engine

    return Engine(
        role,
        setup=proposal(Setup, terms, stream=0, token=terms.token) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        sessions=terms.sessions,
        extensions=terms.extensions,
        place=terms.place,
    )


def refusal(reason: str) -> bytes:
    """Return the bytes that refuse a connection before its SETUP arrives: ERROR[REJECTED_SETUP]."""
    return ErrorFrame(stream=0, code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


_CONNECTION: Final = tuple(
    frame.TYPE
    for frame in (frames.Lease, frames.Keepalive, frames.ErrorFrame, frames.MetadataPush, frames.ResumeOk, frames.Ext)
)
_ANSWERS: Final = tuple(
    frame.TYPE for frame in (frames.RequestN, frames.Cancel, frames.PayloadFrame, frames.ErrorFrame, frames.Ext)
)
_REQUESTS: Final = tuple(
    frame.TYPE
    for frame in (frames.RequestResponse, frames.RequestFnf, frames.RequestStream, frames.RequestChannel, frames.Ext)
)


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize a client's SETUP or RESUME, or the first frame of a server."""
    if not client:
        return answer_begins(start, _CONNECTION, _ANSWERS, _REQUESTS)
    found = setup_begins(start)
    return connection_begins(start, (frames.Resume.TYPE,)) if found is False else found


ENTRY: Final = ProtocolEntry(
    name="rsocket",
    make=make,
    verbs=FIVE_VERBS,
    options=SHARED_OPTIONS,
    features=("lease", "resume", "store", "extensions"),
    framing=LengthPrefix(3),
    subprotocol="rsocket",
    refusal=refusal,
    exit_codes={
        Code.APPLICATION_ERROR: 64,
        Code.REJECTED: 65,
        Code.CANCELED: 66,
        Code.INVALID: 67,
        Code.INVALID_SETUP: 68,
        Code.UNSUPPORTED_SETUP: 69,
        Code.REJECTED_SETUP: 70,
        Code.REJECTED_RESUME: 71,
        Code.CONNECTION_ERROR: 72,
        Code.CONNECTION_CLOSE: 73,
    },
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
)
