"""Read the connections of a capture for ``afflux check --against``: the frames of each, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import typer

from afflux.cli.captures import decode_as, decoder_of, frames, secrets_of
from afflux.cli.exits import FAILED
from afflux.cli.telling import tell
from afflux.filters import Routes
from afflux.protocols.registry import AUTO

if TYPE_CHECKING:
    from afflux.capture import Decoder
    from afflux.sessions import SessionTypes

__all__ = ["MOST_FRAMES", "Captured", "Recorded", "connections"]

MOST_FRAMES: Final = 1_000_000
"Frames of a capture that are checked: they are in memory together."


@dataclass(slots=True)
class Recorded:
    """The frames of one connection."""

    conn: str
    protocol: str
    sides: dict[bool, list[dict[str, Any]]] = field(default_factory=dict)
    "The frame records of the client (True) and of the server; a side without frames is missing."
    lacks: str = ""
    "What the capture lacks of it, in words."


class Captured(NamedTuple):
    """The connections of a capture whose frames can be checked."""

    connections: list[Recorded]
    decoder: Decoder


def connections(
    file: BinaryIO, name: str, *, types: SessionTypes, channel: str | None, protocol: str | None, ports: list[str],
    keylog: str | None,
) -> Captured:  # fmt: skip
    """Read the connections of a capture whose frames can be checked, in the order of their first frames.

    If no channel is given, the route of a request names it, and requests with the route of no session type are left
    out.

    Raises:
        CaptureError: the file is not a capture.
        MissingExtra: numpy, or a library for zstd or TLS, is not installed.
    """
    from afflux.capture.schemas import NOT_WHOLE
    from afflux.sessions.recorded import PROTOCOLS

    given = decode_as(ports)
    secrets = secrets_of(keylog)
    decoder = decoder_of(file, protocol=protocol or AUTO, ports=given, payload="hex", checksums=False, secrets=secrets)
    found: dict[str, Recorded] = {}
    others = _Others(types) if channel is None else None
    for count, record in enumerate(frames(decoder)):
        if count == MOST_FRAMES:
            tell(f"afflux: {name} has more than {MOST_FRAMES:,} frames: check a part of it")
            raise typer.Exit(FAILED)
        if record["protocol"] not in PROTOCOLS or (others is not None and others.leaves_out(record)):
            continue
        one = found.setdefault(record["conn"], Recorded(record["conn"], record["protocol"]))
        one.sides.setdefault(record["dir"] == ">", []).append(record)
        if record["error"] is not None and record["error"]["rule"] in NOT_WHOLE:
            one.lacks = one.lacks or f"{record['dir']} at offset {record['offset']}: {record['error']['reason']}"
    for conn in decoder.order.late.values():
        if conn in found:
            found[conn].lacks = found[conn].lacks or "its packets are not in the order of time"
    return Captured(list(found.values()), decoder)


class _Others:
    """Recognize the frames of RSocket's requests that belong to no session, by their routes."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._routes = Routes()

    def leaves_out(self, record: dict[str, Any]) -> bool:
        """Return whether to leave a frame out. Notes the route of the others in the record."""
        if record["protocol"] != "rsocket":
            return False
        route = self._routes.route(record)
        if route in self._types:
            record["route"] = route
        return route is not None and route not in self._types
