"""Spark's daemon of Python workers, for sessions on this computer: quiet when a task no longer needs its worker.

Spark closes the connection of a worker whose task has ended, such as one that reads ahead. The worker's last write then
fails, which is no problem, and ``pyspark.daemon`` prints a traceback of it among the lines of a command. All other
tracebacks are printed. Spark starts this module: see ``spark.python.daemon.module`` in session.py.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon

__all__ = ["report"]


def report() -> None:
    """Print the traceback of the error that is being handled, unless the other end has closed the connection."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = SimpleNamespace(print_exc=report, format_exc=traceback.format_exc)
    daemon.manager()
