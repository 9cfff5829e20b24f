"""Run the five verbs in a blocking program: a worker, a script or a notebook. There is no event loop and no thread.

::

    with afflux.sync.connect("tcp://127.0.0.1:7000") as peer:
        reply = peer.request(b"ping", route="echo", timeout=5)
        for item in peer.stream(b"ticks", credit=64):
            ...

Rules:

1. A peer belongs to the process that made it, and one thread uses it at a time. After ``fork`` the child connects
   again; using the parent's peer there raises :class:`afflux.ConnectionClosed`, and closing it only closes the
   descriptor. While one thread is in a verb, those of another raise :class:`afflux.LocalProtocolError`.
2. Handlers of signals, such as that of Ctrl-C, run where a verb waits. An exception of theirs leaves the verb, which
   cancels its stream: the connection can be used as before. A handler may use the connection, or close it.
3. Bytes move while a call waits. Keepalives are sent then, and between the items of a stream; the peer ends the
   connection of a program that calls nothing for longer than ``lifetime`` seconds.
4. Blocking servers and ``handler=`` are unsupported: requests of the peer are rejected.
5. With ``reconnect=`` a call makes another connection when the last one is over, and may take ``Backoff.patience``
   seconds longer.
"""

from __future__ import annotations

from afflux.sync.client import connect
from afflux.sync.flow import ItemStream
from afflux.sync.peer import Peer
from afflux.sync.session import Session

__all__ = ["ItemStream", "Peer", "Session", "connect"]
