"""Know the route of each frame: the one of the request that opened its stream."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final

from afflux.core.meanings import Act, Meaning, Meanings
from afflux.protocols.registry import PROTOCOLS

__all__ = ["MOST_STREAMS", "Routes"]

MOST_STREAMS: Final = 0x1_0000
"Streams with a route, and connections, that are remembered. The one that was opened first is forgotten."


class Routes:
    """The routes of frames, in the order in which the frames were sent.

    The route is in the metadata of a request, in its first fragment, or it is what the protocol has instead: the
    channel of Limit-Stream, the publisher of reactive-streams-io. Later frames of the stream have the same route.
    """

    def __init__(self) -> None:
        self._setups: dict[Hashable, Mapping[str, Any]] = {}
        self._streams: dict[Hashable, tuple[str, str | None]] = {}
        "The requester, and the route."

    def route(self, record: Mapping[str, Any]) -> str | None:
        """Return the route of a frame; None if it has none, or if its stream was opened too long ago.

        Args:
            record: the frame record, with ``metadata`` as bytes or hexadecimal. Each record is passed once.
        """
        entry = PROTOCOLS.get(record["protocol"])
        meanings = None if entry is None else entry.meanings
        if meanings is None or record["error"] is not None:
            return None
        meaning = meanings.frames.get(record["type"])
        if meaning is None:
            return None
        acts = reduce(or_, (act for letter, act in meaning.flags.items() if letter in record["flags"]), meaning.acts)
        if acts & Act.FIRST and acts & Act.CLIENT:
            _remember(self._setups, record["conn"], record["fields"])
        if acts & Act.CONNECTION:
            return self._read(meanings, record) if acts & Act.OPEN else None
        key = _key(meanings, meaning, record)
        if acts & Act.OPEN:
            return self._opened(key, meanings, record)
        return self._streams.get(key, ("", None))[1]

    def _opened(self, key: Hashable, meanings: Meanings, record: Mapping[str, Any]) -> str | None:
        """Remember a request. A later frame of the same type and side is an item of the stream, if it has no route."""
        route = self._read(meanings, record)
        requester, known = self._streams.get(key, ("", None))
        if route is None and requester == record["dir"] and not meanings.one:
            return known
        _remember(self._streams, key, (record["dir"], route))
        return route

    def _read(self, meanings: Meanings, record: Mapping[str, Any]) -> str | None:
        metadata = record["metadata"]
        octets = bytes.fromhex(metadata) if isinstance(metadata, str) else metadata
        return meanings.route(octets, record["fields"], self._setups.get(record["conn"], {}))


def _key(meanings: Meanings, meaning: Meaning, record: Mapping[str, Any]) -> Hashable:
    """Return what identifies a stream."""
    if meanings.one:
        return (record["conn"],)
    if not meanings.own_ids:
        return record["conn"], record["stream"]
    asks = bool(meaning.acts & Act.ASKER)
    return record["conn"], record["stream"], asks is (record["dir"] == ">")


def _remember(known: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    known.pop(key, None)
    if len(known) >= MOST_STREAMS:
        del known[next(iter(known))]
    known[key] = value
