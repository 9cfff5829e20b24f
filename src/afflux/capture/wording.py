"""Put into words what was wrong with a frame, what would have been right, error codes, and who ended a connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from afflux.core.entry import ProtocolEntry
from afflux.core.meanings import Act, Broken, StreamKind
from afflux.protocols.registry import PROTOCOLS

if TYPE_CHECKING:
    from afflux.capture.ledger import Wrong
    from afflux.capture.talk import Talk

__all__ = ["by_side", "coded", "explained", "instead", "or_else", "readable", "undecoded", "unseen"]

_REASONS: Final = {
    Broken.CREDIT: "item {second} with credit for {first}",
    Broken.UNKNOWN: "{type} on stream {stream}, which was never opened",
    Broken.ENDED: "{type} on stream {stream}, which its sender had ended",
    Broken.DONE: "{type} after the sender had completed its direction of stream {stream}",
    Broken.ZERO: "{type} grants 0",
    Broken.PARITY: "{type} opens stream {stream}, an id of the other side",
    Broken.REUSED: "{type} opens stream {stream}, and {first} was opened before",
    Broken.LIVE: "{type} opens stream {stream}, which is in use",
    Broken.FIRST: "the first frame is {type}",
    Broken.SETUP: "a second {type}",
    Broken.LEASE: "{type} without a lease that permits it",
    Broken.SIDE: "{type} from the wrong side of the connection",
    Broken.DIRECTION: "{type} from the {side} of a {kind}",
    Broken.STREAM: "{type} on stream {stream}: it is about the connection",
}


def coded(protocol: str | None, code: int) -> str:
    """Return an error code in hexadecimal, with its name if the protocol has one."""
    entry = None if protocol is None else PROTOCOLS.get(protocol)
    names = {} if entry is None or entry.meanings is None else entry.meanings.codes
    code &= 0xFFFFFFFF
    return f"0x{code:03X} {names.get(code, '')}".rstrip()


def explained(
    protocol: ProtocolEntry | None, name: str | None, wrong: Wrong, *, stream: int
) -> tuple[str, str, str | None]:
    """Return the rule that a frame broke, what was wrong, and what would have been right."""
    rules = protocol.meanings.rules if protocol is not None and protocol.meanings is not None else {}
    rule, expected = rules.get(wrong.case, (wrong.case.name.lower(), None))
    kind = "stream" if wrong.kind < 0 else StreamKind(wrong.kind).name.lower()
    side = "requester" if wrong.first else "responder"
    reason = _REASONS[wrong.case].format(
        type=name or "a frame", stream=stream, kind=kind, side=side, first=wrong.first, second=wrong.second
    )
    if wrong.case is Broken.CREDIT and protocol is not None and protocol.meanings and protocol.meanings.octets:
        reason = f"{wrong.second} bytes with credit for {wrong.first}"
    return rule, reason, expected


def readable(protocol: ProtocolEntry | None, rule: str) -> str | None:
    """Return what would have been right where a frame that breaks this rule cannot be read; None if that is unknown."""
    return protocol.meanings.readable.get(rule) if protocol is not None and protocol.meanings is not None else None


def instead(conversation: Talk, kind: str | None) -> str:
    """Return the option that names another protocol with the same first bytes, where a frame of a type cannot be read;
    empty unless that is a first frame, and recognition has chosen the protocol."""
    protocol, others = conversation.protocol, conversation.others
    meanings = protocol.meanings if protocol is not None else None
    meaning = meanings.frames.get(kind or "") if meanings is not None else None
    if not others or meaning is None or not meaning.acts & Act.FIRST:
        return ""
    server = conversation.connection.high if conversation.client else conversation.connection.low
    return f"-d {server[2]}={others[0].name}"


def or_else(right: str | None, option: str) -> str | None:
    """Return what would have been right, or that an option may make it so; ``option`` is empty for none."""
    if not option:
        return right
    hint = f"if the protocol is {option.partition('=')[2]}, read the capture with {option}"
    return hint if right is None else f"{right}; {hint}"


def by_side(row: Mapping[str, Any]) -> str:
    """Return the words after ``closing`` that say who ended a connection, by a row of ``connections``. The side that
    announced the end is named only if the other one closed first."""
    closed_by, announced_by = row["closed_by"], row["announced_by"]
    words = ""
    if closed_by is not None:
        verb = " by" if row["closing"] in ("fin", "rst") else ", half closed by"
        words = f"{verb} the {_side(closed_by)}"
    return words if announced_by in (None, closed_by) else f"{words}, announced by the {_side(announced_by)}"


def _side(sign: str) -> str:
    return "client" if sign == ">" else "server"


def unseen(row: Mapping[str, Any]) -> bool:
    """Return whether the capture has no packets of one side, by a row of ``connections``. A side that acknowledges and
    sends no data is seen: ``one_way`` is true of it all the same."""
    return bool(row["one_way"]) and not (row["client_packets"] and row["server_packets"])


def undecoded(connections: int, file: str, packet: int) -> str:
    """Return the warning about connections that could not be decoded. The first of them begins with a packet."""
    many = "1 connection" if connections == 1 else f"{connections:,} connections"
    name = Path(file).name
    where = f"packet {packet:,} of {name}" if packet else name
    return f"{many} could not be decoded, the first from {where} on: see the kind undecoded in the table violations"
