"""Serve the requests and fires of a peer: run many handlers in one task, within the room for their answers.

1. Reading never waits for a handler. One task runs all requests of one pass, one after the other, as long as they do
   not suspend; the first that suspends retains that task, and each of the others gets its own. An answer that is
   returned without waiting costs no task, and ``asyncio.current_task()``, ``asyncio.timeout`` and context variables
   behave as in any task.
2. A request's handler begins when there is room to send, and the number of handlers at work is bounded by what fits
   into ``connection_bytes`` (answers.py). An answer without room waits, and retains its handler's slot.
3. An exception of a handler is sent to the peer: an ``afflux.Error`` unchanged, any other as a generic text, with the
   traceback in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from types import CoroutineType
from typing import Any, cast

from afflux.aio.answers import MAX_BUFFERED, AnswerSizes
from afflux.aio.producers import HALF_S, STOPS
from afflux.aio.slots import Slots, Waiting, WaitingQueue
from afflux.aio.stepping import rest_within
from afflux.core.errors import Canceled
from afflux.core.payload import Payload

__all__ = ["Requests", "awaited"]

_BLOCKED_S = 0.1
"Handlers of one turn that take longer than this are logged (SL-07)."

_FEW = 32
"Number of answers for which a separate write is worthwhile, however little time they took."

_TRIAL_S = 0.02
"Seconds that requests wait because of the expected size of answers, before twice as many handlers may run."

_SMALL = 0x1000
"Bytes of an answer that needs no room: the number of handlers at work is small enough for small answers."


class Requests:
    """The handlers of the requests and fires of one connection."""

    __slots__ = ("_answers", "_fires", "_fires_queued", "_held", "_slots", "_trial", "_working", "queue")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._answers = AnswerSizes()
        self.queue = WaitingQueue(slots)
        self._fires: deque[Waiting] | tuple[()] = ()
        "Fires that have been set aside: the reasons for which requests wait do not apply to them."
        self._fires_queued = 0
        "Fires that are still in the queue."
        self._held = False
        "No handler may begin, except those of fires."
        self._working = False
        "A task runs the waiting requests."
        self._trial: asyncio.TimerHandle | None = None

    def add_fire(self, stream: int, payload: Payload) -> None:
        """Queue a fire."""
        if self._held:
            self._fires = self._fires or deque()
            self._fires.append(("fire", stream, payload))
        else:
            self._fires_queued += 1
            self.queue.extend((("fire", stream, payload),))

    @property
    def waiting(self) -> set[int]:
        """The streams that wait for a handler."""
        return {one[1] for one in (*self.queue.items, *self._fires)}

    def begin(self) -> None:
        """Run waiting requests, unless no handler may begin."""
        if not self._working and ((self.queue.items and not self._held) or self._may_fire()):
            self._working = True
            self._slots.driver.tasks.spawn(self._work())

    def release(self) -> bool:
        """A condition that handlers wait for may have changed. Return whether a request or a fire waits."""
        self._held = False
        return bool(self.queue.items or self._fires)

    async def fired(self) -> None:
        """Wait until all received fires have been handled: the peer cannot repeat them."""
        while self._fires or self._fires_queued or self._slots.firing:
            tasks = [task for verb, task, _ in self._slots.running.values() if verb == "fire"]
            if tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    def end(self) -> None:
        """The connection is over: no further request begins. Fires do."""
        self.queue.stop()
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None
        if self.queue.items:
            self._set_fires_aside()
            self.queue.clear()
            self.release()

    def stop(self) -> None:
        """Drop the waiting requests and fires."""
        self.queue.clear()
        if self._fires:
            self._fires.clear()
        self._fires_queued = 0

    # -- which may begin ----------------------------------------------------------------------------------------

    def _may_fire(self) -> bool:
        return bool(self._fires) and self._slots.firing < self._slots.driver.engine.limits.streams

    def _answerable(self) -> int:
        """Return how many handlers may begin by the expected size of their answers."""
        limits, asking = self._slots.driver.engine.limits, self._slots.asking
        if not asking:
            return limits.streams
        return self._answers.most(limits.connection_bytes - limits.outbound_high_bytes) - asking

    def _set_fires_aside(self) -> None:
        """The queue is blocked: move the fires out of it."""
        self._held = True
        if not self._fires_queued:
            return
        self._fires = self._fires or deque()
        self._fires.extend(one for one in self.queue.items if one[0] == "fire")
        self.queue.replace(one for one in self.queue.items if one[0] != "fire")
        self._fires_queued = 0

    def _hold_back(self) -> None:
        """No handler may begin now. The next return of a handler, room to send, or the timer calls
        ``Serving.on_free_slot``."""
        slots = self._slots
        driver = slots.driver
        self._set_fires_aside()
        slots.serving.begin()
        if driver.state.over:
            return
        driver.room.handlers_wait = slots.room <= 0
        if self._trial is None and slots.asking and self._answerable() <= 0:
            self._trial = driver.state.loop.call_later(_TRIAL_S, self._try_more)
        self.queue.watch()

    def _try_more(self) -> None:
        self._trial = None
        if self._slots.asking and self._answerable() <= 0:
            self._answers.widen()
        self._slots.serving.on_free_slot()

    def _passed_over(self, one: Waiting) -> bool:
        """Return whether a request from the queue does not begin now: it was canceled, or all slots of fires are
        used."""
        if one[0] != "fire":
            return self._slots.was_canceled(one)
        self._fires_queued -= 1
        if self._slots.firing < self._slots.driver.engine.limits.streams:
            return False
        self._fires = self._fires or deque()
        self._fires.append(one)
        return True

    # -- a pass -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run waiting requests until one of them suspends. Answers are sent together, with one call of the engine."""
        slots, queue, driver = self._slots, self.queue.items, self._slots.driver
        verbs, copy, me = slots.verbs, slots.context.copy, asyncio.current_task(driver.state.loop)
        streams: list[int] = []
        answers: list[Payload] = []
        free = 0 if slots.asking and self._answerable() <= 0 else slots.free
        left, room, start = driver.room.loop_frames, slots.room, driver.state.now()
        half, begins, read, made = min(len(queue), left) // 2, 0, 0, 0
        while begins < left:
            if self._fires and self._may_fire():
                verb, stream, asked = one = self._fires.popleft()
            elif queue and free > 0 and made < room:
                verb, stream, asked = one = queue.popleft()
                if (slots.canceled or verb == "fire") and self._passed_over(one):
                    continue
            else:
                break
            begins += 1
            payload: Any = asked
            read += len(payload.data) if payload.metadata is None else len(payload.data) + len(payload.metadata)
            try:
                work, first = (context := copy()).run(_start, verbs[verb], payload)
            except StopIteration as stop:
                if isinstance(value := stop.value, Payload) and value.proper and verb == "request":
                    streams.append(stream)
                    answers.append(value)
                    made += len(value.data) if value.metadata is None else len(value)
                    if begins == half:
                        streams, answers = self._answer_half(streams, answers, start)
                else:
                    made += self._answer(verb, stream, value, payload, release=True)
            except BaseException as error:
                streams, answers = self._failed(one, error, streams, answers)
            else:
                self._suspended(verb, stream, begins, read, streams, answers)
                await self._finish(verb, stream, payload, rest_within(work, context, first))
                return
            left = begins if me is None or me.cancelling() else left  # a handler has canceled this task
        self._end_pass(begins, read, made, streams, answers, start)
        if self.queue.items or self._fires:
            self._continue(stuck=begins < left and not (made >= room and slots.room > 0))

    def _answer_half(self, streams: list[int], answers: list[Payload], start: float) -> tuple[list[int], list[Payload]]:
        """Send the first half of the answers, if they are many, took long, or the loop waited for the requests: the
        client works on it while the second half is produced; otherwise the two would alternate. 64 B, 256 concurrent:
        217 → 326 k/s, for 8 % more CPU; with routes, 16 concurrent: 67 → 110 k/s."""
        driver = self._slots.driver
        state = driver.state
        if not state.idle.waited and len(streams) < _FEW and state.now() - start < HALF_S:
            return streams, answers
        driver.engine.answer(streams, answers)
        driver.output.flush_early()
        return [], []

    def _failed(
        self, one: Waiting, error: BaseException, streams: list[int], answers: list[Payload]
    ) -> tuple[list[int], list[Payload]]:
        """A handler raised before it suspended. Send the answers of others first."""
        engine = self._slots.driver.engine
        if streams:
            engine.answer(streams, answers)
        verb, stream, asked = one
        self._slots.fail(verb, stream, error, asked if isinstance(asked, Payload) else None)
        engine.release(stream)
        if isinstance(error, STOPS):
            self._working = False
            raise error
        return [], []

    def _suspended(
        self, verb: str, stream: int, begins: int, read: int, streams: list[int], answers: list[Payload]
    ) -> None:
        """A handler has suspended, and retains the current task: the others get tasks of their own."""
        driver = self._slots.driver
        if streams:
            driver.engine.answer(streams, answers)
        driver.input.consumed(read, begins)
        driver.output.flush_soon()
        self.queue.begun(begins)
        self._slots.begin(verb, stream, cast("asyncio.Task[Any]", asyncio.current_task()))
        self._spread()

    def _end_pass(
        self, begins: int, read: int, made: int, streams: list[int], answers: list[Payload], start: float
    ) -> None:
        """All handlers of the pass have returned."""
        driver = self._slots.driver
        self.queue.begun(begins)
        if streams:
            driver.engine.answer(streams, answers)
        driver.input.consumed(read, begins)
        if begins and self._answers.heavy:
            self._answers.seen(made, begins)
        driver.output.flush_soon()
        self._working = False
        if (took := driver.state.now() - start) > _BLOCKED_S:
            driver.state.log_failure(f"afflux: handlers blocked the event loop for {took:.1f} s")

    def _continue(self, *, stuck: bool) -> None:
        """A pass has ended: begin the handlers that may, unless it was ``stuck`` and none may. It is not stuck where
        answers use no room: they are sent, or wait for the peer, which has another budget (Jmux)."""
        if self.queue.items and stuck:
            self._hold_back()
        else:
            self._slots.serving.begin()

    def _spread(self) -> None:
        """Start tasks for the waiting requests: the task that runs them is now taken."""
        self._working = False
        slots, queue = self._slots, self.queue.items
        if not (queue or self._fires):
            return
        free = min(slots.free, self._answerable()) if slots.room > 0 else 0
        while True:
            if self._fires and self._may_fire():
                verb, stream, asked = self._fires.popleft()
            elif isinstance(queue, deque) and queue and free > 0:
                verb, stream, asked = one = queue.popleft()
                if (slots.canceled or verb == "fire") and self._passed_over(one):
                    continue
                free -= verb != "fire"
            else:
                break
            self.queue.begun(1)
            if isinstance(asked, Payload):
                slots.driver.input.consumed(len(asked), 1)
                work = self._finish(verb, stream, asked)
                slots.begin(verb, stream, slots.driver.tasks.spawn(work, slots.context.copy(), stream))
        if queue:
            self._hold_back()

    # -- one handler --------------------------------------------------------------------------------------------

    async def _finish(self, verb: str, stream: int, payload: Any, work: Any = None) -> None:
        """Run a handler to its end; ``work`` is the rest of one that has suspended."""
        slots, size = self._slots, 0
        try:
            answer = slots.verbs[verb](payload) if work is None else await work
            if work is None and isawaitable(answer):
                answer = await answer
            size = _size(answer)
            if size > _SMALL and verb == "request" and slots.room <= 0:
                await self._wait_with(size)
        except BaseException as error:
            slots.fail(verb, stream, error, payload)
            if isinstance(error, STOPS):
                raise
        else:
            self._answer(verb, stream, answer, payload)
            if verb == "request" and (size > _SMALL or self._answers.heavy):
                self._answers.seen(size)
        finally:
            slots.returned(stream)

    async def _wait_with(self, size: int) -> None:
        """Wait for room with an answer of ``size`` bytes.

        Raises:
            Canceled: the waiting answers exceed their limit. The request has been processed.
        """
        driver = self._slots.driver
        memory, most = driver.pump.memory, MAX_BUFFERED * driver.engine.limits.connection_bytes
        if memory.unsent_answers and memory.unsent_answers + size > most:
            text = f"buffer-full: the answers that wait on this connection may take {most} bytes"
            raise Canceled(text, rule="connection_bytes")
        memory.unsent_answers += size
        try:
            await driver.room.until_room(size)
        finally:
            memory.unsent_answers -= size

    def _answer(self, verb: str, stream: int, answer: Any, asked: Payload, *, release: bool = False) -> int:
        """The handler has returned: queue its answer. Returns the answer's bytes."""
        engine = self._slots.driver.engine
        if verb == "request":
            try:
                if answer is None:
                    engine.complete(stream)
                else:
                    engine.send(stream, (answer,), complete=True)
            except Exception as error:
                error.__suppress_context__ = True  # it is the StopIteration that had the answer
                self._slots.fail(verb, stream, error, asked)
        if release:
            engine.release(stream)
        return _size(answer) if verb == "request" else 0


async def awaited(value: Any) -> Any:
    """Return the result of a handler, awaiting it if necessary."""
    return await value if isawaitable(value) else value


def _size(answer: Any) -> int:
    """Return the bytes of an answer."""
    return len(answer) if isinstance(answer, Payload | bytes | str) else 0


def _start(method: Callable[[Any], Any], payload: Any) -> tuple[Coroutine[Any, Any, Any], Any]:
    """Run a handler until it suspends. Returns the rest of it, and the object that it waits for.

    Raises:
        StopIteration: the handler has returned; the exception has its answer.
    """
    try:
        work = method(payload)
    except StopIteration as stop:
        raise RuntimeError("the handler raised StopIteration") from stop
    if type(work) is not CoroutineType:
        work = awaited(work)
    return work, work.send(None)
