"""Build and run rsocket-java as a peer, in java/.

``AFFLUX_RSOCKET_JAVA`` contains the class path: the jars of io.rsocket's rsocket-core and rsocket-transport-netty and
their dependencies. Otherwise Maven resolves java/pom.xml, first from its local repository, then from its registry. The
result is cached in build/interop-java, a failure for an hour.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["CLASSES", "HOME", "JARS", "class_path", "command", "version", "why_not"]

HOME = Path(__file__).resolve().parent / "java"
CLASSES = HOME.parent.parent / "build" / "interop-java"
"The folder of the build."

JARS = "AFFLUX_RSOCKET_JAVA"
"The variable that contains the class path."

_COMPILER_S = 90
_OFFLINE_S = 30
_ONLINE_S = 60
_REMEMBERED_S = 3600
_ENABLE = f"name a class path with rsocket-core and rsocket-transport-netty in {JARS}"


def command() -> tuple[str, ...]:
    """Return its command."""
    return ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(), "interop.Peer")


def class_path() -> str:
    """Return the class path: its classes and the jars. Valid where ``why_not`` returns None."""
    jars = _path(os.environ.get(JARS, ""))[0]
    return os.pathsep.join((str(_classes(jars)), jars))


def why_not() -> str | None:
    """Return why it cannot run here, and the remedy; None if it can."""
    jars, reason = _path(os.environ.get(JARS, ""))
    return reason or _compiled(jars, _classes(jars))


def version() -> str:
    """Return its version: by the name of its jar, or the exact one of the pom."""
    jars = os.environ.get(JARS, "")
    named = re.search(r"rsocket-core-([0-9][\w.-]*?)\.jar", jars)
    if named:
        return named[1]
    wanted = re.search(r"<rsocket.version>([^<]+)<", (HOME / "pom.xml").read_text())
    assert wanted is not None
    return f"not named by its jars ({wanted[1]} is what the pom wants)" if jars else wanted[1]


@cache
def _path(jars: str) -> tuple[str, str | None]:
    """Return the class path, or why there is none. Runs once."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            return "", f"{tool} not found: install a JDK, 11 or newer (Debian: default-jdk-headless)"
    if jars:
        return jars, None
    if shutil.which("mvn") is None:
        return "", f"rsocket-java is not here: {_ENABLE}, or install Maven"
    return _resolved(CLASSES)


def _resolved(folder: Path) -> tuple[str, str | None]:
    """Return the answer of Maven, or the cached one."""
    mark = folder / "maven.json"
    pom = sha256((HOME / "pom.xml").read_bytes()).hexdigest()
    if mark.exists():
        said = json.loads(mark.read_text())
        there = said["path"] and all(Path(jar).exists() for jar in said["path"].split(os.pathsep))
        if said["pom"] == pom and (there or (said["reason"] and time.time() - said["at"] < _REMEMBERED_S)):
            return said["path"], said["reason"]
    folder.mkdir(parents=True, exist_ok=True)
    path, reason = _asked(folder, ("--offline",), _OFFLINE_S)
    if not path:
        path, reason = _asked(folder, (), _ONLINE_S)
    mark.write_text(json.dumps({"pom": pom, "path": path, "reason": reason, "at": time.time()}))
    return path, reason


def _asked(folder: Path, more: tuple[str, ...], patience: float) -> tuple[str, str | None]:
    """Run Maven once."""
    out = folder / "classpath.txt"
    out.unlink(missing_ok=True)
    words = ("mvn", "-q", "-B", *more, "-f", str(HOME / "pom.xml"), "dependency:build-classpath")
    try:
        done = subprocess.run(
            (*words, f"-Dmdep.outputFile={out}"), capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"Maven did not finish within {patience:g} s: is its registry reachable? If not, {_ENABLE}"
    if done.returncode or not out.exists():
        return "", f"Maven cannot resolve interop/java/pom.xml: is its registry reachable? If not, {_ENABLE}"
    return out.read_text().strip(), None


def _sources() -> list[Path]:
    return sorted((HOME / "src").rglob("*.java"))


def _classes(jars: str) -> Path:
    """Return the folder for compiled classes: one for each state of the sources and the class path."""
    state = sha256(jars.encode() + b"".join(source.read_bytes() for source in _sources()))
    return CLASSES / f"classes-{state.hexdigest()[:12]}"


@cache
def _compiled(jars: str, classes: Path) -> str | None:
    """Compile the peer once; return why that failed."""
    if classes.exists():
        return None
    CLASSES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CLASSES) as folder:
        made = Path(folder) / "classes"
        words = ("javac", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", jars, "-d", str(made))
        try:
            done = subprocess.run(
                (*words, *map(str, _sources())), capture_output=True, text=True, timeout=_COMPILER_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"javac was not done after {_COMPILER_S} s"
        if done.returncode:
            wrong = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
            return f"javac fails with the jars of {JARS} ({(wrong or ['it says nothing'])[0][:120]})"
        with suppress(OSError):  # somebody else was faster
            made.rename(classes)
    return None
