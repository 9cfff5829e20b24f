"""The extensible draft of RSocket for the generic suites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.limits import Limits
from afflux.protocols.rsocket_draft import Engine, frames, payloads
from afflux.protocols.rsocket_draft.engine import DEFAULT_MTU
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.frames import Setup, decode
from afflux.protocols.rsocket_draft.states import CLIENT, REQUESTER, RESPONDER, SERVER
from tests.protocols.generic.family import ask_four, family_floods, wired
from tests.protocols.generic.wires import Flood, Talk, Vectors, Wire
from tests.protocols.rsocket.grids import REQUESTER_GRID, RESPONDER_GRID, STREAM_LETTERS

from . import grids


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """A vector is one bare frame."""
    yield bytes.fromhex(vector["hex"]), vector["decoded"]


def compact(value: Any) -> dict[str, Any]:
    """A compact type as the vectors write it."""
    return {"id": value, "text": None} if isinstance(value, int) else {"id": None, "text": value}


def mime(octets: bytes) -> dict[str, Any]:
    return {"id": octets[0] & 0x7F, "text": None} if octets[0] & 0x80 else {"id": None, "text": octets[1:].decode()}


def described(frame: Any) -> dict[str, Any]:
    """A frame as the vectors write it."""
    row: dict[str, Any] = {"frame": frame.NAME, "stream_id": frame.stream, "flags": frame.flags()}
    for field in frame.FIELDS:
        value = getattr(frame, field.name)
        if field.name == "extensions":
            row["extensions"] = entries(frame)
        elif field.name.endswith("_mime"):
            row[field.name] = None if value is None else mime(frames_mime(value))
        elif field.kind.arrow == "binary":
            row[f"{field.name}_hex"] = None if value is None else value.hex()
        elif field.name != "stream":
            row[field.name] = value
    return row


def frames_mime(name: str) -> bytes:
    setup = Setup(data_mime=name).encode()
    return setup[6 : len(setup) - 5]


def entries(frame: Any) -> list[dict[str, Any]]:
    rows = []
    for number, entry in enumerate(frame.extensions):
        last = number + 1 == len(frame.extensions)
        flags = 0x80 * (not last) | 0x40 * entry.ignorable | 0x20 * entry.ack | entry.flags
        row = compact(entry.id) | {"flags": flags, "payload_hex": entry.payload.hex()}
        rows.append(row | {"length": len(entry.payload) if entry.ignorable else None} | content(frame, entry))
    return rows


def positions(found: Any) -> Any:
    return None if found is None else [{"stream_id": one.stream, "position": one.position} for one in found]


def content(frame: Any, entry: Entry) -> dict[str, Any]:
    """The payload of an entry as the vectors write it."""
    match frame.NAME, entry.number:
        case "SETUP", 0:
            return {"keepalive": payloads.times_of(entry)._asdict()}
        case "SETUP", 1:
            token, listed = payloads.session_of(entry)
            resuming = {"token_hex": token.hex(), "resuming": listed is not None, "positions": positions(listed)}
            return {"resume": resuming}
        case "SETUP", 2:
            return {"lease": {"strategies": [compact(one) for one in payloads.strategies_of(entry)]}}
        case "SETUP_OK", 1:
            return {"resume": {"list_present": entry.marked, "positions": positions(payloads.positions_of(entry))}}
        case "SETUP_OK", 2:
            return {"lease": {"strategy": compact(payloads.strategy_of(entry))}}
        case "EXT", 0:
            return {"keepalive": {"respond": entry.marked, "data_hex": entry.payload.hex()}}
        case _, 1:
            return {"resume": {"stream_resume": entry.marked}}
    return {"broker_hex": entry.payload.hex()}


def make(role: Any, *, limits: Limits, mtu: int = 0) -> Engine:
    return Engine(role, limits=limits, mtu=mtu or DEFAULT_MTU)


SETUP = Setup(extensions=(payloads.keepalive_entry(payloads.Times(500, 90_000)),), metadata=b"m", data=b"d")
_P = frames.PayloadFrame
_PING = frames.ExtChain(extensions=(payloads.ping_entry(b"k", respond=True),))
_SKIPPED = (Entry("x", b"entry", True),)
_END = frames.ErrorFrame(stream=0, code=0x101, data=b"end")
TO_SERVER = wired(
    SETUP,
    frames.RequestResponse(stream=1, extensions=_SKIPPED, metadata=b"m", data=b"q"),
    frames.RequestStream(stream=3, initial_n=2),
    frames.RequestChannel(stream=5, initial_n=2, follows=True, metadata=b"m" * 60),
    _P(stream=5, next=True, data=b"d" * 60),
    _P(stream=5, complete=True),
    _PING,
    frames.RequestN(stream=3, n=3, extensions=_SKIPPED),
    frames.Ext(stream=0, extended_type=2, ignore=True, body=b"x"),
    frames.MetadataPush(metadata=b"p", stream=0),
    frames.Cancel(stream=3, extensions=_SKIPPED),
    frames.RequestFnf(stream=7, data=b"f"),
    frames.RequestResponse(stream=9, data=b"last"),
    _END,
)
TO_CLIENT = wired(
    _PING,
    _P(stream=1, next=True, complete=True, data_mime="application/json", metadata=b"m", data=b"a"),
    _P(stream=3, next=True, data=b"1"),
    _P(stream=3, next=True, extensions=_SKIPPED, data=b"2"),
    _P(stream=3, next=True, follows=True, metadata_mime="x/y", data=b"3" * 60),
    _P(stream=3, next=True, data=b"3"),
    _P(stream=3, complete=True),
    frames.RequestN(stream=5, n=2),
    _P(stream=5, next=True, data=b"c"),
    frames.Cancel(stream=5),
    frames.ErrorFrame(stream=5, code=0x201, data=b"no"),
    frames.RequestResponse(stream=2, data=b"back"),
    _END,
)


def unknown(n: int) -> bytes:
    """A request with an entry that nothing understands and that may not be ignored."""
    chain = frames.RequestResponse(stream=2 * n + 1, extensions=(Entry("must"),))
    return wired(chain)[0]


WIRE = Wire(
    name="rsocket-draft",
    make=make,
    tables=(
        (REQUESTER, REQUESTER_GRID, STREAM_LETTERS),
        (RESPONDER, RESPONDER_GRID, STREAM_LETTERS),
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
    ),
    vectors=Vectors(
        file="rsocket-draft.json",
        pieces=pieces,
        decode=lambda data, meaning: decode(data),
        described=described,
    ),
    talks=(
        Talk(
            name="asked",
            role="server",
            said=TO_SERVER,
            heard=(
                "Established",
                "Opened",
                "Opened",
                "Opened",
                "Completed",
                "Granted",
                "Ignored",
                "Pushed",
                "Canceled",
                "Opened",
                "Opened",
                "Failed",
                "Failed",
                "Failed",
                "Closed",
            ),
        ),
        Talk(
            name="answered",
            role="client",
            said=TO_CLIENT,
            first=ask_four,
            heard=(
                "Established",
                "Items",
                "Items",
                "Completed",
                "Granted",
                "Items",
                "Canceled",
                "Failed",
                "Opened",
                "Failed",
                "Closed",
            ),
        ),
    ),
    floods=(
        *family_floods(
            frames,
            1,
            keepalive=_PING,
            stray=_P(stream=99, next=True, data=b"x"),
            item=_P(stream=1, next=True, data=b"x" * 50),
        ),
        Flood(row="entries that must be understood", unit=unknown, ends="closed", rule="cancel_bucket"),
        Flood(
            row="entries that are skipped",
            unit=lambda n: wired(frames.ExtChain(extensions=_SKIPPED))[0],
            ends="closed",
            rule="protocol-abuse",
        ),
    ),
    verbs={
        "client": ("request", "fire", "stream", "channel"),
        "server": ("request", "fire", "stream", "channel"),
    },
)
