"""Declare what the frames of ReactiveSocket of 2015 mean to an observer (core.meanings)."""

from __future__ import annotations

from typing import Final

from afflux.core.meanings import Act, Broken, Meaning, Meanings, StreamKind
from afflux.protocols.family.meanings import COMPLETE, FRAMES, KNOWN, rules
from afflux.protocols.reactivesocket.codes import Code

__all__ = ["MEANINGS"]

_PART: Final = {"F": Act.FOLLOWS, "C": Act.COMPLETE}

MEANINGS: Final = Meanings(
    frames=FRAMES
    | {
        "REQUEST_SUB": Meaning("b", Act.OPEN | Act.ITEM | Act.GRANT, StreamKind.SUBSCRIPTION, {"F": Act.FOLLOWS}),
        "REQUEST_CHANNEL": Meaning(
            "c", Act.OPEN | Act.ITEM | Act.BARE | Act.ASKER, StreamKind.CHANNEL, _PART | {"N": Act.GRANT}
        ),
        "RESPONSE": Meaning("p", Act.ITEM | Act.BARE | Act.ANSWERER, flags=_PART),
    },
    rules=rules(
        credit="R-39",
        unknown="R-36",
        ended="R-34",
        done="R-33",
        zero="R-37",
        live="R-36",
        first="R-15",
        setup="R-22",
        lease="R-46",
        side="R-22",
        direction="R-36",
        stream="R-36",
    )
    | {Broken.PARITY: ("R-11", "use even ids for streams of the client, odd ids for the server's")},
    routed=True,
    odd=False,
    free=True,
    together=True,
    readable={"R-2": "count the whole frame in its length, which is at least 12", "R-6": COMPLETE, "R-9": KNOWN},
    codes={code: code.name for code in Code},
)
"What the frames mean. An id may be used again after its stream has ended (R-13)."
