"""Run asyncio programs in virtual time: when nothing is ready, the clock jumps to the next timer.

No call sleeps, so an hour of timeouts passes in the time that its callbacks take, and the same seed gives the same run.
A thread that the program waits for (``asyncio.to_thread``) runs in real time while the virtual clock stands still.
Sockets and child processes are unsupported: programs in virtual time use ``mem://``, or a ``Network``.
"""

from __future__ import annotations

import asyncio
import gc
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from math import inf, nextafter
from pathlib import Path
from types import AsyncGeneratorType, FrameType
from typing import Any, TypeVar, TypeVarTuple

import afflux.aio.client
import afflux.aio.server  # noqa: F401  # here, because a thread would import them in a loop, which cannot wait for it

__all__ = ["Deadlock", "Livelock", "VirtualLoop", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
STEPS = 10_000_000
WITHIN_S = 7 * 86_400.0
_RESOLUTION_S = 1e-9
"Resolution of the clock for asyncio; after a hundred virtual days it is lost in rounding."


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the program would wait forever. The text lists the waiting tasks."""


class Livelock(RuntimeError):
    """The program has exceeded its limit of steps or of virtual time. The text lists the tasks that have not ended.

    A connection sends keepalives, so a program that waits forever with an open connection ends with this error.
    """


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time: ``asyncio.Runner(loop_factory=VirtualLoop)``.

    Args:
        seed: seed of ``random``, the generator of all random decisions of the loop.
        late: each timer fires up to this many seconds late, by chance.
        steps: turns of the loop until Livelock is raised.
        start: the initial time, in seconds.
        within: seconds of virtual time until Livelock is raised.
    """

    def __init__(
        self, *, seed: int = 0, late: float = 0.0, steps: int = STEPS, start: float = 0.0, within: float = WITHIN_S
    ) -> None:
        self.random = random.Random(seed)
        "The seeded generator; a program may use it as well."
        self.turns = 0
        "Turns of the loop so far."
        self._late = late
        self._limit = steps
        self._steps = steps
        self._virtual = start
        self._end = start + within
        self._within = within
        self._threads = 0
        super().__init__(_Selector(self._idle))

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._virtual

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time, plus the random delay of timers."""
        if self._late:
            when += self.random.random() * self._late
        if when <= self._virtual:
            when = nextafter(self._virtual, 0.0)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run a function in a thread; the virtual time stands still until it has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait for the threads, in real time."""
        self._threads += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._threads -= 1

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def _idle(self, timeout: float | None) -> float | None:
        """Called once in each turn, with the time until the next timer. Returns 0, or None to wait for a thread."""
        self.turns += 1
        if self.turns > self._limit:
            self._limit = self.turns + self._steps  # the tasks are canceled next, which takes turns as well
            raise Livelock(f"not ended after {self._steps:,} turns of the loop, {self._report()}")
        if timeout == 0:
            return 0
        if self._threads:
            return None
        if timeout is None:
            raise Deadlock(f"nothing will happen any more, {self._report()}")
        if self._virtual + timeout > self._end:
            self._end += self._within  # as above
            raise Livelock(f"not ended within {self._within:,.0f} s of virtual time, {self._report()}")
        self._virtual = jumped = self._virtual + timeout
        if jumped + _RESOLUTION_S == jumped:
            self._virtual = nextafter(jumped, inf)  # asyncio considers a timer due only before that sum
        return 0

    def _report(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: (len(task.get_name()), task.get_name()))
        lines = "".join(f"\n  {task.get_name()} waits in {_place(task)}" for task in tasks)
        return f"at {self._virtual:g} s of virtual time{lines}"


class _Selector(selectors.DefaultSelector):
    """Watch only the pipe by which threads wake the loop."""

    def __init__(self, idle: Callable[[float | None], float | None]) -> None:
        super().__init__()
        self._ask = idle

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch the loop's own pipe."""
        if self.get_map():
            raise RuntimeError("a loop in virtual time has no sockets: use mem:// addresses")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for threads only."""
        wait = self._ask(timeout)
        return [] if wait == 0 else super().select(wait)


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    late: float = 0.0,
    steps: int = STEPS,
    within: float = WITHIN_S,
    debug: bool | None = None,
) -> T:
    """Run a program in virtual time, as ``asyncio.run`` does in real time.

    The generator of the module ``random`` is seeded as well, for the duration of the run.

    Args:
        main: the program.
        seed: the same seed gives the same run.
        late: each timer fires up to this many seconds late, by chance.
        steps: turns of the loop until Livelock is raised.
        within: seconds of virtual time until Livelock is raised: a week.
        debug: asyncio's debug mode.

    Raises:
        Deadlock: every task waits for another, and no timer is set.
        Livelock: the program does not end within ``steps`` turns and ``within`` seconds.
        RuntimeError: another loop runs in this thread.
        TypeError: ``main`` is not a coroutine.
    """
    _check(main)
    before = random.getstate()
    random.seed(seed)
    try:
        make = partial(VirtualLoop, seed=seed, late=late, steps=steps, within=within)
        with asyncio.Runner(loop_factory=make, debug=debug) as runner:
            return runner.run(main)
    finally:
        random.setstate(before)


def _check(main: object) -> None:
    """Refuse what cannot be run, before a loop is made."""
    if not asyncio.iscoroutine(main):
        name = getattr(main, "__name__", None)
        raise TypeError(f"run() takes a coroutine, not {f'{name}: write run({name}())' if name else repr(main)}")
    if asyncio._get_running_loop() is not None:
        main.close()
        raise RuntimeError(
            "afflux.testing.run() cannot be called from a running event loop: call it from a plain function, or make "
            "the test's loop with afflux.testing.VirtualLoop"
        )


def _place(task: asyncio.Task[Any]) -> str:
    """Return the functions that a task waits in, the innermost last."""
    frames = list(_frames(task.get_coro()))
    return " > ".join(f"{f.f_code.co_name} ({Path(f.f_code.co_filename).name}:{f.f_lineno})" for f in frames) or "?"


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Iterate over the frames of a coroutine and of the objects that it awaits."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:
            # The awaitable of ``anext`` and ``async for`` has no attribute for its generator, but refers to it.
            referents = gc.get_referents(awaited)
            awaited = next((one for one in referents if isinstance(one, AsyncGeneratorType)), None)
