"""Handlers: who answers what the peer asks for. No bytes, no frames, no transport.

1. The read loop never waits for a handler. All requests of one pass are run by one task, one after the other, as
   long as they do not suspend; the first that does keeps that task for itself, and each of the others gets its own.
   So an answer that needs no waiting costs no task, and ``asyncio.current_task()``, ``asyncio.timeout`` and context
   variables are what a handler expects of them.
2. At most ``streams`` handlers of requests are at work, as many of streams and channels, and as many of fires: streams
   that stay hold up no requests. What is beyond waits in order, and its memory counts as the connection's until then.
   When no handler became free within ``pending_s``, those that wait for it are refused.
3. A request's handler begins when there is room to send, and only as many run as their answers are expected to fit
   into ``connection_bytes`` (answers.py). An answer that there is no room for waits, and keeps its handler's place.
4. A stream's slot is released only when its handler has really returned, or when it will never begin.
5. What a handler raises goes to the peer: an ``afflux.Error`` as it is, anything else as a generic text, with the
   traceback in the log.
"""

# long: which handler may begin, how it runs and what it leaves is one book of slots.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from itertools import islice, repeat
from types import CoroutineType, coroutine
from typing import Any, Final, cast

from afflux.aio.answers import HELD, AnswerSizes
from afflux.aio.driver import Driver, Listening
from afflux.aio.flow import DEFAULT_CREDIT, Inbound, ItemStream, Sender
from afflux.aio.session import Session
from afflux.core.autocredit import Kept
from afflux.core.bucket import Bucket
from afflux.core.errors import Canceled, Error, Rejected
from afflux.core.events import Extended, Opened, Pushed, Requests, SessionOpened
from afflux.core.limits import REASONS
from afflux.core.payload import Payload
from afflux.resume.recovery import skipping

__all__ = ["VERBS", "Extension", "Serving", "verbs_of"]

Extension = Callable[[int, bytes], Any]
"Called with the stream id (0: the connection) and the body of an EXT frame; may be async."

Waiting = tuple[str, int, "Payload | Producing"]
"What no handler has begun to serve: the verb, the stream and what is asked."

_NO_CONTEXT: Final = Context()

_STOPS = (KeyboardInterrupt, SystemExit)
_BLOCKED_S = 0.1
"Handlers of one turn that take longer than this get a line in the log (SL-07)."

_FEW = 32
"Answers that are not worth a write of their own."

_TRIAL_S = 0.02
"Seconds that requests wait for what answers are expected to weigh, before twice as many handlers may run."

_SMALL = 0x1000
"Bytes of an answer that need no room: so many handlers run that their small answers do not matter."

_REST = 64
"Cancels that the bucket has to bear again before reading goes on."

_GONE = 64
"Canceled requests that are left in the queue until they are half of it."

VERBS: Final = ("request", "fire", "stream", "channel", "push", "session")
"What a handler may have."


def verbs_of(handler: object) -> dict[str, Callable[..., Any]]:
    """The verbs that ``handler`` has.

    Raises:
        TypeError: it has none, which is surely a mistake.
    """
    if handler is None:
        return {}
    handler = getattr(handler, "as_handler", lambda: handler)()
    found = {verb: method for verb in VERBS if callable(method := getattr(handler, verb, None))}
    if not found:
        raise TypeError(f"a handler has at least one of the methods {', '.join(VERBS)}; {handler!r} has none")
    return found


class Producing:
    """A stream or a channel that a handler is to serve, and the two halves that it works on."""

    __slots__ = ("event", "items", "sender", "sent")

    def __init__(self, event: Opened, sender: Sender, items: ItemStream | None, sent: int) -> None:
        self.event = event
        self.sender = sender
        self.items = items
        "What a channel's requester sends; None for a stream."
        self.sent = sent
        "Items that a former process has sent."


