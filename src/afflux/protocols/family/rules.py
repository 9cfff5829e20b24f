"""Name the rules that the family's parts cite. Each member has its own rule numbers; code does not branch on them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Rules"]


class Rules(NamedTuple):
    """The numbers of one specification."""

    credit: str
    "No more items than were granted."
    demand: str
    "The number of items that one frame may grant."
    drain: str
    "No new requests on a closing connection."
    extension: str
    "Unknown frames and extensions."
    first: str
    "The first frame is SETUP."
    lease: str
    "A request needs a lease."
    leasing: str
    "Leases are negotiated in SETUP."
    length: str
    "A frame is at least as long as its header."
    order: str
    "Metadata comes before data."
    parity: str
    "Each side has its own ids."
    refused: str
    "A refused SETUP ends the connection."
    senseless: str
    "A frame that the connection's state does not allow is ignored."
    silence: str
    "The connection of a silent peer ends."
    single: str
    "A request has one answer, and no credit."
    stray: str
    "A frame that its stream does not allow is ignored."
    unleased: str
    "A server without leases refuses a SETUP that requests them."
    verb: str
    "The kinds of request."
    zero: str
    "Frames of the connection belong on stream 0."
    reserved: str = ""
    "Reserved bits are ignored."
    halves: str = ""
    "In a channel, the responder's completion ends both directions."
    resume: str = ""
    "A session that cannot be resumed is refused."
