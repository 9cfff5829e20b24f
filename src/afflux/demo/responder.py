"""Define the demo responder, which gives the same answers on every protocol.

- request: echoes data and metadata; route ``fail`` returns an application error with the data as its message, route
  ``slow`` answers after ``{"ms": n}``, route ``stats`` returns the call counts, and the routes are listed.
- stream: ``{"count": n, "size": s}`` returns n items of s bytes, each the item's number padded with dots, with
  ``delay_ms`` between them; route ``flights`` returns flight data, ``{"count": n, "rate": items per second}``, with
  ``"since": seconds since 1970`` as if they had been sent from that time on. For protocols with named publishers,
  ``count:N:SIZE`` is the first of these.
- jmux: a request ``gen N`` returns N bytes.
- channel: echoes each item; route ``sum`` serves the session type of sum.py. fire and push: counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from afflux.aio.current import route_of
from afflux.aio.peer import current_peer
from afflux.calls.listing import LIST_ROUTES, listing
from afflux.core.errors import ApplicationError, Invalid, MissingExtra, Rejected
from afflux.core.payload import Payload
from afflux.demo import flights

__all__ = ["Responder", "numbered"]

MAX_SIZE = 0x100_0000
"Maximum size of an item of ``stream``: 16 MiB."

MAX_MS = 3_600_000
"Maximum delay: an hour."

_NUMBERED = ("count", "size", "delay_ms")
"The keys of a request for numbered items."
_COUNT = re.compile(rb"count:(\d{1,19}):(\d{1,19})")
"Name of a publisher."

BLOCK_ITEMS = 64
BLOCK_BYTES = 0x1_0000
"Items are yielded in lists of this length, or of about this many bytes, whichever is less."


class Responder:
    """The handler of ``afflux serve --demo``."""

    routes = (
        *(("request", route) for route in ("echo", "fail", "slow", "stats", "")),
        *(("stream", route) for route in ("fail", "flights", "")),
        *(("channel", route) for route in ("sum", "")),
        ("fire", ""),
    )
    'The (verb, route) pairs; "" is the call without a route.'

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("request", "stream", "channel", "fire", "push"), 0)

    async def request(self, payload: Payload) -> Payload:
        """Echo the payload, or serve the route."""
        self.counts["request"] += 1
        match _route(payload):
            case "fail":
                raise ApplicationError(message=payload.text)
            case "slow":
                await asyncio.sleep(_number(_object(payload, ("ms",), '{"ms": 100}'), "ms", MAX_MS) / 1000)
            case "stats":
                return Payload(json.dumps(self.counts).encode())
            case route if route == LIST_ROUTES:
                return listing(self.routes)
            case None if payload.data.startswith(b"gen ") and _speaks("jmux"):
                return Payload(b"." * _length(payload))
            case None | "echo":
                pass
            case route:
                raise _unknown(route, "echo, fail, slow, stats")
        return payload

    async def fire(self, payload: Payload) -> None:
        """Count the request."""
        self.counts["fire"] += 1

    async def push(self, metadata: bytes) -> None:
        """Count the metadata."""
        self.counts["push"] += 1

    async def stream(self, payload: Payload) -> AsyncIterator[list[bytes]]:
        """Yield numbered items or flights."""
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
        """Return the fixed element size of a publisher (rsio), or 0."""
        asked = _object(Payload(publisher.encode()))
        return _number(asked, "size", MAX_SIZE) if "size" in asked else 0

    # Item numbers are stable: a journal may call again and skip what it has stored.
    stream.replays = True  # type: ignore[attr-defined]  # an attribute on a function, read by afflux.journal

    def channel(self, items: Any) -> Any:
        """Echo each item, or serve the session ``sum``."""
        self.counts["channel"] += 1
        if _route(items.first) == "sum":
            return _adding(items)
        return _echo(items)

    def session_steps(self, channel: str) -> Any:
        """Return the steps of a channel (limit)."""
        from afflux.demo.sum import SUM
        from afflux.protocols.limit import Plain
        from afflux.protocols.limit.typed import Typed

        return Typed(SUM.server) if channel == "sum" else Plain(client=False)


async def _echo(items: AsyncIterator[Payload]) -> AsyncIterator[Payload]:
    async for item in items:
        yield item


async def _adding(items: Any) -> None:
    from afflux.aio.typed import serve_session
    from afflux.demo.sum import SUM, add

    await serve_session(SUM, add, items)


async def numbered(payload: Payload) -> AsyncIterator[list[bytes]]:
    """Yield items for ``{"count": n, "size": s, "delay_ms": d}``: s bytes each, or only the number without s."""
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
    """Yield flights for ``{"count": n, "rate": r, "since": t}``: the first n (default: all), r per second (default:
    unlimited) from t on (default: now). Those that were due before are sent immediately."""
    asked = _object(payload, ("count", "rate", "since"), '{"count": 1000, "rate": 100}') if payload.data else {}
    count = _number(asked, "count", 1 << 62, flights.TOTAL)
    rate = _number(asked, "rate", 10_000_000, 0)
    loop = asyncio.get_running_loop()
    since = _number(asked, "since", 1 << 40) if "since" in asked else time.time()
    start, sent = loop.time() + since - time.time(), 0
    try:
        await asyncio.to_thread(flights.ordered)
    except MissingExtra as missing:
        raise ApplicationError(message=f"at the server, {missing.message}") from None
    for block in flights.batches(count, min(256, max(1, rate // 20)) if rate else 256):
        if rate:
            await asyncio.sleep(max(0.0, start + sent / rate - loop.time()))
        yield block
        sent += len(block)


def _speaks(protocol: str) -> bool:
    """Whether the current peer uses a protocol."""
    return current_peer().uri.startswith(protocol)


def _length(payload: Payload) -> int:
    """Parse the N of ``gen N``."""
    digits = payload.data[4:].strip()
    if not digits.isdigit() or len(digits) > 9 or int(digits) > MAX_SIZE:
        raise Invalid(f"gen N: N must be 0 to {MAX_SIZE:,}")
    return int(digits)


def _unknown(route: str, known: str) -> Rejected:
    return Rejected(f"unknown route {route[:64]!r} for this interaction; available: {known}, or no route")


def _route(payload: Payload) -> str | None:
    """Return the route or None. Metadata of any type is accepted, so that it can be echoed."""
    try:
        return route_of(payload)
    except Invalid:
        return None


def _object(
    payload: Payload, known: tuple[str, ...] = _NUMBERED, like: str = '{"count": 10, "size": 16}, or count:10:16'
) -> dict[str, Any]:
    """Return the JSON object of a request. Raises Invalid for anything else, and for a key that is not known."""
    if name := _COUNT.fullmatch(payload.data):
        return {"count": int(name[1]), "size": int(name[2])}
    try:
        asked = json.loads(payload.data)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Invalid(f"the data must be a JSON object, such as {like}")
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise Invalid(f"there is no key {unknown[0][:64]!r} here; the keys are {', '.join(known)}")
    return asked


def _number(asked: dict[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Invalid(f'"{name}" must be an integer from 0 to {most:,}')
    return value
