"""Who asks: one interface over an afflux peer and over a peer in a process, so that a case is written once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import afflux
from interop.control import Process, got
from interop.program import Value, shown

__all__ = ["AffluxAsker", "Asker", "Call", "Failed", "Flow", "Item", "ProcessAsker", "RefusedAsker"]


@dataclass(frozen=True, slots=True)
class Item:
    """What arrived."""

    data: Value
    metadata: Value = None


class Failed(Exception):  # noqa: N818 -- what a call came to
    """A call ended with an error."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(f"{'no code' if code is None else hex(code)}: {message}")
        self.code = code
        self.message = message


class Call(Protocol):
    """A request under way."""

    async def take(self, count: int) -> list[Item]:
        """So many items, which must have been asked for. Raises Failed."""

    async def cancel(self) -> None:
        """Give it up."""


class Flow(Call, Protocol):
    """A stream or channel under way. Demand is by hand."""

    async def end(self) -> None:
        """Wait for the end. Raises Failed; AssertionError when an item comes instead."""

    async def more(self, n: int) -> None:
        """Ask for more."""

    async def stopped(self) -> None:
        """Wait until this side's own source is told to stop (channels)."""


class Asker(Protocol):
    """The requester's side."""

    async def request(self, data: bytes, metadata: bytes | None = None, route: str | None = None) -> Item | None:
        """One answer; None when the peer completes without one. Raises Failed."""

    async def start_request(self, data: bytes) -> Call:
        """A request that is not waited for."""

    async def burst(self, count: int, size: int = 0) -> dict[str, Any]:
        """So many echoes of about that size at once: how many were "answered", came "wrong" and, by text, "failed"."""

    async def fire(self, data: bytes, metadata: bytes | None = None) -> None:
        """No answer."""

    async def push(self, metadata: bytes) -> None:
        """Metadata of the connection."""

    async def stream(self, data: bytes, n: int, metadata: bytes | None = None) -> Flow:
        """Many answers."""

    async def channel(self, items: Sequence[bytes | tuple[bytes, bytes]], n: int, **how: Any) -> Flow:
        """Items both ways. ``open``: do not complete; ``endless``: numbers after the items; ``fail``: then an error."""

    async def leased(self) -> None:
        """Wait until a lease has come, where requests do not wait by themselves."""

    async def close(self) -> None:
        """End the connection in order."""

    async def hangup(self) -> None:
        """End this one connection, at a server."""

    async def closed(self) -> str:
        """Wait for its end; why it ended."""

    async def refused(self) -> int | None:
        """Wait until the server refuses the connection; the code."""


# -- a peer in a process ------------------------------------------------------------------------------------


class _ProcessFlow:
    def __init__(self, process: Process, id: int, queue: asyncio.Queue[dict[str, Any]]) -> None:
        self._process = process
        self._id = id
        self._queue = queue
        self._items: list[Item] = []
        self._end: dict[str, Any] | None = None
        self._stopped = False

    async def take(self, count: int) -> list[Item]:
        while len(self._items) < count:
            await self._advance()
        taken, self._items = self._items[:count], self._items[count:]
        return taken

    async def end(self) -> None:
        while self._end is None:
            await self._advance()
        assert not self._items, f"{len(self._items)} items more than expected"
        _raise(self._end)

    async def more(self, n: int) -> None:
        self._process.say("more", of=self._id, n=n)

    async def cancel(self) -> None:
        self._process.say("cancel", of=self._id)

    async def stopped(self) -> None:
        while not self._stopped:
            await self._advance()

    async def _advance(self) -> None:
        if self._end is not None:
            _raise(self._end)
            raise AssertionError("it completed too early")
        told = await got(self._queue)
        if "next" in told:
            self._items.append(Item(**told["next"]))
        self._stopped |= "stopped" in told
        if "complete" in told or "error" in told:
            self._end = told


