"""Declare what the messages of Jmux mean to an observer (core.meanings). Credit is the ration, in bytes."""

from __future__ import annotations

from typing import Final

from afflux.core.meanings import Act, Broken, Meaning, Meanings, StreamKind

__all__ = ["MEANINGS"]

_HEADER: Final = Act.CONNECTION | Act.FIRST | Act.RATION

MEANINGS: Final = Meanings(
    frames={
        "ClientConnectionHeader": Meaning("h", _HEADER | Act.CLIENT, amount="ration"),
        "ServerConnectionHeader": Meaning("h", _HEADER | Act.SERVER, amount="ration"),
        "NoOperation": Meaning("o", Act.CONNECTION),
        "Shutdown": Meaning("t", Act.CONNECTION | Act.SERVER | Act.LEAVE),
        "Ping": Meaning("q", Act.CONNECTION),
        "PingAck": Meaning("q", Act.CONNECTION),
        "Error": Meaning("e", Act.CONNECTION | Act.LEAVE),
        "IncrementRation": Meaning("n", Act.GRANT | Act.ZERO, amount="ration"),
        "Abort": Meaning("x", Act.CANCEL | Act.ABORT),
        "Close": Meaning("c", Act.SERVER),
        "Acknowledgment": Meaning("a", Act.CLIENT),
        "Data": Meaning("d", Act.ITEM, StreamKind.SESSION, {"o": Act.OPEN, "e": Act.COMPLETE}),
    },
    rules={
        Broken.CREDIT: ("R-33", "send no more bytes than the ration, and wait for IncrementRation"),
        Broken.UNKNOWN: ("R-20", 'set "open" on the first Data of a session'),
        Broken.DONE: ("R-20", 'send no Data after the one with "eof"'),
        Broken.ENDED: ("R-28", "send nothing about a session after Abort"),
        Broken.LIVE: ("R-19", 'set "open" only on an id that is free'),
        Broken.FIRST: ("R-3", "begin with the connection header"),
        Broken.SIDE: ("R-17", "leave this message to the other side"),
    },
    octets=True,
    readable={
        "R-3": "begin the connection with the header of this side",
        "R-9": "begin a message with a first byte that the protocol defines",
        "R-10": "write reserved bytes as 0",
    },
)
"What the messages mean."
