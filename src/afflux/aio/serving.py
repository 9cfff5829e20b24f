"""Handlers: who answers what the peer asks for. No bytes, no frames, no transport.

1. The read loop never waits for a handler. All requests of one pass are run by one task, one after the other, as
   long as they do not suspend; the first that does keeps that task for itself, and each of the others gets its own.
   So an answer that needs no waiting costs no task, and ``asyncio.current_task()``, ``asyncio.timeout`` and context
   variables are what a handler expects of them.
2. A stream's slot is released only when its handler has really returned.
3. What a handler raises goes to the peer: an ``afflux.Error`` as it is, anything else as a generic text, with the
   traceback in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from itertools import repeat
from time import monotonic
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.aio.cold import skipping
from afflux.aio.driver import Driver, Listening
from afflux.aio.flow import DEFAULT_CREDIT, Inbound, ItemStream, Sender
from afflux.aio.session import Session
from afflux.core.autocredit import Kept
from afflux.core.errors import Canceled, Error, Rejected
from afflux.core.events import Extended, Opened, Pushed, Requests, SessionOpened
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.core.engine import Carrying

__all__ = ["VERBS", "Extension", "Serving", "verbs_of"]

Extension = Callable[[int, bytes], Any]
"Called with the stream id (0: the connection) and the body of an EXT frame; may be async."

Waiting = tuple[str, int, Payload]
"A request or a fire whose handler has not begun: the verb, the stream and what is asked."

_NO_CONTEXT: Final = Context()

_STOPS = (KeyboardInterrupt, SystemExit)
_BLOCKED_S = 0.1
"Handlers of one turn that take longer than this get a line in the log (SL-07)."

_FEW = 32
"Answers that are not worth a write of their own."

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


class Serving(Listening):  # long: one method for each thing that the driver tells
    """The handlers of one connection."""

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
        self.driver: Driver
        self.context: Context = copy_context()
        "What every handler's context starts from."
        self._queue: deque[Waiting] | tuple[()] = ()
        "A deque from the first request on: an empty one takes 760 bytes, and most clients are idle."
        self._working = False
        self._running: dict[int, asyncio.Task[Any]] = {}
        "Handlers that the peer may cancel."
        self._sessions: dict[int, Session] = {}
        "Sessions whose handler runs."
        self._fires: deque[tuple[int, Payload]] | tuple[()] = ()
        self._firing = 0
        self._gone: dict[int, Any] = {}
        self._pushes: deque[Callable[[], Any]] | tuple[()] = ()
        self._pusher: asyncio.Task[None] | None = None

    # -- what the driver tells ------------------------------------------------------------------------------

    def opened(self, event: Opened) -> None:
        """The peer asks for something."""
        if event.verb not in self._verbs:
            self._refuse(event)
        elif event.verb == "request":
            self._wait((("request", event.stream, event.payload),))
        elif event.verb == "fire":
            self._fires = self._fires or deque()
            self._fires.append((event.stream, event.payload))
            self._fire()
        else:
            self._start_stream(event)

    def requested(self, event: Requests) -> None:
        """The peer asks for several things at once."""
        if "request" in self._verbs:
            self._wait(zip(repeat("request"), event.streams, event.payloads, strict=False))
        else:
            super().requested(event)

    def begin_again(self, event: Opened, sent: int) -> None:
        """A request of a former process, ``sent`` items of whose answer were sent: its handler begins again."""
        if event.verb == "stream":
            self._start_stream(event, sent)
        else:
            self.opened(event)

    def canceled(self, stream: int) -> None:
        """The peer gave up: the handler ends, at its next wait."""
        task = self._running.get(stream)
        if task is not None:
            task.cancel()
        elif self._queue and any(waiting[1] == stream for waiting in self._queue):
            self._gone[stream] = None

    def failed(self, sender: Sender, error: Exception) -> None:
        """What a handler has made can not be sent: tell the peer, and end the handler."""
        task = self._running.get(sender.id)
        if task is not None and not sender.over:
            self._tell(sender.id, error)
            sender.stop()
            task.cancel()

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
        if self._queue:
            fired = [waiting for waiting in self._queue if waiting[0] == "fire"]
            self._queue.clear()  # in place: _work may be going through it
            self._queue.extend(fired)
        for stream, task in self._running.items():
            if (session := self._sessions.get(stream)) is None or not session.heard:
                task.cancel()

    def left(self) -> None:
        """No handler will run any more: let go of the peer, which the context has."""
        self.context = _NO_CONTEXT

    def stop(self) -> None:
        """End every handler."""
        for task in self.driver.tasks:
            task.cancel()

    # -- request and fire -----------------------------------------------------------------------------------

    def _wait(self, more: Iterable[Waiting]) -> None:
        """Queue requests, and see to it that somebody works."""
        if not isinstance(self._queue, deque):
            self._queue = deque()
        self._queue.extend(more)
        if not self._working:
            self._working = True
            self.driver.spawn(self._work())

    # long: every request passes here, and a call for each step would cost it a tenth
    async def _work(self) -> None:
        """Run what waits until one of them suspends. Answers go together: one call of the engine for many."""
        queue, base, verbs, engine = self._queue, self.context, self._verbs, self.driver.engine
        me = cast("asyncio.Task[Any]", asyncio.current_task())
        streams: list[int] = []
        answers: list[Payload] = []
        left = self.driver.loop_frames
        # The client works on the first half while the second is made; otherwise the two would work in turn.
        # 64 B with 256 at once: 217 → 326 k/s, with 64 at once 165 → 266 k/s, for 8 % more CPU.
        half = max(_FEW, min(len(queue), left) // 2)
        start = monotonic()
        while queue and left:
            verb, stream, payload = queue.popleft()
            if self._gone and self._was_canceled(stream):
                continue
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
                    if len(streams) == half:
                        engine.answer(streams, answers)
                        streams, answers = [], []
                        self.driver.flush_early()
                        half = 0
                else:
                    self._answer(verb, stream, value)
            except BaseException as error:
                engine.answer(streams, answers)
                self._raised(verb, stream, error)
                streams, answers = [], []
            else:
                engine.answer(streams, answers)
                self.driver.flush_soon()
                self._spread()
                if verb == "request":
                    self._running[stream] = me
                await self._finish(verb, stream, _resume(answer, context, awaited))
                return
            left -= 1
            if me.cancelling():
                break
        engine.answer(streams, answers)
        self.driver.flush_soon()
        self._working = bool(queue)
        if queue:
            self.driver.spawn(self._work())
        if (took := monotonic() - start) > _BLOCKED_S:
            self.driver.log_failure(f"afflux: handlers blocked the event loop for {took:.1f} s")

    def _was_canceled(self, stream: int) -> bool:
        """Whether the peer gave up before the handler began; then it is released."""
        if self._gone.pop(stream, self) is self:
            return False
        self.driver.engine.release(stream)
        return True

    def _spread(self) -> None:
        """The worker is taken: what still waits gets tasks of its own."""
        self._working = False
        while self._queue:
            verb, stream, payload = self._queue.popleft()
            if self._was_canceled(stream):
                continue
            work = self._finish(verb, stream, _awaited_call(self._verbs[verb], payload))
            task = self.driver.spawn(work, self.context.copy())
            if verb == "request":
                self._running[stream] = task

    def _fire(self) -> None:
        """Begin the next fire, unless as many run as may. Its payload fills the connection's memory until then: who
        fires faster than the handlers work finds that we do not read."""
        if self._fires and self._firing < self.driver.engine.limits.streams:
            self._firing += 1
            stream, payload = self._fires.popleft()
            self.driver.consumed(len(payload), 1)
            self._wait((("fire", stream, payload),))

    async def _finish(self, verb: str, stream: int, work: Any) -> None:
        try:
            answer = await work
        except BaseException as error:
            self._raised(verb, stream, error)
        else:
            self._answer(verb, stream, answer)

    def _answer(self, verb: str, stream: int, answer: Any) -> None:
        """The handler has returned."""
        driver = self.driver
        engine = driver.engine
        self._running.pop(stream, None)
        if verb == "request":
            try:
                if answer is None:
                    engine.complete(stream)
                else:
                    engine.send(stream, (answer,), complete=True)
            except Exception as error:
                self._tell(stream, error)
        self._release(verb, stream)

    def _release(self, verb: str, stream: int) -> None:
        """The handler has really ended."""
        self.driver.engine.release(stream)
        self.driver.flush_soon()
        if verb == "fire":
            self._firing -= 1
            self._fire()

    def _raised(self, verb: str, stream: int, error: BaseException) -> None:
        self._running.pop(stream, None)
        self._tell(stream, error)
        self._release(verb, stream)
        if isinstance(error, _STOPS):
            self._working = False
            raise error

    def _tell(self, stream: int, error: BaseException) -> None:
        """Tell the peer what went wrong; a stream that is over hears nothing."""
        if isinstance(error, asyncio.CancelledError):
            error = Canceled("the handler was canceled")
        elif not isinstance(error, Error):
            self.driver.log_failure("afflux: a handler raised", error)
        self.driver.engine.fail(stream, error if isinstance(error, Exception) else RuntimeError("the handler ended"))

    def _refuse(self, event: Opened) -> None:
        there = ", ".join(verb for verb in self._verbs if verb != "push") or "nothing"
        engine = self.driver.engine
        if event.verb == "fire":
            self.driver.consumed(len(event.payload), 1)
        error = Rejected(f'no handler for "{event.verb}"; handled here: {there}')
        if hasattr(engine, "abort"):
            cast("Carrying", engine).abort(event.stream, str(error), untouched=True)
        else:
            engine.fail(event.stream, error)
        engine.release(event.stream)

    # -- stream and channel ---------------------------------------------------------------------------------

    def _start_stream(self, event: Opened, sent: int = 0) -> None:
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
        task = driver.spawn(self._produce(event, sender, items, sent), self.context.copy())
        self._running[stream] = task
        task.add_done_callback(lambda task: self._returned(stream))

    def _first_grant(self, inbound: Inbound, stream: int) -> Callable[[int], None]:
        """The window opens when the handler first asks for an item; the first one is part of it (D-8)."""

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

    async def _produce(self, event: Opened, sender: Sender, items: ItemStream | None, sent: int) -> None:
        """Run one producer to its end, and close it whatever happens. Its first ``sent`` items were sent before."""
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

    def _returned(self, stream: int) -> None:
        """The handler of a stream has ended, started or not."""
        driver = self.driver
        self._running.pop(stream, None)
        driver.senders.pop(stream, None)
        driver.inbounds.pop(stream, None)
        driver.engine.release(stream)
        driver.flush_soon()

    # -- sessions of bytes ----------------------------------------------------------------------------------

    def session_opened(self, event: SessionOpened) -> None:
        """The peer opened a session: its handler reads and writes it. What it leaves open is finished for it."""
        driver, stream = self.driver, event.stream
        session = self._sessions[stream] = Session(driver, stream)
        task = driver.spawn(self._serve(session), self.context.copy())
        self._running[stream] = task
        task.add_done_callback(lambda task: self._left_session(stream))

    async def _serve(self, session: Session) -> None:
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
        self._running.pop(stream, None)
        self._sessions.pop(stream, None)
        driver.sessions.pop(stream, None)
        driver.engine.release(stream)
        driver.flush_soon()

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


async def _awaited_call(verb: Callable[..., Any], argument: Any) -> Any:
    return await _awaited(verb(argument))


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
