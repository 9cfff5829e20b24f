"""Declare what the messages of reactive-streams-io mean to an observer (core.meanings)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from afflux.core.meanings import Act, Broken, Meaning, Meanings, StreamKind

__all__ = ["MEANINGS"]

_HELLO: Final = Act.CONNECTION | Act.FIRST
_SUBSCRIBES: Final = Act.OPEN | Act.GRANT | Act.ASKER | Act.ZERO


def _publisher(metadata: bytes | None, fields: Mapping[str, Any]) -> str | None:
    name = fields.get("publisher")
    return None if name is None else str(name)


MEANINGS: Final = Meanings(
    frames={
        "clientHello": Meaning("h", _HELLO | Act.CLIENT),
        "serverHello": Meaning("h", _HELLO | Act.SERVER),
        "goodbye": Meaning("g", Act.CONNECTION | Act.LEAVE),
        "goodbyeAck": Meaning("g", Act.CONNECTION),
        "subscribe": Meaning("s", _SUBSCRIBES, StreamKind.SUBSCRIPTION),
        "request": Meaning("n", Act.GRANT | Act.ASKER),
        "cancel": Meaning("x", Act.CANCEL | Act.ASKER),
        "subscribed": Meaning("b", Act.ANSWERER | Act.ACCEPT),
        "onNext": Meaning("p", Act.ITEM | Act.ANSWERER),
        "onNextPacked": Meaning("k", Act.ITEM | Act.ANSWERER, count="count"),
        "onNextPart": Meaning("t", Act.ITEM | Act.FOLLOWS | Act.ANSWERER),
        "onNextLastPart": Meaning("t", Act.ITEM | Act.ANSWERER),
        "onComplete": Meaning("c", Act.COMPLETE | Act.ANSWERER),
        "onError": Meaning("e", Act.ERROR | Act.ANSWERER),
    },
    rules={
        Broken.CREDIT: ("R-23", "wait for request before the next element"),
        Broken.UNKNOWN: ("R-18", "send signals only for an id that the subscriber has chosen"),
        Broken.ENDED: ("R-28", "send nothing after onComplete, onError or cancel"),
        Broken.ZERO: ("R-26", "request 1 or more"),
        Broken.LIVE: ("R-33", "choose an id whose subscription has ended"),
        Broken.FIRST: ("R-9", "begin with hello"),
        Broken.SETUP: ("R-9", "send hello once"),
        Broken.SIDE: ("R-9", "leave this hello to the other side"),
    },
    route=_publisher,
    own_ids=True,
    readable={
        "R-4": "send varints of at most 64 bits",
        "R-6": "write texts as UTF-8",
        "R-7": "stay within the lengths and counts that the receiver accepts",
        "R-17": "send a message type of the protocol, or of an extension that both sides have declared",
        "R-39": "confirm the subscription with its element size before packed elements",
    },
)
"What the messages mean. The route is the name of the publisher."
