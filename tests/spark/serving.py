"""The server of these tests, a process of its own: ``python serving.py DIRECTORY PORT [JOURNAL_BYTES]`` prints its
address.

Streams are numbered items, journalled and served by cursor; routes that start with ``lie-`` answer a cursor as no
from afflux.core.errors import ApplicationError, Invalid, Rejected
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import afflux
from afflux.core.errors import ApplicationError, Invalid, Rejected
from afflux.journal import Journalled
from afflux.protocols.rsocket.cursor import (
    UNKNOWN_SHARD,
    Head,
    Position,
    Read,
    State,
    encode_entry,
    split_request,
    with_position,
)
from afflux.protocols.rsocket.gap import Gap, Place

STEP = 100
"Items that a handler yields at once."
LIE_EPOCH = 7
LIE_HEAD = 100
TIME_US = 1_700_000_000_000_000
GAPS = {0, 41, 42, 777, 999}
"The items of the routes ``gaps`` and ``older-gaps`` that record a gap."
GAP = Gap(cause="the remote has dropped them", before=Place(77, 10), after=Place(77, 100), lost=90)


def _json(row: dict[str, object]) -> bytes:
    return json.dumps(row).encode()


def _arrow(row: dict[str, object]) -> bytes:
    import pyarrow as pa

    by = pa.map_(pa.string(), pa.list_(pa.int64()))
    table = pa.Table.from_pylist([row], pa.schema([("id", pa.int32()), ("at", pa.string()), ("by", by)]))
    table = table.set_column(1, "at", table.column("at").cast(pa.timestamp("us")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def _cbor(row: dict[str, object]) -> bytes:
    import cbor2

    return bytes(cbor2.dumps(row))


def _msgpack(row: dict[str, object]) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(row)


AT = "2013-07-01T05:15:00"
ENCODERS: dict[str | None, Callable[[dict[str, object]], bytes]] = {
    "format-json": _json,
    "format-msgpack": _msgpack,
    "format-cbor": _cbor,
    "format-arrow": _arrow,
}
"Routes of the same rows in each format; one of a hundred is malformed."


@dataclass
class Asked:
    """What the request's data asks for, as JSON."""

    count: int = 1000
    size: int = 16
    open: bool = False
    "True: the stream does not end after the last item."
    every_ms: int = 0
    "If ``open``: another item follows after so many milliseconds, without end; 0: none."


def item(route: str | None, number: int, size: int) -> afflux.Payload | bytes:
    """The item of that number."""
    if route == "varied":
        return b"%d" % number + b"." * (number % 50)
    if route == "tagged":
        return afflux.Payload(b"%d" % number, (b"tag %d" % number, b"", None)[number % 3])
    if route in ("gaps", "older-gaps"):
        return GAP.item() if number in GAPS else afflux.Payload(b"%d" % number, (b"tag", None)[number % 2])
    if route == "json":
        return b'{"id": "bad"}' if number % 100 == 7 else json.dumps({"id": number, "name": f"n{number}"}).encode()
    if route in ENCODERS:
        return b"\xc1" if number % 100 == 7 else ENCODERS[route]({"id": number, "at": AT, "by": {"k": [number]}})
    return (b"%d" % number).ljust(size, b".")


class Numbers:
    """Streams of numbered items, the same each time."""

    replays = True

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[afflux.Payload | bytes]]:
        asked = Asked(**json.loads(payload.data or b"{}"))
        route = afflux.route_of(payload)
        for first in range(0, asked.count, STEP):
            yield [item(route, number, asked.size) for number in range(first, min(first + STEP, asked.count))]
            await asyncio.sleep(0)
        number = asked.count
        while asked.open and asked.every_ms:
            await asyncio.sleep(asked.every_ms / 1000)
            yield [item(route, number, asked.size)]
            number += 1
        if asked.open:
            await asyncio.Event().wait()


class Live:
    """Numbered items without a cursor: each subscription continues where the last one was, after a jump of 100."""

    def __init__(self) -> None:
        self._next = -100

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        self._next += 100
        while True:
            self._next += 1
            yield item(None, self._next - 1, 16)
            await asyncio.sleep(0.002)


class Liar:
    """Answers cursors wrongly, in the way that the route says; on
    ``lie-exact`` rightly, with 11 shards."""

    def __init__(self) -> None:
        self._failed = False

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[list[afflux.Payload | bytes]]:
        route = (afflux.route_of(payload) or "").removeprefix("lie-")
        cursor, _ = split_request(payload.metadata)
        if cursor is not None and route != "unsharded" and cursor.shard > (10 if route == "exact" else 0):
            raise ApplicationError(UNKNOWN_SHARD, f"unknown shard {cursor.shard}")
        if isinstance(cursor, Head):
            shard = 0 if route == "unsharded" else cursor.shard
            state = State(shard=shard, epoch=LIE_EPOCH, first=0, head=LIE_HEAD, time_us=TIME_US, sealed=True)
            yield [afflux.Payload(b"", encode_entry(state))]
        elif isinstance(cursor, Read):
            for part in self._answer(route, cursor):
                yield [part]
            if route == "flaky" and not self._failed:
                self._failed = True
                raise ApplicationError(message="the disk is on fire")

    def _answer(self, route: str, cursor: Read) -> Iterator[afflux.Payload | bytes]:
        at = 0 if route == "back" else cursor.first
        epoch = LIE_EPOCH + 1 if route == "epoch" else LIE_EPOCH
        shard = cursor.shard
        numbers = list(range(cursor.first, cursor.first + cursor.limit))
        if route == "short" or (route == "flaky" and not self._failed):
            numbers = numbers[: len(numbers) // 2]
        if route == "long":
            numbers.append(numbers[-1] + 1)
        for place, number in enumerate(numbers):
            data = b"%d" % number
            if place == 0 and route != "bare":
                yield afflux.Payload(
                    data, with_position(Position(shard=shard, epoch=epoch, offset=at, time_us=TIME_US), None)
                )
            elif route == "gap" and place == 10:
                position = Position(shard=shard, epoch=epoch, offset=number + 5, time_us=TIME_US)
                yield afflux.Payload(data, with_position(position, None))
            elif route == "gap" and place >= len(numbers) - 5:
                return
            else:
                yield data


class Front:
    """Sends each request where its route belongs."""

    def __init__(self, journalled: Journalled) -> None:
        self._journalled = journalled
        self._numbers = Numbers()
        self._liar = Liar()
        self._live = Live()

    def stream(self, payload: afflux.Payload) -> AsyncIterator[object]:
        route = afflux.route_of(payload) or ""
        if route == "refused":
            raise Rejected(f'no route "{route}" for stream')
        if route == "plain":
            return self._numbers.stream(afflux.Payload(b"{}"))
        if route == "replayed":
            return self._numbers.stream(payload)
        if route == "live":
            return self._live.stream(payload)
        if route.startswith("older") and getattr(split_request(payload.metadata)[0], "blocks", False):
            raise Invalid("a READ cursor has unknown flags 0x01")
        handler = self._liar if route.startswith("lie-") else self._journalled
        return handler.stream(payload)


async def main(directory: str, port: str, journal_bytes: str | None = None) -> None:
    limits = afflux.Limits.server() if journal_bytes is None else afflux.Limits.server(journal_bytes=int(journal_bytes))
    async with (
        Journalled(Numbers(), directory, limits=limits) as journalled,
        afflux.serve(f"tcp://127.0.0.1:{port}", Front(journalled)) as server,
    ):
        print(server.uri, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
