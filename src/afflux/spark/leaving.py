"""Run a session of Spark for one command, and leave it without a traceback of py4j, whatever has happened to its JVM.

A session that the process had before stays as it is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from afflux.core.errors import Error
from afflux.spark.session import active, build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JVM_ENDED", "SparkEnded", "leave", "session_of"]

JVM_ENDED: Final = (
    "Spark's JVM has ended, for example because memory ran out, or by a signal to all processes of the command"
)
_END_S: Final = 10.0
"Seconds for the JVM to end, before it is killed."


class SparkEnded(Error):
    """The JVM of Spark has ended, or does not answer any more."""


@contextmanager
def session_of(app: str, master: str, then: str, **conf: str) -> Iterator[SparkSession]:
    """Build a session, and leave it at the end. Raises as ``build``.

    Args:
        app: see ``build``.
        master: see ``build``.
        then: what to do when the JVM has ended, as the end of a sentence.
        conf: see ``build``.

    Raises:
        SparkEnded: the JVM has ended meanwhile.
    """
    fresh = not active()
    session = build(app, master, **conf)
    try:
        yield session
    except Exception as error:
        if not _is_of_jvm(error):
            raise
        raise SparkEnded(f"{JVM_ENDED}; {then}") from None
    finally:
        if fresh:
            leave(session)


def leave(session: SparkSession) -> None:
    """Stop a session, and let its JVM end; kill the JVM after 10 seconds, or when interrupted. Errors are ignored: the
    result of the command is known."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    try:
        with suppress(Exception):
            session.stop()
        with suppress(Exception):
            gateway.shutdown()
        if process is not None:
            _end(process)
    finally:
        SparkContext._gateway = SparkContext._jvm = None
        if process is not None and process.poll() is None:
            process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close what the JVM reads, which ends it, and wait."""
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _is_of_jvm(error: Exception) -> bool:
    """Return whether an error of py4j means that the JVM does not answer. An exception in the JVM is none of them."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError))
