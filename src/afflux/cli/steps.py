"""Take the steps of a session type with values from the command line: ``afflux request --session``."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from afflux.cli.exits import usage
from afflux.cli.output import Printer
from afflux.core.payload import Payload
from afflux.sessions import Kind, Machine, SessionSyntaxError, load

__all__ = ["run"]

_CHOICE = re.compile(r"choose\s+(\d{1,2})")


def session_type(file: Path, channel: str) -> Machine:
    """Return the type of a channel, or print what is wrong with the file and exit."""
    try:
        types = load(file)
    except SessionSyntaxError as error:
        usage(error.message)
    except OSError as error:
        usage(f"--session: cannot read {file}: {error.strerror}")
    if channel not in types:
        usage(f'{file} has no channel "{channel}"; it has: {", ".join(types)}')
    return types[channel]


async def run(peer: Any, type: Machine, items: AsyncIterator[bytes], show: Printer) -> None:
    """Open a session, send the items where the type expects steps of this side, and print the values of the peer as
    JSON. A value where the type expects a choice chooses the first branch."""
    async with peer.open(type) as chan:
        item = ""
        while chan.kind is not Kind.END:
            if chan.kind is Kind.RECV:
                value, chan = await chan.recv()
                show.item(Payload(json.dumps(value, ensure_ascii=False).encode()))
                continue
            if chan.kind is Kind.OFFER:
                _, chan = await chan.offer()
                continue
            item = item or await _next(items, chan.expected)
            choice = _CHOICE.fullmatch(item)
            if chan.kind is Kind.CHOOSE:
                chan = await chan.choose(1 if choice is None else int(choice[1]))
                item = "" if choice is not None else item
            else:
                chan = await chan.send(_value(item))
                item = ""
        await chan.end()
    item = item or (await anext(items, b"")).decode("utf-8", "replace").strip()
    if item:
        usage(f"the session is over: {item[:64]!r} was not sent, and nothing after it")


async def _next(items: AsyncIterator[bytes], expected: str) -> str:
    item = await anext(items, None)
    if item is None:
        usage(f"the session is not over: the type expects {expected}")
    return item.decode("utf-8", "replace").strip()


def _value(item: str) -> Any:
    try:
        return json.loads(item)
    except (ValueError, RecursionError):
        usage(f"{item[:64]!r} is neither JSON nor a choice, such as: choose 2")
