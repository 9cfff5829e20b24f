"""Run afflux as the responder: program.py as an afflux handler, which reports the same facts as the peers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import afflux
from afflux.protocols.rsocket.metadata import ROUTING_MIME, entries, tags
from interop.control import Facts
from interop.program import answer, digest, plan, shown, words

__all__ = ["Responder"]


def _route(metadata: bytes) -> str:
    """Read the route and the other entries."""
    found = []
    for mime, value in entries(metadata):
        found.append(next(tags(value)) if mime == ROUTING_MIME else f"{mime}={len(value)}")
    return " ".join(found)


def _error(error: tuple[int, str]) -> afflux.Error:
    """Return the exception for a code."""
    code, text = error
    kinds = {0x202: afflux.Rejected, 0x203: afflux.Canceled, 0x204: afflux.Invalid}
    kind = kinds.get(code)
    return afflux.ApplicationError(code, text) if kind is None else kind(text)


class Responder:
    """The handler. It records what happens in ``facts``."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def _tell(self, name: str, **more: Any) -> None:
        self._facts.tell({"fact": name, **more})

    async def setup(self, setup: Any, peer: afflux.Peer, reject: bool) -> None:
        """``on_setup`` of the server."""
        mimes = {"data_mime": setup.data_mime, "metadata_mime": setup.metadata_mime}
        self._tell("setup", data=shown(setup.data), metadata=shown(setup.metadata), **mimes)
        if reject:
            raise afflux.SetupRefused("no entry", code=3)

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        made = answer(payload.data, payload.metadata, _route)
        if made.never is not None:
            await self._never(made.never)
        if made.slow:
            await asyncio.sleep(made.slow)
        if made.error is not None:
            raise _error(made.error)
        return afflux.Payload(made.data, made.metadata)

    async def _never(self, tag: str) -> None:
        self._tell("never", tag=tag)
        try:
            await asyncio.Event().wait()
        finally:
            self._tell("canceled", tag=tag)

    async def fire(self, payload: afflux.Payload) -> None:
        self._tell("fired", data=shown(payload.data), metadata=shown(payload.metadata))

    async def push(self, metadata: bytes) -> None:
        self._tell("pushed", metadata=shown(metadata))

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[afflux.Payload]:
        made = plan(payload.data, payload.metadata)
        if made.silent:
            await self._never(str(made.tag))
        try:
            for data, metadata in made.items:
                yield afflux.Payload(data, metadata)
        finally:
            if made.tag is not None:
                self._tell("canceled", tag=made.tag)
        if made.error is not None:
            raise _error(made.error)

    async def channel(self, items: afflux.ItemStream) -> AsyncIterator[afflux.Payload | bytes]:
        try:
            async for item in self._channel(items):
                yield item
        except afflux.Error as error:
            self._tell("failed", message=error.message, code=error.code)
            raise

    async def _channel(self, items: afflux.ItemStream) -> AsyncIterator[afflux.Payload | bytes]:
        assert items.first is not None
        mode, *rest = words(items.first.data)
        match mode:
            case "take":
                taken = 0
                async for _ in items:
                    taken += 1
                    if taken == int(rest[0]):
                        break
                items.cancel()
                yield b"took %d" % taken
            case "fail":
                left = int(rest[0])
                async for _ in items:
                    left -= 1
                    if not left:
                        raise _error((0x201, " ".join(rest[1:])))
            case "never":
                await anext(items)
                await self._watch(rest[0], items)
            case "half":
                yield b"half"
                items.complete()
                count = 0
                async for _ in items:
                    count += 1
                self._tell("ended", tag="half", count=count)
            case "sum":
                yield await _sum(items)
            case _:
                async for item in items:
                    yield item

    async def _watch(self, tag: str, items: afflux.ItemStream) -> None:
        self._tell("never", tag=tag)
        count = 1
        try:
            async for _ in items:
                count += 1
            self._tell("ended", tag="never", count=count)
            await asyncio.Event().wait()
        finally:
            self._tell("canceled", tag=tag)


async def _sum(items: afflux.ItemStream) -> bytes:
    count = size = 0
    hash = hashlib.sha256()
    async for item in items:
        count += 1
        size += len(item.data)
        hash.update(item.data)
    return f"{count} {size} {hash.hexdigest()[:16]}".encode()


def expected_sum(items: list[bytes]) -> bytes:
    """Return the answer of a channel in mode "sum"."""
    return f"{len(items)} {sum(map(len, items))} {digest(b''.join(items))}".encode()
