"""Share limits, queue, budget and the prices of wasteful messages among the parts of one connection."""

from __future__ import annotations

from afflux.core.limits import Limits
from afflux.core.passes import Pass
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.states import ConnectionState

__all__ = ["Shared"]


class Shared(Pass):
    """State shared by the parts of one connection; ``events`` are also those of verbs since the last pass."""

    __slots__ = ("delivered", "objects", "out", "split", "state")

    def __init__(self, limits: Limits, out: Outbound, now: float = 0.0) -> None:
        super().__init__(limits, now)
        self.out = out
        self.state = ConnectionState.START
        "The state of the connection."
        self.delivered = 0
        "Bytes delivered to the application and not consumed."
        self.objects = 0
        "Number of delivered elements that were not consumed."
        self.split = False
        "Both sides list split messages."
