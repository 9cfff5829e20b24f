"""The five verbs, blocking: for workers, scripts and notebooks. No event loop and no threads.

::

    with afflux.sync.connect("tcp://127.0.0.1:7000") as peer:
        reply = peer.request(b"ping", route="echo", timeout=5)
        for item in peer.stream(b"ticks", credit=64):
            ...

What to know:

1. A peer belongs to the process that made it, and one thread uses it at a time. After ``fork`` the child connects
   anew; using the parent's peer there raises :class:`afflux.ConnectionClosed`, and closing it only closes the
   descriptor. While one thread is in a verb, those of another raise :class:`afflux.LocalProtocolError`.
2. Handlers of signals, such as that of Ctrl-C, run where a verb waits. What they raise leaves the verb, which cancels
   what it had begun: the connection can be used as before. A handler may use the connection, or close it.
3. Bytes move while a call waits. Keepalives are sent then, and between the items of a stream; a program that calls
   nothing for longer than ``lifetime`` seconds is dead to its peer.
4. There is no blocking server and no ``handler=``: requests of the peer are rejected.
"""

from __future__ import annotations

from afflux.sync.client import connect
from afflux.sync.flow import ItemStream
from afflux.sync.peer import Peer
from afflux.sync.session import Session

__all__ = ["ItemStream", "Peer", "Session", "connect"]
