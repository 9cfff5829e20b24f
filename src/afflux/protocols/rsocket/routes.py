"""Keep the routes of a broker: find the connections that an ADDRESS selects by their tags. See metadata/broker.py for
the frames.

1. A route has one connection (R-61), and a change is applied only if it is newer than the last one (R-62).
2. A route matches if it has every tag of the ADDRESS (R-63). In a shard ADDRESS, ShardKey, ShardMethod and the tag that
   the ShardKey names select among the matches; they are not tags that a route must have.
3. Timestamps are those of the frames. The table and the tombstones of removed routes are bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from afflux.core.errors import LimitExceeded
from afflux.protocols.rsocket.metadata.broker import Address, RouteJoin, RouteRemove
from afflux.protocols.rsocket.metadata.mime import invalid

__all__ = ["Member", "RouteTable", "route_text"]

_Target = TypeVar("_Target")

_HINTS = frozenset(("ShardKey", "ShardMethod"))
"Keys of a shard ADDRESS that select among matches."


@dataclass(slots=True, eq=False)
class Member(Generic[_Target]):
    """A route in the table."""

    id: bytes
    name: str
    tags: frozenset[tuple[str, str | None]]
    "With those that are added: ServiceName and RouteId (R-63)."
    timestamp: int
    target: _Target
    "Its connection."
    turn: int = field(default=0, repr=False)
    "When it was chosen last."


class RouteTable(Generic[_Target]):
    """Routes by their tags.

    Args:
        routes: the most routes.
        tags: the most tags of one route.
        tombstones: the most removed routes that are remembered, ``Limits.tombstones``: an older change of one is not
            applied.
        pick: chooses among the routes of a unicast request; the least recently used one if None.
    """

    def __init__(
        self,
        *,
        routes: int = 10_000,
        tags: int = 64,
        tombstones: int = 1024,
        pick: Callable[[Sequence[Member[_Target]]], Member[_Target]] | None = None,
    ) -> None:
        self._most = routes
        self._most_tags = tags
        self._most_gone = tombstones
        self._pick = pick or self._round_robin
        self._turn = 0
        self._members: dict[bytes, Member[_Target]] = {}
        self._by_tag: dict[tuple[str, str | None], dict[bytes, Member[_Target]]] = {}
        self._gone: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def find(self, route_id: bytes) -> Member[_Target] | None:
        """The route with an id."""
        return self._members.get(route_id)

    def join(self, frame: RouteJoin, target: _Target) -> bool:
        """Add a route, or replace it with its connection and its tags (R-61); False when more is known (R-62).

        Raises:
            LimitExceeded: there are too many, or it has too many tags.
        """
        if not self._is_newer(frame.route_id, frame.timestamp):
            return False
        if len(frame.tags) > self._most_tags:
            text = f"too-many-tags: a route has {self._most_tags} at most, not {len(frame.tags)}"
            raise LimitExceeded(text, rule="too-many-tags")
        if frame.route_id not in self._members and len(self._members) >= self._most:
            raise LimitExceeded(f"too-many-routes: there are {self._most} already", rule="too-many-routes")
        self._drop(frame.route_id)
        self._gone.pop(frame.route_id, None)
        keys = {key for key, _ in frame.tags}
        added = (("ServiceName", frame.name), ("RouteId", route_text(frame.route_id)))
        tags = frozenset((*frame.tags, *(tag for tag in added if tag[0] not in keys)))
        member = Member(frame.route_id, frame.name, tags, frame.timestamp, target)
        self._members[member.id] = member
        for tag in tags:
            self._by_tag.setdefault(tag, {})[member.id] = member
        return True

    def remove(self, frame: RouteRemove) -> bool:
        """Take a route out; False when more is known (R-62)."""
        if not self._is_newer(frame.route_id, frame.timestamp):
            return False
        self._drop(frame.route_id)
        self._gone[frame.route_id] = frame.timestamp
        self._gone.move_to_end(frame.route_id)
        if len(self._gone) > self._most_gone:
            self._gone.popitem(last=False)
        return True

    def choose(self, address: Address) -> list[Member[_Target]]:
        """The routes that a request reaches: one, or all matches of a multicast; empty without a match.

        Raises:
            Violation: a shard ADDRESS without a ShardKey, or with one that names no tag of it (R-68): INVALID.
        """
        if address.method == "shard":
            shards = _sharded(address)
            found = self._matching([tag for tag in address.tags if tag[0] not in _HINTS and tag[0] not in shards])
            return [_shard(found, shards)] if found else []
        found = self._matching(address.tags)
        return found if address.method == "multicast" or not found else [self._pick(found)]

    def _matching(self, tags: Sequence[tuple[str, str | None]]) -> list[Member[_Target]]:
        """The routes that have every tag (R-63)."""
        if not tags:
            return list(self._members.values())
        fewest = min((self._by_tag.get(tag, {}) for tag in tags), key=len)
        return [member for member in fewest.values() if member.tags.issuperset(tags)]

    def _round_robin(self, found: Sequence[Member[_Target]]) -> Member[_Target]:
        """Exactly one (R-67): the one that was not chosen for the longest time."""
        chosen = min(found, key=lambda member: member.turn)
        self._turn += 1
        chosen.turn = self._turn
        return chosen

    def _is_newer(self, route_id: bytes, timestamp: int) -> bool:
        member = self._members.get(route_id)
        known = self._gone.get(route_id) if member is None else member.timestamp
        return known is None or timestamp > known

    def _drop(self, route_id: bytes) -> None:
        member = self._members.pop(route_id, None)
        for tag in () if member is None else member.tags:
            there = self._by_tag[tag]
            del there[route_id]
            if not there:
                del self._by_tag[tag]


def route_text(route_id: bytes) -> str:
    """A route's id as the tag RouteId has it: ``00010203-0405-…``."""
    text = route_id.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _sharded(address: Address) -> dict[str, list[str | None]]:
    """The values of the tags that the ShardKeys of an ADDRESS name."""
    named = [value or "" for key, value in (*(address.metadata or ()), *address.tags) if key == "ShardKey"]
    if not named:
        raise invalid("a shard ADDRESS has no ShardKey", "R-68")
    shards = {}
    for name in _canonical_all(named):
        values = [value for key, value in address.tags if key == name]
        if not values:
            raise invalid(f"the ShardKey names {name}, which is not a tag of the request", "R-68")
        shards[name] = values
    return shards


def _canonical_all(names: Iterable[str]) -> list[str]:
    """Canonical keys: a ShardKey may contain ``io.rsocket.routing.UserId``."""
    return [key for key, _ in Address([(name, None) for name in names]).tags]


def _shard(found: Sequence[Member[_Target]], shards: dict[str, list[str | None]]) -> Member[_Target]:
    """The route that the values belong to: the same one while it is there, in every process; others move as little
    as can be when routes come and go."""
    values = repr(sorted(shards.items())).encode("utf-8", "backslashreplace")
    return max(found, key=lambda member: blake2b(values, digest_size=8, key=member.id).digest())
