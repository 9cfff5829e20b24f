"""Test programs deterministically: virtual time, a network with faults, a proxy, and playbooks of conversations.

::

    afflux.testing.run(main(), seed=7)               # an asyncio program in virtual time
    with afflux.testing.Network(plan=…):             # links with delays, cuts and black holes between mem:// addresses
    async with afflux.testing.Proxy(server.uri):     # the same faults over real sockets, in real time
"""

from __future__ import annotations

from afflux.testing.faults import Faults, Plan
from afflux.testing.loop import Deadlock, Livelock, VirtualLoop, run
from afflux.testing.network import Link, Network
from afflux.testing.playbook import Playbook
from afflux.testing.proxy import Proxy, Relay
from afflux.testing.world import World

__all__ = [
    "Deadlock",
    "Faults",
    "Link",
    "Livelock",
    "Network",
    "Plan",
    "Playbook",
    "Proxy",
    "Relay",
    "VirtualLoop",
    "World",
    "run",
]
