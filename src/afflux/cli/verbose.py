"""Show the log on stderr: ``-v`` shows the life of connections, ``-vv`` their frames as well."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

__all__ = ["Verbose", "log_shown", "prefix_log"]

Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, show_default=False, help="Log connections to stderr; -vv logs frames as well."
    ),
]


class _Prefixed(logging.Formatter):
    """Begins the lines of afflux's loggers as all lines of the commands begin."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if text.startswith("afflux: ") or not record.name.startswith("afflux") else f"afflux: {text}"


def prefix_log() -> None:
    """Let warnings that the log prints without ``-v`` begin with ``afflux:``."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Prefixed())


@contextmanager
def log_shown(verbose: int, label: str = "") -> Iterator[None]:
    """Write the log of this process to stderr meanwhile; no-op without ``-v``.

    Args:
        verbose: how often ``-v`` was given.
        label: stands before each line, after the time.
    """
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s.%(msecs)03d {label}%(message)s", "%H:%M:%S"))
    logger = logging.getLogger("afflux")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