def _raise(told: dict[str, Any]) -> None:
    if "error" in told:
        raise Failed(**told["error"])


def _blob(data: bytes | None) -> Value:
    return None if data is None else f"h:{data.hex()}"


class ProcessAsker:
    """A peer in a process asks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def request(self, data: bytes, metadata: bytes | None = None, route: str | None = None) -> Item | None:
        told = await self._process.ask("request", data=_blob(data), metadata=_blob(metadata), route=route)
        _raise(told)
        return Item(**told["next"]) if "next" in told else None

    async def start_request(self, data: bytes) -> _ProcessFlow:
        """A request that is not waited for."""
        return _ProcessFlow(self._process, *self._process.say("request", data=_blob(data)))

    async def burst(self, count: int, size: int = 0) -> dict[str, Any]:
        told = await self._process.ask("burst", count=count, size=size)
        _raise(told)
        return dict(told["burst"])

    async def fire(self, data: bytes, metadata: bytes | None = None) -> None:
        _raise(await self._process.ask("fire", data=_blob(data), metadata=_blob(metadata)))

    async def push(self, metadata: bytes) -> None:
        _raise(await self._process.ask("push", metadata=_blob(metadata)))

    async def stream(self, data: bytes, n: int, metadata: bytes | None = None) -> _ProcessFlow:
        order = self._process.say("stream", data=_blob(data), metadata=_blob(metadata), n=n)
        return _ProcessFlow(self._process, *order)

    async def channel(self, items: Sequence[bytes | tuple[bytes, bytes]], n: int, **how: Any) -> _ProcessFlow:
        told = [_pair(item) for item in items]
        blobs = [{"data": _blob(data), "metadata": _blob(metadata)} for data, metadata in told]
        return _ProcessFlow(self._process, *self._process.say("channel", items=blobs, n=n, **how))

    async def leased(self) -> None:
        if self._process.tells_leases:
            await self._process.facts.wait("leased")

    async def close(self) -> None:
        await self._process.ask("close")

    async def hangup(self) -> None:
        _raise(await self._process.ask("hangup"))

    async def closed(self) -> str:
        return str((await self._process.facts.wait("closed"))["message"])

    async def refused(self) -> int | None:
        return (await self._process.facts.wait("refused"))["code"]  # type: ignore[no-any-return]


def _pair(item: bytes | tuple[bytes, bytes]) -> tuple[bytes, bytes | None]:
    return item if isinstance(item, tuple) else (item, None)


# -- afflux -------------------------------------------------------------------------------------------------


def _item(payload: afflux.Payload) -> Item:
    return Item(shown(payload.data), shown(payload.metadata))


def _failed(error: afflux.Error) -> Failed:
    return Failed(error.code, error.message)


class _AffluxFlow:
    def __init__(self) -> None:
        self._items: afflux.ItemStream
        self._stop = asyncio.Event()

    def open(self, items: afflux.ItemStream, n: int) -> _AffluxFlow:
        self._items = items
        try:
            items.request(n)
        except afflux.Error as error:
            raise _failed(error) from error
        return self

    async def take(self, count: int) -> list[Item]:
        taken: list[Item] = []
        while len(taken) < count:
            try:
                taken.append(_item(await anext(self._items)))
            except StopAsyncIteration:
                raise AssertionError("it completed too early") from None
            except afflux.Error as error:
                raise _failed(error) from error
        return taken

    async def end(self) -> None:
        try:
            item = await anext(self._items)
        except StopAsyncIteration:
            return
        except afflux.Error as error:
            raise _failed(error) from error
        raise AssertionError(f"one item more than expected: {item}")

    async def more(self, n: int) -> None:
        self._items.request(n)

    async def cancel(self) -> None:
        await self._items.aclose()

    async def stopped(self) -> None:
        await self._stop.wait()

    async def source(self, items: Sequence[bytes | tuple[bytes, bytes]], how: dict[str, Any]) -> AsyncIterator[Any]:
        """This side's items; afflux takes them as it is granted credit."""
        try:
            for item in items:
                yield afflux.Payload(*item) if isinstance(item, tuple) else item
            count = 0
            while how.get("endless"):
                yield b"%d" % count
                count += 1
            if fail := how.get("fail"):
                raise afflux.ApplicationError(0x201, fail)
            if how.get("open"):
                await asyncio.Event().wait()
        finally:
            self._stop.set()


