"""The Java original of Jmux, in jeri/: what it needs of this machine. It is compiled against when first asked for.

No registry is asked: the jars of Apache River are named in ``AFFLUX_RIVER``, as a class path. They are those of any
version that has net.jini.jeri.connection: jsk-platform and jsk-lib (net.jini on Maven Central).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["HOME", "RIVER", "classes", "versions", "why_not"]

HOME = Path(__file__).resolve().parent / "jeri"

RIVER = "AFFLUX_RIVER"
"The variable that names the jars."

_PATIENCE_S = 90
"What the compiler may take."


def classes() -> str:
    """The class path: the jars, and what became of Child.java."""
    return os.pathsep.join((os.environ.get(RIVER, ""), str(HOME / "classes")))


def why_not() -> str | None:
    """Why it can not run here, and what would change that; None when it can."""
    return _compiled(os.environ.get(RIVER, ""))


@cache
def _compiled(jars: str) -> str | None:
    """Compile Child.java; why that could not be. Asked once for all."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here: install a JDK, 11 or newer (Debian: apt-get install default-jdk-headless)"
    if not jars:
        return f"Apache River is not here: name its jars (jsk-platform, jsk-lib; from Maven Central) in {RIVER}"
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
    """Of Java. Which Apache River it is, only the name of a jar may tell."""
    if shutil.which("java") is None:
        return {}
    told = subprocess.run(("java", "--version"), capture_output=True, text=True, check=False)
    return {"Java": told.stdout.partition("\n")[0].strip()}
