"""Define the session type ``sum`` of the demo responder, and serve it.

::

    struct Done {}
    channel sum = recv int -> offer | sum | recv Done -> send int -> end

The types are those that ``afflux check --emit python`` generates.
"""

from __future__ import annotations

from dataclasses import dataclass

from afflux.sessions import Chan, Choose, End, Offer, Recv, Send, SessionType, session_type  # noqa: F401 -- in quotes

__all__ = ["SUM", "Done", "SumClient", "SumServer", "add"]

_BITS = 64


@dataclass(frozen=True, slots=True)
class Done:
    """The struct Done."""


class SumServer(Recv[int, "Offer[SumServer, Recv[Done, Send[int, End]]]"]):
    """Server of sum."""


class SumClient(Send[int, "Choose[SumClient, Send[Done, Recv[int, End]]]"]):
    """Client of sum."""


SUM: SessionType[SumServer, SumClient] = session_type(
    {
        "name": "sum",
        "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "int", 4], ["end"]],
        "types": {"Done": ["struct"]},
    },
    {"Done": Done},
)


async def add(chan: Chan[SumServer]) -> None:
    """Add integers until Done, and send the sum; one beyond 64 bits wraps around."""
    total = 0
    while True:
        number, choice = await chan.recv()
        total += number
        match await choice.offer():
            case (1, again):
                chan = again
            case (2, last):
                _, answer = await last.recv()
                half = 1 << (_BITS - 1)
                end = await answer.send((total + half) % (1 << _BITS) - half)
                return await end.end()