class _AffluxRequest:
    """A request under way."""

    def __init__(self, peer: afflux.Peer, data: bytes) -> None:
        self._task = asyncio.ensure_future(peer.request(data))
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # some cases do not look

    async def take(self, count: int) -> list[Item]:
        try:
            return [_item(await self._task)]
        except afflux.Error as error:
            raise _failed(error) from error

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


class AffluxAsker:
    """afflux asks."""

    def __init__(self, peer: afflux.Peer) -> None:
        self._peer = peer

    @property
    def peer(self) -> afflux.Peer:
        """The peer object."""
        return self._peer

    async def request(self, data: bytes, metadata: bytes | None = None, route: str | None = None) -> Item | None:
        try:
            if route is None:
                return _item(await self.peer.request(data, metadata=metadata))
            return _item(await self.peer.request(data, metadata=routed(route)))
        except afflux.Error as error:
            raise _failed(error) from error

    async def start_request(self, data: bytes) -> _AffluxRequest:
        """A request that is not waited for."""
        return _AffluxRequest(self.peer, data)

    async def burst(self, count: int, size: int = 0) -> dict[str, Any]:
        sent = [b"%d" % i + bytes(size) for i in range(count)]
        came = await asyncio.gather(*map(self.peer.request, sent), return_exceptions=True)
        failed = Counter(str(one) for one in came if isinstance(one, BaseException))
        whole = [(data, one) for data, one in zip(sent, came, strict=True) if not isinstance(one, BaseException)]
        answered = sum(item.data == data for data, item in whole)
        return {"answered": answered, "wrong": len(whole) - answered, "failed": dict(failed)}

    async def fire(self, data: bytes, metadata: bytes | None = None) -> None:
        try:
            await self.peer.fire(data, metadata=metadata)
        except afflux.Error as error:
            raise _failed(error) from error

    async def push(self, metadata: bytes) -> None:
        await self.peer.push(metadata)

    async def stream(self, data: bytes, n: int, metadata: bytes | None = None) -> _AffluxFlow:
        return _AffluxFlow().open(self.peer.stream(data, metadata=metadata, credit=0), n)

    async def channel(self, items: Sequence[bytes | tuple[bytes, bytes]], n: int, **how: Any) -> _AffluxFlow:
        flow = _AffluxFlow()
        metadata = None if how.get("route") is None else routed(how["route"])
        return flow.open(self.peer.channel(flow.source(items, how), metadata=metadata, credit=0), n)

    async def leased(self) -> None:
        while not (lease := self.peer.lease) or not lease.requests:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.peer.close()

    async def hangup(self) -> None:
        await self.peer.close()

    async def closed(self) -> str:
        await self.peer.wait_closed()
        return str(self.peer.error or "")

    async def refused(self) -> int | None:
        await self.peer.wait_closed()
        assert isinstance(self.peer.error, afflux.SetupRefused), repr(self.peer.error)
        return self.peer.error.code


class RefusedAsker(AffluxAsker):
    """afflux was refused before it could ask."""

    def __init__(self, error: afflux.Error) -> None:
        self._error = error

    @property
    def peer(self) -> afflux.Peer:
        """There is none."""
        raise _failed(self._error)

    async def refused(self) -> int | None:
        return self._error.code


def routed(route: str) -> bytes:
    """Composite metadata as the peers send it: a route, and an entry of an unknown type."""
    from afflux.protocols.rsocket.metadata import compose

    return compose([("text/x-interop", b"extra")], route=route)
