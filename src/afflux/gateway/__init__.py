"""Stand between two peers: relay streams into journals that readers replay."""

from __future__ import annotations

from afflux.gateway.origin import Origin
from afflux.gateway.relaying import Relay, ShardStatus, relay

__all__ = ["Origin", "Relay", "ShardStatus", "relay"]
