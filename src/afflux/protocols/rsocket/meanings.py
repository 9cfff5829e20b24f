"""Declare what the frames of RSocket 1.0 mean to an observer (core.meanings)."""

from __future__ import annotations

from typing import Final

from afflux.core.meanings import Act, Broken, Meaning, Meanings, StreamKind
from afflux.protocols.family.meanings import COMPLETE, FRAMES, KNOWN, rules
from afflux.protocols.rsocket.codes import Code

__all__ = ["MEANINGS"]

_PART: Final = {"F": Act.FOLLOWS, "C": Act.COMPLETE}


MEANINGS: Final = Meanings(
    frames=FRAMES
    | {
        "REQUEST_CHANNEL": Meaning("c", Act.OPEN | Act.ITEM | Act.GRANT, StreamKind.CHANNEL, _PART),
        "PAYLOAD": Meaning("p", Act.PART, flags=_PART | {"N": Act.ITEM}),
        "RESUME": Meaning("u", Act.CONNECTION | Act.FIRST | Act.LATER | Act.CLIENT),
        "RESUME_OK": Meaning("o", Act.CONNECTION | Act.SERVER),
    },
    rules=rules(
        credit="R-27",
        unknown="R-31",
        ended="R-28",
        done="R-29",
        zero="D-5",
        reused="R-10",
        live="R-31",
        first="R-11",
        setup="R-32",
        lease="R-41",
        side="R-32",
        direction="R-31",
        stream="R-32",
    )
    | {Broken.PARITY: ("R-8", "use odd ids for streams of the client, even ids for the server's")},
    routed=True,
    odd=True,
    ordered=True,
    free=True,
    readable={"R-5": KNOWN, "R-7": COMPLETE},
    codes={code: code.name for code in Code},
)
"What the frames mean."
