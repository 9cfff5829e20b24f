"""Declare what the frames of Limit-Stream mean to an observer (core.meanings). Its ids number messages, and a
connection has one session at a time (R-25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from afflux.core.meanings import Act, Broken, Meaning, Meanings, StreamKind
from afflux.protocols.family.meanings import COMPLETE, KNOWN
from afflux.protocols.limit.codes import Code

__all__ = ["MEANINGS"]


def _channel(metadata: bytes | None, fields: Mapping[str, Any]) -> str | None:
    return None if metadata is None else metadata.decode("utf-8", "replace")


MEANINGS: Final = Meanings(
    frames={
        "SETUP": Meaning("s", Act.OPEN | Act.FIRST | Act.CLIENT | Act.ITEM, StreamKind.SESSION),
        "PAYLOAD": Meaning("p", Act.ITEM),
        "CHOOSE": Meaning("c"),
        "END": Meaning("d", Act.COMPLETE),
        "ERROR": Meaning("e", Act.ERROR),
        "EXT": Meaning("z"),
    },
    rules={
        Broken.UNKNOWN: ("R-25", "open a session with SETUP first"),
        Broken.FIRST: ("R-25", "begin with SETUP"),
        Broken.SIDE: ("R-25", "leave SETUP to the client"),
        Broken.ENDED: ("R-29", "send nothing of a session after END or ERROR"),
    },
    route=_channel,
    one=True,
    credit=False,
    together=True,
    readable={"R-8": KNOWN, "R-10": COMPLETE},
    codes={code: code.name for code in Code},
)
"What the frames mean. The route is the name of the channel."
