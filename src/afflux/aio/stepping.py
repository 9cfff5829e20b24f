"""Run the first step of a coroutine without a task, and continue it in the task of the caller when it suspends.

Coroutines that finish in their first step need no task. Requests and streams begin their handlers in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any

__all__ = ["rest_here", "rest_within"]


@coroutine
def rest_here(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine whose first step ran in the context of the current task, and awaits ``awaited``."""
    while True:
        try:
            yield awaited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            thrown = error
        else:
            return (yield from work)  # as fast as in a task of its own
        try:
            awaited = work.throw(thrown)
        except StopIteration as stop:
            return stop.value
        finally:
            del thrown  # the error and this frame would refer to each other


@coroutine
def rest_within(work: Coroutine[Any, Any, Any], context: Context, awaited: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine whose first step ran in ``context``, and awaits ``awaited``, on behalf of the current
    task."""
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
            argument = None  # an error and this frame would refer to each other
