"""Repeat an attempt that failed: ``--retry N[:TIME]``. An attempt is repeated only if nothing happens twice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from random import Random

from afflux.cli.exits import usage, words
from afflux.cli.inputs import duration
from afflux.core.errors import Canceled, ConnectionClosed, Error, SetupRefused
from afflux.middleware.retry import SAFE
from afflux.retry.backoff import Backoff
from afflux.transports.durations import in_words

__all__ = ["is_lost", "is_safe", "parse", "retried"]

_MOST = 1000
_FIRST_S = 0.1
_LONGEST_S = 10.0


def parse(text: str) -> Backoff:
    """Parse N or N:TIME: at most N further attempts, the first after TIME (100ms), each delay twice the one before, up
    to 10 s. Exits with a usage error for anything else."""
    count, colon, first = text.partition(":")
    if not re.fullmatch(r"\d{1,4}", count) or not 1 <= int(count) <= _MOST or (colon and not first):
        usage(f"invalid --retry {text!r}: expected N or N:TIME, such as 5 or 5:200ms, with N from 1 to {_MOST:,}")
    wait = duration(first, "time of --retry") if colon else _FIRST_S
    return Backoff(first=wait, most=max(wait, _LONGEST_S), tries=int(count))


def is_safe(error: Error) -> bool:
    """Whether the request was certainly not processed: refused beforehand, never sent, or never connected."""
    if isinstance(error, SetupRefused):
        return False
    return isinstance(error, SAFE) or (isinstance(error, ConnectionClosed) and not error.may_have_been_processed)


def is_lost(error: Error) -> bool:
    """Whether a read by cursor may continue on another connection."""
    return is_safe(error) or (isinstance(error, (ConnectionClosed, Canceled)) and not isinstance(error, SetupRefused))


async def retried(
    attempt: Callable[[], Awaitable[None]],
    backoff: Backoff,
    *,
    repeatable: Callable[[Error], bool],
    progress: Callable[[], int],
    note: Callable[[str], None],
) -> None:
    """Run an attempt until it succeeds, or fails with an error that is not repeatable, or the backoff has no tries
    left. After progress the tries are counted anew.

    Args:
        attempt: makes one attempt.
        backoff: the delays and their number.
        repeatable: whether an attempt may follow an error.
        progress: returns a number that grows with the progress of the attempts.
        note: prints a line about each failed attempt.

    Raises:
        Error: that of the last attempt.
    """
    waits, before, tried = backoff.waits(Random()), progress(), 1
    while True:
        try:
            await attempt()
            return
        except Error as error:
            if progress() != before:
                waits, before, tried = backoff.waits(Random()), progress(), 1
            wait = next(waits, None) if repeatable(error) else None
            if wait is None:
                if tried > 1:
                    error.add_note(f"after {tried} attempts")
                raise
            note(f"{words(error)}; trying again in {in_words(wait)}")
        await asyncio.sleep(wait)
        tried += 1
