"""Declare what the frames of the extensible draft mean to an observer (core.meanings): what RSocket's mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from afflux.core.meanings import Act, Meaning
from afflux.protocols.family.meanings import COMPLETE
from afflux.protocols.rsocket.meanings import MEANINGS as V1

__all__ = ["MEANINGS"]

MEANINGS: Final = replace(
    V1,
    frames={
        **V1.frames,
        "SETUP": Meaning("s", Act.CONNECTION | Act.FIRST | Act.CLIENT),
        "SETUP_OK": Meaning("o", Act.CONNECTION | Act.SERVER),
        "LEASE": Meaning("l", Act.CONNECTION),
        "RESUME": Meaning("u", Act.CONNECTION | Act.CLIENT),
    },
    rules={case: (f"RSocket {number}", right) for case, (number, right) in V1.rules.items()},
    readable={f"RSocket {number}": right for number, right in V1.readable.items()}
    | {
        "R-18": "send extensions that the peer supports, or mark them with I so that it may ignore them",
        "R-7": COMPLETE,
        "R-9": "end EXT with its chain",
        "R-14": "set I on a payload that does not end by itself, and declare its length",
        "R-16": "declare the length that the payload has",
    },
)
"What the frames mean. Leases are an extension here, which the frames LEASE of RSocket do not concern (R-34)."
