"""Name the rules that the family's parts cite. Each member has numbers of its own; no number steers code."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Rules"]


class Rules(NamedTuple):
    """The numbers of one specification."""

    credit: str
    "No more items than were granted."
    demand: str
    "How many items one frame may grant."
    drain: str
    "No new requests on a connection that ends."
    extension: str
    "Unknown frames and extensions."
    first: str
    "The first frame is SETUP."
    lease: str
    "A request needs a lease."
    leasing: str
    "Leases are agreed on in SETUP."
    length: str
    "A frame is as long as its header, or longer."
    order: str
    "Metadata comes before data."
    parity: str
    "Each side has ids of its own."
    refused: str
    "A refused SETUP ends the connection."
    senseless: str
    "A frame that the connection's state does not allow is ignored."
    silence: str
    "A silent peer is given up."
    single: str
    "A request has one answer, and no credit."
    stray: str
    "A frame that its stream does not allow is ignored."
    verb: str
    "The kinds of request."
    zero: str
    "Frames of the connection belong on stream 0."
    reserved: str = ""
    "Reserved bits are ignored."
    halves: str = ""
    "In a channel, the responder's completion ends both directions."
