"""Declare what the frames of the extensible draft mean to an observer (core.meanings): what RSocket's mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from afflux.core.meanings import Act, Meaning
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
)
"What the frames mean. Leases are an extension here, which the frames LEASE of RSocket do not concern (R-34)."
