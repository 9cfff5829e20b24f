"""What the processes of nursery.py do until they die. No tests.

A client writes what it has taken into a file, at once: one line an item. A line can come twice in a row, when its
process died before it asked for the next item; never otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator
from typing import Any

import afflux
import afflux.aio.client
import afflux.aio.server
import afflux.protocols.rsocket.engine
import afflux.resume.record
import afflux.transports.tcp
from afflux import Backoff, Limits, Payload
from tests.resume.nursery import tell

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.005, most=0.02, jitter=0.0)


def live(life: str, arguments: list[Any]) -> None:
    """Run one function of this file, and end the process."""
    try:
        asyncio.run(globals()[life](*arguments))
    except BaseException:
        tell(f"failed {traceback.format_exc()!r}")
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
    os._exit(0)


def die() -> None:
    """SIGKILL, now."""
    os.kill(os.getpid(), signal.SIGKILL)


class Notes:
    """The application's own record of what it took; it dies right after the entries of the numbers in ``deaths``."""

    def __init__(self, path: str, deaths: list[int]) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        self.lines = os.pread(self._file, 1 << 24, 0).decode().split("\n")[:-1]
        self._deaths = deaths

    def note(self, text: str) -> None:
        """One entry."""
        os.write(self._file, text.encode() + b"\n")
        self.lines.append(text)
        if len(self.lines) in self._deaths:
            die()


# -- clients --------------------------------------------------------------------------------------------------


async def streams(uri: str, store: str, notes_at: str, deaths: list[int], credit: int) -> None:
    """Take the items of one stream."""
    notes = Notes(notes_at, deaths)
    async with afflux.connect(uri, resume=SOON, store=store, limits=LIMITS) as peer:
        tell(f"connected {len(peer.unfinished)}")
        if peer.unfinished:
            (left,) = peer.unfinished
            assert (left.verb, left.route, left.payload.data) == ("stream", "numbers", b"400")
            items = left.items(credit=credit)
        elif notes.lines:
            return
        else:
            items = peer.stream(b"400", route="numbers", credit=credit)
        taking = False
        async for item in items:
            if not taking:
                taking = True
                tell("taking")
            notes.note(item.data.decode())
        notes.note("end")
    tell("done")


async def channels(uri: str, store: str, notes_at: str, deaths: list[int], credit: int) -> None:
    """Send numbers on one channel, and take what comes back."""
    notes = Notes(notes_at, deaths)

    async def numbers(start: int) -> AsyncIterator[bytes]:
        for number in range(start, 120):
            await asyncio.sleep(0)
            yield b"%d" % number

    async with afflux.connect(uri, resume=SOON, store=store, limits=LIMITS) as peer:
        tell(f"connected {len(peer.unfinished)}")
        if peer.unfinished:
            (left,) = peer.unfinished
            items = left.items(credit=credit, source=numbers(left.sent) if left.sent else None)
        elif notes.lines:
            return
        else:
            items = peer.channel(numbers(0), credit=credit)
        async with items:
            async for item in items:
                notes.note(item.data.decode())
        notes.note("end")
    tell("done")


async def requests(uri: str, store: str, notes_at: str, deaths: list[int], at_once: int) -> None:
    """Ask one question after the other."""
    notes = Notes(notes_at, deaths)
    async with afflux.connect(uri, resume=SOON, store=store, limits=LIMITS) as peer:
        tell(f"connected {len(peer.unfinished)}")
        for left in peer.unfinished:
            notes.note((await left.answer()).data.decode())
        known = {int(line) for line in notes.lines}

        async def ask(number: int) -> None:
            notes.note((await peer.request(b"%d" % number)).data.decode())

        for first in range(0, 60, at_once):
            await asyncio.gather(*(ask(i) for i in range(first, first + at_once) if i not in known))
    tell("done")


