"""Count the handlers at work on one connection, and queue requests for a slot in order of arrival.

1. At most ``streams`` handlers of requests are at work, as many of streams and channels, and as many of fires: streams
   that stay open do not delay requests.
2. A slot is released only when its handler has returned, or when it will never begin.
3. When no handler has begun within ``pending_s`` although there is room to send, waiting requests are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from afflux.aio.flow import ItemStream
from afflux.aio.sender import Sender
from afflux.calls import metadata_mime_of, route_in
from afflux.core.errors import Canceled, Error, Invalid, Rejected, Unsupported
from afflux.core.events import Opened
from afflux.core.limits import REASONS
from afflux.core.payload import Payload
from afflux.watching import quoted

if TYPE_CHECKING:
    from afflux.aio.driver import Driver
    from afflux.aio.serving import Serving

__all__ = ["Producing", "Slots", "Waiting", "WaitingQueue"]

NONE: Final[frozenset[int]] = frozenset()
"No stream: a set takes 216 bytes, and most connections need none."
_NO_CONTEXT: Final = Context()


class Producing:
    """A stream or a channel of the peer, and the two halves that its handler works on."""

    __slots__ = ("event", "items", "sender", "sent")

    def __init__(self, event: Opened, sender: Sender, items: ItemStream | None, sent: int) -> None:
        self.event = event
        self.sender = sender
        self.items = items
        "The items of a channel's requester; None for a stream."
        self.sent = sent
        "Items that a former process has sent."


Waiting = tuple[str, int, "Payload | Producing"]
"A request whose handler has not begun: the verb, the stream and the payload."


class Slots:
    """The handlers at work on one connection, and the objects that they share."""

    __deletable__ = ["serving"]  # noqa: RUF012 -- for mypyc, which requires a list

    __slots__ = (
        "asking",
        "canceled",
        "context",
        "driver",
        "failed",
        "firing",
        "producing",
        "rejected",
        "running",
        "serving",
        "verbs",
    )

    driver: Driver

    def __init__(self, verbs: dict[str, Callable[..., Any]], serving: Serving) -> None:
        self.verbs = verbs
        self.serving = serving
        "Is notified when a slot is free; removed when the connection has left, as ``State.driver`` is."
        self.context: Context = copy_context()
        "Every handler starts with a copy of it."
        self.running: dict[int, tuple[str, asyncio.Task[Any], Producing | None]] = {}
        "Handlers at work: the verb, the task, and the halves of a producer's stream."
        self.asking = 0
        "Handlers of requests that are at work."
        self.firing = 0
        "Handlers of fires that are at work."
        self.producing = 0
        "Handlers of streams and channels that are at work."
        self.failed = self.rejected = 0
        "Handlers that raised an exception of their own, and requests that no handler has seen."
        self.canceled: set[int] | frozenset[int] = NONE
        "Requests that wait and that the peer has canceled."

    @property
    def free(self) -> int:
        """How many handlers of requests may begin."""
        return self.driver.engine.limits.streams + self.firing + self.producing - len(self.running)

    @property
    def room(self) -> int:
        """Bytes of answers that may be produced now."""
        driver = self.driver
        return driver.engine.limits.connection_bytes if driver.state.over else driver.output.room_beside()

    def begin(self, verb: str, stream: int, task: asyncio.Task[Any], asked: Producing | None = None) -> None:
        """Record that a handler is at work."""
        self.running[stream] = (verb, task, asked)
        if verb == "request":
            self.asking += 1
        elif verb == "fire":
            self.firing += 1
        self.driver.engine.begin(stream)

    def returned(self, stream: int) -> None:
        """Release the slot of a handler that has returned, or whose task has ended before it began, for the next."""
        self.release(stream)
        self.driver.output.flush_soon()
        self.serving.on_free_slot()

    def release(self, stream: int) -> None:
        """Release the slot of a handler that has returned."""
        verb, _, asked = self.running.pop(stream)
        if asked is not None:
            self.producing -= 1
            self.drop_halves(stream, asked)
        if verb == "request":
            self.asking -= 1
        elif verb == "fire":
            self.firing -= 1
        self.driver.engine.release(stream)

    def fail(self, verb: str, stream: int, error: BaseException, asked: Payload | None = None) -> None:
        """Send the error of a handler to the peer; no-op for a stream that is over. ``asked`` is the request, whose
        route is logged."""
        if isinstance(error, asyncio.CancelledError):
            error = Canceled("the handler was canceled")
        elif not isinstance(error, Error) or isinstance(error, Unsupported):  # the peer does not see its text
            self.failed += 1
            self._log(verb, stream, error, asked)
        elif isinstance(error, Rejected):
            self.rejected += 1
        self.driver.engine.fail(stream, error if isinstance(error, Exception) else RuntimeError("the handler ended"))

    def _log(self, verb: str, stream: int, error: BaseException, asked: Payload | None) -> None:
        driver, route = self.driver, None
        with suppress(Invalid):
            route = None if asked is None else route_in(asked, metadata_mime_of(driver.engine))
        what = verb if route is None else f'{verb} of route "{quoted(route)}"'
        text = f"afflux: a handler raised: {what}, stream {stream}, peer {driver.state.far}"
        driver.state.log_failure(text, error)

    def turn_away(self, stream: int, error: Rejected) -> None:
        """Refuse a request that no handler has seen."""
        self.rejected += 1
        engine = self.driver.engine
        if engine.byte_sessions is not None:
            engine.byte_sessions.abort(stream, str(error), untouched=True)
        else:
            engine.fail(stream, error)
        self.driver.output.flush_soon()

    def was_canceled(self, one: Waiting) -> bool:
        """Return whether the peer canceled a request before its handler began; if so, release it."""
        if one[1] not in self.canceled:
            return False
        self.canceled -= {one[1]}
        self.skip(one[1], one[2])
        return True

    def skip(self, stream: int, asked: Payload | Producing) -> None:
        """Free the memory of a waiting request that will not be served."""
        driver = self.driver
        if isinstance(asked, Producing):
            self.drop_halves(stream, asked)
        if isinstance(asked, Payload) or asked.items is None:
            driver.input.consumed(len(asked if isinstance(asked, Payload) else asked.event.payload), 1)
        driver.engine.release(stream)

    def drop_halves(self, stream: int, asked: Producing) -> None:
        """Remove the halves of a stream whose handler has ended."""
        streams = self.driver.streams
        streams.senders.pop(stream, None)
        streams.inbounds.pop(stream, None)
        if asked.items is not None:
            asked.items.cancel()

    def leave(self) -> None:
        """No handler will run any more: drop the outward references, which include the peer in the context."""
        self.context = _NO_CONTEXT
        del self.serving


class WaitingQueue:
    """Requests that wait for a slot."""

    __slots__ = ("_slots", "_timer", "begins", "items")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.items: deque[Waiting] | tuple[()] = ()
        "A deque from the first request on: an empty one takes 760 bytes, and most clients are idle."
        self.begins = 0
        "Handlers that have begun."
        self._timer: asyncio.TimerHandle | None = None

    def extend(self, more: Iterable[Waiting]) -> None:
        """Add requests. Handlers begin after the pass: a request that the same pass cancels costs nothing."""
        if not isinstance(self.items, deque):
            self.items = deque()
        self.items.extend(more)

    def replace(self, items: Iterable[Waiting]) -> None:
        """Replace all requests, in place."""
        if isinstance(self.items, deque):
            items = list(items)
            self.items.clear()
            self.items.extend(items)

    def begun(self, count: int) -> None:
        """Record that ``count`` handlers have begun: waiting requests have ``pending_s`` from now on."""
        self.begins += count
        if count and self._timer is not None:
            self.stop()

    def watch(self) -> None:
        """Refuse the waiting requests after ``pending_s``."""
        if self._timer is None:
            state = self._slots.driver.state
            self._timer = state.loop.call_later(
                state.engine.limits.pending_s, self._check, self.begins, len(self.items)
            )

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop_canceled(self) -> None:
        """Remove the requests that the peer has canceled."""
        self.replace(one for one in self.items if not self._slots.was_canceled(one))

    def clear(self) -> None:
        """Remove all requests."""
        self.replace(())

    def _check(self, begins: int, count: int) -> None:
        """Refuse the requests that have waited, if no handler has begun since then although there is room to send."""
        self._timer = None
        if begins == self.begins and not self._slots.driver.room.handlers_wait:
            self._refuse(count)
        self._slots.serving.on_free_slot()

    def _refuse(self, count: int) -> None:
        """Refuse those of the first ``count`` requests that are not fires."""
        first = list(islice(self.items, count))
        self.replace([one for one in first if one[0] == "fire"] + list(islice(self.items, count, None)))
        slots = self._slots
        limits = slots.driver.engine.limits
        text = f"no handler became free within {limits.pending_s:g} s (streams={limits.streams})"
        for one in [one for one in first if one[0] != "fire" and not slots.was_canceled(one)]:
            slots.turn_away(one[1], Rejected(f"{REASONS['streams']}: {text}"))
            slots.skip(one[1], one[2])
