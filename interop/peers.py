"""Who is asked: where each implementation is, how it is started, and why it can not be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from interop import rsocket_java

__all__ = ["PEERS", "Peer"]

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Peer:
    """One implementation."""

    name: str
    title: str
    packages: str
    "What is installed of it, for the report."
    tells_leases: bool = False
    "Its requests fail without a lease, and it tells when one comes; those of others wait."
    script: str = ""
    'The node script; "" for one of Python or Java.'
    java: bool = False
    optional: bool = False
    "A run without it is a good run: not every machine can have it."

    @property
    def command(self) -> tuple[str, ...]:
        """What starts it."""
        if self.java:
            return rsocket_java.command()
        return ("node", str(HERE / self.script)) if self.script else (sys.executable, "-m", "interop.rsocket_py")

    def why_not(self) -> str | None:
        """Why it can not run here, and what would change that; None when it can. Installs what npm or Maven has to."""
        if self.java:
            return rsocket_java.why_not()
        if not self.script:
            return None if _has("rsocket") else "the package rsocket is not here: make setup"
        return _node(HERE)

    def version(self) -> str:
        """Which one it is: of npm the one that is wanted, which is exact."""
        if self.java:
            return rsocket_java.version()
        if not self.script:
            return metadata.version("rsocket")
        wanted = json.loads((HERE / Path(self.script).parent / "package.json").read_text())
        return str(wanted["dependencies"]["rsocket-core"])


def _has(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def _node(home: Path) -> str | None:
    """Why the JavaScript peers can not run. Installs them once for each lock file; asks once only."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"
    lock = home / "package-lock.json"
    mark = home / "node_modules" / "installed.json"
    if mark.exists() and mark.read_text() == lock.read_text():
        return None
    try:
        done = subprocess.run(
            ("npm", "ci", "--no-audit", "--no-fund"), cwd=home, capture_output=True, text=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired:
        return "npm ci in interop/ was not done after 90 s: is the npm registry within reach?"
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        return (
            f"npm ci in interop/ failed ({(last or ['it says nothing'])[0][:120]}): is the npm registry within reach?"
        )
    mark.write_text(lock.read_text())
    return None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("rsocket-py", "rsocket-py 0.4.20", "PyPI: rsocket"),
        Peer("rsocket-js-0", "rsocket-js 0.0.27", "npm: rsocket-core and its transports", True, "js0/peer.js"),
        Peer("rsocket-js-1", "rsocket-js 1.0.0-alpha.3", "npm: rsocket-core and its transports", script="js1/peer.js"),
        Peer("rsocket-java", "rsocket-java 1.1", "Maven: io.rsocket", java=True, optional=True),
    )
}
"Every peer by name."