async def fires(uri: str, store: str, deaths: list[int]) -> None:
    """Fire, wait until it has left, and die."""
    async with afflux.connect(uri, resume=SOON, store=store, limits=LIMITS) as peer:
        for number in deaths:
            await peer.fire(b"%d" % number)
        await peer.request(b"")
        die()


async def hold(uri: str, store: str) -> None:
    """Connect, and stay."""
    async with afflux.connect(uri, resume=SOON, store=store, limits=LIMITS) as peer:
        await peer.request(b"0")
        tell("connected")
        await asyncio.get_running_loop().create_future()


async def open_all(uri: str, store: str) -> None:
    """One of each, under way; then die."""
    peer = await afflux.connect(uri, resume=SOON, store=store, limits=LIMITS)
    asked = asyncio.ensure_future(peer.request(b"wait", route="asked"))
    await asyncio.sleep(0)
    items = peer.stream(b"8", credit=4)
    taken = [int((await anext(items)).data) for _ in range(3)]
    assert taken == [0, 1, 2]
    channel = peer.channel(endless(), credit=2)
    assert (await anext(channel)).data == b"first"
    await peer.request(b"0")
    await asyncio.sleep(0)  # this answer is taken when something else is waited for
    await asyncio.sleep(0)
    assert not asked.done()
    tell("open")
    die()


async def endless() -> AsyncIterator[bytes]:
    """One item, and no end."""
    yield b"first"
    await asyncio.get_running_loop().create_future()


# -- servers --------------------------------------------------------------------------------------------------


class Replaying:
    """Handlers that begin again with the same items."""

    def __init__(self, batch: int = 1) -> None:
        self._batch = batch

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        """The numbers, in lists if so wanted."""
        count = int(payload.data)
        for start in range(0, count, self._batch):
            numbers = [b"%d" % number for number in range(start, min(count, start + self._batch))]
            yield numbers if self._batch > 1 else numbers[0]

    async def request(self, payload: Payload) -> bytes:
        """Waits, at first: for a second life."""
        tell(f"request {payload.data.decode()}")
        if payload.data.startswith(b"wait") and not FORMER:
            await asyncio.get_running_loop().create_future()
        return payload.data.upper()

    async def fire(self, payload: Payload) -> None:
        """The same."""
        tell(f"fire {payload.data.decode()}")
        if not FORMER:
            await asyncio.get_running_loop().create_future()

    stream.replays = request.replays = fire.replays = True  # type: ignore[attr-defined]


class Once:
    """Handlers of which nobody knows what they have done when they die."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """One item, then none."""
        yield b"first"
        await asyncio.get_running_loop().create_future()

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """One item, then none."""
        async for item in items:
            yield item.data
        await asyncio.get_running_loop().create_future()

    async def request(self, payload: Payload) -> bytes:
        """Waits for ever, or asks its client, which does."""
        tell(f"request {payload.data.decode()}")
        if payload.data == b"ask back":
            return (await afflux.current_peer().request(b"from the server")).data
        if payload.data == b"wait":
            await asyncio.get_running_loop().create_future()
        return payload.data.upper()

    async def fire(self, payload: Payload) -> None:
        """Waits for ever."""
        tell(f"fire {payload.data.decode()}")
        await asyncio.get_running_loop().create_future()


FORMER = False
"There was a life before this one."


async def serve(uri: str, store: str, handler: str, former: bool = False, batch: int = 1) -> None:
    """Serve until the end."""
    global FORMER
    FORMER = former
    made = Replaying(batch) if handler == "Replaying" else Once()
    async with afflux.serve(uri, made, resume=True, store=store, limits=LIMITS) as server:
        tell(f"ready {server.uri}")
        await server.wait_closed()


async def answers(uri: str, store: str, handler: str, former: bool) -> None:
    """A client that is asked, and waits."""
    global FORMER
    FORMER = former
    made = Replaying() if handler == "Replaying" else Once()
    async with afflux.connect(uri, handler=made, resume=SOON, store=store, limits=LIMITS) as peer:
        if not former:
            await peer.fire(b"ask me")
        await peer.wait_closed()
