"""Handlers and small tools that the tests of the drivers share. No tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from afflux import ApplicationError, Payload


class Demo:
    """Answers everything, and remembers what was not to be answered."""

    def __init__(self) -> None:
        self.fired: asyncio.Queue[Payload] = asyncio.Queue()
        self.pushed: asyncio.Queue[bytes] = asyncio.Queue()
        self.made = 0
        self.closed = 0

    async def request(self, payload: Payload) -> Payload:
        """Echo."""
        return payload

    async def fire(self, payload: Payload) -> None:
        """Remember."""
        await self.fired.put(payload)

    async def push(self, metadata: bytes) -> None:
        """Remember."""
        await self.pushed.put(metadata)

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """``b"N"``: the numbers below N."""
        try:
            for i in range(int(payload.data)):
                self.made += 1
                yield b"%d" % i
        finally:
            self.closed += 1

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each."""
        try:
            async for item in items:
                yield item.data
        finally:
            self.closed += 1


class Waits:
    """Handlers that wait until they are told, or canceled."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.left: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()

    async def request(self, payload: Payload) -> Payload:
        """Echo, when told."""
        await self._wait("request")
        return payload

    async def fire(self, payload: Payload) -> None:
        """Wait."""
        await self._wait("fire")

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """One item, then wait."""
        yield b"first"
        await self._wait("stream")
        yield b"second"

    async def _wait(self, verb: str) -> None:
        await self.entered.put(verb)
        try:
            await self.go.wait()
            await self.left.put(f"{verb} done")
        except asyncio.CancelledError:
            await self.left.put(f"{verb} canceled")
            raise


class Fails:
    """Handlers that raise what the request names."""

    errors: tuple[BaseException, ...] = (
        ApplicationError(0x301, "mine"),
        ValueError("a secret"),
    )

    async def request(self, payload: Payload) -> Payload:
        """Raise."""
        raise self.errors[int(payload.data)]

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """One item, then raise."""
        yield b"first"
        raise self.errors[int(payload.data)]


async def turns(n: int = 5) -> None:
    """Let the loop do some turns."""
    for _ in range(n):
        await asyncio.sleep(0)
