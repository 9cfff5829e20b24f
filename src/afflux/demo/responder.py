"""The demo responder: the same answers on every protocol, so that anything can be tried against it.

- request: echoes data and metadata; route ``fail`` answers an application error with the data as its message, route
  ``slow`` answers after ``{"ms": n}``, route ``stats`` tells what was counted.
- stream: ``{"count": n, "size": s}`` answers n items of s bytes, each the item's number padded with dots, with
  ``delay_ms`` between them; route ``flights`` answers real flights, ``{"count": n, "rate": items a second}``. The
  publisher ``count:N:SIZE`` is the first of these where a stream is asked for by a name.
- jmux: a request ``gen N`` is answered by N bytes.
- channel: echoes each item. fire and push: counted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from afflux.core.errors import ApplicationError, Invalid, Rejected
from afflux.core.payload import Payload
from afflux.demo import flights

__all__ = ["Responder", "numbered"]

MAX_SIZE = 0x100_0000
"The largest item that ``stream`` makes: 16 MiB."

MAX_MS = 3_600_000
"The longest wait that may be asked for: an hour."

_COUNT = re.compile(rb"count:(\d{1,19}):(\d{1,19})")
"The name of a publisher."

BLOCK_ITEMS = 64
BLOCK_BYTES = 0x1_0000
"Items are handed over in lists of this many, or of about this many bytes: whichever is less."


class Responder:
    """The handler of ``afflux serve --demo``."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("request", "stream", "channel", "fire", "push"), 0)

    async def request(self, payload: Payload) -> Payload:
        """Echo, or what the route asks for."""
        self.counts["request"] += 1
        match _route(payload):
            case "fail":
                raise ApplicationError(message=payload.text)
            case "slow":
                await asyncio.sleep(_number(_object(payload), "ms", MAX_MS) / 1000)
            case "stats":
                return Payload(json.dumps(self.counts).encode())
            case None if payload.data.startswith(b"gen ") and _speaks("jmux"):
                return Payload(b"." * _length(payload))
            case None | "echo":
                pass
            case route:
                raise _unknown(route, "echo, fail, slow, stats")
        return payload

    async def fire(self, payload: Payload) -> None:
        """Count it."""
        self.counts["fire"] += 1

    async def push(self, metadata: bytes) -> None:
        """Count it."""
        self.counts["push"] += 1

    async def stream(self, payload: Payload) -> AsyncIterator[list[bytes]]:
        """Numbered items, or the flights."""
        self.counts["stream"] += 1
        match _route(payload):
            case "fail":
                raise ApplicationError(message=payload.text)
            case "flights":
                blocks = flown(payload)
            case None:
                blocks = numbered(payload)
            case route:
                raise _unknown(route, "fail, flights")
        async for block in blocks:
            yield block

    def element_size(self, publisher: str) -> int:
        """Bytes of each element of a publisher, where elements may have one size (rsio)."""
        asked = _object(Payload(publisher.encode()))
        return _number(asked, "size", MAX_SIZE) if "size" in asked else 0

    # A flight keeps its number for good: a journal may start the stream again and skip what it holds.
    stream.replays = True  # type: ignore[attr-defined]  # an attribute on a function, read by afflux.journal

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[Payload]:
        """Echo each item."""
        self.counts["channel"] += 1
        async for item in items:
            yield item


async def numbered(payload: Payload) -> AsyncIterator[list[bytes]]:
    """``{"count": n, "size": s, "delay_ms": d}``: items of exactly s bytes, or just the number without a size."""
    asked = _object(payload)
    count = _number(asked, "count", 1 << 62)
    size = _number(asked, "size", MAX_SIZE) if "size" in asked else None
    delay = _number(asked, "delay_ms", MAX_MS, 0) / 1000
    step = 1 if delay else max(1, min(BLOCK_ITEMS, BLOCK_BYTES // max(1, size or 1)))
    for first in range(0, count, step):
        if delay and first:
            await asyncio.sleep(delay)
        numbers = range(first, min(first + step, count))
        if size is None:
            yield [b"%d" % number for number in numbers]
        else:
            yield [(b"%d" % number).ljust(size, b".")[:size] for number in numbers]


async def flown(payload: Payload) -> AsyncIterator[list[bytes]]:
    """``{"count": n, "rate": r}``: the first n flights (all without it), r a second (as fast as they go without it)."""
    asked = _object(payload) if payload.data else {}
    count = _number(asked, "count", 1 << 62, flights.TOTAL)
    rate = _number(asked, "rate", 10_000_000, 0)
    loop = asyncio.get_running_loop()
    start, sent = loop.time(), 0
    await asyncio.to_thread(flights.ordered)
    for block in flights.batches(count, min(256, max(1, rate // 20)) if rate else 256):
        if rate:
            await asyncio.sleep(max(0.0, start + sent / rate - loop.time()))
        yield block
        sent += len(block)


def _speaks(protocol: str) -> bool:
    """Whether the running handler's peer speaks a protocol."""
    from afflux.aio.peer import current_peer

    return current_peer().uri.startswith(protocol)


def _length(payload: Payload) -> int:
    """The N of ``gen N``."""
    digits = payload.data[4:].strip()
    if not digits.isdigit() or len(digits) > 9 or int(digits) > MAX_SIZE:
        raise Invalid(f"gen N has an N of 0 to {MAX_SIZE:,}")
    return int(digits)


def _unknown(route: str, known: str) -> Rejected:
    return Rejected(f"there is no route {route[:64]!r} for this verb; there is: {known}, or none at all")


def _route(payload: Payload) -> str | None:
    """The route, or None: metadata of any kind is welcome here, so that anything can be echoed."""
    from afflux import route_of

    try:
        return route_of(payload)
    except Invalid:
        return None


def _object(payload: Payload) -> dict[str, Any]:
    if name := _COUNT.fullmatch(payload.data):
        return {"count": int(name[1]), "size": int(name[2])}
    try:
        asked = json.loads(payload.data)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Invalid('the data is a JSON object, such as {"count": 10, "size": 16}, or count:10:16')
    return asked


def _number(asked: dict[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Invalid(f'"{name}" is a whole number from 0 to {most:,}')
    return value
