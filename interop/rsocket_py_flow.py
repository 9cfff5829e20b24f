"""Define publishers and subscribers for rsocket 0.4.20 that run the program and report facts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from interop.program import Plan, Value, shown, words

__all__ = ["Echo", "Receiver", "Reply", "Source", "error_of", "fact", "failure", "say", "told"]

Reply = Callable[..., None]


def say(line: dict[str, Any]) -> None:
    """Send a line to the runner."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def fact(name: str, **more: Any) -> None:
    """Report a fact to the runner."""
    say({"fact": name, **more})


def told(payload: Any) -> dict[str, Value]:
    """Return a payload as values."""
    return {"data": shown(payload.data or b""), "metadata": shown(payload.metadata)}


def failure(error: BaseException) -> dict[str, Any]:
    """Return an error as the caller receives it."""
    code = getattr(error, "error_code", None)
    text = getattr(error, "data", None)
    if code is None and type(error) is RuntimeError:
        code = 0x201  # what it makes of APPLICATION_ERROR
    return {"code": None if code is None else int(code), "message": str(error) if text is None else str(text)}


def error_of(error: tuple[int, str]) -> Exception:
    """Return the exception for a code."""
    from rsocket.exceptions import RSocketProtocolError

    code, text = error
    return RuntimeError(text) if code == 0x201 else RSocketProtocolError(code, data=text)


class Source:
    """A publisher of a plan, which sends items as they are requested."""

    def __init__(self, plan: Plan, open: bool = False) -> None:
        self._plan = plan
        self._open = open
        self._wanted = 0
        self._over = False
        self._held: tuple[bytes, bytes | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.stopped: Callable[[], None] = lambda: None

    def subscribe(self, subscriber: Any) -> None:
        """Accept a subscriber."""
        self._subscriber = subscriber
        if self._plan.silent:
            fact("never", tag=self._plan.tag)
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None:
        """Add to the demand."""
        self._wanted += n
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        from rsocket.payload import Payload

        await asyncio.sleep(0)  # never from within request: the caller is not ready for it
        try:
            while not self._over:
                if self._held is None:
                    self._held = next(self._plan.items, None)
                if self._held is None:
                    return self._end()
                if self._wanted <= 0:
                    return None
                self._wanted -= 1
                item, self._held = self._held, None
                self._subscriber.on_next(Payload(*item))
        finally:
            self._task = None

    def _end(self) -> None:
        if self._plan.silent:
            return
        self._over = True
        if self._plan.error is not None:
            self._subscriber.on_error(error_of(self._plan.error))
        elif not self._open:
            self._subscriber.on_complete()

    def cancel(self) -> None:
        """Cancel the stream."""
        if not self._over and self._plan.tag is not None:
            fact("canceled", tag=self._plan.tag)
        self._over = True
        self.stopped()

    dispose = cancel


class Echo:
    """The responder's direction of a channel, both publisher and subscriber. See Channel in common.js."""

    def __init__(self, first: Any) -> None:
        self._mode, *self._rest = words(first.data)
        self._first = first
        self._queue: deque[Any] = deque()
        self._wanted = self._count = self._bytes = 0
        self._hash = hashlib.sha256()
        self._ended = self._over = False
        self._inbound: Any = None
        self._outbound: Any = None
        self._ready = False

    # Publisher and subscription: what goes out.

    def subscribe(self, subscriber: Any) -> None:
        self._outbound = subscriber
        subscriber.on_subscribe(self)
        asyncio.get_running_loop().call_soon(self._begin)

    def request(self, n: int) -> None:
        self._wanted += n
        self._flush()

    def cancel(self) -> None:
        if not self._over and self._mode == "never":
            fact("canceled", tag=self._rest[0])
        self._over = True

    # Subscriber: what comes in.

    def on_subscribe(self, subscription: Any) -> None:
        self._inbound = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        self._item(value)
        if is_complete:
            self.on_complete()

    def on_error(self, error: BaseException) -> None:
        self._over = True
        fact("failed", **failure(error))

    def on_complete(self) -> None:
        if not self._ready:
            asyncio.get_running_loop().call_soon(self.on_complete)
        elif self._mode in ("half", "never"):
            fact("ended", tag=self._mode, count=self._count)
        else:
            if self._mode == "sum":
                about = f"{self._count} {self._bytes} {self._hash.hexdigest()[:16]}"
                self._put(about.encode())
            self._finish()

    # Inside.

    def _begin(self) -> None:
        self._ready = True
        if self._mode == "half":
            self._put(b"half")
            self._finish()
        if self._mode == "never":
            fact("never", tag=self._rest[0])
        else:
            self._inbound.request({"one": 1, "echo": 8}.get(self._mode, 64))
        self._item(self._first)

    def _item(self, payload: Any) -> None:
        data = payload.data or b""
        self._count += 1
        self._bytes += len(data)
        self._hash.update(data)
        limit = int(self._rest[0]) if self._rest and self._rest[0].isdigit() else 0
        match self._mode:
            case "echo" | "one":
                self._queue.append(payload)
                self._flush()
            case "take" if self._count == limit:
                self._inbound.cancel()
                self._put(b"took %d" % limit)
                self._finish()
            case "fail" if self._count == limit:
                self._over = True
                self._outbound.on_error(error_of((0x201, " ".join(self._rest[1:]))))
            case "sum" | "half" if self._count > 1:
                self._inbound.request(1)

    def _put(self, data: bytes) -> None:
        from rsocket.payload import Payload

        self._queue.append(Payload(data))

    def _finish(self) -> None:
        self._ended = True
        self._flush()

    def _flush(self) -> None:
        while not self._over and self._wanted > 0 and self._queue:
            self._wanted -= 1
            self._outbound.on_next(self._queue.popleft())
            if self._mode in ("echo", "one") and not self._ended:
                self._inbound.request(1)
        if self._ready and not self._over and self._ended and not self._queue:
            self._over = True
            self._outbound.on_complete()


class Receiver:
    """A subscriber that reports every signal."""

    def __init__(self, n: int, reply: Reply) -> None:
        self.subscription: Any = None
        self._reply = reply

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        self._reply(next=told(value))
        if is_complete:
            self._reply(complete=True)

    def on_complete(self) -> None:
        self._reply(complete=True)

    def on_error(self, error: BaseException) -> None:
        self._reply(error=failure(error))
