"""Restart the handlers of sessions restored from a file.

``aio/unfinished.py`` resumes the streams that the application opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from afflux.calls import route_in
from afflux.core.errors import Canceled, Error
from afflux.core.events import Opened, Verb
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.core.engine import Resumption
    from afflux.resume.record import Record

__all__ = ["plain", "replays_of", "restart", "skipping"]


def replays_of(handler: object) -> Callable[..., bool]:
    """Return a function that decides whether the handler of a request can be restarted: if it, or the object that it
    belongs to, has a true attribute ``replays``. For a router, the function of the route decides."""
    find = getattr(handler, "find", None)
    called = getattr(handler, "as_handler", lambda: handler)()

    def replays(verb: Verb, payload: Payload, metadata_mime: str | None = None) -> bool:
        if verb == "channel":
            return False
        function = getattr(called, verb, None)
        if callable(find):
            with suppress(Error):  # without a known route, the request is refused like any other
                function, _ = find(verb, route_in(payload, metadata_mime))
        return function is not None and bool(getattr(function, "replays", getattr(handler, "replays", False)))

    return replays


def restart(record: Record, side: str) -> list[tuple[Opened, int]]:
    """End the streams that cannot continue after a restart of ``side``. Return the requests whose handlers run again,
    each with the number of items already sent."""
    engine, session = record.engine, cast("Resumption", record.engine.resumption)
    again: list[tuple[Opened, int]] = []
    for stream in session.opened:
        if stream not in record.asked:
            engine.cancel(stream)
    for stream in sorted(session.handlers):
        served, counters = record.served.get(stream), session.stream_counters(stream)
        if served is not None and (counters is not None or served.verb == "fire"):
            sent, allowed, _ = counters or (0, 0, 0)
            again.append((Opened(stream, served.verb, served.payload, allowed, False), sent))
            continue
        # DR-11: the progress of the handler is unknown.
        engine.fail(stream, Canceled(f"the {side} was restarted: processing may have begun"))
        engine.release(stream)
    return again


def plain(value: Any) -> Any:
    """Convert the tuples of a certificate to lists, as they are read from a file."""
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


async def skipping(source: Any, count: int) -> AsyncIterator[Any]:
    """Yield the items of a source, or lists of them, without the first ``count`` items."""
    if isinstance(source, AsyncIterable):
        async for item in source:
            if (rest := _beyond(item, count)) is not None:
                yield rest
            count -= len(item) if type(item) is list else 1
    else:
        for item in source:
            if (rest := _beyond(item, count)) is not None:
                yield rest
            count -= len(item) if type(item) is list else 1


def _beyond(item: Any, count: int) -> Any:
    """Return an item or a list of items without the first ``count``; None if none are left."""
    if count <= 0:
        return item
    return item[count:] or None if type(item) is list else None
