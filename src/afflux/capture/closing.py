"""Make the rows of connections that have ended, for the table ``connections``."""

from __future__ import annotations

import json
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Any, Final

from afflux.capture.connections import Key, ends_of
from afflux.capture.conversation import Conversation
from afflux.capture.ledger import Ending
from afflux.capture.names import end_text
from afflux.capture.packets import NO_TIME
from afflux.capture.talk import rising
from afflux.capture.window import Seen

__all__ = ["ClosingRows", "by_client", "micros"]

_TEXTS: Final = 1_024
"Setups whose text is kept: the clients of a service begin alike."
_end_text = lru_cache(maxsize=1_024)(end_text)


@lru_cache(maxsize=1_024)
def _address(number: int) -> str:
    return str(IPv4Address(number))


class ClosingRows:
    """Makes rows of connections."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Any, str]] = {}  # by identity, and with it what has that identity

    def row(self, conversation: Conversation, ending: Ending | None, seen: Seen | None, final: bool) -> dict[str, Any]:
        """Return the row of a connection. ``final``: the capture has ended before it."""
        connection, protocol = conversation.connection, conversation.protocol
        way, halves = rising(conversation), connection.halves
        ends = (connection.low, connection.high) if way else (connection.high, connection.low)
        server, client = halves[not way].counts, halves[way].counts
        octets = (server.data, client.data)
        if seen is not None and protocol is None:
            octets = by_client(conversation, seen.octets)
        repeated = server.retransmitted + client.retransmitted
        if seen is not None and protocol is None:
            repeated = sum(seen.repeated)
        closing = seen.closing if seen is not None else ""
        if not closing:
            fins = halves[False].ended and halves[True].ended
            closing = "fin" if fins else "rst" if connection.closed else "open" if final else "dropped"
        packets = (None, None) if seen is None else by_client(conversation, seen.segments)
        return {
            "conn": connection.id,
            "protocol": protocol.name if protocol is not None else None,
            "content": conversation.text,
            "client": _end_text(ends[0]),
            "server": _end_text(ends[1]),
            "opened": micros(connection.time),
            "closing": closing,
            "closed_by": None if seen is None or seen.closer < 0 else ">" if bool(seen.closer) is way else "<",
            "announced_by": None if ending is None or ending.announced < 0 else "<>"[ending.announced],
            "one_way": (octets[0] > 0) is not (octets[1] > 0),
            "client_bytes": octets[1],
            "server_bytes": octets[0],
            "client_packets": packets[1],
            "server_packets": packets[0],
            "lost_bytes": server.lost + client.lost,
            "repeated_bytes": repeated,
            "conflicting_bytes": server.conflicting + client.conflicting,
            "frames": ending.frames if ending else 0,
            "streams": ending.streams if ending else 0,
            "violations": ending.wrong if ending else 0,
            "setup": self.text(ending.setup) if ending else None,
        }

    def text(self, setup: dict[str, Any]) -> str | None:
        """Return the fields of a first frame as JSON; None for none."""
        if not setup:
            return None
        found = self._texts.get(id(setup))
        if found is None:
            if len(self._texts) >= _TEXTS:
                self._texts.clear()
            found = self._texts[id(setup)] = (setup, json.dumps(setup, ensure_ascii=False, default=str))
        return found[1]

    @staticmethod
    def end(key: Key, number: int) -> str:
        """Return one of two ends as text."""
        if len(key) != 2:
            return end_text(ends_of(key)[number])
        address, port = divmod(key[number], 1 << 16)
        return f"{_address(address)}:{port}"


def by_client(conversation: Conversation, pair: tuple[int, int]) -> tuple[int, int]:
    """Return two numbers by direction, the falling one first, as those of the server and of the client."""
    return pair if rising(conversation) else (pair[1], pair[0])


def micros(time: int) -> int | None:
    """Return a time in nanoseconds in microseconds; None for ``NO_TIME``."""
    return None if time == NO_TIME else time // 1_000