class Serving(Listening):  # long: one method for each thing that the driver tells
    """The handlers of one connection."""

    # long: a line for each of its fields
    def __init__(
        self,
        verbs: dict[str, Callable[..., Any]],
        *,
        credit: Kept = DEFAULT_CREDIT,
        extensions: Mapping[int, Extension] | None = None,
    ) -> None:
        self._verbs = verbs
        self._credit = credit
        self._extensions = {} if extensions is None else extensions
        self._answers = AnswerSizes()
        self.driver: Driver
        self.context: Context = copy_context()
        "What every handler's context starts from."
        self._queue: deque[Waiting] | tuple[()] = ()
        "A deque from the first request on: an empty one takes 760 bytes, and most clients are idle."
        self._fires: deque[Waiting] | tuple[()] = ()
        "Fires that have been set aside: what other requests wait for is nothing to them."
        self._fires_queued = 0
        "How many are still in the queue."
        self._firing = 0
        "How many handlers of fires are at work: as many as of other requests may be, beside those."
        self._working = False
        "A task runs what waits."
        self._held = False
        "No handler may begin, those of fires apart."
        self._running: dict[int, tuple[str, asyncio.Task[Any], Producing | None]] = {}
        "Handlers at work: the verb, the task, and what a producer works on."
        self._asking = 0
        "How many of them make the one answer of a request."
        self._begins = 0
        "Handlers that have begun, those of streams and channels apart."
        self._streams: deque[Waiting] | tuple[()] = ()
        "Streams and channels that no handler has begun to serve: as many run as other handlers, beside them."
        self._producing = 0
        "How many handlers of streams and channels are at work."
        self._stream_begins = 0
        "How many have begun."
        self._gone: set[int] = set()
        "What waits and the peer has given up."
        self._cancels: Bucket | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._stream_patience: asyncio.TimerHandle | None = None
        self._trial: asyncio.TimerHandle | None = None
        self._sessions: dict[int, Session] = {}
        "Sessions whose handler runs."
        self._pushes: deque[Callable[[], Any]] | tuple[()] = ()
        self._pusher: asyncio.Task[None] | None = None

    # -- what the driver tells ------------------------------------------------------------------------------

    def opened(self, event: Opened) -> None:
        """The peer asks for something."""
        verb = event.verb
        if verb not in self._verbs:
            self._refuse_verb(event)
        elif verb == "request":
            self._wait(((verb, event.stream, event.payload),))
        elif verb == "fire" and self._held:
            self._fires = self._fires or deque()
            self._fires.append((verb, event.stream, event.payload))
            self.driver.asked = True
        elif verb == "fire":
            self._fires_queued += 1
            self._wait(((verb, event.stream, event.payload),))
        else:
            self._wait_for_producer(event, 0)

    def requested(self, event: Requests) -> None:
        """The peer asks for several things at once."""
        if "request" in self._verbs:
            self._wait(zip(repeat("request"), event.streams, event.payloads, strict=False))
        else:
            super().requested(event)

    def begin_again(self, event: Opened, sent: int) -> None:
        """A request of a former process, ``sent`` items of whose answer were sent: its handler begins again."""
        if event.verb == "stream":
            self._wait_for_producer(event, sent)
        else:
            self.opened(event)

    def canceled(self, stream: int) -> None:
        """The peer gave up: the handler ends, at its next wait."""
        running = self._running.get(stream)
        if running is not None:
            self.driver.cancel(running[1])
            self._count_cancel()
        elif self._queue or self._streams:
            self._gone.add(stream)
            if len(self._gone) > _GONE and len(self._gone) * 2 > len(self._queue) + len(self._streams):
                for queue in (self._queue, self._streams):
                    if queue:
                        waiting = [one for one in queue if not self._was_canceled(one)]
                        queue.clear()
                        queue.extend(waiting)
                self._gone.clear()

    def _count_cancel(self) -> None:
        """Work has begun in vain. When that happens too often, reading slows down to the rate that may be."""
        driver = self.driver
        limits, now = driver.engine.limits, driver.now()
        if self._cancels is None:
            self._cancels = Bucket(*limits.cancel_bucket)
        if not self._cancels.take(1, now) and not driver.over:
            driver.rest(self._cancels.wait(min(_REST, self._cancels.burst), now) or 0.0)

    def failed(self, sender: Sender, error: Exception) -> None:
        """What a handler has made can not be sent: tell the peer, and end the handler."""
        running = self._running.get(sender.id)
        if running is not None and not sender.over:
            self._tell(sender.id, error)
            sender.stop()
            self.driver.cancel(running[1])

    def pushed(self, event: Pushed) -> None:
        """Metadata came."""
        if (push := self._verbs.get("push")) is not None:
            self._in_turn(partial(push, event.metadata))

    def extended(self, event: Extended) -> None:
        """A frame of an extension came."""
        self._in_turn(partial(self._extensions[event.type], event.stream, event.body))

    def _in_turn(self, call: Callable[[], Any]) -> None:
        """What concerns the connection: one handler at a time; reading stops while too much waits for it."""
        self._pushes = self._pushes or deque()
        self._pushes.append(call)
        if self._pusher is None:
            self._pusher = self.driver.spawn(self._push_all(), self.context.copy())
        if len(self._pushes) >= self.driver.engine.limits.metadata_push_queue:
            self.driver.hold_reading = True

    def ended(self) -> None:
        """The connection is over: handlers end, but for those of fire, which nobody can take back."""
        for timer in (self._patience, self._stream_patience, self._trial):
            if timer is not None:
                timer.cancel()
        self._patience = self._stream_patience = self._trial = None
        if self._streams:
            self._streams.clear()
        if self._queue:
            self._set_fires_aside()
            self._queue.clear()
            self._gone.clear()
            self._go_on_again()
        for stream, (verb, task, _) in self._running.items():
            session = self._sessions.get(stream)
            if verb != "fire" and (session is None or not session.heard):
                self.driver.cancel(task)

    def left(self) -> None:
        """No handler will run any more: let go of the peer, which the context has."""
        self.context = _NO_CONTEXT

    async def fired(self) -> None:
        """Wait until all fires that came have been handled: nobody can ask for them again."""
        while self._fires or self._fires_queued or self._firing:
            tasks = [task for verb, task, _ in self._running.values() if verb == "fire"]
            if tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    def stop(self) -> None:
        """End every handler, and begin none of those that wait."""
        for waiting in (self._queue, self._streams, self._fires, self._pushes):
            if waiting:
                waiting.clear()
        self._fires_queued = 0
        for task in self.driver.tasks:
            self.driver.cancel(task)

    # -- requests that wait, and handlers that begin ----------------------------------------------------------

    def _wait(self, more: Iterable[Waiting]) -> None:
        """Queue requests. Handlers begin when the pass is over: what it cancels again costs nothing."""
        if not isinstance(self._queue, deque):
            self._queue = deque()
        self._queue.extend(more)
        self.driver.asked = True

    def _wait_for_producer(self, event: Opened, sent: int) -> None:
        """The same of a stream or a channel, ``sent`` items of which a former process has sent."""
        self._streams = self._streams or deque()
        self._streams.append((event.verb, event.stream, self._halves(event, sent)))
        self.driver.asked = True

    def passed(self) -> None:
        """The events of a pass that asked for something are told."""
        self._go_on()

    def _go_on(self) -> None:
        """Run what waits, unless it is known that no handler may begin."""
        if self._streams:
            self._begin_streams()
        if not self._working and ((self._queue and not self._held) or self._may_fire()):
            self._working = True
            self.driver.spawn(self._work())

    def _go_on_again(self) -> None:
        """The same after something has changed that handlers may have waited for."""
        self._held = False
        self._go_on()

    def _set_fires_aside(self) -> None:
        """The queue does not move: take the fires out."""
        self._held = True
        if not self._fires_queued or not isinstance(self._queue, deque):
            return
        waiting = list(self._queue)
        self._queue.clear()  # in place: _work goes through it
        self._queue.extend(one for one in waiting if one[0] != "fire")
        self._fires = self._fires or deque()
        self._fires.extend(one for one in waiting if one[0] == "fire")
        self._fires_queued = 0

    def roomy(self) -> None:
        """There is room to send again. Only from now on do requests wait for handlers."""
        for timer in (self._patience, self._stream_patience):
            if timer is not None:
                timer.cancel()
        self._patience = self._stream_patience = None
        self._go_on_again()

    def _may_fire(self) -> bool:
        return bool(self._fires) and self._firing < self.driver.engine.limits.streams

    def _free(self) -> int:
        """How many handlers may begin, those of fires, streams and channels apart."""
        return self.driver.engine.limits.streams + self._firing + self._producing - len(self._running)

    def _answerable(self) -> int:
        """How many of them may begin by what their answers are expected to weigh."""
        limits = self.driver.engine.limits
        if not self._asking:
            return limits.streams
        return self._answers.most(limits.connection_bytes - limits.outbound_high_bytes) - self._asking

    def _room(self) -> int:
        """Bytes of answers that may be made now."""
        driver = self.driver
        return driver.engine.limits.connection_bytes if driver.over else driver.room_beside()

    def _hold_back(self) -> None:
        """Nothing may begin now. Each of what it waits for calls ``_go_on_again``: a handler returns, there is room to
        send, or time passes."""
        driver = self.driver
        self._set_fires_aside()
        self._go_on()
        if driver.over:
            return
        driver.held_back = self._room() <= 0
        if self._trial is None and self._asking and self._answerable() <= 0:
            self._trial = driver.loop.call_later(_TRIAL_S, self._try_more)
        if self._patience is None:
            seconds = driver.engine.limits.pending_s
            self._patience = driver.loop.call_later(seconds, self._check_pending, self._begins, len(self._queue))

    def _begin_streams(self) -> None:
        """Begin the handlers of streams and channels that may."""
        driver, queue = self.driver, self._streams
        limits, room = driver.engine.limits, self._room()
        while queue and room > 0 and self._producing < limits.streams:
            verb, _, asked = one = queue.popleft()
            if isinstance(asked, Producing) and not (self._gone and self._was_canceled(one)):
                self._stream_begins += 1
                if self._stream_patience is not None:
                    self._stream_patience.cancel()
                    self._stream_patience = None
                self._produce_items(verb, asked)
        if queue and not driver.over:
            driver.held_back = driver.held_back or room <= 0
            if self._stream_patience is None:
                self._stream_patience = driver.loop.call_later(
                    limits.pending_s, self._check_streams, self._stream_begins, len(queue)
                )

    def _begun(self, count: int) -> None:
        """Handlers of requests have begun: those that wait have ``pending_s`` from now on."""
        self._begins += count
        if count and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _try_more(self) -> None:
        self._trial = None
        if self._asking and self._answerable() <= 0:
            self._answers.widen()
        self._go_on_again()

    def _check_pending(self, begins: int, count: int) -> None:
        """Whether no handler has begun since then, though there is room to send: then those that waited are refused."""
        self._patience = None
        if begins == self._begins and not self.driver.held_back:
            self._refuse(self._queue, count)
        self._go_on_again()

    def _check_streams(self, begins: int, count: int) -> None:
        """The same of streams and channels."""
        self._stream_patience = None
        if begins == self._stream_begins and not self.driver.held_back:
            self._refuse(self._streams, count)
        self._go_on_again()

    def _refuse(self, queue: deque[Waiting] | tuple[()], count: int) -> None:
        """No handler became free for the first ``count`` that wait in a queue, fires apart."""
        if not queue:
            return
        first = list(islice(queue, count))
        later = list(islice(queue, count, None))
        queue.clear()
        queue.extend(one for one in first if one[0] == "fire")
        queue.extend(later)
        waiting = [one for one in first if one[0] != "fire" and not self._was_canceled(one)]
        limits = self.driver.engine.limits
        text = f"no handler became free within {limits.pending_s:g} s (streams={limits.streams})"
        for _, stream, asked in waiting:
            self._turn_away(stream, Rejected(f"{REASONS['streams']}: {text}"))
            self._skip(stream, asked)

    def _passed_over(self, one: Waiting) -> bool:
        """Whether what was taken from the queue does not begin now: it was canceled, or is a fire too many."""
        if one[0] == "fire":
            self._fires_queued -= 1
            if self._firing >= self.driver.engine.limits.streams:
                self._fires = self._fires or deque()
                self._fires.append(one)
                return True
            return False
        return self._was_canceled(one)

    def _was_canceled(self, one: Waiting) -> bool:
        """Whether the peer gave up before the handler began; then it is released."""
        if one[1] not in self._gone:
            return False
        self._gone.discard(one[1])
        self._skip(one[1], one[2])
        return True

    def _skip(self, stream: int, asked: Payload | Producing) -> None:
        """What waited will not be served: free what it takes."""
        driver = self.driver
        if isinstance(asked, Producing):
            self._drop_halves(stream, asked)
        if isinstance(asked, Payload) or asked.items is None:
            driver.consumed(len(asked if isinstance(asked, Payload) else asked.event.payload), 1)
        driver.engine.release(stream)

    # -- request and fire -----------------------------------------------------------------------------------

    # long: every request passes here, and a call for each step would cost it a tenth
    async def _work(self) -> None:
        """Run what waits until one of them suspends. Answers go together: one call of the engine for many."""
        base, verbs, driver = self.context, self._verbs, self.driver
        engine, queue = driver.engine, self._queue
        me = cast("asyncio.Task[Any]", asyncio.current_task())
        streams: list[int] = []
        answers: list[Payload] = []
        left, free, room = driver.loop_frames, self._free(), self._room()
        if self._asking and self._answerable() <= 0:
            free = 0
        begins = taken = read = made = 0
        # The client works on the first half while the second is made; otherwise the two would work in turn.
        # 64 B with 256 at once: 217 → 326 k/s, with 64 at once 165 → 266 k/s, for 8 % more CPU.
        half = max(_FEW, min(len(queue), left) // 2)
        start = driver.now()
        while begins < left:
            if self._fires and self._may_fire():
                verb, stream, asked = self._fires.popleft()
            elif queue and free > 0 and made < room:
                verb, stream, asked = one = queue.popleft()
                if (self._gone or verb == "fire") and self._passed_over(one):
                    continue
            else:
                break
            begins += 1
            payload: Any = asked
            taken += 1
            read += len(payload.data) if payload.metadata is None else len(payload)
            context = base.copy()
            try:
                try:
                    answer = context.run(verbs[verb], payload)
                except StopIteration as stop:
                    raise RuntimeError("the handler raised StopIteration") from stop
                if type(answer) is not CoroutineType:
                    answer = _awaited(answer)
                awaited = context.run(answer.send, None)
            except StopIteration as stop:
                value = stop.value
                if type(value) is Payload and value.proper and verb == "request":
                    streams.append(stream)
                    answers.append(value)
                    made += len(value.data) if value.metadata is None else len(value)
                    if len(streams) == half:
                        engine.answer(streams, answers)
                        streams, answers = [], []
                        driver.flush_early()
                        half = 0
                else:
                    made += self._answer(verb, stream, value)
                    engine.release(stream)
            except BaseException as error:
                if streams:
                    engine.answer(streams, answers)
                self._tell(stream, error)
                engine.release(stream)
                streams, answers = [], []
                if isinstance(error, _STOPS):
                    self._working = False
                    raise
            else:
                if streams:
                    engine.answer(streams, answers)
                driver.consumed(read, taken)
                driver.flush_soon()
                self._begun(begins)
                self._begin(verb, stream, me)
                self._spread()
                await self._finish(verb, stream, payload, _resume(answer, context, awaited))
                return
            if me.cancelling():
                left = begins  # this task is spoilt; another one goes on
        self._begun(begins)
        if streams:
            engine.answer(streams, answers)
        driver.consumed(read, taken)
        if taken and self._answers.heavy:
            self._answers.seen(made, taken)
        driver.flush_soon()
        self._working = False
        # What was made may take no room: it has left, or waits for the peer, which is another budget (Jmux).
        if queue and begins < left and not (made >= room and self._room() > 0):
            self._hold_back()
        elif queue or self._fires:
            self._go_on()
        if (took := driver.now() - start) > _BLOCKED_S:
            driver.log_failure(f"afflux: handlers blocked the event loop for {took:.1f} s")

    def _begin(self, verb: str, stream: int, task: asyncio.Task[Any], asked: Producing | None = None) -> None:
        """A handler is at work."""
        self._running[stream] = (verb, task, asked)
        if verb == "request":
            self._asking += 1
        elif verb == "fire":
            self._firing += 1
        self.driver.engine.begin(stream)

    def _returned(self, stream: int) -> None:
        """A handler has really ended, or its task has before it began: its slot is free."""
        verb, _, asked = self._running.pop(stream)
        if asked is not None:
            self._producing -= 1
            self._drop_halves(stream, asked)
        if verb == "request":
            self._asking -= 1
        elif verb == "fire":
            self._firing -= 1
        self.driver.engine.release(stream)
        self.driver.flush_soon()
        self._held = False
        if self._queue or self._fires or self._streams:
            self._go_on()

    def task_ended(self, stream: int, task: asyncio.Task[Any]) -> None:
        """A task that was spawned for a stream has ended. One that was canceled before it began has run nothing."""
        running = self._running.get(stream)
        if running is not None and running[1] is task:
            self._returned(stream)

    def _spread(self) -> None:
        """Let what waits have tasks of its own: the worker is taken, or there is none."""
        self._working = False
        queue = self._queue
        if not (queue or self._fires):
            return
        free = min(self._free(), self._answerable()) if self._room() > 0 else 0
        while True:
            if self._fires and self._may_fire():
                verb, stream, asked = self._fires.popleft()
            elif queue and free > 0:
                verb, stream, asked = one = queue.popleft()
                if (self._gone or verb == "fire") and self._passed_over(one):
                    continue
                free -= verb != "fire"
            else:
                break
            self._begun(1)
            if isinstance(asked, Payload):
                self.driver.consumed(len(asked), 1)
                task = self.driver.spawn(self._finish(verb, stream, asked), self.context.copy(), stream)
                self._begin(verb, stream, task)
        if queue:
            self._hold_back()

    async def _finish(self, verb: str, stream: int, payload: Payload, work: Any = None) -> None:
        """Run a handler to its end; ``work`` is what is left of one that has suspended."""
        size = 0
        try:
            answer = self._verbs[verb](payload) if work is None else await work
            if work is None and isawaitable(answer):
                answer = await answer
            size = _size(answer)
            if size > _SMALL and verb == "request" and self._room() <= 0:
                await self._wait_with(size)
        except BaseException as error:
            self._tell(stream, error)
            if isinstance(error, _STOPS):
                raise
        else:
            self._answer(verb, stream, answer)
            if verb == "request" and (size > _SMALL or self._answers.heavy):
                self._answers.seen(size)
        finally:
            self._returned(stream)

    async def _wait_with(self, size: int) -> None:
        """Wait for room with an answer of ``size`` bytes.

        Raises:
            Canceled: too much waits already. The request has been processed.
        """
        driver = self.driver
        most = HELD * driver.engine.limits.connection_bytes
        if driver.unsent_answers and driver.unsent_answers + size > most:
            text = f"buffer-full: the answers that wait on this connection may take {most} bytes"
            raise Canceled(text, rule="connection_bytes")
        driver.unsent_answers += size
        try:
            await driver.until_room(size)
        finally:
            driver.unsent_answers -= size

    def _answer(self, verb: str, stream: int, answer: Any) -> int:
        """The handler has returned: queue its answer. Return the answer's bytes."""
        if verb != "request":
            return 0
        try:
            if answer is None:
                self.driver.engine.complete(stream)
            else:
                self.driver.engine.send(stream, (answer,), complete=True)
        except Exception as error:
            self._tell(stream, error)
        return _size(answer)

    def _tell(self, stream: int, error: BaseException) -> None:
        """Tell the peer what went wrong; a stream that is over hears nothing."""
        if isinstance(error, asyncio.CancelledError):
            error = Canceled("the handler was canceled")
        elif not isinstance(error, Error):
            self.driver.log_failure("afflux: a handler raised", error)
        self.driver.engine.fail(stream, error if isinstance(error, Exception) else RuntimeError("the handler ended"))

    def _refuse_verb(self, event: Opened) -> None:
        there = ", ".join(verb for verb in self._verbs if verb != "push") or "nothing"
        self.driver.consumed(len(event.payload), 1)
        self._turn_away(event.stream, Rejected(f'no handler for "{event.verb}"; handled here: {there}'))
        self.driver.engine.release(event.stream)

    def _turn_away(self, stream: int, error: Rejected) -> None:
        """Refuse what no handler has seen."""
        sessions = self.driver.engine.byte_sessions
        if sessions is not None:
            sessions.abort(stream, str(error), untouched=True)
        else:
            self.driver.engine.fail(stream, error)
        self.driver.flush_soon()

    # -- stream and channel ---------------------------------------------------------------------------------

    def _halves(self, event: Opened, sent: int) -> Producing:
        """The two halves of a stream or channel. They are there before its handler begins, because what the peer says
        meanwhile goes to them."""
        driver, stream = self.driver, event.stream
        sender = driver.senders[stream] = Sender(driver, stream)
        items = None
        if event.verb == "channel":
            inbound = Inbound(driver, self._credit)
            inbound.id = stream
            inbound.arrived([event.payload], event.complete)
            if not event.complete:
                driver.inbounds[stream] = inbound
            items = ItemStream(
                inbound,
                opener=self._first_grant(inbound, stream),
                stop=lambda: self._cancel_inbound(stream),
                first=event.payload,
            )
        return Producing(event, sender, items, sent)

    def _produce_items(self, verb: str, asked: Producing) -> None:
        """Begin the handler of a stream or channel."""
        stream = asked.event.stream
        if asked.items is None:
            self.driver.consumed(len(asked.event.payload), 1)  # a channel's first item is taken by its handler
        self._producing += 1
        self._begin(verb, stream, self.driver.spawn(self._produce(asked), self.context.copy(), stream), asked)

    def _drop_halves(self, stream: int, asked: Producing) -> None:
        """No handler works on them any more."""
        driver = self.driver
        driver.senders.pop(stream, None)
        driver.inbounds.pop(stream, None)
        if asked.items is not None:
            asked.items.cancel()

    def _first_grant(self, inbound: Inbound, stream: int) -> Callable[[int], None]:
        """The window opens when the handler first asks for an item; the first one is part of it (RSocket D-8)."""

        def grant(n: int) -> None:
            if inbound.window is not None:
                inbound.window.expect(inbound.held)
            credit = inbound.first_grant(n)
            if not inbound.ended:
                self.driver.engine.request(stream, credit)
                self.driver.flush_soon()

        return grant

    def _cancel_inbound(self, stream: int) -> None:
        if self.driver.inbounds.pop(stream, None) is not None:
            self.driver.engine.cancel(stream)
            self.driver.flush_soon()

    async def _produce(self, asked: Producing) -> None:
        """Run one producer to its end, and close it whatever happens."""
        event, sender, items, sent = asked.event, asked.sender, asked.items, asked.sent
        source: Any = None
        try:
            source = self._verbs[event.verb](event.payload if items is None else items)
            if isawaitable(source):
                source = await source
            source = () if source is None else source
            await sender.send_all(skipping(source, sent) if sent else source)
        except asyncio.CancelledError:
            if not sender.over:
                self._tell(event.stream, Canceled("the handler was canceled"))
            raise
        except BaseException as error:
            if not sender.over:
                self._tell(event.stream, error)
            if isinstance(error, _STOPS):
                raise
        finally:
            if items is not None:
                items.cancel()
            await _close_source(source)

    # -- sessions of bytes ----------------------------------------------------------------------------------

    def session_opened(self, event: SessionOpened) -> None:
        """The peer opened a session: its handler reads and writes it. What it leaves open is finished for it."""
        driver, stream = self.driver, event.stream
        session = self._sessions[stream] = Session(driver, stream)
        task = driver.spawn(self._serve_session(session), self.context.copy())
        self._running[stream] = ("session", task, None)
        driver.engine.begin(stream)
        task.add_done_callback(lambda task: self._left_session(stream))

    async def _serve_session(self, session: Session) -> None:
        try:
            await _awaited(self._verbs["session"](session))
            session.finish()
        except BaseException as error:
            if session.error is None:
                self._tell(session.stream, error)
            if not isinstance(error, Exception):
                raise

    def _left_session(self, stream: int) -> None:
        driver = self.driver
        self._sessions.pop(stream, None)
        driver.sessions.pop(stream, None)
        self._returned(stream)

    # -- push -----------------------------------------------------------------------------------------------

    async def _push_all(self) -> None:
        try:
            while self._pushes:
                call = self._pushes.popleft()
                try:
                    await _awaited(call())
                except Exception as error:
                    self.driver.log_failure("afflux: a handler of push or of an extension raised", error)
                if self.driver.hold_reading:
                    self.driver.hold_reading = False
                    self.driver.check_reading()
        finally:
            self._pusher = None


async def _awaited(value: Any) -> Any:
    """A coroutine for what a handler returned, awaitable or not."""
    return await value if isawaitable(value) else value


def _size(answer: Any) -> int:
    """The bytes of an answer, as far as it is one."""
    return len(answer) if isinstance(answer, Payload | bytes | str) else 0


async def _close_source(source: Any) -> None:
    """Close a generator; harmless when it has ended."""
    if hasattr(source, "aclose"):
        await source.aclose()
    elif hasattr(source, "close"):
        source.close()


@coroutine
def _resume(work: Coroutine[Any, Any, Any], context: Context, awaited: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that was started by hand, within its context, on behalf of the current task."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            step: Callable[..., Any] = work.throw
            argument: Any = error
        else:
            step, argument = work.send, sent
        try:
            awaited = context.run(step, argument)
        except StopIteration as stop:
            return stop.value
        finally:
            argument = None  # an error and this frame would hold each other
