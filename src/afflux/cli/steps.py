"""Take the steps of a session type with values from the command line: ``afflux request --session``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from afflux.cli.exits import usage
from afflux.cli.inputs import existing
from afflux.cli.output import Printer
from afflux.core.payload import Payload
from afflux.sessions import Kind, Machine, SessionSyntaxError, load
from afflux.sessions.script import Step, step_of, take

__all__ = ["run", "session_type"]


def session_type(file: Path, channel: str) -> Machine:
    """Return the type of a channel, or print what is wrong with the file and exit."""
    existing(str(file), "--session")
    try:
        types = load(file)
    except SessionSyntaxError as error:
        usage(error.message)
    except OSError as error:
        usage(f"--session: cannot read {str(file)!r}: {error.strerror}")
    if channel not in types:
        usage(f'{file} has no channel "{channel}"; it has: {", ".join(types)}')
    return types[channel]


async def run(
    peer: Any, type: Machine, items: AsyncIterator[bytes], show: Printer, arrived: Callable[[], None]
) -> None:
    """Open a session, send the items where the type expects steps of this side, and print the values of the peer as
    JSON. A value where the type expects a choice chooses the first branch. ``arrived`` is called with each step of the
    peer."""
    async with peer.open(type) as chan:
        step: Step | None = None
        while chan.kind is not Kind.END:
            if chan.kind is Kind.RECV:
                value, chan = await chan.recv()
                arrived()
                show.item(Payload(json.dumps(value, ensure_ascii=False).encode()))
                continue
            if chan.kind is Kind.OFFER:
                _, chan = await chan.offer()
                arrived()
                continue
            step = step or await _next(items, chan.expected)
            try:
                chan, used = await take(chan, step)
            except ValueError as error:
                usage(str(error))
            step = None if used else step
        await chan.end()
    rest = step.text if step is not None else (await anext(items, b"")).decode("utf-8", "replace").strip()
    if rest:
        usage(f"the session is over: {rest[:64]!r} was not sent, and nothing after it")


async def _next(items: AsyncIterator[bytes], expected: str) -> Step:
    item = await anext(items, None)
    if item is None:
        usage(f"the session is not over: the type expects {expected}")
    try:
        return step_of(item.decode("utf-8", "replace"))
    except ValueError as error:
        usage(str(error))
