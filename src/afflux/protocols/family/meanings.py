"""Declare the meanings of the frames that members of the RSocket family share (core.meanings)."""

from __future__ import annotations

from typing import Final

from afflux.core.meanings import Act, Broken, Meaning, Rule, StreamKind

__all__ = ["COMPLETE", "FRAMES", "KNOWN", "rules"]

_PART: Final = {"F": Act.FOLLOWS}
_OPENS: Final = Act.OPEN | Act.ITEM
_CONNECTION: Final = Act.CONNECTION

KNOWN: Final = "send a frame type of the protocol, or set I so that it may be skipped"
COMPLETE: Final = "send all fields of the frame's type, with lengths that fit into the frame"

FRAMES: Final[dict[str, Meaning]] = {
    "SETUP": Meaning("s", _CONNECTION | Act.FIRST | Act.CLIENT, flags={"L": Act.LEASES}),
    "LEASE": Meaning("l", _CONNECTION | Act.LEASE, amount="requests", time="ttl_ms"),
    "KEEPALIVE": Meaning("k", _CONNECTION),
    "METADATA_PUSH": Meaning("m", _CONNECTION | Act.OPEN, StreamKind.PUSH),
    "REQUEST_RESPONSE": Meaning("r", _OPENS, StreamKind.REQUEST, _PART),
    "REQUEST_FNF": Meaning("f", _OPENS, StreamKind.FIRE, _PART),
    "REQUEST_STREAM": Meaning("s", _OPENS | Act.GRANT, StreamKind.STREAM, _PART),
    "REQUEST_N": Meaning("n", Act.GRANT),
    "CANCEL": Meaning("x", Act.CANCEL),
    "ERROR": Meaning("e", Act.ERROR),
    "EXT": Meaning("z"),
}
"The frames whose meaning does not differ between members."


def rules(**numbers: str) -> dict[Broken, Rule]:
    """Return the rules of a member from their numbers, by the name of the case in lower case."""
    return {Broken[name.upper()]: (number, _RIGHT[Broken[name.upper()]]) for name, number in numbers.items()}


_RIGHT: Final = {
    Broken.CREDIT: "wait for REQUEST_N before the next item",
    Broken.UNKNOWN: "open the stream with a request first",
    Broken.ENDED: "send nothing more on a stream after ending it",
    Broken.DONE: "send no item after the frame that completes the direction",
    Broken.ZERO: "grant 1 or more, or send no REQUEST_N",
    Broken.REUSED: "use the next id of this side",
    Broken.LIVE: "use an id that is free",
    Broken.FIRST: "begin the connection with SETUP on stream 0",
    Broken.SETUP: "send SETUP once, as the first frame of the client",
    Broken.LEASE: "wait for a LEASE that permits the request",
    Broken.SIDE: "leave this frame to the other side",
    Broken.DIRECTION: "send only what this side of such a stream may send",
    Broken.STREAM: "send this frame on stream 0",
}
