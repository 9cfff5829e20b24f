"""Check and compile the Java original of Jmux, in jeri/.

No registry is used: ``AFFLUX_RIVER`` contains the jars of Apache River, as a class path. Any version works that has
net.jini.jeri.connection: jsk-platform and jsk-lib (net.jini on Maven Central).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["HOME", "RIVER", "command", "versions", "why_not"]

HOME = Path(__file__).resolve().parent / "jeri"

RIVER = "AFFLUX_RIVER"
"The variable that contains the jars."

_PATIENCE_S = 90
"Seconds that the compiler may take."


def command(role: str, *arguments: str) -> list[str]:
    """Return the command of one end."""
    classes = os.pathsep.join((os.environ.get(RIVER, ""), str(HOME / "classes")))
    return ["java", "-cp", classes, "Child", role, *arguments]


def why_not() -> str | None:
    """Return why it cannot run here, and the remedy; None if it can."""
    return _compiled(os.environ.get(RIVER, ""))


@cache
def _compiled(jars: str) -> str | None:
    """Compile Child.java; return why that failed. Runs once."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            return f"{tool} not found: install a JDK, 11 or newer (Debian: apt-get install default-jdk-headless)"
    if not jars:
        return f"Apache River not found: put its jars (jsk-platform, jsk-lib; from Maven Central) in {RIVER}"
    command = ("javac", "-nowarn", "-proc:none", "-cp", jars, "-d", str(HOME / "classes"), str(HOME / "Child.java"))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"javac was not done after {_PATIENCE_S} s"
    if done.returncode:
        wrong = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
        return f"javac fails with the jars of {RIVER} ({(wrong or ['it says nothing'])[0][:120]})"
    return None


def versions() -> dict[str, str]:
    """Return the version of Java. Only the name of a jar may contain that of Apache River."""
    if shutil.which("java") is None:
        return {}
    told = subprocess.run(("java", "--version"), capture_output=True, text=True, check=False)
    return {"Java": told.stdout.partition("\n")[0].strip()}
