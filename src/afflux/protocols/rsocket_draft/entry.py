"""Declare the draft: its entry in the table of protocols, and its engine factory.

Only the name in an address selects it (R-1): the bytes of a SETUP cannot be told from RSocket's (D-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from afflux.core.entry import FIVE_VERBS, SHARED_OPTIONS, ProtocolEntry
from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.framing import LengthPrefix
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.protocols.family.recognition import answer_begins, setup_begins
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.entry import ENTRY as RSOCKET
from afflux.protocols.rsocket.entry import recognize as recognize_rsocket
from afflux.protocols.rsocket_draft import payloads
from afflux.protocols.rsocket_draft.dialect import PLAIN_DIALECT, Dialect
from afflux.protocols.rsocket_draft.dissector import dissector
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.frames import ErrorFrame, Setup, SetupOk
from afflux.protocols.rsocket_draft.meanings import MEANINGS
from afflux.protocols.rsocket_draft.payload import ExtendedPayload
from afflux.protocols.rsocket_draft.payloads import Session, Times

if TYPE_CHECKING:
    from afflux.protocols.rsocket_draft.engine import Engine

__all__ = ["ENTRY", "make", "recognize", "refusal"]


def make(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    """Build an engine for one connection.

    Raises:
        LocalProtocolError: the setup is invalid.
    """
    from afflux.protocols.rsocket_draft.engine import DEFAULT_MTU, Engine

    return Engine(
        role,
        setup=_proposal(terms) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        sessions=terms.sessions,
        extensions=terms.extensions,
        place=terms.place,
        dialect=_dialect_of(terms),
    )


def _dialect_of(terms: Terms) -> Dialect | None:
    """Return the differences of the peer; None if there are none."""
    dialect = (terms.dialect or PLAIN_DIALECT).with_code(terms.own.get("setup_ok", SetupOk.TYPE))
    return None if dialect == PLAIN_DIALECT else dialect


def _proposal(terms: Terms) -> Setup:
    """Return a client's SETUP: keepalive, resumption and leases if they are wanted, and the entries of the setup's
    payload. Entries may be ignored (R-15), except resumption, which a server then refuses if it does not have it."""
    payload = terms.payload
    try:
        entries: list[Entry] = [
            payloads.keepalive_entry(Times(round(terms.keepalive * 1000), round(terms.lifetime * 1000)))
        ]
        if terms.token is not None:
            entries.append(payloads.resume_entry(Session(terms.token, None), ignorable=False))
        if terms.leases:
            entries.append(payloads.lease_entry(terms.own.get("strategy", payloads.KNOWN), ack=True))
        if isinstance(payload, ExtendedPayload):
            entries += payload.entries
        return Setup(
            data_mime=terms.data_mime or "application/octet-stream",
            metadata_mime=terms.metadata_mime or "message/x.rsocket.composite-metadata.v0",
            ack=bool(terms.own.get("ack")),
            extensions=tuple(entries),
            metadata=None if payload is None else payload.metadata,
            data=b"" if payload is None else payload.data,
        )
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None


def refusal(reason: str) -> bytes:
    """Return the bytes that refuse a connection before its SETUP arrives: ERROR[REJECTED_SETUP]."""
    return ErrorFrame(stream=0, code=Code.REJECTED_SETUP, data=reason.encode()).encode(prefixed=True)


def recognize(start: bytes, client: bool) -> bool | None:
    """Recognize a client's SETUP, which is also one of RSocket (D-2), or the first frame of a server."""
    if client:
        return setup_begins(start)
    return recognize_rsocket(start, client) or answer_begins(start, (SetupOk.TYPE,), (), ())


def _yes_or_no(text: str) -> bool:
    """Parse an option that is on or off.

    Raises:
        ValueError: it is neither yes nor no.
    """
    if text not in ("yes", "no"):
        raise ValueError("expected yes or no")
    return text == "yes"


def _setup_ok(text: str) -> int:
    """Parse the type of SETUP_OK, such as 0x10.

    Raises:
        ValueError: it is not a free type.
    """
    return PLAIN_DIALECT.with_code(int(text, 0)).setup_ok_code


_STRATEGIES: Final = {"requests": 0, "streams": 1, "frames": 2}


def _strategies(text: str) -> tuple[int, ...]:
    """Parse lease strategies, the preferred one first: requests, streams, frames.

    Raises:
        ValueError: a strategy is unknown.
    """
    if unknown := [name for name in text.split(",") if name not in _STRATEGIES]:
        raise ValueError(f"expected some of {', '.join(_STRATEGIES)}, not {unknown[0]!r}")
    return tuple(_STRATEGIES[name] for name in text.split(","))


ENTRY: Final = ProtocolEntry(
    name="rsocket-draft",
    make=make,
    verbs=FIVE_VERBS,
    options=(
        *SHARED_OPTIONS,
        ("ack", _yes_or_no),
        ("strategy", _strategies),
        ("dialect", Dialect.of),
        ("setup_ok", _setup_ok),
    ),
    features=("lease", "resume", "extensions"),
    framing=LengthPrefix(3),
    refusal=refusal,
    exit_codes=RSOCKET.exit_codes,
    dissector=dissector,
    meanings=MEANINGS,
    recognize=recognize,
    unguessed="its SETUP cannot be told from that of RSocket 1.0 and is taken as one",  # R-1, D-2
)
